/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Bare UDP over loopback: the limit of the Linux kernel for data between two cores through sockets.
 */
#ifndef ROOST_CLI_LIMIT_SOCKETS_H
#define ROOST_CLI_LIMIT_SOCKETS_H

#include "cli/limits/limit.h"

/*
 * Sends payload from one core to the other through UDP_SEGMENT and UDP_GRO, in packets as of RoCE
 * at MTU 4096. The payload is copied into a staging buffer and out of the receive buffer, with a
 * CRC-32 on both sides. *gbps: Gbit/s of payload. Returns 0; -errno if a socket call failed
 * (-ENOPROTOOPT: this Linux kernel has no UDP_SEGMENT); -EIO if a CRC was wrong.
 */
int limit_udp_gso(const struct limit_cores *c, double seconds, double *gbps);
/*
 * Measures the same with packets of the size of WRITEs of 64 bytes, 64 packets per call. *mops:
 * million packets per second.
 */
int limit_udp_gso_small(const struct limit_cores *c, double seconds, double *mops);

/*
 * Measures the round trip of 64 bytes between two polled sockets: a percentile of many, in ns.
 * `cold`: both threads sleep for 20 ms before each round trip, the requester on a timer, the
 * responder in recvfrom(2). That is the cost of a first packet when a packet wakes a thread through
 * sockets only. Returns 0 or -errno.
 */
int limit_udp_rtt(const struct limit_cores *c, bool cold, unsigned percentile, double seconds,
		  double *ns);

#endif
