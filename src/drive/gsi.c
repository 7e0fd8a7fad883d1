/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The interface of QP 1 to its user. Datagrams that come to QP 1 wait in a bounded queue. The
 * service thread hands them to the user outside of any turn, and runs the timers of the user.
 * Datagrams that do not fit into the queue are lost; their senders repeat them.
 *
 *   turn (any thread, PU owned) -> queue -> service thread -> input(), expire() of the user
 *   user (any thread) -> drive_gsi_send() -> PU 0, owned for the call -> port
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "drive/engine.h"
#include "pool/pool.h"

#define OWN_NS	    (10 * MS)  /* the time after which a sender checks whether the engine ends */
#define EXIT_OWN_NS (100 * MS) /* the longest wait for a turn at exit */

/* The engine whose QP 1 this thread serves; NULL in other threads. */
static _Thread_local struct drive *serving;

/* This function and the next two are called inside a turn or a control call. */
void gsi_arrived(void *host, unsigned port, const struct pkt_addr *src, const struct pkt_addr *dst,
		 const uint8_t *mad)
{
	struct drive *d = host;
	struct gsi *g = &d->gsi;
	struct gsi_datagram *m;
	bool is_open;

	spin_lock(&g->queue_lock);
	if (g->state == GSI_CLOSED || g->tail - g->head == GSI_QUEUE) {
		g->dropped++;
		spin_unlock(&g->queue_lock);
		return;
	}
	m = &g->queue[g->tail++ % GSI_QUEUE];
	m->port = port;
	m->src = *src;
	m->dst = *dst;
	memcpy(m->mad, mad, NIC_GSI_LEN);
	is_open = g->state == GSI_OPEN;
	spin_unlock(&g->queue_lock);
	if (is_open)
		drive_gsi_wake(d);
}

bool gsi_is_filling(struct drive *d)
{
	struct gsi *g = &d->gsi;
	bool filling;

	spin_lock(&g->queue_lock);
	filling = g->tail - g->head >= GSI_QUEUE / 4;
	spin_unlock(&g->queue_lock);
	return filling;
}

/*
 * A dead peer may have all QPs of the NIC, whose connections end in one turn, so no report may be
 * lost for want of a place. Two QPs have one index only if the program has destroyed the first one.
 */
void gsi_peer_gone(void *host, uint32_t qpn)
{
	struct drive *d = host;
	struct gsi *g = &d->gsi;
	uint32_t index = PORT_INDEX_OF_QPN(qpn);
	bool is_open;

	spin_lock(&g->queue_lock);
	is_open = g->state == GSI_OPEN;
	if (is_open) {
		g->num_gone += !(g->gone_at[index / 64] >> index % 64 & 1);
		g->gone_at[index / 64] |= UINT64_C(1) << index % 64;
		g->gone[index] = qpn;
	}
	spin_unlock(&g->queue_lock);
	if (is_open)
		drive_gsi_wake(d);
}

void gsi_lost(void *host, const struct pkt_addr *dst, uint64_t tid)
{
	struct drive *d = host;
	struct gsi *g = &d->gsi;
	bool is_open;

	spin_lock(&g->queue_lock);
	is_open = g->state == GSI_OPEN;
	if (is_open && g->num_lost < GSI_LOST)
		g->lost[g->num_lost++] = (struct gsi_lost){*dst, tid};
	spin_unlock(&g->queue_lock);
	if (is_open)
		drive_gsi_wake(d);
}

static bool take_lost(struct gsi *g, struct gsi_lost *out)
{
	bool any;

	spin_lock(&g->queue_lock);
	any = g->num_lost != 0;
	if (any)
		*out = g->lost[--g->num_lost];
	spin_unlock(&g->queue_lock);
	return any;
}

/*
 * Hands the reports of lost datagrams to the user. A report that is added meanwhile wakes the
 * service thread again. The user's lock is held.
 */
static void report_lost(struct gsi *g)
{
	struct gsi_lost lost;

	for (unsigned n = 0; n < GSI_LOST && take_lost(g, &lost); n++) {
		if (g->ops->lost)
			g->ops->lost(g->ctx, &lost.dst, lost.tid);
	}
}

/* Takes at most GSI_GONE_AT_ONCE reports. Returns their number. */
static unsigned take_gone(struct gsi *g, uint32_t *out)
{
	unsigned n = 0;

	spin_lock(&g->queue_lock);
	for (unsigned w = 0; g->num_gone && n < GSI_GONE_AT_ONCE; w += !g->gone_at[w]) {
		if (!g->gone_at[w])
			continue;
		out[n++] = g->gone[w * 64 + (unsigned)__builtin_ctzll(g->gone_at[w])];
		g->gone_at[w] &= g->gone_at[w] - 1;
		g->num_gone--;
	}
	spin_unlock(&g->queue_lock);
	return n;
}

