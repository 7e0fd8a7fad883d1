#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Makes no_df.pcap: RoCE v2 over IPv4 as Scapy builds it, from a sender that leaves DF clear and
numbers its datagrams.

usage: make_no_df.py OUTPUT

The ICRC is Scapy's (scapy.contrib.roce); no code of Roost has a part in it. Frames are raw IP (link
type 101).
"""
import sys

from scapy.all import IP, UDP, Raw, raw
from scapy.contrib.roce import AETH, BTH, cnp, opcode
from scapy.utils import RawPcapWriter

A, B = "10.77.0.2", "10.77.0.1"
QP_A, QP_B = 0x2B67C5, 0x000011
FIRST = 0xFFFFFE  # the PSNs wrap
# What a host's counter of identifications looks like, and what are edges of our arithmetic. Never
# the 0 that goes with DF.
IDS = [0x3A71, 0x3A72, 0x3A73, 0xFFFF, 0x0001, 0x0040, 0x4000, 0x8000, 0x00FF, 0xFF00, 0x1234,
       0x4001]


def reth(va, rkey, length):
    return va.to_bytes(8, "big") + rkey.to_bytes(4, "big") + length.to_bytes(4, "big")


def body(n, seed):
    return bytes((i * 7 + seed) & 0xFF for i in range(n))


def bth(name, psn, qp, pad=0, ackreq=0, transport="RC"):
    return BTH(opcode=opcode(transport, name)[0], padcount=pad, dqpn=qp, psn=psn & 0xFFFFFF,
               ackreq=ackreq, migreq=1)


def packets():
    """(source, destination, tos, layers behind UDP)"""
    yield A, B, 0, bth("SEND_ONLY", FIRST, QP_B, pad=1, ackreq=1) / Raw(body(23, 1) + b"\0")
    yield B, A, 0, bth("ACKNOWLEDGE", FIRST, QP_A) / AETH(syndrome=0x1F, msn=1)
    yield A, B, 2, bth("RDMA_WRITE_FIRST", FIRST + 1,
                       QP_B) / Raw(reth(0x7F0010002000, 0x7710A5C3, 600) + body(256, 2))
    yield A, B, 3, bth("RDMA_WRITE_MIDDLE", FIRST + 2, QP_B) / Raw(body(256, 3))
    yield A, B, 3, bth("RDMA_WRITE_LAST", FIRST + 3, QP_B, ackreq=1) / Raw(body(88, 4))
    yield B, A, 0, bth("ACKNOWLEDGE", FIRST + 3, QP_A) / AETH(syndrome=0x1F, msn=2)
    yield B, A, 0, cnp(QP_A)
    yield A, B, 0, bth("RDMA_READ_REQUEST", FIRST + 4,
                       QP_B) / Raw(reth(0x7F0010002000, 0x7710A5C3, 9))
    yield B, A, 0, bth("RDMA_READ_RESPONSE_ONLY", FIRST + 4, QP_A,
                       pad=3) / AETH(syndrome=0x1F, msn=3) / Raw(
                           body(9, 5) + b"\0\0\0"
                       )
    yield A, B, 0x68, bth("SEND_ONLY", 77, 0x13, transport="UD") / Raw(
        (0x11111111).to_bytes(4, "big") + QP_A.to_bytes(4, "big") + body(32, 6)
    )
    yield A, B, 0, bth("SEND_ONLY", FIRST + 5, QP_B, ackreq=1) / Raw(body(4096, 7))
    yield B, A, 0, bth("ACKNOWLEDGE", FIRST + 5, QP_A) / AETH(syndrome=0x1F, msn=4)


def main():
    out = RawPcapWriter(sys.argv[1], linktype=101)
    out.write_header(None)
    for n, (src, dst, tos, layers) in enumerate(packets()):
        ip = IP(src=src, dst=dst, tos=tos, id=IDS[n % len(IDS)], flags=0)
        out.write_packet(raw(ip / UDP(sport=49152 + n % 2, dport=4791) / layers), sec=n, usec=0)
    out.close()


main()
