#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""`roost doctor`: its table, its JSON and its exit status. tests/containers makes each condition
bad; this test needs no rights."""
import os
import pty
import re
import socket
import subprocess
import tempfile

from cli import ROOST, check, finish, last_json, one_line_error, run

STATES = {'ok', 'warning', 'fails'}


def row(result, condition):
    return next((r for r in last_json(result).get('rows', []) if r['condition'] == condition), {})


def agrees(what, result):
    """Checks that the exit status shows whether a row fails."""
    rows = last_json(result).get('rows', [])
    fails = sum(r['state'] == 'fails' for r in rows)
    check(f'{what}: rows', rows and all(r['state'] in STATES and r['found'] for r in rows)
          and all(bool(r['remedy']) == (r['state'] != 'ok') for r in rows), result)
    check(f'{what}: status', result.returncode == (1 if fails else 0) and not result.stderr, result)
    check(f'{what}: counts', last_json(result).get('failed') == fails
          and last_json(result).get('warnings') == sum(r['state'] == 'warning' for r in rows),
          result)


def at_a_terminal(env):
    master, slave = pty.openpty()
    with subprocess.Popen([ROOST, 'doctor'], env=dict(os.environ, **env), stdin=subprocess.DEVNULL,
                          stdout=slave) as p:
        os.close(slave)
        text = b''
        while True:
            try:
                more = os.read(master, 65536)
            except OSError:
                break
            if not more:
                break
            text += more
        p.wait()
    os.close(master)
    return text.decode().replace('\r\n', '\n')


def columns_line_up(what, text):
    lines = [line for line in text.splitlines() if line][:-1]
    starts = [lines[0].index(word) for word in ('condition', 'found', 'remedy')]
    check(f'{what}: columns line up', len(lines) > 10
          and all(line[at - 2:at] == '  ' and line[at] != ' ' for line in lines for at in starts),
          None)
    check(f'{what}: no blanks at the end', all(line == line.rstrip() for line in lines))


folder = tempfile.TemporaryDirectory()
mine = {'ROOST_SHM_DIR': os.path.join(folder.name, 'nics')}

r = run('doctor', '--json', '--port', 'shm', env=mine)
agrees('shm', r)
check('shm needs no UDP port', 'not used' in row(r, 'port 4791').get('found', ''), r)
check('the machine', last_json(r).get('machine', {}).get('kernel') == os.uname().release, r)
check('nothing is left in the folder', os.listdir(mine['ROOST_SHM_DIR']) == [], r)

r = run('doctor', '--port', 'shm', env=mine)
columns_line_up('a pipe', r.stdout)
check('no colours in a pipe', '\033' not in r.stdout, r)
text = at_a_terminal({**mine, 'ROOST_PORT': 'shm'})
check('colours at a terminal', '\033[32mok\033[0m' in text)
columns_line_up('a terminal', re.sub('\033\\[[0-9]*m', '', text))

r = run('doctor', '--json', '--port', 'shm', env={**mine, 'ROOST_LIBDIR': folder.name})
agrees('no libraries', r)
check('no libraries: the row', row(r, 'libibverbs').get('state') == 'fails'
      and 'ROOST_LIBDIR' in row(r, 'libibverbs')['remedy'], r)

r = run('doctor', '--json', '--port', 'shm', env={'ROOST_SHM_DIR': '/nonexistent/folder'})
agrees('no folder', r)
check('no folder: the rows',
      row(r, 'folder').get('state') == 'fails' and row(r, 'NIC').get('state') == 'fails', r)

with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
    address = f'127.{os.getpid() >> 16 & 0x7f}.{os.getpid() >> 8 & 0xff}.{os.getpid() & 0xff or 1}'
    s.bind((address, 4791))
    r = run('doctor', '--json', '--port', f'udp:{address}', env=mine)
    agrees('a port in use', r)
    check('a port in use: who', row(r, 'port 4791').get('state') == 'fails'
          and f'process {os.getpid()} (' in row(r, 'port 4791')['found'], r)

one_line_error('no port', run('doctor', '--port', 'tcp'), 2, 'tcp')
one_line_error('an argument more', run('doctor', 'all'), 2, 'all')
folder.cleanup()
finish()
