# SPDX-License-Identifier: BSD-2-Clause
"""docs/perf-kv.svg: accesses of the store's operations over utilization, beside cuckoo and
hopscotch hashing, over inline threshold and index ratio, and YCSB on the engine and through the
NIC; delay under load, pieces of memory collected by the CPU, and partitions; after KV-Direct's
figures 6, 9, 10, 11, 16, 17, 18 and 20."""
import kv
import kvload
import kvnic
from panel import Panel, entry, path, svg
from plot import HEIGHT, LEFT, TOP, text

BLUE, RED, GREEN, PURPLE, YELLOW = '#1b6ca8', '#c8553d', '#6a8d3a', '#8e5aa8', '#b5a13a'
COLORS = {'store': BLUE, 'cuckoo': RED, 'hopscotch': GREEN}
LOADS = {'A': BLUE, 'B': RED, 'C': GREEN, 'D': PURPLE, 'F': YELLOW}
ROW = TOP + HEIGHT + 120
NOTE = TOP + HEIGHT + 118


def shares(p, steps):
    """The values below the axis: each, or each second one if there are many."""
    for s in steps[1::2] if len(steps) > 10 else steps:
        yield text(p.x(s), TOP + HEIGHT + 16, f'{s:g}', 'middle', size=10)


def lines(index, title, rows, x, y, group, most):
    """A panel with a line for each value of group(row)."""
    steps = sorted({r[x] for r in rows})
    p = Panel(index, title, steps, 0, most)
    yield from [*p.axes(), *shares(p, steps)]
    names = []
    for r in rows:
        if group(r) not in names:
            names.append(group(r))
    for row, name in enumerate(names):
        color = (BLUE, RED, GREEN, PURPLE, YELLOW, '#444444')[row]
        yield path(p, [(r[x], r[y]) for r in rows if group(r) == name], color)
        yield entry(p, row, name, color)


def flat(items):
    """Some elements are lists of elements."""
    for item in items:
        if isinstance(item, str):
            yield item
        else:
            yield from item


def hashing(rows):
    """Figure 11."""
    for index, (size, what, most) in enumerate((s, w, m) for s in (10, 254)
                                               for w, m in (('get', 4), ('put', 10))):
        name = 'GET' if what == 'get' else 'PUT of a new key'
        some = [r for r in rows if r['figure'] == '11' and r['bytes'] == size]
        steps = sorted({r['utilization'] for r in some})
        p = Panel(index, f'{size} bytes, accesses of a {name}', steps, 0, most)
        yield from [*p.axes(), *shares(p, steps)]
        for row, (way, color) in enumerate(COLORS.items()):
            yield path(p, [(r['utilization'], r[what]) for r in some if r['way'] == way], color)
            yield from entry(p, row, way, color)
    yield text(LEFT, NOTE, 'over utilization: bytes of keys and values for each byte of memory; a '
               'line ends where the pairs do not fit')


def settings(rows):
    """Figures 6, 9a, 9b and 10."""
    def of(figure):
        return [r for r in rows if r['figure'] == figure]

    yield from flat(lines(
        0, 'accesses of a GET over utilization, 10 to 25 bytes', of('6'), 'utilization', 'get',
        lambda r: f'inline up to {r["inline_max"]} bytes', 4))
    yield from flat(lines(
        1, 'accesses of a GET over index ratio', of('9a'), 'ratio', 'get',
        lambda r: f'{r["bytes"]} bytes, utilization {r["utilization"]:g}', 5))
    yield from flat(lines(
        2, 'accesses of a GET over utilization, index ratio 0.5', of('9b'), 'utilization', 'get',
        lambda r: f'{r["bytes"]} bytes', 4))
    yield from flat(lines(
        3, 'highest utilization over index ratio', of('10'), 'ratio', 'utilization',
        lambda r: f'{r["bytes"]} bytes', 1))


