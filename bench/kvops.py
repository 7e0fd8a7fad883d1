# SPDX-License-Identifier: BSD-2-Clause
"""Figures 13 and 14 and tables 2, 5 and 6 of KV-Direct: updates of vectors, atomics, execution out
of order and the load dispatcher; their part of bench/RESULTS.md."""
import os

import kv
import kvstores
import measure
from tables import head, line

VECTORS, SIDES, ORDER = 'kv-vectors', 'kv-sides', 'kv-order'
DELAY_US, PAIRS = 50, 131072

# Table 2 in GB/s: vectors with and without their return, and fetched by the client. A key for each
# element: 2.09 for each size.
PAPER = {64: (11.52, 4.37, 0.03), 128: (11.52, 4.53, 0.06), 256: (11.52, 4.62, 0.12),
         512: (11.52, 4.66, 0.24), 1024: (11.52, 4.68, 0.46)}


def plan(roost):
    folder = os.path.join(os.path.dirname(roost), 'bench')
    server, client = kvstores.ADDRESSES['shm']

    def run_vectors():
        node = kvstores.Node(roost, 'shm')
        try:
            return measure.last_json(measure.command(
                [os.path.join(folder, 'bench-kv-ops'), server, '0.2'],
                env=dict(os.environ, ROOST_PORT=f'shm:{client}')))
        finally:
            node.end()

    def run_sides():
        return measure.last_json(measure.command([os.path.join(folder, 'bench-kv-sides'), '0.2']))

    def run_order():
        return measure.last_json(measure.command(
            [os.path.join(folder, 'bench-kv-far'), '--pairs', str(PAIRS), '--throttle',
             str(DELAY_US), '0.1']))

    return [measure.Measurement(VECTORS, 'roost node --kv; build/bench/bench-kv-ops', run_vectors,
                                merge=kv.merge),
            measure.Measurement(SIDES, 'build/bench/bench-kv-sides 0.2', run_sides,
                                merge=kv.merge),
            measure.Measurement(
                ORDER, f'build/bench/bench-kv-far --pairs {PAIRS} --throttle {DELAY_US} 0.1',
                run_order, merge=kv.merge)]


def of(f, name, figure):
    return [r for r in f.load(name).get('rows', [])
            if figure in (r.get('figure'), 'table ' + r.get('table', ''))]


def vectors(f):
    rows = of(f, VECTORS, 'table 2')
    if not rows:
        yield 'Vectors through the NIC: not measured.'
        return
    rates = {(r['bytes'], r['way']): r['rate'] * 8 / 1e9 for r in rows}
    ways = list(dict.fromkeys(r['way'] for r in rows))
    yield (
        'Increments of the elements of vectors through the NIC, over shm, GB of elements a second, '
        '256 operations in flight, in calls of at most 32. In brackets: table 2 of the paper. '
        'A vector that is fetched, changed and stored by its client is not changed atomically.')
    yield ''
    yield from head('', 'bytes', *ways, 'one operation against a key for each element')
    for size in sorted({c[0] for c in rates}):
        back, alone, fetched = PAPER[size]
        paper = dict(zip(ways, (alone, back, 2.09, fetched)))
        yield line(f'{size}', *(f'{rates[size, w]:.2f} ({paper[w]})' for w in ways),
                   f'{rates[size, ways[0]] / rates[size, ways[2]]:.1f} times')


def atomics(f):
    """Returns {(way, keys): rate} of figure 13a."""
    cells = {}
    for name, prefix in ((ORDER, 'the engine, '), (VECTORS, ''), (SIDES, '')):
        for r in of(f, name, '13a'):
            cells[prefix + r['way'], r['keys']] = r['rate']
    return cells


