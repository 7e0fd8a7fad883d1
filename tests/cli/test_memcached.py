#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""The store of a node for memcached's clients: a small client of our own, libmemcached's
memccapable, and the Python modules pymemcache and memcache (python-memcached).

The last three are stock programs, used where they are installed."""
import os
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time

from cli import LIMIT, check, finish, one_line_error, run
from node import Node, addresses

sys.path.append('/usr/lib/python3/dist-packages')
try:
    import pymemcache
except ImportError:
    pymemcache = None
try:
    import memcache
except ImportError:
    memcache = None

where = addresses('shm')
unix = os.path.join(os.environ['ROOST_SHM_DIR'], 'memcached')


def free_port():
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        return s.getsockname()[1]


PORT = free_port()


def connect(path=None):
    s = socket.socket(socket.AF_UNIX if path else socket.AF_INET)
    s.settimeout(LIMIT)
    s.connect(path or ('127.0.0.1', PORT))
    return s


def talk(data, path=None, pieces=None):
    """Sends the data, whole or in pieces of that length, and reads until the server closes."""
    with connect(path) as s:
        def send():
            for i in range(0, len(data), pieces or len(data)):
                s.sendall(data[i:i + (pieces or len(data))])
        sender = threading.Thread(target=send)
        sender.start()
        reply = b''.join(iter(lambda: s.recv(65536), b''))
        sender.join()
        return reply


def says(what, request, reply, **how):
    got = talk(request + b'quit\r\n', **how)
    check(f'{what}: {got[:300]!r}', got == reply)


def text():
    for how in {}, {'path': unix}, {'pieces': 1}:
        says(
            'text',
            b'flush_all\r\nset a 5 0 3\r\nabc\r\nget a b\r\nadd a 0 0 1\r\nx\r\nadd b 0 0 1 '
            b'noreply\r\nx\r\nappend a 0 0 2\r\nde\r\n'
            b'prepend a 9 9 1\r\n-\r\nget b a\r\nreplace c 0 0 1\r\nx\r\nreplace b 1 0 0\r\n\r\n'
            b'get b\r\ndelete b\r\ndelete b\r\n',
            b'OK\r\nSTORED\r\nVALUE a 5 3\r\nabc\r\nEND\r\nNOT_STORED\r\nSTORED\r\nSTORED\r\nVALUE '
            b'b 0 1\r\nx\r\nVALUE a 5 6\r\n-abcde\r\nEND\r\n'
            b'NOT_STORED\r\nSTORED\r\nVALUE b 1 0\r\n\r\nEND\r\nDELETED\r\nNOT_FOUND\r\n', **how)
    says(
        'numbers',
        b'set n 0 0 1\r\n8\r\nincr n 5\r\ndecr n 20\r\ndecr m 1\r\nincr a 1\r\nincr n x\r\nset n 0 '
        b'0 20\r\n18446744073709551615\r\nincr n 2\r\n',
        b'STORED\r\n13\r\n0\r\nNOT_FOUND\r\nCLIENT_ERROR cannot increment or decrement non-numeric '
        b'value\r\n'
        b'CLIENT_ERROR invalid numeric delta argument\r\nSTORED\r\n1\r\n')
    for number, command, reply in ((b'10\n', b'incr n 5', b'15'), (b' 7  ', b'decr n 2', b'5'),
                                   (b'1 2', b'incr n 1', b''), (b' ', b'incr n 1', b'')):
        says(f'white space around a number: {number}',
             b'set n 0 0 %d\r\n%s\r\n%s\r\n' % (len(number), number, command),
             b'STORED\r\n%s\r\n' % (reply or b'CLIENT_ERROR cannot increment or decrement '
                                     b'non-numeric value'))
    says('time',
         b'set t 0 -1 1\r\nx\r\nget t\r\nset t 0 1000 1\r\nx\r\ntouch t 2000\r\ngat -1 t\r\nget '
         b't\r\ntouch t 1\r\n',
         b'STORED\r\nEND\r\nSTORED\r\nTOUCHED\r\nVALUE t 0 1\r\nx\r\nEND\r\nEND\r\n'
         b'NOT_FOUND\r\n')
    cas = talk(b'set c 0 0 1\r\nx\r\ngets c\r\nquit\r\n').split(b'\r\n')[1].split()[4]
    says('cas',
         b'cas c 0 0 1 1\r\ny\r\ncas c 0 0 1 %s\r\ny\r\ncas c 0 0 1 %s\r\nz\r\nget c\r\ncas none 0 '
         b'0 1 1\r\ny\r\n' % (cas, cas),
         b'EXISTS\r\nSTORED\r\nEXISTS\r\nVALUE c 0 1\r\ny\r\nEND\r\nNOT_FOUND\r\n')
    stats = talk(b'stats\r\nquit\r\n').decode().split('\r\n')
    # An item that has expired leaves the store within a second.
    items = [line for line in stats if line.startswith('STAT curr_items')]
    check(f'stats: {stats}', items in (['STAT curr_items 3'], ['STAT curr_items 4'])
          and stats[-2] == 'END')


def hidden():
    """An item whose time is over is not there for a client, although the store may have it for a
    second."""
    over = b'set h 0 1000 1\r\nx\r\ngat -1 h\r\n'
    there = b'STORED\r\nVALUE h 0 1\r\nx\r\nEND\r\n'
    for request, reply in ((b'replace h 0 0 1\r\ny\r\n', b'NOT_STORED\r\n'),
                           (b'ms h 1 MR\r\ny\r\n', b'NS\r\n'),
                           (b'delete h\r\n', b'NOT_FOUND\r\n'),
                           (b'md h\r\n', b'NF\r\n')):
        says(f'hidden: {request}', over + request, there + reply)
    says('deleted by its cas', b'ms h 1 E7\r\nx\r\nmd h C7\r\nmd h\r\nms h 1 MR\r\ny\r\n',
         b'HD\r\nHD\r\nNF\r\nNS\r\n')
    long = b'v' * 100000
    says('a long item that is deleted', b'set h 0 0 %d\r\n%s\r\ndelete h\r\ndelete h\r\n' % (
        len(long), long), b'STORED\r\nDELETED\r\nNOT_FOUND\r\n')


def meta():
    says(
        'meta',
        b'flush_all\r\nmg a v\r\nms a 3 F7 T0\r\nabc\r\nmg a v f t s k O42 u\r\nms a 2 MA q\r\n'
        b'de\r\nmg a v\r\nms a 1 ME\r\nx\r\nmd a C1\r\n'
        b'md a q\r\nmd a\r\nmg a q\r\nma a N0 J5 v\r\nma a D3 v\r\nma a MD D100 v\r\nms bm9kZQ== 2 '
        b'b k\r\nhi\r\nget node\r\nmn\r\nme none\r\nmg a Y\r\n',
        b'OK\r\nEN\r\nHD\r\nVA 3 f7 t-1 s3 ka O42\r\nabc\r\nVA 5\r\nabcde\r\nNS\r\nEX\r\nNF\r\nVA '
        b'1\r\n5\r\nVA 1\r\n8\r\nVA 1\r\n0\r\n'
        b'HD kbm9kZQ== b\r\nVALUE node 0 2\r\nhi\r\nEND\r\nMN\r\nEN\r\nCLIENT_ERROR invalid '
        b'flag\r\n')
    says('the size of the whole item', b'ms size 3 s\r\nabc\r\nms size 2 MA s\r\nde\r\n'
         b'ms size 1 MP s\r\n-\r\nms size 4 MA N0 s\r\nmore\r\n',
         b'HD s3\r\nHD s5\r\nHD s6\r\nHD s10\r\n')
    says('a quiet number', b'ma quiet N0 J5 v q\r\nma quiet v q\r\nma quiet q\r\nma quiet v\r\n',
         b'VA 1\r\n8\r\n')
    says('the time of an item that is over', b'ms t 1\r\nx\r\nmg t t T-1\r\n',
         b'HD\r\nHD t0\r\n')
    says('a compare with a missing item', b'ms lost 2 C5 q\r\nhi\r\nms lost 2 C5 ME\r\nhi\r\n'
         b'md lost C1 q\r\nmd none q\r\nma none q\r\nmn\r\n', b'NF\r\nHD\r\nEX\r\nMN\r\n')
    says(
        'one client stores anew',
        b'mg w v N1000\r\nmg w v N1000\r\nms w 1\r\nx\r\nmg w v N1000\r\nmd w I T1000\r\nmg w v\r\n'
        b'mg w v\r\nms w 1\r\ny\r\nmg w v\r\n',
        b'VA 0 W\r\n\r\nVA 0 Z\r\n\r\nHD\r\nVA 1\r\nx\r\nHD\r\nVA 1 W X\r\nx\r\nVA 1 X Z\r\nx\r\n'
        b'HD\r\nVA 1\r\ny\r\n')


def long_values():
    big = bytes(i * 7 % 251 for i in range(1 << 20 - 8))
    big = (big * 260)[:(1 << 20) - 20]
    says('the longest value', b'set big 0 0 %d\r\n%s\r\nget big\r\n' % (len(big), big),
         b'STORED\r\nVALUE big 0 %d\r\n%s\r\nEND\r\n' % (len(big), big))
    # A client that could not store its value must not get the old one.
    for store in b'set big2 0 0 %d', b'ms big2 %d':
        says('a longer value', b'set big2 0 0 1\r\nx\r\n' + store % (len(big) + 1) +
             b'\r\n%sx\r\nget big2\r\n' % big,
             b'STORED\r\nSERVER_ERROR object too large for cache\r\nEND\r\n')
    says('a longer value to add', b'set big2 0 0 1\r\nx\r\nadd big2 0 0 %d\r\n%s\r\nget big2\r\n'
         b'delete big2\r\n' % (len(big) + 1, big + b'x'),
         b'STORED\r\nSERVER_ERROR object too large for cache\r\nVALUE big2 0 1\r\nx\r\nEND\r\n'
         b'DELETED\r\n')
    # Ten replies of a mebibyte for a client that reads late.
    says('a slow reader', b'get big\r\n' * 20,
         b'VALUE big 0 %d\r\n%s\r\nEND\r\n' % (len(big), big) * 20)
    says('many keys', b'get ' + b' '.join(b'k%d' % i for i in range(1000)) + b'\r\n', b'END\r\n')
    says('a line of 410 KB', b'gets ' + b' '.join(b'k%039d' % i for i in range(10000)) + b'\r\n',
         b'END\r\n')
    with connect(unix) as s:
        s.sendall(b'get' + b' big' * 600 + b'\r\n')
        s.recv(1)
        before = resident()
        says('others go on', b'mn\r\n', b'MN\r\n')
        check(f'replies that nobody reads: {before >> 20} MiB', before < 400 << 20)
        s.shutdown(socket.SHUT_WR)
        length = 1 + sum(len(part) for part in iter(lambda: s.recv(1 << 20), b''))
        check(f'600 values, to a client that sends no more: {length}',
              length == 600 * len(b'VALUE big 0 %d\r\n%s\r\n' % (len(big), big)) + len(b'END\r\n'))
    with connect() as s:  # more than the node keeps for a client
        s.sendall(b'get big\r\n' * 20)
        s.shutdown(socket.SHUT_WR)
        length = sum(len(part) for part in iter(lambda: s.recv(1 << 20), b''))
        check(f'twenty requests before the end: {length}',
              length == 20 * len(b'VALUE big 0 %d\r\n%s\r\nEND\r\n' % (len(big), big)))
    with tempfile.NamedTemporaryFile() as f:
        f.write(big + bytes(20))
        f.flush()
        native('--from', f.name, 'put', where[0], 'full')
    for store in b'append full 0 0 %d', b'ms full %d MA', b'ms full %d MP':
        says('a value of a native client that is full', store % len(big) + b'\r\n%s\r\n' % big,
             b'SERVER_ERROR object too large for cache\r\n')


def native(*args):
    r = run('kv', '--port', f'shm:{where[1]}', *args)
    check(f'a native client: {args}', r.returncode == 0, r)


def resident():
    """Bytes of the node's memory, except what it shares with others and what maps a file."""
    with open(f'/proc/{node.pid}/status', encoding='ascii') as f:
        return int(next(line for line in f if line.startswith('RssAnon')).split()[1]) << 10


