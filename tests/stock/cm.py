#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Runs stock programs that connect by librdmacm, unmodified, on our drop-in libraries: two processes on this machine, over udp or shm.

usage: cm.py --lib DIR --roost PROGRAM --port udp|shm [--family 4|6] [--only TEXT] [--list]

As run.py, but the two meet over the NIC alone: the client starts when `roost stat` shows that the server listens. Over IPv6 and udp
in a network of their own, since this machine may have no two addresses: 77 when there is none to be had, and 1 for that too with
ROOST_INTEROP=required in the environment.
"""
import argparse
import json
import os
import random
import re
import shutil
import subprocess
import sys
import time

from run import RUN_LIMIT, Side

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "common"))
from programs import cmtime_meets_by_ipv4

# Where the two are over IPv6.
NETWORK = ("fd78::2", "fd78::3")
PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])

DISCONNECT = r"(?m)^disconnect\s*(:|\d)"  # of cmtime's figures: older, newer

# Ends by itself; serves for ever, and is ended when the client is done.
ENDS, SERVES = "ends", "serves"


def row(server, client, how=ENDS, wanted="", fails=False):
    """{S} is the server's address, {C} the client's, {G} a group, {P} a port. `wanted`: a pattern in the client's output. `fails`: its exit status is not 0."""
    return {"server": server, "client": client, "how": how, "wanted": wanted, "fails": fails}


def both(*words, to="{S}", **more):
    """The two differ in whom the client connects to."""
    return row(" ".join(words), " ".join(words + (to,)), **more)


def rping(*args, server=(), client=(), **more):
    args = " ".join(args)
    return row(f"rping -s -a {{S}} -p {{P}} {' '.join(server)} {args}", f"rping -c -a {{S}} -p {{P}} {' '.join(client)} {args}", **more)


def perftest_rows():
    rows = []
    for program in ("write_bw", "write_lat", "read_bw", "read_lat", "send_bw", "send_lat", "atomic_bw", "atomic_lat"):
        rows.append(both(f"ib_{program} -R -F -p {{P}}", "-n", "200", wanted=r"(?m)^\s*\d+\s+\d+\s+[0-9.]+"))
    rows.append(both("ib_write_bw -R -F -p {P}", "-n", "200", "-q", "4"))
    rows.append(both("ib_send_bw -R -F -p {P}", "-n", "200", "-b"))
    rows.append(both("ib_send_bw -R -F -p {P}", "-n", "200", "-e"))
    rows.append(both("ib_write_bw -R -F -p {P}", "-n", "200", "-m", "1024", "--tos=32"))
    for program in ("send_bw", "send_lat"):
        rows.append(both(f"ib_{program} -R -F -p {{P}} -c UD", "-n", "64", "-s", "1024"))
    return rows


def fio_rows():
    server = "fio --name=s --ioengine=rdma --port={P} --rw=read --bs=64k --size=1m"
    # The one that writes connects, whatever the operation. Not --verb=send: fio asks for no RNR retry (0 in its REQ) and sends
    # without a word from the receiver, whose receives may come later; then it fails on any NIC.
    client = "fio --name=c --ioengine=rdma --hostname={S} --port={P} --rw=write --bs=64k --size=1m"
    return [row(server, f"{client} --verb={verb}", wanted=r"io=1024KiB") for verb in ("write", "read")]


def rows6():
    """What addresses are part of: each program once."""
    found = [
        rping("-C", "10"),
        rping("-C", "10", "-V", "-S", "20000"),
        rping("-C", "1", client=["-p", "1"], how=SERVES, fails=True, wanted=r"REJECTED"),
        row("rping -s -a :: -p {P} -C 10", "rping -c -a {S} -p {P} -C 10"),
        row("ucmatose -b {S} -p {P}", "ucmatose -s {S} -p {P}", wanted="data transfers complete"),
        row("udaddy -b {S}", "udaddy -s {S} -b {C}", wanted="data transfers complete"),
        row("rdma_server -s {S} -p {P}", "rdma_client -s {S} -p {P}", wanted="end 0"),
    ]
    if not cmtime_meets_by_ipv4():
        found.append(row("cmtime -b {S} -p {P} -c 20", "cmtime -s {S} -p {P} -c 20", how=SERVES, wanted=DISCONNECT))
    return found + mckey_rows()


def mckey_rows():
    return [row("mckey -m {G} -b {S}" + more, "mckey -m {G} -b {C} -s" + more, wanted="data transfers complete")
            for more in ("", " -C 50 -S 1000")]


def rows4():
    found = [
        rping("-C", "10"),
        rping("-C", "10", "-V", "-S", "20000"),
        rping("-C", "10", "-q"),
        rping("-C", "10", server=["-P"], how=SERVES),
        rping("-C", "1", client=["-p", "1"], how=SERVES, fails=True, wanted=r"REJECTED"),
        both("ucmatose -p {P}", wanted="data transfers complete", to="-s {S}"),
        both("ucmatose -p {P} -c 50 -C 10 -S 3000", wanted="data transfers complete", to="-s {S}"),
        both("ucmatose -p {P} -m", wanted="data transfers complete", to="-t 8 -s {S}"),
        both("udaddy", wanted="data transfers complete", to="-s {S}"),
        both("udaddy -c 20 -C 10 -S 1000", wanted="data transfers complete", to="-s {S}"),
        both("cmtime -p {P} -c 100", to="-s {S}", how=SERVES, wanted=DISCONNECT),
        row("rdma_server -s {S} -p {P}", "rdma_client -s {S} -p {P}", wanted="end 0"),
        row("rdma_xserver -p {P}", "rdma_xclient -s {S} -p {P}", wanted="end 0"),
    ]
    found += mckey_rows()
    qperf = ["rc_bw", "rc_lat", "rc_bi_bw", "rc_rdma_read_bw", "rc_rdma_write_bw", "rc_rdma_write_lat"]
    found += [row("qperf -lp {P}", f"qperf -lp {{P}} {{S}} -t 1 -cm 1 {test}", how=SERVES, wanted=r"(bw|latency)\s+=") for test in qperf]
    return found + perftest_rows() + fio_rows()


