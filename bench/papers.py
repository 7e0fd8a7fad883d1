# SPDX-License-Identifier: BSD-2-Clause
"""The part of bench/RESULTS.md with figures of two papers beside ours. Ours come from
bench/results; figures without a measurement are marked.
"""
import kernels

PORTS = ('shm', 'udp')
FULL = 0.9  # fraction of the highest goodput of a sweep: from that size on the port is saturated


def cell(value, unit=''):
    if value is None:
        return 'not measured'
    return f'{value:.2f} {unit}'.rstrip()


def ways(values, unit=''):
    """`values` has a figure for each port. A figure that no port has is not measured."""
    if all(v is None for v in values):
        return 'not measured'
    return ', '.join(f'{port} {cell(v, unit)}' for port, v in zip(PORTS, values))


class Ours:
    def __init__(self, f):
        self.f = f

    def rows(self, verb):
        """A sweep for each port."""
        return [self.f.load(f'sweep-{port}-{verb}').get('rows', []) for port in PORTS]

    def median(self, name):
        return [self.f.of(f'{port}-{name}') for port in PORTS]

    def p50(self, verb, size):
        return [next((r['latency_us']['p50'] for r in rows if r['size'] == size), None)
                for rows in self.rows(verb)]

    def latency(self, verb):
        at = [ways(self.p50(verb, size), 'us') for size in (64, 1024)]
        return at[0] if at[0] == at[1] else f'64 B: {at[0]}; 1 KiB: {at[1]}'

    def growth(self, verb):
        small, large = self.p50(verb, 64), self.p50(verb, 1024)
        return ways([kernels.over(b, a) for a, b in zip(small, large)], 'us')

    def peak(self, verb):
        return ways([max((r['goodput_gbps'] for r in rows), default=None)
                     for rows in self.rows(verb)], 'Gbit/s')

    def at(self, verb, size):
        return ways([next((r['goodput_gbps'] for r in rows if r['size'] == size), None)
                     for rows in self.rows(verb)], 'Gbit/s')

    def rate(self, verb):
        """The highest rate of messages below 512 bytes."""
        return ways([max((r['msg_rate'] / 1e6 for r in rows if r['size'] < 512), default=None)
                     for rows in self.rows(verb)], 'M/s')

    def single(self):
        """64-byte WRITEs posted one by one."""
        rows = [self.f.load(f'steps-{port}-write-1').get('rows', []) for port in PORTS]
        return ways([next((r['msg_rate'] / 1e6 for r in several if r['size'] == 64), None)
                     for several in rows], 'M/s')

    def full_from(self, verb):
        """The smallest size with FULL of the highest goodput."""
        cells = []
        for port, rows in zip(PORTS, self.rows(verb)):
            peak = max((r['goodput_gbps'] for r in rows), default=0)
            size = next((r['size'] for r in rows if r['goodput_gbps'] >= FULL * peak), None)
            cells.append(f'{port} ' + ('not measured' if size is None else f'{size / 1024:g} KiB'))
        return ', '.join(cells)

    def stage(self, op, name=None):
        for r in (self.f.load('stages').get('runs') or [{'rows': []}])[-1]['rows']:
            if r['op'] == op and r['size'] == 64:
                return r['total'] if name is None else r['stages'].get(name, 0)
        return None

    def looked_up(self, test, size, way, delay=0):
        return kernels.Rows(self.f, test, delay).of(way, size)

    def beside(self, test, size, several):
        return '; '.join(f'{way} {cell(self.looked_up(test, size, way), "us")}' for way in several)

    def grows(self, way):
        """The time that each element of a list adds, from 8 to 32 elements."""
        short, long = (self.looked_up('list', n, way) for n in (8, 32))
        return kernels.over(long, short, 1 / 24)

    def over_read(self, way, delay, failures=0):
        r = kernels.Rows(self.f, 'object', delay)
        return kernels.over(kernels.share(r.of(way, 4096, failures=failures), r.of('READ', 4096)),
                            1, 100)

    def rates(self, test, several, size=None):
        rows = kernels.Rows(self.f, test)
        return '; '.join(f'{way} {cell(rows.of(way, size, "gbps"), "Gbit/s")}' for way in several)


