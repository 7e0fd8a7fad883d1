#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""`roost stat` while `roost perf` runs: the table, rates, JSON, and the text format of
Prometheus."""
import json
import os
import re
import socket
import subprocess
import tempfile
import threading
import time

from cli import ROOST, check, finish, last_json, one_line_error, own_network, run

SAMPLE = re.compile(
    r'roost_(\w+?)(_total)?\{(\w+="(?:[^"\\\n]|\\.)*"(?:,\w+="(?:[^"\\\n]|\\.)*")*)\} (\d+)')

NAME = r'[a-zA-Z_:][a-zA-Z0-9_:]*'
LINE = re.compile(rf'({NAME})\{{(.*)\}} (-?[0-9.]+(?:[eE][+-]?\d+)?)')
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(?:,|$)')


def parse_prometheus(text):
    """Parses the text exposition format, version 0.0.4: {name: (type, {labels: value})}. Raises
    ValueError if the text violates it."""
    metrics, name = {}, None
    if not text.endswith('\n'):
        raise ValueError('the last line does not end')
    for line in text.splitlines():
        if line.startswith('# HELP '):
            name = line.split(' ', 3)[2]
            if name in metrics or not re.fullmatch(NAME, name) or len(line.split(' ', 3)) != 4:
                raise ValueError(f'HELP twice, or of nothing: {line}')
            metrics[name] = [None, {}]
        elif line.startswith('# TYPE '):
            _, _, typed, kind = line.split(' ')
            if (typed != name or metrics[name][0] or metrics[name][1]
                    or kind not in ('counter', 'gauge')):
                raise ValueError(f'TYPE in the wrong place: {line}')
            metrics[name][0] = kind
        else:
            m = LINE.fullmatch(line)
            labels = LABEL.findall(m[2]) if m else []
            if not m or m[1] != name or not metrics[name][0] or LABEL.sub('', m[2]):
                raise ValueError(f'no sample of {name}: {line}')
            if len({k for k, _ in labels}) != len(labels) or tuple(labels) in metrics[name][1]:
                raise ValueError(f'twice: {line}')
            metrics[name][1][tuple(labels)] = float(m[3])
    return metrics


# A network and a folder of our own, without other NICs of this user.
own_network()
folder = tempfile.TemporaryDirectory()
os.environ['ROOST_SHM_DIR'] = os.path.join(folder.name, 'nics')
os.mkdir(os.environ['ROOST_SHM_DIR'], 0o700)

r = run('stat')
check('nobody', r.returncode == 0 and r.stdout == 'no NIC of yours is running\n', r)



def ends_while_asked():
    """A process that ends before it answers is left out; a process that lives and does not answer
    is named."""
    path = os.path.join(os.environ['ROOST_SHM_DIR'], 'stat.4711')
    server = socket.socket(socket.AF_UNIX)
    server.bind(path)
    server.listen()

    def end():
        connection, _ = server.accept()
        os.unlink(path)
        server.close()
        connection.close()

    thread = threading.Thread(target=end)
    thread.start()
    r = run('stat')
    thread.join()
    check('a process that ends while it is asked',
          r.returncode == 0 and r.stdout == 'no NIC of yours is running\n' and not r.stderr, r)

    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen()
        one_line_error('a process that says nothing', run('stat', limit=60), 1, '4711', 'stopped')
    os.unlink(path)


ends_while_asked()


def answers_without_usage():
    """The answer of a program whose control call does not return has no numbers of objects."""
    path = os.path.join(os.environ['ROOST_SHM_DIR'], 'stat.4711')
    answer = json.dumps({'pid': 4711, 'program': 'busy', 'uptime_s': 5.0, 'ports': [],
                         'counters': {'rcvd_pkts': 3}}).encode()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen()

        def serve():
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                connection.sendall(answer)
                connection.close()

        thread = threading.Thread(target=serve)
        thread.start()
        table, prometheus = run('stat', '4711'), run('stat', '--prometheus')
        server.shutdown(socket.SHUT_RDWR)
        thread.join()
    os.unlink(path)
    check('a busy program in the table',
          table.returncode == 0 and 'busy, process 4711, up 5 s\n' in table.stdout
          and 'rcvd_pkts' in table.stdout, table)
    check('a busy program for Prometheus',
          prometheus.returncode == 0 and 'roost_rcvd_pkts_total{' in prometheus.stdout
          and 'roost_qps' not in prometheus.stdout, prometheus)


answers_without_usage()

perf = subprocess.Popen([ROOST, 'perf', 'write', '--port', 'shm', '--seconds', '600', '--no-pin'],
                        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                        stderr=subprocess.DEVNULL)
try:
    deadline = time.monotonic() + 60
    nics = []
    while time.monotonic() < deadline:
        nics = [n for n in last_json(run('stat', '--json')).get('nics', [])
                if n['counters']['rcvd_pkts'] > 1000]
        if len(nics) == 2:
            break
        time.sleep(0.1)
    check('two NICs that work', len(nics) == 2)
    pid = str(nics[0]['pid']) if nics else '0'

    r = run('stat', pid)
    check('table', r.returncode == 0 and f'process {pid},' in r.stdout and 'rcvd_pkts' in r.stdout
          and 'a second' not in r.stdout, r)

    # A processing unit that is owned for 20 ms shows its last values. Then there is no rate, and
    # the next look has one.
    while True:
        r = run('stat', pid, '--watch', '0.3', '--count', '3')
        heads = [line for line in r.stdout.splitlines() if line.startswith('counter')]
        rates = [line.split() for line in r.stdout.splitlines() if line.startswith('rcvd_pkts')]
        moved = len(rates) == 3 and rates[2][2][0].isdigit() and rates[2][2] != '0'
        if moved or time.monotonic() > deadline:
            break
    check('watch', r.returncode == 0 and len(heads) == 3 and 'a second' not in heads[0]
          and 'a second' in heads[2], r)
    check('a rate', moved, r)

    r = run('stat', '--prometheus')
    lines = r.stdout.splitlines()
    samples = [SAMPLE.fullmatch(line) for line in lines if not line.startswith('#')]
    check('Prometheus: samples', r.returncode == 0 and samples and all(samples), r)
    typed = {line.split()[2] for line in lines if line.startswith('# TYPE')}
    check('Prometheus: types',
          typed == {line.split('{')[0] for line in lines if not line.startswith('#')}, r)
    before = {n['pid']: n['counters'] for n in last_json(run('stat', '--json')).get('nics', [])}
    r = run('stat', '--prometheus')
    try:
        metrics = parse_prometheus(r.stdout)
    except ValueError as e:
        metrics = {}
        check(f'Prometheus: {e}', False, r)
    for counter in before.get(int(pid), {}):
        kind, values = metrics.get(f'roost_{counter}_total', [None, {}])
        mine = [v for labels, v in values.items() if ('pid', pid) in labels]
        check(f'Prometheus: {counter} is there, and has not gone back', kind == 'counter'
              and len(values) == 2 and len(mine) == 1 and mine[0] >= before[int(pid)][counter], r)
    check('Prometheus: gauges', all(metrics.get(f'roost_{g}', [None])[0] == 'gauge'
                                    for g in ('qps', 'cqs', 'mrs', 'groups')), r)
    got = [int(m[4]) for m in samples if m and m[1] == 'rcvd_pkts' and f'pid="{pid}"' in m[3]]
    check('Prometheus: value', len(got) == 1 and got[0] > 1000, r)
finally:
    perf.kill()
    perf.wait()

one_line_error('two forms', run('stat', '--json', '--prometheus'), 2, '--prometheus')
one_line_error('count alone', run('stat', '--count', '3'), 2, '--watch')
one_line_error('not there', run('stat', 'no-such-program'), 1, 'no-such-program')
finish()
