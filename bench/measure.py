# SPDX-License-Identifier: BSD-2-Clause
"""The measurements, their commands, and the readers of their output."""
import json
import os
import re
import shutil
import subprocess
import sys
import time

sys.path += [os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'tests', folder)
             for folder in ('common', 'stock')]
from ports import free_tcp_port, listens  # noqa: E402
from versions import ucx_perftest  # noqa: E402

LIMIT = 120  # seconds a command may take
SIZE_64K = 65536


class Failed(Exception):
    """A command failed; the message is one line."""


PAIRS = 3
STEPS = 9    # sweeps in a round, if steps between sizes are checked
SHORTER = 3  # bandwidths and rates have more pairs by this factor, each shorter by it


class Measurement:
    """
    `run` returns a dictionary with 'value' (in `unit`), or 'rows' (a sweep, or rows that `merge`
    joins), or anything (limits). `beside`, in the same unit, is the value of the comparison. It is
    measured before and after each run, and `pairs` times in a round, because the speed of a shared
    machine changes within minutes and within seconds. `around` is measured once before the first
    run and once after the last one, of all rounds.
    """

    def __init__(self, name, shown, run, unit='', sweep=False, merge=None, beside=None,
                 pairs=PAIRS, around=None):
        self.name, self.shown, self.unit, self.sweep, self.merge = name, shown, unit, sweep, merge
        self.run = run if beside is None else lambda: between(beside, run)
        self.times = 1 if beside is None else pairs
        self.around = around


def between(beside, run):
    before = beside()
    result = run()
    result['beside'] = (before + beside()) / 2
    return result


def command(args, env=None, limit=LIMIT):
    """Returns the standard output of a command, which must succeed within `limit` seconds."""
    try:
        r = subprocess.run(args, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                           timeout=limit, check=False)
    except FileNotFoundError as e:
        raise Failed(f'{args[0]} is not installed') from e
    except subprocess.TimeoutExpired as e:
        raise Failed(f'{args[0]} did not end within {limit} s') from e
    if r.returncode:
        lines = (r.stderr.strip() or r.stdout.strip() or 'no output').splitlines()
        raise Failed(f'{os.path.basename(args[0])} ended with {r.returncode}: {lines[-1]}')
    return r.stdout


# ---- two programs, a server and a client ----

def pair(server, client, port, env=None):
    """Returns the standard output of the client. Ends a server that does not end by itself."""
    if not shutil.which(server[0]):
        raise Failed(f'{server[0]} is not installed')
    with subprocess.Popen(server, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL) as s:
        try:
            deadline = time.monotonic() + 20
            while not listens(port):
                if s.poll() is not None or time.monotonic() > deadline:
                    raise Failed(f'{" ".join(server[:6])} ... does not listen')
                time.sleep(0.02)
            out = command(client, env)
            try:
                s.wait(10)
            except subprocess.TimeoutExpired:
                pass
            return out
        finally:
            if s.poll() is None:
                s.kill()


def two_cpus():
    """Returns a CPU for each side; the same one if there is only one."""
    allowed = sorted(os.sched_getaffinity(0))
    return allowed[0], allowed[1] if len(allowed) > 1 else allowed[0]


# ---- Roost ----

def last_json(text):
    """Returns the object at the end, on one line or on several."""
    lines = text.strip().splitlines()
    starts = [i for i, line in enumerate(lines) if line.startswith('{')]
    try:
        return json.loads('\n'.join(lines[starts[-1]:]))
    except (IndexError, ValueError) as e:
        raise Failed('no JSON where it was due') from e


