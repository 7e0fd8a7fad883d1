#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Runs stock programs, and nodes, between two network namespaces that a cable connects, as between
two containers or machines.

usage: run.py --roost PROGRAM [--only TEXT] [--list]

No option names an address of the NIC: each side finds that of its namespace, or binds the address
of its arguments. The programs run without capabilities. The script prints a line for each row, and
the output of a failed one. The exit status is 0 if all rows passed, and 77 if this machine allows
no namespaces (no root); with ROOST_INTEROP=required in the environment it is then 1.
"""
import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

for room in ('common', 'stock'):
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', room))
from namespaces import PATH, Missing  # noqa: E402
from networks import ADDRESSES, NO_RIGHTS, Networks  # noqa: E402
from programs import (RUN_LIMIT, Side, free_tcp_port, listens, lacks, outcome,  # noqa: E402
                      program_of, skip)
from run import result_missing  # noqa: E402
from versions import ucx_perftest  # noqa: E402


def row(name, server, client, meet='cm', family=4, wanted='', killed=False, space=1):
    """A pair of programs. {S} is the server's address, {P} a port. They connect by rdma_cm or TCP.
    `killed`: the server is killed, and the client must end. `space`: the client's namespace; the
    server's is 0."""
    return {'name': name, 'server': server, 'client': client, 'meet': meet, 'family': family,
            'wanted': wanted, 'killed': killed, 'space': space}


# ofi_rxm looks at its event queue if 10 ms have passed since the last time, as after the loss of
# its core. If the peer has disconnected meanwhile, it gives up completions that it has not polled.
RXM = 'FI_OFI_RXM_CM_PROGRESS_INTERVAL=300000'


def rows():
    done = 'data transfers complete'
    found = [
        row('rping', 'rping -s -p {P} -C 10', 'rping -c -a {S} -p {P} -C 10'),
        row('rping 20 KB', 'rping -s -p {P} -C 10 -V -S 20000',
            'rping -c -a {S} -p {P} -C 10 -V -S 20000'),
        row('rping IPv6', 'rping -s -a {S} -p {P} -C 10 -V', 'rping -c -a {S} -p {P} -C 10 -V',
            family=6),
        row('rping IPv6, to all', 'rping -s -a :: -p {P} -C 10', 'rping -c -a {S} -p {P} -C 10',
            family=6),
        row('rping killed', 'rping -s -p {P}', 'rping -c -a {S} -p {P}', killed=True,
            wanted='failed status|DISCONNECT'),
        row('ucmatose', 'ucmatose -p {P} -c 10', 'ucmatose -p {P} -c 10 -s {S}', wanted=done),
        row('udaddy', 'udaddy', 'udaddy -s {S}', wanted=done),
    ]
    for program, more in (('ib_write_bw', ''), ('ib_read_bw', '-m 1024'), ('ib_send_lat', '-e')):
        words = f'{program} -F -p {{P}} -n 200 {more}'
        found.append(row(f'{program}', words, words + ' {S}', meet='tcp'))
        found.append(row(f'{program} -R', words + ' -R', words + ' -R {S}'))
    for name, words in (('msg', '-p verbs -e msg'), ('dgram', '-p verbs -e dgram'),
                        ('ofi_rxm', '-p verbs;ofi_rxm -e rdm'),
                        ('ofi_rxd', '-p verbs;ofi_rxd -e rdm -S 65536')):
        words = f'fi_pingpong {words} -c -I 20'
        if name == 'ofi_rxm':
            words = f'env {RXM} {words}'
        found += [row(f'fi_pingpong {name}, {where}', words + ' -B {P}', words + ' -P {P} {S}',
                      meet='tcp', wanted=r'(?m)^(1k|64k)\s', space=space)
                  for where, space in (('one machine', 0), ('two machines', 1))]
    # Two programs of one machine, whose MTU is larger than that of the interface.
    for name, server, client, meet in (
            ('ib_read_bw -R', 'ib_read_bw -R', '', 'cm'),
            ('ib_send_bw UC', 'ib_send_bw -c UC', '', 'tcp'),
            ('ib_read_bw, one side -m 512', 'ib_read_bw -m 512', 'ib_read_bw', 'tcp'),
            ('ib_read_bw, one side udp', 'ib_read_bw', 'roost run --port udp -- ib_read_bw',
             'tcp')):
        words = '{} -F -p {{P}} -n 200'
        found.append(row(f'{name}, one machine', words.format(server),
                         words.format(client or server) + ' {S}', meet=meet, space=0))
    words = f'env UCX_TLS=rc UCX_NET_DEVICES=roost0:1 UCX_WARN_UNUSED_ENV_VARS=n {ucx_perftest()}'
    found.append(
        row('ucx_perftest', words + ' -p {P}', words + ' {S} -p {P} -t tag_bw -s 65536 -n 500',
            meet='tcp', wanted=r'(?m)^Final:\s+500'))
    return found


