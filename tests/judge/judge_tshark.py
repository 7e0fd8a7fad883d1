#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""tshark as a judge of our packets: it dissects each packet, and its fields must equal the built
ones.

usage: judge_tshark.py BUILD_PACKETS

Exit status 0 when all agree; 77 (skipped) without tshark.
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "common"))
from skip import skip  # noqa: E402

# Our name, tshark's field, how its text reads.
FIELDS = [
    ("opcode", "infiniband.bth.opcode", 0),
    ("se", "infiniband.bth.se", 0),
    ("m", "infiniband.bth.m", 0),
    ("padcnt", "infiniband.bth.padcnt", 0),
    ("destqp", "infiniband.bth.destqp", 0),
    ("psn", "infiniband.bth.psn", 0),
    ("a", "infiniband.bth.a", 0),
    ("qkey", "infiniband.deth.q_key", 0),
    ("sqpn", "infiniband.deth.srcqp", 0),
    ("va", "infiniband.reth.va", 0),
    ("rkey", "infiniband.reth.r_key", 0),
    ("dmalen", "infiniband.reth.dmalen", 0),
    ("swap", "infiniband.atomiceth.swapdt", 0),
    ("compare", "infiniband.atomiceth.cmpdt", 0),
    ("syndrome", "infiniband.aeth.syndrome", 0),
    ("msn", "infiniband.aeth.msn", 0),
    ("original", "infiniband.atomicacketh.origremdt", 0),
    ("imm", "infiniband.immdt", 16),
    ("inv_rkey", "infiniband.ieth", 16),
    ("sport", "udp.srcport", 0),
    ("udplen", "udp.length", 0),
]
EXTRA = [
    "infiniband.bth.tver",
    "infiniband.bth.p_key",
    "infiniband.invariant.crc",
    "ip.dsfield",
    "ip.id",
    "ip.flags.df",
    "ip.ttl",
    "ip.checksum.status",
    "ipv6.tclass",
    "ipv6.flow",
    "ipv6.hlim",
    "udp.checksum",
    "udp.checksum.status",
    "_ws.malformed",
    "frame.time_epoch",
]
GOOD = "1"

problems = 0


def problem(text):
    global problems
    problems += 1
    print(text)


def number(text, base):
    """tshark prints booleans as words or digits, headers as hexadecimal, with or without colons or
    0x."""
    if text in ("True", "False"):
        return int(text == "True")
    return int(text.replace(":", ""), base)


def dissect(name):
    names = [field for _, field, _ in FIELDS] + EXTRA
    command = ["tshark", "-r", name, "-T", "fields", "-E", "separator=|", "-E", "occurrence=f"]
    command += ["-o", "ip.check_checksum:TRUE", "-o", "udp.check_checksum:TRUE"]
    # Its guess that a SEND is RPC over RDMA fails on short ones, and calls them malformed.
    command += ["--disable-protocol", "rpcordma"]
    for field in names:
        command += ["-e", field]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [dict(zip(names, line.split("|"))) for line in out.splitlines()]


def judge(n, fact, seen):
    what = f"packet {n}, {fact['name']}, payload {fact['payload']}, IPv{4 if fact['v4'] else 6}"
    # Op-codes of StRoM and of Roost: tshark reads only the BTH.
    known = "RPC" not in fact["name"] and fact["name"] != "RC_CALC"
    # tshark looks for a management datagram in every UD packet, and reports an error for a packet
    # without payload.
    empty = fact["name"].startswith("UD_") and fact["payload"] == 0
    for ours, field, base in FIELDS:
        text = seen[field]
        if not known and not field.startswith(("infiniband.bth", "udp")):
            continue
        if (ours in fact) != (text != ""):
            problem(f"{what}: {field} is '{text}', we have {fact.get(ours)}")
        elif text and number(text, base) != fact[ours]:
            problem(f"{what}: {field} is {text}, we have {fact[ours]}")
    if number(seen["infiniband.bth.tver"], 0) != 0 or number(seen["infiniband.bth.p_key"],
                                                             0) != 0xFFFF:
        problem(
            f"{what}: version {seen['infiniband.bth.tver']}, P_Key {seen['infiniband.bth.p_key']}")
    crc = seen["infiniband.invariant.crc"]
    want = "0x" + fact["icrc"].to_bytes(4, "little").hex()
    if known and not empty and fact["name"] != "CNP" and crc != want:
        problem(f"{what}: ICRC {crc}, we have {want}")
    if seen["_ws.malformed"] and not empty:
        problem(f"{what}: malformed")
    if fact["v4"]:
        want = {"ip.id": fact["id"], "ip.dsfield": fact["tos"], "ip.flags.df": 1, "ip.ttl": 64,
                "udp.checksum": 0}
        if seen["ip.checksum.status"] != GOOD:
            problem(f"{what}: IP checksum status {seen['ip.checksum.status']}")
    else:
        want = {"ipv6.tclass": fact["tos"], "ipv6.flow": 0, "ipv6.hlim": 64}
        if seen["udp.checksum.status"] != GOOD:
            problem(f"{what}: UDP checksum status {seen['udp.checksum.status']}")
    for field, value in want.items():
        if number(seen[field], 0) != value:
            problem(f"{what}: {field} is {seen[field]}, we have {value}")
    # A nanosecond file: microseconds would round these.
    if seen["frame.time_epoch"] != "%d.%09d" % divmod(1700000000000000000 + 1001 * n, 10**9):
        problem(f"{what}: time {seen['frame.time_epoch']}")


if not shutil.which("tshark"):
    skip("no tshark: scripts/setup check installs it")
with tempfile.TemporaryDirectory() as folder:
    name = os.path.join(folder, "built.pcap")
    lines = subprocess.run([sys.argv[1], name], check=True, capture_output=True,
                           text=True).stdout.splitlines()
    facts = [json.loads(line) for line in lines]
    rows = dissect(name)
if len(rows) != len(facts) or not facts:
    problem(f"{len(facts)} packets were built, tshark reads {len(rows)}")
for n, (fact, seen) in enumerate(zip(facts, rows), 1):
    judge(n, fact, seen)
print(f"{len(rows)} packets, {problems} problems")
sys.exit(problems != 0)