def ycsb(rows, first, place, most):
    """Figure 16."""
    sizes = sorted({r['bytes'] for r in rows})
    for zipf, name in enumerate(('uniform', 'Zipf 0.99')):
        p = Panel(first + zipf, f'YCSB {place} by bytes of a pair, {name}, M/s', sizes, 0, most)
        if rows:
            yield from [*p.axes(), *p.names()]
        for row, (load, color) in enumerate(LOADS.items()):
            points = [(r['bytes'], r['rate'] / 1e6) for r in rows
                      if r['workload'] == load and r['zipf'] == zipf]
            if points:
                yield path(p, points, color)
                yield from entry(p, row, load, color)


def under_load(rows):
    """Figure 17: p50 (dashed) and p99 over the share of the peak."""
    for index, port in enumerate(('shm', 'udp')):
        p = Panel(index, f'delay of GETs over the share of the peak, {port}, us',
                  list(kvload.SHARES), 1, 1000)
        yield from [*p.axes(), *shares(p, list(kvload.SHARES))]
        row = 0
        for batch in kvload.BATCHES:
            for poisson, name in enumerate(('evenly spaced', 'Poisson')):
                some = [r for r in rows if 'share' in r and (r['port'], r['batch'], r['poisson'])
                        == (port, batch, poisson)]
                color = (BLUE, GREEN, RED, PURPLE)[row]
                yield path(p, [(r['share'], r['p99_us']) for r in some], color)
                yield path(p, [(r['share'], r['p50_us']) for r in some], color, '4 3')
                yield from entry(p, row, f'batches of {batch}, {name}: p99, p50 dashed', color)
                row += 1


def collected(rows):
    """Figure 18."""
    some = [r for r in rows if 'pieces' in r]
    sizes = sorted({r['size'] for r in some})
    p = Panel(2, 'pieces of memory over their bytes, M/s', sizes, 1, 100)
    if some:
        yield from [*p.axes(), *p.names()]
    for row, (way, name, color) in enumerate((
            ('READs', '256 READs in flight', BLUE), ('lists', 'collected by the CPU', RED),
            ('the CPU alone', 'the loop of the CPU alone', GREEN))):
        points = [(r['size'], r['pieces'] / 1e6) for r in some if r['way'] == way]
        if points:
            yield path(p, points, color)
            yield from entry(p, row, name, color)


def scaled(rows):
    """Figure 20."""
    some = [r for r in rows if 'nodes' in r]
    numbers = sorted({r['nodes'] for r in some})
    p = Panel(3, 'GETs over the number of nodes (shm, two cores), M/s', numbers, 0, 15)
    if some:
        yield from [*p.axes(), *p.names()]
    ways = dict.fromkeys((r['clients'], r['zipf']) for r in some)
    for row, ((clients, zipf), color) in enumerate(zip(ways, (BLUE, RED, GREEN, PURPLE))):
        yield path(p, [(r['nodes'], r['rate'] / 1e6) for r in some
                       if (r['clients'], r['zipf']) == (clients, zipf)], color)
        yield from entry(p, row, f'{clients} client{"s" if clients > 1 else ""}, '
                         f'{"Zipf 0.99" if zipf else "uniform"}', color)


def below(row, parts):
    return [f'<g transform="translate(0 {row * ROW})">', *parts, '</g>']


def write(f, file):
    rows = f.load(kv.INDEX).get('rows')
    if not rows:
        return
    nic = [r for r in f.load(kvnic.YCSB).get('rows', []) if r['port'] == 'shm']
    out = [*hashing(rows), *below(1, settings(rows)),
           *below(2, [*ycsb(f.load(kv.YCSB).get('rows', []), 0, 'on the engine', 25),
                      *ycsb(nic, 2, 'through the NIC (shm)', 15)]),
           *below(3, [*under_load(f.load(kvload.LOAD).get('rows', [])),
                      *collected(f.load(kvload.GATHER).get('rows', [])),
                      *scaled(f.load(kvload.SCALE).get('rows', []))])]
    with open(file, 'w', encoding='utf-8') as picture:
        picture.write(svg(4, 120 + 3 * ROW, out))
