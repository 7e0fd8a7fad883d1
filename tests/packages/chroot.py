# SPDX-License-Identifier: BSD-2-Clause
"""A fresh Debian system in a folder, for the tests of packages."""
import os
import shutil
import subprocess
import sys

import system
from own_network import own_network


class Failed(Exception):
    """A test failed; `output` is the output of its program."""

    def __init__(self, what, output=''):
        super().__init__(what)
        self.output = '\n'.join(output.splitlines()[-100:])


def say(text):
    print(text, flush=True)


class Chroot:
    """A system, for `with`: a copy of the suite's system at FOLDER/SUITE.NAME, which is removed at
    the end."""

    def __init__(self, folder, suite, name):
        self.folder, self.suite, self.root = folder, suite, os.path.join(folder, f'{suite}.{name}')

    def __enter__(self):
        shutil.rmtree(self.root, ignore_errors=True)
        self.run('true')
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.root)

    def path(self, inside):
        return os.path.join(self.root, inside.lstrip('/'))

    def run(self, *command, start='/', env=None, alone=False, user=None):
        """Runs a command as root, or as a user number without a name; in a network of its own if
        `alone`. Returns its output. Raises Failed if it fails."""
        words = ['env', 'DEBIAN_FRONTEND=noninteractive',
                 *(f'{name}={value}' for name, value in (env or {}).items())]
        if user is not None:
            words += ['setpriv', f'--reuid={user}', f'--regid={user}', '--clear-groups',
                      '--no-new-privs']
        words += command
        # The systems have the network of the calling process.
        outer = own_network() if alone else []
        done = subprocess.run([*outer, sys.executable, system.__file__, self.suite, self.folder,
                               '--keep', self.root, '--dir', start, '--', *words],
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, errors='replace', check=False)
        if (done.returncode == 77 and done.stdout.strip().splitlines()[-1:]
            and 'SKIPPED: no system' in done.stdout):
            raise system.Missing(done.stdout.strip().splitlines()[-1])
        if done.returncode:
            raise Failed(f'{self.suite}: {" ".join(command)}: exit status {done.returncode}',
                         done.stdout)
        return done.stdout

    def install(self, *packages):
        self.run('apt-get', 'install', '-q', '-y', '--no-install-recommends', '-o',
                 'DPkg::Lock::Timeout=300', *packages)
