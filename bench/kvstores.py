# SPDX-License-Identifier: BSD-2-Clause
"""The store beside memcached and Redis on the same cores (KV-Direct's table 3): rate, delay, and
operations for each second of CPU time of server and client. This file also has the programs that
bench/kvnic.py, bench/kvload.py and bench/kvops.py start."""
import contextlib
import os
import shutil
import statistics
import subprocess
import tempfile
import time

import measure
from tables import head, line, merge

NAME = 'kv-stores'
# By port: the address of the server, and that of the client.
ADDRESSES = {'shm': ('10.0.0.2', '10.0.0.3'), 'udp': ('127.0.0.2', '127.0.0.3')}
STORE = '256M'

# Table 3 of the paper: pairs of 10 bytes, Zipf 0.99.
PAIRS = {'keys': 1000000, 'value': 2, 'zipf': 0.99}
SECONDS = 0.3

# Operations in a request, requests in flight; each store is shown with its best.
OURS = ((64, 8), (128, 8), (256, 4))
GETS = ((1, 64), (1, 512), (16, 32), (64, 8), (128, 8))
PUTS = ((1, 64), (64, 8))
THREADS = (1, 2)  # of memcached, with a client for each

PAPER = (
    'Paper (table 3, Mops GET / PUT, thousand operations a second for each watt, mean us): '
    'KV-Direct with one NIC 180 / 114, 1487 / 942, 4.3 / 5.4; with ten NICs 1220 / 610, 3417 / '
    '1708, 4.3 / 5.4; memcached 1.5 / 1.5, ~5, ~50; MICA on 24 cores 137 / 135, 342 / 337, 81; '
    'HERD 98.3 / ~60, ~490 / ~300, 5. A second of CPU time stands for watts here.')


def words(options):
    return [f'{name}={value}' for name, value in options.items()]


def tool(roost, name):
    return os.path.join(os.path.dirname(roost), 'bench', name)


def started(what, args, ready, seconds=10):
    """Starts a server, and waits until ready() is true."""
    process = subprocess.Popen(args, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + seconds
    while not ready():
        if process.poll() is not None or time.monotonic() > deadline:
            process.kill()
            raise measure.Failed(f'{what} does not start')
        time.sleep(0.01)
    return process


def end(process):
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class Node:
    """A node with a store, and bench-kv-load as its client."""

    def __init__(self, roost, kind, cpu=None, more=()):
        self.roost, self.kind = roost, kind
        pin = [] if cpu is None else ['taskset', '-c', str(cpu)]
        self.process = subprocess.Popen(
            [*pin, roost, 'node', '--port', f'{kind}:{ADDRESSES[kind][0]}', '--kv', STORE, '--json',
             *more], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            text=True)
        if not self.process.stdout.readline().startswith('{'):
            raise measure.Failed(f'the node over {kind} does not start')

    def client(self, cpu=None, **options):
        server, client = ADDRESSES[self.kind]
        pin = [] if cpu is None else ['taskset', '-c', str(cpu)]
        return ([*pin, tool(self.roost, 'bench-kv-load'), f'at={server}',
                 f'servers={self.process.pid}', *words(options)],
                {**os.environ, 'ROOST_PORT': f'{self.kind}:{client}'})

    def load(self, cpu=None, **options):
        return measure.last_json(measure.command(*self.client(cpu, **options)))

    def fill(self, **options):
        measure.command(*self.client(fill=1, batch=64, depth=16, **options))

    def end(self):
        end(self.process)


class Peer:
    """memcached or Redis at a Unix socket, and bench-stores as its client."""

    def __init__(self, roost, folder, store, threads=1):
        self.exe, self.store, self.threads = tool(roost, 'bench-stores'), store, threads
        self.path = os.path.join(folder, store)
        os.chmod(folder, 0o777)
        if store == 'redis':
            args = ['redis-server', '--port', '0', '--unixsocket', self.path, '--save', '',
                    '--appendonly', 'no']
        else:
            user = ['-u', 'nobody'] if os.geteuid() == 0 else []
            args = ['memcached', '-s', self.path, '-a', '777', '-m', '1024', '-t', str(threads),
                    '-R', '1000', *user]
        if not shutil.which(args[0]):
            raise measure.Failed(f'{args[0]} is not installed')
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)
        self.process = started(store, args, lambda: os.path.exists(self.path))
        time.sleep(0.1)

    def command(self, **options):
        return [self.exe, f'store={self.store}', f'at={self.path}',
                f'servers={self.process.pid}', *words(options)]

    def fill(self, **options):
        measure.command(self.command(fill=1, **options))

    def load(self, **options):
        """A client for each thread; their rates are added."""
        args = self.command(**options)
        with contextlib.ExitStack() as stack:
            others = [stack.enter_context(subprocess.Popen(
                args, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL, text=True)) for _ in range(self.threads - 1)]
            all_of = [measure.last_json(measure.command(args)),
                      *(measure.last_json(o.communicate(timeout=measure.LIMIT)[0])
                        for o in others)]
        rate = sum(r['per_second'] for r in all_of)
        cpus = sum(r['client_cpus'] for r in all_of) + statistics.mean(
            r['server_cpus'] for r in all_of)
        return {**all_of[0], 'per_second': rate, 'per_cpu_second': rate / cpus,
                'client_cpus': sum(r['client_cpus'] for r in all_of),
                'mean_us': statistics.mean(r['mean_us'] for r in all_of)}

    def end(self):
        end(self.process)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)


