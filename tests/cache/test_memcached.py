#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""memcached in a hull: sets by its own protocol, gets by chains, while it is killed 20 times.

usage: test_memcached.py BUILD-FOLDER --folder DIR

The source of memcached comes from Debian (source.py); without it the test is skipped. A value has
its key and a number, repeated to its length.
"""
import argparse
import os
import signal
import socket
import subprocess
import sys
import threading
import time

from source import get_or_skip

LIMIT = 60  # seconds; only a failure needs them
KILLS = 20
WRITERS = 16
STABLE = 200
failures = 0


def check(what, ok, more=''):
    global failures
    print(f"{'ok' if ok else 'FAILED'}: {what}{'' if ok else ' ' + str(more)}", flush=True)
    failures += not ok


def value_of(key, number, length):
    """The first line of the value is whole; the rest repeats it."""
    unit = f'{key}={number}/{length};'
    return (unit * (length // len(unit) + 1))[:max(length, len(unit))]


def is_value_of(key, text):
    unit = text[:text.find(';') + 1]
    name, rest = unit.rstrip(';').split('=')
    number, length = rest.split('/')
    return name == key and text == value_of(key, int(number), int(length))


class Tcp:
    """A client of memcached's protocol."""

    def __init__(self, where):
        until = time.monotonic() + LIMIT
        while True:
            try:
                self.socket = socket.create_connection(where, LIMIT)
                break
            except OSError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.005)
        self.file = self.socket.makefile('rb')

    def ask(self, text):
        self.socket.sendall(text.encode())
        return self.line()

    def line(self):
        line = self.file.readline()
        if not line:
            raise ConnectionError('the server ended')
        return line.decode().strip()

    def set(self, key, text, expires=0):
        return self.ask(f'set {key} 0 {expires} {len(text)}\r\n{text}\r\n')

    def pid(self):
        line, found = self.ask('stats\r\n'), 0
        while line != 'END':
            if line.startswith('STAT pid '):
                found = int(line.split()[2])
            line = self.line()
        return found


