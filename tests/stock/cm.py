#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Runs stock programs that connect by librdmacm, unmodified, on our drop-in libraries: two
processes on this machine, over host, udp or shm.

usage: cm.py --lib DIR --roost PROGRAM --port host|udp|shm [--family 4|6] [--clock FILE]
             [--only TEXT] [--list]

As run.py, but the two connect over the NIC alone: the client starts when `roost stat` shows that
the server listens. Over IPv6 and udp they run in a network namespace of their own, since this
machine may not have two addresses. The exit status is 77 if there can be no namespace; with
ROOST_INTEROP=required in the environment it is then 1.
"""
import errno
import json
import random
import socket
import subprocess
import time

from programs import (Side, add_clock, choose, demand, lacks, own_network, parser, run_pair,
                      run_rows)
from programs import listens as listens_by_tcp
from versions import cmtime_meets_by_ipv4

# The addresses of both over IPv6.
NETWORK = ("fd78::2", "fd78::3")

DISCONNECT = r"(?m)^disconnect\s*(:|\d)"  # of cmtime's figures: older, newer

# One server ends by itself; the other one serves without end, and is ended after the client.
ENDS, SERVES = "ends", "serves"


def row(server, client, how=ENDS, wanted="", fails=False):
    """{S} is the server's address, {C} the client's, {G} a group, {P} a port. `wanted`: a pattern
    in the client's output. `fails`: its exit status is not 0."""
    return {"server": server, "client": client, "how": how, "wanted": wanted, "fails": fails}


def both(*words, to="{S}", **more):
    """The two rows differ in the address to which the client connects."""
    return row(" ".join(words), " ".join(words + (to,)), **more)


def rping(*args, server=(), client=(), **more):
    args = " ".join(args)
    return row(f"rping -s -a {{S}} -p {{P}} {' '.join(server)} {args}",
               f"rping -c -a {{S}} -p {{P}} {' '.join(client)} {args}", **more)


def perftest_rows():
    rows = []
    for program in ("write_bw", "write_lat", "read_bw", "read_lat", "send_bw", "send_lat",
                    "atomic_bw", "atomic_lat"):
        rows.append(both(f"ib_{program} -R -F -p {{P}}", "-n", "200",
                         wanted=r"(?m)^\s*\d+\s+\d+\s+[0-9.]+"))
    rows.append(both("ib_write_bw -R -F -p {P}", "-n", "200", "-q", "4"))
    rows.append(both("ib_send_bw -R -F -p {P}", "-n", "200", "-b"))
    rows.append(both("ib_send_bw -R -F -p {P}", "-n", "200", "-e"))
    rows.append(both("ib_write_bw -R -F -p {P}", "-n", "200", "-m", "1024", "--tos=32"))
    for program in ("send_bw", "send_lat"):
        rows.append(both(f"ib_{program} -R -F -p {{P}} -c UD", "-n", "64", "-s", "1024"))
    return rows


def fio_rows():
    server = "fio --name=s --ioengine=rdma --port={P} --rw=read --bs=64k --size=1m"
    # The writer connects, for any operation. Not --verb=send: fio requests no RNR retries (0 in its
    # REQ) and sends before the receiver is ready; it then fails on any NIC.
    client = "fio --name=c --ioengine=rdma --hostname={S} --port={P} --rw=write --bs=64k --size=1m"
    return [row(server, f"{client} --verb={verb}", wanted=r"io=1024KiB")
            for verb in ("write", "read")]


def rows6():
    """Rows about addresses: each program once."""
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
        found.append(row("cmtime -b {S} -p {P} -c 20", "cmtime -s {S} -p {P} -c 20", how=SERVES,
                         wanted=DISCONNECT))
    return found + mckey_rows()


