#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# `roost pcap`: exit status, output and messages. Arguments: the command, the folder of golden
# captures.
set -u
command=$1
golden=$2
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
failed=0
count=0

# expect STATUS TEXT ARGUMENTS...: the status, and TEXT somewhere in stdout or stderr (an extended
# regular expression).
expect() {
	status=$1
	text=$2
	shift 2
	count=$((count + 1))
	"$command" "$@" >"$dir/out" 2>"$dir/err" <"${stdin:-/dev/null}"
	got=$?
	if [ $got -ne "$status" ]; then
		echo "roost pcap $*: status $got, should be $status"
		cat "$dir/err"
		failed=1
	fi
	if ! cat "$dir/out" "$dir/err" | grep -Eq "$text"; then
		echo "roost pcap $*: nothing like '$text' in:"
		head -5 "$dir/out" "$dir/err"
		failed=1
	fi
	# An error is one line.
	if [ "$(wc -l <"$dir/err")" -gt 1 ]; then
		echo "roost pcap $*: more than a line on stderr:"
		cat "$dir/err"
		failed=1
	fi
}

# corrupt FILE OFFSET: writes FILE with a byte changed to $dir/bad.
corrupt() {
	{
		head -c "$2" "$1"
		printf '\125'
		tail -c +$(($2 + 2)) "$1"
	} >"$dir/bad"
}

vt=$golden/vt_ops.pcap

expect 0 '3127 RoCE packets, 3127 right' --quiet "$golden"/*.pcap
expect 0 'oracles: 0 violations' "$golden/loss_read_bw.pcap"
expect 0 '^ +1 +0\.0+ 10\.77\.0\.2 > 10\.77\.0\.1 .* icrc ok$' "$golden/write_bw_256.pcap"
[ "$(grep -c 'icrc ok$' "$dir/out")" -eq 25 ] || {
	echo "not a line per packet"
	failed=1
}
expect 0 '^  RC_WRITE_MIDDLE +10$' --quiet "$golden/write_bw_256.pcap"

# Datagrams of connection management are named, with their fields.
words='UD_SEND_ONLY qp 0x000001 .* REQ tid 0x.* id 0xa1946d93 service 0x0000000001061f3f'
expect 0 "$words .* ip 10\.77\.0\.2 35073 > 10\.77\.0\.1 7999 icrc ok\$" \
	"$golden/cm_reject.pcap"
expect 0 ' REJ tid .* about REQ reason 8 \(invalid service id\) icrc ok$' "$golden/cm_reject.pcap"
expect 0 ' REP tid .* id 0x836f7f2c remote id 0xa7946d93 qpn 0x000014 psn 5498782 ' \
	"$golden/cm_connect_disc.pcap"
expect 0 ' SIDR_REP tid .* qpn 0x000018 service 0x0000000001111c06 qkey 0x01234567 icrc ok$' \
	"$golden/cm_udaddy.pcap"

expect 0 '"ok":true.*"packets":37,"right":37.*"violations":0' --json "$vt"
expect 0 '"RC_READ_REQ":3' --json --no-oracles "$vt"
expect 0 '37 RoCE packets' --no-oracles "$vt"
stdin=$vt expect 0 '37 RoCE packets' -
stdin=$vt expect 0 '"packets":37' --json -

# A byte of the last packet's payload; of a header.
size=$(wc -c <"$vt")
corrupt "$vt" $((size - 10))
expect 1 'icrc BAD' "$dir/bad"
expect 1 'icrc BAD' --quiet "$dir/bad"
expect 1 '1 wrong ICRC' --quiet "$dir/bad"
expect 1 '"ok":false.*"bad_icrc":1' --json "$dir/bad"

# A file that ends within a packet: earlier packets count, and the status shows the error.
head -c $((size - 7)) "$vt" >"$dir/short"
expect 1 'is truncated' "$dir/short"
expect 1 '36 RoCE packets, 36 right' --quiet "$dir/short"
expect 1 '"ok":false' --json "$dir/short"

# The rule that a stream has all PSNs holds at the requester's end: this capture was not taken
# there.
expect 1 'req-psn: PSN' --quiet --local 10.77.0.2 "$golden/loss_send_bw.pcap"
expect 1 '"rule":"req-psn"' --json --local 10.77.0.2 "$golden/loss_send_bw.pcap"
expect 0 'right' --quiet --local 10.77.0.2 --no-oracles "$golden/loss_send_bw.pcap"

# A file that is no capture, a missing file, an empty file.
echo 'not a capture, but long enough for its header' >"$dir/text"
expect 1 'text is no pcap file' "$dir/text"
expect 1 "can't read $dir/none: No such file" "$dir/none"
expect 1 "can't read .*: Is a directory" "$dir"
printf '\n\r\r\n0000000000000000000000000000' >"$dir/ng"
expect 1 'pcapng file; convert it' "$dir/ng"
head -c 24 "$vt" >"$dir/empty"
expect 1 'no RoCE v2 packet' "$dir/empty"

# The command line.
expect 0 'usage: roost pcap' --help
expect 0 'tcpdump' --help
expect 2 'the file is missing'
expect 2 'no-such-option' --no-such-option "$vt"
expect 2 '256, 512' --mtu 300 "$vt"
expect 2 'needs --local' --disorder "$vt"
expect 2 'an IPv4 or IPv6 address' --local host "$vt"

echo "$count runs"
exit $failed
