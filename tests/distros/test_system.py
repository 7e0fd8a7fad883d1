#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""A command in a system of system.py that a signal ends leaves no process and no copy of the
system. The system of this test has the programs of this machine.

usage: test_system.py

Needs root and mmdebstrap. The exit status is 77 without; with ROOST_INTEROP=required in the
environment it is then 1.
"""
import os
import signal
import subprocess
import sys
import tempfile
import time

import system
from skip import skip

LIMIT = 60  # seconds; only a failure takes so long
SECONDS = str(100000 + os.getpid())  # of a sleep that is only ours


def sleeps():
    """Returns the process ids of our sleep, in any namespace."""
    found = []
    for pid in filter(str.isdigit, os.listdir('/proc')):
        try:
            with open(f'/proc/{pid}/cmdline', 'rb') as f:
                if f.read().split(b'\0')[:2] == [b'sleep', SECONDS.encode()]:
                    found.append(int(pid))
        except OSError:
            pass  # it has ended
    return found


def until(ready):
    end = time.monotonic() + LIMIT
    while not ready() and time.monotonic() < end:
        time.sleep(0.02)
    return ready()


def interrupt(number):
    """Returns the problem, or None."""
    with tempfile.TemporaryDirectory() as folder:
        root = os.path.join(folder, 'suite')
        for name in ('etc', 'proc', 'sys', 'dev', 'var/cache/apt/archives'):
            os.makedirs(os.path.join(root, name))
        open(os.path.join(root, system.MARK), 'w', encoding='ascii').close()
        binds = [word for name in ('/bin', '/lib', '/lib64', '/usr') if os.path.exists(name)
                 for word in ('--bind', f'{name}:{name}')]
        with subprocess.Popen([sys.executable, system.__file__, 'suite', folder, *binds, '--',
                               'sleep', SECONDS], stdin=subprocess.DEVNULL) as p:
            if not until(lambda: sleeps() or p.poll() is not None) or p.poll() is not None:
                p.kill()
                return 'the command does not start'
            p.send_signal(number)
            try:
                p.wait(LIMIT)
            except subprocess.TimeoutExpired:
                p.kill()
                return 'the signal does not end it'
        gone, names = until(lambda: not sleeps()), os.listdir(folder)
        for pid in sleeps():
            os.kill(pid, signal.SIGKILL)
        copies = [name for name in names if '.copy-' in name] if number != signal.SIGKILL else []
        return None if gone and not copies else f'left: {copies}, the command runs: {not gone}'


try:
    system.check_rights()
except system.Missing as e:
    skip(f'systems: {e}')
failed = 0
for how in (signal.SIGTERM, signal.SIGINT, signal.SIGKILL):
    problem = interrupt(how)
    print(f"{'FAILED' if problem else 'ok    '} {how.name}" + (f': {problem}' if problem else ''))
    failed += bool(problem)
sys.exit(1 if failed else 0)
