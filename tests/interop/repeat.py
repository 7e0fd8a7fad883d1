# SPDX-License-Identifier: BSD-2-Clause
"""Which failures of a row are run again: those that a program puts down to its own clock, and no others.

perftest calibrates its cycle counter against the time of day and gives up when the two do not fit (get_clock.c), as they may not in an
emulated guest beside other work. It says so, and exits with status 1 when the transfer is done; its peer then misses the last exchange.
"""
import re

TRIES = 3  # runs of a row, the first one included

CLOCK = re.compile(r'^Correlation coefficient r\^2: [0-9.e+-]+ < 0\.9\s*$', re.M)
# What such an end leads to: its own exit, and that of its peer, which says that the other is gone. Nothing about completions, bytes or packets.
FOLLOWS = re.compile(r"(client|server)(: exit status 1|: no result line| says: (Failed to exchange data between server and clients"
                     r"|ethernet_read_data: Couldn't read reports|Failed to close connection between server and client))")


def is_the_clock(trouble, text):
    """Was it the clock of one of the programs alone? `trouble`: what went wrong, a line each; `text`: what both ends said."""
    return bool(trouble) and bool(CLOCK.search(text)) and all(FOLLOWS.fullmatch(line) for line in trouble)


def run_again(once):
    """Calls once() -> (trouble, text), up to TRIES times while it was the clock. (trouble, text, how often it was run again)"""
    for again in range(TRIES):
        trouble, text = once()
        if not is_the_clock(trouble, text):
            break
    return trouble, text, again
