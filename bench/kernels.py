# SPDX-License-Identifier: BSD-2-Clause
"""The measurements of kernels: commands, bars, and their part of bench/RESULTS.md."""
import os
import re
import statistics
import subprocess
import tempfile

import measure

DELAYS = [0, 5, 10]  # us of a round trip on the wire
FIGURES = ('p50_us', 'p99_us', 'rate', 'gbps', 'round_trips')
LISTED = {'list': DELAYS, 'get': DELAYS, 'object': DELAYS, 'chain': [0, 2, 5],
          'chain_list': [0, 2, 5]}


def named(test, delay=0):
    return f'kernels-{test}-{delay}us' if test in LISTED else f'kernels-{test}'


# ---- measuring ----

def merge(runs):
    """Returns the median of each figure over the rows of several runs."""
    rows = []
    for several in zip(*(r['rows'] for r in runs)):
        row = dict(several[0])
        for key in FIGURES:
            if key in row:
                row[key] = statistics.median(s[key] for s in several)
        rows.append(row)
    return rows


def rows(folder, test, delay=0, point=0.1):
    args = [test, '--delay', str(delay), '--point', str(point)]

    def run():
        return measure.last_json(
            measure.command([os.path.join(folder, 'bench', 'bench-kernels'), *args]))

    return measure.Measurement(named(test, delay), 'build/bench/bench-kernels ' + ' '.join(args),
                               run, merge=merge)


def hll_alone(folder):
    def run():
        result = measure.last_json(measure.command([os.path.join(folder, 'bench', 'bench-hll')]))
        result['value'] = result['gbps']['14']['kernel']
        return result

    return measure.Measurement('kernels-hll-alone', 'build/bench/bench-hll', run, 'Gbit/s')


def instructions(exe, args):
    """Returns the instructions of a whole run, by callgrind. Other work on the machine does not
    change the number."""
    with tempfile.TemporaryDirectory() as tmp:
        try:
            r = subprocess.run(
                ['valgrind', '--tool=callgrind', f'--callgrind-out-file={tmp}/out', exe, *args],
                capture_output=True, text=True, timeout=measure.LIMIT, check=False)
        except FileNotFoundError as e:
            raise measure.Failed('valgrind is not installed') from e
    found = re.search(r'refs: +([0-9,]+)', r.stderr)
    if r.returncode or not found:
        raise measure.Failed('valgrind printed no figures')
    return int(found[1].replace(',', ''))


def unused(folder):
    """Instructions for a 64-byte WRITE, with kernels that are not called over those without
    kernels; the instructions of the rest of the run are subtracted."""
    exe = os.path.join(folder, 'bench', 'bench-core')

    def each(extra):
        few, many = (instructions(exe, ['1', 'write', '64', '32', str(n), *extra])
                     for n in (10000, 30000))
        return (many - few) / 20000

    def run():
        without, loaded = each([]), each(['kernels'])
        return {'value': (loaded / without - 1) * 100, 'without': without, 'loaded': loaded}

    return measure.Measurement(
        'kernels-unused',
        'valgrind --tool=callgrind build/bench/bench-core 1 write 64 32 30000 [kernels]', run, '%')


def plan(path):
    folder = os.path.dirname(path)
    return [
        *(rows(folder, test, delay, 0.02 if test.startswith('chain') else 0.05)
          for test, delays in LISTED.items() for delay in delays),
        rows(folder, 'writers', point=0.1),
        rows(folder, 'endless', point=0.2),
        rows(folder, 'walk', point=0.1),
        rows(folder, 'hll', point=0.1),
        rows(folder, 'shuffle'),
        hll_alone(folder),
        unused(folder),
    ]


# ---- reading ----

class Rows:
    """The figures of one test at one delay, by way and size."""

    def __init__(self, f, test, delay=0):
        self.rows = f.load(named(test, delay)).get('rows', [])

    def of(self, way, size=None, figure='p50_us', failures=None):
        for r in self.rows:
            if (r['way'] == way and size in (None, r['size'])
                    and failures in (None, r.get('failures'))):
                return r.get(figure)
        return None

    def sizes(self):
        return sorted({r['size'] for r in self.rows})


def over(a, b, scale=1.0):
    return None if a is None or b is None else (a - b) * scale


def share(a, b):
    return a / b if a is not None and b else None


def core_allows(*rates):
    """The rate of one core that does all of the work, one part after the other."""
    return 1 / sum(1 / r for r in rates) if all(rates) else None