def strom(o):
    yield ('5a',
           'WRITE, half of the round trip of two WRITEs, both hosts poll; median; 64 B to 1 KB',
           'chart only', 'the same, p50', o.latency('write'))
    yield ('5a', 'READ, 64 B to 1 KB; where the measurement ends is not stated', 'chart only',
           'READ until its completion is polled, p50', o.latency('read'))
    yield ('5b', 'throughput of payloads up to 1 MB, 10 Gbit/s link',
           '9.4 Gbit/s, the ideal of the link', 'highest goodput of WRITEs up to 4 MiB',
           o.peak('write'))
    yield ('5c', 'message rate of the same runs', 'chart only', 'WRITEs below 512 B, lists of 16',
           o.rate('write'))
    yield ('6', 'parameters of the traversal kernel: no figure', '', '', '')
    yield ('7', '64 B value from a remote list by key, kernel against READs and RPC over TCP',
           'chart only', 'list of 8, p50, shm', o.beside('list', 8, ('kernel', 'READs', 'ONC RPC')))
    yield ('7', 'what an element of the list adds',
           'kernel about 1.5 us (PCIe); READs one round trip', 'from 8 to 32 elements, shm',
           '; '.join(f'{way} {cell(o.grows(way), "us")}' for way in ('kernel', 'READs')))
    yield ('8', 'hash GET, first entry matches, kernel against two READs',
           'chart only; kernel about 5 us less', 'value of 64 B, p50, shm',
           o.beside('get', 64, ('kernel', 'READs', 'ONC RPC')))
    yield ('8', 'as RedN (table 5) reads it off', '64 B about 7 us; 4 KB about 12 us',
           'kernel, p50, shm',
           '; '.join(f'{n} B {cell(o.looked_up("get", n, "kernel"), "us")}' for n in (64, 4096)))
    yield ('9', 'read of an object with CRC-64, over a READ without',
           'kernel 1 us, below 8%, at the size where software takes 40%',
           '4 KiB, p50, 0 and 10 us on the wire',
           '; '.join(f'{way} {cell(o.over_read(way, 0), "%")}, {cell(o.over_read(way, 10), "%")}'
                     for way in ('kernel', 'READ, check')))
    yield ('10', 'the same while objects are torn, average',
           'kernel: little more up to 50% of failures',
           '50% of failures, 4 KiB, p50, 10 us on the wire', '; '.join(
               f'{way} {cell(o.over_read(way, 10, 50), "%")}' for way in ('kernel', 'READ, check')))
    yield ('11', 'time to partition and send 8 B tuples',
           'chart only; kernel close to a WRITE, software well above',
           '128 MiB, 1024 partitions, as a rate',
           o.rates('shuffle', ('kernel', 'WRITE', 'software, WRITE'), 128))
    yield ('12a', 'latency as in 5a, 100 Gbit/s',
           'chart only; 64 B and 1 KB differ less than at 10 Gbit/s', 'WRITE, 1 KiB over 64 B',
           o.growth('write'))
    yield ('12b', 'throughput as in 5b, 100 Gbit/s',
           'saturates the link; below 2 KB the message rate is the limit',
           f'size with {FULL:.0%} of the highest goodput, WRITE', o.full_from('write'))
    yield ('12c', 'message rate, one store to the device a message, no batches', 'chart only',
           'WRITEs of 64 B posted one by one', o.single())
    yield ('13a', 'HLL on the CPU while WRITEs arrive', 'about 25 Gbit/s with 8 threads',
           'one and two threads; 8 not measured',
           o.rates('hll', ('WRITE, CPU', 'WRITE, two threads')))
    yield ('13b', 'WRITEs with HLL in the NIC', 'line rate, as a WRITE', 'precision 14, shm',
           o.rates('hll', ('kernel', 'WRITE')))