def refused_rows():
    """A client without a NIC at the other end. An ICMP error must end its request with reason 8, as
    the kernel's rdma_cm does."""
    return [{'name': f'rping, no NIC, IPv{family}', 'family': family,
             'refused': 'rping -c -a {S} -p 4711 -C 1'} for family in (4, 6)]


def node_rows():
    """A node in one namespace, and commands in the other with the output that they must have. {K}
    is a kernel that was built for this test."""
    look = [('roost call {S} get 17', 'status +ok\nvalue +value of 17\n'),
            ('roost call {S} get 1001', 'not found')]
    change = [('roost call {S} 0x1000 --params {Z}', 'no such kernel'),
              ('roost kernel load {S} {K}', '^$'),
              ('roost call {S} 0x1000 --params {Z}', 'status +ok'),
              ('roost kernel list {S}', '\nsum +0x1000 +1 +loaded'),
              ('roost kernel replace {S} {K}', '^$'), ('roost kernel unload {S} sum', '^$'),
              ('roost call {S} 0x1000 --params {Z}', 'no such kernel')]
    # The default port: shared memory to programs of the node's own namespace, unless they ask for
    # udp.
    ways = [{'name': f'the way to a node: {name}', 'family': family, 'side': side,
             'steps': [(f'roost call {{S}} get 17{more}', 'value of 17')], 'by_shm': by_shm,
             'options': '--port host:{S}' if family == 6 else ''}
            for name, family, side, more, by_shm
            in (('its namespace', 4, 0, '', True),
                ('its namespace, IPv6', 6, 0, ' --port host:{S}', True),
                ('its namespace, udp', 4, 0, ' --port udp', False),
                ('another namespace', 4, 1, '', False))]
    return ways + [{'name': 'roost node', 'family': 4, 'steps': look},
                   {'name': 'roost node IPv6', 'family': 6, 'options': '--port udp:{S}',
                    'steps': look}, {'name': 'roost kernel', 'family': 4, 'steps': change}]