def flush_later():
    """A flush_all with a delay needs no request to begin, and an earlier one replaces it."""
    native('put', where[0], 'early', 'value')
    says('flush_all later', b'flush_all 1\r\n', b'OK\r\n')
    until = time.monotonic() + LIMIT
    while run('kv', '--port', f'shm:{where[1]}', 'get', where[0], 'early').returncode == 0:
        check('flush_all has begun', time.monotonic() < until)
    says('flush_all twice', b'flush_all 2\r\nflush_all\r\nset late 0 0 1\r\nx\r\n',
         b'OK\r\nOK\r\nSTORED\r\n')
    time.sleep(3)
    says('the second one took effect', b'get late\r\n', b'VALUE late 0 1\r\nx\r\nEND\r\n')


def nonsense():
    for line in (b'', b'nothing', b'get', b'set a 0 0', b'incr a', b'mg', b'verbosity',
                 b'stats nothing'):
        says(f'{line}', line + b'\r\n', b'ERROR\r\n')
    says('a key that is too long', b'get ' + b'k' * 251 + b'\r\n',
         b'CLIENT_ERROR bad command line format\r\n')
    says('data without an end', b'set a 0 0 3\r\nabcde\r\nmn\r\n',
         b'CLIENT_ERROR bad data chunk\r\nMN\r\n')
    with connect() as s:
        s.sendall(b'set e 0 0 1\r\nx\r\nset a 0 0 3\r\nabcde')
        reply = b''
        while not reply.endswith(b'chunk\r\n'):
            reply += s.recv(1000)
        s.sendall(b'f\r\nget e\r\nquit\r\n')
        reply = b''.join(iter(lambda: s.recv(1000), b''))
        check(f'the rest of the line is skipped: {reply}', reply == b'VALUE e 0 1\r\nx\r\nEND\r\n')
    with connect() as s:
        s.sendall(b'set a 0 0 3\r\nabcde')
        s.recv(1000)
        s.sendall(b'flush_all\r\nget e\r\nquit\r\n')
        reply = b''.join(iter(lambda: s.recv(1000), b''))
        check(f'data are not a command: {reply}', reply == b'VALUE e 0 1\r\nx\r\nEND\r\n')
    for line in b'set ' + b'x' * 40000, b'get ' + b'x' * (1 << 20):
        try:  # the server closes before it has read everything, so its reply may be lost
            reply = talk(line)
        except OSError:
            reply = b''
        check('a line without an end', reply in (b'', b'CLIENT_ERROR line too long\r\n'))
    binary = talk(b'\x80\x0b' + bytes(22))
    check(f'the binary protocol is refused with a line: {binary!r}',
          binary.startswith(b'SERVER_ERROR') and binary.count(b'\r\n') == 1)
    half = connect()
    half.sendall(b'set a 0 0 10\r\nabc')
    half.close()
    says('others go on', b'mn\r\n', b'MN\r\n')


