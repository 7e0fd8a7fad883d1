#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""The tests that the table of docs/security.md names.

usage: attacks.py BUILD           checks that they exist: tests of BUILD, their functions, fuzz
                                  targets
       attacks.py list BUILD...   prints for each BUILD a line with the names of those of its tests
                                  that no BUILD before it has

A cell of the table has tests, and after a colon functions of a test: "a-test, another: one, two;
a-third". A name stands for all tests that begin with it and a dash, too (rdmacm-draws).
"""
import json
import os
import re
import sys

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PAGE = os.path.join(TOP, 'docs', 'security.md')
# scripts/soak runs these itself, with other arguments.
ELSEWHERE = re.compile('attacks-network$|fuzz-')


def cells():
    """Returns the last cell of each row of the table of attacks."""
    with open(PAGE, encoding='utf-8') as f:
        table = f.read().split('\n## Attacks\n')[1].split('\n## ')[0]
    rows = [line.split(' |')[-2].strip(' |') for line in table.splitlines()
            if line.startswith('| ')]
    return rows[1:]


def introspect(build, what):
    with open(os.path.join(build, 'meson-info', f'intro-{what}.json'), encoding='utf-8') as f:
        return json.load(f)


def stands_for(name, tests):
    return [test for test in tests if test == name or test.startswith(name + '-')]


def named(tests):
    """Yields (name, function or None) of all cells; a name is one of `tests`, or of no test."""
    for cell in cells():
        for part in cell.split(';'):
            current = None
            for word in re.split(r',\s*', part.strip()):
                name, colon, function = word.partition(': ')
                if name == 'by reading':
                    continue
                if colon:
                    current = name
                    yield name, function
                elif current and not stands_for(name, tests):
                    yield current, name
                else:
                    current = None
                    yield name, None


def sources(build, test):
    """Returns the texts of a test's program or script."""
    made = {os.path.realpath(name): target for target in introspect(build, 'targets')
            for name in target['filename']}
    texts = []
    for word in test['cmd']:
        path = os.path.realpath(word)
        target = made.get(path)
        files = ([f for group in target['target_sources'] for f in group.get('sources', [])]
                 if target else [path])
        for name in files:
            if name.startswith(os.path.join(TOP, 'tests')) and name.endswith(('.c', '.py')):
                with open(name, encoding='utf-8') as f:
                    texts.append(f.read())
    return texts


def has(texts, function):
    """Returns whether a program runs this test, or a script has this function or name of a row."""
    name = re.escape(function)
    pattern = rf"(?:cmocka_unit_test\w*|\b[A-Z]+)\({name}[,)]|'{name}'|\ndef {name}\("
    return any(re.search(pattern, text) for text in texts)


def problems(build):
    tests = {test['name']: test for test in introspect(build, 'tests')}
    for name, function in named(tests):
        found = stands_for(name, tests)
        target = os.path.join(TOP, 'tests', 'fuzz', name.replace('-', '_') + '.c')
        if not found and not (name.startswith('fuzz-') and os.path.exists(target)):
            yield f'docs/security.md: there is no test {name}'
        elif function and not has(sources(build, tests[found[0]]), function):
            yield f'docs/security.md: {name} has no {function}'


def lists(builds):
    printed = set()
    for build in builds:
        tests = [test['name'] for test in introspect(build, 'tests')]
        own = {test for name, _ in named(tests) for test in stands_for(name, tests)}
        yield ' '.join(sorted(name for name in own - printed if not ELSEWHERE.match(name)))
        printed |= own


def main():
    if sys.argv[1:2] == ['list'] and len(sys.argv) > 2:
        print('\n'.join(lists(sys.argv[2:])))
        return
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    found = list(problems(sys.argv[1]))
    for problem in found:
        print(problem)
    sys.exit(1 if found else 0)


main()
