# SPDX-License-Identifier: BSD-2-Clause
"""What is measured of the key-value store's engine, its bars, and its part of bench/RESULTS.md."""
import os
import statistics

import measure

NAME = 'kv-engine'


def merge(runs):
    """Rows of several runs: the median of each figure."""
    rows = []
    for several in zip(*(r['rows'] for r in runs)):
        row = dict(several[0])
        for key in ('rate', 'of_limit', 'times'):
            if key in row:
                row[key] = statistics.median(s[key] for s in several)
        rows.append(row)
    return rows


def plan(path):
    exe = os.path.join(os.path.dirname(path), 'bench', 'bench-kv')

    def run():
        return measure.last_json(measure.command([exe, '0.3']))

    return [measure.Measurement(NAME, 'build/bench/bench-kv 0.3', run, merge=merge)]


def bar(row):
    """The bar as text, and whether it is met; None: there is none."""
    way = row['way']
    if way.startswith('GET'):
        return 'at least 40% of the limit', row['of_limit'] >= 0.4
    if way.startswith('PUT'):
        return 'at least 20% of the limit', row['of_limit'] >= 0.2
    if way.startswith('atomics on one key'):
        return 'at least 30 M/s', row['rate'] >= 30e6
    return None


def section(f):
    rows = f.load(NAME).get('rows', [])
    if not rows:
        yield 'Not measured.'
        return
    yield (
        'The engine alone, on one thread, with half of the slots in use. The limit is random reads '
        'of 64 bytes, 16 in flight, in the same run.')
    yield ''
    yield '| what | | of the limit | the bar |'
    yield '|---|---:|---:|---|'
    for row in rows:
        value = f'{row["times"]:.1f} times' if 'times' in row else f'{row["rate"] / 1e6:.1f} M/s'
        share = f'{row["of_limit"] * 100:.0f}%' if 'of_limit' in row else ''
        verdict = bar(row)
        text = f'{verdict[0]}: {"met" if verdict[1] else "**missed**"}' if verdict else ''
        yield f'| {row["way"]} | {value} | {share} | {text} |'
