#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# Debian's own ib_write_bw and ib_read_lat (package perftest) between two processes under `roost
# run`, over UDP on loopback. usage: examples/perftest.sh [ROOST]
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
# TCP ports for the programs' own exchange, one for each of the two runs.
tcp=$((20000 + $$ % 6000 * 2))

both() {
	echo "\$ roost run --port udp:$a -- $* &"
	echo "\$ roost run --port udp:$b -- $* 127.0.0.1"
	"$roost" run --port "udp:$a" -- "$@" -p $tcp >/dev/null 2>&1 &
	server=$!
	# The client exits at once if the server does not listen yet.
	for try in 1 2 3 4 5 6 7 8 9 10; do
		sleep 0.3
		if "$roost" run --port "udp:$b" -- "$@" -p $tcp 127.0.0.1 >"$out" 2>&1; then
			sed -n '/#bytes/,$p' "$out" | grep -v -e '----'
			wait $server
			server=
			tcp=$((tcp + 1))
			return
		fi
		kill -0 $server 2>/dev/null || break
	done
	cat "$out" >&2
	exit 1
}

out=$(mktemp) server=
trap 'kill $server 2>/dev/null; rm -f "$out"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
for tool in ib_write_bw ib_read_lat; do
	if command -v $tool >/dev/null; then
		both $tool -F
	else
		echo "$tool is not installed (package perftest)"
	fi
done