def listens(roost, side, address, tcp_port):
    if "qperf" in side.command:  # hears of the test by TCP, and only then listens for it
        with open("/proc/net/tcp6", encoding="ascii") as six, open("/proc/net/tcp", encoding="ascii") as four:
            return any(f":{tcp_port:04X} " in line and " 0A " in line for line in six.read().splitlines() + four.read().splitlines())
    answer = subprocess.run([roost, "stat", "--json"], capture_output=True, text=True)
    try:
        nics = json.loads(answer.stdout)["nics"]
    except (ValueError, KeyError):
        return False
    here = [nic for nic in nics if address in [port["address"] for port in nic["ports"]]]
    return any(nic.get("cm", {}).get("listeners") or nic["usage"].get("groups") for nic in here)


def client_problem(side, spec, until):
    problem = side.wait(until)
    if problem:
        return problem
    if spec["fails"]:
        problem = None if side.process.returncode > 0 else f"exit status {side.process.returncode}"
    else:
        problem = side.verdict()
    if not problem and not re.search(spec["wanted"], side.text()):
        problem = f"output lacks {spec['wanted']!r}"
    return problem


def places(family):
    """Addresses of server, client and a group."""
    a, b = random.randrange(1, 255), random.randrange(1, 255)
    if family == 6:
        return {"S": NETWORK[0], "C": NETWORK[1], "G": f"ff0e::{a}:{b}"}
    return {"S": f"127.{a}.{b}.2", "C": f"127.{a}.{b}.3", "G": f"239.{a}.1.{b}"}


def run(lib, roost, kind, family, spec):
    """(problem or None, report)"""
    port = random.randrange(20000, 30000)
    fill = dict(places(family), P=port)
    until = time.monotonic() + RUN_LIMIT
    server = Side(lib, f"{kind}:{fill['S']}", spec["server"].format(**fill).split())
    client = None
    try:
        while not server.ended() and not listens(roost, server, fill["S"], port) and time.monotonic() < until:
            time.sleep(0.05)
        client = Side(lib, f"{kind}:{fill['C']}", spec["client"].format(**fill).split())
        problem = client_problem(client, spec, until)
        problem = f"client {problem}" if problem else None
        if spec["how"] == SERVES:
            verdict = f"server ended: {server.exit_verdict()}" if server.ended() else None
        else:
            verdict = server.wait(time.monotonic() + 1 if problem else until) or server.verdict()
        problem = problem or (f"server {verdict}" if verdict else None)
    finally:
        server.kill()
        if client:
            client.kill()
    report = f"--- server: {server.command}\n{server.text()}--- client: {client and client.command}\n{client and client.text()}"
    return problem, report


def skip(why):
    required = os.environ.get("ROOST_INTEROP") == "required"
    print(f"{'FAILED' if required else 'SKIPPED'}: nothing ran over IPv6: {why}")
    sys.exit(1 if required else 77)


def enter_network():
    """Starts this program again in a network of its own, with addresses on a device that can have groups."""
    if "ROOST_TEST_NETWORK" not in os.environ:
        unshare = ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--net"]
        tried = subprocess.run([*unshare, "true"], stderr=subprocess.PIPE, text=True, check=False)
        if tried.returncode:
            skip(tried.stderr.strip())
        os.execvpe("unshare", [*unshare, sys.executable, *sys.argv], dict(os.environ, PATH=PATH, ROOST_TEST_NETWORK="1"))
    for words in ("link add v0 type veth peer name v1", *(f"addr add {address}/64 dev v0 nodad" for address in NETWORK),
                  *(f"link set {link} up" for link in ("lo", "v0", "v1"))):
        done = subprocess.run(["ip", *words.split()], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if done.returncode:
            skip(f"ip {words}: {done.stdout.strip()}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lib", required=True, help="folder of our libraries")
    parser.add_argument("--roost", required=True, help="the roost command")
    parser.add_argument("--port", required=True, choices=["udp", "shm"])
    parser.add_argument("--family", type=int, default=4, choices=[4, 6], help="of the addresses; default: 4")
    parser.add_argument("--only", default="", help="run only combinations that contain this text")
    parser.add_argument("--list", action="store_true", help="print the combinations, run none")
    options = parser.parse_args()
    chosen = [spec for spec in (rows6() if options.family == 6 else rows4()) if options.only in spec["client"]]
    if options.list:
        print("\n".join(spec["client"] for spec in chosen))
        return
    missing = sorted({name for spec in chosen for name in (spec["server"].split()[0], spec["client"].split()[0]) if not shutil.which(name)})
    if missing:
        sys.exit(f"not installed: {', '.join(missing)} (Debian: rdmacm-utils, perftest, qperf, fio)")
    if options.family == 6 and options.port == "udp":
        enter_network()
    failed = 0
    for spec in chosen:
        start = time.monotonic()
        problem, report = run(options.lib, options.roost, options.port, options.family, spec)
        print(f"{'FAILED' if problem else 'ok    '} {options.port} {spec['client']} ({time.monotonic() - start:.2f} s)"
              + (f": {problem}" if problem else ""), flush=True)
        if problem:
            failed += 1
            print(report, flush=True)
    print(f"{len(chosen) - failed} passed, {failed} failed")
    sys.exit(1 if failed or not chosen else 0)


if __name__ == "__main__":
    main()
