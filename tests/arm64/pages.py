#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Runs unit tests of this machine in processes that see pages of 16 or 64 KiB, which arm64 kernels
may have; Debian has no kernel with 64 KiB. pages.c says what is different.

usage: pages.py BUILD LIBRARY KIB [TEXT]     KIB: size of a page in the library
                                             TEXT: tests whose name matches it; default: TESTS
"""
import json
import os
import re
import subprocess
import sys
import tempfile
import time

import run
from own_network import own_network

# The tests of what maps, protects or counts pages, by the size of a page in KiB. builtin-kv-far has
# as many pages of any size, and takes more than a minute with 64 KiB.
TESTS = {
    16: r"^(kv-(far|slab|snapshot)|kv-model-far-ring|builtin-kv-far)$",
    64: (r"^(base-(arena|machine|mem)|shm|shm_(hostile|limits|peers|ring)|port-host|"
         r"pool-(pool|view)|nic-(dma|unmapped)|kv-(access|far|functions|slab|snapshot)|"
         r"kv-model-far-ring|kernels-guard|verbs-(device|qp|killed-2pu-host))$"),
}


def page_size(build, library):
    """Returns the size of a page as Roost sees it there."""
    done = subprocess.run([os.path.join(build, "roost"), "doctor", "--json"],
                          env=dict(os.environ, LD_PRELOAD=library), stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, text=True, check=False)
    return json.loads(done.stdout)["machine"]["page_size"]


def ends_well(test, library):
    """Runs a test, and prints how it ended."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="roost-pages-") as scratch:
        env = dict(os.environ, TMPDIR=scratch, **test.env)
        # env starts the test: the programs before it keep their pages.
        command = [*own_network(), "env", f"LD_PRELOAD={library}", *test.command]
        try:
            done = subprocess.run(command, env=env, cwd=scratch, stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                  errors="replace", timeout=run.LIMIT, check=False)
            status, text = done.returncode, done.stdout
        except subprocess.TimeoutExpired as late:
            status, text = "does not end", (late.stdout or b"").decode(errors="replace")
    good = status in (0, 77)
    print(f"{'ok    ' if good else 'FAILED'} {test.name:32} {time.monotonic() - start:6.1f} s",
          flush=True)
    if not good:
        print(f"exit status {status}\n{text[-4000:]}", flush=True)
    return good


def main():
    if len(sys.argv) not in (4, 5) or not sys.argv[3].isdigit() or int(sys.argv[3]) not in TESTS:
        sys.exit(__doc__)
    build, library = (os.path.abspath(path) for path in sys.argv[1:3])
    kib = int(sys.argv[3])
    wanted = sys.argv[4] if len(sys.argv) == 5 else TESTS[kib]
    if page_size(build, library) != kib << 10:
        sys.exit(f"FAILED: the pages do not have {kib} KiB")
    tests = [test for test in run.unit_tests(build) if re.search(wanted, test.name)]
    failed = [test.name for test in tests if not ends_well(test, library)]
    print(f"{len(tests) - len(failed)} passed, {len(failed)} failed with pages of {kib} KiB: "
          f"{' '.join(failed)}")
    sys.exit(1 if failed or not tests else 0)


if __name__ == "__main__":
    main()