def order(f):
    cells = atomics(f)
    rows = of(f, ORDER, '13b')
    if not cells or not rows:
        yield 'Execution out of order: not measured.'
        return
    yield (
        'Atomics on some keys, thousand operations a second. The engine has a far tier here: '
        f'memory of which a line comes {DELAY_US} us after its request; one line in a hundred may '
        'stay in near memory. If one key is all the load, its line is always being written back, '
        'and need not be read. The others are through the NIC over shm, between two processes on '
        'two cores, without a far tier: batches of 32 to the store; RDMA FETCH_ADD, 16 in flight, '
        'the most that a queue pair may have; SENDs to a program that polls, 64 in flight, and a '
        'WRITE back. Paper (figure 13a): 180,000 on one key, 191 times in order (940); RDMA NIC '
        '2,240.')
    yield ''
    ways = list(dict.fromkeys(c[0] for c in cells))
    yield from head('', 'keys', *ways)
    for keys in sorted({c[1] for c in cells}):
        yield line(f'{keys}', *(f'{cells[w, keys] / 1e3:.1f}' if (w, keys) in cells else ''
                                for w in ways))
    yield ''
    yield ('Zipf 0.99 with the same far tier, thousand operations a second. Paper (figure 13b, '
           'chart only): in order is worse with more PUTs.')
    yield ''
    rates = {(r['puts'], r['way']): r for r in rows}
    yield from head('', 'PUTs', 'out of order', 'in order', 'times', 'forwarded')
    for puts in sorted({c[0] for c in rates}):
        many, one = rates[puts, 'out of order'], rates[puts, 'in order']
        yield line(f'{puts}%', f'{many["rate"] / 1e3:.1f}', f'{one["rate"] / 1e3:.1f}',
                   f'{many["rate"] / one["rate"]:.1f}', f'{many["forwarded"] * 100:.0f}%')


def best(rows, speed, near):
    """Returns the share of cacheable lines with the highest rate, and this rate against plain
    partitioning. Near memory has `speed` accesses for each one of far memory."""
    def cost(r):
        return max(r['share'] / speed, r['far_reads'])

    least = min(rows, key=cost)
    plain = min(near / (1 + near), speed / (1 + speed))
    return least['share'], (1 - plain) / cost(least)


def dispatch(f):
    rows = of(f, ORDER, '14')
    if not rows:
        yield 'The load dispatcher by run: not measured.'
        return
    equation = {(r['way'], r['speed'], round(1 / r['near'])): (r['share'], r['times'])
                for r in of(f, kv.INDEX, 'dispatch')}
    yield (
        'Load dispatcher, by run: lines that a GET reads from far memory, over the share of lines '
        'that may stay in near memory, by the size of near memory, in order. A line is a page '
        'with 64 buckets, so keys that are used often share lines with others. Paper (figure 14): '
        'with a share of 0.5 near memory of 6% serves about 30% of the accesses with Zipf load; '
        'it has a negligible effect with uniform load.')
    yield ''
    cells = {(r['way'], round(1 / r['near']), r['share']): r['far_reads'] for r in rows}
    sets = list(dict.fromkeys(c[:2] for c in cells))
    yield from head('', 'share', *(f'{way}, 1/{n}' for way, n in sets))
    for share in sorted({c[2] for c in cells}):
        yield line(f'{share:.1f}', *(f'{cells[(*s, share)]:.2f}' for s in sets))
    yield ''
    yield (
        'Tables 5 and 6 from these runs: the best of the ten shares, and the rate with it against '
        'plain partitioning, over the speed of near memory in relation to far memory. In brackets: '
        'by the equation, which assumes that near memory has the keys that are used most.')
    yield ''
    yield from head('l', 'load', 'speed', *(f'1/{n}' for n in (64, 16, 4)))
    for way in ('Zipf', 'uniform'):
        for speed in (0.5, 1, 2, 4, 8):
            text = []
            for n in (64, 16, 4):
                some = [r for r in rows if r['way'] == way and round(1 / r['near']) == n]
                share, times = best(some, speed, 1 / n)
                model = equation.get((way, speed, n))
                text.append(f'{share:.1f}, {times:.2f}'
                            + (f' ({model[0]:.2f}, {model[1]:.2f})' if model else ''))
            yield line(way, f'{speed:g}', *text)


def section(f):
    yield ''
    yield from vectors(f)
    yield ''
    yield from order(f)
    yield ''
    yield from dispatch(f)
    yield ''
    yield '![out of order, and the load dispatcher](../docs/perf-kv-order.svg)'
    yield ''
