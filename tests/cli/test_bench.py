#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""The bench driver measures, keeps its results, and marks the figures that it did not measure.

Usage: test_bench.py ROOST BENCH-FOLDER BENCH-KERNELS
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile

from cli import ROOST, check, finish

RUN = [sys.executable, os.path.join(sys.argv[2], 'run'), '--roost', ROOST, '--rounds', '2',
       '--seconds', '0.1']
KERNELS = sys.argv[3]


def bench(*args):
    return subprocess.run([*RUN, *args], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=200, check=False,
                          env={**os.environ, 'PYTHONDONTWRITEBYTECODE': '1'})


def read(*path):
    try:
        with open(os.path.join(*path), encoding='utf-8') as f:
            return f.read()
    except FileNotFoundError:
        return ''


with tempfile.TemporaryDirectory() as d:
    r = bench('--out', d, '--only', 'shm-write-64k', '--no-sweep')
    data = json.loads(read(d, 'results', 'shm-write-64k.json') or '{}')
    check('two rounds of nine pairs, and their median',
          r.returncode == 0 and len(data.get('runs', [])) == 18
          and data['low'] <= data['median'] <= data['high'] and data['low'] > 0, r)
    table = read(d, 'RESULTS.md')
    # A figure has three or more significant digits, so a fast machine's has no decimals.
    median = data.get('median', 0)
    check('figure and command are in the table',
          any(f'| {median:.{n}f} Gbit/s' in table for n in (0, 1, 2))
          and 'perf write --local --port shm --size 64K' in table)
    check('what was not measured is not there',
          'not measured' in table and 'iperf3, TCP loopback | not measured' in table)
    check('no plot without a sweep', not os.path.exists(os.path.join(d, 'perf-sweep.svg')))

    # A sweep in roost's format, with figures that the report must contain.
    rows = [{'size': s, 'goodput_gbps': s / 100, 'msg_rate': 1e6,
             'latency_us': {'kind': 'pingpong', 'p1': 1, 'p50': 2, 'p99': 3}}
            for s in (64, 4096, 1 << 20)]
    with open(os.path.join(d, 'results', 'sweep-shm-write.json'), 'w', encoding='utf-8') as f:
        json.dump({'name': 'sweep-shm-write', 'command': 'c', 'unit': '', 'runs': [], 'rows': rows},
                  f)
    r = bench('--out', d, '--report')
    svg = read(d, 'perf-sweep.svg')
    check('a report without measuring', r.returncode == 0
          and '| 4 KiB | 1.000 | 40.96 | 1.00 | 2.00 | 3.00 |' in read(d, 'RESULTS.md'), r)
    check('a plot',
          svg.startswith('<svg') and 'shm WRITE' in svg and 'udp' not in svg and 'StRoM' in svg)

    # Look-ups: short runs of the program that measures them; figures that can be found again.
    for test, delays in (('chain', (0, 2)), ('chain_list', (5,)), ('writers', (None,)),
                         ('endless', (None,))):
        for delay in delays:
            r = subprocess.run([KERNELS, test, '--delay', str(delay or 0), '--point', '0.002',
                                '--size', '64'],
                               stdin=subprocess.DEVNULL, capture_output=True, text=True,
                               timeout=200, check=False)
            rows = json.loads(r.stdout or '{}').get('rows', [])
            check(f'rows of {test}', r.returncode == 0 and rows
                  and all(0 < row.get('p50_us', 1) <= row.get('p99_us', 1) < 1e8 for row in rows),
                  r)
            name = f'kernels-{test}' + ('' if delay is None else f'-{delay}us')
            with open(os.path.join(d, 'results', name + '.json'), 'w', encoding='utf-8') as f:
                json.dump({'name': name, 'command': 'c', 'runs': [], 'rows': rows}, f)
            if test == 'chain':
                check('each way', len({row['way'] for row in rows}) == 15, rows)
    gets = [{'way': w, 'size': s, 'writers': n, 'gets': 5, 'p50_us': 7.25, 'p99_us': 9.5,
             'mean_us': 8} for w in ('chain', 'two READs', 'two-sided')
            for s, n in ((64, 0), (64, 16), (65536, 0))]
    with open(os.path.join(d, 'results', 'memcached.json'), 'w', encoding='utf-8') as f:
        json.dump({'name': 'memcached', 'command': 'c', 'runs': [], 'rows': {
            'sizes': gets, 'writers': [g for g in gets if g['way'] != 'two READs'], 'time': {
                'bin_ms': 100, 'kills': [0.1], 'chain': [7, 7, 7], 'two-sided': [7, 0, 0]}}}, f)
    r = bench('--out', d, '--report')
    table, svg = read(d, 'RESULTS.md'), read(d, 'perf-lookups.svg')
    check('look-ups in the report', r.returncode == 0
          and '| 64 | 16 | 7.25 / 9.50 |  | 7.25 / 9.50 | 5 |' in table
          and 'longest time without a get, two-sided | 200 ms' in table
          and 'chain over one READ, 64 B, p50 | ' in table, r)
    check('a plot of look-ups',
          svg.startswith('<svg') and 'figure 16' in svg and 'dasharray' in svg)

    # The key-value store: what is measured in the same rounds as other stores, and a drawing.
    stores = [{'limit': 'reads', 'rate': 84e6}] + [
        {'store': 'redis', 'threads': 1, 'what': w, 'rate': 1.5e6, 'mean_us': 600, 'alone_us': 50,
         'batch': 64, 'depth': 8, 'per_cpu_second': 1e6, 'server_cpus': 1, 'client_cpus': 1}
        for w in ('GET', 'PUT')]
    slabs = [{'bytes': 1 << 24, 'slabs': 5, 'alloc_ns': 13, 'free_ns': 5, 'accesses': 0.01,
              'split_per_second': 1e8, 'merge_s': 0.1, 'merge_ns': 15}]
    for name, rows_of in (('kv-stores', stores), ('kv-slab', slabs)):
        with open(os.path.join(d, 'results', name + '.json'), 'w', encoding='utf-8') as f:
            json.dump({'name': name, 'command': 'c', 'unit': '', 'runs': [], 'rows': rows_of}, f)
    r = bench('--out', d, '--report')
    table, svg = read(d, 'RESULTS.md'), read(d, 'perf-kv-parts.svg')
    check('stores and slabs in the report', r.returncode == 0
          and 'In the same rounds: reads: 84.00 M/s.' in table
          and '| redis | GET | 1.50 M/s' in table and '| 16 MiB | 5 | 13.0 ns' in table, r)
    check('a plot of slabs', svg.startswith('<svg') and 'merged' in svg and 'GETs' not in svg)

    # The bars of the store: groups by the longer READ beside a figure, and what is measured around
    # all rounds.
    bars = [{'row': 0, 'rate': rate * 1e6, 'us': 30, 'reads': reads} for rate, reads in (
        (1.5, [0.8, 0.86]), (2.5, [0.7, 0.7]), (2, [0.86, 0.8]), (1.25, [0.8, 0.87]),
        (1, [1.0, 0.7]), (0.5, [0.7, 1.41]))]
    bars.append({'row': 3, 'rate': 1e6, 'us': 2, 'reads': [1, 1.4]})
    stalls = [{'per_second': n, 'ms_per_second': 42.5, 'p50_ns': 38000} for n in (1100, 1234)]
    with open(os.path.join(d, 'results', 'kv-nic-bars.json'), 'w', encoding='utf-8') as f:
        json.dump({'name': 'kv-nic-bars', 'command': 'c', 'unit': '', 'runs': [], 'rows': bars,
                   'around': stalls}, f)
    r = bench('--out', d, '--report')
    table = read(d, 'RESULTS.md')
    check('bars by the READs beside them', r.returncode == 0 and (
        '| what | port | READs up to 0.86 us | 0.86 to 1.0 us | 1.0 to 1.4 us | longer | '
        'the bar |\n'
        '|---|---|---:|---:|---:|---:|---:|\n'
        '| GETs, one in a call, 64 calls in flight | udp | 2.00 M/s (1.50 to 2.50; 3) | '
        '1.12 M/s (1.00, 1.25) | | 0.50 M/s | at least 2 M/s |\n') in table, r)
    check('a bar over the READs', '| shm | | | 0.80 us | | at most 0.6 us |\n' in table, r)
    check('stalls around the rounds',
          '1,100 a second before the rounds, 42.5 ms in sum, p50 38.0 us; 1,234 a second after them'
          in table, r)

    # A report with fewer figures does not replace the report of the tree.
    own = os.path.join(d, 'bench')
    shutil.copytree(sys.argv[2], own, ignore=shutil.ignore_patterns('results', '__pycache__'))
    os.symlink(os.path.join(os.path.dirname(sys.argv[2]), 'tests'), os.path.join(d, 'tests'))
    os.mkdir(os.path.join(own, 'results'))
    with open(os.path.join(own, 'results', 'sweep-shm-write.json'), 'w', encoding='utf-8') as f:
        json.dump({'name': 'sweep-shm-write', 'command': 'c', 'unit': '', 'runs': [], 'rows': rows},
                  f)
    before = read(own, 'RESULTS.md')
    r = subprocess.run([sys.executable, os.path.join(own, 'run'), '--report'],
                       stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=200,
                       check=False)
    check('a report without the data of others is refused',
          r.returncode == 1 and 'make bench' in r.stderr and read(own, 'RESULTS.md') == before, r)

    r = bench('--out', d, '--only', 'no-such-figure')
    check('nothing of that name', r.returncode == 1 and 'no-such-figure' in r.stderr, r)
    r = bench('--out', d, '--rounds', '0')
    check('no rounds', r.returncode == 2 and '--rounds' in r.stderr, r)
    # The output of another version has no such figures. Other measurements keep their data.
    other = os.path.join(d, 'other')
    with open(other, 'w', encoding='utf-8') as f:
        f.write('#!/bin/sh\n[ "$1" = perf ] && exit 1\necho "{}"\n')
    os.chmod(other, 0o755)
    r = bench('--out', d, '--roost', other, '--only', 'shm-read')
    data = json.loads(read(d, 'results', 'shm-read-lat.json') or '{}')
    check('output of another form is the error of a measurement', r.returncode == 1
          and data.get('runs') == [] and data.get('errors', [''])[0].startswith('KeyError'), r)
    # What is measured around the rounds is measured twice, whatever the rounds are.
    with open(other, 'w', encoding='utf-8') as f:
        f.write('#!/bin/sh\n[ "$1" = limits ] || exit 1\necho x >> "$0.calls"\n'
                'echo "{\\"stalls\\": {\\"per_second\\": $(wc -l < "$0.calls")}}"\n')
    r = bench('--out', d, '--roost', other, '--only', 'kv-nic-bars')
    data = json.loads(read(d, 'results', 'kv-nic-bars.json') or '{}')
    check('before and after the rounds', data.get('around') == [{'per_second': 1},
                                                               {'per_second': 2}]
          and len(data.get('errors', [])) == 2, r)
    # A signal in the third round: the two complete ones are kept.
    for name, status in (('TERM', 143), ('INT', 130)):
        stopped = os.path.join(d, f'stopped-{name}')
        with open(other, 'w', encoding='utf-8') as f:
            f.write('#!/bin/sh\necho x >> "$0.rounds"\n'
                    '[ $(wc -l < "$0.rounds") = 3 ] || { echo "{}"; exit; }\n'
                    f'rm "$0.rounds"; kill -{name} $PPID; exec sleep 1000\n')
        r = bench('--out', stopped, '--roost', other, '--only', 'limits', '--rounds', '5')
        data, machine = (json.loads(read(stopped, 'results', f'{name}.json') or '{}')
                         for name in ('limits', 'machine'))
        check(f'{name} in the third round', r.returncode == status
              and r.stderr.startswith('bench/run: stopped in round 3 of 5; ')
              and r.stderr.count('\n') == 1, r)
        check(f'{name}: two rounds are kept: {data}', len(data.get('runs', [])) == 2
              and data['rounds'] == machine['rounds'] == 2)
        r = bench('--out', stopped, '--report')
        check(f'{name}: the report says so',
              r.returncode == 0 and '2 of 5 rounds' in read(stopped, 'RESULTS.md'), r)
    r = bench('--out', d, '--roost', '/nonexistent/roost')
    check('no roost', r.returncode == 1 and 'make' in r.stderr, r)
finish()
