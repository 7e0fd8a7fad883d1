/* SPDX-License-Identifier: BSD-2-Clause */
/* Management datagrams from the golden captures. */
#ifndef TESTS_CM_GOLDEN_H
#define TESTS_CM_GOLDEN_H

#include <stddef.h>
#include <stdint.h>

#include "cm/mad.h"

struct golden_mad {
	struct pkt_addr src, dst;
	uint64_t time_ns;
	uint8_t mad[CM_MAD_LEN];
};

/*
 * Stores the datagrams to QP 1 in folder/name in `out`, in order, at most `max`. Returns how many.
 * Ends the test if the file cannot be read, or if a datagram to QP 1 does not have 256 bytes and QP
 * 1's Q_Key.
 */
size_t golden_load(const char *folder, const char *name, struct golden_mad *out, size_t max);

/* The captures that have such datagrams. NULL ends the list. */
extern const char *const golden_captures[];

#endif
