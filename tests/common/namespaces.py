# SPDX-License-Identifier: BSD-2-Clause
"""Network namespaces for tests: the `ip` command, and an exception if the machine allows none."""
import os
import subprocess

PATH = os.pathsep.join([os.environ.get('PATH', ''), '/usr/sbin', '/sbin'])


class Missing(Exception):
    """Something that the caller needs is missing on this machine."""


def ip(*words):
    """Runs `ip`. Raises Missing if it fails."""
    done = subprocess.run(['ip', *words], env=dict(os.environ, PATH=PATH), stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        raise Missing(f"ip {' '.join(words)}: {done.stdout.strip()}")


def remove(names):
    """Deletes the namespaces that exist; the others are no error."""
    for name in names:
        subprocess.run(['ip', 'netns', 'del', name], env=dict(os.environ, PATH=PATH),
                       stderr=subprocess.DEVNULL, check=False)
