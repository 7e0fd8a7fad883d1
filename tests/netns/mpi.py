#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Runs MPI jobs between two network namespaces, four ranks in each, as between two machines.

usage: mpi.py --roost PROGRAM --folder DIR [--only TEXT] [--list]

mpirun starts the ranks of the other namespace by remote.py instead of ssh. No program has a
capability. The ranks check all data that they receive (../stock/mpi_ranks.c, which is built in
DIR). The exit status is 0 if all jobs passed, and 77 if this machine allows no namespaces (no root)
or has no MPI; with ROOST_INTEROP=required in the environment it is then 1.
"""
import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
STOCK = os.path.join(HERE, '..', 'stock')
for room in (os.path.join(HERE, '..', 'common'), STOCK):
    sys.path.insert(0, room)
from namespaces import PATH, Missing  # noqa: E402
from networks import ADDRESSES, NO_RIGHTS, Networks  # noqa: E402
from programs import WEAK_FENCES, Side, build_program, lacks, run_rows, skip  # noqa: E402

REMOTE = os.path.join(HERE, 'remote.py')
HOSTS = ','.join(f'{address}:4' for address in ADDRESSES[4])
PROGRAMS = {'mpirun.openmpi': 'openmpi-bin', 'mpicc.openmpi': 'libopenmpi-dev',
            'mpirun.mpich': 'mpich', 'mpicc.mpich': 'libmpich-dev'}
# seconds for a job: 3 to 6 on an idle machine, up to 100 were measured under load
LIMIT = 200
LEAST = 10 << 20  # least bytes between the namespaces; the all-to-all alone sends more


def rows():
    """
    Open MPI does not pass the environment on to the other machine, so each rank has a `roost run`.
    MPICH passes it on. mpi_yield_when_idle: there may be fewer cores than ranks, and Open MPI
    compares the ranks of one host with its slots only. All ranks belong to the session of this
    program (leave-session-attached, new_session): the scheduler of Linux 6.18 gives each session a
    share of the cores (autogroup), and of two sessions with ranks that yield it leaves one without
    a core for up to minutes (docs/decisions.md, "one session for the ranks of a test").
    WEAK_FENCES: see docs/platforms.md.
    """
    for tls in ('rc', 'ud_verbs'):
        ucx = f'UCX_TLS={tls},self UCX_NET_DEVICES=roost0:1 {WEAK_FENCES}'
        exported = ' '.join(f'-x {word}' for word in ucx.split())
        yield f'Open MPI {tls}', (
            f'mpirun.openmpi -H {HOSTS} -n 8 --oversubscribe --bind-to none '
            f'--leave-session-attached --mca plm_rsh_agent {REMOTE} '
            f'--mca mpi_yield_when_idle 1 --mca pml ucx --mca osc ucx {exported} {{roost}} run -- '
            f'{{folder}}/mpi_ranks.openmpi')
        yield f'MPICH {tls}', (
            f'{{roost}} run -- env {ucx} '
            f'mpirun.mpich -launcher rsh -launcher-exec {REMOTE} -hosts {HOSTS} -n 8 '
            f'{{folder}}/mpi_ranks.mpich')


class Inside(Side):
    """
    A program without rights in a namespace, with a host name of its own: Open MPI 5 takes ranks on
    hosts of one name for ranks of one machine, and their collective operations use shared memory.
    """

    def __init__(self, name, command, folder):
        full = ['ip', 'netns', 'exec', name, 'unshare', '--uts', 'sh', '-c',
                f'hostname {name} && exec "$@"', 'sh', *NO_RIGHTS, *command.split()]
        env = dict(os.environ, PATH=PATH, ROOST_TEST_REMOTE=folder, OMPI_ALLOW_RUN_AS_ROOT='1',
                   OMPI_ALLOW_RUN_AS_ROOT_CONFIRM='1')
        env.pop('ROOST_PORT', None)
        self.start(full, env, new_session=False)
        self.command = ' '.join(full)


def sent(name):
    """Returns the bytes that left a namespace by the cable."""
    told = subprocess.run(['ip', '-n', name, '-s', '-j', 'link', 'show', 'v0'],
                          env=dict(os.environ, PATH=PATH), stdout=subprocess.PIPE, check=True)
    return json.loads(told.stdout)[0]['stats64']['tx']['bytes']


def run(names, command):
    """Runs a job. Returns (problem or None, report)."""
    until = time.monotonic() + LIMIT
    before = [sent(name) for name in names]
    with tempfile.TemporaryDirectory() as folder:
        remote = Inside(names[1], f'{REMOTE} serve {ADDRESSES[4][1]}', folder)
        sides = [remote]
        try:
            while not remote.ended() and 'serves' not in remote.text() and time.monotonic() < until:
                time.sleep(0.01)
            problem = lacks(remote, r'(?m)^serves$')
            if not problem:
                job = Inside(names[0], command, folder)
                sides.append(job)
                problem = job.wait(until) or job.exit_verdict() or lacks(job, r'(?m)^all right$')
        finally:
            for side in reversed(sides):
                side.kill()
    for name, bytes_before in zip(names, before):
        if not problem and sent(name) - bytes_before < LEAST:
            problem = (
                f'{sent(name) - bytes_before} bytes left the namespace {name}: the ranks did not '
                f'talk to those of the other one')
    return problem, ''.join(side.report() for side in sides)


def main():
    parser = argparse.ArgumentParser(description='MPI between two network namespaces.')
    parser.add_argument('--roost', required=True, help='the roost command')
    parser.add_argument('--folder', required=True, help='where the program of the ranks is built')
    parser.add_argument('--only', default='', metavar='TEXT', help='rows whose name holds TEXT')
    parser.add_argument('--list', action='store_true', help='name the rows')
    options = parser.parse_args()
    chosen = [(name, command) for name, command in rows() if options.only in name]
    if options.list:
        print('\n'.join(name for name, _ in chosen))
        return
    missing = sorted(
        {package for program, package in PROGRAMS.items() if not shutil.which(program)})
    if missing:
        skip(f"no MPI job ran between two network namespaces: not installed: {', '.join(missing)} "
             f"(scripts/setup check installs them)")
    fill = {'roost': os.path.abspath(options.roost), 'folder': os.path.abspath(options.folder)}
    for mpi in ('openmpi', 'mpich'):
        problem = build_program(f'mpicc.{mpi}', os.path.join(STOCK, 'mpi_ranks.c'),
                                os.path.join(fill['folder'], f'mpi_ranks.{mpi}'), '-pthread')
        if problem:
            sys.exit(f'FAILED: {problem}')
    try:
        networks = Networks()
    except Missing as e:
        skip(f'no MPI job ran between two network namespaces: {e}')
    try:
        run_rows([(name, lambda command=command: run(networks.names, command.format(**fill)))
                  for name, command in chosen])
    finally:
        networks.remove()


if __name__ == '__main__':
    main()
