#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""One message of 2^31 bytes by WRITE, and one by READ; every byte checked. Usage: check_2gib.py
ROOST PORT"""
import sys

from cli import check, finish, last_json, run

for op in ('write', 'read'):
    r = run('perf', op, '--check', '--port', sys.argv[2], '--sizes', '2G', '--iters', '1', '--json',
            limit=1800)
    j = last_json(r)
    check(op, r.returncode == 0 and j.get('bytes_checked') == 1 << 31, r)
    print(op, j.get('seconds'), 's,', j.get('counters', {}).get('retransmitted_pkts', 0),
          'sent again by the initiator,', j.get('target_counters', {}).get('retransmitted_pkts', 0),
          'by the target')
finish()
