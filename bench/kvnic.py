# SPDX-License-Identifier: BSD-2-Clause
"""The store through the NIC: its rates next to memcached's on the same cores, the delay of a GET
next to that of a READ, and their part of RESULTS.md."""
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import measure

NAME = 'kv-nic'
YCSB = 'kv-nic-ycsb'
BATCHES = 'kv-nic-batches'
KEYS, VALUE, SECONDS = 1000000, 64, 0.4
STORE = '256M'  # about half of it is in use
ADDRESSES = {'shm': ('10.0.0.2', '10.0.0.3'), 'udp': ('127.0.0.2', '127.0.0.3')}

# Bytes of the UDP payloads of a call that GETs an 8-byte key, and of its reply.
CALL, REPLY = 72, 112

# YCSB: bytes of keys and values (keys have 8 bytes), operations in a call, calls in flight.
SIZES, YCSB_BATCH, YCSB_DEPTH, YCSB_KEYS = (10, 62, 126, 254), 64, 8, 250000

# Operations in a call; operations in flight.
STEPS, FLIGHT = (1, 2, 4, 8, 16, 32, 64, 128), 512

# Name, port, operations in a call, calls in flight; of memcached beside it: keys in a request,
# requests in flight.
RATES = [
    ('GETs, one in a call, 64 calls in flight', 'shm', 1, 64, (1, 64)),
    ('GETs, 64 in a call', 'shm', 64, 8, (64, 8)),
    ('GETs, one in a call, 64 calls in flight', 'udp', 1, 64, None),
    ('GETs, one in a call, 160 calls in flight', 'udp', 1, 160, None),
    ('GETs, 64 in a call', 'udp', 64, 8, None),
]
BARS = {
    ('shm', 1): lambda r: ('at least 5 times', r['rate'] >= 5 * r['beside']),
    ('shm', 64): lambda r: ('at least 5 M/s and 3 times',
                            r['rate'] >= 5e6 and r['rate'] >= 3 * r['beside']),
    ('udp', 1): lambda r: ('at least 2 M/s', r['rate'] >= 2e6),
    ('udp', 64): lambda r: ('at least 6 M/s', r['rate'] >= 6e6),
}


class Node:
    def __init__(self, roost, kind):
        self.roost, self.kind = roost, kind
        self.process = subprocess.Popen(
            [roost, 'node', '--port', f'{kind}:{ADDRESSES[kind][0]}', '--kv', STORE, '--json'],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        if not self.process.stdout.readline().startswith('{'):
            raise measure.Failed(f'the node over {kind} does not start')

    def bench(self, batch, depth, keys=KEYS, value=VALUE, load=('--put', '0')):
        there, here = ADDRESSES[self.kind]
        return measure.last_json(measure.command(
            [self.roost, 'kv', 'bench', there, '--port', f'{self.kind}:{here}', '--batch',
             str(batch), '--depth', str(depth), '--keys', str(keys), '--value', str(value), *load,
             '--duration', str(SECONDS), '--json']))

    def sends(self):
        """Returns the number of packets that the node has sent, and of the system calls or ring
        updates that sent them."""
        counters = measure.last_json(
            measure.command([self.roost, 'stat', str(self.process.pid), '--json']))
        port = counters['ports'][0] if 'ports' in counters else counters
        return port.get('tx_packets'), port.get('tx_bursts')

    def end(self):
        self.process.terminate()
        self.process.wait(10)


def memcached(folder, client, batch, depth, keys=KEYS, value=VALUE):
    """Returns the rate of GETs of memcached; None: it is not installed."""
    if not shutil.which('memcached'):
        return None
    path = os.path.join(folder, 'memcached')
    user = ['-u', 'nobody'] if os.geteuid() == 0 else []
    os.chmod(folder, 0o777)
    with subprocess.Popen(['memcached', '-s', path, '-a', '777', '-m', '1024', '-t', '1', '-R',
                           '1000', *user], stderr=subprocess.DEVNULL) as p:
        try:
            for _ in range(200):
                if os.path.exists(path):
                    break
                time.sleep(0.01)
            args = [path, str(batch), str(depth), str(keys), str(value), str(SECONDS)]
            return measure.last_json(measure.command([client, *args]))['per_second']
        finally:
            p.terminate()
            p.wait()
            if os.path.exists(path):
                os.unlink(path)


def echo(roost, depth):
    """Returns the rate of a bare UDP echo with packets as of calls of one operation."""
    return measure.last_json(measure.command(
        [os.path.join(os.path.dirname(roost), 'bench', 'bench-echo'), str(CALL), str(REPLY),
         str(depth), '0.2']))['rate']


def one_round(roost, client):
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for kind in ADDRESSES:
            node = Node(roost, kind)
            try:
                for what, port, batch, depth, beside in RATES:
                    if port != kind:
                        continue
                    got = node.bench(batch, depth)
                    row = {'way': what, 'port': kind, 'batch': batch, 'depth': depth,
                           'rate': got['per_second'], 'p50_us': got['p50_us'],
                           'p99_us': got['p99_us']}
                    if beside:
                        row['beside'] = memcached(folder, client, *beside)
                    if kind == 'udp' and batch == 1:
                        row['echo'] = echo(roost, depth)
                    rows.append(row)
                read = measure.last_json(measure.command(
                    [roost, 'perf', 'read', '--local', '--port', kind, '--size', str(VALUE),
                     '--lat', 'completion', '--seconds', str(SECONDS), '--json']))
                rows.append(
                    {'way': 'a GET alone, p50', 'port': kind, 'us': node.bench(1, 1)['p50_us'],
                     'read_us': read['rows'][0]['latency_us']['p50'] if 'rows' in read
                     else read['latency_us']['p50']})
            finally:
                node.end()
    return {'rows': rows}


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
                             'p50_us': one['p50_us'], 'p99_us': one['p99_us']})
        finally:
            node.end()
    return {'rows': rows}


