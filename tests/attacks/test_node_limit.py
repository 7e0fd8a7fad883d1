#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""One peer makes connections up to a node's limit of memory. Then it is refused with a reason, the
node prints one line for its operator, and the memory is free again when the peer ends."""
import ctypes
import errno
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'cli'))
# pylint: disable=wrong-import-position
from cli import LIMIT, ROOST, check, finish, last_json, one_line_error, run

MANY = 200
LIBRARIES = os.path.join(os.path.dirname(os.path.abspath(ROOST)), 'lib')


def greedy(address):
    """Prints the number of its connections and the reason of the refusal, and closes them when it
    reads a line."""
    lib = ctypes.CDLL(os.path.join(LIBRARIES, 'librdmacm.so.1'))
    made, rc = [], 0
    while rc == 0 and len(made) < MANY:
        p = ctypes.c_void_p()
        rc = lib.roost_node_connect(address.encode(), 4792, 10000, ctypes.byref(p))
        if rc == 0:
            made.append(p)
    print(json.dumps({'made': len(made), 'rc': rc}), flush=True)
    sys.stdin.readline()
    for p in made:
        lib.roost_node_close(p)


def for_libraries():
    """Returns variables for Python with Roost's libraries. If they are sanitized, the sanitizer
    must be loaded first, and Python itself leaks."""
    ldd = subprocess.run(['ldd', os.path.join(LIBRARIES, 'librdmacm.so.1')], stdout=subprocess.PIPE,
                         text=True, check=True).stdout
    asan = [line.split()[2] for line in ldd.splitlines() if 'libasan' in line]
    options = os.environ.get('ASAN_OPTIONS', '') + ':detect_leaks=0'
    return dict(LD_PRELOAD=asan[0], ASAN_OPTIONS=options) if asan else {}


def usage(n):
    """Returns the counters that `roost stat` prints for the node."""
    nics = last_json(run('stat', '--json', str(n.pid))).get('nics', [])
    return nics[0].get('usage', {}) if nics else {}


def limit():
    """A limit of 1 MiB allows some connections."""
    here, there = node.addresses('shm')
    n = node.Node(f'shm:{here}', '--fill', '10', '--memory', '1M', '--limit', '1M')
    before = usage(n)
    with subprocess.Popen(
            [sys.executable, os.path.abspath(__file__), os.path.abspath(ROOST), 'greedy', here],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env=dict(os.environ, ROOST_PORT=f'shm:{there}', LD_LIBRARY_PATH=LIBRARIES,
                     **for_libraries())) as p:
        said = json.loads(p.stdout.readline() or '{}')
        check(f'some connections, then none: {said}',
              2 < said.get('made', 0) < MANY and said.get('rc') == errno.ENOMEM)
        u = usage(n)
        check(f'what they take is below the limit: {u}',
              before.get('memory', 0) < u.get('memory', 0) <= u.get('memory_limit', 0) == 1 << 20
              and u.get('memory_refused', 0) > 0)
        check('the table says so', ' of 1 MiB for connections' in run('stat', str(n.pid)).stdout,
              run('stat', str(n.pid)))
        other = ('call', '--port', 'shm:10.0.0.3', here, 'get', '7')
        one_line_error('another peer hears why', run(*other), 1,
                       'the node has no memory for another connection')
        p.stdin.write('\n')
        p.stdin.flush()
        p.wait(LIMIT)
    r = run(*other)
    check('and is served when the first has gone', r.returncode == 0 and 'value of 7' in r.stdout,
          r)
    check(f'nothing of them is left: {usage(n)}', usage(n).get('memory') == before.get('memory'))
    status, text = n.end()
    lines = [line for line in text.splitlines() if 'refused' in line]
    check(f'one line for the operator: {text}',
          status == 0 and len(lines) == 1 and '--limit' in lines[0])


def default():
    """There is a limit without the option, too."""
    here, _ = node.addresses('shm')
    n = node.Node(f'shm:{here}', '--memory', '1M')
    u = usage(n)
    check(f'a part of the memory there is: {u}', 64 << 20 <= u.get('memory_limit', 0)
          <= max(64 << 20, os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') // 4))
    n.end()


if sys.argv[2:3] == ['greedy']:
    greedy(sys.argv[3])
    sys.exit(0)
import node  # pylint: disable=wrong-import-position
limit()
default()
finish()