def mckey_rows():
    return [row("mckey -m {G} -b {S}" + more, "mckey -m {G} -b {C} -s" + more,
                wanted="data transfers complete") for more in ("", " -C 50 -S 1000")]


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
        both("cmtime -p {P} -c 100", to="-s {S}", how=ENDS if cmtime_meets_by_ipv4() else SERVES,
             wanted=DISCONNECT),
        row("rdma_server -s {S} -p {P}", "rdma_client -s {S} -p {P}", wanted="end 0"),
        row("rdma_xserver -p {P}", "rdma_xclient -s {S} -p {P}", wanted="end 0"),
    ]
    found += mckey_rows()
    qperf = ["rc_bw", "rc_lat", "rc_bi_bw", "rc_rdma_read_bw", "rc_rdma_write_bw",
             "rc_rdma_write_lat"]
    found += [row("qperf -lp {P}", f"qperf -lp {{P}} {{S}} -t 1 -cm 1 {test}", how=SERVES,
                  wanted=r"(bw|latency)\s+=") for test in qperf]
    return found + perftest_rows() + fio_rows()


def listens(roost, side, address, tcp_port):
    if "qperf" in side.command:  # gets the test by TCP, and listens for it afterwards
        return listens_by_tcp(tcp_port)
    answer = subprocess.run([roost, "stat", "--json"], capture_output=True, text=True)
    try:
        nics = json.loads(answer.stdout)["nics"]
    except (ValueError, KeyError):
        return False
    own = [nic for nic in nics if address in [port["address"] for port in nic["ports"]]]
    return any(nic.get("cm", {}).get("listeners") or nic.get("usage", {}).get("groups")
               for nic in own)


def client_problem(side, spec, until):
    problem = side.wait(until)
    if problem:
        return problem
    if spec["fails"]:
        problem = None if side.process.returncode > 0 else f"exit status {side.process.returncode}"
    else:
        problem = side.verdict()
    return problem or lacks(side, spec["wanted"])


def draw_addresses(family):
    """Returns the addresses of server, client and a group."""
    a, b = random.randrange(1, 255), random.randrange(1, 255)
    if family == 6:
        return {"S": NETWORK[0], "C": NETWORK[1], "G": f"ff0e::{a}:{b}"}
    return {"S": f"127.{a}.{b}.2", "C": f"127.{a}.{b}.3", "G": f"239.{a}.1.{b}"}


def draw_port():
    """Returns a port that no program has by TCP: perftest and qperf meet there."""
    while True:
        port = random.randrange(20000, 30000)
        with socket.socket() as s:
            try:
                s.bind(("", port))
                return port
            except OSError as e:
                if e.errno != errno.EADDRINUSE:
                    raise


def run(lib, roost, kind, family, spec):
    port = draw_port()
    fill = dict(draw_addresses(family), P=port)

    def start(side, address):
        return lambda: Side(lib, f"{kind}:{fill[address]}", spec[side].format(**fill).split())

    def judge(server, client, until):
        problem = client_problem(client, spec, until)
        if spec["how"] == SERVES:
            verdict = f"ended: {server.exit_verdict()}" if server.ended() else None
        else:
            verdict = server.wait(time.monotonic() + 1 if problem else until) or server.verdict()
        if problem:
            return f"client {problem}"
        return f"server {verdict}" if verdict else None

    return run_pair(start("server", "S"), start("client", "C"),
                    lambda server: listens(roost, server, fill["S"], port), judge)


def enter_network():
    """With addresses on a device that can have groups."""
    own_network("link add v0 type veth peer name v1",
                *(f"addr add {address}/64 dev v0 nodad" for address in NETWORK),
                *(f"link set {link} up" for link in ("lo", "v0", "v1")))


def main():
    options = parser(__doc__, lib="folder of our libraries", roost="the roost command")
    options.add_argument("--family", type=int, default=4, choices=[4, 6],
                         help="of the addresses; default: 4")
    add_clock(options)
    options = options.parse_args()
    Side.clock = options.clock
    chosen = choose(options, rows6() if options.family == 6 else rows4(),
                    lambda spec: spec["client"])
    demand([spec[side].split()[0] for spec in chosen for side in ("server", "client")],
           "rdmacm-utils, perftest, qperf, fio")
    if options.family == 6 and options.port != "shm":
        enter_network()
    run_rows([(f"{options.port} {spec['client']}", lambda spec=spec: run(
        options.lib, options.roost, options.port, options.family, spec)) for spec in chosen])


if __name__ == "__main__":
    main()
