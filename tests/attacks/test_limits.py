#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""`roost` with limits of memory and descriptors, and with a folder of sockets that belongs to
another user or that other users may write to. Each command works, or fails with one line; none
hangs."""
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'cli'))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'common'))
# pylint: disable=wrong-import-position
from cli import LIMIT, ROOST, check, finish, last_json, one_line_error
from parts import until
from skip import required
from stop import stop
import node  # pylint: disable=wrong-import-position

NOBODY = 65534
CALLERS = 12
# Puts a folder in the place of the default one, for the command that follows.
IN_THE_DEFAULT_PLACE = ['unshare', '--mount', 'sh', '-c',
                        'mkdir -p -m 0700 /tmp/roost-$(id -u) && '
                        'mount --bind "$0" /tmp/roost-$(id -u) && exec "$@"']


def start(*args, before=(), **more):
    return subprocess.Popen([*before, ROOST, *args], stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)


def end_of(process):
    """Waits for the end of a command. The result has returncode, stdout, stderr."""
    try:
        out, err = process.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return subprocess.CompletedProcess(process.args, -1, '', f'still running after {LIMIT} s')
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def limited(what, most, *args):
    """Runs `roost` with a limited resource."""
    return end_of(start(*args, preexec_fn=lambda: resource.setrlimit(what, (most, most))))


def memory():
    """Limits in small steps: at 20 MB, shm once hung. With some there is no memory for the stack of
    a thread (EAGAIN), and with others for smaller objects."""
    worked = 0
    for kib in (*range(7000, 20000, 250), 20000, 24000, 64000):
        r = limited(resource.RLIMIT_AS, kib * 1024, 'perf', 'write', '--check', '--port', 'shm',
                    '--iters', '1')
        if r.returncode == 0:
            worked += 1
        else:
            lines = [line for line in r.stderr.splitlines() if not line.startswith('roost: ')]
            check(f'{kib} KiB of addresses: one line that names the memory',
                  len(lines) == 1 and lines[0].startswith('roost perf: ')
                  and 'memory' in lines[0], r)
    check('with enough of them it works', worked >= 2)


def asking(callers):
    """Returns how many callers have sent a connection request, or have ended."""
    waiting = [str(p.pid) for p in callers if p.poll() is None]
    if not waiting:
        return len(callers)
    # A program that has no counters yet is no error here.
    nics = last_json(end_of(start('stat', '--json', *waiting))).get('nics', [])
    return len(callers) - len(waiting) + sum(nic['cm']['sent_req'] > 0 for nic in nics
                                             if 'cm' in nic)


def descriptors():
    """Callers that come at once, to a node that has descriptors for few of them. Each one is served
    or has an error, and when they have ended the node serves again. It once served none of them."""
    here, _ = node.addresses('shm')
    n = node.Node(f'shm:{here}', '--fill', '10', '--memory', '1M',
                  before=['prlimit', '--nofile=32'])

    def call(i):
        return start('call', '--timeout', '60', '--port', f'shm:10.0.0.{i + 2}', here, 'get', '7')
    stop(n.pid)  # so that all of them come at once, also on a slow machine
    callers = [call(i) for i in range(CALLERS)]
    until('the callers have sent their requests', lambda: asking(callers) == CALLERS)
    os.kill(n.pid, signal.SIGCONT)
    ended = [end_of(p) for p in callers]
    served = [r for r in ended if r.returncode == 0]
    for r in ended:
        check('a caller is served, or has an error',
              r.returncode == 0 or len(r.stderr.splitlines()) == 1, r)
    check(f'some of the callers are served: {len(served)}', served)
    r = end_of(call(CALLERS))
    check('the node serves again', r.returncode == 0 and 'value of 7' in r.stdout, r)
    status, said = n.end()
    check(f'the node ends: {said}', status == 0)


def refused(what, before=()):
    """A folder that is not private is refused by shm; a node on udp works without it."""
    where = node.addresses('udp')
    one_line_error(f'{what}: shm needs the folder',
                   end_of(start('node', '--port', 'shm', before=before)), 1, 'private folder')
    n = node.Node(f'udp:{where[0]}', '--fill', '10', '--memory', '1M', before=before)
    r = end_of(start('call', '--port', f'udp:{where[1]}', where[0], 'get', '7', before=before))
    check(f'{what}: a node without the folder serves calls',
          r.returncode == 0 and 'value of 7' in r.stdout, r)
    status, said = n.end()
    check(f'{what}: and says what does not work: {said}',
          status == 0 and 'no control socket' in said and 'private folder' in said)


def folders():
    """Folders that other users may write to, and folders of another user."""
    with tempfile.TemporaryDirectory() as top:
        os.environ['ROOST_SHM_DIR'] = top
        os.chmod(top, 0o777)
        refused('a folder for all')
        if os.geteuid() != 0 or not shutil.which('unshare'):
            print('SKIPPED: folders of another user: not root, or no program unshare')
            check('folders of another user are made', not required())
            return
        os.chmod(top, 0o700)
        os.chown(top, NOBODY, NOBODY)
        refused('a folder of another user')
        for name in ('ROOST_SHM_DIR', 'XDG_RUNTIME_DIR'):
            os.environ.pop(name, None)
        refused('the default folder', before=[*IN_THE_DEFAULT_PLACE, top])


os.environ.pop('ROOST_PORT', None)
memory()
descriptors()
folders()
finish()
