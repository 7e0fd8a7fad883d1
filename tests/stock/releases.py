#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Binaries of other Debian releases, older and newer, on our drop-in libraries: perftest,
ibv_devinfo and rping, with their own providers (libmlx5, libefa, ...), which import the private
interface of the libibverbs.so.1 that they were built with. Dynamic linker and C library are the
newer ones of theirs and this machine's: those of the older release would refuse what was linked
with the newer.

usage: releases.py --lib DIR --folder DIR [SUITE...]

Packages are taken from the archive that this machine's apt is configured for, by apt itself with
folders of its own, which checks their signatures; they are unpacked in DIR, never installed, and
kept there. Without SUITE: this release, its backports, and the next one. A suite that has no
perftest (backports may have none) is named, and that is all.

Exit status 0 only when all passed; 77, with the reason in the last line, when packages cannot be
had, and 1 for that too with ROOST_INTEROP=required in the environment.
"""
import argparse
import glob
import os
import platform
import random
import re
import shutil
import subprocess
import sys
import time

from programs import RUN_LIMIT

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "common"))
from debian import Missing, archive, keyring, output
from perftest_clock import run_again
from ports import free_tcp_port, listens
from skip import skip

SUITES = ["bookworm", "bookworm-backports", "trixie"]
PACKAGES = ["perftest", "ibverbs-utils", "ibverbs-providers", "rdmacm-utils"]
LIBRARIES = ("libibverbs.so.1", "librdmacm.so.1")

PERFTEST = ["ib_write_bw", "ib_read_lat", "ib_send_bw", "ib_atomic_lat"]


# ---- packages ----

class Apt:
    """apt with a state of its own: one suite of one architecture, nothing installed. Proxies and
    the like stay those of the machine."""

    def __init__(self, folder, uri, suite, architecture=None):
        for path in ("state/lists/partial", "cache/archives/partial"):
            os.makedirs(os.path.join(folder, path), exist_ok=True)
        self.archives = os.path.join(folder, "cache/archives")
        files = {
            "status": "", "suite.sources":
            f"Types: deb\nURIs: {uri}\nSuites: {suite}\nComponents: main\nSigned-By: {keyring()}\n",
            "apt.conf":
            f'Dir::State "{folder}/state"; Dir::State::status "{folder}/status"; Dir::Cache '
            f'"{folder}/cache";\n'
            f'Dir::Etc::sourcelist "{folder}/suite.sources"; Dir::Etc::sourceparts "-";\n'
            'APT::Sandbox::User ""; APT::Install-Recommends "false";\n'
            + (f'APT::Architecture "{architecture}"; APT::Architectures "{architecture}";\n'
               if architecture else "")}
        for name, text in files.items():
            with open(os.path.join(folder, name), "w", encoding="ascii") as file:
                file.write(text)
        self.env = dict(os.environ, APT_CONFIG=os.path.join(folder, "apt.conf"), LC_ALL="C")

    def run(self, *words):
        return output(*words, env=self.env)


def unpack(folder, uri, suite):
    """The folder with the packages of a suite and all that they depend on, made once; None: it has
    no perftest."""
    root = os.path.join(folder, suite)
    if os.path.exists(root):
        return root
    scratch = os.path.join(folder, suite + ".unpacking")
    shutil.rmtree(scratch, ignore_errors=True)
    os.makedirs(scratch)
    apt = Apt(scratch, uri, suite)
    apt.run("apt-get", "-q", "--error-on=any", "update")
    if not apt.run("apt-cache", "madison", "perftest", "libibverbs1").strip():
        shutil.rmtree(scratch)
        return None
    apt.run("apt-get", "-q", "-y", "--download-only", "install", *PACKAGES)
    for deb in sorted(glob.glob(os.path.join(apt.archives, "*.deb"))):
        output("dpkg-deb", "-x", deb, os.path.join(scratch, "root"))
    os.rename(os.path.join(scratch, "root"), root)
    shutil.rmtree(scratch)
    return root


# ---- imports ----

def symbols(path, defined):
    """Returns the {name@node} that a file defines, or imports."""
    text = subprocess.run(["nm", "-D", "--with-symbol-versions", "--defined-only" if defined
                           else "--undefined-only", path], stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, text=True, check=False).stdout
    return {line.split()[-1].replace("@@", "@") for line in text.splitlines() if "@" in line}


def importers(root):
    """Returns the files that need one of our libraries."""
    for pattern in ("usr/bin/*", "usr/lib/*-linux-gnu/*.so*", "usr/lib/*-linux-gnu/libibverbs/*.so",
                    "usr/lib/*-linux-gnu/rsocket/*.so"):
        for path in sorted(glob.glob(os.path.join(root, pattern))):
            if not os.path.islink(path) and os.path.isfile(path):
                yield path


def import_problems(root, lib):
    have = set().union(*(symbols(os.path.join(lib, name), True) for name in LIBRARIES))
    looked, problems = 0, []
    for path in importers(root):
        wanted = {name for name in symbols(path, False) if re.search(r"@(IBVERBS|RDMACM)_", name)}
        looked += bool(wanted)
        if wanted - have:
            problems.append(f"{os.path.relpath(path, root)} wants {sorted(wanted - have)}")
    return looked, problems


# ---- running them ----

# The C library has several files, which must be of one version.
C_LIBRARY = ["libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1",
             "libresolv.so.2", "libgcc_s.so.1"]


def linker(root):
    """The file itself: links to it may be absolute, and lead out of root."""
    triplet = platform.machine() + "-linux-gnu"
    for where in ("lib", "usr/lib"):
        for path in glob.glob(os.path.join(root, where, triplet, "ld-linux*")):
            if not os.path.islink(path):
                return path
    raise Missing(f"no dynamic linker in {root}")


def c_library(program):
    """Returns the version of the C library of a dynamic linker."""
    return [int(number)
            for number in re.search(r"version (\d+)\.(\d+)", output(program, "--version")).groups()]


class Program:
    """A program of the suite on our libraries."""

    def __init__(self, root, lib, port, name, *args):
        here = sorted(glob.glob("/usr/lib/*-linux-gnu") + glob.glob("/lib/*-linux-gnu"))
        # Our libraries need a few libraries of this machine that no package there needs; these come
        # last.
        folders = [lib] + sorted(glob.glob(os.path.join(root, "lib/*-linux-gnu"))
                                 + glob.glob(os.path.join(root, "usr/lib/*-linux-gnu"))) + here
        start = linker(root)
        if c_library(linker("/")) > c_library(start):
            start = linker("/")
            folders.insert(1, self.newer_c_library(root + ".libc", here))
        self.command = f"{name} {' '.join(args)}"
        self.process = subprocess.Popen([start, "--library-path", ":".join(folders),
                                         os.path.join(root, "usr/bin", name), *args],
                                        env=dict(os.environ, ROOST_PORT=port, LD_BIND_NOW="1"),
                                        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, text=True)
        self.text = ""

    @staticmethod
    def newer_c_library(folder, here):
        """A folder with this machine's C library and nothing else."""
        os.makedirs(folder, exist_ok=True)
        for name in C_LIBRARY:
            path = next((os.path.join(where, name) for where in here
                         if os.path.exists(os.path.join(where, name))), None)
            if path and not os.path.islink(os.path.join(folder, name)):
                os.symlink(path, os.path.join(folder, name))
        return folder

    def ended(self):
        return self.process.poll() is not None

    def end(self, until):
        """Returns the problem, or None."""
        try:
            self.text = self.process.communicate(timeout=max(1, until - time.monotonic()))[0]
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.text = self.process.communicate()[0]
            return f"{self.command}: does not end"
        return (f"{self.command}: exit status {self.process.returncode}" if self.process.returncode
                else None)


