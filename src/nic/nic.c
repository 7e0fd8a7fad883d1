/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The NIC: creation, protection domains, doorbells, and the turn of a processing unit.
 */
#include <stdlib.h>

#include "nic/alive.h"
#include "nic/chain.h"
#include "nic/cq.h"
#include "nic/datagram.h"
#include "nic/dma.h"
#include "nic/requester.h"
#include "nic/responder.h"
#include "nic/rpc.h"
#include "nic/tx.h"

#define NO_PD UINT32_MAX
/* The bounds of a turn: QPs of a list, packets that are sent for a list, timers. */
#define QPS_PER_TURN	 64
#define PACKETS_PER_TURN 2048
#define VAIN_PASSES	 16u /* of nic_send_datagrams(), without a packet */
#define TIMERS_PER_TURN	 64

const struct nic_counter_info nic_counter_info[NIC_COUNTER_COUNT] = {
#define COUNTER_INFO(name, help) {#name, help},
	NIC_COUNTERS(COUNTER_INFO)
#undef COUNTER_INFO
};

static struct pu *pu_create(struct nic *nic, unsigned index)
{
	struct pu *pu = aligned_alloc(ROOST_CACHE_LINE, ALIGN_UP(sizeof(*pu), ROOST_CACHE_LINE));

	if (!pu)
		return NULL;
	memset(pu, 0, sizeof(*pu));
	if (mpsc_init(&pu->doorbells, 2 * NIC_MAX_QPS)) {
		free(pu);
		return NULL;
	}
	pu->nic = nic;
	pu->index = index;
	wheel_init(&pu->wheel, 0);
	list_init(&pu->senders);
	list_init(&pu->responders);
	list_init(&pu->stuck_senders);
	list_init(&pu->stuck_responders);
	list_init(&pu->lost);
	list_init(&pu->chain_later);
	list_init(&pu->dests);
	for (unsigned i = 0; i < GROUP_BUCKETS; i++)
		list_init(&pu->groups[i]);
	return pu;
}

/*
 * Chooses the slots of the PUs. A QP is created before its port is known, so all ports of a PU have
 * the same slot. If no port shares its address, the slot is random and the same for all PUs.
 */
static int choose_slots(struct nic *nic)
{
	const struct nic_config *cfg = &nic->cfg;
	uint8_t random = (uint8_t)secret_below(&nic->secret, PORT_SLOTS);

	for (unsigned i = 0; i < cfg->pus; i++) {
		bool given = false;

		nic->slot[i] = random;
		for (unsigned p = 0; p < cfg->ports; p++) {
			const struct port *port = cfg->port[p][i];

			if (!port->shared)
				continue;
			if (given && port->slot != nic->slot[i])
				return -EINVAL;
			nic->slot[i] = port->slot;
			given = true;
		}
	}
	return 0;
}

static void choose_numbers(struct nic *nic)
{
	struct key_sequence *keys = &nic->cfg.keys;

	for (unsigned i = 0; i < nic->cfg.pus; i++) {
		if (!nic->cfg.qp_numbers[i])
			nic->cfg.qp_numbers[i] = &nic->own_numbers;
	}
	if (keys->drawn)
		return;
	*keys = (struct key_sequence){.bits = KEY_UPPER_BITS, .drawn = &nic->own_keys};
	keys->seed[0] = secret_u64(&nic->secret);
	keys->seed[1] = secret_u64(&nic->secret);
}

unsigned nic_slot(const struct nic *nic, unsigned pu)
{
	return nic->slot[pu];
}

