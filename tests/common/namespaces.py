# SPDX-License-Identifier: BSD-2-Clause
"""For tests that make network namespaces: the `ip` command, and what to raise where they are not to be had."""
import os
import subprocess

PATH = os.pathsep.join([os.environ.get('PATH', ''), '/usr/sbin', '/sbin'])


class Missing(Exception):
    """Something that this needs is not to be had here."""


def ip(*words):
    done = subprocess.run(['ip', *words], env=dict(os.environ, PATH=PATH), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        raise Missing(f"ip {' '.join(words)}: {done.stdout.strip()}")