def shared_rows():
    """Several programs behind one address. Each step starts NAME in namespace 0 or 1, and waits
    until it listens (start), is connected (begin), or has ended in success (end) or failure (fail).
    Other steps wait for the end of a connected program, kill a program, or check the path or the
    length of its packets."""
    served = r'ping data: rdma-ping-9'
    # README.md's two commands, which name no port.
    terminals = [{'name': f'two terminals, {where}', 'family': 4, 'shared': [
        ('start', 'server', 0, 'ib_write_bw -F -p {P} -D 300', 'tcp'),
        ('begin', 'client', space, f'ib_write_bw -F -p {{P}} -D 300 {address}', 'rcvd_pkts'),
        ('way', 'server', by_shm), ('way', 'client', by_shm),
        # The interfaces have 1500 bytes.
        ('length', 'client', 4096 if by_shm else 1024),
    ]} for where, space, address, by_shm
                 in (('one machine', 0, '127.0.0.1', True), ('two machines', 1, '{S}', False))]
    # The first program, which disconnects the peer, has only the IPv4 address.
    told = r'\A(?![\s\S]*cq completion failed)[\s\S]*DISCONNECT'
    return (terminals + [{'name': f'one address, IPv{family}', 'family': family, 'shared': [
        # A program that is busy with other peers, and a server behind the same address.
        ('start', 'first', 0, 'ib_write_bw -F -p {P} -n 200', 'tcp'),
        ('start', 'second', 0, 'rping -s -a {S} -P -p {P1}', 'cm'),
        # Another machine, and a third program behind the same address.
        ('end', 'outside', 1, 'rping -c -a {S} -p {P1} -C 10 -v', served),
        ('end', 'third', 0, 'rping -c -a {S} -p {P1} -C 10 -v', served),
        # Its port is taken; a request for another port is refused.
        ('fail', 'late', 0, 'rping -s -a {S} -p {P1}', 'rdma_listen: Address already in use'),
        ('fail', 'astray', 1, 'rping -c -a {S} -p 9 -C 1', 'RDMA_CM_EVENT_REJECTED, error 8'),
        # The successor of a killed server gets its slot and service, and the peer of the killed one
        # is notified of its end. Without a survivor that has the address, rping first notices that
        # no answer comes.
        ('begin', 'connected', 1, 'rping -c -a {S} -p {P1}', 'rcvd_pkts'),
        ('kill', 'second'),
        ('wait', 'connected', told if family == 4 else 'cq completion failed|DISCONNECT'),
        ('start', 'successor', 0, 'rping -s -a {S} -P -p {P1}', 'cm'),
        ('end', 'outside again', 1, 'rping -c -a {S} -p {P1} -C 10 -v', served),
        ('end', 'outside last', 1, 'ib_write_bw -F -p {P} -n 200 {S4}', r'(?m)^ 65536 +200 '),
    ]} for family in (4, 6)])


class Inside(Side):
    """A program that `roost run` runs in a namespace without rights."""

    def __init__(self, roost, name, command):
        words = command.split()
        full = ['ip', 'netns', 'exec', name, *NO_RIGHTS, roost,
                *(words[1:] if words[0] == 'roost' else ['run', '--', *words])]
        env = dict(os.environ, PATH=PATH)
        env.pop('ROOST_PORT', None)
        self.start(full, env)
        self.command = ' '.join(full)

    def listens_by_tcp(self, port):
        return listens(port, self.process.pid)

    def nic(self, roost):
        """Returns the JSON object of `roost stat` for the program."""
        said = subprocess.run([roost, 'stat', '--json'], stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, text=True, check=False).stdout
        try:
            return next(nic for nic in json.loads(said)['nics'] if nic['pid'] == self.process.pid)
        except (ValueError, KeyError, StopIteration):
            return {}


def until_true(what, until):
    while not what():
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True


def killed(roost, server, client, wanted, until):
    """The server is killed during a transfer; the client must print an error and end."""
    if not until_true(lambda: client.ended()
                      or client.nic(roost).get('counters', {}).get('rcvd_pkts', 0) > 1000,
                      until) or client.ended():
        return 'client: no transfer to interrupt'
    os.kill(server.process.pid, signal.SIGKILL)
    problem = client.wait(until)
    if problem:
        return f'client {problem}'
    return (None if re.search(wanted, client.text())
            else f'client: exit status {client.process.returncode}, and no word of an error')


def build_kernel(folder):
    """Builds the example of a kernel outside of the tree, with the installed headers only."""
    top = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..')
    path = os.path.join(folder, 'sum.so')
    subprocess.run(['cc', '-O2', '-fPIC', '-shared', '-I', os.path.join(top, 'include'), '-o', path,
                    os.path.join(top, 'examples/kernels/sum/sum.c')], check=True)
    return path


