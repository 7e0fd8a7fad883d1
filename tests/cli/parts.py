# SPDX-License-Identifier: BSD-2-Clause
"""Clients of a table of partitions (tests/kvclient/kv-parts), and waiting for a condition."""
import os
import subprocess
import sys
import time

from cli import LIMIT, check

CLIENT = os.path.join(os.path.abspath(sys.argv[2]), 'tests', 'kvclient', 'kv-parts')


def until(what, ready):
    """Waits until ready() is true. False, and a failed check, after LIMIT."""
    end = time.monotonic() + LIMIT
    while not ready():
        if time.monotonic() > end:
            check(what, False)
            return False
        time.sleep(0.01)
    return True


class Client:
    number = 0

    def __init__(self, table, *args):
        Client.number += 1
        env = dict(os.environ, ROOST_PORT=f'shm:10.0.1.{Client.number}')
        self.process = subprocess.Popen([CLIENT, table, *args], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                        env=env)

    def ask(self, line):
        self.process.stdin.write(f'{line}\n')
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def end(self):
        try:
            out, err = self.process.communicate(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            self.process.kill()
            out, err = self.process.communicate()
        return self.process.returncode, out, err