class Gets:
    """Gets by chains, one after the other."""

    def __init__(self, program, address, port):
        self.process = subprocess.Popen([program, address, '7477', '-'],
                                        env=dict(os.environ, ROOST_PORT=port),
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def get(self, key):
        """Returns the value; None: a miss. Raises EOFError if a get failed."""
        self.process.stdin.write(key + '\n')
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise EOFError(f'the get of {key} failed')
        return line[4:-1] if line.startswith('HIT ') else None


def commands(tcp, gets):
    """One of each command that changes an item."""
    tcp.set('a', 'one')
    check('a set is found', gets.get('a') == 'one')
    tcp.set('a', 'two')
    check('a second set replaces it', gets.get('a') == 'two')
    tcp.ask('append a 0 0 1\r\n!\r\n')
    check('append', gets.get('a') == 'two!')
    tcp.ask('delete a\r\n')
    check('a deleted item is not found', gets.get('a') is None)
    tcp.set('n', '41')
    tcp.ask('incr n 1\r\n')
    check('incr', gets.get('n') == '42')
    tcp.set('e', 'x', 1)
    tcp.set('t', 'y', 1)
    tcp.ask('touch t 1000\r\n')
    until = time.monotonic() + LIMIT
    while gets.get('e') is not None and time.monotonic() < until:
        time.sleep(0.02)
    check('an item expires, and touch prevents it', gets.get('e') is None and gets.get('t') == 'y')
    big = value_of('big', 1, 65536)
    tcp.set('big', big)
    check('64 KiB', gets.get('big') == big)
    tcp.set('big', 'z' * 100000)
    check('a value too long for chains replaces it', gets.get('big') is None)
    check('flush_all', tcp.ask('flush_all\r\n') == 'OK' and gets.get('t') is None)
    check('flush_all with a delay is refused',
          tcp.ask('flush_all 10\r\n').startswith('CLIENT_ERROR'))


def reconnect(where, before):
    """Returns a connection to another process than the one that was killed."""
    while True:
        try:
            tcp = Tcp(where)
            if tcp.pid() != before:
                return tcp
        except ConnectionError:
            pass


def kills(where, gets):
    """Kills the server, and gets without a pause until the next one answers."""
    wrong, done, stopped, newest = [], 0, [], {}
    # flush_all hides items that were stored in the same second
    time.sleep(1.1)
    tcp = Tcp(where)
    for i in range(STABLE):
        newest[f's{i}'] = value_of(f's{i}', 0, 20 + i * 7)
        tcp.set(f's{i}', newest[f's{i}'])
    for life in range(KILLS):
        tcp.ask('delete gone\r\n')
        pid, found = tcp.pid(), threading.Event()
        os.kill(pid, signal.SIGKILL)
        # pylint: disable=cell-var-from-loop
        thread = threading.Thread(
            target=lambda: (stopped.append(reconnect(where, pid)), found.set()))
        thread.start()
        keys = list(newest)
        n = 0
        while not found.is_set() or n < 20:
            key = keys[done % len(keys)]
            if gets.get(key) != newest[key]:
                wrong.append((life, key))
            done, n = done + 1, n + 1
        if gets.get('gone') is not None:
            wrong.append((life, 'gone'))
        thread.join()
        tcp = stopped[-1]
        newest[f's{life}'] = value_of(f's{life}', life + 1, 500)
        newest[f'new{life}'] = value_of(f'new{life}', life, 300)
        tcp.set(f's{life}', newest[f's{life}'])
        tcp.set(f'new{life}', newest[f'new{life}'])
        tcp.set('gone', 'x')
    tcp.ask('delete gone\r\n')
    check(f'{done} gets during {KILLS} kills: each is right', not wrong, wrong[:5])


def write_until(where, writer, stop):
    tcp, n = Tcp(where), 0
    while not stop.is_set():
        batch = ''
        for _ in range(50):
            key = f'w{writer}-{n * 7 % 2000}'
            text = value_of(key, n, 100 + n * 37 % 3000)
            batch += f'set {key} 0 0 {len(text)} noreply\r\n{text}\r\n'
            n += 1
        tcp.ask(batch + 'mn\r\n')


def evictions(where):
    tcp, found = Tcp(where), 0
    line = tcp.ask('stats\r\n')
    while line != 'END':
        found = int(line.split()[2]) if line.startswith('STAT evictions ') else found
        line = tcp.line()
    return found


def eviction(where, gets):
    """16 writers store more than fits into the memory; each hit is whole and has its key."""
    stop, hits, wrong = threading.Event(), 0, []
    threads = [threading.Thread(target=write_until, args=(where, w, stop)) for w in range(WRITERS)]
    for t in threads:
        t.start()
    # The faster the gets, the more of them until the writers have filled the memory.
    n, until = 0, time.monotonic() + LIMIT
    while n < 2500 or not (hits and evictions(where)) and time.monotonic() < until:
        for n in range(n, n + 500):
            key = f'w{n % WRITERS}-{n * 13 % 2000}'
            text = gets.get(key)
            hits += text is not None
            if text is not None and not is_value_of(key, text):
                wrong.append((key, text[:40]))
        n += 1
    stop.set()
    for t in threads:
        t.join()
    evicted = evictions(where)
    check(f'{hits} hits beside {WRITERS} writers, {evicted} evictions: each value is whole',
          not wrong and hits and evicted, wrong[:3])


def main():
    p = argparse.ArgumentParser()
    p.add_argument('build')
    p.add_argument('--folder', required=True)
    a = p.parse_args()
    memcached = get_or_skip(a.build, a.folder)
    net = f'127.{(os.getpid() >> 8) % 250 + 2}.{os.getpid() & 0xff}'
    where = (net + '.1', 11311)
    hull = subprocess.Popen([os.path.join(a.build, 'examples', 'example-memcached-hull'), '-a',
                             where[0], '-m', '24', '-b', '16', memcached, '-f', '2', '-l', where[0],
                             '-p', str(where[1]), '-U', '0', '-u', 'root', '-t', '4'],
                            env=dict(os.environ, ROOST_PORT=f'udp:{where[0]}'),
                            stdin=subprocess.DEVNULL)
    gets = None
    try:
        tcp = Tcp(where)
        gets = Gets(os.path.join(a.build, 'examples', 'example-memcached-get'), where[0],
                    f'udp:{net}.2')
        commands(tcp, gets)
        kills(where, gets)
        eviction(where, gets)
    finally:
        for process in (hull, gets and gets.process):
            if process:
                process.kill()
                process.wait(LIMIT)
    sys.exit(failures > 0)


main()
