#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Which failures of a row are run again, and how often."""
import unittest

import repeat

CLOCK = "--- server: ib_send_lat\nCorrelation coefficient r^2: 0.885467 < 0.9\nCan't produce a report\n--- client: ib_send_lat\n"
EXITS = ['server: exit status 1']
PEER = ['client: exit status 1', 'client says: Failed to exchange data between server and clients', 'server: exit status 1', 'client: no result line']


class TheClock(unittest.TestCase):
    def test_a_program_that_blames_its_clock(self):
        self.assertTrue(repeat.is_the_clock(EXITS, CLOCK))
        self.assertTrue(repeat.is_the_clock(PEER, CLOCK))

    def test_what_fails_without_such_a_line(self):
        for text in ('', 'Correlation coefficient r^2: 0.95', CLOCK.replace('< 0.9', '> 0.9'), CLOCK.replace('Corr', 'the Corr')):
            self.assertFalse(repeat.is_the_clock(EXITS, text), text)

    def test_what_fails_beside_it(self):
        for other in ('our capture: 10 packets; []', "the link: {'ok': False}", 'guest: Call Trace:', 'client does not end', 'client: exit status 2',
                      'client: exit status -11', 'server says: Completion with error at client', 'client does not say Final', 'server: exit status 11',
                      'client says: Failed status 12: wr_id 0', 'client says: mismatch; Failed to exchange data between server and clients'):
            self.assertFalse(repeat.is_the_clock(EXITS + [other], CLOCK), other)
            self.assertFalse(repeat.is_the_clock([other], CLOCK), other)

    def test_what_passed(self):
        self.assertFalse(repeat.is_the_clock([], CLOCK))


class Again(unittest.TestCase):
    def runs(self, *results):
        left = list(results)
        result = repeat.run_again(lambda: left.pop(0))
        return result, len(results) - len(left)

    def test_once_is_enough(self):
        self.assertEqual(self.runs(([], 'good')), (([], 'good', 0), 1))
        self.assertEqual(self.runs((['client: exit status 1'], 'bad'), ([], 'good')), ((['client: exit status 1'], 'bad', 0), 1))

    def test_until_the_clock_serves(self):
        self.assertEqual(self.runs((EXITS, CLOCK), ([], 'good'), ([], 'more')), (([], 'good', 1), 2))
        self.assertEqual(self.runs((EXITS, CLOCK), (['the link: x'], CLOCK), ([], 'more')), ((['the link: x'], CLOCK, 1), 2))

    def test_it_is_bounded(self):
        many = [(EXITS, CLOCK)] * 10
        self.assertEqual(self.runs(*many), ((EXITS, CLOCK, repeat.TRIES - 1), repeat.TRIES))


if __name__ == '__main__':
    unittest.main()
