#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Tests `roost doctor`: each row on a machine on which its condition is bad, and on one on which it
is not. usage: test_doctor.py BUILD"""
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'common'))
from launcher import Missing, limits_of, run  # noqa: E402
from skip import skip  # noqa: E402

BUILD = sys.argv[1]
ROOST = '/opt/roost/roost'
CLOCK = '/sys/devices/system/clocksource/clocksource0/current_clocksource'
HUGE = '/sys/kernel/mm/transparent_hugepage/enabled'
RXE = {'/sys/class/infiniband/rxe0/parent': 'eth0'}
PYTHON = '/usr/bin/python3' if os.path.exists('/usr/bin/python3') else sys.executable
GOOD = {CLOCK: 'tsc', HUGE: 'always [madvise] never', '/proc/sys/net/core/rmem_max': '4194304',
        '/proc/sys/net/core/wmem_max': '4194304'}

failures = 0
seen = set()


def bad(condition, state, words, limits=(), command=(), args=(), env=None, job=None, fakes=None,
        **values):
    return {'condition': condition, 'state': state, 'words': words,
            'limits': ['user', 'network', *limits], 'command': list(command), 'args': list(args),
            'env': env, 'job': job, 'fakes': {**GOOD, **(fakes or {})}, 'values': values}


ROWS = [
    bad('kernel', 'fails', ['2.6.', '5.10'], command=['setarch', '--uname-2.6']),
    bad('clock', 'warning', ['hpet', 'clocksource=tsc'], fakes={CLOCK: 'hpet'}),
    bad('cores', 'warning', ['1 allowed', '--cpus=2'], command=['taskset', '-c', '0']),
    bad('cores', 'warning', ['quota of 0.50', '--cpus'], ['cpus'], cpus=0.5),
    bad('cores', 'warning', ['quota of 1.50', '--cpus'], ['cpus'], cpus=1.5),
    bad('seccomp', 'fails', ['memfd_create', 'profile'], ['seccomp'], seccomp='memfd_create'),
    bad('seccomp', 'fails', ['sendmmsg recvmmsg'], ['seccomp'], seccomp='sendmmsg+recvmmsg'),
    bad('seccomp', 'warning', ['rt_tgsigqueueinfo'], ['seccomp'], seccomp='rt_tgsigqueueinfo'),
    bad('locked memory', 'warning', ['64 KiB', 'memlock=-1'], ['memlock']),
    bad('huge pages', 'warning', ['[never]', 'madvise'], fakes={HUGE: 'always madvise [never]'}),
    bad('/dev/shm', 'warning', ['1 MiB', '--shm-size'], ['shm'], shm=1 << 20),
    bad('folder', 'fails', ['/nonexistent', 'ROOST_SHM_DIR'],
        env={'ROOST_SHM_DIR': '/nonexistent/folder'}),
    bad('folder', 'fails', ['No space left', 'ROOST_SHM_DIR'], ['shm', 'readonly'], shm=4096,
        command=['sh', '-c', 'head -c 4096 /dev/zero >/dev/shm/full; exec "$@"', 'sh']),
    bad('libibverbs', 'fails', ['/nonexistent', 'ROOST_LIBDIR'],
        env={'ROOST_LIBDIR': '/nonexistent'}),
    bad('interfaces', 'fails', ['none is up', 'ip link set lo up'], network='down'),
    bad('interfaces', 'warning', ['lo', 'of this machine alone'], network='lo'),
    bad('interfaces', 'warning', ['eth0: path MTU 256', 'mtu 1500'], network='400'),
    bad('IPv6', 'warning', ['no address', 'disable_ipv6=0'], ['noipv6']),
    bad('IPv6', 'warning', ['this kernel has none', 'ipv6.disable=1'], ['noipv6'], noipv6='none'),
    bad('IPv6', 'fails', ['no address'], ['noipv6'], args=['--port', 'udp:::1']),
    bad('socket buffers', 'warning', ['208 KiB', 'rmem_max=4194304'],
        fakes={'/proc/sys/net/core/rmem_max': '212992'}),
    bad('socket buffers', 'warning', ['208 KiB', 'wmem_max=4194304'],
        fakes={'/proc/sys/net/core/wmem_max': '212992'}),
    bad('UDP offload', 'warning', ['UDP_SEGMENT no, UDP_GRO no'], ['nooffload']),
    bad('port 4791', 'warning', ['(python3', '172.17.0.2', 'stop it'], job=['held', '172.17.0.2']),
    bad('port 4791', 'fails', ['(python3', '172.17.0.2', 'stop it'], job=['held', '0.0.0.0']),
    bad('port 4791', 'fails', ['(python3', '127.0.0.9', 'stop it'], job=['held', '0.0.0.0'],
        args=['--port', 'udp:127.0.0.9']),
    bad('port 4791', 'fails', ['192.0.2.77', 'ip address'], args=['--port', 'udp:192.0.2.77']),
    bad('rdma_rxe', 'warning', ['rxe0 on eth0', 'rdma link delete'], fakes=RXE),
    bad('rdma_rxe', 'fails', ['holds the port'], fakes=RXE, job=['held', '0.0.0.0'],
        args=['--port', 'udp:127.0.0.9']),
    bad('pool', 'warning', ['SO_ATTACH_REUSEPORT_CBPF no', 'seccomp'], ['nosteering']),
    bad('pool', 'warning', ['100 open files', 'ulimit -Hn'],
        command=['prlimit', '--nofile=100:100']),
    bad('NIC', 'fails', ['does not open', '127.0.0.9', 'in use'], job=['held', '0.0.0.0'],
        args=['--port', 'udp:127.0.0.9']),
    bad('NIC', 'fails', ['does not open'], command=['prlimit', '--nofile=8']),
]


def check(what, ok, detail=''):
    global failures
    if not ok:
        failures += 1
        print(f'FAILED: {what}\n  {detail}')


def doctor(row):
    """Returns (status, {condition: row}, output)."""
    command = [*row['command'], *([PYTHON, '/opt/tests/inside.py', *row['job'], *row['args']]
                                  if row['job'] else [ROOST, 'doctor', '--json', *row['args']])]
    limits = limits_of([*row['limits'], 'fakes'], fakes=row['fakes'], **row['values'])
    status, out, err, _ = run(BUILD, limits, command, row['env'])
    if row['job'] and status == 0:
        said = json.loads(out)[0]
        status, out, err = said['status'], said['out'], said['err']
    try:
        return status, {r['condition']: r for r in json.loads(out)['rows']}, err
    except (ValueError, KeyError):
        return status, {}, out + err


def check_bad(row):
    what = (f"{row['condition']} {row['state']}, "
            f"{row['values'] or row['args'] or row['command'] or row['env']}")
    status, rows, words = doctor(row)
    found = rows.get(row['condition'], {})
    text = f"{found.get('found')} {found.get('remedy')}"
    fails = [r['condition'] for r in rows.values() if r['state'] == 'fails']
    check(what, found.get('state') == row['state'] and found['remedy']
          and all(w in text for w in row['words']), f'{found} {words}')
    check(what + ': the exit status', status == (1 if fails else 0),
          f'{status}, fails: {fails} {words}')
    check(what + ': others that fail', row['state'] == 'fails' or not fails, f'{fails}')
    seen.add(row['condition'])


LOADED = """
import ctypes
try:
    ctypes.CDLL('libibverbs.so.1')
    with open('/proc/self/maps', encoding='utf-8') as f:
        print(next(line.split()[-1] for line in f if '/libibverbs.so' in line))
