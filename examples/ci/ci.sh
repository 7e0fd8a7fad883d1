#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# Runs a server and a client on Roost, over a link that loses and delays packets, and keeps captures
# of both ends. Needs no rights. The exit status is 0 only if both programs ended with 0 and no
# packet broke a rule of the protocol.
#
#	SERVER, CLIENT	command lines; without them rping, which checks 100 messages
#	LINK		the faults of each direction, from a seed: a failed run can be repeated
#	ARTIFACTS	the folder for captures and logs
#	ROOST		the command, where it is not in PATH
set -u
roost=${ROOST:-roost}
link=${LINK:-loss=0.01,delay=20us,seed=7}
out=${ARTIFACTS:-artifacts}
address=${ADDRESS:-127.0.0.2}      # of the server's NIC
client_address=${CLIENT_ADDRESS:-127.0.0.3}
server_command=${SERVER:-rping -s -a $address -C 100 -V}
client_command=${CLIENT:-rping -c -a $address -C 100 -V}

fail() {
	echo "$0: $*; its logs and captures are in $out" >&2
	tail -n 20 "$out/server.log" "$out/client.log" >&2
	exit 1
}

# Command lines are split at blanks.
# shellcheck disable=SC2086
on_roost() {
	name=$1 nic=$2
	shift 2
	exec "$roost" run --port "udp:$nic,$link,pcap=$out/$name.pcap" -- $* >"$out/$name.log" 2>&1
}

mkdir -p "$out" || exit 1
: >"$out/client.log"
server='' client=''
trap 'kill $server $client 2>/dev/null' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
on_roost server "$address" "$server_command" &
server=$!

# A client that comes before the server listens cannot connect, and is repeated for ten seconds.
tries=1
while :; do
	on_roost client "$client_address" "$client_command" &
	client=$!
	wait $client && break
	kill -0 "$server" 2>/dev/null || fail "the server ended before the client"
	[ $tries -lt 20 ] || fail "the client failed $tries times"
	tries=$((tries + 1))
	sleep 0.5
done
client=''
wait $server || fail "the server failed"
server=''

# Each NIC is judged by its own capture. --disorder: the link may have changed the order of what it
# received.
for name in server client; do
	nic=$([ $name = server ] && echo "$address" || echo "$client_address")
	"$roost" pcap --local "$nic" --disorder "$out/$name.pcap" >"$out/$name.txt" ||
		fail "$name.txt says which rule of the protocol was broken"
done
echo "passed with $link: $(tail -n 1 "$out/client.txt")"
