#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Runs programs under each limit of a container, and under all: they must work, or fail with one
line that names the limit.

usage: test_containers.py BUILD [TEXT]      (TEXT: only rows with TEXT in the name)
"""
import glob
import json
import os
import re
import select
import signal
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'common'))
from launcher import CONTAINER, Missing, limits_of, run  # noqa: E402
from skip import required  # noqa: E402

BUILD = sys.argv[1]
ONLY = sys.argv[2] if len(sys.argv) > 2 else ''
ROOST = '/opt/roost/roost'
GUIDE = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..', 'docs',
                     'guide-containers.md')
PYTHON = '/usr/bin/python3' if os.path.exists('/usr/bin/python3') else sys.executable
IDLE_SECONDS = 2
LIMIT_SECONDS = 60  # seconds; only a failure takes so long
AT_ONCE = 4  # rows at a time: they mostly wait

JOBS = {'demo': 'all three are equal', 'perf udp': 'Gbit/s', 'perf shm': 'Gbit/s',
        'bw udp': 'MsgRate', 'bw shm': 'MsgRate', 'node': 'value of 17', 'store': 'kept'}

failures = 0


def check(what, ok, detail=''):
    global failures
    if not ok:
        failures += 1
        print(f'FAILED: {what}\n  {detail}')


def inside(limits, *words):
    """Returns the results of a job's programs, a list of dict; and cpu.stat of the group."""
    status, out, err, stat = run(BUILD, limits, [PYTHON, '/opt/tests/inside.py', *words])
    if status:
        return [{'name': ' '.join(words), 'status': status, 'out': out, 'err': err}], stat
    return json.loads(out.splitlines()[-1]), stat


def works(name, limits):
    for job, wanted in JOBS.items():
        done, _ = inside(limits, *job.split())
        for d in done:
            check(f"{name}: {d['name']}", d['status'] == 0, d)
        check(f'{name}: {job}', any(wanted in d['out'] for d in done), done)


def fails(name, limits, command, words, env):
    """Checks for one line on stderr with these words."""
    status, out, err, _ = run(BUILD, limits_of(*limits[:1], **limits[1]), command, env)
    check(name, status == 1 and len(err.splitlines()) == 1 and all(w in err for w in words),
          f'{status} {out!r} {err!r}')


def spends(name, job, most):
    """Checks the CPU time of a node in IDLE_SECONDS. A thread that spins would take its whole
    quota, 1 s. The number of times that its group was throttled is shown only: it includes the
    starts of all programs of the job, which take longer on a slow machine."""
    done, stat = inside(limits_of(CONTAINER, cpus=0.5), job, str(IDLE_SECONDS))
    cpu = next((d for d in done if d['name'] == 'cpu'), None)
    check(f'{name}: programs', cpu and all(d['status'] == 0 for d in done), done)
    check(f'{name}: {most} s of CPU at most', cpu and cpu['used'] <= most, cpu)
    if job == 'busy':
        check(f'{name}: calls', cpu and cpu['calls'] > 0, cpu)
    print(f"{name}: {cpu['used'] if cpu else '?'} s of CPU, {stat}")


FAILING = [
    ('no space', (['user', 'shm'], {}), [ROOST, 'demo'],
     ['no space', '/dev/shm', '--size', 'TMPDIR'], {'TMPDIR': '/dev/shm'}),
    ('no space in the folder', (['user', 'shm', 'readonly'], {'shm': 4096}),
     ['sh', '-c', f'head -c 4096 /dev/zero >/dev/shm/full; {ROOST} demo --port shm'],
     ['No space left', 'ROOST_SHM_DIR', 'roost doctor'], None),
    ('no space for a far tier', (['user', 'shm'], {}),
     [ROOST, 'node', '--kv', '256M', '--kv-far', '/dev/shm'],
     ['/dev/shm has 64 MiB free', '256 MiB', 'give --kv-far another folder', '--kv less'], None),
    ('no folder', (['user', 'network'], {}), [ROOST, 'demo', '--port', 'shm'],
     ['/nonexistent/x', 'ROOST_SHM_DIR', 'roost doctor'], {'ROOST_SHM_DIR': '/nonexistent/x'}),
    ('no IPv6 address', (['user', 'network', 'noipv6'], {}), [ROOST, 'node', '--port', 'udp:::1'],
     ['::1 is no address of this machine', '`ip address`', '127.0.0.2'], None),
    ('no IPv6', (['user', 'network', 'noipv6'], {'noipv6': 'none'}),
     [ROOST, 'node', '--port', 'udp:::1'],
     ['no IPv6', 'choose an address of the other kind', 'roost doctor'], None),
    ('no interface', (['user', 'network'], {'network': 'down'}), [ROOST, 'demo', '--port', 'udp'],
     ['Network is unreachable', 'ip link set lo up', 'roost doctor'], None),
    ('no memory files', (['user', 'seccomp', 'readonly'], {'seccomp': 'memfd_create'}),
     [ROOST, 'demo'], ['a file in memory: Operation not permitted', 'TMPDIR', 'roost doctor'],
     None),
    ('no random numbers', (['user', 'seccomp'], {'seccomp': 'getrandom'}),
     [ROOST, 'node', '--port', 'shm'], ['random numbers', 'getrandom'], None),
    ('no random numbers on udp', (['user', 'seccomp', 'network'], {'seccomp': 'getrandom'}),
     [ROOST, 'node', '--port', 'udp'], ['random numbers', 'getrandom'], None),
    ('few files', (['user'], {}), ['prlimit', '--nofile=8', ROOST, 'node'],
     ['open files', 'ulimit -n', 'roost doctor'], None),
]


