# SPDX-License-Identifier: BSD-2-Clause
"""The part of bench/RESULTS.md about look-ups: by chains, beside READs, a kernel, a two-sided
server and memcached, with the figures of RedN (NSDI '22)."""
import statistics

import cache
import kernels
from kernels import Rows, cell, over, share

WAYS = ['one READ', 'READs', 'kernel', 'chain', 'chain, second bucket', 'chain, second, parallel',
        'two-sided, polls', 'two-sided, blocks']
RATES = ['one READ', 'READs', 'kernel', 'chain', 'two-sided', 'two-sided, 64']
LIST = ['READs', 'kernel', 'chain with break', 'chain without break']
SIZES = (64, 4096)  # of table 5
MOST = 16           # writers
TWO_SIDED = ['two-sided, polls', 'two-sided, blocks']


def rate(way):
    return 'rate: ' + way


def price_rows(look):
    """A row: name; value and unit; the value beside it; the paper's value; the bar as text and as a
    test."""
    for size in SIZES:
        p50, p99 = (look.of('chain', size, k) for k in ('p50_us', 'p99_us'))
        paper = {64: '5.7, p99 6.9 us', 4096: '6.7, p99 8.4 us'}[size]
        yield (f'chain, {size} B, p50', p50, 'us', f'p99: {cell(p99, "us")}', 'table 5: ' + paper,
               '', None)
        kernel = look.of('kernel', size)
        yield (f'chain against the kernel `get`, {size} B, p50', share(p50, kernel), 'times',
               f'kernel: {cell(kernel, "us")}', '', '', None)
        yield (f'the same, rate with 8 under way',
               share(look.of(rate('chain'), size, 'rate'), look.of(rate('kernel'), size, 'rate')),
               'times', f'kernel: {cell(look.of(rate("kernel"), size, "rate"))} a second', '', '',
               None)
    read = look.of('one READ', 64)
    yield ('chain over one READ, 64 B, p50', over(look.of('chain', 64), read), 'us',
           f'READ: {cell(read, "us")}', '', 'at most 1 us', lambda v: v <= 1)
    read = look.of('one READ', 65536)
    yield ('chain against one READ, 64 KiB, p50', share(look.of('chain', 65536), read), 'times',
           f'READ: {cell(read, "us")}', '5.2.2: within 5% (16.22 us)', 'at most 1.05 times',
           lambda v: v <= 1.05)
    send = look.of(rate('SEND'), 64, 'rate')
    yield ('two-sided server, 64 B, 64 under way: its share of the rate of SENDs',
           over(share(look.of(rate('two-sided, 64'), 64, 'rate'), send), 0, 100), '%',
           f'SENDs: {cell(send)} a second', '', '', None)


def wire_rows(f):
    for delay in kernels.LISTED['chain'][1:]:
        look = Rows(f, 'chain', delay)
        chain = look.of('chain', 64)
        for way, paper in (('READs', 'figure 10: up to 2 times'),
                           ('two-sided, polls', 'figure 10: up to 2 times'),
                           ('two-sided, blocks', 'figure 10: up to 3.8 times')):
            yield (f'{way} against the chain, 64 B, {delay} us on the wire, p50',
                   share(look.of(way, 64), chain), 'times', f'chain: {cell(chain, "us")}', paper,
                   '', None)


def list_rows(f):
    for delay in kernels.LISTED['chain_list']:
        look = Rows(f, 'chain_list', delay)
        chain = look.of('chain with break', 8)
        for way, paper in (('kernel', ''), ('READs', 'figure 13: up to 2 times')):
            yield (f'list of 8: {way} against the chain with break, {delay} us on the wire, p50',
                   share(look.of(way, 8), chain), 'times', f'chain: {cell(chain, "us")}', paper, '',
                   None)


