#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Partitions: nodes and clients that follow the versions of a table, and a node that is killed."""
import os
import signal
import subprocess
import sys
import tempfile

from cli import LIMIT, check, finish, obeying_modes, one_line_error, run
from node import Node
from parts import Client, until
from table import PARTITIONS, kv, node, other, replace, serves, stat, where

CALLBACKS = os.path.join(os.path.abspath(sys.argv[2]), 'tests', 'kvclient', 'kv-callbacks')


def options(folder):
    table = os.path.join(folder, 'options')
    r = run('kv', 'table', table, str(PARTITIONS), where[0], f'{other}:5000', '[fd00::1]:17')
    check('a table', r.returncode == 0 and r.stdout == '', r)
    with open(table) as f:
        lines = f.read().split('\n')
    check(f'its nodes: {lines}',
          lines[4:] == [f'node {where[0]} 4792 0-5', f'node {other} 5000 6-10',
                        'node fd00::1 17 11-15', 'end', ''])
    one_line_error('a table that is there', run('kv', 'table', table, '16', where[0]), 1, 'exists')
    one_line_error('a wrong number of partitions', run('kv', 'table', table, '12', where[0]), 2,
                   'power of two')
    one_line_error('a node twice', run('kv', 'table', table, '16', where[0], where[0]), 2, 'twice')
    one_line_error('no node', run('kv', 'table', table, '16', '[::1'), 2, '::1')
    one_line_error('no nodes', run('kv', 'table', table, '16'), 2, 'forms')
    one_line_error('no table', kv('--partitions', f'{table}-not', 'get', 'a'), 1, 'No such file')
    for args in (['stat'], ['scan'], ['get', 'a'], ['bench']):
        one_line_error(f'an address of another machine: {args[0]}',
                       run('kv', '--port', 'udp:192.0.2.77', '--partitions', table, *args), 1,
                       'is no address')
    one_line_error('an address of another machine: move',
                   run('kv', '--port', 'udp:192.0.2.77', 'move', table, '1', where[0]), 1,
                   'is no address')
    one_line_error('a snapshot of all', kv('--partitions', table, 'snapshot'), 2, 'partitions')
    one_line_error('no store', run('node', '--kv-partitions', table), 2, '--kv')
    one_line_error('memcached',
                   run('node', '--kv', '1M', '--kv-partitions', table, '--memcached', '/nowhere'),
                   2, '--memcached')
    with open(table, 'a') as f:
        f.write('?')
    one_line_error('a damaged table',
                   run('node', '--port', f'shm:{where[0]}', '--kv', '1M', '--kv-partitions', table),
                   1, 'line 8')
    one_line_error('a damaged table for a client', kv('--partitions', table, 'get', 'a'), 1,
                   'line 8')


def callbacks(folder):
    """Callbacks submit their operations again, to both nodes of a table."""
    table = os.path.join(folder, 'callbacks')
    run('kv', 'table', table, str(PARTITIONS), where[0], other)
    nodes = node(where[0], table), node(other, table)
    r = subprocess.run([CALLBACKS, table], env=dict(os.environ, ROOST_PORT='shm:10.0.2.1'),
                       stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT,
                       check=False)
    check('callbacks submit again', r.returncode == 0 and r.stdout == 'ok\n', r)
    for n in nodes:
        check('a node ends well', n.end()[0] == 0)