def ends(name, number, limits):
    """Sends a signal to the launcher: its program must end, too. The end of the pipe shows it: only
    the program and what it has started hold the other end."""
    command = [sys.executable, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                            'launcher.py'), '--build', BUILD, '--limits',
               ','.join(limits), '--', '/bin/sh', '-c', 'echo here; exec sleep 100000']
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as launcher:
        said = launcher.stdout.readline()
        if said != 'here\n':
            if launcher.wait() == 77:
                raise Missing(said.strip())
            check(name, False, said)
            return
        launcher.send_signal(number)
        ended = select.select([launcher.stdout], [], [], LIMIT_SECONDS)[0]
        check(name, ended and not launcher.stdout.read(), 'the program goes on')
        if not ended:
            launcher.stdout.close()
    left = [path for top in ('/sys/fs/cgroup', '/sys/fs/cgroup/cpu')
            for path in glob.glob(f'{top}/roost-test-{launcher.pid}-*')]
    check(f'{name}: control group', not left, left)


def planned():
    """Returns rows (name, test, arguments). Each has a network of its own, so several can run at a
    time."""
    for limit in CONTAINER:
        yield f'only {limit}', works, [limits_of({'network', limit})]
    yield 'network none', works, [limits_of(['user', 'network'], network='lo')]
    yield 'no IPv6 at all', works, [limits_of(CONTAINER, noipv6='none')]
    yield '0.5 CPU', works, [limits_of(CONTAINER, cpus=0.5)]
    yield 'all', works, [limits_of(CONTAINER)]
    yield 'all but the quota', works, [limits_of([n for n in CONTAINER if n != 'cpus'])]
    yield 'idle at 0.5 CPU', spends, ['idle', 0.05]
    yield 'mostly idle at 0.5 CPU', spends, ['busy', 0.3]
    yield 'SIGTERM', ends, [signal.SIGTERM, CONTAINER]
    yield 'SIGTERM, root', ends, [signal.SIGTERM, ['network']]
    # nobody would remove the control group
    yield 'SIGKILL', ends, [signal.SIGKILL, [n for n in CONTAINER if n != 'cpus']]
    yield 'SIGKILL, root', ends, [signal.SIGKILL, ['network']]
    for name, limits, command, words, env in FAILING:
        yield name, fails, [limits, command, words, env]


def run_row(name, test, args):
    """Runs a row in a process of its own: 0 passed, 1 failed, 77 cannot run on this machine."""
    try:
        test(name, *args)
    except Missing as e:
        print(f'SKIPPED: {name}: {e}')
        return 77
    except Exception as e:  # pylint: disable=broad-except  # a row that breaks is one that fails
        check(name, False, repr(e))
    return 1 if failures else 0


def guide_is_backed():
    """Checks that the guide's table names rows of this test: one of each name."""
    with open(GUIDE, encoding='utf-8') as f:
        cells = [line.split('|')[-2] for line in f if line.startswith('| `')]
    named = [name for cell in cells for name in re.findall('`([^`]+)`', cell)]
    names = {r[0] for r in planned()}
    check('docs/guide-containers.md', len(named) > 10 and set(named) <= names,
          f'no such rows: {set(named) - names}')


def main():
    global failures
    guide_is_backed()
    rows, running, ended = [r for r in planned() if ONLY in r[0]], {}, []
    todo = list(rows)
    while todo or running:
        if todo and len(running) < AT_ONCE:
            sys.stdout.flush()
            pid = os.fork()
            if pid == 0:
                failures = 0
                status = run_row(*todo[0])
                sys.stdout.flush()
                os._exit(status)
            running[pid] = todo.pop(0)[0]
        else:
            pid, status = os.wait()
            ended.append((running.pop(pid), os.waitstatus_to_exitcode(status)))
    missing, passed = [name for name, code in ended
                       if code == 77], [name for name, code in ended if code == 0]
    print(f'{len(rows)} rows, {len(rows) - len(passed) - len(missing)} failures')
    if failures or len(passed) + len(missing) < len(rows):
        return 1
    if missing:
        print(f'SKIPPED: {len(passed)} rows passed, not run here: {", ".join(missing)}')
    # A run without rows does not pass.
    return 0 if not missing else 1 if not passed and required() else 77


if __name__ == '__main__':
    sys.exit(main())
