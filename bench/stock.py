# SPDX-License-Identifier: BSD-2-Clause
"""Stock programs as a new user types them, beside `roost perf` with both sides polling: commands,
bars, and their part of bench/RESULTS.md."""
import os
import shutil
import statistics
import subprocess
import time

import measure

# runs in a round: a run of an unpinned program on a virtual machine has one of several values
RUNS = 5

# The program, its name as a title, the arguments of `roost perf` for the same test, and whether
# both print half of a round trip.
TOOLS = [
    ('ib_read_lat', 'read --size 64 --lat completion', False),
    ('ib_write_lat', 'write --size 64 --lat pingpong', True),
    ('ib_send_lat', 'send --size 64 --lat pingpong', True),
    ('ib_atomic_lat', 'atomic --lat completion', False),
]
# addresses of both sides, the limit beside them, the allowed factor on the polled value
PORTS = {
         'udp': ('udp:127.0.0.2', 'udp:127.0.0.3', 'udp_short_p99_ns', 1.3),
         'shm': ('shm:10.0.0.1', 'shm:10.0.0.2', 'ring_short_p99_ns', 1.5),
         }
TAIL = 5       # the limit of p99, in multiples of the typical value
IDLE_TIME = 10  # seconds


# ---- measuring ----

def latency_line(out):
    """Reads perftest's line of figures: bytes, iterations, t_min, t_max, t_typical, t_avg, t_stdev,
    99%, 99.9%."""
    for line in out.splitlines():
        words = line.split()
        if len(words) >= 8 and words[1] == '1000' and words[0].isdigit():
            return {'value': float(words[4]), 'p99': float(words[7]), 'average': float(words[5])}
    raise measure.Failed('perftest printed no figures')


def stock(roost, port, tool, prefix=()):
    """Runs a pair once. Returns a dictionary of the client's figures."""
    if not shutil.which(tool):
        raise measure.Failed(f'{tool} is not installed')
    service = measure.free_tcp_port()
    theirs, ours = PORTS[port][:2]
    return latency_line(measure.pair(
        [*prefix, roost.path, 'run', '--port', theirs, '--', tool, '-p', str(service)],
        [*prefix, roost.path, 'run', '--port', ours, '--', tool, '-p', str(service), '127.0.0.1'],
        service))


def shown(port, tool, prefix=''):
    return (
        f'{prefix}build/roost run --port {PORTS[port][1]} -- {tool} 127.0.0.1 (the server: --port '
        f'{PORTS[port][0]} -- {tool})')


def of_perf(roost, port, what):
    return roost.json_of(
        ['perf', *what.split(), '--local', '--port', port, '--seconds', '0.25', '--json'])


def beside_perf(roost, name, text, port, what, half, once):
    """Calls `once` between two runs of `roost perf` with both sides polling. Also returns the bare
    p99 of the same moments."""
    bare = roost.limit(PORTS[port][2], scale=1e-3 / (2 if half else 1), part=8)

    def run():
        result = once()
        result['bare_p99'] = bare()
        return result

    return measure.Measurement(name, text, run, 'us',
                               beside=lambda: of_perf(roost, port, what)['latency_us']['p50'],
                               pairs=RUNS)


def on_one_core(roost, port, tool):
    m = measure.Measurement(f'stock-{port}-{tool}-core', shown(port, tool, 'taskset -c 0 '),
                            lambda: stock(roost, port, tool, ('taskset', '-c', '0')), 'us')
    m.times = RUNS
    return m


def passive(roost, port):
    def once():
        latency = of_perf(roost, port, 'read --size 64 --lat completion --passive')['latency_us']
        return {'value': latency['p50'], 'p99': latency['p99']}

    text = f'build/roost perf read --local --port {port} --size 64 --lat completion --passive'
    return beside_perf(roost, f'stock-{port}-read-passive', text, port,
                       'read --size 64 --lat completion', False, once)


def cpu_ms(pid):
    """Returns the user and system time of all threads, which the Linux kernel counts in ticks, and
    the scheduler's time in nanoseconds."""
    with open(f'/proc/{pid}/stat', encoding='ascii') as f:
        fields = f.read().rpartition(')')[2].split()
    ticks = int(fields[11]) + int(fields[12])
    ran = 0
    for task in os.listdir(f'/proc/{pid}/task'):
        with open(f'/proc/{pid}/task/{task}/schedstat', encoding='ascii') as f:
            ran += int(f.read().split()[0])
    return ticks * 1000 / os.sysconf('SC_CLK_TCK'), ran / 1e6


