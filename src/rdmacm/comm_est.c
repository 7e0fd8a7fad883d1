/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The first packet of a connection replaces an RTU that is late or lost (IBA 12.9.7.3, the
 * communication established event). The packet is noted inside of a turn, which must not block. The
 * service thread reports it to the state machine.
 */
#include "base/spin.h"
#include "rdmacm/rdmacm.h"

#define PENDING_MAX 64 /* further packets are not noted: their connections wait for the RTU */

static struct spin lock;
static uint32_t pending[PENDING_MAX];
static unsigned count;
static _Atomic unsigned waiting; /* number of ids on the list */

void rdmacm_comm_est(uint32_t qpn)
{
	if (!atomic_load_explicit(&waiting, memory_order_relaxed))
		return;
	spin_lock(&lock);
	if (count < PENDING_MAX)
		pending[count++] = qpn;
	spin_unlock(&lock);
	rdmacm_started();
}

void rdmacm_await_rtu(struct rdmacm_id *id, uint32_t qpn)
{
	id->qpn = qpn;
	list_add_tail(&id->rtu_link, &agent.without_rtu);
	atomic_fetch_add_explicit(&waiting, 1, memory_order_relaxed);
}

void rdmacm_await_no_rtu(struct rdmacm_id *id)
{
	if (!list_linked(&id->rtu_link))
		return;
	list_del(&id->rtu_link);
	atomic_fetch_sub_explicit(&waiting, 1, memory_order_relaxed);
}

static bool take(uint32_t *qpn)
{
	bool any;

	spin_lock(&lock);
	any = count > 0;
	if (any)
		*qpn = pending[--count];
	spin_unlock(&lock);
	return any;
}

void rdmacm_comm_est_report(void)
{
	struct rdmacm_id *id;
	uint32_t qpn;

	while (take(&qpn)) {
		list_for_each_entry (id, &agent.without_rtu, rtu_link) {
			if (id->qpn != qpn || !id->conn)
				continue;
			cm_established(id->conn); /* this call removes the id from the list */
			break;
		}
	}
}

void rdmacm_comm_est_forget(void)
{
	lock = (struct spin){0};
	count = 0;
}