def thesis(o):
    yield ('5.3a', 'goodput, payload only, 64 B to 4 MB', 'full above 1 KB (ideal 95.9 Gbit/s)',
           f'size with {FULL:.0%} of the highest goodput',
           f'WRITE: {o.full_from("write")}; READ: {o.full_from("read")}')
    yield ('5.3a', 'highest goodput', '95.9 Gbit/s (ideal)', 'the same',
           f'WRITE: {o.peak("write")}; READ: {o.peak("read")}')
    for verb, rate, goodput in (('write', 20, 10.24), ('read', 17.5, 8.96)):
        yield ('5.3b', f'{verb.upper()}s below 512 B', f'about {rate:g} M/s',
               'the same, lists of 16', o.rate(verb))
        yield ('5.3', f'goodput of {verb.upper()}s of 64 B', f'{goodput} Gbit/s (derived)',
               'the same', o.at(verb, 64))
    yield ('5.4', 'READ, command until the last byte is in local memory',
           '4 to 4.5 us; 64 B about 4', 'READ of 64 B until its completion is polled, p50, '
           'both sides polling', ways(o.median('read-lat'), 'us'))
    yield ('5.4', 'WRITE, command until the last ACK', '3.5 to 4 us; 64 B about 3.5',
           'WRITE until its completion: only half of a round trip of two WRITEs '
           'is measured', 'not measured')
    yield ('5.4', '1 KB over 64 B', 'no significant difference', 'p50',
           f'WRITE: {o.growth("write")}; READ: {o.growth("read")}')
    yield ('5.6', 'memory read, 64 B', '0.18 us (derived)',
           'stage "payload out of memory" of a WRITE of 64 B, processor time',
           cell(o.stage('write', 'payload out of memory'), 'ns'))
    for op, us in (('read', 0.864), ('write', 0.336)):
        yield ('5.6', f'RoCE stack, TX and RX, {op.upper()}', f'{us} us of latency',
               f'processor time a {op.upper()} of 64 B, both sides, without a wire',
               cell(o.stage(op), 'ns'))
    yield ('5.6', 'MAC encoder, IP decoder, buffers, cable, switch', '0.44, 0.028 and about 2.6 us',
           'Roost has none of them', 'not measured')
    yield ('5.7', 'remote FPGA: WRITE until its ACK; READ of 64 B',
           'below 0.4 us; above 0.8 us (derived)', '', 'not measured')
    yield ('5.8a', 'message size that approaches the link', '1 KB; StRoM 4 KB; TCP (EasyNet) 1 MB',
           f'size with {FULL:.0%} of the highest goodput, WRITE', o.full_from('write'))
    yield ('5.8b', 'message rate', 'as 5.3b', 'as 5.3b', o.rate('write'))
    yield ('5.9', 'READ and WRITE beside StRoM', 'as 5.4; StRoM almost the same', 'as 5a',
           o.latency('write'))
    yield ('5.9', 'round trip of 64 B beside TCP', '3.94 us (derived) against 4.3 us',
           'READ of 64 B over udp; UCX over TCP, tag_lat of 8 B, twice half of a round trip',
           f'{cell(o.median("read-lat")[1], "us")}; {cell(doubled(o.f.of("stock-ucx-tcp")), "us")}')


def doubled(value):
    return None if value is None else 2 * value


def table(rows):
    yield '| figure | the paper measures | the paper has | Roost measures | Roost has |'
    yield '|---|---|---|---|---|'
    for row in rows:
        yield '| ' + ' | '.join(row) + ' |'


def section(f):
    o = Ours(f)
    yield (
        'The papers measured FPGAs and links of 10 and 100 Gbit/s; Roost runs on two cores of the '
        'machine above, over its shared memory (shm) and over')
    yield (
        'UDP on its loopback (udp). The rows compare definitions and shapes, not machines. "Chart '
        'only": the paper gives the figure without a number.')
    yield '"Derived": computed from numbers of the paper.'
    yield ''
    yield '### StRoM (Sidler and others, EuroSys 2020)'
    yield ''
    yield ('Figures 5 to 11: 10 Gbit/s, MTU 1500, cabled directly, both hosts poll. Figures 12 and '
           '13: 100 Gbit/s.')
    yield ''
    yield from table(strom(o))
    yield ''
    yield '### RoCE v2 at 100 Gbit/s (Song, master\'s thesis, TU Delft, 2021)'
    yield ''
    yield (
        'Two FPGAs and a switch; data in the boards\' own memory, no host in the path, the ICRC is '
        'not checked; means of two runs.')
    yield ''
    yield from table(thesis(o))