int nic_create(const struct nic_config *cfg, struct nic **out)
{
	struct nic *nic;
	int rc;

	if (cfg->pus < 1 || cfg->pus > NIC_MAX_PUS || cfg->ports < 1 ||
	    cfg->ports > NIC_MAX_PORT_NUMS || !cfg->ops)
		return -EINVAL;
	for (unsigned p = 0; p < cfg->ports; p++)
		for (unsigned i = 0; i < cfg->pus; i++)
			if (!cfg->port[p][i])
				return -EINVAL;
	rc = dma_init();
	if (rc)
		return rc;
	nic = calloc(1, sizeof(*nic));
	if (!nic)
		return -ENOMEM;
	nic->cfg = *cfg;
	if (!nic->cfg.timeout_scale)
		nic->cfg.timeout_scale = 1;
	list_init(&nic->cqs);
	list_init(&nic->srqs);
	arena_init(&nic->arena);
	secret_seed(&nic->secret, cfg->seed);
	choose_numbers(nic);
	mr_table_init(&nic->mrs, &nic->cfg.keys);
	rc = choose_slots(nic);
	if (rc) {
		nic_destroy(nic);
		return rc;
	}
	for (unsigned i = 0; i < cfg->pus; i++) {
		nic->pus[i] = pu_create(nic, i);
		if (!nic->pus[i]) {
			nic_destroy(nic);
			return -ENOMEM;
		}
		for (unsigned p = 0; p < cfg->ports; p++)
			pu_add_port(nic->pus[i], p, p + 1, cfg->port[p][i]);
	}
	atomic_store_explicit(&nic->ports, cfg->ports, memory_order_release);
	*out = nic;
	return 0;
}

void nic_destroy(struct nic *nic)
{
	/* Without QPs the pages of the table are not accessed: most of them were never touched. */
	for (unsigned i = 0;
	     i < NIC_MAX_QPS && atomic_load_explicit(&nic->num_qps, memory_order_relaxed); i++) {
		struct nic_qp *qp = atomic_load_explicit(&nic->qps[i], memory_order_relaxed);

		if (qp)
			nic_qp_destroy(nic, qp);
	}
	if (nic->rpc_ops)
		nic->rpc_ops->close(nic->rpc_ctx);
	ah_table_fini(nic);
	gsi_forget(nic);
	while (!list_empty(&nic->cqs))
		nic_cq_destroy(nic, list_first_entry(&nic->cqs, struct nic_cq, link));
	while (!list_empty(&nic->srqs))
		nic_srq_destroy(nic, list_first_entry(&nic->srqs, struct nic_srq, link));
	for (unsigned i = 0; i < NIC_MAX_PUS; i++) {
		if (!nic->pus[i])
			continue;
		mpsc_destroy(&nic->pus[i]->doorbells);
		chain_mail_fini(nic->pus[i]);
		free(nic->pus[i]);
	}
	mr_table_fini(&nic->mrs);
	arena_fini(&nic->arena);
	free(nic->pd_refs);
	free(nic);
}

unsigned nic_pus(const struct nic *nic)
{
	return nic->cfg.pus;
}

void nic_pu_counters(const struct nic *nic, unsigned pu, struct nic_counters *sum)
{
	const uint64_t *c = (const uint64_t *)&nic->pus[pu]->ctr;
	uint64_t *to = (uint64_t *)sum;

	for (size_t i = 0; i < NIC_COUNTER_COUNT; i++)
		to[i] += c[i];
}

unsigned nic_connections(const struct nic *nic, unsigned pu)
{
	unsigned n = 0;

	for (unsigned i = 0; i < NIC_MAX_QPS; i++) {
		struct nic_qp *qp = atomic_load_explicit(&nic->qps[i], memory_order_acquire);
		enum nic_qp_state state = qp ? nic_qp_state(qp) : NIC_QPS_RESET;

		n += state >= NIC_QPS_RTR && state <= NIC_QPS_SQE && qp->pu_index == pu &&
		     qp->type != NIC_QPT_UD;
	}
	return n;
}

struct nic_rx_totals nic_rx_totals(const struct nic *nic, unsigned pu)
{
	const struct nic_counters *c = &nic->pus[pu]->ctr;

	return (struct nic_rx_totals){.packets = c->rcvd_pkts,
				      .requests = c->rx_write_requests + c->rx_atomic_requests +
						  c->rx_rpc_requests,
				      .receives = c->rdma_recvs};
}

void nic_counters(const struct nic *nic, struct nic_counters *out)
{
	memset(out, 0, sizeof(*out));
	for (unsigned p = 0; p < nic->cfg.pus; p++)
		nic_pu_counters(nic, p, out);
}