def ycsb_round(roost, client):
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
                                         'workload': load, 'rate': got['per_second'],
                                         'p50_us': got['p50_us'], 'p99_us': got['p99_us']})
                finally:
                    node.end()
        for size in SIZES:
            rate = memcached(folder, client, YCSB_BATCH, YCSB_DEPTH, YCSB_KEYS, size - 8)
            if rate:
                rows.append({'port': 'memcached', 'bytes': size, 'zipf': 0, 'workload': 'C',
                             'rate': rate})
    return {'rows': rows}


def merge(runs):
    rows = []
    for several in zip(*(r['rows'] for r in runs)):
        row = dict(several[0])
        for key in ('rate', 'beside', 'echo', 'p50_us', 'p99_us', 'us', 'read_us'):
            if row.get(key) is not None:
                row[key] = statistics.median(s[key] for s in several)
        rows.append(row)
    return rows


def plan(roost):
    client = os.path.join(os.path.dirname(roost), 'bench', 'bench-memcached')
    return [measure.Measurement(NAME, 'roost kv bench; bench-memcached',
                                lambda: one_round(roost, client), merge=merge),
            measure.Measurement(YCSB, 'roost kv bench --workload; bench-memcached',
                                lambda: ycsb_round(roost, client), merge=merge),
            measure.Measurement(BATCHES, 'roost kv bench --batch N', lambda: batches_round(roost),
                                merge=merge)]


def verdict(row):
    if 'us' in row:
        return (
            '' if row['port'] != 'shm'
            else f'READ + 0.6 us: {"met" if row["us"] <= row["read_us"] + 0.6 else "**missed**"}')
    bar = BARS.get((row['port'], row['batch']))
    if not bar or (row.get('beside') is None
                   and row['port'] == 'shm') or (row['port'] == 'udp' and row['depth'] > 64):
        return ''
    text, met = bar(row)
    return f'{text}: {"met" if met else "**missed**"}'


def section(f):
    rows = f.load(NAME).get('rows', [])
    if not rows:
        return
    yield ''
    yield (
        f'Through the NIC, between two processes on two cores: {KEYS // 1000000} million keys, '
        f'values of {VALUE} bytes. Beside it memcached with one '
        'thread at a Unix socket, driven by a client that only counts bytes, with as many keys in '
        'a request and requests in flight.')
    yield ''
    yield '| what | port | | beside it | the bar |'
    yield '|---|---|---:|---:|---|'
    for row in rows:
        if 'us' in row:
            yield (f'| {row["way"]} | {row["port"]} | {row["us"]:.2f} us | a READ: '
                   f'{row["read_us"]:.2f} us | {verdict(row)} |')
            continue
        beside = (
            f'memcached: {row["beside"] / 1e6:.2f} M/s, {row["rate"] / row["beside"]:.1f} times'
            if row.get('beside') else f'a bare UDP echo: {row["echo"] / 1e6:.2f} M/s'
            if row.get('echo') else '')
        yield (f'| {row["way"]} | {row["port"]} | {row["rate"] / 1e6:.2f} M/s, p50 '
               f'{row["p50_us"]:.0f} us | {beside} | {verdict(row)} |')


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
    yield '| port | operations in a call | rate | times | p50, p99 of a call alone |'
    yield '|---|---:|---:|---:|---:|'
    for r in rows:
        yield (f'| {r["port"]} | {r["batch"]} | {r["rate"] / 1e6:.2f} M/s | '
               f'{r["rate"] / first[r["port"]]["rate"]:.1f} | {r["p50_us"]:.1f}, '
               f'{r["p99_us"]:.1f} us |')


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
        'with keys of 12 bytes, uniform, as workload C. Paper (figure 16): see the engine.')
    yield ''
    yield '| port | keys | bytes | A | B | C | D | F |'
    yield '|---|---|---:|' + '---:|' * 5
    for port, zipf, size in dict.fromkeys(c[:3] for c in cells):
        yield f'| {port} | {"Zipf 0.99" if zipf else "uniform"} | {size} | ' + ' | '.join(
            cells.get((port, zipf, size, load), '') for load in 'ABCDF') + ' |'


if __name__ == '__main__':
    ROOST = sys.argv[1]
    import json
    print(json.dumps(one_round(
        ROOST, os.path.join(os.path.dirname(ROOST), 'bench', 'bench-memcached')), indent=1))
