# SPDX-License-Identifier: BSD-2-Clause
"""docs/perf-kv-order.svg: the store's execution out of order, atomics, and the load dispatcher,
after KV-Direct's figures 13 and 14."""
import kvops
from panel import Panel, entry, path, svg
from plot_kv import BLUE, GREEN, PURPLE, RED, YELLOW, flat, lines


def order(f):
    """Figures 13 and 14."""
    cells = kvops.atomics(f)
    keys = sorted({c[1] for c in cells})
    p = Panel(0, 'atomics over keys, thousand a second', keys, 1, 100000)
    yield from [*p.axes(), *p.names()]
    for row, way in enumerate(dict.fromkeys(c[0] for c in cells)):
        color = (BLUE, RED, GREEN, PURPLE, YELLOW)[row]
        yield path(p, [(k, cells[way, k] / 1e3) for k in keys if (way, k) in cells], color)
        yield from entry(p, row, way, color)
    rows = kvops.of(f, kvops.ORDER, '13b')
    p = Panel(1, 'Zipf over percent of PUTs, thousand a second', sorted({r['puts'] for r in rows}),
              1, 1000)
    yield from [*p.axes(), *p.names()]
    for row, (way, color) in enumerate({'out of order': BLUE, 'in order': RED}.items()):
        yield path(p, [(r['puts'], r['rate'] / 1e3) for r in rows if r['way'] == way], color)
        yield from entry(p, row, way, color)
    for i, way in enumerate(('Zipf', 'uniform')):
        some = [dict(r, size=round(1 / r['near'])) for r in kvops.of(f, kvops.ORDER, '14')
                if r['way'] == way]
        yield from flat(lines(
            2 + i, f'lines read for a GET over share, {way}', some, 'share', 'far_reads',
            lambda r: f'near memory 1/{r["size"]}', 1.25))


def write(f, file):
    if not f.load(kvops.ORDER).get('rows'):
        return
    with open(file, 'w', encoding='utf-8') as picture:
        picture.write(svg(4, 120, list(order(f))))
