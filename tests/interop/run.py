#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Tests Roost over UDP on this machine against the Linux kernel's RoCE v2 (rdma_rxe) in a virtual
machine.

usage: run.py [--build DIR] [--only TEXT] [--kernel PACKAGE] [--list]

The same programs run at both ends of a tap device, in both directions: perftest on either stack,
and our own pair, which checks each byte. Roost's captures must pass the oracles of `roost pcap`,
and the packets on the link its check of each ICRC. Tests of programs that share an address run in
the guest, on its kernel. A row that fails by the clock of a program, or by a known fault of the
Linux kernel, runs again (repeat.py), and its line reports that. The script prints a line for each
row, and the output of a failed one, whose captures stay in DIR/interop/failed beside the guest's
console.log.

The exit status is 0 if all rows passed, and 77 if this machine can run no guest (no root, no tap
device, no packages); with ROOST_INTEROP=required in the environment it is then 1.
"""
import argparse
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'common'))
import guest  # noqa: E402
import image  # noqa: E402
import ports  # noqa: E402
import repeat  # noqa: E402
from initramfs import Missing, tool  # noqa: E402
from machine import Pair  # noqa: E402
from output import read_output  # noqa: E402
from rows import GROUP_TESTS, GUEST, HOST, ROWS  # noqa: E402
from skip import skip  # noqa: E402

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
ROW_LIMIT = 120    # seconds for a program to end; the slowest takes ten under load
KILL_AFTER = 100000  # bytes on the link: the transfer is under way
RXE_HAS_PORT = 'roost devices beside rxe'
GUEST_LIMIT = 600  # seconds for a test in the guest
PINGS = 6          # echo requests until a neighbour answers
DAMAGE_TRIES = 10  # a run of such a row sends about 25 packets, a tenth of them damaged
OURS, THEIRS = 'roost0', 'rxe0'
GROUP = '239.77.1.2'

# Lines that a successful run does not print, with any exit status; and perftest's warnings about
# its own flags.
COMPLAINTS = re.compile(r"fail|error|couldn't|unable|not supported|invalid|completion "
                        r"with|mismatch|segmentation|roost:", re.I)
HARMLESS = re.compile(r'^\s*warning|Data ex\. method|#bytes', re.I)
# Programs that take less time with tests/stock/fast_clock.c, which is preloaded into them.
CLOCKED = ('ib_', 'mckey')
RESULT = re.compile(r'^\s*\d+\s+\d+\s+[0-9.]+\s+[0-9.]+', re.M)


class HostSide:
    """A program on Roost here, with its output in a file."""
    pause = 0.05  # seconds between two looks at it

    def __init__(self, rig, row, command, capture, output='host.txt'):
        spec = ','.join(x for x in (f'udp:{rig.tap.ours[row.family]}', row.port, f'pcap={capture}')
                        if x)
        self.row, self.roost = row, rig.roost
        self.command = f"{rig.roost} run --port {spec} -- {' '.join(command)}"
        self.output = open(os.path.join(rig.scratch, output), 'w+', encoding='utf-8',
                           errors='replace')
        env = dict(os.environ)
        if row.program.startswith(CLOCKED):
            env['LD_PRELOAD'] = rig.clock
        self.process = subprocess.Popen([rig.roost, 'run', '--port', spec, '--', *command],
                                        env=env, stdin=subprocess.DEVNULL, stdout=self.output,
                                        stderr=subprocess.STDOUT, start_new_session=True)

    def status(self):
        return self.process.poll()

    def text(self):
        if self.output.closed:
            return self.said
        return read_output(self.output)

    def listens(self, port):
        if self.row.cm:
            return self.listens_by_cm()
        return ports.listens(port)

    def listens_by_cm(self):
        said = subprocess.run([self.roost, 'stat', '--json'], stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, text=True, check=False)
        try:
            nics = json.loads(said.stdout)['nics']
        except (ValueError, KeyError):
            return False
        own = [nic for nic in nics if nic['pid'] == self.process.pid]
        return any(nic.get('cm', {}).get('listeners') or nic.get('usage', {}).get('groups')
                   for nic in own)

    def kill(self):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self.said = self.text()
        self.output.close()


class GuestSide:
    """A program on the kernel's stack in the guest. A question to the guest takes milliseconds of
    its emulated processor, so an ended program is not asked again."""
    pause = 0.2  # seconds between two looks at it

    def __init__(self, rig, row, command):
        self.guest, self.row, self.name, self.command = (rig.guest, row, command[0],
                                                         ' '.join(command))
        self.ended = self.said = None
        clock = f'LD_PRELOAD=/bin/{os.path.basename(rig.clock)} '
        self.guest.start((clock if row.program.startswith(CLOCKED) else '') + self.command)

    def status(self):
        if self.ended is None:
            self.ended = self.guest.status()
        return self.ended

    def text(self):
        if self.status() is None:
            return self.guest.text()
        if self.said is None:
            self.said = self.guest.text()
        return self.said

    def listens(self, port):
        if self.row.program == 'mckey':  # joins a group; the kernel reports this to the network
            return self.guest.run(
                f'grep -qi {socket.inet_aton(GROUP)[::-1].hex()} /proc/net/igmp')[0] == 0
        if self.row.cm:
            return self.guest.run("rdma resource show cm_id | grep -q LISTEN")[0] == 0
        return self.guest.listens(port)

    def kill(self):
        if self.status() is None:
            self.guest.kill(self.name)


class Wire:
    """Captures all RoCE packets on the link."""

    def __init__(self, tap, file):
        self.file = file
        self.process = subprocess.Popen(
            [tool('tcpdump'), '-q', '--immediate-mode', '-U', '-B', '16384', '-s', '0', '-Z',
             'root', '-i', tap.name, '-w', file, 'udp port 4791'], stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.process.stderr.readline()  # "listening on": tcpdump captures from now on

    def stop(self):
        self.process.send_signal(signal.SIGINT)
        self.process.communicate()


class Rig(Pair):
    def __init__(self, build, kernel):
        self.roost = os.path.join(build, 'roost')
        self.clock = os.path.join(build, 'tests', 'stock', 'fast-clock.so')
        folder = os.path.join(build, 'interop')
        if kernel != image.KERNEL:
            folder = os.path.join(folder, 'kernel-' + kernel)
        self.failed = os.path.join(folder, 'failed')
        self.scratch = os.path.join(folder, 'row')
        self.link_mtu = ROWS[0].link_mtu
        self.netem = ''
        super().__init__(self.link_mtu)
        with self.starting():
            for d in (self.failed, self.scratch):
                shutil.rmtree(d, ignore_errors=True)
                os.makedirs(d)
            tool('tcpdump')
            self.tests = os.path.join(build, 'tests')
            made = image.build(folder, sorted({self.host_program(row.program) for row in ROWS}
                                              | {os.path.join(self.tests, test)
                                                 for test in GROUP_TESTS}
                                              | {self.roost, self.clock}),
                               kernel)
            self.guest = guest.Guest(folder, made, self.tap, self.link_mtu)
            self.release = self.guest.wait_ready()
            # The Linux kernel drops all but a few datagrams that are sent before the neighbour has
            # answered, so the neighbour is asked now. The kernel asks again later, and a guest on a
            # busy machine may not answer within three seconds; then it would drop them once more.
            # The echo request is lost, too, if the neighbour has not answered within three seconds.
            for address in self.tap.ours.values():
                for _ in range(PINGS):
                    status, text = self.guest.run(f'ping -c 1 -W 10 {address}')
                    if not status:
                        break
                else:
                    raise RuntimeError(f'{address} does not answer the guest: {text}')
            self.tap.keep_neighbours()
            self.gids = {4: self.gid(self.tap.theirs[4]), 6: self.gid(self.tap.theirs[6])}

    def host_program(self, program):
        """A row's program on this machine: ours is in the build folder, others where the PATH finds
        them."""
        return os.path.join(os.path.dirname(self.roost), 'tests', 'interop',
                            'pair') if program == 'pair' else program

    def gid(self, address):
        """Returns the index of the guest's GID for an address."""
        raw = socket.inet_pton(socket.AF_INET6,
                               address if ':' in address else '::ffff:' + address).hex()
        wanted = ':'.join(raw[i:i + 4] for i in range(0, 32, 4))
        text = self.guest.run('grep -l ' + wanted + ' /sys/class/infiniband/rxe0/ports/1/gids/*')[1]
        return int(os.path.basename(text.split()[0]))

    def prepare(self, row):
        if row.link_mtu != self.link_mtu:
            self.tap.set_mtu(row.link_mtu)
            self.guest.run(f'ip link set eth0 mtu {row.link_mtu}')
            self.link_mtu = row.link_mtu
        if row.netem != self.netem:
            if self.netem:
                self.guest.run('tc qdisc del dev eth0 root')
            if row.netem:
                status, text = self.guest.run(f'tc qdisc add dev eth0 root netem {row.netem}')
                if status:
                    raise RuntimeError(f'netem: {text}')
            self.netem = row.netem
        self.guest.run('dmesg -c >/dev/null')

    def commands(self, row):
        """Returns {end: its command}."""
        port = ports.free_tcp_port()
        commands = {}
        if row.cm:
            addresses = {HOST: self.tap.ours[row.family], GUEST: self.tap.theirs[row.family]}
            for end in (HOST, GUEST):
                words = row.arguments if end == row.server else row.client
                fill = {'S': addresses[row.server], 'C': addresses[end], 'P': port, 'G': GROUP}
                commands[end] = [row.program, *words.format(**fill).split()]
            return port, commands
        for end, device, gid in ((HOST, OURS, 0), (GUEST, THEIRS, self.gids[row.family])):
            command = [row.program, '-d', device, '-x', str(gid), '-p', str(port)]
            command += ['-F'] if row.program != 'pair' else []
            command += row.arguments.split()
            if end != row.server:
                command.append((self.tap.ours if row.server == HOST else self.tap.theirs)[4])
            commands[end] = command
        commands[HOST][0] = self.host_program(row.program)
        return port, commands

    def run(self, row):
        """Runs a row. Returns the problems (a list), the output, and the reason to run it again or
        None. A row about damage runs until a packet was damaged, since netem takes no seed."""
        for _ in range(DAMAGE_TRIES):
            trouble, text, damaged = self.run_once(row)
            if trouble or damaged or not row.damages:
                return trouble, text, repeat.why(trouble, text, self.packets,
                                                 self.tap.theirs[row.family])
        return ['our capture: nothing was damaged'], text, None

    def run_once(self, row):
        self.prepare(row)
        ours, wire_file = os.path.join(self.scratch, 'ours.pcap'), self.wire_file()
        port, commands = self.commands(row)
        start = {HOST: lambda: HostSide(self, row, commands[HOST], ours),
                 GUEST: lambda: GuestSide(self, row, commands[GUEST])}
        client_end = GUEST if row.server == HOST else HOST
        wire = Wire(self.tap, wire_file)
        server = client = other = None
        until = time.monotonic() + ROW_LIMIT
        try:
            other = self.start_other(row, until) if row.beside else None
            server = start[row.server]()
            while not server.listens(port) and server.status() is None and time.monotonic() < until:
                time.sleep(server.pause)
            client = start[client_end]()
            if row.killed:
                trouble = self.kill_server(row, wire, server, client, until)
            else:
                trouble = self.verdict(row, server, client, until)
            said = self.guest.run('dmesg')[1]
            trouble += [f'guest: {line}' for line in said.splitlines() if 'ICRC' in line
                        or 'BUG' in line or 'Call Trace' in line]
            text = ''.join(f'--- {what}: {side.command}\n{side.text()}'
                           for what, side in (('server', server), ('client', client)))
            text += f'--- dmesg of the guest\n{said}'
        finally:
            for side in (client, server, other):
                if side:
                    side.kill()
            wire.stop()
        found, damaged = self.judge(row, ours, wire_file)
        trouble += found
        for f in ('host.txt', 'output.txt'):
            with open(os.path.join(self.scratch, f), 'w', encoding='utf-8') as out:
                out.write(text)
        return trouble, text, damaged

    def start_other(self, row, until):
        """Starts a program that has the address of the row's program on this machine, and waits for
        connections to another port."""
        command = ['rping', '-s', '-a', self.tap.ours[row.family], '-p', str(ports.free_tcp_port())]
        other = HostSide(self, row, command, os.path.join(self.scratch, 'other.pcap'), 'other.txt')
        while not other.listens_by_cm():
            if other.status() is not None or time.monotonic() > until:
                raise RuntimeError(f'the other program does not listen: {other.text()}')
            time.sleep(0.05)
        return other

    @staticmethod
    def wait(side, until):
        while side.status() is None:
            if time.monotonic() > until:
                return 'does not end'
            time.sleep(side.pause)
        return None

    def verdict(self, row, server, client, until):
        if row.refused:
            return self.refusal(row, client, until)
        trouble = []
        for what, side in (('client', client), ('server', server)):
            # The server of a client that failed would wait forever.
            late = self.wait(side, time.monotonic() + 1 if trouble else until)
            if late:
                trouble.append(f'{what} {late}')
                continue
            if side.status():
                trouble.append(f'{what}: exit status {side.status()}')
            trouble += [f'{what} says: {line.strip()}' for line in side.text().splitlines()
                        if COMPLAINTS.search(line) and not HARMLESS.search(line)]
        if not trouble and row.wanted and not re.search(row.wanted, client.text()):
            trouble.append(f'client does not say {row.wanted}')
        if not trouble and row.program.startswith('ib_') and not RESULT.search(client.text()):
            trouble.append('client: no result line')
        return trouble

    def refusal(self, row, client, until):
        late = self.wait(client, until)
        if late:
            return [f'client {late}']
        if not client.status() or not re.search(row.wanted, client.text()):
            return [f'client: exit status {client.status()}, and it was to be refused']
        return []

    def kill_server(self, row, wire, server, client, until):
        while os.path.getsize(wire.file) < KILL_AFTER:
            if time.monotonic() > until or client.status() is not None:
                return ['no transfer to interrupt']
            time.sleep(0.05)
        server.kill()
        late = self.wait(client, until)
        if late:
            return [f'client {late}']
        # The Linux kernel disconnects for a killed program. A peer that is connected by rdma_cm is
        # then notified of the end, and may succeed.
        if row.cm and 'DISCONNECT' in client.text():
            return []
        if not client.status() or not re.search(row.wanted or 'completion with error|failed status',
                                                client.text(), re.I):
            return [f'client: exit status {client.status()}, and no word of an error: its peer was '
                    f'killed']
        return []

    def judge(self, row, ours, wire):
        trouble = []
        disorder = ['--disorder'] if row.disorders else []
        found = self.pcap('--local', self.tap.ours[row.family], *disorder, ours)
        oracles = found.get('oracles', {})
        counts = oracles.get('counts', {})
        if not found.get('packets') or oracles.get('violations') != 0:
            trouble.append(
                f"our capture: {found.get('packets')} packets; {oracles.get('findings') or found}")
        elif not found['ok'] and not row.damages and not (row.killed and row.server == HOST
                                                          and found['right'] == found['packets']):
            # A program that is killed may be writing its capture, which then ends within a packet.
            trouble.append(
                f"our capture: {found['bad_icrc']} packets with a bad ICRC, {found['refused']} "
                f"refused")
        trouble += [f'our capture: {counts.get(key)} {key}, not {least} or more'
                    for key, least in row.counts.items() if counts.get(key, 0) < least]
        # A lost ACK does not show when a later one covers it; a lost request or answer does. A few
        # pings may lose nothing.
        shows = row.server == GUEST or 'read' in row.program or 'atomic' in row.program
        if 'loss' in row.port and shows and not row.cm and not any(
                counts.get(key) for key in ('retransmitted', 'gaps', 'duplicates', 'reads_again')):
            trouble.append('our capture: nothing was lost')
        # If the guest's packets are damaged, their right contents are unknown.
        link = {'ok': True} if row.damages else self.pcap('--no-oracles', wire)
        if not link.get('ok'):
            trouble.append(f'the link: {link}')
        return trouble, not found.get('ok')

    def pcap(self, *words):
        """Returns the output of roost pcap for a file."""
        done = subprocess.run([self.roost, 'pcap', '--json', *words], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, check=False)
        try:
            return json.loads(done.stdout.splitlines()[-1])
        except (ValueError, IndexError):
            return {'ok': False, 'said': done.stdout[-300:]}

    def wire_file(self):
        return os.path.join(self.scratch, 'wire.pcap')

    def packets(self):
        """Returns the packets on the link in the last row, a line for each."""
        done = subprocess.run([self.roost, 'pcap', '--no-oracles', self.wire_file()],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              check=False)
        return done.stdout.splitlines()

    def run_in_guest(self, test):
        """Runs a test of the build in the guest. Returns the problems (a list), and the output."""
        if test == RXE_HAS_PORT:
            status, text = self.guest.run(f'roost devices --port udp:{self.tap.theirs[4]}')
            told = status == 1 and text.count('\n') == 1 and 'the rdma_rxe module' in text
            return [] if told else [f'exit status {status}, and no line about rdma_rxe'], text
        status, text = self.guest.run(os.path.basename(test), GUEST_LIMIT)
        return [f'exit status {status}'] if status else [], text

    def keep(self, row):
        shutil.copytree(self.scratch, os.path.join(self.failed, re.sub(r'\W+', '-', str(row))))


