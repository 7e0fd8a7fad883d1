#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""memcached: gets by chains from a patched memcached in a hull, beside gets from Debian's own
memcached and two READs; by size of the value, beside writers, and while the servers are killed.

usage: cache.py BUILD-FOLDER MEMCACHED-FOLDER [SECONDS [GETS]]   prints all rows, as JSON

The programs are those of tests/cache/source.py. Without Debian's source the script measures
nothing.
"""
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time

import measure

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'tests', 'cache'))
from source import Missing, program  # noqa: E402

NAME = 'memcached'
SIZES = [64, 256, 1024, 4096, 16384, 65536]
WRITERS = [0, 1, 2, 4, 8, 16]
# Seconds from the start. The client of the stock server stores its items again in the intervals.
KILLS = [1 + 3 * i for i in range(20)]
KIND = 'shm'
HULL, CLIENT, READS = '127.0.0.1', '127.0.0.2', '127.0.0.3'
LIMIT = 60  # seconds
GETS = 1000000  # by chains, of each size, in the three rounds of bench/run together
GETS_LIMIT = 600  # seconds


def pid_of(port):
    """The process id of the memcached that listens at a TCP port; 0: there is none."""
    try:
        with socket.create_connection(('127.0.0.1', port), LIMIT) as s:
            s.sendall(b'stats\r\n')
            for line in s.makefile('r'):
                if line.startswith('STAT pid '):
                    return int(line.split()[2])
    except OSError:
        pass
    return 0


class Servers:
    """A hull with the patched memcached, and a stock memcached, which is started again when it
    ends."""

    def __init__(self, build, folder):
        build, folder = os.path.abspath(build), os.path.abspath(folder)
        try:
            patched, stock = program(build, folder), program(build, folder, patched=False)
        except Missing as reason:
            raise measure.Failed(f'no source of memcached: {reason}') from reason
        self.client = os.path.join(build, 'bench', 'bench-cache')
        self.own, self.other = measure.free_tcp_port(), measure.free_tcp_port()
        options = ['-U', '0', '-u', 'root', '-t', '4', '-l', '127.0.0.1']
        self.stock = [stock, *options, '-m', '128', '-p', str(self.other)]
        self.ends = False
        self.hull = subprocess.Popen(
            [os.path.join(build, 'examples', 'example-memcached-hull'), '-a', HULL, '-m', '128',
             patched, *options, '-p', str(self.own)], env=self.environment(HULL),
            stdin=subprocess.DEVNULL)
        self.keeper = threading.Thread(target=self.keep)
        self.keeper.start()
        end = time.monotonic() + LIMIT
        try:
            while not (pid_of(self.own) and pid_of(self.other)):
                if time.monotonic() > end or self.hull.poll() is not None:
                    raise measure.Failed('memcached does not start')
                time.sleep(0.02)
        except BaseException:  # a signal, too: the thread would run for ever
            self.end()
            raise

    @staticmethod
    def environment(address):
        return dict(os.environ, ROOST_PORT=f'{KIND}:{address}')

    def keep(self):
        while not self.ends:
            with subprocess.Popen(self.stock, stdin=subprocess.DEVNULL) as p:
                while p.poll() is None and not self.ends:
                    time.sleep(0.001)
                p.kill()

    def end(self):
        self.ends = True
        self.keeper.join()
        self.hull.kill()
        self.hull.wait(LIMIT)

    def command(self, what, value, writers, seconds):
        return [self.client, what, HULL, str(self.own), str(self.other), READS, str(value),
                str(writers), str(seconds)]

    def latency(self, value, writers, seconds, gets=0):
        """The ways take turns, until each had the seconds, and chains have made so many gets."""
        return measure.last_json(measure.command(
            [*self.command('latency', value, writers, seconds), str(gets)],
            self.environment(CLIENT), GETS_LIMIT))['rows']

    def over_time(self, seconds, kills):
        """Kills both servers at each of the times."""
        with subprocess.Popen(self.command('time', 64, 0, seconds), stdout=subprocess.PIPE,
                              env=self.environment(CLIENT), text=True) as p:
            p.stdout.readline()
            start = time.monotonic()
            for at in kills:
                time.sleep(max(0, start + at - time.monotonic()))
                for port in (self.own, self.other):
                    pid = pid_of(port)
                    if pid:
                        os.kill(pid, signal.SIGKILL)
            out = p.stdout.read()
        if p.returncode:
            raise measure.Failed('gets by chains failed while memcached was killed')
        return dict(measure.last_json(out), kills=kills)


def one_round(build, folder, seconds=0.4, gets=0, sizes=None, writers=None, kills=None):
    servers = Servers(build, folder)
    kills = KILLS if kills is None else kills
    try:
        return {'rows': [r for size in sizes or SIZES
                         for r in servers.latency(size, 0, seconds, gets)],
                'writers': [r for n in writers or WRITERS for r in servers.latency(64, n, seconds)
                            if r['way'] != 'two READs'],
                'time': servers.over_time(kills[-1] + 2, kills)}
    finally:
        servers.end()


def merge(runs):
    """Returns the median of each figure; of the gets over time, the last run."""
    def rows(key):
        for several in zip(*(r[key] for r in runs)):
            yield dict(several[0], **{k: statistics.median(s[k] for s in several)
                                      for k in ('p50_us', 'p99_us', 'mean_us')},
                       gets=sum(s['gets'] for s in several))

    return {'sizes': list(rows('rows')), 'writers': list(rows('writers')), 'time': runs[-1]['time']}


def plan(roost):
    build = os.path.dirname(roost)
    folder = os.path.join(build, 'memcached')
    gets = -(-GETS // 3)
    return [measure.Measurement(NAME, f'bench/cache.py build build/memcached 0.4 {gets}',
                                lambda: one_round(build, folder, gets=gets), merge=merge)]


if __name__ == '__main__':
    print(json.dumps(one_round(sys.argv[1], sys.argv[2], *map(float, sys.argv[3:4]),
                               *map(int, sys.argv[4:5]))))
