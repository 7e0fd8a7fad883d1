#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""`roost node`, `roost call`, `roost kernel`: services, output, changes and refusals; and a control
socket with invalid requests."""
import json
import os
import random
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time

from cli import LIMIT, ROOST, check, finish, last_json, one_line_error, run
from node import Node, addresses

BUILT_IN = {'get', 'traversal', 'consistency', 'hll', 'aggregate', 'prism'}


def call(kind, where, *args):
    return run('call', '--port', f'{kind}:{where[1]}', where[0], *args)


def serves(kind):
    """Looks keys up in a filled table."""
    where = addresses(kind)
    node = Node(f'{kind}:{where[0]}', '--fill', '1000', '--memory', '1M', '-v')
    try:
        check(f'{kind}: says what it serves', node.hello.get('address') == where[0]
              and node.hello.get('service') == 4792 and node.hello.get('keys') == 1000
              and BUILT_IN <= {k['name'] for k in node.hello.get('kernels', [])})
        r = call(kind, where, 'get', '17')
        check(f'{kind}: get', r.returncode == 0 and 'value of 17' in r.stdout and 'us' in r.stdout,
              r)
        r = call(kind, where, 'get', '1000', '--json')
        j = last_json(r)
        check(f'{kind}: get, as JSON',
              r.returncode == 0 and j.get('text') == 'value of 1000' and j.get('len') == 13
              and bytes.fromhex(j['hex']) == b'value of 1000' and j['us'] > 0, r)
        r = call(kind, where, 'get', '1001')
        check(f'{kind}: a key that is not there', r.returncode == 1 and 'not found' in r.stdout, r)
        r = call(kind, where, '0x7777', '--json')
        check(f'{kind}: an op-code that nobody has',
              r.returncode == 1 and last_json(r).get('status') == 1, r)
        r = call(kind, where, 'traversal', '--params', '00')
        check(f'{kind}: parameters that are none',
              r.returncode == 1 and 'bad parameters' in r.stdout, r)
        r = call(kind, where, 'get', '1', '--service', '999')
        one_line_error(f'{kind}: nobody listens there', r, 1, 'no node listens')
        counters = [n for n in last_json(run('stat', '--json', str(node.pid))).get('nics', [])]
        kernels = counters[0].get('kernels', {}) if counters else {}
        check(f'{kind}: counted', kernels.get('calls') == 5 and kernels.get('no_kernel') == 1
              and kernels.get('bad_params') == 1 and kernels.get('ended_ok') == 2)
        text = run('stat', '--prometheus', str(node.pid)).stdout
        check(f'{kind}: counted for Prometheus',
              f'roost_kernels_calls_total{{pid="{node.pid}",program="roost"}} 5\n' in text)
        check(f'{kind}: counted in the table',
              'kernels ended_ok' in run('stat', str(node.pid)).stdout)
    finally:
        status, said = node.end()
    check(f'{kind}: ends when it is told to, and says who came',
          status == 0 and f'connection 1 of {where[1]} accepted' in said
          and 'connection 1 of' in said and 'has ended' in said)
    check(f'{kind}: leaves no socket', not os.path.exists(node.path()))


def tables():
    """Keys that are words; entries that are too long; files that are no table."""
    where = addresses('shm')
    with tempfile.NamedTemporaryFile('w', suffix='.txt') as f:
        f.write('http   80/tcp web\n\nssh\t22/tcp\n12 twelve\n')
        f.flush()
        node = Node(f'shm:{where[0]}', '--table', f.name, '--kernels', 'get,hll')
        try:
            check('kernels that were asked for',
                  {k['name'] for k in node.hello.get('kernels', [])} == {'get', 'hll'})
            for key, value in (('http', '80/tcp web'), ('ssh', '22/tcp'), ('0xc', 'twelve')):
                r = call('shm', where, 'get', key, '--json')
                check(f'the value of {key}', last_json(r).get('text') == value, r)
        finally:
            check('interrupted, it ends well', node.end(signal.SIGINT)[0] == 0)
        f.write('alone\n')
        f.flush()
        r = run('node', '--port', f'shm:{where[0]}', '--table', f.name)
        one_line_error('a line without a value', r, 1, ':5:', 'a key, blanks, and a value')
    reading, writing = os.pipe()
    os.write(writing, b'http 80/tcp\n')
    os.close(writing)
    with subprocess.Popen([ROOST, 'node', '--port', f'shm:{where[0]}', '--json', '--table',
                           f'/dev/fd/{reading}'], stdin=subprocess.DEVNULL, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          pass_fds=(reading,)) as p:
        hello = p.stdout.readline()  # empty: it has ended
        p.terminate()
        err = p.communicate()[1]
    os.close(reading)
    one_line_error('a table in a pipe', subprocess.CompletedProcess(p.args, p.returncode, hello,
                                                                    err), 1, 'give a file')
    r = run('node', '--port', f'shm:{where[0]}', '--fill', '1000', '--memory', '8K')
    one_line_error('a table that does not fit', r, 1, '--memory')
    r = run('node', '--port', f'shm:{where[0]}', '--kernels', 'get,nonsense')
    one_line_error('a kernel that is none', r, 1, "'nonsense'")
    one_line_error('an operand', run('node', '127.0.0.1'), 2, '--port')
    one_line_error('two tables', run('node', '--fill', '1', '--table', 'x'), 2, 'one of them')
    node = Node(f'shm:{where[0]}')
    try:
        one_line_error('no table', call('shm', where, 'get', '1'), 1, '--fill')
        r = run('node', '--port', f'shm:{where[0]}')
        check('an address that is taken', r.returncode == 1 and 'roost node:' in r.stderr, r)
        r = run('call', '--port', f'shm:{where[1]}', '--timeout', '0.3', '10.0.0.77', 'get', '1')
        one_line_error('nobody there', r, 1, '10.0.0.77')
    finally:
        node.end()
    one_line_error('half of it', run('call', '127.0.0.1'), 2)
    one_line_error('no key', run('call', '127.0.0.1', 'get'), 2, 'key')
    one_line_error('no such kernel', run('call', '127.0.0.1', 'nonsense'), 2, 'nonsense')
    one_line_error('no digits', run('call', '127.0.0.1', '7', '--params', '0x'), 2, 'hexadecimal')


def chosen():
    """The choice of a node among several."""
    where = addresses('shm')
    one_line_error('no node at all', run('kernel', 'list'), 1, 'start one')
    nodes = [Node(f'shm:{where[0]}', '--name', 'left'),
             Node(f'shm:{where[1]}', '--name', 'right', '--kernels', 'get')]
    try:
        for word in ('right', str(nodes[1].pid), where[1]):
            r = run('kernel', 'list', word)
            check(f'by {word}',
                  r.returncode == 0 and [line.split()[:3] for line in r.stdout.splitlines()]
                  == [['kernel', 'op-code', 'version'], ['get', '0x1', '1']], r)
        check('as JSON',
              last_json(run('kernel', 'stat', 'left', '--json')).get('pid') == nodes[0].pid)
        r = run('kernel', 'stat', 'right')
        check('counted', r.returncode == 0 and r.stdout.splitlines()[1].split()[:2] == ['get', '0'],
              r)
        one_line_error('which of two', run('kernel', 'list'), 1, '2 nodes')
        one_line_error('no such node', run('kernel', 'list', 'middle'), 1, "'middle'", 'roost node')
        os.kill(nodes[0].pid, signal.SIGKILL)
        nodes[0].process.wait()
        r = run('kernel', 'list')
        check('the only one that is left', r.returncode == 0 and len(r.stdout.splitlines()) == 2, r)
        check('a dead one\'s socket is removed', not os.path.exists(nodes[0].path()))
    finally:
        for node in nodes:
            node.process.poll() is None and node.end()
    for words in ([], ['nonsense'], ['load'], ['unload'], ['list', 'a', 'b'],
                  ['load', 'a', 'b', 'c']):
        one_line_error(f'kernel {words}', run('kernel', *words), 2)


def watched():
    """Rates of calls with --watch during calls; and commands that refuse --watch."""
    where = addresses('shm')
    node = Node(f'shm:{where[0]}', '--fill', '10', '--kernels', 'get,hll')
    caller = subprocess.Popen(['sh', '-c', 'while :; do "$@"; done >/dev/null 2>&1', 'sh', ROOST,
                               'call', '--port', f'shm:{where[1]}', where[0], 'get', '7'],
                              start_new_session=True)
    end = time.monotonic() + LIMIT
    try:
        while True:
            r = run('kernel', 'stat', '--watch', '0.5', '--count', '3')
            tables = [t.splitlines() for t in r.stdout.split('\n\n')]
            rows = [t[1].split() for t in tables if len(t) == 3]
            moved = len(rows) == 3 and len(rows[2]) == 10 and rows[2][2] != '0'
            if moved or time.monotonic() > end:
                break
        check('watch: three looks, under one head', r.returncode == 0 and len(tables) == 3
              and len({tuple(t[0].split()) for t in tables}) == 1 and 'calls/s' in tables[0][0]
              and 'failures/s' in tables[0][0], r)
        check('watch: rates, but for the first look',
              moved and rows[0][0] == 'get' and len(rows[0]) in (4, 6), r)
        check('watch: nobody calls hll, and nothing fails',
              tables[-1][2].split() == ['hll'] + 7 * ['0'] and rows[-1][3:5] == ['0', '0'], r)
        check('watch: what calls take', tables[0][0].split()[-4:] == ['p50', 'us', 'p99', 'us']
              and 0 < float(rows[-1][8]) <= float(rows[-1][9]), r)
        check('watch: lines up', len({len(line) for line in tables[-1]}) == 1, r)
        r = run('kernel', 'stat', '--watch', '0.05', '--count', '2', '--json')
        looks = [json.loads(line) for line in r.stdout.splitlines()]
        check('watch: as JSON, an object a look',
              r.returncode == 0 and [x['pid'] for x in looks] == [node.pid] * 2, r)
        kernels = {k['name']: k for k in looks[-1]['kernels']}
        took = kernels['get'].get('latency_us', {})
        check('watch: what calls take, as JSON',
              0 < took.get('p50', 0) <= took.get('p99', 0) <= took.get('max', 0)
              and 0 < took.get('count', 0) <= kernels['get']['calls']
              and 'latency_us' not in kernels['hll'], r)
    finally:
        os.killpg(caller.pid, signal.SIGKILL)
        caller.wait()
    with subprocess.Popen([ROOST, 'kernel', 'stat', '--watch', '0.05'], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True) as p:
        p.stdout.readline()
        node.end()
        err = p.communicate(timeout=LIMIT)[1]
    check(f'watch: ends with the node ({err})',
          p.returncode == 1 and 'node' in err and err.count('\n') == 1)
    one_line_error('watch of another verb', run('kernel', 'list', '--watch', '1'), 2, '--watch')
    one_line_error('count alone', run('kernel', 'stat', '--count', '3'), 2, '--watch')


def objects(pid):
    """Returns the number of kernel files that a process has mapped."""
    with open(f'/proc/{pid}/maps') as f:
        return len({line.split()[4] for line in f if 'memfd:waiter-' in line})


def leaving():
    """A version that is replaced during a call is unloaded when the call has ended, without a
    further command."""
    where = addresses('shm')
    with tempfile.TemporaryDirectory() as d:
        mark = os.path.join(d, 'mark')
        os.environ['WAIT_UNTIL'] = mark
        node = Node(f'shm:{where[0]}', '--kernels', 'none')
        try:
            r = run('kernel', 'load', f'{sys.argv[2]}/tests/kernels/waiter-1.so')
            check('loaded', r.returncode == 0 and objects(node.pid) == 1, r)
            with subprocess.Popen([ROOST, 'call', '--port', f'shm:{where[1]}', where[0], '0x2000',
                                   '--json'], stdout=subprocess.PIPE) as p:
                while p.poll() is None and not last_json(
                        run('kernel', 'stat', '--json'))['kernels'][0]['in_flight']:
                    pass
                r = run('kernel', 'replace', f'{sys.argv[2]}/tests/kernels/waiter-2.so')
                check('replaced', r.returncode == 0, r)
                open(mark, 'w').close()
                p.wait(LIMIT)
            end = time.monotonic() + LIMIT
            while objects(node.pid) > 1 and time.monotonic() < end:
                time.sleep(0.02)
            check('the old version has gone', objects(node.pid) == 1)
            r = run('call', '--port', f'shm:{where[1]}', where[0], '0x2000', '--json')
            check('the new one serves', last_json(r).get('hex') == '02000000', r)
            r = run('kernel', 'stat')
            check('what it counts', r.stdout.split('\n')[0].split('  ')[0] == 'kernel'
                  and all(w in r.stdout for w in ('crashed', 'stuck', 'disabled')), r)
        finally:
            node.end()
    del os.environ['WAIT_UNTIL']


def looks(p):
    """Yields the rows of each look of --watch."""
    rows = []
    for line in p.stdout:
        if line.strip():
            rows.append(line.split())
        else:
            yield rows[1:]
            rows = []


def replaced_under_watch():
    """Versions are loaded, replaced and unloaded during --watch without calls: all rates must be 0,
    whichever row has the counts."""
    where = addresses('shm')
    seen = []
    with tempfile.TemporaryDirectory() as d:
        mark = os.path.join(d, 'mark')
        open(mark, 'w').close()
        os.environ['WAIT_UNTIL'] = mark
        node = Node(f'shm:{where[0]}', '--kernels', 'none')
        calling = [ROOST, 'call', '--port', f'shm:{where[1]}', where[0], '0x2000']
        versions = [f'{sys.argv[2]}/tests/kernels/waiter-{v}.so' for v in (1, 2)]
        try:
            check('loaded, to be watched', run('kernel', 'load', versions[0]).returncode == 0
                  and run(*calling[1:]).returncode == 0)
            os.unlink(mark)
            with subprocess.Popen(calling, stdout=subprocess.DEVNULL) as caller, subprocess.Popen(
                    [ROOST, 'kernel', 'stat', '--watch', '0.1'], stdout=subprocess.PIPE,
                    text=True) as p:
                try:
                    page = looks(p)

                    def until(what):
                        end = time.monotonic() + LIMIT
                        while time.monotonic() < end:
                            seen.append(next(page))
                            if what(seen[-1]):
                                return True
                        return False
                    check(
                        'watch: two calls, one under way',
                        until(lambda rows: rows[0][0:2] == ['waiter', '2'] and len(rows[0]) == 10))
                    del seen[:]
                    check('watch: replaced', run('kernel', 'replace', versions[1]).returncode == 0)
                    check('watch: two versions', until(lambda rows: len(rows) == 2))
                    open(mark, 'w').close()
                    check('watch: the old one has gone',
                          until(lambda rows: len(rows) == 1 and rows[0][1] == '2'))
                    check('watch: replaced again',
                          run('kernel', 'replace', versions[0]).returncode == 0)
                    check('watch: goes on',
                          all(until(lambda rows: len(rows) == 1) for _ in range(3)))
                finally:
                    open(mark, 'w').close()
                    p.kill()
                    caller.wait(LIMIT)
        finally:
            node.end()
    del os.environ['WAIT_UNTIL']
    check(f'watch: no call, no rate ({seen})',
          all(len(rows[0]) >= 8 and rows[0][2] == rows[0][4] == '0' for rows in seen)
          and all(len(row) in (4, 6) for rows in seen for row in rows[1:]))


def cpu(pid):
    """Seconds of CPU time of a process."""
    with open(f'/proc/{pid}/stat') as f:
        fields = f.read().rpartition(')')[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf('SC_CLK_TCK')


def settled(pid):
    """Descriptors of a process that has none open for a moment only: twice the same, in a row."""
    end = time.monotonic() + 60
    last = None
    while time.monotonic() < end:
        now = sorted(map(int, os.listdir(f'/proc/{pid}/fd')))
        if now == last:
            return now
        last = now
        time.sleep(0.1)
    raise AssertionError(f'descriptors of {pid}: {last}')


def fill_gaps(node):
    """Returns the number of descriptors of a node, which have no gaps then, so a limit of this
    number leaves none free, and silent clients, which fill the gaps. Another descriptor may have
    been open for a moment when the last one was made."""
    fillers = []
    while len(fillers) < 40:
        now = settled(node.pid)
        if now == list(range(len(now))):
            return len(now), fillers
        fillers.append(socket.socket(socket.AF_UNIX))
        fillers[-1].connect(node.path())
    raise AssertionError(f'descriptors of {node.pid}: {now}')


def check_rest(node, limit):
    """The node has no free descriptor, and lost its spare one, whose number is above the limit. It
    does not keep a core busy, and answers when it has a descriptor."""
    most = 13  # poll(2) takes no more entries than the limit
    assert all(n in map(int, os.listdir(f'/proc/{node.pid}/fd')) for n in range(most))
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(60)
        resource.prlimit(node.pid, resource.RLIMIT_NOFILE, (most, limit[1]))
        s.connect(node.path())
        s.sendall(b'{"do": "stat"}\n')
        before, start = cpu(node.pid), time.monotonic()
        time.sleep(1)
        check('without a spare descriptor it rests',
              cpu(node.pid) - before < 0.2 * (time.monotonic() - start))
        resource.prlimit(node.pid, resource.RLIMIT_NOFILE, limit)
        check('and answers later', s.recv(65536) != b'')


def nonsense():
    """Invalid requests at the control socket, and many silent clients: the node answers or hangs
    up, and continues."""
    where = addresses('shm')
    node = Node(f'shm:{where[0]}', '--kernels', 'get')
    rng = random.Random(7)

    def say(data, end=True):
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(60)
            s.connect(node.path())
            try:
                s.sendall(data)
                if end:
                    s.shutdown(socket.SHUT_WR)
                return b''.join(iter(lambda: s.recv(65536), b''))
            except (BrokenPipeError, ConnectionResetError):
                return b''

    try:
        for data in (b'\n', b'{}\n', b'[1]\n', b'{"do": 7}\n', b'{"do": "load"}\n',
                     b'{"do": "load", "file": "relative.so"}\n',
                     b'{"do": "unload"}\n', b'{"do": "unload", "kernel": ""}\n',
                     b'{"do": "stat", "do": "stat"}\n', b'x' * 8192,
                     b'{"do": "load", "file": "/' + b'x' * 5000 + b'"}\n',
                     b'{"do": "unload", "op": 99}\n', b'{"do": "stat"}\0\n',
                     b'[' * 8000 + b'\n'):
            answer = say(data, end=False)
            check(f'an error for {data[:40]}', 'error' in json.loads(answer or b'{}'))
        for _ in range(300):
            kind = rng.randrange(3)
            data = bytes(rng.randrange(256) for _ in range(rng.randrange(200)))
            if kind:
                text = bytearray(b'{"do": "unload", "kernel": "abc", "file": "/x", "op": 5}')
                for _ in range(rng.randrange(1, 4)):
                    text[rng.randrange(len(text))] = rng.randrange(256)
                data = bytes(text) + (b'\n' if kind == 1 else b'')
            say(data)
        least, fillers = fill_gaps(node)
        before = resource.prlimit(node.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(node.pid, resource.RLIMIT_NOFILE, (least, before[1]))
        check('without a free descriptor it hangs up', say(b'{"do": "stat"}\n') == b'')
        resource.prlimit(node.pid, resource.RLIMIT_NOFILE, before)
        check('with one it answers', say(b'{"do": "stat"}\n', end=False) != b'')
        for s in fillers:
            s.close()
        check_rest(node, before)
        silent = [socket.socket(socket.AF_UNIX) for _ in range(40)]
        for s in silent:
            s.connect(node.path())
        r = run('kernel', 'list')
        check('others say nothing, and it answers', r.returncode == 0 and 'get' in r.stdout, r)
        for s in silent:
            s.close()
        check('it runs', node.process.poll() is None)
    finally:
        check('and ends well', node.end()[0] == 0)


for k in ('host', 'udp', 'shm'):
    serves(k)
tables()
chosen()
watched()
leaving()
replaced_under_watch()
nonsense()
finish()
