# SPDX-License-Identifier: BSD-2-Clause
"""Shared code of the runners of stock programs: a program in a process of its own, pairs of
programs, and the loop over a list of rows."""
import argparse
import itertools
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "common"))
from output import read_output  # noqa: E402
from perftest_clock import run_again  # noqa: E402
from ports import free_tcp_port, listens  # noqa: E402, F401  (for the runners)
from skip import skip  # noqa: E402

# One-sided operations of Open MPI 5 make fences. If strong fences fail, UCX 1.18 may end the
# program (docs/platforms.md). UCX 1.13 has no such variable.
WEAK_FENCES = "UCX_FENCE_MODE=weak UCX_WARN_UNUSED_ENV_VARS=n"

CLOCKED = ("ib_", "mckey", "qperf")  # programs that take less time with fast-clock.so

RUN_LIMIT = 120  # seconds; the slowest takes a few

# Lines that a successful run does not print, with any exit status.
COMPLAINTS = re.compile(r"fail|error|couldn't|unable|not supported|invalid|completion "
                        r"with|mismatch|segmentation|roost:", re.I)
# The warnings of perftest about its own flags. For a strong fence, UCX 1.18 asks each device to
# flush remote memory, which only mlx5 supports, and continues without.
HARMLESS = re.compile(
    r"^\s*(WARNING|Warning)|Data ex\. method|#bytes|flush\(remote\) is not supported|error during "
    r"flush: Unsupported", re.I)


def addresses(kind):
    """Returns two addresses that no other process has, so that concurrent runs do not meet."""
    net = f"{random.randrange(1, 255)}.{random.randrange(1, 255)}"
    first = 10 if kind == "shm" else 127
    return [f"{kind}:{first}.{net}.{host}" for host in (2, 3)]


class Side:
    """One of the two processes, with its output in a file."""
    MARK = "ROOST_TEST_SIDE"
    numbers = itertools.count()
    clock = None  # path of fast-clock.so, for CLOCKED; None: the clock of the machine

    def __init__(self, lib, roost_port, command):
        env = dict(os.environ, LD_LIBRARY_PATH=lib, ROOST_PORT=roost_port)
        if Side.clock and command[0].startswith(CLOCKED):
            env["LD_PRELOAD"] = Side.clock
        self.start(command, env)
        self.command = f"ROOST_PORT={roost_port} {' '.join(command)}"

    def start(self, command, env, new_session=True):
        self.output = tempfile.TemporaryFile(mode="w+")
        self.mark = f"{os.getpid()}-{next(Side.numbers)}"
        self.process = subprocess.Popen(command, env=dict(env, **{Side.MARK: self.mark}),
                                        stdin=subprocess.DEVNULL, stdout=self.output,
                                        stderr=subprocess.STDOUT,
                                        start_new_session=new_session)

    def processes(self):
        """Returns the processes that it started and that still run, in any session: each of fio's
        jobs makes one. A variable in their environment identifies them."""
        mark = f"{Side.MARK}={self.mark}".encode()
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/environ", "rb") as environ:
                    if mark in environ.read().split(b"\0"):
                        yield int(pid)
            except OSError:
                pass  # it has ended, or belongs to another user

    def ended(self):
        return self.process.poll() is not None

    def wait(self, until):
        start = time.monotonic()
        try:
            self.process.wait(max(0.1, until - start))
            return None
        except subprocess.TimeoutExpired:
            self.kill()
            return f"still running after {time.monotonic() - start:.0f} s more"

    def kill(self):
        """Ends the program and all its descendants."""
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
        return read_output(self.output)

    def report(self):
        return f"--- {self.command}\n{self.text()}"

    def exit_verdict(self):
        status = self.process.returncode
        if status < 0:
            return f"killed by {signal.Signals(-status).name}"
        return f"exit status {status}" if status else None

    def verdict(self):
        """Returns the problem, or None."""
        if self.exit_verdict():
            return self.exit_verdict()
        for line in self.text().splitlines():
            if COMPLAINTS.search(line) and not HARMLESS.search(line):
                return f"says: {line.strip()}"
        return None


class RunSide(Side):
    """A program under `roost run`."""

    def __init__(self, roost, spec, command):
        full = [roost, "run", "--port", spec, "--", *command.split()]
        self.start(full, dict(os.environ))
        self.command = " ".join(full)


def outcome(server, client, until):
    """Returns the problem of a pair that ends by itself, or None. The server of a client that
    failed would wait forever."""
    problem = client.wait(until) or client.verdict()
    late = server.wait(time.monotonic() + 1 if problem else until)
    if problem:
        return f"client {problem}"
    verdict = late or server.verdict()
    return f"server {verdict}" if verdict else None


