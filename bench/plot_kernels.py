# SPDX-License-Identifier: BSD-2-Clause
"""docs/perf-kernels.svg: look-ups by kernel, by READs and by ONC RPC; consistent reads that fail;
streams with hll."""
import math

import kernels
from plot import GAP, HEIGHT, LEFT, TOP, WIDTH, curve, line, text

WAYS = [('kernel', '#1b6ca8'), ('READs', '#c8553d'), ('READ, check', '#c8553d'),
        ('ONC RPC', '#6a8d3a'), ('one READ', '#777777')]
DASHES = {0: '', 5: '5 3', 10: '2 3'}
BAR = '#1b6ca8'


class Panel:
    """Sizes stand side by side, whatever they are; values from `low`, logarithmic, or from 0."""

    def __init__(self, index, title, sizes, low, high):
        self.x0 = LEFT + index * (WIDTH + GAP + LEFT)
        self.title, self.sizes, self.low, self.high = title, sizes, low, high

    def x(self, size):
        return self.x0 + (self.sizes.index(size) + 0.5) / len(self.sizes) * WIDTH

    def y(self, value):
        t = math.log(max(value, self.low) / self.low) / math.log(
            self.high / self.low) if self.low else value / self.high
        return TOP + HEIGHT - min(t, 1) * HEIGHT

    def ticks(self):
        if not self.low:
            return [self.high * i / 5 for i in range(6)]
        return [d * s for d in (1, 10, 100, 1000) for s in (1, 2, 5)
                if self.low <= d * s <= self.high]


def axes(p):
    yield (f'<rect x="{p.x0}" y="{TOP}" width="{WIDTH}" height="{HEIGHT}" fill="none" '
           f'stroke="#222222"/>')
    yield text(p.x0, TOP - 12, p.title, size=13)
    for v in p.ticks():
        yield line(p.x0, p.y(v), p.x0 + WIDTH, p.y(v), '#dddddd')
        yield text(p.x0 - 6, p.y(v) + 4, f'{v:g}', 'end', size=10)


def latencies(f, index, test, title, key, choose):
    """p50 over `key` of the rows, a curve for each way and delay."""
    data = {d: [r for r in kernels.Rows(f, test, d).rows if choose(r)] for d in kernels.DELAYS}
    rows = [r for d in data.values() for r in d]
    if not rows:
        return
    p = Panel(index, title, sorted({r[key] for r in rows}), 1, 1000)
    yield from axes(p)
    for size in p.sizes:
        yield text(p.x(size), TOP + HEIGHT + 16, str(size), 'middle', size=10)
    for way, color in WAYS:
        for delay, dash in DASHES.items():
            points = [(r[key], r['p50_us']) for r in data[delay] if r['way'] == way]
            if points:
                yield from curve(p, points, color, dash)


def rates(f, index):
    rows = [r for r in kernels.Rows(f, 'hll').rows if 'gbps' in r]
    if not rows:
        return
    p = Panel(index, 'hll on a stream, Gbit/s', [r['way'] for r in rows], 0,
              math.ceil(max(r['gbps'] for r in rows) / 10) * 10)
    yield from axes(p)
    for r in rows:
        x, y = p.x(r['way']), p.y(r['gbps'])
        yield (f'<rect x="{x - 18:.1f}" y="{y:.1f}" width="36" height="{TOP + HEIGHT - y:.1f}" '
               f'fill="{BAR}"/>')
        yield text(x, y - 4, f'{r["gbps"]:.1f}', 'middle', size=10)
        yield text(x + 4, TOP + HEIGHT + 12, r['way'], 'end', size=10,
                   extra=f' transform="rotate(-30 {x + 4:.1f} {TOP + HEIGHT + 12})"')


def legend(y):
    x = LEFT
    for way, color in WAYS:
        yield line(x, y - 4, x + 28, y - 4, color, 2)
        yield text(x + 34, y, way)
        x += 120
    for delay, dash in DASHES.items():
        yield line(x, y - 4, x + 28, y - 4, '#222222', 2, dash)
        yield text(x + 34, y, f'{delay} us on the wire')
        x += 140


def write(f, path):
    out = [*latencies(f, 0, 'list', 'list look-up by length, p50 us', 'size', lambda r: True),
           *latencies(f, 1, 'get', 'hash GET by bytes, p50 us', 'size', lambda r: True),
           *latencies(f, 2, 'object', 'consistent read of 4 KiB by % of failures, p50 us',
                      'failures', lambda r: r['size'] == 4096 and r['way'] != 'READ'),
           *rates(f, 3)]
    if not out:
        return
    total = LEFT + 4 * (WIDTH + LEFT + GAP)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {total} {TOP + HEIGHT + 110}" '
           f'font-family="sans-serif">', '<rect width="100%" height="100%" fill="#ffffff"/>', *out,
           *legend(TOP + HEIGHT + 95), '</svg>']
    with open(path, 'w', encoding='utf-8') as file:
        file.write('\n'.join(out) + '\n')
