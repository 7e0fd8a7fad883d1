#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Captures of our own runs over bad links: `roost pcap` must find all packets valid and no rule
violated, and the NIC's counters must equal the capture.
"""
import os
import tempfile

from cli import check, finish, last_json, run

LINKS = ['', 'loss=0.01,seed=11', 'loss=0.01,corrupt=0.005,seed=12']

with tempfile.TemporaryDirectory() as d:
    for port, links in (('udp', LINKS), ('shm', LINKS), ('host', LINKS[:1])):
        for op in ('write', 'read', 'send', 'atomic'):
            for k, link in enumerate(links):
                file = os.path.join(d, f'{port}-{op}-{k}.pcap')
                spec = ','.join(x for x in (port, link, f'pcap={file}') if x)
                what = f'{op} {spec}'
                r = run('perf', op, '--check', '--port', spec, '--mtu', '1024', '--qps', '2',
                        '--iters', '2', '--json')
                counters = last_json(r).get('counters', {})
                check(what, r.returncode == 0 and counters, r)
                # The initiator's file: where a sender learns late of a gap, it judges by when it
                # heard of it.
                r = run('pcap', '--json', file)
                j = last_json(r)
                seen = j.get('oracles', {}).get('counts', {})
                # Corrupted packets are in the capture as they arrived; the counters count them as
                # dropped.
                clean = 'corrupt' not in link
                check(f'oracles: {what}', j.get('oracles', {}).get('violations') == 0
                      and j.get('packets', 0) > 0 and (r.returncode == 0 or not clean), r)
                if not clean:
                    check(f'corrupted packets are counted: {what}',
                          counters.get('rx_icrc_encapsulated', 0) <= j.get('bad_icrc', 0), r)
                    continue
                # Late answers to duplicates may arrive after the counters were read; nothing is
                # sent by then.
                equal = (seen.get('requests') == counters.get('sent_pkts')
                         and seen.get('responses', -1) >= counters.get('rcvd_pkts', 0)
                         and seen.get('naks_seq', -1) >= counters.get('packet_seq_err', 0))
                check(f'counters and capture: {what}: {counters}', equal, r)
                if not equal:
                    print(*run('pcap', file).stdout.splitlines()[:500], sep='\n')
                if op in ('write', 'send'):
                    check(f'sent again: {what}: {counters}',
                          seen.get('retransmitted') == counters.get('retransmitted_pkts', 0)
                          + counters.get('tail_loss_probe', 0), r)
finish()