static int compare_numbers(const void *a, const void *b)
{
	const uint32_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

/* Hands the QPs that have ended since the last call to the user. The user's lock is held. */
static void report_gone(struct gsi *g)
{
	uint32_t gone[GSI_GONE_AT_ONCE];
	unsigned n;

	while ((n = take_gone(g, gone)) && g->ops->gone) {
		qsort(gone, n, sizeof(gone[0]), compare_numbers);
		g->ops->gone(g->ctx, gone, n);
	}
}

static bool take(struct gsi *g, struct gsi_datagram *out)
{
	bool any;

	spin_lock(&g->queue_lock);
	any = g->head != g->tail;
	if (any)
		*out = g->queue[g->head++ % GSI_QUEUE];
	else
		g->head = g->tail = 0; /* few datagrams use few pages of the queue */
	spin_unlock(&g->queue_lock);
	return any;
}

/*
 * While the service thread hands several datagrams to the user, it keeps the answers. They leave
 * together: PU 0 is owned once, and there is one system call for many. NULL in other threads.
 */
static _Thread_local struct drive *batch;

/* Tells a port the destinations of all answers that leave from it. */
static void expect(struct drive *d, unsigned port)
{
	struct gsi *g = &d->gsi;
	struct pkt_addr dst[GSI_ANSWERS];
	unsigned n = 0;

	for (unsigned i = 0; i < g->num_answers; i++) {
		if (g->answer[i].port == port)
			dst[n++] = g->answer[i].dst;
	}
	nic_gsi_expect(d->nic, port, dst, n);
}

/*
 * Owns PU 0 for datagrams. Returns false if the engine ends while another thread owns the PU. At
 * exit() in a signal handler the owner may be the turn that the signal interrupted: it never ends,
 * and the service thread must not wait for it.
 */
static bool own_for_datagrams(struct drive *d)
{
	while (!pu_own(&d->pu[0], clock_now() + OWN_NS)) {
		if (atomic_load_explicit(&d->stop, memory_order_acquire))
			return false;
	}
	return true;
}

/*
 * The control mutex is not taken: QP 1 belongs to the owner of PU 0, and a port is only added while
 * all PUs are owned. With the mutex, each control call of the program waited for the system calls
 * of the answers to a flood.
 */
static void send_answers(struct drive *d)
{
	struct gsi *g = &d->gsi;
	uint32_t expected = 0, staged = 0;

	if (!g->num_answers)
		return;
	if (!own_for_datagrams(d)) {
		g->num_answers = 0;
		return;
	}
	for (unsigned i = 0; i < g->num_answers; i++) {
		const struct gsi_answer *a = &g->answer[i];

		if (!(expected >> a->port & 1)) {
			expect(d, a->port);
			expected |= 1u << a->port;
		}
		if (nic_gsi_stage(d->nic, a->port, &a->dst, a->tclass, a->mad) == 0)
			staged |= 1u << a->port;
	}
	for (unsigned port = 0; (expected | staged) >> port; port++) {
		if (expected >> port & 1)
			nic_gsi_expect(d->nic, port, NULL, 0);
		if (staged >> port & 1)
			nic_gsi_flush(d->nic, port);
	}
	pu_disown(d, 0, PU_SENT);
	g->num_answers = 0;
}

static void keep_answer(struct drive *d, unsigned port, const struct pkt_addr *dst, uint8_t tclass,
			const uint8_t *mad)
{
	struct gsi *g = &d->gsi;
	struct gsi_answer *a;

	if (g->num_answers == GSI_ANSWERS)
		send_answers(d);
	a = &g->answer[g->num_answers++];
	a->port = port;
	a->dst = *dst;
	a->tclass = tclass;
	memcpy(a->mad, mad, NIC_GSI_LEN);
}

/*
 * Hands at most GSI_AT_ONCE datagrams to the user, whose lock is held meanwhile. Threads of the
 * program wait for that lock.
 */
static unsigned hand_over(struct drive *d)
{
	struct gsi *g = &d->gsi;
	struct gsi_datagram m;
	unsigned n = 0;

	if (!take(g, &m))
		return 0;
	batch = d;
	if (g->ops->begin)
		g->ops->begin(g->ctx);
	do
		g->ops->input(g->ctx, m.port, &m.src, &m.dst, m.mad);
	while (++n < GSI_AT_ONCE && take(g, &m));
	if (g->ops->end)
		g->ops->end(g->ctx);
	batch = NULL;
	return n;
}

void gsi_serve(struct drive *d)
{
	struct gsi *g = &d->gsi;
	uint64_t due = atomic_load_explicit(&g->due, memory_order_relaxed);

	serving = d;
	if (!atomic_load_explicit(&g->woken, memory_order_relaxed) &&
	    (due == UINT64_MAX || clock_now() < due))
		return;
	/*
	 * The flag is cleared before the look, so that later datagrams wake the thread again.
	 * Memory order: a sender queues its datagram, then exchanges 1 (drive_gsi_wake()); this
	 * thread exchanges 0, then looks at the queue. Both exchanges acquire and release one word,
	 * so the later one sees what was stored before the earlier one.
	 */
	atomic_exchange_explicit(&g->woken, 0, memory_order_acq_rel);
	pthread_mutex_lock(&g->user_lock);
	if (g->ops) {
		unsigned n = 0, some;

		do {
			some = hand_over(d);
			n += some;
			if (g->num_answers >= GSI_ANSWERS_MANY)
				send_answers(d);
		} while (some == GSI_AT_ONCE && n < GSI_ROUND);
		send_answers(d);
		report_lost(g);
		report_gone(g);
		if (n >= GSI_ROUND) /* the thread handles the rest after its other work */
			atomic_store_explicit(&g->woken, 1, memory_order_relaxed);
		atomic_store_explicit(&g->due, g->ops->expire(g->ctx, clock_now()),
				      memory_order_relaxed);
	}
	pthread_mutex_unlock(&g->user_lock);
}

uint64_t gsi_due(struct drive *d)
{
	if (atomic_load_explicit(&d->gsi.woken, memory_order_acquire))
		return 0;
	return atomic_load_explicit(&d->gsi.due, memory_order_relaxed);
}

void gsi_init(struct drive *d)
{
	pthread_mutex_init(&d->gsi.user_lock, NULL);
	atomic_store_explicit(&d->gsi.due, UINT64_MAX, memory_order_relaxed);
}

void gsi_fini(struct drive *d)
{
	if (d->gsi.dropped)
		log_debug("gsi: %llu datagrams were dropped: no user of QP 1, or a full queue",
			  (unsigned long long)d->gsi.dropped);
	pthread_mutex_destroy(&d->gsi.user_lock);
}

/*
 * Sets the state. Datagrams that came before the first user are kept for it: the address exists
 * shortly before its user does, and a peer that gets neither an answer nor a rejection repeats its
 * request only after seconds. Datagrams for a user that has left are dropped.
 */
static void set_state(struct gsi *g, enum gsi_state state)
{
	spin_lock(&g->queue_lock);
	if (g->state != GSI_AWAITED)
		g->head = g->tail;
	g->state = state;
	memset(g->gone_at, 0, sizeof(g->gone_at));
	g->num_gone = g->num_lost = 0;
	spin_unlock(&g->queue_lock);
}

/* Tells the pool, because other programs may have the same address. */
static void set_pool_user(struct drive *d, bool has_user)
{
	struct pool *p = drive_dead(d) ? NULL : pool_mine();

	if (p)
		pool_manages(p, nic_slot(d->nic, 0), has_user);
}

int drive_gsi_open(struct drive *d, const struct drive_gsi_ops *ops, void *ctx)
{
	struct gsi *g = &d->gsi;
	int rc = 0;

	pthread_mutex_lock(&g->user_lock);
	if (g->ops) {
		rc = -EBUSY;
	} else {
		g->ops = ops;
		g->ctx = ctx;
		set_state(g, GSI_OPEN);
	}
	pthread_mutex_unlock(&g->user_lock);
	if (rc)
		return rc;
	set_pool_user(d, true);
	drive_gsi_wake(d);
	return 0;
}

void drive_gsi_close(struct drive *d)
{
	struct gsi *g = &d->gsi;

	set_pool_user(d, false);
	pthread_mutex_lock(&g->user_lock);
	set_state(g, GSI_CLOSED);
	g->ops = NULL;
	atomic_store_explicit(&g->due, UINT64_MAX, memory_order_relaxed);
	pthread_mutex_unlock(&g->user_lock);
}

void drive_gsi_wake(struct drive *d)
{
	/*
	 * Only the service thread is kicked, because it calls gsi_serve() even while a waiter is
	 * the service poller. In its own turns it needs no kick: it looks at `woken` before it
	 * sleeps.
	 */
	if (!atomic_exchange_explicit(&d->gsi.woken, 1, memory_order_acq_rel) && serving != d)
		service_poller_kick(&d->service);
}

int drive_gsi_send(struct drive *d, unsigned port, const struct pkt_addr *dst, uint8_t tclass,
		   const uint8_t *mad)
{
	int rc;

	if (drive_dead(d))
		return -ENODEV;
	if (batch == d) {
		keep_answer(d, port, dst, tclass, mad);
		return 0;
	}
	if (!own_for_datagrams(d))
		return -ENODEV;
	rc = nic_gsi_send(d->nic, port, dst, tclass, mad);
	pu_disown(d, 0, PU_SENT);
	return rc;
}

bool drive_gsi_may_send_at_exit(struct drive *d)
{
	if (drive_dead(d) || !pu_own(&d->pu[0], clock_now() + EXIT_OWN_NS))
		return false;
	drive_disown(d, 0);
	return true;
}

/* ---- among the programs of an address ---- */

static uint32_t medium_of(struct drive *d, unsigned port)
{
	return nic_port(d->nic, port, 0)->medium;
}

/* Returns the interface of an address of this NIC. It counts for a link-local address. */
static uint32_t scope_of(struct drive *d, const struct pkt_addr *addr)
{
	struct drive_addr where;

	return addr && drive_find_addr(d, addr, &where) ? medium_of(d, where.port) : 0;
}

int drive_gsi_hold(struct drive *d)
{
	return drive_dead(d) || !pool_mine() ? -1 : pool_hold_publisher();
}

/* QP 1 belongs to the first PU, so its services are those of the first slot. */
int drive_gsi_listen(struct drive *d, uint64_t service, const struct pkt_addr *addr,
		     unsigned families)
{
	struct pool *p = drive_dead(d) ? NULL : pool_mine();

	return p ? pool_publish(p, nic_slot(d->nic, 0), service, addr, scope_of(d, addr), families)
		 : 0;
}

void drive_gsi_unlisten(struct drive *d, uint64_t service, const struct pkt_addr *addr,
			unsigned families)
{
	struct pool *p = drive_dead(d) ? NULL : pool_mine();

	if (p)
		pool_withdraw(p, nic_slot(d->nic, 0), service, addr, scope_of(d, addr), families);
}

void drive_gsi_ids(struct drive *d, struct sequence *out)
{
	struct pool *p = drive_dead(d) ? NULL : pool_mine();

	*out = (struct sequence){.next = NULL};
	if (p)
		pool_ids(p, nic_slot(d->nic, 0), out);
}

void drive_gsi_will(struct drive *d, uint32_t index, const struct pkt_addr *src,
		    const struct pkt_addr *dst, uint8_t tclass, const uint8_t *mad)
{
	struct pool *p = drive_dead(d) ? NULL : pool_mine();
	struct pool_will w;

	if (!p)
		return;
	if (mad) {
		w = (struct pool_will){
			.src = *src, .scope = scope_of(d, src), .dst = *dst, .tclass = tclass};
		memcpy(w.mad, mad, sizeof(w.mad));
	}
	pool_leave_will(p, nic_slot(d->nic, 0), index, mad ? &w : NULL);
}

/* Finds the port that sends from an address. A link-local address belongs to its interface. */
static bool find_source(struct drive *d, const struct pkt_addr *src, uint32_t scope,
			struct drive_addr *where)
{
	return drive_find_addr(d, src, where) &&
	       (!pkt_addr_is_link_local(src) || medium_of(d, where->port) == scope);
}

static bool can_execute(void *ctx, const struct pkt_addr *src, uint32_t scope)
{
	struct drive_addr where;

	return find_source(ctx, src, scope, &where);
}

/* Sends a datagram that a killed program left. The thread of the pool calls this function. */
static void execute(void *ctx, const struct pool_will *w)
{
	struct drive *d = ctx;
	struct drive_addr where;

	if (find_source(d, &w->src, w->scope, &where))
		drive_gsi_send(d, where.port, &w->dst, w->tclass, w->mad);
}

void gsi_begin_wills(struct drive *d)
{
	struct pool *p = pool_mine();

	if (!p)
		return;
	pool_execute(p, can_execute, execute, d);
	pool_execute_wills(p);
}

void gsi_end_wills(struct drive *d)
{
	struct pool *p = pool_mine();

	if (p)
		pool_execute(p, NULL, NULL, d);
}
