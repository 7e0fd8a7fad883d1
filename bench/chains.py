#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""The section of bench/RESULTS.md about chains, from `bench-core SECONDS chain`: its rows in
Markdown, the figures of RedN (NSDI '22) beside them; and docs/perf-chains.svg.

usage: chains.py BENCH-CORE [SECONDS [RUNS [PLOT]]]
"""
import json
import statistics
import subprocess
import sys

import plot_chains

BENCH = sys.argv[1]
SECONDS = sys.argv[2] if len(sys.argv) > 2 else '0.3'
RUNS = int(sys.argv[3]) if len(sys.argv) > 3 else 3
PLOT = sys.argv[4] if len(sys.argv) > 4 else None

# The measurement, the row, its name in the paper, the paper's figure.
VERBS = [('WRITE, 64 B, loop-back', 'chain_write', 'table 3, WRITE', '63 M/s'),
         ('READ, 64 B', 'chain_read', 'table 3, READ', '65 M/s'),
         ('CAS', 'chain_cas', 'table 3, CAS', '8.4 M/s'),
         ('ADD', 'chain_add', 'table 3, ADD', '8.4 M/s (one cell with CAS)'),
         ('MAX', 'chain_max', 'table 3, MAX', '63 M/s'),
         ('`if`, 3 WQEs, and the ENABLE of the next', 'chain_if', 'table 3, if', '0.7 M/s'),
         ('turn of an unrolled loop with a break, 4 WQEs', 'chain_break',
          'table 3, while, unrolled', '0.7 M/s'),
         ('turn of a recycled loop, 8 WQEs', 'chain_loop', 'table 3, while, recycled', '0.3 M/s')]
# The verb, its measurements, the paper's figure 7: the whole latency over a network.
SPLIT = [('WRITE, 64 B', 'write', '1.6 us'), ('READ, 64 B', 'read', '1.8 us'),
         ('CAS', 'cas', '1.8 us'), ('ADD', 'add', '1.8 us'), ('MAX', 'max', 'little more')]
ORDERS = [('queue order: NOPs', 'order_queue', '0.17'),
          ('completion order: NOP and WAIT', 'order_completion', '0.19'),
          ('doorbell order: ENABLE, NOP and WAIT', 'order_doorbell', '0.54')]
LOOKUPS = [('limit: its SEND and WRITE, posted by a program', 'lookup_limit', '', ''),
           ('the same, the server\'s processing unit alone', 'lookup_limit_server', '', ''),
           ('look-up, one bucket', 'chain_lookup_1', 'table 4, one port', '0.5 M/s'),
           ('the same, the server\'s processing unit alone', 'chain_lookup_1_server', '', ''),
           ('look-up, two buckets, the second has the key', 'chain_lookup_2', 'table 4', '0.5 M/s'),
           ('the same, the server\'s processing unit alone', 'chain_lookup_2_server', '', ''),
           ('counter', 'chain_counter', '', '')]
SIZED = [('read_value', 'one READ'), ('read_twice', 'two READs'), ('chain_one', 'one bucket'),
         ('chain_second', 'second bucket, in turn'),
         ('chain_parallel', 'second bucket, in parallel'),
         ('chain_hopscotch', 'hopscotch, 6 buckets')]
LISTS = [('read_list', 'READs of nodes and value'), ('chain_list', 'chain with break'),
         ('chain_list_whole', 'chain without break')]


def run():
    out = subprocess.run([BENCH, SECONDS, 'chain'], stdout=subprocess.PIPE, text=True,
                         check=True).stdout
    return {(r['op'], r['size']): r['ns'] for r in json.loads(out)['rows']}


def main():
    runs = [run() for _ in range(RUNS)]
    ns = {key: statistics.median(r[key] for r in runs) for key in runs[0]}
    first = {op: v for (op, _), v in reversed(ns.items())}

    def table(rows):
        print('| what | ns | M/s | in the paper | its figure |\n|---|---:|---:|---|---|')
        for what, op, where, figure in rows:
            if op in first:
                print(f'| {what} | {first[op]:.1f} | {1e3 / first[op]:.2f} | {where} | {figure} |')
        print()

    table(VERBS)
    print('| by processing units, M/s | one | two | four |\n|---|---:|---:|---:|')
    for what, op, _, _ in VERBS:
        several = [first[f'{op[len("chain_"):]}_{n}_units'] for n in (2, 4)]
        print(f'| {what} | ' + ' | '.join(f'{1e3 / v:.1f}' for v in (first[op], *several)) + ' |')
    print()
    print('| one verb at a time, ns | doorbell (a local NOP) | execution | packets | together '
          '| in the paper, with the network |\n|---|---:|---:|---:|---:|---:|')
    nop = first['local_nop']
    for what, op, figure in SPLIT:
        local, remote = first['local_' + op], first['remote_' + op]
        print(f'| {what} | {nop:.0f} | {local - nop:.0f} | {remote - local:.0f} | {remote:.0f} '
              f'| {figure} |')
    print()
    table(LOOKUPS)
    lengths = sorted({size for op, size in ns if op == 'order_queue'})
    print('| n WQEs and those that order them, ns | ' + ' | '.join(map(str, lengths))
          + ' | each further one | in the paper, ns |')
    print('|---|' + '---:|' * (len(lengths) + 2))
    for what, op, figure in ORDERS:
        more = (ns[op, lengths[-1]] - ns[op, lengths[0]]) / (lengths[-1] - lengths[0])
        print(f'| {what} | ' + ' | '.join(f'{ns[op, n]:.0f}' for n in lengths)
              + f' | {more:.0f} | {float(figure) * 1e3:.0f} |')
    print()
    sizes = sorted({size for op, size in ns if op == 'read_value'})
    print('| value | ' + ' | '.join(f'{name}, ns' for _, name in SIZED)
          + ' |\n|---|' + '---:|' * len(SIZED))
    for size in sizes:
        print(f'| {size} B | '
              + ' | '.join(f'{ns[op, size]:.0f} ({ns[op, size] / ns["read_value", size]:.2f})'
                           for op, _ in SIZED) + ' |')
    print()
    ranges = sorted({size for op, size in ns if op == 'chain_list'})
    print('| list of 8, key among the first | ' + ' | '.join(map(str, ranges))
          + ' |\n|---|' + '---:|' * len(ranges))
    for op, name in LISTS:
        print(f'| {name}, ns | ' + ' | '.join(f'{ns[op, n]:.0f}' for n in ranges) + ' |')
    if PLOT:
        plot_chains.write(ns, PLOT)


main()
