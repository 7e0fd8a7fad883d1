#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""The suite `single` has exactly the programs of `unit` that cannot start a thread: those that do
not import pthread_create(). `make check` leaves them out of the TSan variant.

usage: threads.py BUILD-FOLDER
"""
import json
import os
import re
import subprocess
import sys

# Their variants are those of tests/fuzz/meson.build.
EXEMPT = re.compile('fuzz-')


def with_threads(programs):
    """Returns the programs that import a function which starts a thread."""
    done = subprocess.run(['nm', '--dynamic', '--undefined-only', '--print-file-name', *programs],
                          stdout=subprocess.PIPE, text=True, check=True)
    return set(re.findall(r'^(.*?):.* (?:pthread_create|thrd_create)(?:@|$)', done.stdout, re.M))


def problems(build):
    with open(os.path.join(build, 'meson-info', 'intro-tests.json'), encoding='utf-8') as f:
        tests = [test for test in json.load(f) if not EXEMPT.match(test['name'])
                 and 'unit' in {suite.rpartition(':')[2] for suite in test['suite']}]
    threads = with_threads(sorted({test['cmd'][0] for test in tests
                                   if test['cmd'][0].startswith(build + os.sep)}))
    for test in tests:
        name, program = test['name'], test['cmd'][0]
        single = any(suite.endswith(':single') for suite in test['suite'])
        if not program.startswith(build + os.sep):
            if single:
                yield f'{name}: a script is in the suite `single`'
        elif program in threads and single:
            yield f'{name}: has pthread_create(), so it must not be in the suite `single`'
        elif program not in threads and not single:
            yield f'{name}: has no pthread_create(): add it to the suite `single`'


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    found = list(problems(os.path.abspath(sys.argv[1])))
    for problem in found:
        print(problem)
    sys.exit(1 if found else 0)


main()
