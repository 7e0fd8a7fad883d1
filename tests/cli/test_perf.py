#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""`roost perf`: each kind of measurement runs and reports the fields of roost-perf(1). Figures are
not checked."""
import json
import os
import resource
import socket
import subprocess
import time

from cli import LIMIT, ROOST, check, finish, last_json, one_line_error, run

BANDWIDTH = [
    ['write', '--port', 'shm', '--size', '64K', '--iters', '200'],
    ['write', '--port', 'udp', '--size', '64', '--post-list', '16', '--iters', '5000'],
    ['write', '--port', 'shm', '--size', '0', '--iters', '500'],
    ['write', '--port', 'udp', '--passive', '--iters', '100'],
    ['write', '--port', 'shm', '--bidir', '--iters', '200'],
    ['read', '--port', 'shm', '--size', '100', '--qps', '4', '--iters', '1000'],
    ['read', '--port', 'udp', '--bidir', '--iters', '100'],
    ['send', '--port', 'udp', '--size', '5000', '--iters', '1000'],
    ['send', '--port', 'shm', '--bidir', '--qps', '2', '--iters', '1000'],
    ['send', '--port', 'shm', '--events', '--iters', '300'],
    ['atomic', '--port', 'shm', '--iters', '1000'],
    ['atomic', '--port', 'udp', '--qps', '3', '--bidir', '--iters', '600'],
    ['write', '--port', 'udp', '--mtu', '256', '--events', '--seconds', '200ms'],
    ['write', '--port', 'udp,loss=0.01', '--size', '8K', '--iters', '500'],
    ['rpc', '--port', 'shm', '--kernel', 'get', '--qps', '4', '--depth', '8', '--iters', '1000'],
    ['rpc', '--port', 'udp,loss=0.01', '--kernel', 'get', '--size', '5000', '--iters', '500'],
    ['rpc', '--port', 'shm', '--kernel', 'get', '--size', '0', '--iters', '500'],
    ['rpc', '--port', 'udp', '--kernel', 'traversal', '--hops', '13', '--size', '100', '--iters',
     '500'],
    ['rpc', '--port', 'shm', '--kernel', 'echo', '--size', '4072', '--passive', '--iters', '500'],
    ['rpc', '--port', 'udp', '--kernel', 'hll', '--size', '64K', '--iters', '200'],
    ['rpc', '--port', 'shm', '--kernel', 'hll', '--qps', '2', '--size', '8', '--seconds', '200ms'],
]

LATENCY = [
    ['write', '--lat', 'pingpong', '--port', 'shm'],
    ['write', '--lat', 'pingpong', '--port', 'udp', '--size', '5000'],
    ['send', '--lat', 'pingpong', '--port', 'shm', '--size', '0'],
    ['send', '--lat', 'pingpong', '--port', 'udp', '--events'],
    ['write', '--lat', 'completion', '--port', 'udp', '--passive'],
    ['read', '--lat', 'completion', '--port', 'shm'],
    ['read', '--lat', 'completion', '--port', 'shm', '--size', '64', '--memory', '4M'],
    ['read', '--lat', 'completion', '--port', 'udp', '--passive', '--events'],
    ['atomic', '--lat', 'completion', '--port', 'shm'],
    ['send', '--lat', 'completion', '--port', 'shm'],
    ['write', '--lat', 'firstbyte', '--port', 'shm', '--size', '9000'],
    ['read', '--lat', 'firstbyte', '--port', 'udp'],
    ['write', '--lat', 'execute', '--port', 'udp'],
    ['read', '--lat', 'execute', '--port', 'shm'],
    ['send', '--lat', 'execute', '--port', 'shm'],
    ['atomic', '--lat', 'execute', '--port', 'udp'],
    ['rpc', '--lat', 'completion', '--port', 'shm'],
    ['rpc', '--lat', 'completion', '--port', 'udp', '--kernel', 'echo', '--passive'],
]


def connected(port):
    """Connects to a server that is about to listen."""
    until = time.monotonic() + LIMIT
    while True:
        try:
            return socket.create_connection(('127.0.0.1', port))
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)


def least_memory():
    """In the server's process: if it maps the buffers after all, mmap() fails instead of taking the
    machine's memory. A sanitizer's own mappings are larger."""
    if not os.environ.keys() & {'ASAN_OPTIONS', 'TSAN_OPTIONS'}:
        resource.setrlimit(resource.RLIMIT_AS, (64 << 30, 64 << 30))


def requested(args):
    return int(args[args.index('--iters') + 1]) if '--iters' in args else 1


for args in BANDWIDTH:
    r = run('perf', *args, '--json')
    j = last_json(r)
    ok = (r.returncode == 0 and not r.stderr and j.get('tool') == 'perf'
          and j.get('test') == args[0]
          and j.get('port') == args[args.index('--port') + 1].split(',')[0]
          and j['messages'] >= requested(args) and j['seconds'] > 0 and j['msg_rate'] > 0
          and 'machine' in j and j['counters'].get('sent_pkts', 0) > 0)
    if ok:
        ok = abs(
            j['goodput_gbps'] - j['msg_rate'] * j['size'] * 8 / 1e9) <= 0.01 * j['goodput_gbps']
    check(f'perf {args}', ok, r)

for args in LATENCY:
    r = run('perf', *args, '--iters', '300', '--json')
    j = last_json(r)
    lat = j.get('latency_us', {})
    check(f'perf {args}',
          r.returncode == 0 and lat.get('kind') == args[2] and lat.get('count') == 300
          and 0 <= lat['min'] <= lat['p50'] <= lat['p99'] <= lat['p999'] <= lat['max'], r)

# Datagrams: arrived ones count; a link with losses drops some.
for port, least in (('shm', 0), ('udp', 0), ('udp,loss=0.2,seed=4', 1)):
    r = run('perf', 'send', '--transport', 'ud', '--port', port, '--qps', '2', '--iters', '2000',
            '--json')
    j = last_json(r)
    check(f'datagrams over {port}',
          r.returncode == 0 and j.get('transport') == 'ud' and j['size'] == 64 and j['sent'] >= 2000
          and 0 < j['received'] <= j['sent'] - least and j['msg_rate'] > 0, r)
for args in (['write', '--transport', 'ud'], ['send', '--transport', 'ud', '--bidir'],
             ['send', '--transport', 'ud', '--lat', 'pingpong'],
             ['send', '--transport', 'ud', '--size', '4097'],
             ['send', '--transport', 'ud', '--sweep'],
             ['send', '--transport', 'ud', '--size', '2K', '--mtu', '1024']):
    r = run('perf', *args, '--port', 'shm', '--iters', '10')
    check(f'{args} is refused',
          r.returncode == 2 and ('datagram' in r.stderr or '--transport' in r.stderr), r)

r = run('perf', 'write', '--sweep', '--port', 'shm', '--sizes', '64,4K,100000', '--iters', '200',
        '--json')
j = last_json(r)
check('a sweep has rows',
      r.returncode == 0 and [x['size'] for x in j.get('rows', [])] == [64, 4096, 100000]
      and all(x['msg_rate'] > 0
              and x['latency_us']['p1'] <= x['latency_us']['p99'] for x in j['rows']), r)

# Calls: the report names the kernel, and the target counts its calls.
r = run('perf', 'rpc', '--kernel', 'traversal', '--hops', '3', '--port', 'shm', '--iters', '300',
        '--json')
j = last_json(r)
check('rpc says what it calls', r.returncode == 0 and j.get('kernel') == 'traversal'
      and j['hops'] == 3 and j['size'] == 64
      and j['target_counters'].get('rx_rpc_requests', 0) >= 300, r)
r = run('perf', 'rpc', '--kernel', 'hll', '--sweep', '--port', 'shm', '--sizes', '64,4K', '--iters',
        '100', '--json')
j = last_json(r)
check('a sweep of payloads',
      r.returncode == 0 and [x['size'] for x in j.get('rows', [])] == [64, 4096]
      and all(x['goodput_gbps'] > 0 and x['latency_us']['kind'] == 'completion' for x in j['rows']),
      r)
for args, word in ((['rpc', '--kernel', 'nope'], 'traversal'),
                   (['write', '--kernel', 'get'], 'rpc'),
                   (['rpc', '--hops', '2'], '--kernel traversal'),
                   (['write', '--lat', 'completion', '--memory', '1M'], 'read --lat completion'),
                   (['read', '--lat', 'completion', '--size', '4K', '--memory', '4095'],
                    'at least --size'),
                   (['rpc', '--bidir'], '--bidir'), (['rpc', '--events'], '--events'),
                   (['rpc', '--post-list', '4'], '--post-list'),
                   (['rpc', '--depth', '65'], '64'),
                   (['rpc', '--kernel', 'hll', '--size', '9'], 'multiple'),
                   (['rpc', '--kernel', 'echo', '--size', '4073'], '4072'),
                   (['rpc', '--lat', 'pingpong'], '--lat completion'),
                   (['rpc', '--check'], '--check'), (['rpc', '--transport', 'ud'], 'ud')):
    one_line_error(f'{args} is refused', run('perf', *args, '--port', 'shm', '--iters', '10'), 2,
                   word)
one_line_error('an echo larger than the path MTU', run('perf', 'rpc', '--kernel', 'echo', '--size',
                                                       '1K', '--mtu', '1024', '--port', 'shm'), 1,
               '1000')

r = run('perf', 'write', '--port', 'shm', '--iters', '100')
check('text for people', r.returncode == 0 and 'Gbit/s' in r.stdout and '64 KiB' in r.stdout, r)

# ROOST_PORT is used without --port.
check('ROOST_PORT', last_json(
    run('perf', 'read', '--iters', '50', '--json', env={'ROOST_PORT': 'shm'})).get('port') == 'shm')

# Server and client, over TCP.
with socket.socket() as s:
    s.bind(('127.0.0.1', 0))
    tcp = s.getsockname()[1]
with subprocess.Popen([ROOST, 'perf', '--server', '--bind', '127.0.0.1', '--tcp-port', str(tcp),
                       '--port', 'shm'], stderr=subprocess.PIPE, text=True) as server:
    check('the server says that it listens', str(tcp) in server.stderr.readline())
    r = run('perf', 'write', '--connect', f'127.0.0.1:{tcp}', '--port', 'shm', '--iters', '300',
            '--json')
    check('client', r.returncode == 0 and last_json(r).get('messages', 0) >= 300, r)
    check('server ends well', server.wait(60) == 0)

# A client that is no peer gets an error, and the server ends with one line.
for junk in (b'GET / HTTP/1.0\r\n\r\n', b'{"type":"job","version":99}\n', b'{"type":"job"}\n',
             b'[1]\n', b'{"type":"job","version":4,"op":0,"mode":0,"lat":0,"size":99999999999}\n',
             b'\n', b'x' * 2000000 + b'\n'):
    with subprocess.Popen([ROOST, 'perf', '--server', '--bind', '127.0.0.1', '--tcp-port', str(tcp),
                           '--port', 'shm'], stderr=subprocess.PIPE, text=True) as server:
        server.stderr.readline()
        s = connected(tcp)
        try:
            s.sendall(junk)
            s.shutdown(socket.SHUT_WR)
            s.settimeout(30)
            while s.recv(4096):
                pass
        except OSError:
            pass  # it may hang up at once
        s.close()
        err = server.communicate(timeout=60)[1]
        check(f'junk {junk[:30]!r}: {server.returncode} {err!r}',
              server.returncode == 1 and len(err.splitlines()) == 1)

# A job whose buffers no machine has, or not this one, is refused before they are mapped.
ONE = {'type': 'job', 'version': 4, 'op': 0, 'mode': 0, 'lat': 0, 'transport': 0, 'kernel': 0,
       'size': 8, 'qps': 1, 'depth': 2, 'post_list': 1, 'cq_mod': 1, 'inline_max': 0, 'mtu': 0,
       'iters': 1, 'duration': 0, 'gap': 0, 'seed': 0, 'hops': 0, 'memory': 0, 'bidir': False,
       'passive': False, 'events': False, 'sizes': []}
HAS = os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE')
for change, words in (({'size': 1 << 31, 'qps': 4096}, '--size times --qps'),
                      ({'op': 1, 'mode': 1, 'lat': 1, 'memory': 1 << 36}, 'this machine has')):
    if words == 'this machine has' and HAS > 160 << 30:
        continue
    with subprocess.Popen([ROOST, 'perf', '--server', '--bind', '127.0.0.1', '--tcp-port', str(tcp),
                           '--port', 'shm'], stderr=subprocess.PIPE, text=True,
                          preexec_fn=least_memory) as server:
        server.stderr.readline()
        with connected(tcp) as s, s.makefile('r') as answers:
            s.sendall(json.dumps({**ONE, **change}).encode() + b'\n')
            answer = json.loads(answers.readline() or '{}')
        err = server.communicate(timeout=60)[1]
        check(f'buffers that are too large: {answer} {err!r}',
              server.returncode == 1 and words in answer.get('message', '') and words in err)

# With three processing units the slot of a NIC, a random number, must not count for the lane of a
# QP number: four of five runs hung.
for _ in range(5):
    r = run('perf', 'write', '--local', '--port', 'shm', '--iters', '300', '--json',
            env={'ROOST_PUS': '3'}, limit=60)
    check('three processing units', r.returncode == 0 and last_json(r)['messages'] >= 300, r)

# --check reports the number of checked bytes.
r = run('perf', 'write', '--check', '--port', 'shm', '--sizes', '0,1,100', '--iters', '3', '--json')
j = last_json(r)
check('check counts',
      r.returncode == 0 and j.get('bytes_checked') == 303 and j.get('messages') == 9, r)
finish()
