# SPDX-License-Identifier: BSD-2-Clause
"""The store under load, after KV-Direct: delay over the rate of an open loop (figure 17), the cost
for other programs (table 4), memory collected by the CPU (figures 18 and 19), several partitions
(figure 20)."""
import contextlib
import os
import statistics
import subprocess
import tempfile
import time

import measure
from kvstores import ADDRESSES, STORE, Node, end, tool, words
from tables import figures, head, line, merge, percentiles

LOAD, HOST, SCALE = 'kv-load', 'kv-host', 'kv-scale'
GATHER = 'kv-gather'
KEYS, VALUE = 250000, 64
PAIRS = {'keys': KEYS, 'value': VALUE}
SECONDS = 0.3

# ---- figure 17 ----

BATCHES, SHARES = (1, 16), (0.1, 0.25, 0.5, 0.7, 0.8, 0.9)
FLIGHT = {1: 64, 16: 32}  # calls in flight at the peak, and at most under load
# Short runs with pauses: a program at a real-time priority may use 95% of each second.
PART = 0.15
BAR, AT = 10, 0.8  # us, of the p99 of batches of 16 at 80% of their peak, evenly spaced


def load_round(roost):
    rows = []
    for kind in ADDRESSES:
        node = Node(roost, kind)
        try:
            node.fill(**PAIRS)
            for batch in BATCHES:
                time.sleep(PART)
                peak = node.load(batch=batch, depth=FLIGHT[batch], seconds=PART,
                                 **PAIRS)['per_second']
                rows.append({'port': kind, 'batch': batch, 'peak': peak, **stops(roost)})
                for poisson in (0, 1):
                    for share in SHARES:
                        time.sleep(PART)
                        got = node.load(batch=batch, depth=FLIGHT[batch], rate=share * peak,
                                        poisson=poisson, seconds=PART, **PAIRS)
                        rows.append({'port': kind, 'batch': batch, 'poisson': poisson,
                                     'share': share, **figures(got, 'p50', 'p90', 'p99')})
        finally:
            node.end()
    return {'rows': rows}


def stops(roost):
    """The limits, on both cores at once: requests that need nothing but a program that runs, and
    those of a server that stops with such a program, at 80% of its rate."""
    limits = {}
    for prefix, rate in (('', 0), ('busy_', AT)):
        time.sleep(PART)
        args = [tool(roost, 'bench-stores'), 'store=clock', f'rate={rate}', f'seconds={PART}']
        with running(args, None) as other:
            own = measure.last_json(measure.command(args))
        limits |= {f'{prefix}{p}': max(us, other[0][p])
                   for p, us in percentiles(own, 'p50', 'p90', 'p99').items()}
    return limits


def delays(r, prefix=''):
    return ', '.join(f'{us:.1f}' if us < 100 else f'{us:.0f}'
                     for us in (r[f'{prefix}{p}_us'] for p in ('p50', 'p90', 'p99')))


