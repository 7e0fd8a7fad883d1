#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""The measurement of memcached (bench/cache.py), with few and short runs: each way has its rows,
and gets by chains continue while the servers are killed.

usage: test_bench.py BUILD-FOLDER --folder DIR
"""
import argparse
import os
import sys

from source import get_or_skip

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..', 'bench'))
import cache  # noqa: E402

GETS = 20000  # more than chains make in 0.05 s
WAYS = ['chain', 'two READs', 'two-sided']
failures = 0


def check(what, ok, more=''):
    global failures
    print(f"{'ok' if ok else 'FAILED'}: {what}{'' if ok else ' ' + str(more)}", flush=True)
    failures += not ok


def main():
    p = argparse.ArgumentParser()
    p.add_argument('build')
    p.add_argument('--folder', required=True)
    a = p.parse_args()
    for patched in (True, False):
        get_or_skip(a.build, a.folder, patched)
    result = cache.one_round(a.build, a.folder, 0.05, GETS, [64, 65536], [0, 2], [0.3])
    rows = result['rows']
    check('rows of each way and size',
          sorted((r['way'], r['size']) for r in rows) == sorted(
              (w, s) for w in WAYS for s in (64, 65536)), rows)
    check('rows beside writers',
          [(r['way'], r['writers']) for r in result['writers']] == [
              (w, n) for n in (0, 2) for w in ('chain', 'two-sided')], result['writers'])
    check('each row has gets', all(r['gets'] and 0 < r['p50_us'] <= r['p99_us'] for r in rows),
          rows)
    check('chains make as many gets as were asked for',
          all(r['gets'] >= GETS for r in rows if r['way'] == 'chain'), rows)
    line = result['time']
    check('gets by chains and by TCP over time', len(line['chain']) == len(line['two-sided']) == 23
          and sum(line['chain']) and sum(line['two-sided']), line)
    merged = cache.merge([result, result])
    check('two rounds give one', len(merged['sizes']) == len(rows)
          and merged['sizes'][0]['gets'] == 2 * rows[0]['gets'], merged)
    sys.exit(failures > 0)


main()
