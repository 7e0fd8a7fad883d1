#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Each help has an example, and the options of the man page; an invalid command line gets one line
and a status that is not 0."""
import os
import re
import subprocess
import tempfile

from cli import ROOST, check, finish, one_line_error, run

COMMANDS = ['demo', 'run', 'node', 'call', 'kernel', 'kv', 'chain', 'perf', 'limits', 'doctor',
            'devices', 'stat', 'pcap', 'completion']

USAGE = [
    ([], 'demo'),
    (['nonsense'], '--help'),
    (['perf'], 'write'),
    (['perf', 'fly'], 'fly'),
    (['perf', 'write', 'read'], 'read'),
    (['perf', 'write', '--nonsense'], '--nonsense'),
    (['perf', 'write', '-x'], '-x'),
    (['perf', 'write', '--size'], 'SIZE'),
    (['perf', 'write', '--size', 'many'], 'many'),
    (['perf', 'write', '--size', '-5'], '--size'),
    (['perf', 'write', '--size', '3G'], '--size'),
    (['perf', 'write', '--size', '1.0001K'], '--size'),
    (['perf', 'write', '--qps', '0'], '--qps'),
    (['perf', 'write', '--qps', '1e3'], '--qps'),
    (['perf', 'write', '--mtu', '1000'], '--mtu'),
    (['perf', 'write', '--lat', 'guess'], 'pingpong'),
    (['perf', 'write', '--seconds', 'soon'], '--seconds'),
    (['perf', 'write', '--seconds', '0'], '--seconds'),
    (['perf', 'write', '--json=yes'], '--json'),
    (['perf', 'write', '--local', '--server'], '--local'),
    (['perf', 'write', '--server'], 'server'),
    (['perf', 'write', '--port', 'carrier-pigeon'], 'udp'),
    (['perf', 'write', '--port', 'udp:127.0.0.300'], '127.0.0.300'),
    (['perf', 'write', '--sweep', '--size', '64'], '--sweep'),
    (['perf', 'write', '--sizes', '1,2'], '--check'),
    (['perf', 'write', '--check', '--sizes', '1,,2'], '--sizes'),
    (['perf', 'write', '--depth', '4', '--post-list', '8'], '--depth'),
    (['perf', 'write', '--gap', '1ms'], '--lat'),
    (['perf', 'read', '--lat', 'pingpong'], 'completion'),
    (['perf', 'send', '--passive'], 'passive'),
    (['perf', 'atomic', '--size', '16'], '8 bytes'),
    (['perf', 'atomic', '--lat', 'firstbyte'], 'firstbyte'),
    (['perf', 'write', '--lat', 'execute', '--passive'], '--passive'),
    (['demo', 'something'], 'something'),
    (['demo', '--size', '0'], '--size'),
    (['demo', '--port', 'tcp'], 'udp'),
    (['run'], 'Program'.lower()),
    (['run', '--port', 'tcp', 'true'], 'udp'),
    (['run', '--lanes', '2', 'true'], '--lanes'),
    (['devices', 'all'], 'all'),
    (['devices', '-5'], "'-5'"),
    (['kv'], 'action'),
    (['kv', 'get'], 'get needs'),
    (['kv', 'stat'], 'stat needs'),
    (['kv', 'move'], 'move needs'),
    (['kv', 'move', 'parts', '3'], 'move needs'),
    (['kv', 'tune'], 'tune needs'),
    (['kv', 'incr', '127.0.0.2', 'count', '-x'], "no option '-x'"),
]

FAILS = [
    (['demo', '--file', '/nonexistent/file'], '/nonexistent/file'),
    (['demo', '--file', '/'], 'file'),
    (['demo', '--keep', '/nonexistent'], '/nonexistent'),
    (['devices', '--port', 'udp:192.0.2.77'], '192.0.2.77'),
    (['devices', '--port', 'tcp'], 'tcp'),
    (['call', '--port', 'udp:192.0.2.77', '127.0.0.2', 'get', '1'], '192.0.2.77 is no address'),
    (['kv', '--port', 'udp:192.0.2.77', 'get', '127.0.0.2', 'k'], '192.0.2.77 is no address'),
    (['perf', 'write', '--port', 'udp,loss=2'], 'loss'),
    (['perf', 'write', '--connect', '127.0.0.1:1'], '--server'),
    (['perf', 'write', '--connect', ':'], 'HOST'),
    (['perf', 'write', '--connect', '127.0.0.1:99999'], '65535'),
    (['perf', '--server', '--port', 'tcp'], 'tcp'),
    (['node', '--port', 'shm', '--table', '/'], 'directory'),
    (['pcap', '/nonexistent'], '/nonexistent'),
]

MANUALS = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..', 'docs', 'man')


def manual(command):
    """Returns (all words of the man page, the options that it describes)."""
    with open(os.path.join(MANUALS, f'roost-{command}.1'), encoding='utf-8') as f:
        lines = re.sub(r'\\f[BIRP]', '', f.read()).replace('\\-', '-').splitlines()
    own = [lines[i] for i in range(1, len(lines)) if lines[i - 1] == '.TP' and lines[i][:1] == '-']
    return '\n'.join(lines), {word for line in own for word in re.findall('--[a-z-]+', line)}


def documented(command, text):
    """The man page has the options of the help, and no others."""
    options = set(re.findall(r'^  (?:-\w,|   ) (--[a-z-]+)', text, re.M)) - {'--help'}
    words, own = manual(command)
    check(f'{command}: options that its man page lacks: '
          f'{sorted(o for o in options if not re.search(o + "(?![a-z-])", words))}',
          all(re.search(o + '(?![a-z-])', words) for o in options))
    check(f'{command}: options of the man page that do not exist: {sorted(own - options)}',
          not own - options)


# A folder of its own: `roost stat` would name the processes of other tests that do not answer.
folder = tempfile.TemporaryDirectory()
os.environ['ROOST_SHM_DIR'] = os.path.join(folder.name, 'nics')
os.mkdir(os.environ['ROOST_SHM_DIR'], 0o700)

for args in (['--help'], ['-h'], ['help']):
    r = run(*args)
    check('roost --help lists the commands', r.returncode == 0
          and all(c in r.stdout for c in COMMANDS) and 'examples:' in r.stdout and not r.stderr, r)
for c in COMMANDS:
    r = run(c, '--help')
    check(f'{c} --help has an example', r.returncode == 0 and f'usage: roost {c}' in r.stdout
          and f'roost {c}' in r.stdout.split('examples:')[-1] and not r.stderr, r)
    long = [line for line in r.stdout.splitlines() if len(line) > 100]
    check(f'{c} --help fits a terminal', not long, r)
    check(f'help {c}', run('help', c).stdout == r.stdout)
    documented(c, r.stdout)
one_line_error('help of nothing', run('help', 'nope'), 2, 'nope')

# Output that cannot be written is an error: a full disk, a closed stdout.
for args in (['--help'], ['--version'], ['perf', '--help'], ['devices', '--port', 'shm'],
             ['stat', '--json'], ['stat', '--watch', '0.05'],
             ['perf', 'write', '--port', 'shm', '--iters', '10'],
             ['perf', 'write', '--port', 'shm', '--iters', '10', '--json']):
    for shell in ('>/dev/full', '>&-'):
        r = subprocess.run(['sh', '-c', f'exec "$@" {shell}', 'sh', ROOST, *args],
                           stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=100,
                           check=False)
        one_line_error(f'{args} {shell}', r, 1, "can't write")

r = run('--version')
check('--version', r.returncode == 0 and r.stdout.startswith('roost '), r)

for args, word in USAGE:
    one_line_error('a usage error', run(*args), 2, word)
for args, word in FAILS:
    r = run(*args)
    if args[0] == 'devices':
        r.stdout = ''  # programs of this machine, which may be those of other tests
    one_line_error('a failure', r, 1, word)
finish()
