# SPDX-License-Identifier: BSD-2-Clause
"""Programs behind one address: the sum of their rates, connections, a killed member; and its part
of bench/RESULTS.md."""
import json
import os
import subprocess

import measure

COUNTS = (1, 2, 8, 32)
CASES = (('write', 64), ('write', 65536), ('read', 64), ('read', 65536))
# A pool belongs to one network namespace, so other programs of the machine are not in this pool.
OWN = ['unshare', *([] if os.geteuid() == 0 else ['-r']), '-n', 'sh', '-c',
       'ip link set lo up && exec "$@"', 'sh']


def perf(roost, op, size):
    return [roost.path, 'perf', op, '--local', '--port', 'udp:127.0.0.2', '--peer-port',
            'udp:127.0.0.3', '--size', str(size), '--no-pin', '--post-list', '16', '--seconds',
            f'{roost.seconds:g}', '--json']


def rates(roost, op, size, count, apart=False):
    """Gbit/s and messages/s of `count` senders at one address that start together, each with a
    target of its own at another address. `apart`: each pair has a namespace, and so a pool, of its
    own."""
    # The shell starts them and prints what all say.
    start = ['sh', '-c', f'for i in $(seq {count}); do "$@" & done; wait', 'sh']
    each = [*start, *OWN] if apart else [*OWN, *start]
    out = measure.command([*each, *perf(roost, op, size)], dict(os.environ, ROOST_PUS='1'))
    found = [json.loads(line) for line in out.splitlines() if line.startswith('{')]
    if len(found) != count:
        raise measure.Failed(f'{len(found)} of {count} programs have a result')
    return sum(r['goodput_gbps'] for r in found), sum(r['msg_rate'] for r in found)


def sums(roost, op, size):
    """Runs each number of programs between two runs of one program."""
    def run():
        rows, before = [], rates(roost, op, size, 1)
        for count in COUNTS:
            gbps, rate = rates(roost, op, size, count)
            apart = rates(roost, op, size, count, True)[1]
            after = rates(roost, op, size, 1)
            rows.append({'programs': count, 'gbps': gbps, 'rate': rate, 'apart': rate / apart,
                         'ratio': 2 * rate / (before[1] + after[1])})
            before = after
        return {'rows': rows}

    shown = (f'COUNT times at once: ROOST_PUS=1 build/roost perf {op} --local --port udp:127.0.0.2 '
             f'--peer-port udp:127.0.0.3 --size {size} --no-pin --post-list 16')
    return measure.Measurement(f'pool-{op}-{size}', shown, run, merge=merge)


def merge(runs):
    """Returns the run with the median ratio, for each number of programs."""
    return [sorted(several, key=lambda row: row['ratio'])[len(several) // 2]
            for several in zip(*(r['rows'] for r in runs))]


def connections(roost):
    exe = os.path.join(os.path.dirname(roost.path), 'bench', 'bench-pool')
    return measure.Measurement('pool-connections', 'unshare -n build/bench/bench-pool 63 20',
                               lambda: measure.last_json(measure.command([*OWN, exe, '63', '20'])))


def plan(path, seconds):
    roost = measure.Roost(path, seconds)
    return [*(sums(roost, op, size) for op, size in CASES), connections(roost)]


def section(f):
    cores = len(os.sched_getaffinity(0))
    yield (f'Each program sends to a target of its own, which is a program too. The limit is the '
           f'{cores} cores: one sender and its target use both, so the sum of')
    yield ('many is at most that of one. The first ratio is to one program before and after, the '
           'second to as many programs of which each pair has a pool of its own.')
    yield ''
    yield '| udp | ' + ' | '.join(f'{count}: ratios' for count in COUNTS) + ' | one program |'
    yield '|---|' + '---:|' * (len(COUNTS) + 1)
    for op, size in CASES:
        rows = f.load(f'pool-{op}-{size}').get('rows', [])
        if rows:
            one = (f'{rows[0]["rate"] / 1e6:.2f} M/s' if size == 64
                   else f'{rows[0]["gbps"]:.1f} Gbit/s')
            yield f'| {op.upper()} of {size} B | ' + ' | '.join(
                f'{row["ratio"]:.2f}, {row["apart"]:.2f}' for row in rows) + f' | {one} |'
    runs = f.load('pool-connections').get('runs', [])
    if runs:
        yield ''
        yield '| us | p50 | p90 | longest |'
        yield '|---|---:|---:|---:|'
        run = sorted(runs, key=lambda r: r['setup']['p50_us'])[len(runs) // 2]
        for key, text in (
                ('setup', 'connection to each of 63 servers at the address of the client'),
                ('serves',
                 'from the kill of a server until its successor, started then, listens and has '
                 'accepted a connection'),
                ('eager', 'the same, to a client that asks all the time')):
            row = run[key]
            yield f'| {text} | {row["p50_us"]:.0f} | {row["p90_us"]:.0f} | {row["max_us"]:.0f} |'
        yield ''
        yield ('Survivors take REQs that came for a dead program. One that it had read and not '
               'answered is lost; its sender repeats it after 6.4 s.')
