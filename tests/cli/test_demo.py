#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""`roost demo` over each port, also with a bad link; with odd sizes, a given file, and kept files.
It must leave nothing behind."""
import hashlib
import os
import tempfile

from cli import check, finish, last_json, run

CASES = [
    (['--port', 'udp', '--size', '1M'], 1 << 20),
    (['--port', 'shm', '--size', '4M'], 4 << 20),
    (['--port', 'udp,loss=0.01,seed=3', '--size', '2M'], 2 << 20),
    (['--port', 'shm,loss=0.01,dup=0.01,reorder=0.01,corrupt=0.01,seed=4', '--size', '1M'],
     1 << 20),
    (['--port', 'udp', '--size', '1'], 1),
    (['--port', 'shm', '--size', '1048577', '--seed', '9', '--no-pin'], (1 << 20) + 1),
]


def digest(path):
    with open(path, 'rb') as f:
        return hashlib.sha256(f.read()).hexdigest()


with tempfile.TemporaryDirectory() as d:
    env = {'TMPDIR': d}
    for args, size in CASES:
        r = run('demo', *args, '--json', env=env)
        j = last_json(r)
        check(f'demo {args}', r.returncode == 0 and j.get('equal') is True and j.get('size') == size
              and j['sent'] == j['received'] == j['returned']
              and [s['name'] for s in j['steps']] == ['write', 'read']
              and all(s['packets'] > 0 and s['seconds'] > 0 for s in j['steps']) and 'machine' in j,
              r)
        look = j.get('lookups', {})
        check('one round trip by kernel, two and more by READ',
              look and look['kernel']['round_trips'] == look['keys']
              and look['read']['round_trips'] > 2 * look['keys'], r)
        check('one round trip by a chain', look and look['chain']['round_trips'] == look['keys']
              and look['chain']['p50_us'] > 0, r)
        if 'loss' in args[1] and size >= 2 << 20:
            check('packets were sent again',
                  sum(s['retransmitted_pkts'] for s in j.get('steps', [])) > 0, r)
    check('nothing is left behind', os.listdir(d) == [], None)

    source = os.path.join(d, 'source')
    with open(source, 'wb') as f:
        f.write(os.urandom(123457))
    kept = os.path.join(d, 'kept')
    os.mkdir(kept)
    r = run('demo', '--port', 'shm', '--file', source, '--keep', kept, env=env)
    check('a file of ours', r.returncode == 0 and 'equal' in r.stdout and '123,457' in r.stdout, r)
    check('what was kept', digest(source) == digest(os.path.join(kept, 'received'))
          == digest(os.path.join(kept, 'returned')), r)

r = run('demo', '--port', 'shm', '--size', '64K')
check('text for people', r.returncode == 0 and 'RDMA WRITE' in r.stdout and 'RDMA READ' in r.stdout
      and 'Gbit/s' in r.stdout and 'byte by byte' in r.stdout
      and r.stdout.count(' 1.00 round trips each, median') == 2 and '  by a chain' in r.stdout
      and not r.stderr, r)
lines = [line for line in r.stdout.split('\n') if 'round trips each' in line]
check('three ways, in line',
      len(lines) == 3 and len({line.index(' round trips') for line in lines}) == 1, r)
finish()