def run_pair(server, client, ready, judge=outcome, limit=RUN_LIMIT):
    """
    Runs a pair. Returns (problem or None, report). `server` and `client` start a Side each; the
    client starts when ready(server) is true; judge(server, client, until) returns the problem or
    None. Both programs are ended.
    """
    until = time.monotonic() + limit
    sides = [server()]
    try:
        while not sides[0].ended() and not ready(sides[0]) and time.monotonic() < until:
            time.sleep(0.01)
        sides.append(client())
        problem = judge(*sides, until)
    finally:
        for side in sides:
            side.kill()
    return problem, "".join(side.report() for side in sides)


def lacks(side, wanted):
    """Returns the problem in a program's output, or None."""
    return None if re.search(wanted, side.text()) else f"output lacks {wanted!r}"


def program_of(command):
    """Returns the program of a command line, which may begin with `env NAME=VALUE`."""
    return next(word for word in command.split() if word != "env" and "=" not in word)


def build_program(compiler, source, program, *options):
    """Returns the reason for which it cannot be built, or None."""
    command = [compiler, source, "-o", program, *options, "-std=gnu17", "-O2"]
    os.makedirs(os.path.dirname(program), exist_ok=True)
    # Without LD_LIBRARY_PATH, which Meson sets: ld would take our librdmacm for another library's,
    # beside the system's libibverbs.
    env = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    return f"{' '.join(command)}:\n{done.stderr.strip()}" if done.returncode else None


def own_network(*words):
    """
    Restarts this program in a network of its own, once, and runs `ip` there with each of `words`.
    If the machine allows none, the program ends with 77, or with 1 if ROOST_INTEROP=required is in
    the environment.
    """
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
    if "ROOST_TEST_NETWORK" not in os.environ:
        unshare = ["unshare",
                   "--net"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--net"]
        tried = subprocess.run([*unshare, "true"], stderr=subprocess.PIPE, text=True, check=False)
        if tried.returncode:
            skip(f"nothing ran in a network of its own: {tried.stderr.strip()}")
        os.execvpe("unshare", [*unshare, sys.executable, *sys.argv],
                   dict(os.environ, PATH=path, ROOST_TEST_NETWORK="1"))
    for command in words:
        done = subprocess.run(["ip", *command.split()], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, check=False)
        if done.returncode:
            skip(f"nothing ran in a network of its own: ip {command}: {done.stdout.strip()}")


def narrow_network():
    """Calls own_network() with an interface of 1400 bytes, 10.9.0.1."""
    own_network("link add v0 mtu 1400 type veth peer name v1 mtu 1400",
                "addr add 10.9.0.1/24 dev v0",
                *(f"link set {link} up" for link in ("lo", "v0", "v1")))


# ---- the command line, and the loop over rows ----

def parser(description, **folders):
    """Returns the option parser of a runner: common options, and one for each of `folders`."""
    found = argparse.ArgumentParser(description=description.splitlines()[0])
    for name, about in folders.items():
        found.add_argument(f"--{name}", required=True, help=about)
    found.add_argument("--port", required=True, choices=["host", "udp", "shm"])
    found.add_argument("--only", default="", metavar="TEXT",
                       help="run only rows that contain this text")
    found.add_argument("--list", action="store_true", help="print the rows, run none")
    return found


def add_clock(options):
    options.add_argument("--clock", metavar="FILE",
                         help="fast-clock.so, preloaded into programs that then take less time")


def choose(options, rows, label):
    """Returns the rows that --only selects. With --list it prints them and ends the program."""
    chosen = [row for row in rows if options.only in label(row)]
    if options.list:
        print("\n".join(label(row) for row in chosen))
        sys.exit(0)
    return chosen


def demand(programs, packages):
    missing = sorted({program for program in programs if not shutil.which(program)})
    if missing:
        sys.exit(f"not installed: {', '.join(missing)} (Debian: {packages})")


def run_rows(rows):
    """Runs [(label, function)], each of which returns (problem or None, report), and ends the
    program: with 0 only when all passed."""
    # their processes are killed when this one ends
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    failed = 0
    for label, function in rows:
        start = time.monotonic()
        problem, report = run_again(function)
        print(f"{'FAILED' if problem else 'ok    '} {label} ({time.monotonic() - start:.2f} s)"
              + (f": {problem}" if problem else ""), flush=True)
        if problem:
            failed += 1
            print(report, flush=True)
    print(f"{len(rows) - failed} passed, {failed} failed")
    sys.exit(1 if failed or not rows else 0)