def alone(root, lib, wanted, *words):
    program = Program(root, lib, f"udp:127.{random.randrange(1, 255)}.1.2", *words)
    problem = program.end(time.monotonic() + RUN_LIMIT)
    if not problem and not re.search(wanted, program.text):
        problem = f"{program.command}: it does not say {wanted}"
    return problem, program.text


def pair(root, lib, kind, name, args, meet, wanted):
    """Server and client over a kind of port, which meet by TCP, or by rdma_cm, where the client
    asks until the server is there."""
    a, b, port = random.randrange(1, 255), random.randrange(1, 255), free_tcp_port()
    here, there = (f"127.{a}.{b}.{i}" for i in (2, 3))
    until = time.monotonic() + RUN_LIMIT
    if meet == "tcp":
        sides = [Program(root, lib, f"{kind}:{here}", name, *args, "-p", str(port))]
        while not listens(port) and not sides[0].ended() and time.monotonic() < until:
            time.sleep(0.05)
        sides.append(
            Program(root, lib, f"{kind}:{there}", name, *args, "-p", str(port), "127.0.0.1"))
        problem = sides[1].end(until)
    else:
        sides = [
            Program(root, lib, f"{kind}:{here}", name, "-s", "-a", here, "-p", str(port), *args)]
        problem = "no client ran"
        # Refused: the server does not listen yet.
        while problem and not sides[0].ended() and time.monotonic() < until:
            client = Program(root, lib, f"{kind}:{there}", name, "-c", "-a", here, "-p", str(port),
                             *args)
            problem = client.end(until)
            sides[1:] = [client]
            if not re.search("REJECTED", client.text):
                break
            time.sleep(0.1)
    if problem and not sides[0].ended():
        sides[0].process.kill()
    problem = sides[0].end(until) or problem
    if not problem and not re.search(wanted, sides[1].text):
        problem = f"{name}: no result line"
    return problem, "".join(f"--- {side.command}\n{side.text}" for side in sides)


