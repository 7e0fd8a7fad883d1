# SPDX-License-Identifier: BSD-2-Clause
"""The measurements of the key-value store's engine, its bars, and its part of bench/RESULTS.md."""
import math
import os

import measure
from tables import merge

NAME = 'kv-engine'
FAR = 'kv-far'
INDEX = 'kv-index'
YCSB = 'kv-ycsb'
SLAB = 'kv-slab'


def plan(path):
    exe = os.path.join(os.path.dirname(path), 'bench', 'bench-kv')

    def run():
        return measure.last_json(measure.command([exe, '0.3']))

    def run_far():
        return measure.last_json(measure.command([exe + '-far', os.path.dirname(exe), '2']))

    def run_index():
        return measure.last_json(measure.command([exe + '-index']))

    def run_slab():
        return measure.last_json(measure.command([exe + '-slab']))

    def run_ycsb():
        return measure.last_json(measure.command([exe + '-ycsb']))

    return [measure.Measurement(YCSB, 'build/bench/bench-kv-ycsb', run_ycsb, merge=merge),
            measure.Measurement(SLAB, 'build/bench/bench-kv-slab', run_slab, merge=merge),
            measure.Measurement(INDEX, 'build/bench/bench-kv-index', run_index, merge=merge),
            measure.Measurement(NAME, 'build/bench/bench-kv 0.3', run, merge=merge),
            measure.Measurement(FAR, 'build/bench/bench-kv-far build/bench 2', run_far,
                                merge=merge)]


def bar(row):
    """Returns the bar as text, and whether it is met; None: there is no bar."""
    way = row['way']
    if way.startswith('GET record'):
        text = 'at least 40% of the limit; a record is three lines, so the row of three lines is '
        return text + 'the most', row['of_limit'] >= 0.4
    if way.startswith('GET'):
        return 'at least 40% of the limit', row['of_limit'] >= 0.4
    if way.startswith('PUT'):
        return 'at least 20% of the limit', row['of_limit'] >= 0.2
    for size, least in ((64, 5), (1024, 30)):
        if way.startswith(f'vectors of {size} bytes against'):
            return f'at least {least} times', row['times'] >= least
    if way.startswith('atomics on one key'):
        return 'at least 30 M/s', row['rate'] >= 30e6
    return None


def engine(f):
    rows = f.load(NAME).get('rows', [])
    if not rows:
        yield 'Not measured.'
        return
    yield (
        'The engine alone, on one thread, with half of the slots in use. The limit is random reads '
        'of 64 bytes, 16 in flight, in the same run.')
    yield ''
    yield '| what | | of the limit | the bar |'
    yield '|---|---:|---:|---|'
    for row in rows:
        value = f'{row["times"]:.1f} times' if 'times' in row else f'{row["rate"] / 1e6:.1f} M/s'
        share = f'{row["of_limit"] * 100:.0f}%' if 'of_limit' in row else ''
        verdict = bar(row)
        text = f'{verdict[0]}: {"met" if verdict[1] else "**missed**"}' if verdict else ''
        yield f'| {row["way"]} | {value} | {share} | {text} |'


def far(f):
    """The store with a far tier, and the limit of the far tier."""
    rows = {row['way']: row for row in f.load(FAR).get('rows', [])}
    if not rows:
        yield 'With a far tier: not measured.'
        return
    yield (
        'With a far tier in a file (O_DIRECT), near memory for a sixteenth of the pairs, Zipf '
        '0.99, 50% PUTs. Paper: 15% of the operations merged, 60% near hits.')
    yield ''
    yield ('| what | operations a second | CPU time for each | near hits | forwarded '
           '| lines read and written for each |')
    yield '|---|---:|---:|---:|---:|---:|'
    for row in rows.values():
        if 'rate' in row:
            yield (f'| {row["way"]} | {row["rate"]:.0f} | {row.get("cpu_us", math.nan):.1f} us | '
                   f'{row["near_hits"] * 100:.0f}% | {row["forwarded"] * 100:.1f}% | '
                   f'{row["far_reads"]:.2f}, '
                   f'{row["far_writes"]:.2f} |')
    yield ''
    one, many = rows['in order'], rows['out of order']
    alone = [row['lines'] for way, row in rows.items() if way.startswith('the far tier alone')]
    first, most, mixed = alone[0], alone[1], alone[-1]
    moved = many['far_reads'] + many['far_writes']
    yield (
        f'Out of order it is {many["rate"] / one["rate"]:.1f} times as fast as in order; the bar '
        f'is 5. The far tier alone moves {first:.0f} lines a second if it reads one at a time, '
        f'{most:.0f} with as many in flight as operations, which is {most / first:.1f} times, and '
        f'{mixed:.0f} with reads and writes as in the run out of order. With {moved:.2f} lines for '
        f'each operation that allows {mixed / moved:.0f} operations a second, '
        f'{mixed / moved / one["rate"]:.1f} times the rate in order.')
    snapshot = rows.get('a snapshot')
    if snapshot:
        yield (f'A snapshot reads {snapshot["lines"]:.0f} lines a second, which is '
               f'{snapshot["lines"] / first:.1f} times the rate of one at a time.')