def wrong_way(nic, by_shm):
    """Checks the path of the packets of queue pairs by the counters of `roost stat`. Returns the
    problem or None."""
    stats = [port['stats'] for port in nic.get('ports', [])]
    shm = sum(s['rx_shm_packets'] for s in stats), sum(s['tx_shm_packets'] for s in stats)
    if by_shm:
        return None if all(shm) else f'no packets by shared memory: {stats}'
    return f'packets by shared memory: {stats}' if any(shm) or not stats else None


def wrong_length(nic, mtu):
    """Checks the mean length of the packets that a program has sent, nearly all of one message of
    many packets after the other. Returns the problem or None."""
    stats = [port['stats'] for port in nic.get('ports', [])]
    packets = sum(s['tx_packets'] for s in stats)
    mean = sum(s['tx_bytes'] for s in stats) / packets if packets else 0
    return None if mtu * 0.95 < mean < mtu + 64 else f'packets of {mean:.0f} bytes, not {mtu}'


def serve(roost, names, spec):
    """Runs a node and its commands. Returns (problem or None, report)."""
    kernel = build_kernel(os.environ['ROOST_SHM_DIR']) if any(
        '{K}' in command for command, _ in spec['steps']) else ''
    fill = {'S': ADDRESSES[spec['family']][0], 'K': kernel, 'Z': '00' * 16}
    until = time.monotonic() + RUN_LIMIT
    server = Inside(roost, names[0],
                    'roost node --fill 1000 -v ' + spec.get('options', '').format(**fill))
    sides, problem = [server], None
    try:
        if not until_true(lambda: server.ended() or 'service 4792' in server.text(),
                          until) or server.ended():
            problem = 'no node'
        for command, wanted in spec['steps'] if not problem else []:
            client = Inside(roost, names[spec.get('side', 1)], command.format(**fill))
            sides.append(client)
            problem = client.wait(until)
            client.kill()
            if not problem and not re.search(wanted, client.text()):
                problem = f'it does not say {wanted!r}'
            if problem:
                problem = f'{command}: {problem}'
                break
        if not problem and 'by_shm' in spec:
            problem = wrong_way(server.nic(roost), spec['by_shm'])
    finally:
        server.kill()
    return problem, ''.join(f'--- {side.command}\n{side.text()}' for side in sides)


def refuse(roost, names, spec):
    """Runs a client without a server, which must fail at once. Returns (problem or None,
    report)."""
    client = Inside(roost, names[1], spec['refused'].format(S=ADDRESSES[spec['family']][0]))
    try:
        problem = client.wait(time.monotonic() + RUN_LIMIT)
    finally:
        client.kill()
    # Without the ICMP error: RDMA_CM_EVENT_UNREACHABLE, after 103 s.
    if not problem and not re.search(r'RDMA_CM_EVENT_REJECTED, error 8', client.text()):
        problem = 'it is not told REJECTED with reason 8'
    return problem, f'--- {client.command}\n{client.text()}'


def has_ended(side):
    """Returns the problem of a program that must run, or None."""
    return f'it has ended: {side.exit_verdict() or "exit status 0"}' if side.ended() else None


def share(roost, names, spec):
    """Runs the steps of shared_rows(). Returns (problem or None, report)."""
    fill = {'S': ADDRESSES[spec['family']][0], 'S4': ADDRESSES[4][0], 'P': free_tcp_port(),
            'P1': free_tcp_port()}
    until = time.monotonic() + RUN_LIMIT
    sides, problem = {}, None
    try:
        for what, name, *rest in spec['shared']:
            if what == 'kill':
                sides[name].kill()
                continue
            if what in ('way', 'length'):
                check = wrong_way if what == 'way' else wrong_length
                problem = check(sides[name].nic(roost), rest[0])
                if problem:
                    problem = f'{name}: {problem}'
                    break
                continue
            if what == 'wait':
                problem = sides[name].wait(until) or lacks(sides[name], rest[0])
                if problem:
                    problem = f'{name}: {problem}'
                    break
                continue
            space, command, wanted = rest
            side = sides[name] = Inside(roost, names[space], command.format(**fill))
            if what == 'start':
                met = until_true(lambda: side.ended()
                                 or (side.listens_by_tcp(fill['P']) if wanted == 'tcp'
                                     else side.nic(roost).get('cm', {}).get('listeners')), until)
                problem = has_ended(side) or (None if met else 'it does not listen')
            elif what == 'begin':
                met = until_true(lambda: side.ended() or side.nic(roost).get('counters', {}).get(
                    wanted, 0) > 1000, until)
                problem = has_ended(side) or (None if met else 'it has no connection')
            else:
                # What must fail may return 0, as rping does.
                problem = (side.wait(until) or (what == 'end' and side.exit_verdict())
                           or lacks(side, wanted))
            if problem:
                problem = f'{name}: {problem}'
                break
    finally:
        for side in sides.values():
            side.kill()
    return problem, ''.join(f'--- {name}: {side.command}\n{side.text()}'
                            for name, side in sides.items())