def bars(f):
    """A row: the name; value and unit; the value beside it; the bar as text and as a test of the
    value."""
    look, get, walk, hll, shuffle = (Rows(f, t) for t in ('list', 'get', 'walk', 'hll', 'shuffle'))
    hop = over(walk.of('kernel', 32), walk.of('kernel', 1), 1000 / 31)
    bare = walk.of('bare loop', figure='rate')
    alone = f.load('kernels-hll-alone').get('runs', [{}])
    loop = statistics.median(r['gbps']['14']['chosen']
                             for r in alone) if alone and alone[0] else None
    kernel_alone = f.of('kernels-hll-alone')
    both = core_allows(hll.of('WRITE', figure='gbps'), hll.of('bare loop', figure='gbps'))
    yield ('GET of 64 bytes by kernel, over one READ, p50',
           over(get.of('kernel', 64), get.of('one READ', 64)), 'us',
           ('one READ', get.of('one READ', 64), 'us'), 'under 1 us', lambda v: v < 1)
    yield ('list of 8 in cache by kernel, over one READ, p50',
           over(look.of('kernel', 8), look.of('one READ', 8)), 'us',
           ('one READ', look.of('one READ', 8), 'us'), 'under 1 us', lambda v: v < 1)
    yield ('list of 32 in cold memory by kernel, a hop', hop, 'ns',
           ('a bare loop, a hop', 1e9 / 32 / bare if bare else None, 'ns'), 'under 150 ns',
           lambda v: v < 150)
    yield ('a hop in cache', over(look.of('kernel', 32), look.of('kernel', 4), 1000 / 28), 'ns',
           ('', None, ''), '', None)
    yield ('a hop of the bare loop in cold memory', 1e9 / 32 / bare if bare else None, 'ns',
           ('a random read in a larger memory', f.limit('random_read_ns'), 'ns'), '', None)
    yield ('64 walks in flight against one after the other, by kernel',
           share(walk.of('in flight', 64, 'rate'), walk.of('in flight', 1, 'rate')), 'times',
           ('64 in flight', walk.of('in flight', 64, 'rate'), 'walks/s'), 'at least 4 times',
           lambda v: v >= 4)
    yield ('64 walks in flight against a bare loop, one after the other',
           share(walk.of('in flight', 64, 'rate'), bare), 'times',
           ('the bare loop', bare, 'walks/s'), '', None)
    for delay in DELAYS:
        obj = Rows(f, 'object', delay)
        yield (f'consistent read of 4 KiB by kernel, over a READ, p50, {delay} us on the wire',
               over(share(obj.of('kernel', 4096, failures=0), obj.of('READ', 4096)), 1, 100), '%',
               ('READ', obj.of('READ', 4096), 'us'), 'under 8%', lambda v: v < 8)
    yield ('hll alone', kernel_alone, 'Gbit/s', ('bare loop', loop, 'Gbit/s'), 'at least 25 Gbit/s',
           lambda v: v >= 25)
    yield ('hll alone, of its bare loop', over(share(kernel_alone, loop), 0, 100), '%',
           ('bare loop', loop, 'Gbit/s'), 'at least 80%', lambda v: v >= 80)
    yield ('stream with hll on it, of what a core allows for both',
           over(share(hll.of('kernel', figure='gbps'), both), 0, 100), '%',
           ('1 / (1 / WRITE + 1 / loop)', both, 'Gbit/s'), 'at least 80%', lambda v: v >= 80)
    both = core_allows(shuffle.of('WRITE', 128, 'gbps'), shuffle.of('bare loop', figure='gbps'))
    yield ('shuffle of 128 MiB, of what a core allows for both',
           over(share(shuffle.of('kernel', 128, 'gbps'), both), 0, 100), '%',
           ('1 / (1 / WRITE + 1 / loop)', both, 'Gbit/s'), 'at least 80%', lambda v: v >= 80)
    for mib in (128, 1024):
        software = shuffle.of('software, WRITE', mib, 'gbps')
        yield (f'shuffle of {mib} MiB by kernel against software and WRITE',
               share(shuffle.of('kernel', mib, 'gbps'), software), 'times',
               ('software, WRITE', software, 'Gbit/s'), 'at least twice', lambda v: v >= 2)
    software = shuffle.of('software, WRITE into 512', 128, 'gbps')
    yield ('shuffle-out of 128 MiB into 512 partitions against software and WRITE',
           share(shuffle.of('shuffle-out into 512', 128, 'gbps'), software), 'times',
           ('software, WRITE', software, 'Gbit/s'), '', None)
    yield ('kernels that nobody calls: instructions for a WRITE', f.of('kernels-unused'), '%',
           ('', None, ''), 'under 2%', lambda v: v < 2)


# ---- the report ----

