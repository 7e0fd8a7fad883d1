#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""The store of a node: functions of a shared object, snapshots, kills during snapshots, and `roost
kv top`."""
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time

from cli import LIMIT, ROOST, check, finish, last_json, obeying_modes, one_line_error, run
from node import Node, addresses

SEED = 7
FUNCTIONS = os.path.join(sys.argv[2], 'tests', 'kv', 'functions.so')
SHORT_REPLY = os.path.join(sys.argv[2], 'tests', 'kv', 'short-reply.so')
OTHER_VERSION = os.path.join(sys.argv[2], 'tests', 'kv', 'other-version.so')
WRONG_ABI = os.path.join(sys.argv[2], 'tests', 'kv', 'functions-abi.so')

where = addresses('shm')


def kv(*args):
    return run('kv', '--port', f'shm:{where[1]}', *args)


def says(what, out, *args):
    r = kv(*args)
    check(what, r.returncode == 0 and r.stdout == out, r)


def node(*args, before=()):
    return Node(f'shm:{where[0]}', '--kv', '64M', *args, before=before)


def ignoring_faults():
    """Returns the words that start a program which ignores SIGSEGV of other processes. A sanitizer
    would handle the signal."""
    options = [f"{name}={os.environ.get(name, '')}:handle_segv=0"
               for name in ('ASAN_OPTIONS', 'TSAN_OPTIONS')]
    return ['env', '--ignore-signal=SEGV', *options]


def describe(n):
    r = run('kernel', 'list', str(n.pid), '--json')
    return last_json(r).get('kv', {})


def until(what, ready):
    end = time.monotonic() + LIMIT
    while not ready():
        if time.monotonic() > end:
            check(what, False)
            return
        time.sleep(0.01)


def functions():
    """Functions of a shared object, of which some crash. Another process has sent SIGSEGV to the
    node: this must not remove the guard against crashes."""
    n = node('--function', FUNCTIONS, before=ignoring_faults())
    try:
        os.kill(n.pid, signal.SIGSEGV)
        check('the node names its functions',
              'squares' in n.hello.get('kv', {}).get('functions', []))
        says('put', '', 'put', where[0], 'ints', '1,2,3', '--type', 'i32')
        says('a reduce with the type of the function', '15\n', 'reduce', where[0], 'ints',
             'squares', '1')
        says('put', '', 'put', where[0], 'doubles', '1,2.5', '--type', 'double')
        says('an update that returns the value of before', '1,2.5\n', 'update', where[0], 'doubles',
             'scale', '2', '--param', '0.5', '--fetch')
        says('its result', '2.5,5.5\n', 'get', where[0], 'doubles', '--type', 'double')
        says('put', '', 'put', where[0], 'shorts', '3,4,6,7', '--type', 'u16')
        says('a filter', '3,6\n', 'filter', where[0], 'shorts', 'multiples', '3')
        one_line_error('a function of another kind',
                       kv('reduce', where[0], 'shorts', 'multiples', '3'), 2, 'multiples')
        one_line_error('a function of another type',
                       kv('filter', where[0], 'shorts', 'multiples', '3', '--type', 'u8'), 2, 'u16')
        one_line_error('no function', kv('update', where[0], 'shorts', 'nothing', '3'), 2,
                       'nothing')
        says('put', '', 'put', where[0], 'bytes', '1,2', '--type', 'u8')
        for _ in range(2):
            one_line_error('a function that crashes', kv('update', where[0], 'bytes', 'crash', '1'),
                           1, 'crashed')
            one_line_error('a function that does not return',
                           kv('update', where[0], 'bytes', 'spin', '1'), 1, 'not return')
            one_line_error('a filter that finds too many',
                           kv('filter', where[0], 'bytes', 'too many', '1'), 1, 'crashed')
        says('the value is unchanged', '1,2\n', 'get', where[0], 'bytes', '--type', 'u8')
        says('others go on', '15\n', 'reduce', where[0], 'ints', 'squares', '1')
        r = kv('bench', where[0], '--keys', '1000', '--duration', '0.1')
        check('the store goes on', r.returncode == 0, r)
    finally:
        check('it ends well', n.end()[0] == 0)
    one_line_error('an object of another version',
                   run('node', '--port', f'shm:{where[0]}', '--kv', '1M', '--function', WRONG_ABI),
                   1, 'version')
    one_line_error('functions twice', run('node', '--port', f'shm:{where[0]}', '--kv', '1M',
                                          '--function', f'{FUNCTIONS},{FUNCTIONS}'), 1, 'name')
    one_line_error('functions without a store', run('node', '--function', FUNCTIONS), 2, '--kv')


def a_folder_that_is_not_synced(folder):
    """The node may create files in the folder, but not open it, so only its sync fails: the new
    snapshot is in place, and no line says that the old one is."""
    before = obeying_modes()
    if before is None:
        print('SKIPPED: a folder that is not synced: setpriv is refused')
        return
    inside = os.path.join(folder, 'closed')
    path = os.path.join(inside, 'store')
    os.mkdir(inside)
    os.chmod(inside, 0o300)
    try:
        n = node('--snapshot', path, before=before)
        says('put', '', 'put', where[0], 'colour', 'green')
        one_line_error('a folder that is not synced', kv('snapshot', str(n.pid)), 1,
                       'the new file is in place', 'Permission denied', 'take another snapshot')
        check('the new file', os.path.exists(path))
        check('it is not counted as done', describe(n)['snapshot']['done'] == 0)
        status, said = n.end()
        lines = said.splitlines()
        check(f'a node whose last snapshot is not synced says so ({lines})',
              status == 1 and len(lines) == 2 and
              all(path in line and 'the new file is in place' in line for line in lines))
        n = node('--snapshot', path)
        says('the new file is loaded', 'green\n', 'get', where[0], 'colour')
        n.end()
    finally:
        os.chmod(inside, 0o700)


def snapshots(folder):
    path = os.path.join(folder, 'store')
    n = node('--snapshot', path)
    says('put', '', 'put', where[0], 'colour', 'green')
    says('put with a time', '', 'put', where[0], 'soon', 'over', '--ttl', '1000')
    says('a snapshot', '', 'snapshot', str(n.pid))
    check('its file', os.path.exists(path) and os.stat(path).st_mode & 0o777 == 0o600)
    says('put behind the snapshot', '', 'put', where[0], 'colour', 'blue')
    n.end(signal.SIGKILL)
    n = node('--snapshot', path)
    check('pairs are loaded', n.hello['kv']['snapshot']['loaded'] == 2)
    says('the value of the snapshot', 'green\n', 'get', where[0], 'colour')
    says('the pair with a time', 'over\n', 'get', where[0], 'soon')
    says('put', '', 'put', where[0], 'colour', 'red')
    os.kill(n.pid, signal.SIGUSR1)
    until('SIGUSR1 writes a snapshot', lambda: describe(n)['snapshot']['done'] == 1)
    n.end(signal.SIGKILL)
    n = node('--snapshot', path, '--snapshot-every', '0.1')
    says('the value', 'red\n', 'get', where[0], 'colour')
    until('snapshots at intervals', lambda: describe(n)['snapshot']['done'] >= 2)
    says('put before the end', '', 'put', where[0], 'colour', 'white')
    check('it ends well', n.end()[0] == 0)
    n = node('--snapshot', path)
    says('a node that ends well loses nothing', 'white\n', 'get', where[0], 'colour')
    check('it ends well', n.end()[0] == 0)
    with open(path, 'r+b') as f:
        f.seek(30)
        f.write(b'?')
    one_line_error('a damaged file',
                   run('node', '--port', f'shm:{where[0]}', '--kv', '1M', '--snapshot', path), 1,
                   'damaged')
    none = os.path.join(folder, 'none')
    path = os.path.join(none, 'store')
    one_line_error('a folder that is not there',
                   run('node', '--port', f'shm:{where[0]}', '--kv', '1M', '--snapshot', path), 1,
                   path)
    os.mkdir(none)
    n = node('--snapshot', path)
    os.rmdir(none)
    one_line_error('a folder that is gone', kv('snapshot', str(n.pid)), 1, 'No such file')
    says('the store goes on', '', 'put', where[0], 'colour', 'black')
    check('a node that can not write its last snapshot says so', n.end()[0] == 1)
    n = node()
    one_line_error('no file', kv('snapshot', str(n.pid)), 1, '--snapshot')
    n.end()
    one_line_error('no store', run('node', '--snapshot', path), 2, '--kv')
    one_line_error('an interval without a file', run('node', '--kv', '1M', '--snapshot-every', '1'),
                   2, '--snapshot')


def no_reader(folder):
    """The program that reads the node's messages has ended: the node serves and keeps its store."""
    path = os.path.join(folder, 'unread')
    n = node('--verbose', '--snapshot', path)
    n.process.stderr.close()
    n.process.stdout.close()
    says('put', '', 'put', where[0], 'colour', 'green')
    says('a node whose messages nobody reads serves', 'green\n', 'get', where[0], 'colour')
    n.process.terminate()
    check('it ends well', n.process.wait(LIMIT) == 0)
    n = node('--snapshot', path)
    says('its snapshot', 'green\n', 'get', where[0], 'colour')
    n.end()


def kills(folder):
    """Kills of the node while it writes: the file is the old one or the new one, and whole."""
    path = os.path.join(folder, 'killed')
    draw = random.Random(SEED)
    least, new_files = 0, 0
    n = node('--snapshot', path)
    r = kv('bench', where[0], '--keys', '20000', '--value', '1000', '--put', '100', '--duration',
           '0.01')
    check('values', r.returncode == 0, r)
    says('generation', '', 'put', where[0], 'generation', '0')
    says('a whole snapshot', '', 'snapshot', str(n.pid))
    for i in range(1, 9):
        says('generation', '', 'put', where[0], 'generation', str(i))
        os.kill(n.pid, signal.SIGUSR1)
        time.sleep(draw.uniform(0, 0.15))
        n.end(signal.SIGKILL)
        new_files += os.path.exists(path + '.new')
        n = node('--snapshot', path)
        check(f'seed {SEED}: kill {i}: all pairs are loaded',
              n.hello.get('kv', {}).get('snapshot', {}).get('loaded') == 20001)
        r = kv('get', where[0], 'generation')
        check(f'seed {SEED}: kill {i}: the old snapshot or the new one',
              r.returncode == 0 and least <= int(r.stdout) <= i, r)
        least = int(r.stdout or 0)
    print(f'{new_files} of 8 kills left a file that was not complete')
    check('it ends well', n.end()[0] == 0 and not os.path.exists(path + '.new'))


def dies():
    """A node that is killed during a measurement."""
    n = node()
    with subprocess.Popen([ROOST, 'kv', '--port', f'shm:{where[1][:-1]}4', 'bench', where[0],
                           '--keys', '500', '--duration', '60'], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as p:
        until('keys are stored', lambda: last_json(kv('stat', where[0], '--json'))['pairs'] >= 500)
        n.end(signal.SIGKILL)
        out, err = p.communicate()
        one_line_error('bench of a node that dies',
                       subprocess.CompletedProcess(p.args, p.returncode, out, err), 1,
                       'check that the node runs')


def top():
    n = node()
    r = kv('bench', where[0], '--keys', '1000', '--duration', '0.1')
    r = kv('top', where[0], '--count', '2', '--every', '0.05', '--json')
    rows = [json.loads(line) for line in r.stdout.splitlines()]
    check('top', r.returncode == 0 and len(rows) == 2 and rows[1]['pairs'] == 1000
          and rows[1]['operations'] > 1000, r)
    r = kv('top', where[0], '--count', '1')
    check('top as a table',
          r.returncode == 0 and '1,000' in r.stdout and 'operations/s' in r.stdout, r)
    n.end()


def bad_reply():
    """A node whose reply about its partitions is shorter than the version of a table."""
    n = Node(f'shm:{where[0]}', '--kernels', 'get')
    r = run('kernel', 'load', str(n.pid), SHORT_REPLY)
    check('a kernel in the place of the store', r.returncode == 0, r)
    for command in ('stat',), ('top', '--count', '1'):
        r = kv(command[0], where[0], *command[1:])
        one_line_error(f'{command[0]} of a bad reply', r, 1, 'reply is not valid')
    n.end()


def other_version():
    """A node that has another version of the wire format."""
    n = Node(f'shm:{where[0]}', '--kernels', 'get')
    r = run('kernel', 'load', str(n.pid), OTHER_VERSION)
    check('a kernel of another version', r.returncode == 0, r)
    for command in ('get', 'key'), ('put', 'key', 'x' * 20000), ('stat',):
        one_line_error(f'{command[0]} of another version', kv(command[0], where[0], *command[1:]),
                       1, 'another version')
    n.end()


functions()
with tempfile.TemporaryDirectory() as temporary:
    snapshots(temporary)
    a_folder_that_is_not_synced(temporary)
    no_reader(temporary)
    kills(temporary)
top()
dies()
bad_reply()
other_version()
finish()
