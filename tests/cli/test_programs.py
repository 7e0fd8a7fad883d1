#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""`roost devices` and `roost stat` list the programs of an address: with other folders, several
slots, stopped, and killed."""
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from cli import (PATH, ROOST, check, finish, ip, last_json, one_line_error, own_network, run,
                 stop)

own_network()
folder = tempfile.TemporaryDirectory()
os.environ['ROOST_SHM_DIR'] = os.path.join(folder.name, 'nics')
os.mkdir(os.environ['ROOST_SHM_DIR'], 0o700)
PORT = 'udp:127.0.0.1'
programs = []


def start(*args, **env):
    """A node that is ready. Its folder may be another one, as that of a program that cron
    starts."""
    p = subprocess.Popen([ROOST, 'node', '--port', PORT, '--json', '--service', '0', *args],
                         stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                         stderr=subprocess.DEVNULL, text=True, env=dict(os.environ, **env))
    programs.append(p)
    check('a node is ready', json.loads(p.stdout.readline() or '{}').get('pid') == p.pid)
    return p


def rows_of(*args):
    """Returns {pid: [rows]} of a command."""
    found = {}
    for row in last_json(run(*args, '--json')).get('programs', []):
        found.setdefault(row['pid'], []).append(row)
    return found


def lines_up(what, text, columns):
    """Checks that each column begins or ends at the same offset in all lines."""
    lines = text.splitlines()
    for word in columns:
        at = lines[0].index(word)
        left = all(line[at - 1:at].strip() == '' and line[at] != ' ' for line in lines)
        right = all(line[at + len(word) - 1] != ' '
                    and line[at + len(word):at + len(word) + 1].strip() == '' for line in lines)
        check(f'{what}: {word}', left or right)


def lists_all():
    other = start(ROOST_SHM_DIR=os.path.join(folder.name, 'other'))
    two = start(ROOST_PUS='2')
    for command in ('devices', 'stat'):
        rows = rows_of(command)
        check(f'{command}: both',
              set(rows) == {other.pid, two.pid} and all(len(r) == 1 for r in rows.values()))
        row = rows[two.pid][0]
        check(f'{command}: the row', row['address'] == '127.0.0.1' and row['kind'] == 'udp'
              and row['program'] == 'roost' and row['state'] == 'running')
        check(f'{command}: one slot for each processing unit',
              len(row['slots']) == 2 and len(rows[other.pid][0]['slots']) == 1
              and not set(row['slots']) & set(rows[other.pid][0]['slots']))
        check(f'{command}: rates', row['rx_bits_s'] >= 0 and row['tx_bits_s'] >= 0)
    r = run('stat', '--brief')
    lines_up('columns', r.stdout, ('address', 'port', 'slots', 'program', 'pid', 'QPs',
                                   'connections', 'rx Mbit/s', 'tx Mbit/s', 'state'))
    check('counters of all',
          set(n['pid'] for n in last_json(run('stat', '--json'))['nics']) == {other.pid, two.pid})
    r = run('stat', '--prometheus')
    check('Prometheus covers both',
          all(f'roost_up{{pid="{p.pid}",program="roost"}} 1\n' in r.stdout for p in (other, two)),
          r)
    r = run('stat', '--watch', '0.05', '--count', '2', '--brief')
    check('--watch covers both', all(r.stdout.count(f' {p.pid} ') == 2 for p in (other, two)), r)
    return other, two


def selects_one(one):
    for args in (['devices', '--program', str(one.pid)], ['stat', '--program', str(one.pid)],
                 ['stat', str(one.pid)]):
        check(f'{args[0]} of one', set(rows_of(*args)) == {one.pid})
    one_line_error('no such program', run('stat', '--program', 'no-such'), 1, 'no-such')
    r = run('devices', '--program', 'no-such', '--json')
    one_line_error('no such program: devices', r, 1, 'no-such')


def counts_connections(one):
    """A connected caller counts as a connection of the node and of itself, and its bytes count in
    the rates."""
    with subprocess.Popen([ROOST, 'perf', 'write', '--port', PORT, '--seconds', '600', '--no-pin'],
                          stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL) as p:
        deadline = time.monotonic() + 60
        moving = []
        while time.monotonic() < deadline and len(moving) < 2:
            moving = [r[0] for r in rows_of('stat').values() if r[0].get('connections') == 1
                      and r[0]['qps'] >= 1 and r[0].get('rx_bits_s', 0) > 0
                      and r[0].get('tx_bits_s', 0) > 0]
        p.kill()
    check('two programs with a connection and rates',
          len(moving) == 2 and one.pid not in [r['pid'] for r in moving])


def shows_stopped(stopped, other):
    """A stopped program keeps its slots: the list names it, and others are delayed by its time to
    answer at most."""
    stop(stopped.pid)
    rows = rows_of('devices')
    check('a stopped program is listed', rows.get(stopped.pid, [{}])[0].get('state') == 'stopped'
          and len(rows[stopped.pid][0]['slots']) == 2
          and rows[stopped.pid][0]['address'] == '127.0.0.1'
          and rows.get(other.pid, [{}])[0].get('state') == 'running')
    check('and has a name', rows.get(stopped.pid, [{}])[0].get('program') == 'roost')
    r = run('stat', '--prometheus')
    check('Prometheus says that it does not answer',
          f'roost_up{{pid="{stopped.pid}",program="roost"}} 0\n' in r.stdout, r)
    one_line = run('stat', str(stopped.pid)).stderr.strip().splitlines()
    check('stat says so', len(one_line) == 1 and f'kill -CONT {stopped.pid}' in one_line[0])
    os.kill(stopped.pid, signal.SIGCONT)
    check('it goes on',
          rows_of('stat', str(stopped.pid)).get(stopped.pid, [{}])[0].get('state') == 'running')


def forgets_killed(killed, other):
    killed.kill()
    killed.wait()
    deadline = time.monotonic() + 60
    while killed.pid in rows_of('devices') and time.monotonic() < deadline:
        pass
    check('a killed program is gone', set(rows_of('stat')) == {other.pid})


def lists_when_full():
    """The list works when no further program can open a NIC, and names the programs to stop."""
    r = run('devices', '--port', 'udp:192.0.2.77')
    check('devices without a device', r.returncode == 1 and len(r.stderr.strip().splitlines()) == 1
          and 'program' in r.stdout, r)


def like_a_container(words):
    """Returns a command line that runs without the files and processes of others; it shares only
    the network and the folder of the program, which can be in /tmp."""
    return [
        'unshare', '-m', '-p', '-f', '--mount-proc', 'sh', '-c',
        'folder=$1; shift; exec 3<"$folder" && '
        'mount -t tmpfs none /tmp && mount -t tmpfs none /run && mount -t tmpfs none /dev/shm && '
        'mkdir -p "$folder" && mount -c --bind /proc/self/fd/3 "$folder" && exec 3<&- && '
        'unset ROOST_SHM_DIR XDG_RUNTIME_DIR && exec "$@"',
        'sh', os.path.dirname(os.path.abspath(ROOST)), *words]


def shares_with_container(other):
    """The names of the pool belong to the network namespace, so programs need no common folder.
    Needs root."""
    if os.geteuid() != 0:
        return
    words = like_a_container(
        [os.path.abspath(ROOST), 'node', '--port', PORT, '--service', '0', '--json'])
    with subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
                          start_new_session=True) as p:
        check('a node in the container is ready',
              json.loads(p.stdout.readline() or '{}').get('address') == '127.0.0.1')
        rows = rows_of('devices')
        check('both have the address', len(rows) == 2 and other.pid in rows
              and all(r[0]['state'] == 'running' for r in rows.values()))
        inside = subprocess.run(
            like_a_container([os.path.abspath(ROOST), 'devices', '--port', PORT, '--json']),
            capture_output=True, text=True, check=False)
        check('so it is seen from a container',
              [r['address'] for r in last_json(inside).get('programs', [])] == ['127.0.0.1'] * 2,
              inside)
        os.killpg(p.pid, signal.SIGKILL)


def refuses_others():
    """A program of another user is refused with one line. Without an address it takes one of its
    own and prints a message. Needs root and `ip`."""
    if os.geteuid() != 0 or not shutil.which('ip', path=PATH):
        print('not tried: a program of another user, which takes root and the program ip')
        return
    ip('addr', 'add', PRIMARY, 'dev', 'lo')
    mine = start('--port', f'udp:{PRIMARY}')
    for port, status, words in (
            (f'udp:{PRIMARY}', 1, ('belongs to user 0', 'choose another address')),
            ('udp', 0, (f"can't use {PRIMARY}", 'user 0', 'of its own'))):
        r = subprocess.run([*AS_OTHER, os.path.abspath(ROOST), 'devices', '--port', port],
                           stdin=subprocess.DEVNULL, capture_output=True, text=True,
                           env={**os.environ, 'ROOST_SHM_DIR': ''}, check=False)
        check(f'another user, {port}',
              r.returncode == status and len(r.stderr.strip().splitlines()) == 1
              and all(w in r.stderr for w in words) and str(mine.pid) not in r.stdout, r)
    mine.kill()
    mine.wait()


STRANGER = 65534
PRIMARY = '10.77.0.1'
LINK_LOCAL = 'fe80::86:1'
AS_OTHER = ['setpriv', f'--reuid={STRANGER}', '--clear-groups', f'--regid={STRANGER}']
BIND = (
    "import os, signal, socket, sys\nos.setresuid({0}, {0}, {0})\nheld = []\n"
    "for slot in range(64):\n    s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)\n"
    "    try:\n        s.bind(f'\\0roost-pool-{2}-claim-{{slot}}')\n    except OSError:\n        "
    "continue  # a program has this slot\n"
    "    held.append(s)\n    if len(held) == {1}:\n        break\n"
    "print('ready', flush=True)\nsignal.pause()\n")


def names_interfaces():
    """A link-local address belongs to its interface, so it is shown with it, also for a program
    that does not answer. Needs root and `ip`."""
    if os.geteuid() != 0 or not shutil.which('ip', path=PATH):
        print('not tried: a link-local address, which takes root and the program ip')
        return
    ip('link', 'add', 'near', 'type', 'veth', 'peer', 'name', 'far')
    for device in ('far', 'near'):
        ip('link', 'set', device, 'up')
    ip('addr', 'add', f'{LINK_LOCAL}/64', 'dev', 'near', 'nodad')
    node = start('--port', f'udp:{LINK_LOCAL}')
    want = f'{LINK_LOCAL}%near'
    for command in ('devices', 'stat'):
        check(f'{command}: the interface', rows_of(command)[node.pid][0]['address'] == want)
    r = run('stat', '--prometheus')
    check('Prometheus has the interface', f'address="{want}"' in r.stdout)
    stop(node.pid)
    row = rows_of('devices').get(node.pid, [{}])[0]
    check('the interface of a stopped program',
          row.get('state') == 'stopped' and row.get('address') == want)
    os.kill(node.pid, signal.SIGCONT)
    node.kill()
    node.wait()
    ip('link', 'del', 'near')


def in_user_namespace():
    """A program in a user namespace of its own has another user id there, and the Linux kernel
    takes it for a program of the same user. It takes no packets of the programs outside, and prints
    one line. Needs root."""
    if os.geteuid() != 0:
        return
    port = 'udp:127.0.0.9'
    command = [*AS_OTHER, os.path.abspath(ROOST)]
    env = {**os.environ, 'ROOST_SHM_DIR': ''}
    with subprocess.Popen([*command, 'node', '--port', port, '--fill', '100', '--json'],
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
                          env=env) as node:
        check('a node of another user is ready',
              json.loads(node.stdout.readline() or '{}').get('address') == '127.0.0.9')
        inside = [*AS_OTHER, 'unshare', '-Ur', os.path.abspath(ROOST), 'devices', '--port', port]
        one_line_error('in a user namespace',
                       subprocess.run(inside, stdin=subprocess.DEVNULL, capture_output=True,
                                      text=True, env=env, check=False), 1, '127.0.0.9 is in use')
        r = subprocess.run([*command, 'call', '--port', port, '127.0.0.9', 'get', '17'],
                           stdin=subprocess.DEVNULL, capture_output=True, text=True, env=env,
                           check=False)
        check('the node keeps its packets', r.returncode == 0 and 'value of 17' in r.stdout, r)
        node.kill()


def pool_row(*args):
    return next((r for r in last_json(run('doctor', '--json', *args)).get('rows', [])
                 if r['condition'] == 'pool'), {})


def others_hold_names():
    """The message names another user who has taken the names of this user's pool. Needs root."""
    end = time.monotonic() + 60
    while True:  # programs that were just killed have their slots until they have ended
        row = pool_row('--port', PORT)
        alone = '1 program of yours, 63 of 64 slots free' in row.get('found', '')
        if alone or time.monotonic() > end:
            break
        time.sleep(0.05)
    check('doctor: programs and slots', row.get('state') == 'ok' and alone)
    for count, state, words in ((3, 'warning', '3 names of your pool'),
                                (64, 'fails', 'stop one')) if os.geteuid() == 0 else ():
        for p in programs if count == 64 else []:
            p.kill()
            p.wait()
        with subprocess.Popen([sys.executable, '-c', BIND.format(STRANGER, count, os.geteuid())],
                              stdout=subprocess.PIPE, text=True) as thief:
            check('the other user has the names', thief.stdout.readline() == 'ready\n')
            row = pool_row('--port', PORT)
            check(f'doctor: {count} names', row.get('state') == state and words in row['remedy']
                  and 'names of another user: yes' in row['found'])
            if count == 64:
                one_line_error('no program opens a port', run('devices', '--port', PORT), 1,
                               f'user {STRANGER} holds 64 names')
            thief.kill()


try:
    first, second = lists_all()
    selects_one(first)
    counts_connections(first)
    shows_stopped(second, first)
    lists_when_full()
    forgets_killed(second, first)
    shares_with_container(first)
    refuses_others()
    names_interfaces()
    in_user_namespace()
    others_hold_names()
finally:
    for p in programs:
        p.kill()
        p.wait()
finish()
