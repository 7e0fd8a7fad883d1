#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Every byte of every operation, over all path MTUs and ports, with and without loss. Usage:
check_matrix.py ROOST few|all"""
import sys
import time

from cli import check, finish, last_json, run

ALL = sys.argv[2] == 'all'
MTUS = [256, 512, 1024, 2048, 4096]
OPS = ['write', 'read', 'send', 'atomic']
LINKS = ['', ',loss=0.01', ',loss=0.01,dup=0.01,reorder=0.02,corrupt=0.005']

start, runs = time.monotonic(), 0
for o, op in enumerate(OPS):
    for m, mtu in enumerate(MTUS):
        for p, port in enumerate(['udp', 'shm']):
            for k, link in enumerate(LINKS):
                if k == 2 and mtu != 1024:
                    continue  # the worst link: once an operation and port
                if not ALL and (o + m + p + k) % 5:
                    continue
                # The seed of the patterns and of the link: the same each time, another for each
                # case.
                seed = 1 + o * 100 + m * 10 + p * 5 + k
                args = ['perf', op, '--check', '--port',
                        f'{port}{link}' + (f',seed={seed}' if link else ''), '--mtu', str(mtu),
                        '--qps', str(1 + (m + p) % 3), '--iters', '2' if ALL else '1', '--seed',
                        str(seed), '--json']
                if (o + m) % 2:
                    args.append('--passive' if op in ('read', 'atomic') else '--events')
                r = run(*args)
                j = last_json(r)
                check(' '.join(args),
                      r.returncode == 0 and j.get('mtu') == mtu and j.get('messages', 0) > 0, r)
                runs += 1
print(f'{runs} runs, {time.monotonic() - start:.1f} s')
finish()