void nic_usage(const struct nic *nic, struct nic_usage *out)
{
	*out = (struct nic_usage){
		.ahs = nic->num_ahs,
		.groups = nic->num_groups,
		.qps = atomic_load_explicit(&((struct nic *)(uintptr_t)nic)->num_qps,
					    memory_order_relaxed),
		.cqs = nic->num_cqs,
		.mrs = nic->mrs.regions,
		.mws = nic->mrs.windows,
		.pds = nic->num_pds,
		.srqs = nic->num_srqs,
		.qp_bytes = nic->qp_bytes,
		.memory = atomic_load_explicit(&((struct nic *)(uintptr_t)nic)->memory,
					       memory_order_relaxed),
		.memory_limit = atomic_load_explicit(&((struct nic *)(uintptr_t)nic)->memory_limit,
						     memory_order_relaxed),
		.memory_refused = atomic_load_explicit(
			&((struct nic *)(uintptr_t)nic)->memory_refused, memory_order_relaxed),
	};
}

/* ---- protection domains: a number with a count of users ---- */

int nic_pd_alloc(struct nic *nic, uint32_t *pd)
{
	uint32_t i;

	for (i = 0; i < nic->pd_cap; i++)
		if (nic->pd_refs[i] == NO_PD)
			break;
	if (i == nic->pd_cap) {
		uint32_t cap = nic->pd_cap ? nic->pd_cap * 2 : 16;
		uint32_t *refs = realloc(nic->pd_refs, cap * sizeof(*refs));

		if (!refs)
			return -ENOMEM;
		for (uint32_t n = nic->pd_cap; n < cap; n++)
			refs[n] = NO_PD;
		nic->pd_refs = refs;
		nic->pd_cap = cap;
	}
	nic->pd_refs[i] = 0;
	nic->num_pds++;
	*pd = i;
	return 0;
}

int nic_pd_free(struct nic *nic, uint32_t pd)
{
	if (pd >= nic->pd_cap || nic->pd_refs[pd] == NO_PD)
		return -EINVAL;
	if (nic->pd_refs[pd])
		return -EBUSY;
	nic->pd_refs[pd] = NO_PD;
	nic->num_pds--;
	return 0;
}

bool nic_pd_ref(struct nic *nic, uint32_t pd)
{
	if (pd >= nic->pd_cap || nic->pd_refs[pd] == NO_PD)
		return false;
	nic->pd_refs[pd]++;
	return true;
}

void nic_pd_unref(struct nic *nic, uint32_t pd)
{
	nic->pd_refs[pd]--;
}

/* ---- scheduling ---- */

/* Moves a QP to the senders of its PU, from any list of waiters. */
void nic_schedule(struct nic_qp *qp)
{
	if (!list_linked(&qp->tx_link)) {
		list_add_tail(&qp->tx_link, &qp->pu->senders);
	} else if (qp->sq.block != BLOCK_NONE) {
		list_move_tail(&qp->tx_link, &qp->pu->senders);
	}
	qp->sq.block = BLOCK_NONE;
}

void nic_schedule_resp(struct nic_qp *qp)
{
	if (!list_linked(&qp->resp_link))
		list_add_tail(&qp->resp_link, &qp->pu->responders);
}

/*
 * The exchanges of the program and of the PU (req.c) on db_active are totally ordered. Either the
 * program finds it clear and queues the QP, or the PU clears it later and sees the new index.
 *
 *	program					PU
 *	prod (release), exchange db_active 1	exchange db_active 0, prod (acquire)
 *	exchange db_queued 1, push		pop, exchange db_queued 0, prod
 *
 * The PU's code is in req_idle() and take_doorbells().
 *
 * Each exchange acquires and releases. The later one reads the value of the earlier one and sees
 * all stores before it. Both sides write the same word, so no CPU needs a fence.
 */
bool nic_doorbell(struct nic *nic, struct nic_qp *qp)
{
	if (atomic_exchange_explicit(&qp->db_active, 1, memory_order_acq_rel))
		return false;
	/*
	 * The QP may have gone idle (after an ACK) with its last doorbell still in the ring. The PU
	 * sees the new work when it takes that doorbell.
	 */
	if (atomic_exchange_explicit(&qp->db_queued, 1, memory_order_acq_rel))
		return true;
	/* The ring is never full: a QP is in it once, and half of the ring is for destroyed QPs. */
	return mpsc_push(&nic->pus[qp->pu_index]->doorbells, qp->qpn);
}

