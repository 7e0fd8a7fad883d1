#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Which failures of a row are run again, and how often."""
import unittest

import repeat
import perftest_clock  # in tests/common, whose path comes from repeat

CLOCK = (
    "--- server: ib_send_lat\nCorrelation coefficient r^2: 0.885467 < 0.9\nCan't produce a report\n"
    "--- client: ib_send_lat\n")
EXITS = ['server: exit status 1']
PEER = ['client: exit status 1', 'client says: Failed to exchange data between server and clients',
        'server: exit status 1', 'client: no result line']


class TheClock(unittest.TestCase):
    def test_a_program_that_blames_its_clock(self):
        self.assertTrue(repeat.is_the_clock(EXITS, CLOCK))
        self.assertTrue(repeat.is_the_clock(PEER, CLOCK))

    def test_what_fails_without_such_a_line(self):
        for text in ('', 'Correlation coefficient r^2: 0.95', CLOCK.replace('< 0.9', '> 0.9'),
                     CLOCK.replace('Corr', 'the Corr')):
            self.assertFalse(repeat.is_the_clock(EXITS, text), text)

    def test_what_fails_beside_it(self):
        for other in ('our capture: 10 packets; []', "the link: {'ok': False}",
                      'guest: Call Trace:', 'client does not end', 'client: exit status 2',
                      'client: exit status -11', 'server says: Completion with error at client',
                      'client does not say Final', 'server: exit status 11',
                      'client says: Failed status 12: wr_id 0',
                      'client says: mismatch; Failed to exchange data between server and clients'):
            self.assertFalse(repeat.is_the_clock(EXITS + [other], CLOCK), other)
            self.assertFalse(repeat.is_the_clock([other], CLOCK), other)

    def test_what_passed(self):
        self.assertFalse(repeat.is_the_clock([], CLOCK))


class RunAgain(unittest.TestCase):
    def runs(self, *rows):
        """Returns the number of runs, and the last problem."""
        left = list(rows)
        problem, _ = perftest_clock.run_again(lambda: left.pop(0))
        return len(rows) - len(left), problem

    def test_without_figures(self):
        for problem in ('client: no result line', 'client output lacks \'(?m)^\\\\s*\''):
            self.assertEqual(self.runs((problem, CLOCK), (None, '')), (2, None))
            self.assertEqual(self.runs(*3 * [(problem, CLOCK)], (None, '')), (3, problem))
            self.assertEqual(self.runs((problem, ''), (None, '')), (1, problem))

    def test_other_problems(self):
        self.assertEqual(self.runs(('client exit 1', CLOCK), (None, '')), (1, 'client exit 1'))


# From a row that failed: psn 66 begins a message, and is an empty one in the next retransmission,
# which is one PSN too high from there on.
GUEST, US = '198.18.163.2', '198.18.163.1'
PACKETS = (f"""\
  8286    3.655026000 {GUEST} > {US} RC_SEND_FIRST qp 0xc3f1a7 psn 12217066 payload 4096 icrc ok
  8291    3.655881000 {GUEST} > {US} RC_SEND_LAST qp 0xc3f1a7 psn 12217065 ackreq \
payload 905 pad 3 icrc ok
  8296    3.677036000 {GUEST} > {US} RC_SEND_ONLY qp 0xc3f1a7 psn 12217066 ackreq payload 0 icrc ok
  8318    3.677891000 {GUEST} > {US} RC_SEND_FIRST qp 0xc3f1a7 psn 12217067 payload 4096 icrc ok
  8417    3.733490000 {US} > {GUEST} RC_ACK qp 0x00005a psn 12217067 nak invalid_req msn 82 icrc ok
8417 RoCE packets, 8417 right; 0 other frames
""".splitlines())
REFUSED = ['client: exit status 17', 'client says: Completion with error at client',
           'client says: Failed status 9: wr_id 0 syndrom 0x0', 'server does not end']
TWICE = f'{GUEST} sent PSN 12217066 to QP 0xc3f1a7 as RC_SEND_FIRST and as RC_SEND_ONLY'


class TheKernel(unittest.TestCase):
    def test_one_psn_of_two_packets(self):
        self.assertEqual(repeat.one_psn_twice(PACKETS, GUEST), TWICE)
        self.assertEqual(repeat.why(REFUSED, '', lambda: PACKETS, GUEST),
                         f"the guest's kernel: {TWICE}")

    def test_it_is_for_the_guest_only(self):
        self.assertIsNone(repeat.one_psn_twice(PACKETS, US))

    def test_what_is_right(self):
        only = [line for line in PACKETS if 'SEND_ONLY' in line]
        again = [line for line in PACKETS if 'SEND_FIRST' in line or 'SEND_LAST' in line]
        for packets in ([], only * 2, again * 2, again + [only[0].replace('c3f1a7', 'c3f1a8')],
                        again + [only[0].replace('icrc ok', 'icrc BAD')],
                        [line.replace('SEND_FIRST', 'READ_RESP_FIRST') for line in again]
                        + [only[0].replace('SEND_ONLY', 'READ_RESP_MIDDLE')]):
            self.assertIsNone(repeat.one_psn_twice(packets, GUEST), packets)

    def test_what_fails_beside_it(self):
        for other in ('our capture: 10 packets; []', "the link: {'ok': False}",
                      'guest: Call Trace:', 'no transfer to interrupt'):
            self.assertIsNone(repeat.why(REFUSED + [other], '', lambda: PACKETS, GUEST), other)

    def test_what_passed(self):
        self.assertIsNone(repeat.why([], '', lambda: PACKETS, GUEST))


class Again(unittest.TestCase):
    def runs(self, *results):
        left = list(results)
        result = repeat.run_again(lambda: left.pop(0))
        return result, len(results) - len(left)

    def test_once_is_enough(self):
        self.assertEqual(self.runs(([], 'good', None)), (([], 'good', []), 1))
        self.assertEqual(self.runs((PEER, 'bad', None), ([], 'good', None)), ((PEER, 'bad', []), 1))

    def test_until_there_is_no_reason(self):
        self.assertEqual(self.runs((EXITS, 'bad', 'the clock'), ([], 'good', None),
                                   ([], 'more', None)), (([], 'good', ['the clock']), 2))
        self.assertEqual(self.runs((EXITS, 'bad', 'the clock'), (PEER, 'worse', None),
                                   ([], 'more', None)), ((PEER, 'worse', ['the clock']), 2))

    def test_it_is_bounded(self):
        many = [(EXITS, CLOCK, 'the clock')] * 10
        self.assertEqual(self.runs(*many),
                         ((EXITS, CLOCK, ['the clock'] * (repeat.TRIES - 1)), repeat.TRIES))


class RowsOfStockPrograms(unittest.TestCase):
    def runs(self, *results):
        left = list(results)
        return perftest_clock.run_again(lambda: left.pop(0)), len(results) - len(left)

    def test_the_clock_alone(self):
        bad, good = ('ib_read_lat: no result line', CLOCK), (None, CLOCK)
        self.assertEqual(self.runs(bad, good, bad), (good, 2))
        self.assertEqual(self.runs(*[bad] * 10), (bad, perftest_clock.TRIES))

    def test_other_failures(self):
        for row in (('exit status 1', CLOCK), ('no result line', ''), (None, '')):
            self.assertEqual(self.runs(row, row), (row, 1))


if __name__ == '__main__':
    unittest.main()
