#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Runs stock RDMA programs, unmodified, on our drop-in libibverbs.so.1: two processes on this machine, over udp or shm.

usage: run.py --lib DIR --port udp|shm [--only TEXT] [--list]

One line for each combination; what failed is shown with the output of both sides. Exit status 0 only when all passed.
Addresses and TCP ports (these programs meet over TCP) are chosen anew for every run.
"""
import argparse
import itertools
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

RUN_LIMIT = 120  # seconds; the slowest takes a few
MTUS = [256, 512, 1024, 2048, 4096]

# What each program of perftest takes, and how much of it. A multiple of 16 (-l 16), and of 100: perftest asks for one
# completion in 100 and counts a shorter last stretch as 100 too, so that over several QPs it may stop polling too early.
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

# Lines that a good run never prints, whatever its exit status says.
COMPLAINTS = re.compile(
    r"fail|error|couldn't|unable|not supported|invalid|completion with|mismatch|segmentation|roost:", re.I)
# The warnings of perftest about its own flags.
HARMLESS = re.compile(r"^\s*(WARNING|Warning)|Data ex\. method|#bytes", re.I)


def perftest_cases():
    """[(program, arguments)]"""
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
        cases += [(program, ["-F", "-n", str(PERFTEST[program]["iters"]), "--use-srq"] + v) for v in variants]
    return cases


def unreliable_cases(kind):
    """
    Services that lose what a receiver can't take, and programs that wait for what was lost: never more messages than the receive
    queue is deep, and over udp, which does not push back, no more bytes under way than an ordinary receive buffer holds.
    """
    shm = kind == "shm"
    cases = []
    for program in ("ib_send_bw", "ib_write_bw", "ib_send_lat", "ib_write_lat"):
        bandwidth = "_bw" in program
        base = ["-F", "-c", "UC", "-n", "200" if shm else "64"]
        variants = [["-m", str(mtu)] for mtu in MTUS] if shm else [["-m", "256"]]
        size = [] if shm else ["-s", "1024"]
        variants = [size] + [variant + size for variant in variants]
        if "send" in program:
            variants += [["-e"] + size, ["--use-srq"] + size]
        if bandwidth:
            variants += [["-b"] + size, ["-q", "8"] + (size or ["-n", "100"])]
        if shm:
            variants.append(["-a"])
        cases += [(program, base + variant) for variant in variants]
    for program in ("ib_send_bw", "ib_send_lat"):
        base = ["-F", "-c", "UD", "-n", "200" if shm else "64"]
        variants = [["-s", "1024"], ["-s", "4096"], ["-s", "1024", "-e"], ["-s", "1024", "--use-srq"], ["-a"]]
        if "_bw" in program:
            variants += [["-s", "1024", "-b"], ["-s", "1024", "-q", "8"]]
        cases += [(program, base + variant) for variant in variants if shm or "-a" not in variant]
    return cases


def pingpong_cases():
    # Not -t with -e: with both, the program takes an event whose completion it has polled before for an error.
    base = ["-g", "0", "-n", "300", "-c"]
    cases = [("ibv_rc_pingpong", base + extra)
             for extra in ([], ["-e"], ["-t"], ["-N"], ["-N", "-t"], ["-N", "-e"], ["-s", "1000000", "-n", "20"])]
    cases += [("ibv_srq_pingpong", base + extra) for extra in ([], ["-e"], ["-q", "1"], ["-s", "20000"])]
    base = ["-g", "0", "-n", "300"]
    cases += [("ibv_uc_pingpong", base + extra) for extra in ([], ["-e"], ["-m", "1024"], ["-s", "65536"])]
    return cases + [("ibv_ud_pingpong", base + extra) for extra in (["-s", "2048"], ["-e"], ["-s", "1"])]


def free_tcp_port():
    with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as probe:
        probe.bind(("::", 0))
        return probe.getsockname()[1]


def listens(port):
    wanted = f":{port:04X} "
    for path in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(path, encoding="ascii") as table:
                if any(wanted in line and " 0A " in line for line in table):
                    return True
        except FileNotFoundError:
            pass
    return False


def addresses(kind):
    """Two addresses nobody else here has, so that runs beside each other do not meet."""
    net = f"{random.randrange(1, 255)}.{random.randrange(1, 255)}"
    first = 127 if kind == "udp" else 10
    return [f"{kind}:{first}.{net}.{host}" for host in (2, 3)]


class Side:
    """One of the two processes, with its output in a file."""
    MARK = "ROOST_TEST_SIDE"
    numbers = itertools.count()

    def __init__(self, lib, roost_port, command):
        self.start(command, dict(os.environ, LD_LIBRARY_PATH=lib, ROOST_PORT=roost_port))
        self.command = f"ROOST_PORT={roost_port} {' '.join(command)}"

    def start(self, command, env):
        self.output = tempfile.TemporaryFile(mode="w+")
        self.mark = f"{os.getpid()}-{next(Side.numbers)}"
        self.process = subprocess.Popen(command, env=dict(env, **{Side.MARK: self.mark}), stdin=subprocess.DEVNULL, stdout=self.output,
                                        stderr=subprocess.STDOUT, start_new_session=True)

    def processes(self):
        """All that it started and that still run, whatever session they are in: fio's jobs make one each. They bear a mark."""
        mark = f"{Side.MARK}={self.mark}".encode()
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/environ", "rb") as environ:
                    if mark in environ.read().split(b"\0"):
                        yield int(pid)
            except OSError:
                pass  # it has ended, or is somebody else's

    def ended(self):
        return self.process.poll() is not None

    def wait(self, until):
        try:
            self.process.wait(max(0.1, until - time.monotonic()))
            return None
        except subprocess.TimeoutExpired:
            self.kill()
            return f"still running after {RUN_LIMIT} s"

    def kill(self):
        """Nothing of it is left behind."""
        left = list(self.processes())
        while left:
            for pid in left:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            left = list(self.processes())
        self.process.wait()

    def text(self):
        self.output.seek(0)
        return self.output.read()

    def exit_verdict(self):
        status = self.process.returncode
        if status < 0:
            return f"killed by {signal.Signals(-status).name}"
        return f"exit status {status}" if status else None

    def verdict(self):
        """None when all is well."""
        if self.exit_verdict():
            return self.exit_verdict()
        for line in self.text().splitlines():
            if COMPLAINTS.search(line) and not HARMLESS.search(line):
                return f"says: {line.strip()}"
        return None


