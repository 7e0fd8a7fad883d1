#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Hostile input for `roost pcap`, `roost stat`, `roost devices` and `roost kernel`. The commands
must end, in bounded memory, with a line that names the error, and print no control characters.
Usage: test_reading.py ROOST [--sanitized]

With --sanitized there is no limit of memory: sanitizers want more.
"""
import json
import os
import resource
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'cli'))
# pylint: disable=wrong-import-position
from cli import ROOST, check, finish, last_json, one_line_error, run

ESCAPES = '\x1b]0;owned\x07\x1b[2J\r\x7f\x9b31m\u202eab'
TIMEOUT = 60  # seconds; a command that works needs far less
MEMORY = 400 << 20


def harmless(result):
    """True if the text has no control characters except line ends (terminals ignore DEL), and none
    that change the direction of writing."""
    return all(c == '\n' or ord(c) >= 0x20 and not 0x80 <= ord(c) < 0xa0
               and ord(c) not in range(0x2028, 0x202f)
               and ord(c) not in range(0x2066, 0x206a) for c in result.stdout + result.stderr)


def timed(what, *args):
    start = time.monotonic()
    r = run(*args, limit=TIMEOUT)
    check(f'{what}: it ends', r.returncode >= 0 and time.monotonic() - start < TIMEOUT, r)
    check(f'{what}: nothing for the terminal', harmless(r), r)
    return r


# ---- captures ----

HEADER = struct.pack('<IHHiIII', 0xa1b23c4d, 2, 4, 0, 0, 65535, 1)


def record(frame, length=None, original=None):
    n = len(frame) if length is None else length
    return struct.pack('<IIII', 1, 2, n, n if original is None else original) + frame


def bounded(args, data):
    """`roost ARGS` in little memory, with a stream on stdin: `data` is an iterator of pieces.
    (status, stdout, stderr)"""
    def limit():
        if '--sanitized' not in sys.argv:
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    process = subprocess.Popen([ROOST, *args], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, preexec_fn=limit)
    def feed():
        try:
            for piece in data:
                process.stdin.write(piece)
            process.stdin.close()
        except BrokenPipeError:
            pass
    writer = threading.Thread(target=feed)
    writer.start()
    out, err = process.stdout.read(), process.stderr.read()
    writer.join()
    return process.wait(), out.decode(errors='replace'), err.decode(errors='replace')


def captures(folder):
    frame = b'\xff' * 12 + b'\x08\x06' + bytes(60000)
    many = record(frame) * 16
    status, out, err = bounded(['pcap', '--json', '-'],
                               (piece for i in range(801) for piece in [many if i else HEADER]))
    check('a stream longer than memory is read to its end',
          status == 1 and json.loads(out).get('frames') == 800 * 16, None)
    if status != 1:
        print(status, out[-300:], err[-300:])
    one_line_error('no end of zeros', timed('/dev/zero', 'pcap', '/dev/zero'), 1, 'is no pcap file')
    one_line_error('a folder', timed('a folder', 'pcap', folder), 1, 'directory')
    files = {
        'empty': b'',
        'header': HEADER[:20],
        'pcapng': b'\x0a\x0d\x0d\x0a' + bytes(100),
        'link': HEADER[:20] + struct.pack('<I', 147),
        'huge': HEADER + record(b'x', 0xffffffff),
        'large': HEADER + record(b'x', 256 * 1024 + 1),
        'cut': HEADER + record(b'x', 100),
        'longer': HEADER + record(bytes(14), original=0xffffffff),
        'tags': HEADER + record(b'\0' * 12 + b'\x81\x00\0\0' * 100),
        'ip': HEADER + b''.join(record(b'\0' * 12 + b'\x08\x00' + bytes([0x40 | i, 0, i, 255])
                                       + b'\xff' * i) for i in range(64)),
        'ip6': HEADER + b''.join(record(b'\0' * 12 + b'\x86\xdd' + bytes(
            [0x60, 0, 0, 0, 0xff, i, 17, 0]) + b'\xff' * i) for i in range(64)),
        'times': HEADER + struct.pack('<IIII', 0xffffffff, 0xffffffff, 20, 20) + bytes(20)
        + struct.pack('<IIII', 0, 0, 20, 20) + bytes(20),
    }
    for name, data in files.items():
        path = os.path.join(folder, name)
        with open(path, 'wb') as f:
            f.write(data)
        for more in ([], ['--json'], ['--quiet']):
            r = timed(name, 'pcap', *more, path)
            check(f'{name}: it says what is wrong',
                  r.returncode == 1 and len(r.stderr.splitlines()) == 1, r)
    name = os.path.join(folder, ESCAPES.replace('/', ''))
    for content in (b'', HEADER + record(b'x', 100)):
        with open(name, 'wb') as f:
            f.write(content)
        timed('the name of a file', 'pcap', name)
        timed('the name of a file, as JSON', 'pcap', '--json', name)
    timed('the name of no file', 'pcap', name + 'x')
    timed('an option', 'pcap', '--' + ESCAPES)
    fifo = os.path.join(folder, 'fifo')
    os.mkfifo(fifo)
    writer = threading.Thread(target=lambda: open(fifo, 'wb').close())
    writer.start()
    one_line_error('a FIFO', timed('a FIFO', 'pcap', fifo), 1, 'is no pcap file')
    writer.join()


# ---- sockets ----

def answers():
    """Answers of a stat socket. A list is sent in pieces, a tenth of a second apart."""
    good = {'pid': 1, 'program': ESCAPES, 'uptime_s': 1e308, 'pus': 1, 'usage': {'qps': -1},
            'ports': [{'kind': ESCAPES, 'address': ESCAPES, 'mtu': 1, 'stats': {'rx_packets': 1}}],
            'counters': {'rcvd_pkts': -2 ** 63, ESCAPES: 5}, 'cm': {'connections': 1},
            'kernels': {'calls': 1}}
    yield 'escapes', json.dumps(good).encode()
    yield 'escapes as they are', json.dumps(good, ensure_ascii=False).encode()
    yield 'nothing', b''
    yield 'garbage', os.urandom(5000)
    yield 'zeros', bytes(5000)
    yield 'deep', b'[' * 500000
    yield 'deep objects', b'{"a":' * 100000
    yield (
        'wrong types',
        b'{"pid":"x","program":[],"ports":{"a":1},"counters":[1,2],"usage":3,"cm":null,'
        b'"uptime_s":"y"}')
    yield ('ports of wrong types',
           b'{"ports":[1,"x",null,[],{"stats":[]},{"stats":{"rx_packets":"1"}}]}')
    yield 'many ports', b'{"ports":[' + b','.join([b'{"stats":{"rx_packets":1}}'] * 3000) + b']}'
    yield 'too long', b'{"program":"' + b'x' * (2 << 20) + b'"}'
    yield 'not UTF-8', b'{"program":"\xff\xfe\x80\xc2"}'
    yield 'a drop at a time', [b'{'] + [b' '] * 1000
    yield 'no end', None
    yield 'half', b'{"pid":1'


class Liar(threading.Thread):
    """A socket of another process of this user."""

    def __init__(self, path, answer):
        super().__init__(daemon=True)
        self.answer, self.listener = answer, socket.socket(socket.AF_UNIX)
        self.listener.bind(path)
        self.listener.listen(8)

    def run(self):
        while True:
            try:
                peer, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.say, args=(peer,), daemon=True).start()

    def say(self, peer):
        try:
            if self.answer is None:
                peer.recv(1)  # and never answers
                time.sleep(TIMEOUT)
            elif isinstance(self.answer, list):
                for piece in self.answer:
                    peer.sendall(piece)
                    time.sleep(0.1)
            else:
                peer.sendall(self.answer)
        except OSError:
            pass
        peer.close()


def sockets(top):
    for i, (what, answer) in enumerate(answers()):
        folder = os.path.join(top, str(i))
        os.mkdir(folder, 0o700)
        os.environ['ROOST_SHM_DIR'] = folder
        liars = [Liar(os.path.join(folder, f'{kind}.4711'), answer) for kind in ('stat', 'node')]
        for liar in liars:
            liar.start()
        commands = [['stat', '4711']]
        if isinstance(answer, bytes):  # the others wait: 30 s for a kernel
            commands += [['kernel', 'list', '4711'], ['stat', '--all'], ['stat', '--json'],
                         ['stat', '--prometheus'], ['stat', ESCAPES], ['kernel', 'stat', '4711']]
        for args in commands:
            r = timed(f'{what}: {args}', *args)
            if args == ['stat', '--json'] and r.returncode == 0:
                check(f'{what}: JSON', 'nics' in last_json(r), r)
        for liar in liars:
            liar.listener.close()


def entries(top):
    """Names of sockets and locks that are other kinds of files."""
    folder = os.path.join(top, 'entries')
    os.mkdir(folder, 0o700)
    os.environ['ROOST_SHM_DIR'] = folder
    r = timed('a device on shm', 'devices', '--port', 'shm', '--json')
    os.mkdir(os.path.join(folder, 'stat.1'))
    os.mkfifo(os.path.join(folder, 'stat.2'))
    os.symlink('stat.3', os.path.join(folder, 'stat.3'))
    os.symlink('/dev/zero', os.path.join(folder, 'stat.4'))
    for name in ('stat.5', 'stat.99999999999999', 'stat.-1', 'stat.6x', 'stat.' + '9' * 200,
                 ESCAPES):
        with open(os.path.join(folder, name), 'wb') as f:
            f.write(b'x' * 100)
    for args in (['stat'], ['stat', '--json'], ['stat', '5'], ['kernel', 'list']):
        timed(f'entries: {args}', *args)
    check('it opens', r.returncode == 0, r)
    # Locks and sockets of addresses: 10.0.0.1 and the following ones are tried in turn.
    plants = [lambda p: os.mkdir(p), lambda p: os.mkfifo(p), lambda p: os.symlink('/dev/zero', p),
              lambda p: os.symlink(p, p)]
    for i, plant in enumerate(plants):
        for kind in ('.lock', ''):
            path = os.path.join(folder, f'10.0.0.{i + 1}.0{kind}')
            if os.path.lexists(path):
                os.unlink(path)
            plant(path)
    for args in (['devices', '--port', 'shm'], ['devices', '--port', 'shm:10.0.0.2'],
                 ['doctor', '--port', 'shm']):
        r = timed(f'locks: {args}', *args)
        check(f'locks: {args}: one line at most', len(r.stderr.splitlines()) <= 1, r)


with tempfile.TemporaryDirectory() as d:
    captures(d)
    sockets(d)
    entries(d)
finish()