def routes(folder):
    table = os.path.join(folder, 'routes')
    run('kv', 'table', table, str(PARTITIONS), where[0], other)
    snapshot = '--snapshot', os.path.join(folder, 'snapshot')
    a, b = node(where[0], table), node(other, table, *snapshot)
    keys = [f'key-{i}' for i in range(40)]
    client = Client(table, 'ask')
    check('all keys are stored', all(client.ask(k) == '0' for k in keys))
    direct = {k: kv('get', where[0], k) for k in keys}
    mine = [k for k in keys if direct[k].returncode == 0]
    theirs = [k for k in keys if k not in mine]
    check(f'each node owns some: {mine}', 5 < len(mine) < 35)
    one_line_error('a key of another node', direct[theirs[0]], 1, 'another node')
    scan = kv('--partitions', table, 'scan', '--keys-only')
    check('a scan has all', sorted(scan.stdout.split()) == sorted(keys), scan)
    for _ in range(100):
        client.ask(theirs[0])
    s = stat('--partitions', table, 'stat')
    check(f'the sum of both: {s}',
          s.get('pairs') == 40 and s.get('partitions') == PARTITIONS and s.get('lost') == 0)
    check(f'the hottest partition: {s}',
          s.get('hottest') in range(8, 16) and s.get('hottest_ops', 0) > 100)
    check(f'it is of this node: {s}', stat('stat', other).get('hottest') == s.get('hottest'))
    r = kv('--partitions', table, 'top', '--count', '1')
    check('top has the hottest partition', r.returncode == 0 and 'hottest' in r.stdout, r)

    r = kv('snapshot', other)
    check('a snapshot of one node', r.returncode == 0, r)
    check('a pair changes later',
          kv('--partitions', table, 'put', theirs[1], 'later').returncode == 0)
    check('a pair is deleted later', kv('--partitions', table, 'del', theirs[2]).returncode == 0)
    b.end(signal.SIGKILL)
    answers = set()

    def lost():
        answers.add(client.ask(theirs[0]))
        return 'EHOSTDOWN' in answers
    until('a killed node is lost', lost)
    check(f'no other answer: {answers}', answers <= {'EHOSTDOWN', 'ENOTCONN', 'ETIMEDOUT'})
    check('others go on', all(client.ask(k) == '0' for k in mine))
    check('its partitions are lost', all(client.ask(k) == 'EHOSTDOWN' for k in theirs))
    s = stat('--partitions', table, 'stat')
    check(f'stat shows what is lost: {s}',
          s.get('lost') == 8 and s.get('lost_nodes') == [{'address': other, 'service': 4792}])
    r = kv('--partitions', table, 'scan')
    check('a scan shows it', r.returncode == 1 and '8 partitions are lost' in r.stderr
          and set(r.stdout.split()) == {*mine, 'x'}, r)
    one_line_error('and a get', kv('--partitions', table, 'get', theirs[0]), 1, 'lost')
    b = node(other, table, *snapshot)
    replace(table, 2, {where[0]: '0-7', other: '8-15'})
    check('a new version brings them back',
          client.ask(theirs[0]) == '0' and client.ask(mine[0]) == '0')
    old = [kv('--partitions', table, 'get', k).stdout for k in theirs[:3]]
    check(f'with the pairs of the last snapshot: {old}', old == ['x\n'] * 3)
    serves(where[0], 2)
    r = kv('--partitions', table, 'bench', '--keys', '1000', '--duration', '0.1')
    check('a bench', r.returncode == 0, r)
    replace(table, 1, {where[0]: '0-15'})
    replace(table, 3, {other: '0-15'})
    check('an old version is nothing new', client.ask(mine[1]) == '0')
    s = stat('stat', other)
    check(f'the other node owns all: {s}',
          s.get('partitions') == PARTITIONS and s.get('table_version') == 3)
    check('the client ends', client.end()[0] == 0)
    check('a ends well', a.end()[0] == 0)
    check('b ends well', b.end()[0] == 0)


def no_table(folder):
    """A node that was started without the table gets no partition: it would accept all keys."""
    table = os.path.join(folder, 'no-table')
    run('kv', 'table', table, '4', where[0])
    a, b = node(where[0], table), Node(f'shm:{other}', '--kv', '256M')
    keys = [f'key-{i}' for i in range(16)]
    for key in keys:
        kv('--partitions', table, 'put', key, 'x')
    with open(table) as f:
        before = f.read()
    for partition in range(4):
        one_line_error('a node without a table', kv('move', table, str(partition), other), 1,
                       f'{other}, service 4792: the node has no table: start it with '
                       f'--kv-partitions {table}')
    with open(table) as f:
        check('the table is as before', f.read() == before)
    found = kv('--partitions', table, 'scan', '--keys-only').stdout.split()
    check(f'all pairs are there: {found}', sorted(found) == sorted(keys))
    a.end(signal.SIGKILL)
    one_line_error('a lost partition', kv('move', table, '1', other, '--lost'), 1, 'has no table')
    a = Node(f'shm:{where[0]}', '--kv', '256M')
    one_line_error('an owner that was restarted', kv('move', table, '1', where[0], '--lost'), 1,
                   'has no table')
    with open(table) as f:
        check('the table is still as before', f.read() == before)
    for n in a, b:
        check('a node ends well', n.end()[0] == 0)


def a_folder_that_is_not_synced(folder):
    """A command may create files in the folder, but not open it, so only its sync fails: the line
    says that the new table is in place. The same command continues a move that stopped so."""
    before = obeying_modes()
    if before is None:
        print('SKIPPED: a folder that is not synced: setpriv is refused')
        return
    inside = os.path.join(folder, 'closed')
    os.mkdir(inside)
    table = os.path.join(inside, 'table')
    line = f'{table}: the new file is in place', 'Permission denied'
    move = ['kv', '--port', f'shm:{where[1]}', '--timeout', '60', 'move', table, '1', other]
    os.chmod(inside, 0o300)
    one_line_error('a new table', run('kv', 'table', table, '4', where[0], before=before), 1, *line)
    nodes = node(where[0], table), node(other, table)
    one_line_error('a move', run(*move, before=before), 1, *line)
    os.chmod(inside, 0o700)
    r = kv('table', table)
    check('it has begun', f'from {where[0]} 4792 1' in r.stdout.split('\n'), r)
    r = run(*move)
    check('it is continued', r.returncode == 0 and not r.stdout + r.stderr, r)
    check('the node has the partition', stat('stat', other).get('partitions') == 1)
    for n in nodes:
        check('a node ends well', n.end()[0] == 0)


