#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# make_view.sh DIR: the folder that the preload of `roost run` shows in place of /dev/infiniband and
# /sys/class/infiniband*. The files agree with the device's attributes in the verbs: one port,
# Ethernet, RoCE v2; the names and formats are the kernel's (drivers/infiniband/core/sysfs.c,
# device.c, uverbs_main.c). Empty files are those whose text the library gives when they are opened
# (src/verbs/sysfs.c). There are no counters: they belong to a process, and `roost stat` shows them.
# DESTDIR is honoured.
set -e
dir=$DESTDIR$1
dev=$dir/sys/class/infiniband/roost0
port=$dev/ports/1
verbs=$dir/sys/class/infiniband_verbs

mkdir -p "$dir/dev/infiniband" "$port/gids" "$port/pkeys" "$port/gid_attrs/types" \
	"$port/gid_attrs/ndevs" "$dev/device/net" "$verbs/uverbs_roost0"
ln -sf /dev/null "$dir/dev/infiniband/uverbs_roost0"

echo "1: CA" >"$dev/node_type"
echo "Roost, a RoCE v2 NIC in software" >"$dev/node_desc"
: >"$dev/node_guid"
: >"$dev/sys_image_guid"
: >"$dev/fw_ver"

echo "4: ACTIVE" >"$port/state"
echo "5: LinkUp" >"$port/phys_state"
echo "Ethernet" >"$port/link_layer"
echo "40 Gb/sec (4X FDR10)" >"$port/rate"
echo "0x04000000" >"$port/cap_mask"
echo "0x0" >"$port/lid"
echo "0" >"$port/lid_mask_count"
echo "0x0" >"$port/sm_lid"
echo "0" >"$port/sm_sl"
echo "0xffff" >"$port/pkeys/0"
# The number of addresses that a port can have (NIC_MAX_PORTS).
for i in 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do
	: >"$port/gids/$i"
	: >"$port/gid_attrs/types/$i"
	: >"$port/gid_attrs/ndevs/$i"
done

echo 6 >"$verbs/abi_version" # IB_USER_VERBS_ABI_VERSION
echo "roost0" >"$verbs/uverbs_roost0/ibdev"
echo 1 >"$verbs/uverbs_roost0/abi_version"
echo "1:3" >"$verbs/uverbs_roost0/dev" # what uverbs_roost0 in /dev/infiniband is