class Roost:
    def __init__(self, path, seconds):
        self.path, self.seconds = path, seconds

    def shown(self, args):
        return 'build/roost ' + ' '.join(args)

    def json_of(self, args):
        """Returns the object that --json prints. A build without the subcommand fails as other
        commands do."""
        return last_json(command([self.path, *args]))

    def limit(self, *path, scale=1, part=4):
        """Measures a figure of `roost limits`, in a fraction of a run's time."""
        def run():
            v = self.json_of(['limits', '--only', path[0], '--rounds', '1', '--seconds',
                              f'{max(self.seconds / part, 0.1):g}', '--json'])
            for key in path:
                v = v[key]
            return v * scale

        return run

    def perf(self, name, what, unit, value, beside=None, pairs=PAIRS):
        args = ['perf', *what.split(), '--json']

        def run():
            result = self.json_of(args)
            result['value'] = value(result)
            return result

        return Measurement(name, self.shown(args), run, unit, beside=beside, pairs=pairs)

    def flow(self, name, what, unit, value, beside):
        seconds = max(self.seconds / SHORTER, 0.1)
        return self.perf(name, f'{what} --seconds {seconds:.2g}', unit, value, beside,
                         PAIRS * SHORTER)

    def gbps(self, name, what, beside):
        return self.flow(name, what, 'Gbit/s', lambda r: r['goodput_gbps'], beside)

    def rate(self, name, what, beside):
        return self.flow(name, what, 'M/s', lambda r: r['msg_rate'] / 1e6, beside)

    def latency(self, name, what, point='p50', beside=None):
        time_or_count = '' if '--iters' in what else f' --seconds {self.seconds:g}'
        return self.perf(name, what + time_or_count, 'us', lambda r: r['latency_us'][point], beside)

    def sweep(self, name, what):
        args = ['perf', *what.split(), '--sweep', '--json']
        return Measurement(name, self.shown(args), lambda: self.json_of(args), sweep=True)

    def steps(self, port, verb, post_list):
        """Goodput from size to size, several times in a round: one step of one run has no meaning
        on a shared machine."""
        sizes = ','.join(str(64 << i) for i in range(15))
        args = ['perf', verb, '--local', '--port', port, '--post-list', str(post_list), '--sweep',
                '--sizes', sizes, '--seconds', f'{max(self.seconds / 20, 0.05):.2g}', '--json']
        m = Measurement(f'steps-{port}-{verb}-{post_list}', self.shown(args),
                        lambda: self.json_of(args), sweep=True)
        m.times = STEPS
        return m

    def limits(self):
        args = ['limits', '--rounds', '1', '--seconds', f'{self.seconds:g}', '--json']
        return Measurement('limits', self.shown(args), lambda: self.json_of(args))

    def stages(self):
        """The time of each stage: bench/stages samples the core of this build."""
        args = [os.path.join(os.path.dirname(os.path.abspath(__file__)), 'stages'),
                os.path.dirname(self.path), '--json']
        return Measurement('stages', 'bench/stages build --json', lambda: last_json(command(args)))

    def busy_qps(self, name, posted):
        """WRITEs of 64 bytes on 10,000 QPs that take turns, beside 16: the core of this build,
        without a wire."""
        args = [os.path.join(os.path.dirname(self.path), 'bench', 'bench-qps'), '0.1']

        def run():
            result = last_json(command(args))
            row = next(row for row in result['rows'] if row['qps'] == 10000
                       and row['posted'] == posted)
            return {**result, 'value': 1e3 / row['ns'], 'beside': 1e3 / row['ns_of_16']}

        return Measurement(name, 'build/bench/bench-qps 0.1', run, 'M/s')

    def flood(self, name, family):
        """The time to connect while 100,000 forged REQs a second arrive, beside an idle network:
        p99."""
        args = [os.path.join(os.path.dirname(self.path), 'tests', 'attacks', 'test-attacks-flood'),
                family, 'measure', '100000', '4']

        def run():
            result = last_json(command(args))
            idle, during = (next(row for row in result['rows'] if row['case'] == case)
                            for case in ('idle', 'flood'))
            return {**result, 'value': during['p99_us'], 'beside': idle['p99_us']}

        return Measurement(name,
                           f'build/tests/attacks/test-attacks-flood {family} measure 100000 4', run,
                           'us')

    def stock_latency(self, name, shared, beside=None):
        """perftest's ib_write_lat, which spins on its memory and does not poll, under `roost
        run`."""
        a, b = two_cpus()
        b = a if shared else b

        def sides(port):
            tool = ['ib_write_lat', '-F', '-x', '0', '-s', '64', '-n', '10000', '-p', str(port)]
            return (['taskset', '-c', str(b), self.path, 'run', '--port', 'udp:127.0.0.2', '--',
                     *tool], ['taskset', '-c', str(a), self.path, 'run', '--port', 'udp:127.0.0.3',
                              '--', *tool, '127.0.0.1'])

        def run():
            if not shutil.which('ib_write_lat'):
                raise Failed('ib_write_lat is not installed')
            port = free_tcp_port()
            return perftest_latency(pair(*sides(port), port))

        shown = (
            f'taskset -c {a} build/roost run --port udp:127.0.0.3 -- ib_write_lat -F -x 0 -s 64 -n '
            f'10000 127.0.0.1')
        return Measurement(name, f'{shown} (the server the same on CPU {b}, port udp:127.0.0.2)',
                           run, 'us', beside=beside)


    def connections(self, name, port, count, unit, value):
        """rdma-core's cmtime: `count` connections, each step of all of them before the next step;
        `value` of its us a connection."""
        ours, theirs = (f'{port}:{a}' for a in (('127.0.0.2', '127.0.0.3') if port == 'udp'
                                                else ('10.0.0.1', '10.0.0.2')))

        def run():
            service = str(free_tcp_port())
            with subprocess.Popen([self.path, 'run', '--port', theirs, '--', 'cmtime', '-p',
                                   service], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                  stderr=subprocess.DEVNULL) as s:
                try:
                    out = connected([self.path, 'run', '--port', ours, '--', 'cmtime', '-p',
                                     service, '-c', str(count), '-s', theirs.partition(':')[2]])
                finally:
                    s.kill()
            steps = {m[1]: float(m[2])
                     for m in re.finditer(r'^(\w[\w ]*?) *:.* ([0-9.]+)$', out, re.M)}
            if not steps.get('connect'):
                raise Failed('cmtime printed no figures')
            return {'value': value(steps['connect']), 'us_per_connection': steps}

        shown = f'build/roost run --port {ours} -- cmtime -c {count} -s {theirs.partition(":")[2]}'
        return Measurement(name, f'{shown} (the server: --port {theirs} -- cmtime)', run, unit)