def writer_rows(writers):
    nic = {way: [writers.of(f'{way}, at the NIC', n, 'p99_us') for n in (0, MOST)]
           for way in ('chain', *TWO_SIDED)}
    yield (f'chain beside {MOST} writers against none, p99 at the NIC',
           share(nic['chain'][1], nic['chain'][0]), 'times',
           f'none: {cell(nic["chain"][0], "us")}', 'figure 15: below 7 us', 'at most 1.5 times',
           lambda v: v <= 1.5)
    for way in TWO_SIDED:
        yield (f'{way}, against chain, {MOST} writers, p99 at the NIC',
               share(nic[way][1], nic['chain'][1]), 'times',
               f'two-sided: {cell(nic[way][1], "us")}', 'figure 15: 35 times',
               'at least 10 times', lambda v: v >= 10)


def tenant_rows(tenants):
    alone = tenants.of('no chain', figure='p99_us')
    for way in ('a chain of 1 M WQEs/s', 'a chain without limit', '16 chains without limit'):
        yield (f'READ of another tenant beside {way}, p99', tenants.of(way, figure='p99_us'), 'us',
               f'without: {cell(alone, "us")}; p50 {cell(tenants.of(way), "us")}', '', '', None)


def of_cache(rows, way, size, writers, figure='p50_us'):
    return next((r[figure] for r in rows if r['way'] == way and r['size'] == size
                 and (r['writers'] == writers or way == 'two READs')), None)


def cache_rows(data):
    sizes, writers = data.get('sizes', []), data.get('writers', [])
    chain = of_cache(sizes, 'chain', 64, 0)
    for way, what, paper in (('two READs', 'two READs', '1.7'),
                             ('two-sided', 'stock memcached', '2.6')):
        ratios = [share(of_cache(sizes, way, s, 0), of_cache(sizes, 'chain', s, 0))
                  for s in cache.SIZES]
        ratios = [r for r in ratios if r is not None]
        yield (f'memcached: {what} against the chain, p50, median of the sizes',
               statistics.median(ratios) if ratios else None, 'times',
               f'chain, 64 B: {cell(chain, "us")}', f'figure 14: up to {paper} times', '', None)
    p99 = [of_cache(writers, way, 64, MOST, 'p99_us') for way in ('two-sided', 'chain')]
    yield (f'memcached: stock against the chain, {MOST} writers, p99', share(*p99), 'times',
           f'chain: {cell(p99[1], "us")}', 'figure 15: 35 times', '', None)


def longest_gap(data, way):
    """Returns the milliseconds without a get: the bins of the time line without one."""
    gap = most = 0
    for n in data[way]:
        gap = 0 if n else gap + data['bin_ms']
        most = max(most, gap)
    return most


def kill_rows(data):
    for way, paper in (('chain', 'figure 16: none'), ('two-sided', 'figure 16: 2.25 s')):
        seconds = len(data[way]) * data['bin_ms'] / 1e3
        yield (f'memcached killed {len(data["kills"])} times: longest time without a get, {way}',
               longest_gap(data, way), 'ms', f'gets in {seconds:g} s: {sum(data[way]):,}', paper,
               '', None)


def bar_table(rows):
    yield '| what | | beside it | in the paper | the bar |'
    yield '|---|---:|---|---|---|'
    for what, value, unit, beside, paper, bar, test in rows:
        verdict = ''
        if bar:
            verdict = f'{bar}: ' + ('not measured' if value is None else 'met' if test(value)
                                    else '**missed**')
        yield f'| {what} | {cell(value, unit)} | {beside} | {paper} | {verdict} |'


def pair_cell(p50, p99):
    return '' if p50 is None else f'{p50:.2f} / {p99:.2f}'


def writer_table(writers):
    ways = [w + at for at in ('', ', at the NIC') for w in ('chain', *TWO_SIDED)]
    yield '| writers | ' + ' | '.join(ways) + ' |'
    yield '|---:|' + '---:|' * len(ways)
    for n in writers.sizes():
        yield f'| {n} | ' + ' | '.join(
            pair_cell(writers.of(w, n), writers.of(w, n, 'p99_us')) for w in ways) + ' |'


