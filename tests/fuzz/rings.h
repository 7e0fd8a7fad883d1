/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Checks of the targets that attack a program's rings: turns stay bounded, memory of no region does
 * not change, other queue pairs continue.
 */
#ifndef ROOST_TESTS_FUZZ_RINGS_H
#define ROOST_TESTS_FUZZ_RINGS_H

#include <string.h>

#include "input.h"
#include "world.h"

#define MAX_TURN 5000 /* more packets and WQEs than one turn may process */
#define GUARD	 256

static inline void turns(struct world *w, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		for (unsigned k = 0; k < w->nics; k++)
			must(nic_poll(w->nic[k], 0, world_now(w)) <= MAX_TURN,
			     "a turn without end");
		world_step(w, world_now(w) + 10 * MSEC);
	}
}

/*
 * Registers the first `len` bytes of its memory alone. The GUARD bytes behind them are in no
 * region.
 */
static inline void guard_put(struct ep *e, uint64_t len, uint32_t access)
{
	struct nic_mr_attr m = {.pd = e->pd,
				.addr = e->mem,
				.len = len,
				.iova = (uintptr_t)e->mem,
				.access = access};

	must(nic_mr_deregister(e->nic, e->key) == 0 && nic_mr_register(e->nic, &m, &e->key) == 0,
	     "no region");
	memset(e->mem + len, 0xa5, GUARD);
}

static inline void guard_check(const struct ep *e, uint64_t len)
{
	for (int i = 0; i < GUARD; i++)
		must(e->mem[len + i] == 0xa5, "wrote behind a region");
}

/* Another connection on the same NICs still works. */
static inline void still_serves(struct world *w, bool loop)
{
	struct roost_cqe c;
	struct ep a, b;
	struct wr wr;

	ep_init(&a, w, 0, NULL);
	ep_init(&b, w, loop ? 0 : 1, NULL);
	ep_connect(&a, &b);
	memset(a.mem, 0x5a, 5000);
	wr = wr_rdma(ROOST_OP_WRITE, &a, 0, 5000, &b, 0);
	ep_post(&a, &wr);
	must(ep_wait_send(&a, &c, SEC) && c.status == NIC_WC_SUCCESS,
	     "others are not served any more");
	must(!memcmp(a.mem, b.mem, 5000), "others get wrong bytes");
	ep_fini(&a);
	ep_fini(&b);
}

#endif
