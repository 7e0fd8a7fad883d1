#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""A store in a node, used by another process: by a program that checks every value, and by `roost
kv`."""
import json
import os
import pty
import signal
import subprocess
import sys
import tempfile

from cli import LIMIT, ROOST, check, finish, last_json, obeying_modes, one_line_error, run
from node import Node, addresses

CLIENT = os.path.join(sys.argv[2], 'tests', 'kvclient', 'kv-client')
COUNTS = os.path.join(sys.argv[2], 'tests', 'kvclient', 'kv-counts')
CALLBACKS = os.path.join(sys.argv[2], 'tests', 'kvclient', 'kv-callbacks')


def callbacks(spec, where):
    r = subprocess.run([CALLBACKS, where], env=dict(os.environ, ROOST_PORT=spec),
                       stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT,
                       check=False)
    check(f'callbacks submit again over {spec}', r.returncode == 0 and r.stdout == 'ok\n', r)


def program(spec, where, rounds):
    r = subprocess.run([CLIENT, where, str(rounds)], env=dict(os.environ, ROOST_PORT=spec),
                       stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT,
                       check=False)
    check(f'a program over {spec}', r.returncode == 0 and r.stdout == 'ok\n', r)


def counts(spec, where, n):
    r = subprocess.run([COUNTS, where, 'count', str(n)], env=dict(os.environ, ROOST_PORT=spec),
                       stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT,
                       check=False)
    check(f'each increment over {spec} is applied once', r.returncode == 0 and r.stdout == 'ok\n',
          r)


def stopped(kind, where):
    """A client that takes no replies: its ring and its send queue fill up, and another client is
    not affected."""
    beside = where[1][:-1] + '3'
    with subprocess.Popen([COUNTS, where[0], 'stop'],
                          env=dict(os.environ, ROOST_PORT=f'{kind}:{where[1]}'),
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as p:
        check(f'{kind}: a client that stops', p.stdout.readline() == 'stops\n')
        os.waitpid(p.pid, os.WUNTRACED)
        for args in (['put', where[0], 'other', 'value'],
                     ['bench', where[0], '--keys', '200', '--duration', '0.1'],
                     ['get', where[0], 'other']):
            r = run('kv', '--port', f'{kind}:{beside}', *args)
            check(f'{kind}: beside a client that takes no replies: {args[0]}', r.returncode == 0, r)
        p.send_signal(signal.SIGCONT)
        check(f'{kind}: it goes on, and gets all replies',
              p.stdout.read() == 'ok\n' and p.wait(LIMIT) == 0)


def command(kind, where):
    def kv(*args, env=None, before=()):
        return run('kv', '--port', f'{kind}:{where[1]}', *args, env=env, before=before)

    def says(what, out, *args):
        r = kv(*args)
        check(f'{kind}: {what}', r.returncode == 0 and r.stdout == out, r)

    says('put', '', 'put', where[0], 'colour', 'green')
    says('get', 'green\n', 'get', where[0], 'colour')
    says('incr of no key', '1\n', 'incr', where[0], 'count')
    says('incr', '42\n', 'incr', where[0], 'count', '41')
    for n in ('abc', '1x', '-5', '99999999999999999999'):
        one_line_error(f'incr by {n}', kv('incr', where[0], 'count', n), 2, f"'{n}'")
    for verb, *rest in (('get',), ('put', 'v'), ('del',), ('incr',), ('update', 'add', '1')):
        one_line_error(f'{verb} of an empty key', kv(verb, where[0], '', *rest), 2, '1 to 255')
    one_line_error('a key that is too long', kv('get', where[0], 'k' * 256), 1, '255 bytes')
    files(kv, where[0])
    to_files(kv, where[0])
    one_line_error('a port of no kind', run('kv', '--port', 'foo:1', 'get', where[0], 'k'), 2,
                   "'foo:1' is no port")
    one_line_error('a port of no kind in the environment',
                   run('kv', 'get', where[0], 'k', env={'ROOST_PORT': 'udp;foo:1'}), 2,
                   "'foo:1' is no port")
    one_line_error('incr of a text', kv('incr', where[0], 'colour'), 1, 'decimal')
    r = kv('scan', where[0])
    check('scan', r.returncode == 0 and {'colour\tgreen', 'count\t42'} <= set(r.stdout.split('\n')),
          r)
    r = kv('scan', where[0], '--keys-only')
    check('scan of keys', r.returncode == 0 and {'colour', 'count'} <= set(r.stdout.split('\n')), r)
    says('put of a vector', '', 'put', where[0], 'vector', '1,2,300', '--type', 'u32')
    says('update', '1,2,300\n', 'update', where[0], 'vector', 'add', '10', '--type', 'u32',
         '--fetch')
    says('update with a vector', '', 'update', where[0], 'vector', 'max', '0,100,7', '--type',
         'u32')
    says('get of a vector', '11,100,310\n', 'get', where[0], 'vector', '--type', 'u32')
    says('put of negative numbers', '', 'put', where[0], 'signed', '-1,2,-3', '--type', 'i16')
    says('update by a negative number', '-1,2,-3\n', 'update', where[0], 'signed', 'mul', '-5',
         '--type', 'i16', '--fetch')
    says('reduce from a negative number', '3\n', 'reduce', where[0], 'signed', 'add', '-7',
         '--type', 'i16')
    says('reduce', '421\n', 'reduce', where[0], 'vector', 'add', '0', '--type', 'u32')
    says('filter', '100,310\n', 'filter', where[0], 'vector', 'gt', '11', '--type', 'u32')
    one_line_error('a vector of another length',
                   kv('update', where[0], 'vector', 'add', '1,2', '--type', 'u32'), 1,
                   'not as long')
    one_line_error('a type that does not fit', kv('reduce', where[0], 'vector', 'add', '0'), 1,
                   'not a vector of this type')
    one_line_error('bits of floats',
                   kv('update', where[0], 'vector', 'xor', '1', '--type', 'float'), 1,
                   'no such function')
    one_line_error('a number out of range',
                   kv('update', where[0], 'vector', 'add', '4294967296', '--type', 'u32'), 2,
                   'no list of numbers')
    one_line_error('no function', kv('update', where[0], 'vector', 'plus', '1'), 2, "'plus'")
    says('del', '', 'del', where[0], 'colour')
    one_line_error('get of no key', kv('get', where[0], 'colour'), 1, 'no such key')
    one_line_error('del of no key', kv('del', where[0], 'colour'), 1, 'no such key')
    r = kv('bench', where[0], '--keys', '1000', '--duration', '0.2', '--json', '--zipf', '0.9')
    j = last_json(r)
    check('bench',
          r.returncode == 0 and j.get('per_second', 0) > 0 and 0 < j['p50_us'] <= j['p99_us'], r)
    workloads(kv, where[0])
    r = kv('stat', where[0], '--json')
    check('stat', r.returncode == 0 and last_json(r).get('pairs', 0) > 1000
          and json.loads(r.stdout)['batches'] > 10, r)


def files(kv, node):
    """Values from files. Arguments are not that long on Linux."""
    most = 1 << 20
    with tempfile.NamedTemporaryFile() as f:
        f.write(bytes(range(65, 91)) * (most // 26) + b'-' * (most % 26))
        f.flush()
        r = kv('put', node, 'long', '--from', f.name)
        check('put of a mebibyte', r.returncode == 0 and not r.stdout and not r.stderr, r)
        f.write(b'x')
        f.flush()
        one_line_error('put of a mebibyte and a byte', kv('put', node, 'long', '--from', f.name), 1,
                       '1 MiB')
        r = kv('get', node, 'long')
        check('the long value is as before', r.returncode == 0 and len(r.stdout) == most + 1
              and r.stdout.startswith('ABC') and r.stdout.endswith('-\n'), r)
        one_line_error('put of a value and a file',
                       kv('put', node, 'long', 'value', '--from', f.name), 2, 'unexpected')
        one_line_error('get with a file', kv('get', node, 'long', '--from', f.name), 2, '--from')
    r = kv('put', node, 'long', '--from', '-')  # standard input is empty
    check('put from standard input', r.returncode == 0 and kv('get', node, 'long').stdout == '\n',
          r)
    one_line_error('put of no file', kv('put', node, 'long', '--from', '/no/file'), 1,
                   '/no/file: No such file')
    one_line_error('put of a folder', kv('put', node, 'long', '--from', '/'), 1, 'directory')
    kv('del', node, 'long')


def to_a_folder_that_is_not_synced(kv, node):
    """The command may create files in the folder, but not open it, so only its sync fails."""
    before = obeying_modes()
    if before is None:
        print('SKIPPED: a folder that is not synced: setpriv is refused')
        return
    with tempfile.TemporaryDirectory() as d:
        to = os.path.join(d, 'to')
        os.chmod(d, 0o300)
        try:
            one_line_error('get into a folder that is not synced',
                           kv('get', node, 'bytes', '--to', to, before=before), 1,
                           f'{to}: the new file is in place', 'Permission denied')
            check('it has the value', os.path.getsize(to) > 0)
        finally:
            os.chmod(d, 0o700)


def to_files(kv, node):
    """`get --to` writes the value's bytes, and replaces the file as a whole."""
    value = bytes(range(256)) * 999 + b'\x1b]0;no line break'
    with tempfile.TemporaryDirectory() as d:
        source, old, to = (os.path.join(d, name) for name in ('source', 'old', 'to'))
        for path, content in (source, value), (old, b'old'):
            with open(path, 'wb') as f:
                f.write(content)

        def reads(path):
            with open(path, 'rb') as f:
                return f.read()

        os.chmod(old, 0o640)
        os.link(old, to)  # the former file
        os.symlink('to', os.path.join(d, 'name'))
        r = kv('put', node, 'bytes', '--from', source)
        check('put of any bytes', r.returncode == 0, r)
        one_line_error('get of no key to a file', kv('get', node, 'none', '--to', to), 1,
                       'no such key')
        check('the file is as it was', reads(to) == b'old')
        r = kv('get', node, 'bytes', '--to', os.path.join(d, 'name'))
        check('get to a file', r.returncode == 0 and not r.stdout and not r.stderr, r)
        check('the file has exactly the value', reads(to) == value)
        check('it was replaced, not overwritten', reads(old) == b'old')
        check('it has the mode of the former file', os.stat(to).st_mode & 0o777 == 0o640)
        check('a symbolic link stays', os.path.islink(os.path.join(d, 'name')))
        os.unlink(to)
        r = kv('get', node, 'bytes', '--to', to)
        check('get to a new file', r.returncode == 0 and reads(to) == value, r)
        kv('put', node, 'empty', '')
        r = kv('get', node, 'empty', '--to', to)
        check('get of an empty value to a file', r.returncode == 0 and reads(to) == b'', r)
        os.mkfifo(os.path.join(d, 'pipe'))
        one_line_error('get to a pipe', kv('get', node, 'bytes', '--to', os.path.join(d, 'pipe')),
                       1, 'is no file')
        one_line_error('get to a folder', kv('get', node, 'bytes', '--to', d), 1, 'directory')
        one_line_error('get into no folder', kv('get', node, 'bytes', '--to', f'{d}/no/file'), 1,
                       '/no/file: No such file')
        one_line_error('put to a file', kv('put', node, 'bytes', 'v', '--to', to), 2, '--to')
        check('no other file is left', sorted(os.listdir(d)) == ['name', 'old', 'pipe', 'source',
                                                                 'to'])
    to_a_folder_that_is_not_synced(kv, node)
    kv('put', node, 'bytes', 'text')
    r = kv('get', node, 'bytes', '--to', '-')
    check('get to standard output', r.returncode == 0 and r.stdout == 'text', r)
    kv('del', node, 'bytes')
    kv('del', node, 'empty')


def on_a_terminal(*args):
    """Returns what a terminal gets from the command."""
    mine, its = pty.openpty()
    with subprocess.Popen([ROOST, 'kv', *args], stdin=subprocess.DEVNULL, stdout=its) as p:
        os.close(its)
        out = b''
        try:
            while part := os.read(mine, 65536):
                out += part
        except OSError:  # the other end is closed
            pass
        os.close(mine)
        check(f'{args} on a terminal', p.wait(LIMIT) == 0)
    return out


def terminal(kind, where):
    """Values that other programs have chosen send no control characters to a terminal."""
    value = b'a\x1b[31m\xc3\xa9\x00\xff\nb\tc'
    with tempfile.NamedTemporaryFile() as f:
        f.write(value)
        f.flush()
        port = '--port', f'{kind}:{where[1]}'
        run('kv', *port, 'put', where[0], '\x1b]0;key', '--from', f.name)
        r = subprocess.run([ROOST, 'kv', *port, 'get', where[0], '\x1b]0;key'],
                           stdin=subprocess.DEVNULL, capture_output=True, timeout=LIMIT,
                           check=False)
        check('a pipe gets the bytes', r.stdout == value + b'\n', r)
        plain = b'a?[31m\xc3\xa9??\r\nb\tc\r\n'
        check('get', on_a_terminal(*port, 'get', where[0], '\x1b]0;key') == plain)
        check('scan', b'?]0;key\t' + plain in on_a_terminal(*port, 'scan', where[0]))
        run('kv', *port, 'del', where[0], '\x1b]0;key')


def workloads(kv, node):
    """The workloads of YCSB: D adds keys and reads the newest; F writes after half of its reads."""
    for name in 'ABCDF':
        before = last_json(kv('stat', node, '--json'))
        r = kv('bench', node, '--workload', name, '--zipf', '0.99', '--keys', '1000', '--duration',
               '0.1', '--json')
        after, j = last_json(kv('stat', node, '--json')), last_json(r)
        check(f'workload {name}', r.returncode == 0 and j['workload'] == name
              and j['put_percent'] == {'A': 50, 'B': 5, 'C': 0, 'D': 5, 'F': 50}[name]
              and j['per_second'] > 0, r)
        check(f'workload {name}: keys', (after['pairs'] > before['pairs']) == (name == 'D'))
        # The difference has the 1000 keys that were stored, and those in flight at the end.
        times = (after['operations'] - before['operations'] - 1000) / j['operations']
        check(f'workload {name}: operations',
              times > 1.3 if name == 'F' else times < 1.3 or j['operations'] < 5000)
    one_line_error('a workload of get', kv('get', node, 'a', '--workload', 'A'), 2, 'for bench')
    one_line_error('no workload', kv('bench', node, '--workload', 'E'), 2, '--workload')


def killed(kind, where):
    """A client that is killed in the middle of its batches: the store is whole, and serves
    others."""
    beside = where[1][:-1] + '3'
    for _ in range(3):
        with subprocess.Popen([ROOST, 'kv', '--port', f'{kind}:{where[1]}', 'bench', where[0],
                               '--keys', '500', '--put', '100', '--value', '3000', '--duration',
                               '60'], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as p:
            while p.poll() is None and last_json(run('kv', '--port', f'{kind}:{beside}', 'stat',
                                                     where[0], '--json')).get('pairs', 0) < 500:
                pass
            check(f'{kind}: a client to kill', p.poll() is None)
            p.kill()
    r = run('kv', '--port', f'{kind}:{where[1]}', 'bench', where[0], '--keys', '500', '--put', '0',
            '--value', '3000', '--duration', '0.1')
    check(f'{kind}: after clients were killed, each value is that of its key', r.returncode == 0, r)


def far():
    """A store whose memory is a file: a small part of it is in near memory."""
    where = addresses('shm')
    one_line_error('a far tier of nothing', run('node', '--kv-far', '.'), 2, '--kv SIZE')
    one_line_error('near memory of nothing', run('node', '--kv', '16M', '--kv-near', '1M'), 2,
                   '--kv-far FOLDER')
    one_line_error('no folder', run('node', '--port', f'shm:{where[0]}', '--kv', '16M', '--kv-far',
                                    '/no/folder'), 1, '/no/folder')
    node = Node(f'shm:{where[0]}', '--kv', '16M', '--kv-far', '.', '--kv-near', '1M')
    try:
        # The benchmark checks that each value is that of its key.
        r = run('kv', '--port', f'shm:{where[1]}', 'bench', where[0], '--keys', '2000', '--put',
                '50', '--value', '1500', '--duration', '0.3')
        check('far: bench', r.returncode == 0 and 'forwarded' in r.stdout, r)
        r = run('kv', '--port', f'shm:{where[1]}', 'bench', where[0], '--keys', '2000', '--put',
                '50', '--value', '1500', '--zipf', '0.99', '--duration', '0.3', '--json')
        b = last_json(r)
        check('far: shares', 0 < b['forwarded'] < 1 and b['merged'] > 0 and
              0.2 < b['near_hits'] < 1, r)
        r = run('kv', '--port', f'shm:{where[1]}', 'stat', where[0], '--json')
        s = last_json(r)
        check('far: stat',
              s['far_reads'] > 0 and s['far_writes'] > 0 and
              s['near_hits'] == s['accesses'] - s['far_reads'] > 0, r)
    finally:
        check('far: it ends well', node.end()[0] == 0)


def far_file_system_is_full():
    """The file of the far tier has holes, and another file takes the space that the node found free
    at its start."""
    where = addresses('shm')
    unshare = ['unshare', '-m' if os.geteuid() == 0 else '-rm']
    if subprocess.run([*unshare, 'true'], stderr=subprocess.DEVNULL, check=False).returncode:
        print('SKIPPED: a full file system: unshare is refused')
        return

    def kv(*args):
        return run('kv', '--port', f'shm:{where[1]}', *args)

    with tempfile.TemporaryDirectory() as d:
        small, snapshot = os.path.join(d, 'small'), os.path.join(d, 'snapshot')
        os.mkdir(small)
        node = Node(f'shm:{where[0]}', '--kv', '16M', '--kv-far', small, '--kv-near', '1M',
                    '--snapshot', snapshot,
                    before=[*unshare, 'sh', '-c',
                            'mount -t tmpfs -o size=20m none "$0" && exec "$@"', small])
        try:
            check('full: put', kv('put', where[0], 'colour', 'green').returncode == 0)
            r = run('kv', 'snapshot', where[0])
            check('full: a snapshot before', r.returncode == 0, r)
            with open(snapshot, 'rb') as f:
                before = f.read()
            inside = f'/proc/{node.pid}/root{small}'
            left = os.statvfs(inside)
            with open(os.path.join(inside, 'other'), 'wb') as f:
                f.write(bytes(left.f_bavail * left.f_frsize - (1 << 20)))
            one_line_error('full: bench', kv('bench', where[0], '--keys', '4000', '--value', '1500',
                                             '--duration', '0.1'), 1, 'far_errors')
            one_line_error('full: get', kv('get', where[0], 'colour'), 1, 'far_errors')
            one_line_error('full: put', kv('put', where[0], 'k', 'v'), 1, 'far_errors')
            one_line_error('full: scan', kv('scan', where[0]), 1, 'far_errors')
            r = kv('stat', where[0], '--json')
            check('full: stat counts it', last_json(r).get('far_errors', 0) > 0, r)
            one_line_error('full: a snapshot', run('kv', 'snapshot', where[0]), 1,
                           'the old file is as it was')
            with open(snapshot, 'rb') as f:
                check('full: it is as it was', f.read() == before)
        finally:
            said = node.end()[1].splitlines()
        check(f'full: the node prints one line about the file ({said})',
              [line for line in said if small in line and 'No space left' in line and
               '--kv-far' in line] == said[:1] and
              all('snapshot' in line for line in said[1:]))


def use_settings(t):
    """A node takes the settings: a pair of 10 bytes is inline if they say so."""
    where = addresses('shm')
    node = Node(f'shm:{where[0]}', '--kv', str(t['size']), '--kv-index', str(t['buckets']),
                '--kv-inline', str(t['inline_max']))
    try:
        for n in range(10):
            r = run('kv', '--port', f'shm:{where[1]}', 'put', where[0], f'key{n:03}', 'four')
            check('put', r.returncode == 0, r)
        r = run('kv', '--port', f'shm:{where[1]}', 'stat', where[0], '--json')
        stat = json.loads(r.stdout)
        check('the index has these buckets', stat['buckets'] == t['buckets'], r)
        check('the threshold is that of the tuner',
              stat['inline_pairs'] == (10 if t['inline_max'] >= 10 else 0), r)
    finally:
        check('it ends well', node.end()[0] == 0)


def tune():
    """The tuner needs no node. Its settings follow the sizes."""
    def settings(*args):
        r = run('kv', 'tune', '64M', '--json', *args)
        check(f'tune {args}', r.returncode == 0, r)
        return json.loads(r.stdout)

    small = settings('--sizes', '10', '--utilization', '0.2')
    large = settings('--sizes', '74,254:2', '--utilization', '0.2')
    check('small pairs are inline', small['inline_max'] == 10 and small['get'] < 1.2)
    check('large pairs are records', large['inline_max'] == 0 and 2 <= large['get'] < 2.1)
    check('the index and the pairs fill the memory',
          all(t['buckets'] * 64 + t['size'] == 64 << 20 for t in (small, large)))
    for t in (small, large):
        use_settings(t)
    r = run('kv', 'tune', '64M', '--sizes', '10', '--utilization', '0.8')
    one_line_error('pairs that do not fit', r, 1, '--utilization')
    one_line_error('tune without sizes', run('kv', 'tune', '64M'), 2, '--sizes')
    one_line_error('no list of sizes', run('kv', 'tune', '64M', '--sizes', '10:,3'), 2, "'10:,3'")
    one_line_error('no memory', run('kv', 'tune', 'much', '--sizes', '10'), 2, "'much'")
    one_line_error('too little memory', run('kv', 'tune', '1M', '--sizes', '10'), 2, '4 MiB')


def without_a_store():
    where = addresses('shm')
    node = Node(f'shm:{where[0]}')
    try:
        r = run('kv', '--port', f'shm:{where[1]}', 'get', where[0], 'key')
        one_line_error('a node without a store', r, 1, '--kv SIZE')
    finally:
        check('it ends well', node.end()[0] == 0)
    one_line_error('a verb that is none', run('kv', 'fetch', where[0]), 2, "'fetch'")
    one_line_error('eviction of nothing', run('node', '--kv-evict'), 2, '--kv SIZE')
    one_line_error('an index of nothing', run('node', '--kv-index', '9'), 2, '--kv SIZE')
    one_line_error('too long for the index', run('node', '--kv', '1M', '--kv-inline', '45'), 2,
                   '--kv-inline')
    one_line_error('a kernel without its size',
                   run('node', '--port', f'shm:{where[0]}', '--kernels', 'kv'), 1, '--kv SIZE')


for kind, options, rounds in ('shm', '', 400), ('udp', '', 150), ('udp', ',loss=0.05', 40):
    where = addresses(kind)
    node = Node(f'{kind}:{where[0]}{options}', '--kv', '64M')
    try:
        if not options:
            command(kind, where)
            terminal(kind, where)
            killed(kind, where)
            stopped(kind, where)
        program(f'{kind}:{where[1]}{options}', where[0], rounds)
        if kind == 'shm' and not options:
            callbacks(f'{kind}:{where[1]}', where[0])
        counts(f'{kind}:{where[1]}{options}', where[0], 20000 if not options else 2000)
    finally:
        status, said = node.end()
        check(f'the node over {kind}{options} ends well ({said})', status == 0)
without_a_store()
tune()
far()
far_file_system_is_full()
finish()