def idle(roost, port):
    """ibv_asyncwatch opens the device and waits for an event that does not come."""
    def run():
        if not shutil.which('ibv_asyncwatch'):
            raise measure.Failed('ibv_asyncwatch is not installed')
        with subprocess.Popen([roost.path, 'run', '--port', PORTS[port][0], '--', 'ibv_asyncwatch'],
                              stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL) as s:
            try:
                time.sleep(1)
                before = cpu_ms(s.pid)
                time.sleep(IDLE_TIME)
                if s.poll() is not None:
                    raise measure.Failed('ibv_asyncwatch ended')
                after = cpu_ms(s.pid)
                threads = len(os.listdir(f'/proc/{s.pid}/task'))
            finally:
                s.kill()
        return {'value': after[0] - before[0], 'scheduled_ms': after[1] - before[1],
                'threads': threads}

    return measure.Measurement(f'stock-{port}-idle',
                               f'build/roost run --port {PORTS[port][0]} -- ibv_asyncwatch', run,
                               'ms')


def middle_rows(runs):
    """Returns, for each policy, the run with the median ratio."""
    return [sorted(several, key=lambda row: row['ratio'])[len(several) // 2]
            for several in zip(*(r['rows'] for r in runs))]


def spin(roost):
    """A program that spins on memory, without a NIC: p99 by the thread that takes messages."""
    exe = os.path.join(os.path.dirname(roost.path), 'bench', 'bench-spin')
    return measure.Measurement('stock-spin', 'build/bench/bench-spin',
                               lambda: measure.last_json(measure.command([exe])), merge=middle_rows)


def ucx():
    """Runs UCX as its user types it, except for the number of iterations; a second run is for
    p99."""
    env = {**os.environ, 'UCX_TLS': 'tcp,self', 'UCX_WARN_UNUSED_ENV_VARS': 'n'}

    def percentile(rank):
        port = measure.free_tcp_port()
        out = measure.pair([*measure.ucx_perftest().split(), '-p', str(port)],
                           [*measure.ucx_perftest().split(), '127.0.0.1', '-p', str(port), '-t',
                            'tag_lat', '-n', '10000', '-R', str(rank), '-f', '-v'], port, env)
        figures = out.strip().splitlines()[-1].split(',')
        if len(figures) < 8:
            raise measure.Failed('ucx_perftest printed no figures')
        return float(figures[1])

    m = measure.Measurement(
        'stock-ucx-tcp',
        'UCX_TLS=tcp,self ucx_perftest 127.0.0.1 -t tag_lat -n 10000 -R 50 (and -R 99) -f -v',
        lambda: {'value': percentile(50), 'p99': percentile(99)}, 'us')
    m.times = RUNS
    return m


def plan(path, seconds):
    roost = measure.Roost(path, seconds)
    for port in PORTS:
        for tool, what, half in TOOLS:
            yield beside_perf(roost, f'stock-{port}-{tool}', shown(port, tool), port, what, half,
                              lambda port=port, tool=tool: stock(roost, port, tool))
    yield passive(roost, 'udp')
    for port in PORTS:
        yield from (on_one_core(roost, port, tool) for tool, _, _ in TOOLS)
    yield spin(roost)
    yield ucx()
    yield from (idle(roost, port) for port in PORTS)


# ---- reporting ----

def middle(data, key):
    values = [r[key] for r in data.get('runs', []) if key in r]
    return (statistics.median(values), min(values), max(values)) if values else None


def figure(three):
    return f'{three[0]:.2f} ({three[1]:.2f} to {three[2]:.2f})' if three else 'not measured'


def typical_bar(data, factor):
    if 'ratio' not in data:
        return 'not measured'
    return f'at most {factor} times: {"met" if data["ratio"] <= factor else "**missed**"}'


def tail_bar(value, p99, bare):
    if not value or not p99 or not bare:
        return 'not measured'
    if p99[0] <= TAIL * value[0]:
        return f'at most {TAIL} times: met'
    return f'at most {TAIL} times: ' + ('the machine alone takes longer'
                                        if bare[0] > TAIL * value[0] else '**missed**')


def latency_row(f, name, what, factor):
    data = f.load(name)
    value, p99, bare, polled = (middle(data, key) for key in ('value', 'p99', 'bare_p99', 'beside'))
    ratio = f'{data["ratio"]:.2f}' if 'ratio' in data else ''
    tail = f'{p99[0] / value[0]:.1f}' if value and p99 else ''
    return (
        f'| {what} | {figure(value)} | {polled[0]:.2f} | {ratio} | '
        f'{typical_bar(data, factor) if factor else ""} | '
        f'{figure(p99)} | {tail} | {bare[0]:.2f} | {tail_bar(value, p99, bare) if factor else ""} |'
        if value else f'| {what} | not measured | | | | | | | |')


def plain_row(f, name, what):
    data = f.load(name)
    return f'| {what} | {figure(middle(data, "value"))} | {figure(middle(data, "p99"))} |'


def idle_row(f, port):
    data = f.load(f'stock-{port}-idle')
    value, ran = middle(data, 'value'), middle(data, 'scheduled_ms')
    if not value:
        return f'| {port} | not measured | | |'
    return (f'| {port} | {value[0]:.0f} ms | {ran[0]:.3f} ms | 0: '
            f'{"met" if value[2] == 0 else "**missed**"} |')


def spin_rows(f):
    rows = f.load('stock-spin').get('rows', [])
    if not rows:
        yield '| not measured | | | | | |'
    for row in rows:
        yield (f'| {row["policy"]} | {row["typical_us"]:.2f} | {row["p99_us"]:.2f} | '
               f'{row["ratio"]:.1f} | {100 * row["within"]:.0f}% of {row["runs"]} | '
               f'{row["slow"]:.0f} |')


def section(f):
    yield ('perftest with no option but a port number, no core chosen, its own sizes (2 bytes; '
           'atomics 8), beside `roost perf` of the same operation with')
    yield (
        '64 bytes and both sides polling, before and after each run. Microseconds, medians (lowest '
        'to highest); SEND and WRITE: half of a round trip.')
    yield (
        'The bare p99 is that of a UDP round trip, or of one through a ring, between two threads '
        'that choose no core either, in runs of 1,000 as')
    yield ("perftest's (`roost limits`: udp_short_p99_ns, ring_short_p99_ns), halved where half a "
           "round trip is shown.")
    yield ''
    yield (
        '| program | typical | polled | ratio | the bar | p99 | p99 / typical | bare p99 | the bar '
        '|')
    yield '|---|---:|---:|---:|---|---:|---:|---:|---|'
    for port, (_, _, _, factor) in PORTS.items():
        for tool, _, _ in TOOLS:
            yield latency_row(f, f'stock-{port}-{tool}', f'{tool} over {port}', factor)
    yield latency_row(f, 'stock-udp-read-passive', '`roost perf read --passive` over udp', None)
    yield ''
    yield ('What the policy of threads can reach for ib_write_lat over shm: two processes without '
           'a NIC, which spin on a byte of memory, no core chosen')
    yield ('(`bench-spin`). "program": it takes the messages in its calls; the helper is the '
           'second thread of each process. Microseconds, half of a')
    yield 'round trip, medians of runs of 1,000.'
    yield ''
    yield ('| who takes the messages | typical | p99 | p99 / typical | runs with at most '
           f'{TAIL} times | operations above {TAIL} times |')
    yield '|---|---:|---:|---:|---:|---:|'
    yield from spin_rows(f)
    yield ''
    yield '| both sides on one core, and peers | typical | p99 |'
    yield '|---|---:|---:|'
    for port in PORTS:
        for tool, _, _ in TOOLS:
            yield plain_row(f, f'stock-{port}-{tool}-core', f'{tool} over {port}, `taskset -c 0`')
    yield plain_row(f, 'stock-ucx-tcp',
                    "UCX over tcp, tag_lat of 8 bytes, half of a round trip, no core chosen")
    yield ("| the kernel's rxe | left out: it runs in an emulated guest here, and times under "
           "emulation say nothing of speed | |")
    yield ''
    yield (
        f'| device open and idle for {IDLE_TIME} s | user and system time of all threads | as the '
        f'scheduler counts it | the bar |')
    yield '|---|---:|---:|---|'
    yield from (idle_row(f, port) for port in PORTS)
