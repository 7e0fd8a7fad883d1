# SPDX-License-Identifier: BSD-2-Clause
"""The end of a test that cannot run here."""
import os
import sys


def required():
    """Returns whether a test that cannot run is a failure. It is one in CI, which must run all it
    can."""
    return os.environ.get("ROOST_INTEROP") == "required"


def skip(what, failed=False):
    """Prints what did not run and why, and exits with 77.

    Exits with 1 if that is a failure, or if something `failed` before.
    """
    failed = failed or required()
    print(f"{'FAILED' if failed else 'SKIPPED'}: {what}")
    sys.exit(1 if failed else 77)
