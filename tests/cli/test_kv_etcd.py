#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""A table of partitions in etcd: nodes and clients follow it, a partition moves under load, etcd
stops for ten seconds in the middle of a move while the node that has the pairs is killed, and a
node that is cut off from etcd serves nothing when its partition was taken. Exit status 77 when
etcd is not installed, or Roost was built without libcurl."""
import base64
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

from cli import LIMIT, check, finish, last_json, one_line_error, own_network, run, skip, stop

BUILD = os.path.abspath(sys.argv[2])
if not os.path.exists(os.path.join(BUILD, 'lib', 'roost-etcd.so')):
    skip('no roost-etcd.so: Roost was built without libcurl')
if not shutil.which('etcd'):
    skip('no etcd (package etcd-server): scripts/setup check installs it')
own_network()

from node import Node  # noqa: E402  (a folder of this process)
from parts import Client, until  # noqa: E402

os.environ['ROOST_LIBDIR'] = os.path.join(BUILD, 'lib')
SERVER = 'http://127.0.0.1:2379'
KEY = 'roost/parts'
TABLE = f'etcd:{SERVER}/{KEY}'
TWO = f'etcd:http://127.0.0.1:9,{SERVER}/{KEY}'  # the first one does not answer
STOPPED_S = 10
A, B = '10.0.0.1', '10.0.0.2'


def coded(text):
    return base64.b64encode(text.encode()).decode()


def ask_etcd(what, body):
    """One request to the gateway."""
    request = urllib.request.Request(f'{SERVER}/v3/kv/{what}', json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=LIMIT) as answer:
        return json.load(answer)


class Etcd:
    def __init__(self, folder):
        peer = 'http://127.0.0.1:2380'
        with open(os.path.join(folder, 'log'), 'wb') as log:
            self.process = subprocess.Popen(
                ['etcd', '--name', 'one', '--data-dir', os.path.join(folder, 'data'),
                 '--listen-client-urls', SERVER, '--advertise-client-urls', SERVER,
                 '--listen-peer-urls', peer, '--initial-advertise-peer-urls', peer,
                 '--initial-cluster', f'one={peer}'],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def answers(self):
        try:
            ask_etcd('range', {'key': coded('none')})
            return True
        except (OSError, urllib.error.URLError):
            return False

    def signal(self, number):
        self.process.send_signal(number)

    def end(self):
        self.process.kill()
        self.process.wait()


class Relay:
    """Connections to etcd that can be cut."""

    def __init__(self):
        self.open = True
        self.ends = []
        self.listener = socket.create_server(('127.0.0.1', 0))
        self.table = f'etcd:http://127.0.0.1:{self.listener.getsockname()[1]}/{KEY}'
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            one = self.listener.accept()[0]
            if not self.open:
                one.close()
                continue
            other = socket.create_connection(('127.0.0.1', 2379))
            self.ends += one, other
            for pair in (one, other), (other, one):
                threading.Thread(target=self.copy, args=pair, daemon=True).start()

    def copy(self, source, to):
        try:
            while data := source.recv(65536):
                to.sendall(data)
        except OSError:
            pass
        for end in source, to:
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def cut(self):
        self.open = False
        for end in self.ends:
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


def kv(*args):
    return run('kv', '--port', 'shm:10.0.0.9', '--timeout', '60', *args)


def stat(*args):
    return last_json(kv(*args, '--json')) or {}


def all_keys():
    return set(kv('--partitions', TABLE, 'scan', '--keys-only').stdout.split())


def table():
    return kv('table', TABLE).stdout


def errors():
    r = kv('--partitions', TABLE, 'get', 'a')
    one_line_error('no table', r, 1, 'no such key')
    r = kv('--partitions', 'etcd:http://127.0.0.1:9/parts', 'get', 'a')
    one_line_error('no server', r, 1, 'connect to server')
    for name in 'etcd:', 'etcd:http://', 'etcd:http:///a', 'etcd:http://h:1/', 'etcd:ftp://h/a':
        one_line_error(name, kv('--partitions', name, 'get', 'a'), 1, 'HOST:PORT')


def two_movers():
    """Another program changes the table after a move has read it: the move gives nothing away."""
    r = kv('table', TABLE, '8', A)
    one_line_error('a table that is there', r, 1, 'already')


def moves():
    """Partitions move to another node under load. No operation is lost, none is done twice."""
    clients = Client(TWO, 'count'), Client(TABLE, 'load', 'new', 'slow')
    until('the load begins', lambda: stat('--partitions', TABLE, 'stat').get('pairs', 0) > 100)
    for partition in 0, 1:
        r = kv('move', TABLE, str(partition), B)
        check(f'partition {partition} moves', r.returncode == 0 and not r.stdout + r.stderr, r)
    r = kv('move', TABLE, '1', A)
    check('it moves back', r.returncode == 0 and not r.stdout + r.stderr, r)
    before = stat('--partitions', TABLE, 'stat').get('pairs', 0)
    until('the load goes on',
          lambda: stat('--partitions', TABLE, 'stat').get('pairs', 0) > before + 100)
    until('both have a lease', lambda: 'lost node' not in table())
    lines = table().split('\n')
    check(f'the table: {lines}', lines[4:] == [f'node {A} 4792 1', f'node {B} 4792 0,2-3', 'end',
                                               ''])
    for c in clients:
        c.process.stdin.close()
        c.process.stdin = None
    ends = [c.end() for c in clients]
    check(f'clients end well: {ends}', all(e[0] == 0 for e in ends))
    counted, stored = (int(e[1] or 0) for e in ends)
    total = Client(TABLE, 'sum').end()
    check(f'each number was counted once: {total} of {counted}',
          counted > 1000 and total[1].strip() == str(counted))
    keys = all_keys()
    check(f'all pairs are there: {stored}', sum(k.startswith('new-') for k in keys) == stored)
    check('no node has pairs of the other',
          stat('--partitions', TABLE, 'stat').get('pairs') == len(keys))


def outage(etcd, a):
    """A move of partition 1 from A to B has begun. etcd stops, and A is killed."""
    client = Client(TABLE, 'ask')
    keys = [f'kept-{i}' for i in range(60)]
    check('keys are stored', all(client.ask(f'+{k}') == '0' for k in keys))
    on_a = set(kv('scan', A, '--keys-only').stdout.split())
    on_b = [k for k in keys if k not in on_a]
    check(f'both nodes have some: {on_b}', 0 < len(on_b) < 60)
    check('a snapshot', kv('snapshot', A).returncode == 0)
    text = base64.b64decode(ask_etcd('range', {'key': coded(KEY)})['kvs'][0]['value']).decode()
    text = text.replace(f'node {A} 4792 1\n', f'node {A} 4792 none\n').replace('0,2-3', '0-3')
    version = int(text.split()[3])
    text = text.replace(f'version {version}\n', f'version {version + 1}\n')
    text = text.replace('end\n', f'from {A} 4792 1\nend\n')
    ask_etcd('put', {'key': coded(KEY), 'value': coded(text)})
    for address in A, B:
        until('both nodes have the move',
              lambda: stat('stat', address).get('table_version') == version + 1)  # noqa: B023
    stop(etcd.process.pid)
    a.end(signal.SIGKILL)
    # A move cannot read the table, and changes nothing.
    start = time.monotonic()
    one_line_error('a move without etcd', kv('move', TABLE, '2', A), 1, 'etcd:')
    counts = dict.fromkeys(on_b, 1)
    rounds = 0
    while time.monotonic() - start < STOPPED_S or rounds < 3:
        for key in on_b:
            if client.ask(f'+{key}') != '0':
                check(f'{key} is served', False)
                break
            counts[key] += 1
        rounds += 1
    etcd.signal(signal.SIGCONT)
    until('etcd answers again', etcd.answers)
    until('the lease of the dead node expires', lambda: f'lost node      {A}' in table())
    until('the other node renews its lease', lambda: f'lost node      {B}' not in table())
    one_line_error('the move does not go on', kv('move', TABLE, '1', B), 1, A)
    return client, keys, counts


def after(client, keys, counts, snapshot):
    r = kv('move', TABLE, '1', B, '--lost', '--snapshot', snapshot)
    check('the partition goes to the other node', r.returncode == 0, r)
    check('the loss is in the table', '\nlost ' in table() and ' 1\n' in table())
    check('all keys are there', set(keys) <= all_keys())
    # The client does not know yet that A is dead: an operation in flight has an unknown end.
    lost = next(k for k in keys if k not in counts)
    answers = set()

    def served():
        answers.add(client.ask(f'+{lost}'))
        return '0' in answers
    until('the partition is served', served)
    check(f'its node was lost: {answers}', answers <= {'0', 'ENOTCONN', 'ETIMEDOUT', 'EHOSTDOWN'})
    counts[lost] = 2
    check('the client goes on with all', all(client.ask(f'+{k}') == '0' for k in keys))
    wrong = {}
    for key in keys:
        number = client.ask(f'?{key}')
        if number != str(counts.get(key, 1) + 1):
            wrong[key] = number, counts.get(key, 1) + 1
    check(f'each operation was done once: {wrong}', not wrong)
    check('the client ends', client.end()[0] == 0)


def cut_off():
    """A and a client of it are cut off from etcd. Its partition goes to B, while it still runs."""
    relay = Relay()
    a = Node(f'shm:{A}', '--kv', '64M', '--kv-partitions', relay.table, '--kv-lease', '5')
    client = Client(relay.table, 'ask')
    keys = [f'fenced-{i}' for i in range(40)]
    r = kv('move', TABLE, '1', A)
    check('A has partition 1', r.returncode == 0, r)
    for k in keys:
        until('the client stores keys', lambda: client.ask(k) == '0')  # noqa: B023
    on_a = kv('scan', A, '--keys-only').stdout.split()
    key = next(k for k in keys if k in on_a)
    relay.cut()
    until('the lease ends', lambda: f'lost node      {A}' in table())
    answer = client.ask(key)
    check(f'A refuses the client that has the old table: {answer}', answer == 'EREMCHG')
    check('A serves nothing', stat('stat', A).get('partitions') == 0)
    r = kv('move', TABLE, '1', B, '--lost')
    check('A is replaced while it runs', r.returncode == 0, r)
    answer = client.ask(key)
    check(f'A still refuses: {answer}', answer == 'EREMCHG')
    check('B serves', kv('--partitions', TABLE, 'put', key, 'new').returncode == 0)

    relay.open = True
    until('the client follows', lambda: client.ask(key) == '0')
    check('B has its pair', key in kv('scan', B, '--keys-only').stdout.split())
    until('A has a lease again', lambda: f'lost node      {A}' not in table())
    r = kv('move', TABLE, '1', A)
    check('A gets the partition back', r.returncode == 0, r)
    until('the client follows again', lambda: client.ask(key) == '0')
    check('A serves', key in kv('scan', A, '--keys-only').stdout.split())
    check('the client ends', client.end()[0] == 0)
    status, err = a.end()
    check(f'A ends well: {err}', status == 0 and 'no lease' in err)


def started_twice():
    """A node is started again while it runs: the second one does not take its key. Then another
    program removes the key, and the node sets it again."""
    c, d = '127.0.0.11', '127.0.0.12'
    name = f'{TABLE}-twice'
    words = f'udp:{c}', '--kv', '16M', '--kv-partitions', name, '--kv-lease', '5'

    def twice(*args):
        return run('kv', '--port', 'udp:127.0.0.13', '--timeout', '60', *args)
    check('a table for one node', twice('table', name, '1', c).returncode == 0)
    node, other = Node(*words), Node(f'udp:{d}', '--kv', '16M', '--kv-partitions', name)
    check('both nodes run', node.hello and other.hello)
    check('a pair', twice('--partitions', name, 'put', 'a', '1').returncode == 0)
    one_line_error('a second start', run('node', '--port', *words), 1, "can't listen")
    r = twice('table', name)
    check('the running node is not lost', r.returncode == 0 and 'lost node' not in r.stdout, r)
    one_line_error('it has its partition', twice('move', name, '0', d, '--lost'), 1, 'its lease')
    key = f'{KEY}-twice/nodes/{c}:4792'
    removed = ask_etcd('deleterange', {'key': coded(key)})
    check(f'its key is removed: {removed}', removed.get('deleted') == '1')
    until('the node sets it again', lambda: 'lost node' not in twice('table', name).stdout)
    r = twice('--partitions', name, 'get', 'a')
    check('the node has its pair', r.returncode == 0 and r.stdout.split() == ['1'], r)
    status, err = node.end()
    check(f'the node says so: {err}', status == 0 and 'the key of this node' in err)
    check('the other node ends well', other.end()[0] == 0)


with tempfile.TemporaryDirectory() as work:
    server = Etcd(work)
    try:
        if until('etcd starts', server.answers):
            errors()
            started_twice()
            made = kv('table', TABLE, '4', A, B)
            check('a table', made.returncode == 0, made)
            two_movers()
            file = os.path.join(work, 'snapshot')
            first = Node(f'shm:{A}', '--kv', '64M', '--kv-partitions', TABLE, '--snapshot', file,
                         '--kv-lease', '10')
            second = Node(f'shm:{B}', '--kv', '64M', '--kv-partitions', TWO, '--kv-lease', '120')
            moves()
            after(*outage(server, first), file)
            cut_off()
            status, err = second.end()
            check('a node that ends gives its lease back', f'lost node      {B}' in table())
            lines = [x for x in err.split('\n') if 'etcd:' in x]
            check(f'one line about the outage: {err}', status == 0 and len(lines) == 1)
    finally:
        server.end()
finish()
