# SPDX-License-Identifier: BSD-2-Clause
"""Stops a child process."""
import os
import signal


def stop(pid):
    """Returns when all threads of the child are stopped; os.kill() alone does not wait for them."""
    os.kill(pid, signal.SIGSTOP)
    os.waitpid(pid, os.WUNTRACED)
