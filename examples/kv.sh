#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# A node with a key-value store: Debian's own memcached client (package libmemcached-tools) and
# `roost kv`, which calls the store by RDMA, use the same pairs. Then the rate of operations in
# batches.
# usage: examples/kv.sh [ROOST]
roost=${1:-build/roost}
[ -x "$roost" ] || {
	echo "no $roost: run \`make\` first, or name the command" >&2
	exit 1
}

# Addresses that follow from the process id: each id has two of its own, so that concurrent runs do
# not meet.
net=127.$(($$ / 126 / 256 + 1)).$(($$ / 126 % 256))
a=$net.$(($$ % 126 * 2 + 4))
b=$net.$(($$ % 126 * 2 + 5))
folder=$(mktemp -d) node=
trap 'kill $node 2>/dev/null; wait $node 2>/dev/null; rm -rf "$folder"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
"$roost" node --port "udp:$a" --kv 64M --memcached "$a:11211" >"$folder/node" &
node=$!
for try in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
	grep -q memory "$folder/node" && break
	kill -0 $node 2>/dev/null || exit 1
	sleep 0.2
done

show() {
	echo "\$ $*"
	"$@" || exit 1
}

kv() {
	verb=$1
	shift
	echo "\$ roost kv $verb $a $*"
	"$roost" kv --port "udp:$b" "$verb" "$a" "$@" || exit 1
}

if command -v memccp >/dev/null; then
	echo "hello" >"$folder/greeting"
	(cd "$folder" && show memccp --servers="$a:11211" greeting) || exit 1
	show memccat --servers="$a:11211" greeting
else
	echo "memccat is not installed (package libmemcached-tools)"
fi
kv put colour green
kv get colour
kv incr visits 41
kv incr visits
kv bench --duration 1 --keys 10k
