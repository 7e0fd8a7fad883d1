# SPDX-License-Identifier: BSD-2-Clause
"""The store through the NIC: its rates next to memcached's on the same cores, the delay of a GET
next to that of a READ, and their part of RESULTS.md."""
import os
import shutil
import tempfile

import kvstores
import measure
from kvstores import ADDRESSES
from tables import figures, head, line, merge, percentiles

NAME = 'kv-nic'
YCSB = 'kv-nic-ycsb'
BATCHES = 'kv-nic-batches'
KEYS, VALUE, SECONDS = 1000000, 64, 0.4  # about half of the store is in use

FEW = 1000  # keys that fit into the cache
# Memory for the READs beside a GET alone: the store of the keys uses 123 MiB (`roost kv stat`); FEW
# keys have 3 lines each.
READ, READ_FEW = '123M', '192K'

# Bytes of the UDP payloads of a call that GETs an 8-byte key, and of its reply.
CALL, REPLY = 72, 112

# YCSB: bytes of keys and values (keys have 8 bytes), operations in a call, calls in flight.
SIZES, YCSB_BATCH, YCSB_DEPTH, YCSB_KEYS = (10, 62, 126, 254), 64, 8, 250000

# Operations in a call; operations in flight.
STEPS, FLIGHT = (1, 2, 4, 8, 16, 32, 64, 128), 512

# Name, port, operations in a call, calls in flight. memcached: keys in a get, gets in flight.
RATES = [
    ('GETs, one in a call, 64 calls in flight', 'shm', 1, 64),
    ('GETs, one in a call, 160 calls in flight', 'shm', 1, 160),
    ('GETs, 64 in a call, 8 calls in flight', 'shm', 64, 8),
    ('GETs, 128 in a call, 8 calls in flight', 'shm', 128, 8),
    ('GETs, 256 in a call, 4 calls in flight', 'shm', 256, 4),
    ('GETs, one in a call, 64 calls in flight', 'udp', 1, 64),
    ('GETs, one in a call, 160 calls in flight', 'udp', 1, 160),
    ('GETs, 64 in a call, 8 calls in flight', 'udp', 64, 8),
    ('GETs, 256 in a call, 4 calls in flight', 'udp', 256, 4),
]


def memcached_rate(row):
    """Returns the rate of memcached beside a row, with its best number of threads, or None."""
    return max(row['peer'].values()) if 'peer' in row else None


# By port, and whether a call has several operations.
BARS = {
    ('shm', False): lambda r: ('at least 5 times', r['rate'] >= 5 * memcached_rate(r)),
    ('shm', True): lambda r: ('at least 5 M/s and 3 times',
                              r['rate'] >= 5e6 and r['rate'] >= 3 * memcached_rate(r)),
    ('udp', False): lambda r: ('at least 2 M/s', r['rate'] >= 2e6),
    ('udp', True): lambda r: ('at least 6 M/s', r['rate'] >= 6e6),
}


class Node(kvstores.Node):
    """A node with a store, and `roost kv bench` as its client."""

    def bench(self, batch, depth, keys=KEYS, value=VALUE, load=('--put', '0')):
        server, client = ADDRESSES[self.kind]
        return measure.last_json(measure.command(
            [self.roost, 'kv', 'bench', server, '--port', f'{self.kind}:{client}', '--batch',
             str(batch), '--depth', str(depth), '--keys', str(keys), '--value', str(value), *load,
             '--duration', str(SECONDS), '--json']))


def memcached(roost, folder, steps, keys=KEYS, value=VALUE):
    """Returns the rates of GETs of memcached by (batch, depth), each with the better of one and two
    threads; None: it is not installed."""
    rates = {}
    if not shutil.which('memcached'):
        return None
    for threads in kvstores.THREADS:
        peer = kvstores.Peer(roost, folder, 'memcached', threads)
        try:
            peer.fill(keys=keys, value=value)
            for batch, depth in steps:
                got = peer.load(batch=batch, depth=depth, keys=keys, value=value, seconds=SECONDS)
                rates.setdefault((batch, depth), {})[threads] = got['per_second']
        finally:
            peer.end()
    return rates