def load_section(f):
    rows = f.load(LOAD).get('rows', [])
    if not rows:
        return
    peaks = {(r['port'], r['batch']): r['peak'] for r in rows if 'peak' in r}
    cells = {(r['port'], r['batch'], r['poisson'], r['share']):
             delays(r) for r in rows if 'share' in r}
    yield ''
    yield (
        'Delay under load: GETs, or batches of 16 of them, arrive at a rate whether earlier ones '
        'are done or not, evenly spaced or at random times (Poisson). The delay counts from the '
        f'time at which they should arrive; p50, p90, p99 in us. {KEYS} keys, values of {VALUE} '
        'bytes; the peak is that of the same batch size with many calls in flight, in the same '
        'round. '
        'Paper (figure 17): 3 to 9 us at the peak without batches, less than 1 us more with '
        'batches.')
    yield ''
    yield from head('lrrl', 'port', 'operations in a call', 'peak', 'arrivals',
                    *(f'at {share:.0%}' for share in SHARES))
    for port, batch, poisson in dict.fromkeys(c[:3] for c in cells):
        yield line(port, f'{batch}', f'{peaks[port, batch] / 1e6:.2f} M/s',
                   'Poisson' if poisson else 'even',
                   *(cells[port, batch, poisson, share] for share in SHARES))
    at = next(r for r in rows if (r['port'], r['batch'], r.get('poisson'), r.get('share'))
              == ('shm', 16, 0, AT))
    limits = [r for r in rows if 'peak' in r]
    yield ''
    yield (f'Batches of 16 over shm at {AT:.0%} of their peak, evenly spaced: p99 '
           f'{at["p99_us"]:.1f} us (at most {BAR} us: '
           f'{"met" if at["p99_us"] <= BAR else "**missed**"}). The limits in the same rounds, by '
           'programs that only read the clock, on both cores at once, p50, p90, p99 before the '
           'rows of each batch size. Requests that arrive each microsecond and need only a program '
           f'that runs: {"; ".join(delays(r) for r in limits)} us. Requests of which each takes '
           f'{AT} us of a server that stops with this program: '
           f'{"; ".join(delays(r, "busy_") for r in limits)} us.')


# ---- table 4 ----

FIGURES = (('steps_per_us', 'multiplications and shifts, one after the other', 'a us', False),
           ('random_ns', 'random read, one after the other', 'ns', True),
           ('sequential_gbytes', 'sequential reads', 'GB/s', False),
           ('random_read_gbytes', 'random reads of 64 bytes', 'GB/s', False),
           ('random_write_gbytes', 'random writes of 64 bytes', 'GB/s', False))
BATCH, DEPTH = 64, 8
HOST_SECONDS = 1.5


def beside(roost, cpu):
    return measure.last_json(measure.command(
        ['taskset', '-c', str(cpu), tool(roost, 'bench-host'), str(HOST_SECONDS)]))


@contextlib.contextmanager
def running(args, env):
    """Runs a client meanwhile. Yields a list, to which its figures are added at the end."""
    output = []
    with subprocess.Popen(args, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, text=True) as p:
        yield output
        output.append(measure.last_json(p.communicate(timeout=measure.LIMIT)[0]))


def host_round(roost):
    """The node and its client on one core, the program on the other one; and the program on the
    core of the node, with the client on the other one."""
    other, own = measure.two_cpus()
    alone, rows = beside(roost, other), []
    rows.append({'core': 'alone', 'load': '', 'rate': 0.0, **alone})
    # longer than the program, which first makes its chain
    long = {'batch': BATCH, 'depth': DEPTH, 'seconds': HOST_SECONDS + 1.5, **PAIRS}
    for core, client, program in (('the other core', own, other), ("the node's core", other, own)):
        node = Node(roost, 'shm', own)
        try:
            node.fill(**PAIRS)
            rows.append({'core': core, 'load': 'idle', 'rate': 0.0, **beside(roost, program)})
            peak = node.load(client, batch=BATCH, depth=DEPTH, seconds=SECONDS,
                             **PAIRS)['per_second']
            for load, rate in (('half', peak / 2), ('full', 0)):
                with running(*node.client(client, rate=rate, **long)) as output:
                    got = beside(roost, program)
                rows.append({'core': core, 'load': load, 'rate': output[0]['per_second'], **got})
        finally:
            node.end()
    return {'rows': rows}


