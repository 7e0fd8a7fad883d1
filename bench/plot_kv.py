# SPDX-License-Identifier: BSD-2-Clause
"""docs/perf-kv.svg: accesses of the store's operations over utilization, beside cuckoo and
hopscotch hashing; after KV-Direct's figure 11."""
import kv
from panel import Panel, entry, path, svg
from plot import HEIGHT, LEFT, TOP, text

COLORS = {'store': '#1b6ca8', 'cuckoo': '#c8553d', 'hopscotch': '#6a8d3a'}


def write(f, file):
    rows = f.load(kv.INDEX).get('rows')
    if not rows:
        return
    out = []
    steps = sorted({r['utilization'] for r in rows})
    for index, (size, what, most) in enumerate((s, w, m) for s in (10, 254)
                                               for w, m in (('get', 4), ('put', 10))):
        name = 'GET' if what == 'get' else 'PUT of a new key'
        p = Panel(index, f'{size} bytes, accesses of a {name}', steps, 0, most)
        out += p.axes()
        for u in steps[1::2]:
            out.append(text(p.x(u), TOP + HEIGHT + 16, f'{u:g}', 'middle', size=10))
        for row, (way, color) in enumerate(COLORS.items()):
            out.append(path(p, [(r['utilization'], r[what]) for r in rows
                                if r['way'] == way and r['bytes'] == size], color))
            out += entry(p, row, way, color)
    out.append(text(LEFT, TOP + HEIGHT + 100,
                    'over utilization: bytes of keys and values for each byte of memory; a line '
                    'ends where the pairs do not fit'))
    with open(file, 'w', encoding='utf-8') as picture:
        picture.write(svg(4, 110, out))
