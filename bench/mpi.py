# SPDX-License-Identifier: BSD-2-Clause
"""MPI over Roost beside the same MPI over TCP and over its own shared memory, in one run, and its
part of bench/RESULTS.md."""
import os
import statistics

import measure
from programs import build_program

HERE = os.path.dirname(os.path.abspath(__file__))
RANKS = (2, 4)
# The transport of the messages: the port, for Roost; and the options of Open MPI and MPICH.
# Otherwise MPICH passes messages within a host by its own memory.
UCX = '--mca pml ucx --mca osc ucx -x UCX_TLS=rc,self -x UCX_NET_DEVICES=roost0:1'
FAR = 'MPIR_CVAR_NOLOCAL=1 UCX_WARN_UNUSED_ENV_VARS=n'
WAYS = {
    'Roost, host': ('host', UCX, f'{FAR} UCX_TLS=rc,self UCX_NET_DEVICES=roost0:1'),
    'Roost, udp': ('udp', UCX, f'{FAR} UCX_TLS=rc,self UCX_NET_DEVICES=roost0:1'),
    'TCP': (None, '--mca pml ob1 --mca btl tcp,self --mca btl_tcp_if_include lo',
            f'{FAR} UCX_TLS=tcp,self'),
    'shared memory': (None, '--mca pml ob1 --mca btl vader,self', 'UCX_TLS=tcp,self'),
}
FIGURES = {'latency_8_us': 'half a round trip of 8 B, us',
           'goodput_64k_gbps': '64 KiB, 16 at a time, Gbit/s',
           'allreduce_8_us': 'all-reduce of 8 B, us',
           'allreduce_64k_us': 'all-reduce of 64 KiB, us',
           'alltoall_1k_us': 'all-to-all of 1 KiB a pair, us'}


def words(mpi, ranks, way, roost, program):
    port, open_mpi, mpich = WAYS[way]
    run = [] if port is None else [roost, 'run', '--port', port, '--']
    if mpi == 'openmpi':
        return [*run, 'mpirun.openmpi', '-n', str(ranks), '--oversubscribe', '--bind-to', 'none',
                '--mca', 'mpi_yield_when_idle', '1', *open_mpi.split(), program]
    return [*run, 'env', *mpich.split(), 'mpirun.mpich', '-n', str(ranks), program]


def measurement(roost, mpi, ranks):
    program = os.path.join(os.path.dirname(roost.path), 'bench', f'mpi_rates.{mpi}')

    def run():
        try:
            problem = build_program(f'mpicc.{mpi}', os.path.join(HERE, 'mpi_rates.c'), program)
        except FileNotFoundError:
            problem = f'mpicc.{mpi} is not installed'
        if problem:
            raise measure.Failed(problem)
        env = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT='1', OMPI_ALLOW_RUN_AS_ROOT_CONFIRM='1')
        return {'rows': [dict(measure.last_json(measure.command(
            words(mpi, ranks, way, roost.path, program), env)), way=way) for way in WAYS]}

    shown = ' '.join(
        words(mpi, ranks, 'Roost, host', 'build/roost', f'build/bench/mpi_rates.{mpi}'))
    return measure.Measurement(f'mpi-{mpi}-{ranks}', shown, run, merge=merge)


def merge(runs):
    return [dict(several[0], **{key: statistics.median(s[key] for s in several) for key in FIGURES})
            for several in zip(*(r['rows'] for r in runs))]


def plan(path, seconds):
    roost = measure.Roost(path, seconds)
    return [measurement(roost, mpi, ranks) for mpi in ('openmpi',) for ranks in RANKS]


def section(f):
    yield ('The ways follow each other in one run. With more ranks than cores the scheduler is in '
           'each figure.')
    yield ''
    yield '| MPI, ranks | over | ' + ' | '.join(FIGURES.values()) + ' |'
    yield '|---|---|' + '---:|' * len(FIGURES)
    for mpi, name in (('openmpi', 'Open MPI'), ('mpich', 'MPICH')):
        for ranks in RANKS:
            for row in f.load(f'mpi-{mpi}-{ranks}').get('rows', []):
                yield f'| {name}, {ranks} | {row["way"]} | ' + ' | '.join(
                    f'{row[key]:.1f}' for key in FIGURES) + ' |'