def result_missing(program, text):
    """perftest prints a row of numbers for each size, the ping-pong a rate: without it nothing was measured."""
    if program.startswith("ib_"):
        rows = re.findall(r"^\s*\d+\s+\d+\s+[0-9.]+\s+[0-9.]+", text, re.M)
        return None if rows else "no result line"
    return None if re.search(r"\d+ iters in [0-9.]+ seconds", text) else "no result line"


def outcome(server, client, until):
    """What went wrong with a pair that ends by itself, or None. A client that failed leaves its server waiting for ever."""
    problem = client.wait(until) or client.verdict()
    late = server.wait(time.monotonic() + 1 if problem else until)
    if problem:
        return f"client {problem}"
    verdict = late or server.verdict()
    return f"server {verdict}" if verdict else None


def run_pair(lib, kind, program, args):
    """(problem or None, report)"""
    port = free_tcp_port()
    ours, theirs = addresses(kind)
    command = [program, "-p", str(port)] + args
    until = time.monotonic() + RUN_LIMIT
    server = Side(lib, ours, command)
    client = None
    try:
        while not listens(port) and not server.ended() and time.monotonic() < until:
            time.sleep(0.01)
        client = Side(lib, theirs, command + ["localhost"])
        problem = outcome(server, client, until) or result_missing(program, client.text())
    finally:
        server.kill()
        if client:
            client.kill()
    report = f"--- server: {server.command}\n{server.text()}--- client: {client.command}\n{client.text()}"
    return problem, report


def run_single(lib, kind, program, args, wanted):
    side = Side(lib, addresses(kind)[0], [program] + args)
    problem = side.wait(time.monotonic() + RUN_LIMIT) or side.exit_verdict()
    for pattern in wanted:
        if not problem and not re.search(pattern, side.text()):
            problem = f"output lacks {pattern!r}"
    return problem, f"--- {side.command}\n{side.text()}"


def run_guids(lib, kind):
    """Two programs one after the other, with no address named, and another program that has the first one."""
    guids, report = [], ""
    holder = Side(lib, kind, ["ibv_rc_pingpong", "-g", "0", "-p", str(free_tcp_port())])
    for command, pattern in ((["ibv_devices"], r"roost0\s+([0-9a-f]{16})"), (["ibv_devinfo"], r"node_guid:\s+([0-9a-f:]{19})"),
                             (["ibv_devinfo"], r"sys_image_guid:\s+([0-9a-f:]{19})")):
        side = Side(lib, kind, command)
        side.wait(time.monotonic() + RUN_LIMIT)
        report += f"--- {side.command}\n{side.text()}"
        found = re.search(pattern, side.text())
        guids.append(found[1].replace(":", "") if found else None)
    holder.kill()
    return (None if guids[0] and len(set(guids)) == 1 else f"different GUIDs: {guids}"), report