void nic_ring(struct nic_qp *qp)
{
	struct nic *nic = qp->nic;

	if (!atomic_exchange_explicit(&qp->db_queued, 1, memory_order_acq_rel))
		mpsc_push(&nic->pus[qp->pu_index]->doorbells, qp->qpn);
	nic_kick(nic, qp->pu_index);
}

void nic_kick(struct nic *nic, unsigned pu)
{
	if (nic->cfg.ops->kick)
		nic->cfg.ops->kick(nic->cfg.host, pu);
}

bool nic_qp_busy(struct nic_qp *qp)
{
	struct roost_queue_index *index = qp->sq.index;
	uint32_t before = atomic_load_explicit(&qp->db_prod, memory_order_relaxed);

	if (!index)
		return false;
	atomic_store_explicit(&qp->db_prod,
			      atomic_load_explicit(&index->prod, memory_order_relaxed),
			      memory_order_relaxed);
	return (int32_t)(before - atomic_load_explicit(&index->cons, memory_order_relaxed)) > 0;
}

static unsigned take_doorbells(struct pu *pu)
{
	uint32_t qpns[QPS_PER_TURN];
	unsigned n = 0;

	while (n < QPS_PER_TURN && mpsc_pop(&pu->doorbells, &qpns[n]))
		n++;
	if (!n)
		return 0;
	/*
	 * Each exchange below waits for earlier memory accesses, so all QPs are prefetched first.
	 */
	if (n > 1) {
		for (unsigned i = 0; i < n; i++) {
			const struct nic_qp *qp = nic_peek_qp(pu->nic, qpns[i]);

			if (qp)
				qp_prefetch_requester(qp);
		}
	}
	for (unsigned i = 0; i < n; i++) {
		struct nic_qp *qp = nic_find_qp(pu->nic, qpns[i]);

		if (qp) {
			atomic_exchange_explicit(&qp->db_queued, 0, memory_order_acq_rel);
			nic_schedule(qp);
			if (n > 1)
				sq_prefetch_entry(&qp->sq);
		} else if (qpns[i] == RPC_RING) {
			atomic_exchange_explicit(&pu->rpc_ring_queued, false, memory_order_acq_rel);
			pu->rpc_work = true;
		} else if (qpns[i] == CHAIN_MAIL) {
			chain_take_mail(pu);
		}
	}
	pu->ctr.doorbells += n;
	return n;
}

/*
 * `stuck`: gets QPs whose path has no space while others may have. A peer that takes no packets
 * delays no other peer.
 */
static unsigned run_list(struct pu *pu, struct list_head *list, struct list_head *stuck,
			 size_t link, enum req_result (*run)(struct nic_qp *))
{
	uint64_t end = pu->ctr.sent_pkts + PACKETS_PER_TURN;
	struct list_head again;
	unsigned n = 0;

	list_init(&again);
	while (n < QPS_PER_TURN && pu->ctr.sent_pkts < end && !list_empty(list)) {
		struct list_head *entry = list->next;
		struct nic_qp *qp = (struct nic_qp *)((char *)entry - link);

		list_del(entry);
		switch (run(qp)) {
		case REQ_MORE:
			if (!list_linked(entry))
				list_add_tail(entry, &again);
			break;
		case REQ_PORT_FULL:
			if (list_linked(entry)) /* run() has scheduled the QP for a NAK */
				list_del(entry);
			if (pu->ports[qp->port].port->paths_block) {
				list_add_tail(entry, stuck);
				pu->stuck = true;
				continue; /* no work: a thread may sleep until there is space */
			}
			/*
			 * The QP stays at the head of the list: it is first when the port has
			 * space.
			 */
			if (port_count(pu->nic) == 1) {
				list_add(entry, list);
				list_splice_tail_init(&again, list);
				return n;
			}
			list_add_tail(entry, &again);
			break;
		case REQ_IDLE:
			break;
		}
		n++;
	}
	list_splice_tail_init(&again, list);
	return n;
}

