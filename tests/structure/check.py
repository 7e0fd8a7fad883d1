#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""scripts/check counts a run of Meson that does not end as a failure, also in a variant that runs
beside others. The build and Meson are programs of this test, in a copy of the folder.

usage: check.py TOP
"""
import os
import shutil
import subprocess
import sys
import tempfile

PASSED = r'{"name": "one", "result": "OK", "stdout": ""}\n'
# The log of a run, and how Meson ends. The variants are `quick`, and `network`, which runs beside.
CASES = {
    'all tests pass': (PASSED, 'exit 0', '1 passed, 0 failed', 0),
    'a test fails': (r'{"name": "one", "result": "FAIL"}\n', 'exit 1', '0 passed, 1 failed', 1),
    'Meson is killed': (PASSED, 'kill -9 $$', '1 passed, 1 failed', 1),
    'Meson is killed while it writes': (PASSED + r'{"name": "tw', 'kill -9 $$',
                                        '1 passed, 1 failed', 1),
    'the log is damaged': (PASSED + r'?\n', 'exit 0', '1 passed, 1 failed', 1),
}
# scripts/check passes the name of the log as the word behind --logbase.
MESON = '''#!/bin/sh
while [ "$1" != --logbase ]; do shift; done
mkdir -p build/meson-logs
printf '%s' >"build/meson-logs/$2.json"
{end}
'''


def program(path, text):
    with open(path, 'w', encoding='utf-8') as f:
        f.write(text)
    os.chmod(path, 0o755)


def run(top, variant, log, end):
    with tempfile.TemporaryDirectory() as folder:
        tree, tools = os.path.join(folder, 'tree'), os.path.join(folder, 'tools')
        os.makedirs(os.path.join(tree, 'scripts'))
        os.mkdir(tools)
        shutil.copy(os.path.join(top, 'scripts', 'check'), os.path.join(tree, 'scripts'))
        program(os.path.join(tree, 'scripts', 'build'), '#!/bin/sh\nexit 0\n')
        program(os.path.join(tools, 'meson'), MESON.replace('%s', log).replace('{end}', end))
        return subprocess.run([sys.executable, os.path.join(tree, 'scripts', 'check'), variant],
                              env=dict(os.environ, PATH=f'{tools}:{os.environ["PATH"]}'),
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=100, check=False)


failed = 0
for variant in ('quick', 'network'):
    for what, (log, end, counts, status) in CASES.items():
        done = run(sys.argv[1], variant, log, end)
        if done.returncode != status or done.stdout.splitlines()[-1:] != [counts]:
            failed += 1
            print(f'FAILED: {variant}: {what}: exit status {done.returncode}\n{done.stdout}')
sys.exit(1 if failed else 0)
