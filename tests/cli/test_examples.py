#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Runs the examples of kernels against a node, over both kinds of port, and checks their output.

Arguments: ROOST BUILD-FOLDER.
"""
import os
import subprocess
import sys

from cli import LIMIT, check, finish
from node import Node, addresses

EXPECTED = {
    'get': '1 is value of 1\n17 is value of 17\n1000 is value of 1000\n1001 is not there\n',
    'traversal': '100: element 1 of 32\n131: element 32 of 32\n132: not in the list\n',
    'consistency': 'written: 1000 bytes: the first state\nhalf written: torn, each of 8 times\n'
    'written again: 1000 bytes: the second state\n',
    'kv': '1000 of 1000 values are right\n',
    'aggregate': None,
    'hll': None,
    'shuffle': None,
    'shuffle_out': None,
    'prism':
    'the value is: none yet\none: stored\ntwo: another client was first\nthe value is: one\nthree: '
    'stored\nthe value is: three\n',
}


def amounts():
    """Computes the result of the example of aggregate."""
    rows = [(i % 4, i * 31 % 1009) for i in range(100000)]
    hits = [row for row in rows if row[1] > 900]
    keys = list(dict.fromkeys(country for country, _ in hits))
    lines = [f'country {key}: {sum(c == key for c, _ in hits)} records, sum '
             f'{sum(a for c, a in hits if c == key)}' for key in keys]
    return '\n'.join(lines + [f'{len(hits)} of {len(rows)} records match']) + '\n'


def partitions(writes=None):
    """Computes the partitions of the example of shuffle."""
    tuples = [i * i % 1009 for i in range(4096)]
    lines = [f'{len(tuples)} tuples' + (f' in {writes} WRITEs' if writes else '')]
    for part in range(8):
        own = [t for t in tuples if t % 8 == part]
        lines.append(f'partition {part}: {len(own)} tuples, sum {sum(own)}')
    return '\n'.join(lines) + '\n'


def within(text):
    """Checks that the estimate of hll is within four times its standard error."""
    words = text.replace(',', '').split()
    return len(words) == 9 and words[0] == '200000' and words[6] == '50000' and abs(
        int(words[2]) - 50000) < 50000 * 4 * 1.04 / 128


def written():
    """Computes the output of the example of shuffle-out, which sends by WRITEs of 1 KiB."""
    counts = [sum(i * i % 1009 % 8 == part for i in range(4096)) for part in range(8)]
    return partitions(sum((8 * n + 1023) // 1024 for n in counts))


# Programs of examples/kv: a small size, and the last line.
STORE = {
    'kv-pagerank': ('20000', '1250 vertices, 20000 edges: the ranks are equal'),
    'kv-parameters': ('300', '1200 of 1200 steps, the weights are learned'),
    'kv-sequencer': ('4000', '4000 of 4000 numbers were drawn once, 40 of 40 turns were counted'),
    'kv-stock': ('400', '1000 of 1000 quantities are right, the stock level is right'),
    'kv-counters': ('20000', 'the counters of 1000 of 1000 flows are right'),
}
COMPUTED = {'aggregate': amounts, 'shuffle': partitions, 'shuffle_out': written}



def run_example(kind, name, *args):
    return subprocess.run([os.path.join(sys.argv[2], 'examples', 'example-' + name), *args],
                          env=dict(os.environ, ROOST_PORT=f'{kind}:{where[1]}'),
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT,
                          check=False)


for kind in ('udp', 'shm'):
    where = addresses(kind)
    node = Node(f'{kind}:{where[0]}', '--fill', '1000', '--kv', '64M')
    try:
        for name, expected in EXPECTED.items():
            for _ in range(2):  # the node has no state of the last example
                r = run_example(kind, name, where[0])
                good = (within(r.stdout) if name == 'hll'
                        else r.stdout == (expected or COMPUTED[name]()))
                check(f'{name} over {kind}', r.returncode == 0 and good, r)
        for name, (size, expected) in STORE.items():
            r = run_example(kind, name, where[0], size)
            check(f'{name} over {kind}', r.returncode == 0
                  and r.stdout.rstrip('\n').split('\n')[-1] == expected, r)
    finally:
        status, said = node.end()
        check(f'the node ends well: {status}, {said!r}', status == 0)
finish()
