# SPDX-License-Identifier: BSD-2-Clause
"""The matrix of programs that run between Roost on this machine and the kernel's stack in the
guest. One line makes a row for each direction."""
from dataclasses import dataclass, field

HOST, GUEST = 'host', 'guest'
BIG_LINK, ETHERNET = 9000, 1500
DISORDER = 'delay 3ms 2ms duplicate 5%'  # the delay varies, so packets overtake each other
OURS, THEIRS = 0.01, 0.10  # loss of our packets; of the guest's packets


@dataclass
class Row:
    name: str
    program: str
    # of both; with rdma_cm, of the server: {S} is its address, {P} a port
    arguments: str
    server: str = GUEST          # where the server is; the client is at the other end
    # of the addresses of packets; the programs connect over IPv4
    family: int = 4
    link_mtu: int = BIG_LINK
    port: str = ''               # options of our port
    netem: str = ''              # discipline of the guest's interface
    # the server is killed during the transfer; the client must report it and end
    killed: bool = False
    client: str = ''             # the client's arguments with rdma_cm
    wanted: str = ''             # a pattern in the client's output
    refused: bool = False        # the client must fail
    counts: dict = field(default_factory=dict)  # least count of the oracles in our capture
    beside: bool = False         # another program has our address, too, and came first

    @property
    def cm(self):
        return bool(self.client)

    @property
    def disorders(self):
        return any(word in self.port + self.netem for word in ('reorder', 'delay', 'dup'))

    @property
    def damages(self):
        return 'corrupt' in self.netem

    @property
    def direction(self):
        return 'guest -> host' if self.server == HOST else 'host -> guest'

    def __str__(self):
        return f'{self.name} {self.direction}'


# An ACK time-out of half a second instead of perftest's 67 ms, for rows without losses: an emulated
# guest on a busy machine may stop for seconds, which uses up the retries.
PATIENT = ' -u 17'


def rows_of(name, program, arguments='', servers=(GUEST, HOST), **more):
    return [Row(name, program, arguments, server=server, **more) for server in servers]


def perftest():
    """Rows for each operation, without speeds."""
    rows = []
    for tool in ('ib_send', 'ib_write', 'ib_read'):
        for mtu in (256, 1024, 4096):
            rows += rows_of(f'{tool}_bw mtu {mtu}', f'{tool}_bw', f'-m {mtu} -n 100 -s 5001')
        # past rxe's 128 unanswered packets
        rows += rows_of(f'{tool}_bw long', f'{tool}_bw', '-m 1024 -n 10 -s 200000')
        rows += rows_of(f'{tool}_bw 1500', f'{tool}_bw', '-m 1024 -n 100 -s 5001',
                        link_mtu=ETHERNET)
        rows += rows_of(f'{tool}_bw -b', f'{tool}_bw', '-m 1024 -n 100 -s 5001 -b')
    for tool in ('ib_send', 'ib_write', 'ib_read'):
        rows += rows_of(f'{tool}_lat', f'{tool}_lat', '-n 100 -s 32')
    for kind in ('CMP_AND_SWAP', 'FETCH_AND_ADD'):
        rows += rows_of(f'ib_atomic_bw {kind}', 'ib_atomic_bw', f'-n 100 -A {kind}')
        rows += rows_of(f'ib_atomic_lat {kind}', 'ib_atomic_lat', f'-n 100 -A {kind}')
    # perftest has no events for WRITEs: their target gets no completion.
    for tool, size in (('ib_send_bw', '-s 5001'), ('ib_read_bw', '-s 5001'), ('ib_atomic_bw', ''),
                       ('ib_send_lat', ''), ('ib_read_lat', ''), ('ib_atomic_lat', '')):
        rows += rows_of(f'{tool} -e', tool, f'-n 100 -e {size}')
    for tool, size in (('ib_send', '-s 5001'), ('ib_write', '-s 5001'), ('ib_read', '-s 5001'),
                       ('ib_atomic', '')):
        rows += rows_of(f'{tool}_bw 4 QPs', f'{tool}_bw', f'-n 100 -q 4 {size}')
        rows += rows_of(f'{tool}_bw IPv6', f'{tool}_bw', f'-n 100 {size}', family=6)
        # about twenty are lost
        rows += rows_of(f'{tool}_bw our loss', f'{tool}_bw', f'-n 1000 {size}',
                        port=f'loss={OURS},seed=7')
        rows += rows_of(f'{tool}_bw their loss', f'{tool}_bw', f'-n 100 -u 12 {size}',
                        netem=f'loss {THEIRS:.0%}')
        rows += rows_of(f'{tool}_bw our disorder', f'{tool}_bw', f'-n 100 {size}',
                        port='reorder=0.05,dup=0.05,seed=8')
        rows += rows_of(f'{tool}_bw their disorder', f'{tool}_bw', f'-n 100 -u 12 {size}',
                        netem=DISORDER)
    for tool in ('ib_send', 'ib_write'):
        # No more packets than the queues of the link hold: a program that loses a packet of an
        # unreliable connection waits forever.
        for mtu, n in ((256, 20), (1024, 100), (4096, 100)):
            rows += rows_of(f'{tool}_bw UC mtu {mtu}', f'{tool}_bw',
                            f'-c UC -m {mtu} -n {n} -s 5001')
        rows += rows_of(f'{tool}_lat UC', f'{tool}_lat', '-c UC -n 100 -s 32')
    for name, more in (('UD', {}), ('UD IPv6', {'family': 6})):
        # a receive for each datagram
        rows += rows_of(f'ib_send_bw {name}', 'ib_send_bw', '-c UD -n 100 -r 128 -s 4000', **more)
        rows += rows_of(f'ib_send_lat {name}', 'ib_send_lat', '-c UD -n 100 -s 32', **more)
    rows += rows_of('ib_send_bw SRQ', 'ib_send_bw', '--use-srq -n 100 -q 4 -s 5001')
    rows += rows_of('ib_send_lat SRQ', 'ib_send_lat', '--use-srq -n 100 -s 32')
    for row in rows:
        if not row.port and not row.netem and '-c U' not in row.arguments:
            row.arguments += PATIENT
    return rows


