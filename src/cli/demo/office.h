/* SPDX-License-Identifier: BSD-2-Clause */
/* Declarations for the two ends of a call for an offload. */
#ifndef ROOST_CLI_DEMO_OFFICE_H
#define ROOST_CLI_DEMO_OFFICE_H

#include "roost/chain_lookup.h"
#include "roost/chain_verbs.h"
#include "roost/verbs.h"

#define OFFICE_OP      0x6f66666963650001ull
#define OFFICE_BUCKETS 65536u /* few collisions, so the demo needs no displacement */

/* The parameters of the call. */
struct office_ask {
	uint64_t reply; /* the destination of the chain's answers */
	uint32_t reply_key, qp_num;
	uint8_t gid[16];
};

struct office_reply {
	uint32_t qp_num; /* 0: not made yet, call again */
	uint32_t value_len;
	uint64_t table; /* address of the buckets; no key belongs to it */
	uint8_t gid[16];
};

static inline uint64_t office_bucket(uint64_t key, unsigned i)
{
	return (key * (i ? 0x9e3779b97f4a7c15 : 0xc2b2ae3d27d4eb4f)) >> 48;
}

#endif