def connected(client):
    """Returns the output of a client. It is repeated until its server listens, which cannot be seen
    from outside."""
    deadline = time.monotonic() + 10
    while True:
        try:
            return command(client)
        except Failed:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def perftest_latency(out):
    """Reads the line of figures: bytes, iterations, t_min, t_max, t_typical, t_avg, t_stdev, 99%,
    99.9%."""
    for line in out.splitlines():
        words = line.split()
        if len(words) >= 8 and words[0] == '64':
            return {'value': float(words[4]), 'p99': float(words[7]), 'average': float(words[5])}
    raise Failed('ib_write_lat printed no figures')


# ---- peers ----

def iperf3(seconds):
    def run():
        port = free_tcp_port()
        out = pair(['iperf3', '-s', '-1', '-B', '127.0.0.1', '-p', str(port)],
                   ['iperf3', '-c', '127.0.0.1', '-p', str(port), '-t', f'{max(seconds, 1):.0f}',
                    '-J'], port)
        received = json.loads(out)['end']['sum_received']
        return {'value': received['bits_per_second'] / 1e9}

    return Measurement('iperf3-tcp',
                       f'iperf3 -s -1; iperf3 -c 127.0.0.1 -t {max(seconds, 1):.0f} -J', run,
                       'Gbit/s')


def ucx(name, test, size, count, unit, value):
    """UCX over TCP loopback, a core a side. CSV columns: iterations, latency (50%, average,
    overall; us), MB/s twice, rate twice."""
    a, b = two_cpus()
    env = {**os.environ, 'UCX_TLS': 'tcp', 'UCX_NET_DEVICES': 'lo', 'UCX_WARN_UNUSED_ENV_VARS': 'n'}
    what = ['-t', test, '-s', str(size), '-n', str(count), '-f', '-v']

    def run():
        port = free_tcp_port()
        out = pair([*ucx_perftest().split(), '-p', str(port), '-c', str(b)],
                   [*ucx_perftest().split(), '127.0.0.1', '-p', str(port), '-c', str(a), *what],
                   port, env)
        figures = out.strip().splitlines()[-1].split(',')
        if len(figures) < 8:
            raise Failed('ucx_perftest printed no figures')
        return {'value': value([float(x) for x in figures])}

    return Measurement(name,
                       'UCX_TLS=tcp UCX_NET_DEVICES=lo ucx_perftest 127.0.0.1 ' + ' '.join(what),
                       run, unit)


MB_PER_GBIT = (1 << 20) * 8 / 1e9  # ucx_perftest counts a MB as 2^20 bytes