def checked():
    """Rows of pair_tests.c, which checks each byte, and each operation that must fail."""
    rows = []
    for mtu in (256, 1024, 4096):
        rows += rows_of(f'pair ops mtu {mtu}', 'pair', f'-m {mtu} ops')
    rows += rows_of('pair ops IPv6', 'pair', '-m 1024 ops', family=6)
    rows += rows_of('pair ops our loss', 'pair', '-m 256 ops', port=f'loss={OURS},seed=9')
    rows += rows_of('pair ops our disorder', 'pair', '-m 256 ops',
                    port='reorder=0.1,dup=0.1,seed=10')
    rows += rows_of('pair ops their disorder', 'pair', '-m 256 ops', netem=DISORDER)
    for name, netem in (('loss', f'loss {THEIRS:.0%}'), ('damage', 'corrupt 10%')):
        rows += rows_of(f'pair ops their {name}', 'pair', '-m 256 ops-answered-again', netem=netem)
    for test in ('wrong-key-write', 'wrong-key-read', 'wrong-key-atomic', 'beyond-the-end',
                 'read-only'):
        rows += rows_of(f'pair {test}', 'pair', test, counts={'naks_access': 1})
    rows += rows_of('pair too-long', 'pair', 'too-long')
    rows += rows_of('pair late-receive', 'pair', 'late-receive', counts={'naks_rnr': 1})
    rows += rows_of('pair no-receive', 'pair', 'no-receive', counts={'naks_rnr': 2})
    rows += rows_of('pair window', 'pair', 'window', counts={'naks_access': 1})
    rows += rows_of('pair gone', 'pair', 'gone')
    return rows


def killed():
    """
    Rows whose server dies during the transfer: its queue pair no longer answers. A client of either
    stack must end with status 12, retries exceeded. perftest asks for seven retries if it connects
    over TCP, and for the kernel's rxe these are without a limit (rxe_comp.c): its client sends
    until its minute is over, while hardware gives up after the seventh. So a row with fewer retries
    shows the error, which only -R allows. A retry takes two seconds there (4.096 us << 19:
    rdma_cm's own ACK time-out, and with -u 19 that of perftest).
    """
    rows = []
    patient = '-R -F -p {P} -s 65536 -D 60 --retry_count=1 -u 19'
    for tool in ('ib_send_bw', 'ib_write_bw', 'ib_read_bw'):
        rows += rows_of(f'{tool} killed', tool, '-m 1024 -s 65536 -D 60', servers=(GUEST,),
                        killed=True)
        rows += rows_of(f'{tool} -R killed', tool, patient, client=f'{patient} {{S}}',
                        servers=(HOST,), killed=True, wanted='status 12')
    return rows