def rate_table(look):
    yield '| value | ' + ' | '.join(RATES) + ' |'
    yield '|---:|' + '---:|' * len(RATES)
    for size in look.sizes():
        cells = [look.of(rate(w), size, 'rate') for w in RATES]
        yield f'| {size} | ' + ' | '.join('' if v is None else f'{v / 1e6:.3f}'
                                          for v in cells) + ' |'


def cache_table(data):
    ways = ['chain', 'two READs', 'two-sided']
    yield '| value | writers | ' + ' | '.join(ways) + ' | gets by the chain |'
    yield '|---:|---:|' + '---:|' * (len(ways) + 1)
    for rows, pairs in ((data['sizes'], [(s, 0) for s in cache.SIZES]),
                        (data['writers'], [(64, n) for n in cache.WRITERS])):
        for size, n in pairs:
            yield f'| {size} | {n} | ' + ' | '.join(
                pair_cell(of_cache(rows, w, size, n), of_cache(rows, w, size, n, 'p99_us'))
                for w in ways) + f' | {of_cache(rows, "chain", size, n, "gets") or 0:,} |'


FINDINGS = """
The price of a chain: the NIC takes its 10 WQEs one at a time and checks each, while the kernel is \
compiled C. The difference is the same for all sizes,
so it matters for short values and at high rates. On a wire a chain and a kernel save a round trip \
against two READs.

The NIC is software, so a chain and a server that polls run on the same core, and neither is \
faster. A chain saves the server's program: a server that sleeps
must be woken for each request, and a server that was killed does not answer.

Writers: the processing unit of the server's NIC has a core for itself. The server's program, \
which does the sets, shares the other core with the client.
A set is a copy of 64 bytes, so the queue of 16 sets is short; the paper's two-sided server is \
memcached.

memcached's chain is in a hull. The NIC of a hull sleeps while other programs use the cores: \
figures above 20 us are mostly the time to wake it, for the two READs
as well. The stock memcached has lost its items when it comes back, and its client stores 20,000 \
of them again.
"""


def section(f):
    look, writers, tenants = (Rows(f, t) for t in ('chain', 'writers', 'endless'))
    data = f.load(cache.NAME).get('rows')
    yield ('Hash look-ups of a client in the memory of another process: by chains, beside READs '
           '(one of the value; one of six buckets and one of the value), the kernel')
    yield ('`get`, and a server that answers SENDs by WRITEs. Two processes, a core each, over '
           'shm. The paper is RedN (NSDI \'22), a ConnectX-5 on 100 Gbit/s InfiniBand.')
    yield ''
    yield from bar_table([*price_rows(look), *wire_rows(f), *list_rows(f),
                          *writer_rows(writers),
                          *tenant_rows(tenants),
                          *(cache_rows(data) if data else []),
                          *(kill_rows(data['time']) if data else [])])
    yield ''
    yield from FINDINGS.strip().splitlines()
    yield ''
    yield '![look-ups](../docs/perf-lookups.svg)'
    for title, text, table in (
            ('Look-up, p50 / p99 in us', '',
             kernels.latency_table(f, 'chain', 'value', WAYS)),
            ('Look-ups a second, in millions',
             'Eight under way, each by a chain of its own; 64 where it says so. The best 2 ms of '
             'each run count. In RedN\'s table 4: 0.5 with one port and 1 with two up to 1 KiB; '
             '0.18 and 0.19 for 64 KiB.', rate_table(look)),
            ('List of 8, values of 64 bytes, p50 / p99 in us', 'The key is one of the first n.',
             kernels.latency_table(f, 'chain_list', 'n', LIST)),
            ('Look-ups of 64 bytes beside writers, p50 / p99 in us',
             'Sets are done by the server\'s program. At the NIC: from the arrival of the SEND to '
             'the time when the reply is posted, by the NIC\'s clock; for a chain, to the end of '
             'the turn that posts it.', writer_table(writers)),
            ('memcached, gets, p50 / p99 in us',
             'The chain is that of docs/guide-memcached.md; two-sided is memcached as Debian has '
             'it, by its own protocol over TCP.',
             cache_table(data) if data else ['Not measured.'])):
        yield from ('', f'### {title}', '', *([text, ''] if text else []), *table)
