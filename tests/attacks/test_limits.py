#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""`roost` with limits of memory and descriptors, and with a folder of sockets that belongs to
another user. Each command works, or fails with one line; none hangs."""
import os
import resource
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'cli'))
# pylint: disable=wrong-import-position
from cli import LIMIT, ROOST, check, finish, one_line_error, run
import node  # pylint: disable=wrong-import-position


def limited(what, most, *args):
    """Runs `roost` with a limited resource. Returns its output and status."""
    def limit():
        resource.setrlimit(what, (most, most))
    return subprocess.run([ROOST, *args], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, timeout=LIMIT, preexec_fn=limit,
                          check=False)


def memory():
    """Smaller and smaller limits: at 20 MB, shm once hung."""
    worked = 0
    for kib in (8000, 12000, 14000, 15500, 16000, 18000, 20000, 24000, 64000):
        r = limited(resource.RLIMIT_AS, kib * 1024, 'perf', 'write', '--check', '--port', 'shm',
                    '--iters', '1')
        if r.returncode == 0:
            worked += 1
        else:
            lines = [line for line in r.stderr.splitlines() if not line.startswith('roost: ')]
            check(f'{kib} KiB of addresses: one line',
                  len(lines) == 1 and lines[0].startswith('roost perf: '), r)
    check('with enough of them it works', worked >= 2)


def folder():
    """A folder that other users may write to is refused; a node on udp needs no folder."""
    with tempfile.TemporaryDirectory() as top:
        os.chmod(top, 0o777)
        os.environ['ROOST_SHM_DIR'] = top
        one_line_error('shm needs the folder', run('node', '--port', 'shm'), 1, 'private folder')
        where = node.addresses('udp')
        n = node.Node(f'udp:{where[0]}', '--fill', '10', '--memory', '1M')
        r = run('call', '--port', f'udp:{where[1]}', where[0], 'get', '7')
        check('a node without the folder serves calls',
              r.returncode == 0 and 'value of 7' in r.stdout, r)
        status, said = n.end()
        check('and says what does not work',
              status == 0 and 'no control socket' in said and 'private folder' in said)


memory()
folder()
finish()