def index(f):
    """Accesses over utilization, beside models of other hash tables; over the settings."""
    rows = f.load(INDEX).get('rows', [])
    if not rows:
        yield 'Accesses over utilization: not measured.'
        return
    ways = ('store', 'cuckoo', 'hopscotch')
    cells = {(r['bytes'], r['utilization'], r['way']): f'{r["get"]:.2f}, {r["put"]:.2f}'
             for r in rows if r['figure'] == '11'}
    yield (
        'Accesses of a GET, and of a PUT of a new key, over utilization: the store with settings '
        'of its tuner, and models of cuckoo and hopscotch hashing in as much memory '
        '(bench_kv_index.c). Paper (figure 11): KV-Direct is close to 1 and 2 for inline pairs of '
        '10 bytes, one more otherwise, and holds more than 55% of 10-byte pairs; cuckoo takes up '
        'to 2 a GET; both others hold at most 55%.')
    yield ''
    yield '| bytes | utilization | ' + ' | '.join(ways) + ' |'
    yield '|---:|---:|---:|---:|---:|'
    for size, used in sorted({c[:2] for c in cells}):
        yield f'| {size} | {used:.2f} | ' + ' | '.join(
            cells.get((size, used, way), 'do not fit') for way in ways) + ' |'
    yield ''
    yield from settings(rows)
    yield ''
    yield from dispatch(rows)
    yield ''
    yield '![accesses](../docs/perf-kv.svg)'


def table(rows, figure, x, group, value):
    """A line for each value of x, a column for each group."""
    some = [r for r in rows if r['figure'] == figure]
    groups = list(dict.fromkeys(group(r) for r in some))
    cells = {(round(r[x], 2), group(r)): value(r) for r in some}
    yield f'| {"index ratio" if x == "ratio" else x} | ' + ' | '.join(groups) + ' |'
    yield '|---:|' + '---:|' * len(groups)
    for at in sorted({c[0] for c in cells}):
        yield f'| {at:.2f} | ' + ' | '.join(
            cells.get((at, g), 'do not fit') for g in groups) + ' |'


def settings(rows):
    """Figures 6, 9a, 9b and 10 of KV-Direct."""
    def accesses(r):
        return f'{r["get"]:.2f}'

    yield (
        'Accesses of a GET over utilization, by inline threshold, with the largest index that '
        'fits; as many pairs of 10, 15, 20 and 25 bytes. A PUT that replaces a value takes one '
        'more in this table and the next two. Paper (figure 6, chart only): grows with '
        'utilization, steeper for higher thresholds.')
    yield ''
    yield from table(rows, '6', 'utilization', lambda r: f'{r["inline_max"]} bytes', accesses)
    yield ''
    yield (
        'Accesses of a GET over the index ratio; pairs of 10 bytes are inline. Paper (figure 9a, '
        'chart only, utilization 0.5): fall as the ratio grows.')
    yield ''
    yield from table(rows, '9a', 'ratio', lambda r: f'{r["bytes"]} bytes, {r["utilization"]:g}',
                     accesses)
    yield ''
    yield ('Accesses of a GET over utilization, index ratio 0.5. Paper (figure 9b, chart only): '
           'rise.')
    yield ''
    yield from table(rows, '9b', 'utilization', lambda r: f'{r["bytes"]} bytes', accesses)
    yield ''
    yield (
        'Highest utilization, and accesses of a GET there, over the index ratio, by bytes of a '
        'pair; pairs of at most 20 bytes are inline. Paper (figure 10, chart only): one takes the '
        'largest ratio that still fits the data.')
    yield ''
    yield from table(rows, '10', 'ratio', lambda r: f'{r["bytes"]} bytes',
                     lambda r: f'{r["utilization"]:.2f}, {r["get"]:.2f}')