def limits(roost):
    """Random reads of one core, and what udp allows."""
    yield {'way': 'random reads of 64 bytes of one core, 16 in flight', 'port': '',
           'limit': kvstores.reads(roost, SECONDS)}
    write = [roost, 'perf', 'write', '--local', '--port', 'udp', '--size', '64', '--depth', '64',
             '--seconds', str(SECONDS), '--json']
    for way, more in (('one by one', ()), ('in lists of 32', ('--post-list', '32')),
                      ('in lists of 32, both ways at once', ('--post-list', '32', '--bidir'))):
        got = measure.last_json(measure.command([*write, *more]))
        yield {'way': f'WRITEs of 64 bytes {way}, 64 in flight', 'port': 'udp',
               'limit': got['msg_rate']}


def echo(roost, depth):
    """Returns the rate of a bare UDP echo with packets as of calls of one operation."""
    return measure.last_json(measure.command(
        [os.path.join(os.path.dirname(roost), 'bench', 'bench-echo'), str(CALL), str(REPLY),
         str(depth), '0.2']))['rate']


def read_us(roost, kind, memory, seconds):
    """Returns the p50 of a READ alone of a value, from as much memory as the store uses for its
    keys, on huge pages as well."""
    got = measure.last_json(measure.command(
        [roost, 'perf', 'read', '--local', '--port', kind, '--size', str(VALUE), '--lat',
         'completion', '--memory', memory, '--seconds', str(seconds), '--json']))
    return got['latency_us']['p50']


def one_round(roost):
    rows = list(limits(roost))
    with tempfile.TemporaryDirectory() as folder:
        steps = [(batch, depth) for _, port, batch, depth in RATES if port == 'shm']
        peer = memcached(roost, folder, steps)
        for kind in ADDRESSES:
            node = kvstores.Node(roost, kind)
            try:
                node.fill(keys=KEYS, value=VALUE)
                rows += through_nic(roost, node, kind, peer)
            finally:
                node.end()
    return {'rows': rows}


def through_nic(roost, node, kind, peer):
    pairs = {'value': VALUE, 'seconds': SECONDS}
    for what, port, batch, depth in RATES:
        if port != kind:
            continue
        got = node.load(batch=batch, depth=depth, keys=KEYS, **pairs)
        row = {'way': what, 'port': kind, 'batch': batch, 'depth': depth,
               **figures(got)}
        if kind == 'shm' and peer:
            row['peer'] = {str(t): r for t, r in peer[batch, depth].items()}
        if kind == 'udp' and batch == 1:
            row['echo'] = echo(roost, depth)
        yield row
    for keys in (KEYS, FEW):
        read = read_us(roost, kind, READ if keys == KEYS else READ_FEW, SECONDS)
        yield {'way': f'a GET alone, of {keys} keys, p50', 'port': kind, 'keys': keys,
               'us': node.load(batch=1, depth=1, keys=keys, **pairs)['p50_us'],
               'read_us': read}