except OSError:
    print('none')
"""


def check_library(rows):
    """The row of libibverbs names the library that a program loads, and the one under roost run."""
    ours = '/opt/roost/lib/libibverbs.so.1'
    # LD_LIBRARY_PATH of the test names the libraries of the build.
    env = {name: value for name, value in os.environ.items() if name != 'LD_LIBRARY_PATH'}
    theirs = subprocess.run([sys.executable, '-c', LOADED], env=env, stdout=subprocess.PIPE,
                            text=True, check=True).stdout.strip()
    found = rows['libibverbs']['found']
    check("libibverbs: the system's and ours",
          found == f'a program loads {theirs}; under roost run, {ours}', found)
    row = bad('libibverbs', 'ok', [], env={'LD_LIBRARY_PATH': os.path.dirname(ours)})
    found = doctor(row)[1]['libibverbs']
    check('libibverbs: ours for every program', found['state'] == 'ok'
          and found['found'] == f"every program loads Roost's, {ours}", found)


def main():
    if os.geteuid() == 0 and len(os.sched_getaffinity(0)) < 2:
        raise Missing('one core: the row of cores can not be good here')
    good = bad('', 'ok', [])
    status, rows, words = doctor(good)
    for name, r in rows.items():
        check(f'{name}: good where nothing is bad', r['state'] == 'ok' and not r['remedy'], f'{r}')
    check('status 0 where nothing is bad', status == 0 and rows, f'{status} {words}')
    check_library(rows)
    missing = 0
    for row in ROWS:
        try:
            check_bad(row)
        except Missing as e:
            missing += 1
            seen.add(row['condition'])
            print(f"SKIPPED: {row['condition']} {row['values']}: {e}")
    check('each row has a test', set(rows) == seen, f'{set(rows) ^ seen}')
    return missing


try:
    skipped = main()
except Missing as e:
    skip(e)
print(f'{len(ROWS) - skipped} bad conditions, {failures} failures')
sys.exit(1 if failures else 0)