def run(roost, names, spec):
    """Runs a row. Returns (problem or None, report)."""
    if 'shared' in spec:
        return share(roost, names, spec)
    if 'steps' in spec:
        return serve(roost, names, spec)
    if 'refused' in spec:
        return refuse(roost, names, spec)
    port = free_tcp_port()
    fill = {'S': ADDRESSES[spec['family']][0], 'P': port}
    until = time.monotonic() + RUN_LIMIT
    server = Inside(roost, names[0], spec['server'].format(**fill))
    client = None
    try:
        until_true(lambda: server.ended()
                   or (server.listens_by_tcp(port) if spec['meet'] == 'tcp'
                       else server.nic(roost).get('cm', {}).get('listeners')), until)
        client = Inside(roost, names[spec['space']], spec['client'].format(**fill))
        if spec['killed']:
            problem = killed(roost, server, client, spec['wanted'], until)
        else:
            problem = outcome(server, client, until)
            if not problem and not re.search(spec['wanted'], client.text()):
                problem = f"client does not say {spec['wanted']}"
            if not problem and spec['client'].startswith('ib_'):
                problem = result_missing('ib_', client.text())
    finally:
        server.kill()
        if client:
            client.kill()
    report = ''.join(f'--- {what}: {side.command}\n{side.text()}'
                     for what, side in (('server', server), ('client', client)) if side)
    return problem, report


def main():
    parser = argparse.ArgumentParser(description='Stock programs between two network namespaces.')
    parser.add_argument('--roost', required=True, help='the roost command')
    parser.add_argument('--only', default='', metavar='TEXT', help='rows whose name holds TEXT')
    parser.add_argument('--list', action='store_true', help='name the rows')
    options = parser.parse_args()
    chosen = [spec for spec in rows() + refused_rows() + node_rows() + shared_rows()
              if options.only in spec['name']]
    if options.list:
        print('\n'.join(spec['name'] for spec in chosen))
        return
    programs = {program_of(spec['server']) for spec in chosen if 'server' in spec}
    missing = sorted(program for program in programs if not shutil.which(program))
    if missing:
        sys.exit(f"not installed: {', '.join(missing)} (scripts/setup check installs them)")
    # a signal leaves no namespace behind
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        networks = Networks()
    except Missing as e:
        skip(f'nothing ran between two network namespaces: {e}')
    failed = 0
    try:
        with tempfile.TemporaryDirectory() as folder:
            os.environ['ROOST_SHM_DIR'] = folder
            for spec in chosen:
                start = time.monotonic()
                problem, report = run(os.path.abspath(options.roost), networks.names, spec)
                print(f"{'FAILED' if problem else 'ok    '} {spec['name']:24} "
                      f"{time.monotonic() - start:6.1f} s", flush=True)
                if problem:
                    failed += 1
                    print(f'  {problem}\n{report}', flush=True)
    finally:
        networks.remove()
    print(f'{len(chosen) - failed} of {len(chosen)} rows passed')
    sys.exit(1 if failed else 0)


if __name__ == '__main__':
    main()