def tests(root, lib):
    """Returns [(label, function: (problem or None, report))]."""
    found = [("ibv_devinfo", lambda: alone(root, lib, r"roost0[\s\S]*PORT_ACTIVE", "ibv_devinfo"))]
    result = r"(?m)^\s*\d+\s+\d+\s+[0-9.]+"
    for kind in ("udp", "shm"):
        for name in PERFTEST:
            found.append((f"{kind} {name}", lambda k=kind,
                          n=name: pair(root, lib, k, n, ["-F", "-n", "200"], "tcp", result)))
        found.append((f"{kind} rping",
                      lambda k=kind: pair(root, lib, k, "rping", ["-C", "10", "-V"], "cm", "")))
    return found


def try_suite(root, suite, lib):
    """Returns the number of failures."""
    looked, failed = import_problems(root, lib)
    print(
        f"{'FAILED' if failed or not looked else 'ok    '} {suite}: {looked} files import symbols "
        f"of ours", *failed, sep="\n  ", flush=True)
    count = bool(failed or not looked)
    for label, function in tests(root, lib):
        problem, report = run_again(function)
        print(f"{'FAILED' if problem else 'ok    '} {suite} {label}"
              + (f": {problem}\n{report}" if problem else ""), flush=True)
        count += bool(problem)
    return count


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lib", required=True, help="folder of our libraries")
    parser.add_argument("--folder", required=True, help="keeps the packages")
    parser.add_argument("suites", nargs="*", default=SUITES, metavar="SUITE",
                        help=f"of Debian; default: {' '.join(SUITES)}")
    options = parser.parse_args()
    lib, folder = os.path.abspath(options.lib), os.path.abspath(options.folder)
    os.makedirs(folder, exist_ok=True)
    failed = tried = 0
    try:
        uri = archive()
        for suite in options.suites:
            root = unpack(folder, uri, suite)
            if root:
                failed += try_suite(root, suite, lib)
                tried += 1
            else:
                print(f"{suite} has no perftest", flush=True)
        if not tried:
            raise Missing("none of the suites has perftest")
    except Missing as e:
        skip(f"binaries of other releases were not all tried: {e}", failed)
    print(f"{failed} failed in {tried} suites")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
