# SPDX-License-Identifier: BSD-2-Clause
"""Differences between the releases of stock programs."""
import functools
import subprocess


@functools.lru_cache(maxsize=None)
def usage(program):
    """Returns the help text of a program; empty if it is not installed."""
    try:
        done = subprocess.run([program, "-h"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, errors="replace", timeout=60,
                              check=False)
    except OSError:
        return ""
    return done.stdout


# The last line of ucx_perftest. Its averages since the line before it are -nan or inf if that line
# came after the last iteration.
UCX_FINAL = r"(?m)^Final:\s+\d+(\s+([\d.]+|-?nan|inf)){7}"


def ucx_perftest():
    """Debian 13's program is built with MPI, and must be started by mpirun if its input is no
    terminal. -P is an error for a program without MPI."""
    return "ucx_perftest -P 0" if "MPI mode" in usage("ucx_perftest") else "ucx_perftest"


def cmtime_meets_by_ipv4():
    """Since rdma-core 55 its processes also connect by TCP over IPv4 (oob_try_bind() in
    librdmacm/examples/common.c)."""
    return "num_threads" in usage("cmtime")
