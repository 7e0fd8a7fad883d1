#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""The runner of this folder fails if a step of several programs behind one address fails, names its
program, and has the output: a program that ends with an error although its output is as it should
be, one that does not end, and one that never listens. The programs are those of a shell, without a
namespace and without rights."""
import importlib.util
import os
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
# The runner imports another module of the name run.
spec = importlib.util.spec_from_file_location('netns_run', os.path.join(HERE, 'run.py'))
runner = importlib.util.module_from_spec(spec)
spec.loader.exec_module(runner)


class Here(runner.Side):
    """A program of this test in the place of one of a namespace."""

    def __init__(self, _roost, _name, command):
        self.start(['sh', '-c', command], dict(os.environ))
        self.command = command

    def wait(self, until):
        """Waits for a second for a program that does not end."""
        return super().wait(time.monotonic() + 1 if self.command.endswith(ENDLESS) else until)

    def nic(self, _roost):
        return {'cm': {'listeners': ['one']}} if 'listening' in self.text() else {}

    def listens_by_tcp(self, _port):
        return False


ENDLESS = 'exec sleep 1000'
RUN = ('start', 'server', 0, f'echo listening; {ENDLESS}', 'cm')
# Steps, and the problem: None, or a part of it.
CASES = {
    'all is well': ([RUN, ('end', 'client', 1, 'echo done', 'done')], None),
    'an error behind the right output': (
        [RUN, ('end', 'client', 1, 'echo done; exit 3', 'done')], 'client: exit status 3'),
    'another output': ([RUN, ('end', 'client', 1, 'echo other', 'done')], "client: output lacks"),
    'an error that is due': ([RUN, ('fail', 'late', 1, 'echo taken; exit 0', 'taken')], None),
    'a program that does not end': (
        [RUN, ('end', 'client', 1, f'echo done; {ENDLESS}', 'done')],
        'client: still running'),
    'one that should fail and does not end': (
        [RUN, ('fail', 'late', 1, f'echo taken; {ENDLESS}', 'taken')], 'late: still running'),
    'one that is awaited and does not end': (
        [RUN, ('wait', 'server', 'listening')], 'server: still running'),
    'a server that has ended': (
        [('start', 'server', 0, 'echo listening; exit 4', 'tcp')],
        'server: it has ended: exit status 4'),
    'a server that never listens': (
        [('start', 'server', 0, f'echo up; {ENDLESS}', 'cm')], 'server: it does not listen'),
    'a program that is never connected': (
        [('begin', 'client', 0, f'echo up; {ENDLESS}', 'rcvd_pkts')],
        'client: it has no connection'),
    'a program that was killed': ([RUN, ('kill', 'server'), ('wait', 'server', 'listening')], None),
}
runner.Inside = Here
failed = 0
for what, (steps, wanted) in CASES.items():
    # Only where nothing becomes ready.
    runner.RUN_LIMIT = 1 if 'never' in what else 100
    problem, report = runner.share('roost', ['one', 'two'], {'family': 4, 'shared': steps})
    names = [step[1] for step in steps if step[0] not in ('wait', 'kill')]
    last = names[-1] if problem is None else problem.split(':')[0]
    if (problem is not None if wanted is None else not (problem or '').startswith(wanted)) \
            or f'--- {last}: ' not in report:
        failed += 1
        print(f'FAILED: {what}: {problem}\n{report}')
sys.exit(1 if failed else 0)
