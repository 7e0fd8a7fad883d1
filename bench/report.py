# SPDX-License-Identifier: BSD-2-Clause
"""Makes bench/RESULTS.md from bench/results/*.json. There are no figures in this file; figures
without a measurement are marked."""
import json
import os
import statistics

import kernels
import kv
import kvbars
import kvload
import kvnic
import kvops
import kvstores
import lookups
import mpi
import papers
import pool
import stock


def load(folder, name):
    try:
        with open(os.path.join(folder, name + '.json'), encoding='utf-8') as f:
            return json.load(f)
    except FileNotFoundError:
        return {}


class Figures:
    def __init__(self, folder):
        self.folder = folder

    def load(self, name):
        return load(self.folder, name)

    def of(self, name):
        return load(self.folder, name).get('median')

    def limit(self, *path):
        """Returns the median of a member of `roost limits` over the runs."""
        values = []
        for run in load(self.folder, 'limits').get('runs', []):
            for key in path:
                run = run.get(key) if isinstance(run, dict) else None
            if isinstance(run, (int, float)):
                values.append(run)
        values.sort()
        return values[len(values) // 2] if values else None


# Name, description, the value beside it in the measurement, and the bar, as text and as a test of
# value and ratio. The bars are those of the issues of this release.
BARS = [
    ('shm-write-64k', 'WRITE of 64 KiB over shm, one QP', 'ring, 4 KiB slots', 'at least 70%',
     lambda v, r: r >= 0.70),
    ('shm-read-64k', 'READ of 64 KiB over shm, one QP', 'our WRITE', 'at least 80%', lambda v,
     r: r >= 0.80),
    ('shm-write-64k-bidir', 'WRITE of 64 KiB over shm, both directions', 'ring, both directions',
     'at least 80%', lambda v, r: r >= 0.80),
    ('udp-write-64k', 'WRITE of 64 KiB over udp loopback, one QP', 'UDP_SEGMENT loopback',
     'at least 80%', lambda v, r: r >= 0.80),
    ('udp-read-64k', 'READ of 64 KiB over udp loopback, one QP', 'UDP_SEGMENT loopback',
     'at least 75%', lambda v, r: r >= 0.75),
    ('shm-write-64b', '64-byte WRITEs over shm, posted lists', 'ring, 64-byte slots',
     'at least 40%', lambda v, r: r >= 0.40),
    ('udp-write-64b', '64-byte WRITEs over udp, posted lists', 'UDP_SEGMENT, packets of 64 bytes',
     'at least 4 M/s', lambda v, r: v >= 4),
    ('shm-send-ud-64b', '64-byte SENDs of UD over shm, posted lists: what arrived', 'our WRITE', '',
     None),
    ('udp-send-ud-64b', '64-byte SENDs of UD over udp, posted lists: what arrived', 'our WRITE', '',
     None),
    ('shm-read-lat', '64-byte READ over shm, p50, both sides polling', 'core-to-core round trip',
     'under 1.5 us', lambda v, r: v < 1.5),
    ('shm-read-lat-passive', 'the same, target passive', 'core-to-core round trip', 'under 2 us',
     lambda v, r: v < 2),
    ('shm-read-sleeping', 'first READ from a sleeping NIC over shm, p99',
     'a sleeping thread woken, p99', 'at most 1.5 times', lambda v, r: r <= 1.5),
    ('shm-read-sleeping-p50', 'the same, p50', 'a sleeping thread woken, p50', 'at most 1.5 times',
     lambda v, r: r <= 1.5),
    ('shm-write-pingpong', '64-byte WRITE over shm, half a round trip, p50', '', '', None),
    ('shm-write-firstbyte', '64-byte WRITE over shm, to the first byte, p50', '', '', None),
    ('shm-execute', '64-byte WRITE between two QPs of one NIC, p50', '', '', None),
    ('udp-read-lat', '64-byte READ over udp, p50, both sides polling', 'bare UDP round trip',
     'at most 1.5 times', lambda v, r: r <= 1.5),
    ('udp-read-lat-passive', 'the same, target passive', 'bare UDP round trip', '', None),
    ('udp-read-sleeping', 'first READ from a sleeping NIC over udp, p99',
     'a UDP round trip by sleeping threads, p99', 'at most 1.5 times', lambda v, r: r <= 1.5),
    ('udp-read-sleeping-p50', 'the same, p50', 'a UDP round trip by sleeping threads, p50',
     'at most 1.5 times', lambda v, r: r <= 1.5),
    ('udp-write-pingpong', '64-byte WRITE over udp, half a round trip, p50', '', '', None),
    ('udp-ib_write_lat', "perftest's ib_write_lat over udp, a core a side", 'our polled latency',
     'at most 3 times', lambda v, r: r <= 3),
    ('udp-ib_write_lat-shared', 'the same, both sides on one core', 'a thread woken beside another',
     'under 50 us', lambda v, r: v < 50),
    ('qps-10000', '10,000 busy QPs, 16 WRITEs of 64 bytes a turn', '16 QPs', 'at least 70%',
     lambda v, r: r >= 0.70),
    ('qps-10000-single', '10,000 busy QPs, one WRITE a turn', '16 QPs', 'at least 70%', lambda v,
     r: r >= 0.70),
    ('shm-connect-1', 'one connection set up over shm (cmtime)', '', '', None),
    ('udp-connect-1', 'one connection set up over udp', '', '', None),
    ('shm-connect-1000', '1,000 connections set up at once over shm', '', '', None),
    ('udp-connect-1000', '1,000 connections set up at once over udp', '', '', None),
    ('udp-connect-flood', 'one connection set up while 100,000 forged REQs come a second, p99',
     'without them', 'at most 4 times', lambda v, r: r <= 4),
    ('udp-connect-flood-ipv6', 'the same over IPv6', 'without them', 'at most 4 times', lambda v,
     r: r <= 4),
]


PEERS = [
    ('iperf3-tcp', 'iperf3, TCP loopback', 'udp-write-64k'),
    ('ucx-tcp-put-64k', 'UCX over tcp, put of 64 KiB', 'udp-write-64k'),
    ('ucx-tcp-put-64b', 'UCX over tcp, put of 64 bytes', 'udp-write-64b'),
    ('ucx-tcp-get-lat', 'UCX over tcp, get of 64 bytes, p50', 'udp-read-lat'),
]


def number(v, unit=''):
    if v is None:
        return 'not measured'
    text = f'{v:.2f}' if abs(v) < 100 else f'{v:.0f}'
    return f'{text} {unit}'.rstrip()


def spread(data):
    if 'median' not in data:
        return ''
    return f'{number(data["low"])} to {number(data["high"])}'


def verdict(value, r, bar, test):
    if not bar:
        return ''
    needs_ratio = '%' in bar or 'times' in bar
    if value is None or (needs_ratio and r is None):
        return f'{bar}: not measured'
    return f'{bar}: {"met" if test(value, r) else "**missed**"}'


def own_table(f):
    yield '| what | median | lowest to highest | next to | ratio | the bar |'
    yield '|---|---:|---:|---|---:|---|'
    for name, what, with_what, bar, test in BARS:
        data = load(f.folder, name)
        value, unit, r = data.get('median'), data.get('unit', ''), data.get('ratio')
        beside = f'{with_what}: {number(data.get("beside"))}' if with_what else ''
        yield (f'| {what} | {number(value, unit)} | {spread(data)} | {beside} | '
               f'{"" if r is None else f"{r:.2f}"} | {verdict(value, r, bar, test)} |')


def peer_table(f):
    yield '| peer | median | lowest to highest | Roost beside it |'
    yield '|---|---:|---:|---|'
    for name, what, ours in PEERS:
        data, own = load(f.folder, name), load(f.folder, ours)
        unit = data.get('unit', own.get('unit', ''))
        yield (f'| {what} | {number(data.get("median"), unit)} | {spread(data)} | {ours}: '
               f'{number(own.get("median"), own.get("unit", ""))} |')


def limit_rows(value, path=()):
    if isinstance(value, dict):
        for key, inner in value.items():
            if key not in ('machine', 'tool', 'seconds', 'rounds', 'random_read_bytes'):
                yield from limit_rows(inner, path + (key,))
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield path


def limit_table(f):
    runs = load(f.folder, 'limits').get('runs', [])
    if not runs:
        yield 'Not measured.'
        return
    yield '| limit | median |'
    yield '|---|---:|'
    for path in limit_rows(runs[0]):
        v = f.limit(*path)
        yield (f'| {" ".join(path)} | {v:,.0f} |' if abs(v) >= 10000
               else f'| {" ".join(path)} | {number(v)} |')


def size_text(size):
    for unit, factor in (('MiB', 1 << 20), ('KiB', 1 << 10)):
        if size >= factor and size % factor == 0:
            return f'{size // factor} {unit}'
    return f'{size} B'


def sweep_tables(f):
    for name in ('sweep-shm-write', 'sweep-shm-read', 'sweep-udp-write', 'sweep-udp-read'):
        data = load(f.folder, name)
        if not data.get('rows'):
            continue
        yield f'### {name[6:].replace("-", ", ").upper()}'
        yield ''
        yield f'`{data["command"]}`; latency is {data["rows"][0]["latency_us"]["kind"]}.'
        yield ''
        yield '| size | M messages/s | Gbit/s | p1 us | p50 us | p99 us |'
        yield '|---:|---:|---:|---:|---:|---:|'
        for row in data['rows']:
            lat = row['latency_us']
            yield (f'| {size_text(row["size"])} | {row["msg_rate"] / 1e6:.3f} | '
                   f'{row["goodput_gbps"]:.2f} | '
                   f'{lat["p1"]:.2f} | {lat["p50"]:.2f} | {lat["p99"]:.2f} |')
        yield ''


FALL = 0.85  # fraction of the goodput of the next smaller size: lower ones are named


def steps_of(runs):
    """Returns the ratio of each size but the first to the next smaller one in the same sweep, since
    these were measured within moments of each other."""
    steps = {}
    for run in runs:
        for a, b in zip(run['rows'], run['rows'][1:]):
            steps.setdefault(b['size'], []).append(b['goodput_gbps'] / a['goodput_gbps'])
    return {size: statistics.median(several) for size, several in steps.items()}


def steps_table(f):
    """Returns, for each verb, port and length of posted lists, the sizes whose goodput is far below
    that of the next smaller size."""
    names = [f'steps-{port}-{verb}-{n}' for port in ('shm', 'udp')
             for verb in ('write', 'read', 'send') for n in (1, 16)]
    sweeps = [(name, load(f.folder, name)) for name in names]
    if not any(data.get('rows') for _, data in sweeps):
        return
    yield '### From size to size'
    yield ''
    yield (
        'Goodput in Gbit/s, medians. A step is the goodput of a size divided by that of the next '
        'smaller size in the same sweep, the median over '
        f'the sweeps: no size should be more than {1 - FALL:.0%} below its smaller neighbour.')
    yield ''
    yield (
        '| port, verb, posted lists of | 64 B | 1 KiB | 4 KiB | 8 KiB | 16 KiB | 64 KiB | 1 MiB | '
        'lowest step | sizes that fall |')
    yield '|---|---:|---:|---:|---:|---:|---:|---:|---:|---|'
    for name, data in sweeps:
        if not data.get('rows'):
            continue
        port, verb, n = name.split('-')[1:]
        goodput = {row['size']: row['goodput_gbps'] for row in data['rows']}
        step = steps_of(data['runs'])
        worst = min(step, key=step.get)
        falls = ', '.join(f'{size_text(s)}: {r:.2f}' for s, r in step.items() if r < FALL)
        shown = ' | '.join(number(goodput.get(s))
                           for s in (64, 1024, 4096, 8192, 16384, 65536, 1 << 20))
        yield (
            f'| {port}, {verb.upper()}, {n} | {shown} | {step[worst]:.2f} ({size_text(worst)}) | '
            f'{falls or "none"} |')
    yield ''


def stage_table(f):
    runs = load(f.folder, 'stages').get('runs', [])
    if not runs:
        yield 'Not measured.'
        return
    rows = runs[-1]['rows']
    yield f'`{load(f.folder, "stages")["command"]}`: {runs[-1]["unit"]}.'
    yield ''
    yield '| stage | ' + ' | '.join(f'{r["op"].upper()} {size_text(r["size"])}'
                                    for r in rows) + ' |'
    yield '|---|' + '---:|' * len(rows)
    names = []
    for r in rows:
        names += [n for n in r['stages'] if n not in names]
    for name in names:
        yield f'| {name} | ' + ' | '.join(f'{r["stages"].get(name, 0):.1f}' for r in rows) + ' |'
    yield '| all | ' + ' | '.join(f'{r["total"]:.0f}' for r in rows) + ' |'


def kept_section(name):
    """The text of comparisons of two builds (bench/pairs.py), which `make bench` cannot repeat."""
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), name),
              encoding='utf-8') as f:
        yield from f.read().splitlines()


