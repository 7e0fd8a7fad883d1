#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# Debian's own ib_write_bw and ib_read_lat (package perftest) between two processes under `roost
# run`, over UDP on loopback. usage: examples/perftest.sh [ROOST]
roost=${1:-build/roost}
[ -x "$roost" ] || {
	echo "no $roost: run \`make\` first, or name the command" >&2
	exit 1
}

# TCP ports for the programs' own exchange. They depend on the process id, so that two runs can be
# concurrent.
tcp=$((20000 + $$ % 20000))
# Loopback addresses of the two NICs, which depend on it too.
net=127.$(($$ / 65536 % 128)).$(($$ / 256 % 256))
a=$net.$(($$ % 128 * 2))
b=$net.$(($$ % 128 * 2 + 1))

both() {
	tcp=$((tcp + 1))
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
