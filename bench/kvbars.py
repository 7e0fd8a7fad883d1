# SPDX-License-Identifier: BSD-2-Clause
"""The bars of the store through the NIC that depend on the distance between the two cores, which
changes within seconds on some virtual machines. Each figure is measured between two READs over shm,
which show that distance."""
import statistics

import kvnic
import kvstores
import measure
from tables import head, line

NAME = 'kv-nic-bars'
TIMES = 6  # of each row in a round
SECONDS = 0.2
NEAR = 1.0  # us of a READ, at most, if the cores are near each other
ALONE = 0.6  # us of a GET alone over a READ

# Name, port, operations in a call, calls in flight, bar in million operations a second.
ROWS = [
    ('GETs, one in a call, 64 calls in flight', 'udp', 1, 64, 2),
    ('GETs, 64 in a call, 8 calls in flight', 'udp', 64, 8, 6),
    ('GETs, 64 in a call, 8 calls in flight', 'shm', 64, 8, 5),
    ('a GET alone over a READ, p50', 'shm', 1, 1, None),
]


def read_us(roost):
    return kvnic.read_us(roost, 'shm', kvnic.READ, SECONDS / 2)


def one_round(roost):
    rows, nodes = [], {}
    pairs = {'keys': kvnic.KEYS, 'value': kvnic.VALUE}
    try:
        for kind in kvstores.ADDRESSES:
            nodes[kind] = kvstores.Node(roost, kind)
            nodes[kind].fill(**pairs)
        for _ in range(TIMES):
            for i, (_, port, batch, depth, _) in enumerate(ROWS):
                before = read_us(roost)
                got = nodes[port].load(batch=batch, depth=depth, seconds=SECONDS, **pairs)
                rows.append({'row': i, 'rate': got['per_second'], 'us': got['p50_us'],
                             'reads': [before, read_us(roost)]})
    finally:
        for node in nodes.values():
            node.end()
    return {'rows': rows}


def plan(roost):
    return [measure.Measurement(NAME, 'bench-kv-load; roost perf read', lambda: one_round(roost),
                                merge=lambda runs: [r for run in runs for r in run['rows']])]


def figure(row):
    """Returns the figure of a row, to be compared with its bar."""
    if ROWS[row['row']][4] is None:
        return row['us'] - statistics.mean(row['reads'])
    return row['rate'] / 1e6


def spread(values, unit):
    if not values:
        return ''
    return (f'{statistics.median(values):.2f} {unit} ({min(values):.2f} to {max(values):.2f}; '
            f'{len(values)})')


def section(f):
    rows = f.load(NAME).get('rows', [])
    if not rows:
        return
    near = [r for r in rows if max(r['reads']) <= NEAR]
    far = [r for r in rows if min(r['reads']) > NEAR]
    yield ''
    yield (
        f'The bars with the cores near each other: each figure, of {SECONDS} s, is measured '
        f'between two READs over shm. Near: both take at most {NEAR} us; far: both take longer. '
        'A row has the median, lowest and highest, and the number of figures; those between two '
        'unlike READs are left out.')
    yield ''
    yield from head('ll', 'what', 'port', 'near', 'far', 'the bar')
    for i, (what, port, _, _, bar) in enumerate(ROWS):
        unit = 'M/s' if bar else 'us'
        figures, others = ([figure(r) for r in some if r['row'] == i] for some in (near, far))
        verdict = ''
        if figures:
            middle = statistics.median(figures)
            met = middle >= bar if bar else middle <= ALONE
            verdict = (f'at least {bar} M/s' if bar else f'at most {ALONE} us') + (
                ': met' if met else ': **missed**')
        yield line(what, port, spread(figures, unit), spread(others, unit), verdict)
