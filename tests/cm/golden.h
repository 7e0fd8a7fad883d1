/* SPDX-License-Identifier: BSD-2-Clause */
/* Management datagrams out of the golden captures. */
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
 * The datagrams to QP 1 in folder/name, in order: at most `max`, into out. Returns how many; ends
 * the test if the file can't be read or a datagram to QP 1 is not one of 256 bytes with QP 1's
 * Q_Key.
 */
size_t golden_load(const char *folder, const char *name, struct golden_mad *out, size_t max);

/* The captures that hold any. NULL ends the list. */
extern const char *const golden_captures[];

#endif
