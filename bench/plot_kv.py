# SPDX-License-Identifier: BSD-2-Clause
"""docs/perf-kv.svg: accesses of the store's operations over utilization, beside cuckoo and
hopscotch hashing, and YCSB; after KV-Direct's figures 11 and 16."""
import kv
from panel import Panel, entry, path, svg
from plot import HEIGHT, LEFT, TOP, text

COLORS = {'store': '#1b6ca8', 'cuckoo': '#c8553d', 'hopscotch': '#6a8d3a'}


LOADS = {'A': '#1b6ca8', 'B': '#c8553d', 'C': '#6a8d3a', 'D': '#8e5aa8', 'F': '#b5a13a'}


def ycsb(f):
    rows = f.load(kv.YCSB).get('rows', [])
    sizes = sorted({r['bytes'] for r in rows})
    for zipf, name in enumerate(('uniform', 'Zipf 0.99')):
        p = Panel(4 + zipf, f'YCSB by bytes of a pair, {name}, M/s', sizes, 0, 25)
        if rows:
            yield from [*p.axes(), *p.names()]
        for row, (load, color) in enumerate(LOADS.items()):
            points = [(r['bytes'], r['rate'] / 1e6) for r in rows
                      if r['workload'] == load and r['zipf'] == zipf]
            if points:
                yield path(p, points, color)
                yield from entry(p, row, load, color)


def write(f, file):
    rows = f.load(kv.INDEX).get('rows')
    if not rows:
        return
    out = [*ycsb(f)]
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
        picture.write(svg(6, 120, out))
