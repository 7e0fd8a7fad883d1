# SPDX-License-Identifier: BSD-2-Clause
"""Runs one of the jobs below in a container. The last line of its output is a JSON object with the
status and output of each program.

    inside.py demo | perf PORT | bw PORT | node | store | idle SECONDS | busy SECONDS | held ADDRESS
    ARGUMENTS (roost doctor, while another program has the port)
"""
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time

ROOST = '/opt/roost/roost'
LIMIT = 90


def roost(*words, env=None):
    done = subprocess.run([ROOST, *words], env=dict(os.environ, **(env or {})),
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT,
                          check=False)
    return {'name': ' '.join(words), 'status': done.returncode, 'out': done.stdout,
            'err': done.stderr}


def start(*words):
    return subprocess.Popen([ROOST, *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True)


def end(p, words):
    try:
        out, err = p.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        p.kill()
        out, err = p.communicate()
        err += '(still ran)'
    return {'name': ' '.join(words), 'status': p.returncode, 'out': out, 'err': err}


def listens(port, p):
    """Waits until a TCP server listens at the port, or the program has ended."""
    wanted = f':{port:04X} '
    until = time.monotonic() + 60
    while p.poll() is None and time.monotonic() < until:
        for table in ('tcp', 'tcp6'):
            try:
                with open(f'/proc/net/{table}', encoding='ascii') as f:
                    if any(wanted in line and ' 0A ' in line for line in f):
                        return
            except OSError:
                pass
        time.sleep(0.02)


def bw(port):
    words = ['run', '--port', port, '--', 'ib_write_bw', '-F', '-n', '500']
    server = start(*words)
    listens(18515, server)
    client = roost(*words, '127.0.0.1')
    if client['status'] and server.poll() is None:
        server.terminate()
    return [end(server, words), client]


def serve(options, calls):
    """Runs a node, and calls(its address), a list of dict."""
    words = ['node', '--port', 'udp', *options]
    p = start(*words)
    first = p.stdout.readline()
    calls = calls(first.split(' at ')[1].split(',')[0]) if first else []
    if first:
        p.send_signal(signal.SIGTERM)
    done = end(p, words)
    done['out'] = first + done['out']
    return [done, *calls]


def node():
    return serve(['--fill', '100'], lambda address: [roost('call', address, 'get', '17'),
                                                     roost('kernel', 'list'), roost('stat')])


def store():
    """A store whose far tier is a file in /dev/shm. Docker's list has no io_uring."""
    with tempfile.TemporaryDirectory(dir='/dev/shm') as folder:
        return serve(['--kv', '16M', '--kv-near', '1M', '--kv-far', folder],
                     lambda address: [roost('kv', 'bench', address, '--keys', '2000', '--value',
                                            '1500', '--put', '50', '--duration', '0.2'),
                                      roost('kv', 'put', address, 'key', 'kept'),
                                      roost('kv', 'get', address, 'key')])


def cpu_seconds(pid):
    with open(f'/proc/{pid}/stat', encoding='utf-8') as f:
        after = f.read().rpartition(')')[2].split()
    return (int(after[11]) + int(after[12])) / os.sysconf('SC_CLK_TCK')


def idle(seconds, call_every=0.0):
    """Measures the CPU time of a node that is called from time to time, or not at all."""
    p = start('node', '--port', 'udp', '--fill', '10')
    address = p.stdout.readline().split(' at ')[1].split(',')[0]
    calls = [roost('call', address, 'get', '7')]
    before, until, sent = cpu_seconds(p.pid), time.monotonic() + seconds, 0
    while time.monotonic() < until:
        time.sleep(call_every or seconds)
        if call_every:
            done = roost('call', address, 'get', '7')
            sent += done['status'] == 0
    used = cpu_seconds(p.pid) - before
    p.terminate()
    done = end(p, ['node'])
    return [done, *calls,
            {'name': 'cpu', 'status': 0, 'used': used, 'calls': sent, 'out': '', 'err': ''}]


def held(address, *words):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.bind((address, 4791))
        return [roost('doctor', '--json', *words)]


JOBS = {
    'demo': lambda: [roost('demo')],
    'perf': lambda: [roost('perf', 'write', '--local', '--port', sys.argv[2], '--seconds', '0.2')],
    'bw': lambda: bw(sys.argv[2]),
    'node': node,
    'store': store,
    'idle': lambda: idle(float(sys.argv[2])),
    'busy': lambda: idle(float(sys.argv[2]), 0.05),
    'held': lambda: held(*sys.argv[2:]),
}

print(json.dumps(JOBS[sys.argv[1]]()))
