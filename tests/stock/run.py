#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Runs stock RDMA programs, unmodified, on our drop-in libibverbs.so.1: two processes on this
machine, over host, udp or shm.

usage: run.py --lib DIR --port host|udp|shm [--clock FILE] [--only TEXT] [--list]

The script prints a line for each combination, and the output of both sides of a failed one. The
exit status is 0 if all passed. Each run has its own addresses and TCP ports (these programs connect
over TCP). With --clock (fast_clock.c) the speeds that programs print mean nothing.
"""
import os
import re
import signal
import sys
import time

from programs import (RUN_LIMIT, Side, add_clock, addresses, choose, demand, free_tcp_port, lacks,
                      listens, outcome, parser, run_pair, run_rows)

MTUS = [256, 512, 1024, 2048, 4096]

# Arguments of each program of perftest. A multiple of 16 (-l 16), and of 100:
# perftest asks for one completion in 100 and counts a shorter last stretch as 100 too, so that over
# several QPs it may stop polling too early.
BANDWIDTH, LATENCY = "bandwidth", "latency"
PERFTEST = {
    "ib_write_bw": {"kind": BANDWIDTH, "events": False, "sweep": True, "iters": 400},
    "ib_write_lat": {"kind": LATENCY, "events": False, "sweep": True, "iters": 200},
    "ib_read_bw": {"kind": BANDWIDTH, "events": True, "sweep": True, "iters": 400},
    "ib_read_lat": {"kind": LATENCY, "events": True, "sweep": True, "iters": 200},
    "ib_send_bw": {"kind": BANDWIDTH, "events": True, "sweep": True, "iters": 400},
    "ib_send_lat": {"kind": LATENCY, "events": True, "sweep": True, "iters": 200},
    "ib_atomic_bw": {"kind": BANDWIDTH, "events": True, "sweep": False, "iters": 400},
    "ib_atomic_lat": {"kind": LATENCY, "events": True, "sweep": False, "iters": 200},
}
SHARED_RECEIVES = {"ib_send_bw": [[], ["-q", "8"], ["-q", "8", "-b"]], "ib_send_lat": [[]]}
ATOMICS = ["CMP_AND_SWAP", "FETCH_AND_ADD"]

def perftest_cases():
    """Returns [(program, arguments)]."""
    cases = []
    for program, has in PERFTEST.items():
        iters = ["-n", str(has["iters"])]
        variants = [[]] + [["-m", str(mtu)] for mtu in MTUS]
        if has["events"]:
            variants.append(["-e"])
        if has["sweep"]:
            variants.append(["-a"])
        if has["kind"] == BANDWIDTH:
            variants += [["-b"], ["-l", "16"], ["-q", "8"]]
        for variant in variants:
            if "-a" in variant:
                cases.append((program, ["-F", "-n", "10"] + variant))
            elif "atomic" in program:
                cases += [(program, ["-F", "-A", kind] + iters + variant) for kind in ATOMICS]
            else:
                cases.append((program, ["-F"] + iters + variant))
    for program, variants in SHARED_RECEIVES.items():
        cases += [(program, ["-F", "-n", str(PERFTEST[program]["iters"]), "--use-srq"] + v)
                  for v in variants]
    return cases


def unreliable_cases(kind):
    """
    Limits for services that drop messages without a receive, with programs that wait for lost
    messages: no more messages than the depth of the receive queue, and over udp, which has no flow
    control, no more bytes in flight than the usual receive buffer holds.
    """
    shm = kind == "shm"
    cases = []
    for program in ("ib_send_bw", "ib_write_bw", "ib_send_lat", "ib_write_lat"):
        bandwidth = "_bw" in program
        base = ["-F", "-c", "UC"]
        variants = [["-m", str(mtu)] for mtu in MTUS] if shm else [["-m", "256"]]
        size = [] if shm else ["-s", "1024"]
        variants = [size] + [variant + size for variant in variants]
        if "send" in program:
            variants += [["-e"] + size, ["--use-srq"] + size]
        if bandwidth:
            variants += [["-b"] + size, ["-q", "8"] + size]
        if shm:
            variants.append(["-a"])
        for variant in variants:
            # Newer versions of perftest accept -n only once.
            count = "64" if not shm else "100" if "-q" in variant else "200"
            # A sweep of all sizes has as few messages of each size as over RC.
            count = "10" if "-a" in variant else count
            cases.append((program, base + ["-n", count] + variant))
    for program in ("ib_send_bw", "ib_send_lat"):
        base = ["-F", "-c", "UD", "-n", "200" if shm else "64"]
        variants = [["-s", "1024"], ["-s", "4096"], ["-s", "1024", "-e"],
                    ["-s", "1024", "--use-srq"], ["-a"]]
        if "_bw" in program:
            variants += [["-s", "1024", "-b"], ["-s", "1024", "-q", "8"]]
        cases += [(program, base + variant) for variant in variants if shm or "-a" not in variant]
    return cases


def pingpong_cases():
    # Not -t with -e: with both, the program takes an event whose completion it has polled before
    # for an error.
    base = ["-g", "0", "-n", "300", "-c"]
    cases = [("ibv_rc_pingpong", base + extra)
             for extra in ([], ["-e"], ["-t"], ["-N"], ["-N", "-t"], ["-N", "-e"],
                           ["-s", "1000000", "-n", "20"])]
    cases += [("ibv_srq_pingpong", base + extra)
              for extra in ([], ["-e"], ["-q", "1"], ["-s", "20000"])]
    base = ["-g", "0", "-n", "300"]
    cases += [("ibv_uc_pingpong", base + extra)
              for extra in ([], ["-e"], ["-m", "1024"], ["-s", "65536"])]
    return cases + [("ibv_ud_pingpong", base + extra)
                    for extra in (["-s", "2048"], ["-e"], ["-s", "1"])]


def result_missing(program, text):
    """Checks the output: perftest prints a row of numbers for each size, the ping-pong a rate.
    Without them nothing was measured."""
    if program.startswith("ib_"):
        rows = re.findall(r"^\s*\d+\s+\d+\s+[0-9.]+\s+[0-9.]+", text, re.M)
        return None if rows else "no result line"
    return None if re.search(r"\d+ iters in [0-9.]+ seconds", text) else "no result line"


def run_both(lib, kind, program, args):
    port = free_tcp_port()
    ours, theirs = addresses(kind)
    command = [program, "-p", str(port)] + args
    return run_pair(lambda: Side(lib, ours, command),
                    lambda: Side(lib, theirs, command + ["localhost"]), lambda _: listens(port),
                    lambda server, client,
                    until: outcome(server, client, until) or result_missing(program, client.text()))


def run_single(lib, kind, program, args, wanted):
    side = Side(lib, addresses(kind)[0], [program] + args)
    problem = side.wait(time.monotonic() + RUN_LIMIT) or side.exit_verdict()
    for pattern in wanted:
        problem = problem or lacks(side, pattern)
    return problem, side.report()


def run_guids(lib, kind):
    """Runs two programs one after the other without an address, while another program has the first
    address."""
    guids, report = [], ""
    holder = Side(lib, kind, ["ibv_rc_pingpong", "-g", "0", "-p", str(free_tcp_port())])
    for command, pattern in ((["ibv_devices"], r"roost0\s+([0-9a-f]{16})"),
                             (["ibv_devinfo"], r"node_guid:\s+([0-9a-f:]{19})"),
                             (["ibv_devinfo"], r"sys_image_guid:\s+([0-9a-f:]{19})")):
        side = Side(lib, kind, command)
        side.wait(time.monotonic() + RUN_LIMIT)
        report += side.report()
        found = re.search(pattern, side.text())
        guids.append(found[1].replace(":", "") if found else None)
    holder.kill()
    return (None if guids[0] and len(set(guids)) == 1 else f"different GUIDs: {guids}"), report


SINGLES = [
    ("ibv_devices", [], [r"roost0"]),
    ("ibv_devinfo", ["-v"], [r"hca_id:\s+roost0", r"PORT_ACTIVE", r"link_layer:\s+Ethernet",
                             r"GID\[\s*0\].*RoCE v2", r"max_qp:\s+16384", r"ATOMIC_HCA"]),
]


# Features that the device does not have: the program must print an error and end. It must not
# crash, or seem to work.
REFUSED_ALONE = [
    ("ibv_xsrq_pingpong", ["-g", "0"]),
    ("ibv_rc_pingpong", ["-g", "0", "-o"]),
    ("ibv_rc_pingpong", ["-g", "0", "-j"]),
]
# GID indices that are usual with rxe and mlx5: our error line names the right one.
WRONG_INDEX = [("ibv_rc_pingpong", ["-g", "1"]), ("ibv_ud_pingpong", ["-g", "3"]),
               ("ibv_srq_pingpong", ["-g", "3"])]
WRONG_INDEX_PAIRS = [("ib_write_lat", ["-x", "1"]), ("ib_read_bw", ["-F", "-x", "3"])]
REFUSED_PAIRS = [
    ("ib_write_bw", ["-F", "-c", "XRC"]),
    ("ib_write_bw", ["-F", "-c", "DC"]),
    ("ib_write_bw", ["-F", "--odp"]),
]


def refusal_problem(side, limit):
    side.wait(time.monotonic() + limit)
    status = side.process.returncode
    if status == -signal.SIGKILL:
        return "did not end"
    if status < 0:
        return side.exit_verdict()
    return None if status else "exit status 0"


def run_refused_alone(lib, kind, program, args):
    side = Side(lib, addresses(kind)[0], [program, "-p", str(free_tcp_port())] + args)
    return refusal_problem(side, 10), side.report()


def names_right_index(problem, report):
    told = re.search(r"roost: no GID of index \d.*name index 0", report)
    return problem or (None if told else "no line that names the right index"), report


def run_refused_pair(lib, kind, program, args):
    port = free_tcp_port()
    ours, theirs = addresses(kind)
    command = [program, "-p", str(port)] + args
    return run_pair(lambda: Side(lib, ours, command),
                    lambda: Side(lib, theirs, command + ["localhost"]), lambda _: listens(port),
                    lambda server, client,
                    _: refusal_problem(client, 10) or refusal_problem(server, 10), limit=10)


def cases(kind, lib):
    """Returns [(label, program, function that runs it)]."""
    found = []
    for program, args, wanted in SINGLES:
        found.append(
            (program, args, lambda p=program, a=args, w=wanted: run_single(lib, kind, p, a, w)))
    found.append(("ibv_devices", ["ibv_devinfo", "(same GUID)"], lambda: run_guids(lib, kind)))
    for program, args in pingpong_cases() + perftest_cases() + unreliable_cases(kind):
        found.append((program, args, lambda p=program, a=args: run_both(lib, kind, p, a)))
    for program, args in REFUSED_ALONE:
        found.append((program, args + ["(refused)"], lambda p=program,
                      a=args: run_refused_alone(lib, kind, p, a)))
    for program, args in WRONG_INDEX:
        found.append((program, args + ["(right index named)"], lambda p=program,
                      a=args: names_right_index(*run_refused_alone(lib, kind, p, a))))
    for program, args in WRONG_INDEX_PAIRS:
        found.append((program, args + ["(right index named)"], lambda p=program,
                      a=args: names_right_index(*run_refused_pair(lib, kind, p, a))))
    for program, args in REFUSED_PAIRS:
        found.append((program, args + ["(refused)"], lambda p=program,
                      a=args: run_refused_pair(lib, kind, p, a)))
    return [(" ".join([kind, program] + args), program, function)
            for program, args, function in found]


def main():
    options = parser(__doc__, lib="folder of our libibverbs.so.1")
    add_clock(options)
    options = options.parse_args()
    Side.clock = options.clock
    if not os.path.exists(os.path.join(options.lib, "libibverbs.so.1")):
        sys.exit(f"no libibverbs.so.1 in {options.lib}: build it first")
    chosen = choose(options, cases(options.port, options.lib), lambda case: case[0])
    demand([program for _, program, _ in chosen], "ibverbs-utils, perftest")
    run_rows([(label, function) for label, _, function in chosen])


if __name__ == "__main__":
    main()
