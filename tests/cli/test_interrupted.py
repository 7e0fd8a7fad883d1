#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""The scripts of examples that start programs leave no process and no file when a signal ends them.

Arguments: ROOST EXAMPLES. The exit status is 77 if perftest is not installed; with
ROOST_INTEROP=required in the environment it is then 1.
"""
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from cli import LIMIT, ROOST, check, finish, own_network, skip
from node import addresses

EXAMPLES = os.path.abspath(sys.argv[2])
MARK = 'ROOST_TEST_INTERRUPTED'


def left(mark):
    """Returns {process id: name} of the processes that run with the mark in their environment."""
    found = {}
    for pid in filter(str.isdigit, os.listdir('/proc')):
        try:
            with open(f'/proc/{pid}/environ', 'rb') as f:
                if f'{MARK}={mark}'.encode() not in f.read().split(b'\0'):
                    continue
            with open(f'/proc/{pid}/comm', encoding='ascii', errors='replace') as f:
                found[int(pid)] = f.read().strip()
        except OSError:
            pass  # it has ended
    return found


def until(ready):
    end = time.monotonic() + LIMIT
    while not ready() and time.monotonic() < end:
        time.sleep(0.02)
    return ready()


def interrupt(script, number, names, **env):
    """Sends a signal to the script when programs of these names run."""
    mark = f'{os.getpid()}-{script}-{number.name}'
    with tempfile.TemporaryDirectory() as scratch:
        words = [os.path.join(EXAMPLES, script)]
        if 'ROOST' not in env:
            words.append(os.path.abspath(ROOST))
        with subprocess.Popen(words, cwd=scratch, stdin=subprocess.DEVNULL,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                              env={**os.environ, 'TMPDIR': scratch, MARK: mark, **env}) as p:
            try:
                check(f'{script} starts {names}',
                      until(lambda: p.poll() is not None or set(names) <= set(left(mark).values()))
                      and p.poll() is None)
                p.send_signal(number)
                status = p.wait(LIMIT)
                check(f'{script}: {number.name} ends it: {status}',
                      status in (128 + number, -number))
                check(f'{script}: {number.name} leaves no process: {left(mark)}',
                      until(lambda: not left(mark)))
            finally:
                for pid in left(mark):
                    os.kill(pid, signal.SIGKILL)
        kept = [name for name in os.listdir(scratch) if name != 'artifacts']
        check(f'{script}: {number.name} leaves no file: {kept}', not kept)


own_network()
if not shutil.which('ib_write_bw'):
    skip('no perftest: scripts/setup demo installs it')
server, client = addresses('udp')
for how in (signal.SIGTERM, signal.SIGINT):
    interrupt('kv.sh', how, ['roost'])
    interrupt('perftest.sh', how, ['ib_write_bw'])
    interrupt('ci/ci.sh', how, ['sleep', 'cat'], ROOST=os.path.abspath(ROOST), SERVER='sleep 1000',
              CLIENT='cat /dev/zero', ADDRESS=server, CLIENT_ADDRESS=client)
finish()
