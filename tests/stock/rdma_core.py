#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Runs rdma-core's own tests of the verbs and of librdmacm, through pyverbs, on our drop-in
libraries.

usage: rdma_core.py --roost PROGRAM --port host|udp|shm --folder DIR [--only TEXT]

Debian's package python3-pyverbs has them beside its documentation. It is downloaded to DIR and
unpacked there, and not installed. Tests of vendors' extensions and those in EXCEPT are omitted. The
exit status is 0 if none failed and enough of them ran, and 77 if the package is not available; with
ROOST_INTEROP=required in the environment it is then 1.
"""
import argparse
import glob
import gzip
import os
import platform
import random
import re
import shutil
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "common"))
from skip import skip

PACKAGE = "python3-pyverbs"
PYTHON = "/usr/bin/python3"  # the distribution's: the package has modules for it
LIMIT = 300  # seconds
OTHERS = re.compile(r"mlx5|efa|cuda")  # vendors' own
DRIVER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "rdma_core_driver.py")
LEAST = 90  # tests that run; more are skipped, because they need features that the device lacks
EXCEPT = {
    # It posts seven SENDs and resizes the CQ in the next call, without a poll, and expects their
    # completions there. Over udp these are missing, since only the service thread drives the NIC
    # between the two calls.
    "test_cq.CQTest.test_resize_cq": "wants completions to be there when the sends are posted",
    # It sends its keys to the peer before it registers the memory again, and not afterwards. Our
    # keys change: by ibv_rereg_mr(3) the call "conceptually" deregisters the region and registers
    # another one, and peers do not keep the old rights.
    "test_mr.MRTest.test_mr_rereg_access":
    "uses the keys of before the registration that it changes",
    "test_mr.MRTest.test_mr_rereg_atomic": "the same",
}
RESULT = re.compile(r"^Ran (\d+) tests? in .*\n\n(OK|FAILED)(?: \((.*)\))?$", re.M)


class Missing(Exception):
    """The tests are not available here."""


def output(*command, cwd):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          cwd=cwd, check=False)
    if done.returncode:
        raise Missing(f"{' '.join(command)}: {done.stdout.strip()}")
    return done.stdout


def unpack(folder):
    """Returns the folders of its modules, of its tests, and of the library of Python that modules
    of Debian 13 need. Downloads the package once."""
    tree = os.path.join(folder, PACKAGE)
    tests = os.path.join(tree, "tests")
    if not os.path.exists(tests):
        scratch = os.path.join(folder, "unpacking")
        shutil.rmtree(scratch, ignore_errors=True)
        os.makedirs(scratch)
        output("apt-get", "-q", "download", PACKAGE, cwd=scratch)
        wanted = output("dpkg-deb", "-f", *glob.glob("*.deb", root_dir=scratch), "Depends",
                        cwd=scratch)
        libraries = re.findall(r"libpython3\.\d+\S*", wanted)
        if libraries:
            output("apt-get", "-q", "download", *libraries, cwd=scratch)
        for deb in glob.glob("*.deb", root_dir=scratch):
            output("dpkg-deb", "-x", deb, ".", cwd=scratch)
        take_tests(os.path.join(scratch, "usr/share/doc/rdma-core/tests"),
                   os.path.join(scratch, "tests"))
        os.rename(scratch, tree)
    return os.path.join(tree, "usr/lib/python3/dist-packages"), tests, os.path.join(
        tree, "usr/lib", f"{platform.machine()}-linux-gnu")


def take_tests(source, to):
    """Returns the tests that must pass, uncompressed."""
    os.makedirs(to)
    for name in os.listdir(source):
        if name.startswith("test_") and OTHERS.search(name):
            continue
        read = gzip.open if name.endswith(".gz") else open
        with read(os.path.join(source, name),
                  "rb") as packed, open(os.path.join(to, name.removesuffix(".gz")), "wb") as plain:
            shutil.copyfileobj(packed, plain)


def run(options, modules, tests, library):
    """Returns (the number of tests that ran and were not skipped, the problems)."""
    net = f"127.{random.randrange(1, 64)}.{random.randrange(256)}"
    command = [options.roost, "run", "--port", options.port, "--", PYTHON, DRIVER, "--dev",
               "roost0", "--port", "1", "--gid", "0", "-v",
               *([options.only] if options.only else [])]
    env = dict(os.environ, PYTHONPATH=modules, LD_LIBRARY_PATH=library, PYTHONDONTWRITEBYTECODE="1",
               ADDRESSES=f"{net}.2 {net}.3", EXCEPT=" ".join(EXCEPT))
    env.pop("ROOST_PORT", None)
    try:
        done = subprocess.run(command, cwd=tests, env=env, text=True, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=LIMIT,
                              check=False)
    except subprocess.TimeoutExpired as late:
        return 0, f"still running after {LIMIT} s\n{(late.stdout or b'').decode(errors='replace')}"
    found = RESULT.search(done.stdout)
    if done.returncode or not found or found[2] != "OK":
        return 0, f"exit status {done.returncode}\n{done.stdout}"
    skipped = re.search(r"skipped=(\d+)", found[3] or "")
    return int(found[1]) - (int(skipped[1]) if skipped else 0), None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--roost", required=True, help="the roost command")
    parser.add_argument("--port", required=True, choices=["host", "udp", "shm"])
    parser.add_argument("--folder", required=True, help="where the package is unpacked")
    parser.add_argument("--only", default="", metavar="TEXT",
                        help="a module or a test, as in tests.test_cq")
    options = parser.parse_args()
    options.roost = os.path.abspath(options.roost)
    start = time.monotonic()
    try:
        found = unpack(os.path.abspath(options.folder))
    except Missing as why:
        skip(f"no tests of pyverbs were run: {why}")
    ran, problem = run(options, *found)
    if not problem and not options.only and ran < LEAST:
        problem = f"only {ran} tests were not skipped, {LEAST} should be"
    print(problem or f"{ran} tests passed over {options.port}, {time.monotonic() - start:.1f} s")
    sys.exit(1 if problem else 0)


main()
