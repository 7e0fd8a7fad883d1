#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Runs the unit tests on arm64 under emulation; Debian's cross compiler builds them.

usage: run.py [--build DIR] [--sysroot DIR] [--only TEXT] [--brief]

Each test is a process in qemu-aarch64, qemu's emulation of a user's process. UNABLE names the tests
that cannot run there, SLOW those that take long: guest.py runs them. The tests of OLDEST also run
on the processor OLDEST_CPU. With --brief, only what is installed and the programs of the tests
that --only names are built, without debug information, and the linker does not optimize the
programs as a whole. No unit test has such a program.

The exit status is 0 if all tests passed, and 77, with the reason in the last line, if packages or
tools are missing; with ROOST_INTEROP=required in the environment it is then 1.
"""
import argparse
import concurrent.futures
import copy
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

import sysroot
from own_network import own_network
from sysroot import Missing, skip

TOP = os.path.dirname(os.path.dirname(sysroot.HERE))
LIMIT = 300  # seconds for a test; tests that are slow beside other work take a tenth of it

# Features that an emulated process lacks (qemu 7.2), and the tests that need them.
UNABLE = [
    (r"port-udp_lanes|port-udp_alone|port-udp_steer|port-udp_leftovers|port-udp_mixed|"
     r"port-udp_refused|port-udp_strangers|port-host|pool-faults|pool-filter|pool-pool|pool-view|"
     r"pool-join|pool-link_local|pool-wills|drive-link-local|rdmacm-forward|verbs-churn|"
     r"verbs-successor|verbs-alone|verbs-scribble|verbs-mtu|verbs-killed-one_address",
     "setsockopt(SO_ATTACH_REUSEPORT_CBPF) is not translated, so programs do not share an address"),
    (r"port-udp_join|port-udp_wire|nic-counters",
     "sockets' UDP_GRO, UDP_SEGMENT and IP options in control messages are not translated"),
    (r"port-udp_mcast|verbs-mcast",
     "setsockopt(IP_ADD_MEMBERSHIP and IP_MULTICAST_IF with struct ip_mreqn) is not translated"),
    (r"drive-fork|verbs-fork|verbs-hull|verbs-chain-hull|cache-writer|rdmacm-fork",
     "fork() in a program with threads ends in an assertion of the emulator"),
    (r"base-arena|base-mem|kv-sparse",
     "setrlimit(RLIMIT_AS) is ignored, and /proc/self/statm is the emulator's own"),
    (r"kv-bounds|kv-slab", "page faults and /proc/self/smaps are the emulator's own"),
    (r"base-sys", "socket(2) of an unknown type has the emulator's own error"),
    (r"shm_hostile", "memfd_create() and fcntl(F_ADD_SEALS) know fewer flags"),
    (r"attacks-flood|attacks-collide", "ptrace(2) is not translated, and the flood is too slow"),
    (r"drive-busy_poll", "an emulated thread is slower than the time of a busy poll"),
]
# Tests that take minutes there; some have a shorter form. Fuzz targets run on a tenth of their
# mutations.
SLOW = [(r"^(drive-models|nic-longest|kernels-tenants|rdmacm-draws.*)$", "takes minutes")]
# The arguments of a shorter form.
FEWER = {"nic-simulator": ["--count", "40"], "drive-models": ["--few"], "verbs-churn": ["50"],
         "verbs-churn-host": ["50"], "cache-writer-udp": ["5"], "cache-writer-shm": ["5"],
         "verbs-chain-hull-machines": ["--few"]}
ENV = {"ROOST_FUZZ_FRACTION": "10"}
# A processor of ARMv8.0, without the atomics of FEAT_LSE, and the test of the code that asks for
# this feature at run time (src/nic/dma.c).
OLDEST_CPU = "cortex-a53"
OLDEST = r"^nic-dma$"


class Test:
    def __init__(self, entry, build):
        self.name, self.command = entry["name"], entry["cmd"]
        self.env = {**entry["env"], **ENV}
        self.program = os.path.relpath(self.command[0], build)


def unit_tests(build):
    """Returns the tests that are programs for arm64. Scripts test the build of this machine."""
    listed = json.loads(sysroot.output("meson", "introspect", "--tests", build))
    return [Test(entry, build) for entry in listed
            if any(suite.endswith("unit") for suite in entry["suite"])
            and entry["cmd"][0].startswith(build + os.sep)]


def needed(build, wanted):
    """What is installed or generated, and the programs of the unit tests whose name is wanted."""
    tests, targets = (json.loads(sysroot.output("meson", "introspect", what, build))
                      for what in ("--tests", "--targets"))
    ids = {target for test in tests if any(suite.endswith("unit") for suite in test["suite"])
           and wanted(test["name"]) for target in test["depends"]}
    return sorted({os.path.relpath(name, build) for target in targets
                   if target["installed"] or target["type"] == "custom" or target["id"] in ids
                   for name in target["filename"]})


def make(options, wanted=lambda name: True):
    """Builds, and returns the folder of the packages. `wanted` tells the names of tests whose
    programs --brief builds."""
    def build(*targets):
        if subprocess.run([*command, "--", *targets], cwd=TOP, stdin=subprocess.DEVNULL,
                          check=False).returncode:
            sys.exit("FAILED: the build for arm64")

    root = sysroot.make(options.sysroot)
    command = [os.path.join(TOP, "scripts/build"), options.build, "--cross-file",
               os.path.join(options.sysroot, "cross.ini"),
               *(["-Dwhole_program=false", "-Ddebug=false"] if options.brief else [])]
    if options.brief:
        build("build.ninja")
    build(*(needed(options.build, wanted) if options.brief else []))
    return root


def why_not(name):
    """Returns the reason why only a guest runs the test of this name, or None."""
    return next((why for pattern, why in UNABLE + SLOW if re.search(pattern, name)), None)


def shorter(test):
    """Returns the command of a test, in its shorter form if it has one."""
    return test.command[:1] + FEWER[test.name] if test.name in FEWER else test.command


def on_oldest(test):
    """Returns the same test, on the oldest processor."""
    test = copy.copy(test)
    test.name += f" ({OLDEST_CPU})"
    test.env = {**test.env, "QEMU_CPU": OLDEST_CPU}
    return test


def run_user(test, root):
    """Runs a test. Returns (test, exit status, output, seconds)."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="roost-arm64-") as scratch:
        env = dict(os.environ, TMPDIR=scratch, **test.env)
        try:
            command = [*own_network(), "qemu-aarch64", "-L", root, *shorter(test)]
            done = subprocess.run(command, env=env, cwd=scratch, stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                  errors="replace", timeout=LIMIT, check=False)
            status, text = done.returncode, done.stdout
        except subprocess.TimeoutExpired as late:
            status, text = "does not end", (late.stdout or b"").decode(errors="replace")
    return test, status, text, time.monotonic() - start