# Tables 5 and 6 of KV-Direct, by the rate of near memory for each access of far memory, for near
# memory of 1/1024 to all of far memory.
NEAR = (1024, 256, 64, 16, 4, 1)
DISPATCH = {
    0.5: ((0.366, 1.36), (0.358, 1.39), (0.350, 1.40), (0.342, 1.37), (0.335, 1.19), (0.327, 1.02)),
    1: ((0.583, 1.71), (0.562, 1.77), (0.543, 1.81), (0.525, 1.79), (0.508, 1.57), (0.492, 1.01)),
    2: ((0.830, 2.40), (0.789, 2.52), (0.752, 2.62), (0.718, 2.62), (0.687, 2.33), (0.658, 1.52)),
    4: ((1, 3.99), (0.991, 4.02), (0.933, 4.22), (0.881, 4.27), (0.835, 3.83), (0.793, 2.52)),
    8: ((1, 7.99), (1, 7.97), (1, 7.87), (0.995, 7.56), (0.937, 6.83), (0.885, 4.52)),
}


def dispatch(rows):
    """The load dispatcher by its equation."""
    cells = {(r['way'], r['speed'], round(1 / r['near'])): (r['share'], r['times'])
             for r in rows if r['figure'] == 'dispatch'}
    yield (
        'Load dispatcher, by the equation of the paper: the best share of cacheable lines, and the '
        'rate with it against plain partitioning, over the size and the speed of near memory in '
        'relation to far memory. In brackets: tables 5 and 6 of the paper. Its rates with a share '
        'of 1 leave out the misses. With uniform load it gains at most 7%, unless near memory is '
        'as large as far memory.')
    yield ''
    yield '| load | speed | ' + ' | '.join(f'1/{n}' if n > 1 else '1' for n in NEAR) + ' |'
    yield '|---|---:|' + '---:|' * len(NEAR)
    for way, speed in dict.fromkeys(c[:2] for c in cells):
        if way == 'uniform' and speed not in (1, 1024):
            continue
        row = []
        for i, n in enumerate(NEAR):
            text = '{:.3f}, {:.2f}'.format(*cells[way, speed, n])
            if way == 'Zipf' and speed in DISPATCH:
                text += ' ({:.3f}, {:.2f})'.format(*DISPATCH[speed][i])
            row.append(text)
        yield f'| {way} | {speed:g} | ' + ' | '.join(row) + ' |'


def ycsb(f):
    """YCSB's workloads on the engine."""
    rows = f.load(YCSB).get('rows', [])
    if not rows:
        yield 'YCSB: not measured.'
        return
    loads = 'ABCDF'
    cells = {(r['bytes'], r['zipf'], r['workload']):
             f'{r["rate"] / 1e6:.1f} ({r["of_limit"] * 100:.0f}%)' for r in rows}
    yield (
        'YCSB on the engine, one thread, million operations a second, and the share of the limit '
        '(random reads of 64 bytes, 16 in flight, in the same run). Paper (figure 16, an FPGA '
        'behind PCIe): 180 million for Zipf and mostly reads; the network bounds pairs of 62 bytes '
        'and more; other values are only in its chart.')
    yield ''
    yield '| bytes | keys | ' + ' | '.join(loads) + ' |'
    yield '|---:|---|' + '---:|' * len(loads)
    for size, zipf in sorted({(r['bytes'], r['zipf']) for r in rows}):
        yield f'| {size} | {"Zipf 0.99" if zipf else "uniform"} | ' + ' | '.join(
            cells[size, zipf, w] for w in loads) + ' |'


def slab(f):
    """Allocation, splits and merges of slabs."""
    rows = f.load(SLAB).get('rows', [])
    if not rows:
        yield 'The slab allocator: not measured.'
        return
    yield (
        'The slab allocator on one thread: all of the memory is split from slabs of 64 KiB into '
        'slabs of 32 bytes, these are freed in random order, and merged again. Accesses are those '
        'of an allocation or a free. Paper: below 0.07 accesses; at most 90 million entries a '
        'second must be split, 10% of a core; figure 12: 30 s to merge 4 billion slots on one '
        'core, 7.5 ns each, and 1.8 s on 32 cores.')
    yield ''
    yield ('| memory | slabs | an allocation | a free | accesses | entries split a second '
           '| all merged | for each slab |')
    yield '|---:|' + '---:|' * 7
    for r in rows:
        yield (f'| {r["bytes"] / 2**20:.0f} MiB | {r["slabs"]:.0f} | {r["alloc_ns"]:.1f} ns | '
               f'{r["free_ns"]:.1f} ns | {r["accesses"]:.3f} | {r["split_per_second"] / 1e6:.0f} '
               f'million | {r["merge_s"]:.3f} s | {r["merge_ns"]:.1f} ns |')


def section(f):
    yield from engine(f)
    yield ''
    yield from index(f)
    yield ''
    yield from slab(f)
    yield ''
    yield from ycsb(f)
    yield ''
    yield from far(f)
    yield ''
