#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""scripts/mutants ends a build or a test that does not end, with the programs that it started, and
continues with the next mutant. Meson, Ninja and the test are programs of this test, in a copy of
the folder.

usage: mutants.py TOP
"""
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

MARK = 'ROOST_TEST_MUTANTS'
TABLE = ''.join(f"    ('cli/slow.py:x', 'core.c', 'old {n}', 'new {n}'),\n" for n in 'ab')
# They start a program and wait for it.
HANGS = '#!/bin/sh\nsleep 1000 &\nwait\n'
ENDS = '#!/bin/sh\nexit 0\n'
CASES = {
    'a test that does not end': ('--limit', ENDS, HANGS, 'noticed: it does not end within 1 s',
                                 '2 of 2 noticed', 0),
    'a build that does not end': ('--build-limit', HANGS, ENDS, 'the build does not end within 1 s',
                                  '0 of 2 noticed', 1),
}


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, 'w', encoding='utf-8') as f:
        f.write(text)
    os.chmod(path, 0o755)


def left(mark):
    """Returns the processes that have the mark in their environment, without zombies."""
    found = []
    for pid in filter(str.isdigit, os.listdir('/proc')):
        try:
            with open(f'/proc/{pid}/environ', 'rb') as f:
                if f'{MARK}={mark}'.encode() in f.read().split(b'\0'):
                    found.append(int(pid))
        except OSError:
            pass  # it has ended
    return found


def gone(mark):
    """Returns whether the killed processes end. A killed one may still be on its way out."""
    until = time.monotonic() + 60
    while left(mark) and time.monotonic() < until:
        time.sleep(0.02)
    return not left(mark)


def run(top, option, ninja, test):
    """Returns (exit status, output, whether no process is left)."""
    with tempfile.TemporaryDirectory() as folder:
        tree, tools = os.path.join(folder, 'tree'), os.path.join(folder, 'tools')
        os.makedirs(os.path.join(tree, 'scripts'))
        shutil.copy(os.path.join(top, 'scripts', 'mutants'), os.path.join(tree, 'scripts'))
        write(os.path.join(tree, 'core.c'), 'old a\nold b\n')
        write(os.path.join(tree, 'tests', 'nic', 'mutants.py'), f'MUTANTS = [\n{TABLE}]\n')
        write(os.path.join(tree, 'tests', 'cli', 'slow.py'), test)
        write(os.path.join(tools, 'meson'), ENDS)
        write(os.path.join(tools, 'ninja'), ninja)
        for words in (['init', '-q'], ['add', '-A']):
            subprocess.run(['git', *words], cwd=tree, check=True)
        env = dict(os.environ, PATH=f'{tools}:{os.environ["PATH"]}', **{MARK: folder})
        with open(os.path.join(folder, 'said'), 'w+', encoding='utf-8') as said:
            # Not by a pipe: it ends with the last program that has it.
            status = subprocess.run([sys.executable, os.path.join(tree, 'scripts', 'mutants'),
                                     option, '1'], env=env, stdin=subprocess.DEVNULL,
                                    stdout=said, stderr=said, timeout=200, check=False).returncode
            said.seek(0)
            text = said.read()
        alone = gone(folder)
        for pid in left(folder):
            os.kill(pid, signal.SIGKILL)
        return status, text, alone


if not shutil.which('git'):
    print('SKIPPED: scripts/mutants copies the files that git lists: no git')
    sys.exit(77)
failed = 0
for what, (option, ninja, test, line, counts, wanted) in CASES.items():
    status, text, alone = run(sys.argv[1], option, ninja, test)
    lines = text.splitlines()
    if (status != wanted or lines[-1:] != [counts] or not alone
            or [found.endswith(line) for found in lines] != [True, True, False]):
        failed += 1
        print(f'FAILED: {what}: exit status {status}, '
              f'{"no" if alone else "a"} program is left\n{text}')
sys.exit(1 if failed else 0)
