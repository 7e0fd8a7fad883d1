# SPDX-License-Identifier: BSD-2-Clause
"""perftest calibrates its cycle counter by the time of day, and gives up if the two do not fit
(get_clock.c), which happens in an emulated guest, and on a machine under load. It prints this, and
has no figures when the transfer is done. A row that fails for this reason alone runs again."""
import re

TRIES = 3  # runs of a row, the first one included

# The words for a program that ended well, and did not print its figures.
NO_FIGURES = re.compile(r'no result line$|output lacks ')
CLOCK = re.compile(r'^Correlation coefficient r\^2: [0-9.e+-]+ < 0\.9\s*$', re.M)


def run_again(row):
    """Calls row() -> (problem or None, report) until it does not fail by the clock of a program."""
    for _ in range(TRIES):
        problem, report = row()
        if not problem or not NO_FIGURES.search(problem) or not CLOCK.search(report):
            break
    return problem, report
