# SPDX-License-Identifier: BSD-2-Clause
"""The bars of the store through the NIC that depend on the distance between the two cores, which
changes within seconds on some virtual machines. Each figure is measured between two READs over shm,
which show that distance. The stalls of a spinning core, before and after all rounds, show how much
of a core others take."""
import statistics

import kvnic
import kvstores
import measure
from tables import head, line

NAME = 'kv-nic-bars'
TIMES = 6  # of each row in a round
SECONDS = 0.2
# A group has the figures whose longer READ takes at most this many us; the last one has the others.
GROUPS = (0.86, 1.0, 1.4)
ALONE = 0.6  # us of a GET alone over a READ

# Name, port, operations in a call, calls in flight, bar in million operations a second.
ROWS = [
    ('GETs, one in a call, 64 calls in flight', 'udp', 1, 64, 2),
    ('GETs, 64 in a call, 8 calls in flight', 'udp', 64, 8, 6),
    ('GETs, 64 in a call, 8 calls in flight', 'shm', 64, 8, 5),
    ('a GET alone over the READs beside it, p50', 'shm', 1, 1, None),
]


def read_us(roost, memory=kvnic.READ):
    return kvnic.read_us(roost, 'shm', memory, SECONDS / 2)


def stalls(roost):
    return measure.last_json(measure.command(
        [roost, 'limits', '--only', 'stalls', '--rounds', '1', '--seconds', '1',
         '--json']))['stalls']


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
                if ROWS[i][4] is None:
                    rows[-1]['one_line'] = read_us(roost, str(kvnic.VALUE))
    finally:
        for node in nodes.values():
            node.end()
    return {'rows': rows}


def plan(roost):
    return [measure.Measurement(NAME, 'bench-kv-load; roost perf read; roost limits --only stalls',
                                lambda: one_round(roost),
                                merge=lambda runs: [r for run in runs for r in run['rows']],
                                around=lambda: stalls(roost))]


def figure(row):
    """Returns the figure of a row, to be compared with its bar."""
    if ROWS[row['row']][4] is None:
        return row['us'] - statistics.mean(row['reads'])
    return row['rate'] / 1e6


def group(row):
    """Returns the index of the group of a row."""
    return sum(max(row['reads']) > most for most in GROUPS)


def spread(values, unit):
    """Returns the median of figures, the lowest and the highest, and their number."""
    if not values:
        return ''
    text = f'{statistics.median(values):.2f} {unit}'
    if len(values) == 1:
        return text
    low, high = min(values), max(values)
    return text + (f' ({low:.2f}, {high:.2f})' if len(values) == 2 else
                   f' ({low:.2f} to {high:.2f}; {len(values)})')


def text_of(stop, when):
    """Returns the text about stalls, as `roost limits` counts them."""
    return (f'{stop["per_second"]:,.0f} a second {when}, {stop["ms_per_second"]:.1f} ms in sum, '
            f'p50 {stop["p50_ns"] / 1000:.1f} us')


def section(f):
    data = f.load(NAME)
    rows = data.get('rows', [])
    if not rows:
        return
    yield ''
    yield (
        f'The bars by the distance between the cores: each figure, of {SECONDS} s, is measured '
        'between two READs over shm, and is in one of four groups by the longer READ. A cell has '
        'the median, the lowest and the highest, and the number of figures.')
    yield ''
    yield from head('ll', 'what', 'port', f'READs up to {GROUPS[0]} us',
                    *(f'{low} to {high} us' for low, high in zip(GROUPS, GROUPS[1:])), 'longer',
                    'the bar')
    for i, (what, port, _, _, bar) in enumerate(ROWS):
        unit = 'M/s' if bar else 'us'
        cells = [spread([figure(r) for r in rows if r['row'] == i and group(r) == g], unit)
                 for g in range(len(GROUPS) + 1)]
        yield line(what, port, *cells, f'at least {bar} M/s' if bar else f'at most {ALONE} us')
    misses = [[statistics.mean(r['reads']) - r['one_line'] for r in rows
               if 'one_line' in r and group(r) == g] for g in range(len(GROUPS) + 1)]
    if any(misses):
        yield line('a READ of random addresses over one of one address: a cache miss', 'shm',
                   *(spread(m, 'us') for m in misses), '')
    around = data.get('around', [])
    if len(around) == 2:
        texts = (text_of(*pair) for pair in zip(around, ('before the rounds', 'after them')))
        yield ''
        yield f'Stalls of a spinning core, of more than 5 us: {"; ".join(texts)}.'
