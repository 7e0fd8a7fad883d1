/* SPDX-License-Identifier: BSD-2-Clause */
/* The bare UDP loopback: what the kernel lets two cores pass to each other through sockets. */
#ifndef ROOST_CLI_LIMIT_UDP_H
#define ROOST_CLI_LIMIT_UDP_H

#include "cli/limits/limit.h"

/*
 * Payload from one core to the other through UDP_SEGMENT and UDP_GRO, in packets as RoCE has them
 * at MTU 4096, copied into a staging buffer and out of the receive buffer, with a CRC-32 on both
 * sides. *gbps: Gbit/s of payload. 0; -errno: a socket call failed (-ENOPROTOOPT: this kernel has
 * no UDP_SEGMENT); -EIO: a CRC was wrong.
 */
int limit_udp_gso(const struct limit_cores *c, double seconds, double *gbps);
/* The same with packets as WRITEs of 64 bytes are, 64 a call. *mops: million packets a second. */
int limit_udp_gso_small(const struct limit_cores *c, double seconds, double *mops);

/*
 * Round trip of 64 bytes between two polled sockets, a percentile of many, in ns. `cold`: both
 * threads have slept for 20 ms before each, the one that asks by a timer, the other in recvfrom(2):
 * what a first packet costs where nothing but sockets is woken by it. 0 or -errno.
 */
int limit_udp_rtt(const struct limit_cores *c, bool cold, unsigned percentile, double seconds,
		  double *ns);

#endif
