#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""The runner of this folder runs the commands behind one that failed, and the other systems if one
failed or cannot be made; its last lines name what failed, and count. The systems are those of this
test: no command runs."""
import contextlib
import io
import subprocess
import sys
import tempfile

import run
import system

STEPS = [('one', ['true']), ('two', ['false']), ('three', ['true'])]


def base(_folder, suite):
    if suite == 'none':
        raise system.Missing('no such suite')


def command(_folder, suite, words, stdout=None, **_):
    stdout.write(f'{suite} {words[0]}\n')
    return subprocess.CompletedProcess(words, int(words[0] == 'false' and suite == 'bad'))


def outcome(*suites):
    """Returns (exit status, output)."""
    with tempfile.TemporaryDirectory() as folder:
        sys.argv = ['run.py', '--folder', folder, *suites]
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            try:
                run.main()
                status = 0
            except SystemExit as e:
                status = e.code
    return status, said.getvalue()


system.HERE_IS_ONE = False
system.base, system.run, system.copy_source = base, command, lambda *_: None
run.SHORT = STEPS
run.skip = lambda what, failed=False: sys.exit(1 if failed else 77)
CASES = {
    ('good',): (0, ['3 passed, 0 failed']),
    ('bad',): (1, ['FAILED bad, two', '2 passed, 1 failed']),
    ('bad', 'good'): (1, ['FAILED bad, two', '5 passed, 1 failed']),
    ('none', 'good'): (77, ['3 passed, 0 failed']),
    ('none', 'bad'): (1, ['FAILED bad, two', '2 passed, 1 failed']),
}
failed = 0
for suites, (wanted, lines) in CASES.items():
    status, text = outcome(*suites)
    ran = [suite for suite in suites if f'ok     {suite:10} three' in text]
    if status != wanted or text.splitlines()[-len(lines):] != lines \
            or ran != [suite for suite in suites if suite != 'none']:
        failed += 1
        print(f'FAILED: {suites}: exit status {status}\n{text}')
sys.exit(1 if failed else 0)
