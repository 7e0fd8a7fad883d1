#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Many clients of one store, up to the limit of memory of the node: all operations are answered,
a client takes no more memory of the node than docs/kv-wire.md says, and one client more is refused
with one line. Arguments: ROOST BUILD CLIENTS, of all processes together."""
import json
import os
import subprocess
import sys

from cli import LIMIT, ROOST, check, finish, last_json, one_line_error, run
from node import Node, addresses

MANY = os.path.join(sys.argv[2], 'tests', 'kvclient', 'kv-many')
CLIENTS = int(sys.argv[3])
PROCESSES = 2
CALLS = 16
ROUNDS = 3
# of docs/kv-wire.md: bytes of a connection, and of each further call in flight
CONNECTION, CALL = 80 << 10, 21 << 10
MOST = CONNECTION + (CALLS - 1) * CALL


def usage(node):
    """Returns the counters that `roost stat` prints for the node."""
    nics = last_json(run('stat', '--json', str(node.pid))).get('nics', [])
    return nics[0].get('usage', {}) if nics else {}


def resident(pid):
    """Returns the memory of a process, in bytes."""
    with open(f'/proc/{pid}/status', encoding='ascii') as f:
        return next(int(line.split()[1]) << 10 for line in f if line.startswith('VmRSS'))


def sanitized():
    """Returns whether the node has further memory, which a sanitizer needs."""
    ldd = subprocess.run(['ldd', ROOST], stdout=subprocess.PIPE, text=True, check=True).stdout
    return 'libasan' in ldd or 'libtsan' in ldd


def start(kind, where, clients, name):
    at, dot, last = where[1].rpartition('.')
    return subprocess.Popen([MANY, where[0], str(clients), str(CALLS), str(ROUNDS), name],
                            env=dict(os.environ, ROOST_PORT=f'{kind}:{at}{dot}{int(last) + 1}'
                                     if name == '1' else f'{kind}:{where[1]}'),
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def many(kind):
    """Clients of several processes, all with calls in flight."""
    where = addresses(kind)
    node = Node(f'{kind}:{where[0]}', '--kv', '64M', '--limit', str(CLIENTS * MOST + (64 << 20)))
    before, first = usage(node).get('memory', 0), resident(node.pid)
    processes = [start(kind, where, CLIENTS // PROCESSES, str(i)) for i in range(PROCESSES)]
    said = [json.loads(p.stdout.readline() or '{}') for p in processes]
    for s in said:
        check(f'{kind}: all clients connect, and all operations are answered: {s}',
              s.get('clients') == CLIENTS // PROCESSES and s['error'] == 0 and
              s['answered'] == s['clients'] * CALLS * (1 + ROUNDS))
    u = usage(node)
    each = (u.get('memory', 0) - before) / CLIENTS
    check(f'{kind}: a client takes what kv-wire.md says, or less if fewer calls met: {each}',
          CONNECTION / 2 < each <= MOST)
    takes = (resident(node.pid) - first) / CLIENTS
    check(f'{kind}: the node has no more memory for a client than it counts: {takes}',
          takes <= MOST or sanitized())
    print(f'{kind}: {CLIENTS} clients with {CALLS} calls in flight: the node counts {each:.0f} '
          f'bytes for each (at most {MOST}), its resident memory grew by '
          f'{takes:.0f}, and that of the client is '
          f'{sum(resident(p.pid) for p in processes) / CLIENTS:.0f}')
    for p in processes:
        p.communicate(timeout=LIMIT)
        check(f'{kind}: the clients end well', p.returncode == 0)
    status, text = node.end()
    check(f'{kind}: the node ends well, and printed nothing: {text}', status == 0 and not text)


def one_too_many():
    """A node whose limit allows few clients."""
    where = addresses('shm')
    limit = 8 << 20
    node = Node(f'shm:{where[0]}', '--kv', '16M', '--limit', str(limit))
    with start('shm', where, 2 * limit // CONNECTION, '0') as p:
        s = json.loads(p.stdout.readline() or '{}')
        check(f'some clients, all answered, and then none: {s}',
              s.get('clients', 0) >= (limit - (1 << 20)) // MOST and s['error'] > 0 and
              s['answered'] == s['clients'] * CALLS * (1 + ROUNDS))
        one_line_error('the one too many', run('kv', '--port', 'shm:10.0.0.9', 'get', where[0],
                                               'key'), 1, 'no memory for another connection')
        p.communicate(timeout=LIMIT)
    r = run('kv', '--port', 'shm:10.0.0.9', 'get', where[0], '0-0-0')
    check('it is served when the others have gone', r.returncode == 0 and '0 of 0' in r.stdout, r)
    status, text = node.end()
    check(f'one line for the operator: {text}',
          status == 0 and len(text.splitlines()) == 1 and '--limit' in text)


one_too_many()
for port in 'shm', 'udp':
    many(port)
finish()
