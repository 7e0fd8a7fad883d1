/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Ownership of a kernel's resources: numbered parts of its `self` that calls take (roost_take() in
 * roost/kernel.h). A resource belongs to the connection whose call took it, or to the host. There
 * is one ledger for each `self`; all versions of the kernel that share the `self` share the ledger.
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
 * Creates a ledger for the resources in this descriptor. The kernel runtime owns it. Returns NULL
 * if there is no memory. [control]
 */
struct ledger *ledger_open(struct kernel_runtime *rt, const struct roost_kernel *k);
/* Sets the version whose ended() is called. [owner of all PUs] */
void ledger_serve(struct ledger *l, const struct kernel_version *s);
/* Closes the ledger before `self` is freed. Returns false while ended() is running. [control] */
bool ledger_close(struct kernel_runtime *rt, struct ledger *l);
void ledgers_free(struct kernel_runtime *rt); /* called at the end of the kernel runtime */

/*
 * Takes a resource for an owner. `peer` is the address of the owner's peer; NULL for the host.
 * Returns its number, from 1, or 0 if none is free or the owner or its peer has its share. Any
 * thread.
 */
uint32_t ledger_take(struct kernel_runtime *rt, struct ledger *l, uint64_t owner,
		     const struct pkt_addr *peer);
void ledger_give(struct ledger *l, uint32_t number);
/* Returns the number of taken resources. Any thread. */
uint32_t ledger_taken(const struct ledger *l);
/* Returns the number of all resources. [control] */
uint32_t ledger_size(const struct ledger *l);

/* Ends the resources of an owner that has ended, in all kernels. [owner of the PU] */
void owner_ends(struct runtime_pu *pu, uint64_t owner);

#endif
