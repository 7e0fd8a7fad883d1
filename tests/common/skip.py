# SPDX-License-Identifier: BSD-2-Clause
"""The end of a test that cannot run here."""
import os
import sys


def required():
    """Is what cannot run a failure? CI says so: nothing that it can run is to be left out unseen."""
    return os.environ.get("ROOST_INTEROP") == "required"


def skip(what, failed=False):
    """Ends this program with 77 after a line that says what did not run, and why; with 1 where that is a failure, or something `failed` before."""
    failed = failed or required()
    print(f"{'FAILED' if failed else 'SKIPPED'}: {what}")
    sys.exit(1 if failed else 77)