def cell(v, unit=''):
    if v is None:
        return 'not measured'
    text = f'{v + 0.0:.2f}' if abs(v) < 100 else f'{v:,.0f}'
    return f'{text} {unit}'.rstrip().replace('-0.00', '0.00')


def bar_table(f):
    yield '| what | | next to | the bar |'
    yield '|---|---:|---|---|'
    for what, value, unit, (beside, against, its), bar, test in bars(f):
        verdict = ''
        if bar:
            verdict = f'{bar}: ' + ('not measured' if value is None else 'met' if test(value)
                                    else '**missed**')
        yield (f'| {what} | {cell(value, unit)} | '
               f'{beside + ": " + cell(against, its) if beside else ""} | {verdict} |')


def latency_table(f, test, what, ways, failures=None):
    yield f'| {what} | wire | ' + ' | '.join(ways) + ' |'
    yield '|---:|---:|' + '---:|' * len(ways)
    for delay in LISTED[test]:
        r = Rows(f, test, delay)
        for size in r.sizes():
            cells = []
            for way in ways:
                p50, p99 = (r.of(way, size, key, failures) for key in ('p50_us', 'p99_us'))
                cells.append(f'{p50:.2f} / {p99:.2f}' if p50 is not None else '')
            if any(cells):
                yield f'| {size} | {delay} us | ' + ' | '.join(cells) + ' |'


def failure_table(f):
    yield '| size | wire | failures | kernel | READ, check |'
    yield '|---:|---:|---:|---:|---:|'
    for delay in DELAYS:
        r = Rows(f, 'object', delay)
        for row in r.rows:
            if row['way'] == 'kernel' and row['failures']:
                p50, p99 = (r.of('READ, check', row['size'], key, row['failures'])
                            for key in ('p50_us', 'p99_us'))
                yield (f'| {row["size"]} | {delay} us | {row["failures"]}% | {row["p50_us"]:.2f} / '
                       f'{row["p99_us"]:.2f} | '
                       f'{p50:.2f} / {p99:.2f} |')


def rate_table(f, test, what, unit, figure):
    r = Rows(f, test)
    if not any(figure in row for row in r.rows):
        yield 'Not measured.'
        return
    yield f'| {what} | {unit} |'
    yield '|---|---:|'
    for row in r.rows:
        if figure in row and 'p50_us' not in row:
            yield (f'| {row["way"]}{", " + str(row["size"]) if test != "hll" else ""} | '
                   f'{cell(row[figure])} |')


FINDINGS = ("""
A call takes more than a READ by a packet each way, since the request is acknowledged apart from \
its reply, and by what its kernel does. A hop in
cold memory is a hop in the cache and the memory's own latency, which the bare loop and the \
random read show; only the first is the
kernel runtime's. With many walks in flight the latency is hidden, and what is left is the kernel \
runtime's work and the number of accesses that the memory takes
at a time. A consistent read of 4 KiB copies the object once more than a READ, and computes a \
CRC-64: that is near a tenth of a round trip on a wire
of some microseconds, and much of one between two cores of a machine.
""")


def section(f):
    yield ('Two processes, a core each, over shm; latency to the data, p50 / p99 in microseconds; '
           '"wire" is what a polling port adds to a round trip')
    yield ("(ONC RPC over TCP waits as long at its client). A list's key is in its last element; a "
           "torn object is one that dice tear.")
    rounds = len(f.load(named('list', 0)).get('runs', []))
    yield f'Rounds: {rounds}.'
    yield ''
    yield from bar_table(f)
    yield ''
    yield from FINDINGS.strip().splitlines()
    yield ''
    yield '![kernels](../docs/perf-kernels.svg)'
    for title, table in (
            ('List look-up, 64-byte values',
             latency_table(f, 'list', 'length', ['one READ', 'kernel', 'READs', 'ONC RPC'])),
            ('Hash GET',
             latency_table(f, 'get', 'value', ['one READ', 'kernel', 'READs', 'ONC RPC'])),
            ('Consistent read, no failures',
             latency_table(f, 'object', 'object', ['READ', 'kernel', 'READ, check'], 0)),
            ('Consistent read, failures', failure_table(f)),
            ('Walks through 512 MiB, 32 elements each',
             rate_table(f, 'walk', 'way, in flight', 'walks/s', 'rate')),
            ('Shuffle into 1024 partitions, or 512, 8-byte tuples',
             rate_table(f, 'shuffle', 'way, MiB', 'Gbit/s', 'gbps')),
            ('hll, precision 14', rate_table(f, 'hll', 'way', 'Gbit/s', 'gbps'))):
        yield from ('', f'### {title}', '', *table)
