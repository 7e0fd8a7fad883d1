#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Runs the commands of docs/chains.md from the first to the last, and compares their output with
the document.

A command is an indented line that names build/roost or a program of build/examples. In the text
behind it, "prints `X`" and an indented block name what it prints; three dots stand for any text. A
command that the text calls faulty ends with 1, all others with 0.
"""
import os
import re
import subprocess
import sys
import tempfile

from cli import LIMIT, ROOST, check, finish

TOP = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..')
DOC = os.path.join(TOP, 'docs', 'chains.md')
FEWEST = 12  # commands of the document
KEYS = {'--break': 'l loop\np sum\nc\nq\n'}  # input of the user, by an option of the command


def parts(text):
    """Yields each command with the text up to the next one. A command in the background belongs to
    the command behind it."""
    at = [m for m in re.finditer(r'^    (\S.*)$', text, re.M)
          if re.search(r'\bbuild/(roost\b|examples/)', m.group(1))]
    before = ''
    for m, following in zip(at, at[1:] + [None]):
        command = before + m.group(1)
        before = command + '\n' if '&' in m.group(1) else ''
        if not before:
            yield command, re.split(r'^#',
                                    text[m.end():following.start() if following else len(text)],
                                    flags=re.M)[0]


def squeezed(text):
    return ' '.join(text.split())


def promises(rest):
    """Returns the texts that the command must print: `X` behind "prints", and an indented block."""
    block = re.search(r'^(?:prints|finds)[^`]*?\n\n((?:    [^\n]*\n)+)', rest.lstrip('\n'))
    lines = block.group(1).splitlines() if block else []
    if block and 'without the line break' in squeezed(block.group(0)):
        lines = [' '.join(lines)]
    return re.findall(r'prints\s+`([^`]+)`', rest) + [squeezed(line) for line in lines]


def is_printed(promise, out):
    return re.search(r'.*'.join(re.escape(p.strip()) for p in promise.split('...')),
                     squeezed(out)) is not None


def main():
    with open(DOC, encoding='utf-8') as f:
        commands = list(parts(f.read()))
    check(f'{FEWEST} commands or more', len(commands) >= FEWEST)
    printed = 0
    with tempfile.TemporaryDirectory(prefix='roost-doc-') as folder:
        os.mkdir(os.path.join(folder, 'build'))
        os.symlink(os.path.abspath(ROOST), os.path.join(folder, 'build', 'roost'))
        os.symlink(os.path.abspath(os.path.join(TOP, 'examples')), os.path.join(folder, 'examples'))
        os.symlink(os.path.abspath(os.path.join(sys.argv[2], 'examples')),
                   os.path.join(folder, 'build', 'examples'))
        for command, rest in commands:
            typed = next((keys for option, keys in KEYS.items() if option in command), '')
            script = command + ('\nkill %1' if '&' in command else '')
            r = subprocess.run(['/bin/bash', '-c', script], cwd=folder, input=typed,
                               capture_output=True, text=True, timeout=LIMIT, check=False)
            faulty = squeezed(rest).startswith('prints a line for each of')
            check(f'{command}: its exit status',
                  r.returncode == (1 if faulty else 0) and not r.stderr, r)
            quiet = squeezed(rest).startswith('finds nothing and prints nothing')
            check(f'{command}: prints something, unless the text says nothing',
                  quiet or '--output' in command or r.stdout, r)
            check(f'{command}: prints nothing', not quiet or not r.stdout, r)
            for promise in promises(rest):
                printed += 1
                check(f'{command}: prints {promise}', is_printed(promise, r.stdout), r)
    check('the document says what commands print', printed >= 8)
    print(f'{len(commands)} commands, {printed} texts that they print')


main()
finish()
