#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""tshark and Scapy as judges of the files that `pcap=` writes.

usage: judge_pcap.py TEST_PCAP_PORT

The program writes one conversation as each of two ports saw it. tshark must dissect every packet as
RoCE v2, in order and without complaint, the same in both files; Scapy recomputes every ICRC. Exit
status 77 (skipped) without them.
"""
import os
import shutil
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "common"))
from skip import skip  # noqa: E402

try:
    from scapy.all import IP, UDP, raw, rdpcap
    from scapy.contrib.roce import BTH
except ImportError as missing:
    skip(f"no Scapy (scripts/setup check installs it): {missing}")
if not shutil.which("tshark"):
    skip("no tshark: scripts/setup check installs it")

FIELDS = ["ip.src", "ip.dst", "ip.dsfield", "udp.dstport", "infiniband.bth.opcode",
          "infiniband.bth.destqp", "infiniband.bth.psn"]


def dissect(name):
    args = [a for f in FIELDS + ["_ws.malformed", "_ws.expert.severity"] for a in ("-e", f)]
    run = subprocess.run(["tshark", "-n", "-r", name, "-T", "fields"] + args, check=True,
                         capture_output=True, text=True)
    return [line.split("\t") for line in run.stdout.splitlines()]


def icrcs_right(name):
    for n, packet in enumerate(rdpcap(name), 1):
        ip = packet[IP]
        again = ip.copy()
        again[BTH].icrc = None
        end = 20 + ip[UDP].len
        if raw(again)[-4:] != raw(ip)[end - 4 : end]:
            sys.exit(f"{name}: packet {n}: ICRC {raw(ip)[end - 4 : end].hex()}, Scapy says "
                     f"{raw(again)[-4:].hex()}")


with tempfile.TemporaryDirectory() as folder:
    names = [os.path.join(folder, side) for side in ("a.pcap", "b.pcap")]
    count = int(
        subprocess.run([sys.argv[1]] + names, check=True, capture_output=True, text=True).stdout)
    seen = [dissect(name) for name in names]
    for name in names:
        icrcs_right(name)

if seen[0] != seen[1]:
    sys.exit("the two ends saw different packets")
if len(seen[0]) != count or not count:
    sys.exit(f"{count} packets passed, tshark sees {len(seen[0])}")
for n, fields in enumerate(seen[0]):
    tos, port, opcode, qp, psn, malformed, expert = fields[2:]
    want = (n % (count // 2), 5 if n < count // 2 else 6)
    if (int(psn), int(qp, 0)) != want or int(opcode) != 7 or int(tos, 0) != 0x6A or port != "4791":
        sys.exit(f"packet {n + 1}: tshark reads {fields}")
    if malformed or expert:
        sys.exit(f"packet {n + 1}: tshark complains: {malformed} {expert}")
print(f"{count} packets, the same at both ends, each ICRC right")