def commands(folder):
    yield '| figure | command |'
    yield '|---|---|'
    for file in sorted(os.listdir(folder)):
        if file.endswith('.json') and file not in ('machine.json',):
            data = load(folder, file[:-5])
            if 'command' in data:
                yield f'| {data["name"]} | `{data["command"]}` |'


def failures(folder):
    for file in sorted(os.listdir(folder)):
        data = load(folder, file[:-5]) if file.endswith('.json') else {}
        for error in data.get('errors', [])[:1]:
            yield f'- {data["name"]}: {error}'


def machine(folder):
    data = load(folder, 'machine')
    m = data.get('machine') or {}
    words = [str(m.get('cpu') or 'unknown CPU'),
             f'{m.get("allowed_cores") or m.get("cores") or "?"} cores', str(m.get('kernel') or '')]
    if m.get('hypervisor'):
        words.append('a virtual machine')
    rounds, planned = data.get('rounds', '?'), data.get('planned')
    if planned not in (None, rounds):
        rounds = f'{rounds} of {planned}'
    yield (f'Measured {data.get("when", "at an unknown time")}, commit '
           f'{data.get("commit") or "unknown"}' + (' with changes' if data.get('changed') else '')
           + f', {rounds} rounds, on: ' + ', '.join(w for w in words if w) + '.')


