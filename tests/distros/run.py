#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Runs the README's commands in fresh Debian systems, on a copy of this source without built files.

usage: run.py --folder DIR [--whole] [SUITE...]

Of each suite: `make demo` of a build without debug information that does not optimize programs as
a whole, the README's commands of a server and a client, the unit tests that are not slow, programs
of other releases on the libraries that were built there, and the commands of docs/guide-ci.md
(`make install`, ci.sh); with --whole, all commands of make in the README, those of a server and a
client, `make install` with DESTDIR, and the commands of the guide. Without SUITE: trixie; with
--whole, bookworm and trixie. DIR keeps the systems, apt's downloads, and the output of the
commands. The commands behind one that failed are run, too, and the last lines name those that
failed and count all. A system in which a command failed stays as DIR/SUITE.failed, until the next
failure; a line shows how to run commands in it.

The short set should take at most SHORT_SECONDS on a machine without other work. A longer time is a
warning and no failure, because it depends on the machine.

The exit status is 0 if all passed, and 77, with the reason in the last line, if no system can be
made; with ROOST_INTEROP=required in the environment it is then 1.
"""
import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import system
from skip import skip

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
INSIDE = "/srv/roost"
LINES = 100  # of a step that failed

def read(*path):
    with open(os.path.join(TOP, *path), encoding="utf-8") as file:
        return file.read()


def readme():
    """Returns a step for each command of make that the README explains."""
    return [(command, command.split())
            for command in re.findall(r"^ {4}(make\b[^#\n]*?) +#", read("README.md"), re.M)]


def guide():
    """Returns the steps of "Any other" in docs/guide-ci.md. The programs of the project are rping,
    which ci.sh starts by default."""
    section = read("docs", "guide-ci.md").split("\n## Any other\n")[1].split("\n## ")[0]
    packages, install, script = re.findall(r"^ {4}(.*)", section, re.M)
    packages += " rdmacm-utils"
    script = re.sub(r"^SERVER='.*' CLIENT='.*' (?=ARTIFACTS=)", "", script)
    return [(name, ["sh", "-exc", f"cd ..\n{commands}"])
            for name, commands in (("make install", f"{packages}\n{install}"), ("ci.sh", script))]


INSTALL, SCRIPT = guide()
DESTDIR = ("make install DESTDIR PREFIX",
           ["sh", "-exc", "make install DESTDIR=/tmp/staged PREFIX=/opt/roost\n"
            "/tmp/staged/opt/roost/bin/roost demo --size 1M"])
PROGRAMS = ("servers and clients of the README", ["tests/cli/test_readme.py", "build/roost"])
# The release variant of `make check` runs all mutations of the seeds of fuzz targets, and 500 seeds
# of the simulator.
FEWER = ["ROOST_FUZZ_FRACTION=10", "ROOST_SIM_SEEDS=50"]
UNIT = ("the unit tests",
        ["env", *FEWER, "meson", "test", "-C", "build", "--no-rebuild", "--suite", "unit",
         "--no-suite", "slow", "--print-errorlogs", "--quiet"])
# `make` keeps the options of a folder that is configured. To optimize the programs as a whole, the
# linker would need nearly as much time as the compiler does for src; --whole does it. Debug
# information would take a sixth of the compiler's time.
PARTS = ("configure", ["sh", "-exc", "scripts/setup build demo\n"
                       "scripts/build build -Dwhole_program=false -Ddebug=false -- build.ninja"])
SHORT = [
    PARTS,
    ("make demo", ["make", "demo"]),
    PROGRAMS,
    UNIT,
    ("programs of other releases", ["tests/stock/releases.py", "--lib", "build/lib", "--folder",
                                    "build/releases", "bookworm", "trixie"]),
    INSTALL,
    SCRIPT,
]
WHOLE = [*readme(), PROGRAMS, DESTDIR, INSTALL, SCRIPT]
ALONE = (UNIT, SCRIPT)  # have a network of their own, because other tests may run beside these
SHORT_SECONDS = 360  # of the short set


def said(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read().rstrip().splitlines()


def leave(folder, suite, scratch):
    """Keeps the system in which a command failed, with the source, and prints how to enter it."""
    kept = os.path.join(folder, suite + ".failed")
    shutil.rmtree(kept, ignore_errors=True)
    os.rename(scratch, kept)
    print(f"the system stays: tests/distros/system.py {suite} {folder} --keep {kept}/root --bind "
          f"{kept}/source:{INSIDE} --dir {INSIDE} -- COMMAND...", flush=True)


def run_suite(folder, suite, steps, done):
    """Runs the steps. Appends (name, whether it failed) of each to `done`."""
    begin, load = time.monotonic(), os.getloadavg()[0]
    system.base(folder, suite)
    print(f"ok     {suite:10} {'a fresh system':30} {time.monotonic() - begin:6.0f} s", flush=True)
    scratch = tempfile.mkdtemp(prefix=suite + ".run-", dir=folder)
    failed = False
    try:
        system.copy_source(TOP, os.path.join(scratch, "source"))
        for step in steps:
            name, command = step
            start = time.monotonic()
            log = os.path.join(folder, f"{suite} {name}.log".replace("/", "_"))
            with open(log, "w", encoding="utf-8") as file:
                code = system.run(folder, suite, command, keep=os.path.join(scratch, "root"),
                                  binds=[(os.path.join(scratch, "source"), INSIDE)], start=INSIDE,
                                  alone=step in ALONE, stdin=subprocess.DEVNULL, stdout=file,
                                  stderr=subprocess.STDOUT).returncode
            lines = said(log)
            print(f"{'FAILED' if code else 'ok    '} {suite:10} {name:30} "
                  f"{time.monotonic() - start:6.0f} s"
                  + (f"   {lines[-1]}" if lines and re.match(r"\d+ ", lines[-1]) else ""),
                  flush=True)
            done.append((f"{suite}, {name}", bool(code)))
            if code:
                failed = True
                print(*lines[-LINES:], f"(exit status {code}; all of it: {log})", sep="\n",
                      flush=True)
            for line in lines:
                if line.startswith("SKIPPED"):
                    print(f"       {line[:200]}", flush=True)
    finally:
        if failed:
            leave(folder, suite, scratch)
        shutil.rmtree(scratch, ignore_errors=True)
    seconds = time.monotonic() - begin
    print(f"       {suite:10} {'all':30} {seconds:6.0f} s   (load before: {load:.1f})", flush=True)
    if steps is SHORT and not failed and seconds > SHORT_SECONDS and load < 1:
        print(f"WARNING: the short set should take at most {SHORT_SECONDS} s on an idle machine")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", required=True, metavar="DIR", help="keeps the systems")
    parser.add_argument("--whole", action="store_true", help="make test and make check, too")
    parser.add_argument("suites", nargs="*", metavar="SUITE")
    options = parser.parse_args()
    # a signal leaves no copy of a system behind
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    folder = os.path.abspath(options.folder)
    if system.HERE_IS_ONE:
        print("SKIPPED: this is such a system already")
        sys.exit(77)
    steps = WHOLE if options.whole else SHORT
    done, missing = [], []
    for suite in options.suites or (["bookworm", "trixie"] if options.whole else ["trixie"]):
        try:
            run_suite(folder, suite, steps, done)
        except system.Missing as e:
            missing.append(f"{suite}: {e}")
    failed = [name for name, has_failed in done if has_failed]
    for name in failed:
        print(f"FAILED {name}")
    print(f"{len(done) - len(failed)} passed, {len(failed)} failed")
    if missing:
        skip(f"the README's commands were not run in fresh systems: {'; '.join(missing)}", failed)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