def all_user(tests, root, jobs):
    """Runs the tests. Returns (failed, passed, left out)."""
    able = [test for test in tests if not why_not(test.name)]
    left = len(tests) - len(able)
    able += [on_oldest(test) for test in able if re.search(OLDEST, test.name)]
    for pattern, why in UNABLE + SLOW:
        names = [test.name for test in tests if re.search(pattern, test.name)]
        if names:
            print(f"left out: {' '.join(names)}: {why}", flush=True)
    failed = []
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for test, status, text, seconds in pool.map(lambda test: run_user(test, root), able):
            bad = status not in (0, 77)
            print(f"{'FAILED' if bad else 'ok    '} {test.name:32} {seconds:6.1f} s", flush=True)
            if bad:
                failed.append(test.name)
                print(f"exit status {status}\n{text[-4000:]}", flush=True)
    return failed, len(able) - len(failed), left


def parse(about, more=lambda parser: None):
    """The options of a script that builds for arm64; `more` adds its own to the parser."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--build", default=os.path.join(TOP, "build-arm64"), metavar="DIR",
                        help="where it is built; default: build-arm64")
    parser.add_argument("--sysroot", default=os.path.join(TOP, "build-arm64-root"), metavar="DIR",
                        help="keeps the packages")
    parser.add_argument("--only", default="", metavar="TEXT",
                        help="tests whose name matches this regular expression")
    parser.add_argument("--brief", action="store_true",
                        help="build little, and without optimizing programs as a whole")
    more(parser)
    options = parser.parse_args()
    options.build, options.sysroot = os.path.abspath(options.build), os.path.abspath(
        options.sysroot)
    return options


def main():
    options = parse(__doc__.splitlines()[0])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    begin = time.monotonic()
    try:
        root = make(options, lambda name: re.search(options.only, name))
        tests = [test for test in unit_tests(options.build) if re.search(options.only, test.name)]
        print(f"built for arm64 after {time.monotonic() - begin:.0f} s; {len(tests)} unit tests",
              flush=True)
        failed, passed, left = all_user(tests, root, len(os.sched_getaffinity(0)))
    except Missing as e:
        skip(f"nothing was tried on arm64: {e}")
    for name in failed:
        print(f"FAILED: {name}")
    print(
        f"{passed} passed, {len(failed)} failed, {left} left out in {time.monotonic() - begin:.0f} "
        f"s")
    sys.exit(1 if failed or not passed else 0)


if __name__ == "__main__":
    main()
