# SPDX-License-Identifier: BSD-2-Clause
"""For tests that make network namespaces: the `ip` command, and an exception if there can be
none."""
import os
import subprocess

PATH = os.pathsep.join([os.environ.get('PATH', ''), '/usr/sbin', '/sbin'])


class Missing(Exception):
    """Something that the caller needs is missing on this machine."""


def ip(*words):
    done = subprocess.run(['ip', *words], env=dict(os.environ, PATH=PATH), stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        raise Missing(f"ip {' '.join(words)}: {done.stdout.strip()}")