def no_descriptors():
    """More connections than the node may have descriptors: the present ones continue, and others
    are accepted when there is space."""
    soft, hard = resource.prlimit(node.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(node.pid, resource.RLIMIT_NOFILE,
                     (len(os.listdir(f'/proc/{node.pid}/fd')) + 4, hard))
    crowd = [connect() for _ in range(12)]
    crowd[0].sendall(b'mn\r\n')
    check('a connection that was accepted', crowd[0].recv(100) == b'MN\r\n')
    resource.prlimit(node.pid, resource.RLIMIT_NOFILE, (soft, hard))
    crowd[11].sendall(b'mn\r\n')
    check('a connection that waited', crowd[11].recv(100) == b'MN\r\n')
    for s in crowd:
        s.close()


def several_clients():
    """Increments of many clients at once: none is lost."""
    talk(b'set sum 0 0 1\r\n0\r\nquit\r\n')
    clients = [threading.Thread(target=talk, args=(b'incr sum 1\r\n' * 100 + b'quit\r\n',))
               for _ in range(8)]
    for c in clients:
        c.start()
    for c in clients:
        c.join()
    says('the sum', b'get sum\r\n', b'VALUE sum 0 3\r\n800\r\nEND\r\n')
    r = run('kv', '--port', f'shm:{where[1]}', 'put', where[0], 'native', 'value')
    check('a PUT beside memcached', r.returncode == 0, r)
    says('a value of another client', b'get native\r\nappend native 0 0 1\r\n!\r\nget native\r\n',
         b'VALUE native 0 5\r\nvalue\r\nEND\r\nSTORED\r\nVALUE native 0 6\r\nvalue!\r\nEND\r\n')


def stock():
    if shutil.which('memccapable'):
        r = subprocess.run(['memccapable', '-a', '-h', '127.0.0.1', '-p', str(PORT)],
                           stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT,
                           check=False)
        check('memccapable -a', r.returncode == 0 and 'All tests passed' in r.stdout, r)
    if pymemcache:
        c = pymemcache.Client(('127.0.0.1', PORT))
        c.set_many({f'key{i}': b'value %d' % i for i in range(100)}, noreply=False)
        check('pymemcache', c.get_many([f'key{i}' for i in range(101)])
              == {f'key{i}': b'value %d' % i for i in range(100)})
        value, cas = c.gets('key1')
        check('pymemcache: cas', value == b'value 1' and c.cas('key1', b'2', cas)
              and not c.cas('key1', b'3', cas) and c.incr('key1', 5) == 7)
        check('pymemcache: others', c.delete('key2', noreply=False) and c.get('key2') is None
              and c.touch('key3', 100, noreply=False) and b'version' in c.stats()
              and c.version().startswith(b'1.6'))
        c.close()
    if memcache:
        for server in f'127.0.0.1:{PORT}', f'unix:{unix}':
            c = memcache.Client([server], cache_cas=True, socket_timeout=LIMIT)
            # Flags say what a value is, so integers, text and other objects return as such.
            values = {f'name{i}': v for i, v in enumerate((b'bytes', 'text', 7, ['list', {1: 2}]))}
            check('memcache: objects', c.set_multi(values) == [] and c.get_multi(
                [*values, 'none']) == values, server)
            check('memcache: cas', c.gets('name2') == 7 and c.set('name2', 8)
                  and not c.cas('name2', 9) and c.incr('name2', 2) == 10
                  and c.decr('name2') == 9, server)
            check('memcache: others', not c.add('name1', 'x') and c.replace('name1', 'new')
                  and c.append('name0', b'!') and c.prepend('name0', b'?')
                  and c.get('name0') == b'?bytes!' and c.touch('name0', 100)
                  and c.delete('name0') and c.get('name0') is None
                  and c.get_stats()[0][1]['version'].startswith('1.6'), server)
            c.disconnect_all()


node = Node(f'shm:{where[0]}', '--kv', '64M', '--memcached', f'127.0.0.1:{PORT},{unix}')
try:
    for part in (text, hidden, meta, long_values, flush_later, nonsense, no_descriptors,
                 several_clients, stock):
        part()
    busy = run('node', '--port', f'shm:{where[1]}', '--kv', '1M', '--memcached',
               f'127.0.0.1:{PORT}')
    one_line_error('a port that is taken', busy, 1, f'127.0.0.1:{PORT}')
finally:
    idle = connect()
    status, said = node.end()
    check(f'the node ends well ({said})', status == 0)
    idle.close()
check('no socket is left', not os.path.exists(unix))
one_line_error('a front end of nothing', run('node', '--memcached', '127.0.0.1:1'), 2, '--kv SIZE')
finish()