/* Moves some stuck QPs behind the others. */
static __attribute__((noinline)) void requeue_stuck(struct pu *pu, struct list_head *stuck,
						    struct list_head *list)
{
	for (unsigned n = 0; n < QPS_PER_TURN && !list_empty(stuck); n++)
		list_move_tail(stuck->next, list);
	pu->stuck |= !list_empty(stuck);
}

static void on_timer(void *ctx, struct wheel_timer *t)
{
	struct pu *pu = ctx;

	const struct nic_qp *qp = t->owner;

	if (likely(qp && t == &qp->timer))
		retry_fire(t->owner);
	else if (qp)
		chain_timer(t->owner);
	else if (t == &pu->rpc_timer)
		pu->rpc_work = true;
	else
		alive_fire(container_of(t, struct dest, alive_timer));
}

/*
 * Flushes the ports whose flush is no system call, so that answers do not wait for the rest of the
 * turn.
 */
static void flush_early(struct pu *pu)
{
	for (unsigned p = 0; p < port_count(pu->nic); p++) {
		if (!pu->ports[p].port->batch)
			tx_flush(&pu->ports[p]);
	}
}

static unsigned run_responders(struct pu *pu)
{
	unsigned n = run_list(pu, &pu->responders, &pu->stuck_responders,
			      offsetof(struct nic_qp, resp_link), resp_run);

	flush_early(pu);
	return n;
}

/*
 * Runs the calls that wait. Their ACKs leave before, so that the callers take the ACKs while the
 * calls run. Not if a flush is a system call: over udp this order cost a fifth of the rate.
 */
static __attribute__((noinline)) unsigned run_calls(struct pu *pu)
{
	unsigned n = 0;

	if (!pu->ports[0].port->batch && !list_empty(&pu->responders))
		n = run_responders(pu);
	return n + rpc_run(pu);
}

/*
 * Returns true if this turn does not receive on ports where a receive is a system call, which
 * mostly finds nothing. Posted requests leave first, and the next turn receives. Requests then do
 * not wait for the system call, and a program that posts list by list makes half as many system
 * calls.
 */
static bool sends_first(struct pu *pu)
{
	pu->skipped_rx =
		!pu->skipped_rx && (!list_empty(&pu->senders) || !mpsc_empty(&pu->doorbells));
	return pu->skipped_rx;
}

/* Returns true if an ACK is delayed (ack_delay.h). */
static bool ack_delayed(const struct pu *pu)
{
	return pu->reply_qp && pu->ack_delay.delayed;
}

/* Observes the turn after a reply. Its ACK leaves in this turn if it was delayed and is due. */
static __attribute__((noinline)) void observe_caller(struct pu *pu)
{
	struct nic_qp *qp = pu->reply_qp;
	bool posted = qp && (list_linked(&qp->tx_link) || sq_posted(&qp->sq));

	if (ack_delay_turn(&pu->ack_delay, posted, pu->now) && qp)
		nic_schedule_resp(qp);
	if (!ack_delay_active(&pu->ack_delay))
		pu->reply_qp = NULL;
}

static __attribute__((noinline)) void take_hints(struct pu *pu)
{
	for (unsigned p = 0; p < port_count(pu->nic); p++)
		alive_hints(pu, pu->ports[p].port);
}

