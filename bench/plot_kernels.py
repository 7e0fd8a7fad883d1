# SPDX-License-Identifier: BSD-2-Clause
"""docs/perf-kernels.svg: look-ups by kernel, by READs and by ONC RPC; consistent reads that fail;
streams with hll."""
import math

import kernels
from panel import Panel, svg
from plot import HEIGHT, LEFT, TOP, curve, line, text

WAYS = [('kernel', '#1b6ca8'), ('READs', '#c8553d'), ('READ, check', '#c8553d'),
        ('ONC RPC', '#6a8d3a'), ('one READ', '#777777')]
DASHES = {0: '', 5: '5 3', 10: '2 3'}
BAR = '#1b6ca8'


def latencies(f, index, test, title, key, choose):
    """Draws the p50 over `key` of the rows, a curve for each way and delay."""
    data = {d: [r for r in kernels.Rows(f, test, d).rows if choose(r)] for d in kernels.DELAYS}
    rows = [r for d in data.values() for r in d]
    if not rows:
        return
    p = Panel(index, title, sorted({r[key] for r in rows}), 1, 1000)
    yield from p.axes()
    yield from p.names()
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
    yield from p.axes()
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
    with open(path, 'w', encoding='utf-8') as file:
        file.write(svg(4, 110, [*out, *legend(TOP + HEIGHT + 95)]))