def connected():
    """Rows of programs that connect by rdma_cm: connection management of both stacks."""
    rping = {'arguments': '-s -a {S} -p {P} -C 20', 'client': '-c -a {S} -p {P} -C 20'}
    verify = {'arguments': rping['arguments'] + ' -V -S 20000',
              'client': rping['client'] + ' -V -S 20000'}
    done = {'wanted': 'data transfers complete'}
    rows = rows_of('rping', 'rping', **rping) + rows_of('rping 20 KB', 'rping', **verify)
    rows += rows_of('rping IPv6', 'rping', **verify, family=6)
    rows += rows_of('rping rejected', 'rping', rping['arguments'], client='-c -a {S} -p 1 -C 20',
                    wanted='REJECTED', refused=True)
    # Few pings: rdma_cm gives the kernel's queue pair an ACK time-out of two seconds (4.096 us <<
    # 19), and its REQs one of four. No loss at the kernel's end: its rping sometimes hangs after
    # the last message, although both ends have acknowledged it.
    few = {'arguments': '-s -a {S} -p {P} -C 3 -V -S 20000',
           'client': '-c -a {S} -p {P} -C 3 -V -S 20000'}
    rows += rows_of('rping our loss', 'rping', **few, port=f'loss={OURS},seed=11')
    rows += rows_of('ucmatose', 'ucmatose', '-b {S} -p {P}', client='-s {S} -p {P}', **done)
    rows += rows_of('ucmatose 20', 'ucmatose', '-b {S} -p {P} -c 20 -C 10 -S 3000',
                    client='-s {S} -p {P} -c 20 -C 10 -S 3000', **done)
    rows += rows_of('udaddy', 'udaddy', '-b {S}', client='-s {S} -b {C}', **done)
    # The kernel's rdma_cm joins no group of IPv6 over rxe: errno 524. mckey ends without waiting
    # for its sends, and newer kernels (6.12; not 6.1) send from a work queue: of ten, one was sent
    # before the queue pair was destroyed. The server needs ten.
    rows += rows_of('mckey', 'mckey', '-m {G} -b {S}', client='-m {G} -b {C} -s -C 1000', **done)
    # Not in the other direction: an rping on the kernel's stack that only waits does not detect a
    # killed peer.
    rows += rows_of('rping killed', 'rping', '-s -a {S} -p {P} -S 60000',
                    client='-c -a {S} -p {P} -S 60000', servers=(GUEST,), killed=True)
    for tool, more in (('ib_send_bw', '-s 5001'), ('ib_write_bw', '-s 5001'),
                       ('ib_read_bw', '-s 5001'), ('ib_send_lat', '-s 32'), ('ib_atomic_lat', '')):
        words = f'-R -F -p {{P}} -n 100 {more}'
        rows += rows_of(f'{tool} -R', tool, words, client=words + ' {S}')
    return rows


def beside():
    """Rows of a program that shares its address with another one."""
    rows = []
    for tool in ('ib_send_bw', 'ib_write_bw', 'ib_read_bw'):
        rows += rows_of(f'{tool} beside another', tool, '-m 1024 -n 100 -s 5001' + PATIENT)
    rows += rows_of('ib_send_lat UD beside another', 'ib_send_lat', '-c UD -n 100 -s 32')
    rows += rows_of('rping beside another', 'rping', '-s -a {S} -p {P} -C 20',
                    client='-c -a {S} -p {P} -C 20')
    rows += rows_of('udaddy beside another', 'udaddy', '-b {S}',
                    client='-s {S} -b {C}', wanted='data transfers complete')
    for row in rows:
        row.beside = True
    return rows


# Tests of many programs at one address, which depend on the Linux kernel: they run in the guest,
# too, whose kernel is that of the machine's Debian release. Not pool-pool: the emulated guest is
# too slow for 64 programs, which have to answer each other within a second.
GROUP_TESTS = ['pool/test_pool_filter', 'port/test_port_udp_strangers',
               'port/test_port_udp_mixed', 'port/test_port_udp_steer']


# Rows that change the link are last: it is changed once.
ROWS = sorted(perftest() + checked() + killed() + connected() + beside(),
              key=lambda row: -row.link_mtu)
