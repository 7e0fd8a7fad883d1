#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""`roost limits`: all figures are there, in the table and as JSON. The test does not check their
values."""
import os

from cli import check, finish, last_json, one_line_error, run

BY_SIZE = ['ring_gbps', 'ring_rate', 'ring_bidir_gbps', 'ring_bidir_rate', 'shm_port_gbps',
           'shm_port_rate']
PLAIN = ['core_rtt_ns', 'core_rtt_p99_ns', 'wake_ns', 'wake_p99_ns', 'wake_beside_ns',
         'udp_gso_gbps', 'udp_rtt_ns', 'udp_rtt_p99_ns', 'udp_wake_ns', 'udp_wake_p99_ns',
         'ring_short_ns', 'ring_short_p99_ns', 'udp_short_ns', 'udp_short_p99_ns',
         'random_read_mops', 'random_read_ns', 'copy_gbs', 'copy_stream_gbs', 'crc32_gbs',
         'random_read_bytes']
STALLS = {'per_second', 'ms_per_second', 'p50_ns'}
QUICK = ['--seconds', '0.1', '--rounds', '1']


def number(v):
    return isinstance(v, (int, float)) and not isinstance(v, bool) and v >= 0


r = run('limits', *QUICK, '--json')
j = last_json(r)
check('status',
      r.returncode == 0 and j.get('tool') == 'limits' and isinstance(j.get('machine'), dict), r)
check('one object, nothing else', len(r.stdout.strip().splitlines()) == 1 and not r.stderr, r)
for key in BY_SIZE:
    check(key, set(j.get(key, {})) == {'64', '4096'} and all(number(v) for v in j[key].values()), r)
for key in PLAIN:
    check(key, key in j and (j[key] is None or number(j[key])), r)
check('stalls',
      set(j.get('stalls', {})) == STALLS and all(number(v) for v in j['stalls'].values()), r)
check('rate and bandwidth agree', abs(j['ring_rate']['64'] * 64 * 8 / 1e9 - j['ring_gbps']['64'])
      <= 1e-3 + j['ring_gbps']['64'] / 100, r)

# The three figures are of one run: their shortest stall, 5 us, is the least of the sum.
r = run('limits', *QUICK, '--only', 'stalls', '--json')
s = last_json(r).get('stalls', {})
check('stalls alone', r.returncode == 0 and set(s) == STALLS and 'ring_rate' not in last_json(r)
      and s['ms_per_second'] * 1000 >= s['per_second'] * 4.999
      and (s['p50_ns'] >= 5000 if s['per_second'] else s['p50_ns'] == 0), r)

# On one core it prints a message, and still ends.
only = sorted(os.sched_getaffinity(0))[:1]
os.sched_setaffinity(0, only)
r = run('limits', *QUICK)
lines = r.stdout.splitlines()
check('one core', r.returncode == 0 and lines and 'one core only' in lines[0], r)
check('a table', len(lines) > 30 and all(len(line) < 120 for line in lines), r)
r = run('limits', *QUICK, '--only', 'core_rtt_ns', '--json')
check('one core, JSON',
      last_json(r).get('cores_shared') is True and last_json(r).get('cores') == only * 2, r)

one_line_error('no rounds', run('limits', '--rounds', '0'), 2, '--rounds')
one_line_error('operand', run('limits', 'fast'), 2, 'fast')
finish()
