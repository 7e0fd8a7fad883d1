# SPDX-License-Identifier: BSD-2-Clause
"""docs/perf-kv-parts.svg: the store's slabs, batches through the NIC, and the delay of pieces of
memory that the CPU collects; after KV-Direct's figures 12, 15 and 19."""
import kv
import kvload
import kvnic
from panel import Panel, entry, path, svg
from plot_kv import BLUE, GREEN, PURPLE, RED


def curves(p, named):
    """Axes and lines of a panel: a name, a color, the points and the dashes of each."""
    yield from [*p.axes(), *p.names()]
    for row, (name, color, points, dash) in enumerate(named):
        yield path(p, points, color, dash)
        yield from entry(p, row, name, color, dash)


def slabs(rows):
    """Figure 12."""
    sizes = [round(r['bytes'] / 2**20) for r in rows]
    yield from curves(
        Panel(0, 'slabs of 32 bytes over MiB of memory, ns for each', sizes, 0, 30),
        [(name, color, [(s, r[key]) for s, r in zip(sizes, rows)], '')
         for name, color, key in (('an allocation', BLUE, 'alloc_ns'), ('a free', GREEN, 'free_ns'),
                                  ('merged (paper: 7.5 on one core)', RED, 'merge_ns'))])


def batches(rows):
    """Figure 15."""
    steps = sorted({r['batch'] for r in rows})

    def points(port, key, scale=1):
        return [(r['batch'], r[key] / scale) for r in rows if r['port'] == port]

    yield from curves(Panel(1, 'GETs over operations in a call, M/s', steps, 0, 10),
                      [(port, color, points(port, 'rate', 1e6), '')
                       for port, color in (('shm', BLUE), ('udp', RED))])
    yield from curves(Panel(2, 'delay of a call alone over operations in it, us', steps, 1, 100),
                      [(f'{port}, {key[:3]}', color, points(port, key), dash)
                       for port, color in (('shm', BLUE), ('udp', RED))
                       for key, dash in (('p50_us', '4 3'), ('p99_us', ''))])


def collected(rows):
    """Figure 19."""
    some = [r for r in rows if 'p50_us' in r]
    yield from curves(
        Panel(3, 'delay of pieces of memory over their bytes, p50, us',
              sorted({r['size'] for r in some}), 0.5, 500),
        [(way, color, [(r['size'], r['p50_us']) for r in some if r['way'] == way], '')
         for way, color in (('one READ', BLUE), ('one piece by the CPU', GREEN),
                            ('256 READs', PURPLE), ('256 pieces by the CPU', RED))])


def write(f, file):
    out = []
    for part, name in ((slabs, kv.SLAB), (batches, kvnic.BATCHES), (collected, kvload.GATHER)):
        rows = f.load(name).get('rows')
        if rows:
            out += part(rows)
    if out:
        with open(file, 'w', encoding='utf-8') as picture:
            picture.write(svg(4, 120, out))