def host_section(f):
    rows = f.load(HOST).get('rows', [])
    if not rows:
        return
    yield ''
    yield (
        'The cost for another program on the machine (table 4 of the paper, whose clients are on '
        'other machines), by the time that passes: the node and its client share one core and the '
        'program has the other one, or the program shares the core of the node and the client has '
        f'the other one. {BATCH} GETs in a call; full is {DEPTH} calls in flight, half is an open '
        'loop at half the rate without the program. Paper: random reads take 83.5 ns in place of '
        '82.2 while the store is busy, sequential reads 55.8 GB/s in place of 60.3, random reads '
        'and writes of 64 bytes the same within 1%.')
    yield ''
    yield from head('ll', 'the program runs on', 'store', 'operations',
                    *(f'{name}, {unit}' for _, name, unit, _ in FIGURES))
    for r in rows:
        cells = []
        for key, _, _, down in FIGURES:
            share = rows[0][key] / r[key] if down else r[key] / rows[0][key]
            cells.append(f'{r[key]:.1f}' + (f' ({share:.0%})' if r is not rows[0] else ''))
        yield line(r['core'], r['load'], f'{r["rate"] / 1e6:.2f} M/s', *cells)


# ---- figure 20 ----

NODES = (1, 2, 4, 10)  # the paper has 1 to 10 NICs
PARTITIONS = 16


class Nodes:
    """Nodes that share the keys, by a table in a file."""

    def __init__(self, roost, number):
        self.roost, self.nodes = roost, []
        self.folder = tempfile.TemporaryDirectory()
        self.table = os.path.join(self.folder.name, 'parts')
        addresses = [f'10.0.0.{10 + i}' for i in range(number)]
        measure.command([roost, 'kv', 'table', self.table, str(PARTITIONS), *addresses])
        for address in addresses:
            self.nodes.append(subprocess.Popen(
                [roost, 'node', '--port', f'shm:{address}', '--kv', STORE, '--kv-partitions',
                 self.table, '--json'], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL, text=True))
            if not self.nodes[-1].stdout.readline().startswith('{'):
                self.end()
                raise measure.Failed('a node with partitions does not start')

    def client(self, own=3, **options):
        servers = ','.join(str(p.pid) for p in self.nodes)
        return ([tool(self.roost, 'bench-kv-load'), f'store={self.table}', f'servers={servers}',
                 *words(options)], {**os.environ, 'ROOST_PORT': f'shm:10.0.0.{own}'})

    def end(self):
        for p in self.nodes:
            end(p)
        self.folder.cleanup()


def scale_round(roost):
    rows = []
    for number in NODES:
        nodes = Nodes(roost, number)
        try:
            measure.command(*nodes.client(fill=1, batch=64, depth=16, **PAIRS))
            for zipf in (0, 0.99):
                for clients in (1, 2):
                    options = {'batch': BATCH, 'depth': DEPTH, 'seconds': SECONDS, 'zipf': zipf,
                               **PAIRS}
                    with contextlib.ExitStack() as stack:
                        others = [stack.enter_context(running(*nodes.client(4 + i, **options)))
                                  for i in range(clients - 1)]
                        all_of = [measure.last_json(measure.command(*nodes.client(**options)))]
                    all_of += [output[0] for output in others]
                    cpus = sum(r['client_cpus'] for r in all_of)
                    served = statistics.mean(r['server_cpus'] for r in all_of)
                    rate = sum(r['per_second'] for r in all_of)
                    rows.append({'nodes': number, 'clients': clients, 'zipf': zipf, 'rate': rate,
                                 'server_cpus': served, 'client_cpus': cpus,
                                 'per_cpu_second': rate / (cpus + served)})
        finally:
            nodes.end()
    return {'rows': [*rows, *engines(roost)]}


def engines(roost):
    """The engine alone, one thread for each partition: one, and two at the same time."""
    for number in (1, 2):
        yield {'engines': number, 'rate': engine(roost, number)}


