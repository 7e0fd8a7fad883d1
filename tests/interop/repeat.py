# SPDX-License-Identifier: BSD-2-Clause
"""Selects the failed rows that run again: failures by a program's clock, and by the kernel's
retransmission.

When perftest gives up its clock (tests/common/perftest_clock.py), it exits with status 1 after the
transfer, and its peer misses the last exchange.

The kernel's rdma_rxe may send a PSN as two different packets. While it sends a SEND or WRITE again,
and its last packet is not out yet, an ACK of the whole message moves comp.psn past it and leaves
the work request in the queue (rxe_comp.c: COMPST_WRITE_SEND). The next retransmission begins with
that request, of which no bytes are left: it sends an empty ONLY packet with the PSN of the next
message (rxe_req.c: req_retry(), next_opcode_rc()), and all that follows is one PSN too high. A
responder has to refuse that (IBA 9.7.4.1.1).
"""
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'common'))
from perftest_clock import CLOCK, TRIES  # pylint: disable=wrong-import-position

# Lines that such an end causes: the exits of the program and of its peer, which reports that the
# other has ended. No lines about completions, bytes or packets.
FOLLOWS = re.compile(
    r"(client|server)(: exit status 1|: no result line| says: (Failed to exchange data between "
    r"server and clients"
    r"|ethernet_read_data: Couldn't read reports|Failed to close connection between server and "
    r"client))")

# A line of `roost pcap`. Of a READ, a copy may begin later than the first one did, and its answers
# too.
PACKET = re.compile(
    r'\s*\d+\s+[0-9.]+ (\S+) > \S+ (RC_(?:SEND|WRITE)_\w+) qp (\w+) psn (\d+) .*icrc ok$')
# After it, both programs may print and do anything, but not our port and the guest's kernel.
PROGRAMS = re.compile(r'(client|server)\b')


def is_the_clock(trouble, text):
    """Returns true if only the clock of one of the programs failed. `trouble`: the problems, a line
    each; `text`: the output of both ends."""
    return bool(trouble) and bool(CLOCK.search(text)) and all(FOLLOWS.fullmatch(line)
                                                              for line in trouble)


def one_psn_twice(packets, sender):
    """Returns a line about the first PSN that the sender gave to two different packets, or None.
    `packets`: lines of `roost pcap`, in any order."""
    seen = {}
    for packet in filter(None, map(PACKET.match, packets)):
        source, kind, qp, psn = packet.groups()
        first = seen.setdefault((qp, psn), kind) if source == sender else kind
        if first != kind:
            return f'{sender} sent PSN {psn} to QP {qp} as {first} and as {kind}'
    return None


def why(trouble, text, packets, sender):
    """Returns the reason to run a row again, or None. packets() returns the lines of the packets on
    the link; `sender`: the guest's address."""
    if is_the_clock(trouble, text):
        return 'the clock of a program'
    if trouble and all(PROGRAMS.match(line) for line in trouble):
        twice = one_psn_twice(packets(), sender)
        return twice and f"the guest's kernel: {twice}"
    return None


def run_again(once):
    """Calls once() -> (trouble, text, reason), up to TRIES times while it returns a reason. Returns
    (trouble, text, [the reasons of further runs])."""
    reasons = []
    while True:
        trouble, text, reason = once()
        if not reason or len(reasons) == TRIES - 1:
            return trouble, text, reasons
        reasons.append(reason)
