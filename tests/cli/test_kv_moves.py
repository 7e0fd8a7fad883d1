#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Partitions that move between two nodes, under the load of several clients."""
import os
import tempfile

from cli import check, finish, one_line_error, run
from parts import Client, until
from table import PARTITIONS, ended, kv, node, other, replace, serves, stat, where

CLIENTS = 3
FLIPS = 6


def flips(folder):
    """Partitions change their owner again and again under load. No pair is refused for good, none
    is stored twice."""
    table = os.path.join(folder, 'flips')
    run('kv', 'table', table, str(PARTITIONS), where[0], other)
    nodes = node(where[0], table), node(other, table)
    clients = [Client(table, 'load', f'c{i}') for i in range(CLIENTS)]
    owners = ['0-7', '8-15']
    for version in range(2, 2 + FLIPS):
        before = stat('--partitions', table, 'stat').get('pairs', 0)
        if not until('the load goes on',
                     lambda: stat('--partitions', table, 'stat').get('pairs', 0) > before + 100 or
                     ended(clients)):
            break
        owners.reverse()
        replace(table, version, dict(zip((where[0], other), owners)))
        if not serves(where[0], version) or not serves(other, version):
            break
    for c in clients:
        c.process.stdin.close()
        c.process.stdin = None
    ends = [c.end() for c in clients]
    check(f'clients end well: {ends}', all(e[0] == 0 for e in ends))
    done = sum(int(e[1] or 0) for e in ends)
    pairs = stat('--partitions', table, 'stat').get('pairs')
    check(f'each pair was stored once: {pairs} of {done}', done > 100 * FLIPS and pairs == done)
    for n in nodes:
        check('a node ends well', n.end()[0] == 0)


def version_of(table):
    with open(table) as f:
        return int(f.read().split()[3])


def moves(folder, *far):
    """Partitions move to a node that is added, and back, under load. Their pairs move with them: no
    operation that was acknowledged is lost, none is done twice. `far`: options of the nodes for a
    far tier."""
    table = os.path.join(folder, 'far-moves' if far else 'moves')
    run('kv', 'table', table, '4', where[0])
    nodes = node(where[0], table, *far), node(other, table, *far)
    clients = [Client(table, 'count') for _ in range(2)] + [Client(table, 'load', 'new', 'slow')]

    def move(partition, to):
        r = kv('move', table, str(partition), to)
        check(f'partition {partition} moves', r.returncode == 0 and not r.stdout + r.stderr, r)

    def goes_on():
        before = stat('--partitions', table, 'stat').get('pairs', 0)
        until('the load goes on',
              lambda: stat('--partitions', table, 'stat').get('pairs', 0) > before + 100 or
              ended(clients))

    goes_on()
    lasting = [f'lasting-{i}' for i in range(8)]
    for key in lasting:
        check('a pair for an hour', kv('--ttl', '3600', '--partitions', table, 'put', key,
                                       'x').returncode == 0)
    for partition in range(4):
        move(partition, other)
    goes_on()
    check('the node has all', stat('stat', other).get('partitions') == 4)
    check('the other has no pairs', stat('stat', where[0]).get('pairs') == 0)
    for partition in 0, 3:
        move(partition, where[0])
    goes_on()

    # Two moves that were interrupted: one is continued, the other is undone.
    replace(table, version_of(table) + 1, {where[0]: '0-1', other: '2-3'}, 4,
            f'from {where[0]} 4792 3\nfrom {other} 4792 1\n')
    one_line_error('a third node', kv('move', table, '1', '10.0.0.4'), 1, 'moves to')
    move(1, where[0])
    move(3, where[0])
    goes_on()
    with open(table) as f:
        lines = f.read().split('\n')
    check(f'all is done: {lines}',
          lines[4:] == [f'node {where[0]} 4792 0-1,3', f'node {other} 4792 2', 'end', ''])
    one_line_error('no such partition', kv('move', table, '4', other), 2, 'below 4')
    one_line_error('no such node', kv('move', table, '1', '10.0.0.4'), 1, '10.0.0.4')

    for c in clients:
        c.process.stdin.close()
        c.process.stdin = None
    ends = [c.end() for c in clients]
    check(f'clients end well: {ends}', all(e[0] == 0 for e in ends))
    counted, stored = sum(int(e[1] or 0) for e in ends[:-1]), int(ends[-1][1] or 0)
    total = Client(table, 'sum').end()
    check(f'each number was counted once: {total} of {counted}',
          counted > 1000 and total[1].strip() == str(counted))
    keys = kv('--partitions', table, 'scan', '--keys-only').stdout.split()
    check(f'all pairs are there: {stored}',
          sum(k.startswith('new-') for k in keys) == stored and set(lasting) <= set(keys))
    pairs = stat('--partitions', table, 'stat').get('pairs')
    check(f'no node has pairs of the other: {pairs}', pairs == len(keys))
    brief = [f'brief-{i}' for i in range(12)]
    for key in brief:
        kv('--ttl', '5', '--partitions', table, 'put', key, 'x')
    move(2, where[0])
    for partition in 0, 1, 3:
        move(partition, other)
    until('pairs expire at their new node', lambda: not set(brief) & set(
        kv('--partitions', table, 'scan', '--keys-only').stdout.split()))
    for n in nodes:
        check('a node ends well', n.end()[0] == 0)


with tempfile.TemporaryDirectory() as work:
    flips(work)
    moves(work)
    moves(work, '--kv-far', work, '--kv-near', '1M')
finish()
