#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Concurrent runs of examples/kv.sh and examples/perftest.sh share no address, whatever their
process ids are, and no TCP port if these are less than 6000 apart. Meson runs both at the same
time. Their programs are this test's, which write down their arguments.

Arguments: EXAMPLES. The exit status is 77 if a process id cannot be chosen here.
"""
import os
import re
import subprocess
import sys
import tempfile

# They differ by one, by 128 and by 65536; numbers of a container, and the greatest.
PIDS = [3, 128, 900, 901, 902, 1024, 1152, 66560, 4194302]
PROGRAM = '''#!/bin/sh
echo "$@" >>"$NOTES"
echo memory
[ "$1" = node ] && exec sleep 1000
exit 0
'''
# The shell's next child has the process id behind that of ns_last_pid.
CHOOSE = 'echo "$0" >/proc/sys/kernel/ns_last_pid && "$@"; exit $?'


def used(tools, script, pid):
    """Returns the addresses and ports that the script passes to its programs."""
    with tempfile.TemporaryDirectory() as folder:
        notes = os.path.join(folder, 'notes')
        rights = [] if os.geteuid() == 0 else ['--map-root-user']
        r = subprocess.run(
            ['unshare', *rights, '--pid', '--fork', '--kill-child', 'sh', '-c', CHOOSE,
             str(pid - 1), 'sh', '-c', 'echo $$ >"$0" && exec "$@"', os.path.join(folder, 'pid'),
             os.path.join(sys.argv[1], script), os.path.join(tools, 'roost')],
            env=dict(os.environ, NOTES=notes, PATH=f'{tools}:{os.environ["PATH"]}'),
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=100, check=False)
        try:
            with open(os.path.join(folder, 'pid'), encoding='ascii') as f:
                chosen = int(f.read())
        except FileNotFoundError:
            chosen = 0
        if chosen != pid:
            return None
        with open(notes, encoding='utf-8') as f:
            text = f.read()
        if r.returncode:
            print(f'FAILED: {script}: {r.stderr}')
            sys.exit(1)
        return (set(re.findall(r'udp:(127\.\d+\.\d+\.\d+)', text))
                | set(re.findall(r'(?<=-p )\d+', text))
                | set(re.findall(r'--memcached (\S+)', text)))


failed, seen, runs = 0, {}, 0
with tempfile.TemporaryDirectory() as tools:
    for name in ('roost', 'memccp', 'memccat', 'ib_write_bw', 'ib_read_lat'):
        with open(os.path.join(tools, name), 'w', encoding='utf-8') as f:
            f.write(PROGRAM)
        os.chmod(f.name, 0o755)
    for script in ('kv.sh', 'perftest.sh'):
        for pid in PIDS:
            names = used(tools, script, pid)
            if names is None:  # kernel.pid_max may be less
                continue
            runs += 1
            if len([n for n in names if re.fullmatch(r'127[.\d]+', n)]) != 2:
                failed += 1
                print(f'FAILED: {script} has two addresses: {names}')
            for name in names:
                other, its_pid = seen.setdefault(name, (script, pid))
                # A process id belongs to one script. 127.0.0.0 is a broadcast address, and others
                # of 127.0.0 are those of the guides.
                if its_pid != pid or name.startswith('127.0.0.'):
                    failed += 1
                    print(f'FAILED: {script}, process id {pid}, has {name}; {other}, {its_pid}, '
                          'has it too')
if not runs:
    print('SKIPPED: a process id cannot be chosen here')
    sys.exit(77)
print(f'{runs} runs')
sys.exit(1 if failed else 0)
