# SPDX-License-Identifier: BSD-2-Clause
"""docs/perf-chains.svg: chains of n WQEs by order, look-ups by the size of the value, walks of a
list; after RedN's figures 8, 10, 11 and 13.
"""
import math

from plot import GAP, HEIGHT, LEFT, TOP, WIDTH, line, text

# A row of bench-core, its name, its color, and the round trips of a request: of READs by the range
# of the list in `walks`.
ORDERS = [('order_queue', 'queue order', '#1b6ca8', 0),
          ('order_completion', 'completion order', '#6a8d3a', 0),
          ('order_doorbell', 'doorbell order', '#c8553d', 0)]
LOOKUPS = [('read_value', 'one READ', '#777777', 1), ('read_twice', 'two READs', '#c8553d', 2),
           ('chain_one', 'one bucket', '#1b6ca8', 1),
           ('chain_second', 'second bucket, in turn', '#6a8d3a', 1),
           ('chain_parallel', 'second bucket, in parallel', '#8e5aa8', 1)]
LISTS = [('read_list', 'READs', '#c8553d', None), ('chain_list', 'chain with break', '#1b6ca8', 1),
         ('chain_list_whole', 'chain without break', '#6a8d3a', 1)]
DASHES = {0: '', 5: '5 3'}  # us of a round trip on the wire


class Panel:
    """Sizes stand side by side; values are logarithmic."""

    def __init__(self, index, title, sizes, low, high):
        self.x0 = LEFT + index * (WIDTH + GAP + LEFT)
        self.title, self.sizes, self.low, self.high = title, sizes, low, high

    def x(self, size):
        return self.x0 + (self.sizes.index(size) + 0.5) / len(self.sizes) * WIDTH

    def y(self, value):
        t = math.log(max(value, self.low) / self.low) / math.log(self.high / self.low)
        return TOP + HEIGHT - min(t, 1) * HEIGHT


def axes(p):
    yield (f'<rect x="{p.x0}" y="{TOP}" width="{WIDTH}" height="{HEIGHT}" fill="none" '
           f'stroke="#222222"/>')
    yield text(p.x0, TOP - 12, p.title, size=13)
    for size in p.sizes:
        yield text(p.x(size), TOP + HEIGHT + 16, str(size), 'middle', size=10)
    for v in (d * s for d in (0.1, 1, 10, 100) for s in (1, 2, 5)):
        if p.low <= v <= p.high:
            yield line(p.x0, p.y(v), p.x0 + WIDTH, p.y(v), '#dddddd')
            yield text(p.x0 - 6, p.y(v) + 4, f'{v:g}', 'end', size=10)


def round_trips(trips, size):
    """READs take a list node by node: of the first `size` keys the mean needs (size + 1) / 2 nodes,
    then the value."""
    return (size + 1) / 2 + 1 if trips is None else trips


def panel(ns, index, title, series, low, high):
    sizes = sorted(size for op, size in ns if op == series[0][0])
    p = Panel(index, title, sizes, low, high)
    yield from axes(p)
    for row, (op, name, color, trips) in enumerate(series):
        for wire, dash in DASHES.items():
            if wire and trips == 0:
                continue
            us = [ns[op, size] / 1e3 + round_trips(trips, size) * wire for size in sizes]
            path = ' '.join(f'{"L" if i else "M"}{p.x(s):.1f},{p.y(v):.1f}'
                            for i, (s, v) in enumerate(zip(sizes, us)))
            d = f' stroke-dasharray="{dash}"' if dash else ''
            yield f'<path d="{path}" fill="none" stroke="{color}" stroke-width="1.8"{d}/>'
        yield line(p.x0, TOP + HEIGHT + 36 + 15 * row, p.x0 + 24, TOP + HEIGHT + 36 + 15 * row,
                   color, 2)
        yield text(p.x0 + 30, TOP + HEIGHT + 40 + 15 * row, name)


def write(ns, path):
    width, height = 3 * (WIDTH + GAP + LEFT) + LEFT, TOP + HEIGHT + 140
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'font-family="sans-serif">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        *panel(ns, 0, 'n NOPs by order (figure 8), us', ORDERS, 0.2, 50),
        *panel(ns, 1, 'look-up by bytes of the value (figures 10, 11), us', LOOKUPS, 0.2, 50),
        *panel(ns, 2, 'list of 8, key among the first n (figure 13), us', LISTS, 0.2, 50),
        text(
            LEFT, height - 12,
            'solid: processor time of both sides; dashed: with a wire whose round trip takes 5 us, '
            'by calculation'),
        '</svg>']
    with open(path, 'w', encoding='utf-8') as f:
        f.write('\n'.join(out) + '\n')