def scarce(folder):
    """A client without a free descriptor can't connect to a node, which is not lost: it connects
    when there is one."""
    table = os.path.join(folder, 'scarce')
    run('kv', 'table', table, '2', where[0], other)
    nodes = node(where[0], table), node(other, table)
    keys = [f'key-{i}' for i in range(20)]
    for key in keys:
        kv('--partitions', table, 'put', key, 'x')
    mine = kv('scan', where[0], '--keys-only').stdout.split()[0]
    theirs = kv('scan', other, '--keys-only').stdout.split()[0]
    client = Client(table, 'ask')
    check('a connection to one node', client.ask(mine) == '0')
    client.ask('!all')
    said = client.ask(theirs)
    check(f'the reason is local: {said}', said == 'EMFILE')
    check('the other node serves', client.ask(mine) == '0')
    client.ask('!none')
    said = client.ask(theirs)
    check(f'with descriptors: {said}', said == '0')
    check('the client ends', client.end()[0] == 0)
    for n in nodes:
        check('a node ends well', n.end()[0] == 0)


def restarts(folder):
    """A node is killed and started again. A client closes its connections that failed."""
    table = os.path.join(folder, 'restarts')
    run('kv', 'table', table, '1', where[0])
    client, counts = Client(table, 'ask'), []
    for version in range(2, 6):
        n = node(where[0], table)
        until('the client goes on', lambda: client.ask('key') == '0')
        counts.append(int(client.ask('!')))
        n.end(signal.SIGKILL)
        until('the node is lost', lambda: client.ask('key') == 'EHOSTDOWN')
        replace(table, version, {where[0]: '0'}, 1)
    check(f'the descriptors of the client: {counts}', len(set(counts[1:])) == 1)
    check('the client ends', client.end()[0] == 0)


def losses(folder):
    """The partitions of a killed node go to another one: with the pairs of its last snapshot, and
    then, when that node is killed, empty. Other partitions lose no pairs, and clients continue."""
    table, snapshot = os.path.join(folder, 'losses'), os.path.join(folder, 'losses.snapshot')
    third = '10.0.0.4'
    run('kv', 'table', table, str(PARTITIONS), where[0], other)
    a, b, c = node(where[0], table), node(other, table, '--snapshot', snapshot), node(third, table)
    keys = [f'key-{i}' for i in range(40)]
    client = Client(table, 'ask')
    check('all keys are stored', all(client.ask(k) == '0' for k in keys))
    theirs = set(kv('scan', other, '--keys-only').stdout.split())
    mine = set(keys) - theirs
    check('a snapshot', kv('snapshot', other).returncode == 0)
    later = [f'later-{i}' for i in range(40)]
    check('later keys are stored', all(client.ask(k) == '0' for k in later))
    kept = mine | set(kv('scan', where[0], '--keys-only').stdout.split())

    def move(partition, to, *args):
        return kv('move', table, str(partition), to, *args)

    def pairs():
        return kv('--partitions', table, 'scan', '--keys-only').stdout.split()

    def is_lost(key):
        until('a killed node is lost', lambda: client.ask(key) == 'EHOSTDOWN')

    one_line_error('a node that is alive', move(8, third, '--lost'), 1, 'answers')
    one_line_error('a snapshot without a loss', move(8, third, '--snapshot', snapshot), 2, '--lost')
    b.end(signal.SIGKILL)
    is_lost(next(iter(theirs)))
    one_line_error('a move that copies', move(8, third), 1, other)
    missing = move(8, third, '--lost', '--snapshot', f'{snapshot}-not')
    one_line_error('no snapshot there', missing, 1, 'No such file')
    for partition in range(8, 16):
        r = move(partition, third, '--lost', '--snapshot', snapshot)
        check(f'partition {partition} gets another node', r.returncode == 0, r)
    found = pairs()
    check(f'the pairs of the snapshot, and all of the other node: {found}',
          sorted(found) == sorted(theirs | kept))
    check('the client goes on', all(client.ask(k) == '0' for k in keys + later))
    r = kv('table', table)
    with open(table) as f:
        check('the table is printed', r.returncode == 0 and r.stdout == f.read(), r)
    losts = [line for line in r.stdout.split('\n') if line.startswith('lost ')]
    check(f'it has the losses: {losts}', [x.split()[2] for x in losts] ==
          [str(i) for i in range(8, 16)])
    s = stat('--partitions', table, 'stat')
    check(f'nothing is lost any more: {s}', s.get('lost') == 0 and s.get('pairs') == 80)

    c.end(signal.SIGKILL)
    is_lost(next(iter(theirs)))
    check('a partition begins empty', all(move(p, where[0], '--lost').returncode == 0
                                          for p in range(8, 15)))
    c = node(third, table)
    check('one returns to its node', move(15, third, '--lost').returncode == 0)
    found = pairs()
    check(f'the other node has lost nothing: {found}', sorted(found) == sorted(kept))
    check('the client goes on again', all(client.ask(k) == '0' for k in keys + later))
    check('each pair is there once', sorted(pairs()) == sorted(keys + later))
    check('the client ends', client.end()[0] == 0)
    check('a ends well', a.end()[0] == 0)
    check('c ends well', c.end()[0] == 0)


with tempfile.TemporaryDirectory() as work:
    options(work)
    no_table(work)
    a_folder_that_is_not_synced(work)
    scarce(work)
    restarts(work)
    losses(work)
    callbacks(work)
    routes(work)
finish()
