#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Runs the layers between programs and the verbs, UCX and libfabric, by their own unmodified test
programs: two processes on this machine.

usage: layers.py --roost PROGRAM --port host|udp|shm [--narrow] [--only TEXT] [--list]

As run.py. By `roost run`: UCX looks for the device's files. Left to tests/netns are libfabric's
connected endpoints: its verbs provider finds its device by the addresses of interfaces, and the
programs here have addresses of 127/8.
"""
import os
import re

from programs import (RunSide, addresses, choose, demand, free_tcp_port, lacks, listens,
                      narrow_network, outcome, parser, program_of, run_pair, run_rows)
from versions import UCX_FINAL, ucx_perftest


def ucx_rows():
    """rc also uses ud_verbs, by which its ends find each other."""
    sizes = {"tag_lat": (8, 100000), "tag_bw": (65536,), "stream_bw": (8192,),
             "ucp_put_bw": (65536,), "ucp_get": (8, 1000000), "ucp_fadd": (8,), "ucp_cswap": (8,)}
    for transport in ("rc", "ud_verbs"):
        for test, of in sizes.items():
            for size in of:
                words = (
                    f"env UCX_TLS={transport} UCX_NET_DEVICES=roost0:1 UCX_WARN_UNUSED_ENV_VARS=n "
                    f"{ucx_perftest()}")
                # On datagrams the target executes READs and atomics, when its own timer runs.
                count = 20 if size > 65536 or transport == "ud_verbs" and test == "ucp_get" else 500
                yield (f"{words} -p {{P}}",
                       f"{words} 127.0.0.1 -p {{P}} -t {test} -s {size} -n {count} -w 10",
                       UCX_FINAL)
    # Atomics of the device: UCX uses them only if the device has IBV_ATOMIC_HCA. The rows above
    # work without them.
    for test in ("fadd", "cswap"):
        words = f"{ucx_perftest()} -d roost0:1 -x rc_verbs"
        yield (f"{words} -p {{P}}", f"{words} 127.0.0.1 -p {{P}} -t {test} -s 8 -n 500 -w 10",
               UCX_FINAL)


def runtime_rows(kind):
    """
    A size for each: each end chooses it for itself, and over udp one end also gets the address and
    the MTU of an interface. ofi_rxd does not support this difference.
    """
    for words in ["-p verbs -e dgram -S 1024"] + ["-p verbs;ofi_rxd -e rdm -S 65536"] * (
            kind == "shm"):
        words = f"fi_pingpong {words} -c -I 20"
        yield f"{words} -B {{P}}", f"{words} -P {{P}} 127.0.0.1", r"(?m)^(1k|64k)\s"


def narrow_rows():
    """
    UCX's datagrams beside an interface of 1400 bytes: each end chooses their size by its own port's
    MTU, which would be 1024 there and 4096 on lo. Addresses that Roost chooses have one MTU; named
    addresses get the same one by an option.
    """
    for ports in (("udp", "udp"), ("udp:10.9.0.1", "udp:127.0.9.3,mtu=1024"),
                  ("udp:127.0.9.3,mtu=1024", "udp:10.9.0.1")):
        for row in ucx_rows():
            if "ud_verbs" in row[0] and re.search(r"tag_lat|tag_bw", row[1]):
                yield row, ports


def run_row(roost, ports, server, client, wanted):
    port = free_tcp_port()
    ours, theirs = ports
    return run_pair(lambda: RunSide(roost, ours, server.format(P=port)),
                    lambda: RunSide(roost, theirs, client.format(P=port)), lambda _: listens(port),
                    lambda server, client,
                    until: outcome(server, client, until) or lacks(client, wanted))


def label(row):
    return re.sub(r"^env (UCX_TLS=\S+) .*_VARS=n ", r"\1 ", row[1])


def main():
    options = parser(__doc__, roost="the roost command")
    options.add_argument("--narrow", action="store_true",
                         help="in a network of its own, with an interface of 1400 bytes")
    options = options.parse_args()
    roost, kind = os.path.abspath(options.roost), options.port
    if options.narrow:
        rows = list(narrow_rows())
    else:
        rows = [(row, None) for row in [*ucx_rows(), *runtime_rows(kind)]]
    chosen = choose(options, rows, lambda row: label(row[0]))
    demand([program_of(row[0]) for row, _ in chosen], "ucx-utils, libfabric-bin")
    if options.narrow:
        narrow_network()
    run_rows(
        [(f"{' and '.join(ports) if ports else kind} {label(row)}", lambda row=row,
          ports=ports: run_row(roost, ports or addresses(kind), *row)) for row, ports in chosen])


if __name__ == "__main__":
    main()
