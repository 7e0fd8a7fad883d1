#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Attacks on the two ends of a connection from a third host on their network, over IPv4 and IPv6.
Each of the three has a network namespace, and a bridge connects them.

usage: test_network.py ROOST ATTACKER STEADY [--only TEXT] [--seed N] [--family 4|6] [--list]

The attacker sends with any source address, as root can on that network. In some attacks it also
sees the packets of the two ends. During an attack an earlier connection must make progress, each
byte of a checked transfer must be right, and a node must answer calls of its kernels, each on a new
connection. An attack takes ROOST_ATTACK_SECONDS (2). The exit status is 77 if there can be no
namespaces (no root), or 1 with ROOST_INTEROP=required.
"""
import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'common'))
import namespaces  # noqa: E402
from namespaces import PATH, Missing, ip  # noqa: E402
from output import read_output  # noqa: E402
from skip import skip  # noqa: E402
from stop import stop  # noqa: E402

LIMIT = 90  # seconds until a program under attack must be done
SECONDS = float(os.environ.get('ROOST_ATTACK_SECONDS', '2'))
MTU = 9000  # for path MTU 4096, so that an ICMP error with a smaller MTU would change something
PERF, STEADY, NODE, OTHER = range(4)  # pairs of addresses, each for one process of an end
SERVICE = '7471'
LEFT, RIGHT, ATTACKER = range(3)
MEMORY_MIB = 64  # limit of the growth of a node

# Attacks that stand() runs. The others have functions of their own below.
ATTACKS = ['cm', 'requests', 'data', 'replay', 'icmp-guessed', 'icmp-mtu', 'icmp-seen',
           'icmp-flood', 'garbage']


def address(family, side, pair):
    if family == 4:
        return f'10.99.0.{(1, 101, 66)[side] + pair}'
    return f'fd99::{side + 1}:{pair + 1}'


class Failed(Exception):
    """An attack had an effect."""


class Network:
    """Four namespaces: a bridge, and left, right and attacker, which it connects."""

    def __init__(self):
        if os.geteuid() != 0:
            raise Missing('not root: network namespaces take CAP_SYS_ADMIN')
        if not shutil.which('ip', path=PATH):
            raise Missing('no program ip')
        self.names = [f'roost{side}{os.getpid()}' for side in ('left', 'right', 'attack', 'switch')]
        switch = self.names[3]
        try:
            for name in self.names:
                ip('netns', 'add', name)
                ip('-n', name, 'link', 'set', 'lo', 'up')
            ip('-n', switch, 'link', 'add', 'br0', 'mtu', str(MTU), 'type', 'bridge')
            ip('-n', switch, 'link', 'set', 'br0', 'up')
            for side, name in enumerate(self.names[:3]):
                ip('link', 'add', 'v0', 'netns', name, 'mtu', str(MTU), 'address',
                   f'02:00:00:00:00:0{side + 1}', 'type', 'veth', 'peer', 'name', f'p{side}',
                   'netns', switch, 'mtu', str(MTU))
                ip('-n', switch, 'link', 'set', f'p{side}', 'master', 'br0', 'up')
                for pair in range(4 if side != ATTACKER else 1):
                    ip('-n', name, 'addr', 'add', address(4, side, pair) + '/24', 'dev', 'v0')
                    ip('-n', name, 'addr', 'add', address(6, side, pair) + '/64', 'dev', 'v0',
                       'nodad')
                ip('-n', name, 'link', 'set', 'v0', 'up')
        except BaseException:
            self.remove()
            raise

    def remove(self):
        namespaces.remove(self.names)


class Inside:
    """A program in a namespace. Its output goes to a file."""
    running = []

    def __init__(self, network, side, command, **env):
        self.command = ' '.join(command)
        self.output = tempfile.TemporaryFile(mode='w+')
        self.process = subprocess.Popen(['ip', 'netns', 'exec', network.names[side], *command],
                                        stdin=subprocess.DEVNULL, stdout=self.output,
                                        stderr=subprocess.STDOUT,
                                        env=dict(os.environ, PATH=PATH, **env))
        Inside.running.append(self)

    def text(self):
        return read_output(self.output)

    def ended(self):
        return self.process.poll() is not None

    def until(self, words):
        """Waits until the output contains these words."""
        end = time.monotonic() + LIMIT
        while words not in self.text():
            if self.ended() or time.monotonic() > end:
                raise Failed(f'{self.command} does not print {words!r}: {self.text()[-600:]}')
            time.sleep(0.02)
        return self

    def status(self):
        """Waits for the exit status; raises Failed after LIMIT."""
        try:
            return self.process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            raise Failed(
                f'{self.command} still runs after {LIMIT} s: {self.text()[-600:]}') from None

    def succeed(self):
        status = self.status()
        if status:
            raise Failed(f'{self.command}: exit status {status}: {self.text()[-600:]}')
        said = self.text()
        self.close()
        return said

    def close(self):
        if not self.ended():
            self.process.kill()
            self.process.wait()
        self.output.close()
        Inside.running.remove(self)

    def rounds(self):
        """The number of rounds that a steady connection has completed."""
        said = re.findall(r'rounds (\d+)', self.text())
        return int(said[-1]) if said else 0

    def mib(self):
        with open(f'/proc/{self.process.pid}/statm', encoding='ascii') as f:
            return int(f.read().split()[1]) * os.sysconf('SC_PAGE_SIZE') >> 20


class Ends:
    """The programs of both ends, with addresses of one family."""

    def __init__(self, network, options, family, folder):
        self.network, self.options, self.family, self.folder = network, options, family, folder
        self.captures = []
        self.shm = [os.path.join(folder, f'{family}-{side}') for side in (LEFT, RIGHT)]
        for path in self.shm:
            os.mkdir(path, 0o700)
        self.remember()
        self.node = self.roost(LEFT, 'node', '--port', self.port(LEFT, NODE), '--fill', '1000',
                               '-v').until('service 4792')
        self.server = self.steady_server(STEADY)
        self.client = self.steady_client(STEADY, 10**6).until('rounds')

    def address(self, side, pair):
        return address(self.family, side, pair)

    def port(self, side, pair, more=''):
        return f'udp:{self.address(side, pair)}{more}'

    def roost(self, side, *words):
        return Inside(self.network, side, [self.options.roost, *words],
                      ROOST_SHM_DIR=self.shm[side])

    def steady(self, side, pair, more, *words):
        return Inside(self.network, side, [self.options.steady, *words],
                      ROOST_PORT=self.port(side, pair, more), ROOST_SHM_DIR=self.shm[side])

    def steady_server(self, pair, more=''):
        return self.steady(LEFT, pair, more, 'server', self.address(LEFT, pair),
                           SERVICE).until('listens')

    def steady_client(self, pair, seconds, more=''):
        return self.steady(RIGHT, pair, more, 'client', self.address(LEFT, pair), SERVICE,
                           str(seconds))

    def transfer(self, more='', *sizes):
        """Starts a transfer whose bytes are all checked. Returns server and client."""
        server = self.roost(LEFT, 'perf', '--server', '--port', self.port(LEFT, PERF, more),
                            '--bind', self.address(LEFT, PERF)).until('waiting')
        kind = ['write', 'send', 'read', 'atomic'][len(self.captures) % 4]
        return server, self.roost(RIGHT, 'perf', kind, '--check', '--iters', '1', '--connect',
                                  self.address(LEFT, PERF), '--port', self.port(RIGHT, PERF, more),
                                  '--timeout-scale', '1', *sizes)

    def call(self, more=''):
        return self.roost(RIGHT, 'call', '--timeout', '60', '--port', self.port(RIGHT, NODE, more),
                          self.address(LEFT, NODE), 'get', '17')

    def call_is_answered(self, may_fail=False):
        """Makes a call and waits for its answer. It may fail if the attacker sees the packets: the
        attacker can then answer the REQ with an ICMP error in the network's name."""
        call = self.call()
        if not may_fail:
            call.succeed()
        elif call.status() and 'no node listens there' not in call.text():
            raise Failed(f'{call.command}: {call.text()[-600:]}')
        else:
            call.close()
        return 1

    def remember(self):
        """Makes connections between the addresses of the ends, and captures them. The attacker
        replays this capture."""
        name = os.path.join(self.folder, f'{self.family}-%d.pcap')
        def option(n):
            return f',pcap={name % n}'
        server, client = self.transfer(option(0).replace('0.pcap', '%p.pcap'), '--sizes', '64,5000')
        client.succeed()
        server.close()
        server = self.steady_server(STEADY)
        self.steady_client(STEADY, 0.3, option(1)).succeed()
        server.close()
        with open(name % 0, 'wb') as out:
            for i, path in enumerate(sorted(os.path.join(self.folder, f) for f in os.listdir(
                    self.folder) if f.startswith(f'{self.family}-') and f.endswith('.pcap')
                                            and f != os.path.basename(name % 0))):
                with open(path, 'rb') as f:
                    out.write(f.read()[24 if i else 0:])
        self.capture = name % 0

    def attack(self, name, seconds, seed):
        sees = name in ('icmp-seen', 'request-misquoted', 'request-quoted', 'stale', 'rej-seen')
        lists = [','.join(self.address(side, pair) for pair in range(4)) for side in (LEFT, RIGHT)]
        side = LEFT if name in ('stale', 'rej-seen') else RIGHT
        seen = ([f'/run/netns/{self.network.names[side]}'] if sees
                else [self.capture] if name == 'replay' else [])
        return Inside(self.network, ATTACKER,
                      [self.options.attacker, name, str(seed), str(seconds),
                       address(self.family, ATTACKER, 0), *lists, *seen]).until('ready')

    def close(self):
        for side in (self.client, self.server, self.node):
            side.close()


