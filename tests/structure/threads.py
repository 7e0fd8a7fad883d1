#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""The suite `single` has exactly the programs of `unit` that cannot start a thread: those that do
not import pthread_create(). `make check` leaves them out of the TSan variant. The stress tests that
docs/architecture.md names, "The order of memory", are in `unit` and not in `single`.

usage: threads.py BUILD-FOLDER
"""
import json
import os
import re
import subprocess
import sys

# Their variants are those of tests/fuzz/meson.build.
EXEMPT = re.compile('fuzz-')
TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def with_threads(programs):
    """Returns the programs that import a function which starts a thread."""
    done = subprocess.run(['nm', '--dynamic', '--undefined-only', '--print-file-name', *programs],
                          stdout=subprocess.PIPE, text=True, check=True)
    return set(re.findall(r'^(.*?):.* (?:pthread_create|thrd_create)(?:@|$)', done.stdout, re.M))


def introspect(build, what):
    with open(os.path.join(build, 'meson-info', f'intro-{what}.json'), encoding='utf-8') as f:
        return json.load(f)


def stress_tests():
    """Returns the files that the last column of the table names."""
    with open(os.path.join(TOP, 'docs', 'architecture.md'), encoding='utf-8') as f:
        section = f.read().split('\n## The order of memory\n')[1].split('\n## ')[0]
    found, folder = set(), ''
    for line in section.splitlines():
        if line.startswith('| '):
            for name in re.findall(r'[\w/]+\.c\b', line.split(' |')[-2]):
                folder = os.path.dirname(name) or folder
                found.add(os.path.join(TOP, 'tests', folder, os.path.basename(name)))
    return found


def without_tsan(build, tests):
    """Yields the stress tests that no test of these is made of."""
    programs = {test['cmd'][0] for test in tests
                if not any(suite.endswith(':single') for suite in test['suite'])}
    made_of = {name for target in introspect(build, 'targets')
               if programs & set(target['filename'])
               for group in target['target_sources'] for name in group.get('sources', [])}
    for name in sorted(stress_tests() - made_of):
        yield f'{os.path.relpath(name, TOP)}: docs/architecture.md names it, but it has no TSan'


def problems(build):
    tests = [test for test in introspect(build, 'tests') if not EXEMPT.match(test['name'])
             and 'unit' in {suite.rpartition(':')[2] for suite in test['suite']}]
    yield from without_tsan(build, tests)
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
