#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""The example of a hull: its program is killed 100 times while a client reads, over each kind
of port.

Arguments: ROOST BUILD-FOLDER.
"""
import os
import signal
import subprocess
import sys
import time

from cli import LIMIT, check, finish
from node import addresses

LIVES = 101
PROGRAM = os.path.join(sys.argv[2], 'examples', 'example-hull')


def start(port, *args):
    return subprocess.Popen([PROGRAM, *args], env=dict(os.environ, ROOST_PORT=port),
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True)


def alive(pid):
    """A process that waits for its parent to notice its death does not live."""
    try:
        with open(f'/proc/{pid}/stat', encoding='ascii') as f:
            return f.read().rsplit(')', 1)[1].split()[0] != 'Z'
    except (FileNotFoundError, ProcessLookupError):
        return False


def kill_programs(server):
    """Kills each life of the program but the last, whose process id is returned; None if the server
    ended."""
    pid = None
    for life in range(LIVES):
        line = server.stdout.readline()
        if not line.startswith('the program is process '):
            return None
        pid = int(line.split()[-1])
        if life < LIVES - 1:
            os.kill(pid, signal.SIGKILL)
    return pid


def try_port(kind):
    where = addresses(kind)
    server = start(f'{kind}:{where[0]}')
    client = None
    try:
        check(f'{kind}: the hull listens', server.stdout.readline() == 'waiting for a client\n')
        client = start(f'{kind}:{where[1]}', where[0], str(LIVES))
        pid = kill_programs(server)
        check(f'{kind}: the program was started {LIVES} times', pid is not None)
        out, err = client.communicate(timeout=LIMIT)
        check(f'{kind}: every READ succeeded', client.returncode == 0
              and out == f'{LIVES} lives, every READ succeeded\n',
              subprocess.CompletedProcess(client.args, client.returncode, out, err))
        server.kill()
        server.wait(LIMIT)
        until = time.monotonic() + LIMIT
        while pid and alive(pid) and time.monotonic() < until:
            time.sleep(0.01)
        check(f'{kind}: the program ends with its hull', pid and not alive(pid))
    finally:
        for process in (server, client):
            if process and process.poll() is None:
                process.kill()
                process.wait(LIMIT)


for port_kind in ('host', 'udp', 'shm'):
    try_port(port_kind)
finish()
