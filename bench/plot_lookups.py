# SPDX-License-Identifier: BSD-2-Clause
"""docs/perf-lookups.svg: look-ups by chains and otherwise, gets from memcached by size, look-ups
beside writers, and gets while the servers are killed; after RedN's figures 10, 11 and 14 to 16."""
import math

import cache
import kernels
import lookups
from panel import Panel, entry, path, svg
from plot import HEIGHT, LEFT, TOP, line, text

COLORS = {'one READ': '#777777', 'READs': '#c8553d', 'kernel': '#8e5aa8', 'chain': '#1b6ca8',
          'chain, second bucket': '#6aa3cf', 'two-sided, polls': '#6a8d3a',
          'two-sided, blocks': '#b5a13a'}
CACHE = {'chain': '#1b6ca8', 'two READs': '#c8553d', 'two-sided': '#6a8d3a'}
DASHES = {0: '', 2: '2 3', 5: '5 3'}  # us of a round trip on the wire


def values(f):
    look = kernels.Rows(f, 'chain')
    p = Panel(0, 'look-up by bytes of the value (figures 10, 11), p50 us', look.sizes(), 1, 100)
    yield from [*p.axes(), *p.names()]
    for row, (way, color) in enumerate(COLORS.items()):
        for delay, dash in DASHES.items():
            data = kernels.Rows(f, 'chain', delay)
            points = [(s, data.of(way, s)) for s in data.sizes()]
            if points:
                yield path(p, points, color, dash)
        yield from entry(p, row, way, color)


def writers(f):
    rows = kernels.Rows(f, 'writers')
    p = Panel(1, 'look-up beside writers (figure 15), p99 us', rows.sizes(), 1, 10000)
    yield from [*p.axes(), *p.names()]
    for row, (way, color, dash) in enumerate(
        (w + at, COLORS[w], dash) for w in ('chain', *lookups.TWO_SIDED)
            for at, dash in (('', ''), (', at the NIC', '5 3'))):
        yield path(p, [(n, rows.of(way, n, 'p99_us')) for n in rows.sizes()], color, dash)
        yield from entry(p, row, way, color, dash)


def gets(data):
    p = Panel(2, 'memcached, get by bytes (figure 14), p50 us', cache.SIZES, 1, 1000)
    yield from [*p.axes(), *p.names()]
    for row, (way, color) in enumerate(CACHE.items()):
        yield path(p, [(s, lookups.of_cache(data['sizes'], way, s, 0)) for s in cache.SIZES], color)
        yield from entry(p, row, way, color)


def over_time(data):
    most = math.ceil(max(max(data[way]) for way in ('chain', 'two-sided')) / 500) * 500
    bins = list(range(len(data['chain'])))
    p = Panel(3, f'memcached, gets in {data["bin_ms"]} ms over s (figure 16)', bins, 0, most)
    yield from p.axes()
    for b in bins[::10 * max(1, round(len(bins) / 60))]:
        yield text(p.x(b), TOP + HEIGHT + 16, f'{b * data["bin_ms"] / 1e3:g}', 'middle', size=10)
    for row, way in enumerate(('chain', 'two-sided')):
        yield path(p, list(enumerate(data[way])), CACHE[way])
        yield from entry(p, row, way, CACHE[way])
    for at in data['kills']:
        x = p.x(bins[0]) + (p.x(bins[1]) - p.x(bins[0])) * at * 1e3 / data['bin_ms']
        yield line(x, TOP, x, TOP + HEIGHT, '#222222', 1, '2 3')
    yield from entry(p, 2, 'both servers are killed', '#222222', '2 3')


def write(f, file):
    data = f.load(cache.NAME).get('rows')
    out = []
    if f.load('kernels-chain-0us').get('rows'):
        out += values(f)
    if f.load('kernels-writers').get('rows'):
        out += writers(f)
    if data:
        out += [*gets(data), *over_time(data['time'])]
    if not out:
        return
    out.append(text(LEFT, TOP + HEIGHT + 150,
                    'first plot: solid: no wire; dotted and dashed: with a wire whose round trip '
                    'takes 2 and 5 us, measured'))
    with open(file, 'w', encoding='utf-8') as picture:
        picture.write(svg(4, 160, out))
