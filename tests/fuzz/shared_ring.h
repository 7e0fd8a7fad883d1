/* SPDX-License-Identifier: BSD-2-Clause */
/* The memory of a shm ring with a hostile other side, within the process of a fuzz target. */
#ifndef ROOST_TESTS_SHARED_RING_H
#define ROOST_TESTS_SHARED_RING_H

#include "port/shm_ring.h"

#define RING SHM_RING_MIN

static struct {
	union {
		struct shm_ring_ctl ctl;
		uint8_t page[SHM_RING_CTL];
	};
	_Atomic uint64_t descs[SHM_RING_DESCS];
	uint8_t data[RING];
} ring __attribute__((aligned(4096)));

#endif