unsigned nic_poll(struct nic *nic, unsigned index, uint64_t now)
{
	struct pu *pu = nic->pus[index];
	struct port_pkt pkts[PORT_BURST];
	unsigned work = 0, hints = 0, ports = port_count(nic);
	bool sends = sends_first(pu);

	pu->now = now;
	pu->polls++;
	if (unlikely(ack_delay_active(&pu->ack_delay)))
		observe_caller(pu);
	for (unsigned p = 0; p < ports; p++) {
		struct port *port = pu->ports[p].port;
		int n;

		if (!sends || !port->batch || pu->ports[p].blocked) {
			n = port->ops->rx_burst(port, pkts, PORT_BURST);
			if (n > 0) {
				rx_packets(pu, &pu->ports[p], pkts, n);
				work += (unsigned)n;
			}
		}
		hints |= port->num_hints;
	}
	if (unlikely(pu->rpc_work))
		work += run_calls(pu);
	if (unlikely(hints))
		take_hints(pu);
	if (unlikely(pu->stuck)) {
		pu->stuck = false;
		work += gsi_resume(pu);
		requeue_stuck(pu, &pu->stuck_senders, &pu->senders);
		requeue_stuck(pu, &pu->stuck_responders, &pu->responders);
	}
	if (!list_empty(&pu->responders))
		work += run_responders(pu);
	work += take_doorbells(pu);
	if (unlikely(!list_empty(&pu->chain_later)))
		list_splice_tail_init(&pu->chain_later, &pu->senders);
	/*
	 * Peers may cause thousands of time-outs at once, and each may send a packet. So the number
	 * per turn is bounded.
	 */
	work += wheel_expire_some(&pu->wheel, now, TIMERS_PER_TURN, on_timer, pu);
	if (!list_empty(&pu->senders))
		work += run_list(pu, &pu->senders, &pu->stuck_senders,
				 offsetof(struct nic_qp, tx_link), req_run);
	qp_end_lost(pu);
	for (unsigned p = 0; p < ports; p++)
		tx_flush(&pu->ports[p]);
	if (pu->num_dirty)
		cq_notify_dirty(pu);
	pu->ctr.turns += work != 0;
	return work;
}

/*
 * A hardware NIC sends a datagram within microseconds after its doorbell, so programs post their
 * last datagrams, and destroy the address handle and the QP without waiting for the completions
 * (rdma-core's mckey). At exit this is the last chance of an ACK, too. Only PACKETS_PER_TURN
 * packets leave, because the other threads of the program may go on posting.
 */
void nic_send_datagrams(struct nic *nic, unsigned index, uint64_t now)
{
	struct pu *pu = nic->pus[index];
	uint64_t end = pu->ctr.sent_pkts + PACKETS_PER_TURN;
	struct list_head datagrams, rest;

	pu->now = now;
	if (ack_delayed(pu)) {
		nic_schedule_resp(pu->reply_qp);
		pu->reply_qp = NULL;
		run_responders(pu);
	}
	list_init(&datagrams);
	list_init(&rest);
	for (unsigned n = 0; n < PACKETS_PER_TURN && take_doorbells(pu); n++)
		;
	while (!list_empty(&pu->senders)) {
		struct nic_qp *qp = container_of(pu->senders.next, struct nic_qp, tx_link);

		list_move_tail(&qp->tx_link, qp->type == NIC_QPT_UD ? &datagrams : &rest);
	}
	/* A port that is blocked takes no packet before it is flushed. */
	for (unsigned vain = 0;
	     vain < VAIN_PASSES && !list_empty(&datagrams) && pu->ctr.sent_pkts < end;) {
		uint64_t before = pu->ctr.sent_pkts;

		if (!run_list(pu, &datagrams, &pu->stuck_senders, offsetof(struct nic_qp, tx_link),
			      req_run))
			break;
		vain = pu->ctr.sent_pkts == before ? vain + 1 : 0;
	}
	list_splice_tail_init(&datagrams, &pu->senders);
	list_splice_tail_init(&rest, &pu->senders);
	for (unsigned p = 0; p < port_count(nic); p++)
		tx_flush(&pu->ports[p]);
	if (pu->num_dirty)
		cq_notify_dirty(pu);
}

uint64_t nic_deadline(struct nic *nic, unsigned pu)
{
	return wheel_next(&nic->pus[pu]->wheel);
}

bool nic_pending(struct nic *nic, unsigned index)
{
	struct pu *pu = nic->pus[index];

	if (!mpsc_empty(&pu->doorbells) || pu->rpc_work || ack_delayed(pu))
		return true;
	for (unsigned p = 0; p < port_count(nic); p++) {
		if (pu->ports[p].port->num_hints)
			return true;
	}
	/* A blocked port signals space through its fd. With several ports, other QPs may send. */
	if (port_count(nic) == 1 && pu->ports[0].blocked && !pu->ports[0].port->paths_block)
		return false;
	return !list_empty(&pu->senders) || !list_empty(&pu->responders) ||
	       !list_empty(&pu->chain_later);
}
