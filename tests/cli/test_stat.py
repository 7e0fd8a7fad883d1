#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""`roost stat` while `roost perf` runs: the table, rates, JSON, and the text format of Prometheus."""
import os
import re
import subprocess
import tempfile
import time

from cli import ROOST, check, finish, last_json, one_line_error, run

SAMPLE = re.compile(r'roost_(\w+?)(_total)?\{(\w+="(?:[^"\\\n]|\\.)*"(?:,\w+="(?:[^"\\\n]|\\.)*")*)\} (\d+)')

# A folder of our own: other NICs of this user are none of our business.
folder = tempfile.TemporaryDirectory()
os.environ['ROOST_SHM_DIR'] = os.path.join(folder.name, 'nics')
os.mkdir(os.environ['ROOST_SHM_DIR'], 0o700)

r = run('stat')
check('nobody', r.returncode == 0 and r.stdout == 'no NIC of yours is running\n', r)

perf = subprocess.Popen([ROOST, 'perf', 'write', '--port', 'shm', '--seconds', '600', '--no-pin'],
                        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
try:
    deadline = time.monotonic() + 60
    nics = []
    while time.monotonic() < deadline:
        nics = [n for n in last_json(run('stat', '--json')).get('nics', []) if n['counters']['rcvd_pkts'] > 1000]
        if len(nics) == 2:
            break
        time.sleep(0.1)
    check('two NICs that work', len(nics) == 2)
    pid = str(nics[0]['pid']) if nics else '0'

    r = run('stat', pid)
    check('table', r.returncode == 0 and f'process {pid},' in r.stdout and 'rcvd_pkts' in r.stdout and 'a second' not in r.stdout, r)

    r = run('stat', pid, '--watch', '0.3', '--count', '3')
    heads = [line for line in r.stdout.splitlines() if line.startswith('counter')]
    check('watch', r.returncode == 0 and len(heads) == 3 and 'a second' not in heads[0] and 'a second' in heads[2], r)
    rates = [line.split() for line in r.stdout.splitlines() if line.startswith('rcvd_pkts')]
    check('a rate', len(rates) == 3 and rates[2][2][0].isdigit() and rates[2][2] != '0', r)

    r = run('stat', '--prometheus')
    lines = r.stdout.splitlines()
    samples = [SAMPLE.fullmatch(line) for line in lines if not line.startswith('#')]
    check('Prometheus: samples', r.returncode == 0 and samples and all(samples), r)
    typed = {line.split()[2] for line in lines if line.startswith('# TYPE')}
    check('Prometheus: types', typed == {line.split('{')[0] for line in lines if not line.startswith('#')}, r)
    got = [int(m[4]) for m in samples if m and m[1] == 'rcvd_pkts' and f'pid="{pid}"' in m[3]]
    check('Prometheus: value', len(got) == 1 and got[0] > 1000, r)
finally:
    perf.kill()
    perf.wait()

one_line_error('two forms', run('stat', '--json', '--prometheus'), 2, '--prometheus')
one_line_error('count alone', run('stat', '--count', '3'), 2, '--watch')
one_line_error('not there', run('stat', 'no-such-program'), 1, 'no-such-program')
finish()
