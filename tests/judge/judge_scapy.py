#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Scapy as a judge of our packets: its RoCE layer recomputes each ICRC, its IP and UDP layers the
checksums.

usage: judge_scapy.py BUILD_PACKETS GOLDEN

Scapy computes the ICRC for IPv4 only; for IPv6 it is computed here with zlib over the bytes that
Scapy's layers hold, by a function that has to agree with the golden captures first. The exit status
is 0 if all agree, and 77 (skipped) without Scapy.
"""
import glob
import json
import os
import struct
import subprocess
import sys
import tempfile
import zlib

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "common"))
from skip import skip  # noqa: E402

try:
    from scapy.all import IP, IPv6, UDP, raw, rdpcap
    from scapy.contrib.roce import BTH
except ImportError as missing:
    skip(f"no Scapy (scripts/setup check installs it): {missing}")

problems = 0


def problem(text):
    global problems
    problems += 1
    print(text)


def icrc_six(ip):
    """The ICRC over an IPv6 packet; the packet's own last four bytes are left out."""
    head = bytearray(raw(ip)[:40])
    head[0] |= 0x0F
    head[1] = head[2] = head[3] = head[7] = 0xFF
    udp = bytearray(raw(ip)[40 : 40 + ip[UDP].len])
    udp[6] = udp[7] = 0xFF
    udp[12] = 0xFF
    return zlib.crc32(b"\xff" * 8 + bytes(head) + bytes(udp[:-4]))


def icrc_four(ip):
    """Scapy's own, as it would put it on the wire."""
    again = ip.copy()
    again[BTH].icrc = None
    return struct.unpack("<I", raw(again)[-4:])[0]


def sent_icrc(ip):
    end = (20 if ip.version == 4 else 40) + ip[UDP].len
    return struct.unpack("<I", raw(ip)[end - 4 : end])[0]


def ip_of(packet):
    return packet[IP] if IP in packet else packet[IPv6]


def judge_ours(build):
    with tempfile.TemporaryDirectory() as folder:
        name = os.path.join(folder, "built.pcap")
        lines = subprocess.run([build, name], check=True, capture_output=True,
                               text=True).stdout.splitlines()
        facts = [json.loads(line) for line in lines]
        packets = rdpcap(name)
    if len(packets) != len(facts) or not facts:
        problem(f"{len(facts)} packets were built, Scapy reads {len(packets)}")
    for n, (packet, fact) in enumerate(zip(packets, facts), 1):
        ip = ip_of(packet)
        what = f"packet {n}, {fact['name']}, payload {fact['payload']}, IPv{ip.version}"
        if BTH not in ip:
            problem(f"{what}: Scapy sees no BTH")
            continue
        bth = ip[BTH]
        theirs = (bth.opcode, bth.solicited, bth.migreq, bth.padcount, bth.version, bth.pkey,
                  bth.dqpn, bth.ackreq)
        ours = (fact["opcode"], fact["se"], fact["m"], fact["padcnt"], 0, 0xFFFF, fact["destqp"],
                fact["a"])
        if theirs != ours or bth.psn != fact["psn"]:
            problem(f"{what}: Scapy reads {theirs}, built was {ours}")
        want = icrc_four(ip) if ip.version == 4 else icrc_six(ip)
        if want != sent_icrc(ip) or want != fact["icrc"]:
            problem(f"{what}: ICRC {sent_icrc(ip):08x}, Scapy says {want:08x}")
        fresh = ip.copy()
        if ip.version == 4:
            del fresh.chksum
            if type(ip)(raw(fresh)).chksum != ip.chksum:
                problem(f"{what}: IP checksum {ip.chksum:04x}")
            if (ip.flags != "DF" or ip.ttl != 64 or ip.tos != fact["tos"] or ip.id != fact["id"]
                or ip[UDP].chksum):
                problem(f"{what}: IP header {ip.summary()}")
        else:
            del fresh[UDP].chksum
            if type(ip)(raw(fresh))[UDP].chksum != ip[UDP].chksum:
                problem(f"{what}: UDP checksum {ip[UDP].chksum:04x}")
            if ip.hlim != 64 or ip.fl != 0 or ip.tc != fact["tos"]:
                problem(f"{what}: IP header {ip.summary()}")
    # The judge must reject a wrong packet.
    for ip in (ip_of(packets[0]), ip_of(packets[1])):
        bad = bytearray(raw(ip))
        bad[-5] ^= 1
        bad = type(ip)(bytes(bad))
        if (icrc_four(bad) if ip.version == 4 else icrc_six(bad)) == sent_icrc(bad):
            problem("a wrong packet was accepted")
    return len(packets)


def judge_golden(folder):
    """icrc_six against packets of the Linux kernel."""
    count = 0
    for name in sorted(glob.glob(os.path.join(folder, "*ipv6*.pcap"))
                       + glob.glob(os.path.join(folder, "*_v6.pcap"))):
        for packet in rdpcap(name):
            if BTH in packet and IPv6 in packet:
                count += 1
                if icrc_six(packet[IPv6]) != sent_icrc(packet[IPv6]):
                    problem(f"{name}: ICRC differs")
    if not count:
        problem("no golden IPv6 packets")
    return count


golden = judge_golden(sys.argv[2])
ours = judge_ours(sys.argv[1])
print(f"{ours} packets of ours, {golden} golden ones over IPv6, {problems} problems")
sys.exit(problems != 0)