def batches_round(roost):
    """GETs over the number of operations in a call: many calls in flight, and one."""
    rows = []
    for kind in ADDRESSES:
        node = Node(roost, kind)
        try:
            for batch in STEPS:
                many = node.bench(batch, min(FLIGHT // batch, 160), YCSB_KEYS)
                one = node.bench(batch, 1, YCSB_KEYS)
                rows.append({'port': kind, 'batch': batch, 'rate': many['per_second'],
                             **percentiles(one)})
        finally:
            node.end()
    return {'rows': rows}


def ycsb_round(roost):
    """YCSB's workloads, and memcached's multi-gets of values as long."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for kind in ADDRESSES:
            for size in SIZES:
                node = Node(roost, kind)  # D adds keys
                try:
                    for zipf in (0, 1):
                        for load in 'ABCDF':
                            got = node.bench(YCSB_BATCH, YCSB_DEPTH, YCSB_KEYS, size - 8,
                                             ('--workload', load, '--zipf', str(0.99 * zipf)))
                            rows.append({'port': kind, 'bytes': size, 'zipf': zipf,
                                         'workload': load, **figures(got)})
                finally:
                    node.end()
        for size in SIZES:
            rates = memcached(roost, folder, [(YCSB_BATCH, YCSB_DEPTH)], YCSB_KEYS, size - 8)
            if rates:
                rows.append({'port': 'memcached', 'bytes': size, 'zipf': 0, 'workload': 'C',
                             'rate': max(rates[YCSB_BATCH, YCSB_DEPTH].values())})
    return {'rows': rows}


def plan(roost):
    return [measure.Measurement(NAME, 'bench-kv-load; bench-stores', lambda: one_round(roost),
                                merge=merge),
            measure.Measurement(YCSB, 'roost kv bench --workload; bench-stores',
                                lambda: ycsb_round(roost), merge=merge),
            measure.Measurement(BATCHES, 'roost kv bench --batch N', lambda: batches_round(roost),
                                merge=merge)]


def verdict(row):
    if 'us' in row:
        return (
            '' if row['port'] != 'shm' or row['keys'] != KEYS
            else f'READ + 0.6 us: {"met" if row["us"] <= row["read_us"] + 0.6 else "**missed**"}')
    if row['depth'] > 64 or row['port'] == 'shm' and memcached_rate(row) is None:
        return ''
    text, met = BARS[row['port'], row['batch'] > 1](row)
    return f'{text}: {"met" if met else "**missed**"}'


def section(f):
    rows = f.load(NAME).get('rows', [])
    if not rows:
        return
    yield ''
    yield (
        f'Through the NIC, between two processes on two cores: {KEYS // 1000000} million keys, '
        f'values of {VALUE} bytes. Beside it memcached at a Unix socket with one and with two '
        'threads, with a client for each that only counts bytes, and as many keys in a request '
        'and requests in flight; the bar is about the better one. What the machine and udp allow '
        'was measured in the same rounds.')
    yield ''
    yield from head('llrrl', 'what', 'port', '', 'beside it', 'the bar')
    for row in rows:
        if 'limit' in row:
            yield line(row['way'], row['port'], f'{row["limit"] / 1e6:.2f} M/s', '', '')
            continue
        if 'us' in row:
            yield line(row['way'], row['port'], f'{row["us"]:.2f} us',
                       f'a READ: {row["read_us"]:.2f} us', verdict(row))
            continue
        beside = ''
        if 'peer' in row:
            peer = ', '.join(f'{rate / 1e6:.2f}' for rate in row['peer'].values())
            times = row['rate'] / memcached_rate(row)
            beside = f'memcached: {peer} M/s; {times:.1f} times'
        elif row.get('echo'):
            beside = f'a bare UDP echo: {row["echo"] / 1e6:.2f} M/s'
        yield line(row['way'], row['port'],
                   f'{row["rate"] / 1e6:.2f} M/s, p50 {row["p50_us"]:.0f} us', beside, verdict(row))


def batches(f):
    rows = f.load(BATCHES).get('rows', [])
    if not rows:
        return
    first = {r['port']: r for r in rows if r['batch'] == 1}
    yield ''
    yield (
        f'GETs over the number of operations in a call: the rate with {FLIGHT} operations in '
        f'flight (in at most 160 calls), and the delay of a call alone. {YCSB_KEYS} keys, values '
        f'of {VALUE} bytes. Paper (figure 15): up to 4 times by batching, with a network latency '
        'below 3.5 us; figure 17: less than 1 us more latency by batching.')
    yield ''
    yield from head('l', 'port', 'operations in a call', 'rate', 'times',
                    'p50, p99 of a call alone')
    for r in rows:
        yield line(r['port'], f'{r["batch"]}', f'{r["rate"] / 1e6:.2f} M/s',
                   f'{r["rate"] / first[r["port"]]["rate"]:.1f}',
                   f'{r["p50_us"]:.1f}, {r["p99_us"]:.1f} us')
    yield ''
    yield '![slabs, batches, and pieces of memory](../docs/perf-kv-parts.svg)'


def ycsb(f):
    rows = f.load(YCSB).get('rows', [])
    if not rows:
        return
    cells = {(r['port'], r['zipf'], r['bytes'], r['workload']): f'{r["rate"] / 1e6:.2f}'
             for r in rows}
    yield ''
    yield (
        "YCSB's workloads through the NIC, million operations a second, by bytes of a pair: "
        f'{YCSB_KEYS} keys, {YCSB_BATCH} operations in a call, {YCSB_DEPTH} calls in flight. F '
        'counts a read and its write as one operation. memcached: multi-gets of values as long, '
        'uniform, with the better of one and two threads, as workload C. Paper (figure 16): '
        'see the engine.')
    yield ''
    yield from head('ll', 'port', 'keys', 'bytes', *'ABCDF')
    for port, zipf, size in dict.fromkeys(c[:3] for c in cells):
        yield line(port, 'Zipf 0.99' if zipf else 'uniform', f'{size}',
                   *(cells.get((port, zipf, size, load), '') for load in 'ABCDF'))

