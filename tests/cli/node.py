# SPDX-License-Identifier: BSD-2-Clause
"""A running `roost node`, for tests of its clients. Import this module before a program starts: it
sets a folder of sockets of the test's own."""
import json
import os
import signal
import subprocess
import tempfile

import cli
from cli import LIMIT

folder = tempfile.TemporaryDirectory()
os.environ['ROOST_SHM_DIR'] = os.path.join(folder.name, 'nics')
os.mkdir(os.environ['ROOST_SHM_DIR'], 0o700)


def addresses(kind):
    """Returns the addresses of a node and of its caller. On udp they are loopback addresses of this
    process; on shm any will do, since the folder is our own."""
    high, low = os.getpid() >> 8 & 0xff, os.getpid() & 0xff
    net = f'127.{(high % 250) + 2}.{low}' if kind != 'shm' else '10.0.0'
    return f'{net}.1', f'{net}.2'


class Node:
    """A node that is ready. .hello is the object that it printed with --json. `before`: the words
    of a command that starts the node."""

    def __init__(self, spec, *args, before=()):
        self.process = subprocess.Popen([*before, cli.ROOST, 'node', '--port', spec, '--json',
                                         *args],
                                        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        self.hello = json.loads(line) if line.startswith('{') else {}
        self.pid = self.process.pid

    def path(self):
        return os.path.join(os.environ['ROOST_SHM_DIR'], f'node.{self.pid}')

    def end(self, how=signal.SIGTERM):
        """Ends the node. Returns (exit status, stderr)."""
        self.process.send_signal(how)
        try:
            return self.process.wait(LIMIT), self.process.stderr.read()
        except subprocess.TimeoutExpired:
            self.process.kill()
            return None, 'still running'