def attacked(attacker):
    """Checks that the attacker has ended without an error and has sent frames."""
    said = attacker.succeed()
    if not re.search(r'^[1-9]\d* frames', said, re.M):
        raise Failed(f'the attacker sent nothing: {said}')


def stand(ends, name, seed):
    """Attacks the two ends, and checks that transfers, calls and the connection succeed meanwhile,
    and that the node does not grow."""
    before, mib = ends.client.rounds(), ends.node.mib()
    attacker = ends.attack(name, SECONDS, seed)
    began = ends.client.rounds()
    transfers = calls = 0
    while transfers == 0 or not attacker.ended():
        server, client = ends.transfer()
        while not client.ended() or calls == 0:
            calls += ends.call_is_answered(may_fail=name == 'icmp-seen')
        client.succeed()
        server.close()
        transfers += 1
    attacked(attacker)
    after, end = ends.client.rounds(), time.monotonic() + LIMIT
    while ends.client.rounds() < max(after, began) + 10:
        if ends.client.ended() or time.monotonic() > end:
            raise Failed(f'the connection hangs: {ends.client.text()[-300:]}')
        time.sleep(0.05)
    if ends.node.mib() > mib + MEMORY_MIB and not ends.options.sanitized:
        raise Failed(f'the node grew from {mib} to {ends.node.mib()} MiB')
    return f'{transfers} transfers, {calls} calls, {after - before} rounds'


