#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Compares two builds of Roost by alternate runs, to show the costs of a change.

usage: bench/pairs.py OLD-BUILD NEW-BUILD [--rounds N] [--note TEXT]

OLD and NEW are build folders with bench/bench-core and roost. One thread with both NICs runs the
core's rows, so that other load of a shared machine affects both; `roost perf` between two processes
shows the remaining difference from end to end. The script prints a table, and writes the rows as
JSON into bench/results/pairs.json, which is not part of the tree.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))

# name, its command in a build folder, the member of its JSON, whether more is better
CORE = [(f'core: {text}', ['bench/bench-core', '0.12', *row.split()], lambda j: j['rows'][0]['ns'],
         False) for text, row in (('WRITE of 64 bytes, one at a time', 'write 64 1'),
                                  ('WRITEs of 64 bytes, 32 posted', 'write 64 32'),
                                  ('READ of 64 bytes, one at a time', 'read 64 1'),
                                  ('WRITEs of 4 KiB, 32 posted', 'write 4096 32'),
                                  ('READs of 4 KiB, 32 posted', 'read 4096 32'),
                                  ('list of 8, one at a time', 'list 64 1'),
                                  ('lists of 8, 32 posted', 'list 64 32'),
                                  ('consistent read of 512 bytes', 'object 512 1'),
                                  ('consistent read of 4 KiB', 'object 4096 1'))]
ENDS = [
    (f'two processes: {text}, {port}', ['roost', 'perf', *row.split(), '--local', '--port', port,
                                        '--seconds', '0.3', '--json'], pick, more)
    for port in ('shm', 'udp') for text, row, pick, more
    in (('goodput of WRITEs of 64 KiB', 'write --size 64K', lambda j: j['goodput_gbps'], True),
        ('rate of WRITEs of 64 bytes', 'write --size 64 --post-list 32', lambda j: j['msg_rate'],
         True),
        ('latency of a READ of 64 bytes', 'read --size 64 --lat completion',
         lambda j: j['latency_us']['p50'], False))]


def one(build, command, pick):
    r = subprocess.run([os.path.join(build, command[0]), *command[1:]], capture_output=True,
                       text=True, check=True)
    return pick(json.loads(r.stdout))


def compare(old, new, row, rounds):
    """Returns ratios of times: above 1 the new build is slower."""
    what, command, pick, more = row
    ratios, values = [], {old: [], new: []}
    for i in range(rounds):
        got = {build: one(build, command, pick) for build in ((old, new) if i % 2 else (new, old))}
        for build in (old, new):
            values[build].append(got[build])
        ratios.append(got[old] / got[new] if more else got[new] / got[old])
    quarters = statistics.quantiles(ratios, n=4)
    return {'what': what, 'old': statistics.median(values[old]),
            'new': statistics.median(values[new]), 'ratio': statistics.median(ratios),
            'low': quarters[0], 'high': quarters[2]}


def table(note, rounds, rows):
    yield (
        f'{note} Medians of {rounds} pairs, and where the middle half of the ratios lies; above 1 '
        f'the later build takes more.'.lstrip())
    yield ''
    yield '| what | before | after | ratio | middle half |'
    yield '|---|---:|---:|---:|---:|'
    for r in rows:
        yield (
            f'| {r["what"]} | {r["old"]:.1f} | {r["new"]:.1f} | {r["ratio"]:.3f} | {r["low"]:.3f} '
            f'to {r["high"]:.3f} |')


def main():
    p = argparse.ArgumentParser(description='Compares two builds, in turns.')
    p.add_argument('old')
    p.add_argument('new')
    p.add_argument('--rounds', type=int, default=12)
    p.add_argument('--note', default='')
    p.add_argument('--only', default='')
    p.add_argument('--out', default=os.path.join(HERE, 'results', 'pairs.json'))
    a = p.parse_args()
    rows = []
    for row in CORE + ENDS:
        if a.only in row[0]:
            rows.append(compare(a.old, a.new, row, a.rounds))
            print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    print(*table(a.note, a.rounds, rows), sep='\n')
    os.makedirs(os.path.dirname(os.path.abspath(a.out)), exist_ok=True)
    with open(a.out, 'w', encoding='utf-8') as f:
        json.dump({'note': a.note, 'rounds': a.rounds, 'rows': rows}, f, indent=1)
        f.write('\n')


if __name__ == '__main__':
    main()