def plan(path, seconds):
    """Returns all measurements, in the order of a round: compared ones are close together."""
    r = Roost(path, seconds)
    ring, both, small = r.limit('ring_gbps', '4096', part=8), r.limit(
        'ring_bidir_gbps', '4096', part=8), r.limit('ring_rate', '64', scale=1e-6, part=8)
    gso, gso_small = r.limit('udp_gso_gbps', part=8), r.limit('udp_gso_small_mops', part=8)
    rtt, cores = r.limit('udp_rtt_ns', scale=1e-3), r.limit('core_rtt_ns', scale=1e-3)
    wake, wake_beside = r.limit('wake_p99_ns', scale=1e-3), r.limit('wake_beside_ns', scale=1e-3)
    wake_median = r.limit('wake_ns', scale=1e-3)
    udp_wake, udp_wake_median = r.limit('udp_wake_p99_ns',
                                        scale=1e-3), r.limit('udp_wake_ns', scale=1e-3)

    def ours():
        return r.json_of(
            f'perf write --local --port shm --size 64K --seconds {seconds / 4:g} --json'.split())[
                'goodput_gbps']

    def small_writes(port):
        return r.json_of(
            f'perf write --local --port {port} --size 64 --post-list 32 --seconds {seconds / 4:g} '
            f'--json'.split())['msg_rate'] / 1e6

    def polled():
        return r.json_of(
            f'perf write --local --port udp --size 64 --lat pingpong --seconds {seconds / 2:g} '
            f'--json'.split())['latency_us']['p50']

    return [
        r.limits(),
        r.gbps('shm-write-64k', 'write --local --port shm --size 64K', beside=ring),
        r.gbps('shm-read-64k', 'read --local --port shm --size 64K', beside=ours),
        r.gbps('shm-write-64k-bidir', 'write --local --port shm --size 64K --bidir', beside=both),
        r.gbps('udp-write-64k', 'write --local --port udp --size 64K', beside=gso),
        r.gbps('udp-read-64k', 'read --local --port udp --size 64K', beside=gso),
        iperf3(seconds),
        ucx('ucx-tcp-put-64k', 'ucp_put_bw', SIZE_64K, 5000, 'Gbit/s',
            lambda f: f[5] * MB_PER_GBIT),
        r.rate('shm-write-64b', 'write --local --port shm --size 64 --post-list 32', beside=small),
        r.rate('udp-write-64b', 'write --local --port udp --size 64 --post-list 32',
               beside=gso_small),
        ucx('ucx-tcp-put-64b', 'ucp_put_bw', 64, 50000, 'M/s', lambda f: f[7] / 1e6),
        r.rate('shm-send-ud-64b', 'send --local --port shm --size 64 --post-list 32 --transport ud',
               beside=lambda: small_writes('shm')),
        r.rate('udp-send-ud-64b', 'send --local --port udp --size 64 --post-list 32 --transport ud',
               beside=lambda: small_writes('udp')),
        r.latency('shm-read-lat', 'read --local --port shm --size 64 --lat completion',
                  beside=cores),
        r.latency('shm-read-lat-passive',
                  'read --local --port shm --size 64 --lat completion --passive', beside=cores),
        r.latency(
            'shm-read-sleeping',
            'read --local --port shm --size 64 --lat completion --passive --gap 20ms --iters 200',
            'p99', beside=wake),
        r.latency(
            'shm-read-sleeping-p50',
            'read --local --port shm --size 64 --lat completion --passive --gap 20ms --iters 100',
            'p50', beside=wake_median),
        r.latency('shm-write-pingpong', 'write --local --port shm --size 64 --lat pingpong'),
        r.latency('shm-write-firstbyte', 'write --local --port shm --size 64 --lat firstbyte'),
        r.latency('udp-read-lat', 'read --local --port udp --size 64 --lat completion', beside=rtt),
        r.latency('udp-read-lat-passive',
                  'read --local --port udp --size 64 --lat completion --passive', beside=rtt),
        r.latency(
            'udp-read-sleeping',
            'read --local --port udp --size 64 --lat completion --passive --gap 20ms --iters 200',
            'p99', beside=udp_wake),
        r.latency(
            'udp-read-sleeping-p50',
            'read --local --port udp --size 64 --lat completion --passive --gap 20ms --iters 100',
            'p50', beside=udp_wake_median),
        r.latency('udp-write-pingpong', 'write --local --port udp --size 64 --lat pingpong'),
        r.stock_latency('udp-ib_write_lat', False, beside=polled),
        r.stock_latency('udp-ib_write_lat-shared', True, beside=wake_beside),
        ucx('ucx-tcp-get-lat', 'ucp_get', 64, 3000, 'us', lambda f: f[1]),
        r.connections('shm-connect-1', 'shm', 1, 'us', lambda us: us),
        r.connections('udp-connect-1', 'udp', 1, 'us', lambda us: us),
        r.connections('shm-connect-1000', 'shm', 1000, 'k/s', lambda us: 1e3 / us),
        r.connections('udp-connect-1000', 'udp', 1000, 'k/s', lambda us: 1e3 / us),
        r.flood('udp-connect-flood', '4'),
        r.flood('udp-connect-flood-ipv6', '6'),
        r.busy_qps('qps-10000', 16),
        r.busy_qps('qps-10000-single', 1),
        r.latency('shm-execute', 'write --port shm --size 64 --lat execute'),
        r.stages(),
        r.sweep('sweep-shm-write', 'write --local --port shm --post-list 16'),
        r.sweep('sweep-shm-read', 'read --local --port shm --post-list 16'),
        r.sweep('sweep-udp-write', 'write --local --port udp --post-list 16'),
        r.sweep('sweep-udp-read', 'read --local --port udp --post-list 16'),
        *(r.steps(port, verb, n) for port in ('shm', 'udp') for verb in ('write', 'read', 'send')
          for n in (1, 16)),
    ]
