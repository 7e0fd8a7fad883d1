#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""What a server in the place of etcd may do: answers that are garbage, huge, late or errors,
watches that end or make no sense, and transactions that take effect without an answer. Exit status
77 when Roost was built without libcurl."""
import base64
import http.server
import json
import os
import socket
import sys
import threading
import time

from cli import check, finish, last_json, one_line_error, own_network, run, skip

BUILD = os.path.abspath(sys.argv[2])
if not os.path.exists(os.path.join(BUILD, 'lib', 'roost-etcd.so')):
    skip('no roost-etcd.so: Roost was built without libcurl')
own_network()
os.environ['ROOST_LIBDIR'] = os.path.join(BUILD, 'lib')

from node import Node  # noqa: E402  (a folder of this process)
from parts import until  # noqa: E402

A = '10.0.0.1'
KEY = 'parts'
pairs = {}  # key: (value, revision), both in base64
leases = {}  # of keys that were set with one
revision = 0
fault = None  # of the next requests; a list: of the next transactions, one after the other
transactions = 0
watch = None  # what is answered to a watch: its status and bytes
watches = 0


def lookup(key):
    if key not in pairs:
        return {}
    value, changed = pairs[key]
    pair = {'key': key, 'mod_revision': str(changed), 'value': value}
    if key in leases:
        pair['lease'] = leases[key]
    return {'kvs': [pair], 'count': '1'}


def is_true(c):
    value, changed = pairs.get(c['key'], (None, 0))
    if c['target'] == 'CREATE':
        return changed == 0
    return str(changed) == c['mod_revision'] if c['target'] == 'MOD' else value == c['value']


def transact(body):
    global revision
    answers = []
    done = all(is_true(c) for c in body['compare'])
    revision += done and any('request_put' in op for op in body['success'])
    for op in body['success'] if done else []:
        if 'request_put' in op:
            key = op['request_put']['key']
            pairs[key] = op['request_put']['value'], revision
            if 'lease' in op['request_put']:
                leases[key] = op['request_put']['lease']
            answers.append({'response_put': {}})
        else:
            answers.append({'response_range': lookup(op['request_range']['key'])})
    answer = {'header': {'revision': str(revision)}, 'responses': answers}
    if done:
        answer['succeeded'] = True
    return answer


def decoded(text):
    return base64.b64decode(text)


def lease(path):
    one = {'ID': '7', 'TTL': '10'}
    if path.endswith('grant'):
        return {'header': {}, **one}
    if path.endswith('revoke'):
        for key in KEY, f'{KEY}2':
            pairs.pop(coded(f'{key}/move'), None)
        return {'header': {}}
    return {'result': {'header': {}, **one}}


class Gateway(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'

    def log_message(self, *_):
        pass

    def reply(self, status, body):
        self.send_response(status)
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def line(self, body):
        text = json.dumps(body).encode() + b'\n'
        self.wfile.write(f'{len(text):x}\r\n'.encode() + text + b'\r\n')

    def follow(self, key):
        """A watch: a line at the start, and after each change."""
        global watches
        self.close_connection = True
        watches += 1
        if watch:
            self.reply(*watch)
            return
        self.send_response(200)
        self.send_header('Transfer-Encoding', 'chunked')
        self.end_headers()
        self.line({'result': {'header': {}, 'created': True}})
        last = pairs.get(key)
        while True:
            time.sleep(0.01)
            if pairs.get(key) != last:
                last = pairs.get(key)
                self.line({'result': {'header': {}, 'events': [{'kv': {'key': key}}]}})

    def do_POST(self):
        global fault, transactions
        body = json.loads(self.rfile.read(int(self.headers['Content-Length'])))
        if self.path.endswith('watch'):
            self.follow(body['create_request']['key'])
            return
        now = fault
        is_txn = self.path.endswith('txn')
        transactions += is_txn
        if isinstance(now, list):
            now = now.pop(0) if is_txn and now else None
        elif now == 'lost txn' and not self.path.endswith('txn'):
            now = None
        elif now in ('lost', 'lost txn') or now and now[0] == 'once':
            fault = None
        if isinstance(now, tuple) and now[0] != 'once' and 400 <= now[0] < 500:
            self.reply(*now)  # refused: nothing is executed
            return
        if is_txn:
            answer = transact(body) if now != 'gone' else {}
        elif '/lease/' in self.path:
            answer = lease(self.path)
        elif self.path.endswith('put'):
            pairs[body['key']] = body['value'], 1
            answer = {'header': {}}
        elif 'range_end' in body:
            answer = {'header': {}, 'kvs': [{'key': k, 'value': pairs[k][0]} for k in sorted(pairs)
                                            if decoded(body['key']) <= decoded(k)
                                            < decoded(body['range_end'])]}
        else:
            answer = {'header': {'revision': '1'}, **lookup(body['key'])}
        if now in ('lost', 'lost txn', 'gone'):
            self.close_connection = True
        elif now == 'late':
            time.sleep(4)
            self.close_connection = True
        elif isinstance(now, tuple) and now[0] == 'once':
            self.reply(now[1], b'{}')
        elif isinstance(now, tuple):
            self.reply(*now)
        else:
            self.reply(200, json.dumps(answer).encode())


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    ends = []

    def get_request(self):
        one = super().get_request()
        self.ends.append(one[0])
        return one

    def cut(self):
        """Ends all connections."""
        while self.ends:
            try:
                self.ends.pop().shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def handle_error(self, *_):
        pass  # a client that did not wait


server = Server(('127.0.0.1', 0), Gateway)
threading.Thread(target=server.serve_forever, daemon=True).start()
HERE = f'http://127.0.0.1:{server.server_port}'
TABLE = f'etcd:{HERE}/{KEY}'
NOBODY = 'http://127.0.0.1:9'


def coded(text):
    return base64.b64encode(text.encode()).decode()


def kv(*args):
    return run('kv', '--port', 'shm:10.0.0.9', *args)


def read_with(now, words):
    global fault
    fault = now
    one_line_error(f'an answer: {now}'[:60], kv('--partitions', TABLE, 'get', 'a'), 1, words)
    fault = None


def answer_of(value):
    pair = {'mod_revision': '5', 'value': value}
    return 200, json.dumps({'header': {}, 'kvs': [pair]}).encode()


def reads():
    read_with((200, b'garbage'), 'no JSON')
    read_with((200, b''), 'no JSON')
    read_with((200, b'{}'), 'no header')
    read_with((200, b'[' * 100000), 'no JSON')
    read_with((200, b'x' * (3 << 20)), 'longer than')
    read_with((500, b'{"message": "no leader"}'), 'no leader')
    read_with((404, b'not here'), '404')
    read_with((301, b''), '301')
    read_with('late', 'Timeout')
    read_with('lost', 'etcd:')
    read_with(answer_of('?'), 'base64')
    read_with(answer_of(coded('roost-kv-partitions 2\n')), 'another format')
    read_with(None, 'no such key')


def unreachable():
    """A node that does not answer the command may have clients elsewhere: its lease counts."""
    c = '10.0.0.3'
    check('a table', kv('table', f'{TABLE}2', '1', c).returncode == 0)
    node = Node(f'shm:{A}', '--kv', '16M', '--kv-partitions', f'{TABLE}2')
    name = coded(f'{KEY}2/nodes/{c}:4792')
    pairs[name] = coded('1'), 1  # second
    r = kv('move', f'{TABLE}2', '0', A, '--lost')
    one_line_error('a node that renews its lease is not lost', r, 1, 'renews its lease')
    pairs.pop(name)
    r = kv('move', f'{TABLE}2', '0', A, '--lost')
    check('a node without a lease is lost', r.returncode == 0, r)
    check('another node ends well', node.end()[0] == 0)


def watched():
    """A node follows the table with a watch, and also without one."""
    global watch
    name = coded(f'{KEY}4')
    check('a table', kv('table', f'{TABLE}4', '1', A).returncode == 0)
    node = Node(f'shm:{A}', '--kv', '16M', '--kv-partitions', f'{TABLE}4')
    version = 1

    def change(what):
        nonlocal version
        text = decoded(pairs[name][0]).decode().replace(f'version {version}\n',
                                                        f'version {version + 1}\n')
        version += 1
        pairs[name] = coded(text), 100 + version
        until(f'{what}: version {version}',
              lambda: (last_json(kv('stat', A, '--json')) or {}).get('table_version') == version)

    until('the node watches', lambda: watches)
    for _ in range(3):
        change('a watch')
    for answer in ((200, b'garbage\n'), (200, b'x' * (3 << 20)), (200, b''), (404, b'not here'),
                   (200, b'{"result": {"canceled": true}}\n'), (200, b'[' * 100000 + b'\n'),
                   (200, b'{"error": {"message": "no"}}\n')):
        watch = answer
        server.cut()
        before = watches
        until('the node tries to watch again', lambda: watches > before)  # noqa: B023
        change(f'a bad watch: {answer}'[:60])
    watch = None
    before = watches
    until('the node watches again', lambda: watches > before)
    change('a good watch again')
    check('the node ends well', node.end()[0] == 0)


def endpoints():
    """If an endpoint does not answer, or answers that it cannot, the next one is asked."""
    global fault
    for first in NOBODY, f'{NOBODY},{NOBODY}', '127.0.0.1:9':
        r = kv('table', f'etcd:{first},{HERE}/{KEY}')
        check(f'the endpoint behind {first}', r.returncode == 0, r)
    one_line_error('none answers', kv('table', f'etcd:{NOBODY},{NOBODY}/{KEY}'), 1, 'connect')
    fault = 'once', 503
    r = kv('table', f'etcd:{HERE},{HERE}/{KEY}')
    check('an endpoint without a leader', r.returncode == 0 and fault is None, r)
    fault = 'once', 400
    one_line_error('a request that is refused', kv('table', f'etcd:{HERE},{HERE}/{KEY}'), 1, '400')
    # The answer to the change is lost; the next endpoint knows that the change was made.
    fault = 'lost txn'
    name = f'etcd:{HERE},{HERE}/{KEY}3'
    r = kv('table', name, '2', A)
    check('a table whose answer is lost', r.returncode == 0 and fault is None, r)
    check('it is there', kv('table', name).returncode == 0)


def writes():
    """A change whose answer is lost is not done twice, and not taken for that of others."""
    global fault
    fault = 'lost'
    r = kv('table', TABLE, '2', A)
    check('a table whose answer is lost', r.returncode == 0, r)
    first = revision
    check(f'it is written once: {first}', first == 1)
    one_line_error('a table that is there', kv('table', TABLE, '2', A), 1, 'already')

    text = decoded(pairs[coded(KEY)][0]).decode()
    a = Node(f'shm:{A}', '--kv', '16M', '--kv-partitions', TABLE)
    b = Node('shm:10.0.0.2', '--kv', '16M', '--kv-partitions', TABLE)
    check('the nodes follow it', a.hello and b.hello)
    pairs[coded(f'{KEY}/move')] = '', 1
    one_line_error('two moves', kv('move', TABLE, '1', '10.0.0.2'), 1, 'another move')
    pairs.pop(coded(f'{KEY}/move'), None)
    r = kv('move', TABLE, '1', '10.0.0.2')
    check('a move', r.returncode == 0 and not r.stdout + r.stderr, r)
    after = decoded(pairs[coded(KEY)][0]).decode()
    check(f'its table: {after}', f'node {A} 4792 0\nnode 10.0.0.2 4792 1\n' in after
          and after != text)
    r = kv('--partitions', TABLE, 'put', 'a', '1')
    check('a client', r.returncode == 0, r)
    r = kv('table', TABLE)
    check('both nodes have a lease', r.stdout == after, r)
    r = kv('move', TABLE, '1', A, '--lost')
    one_line_error('a node that runs is not lost', r, 1, 'has its lease')
    for node in a, b:
        status, err = node.end()
        check(f'a node ends well: {status}, {err}', status == 0 and err.count('\n') <= 1)


def refusals():
    """A request that the server refuses is not repeated. If an earlier one had no answer, the
    command looks once whether it took effect. A server that is busy is asked again."""
    global fault
    no = 403, b'{"message": "permission denied"}'

    def make(what, faults):
        global fault
        before, fault = transactions, faults
        r = kv('table', f'{TABLE}-{what}', '2', A)
        made = transactions - before
        fault = None
        return r, made
    r, made = make('refused', [no] * 100)
    one_line_error('a change that is refused', r, 1, 'permission denied')
    check(f'it was sent once: {made}', made == 1)
    check('nothing was written', coded(f'{KEY}-refused') not in pairs)
    r, made = make('made', ['lost', no])
    check(f'a change that was made and then refused: {made}', r.returncode == 0 and made == 3, r)
    r, made = make('unknown', ['gone'] + [no] * 100)
    one_line_error('a change that was not made and then refused', r, 1, 'permission denied')
    check(f'the mark was read once: {made}', made == 3)
    r, made = make('busy', [(429, b'{"message": "too many requests"}'), (408, b'')])
    check(f'a server that is busy: {made}', r.returncode == 0 and made == 3, r)


reads()
writes()
refusals()
unreachable()
watched()
endpoints()
server.shutdown()
finish()