def row(store, what, got, alone, **more):
    return {'store': store, 'what': what, 'rate': got['per_second'], 'mean_us': got['mean_us'],
            'alone_us': alone['mean_us'], 'batch': got['batch'], 'depth': got['depth'],
            'per_cpu_second': got['per_cpu_second'], 'server_cpus': got['server_cpus'],
            'client_cpus': got['client_cpus'], **more}


def ours(roost, kind):
    node = Node(roost, kind)
    try:
        node.fill(keys=PAIRS['keys'], value=PAIRS['value'])
        for what, put in (('GET', 0), ('PUT', 100)):
            alone = node.load(batch=1, depth=1, put=put, seconds=SECONDS, **PAIRS)
            for b, d in OURS:
                got = node.load(batch=b, depth=d, put=put, seconds=SECONDS, **PAIRS)
                yield row(f'Roost, {kind}', what, got, alone)
    finally:
        node.end()


def peers(roost, folder, store, threads):
    peer = Peer(roost, folder, store, threads)
    try:
        peer.fill(keys=PAIRS['keys'], value=PAIRS['value'])
        for what, put, steps in (('GET', 0, GETS), ('PUT', 100, PUTS)):
            alone = peer.load(batch=1, depth=1, put=put, seconds=SECONDS, **PAIRS)
            for b, d in steps:
                got = peer.load(batch=b, depth=d, put=put, seconds=SECONDS, **PAIRS)
                yield row(store, what, got, alone, threads=threads)
    finally:
        peer.end()


def reads(roost, seconds):
    """Returns the rate of random reads of 64 bytes of one core."""
    return measure.last_json(measure.command(
        [tool(roost, 'bench-stores'), 'store=memory', f'seconds={seconds}']))['per_second']


def limits(roost):
    """The memory, and calls of the kernel `get`: Roost without the store's batches."""
    yield {'limit': 'random reads of 64 bytes of one core, 16 in flight',
           'rate': reads(roost, SECONDS)}
    for kind in ADDRESSES:
        got = measure.last_json(measure.command(
            [roost, 'perf', 'rpc', '--local', '--port', kind, '--kernel', 'get', '--size', '8',
             '--depth', '64', '--seconds', str(SECONDS), '--json']))
        yield {'limit': f'calls of the kernel `get` over {kind}, values of 8 bytes, 64 in flight',
               'rate': got['msg_rate']}


def one_round(roost):
    rows = [*limits(roost), *ours(roost, 'shm'), *ours(roost, 'udp')]
    with tempfile.TemporaryDirectory() as folder:
        for store, threads in (*(('memcached', t) for t in THREADS), ('redis', 1)):
            rows += peers(roost, folder, store, threads)
    return {'rows': rows}


def plan(roost):
    return [measure.Measurement(NAME, 'bench-kv-load; bench-stores', lambda: one_round(roost),
                                merge=merge)]


def best(rows):
    """Of the rows of a store for GET or PUT, the one with the highest rate."""
    found = {}
    for r in rows:
        at = r['store'], r['what']
        if at not in found or r['rate'] > found[at]['rate']:
            found[at] = r
    return found


def how(r):
    if r['store'].startswith('Roost'):
        text = f'{r["batch"]} in a call, {r["depth"]} calls in flight'
    elif r['what'] == 'PUT':
        text = f'{r["batch"] * r["depth"]} sets in flight'
    elif r['batch'] == 1:
        text = f'{r["depth"]} gets in flight'
    else:
        text = f'{r["batch"]} keys in a get, {r["depth"]} in flight'
    threads = r.get('threads', 1)
    return text + (f', {threads} threads' if threads > 1 else '')


def section(f):
    every = f.load(NAME).get('rows', [])
    rows = [r for r in every if 'store' in r]
    if not rows:
        return
    found = best(rows)
    yield ''
    yield (
        'Table 3 of the paper: the store beside memcached and Redis, pairs of 10 bytes (keys of '
        f'8), {PAIRS["keys"] // 1000000} million of them, Zipf 0.99, server and client on the same '
        'two cores. memcached and Redis are at a Unix socket, without persistence. Each store is '
        'shown with the best of some settings: memcached of 1 and 2 threads, with a client for '
        f'each; both of {", ".join(f"{b} x {d}" for b, d in GETS)} keys in a request x requests in '
        f'flight (sets: {", ".join(str(b * d) for b, d in PUTS)} in flight). Their client only '
        'counts bytes. '
        f'{PAPER}')
    yield ''
    yield from head('llrrrrrl', 'store', '', 'rate', 'mean delay', 'mean delay of one alone',
                    'operations a CPU-second', 'CPUs of server, client', 'with')
    for (store, what), r in found.items():
        yield line(store, what, f'{r["rate"] / 1e6:.2f} M/s', f'{r["mean_us"]:.0f} us',
                   f'{r["alone_us"]:.1f} us', f'{r["per_cpu_second"] / 1e6:.2f} million',
                   f'{r["server_cpus"]:.2f}, {r["client_cpus"]:.2f}', how(r))
    yield ''
    if any('limit' in r for r in every):
        yield ('In the same rounds: ' + '; '.join(f'{r["limit"]}: {r["rate"] / 1e6:.2f} M/s'
                                                  for r in every if 'limit' in r) + '.')
        yield ''
    yield ('memcached and Redis, GETs in million a second by keys in a request x requests in '
           'flight: ' + '; '.join(
               f'{store}{f" with {threads} threads" if threads > 1 else ""} ' + ', '.join(
                   f'{r["batch"]} x {r["depth"]}: {r["rate"] / 1e6:.2f}' for r in rows
                   if (r['store'], r.get('threads'), r['what']) == (store, threads, 'GET'))
               for store, threads in dict.fromkeys((r['store'], r['threads']) for r in rows
                                                   if 'threads' in r)) + '.')