def engine(roost, number):
    """Returns the rate of uniform GETs of pairs of 10 bytes, of all engines."""
    ps = [subprocess.Popen([tool(roost, 'bench-kv-ycsb'), '10'], stdin=subprocess.DEVNULL,
                           stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
          for _ in range(number)]
    out = [measure.last_json(p.communicate(timeout=measure.LIMIT)[0]) for p in ps]
    return float(sum(row['rate'] for r in out for row in r['rows']
                     if (row['workload'], row['zipf']) == ('C', 0)))


def scale_section(f):
    rows = f.load(SCALE).get('rows', [])
    if not rows:
        return
    yield ''
    yield (
        f'Partitions (figure 20 of the paper): {PARTITIONS} partitions among nodes over shm, each '
        f'a process, on two cores that also run the clients; {BATCH} GETs in a call, {DEPTH} calls '
        f'in flight for each client and node, {KEYS} keys, values of {VALUE} bytes. Paper: almost '
        'linear, 1.22 G GETs a second with ten NICs, clients on other machines; the most loaded '
        'NIC has 1.5 times the average with Zipf keys.')
    yield ''
    yield from head('rrl', 'nodes', 'clients', 'keys', 'rate', 'operations a CPU-second',
                    'CPUs of nodes, clients')
    for r in rows:
        if 'nodes' in r:
            yield line(f'{r["nodes"]}', f'{r["clients"]}', 'Zipf 0.99' if r['zipf'] else 'uniform',
                       f'{r["rate"] / 1e6:.2f} M/s', f'{r["per_cpu_second"] / 1e6:.2f} million',
                       f'{r["server_cpus"]:.2f}, {r["client_cpus"]:.2f}')
    one, two = (r['rate'] for r in rows if 'engines' in r)
    yield ''
    yield (
        'The machine has two cores, which one node and one client fill. The engine alone, without '
        f'NIC and client, one partition for each core: {one / 1e6:.1f} M/s with one, '
        f'{two / 1e6:.1f} M/s with two at the same time, {two / one:.2f} times.')


# ---- figures 18 and 19 ----

def gather_section(f):
    rows = f.load(GATHER).get('rows', [])
    if not rows:
        return
    times = {(r['size'], r['way']): f'{r["p50_us"]:.1f}, {r["p99_us"]:.1f}' for r in rows
             if 'p50_us' in r}
    rates = {(r['size'], r['way']): r['pieces'] for r in rows if 'pieces' in r}
    yield ''
    yield (
        'Pieces of memory collected by the CPU (figures 18 and 19 of the paper): pieces at random '
        "addresses of 256 MiB, over shm, by a READ for each, or by the server's program, which "
        'gets a list of 256 addresses by WRITEs and WRITEs the pieces back as one. Rates with 256 '
        'READs in flight, and with two lists; the last column is its loop alone, without the NIC. '
        'Paper: the CPU copies 256 for one doorbell, at most 79% more throughput, with a latency '
        'of about 20 us, which is almost 20 times shorter without.')
    yield ''
    yield from head('', 'bytes', 'one READ, p50, p99 us', 'one piece by the CPU', '256 READs',
                    '256 pieces by the CPU', 'READs, million pieces a second', 'by the CPU',
                    'times', 'its loop alone')
    for size in dict.fromkeys(s for s, _ in rates):
        reads, lists, loop = (rates[size, way] for way in ('READs', 'lists', 'the CPU alone'))
        yield line(
            f'{size}', *(times[size, way] for way in ('one READ', 'one piece by the CPU',
                                                      '256 READs', '256 pieces by the CPU')),
            f'{reads / 1e6:.2f}', f'{lists / 1e6:.2f}', f'{lists / reads:.1f}',
            f'{loop / 1e6:.1f}')


# ---- all ----

def plan(roost):
    def gather():
        return measure.last_json(measure.command(
            [tool(roost, 'bench-kernels'), 'gather', '--point', '0.1']))

    return [measure.Measurement(name, shown, run, merge=merge) for name, shown, run in (
        (LOAD, 'bench-kv-load rate=N', lambda: load_round(roost)),
        (HOST, 'bench-host; bench-kv-load', lambda: host_round(roost)),
        (SCALE, 'bench-kv-load store=TABLE; bench-kv-ycsb 10', lambda: scale_round(roost)),
        (GATHER, 'build/bench/bench-kernels gather --point 0.1', gather))]


def section(f):
    yield from load_section(f)
    yield from host_section(f)
    yield from gather_section(f)
    yield from scale_section(f)