def stand_seen(ends, name, seed):
    """Attacks a connection whose messages the attacker sees. It must not end.

    stale: REQs in the name of the client, for the same queue pair, as if the client had restarted.
    rej-seen: REJs that name the id of their receiver, and 0 or a wrong id of the sender.
    """
    server = ends.steady_server(OTHER)
    attacker = ends.attack(name, SECONDS + 2, seed)
    ends.steady_client(OTHER, SECONDS).succeed()
    attacked(attacker)
    server.close()
    return 'one connection'


def stand_quoted(ends, seed, right):
    """ICMP errors about a REQ that waits for its answer. An error with another transaction id does
    not end the connection attempt; an error that quotes the REQ ends it at once."""
    server = ends.steady_server(OTHER)
    attacker = ends.attack('request-quoted' if right else 'request-misquoted', SECONDS, seed)
    stop(server.process.pid)
    try:
        client = ends.steady_client(OTHER, 0.5).until('asks')
        if right:
            if client.status() != 3 or 'rejected: 8' not in client.text():
                raise Failed(f'the client does not report the error: {client.text()[-300:]}')
            client.close()
        attacked(attacker)
    finally:
        server.process.send_signal(signal.SIGCONT)
    if not right:
        client.succeed()
    server.close()
    return 'rejected' if right else 'one connection'


def chosen(options):
    found = [(name, lambda ends, seed, name=name: stand(ends, name, seed)) for name in ATTACKS]
    found += [(name, lambda ends, seed, name=name: stand_seen(ends, name, seed))
              for name in ('stale', 'rej-seen')]
    found += [('request-misquoted', lambda ends, seed: stand_quoted(ends, seed, False)),
              ('request-quoted', lambda ends, seed: stand_quoted(ends, seed, True))]
    return [(name, run) for name, run in found if options.only in name]


def attack_all(network, options, folder, families):
    failed = 0
    for family in families:
        ends = None
        for name, run in chosen(options):
            start, seed = time.monotonic(), options.seed
            try:
                if not ends:
                    ends = Ends(network, options, family, tempfile.mkdtemp(dir=folder))
                said, problem = run(ends, seed), None
            except Failed as e:
                said, problem = '', e
            print(f"{'FAILED' if problem else 'ok    '} IPv{family} {name:18} seed {seed} "
                  f"{time.monotonic() - start:6.1f} s  {said}", flush=True)
            if problem:
                failed += 1
                print(f'  {problem}')
                for side in list(Inside.running):
                    side.close()
                ends = None
        if ends:
            ends.close()
    return failed


def main():
    parser = argparse.ArgumentParser(description='Attacks from a third host on the network.')
    for name in ('roost', 'attacker', 'steady'):
        parser.add_argument(name, type=os.path.abspath)
    parser.add_argument('--only', default='', metavar='TEXT', help='attacks with TEXT in the name')
    parser.add_argument('--family', type=int, choices=(4, 6), help='one family (default: both)')
    parser.add_argument('--seed', type=int, default=int(os.environ.get('ROOST_ATTACK_SEED', '1')))
    parser.add_argument('--sanitized', action='store_true',
                        help='do not check memory (sanitizers keep it)')
    parser.add_argument('--list', action='store_true', help='name the attacks')
    options = parser.parse_args()
    if options.list:
        print('\n'.join(name for name, _ in chosen(options)))
        return
    # a signal leaves no namespace behind
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        network = Network()
    except Missing as e:
        skip(f'nobody was attacked over a network: {e}')
    try:
        with tempfile.TemporaryDirectory() as folder:
            failed = attack_all(network, options, folder,
                                [options.family] if options.family else [4, 6])
    finally:
        for side in list(Inside.running):
            side.close()
        network.remove()
    print(f'{failed} attacks had an effect' if failed else 'no attack had an effect')
    sys.exit(1 if failed else 0)


main()