def main():
    parser = argparse.ArgumentParser(
        description='Roost against the Linux kernel\'s RoCE v2 in a virtual machine.')
    parser.add_argument('--build', default=os.path.join(TOP, 'build'), metavar='DIR',
                        help='where Roost is built; default: build')
    parser.add_argument(
        '--only', default='', metavar='TEXT',
        help='rows whose name and direction hold TEXT, or one of several between bars')
    parser.add_argument(
        '--kernel', default=image.KERNEL, metavar='PACKAGE',
        help=f'the kernel of the guest, as a package of Debian; default: {image.KERNEL}')
    parser.add_argument('--list', action='store_true', help='name the rows')
    options = parser.parse_args()
    rows = [row for row in ROWS if any(text in str(row) for text in options.only.split('|'))]
    tests = [test for test in (*GROUP_TESTS, RXE_HAS_PORT)
             if any(text in test for text in options.only.split('|'))]
    if options.list:
        print('\n'.join([*(str(row) for row in rows), *tests]))
        return
    if not rows and not tests:
        sys.exit(f'no row holds "{options.only}": see --list')
    # a signal leaves no machine and no tap behind
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    begin = time.monotonic()
    try:
        rig = Rig(os.path.abspath(options.build), options.kernel)
    except Missing as e:
        skip(f"nothing was tried against the kernel's stack: {e}")
    print(f'the guest runs {rig.release}, up after {time.monotonic() - begin:.0f} s', flush=True)
    bad, repeated = [], 0
    try:
        for row in rows:
            start = time.monotonic()
            trouble, text, again = repeat.run_again(lambda: rig.run(row))
            repeated += bool(again)
            note = ''.join(f'  (run again: {reason})' for reason in again)
            print(f"{row.name:32} {row.direction}  {'FAILED' if trouble else 'ok    '} "
                  f"{time.monotonic() - start:6.1f} s{note}", flush=True)
            if trouble:
                bad.append(row)
                print(''.join(f'  {t}\n' for t in trouble) + text, flush=True)
                rig.keep(row)
        for test in tests:
            start = time.monotonic()
            trouble, text = rig.run_in_guest(test)
            print(f"{test:32} in the guest   {'FAILED' if trouble else 'ok    '} "
                  f"{time.monotonic() - start:6.1f} s", flush=True)
            if trouble:
                bad.append(test)
                print(''.join(f'  {t}\n' for t in trouble) + text, flush=True)
    finally:
        rig.close()
    for row in bad:
        print(f'FAILED: {row}')
    if bad:
        print(f'captures: {rig.failed}; console of the guest: {rig.guest.console}')
    ran = len(rows) + len(tests)
    print(f'{ran - len(bad)} of {ran} rows passed in {time.monotonic() - begin:.0f} s, '
          f'{repeated} run again')
    sys.exit(1 if bad else 0)


main()
