/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Who has which of a kernel's resources: numbered pieces of its `self` that calls take
 * (roost/kernel.h, roost_take()). They belong to the connection whose call took them, or to the
 * host. A ledger is as old as the `self` that it counts, whatever versions of the kernel share
 * that.
 *
 *	free -- take --> taken -- give --> free
 *			   `-- the connection ends --> ending: ended() is called --> free
 */
#ifndef ROOST_KERNELS_OWNERS_H
#define ROOST_KERNELS_OWNERS_H

#include <stdint.h>

#include "kernels/runtime.h"

#define OWNER_HOST 0ull

struct ledger;
struct runtime_pu;

/*
 * One for what this kernel says of its resources; it stays the kernel runtime's. NULL: no memory.
 * [control]
 */
struct ledger *ledger_open(struct kernel_runtime *rt, const struct roost_kernel *k);
/* Whose ended() is called from now on. [owner of all PUs] */
void ledger_serve(struct ledger *l, const struct kernel_version *s);
/* `self` is about to go: false, while ended() is running. [control] */
bool ledger_close(struct kernel_runtime *rt, struct ledger *l);
void ledgers_free(struct kernel_runtime *rt); /* with the kernel runtime */

/*
 * A number from 1 for this owner, of a peer at this address (the host: NULL); 0: there is none, or
 * it has its share. Any thread.
 */
uint32_t ledger_take(struct kernel_runtime *rt, struct ledger *l, uint64_t owner,
		     const struct pkt_addr *peer);
void ledger_give(struct ledger *l, uint32_t number);
/* How many are taken. Any thread. */
uint32_t ledger_taken(const struct ledger *l);
/* How many there are. [control] */
uint32_t ledger_size(const struct ledger *l);

/* This owner has ended: so do its resources, of all kernels. [owner of the PU] */
void owner_ends(struct runtime_pu *pu, uint64_t owner);

#endif
