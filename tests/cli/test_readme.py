#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""The commands of the README that need two programs: as they are there, on loopback, a server and
then its client.

Arguments: ROOST BUILD-FOLDER. The exit status is 77 if a stock program is not installed, or without
the rights for a network of its own; with ROOST_INTEROP=required in the environment it is then 1.
"""
import os
import re
import shlex
import shutil
import subprocess
import sys
import time

from cli import LIMIT, ROOST, check, finish, own_network, skip

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'common'))
from perftest_clock import CLOCK, TRIES  # noqa: E402
from ports import listens  # noqa: E402

README = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..', 'README.md')
PERFTEST_PORT = 18515
SERVER = re.compile(r'&$|# in one terminal')
# The client of each pair, and what it prints.
CLIENTS = {'build/roost run -- ib_write_bw': r'\n +65536 +5000 +[0-9.]+ +[0-9.]+',
           'build/roost call': 'value of 17', 'memcstat': r'curr_items: 0\n'}


def pairs():
    """Returns [(server, client)]: each command is a list of words."""
    with open(README, encoding='utf-8') as f:
        lines = re.findall(r'^ {4}((?:build/roost|mem\w+) .*)', f.read(), re.M)
    split = [line.partition('#')[0].rstrip('& ').replace('SERVER-ADDRESS', '127.0.0.1')
             for line in lines]
    return [(split[i], split[i + 1]) for i, line in enumerate(lines[:-1]) if SERVER.search(line)]


def words(command):
    return [ROOST if word == 'build/roost' else word for word in shlex.split(command)]


def start(command):
    return subprocess.Popen(words(command), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True)


def wait_ready(server, serving):
    """Waits until the server has printed its line, or listens, or has ended."""
    if ' node ' in server:
        return serving.stdout.readline()
    until = time.monotonic() + LIMIT
    while serving.poll() is None and not listens(PERFTEST_PORT) and time.monotonic() < until:
        time.sleep(0.05)
    return ''


def run(server, client):
    """Returns (exit statuses of both, output of the client, that of the server)."""
    serving = start(server)
    try:
        said = wait_ready(server, serving)
        using = start(client)
        text = using.communicate(timeout=LIMIT)[0]
        if ' node ' in server:
            serving.terminate()
        said += serving.communicate(timeout=LIMIT)[0]
        return (serving.returncode, using.returncode), text, said
    finally:
        serving.kill()


own_network()
os.environ.pop('ROOST_PORT', None)
for program in ('ib_write_bw', 'memcstat'):
    if not shutil.which(program):
        skip(f'no {program}: scripts/setup demo installs it')
found = pairs()
check(f'the clients are {list(CLIENTS)}: {found}', len(found) == len(CLIENTS)
      and all(client.startswith(name) for name, (_, client) in zip(CLIENTS, found)))
for wanted, (server, client) in zip(CLIENTS.values(), found):
    for _ in range(TRIES):
        status, text, said = run(server, client)
        if not CLOCK.search(text + said):
            break
    check(f'{server}, {client}: {status}\n{text}{said}', status == (0, 0)
          and re.search(wanted, text))
finish()
