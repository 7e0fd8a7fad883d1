# SPDX-License-Identifier: BSD-2-Clause
"""A network namespace for one command. Programs of other tests, which may run at the same time, are
not in it."""
import functools
import subprocess

COMMAND = ['unshare', '--net', 'sh', '-c', 'ip link set lo up && exec "$@"', 'sh']


@functools.cache
def own_network():
    """Returns the words before a command that give it a network namespace with loopback only; []
    where this is not permitted."""
    done = subprocess.run([*COMMAND, 'true'], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL, check=False)
    return [] if done.returncode else COMMAND