SINGLES = [
    ("ibv_devices", [], [r"roost0"]),
    ("ibv_devinfo", ["-v"], [r"hca_id:\s+roost0", r"PORT_ACTIVE", r"link_layer:\s+Ethernet", r"GID\[\s*0\].*RoCE v2",
                            r"max_qp:\s+16384", r"ATOMIC_HCA"]),
]


# What the device does not have (yet): the program says so and ends. It must not crash, and must not seem to work.
REFUSED_ALONE = [
    ("ibv_xsrq_pingpong", ["-g", "0"]),
    ("ibv_rc_pingpong", ["-g", "0", "-o"]),
    ("ibv_rc_pingpong", ["-g", "0", "-j"]),
]
# Indices that users of rxe and mlx5 are used to: our line names the right one.
WRONG_INDEX = [("ibv_rc_pingpong", ["-g", "1"]), ("ibv_ud_pingpong", ["-g", "3"]), ("ibv_srq_pingpong", ["-g", "3"])]
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
    problem = refusal_problem(side, 10)
    return problem, f"--- {side.command}\n{side.text()}"


def run_wrong_index(lib, kind, program, args):
    problem, report = run_refused_alone(lib, kind, program, args)
    told = re.search(r"roost: no GID of index \d.*name index 0", report)
    return problem or (None if told else "no line that names the right index"), report


def run_refused_pair(lib, kind, program, args):
    port = free_tcp_port()
    sides = []
    command = [program, "-p", str(port)] + args
    until = time.monotonic() + 10
    for address, extra in zip(addresses(kind), ([], ["localhost"])):
        sides.append(Side(lib, address, command + extra))
        while not listens(port) and not sides[0].ended() and time.monotonic() < until:
            time.sleep(0.01)
    problem = refusal_problem(sides[1], 10) or refusal_problem(sides[0], 10)
    return problem, "".join(f"--- {side.command}\n{side.text()}" for side in sides)


def cases(kind, lib):
    """[(label, program, function that runs it)]"""
    found = []
    for program, args, wanted in SINGLES:
        found.append((program, args, lambda p=program, a=args, w=wanted: run_single(lib, kind, p, a, w)))
    found.append(("ibv_devices", ["ibv_devinfo", "(same GUID)"], lambda: run_guids(lib, kind)))
    for program, args in pingpong_cases() + perftest_cases() + unreliable_cases(kind):
        found.append((program, args, lambda p=program, a=args: run_pair(lib, kind, p, a)))
    for program, args in REFUSED_ALONE:
        found.append((program, args + ["(refused)"], lambda p=program, a=args: run_refused_alone(lib, kind, p, a)))
    for program, args in WRONG_INDEX:
        found.append((program, args + ["(right index named)"], lambda p=program, a=args: run_wrong_index(lib, kind, p, a)))
    for program, args in REFUSED_PAIRS:
        found.append((program, args + ["(refused)"], lambda p=program, a=args: run_refused_pair(lib, kind, p, a)))
    return [(" ".join([kind, program] + args), program, function) for program, args, function in found]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lib", required=True, help="folder of our libibverbs.so.1")
    parser.add_argument("--port", required=True, choices=["udp", "shm"])
    parser.add_argument("--only", default="", help="run only combinations that contain this text")
    parser.add_argument("--list", action="store_true", help="print the combinations, run none")
    options = parser.parse_args()
    if not os.path.exists(os.path.join(options.lib, "libibverbs.so.1")):
        sys.exit(f"no libibverbs.so.1 in {options.lib}: build it first")
    chosen = [case for case in cases(options.port, options.lib) if options.only in case[0]]
    if options.list:
        print("\n".join(label for label, _, _ in chosen))
        return
    missing = sorted({program for _, program, _ in chosen if not shutil.which(program)})
    if missing:
        sys.exit(f"not installed: {', '.join(missing)} (Debian: ibverbs-utils, perftest)")
    failed = 0
    for label, _, function in chosen:
        start = time.monotonic()
        problem, report = function()
        seconds = time.monotonic() - start
        print(f"{'FAILED' if problem else 'ok    '} {label} ({seconds:.2f} s)" + (f": {problem}" if problem else ""),
              flush=True)
        if problem:
            failed += 1
            print(report, flush=True)
    print(f"{len(chosen) - failed} passed, {failed} failed")
    sys.exit(1 if failed or not chosen else 0)


if __name__ == "__main__":
    main()
