#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Runs what stands between programs and the verbs, UCX and libfabric, by their own test programs, unmodified: two processes on this machine.

usage: layers.py --roost PROGRAM --port udp|shm [--only TEXT] [--list]

As run.py. By `roost run`: UCX looks for the device's files. Left to tests/netns are libfabric's connected endpoints: its verbs provider finds its
device by the addresses of interfaces, and two processes of one machine cannot both have them.
"""
import argparse
import os
import re
import shutil
import signal
import sys
import time

from run import RUN_LIMIT, Side, addresses, free_tcp_port, listens, outcome

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "common"))
from programs import ucx_perftest


def ucx_rows():
    """rc brings ud_verbs along, by which its ends find each other."""
    sizes = {"tag_lat": (8, 100000), "tag_bw": (65536,), "stream_bw": (8192,), "ucp_put_bw": (65536,), "ucp_get": (8, 1000000), "ucp_fadd": (8,),
             "ucp_cswap": (8,)}
    for transport in ("rc", "ud_verbs"):
        for test, of in sizes.items():
            for size in of:
                words = f"env UCX_TLS={transport} UCX_NET_DEVICES=roost0:1 UCX_WARN_UNUSED_ENV_VARS=n {ucx_perftest()}"
                # On datagrams READs and atomics are the target's work, done when its own timer runs.
                count = 20 if size > 65536 or transport == "ud_verbs" and test == "ucp_get" else 500
                yield (f"{words} -p {{P}}", f"{words} 127.0.0.1 -p {{P}} -t {test} -s {size} -n {count} -w 10", r"(?m)^Final:\s+\d+(\s+[\d.]+){7}")
    # Atomics of the device's own: UCX offers them only where the device says IBV_ATOMIC_HCA. The rows above would do without.
    for test in ("fadd", "cswap"):
        words = f"{ucx_perftest()} -d roost0:1 -x rc_verbs"
        yield f"{words} -p {{P}}", f"{words} 127.0.0.1 -p {{P}} -t {test} -s 8 -n 500 -w 10", r"(?m)^Final:\s+\d+(\s+[\d.]+){7}"


def fabric_rows(kind):
    """
    A size for each: all of them are what either end takes for itself, and over udp one of them gets an interface's address besides, and its MTU. That
    is more than ofi_rxd can bear.
    """
    for words in ["-p verbs -e dgram -S 1024"] + ["-p verbs;ofi_rxd -e rdm -S 65536"] * (kind == "shm"):
        words = f"fi_pingpong {words} -c -I 20"
        yield f"{words} -B {{P}}", f"{words} -P {{P}} 127.0.0.1", r"(?m)^(1k|64k)\s"


def program_of(command):
    return next(word for word in command.split() if word != "env" and "=" not in word)


class RunSide(Side):
    """A program under `roost run`."""

    def __init__(self, roost, spec, command):
        full = [roost, "run", "--port", spec, "--", *command.split()]
        self.start(full, dict(os.environ))
        self.command = " ".join(full)


def run_row(roost, kind, server, client, wanted):
    """(problem or None, report)"""
    port = free_tcp_port()
    ours, theirs = addresses(kind)
    until = time.monotonic() + RUN_LIMIT
    sides = [RunSide(roost, ours, server.format(P=port))]
    try:
        while not listens(port) and not sides[0].ended() and time.monotonic() < until:
            time.sleep(0.01)
        sides.append(RunSide(roost, theirs, client.format(P=port)))
        problem = outcome(*sides, until)
        if not problem and not re.search(wanted, sides[1].text()):
            problem = "no result line"
    finally:
        for side in sides:
            side.kill()
    return problem, "".join(f"--- {side.command}\n{side.text()}" for side in sides)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--roost", required=True, help="the roost command")
    parser.add_argument("--port", required=True, choices=["udp", "shm"])
    parser.add_argument("--only", default="", help="run only rows that contain this text")
    parser.add_argument("--list", action="store_true", help="print the rows, run none")
    options = parser.parse_args()
    chosen = [row for row in [*ucx_rows(), *fabric_rows(options.port)] if options.only in row[1]]
    if options.list:
        print("\n".join(f"{options.port} {client}" for _, client, _ in chosen))
        return
    missing = sorted({program_of(server) for server, _, _ in chosen if not shutil.which(program_of(server))})
    if missing:
        sys.exit(f"not installed: {', '.join(missing)} (scripts/setup check installs them)")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    failed = 0
    for server, client, wanted in chosen:
        start = time.monotonic()
        problem, report = run_row(os.path.abspath(options.roost), options.port, server, client, wanted)
        shown = re.sub(r"^env (UCX_TLS=\S+) .*_VARS=n ", r"\1 ", client)
        print(f"{'FAILED' if problem else 'ok    '} {options.port} {shown:85} {time.monotonic() - start:6.1f} s", flush=True)
        if problem:
            failed += 1
            print(f"  {problem}\n{report}", flush=True)
    print(f"{len(chosen) - failed} of {len(chosen)} rows passed")
    sys.exit(1 if failed or not chosen else 0)


if __name__ == "__main__":
    main()
