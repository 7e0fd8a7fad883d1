#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# make_view.sh DIR: the folder that the preload of `roost run` shows in place of /dev/infiniband and /sys/class/infiniband*.
# What stands there says what the device says through the verbs: one port, Ethernet, RoCE v2. DESTDIR is honoured.
set -e
dir=$DESTDIR$1
dev=$dir/sys/class/infiniband/roost0
port=$dev/ports/1
verbs=$dir/sys/class/infiniband_verbs

mkdir -p "$dir/dev/infiniband" "$port/gid_attrs/types" "$verbs/uverbs_roost0"
ln -sf /dev/null "$dir/dev/infiniband/uverbs_roost0"
echo "1: CA" >"$dev/node_type"
echo "Ethernet" >"$port/link_layer"
echo "4: ACTIVE" >"$port/state"
echo "RoCE v2" >"$port/gid_attrs/types/0"
echo "roost0" >"$verbs/uverbs_roost0/ibdev"