def write(folder, path):
    f = Figures(folder)
    lines = [
        '# What was measured', '',
        '`make bench` measures all of this, keeps the data in bench/results/*.json and writes this '
        'report and the plots; don\'t edit it. The data',
        'is not part of the tree. Absolute figures of a shared machine mean little: look at the '
        'ratios, which were taken in the same minutes.',
        'Each figure can be had again with the command at the end. `bench/run --only WORD` '
        'measures the figures with that word in their name,',
        'and takes the others from the data of the runs before it.', '']
    lines += machine(folder)
    lines += ['', '## Roost', '', *own_table(f), '', '## Stock programs', '', *stock.section(f), '',
              '## Programs behind one address', '', *pool.section(f), '', '## MPI', '',
              *mpi.section(f), '', '## Kernels', '', *kernels.section(f), '', '## Look-ups',
              '', *lookups.section(f), '', '## Key-value store', '', *kv.section(f),
              *kvnic.section(f), *kvbars.section(f), *kvnic.batches(f), *kvnic.ycsb(f),
              *kvops.section(f), *kvstores.section(f), *kvload.section(f), '', '## Peers', '',
              *peer_table(f), '',
              '## Beside the papers', '', *papers.section(f), '', '## What the machine allows', '',
              f'`{load(folder, "limits").get("command", "roost limits --json")}`', '',
              *limit_table(f), '', '## Sizes', '', '![sweep](../docs/perf-sweep.svg)', '',
              *sweep_tables(f), *steps_table(f)]
    lines += ['## Where the time goes', '', *stage_table(f), '']
    lines += [*kept_section('qps.md'), '']
    lines += [*kept_section('chains.md'), '']
    lines += [*kept_section('security.md'), '']
    lines += [*kept_section('host.md'), '']
    lines += ['## Commands', '', *commands(folder)]
    failed = list(failures(folder))
    if failed:
        lines += ['', '## Not measured', '', *failed]
    with open(path, 'w', encoding='utf-8') as out:
        out.write('\n'.join(lines).rstrip() + '\n')
