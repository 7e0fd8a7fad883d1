# SPDX-License-Identifier: BSD-2-Clause
"""docs/perf-chains.svg: chains of n WQEs by order, look-ups by the size of the value, walks of a
list; after RedN's figures 8, 10, 11 and 13.
"""
from panel import Panel, entry, path, svg
from plot import HEIGHT, LEFT, TOP, text

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


def round_trips(trips, size):
    """READs follow a list node by node: for the first `size` keys they need (size + 1) / 2 nodes on
    average, then the value."""
    return (size + 1) / 2 + 1 if trips is None else trips


def panel(ns, index, title, series, low, high):
    sizes = sorted(size for op, size in ns if op == series[0][0])
    p = Panel(index, title, sizes, low, high)
    yield from p.axes()
    yield from p.names()
    for row, (op, name, color, trips) in enumerate(series):
        for wire, dash in DASHES.items():
            if wire and trips == 0:
                continue
            us = [ns[op, size] / 1e3 + round_trips(trips, size) * wire for size in sizes]
            yield path(p, list(zip(sizes, us)), color, dash)
        yield from entry(p, row, name, color)


def write(ns, file):
    below = 140
    out = svg(3, below, [
        *panel(ns, 0, 'n NOPs by order (figure 8), us', ORDERS, 0.2, 50),
        *panel(ns, 1, 'look-up by bytes of the value (figures 10, 11), us', LOOKUPS, 0.2, 50),
        *panel(ns, 2, 'list of 8, key among the first n (figure 13), us', LISTS, 0.2, 50),
        text(
            LEFT, TOP + HEIGHT + below - 12,
            'solid: processor time of both sides; dashed: with a wire whose round trip takes 5 us, '
            'by calculation')])
    with open(file, 'w', encoding='utf-8') as f:
        f.write(out)
