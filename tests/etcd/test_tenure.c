/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A node with a lease, and a command that gives its partition to another node, in virtual time.
 * Requests and answers are late or lost, etcd does not answer for a while, the node stops for a
 * while, and the clock of etcd runs faster or slower. The node serves no operation after the
 * command has taken the partition.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/rng.h"
#include "etcd/tenure.h"

#define MS	UINT64_C(1000000)
#define S	(1000 * MS)
#define TICK	(10 * MS)
#define LEASE_S 5u
#define TIMEOUT (2 * S) /* as in http.c */
#define LOOK	(50 * MS)
#define LEASES	4096u
#define LATE	16u /* requests that are on the way */
#define NODE	0
#define OTHER	1

enum what { READ, GRANT, REGISTER, RENEW };

struct request {
	enum what what;
	uint64_t id;			/* of the lease */
	uint64_t sent, arrives, answer; /* 0: never */
};

struct answer {
	bool is_there, refused;
	uint64_t id, seconds, version;
	int owner;
};

struct world {
	struct rng rng;
	uint64_t now;		 /* of the node's clock */
	unsigned fast;		 /* 1/1000: the clock of etcd */
	unsigned faults;	 /* of 1000 requests, these are late or lost */
	unsigned stops, outages; /* of 100,000 ticks, one begins in so many */
	/* etcd */
	uint64_t silent;			 /* it takes no request until then */
	uint64_t lease_end[LEASES], leases, key; /* by etcd's clock; the key has a lease */
	uint64_t version;
	int owner;
	struct request late[LATE]; /* given up by the node, not yet arrived */
	/* the node */
	struct tenure tenure;
	struct kv_fence fence;
	bool waits;
	struct request request;
	struct answer got;
	uint64_t look, stopped; /* until then */
	/* of the store, and what it gets next */
	uint64_t store_version, next_version, next_at;
	int store_owner, next_owner;
	/* what happened */
	unsigned done, refused, taken, returned;
};

static uint64_t between(struct world *w, uint64_t from, uint64_t to)
{
	return from + rng_below(&w->rng, to - from + 1);
}

static bool chance(struct world *w, unsigned of_1000)
{
	return between(w, 0, 999) < of_1000;
}

/* ---- etcd ---- */

static uint64_t etcd_now(const struct world *w)
{
	return w->now / 1000 * w->fast;
}

static bool lives(const struct world *w, uint64_t id)
{
	return id && etcd_now(w) < w->lease_end[id];
}

static struct answer execute(struct world *w, const struct request *r)
{
	struct answer a = {.is_there = true, .id = r->id};

	switch (r->what) {
	case READ:
		a.version = w->version;
		a.owner = w->owner;
		break;
	case GRANT:
		assert_true(w->leases + 1 < LEASES);
		a.id = ++w->leases;
		w->lease_end[a.id] = etcd_now(w) + LEASE_S * S;
		a.seconds = LEASE_S;
		break;
	case REGISTER:
		a.refused = !lives(w, r->id);
		if (!a.refused)
			w->key = r->id;
		break;
	case RENEW:
		if (lives(w, r->id)) {
			w->lease_end[r->id] = etcd_now(w) + LEASE_S * S;
			a.seconds = LEASE_S;
		}
		break;
	}
	return a;
}

/* The command looks at the key and changes the table in one transaction. */
static void take_over(struct world *w)
{
	if (w->owner == NODE && !lives(w, w->key)) {
		w->owner = OTHER;
		w->version++;
		w->taken++;
	}
}

static void give_back(struct world *w)
{
	if (w->owner == OTHER) {
		w->owner = NODE;
		w->version++;
		w->returned++;
	}
}

/* ---- the node ---- */

static void send(struct world *w, enum what what)
{
	struct request *r = &w->request;
	bool lost = chance(w, w->faults), late = chance(w, w->faults);

	*r = (struct request){.what = what, .id = w->tenure.id, .sent = w->now};
	r->arrives = lost ? 0 : w->now + between(w, TICK, late ? 8 * S : 5 * TICK);
	w->waits = true;
	w->got.is_there = false;
}

static void look(struct world *w)
{
	static const enum what requests[] = {[TENURE_REST] = READ,
					     [TENURE_GRANT] = GRANT,
					     [TENURE_REGISTER] = REGISTER,
					     [TENURE_RENEW] = RENEW};

	/* A node without a lease reads the table, too. */
	send(w, chance(w, 50) ? READ : requests[tenure_next(&w->tenure, w->now)]);
}

static void take(struct world *w)
{
	const struct answer *a = &w->got;
	const struct request *r = &w->request;

	switch (r->what) {
	case READ:
		tenure_read(&w->tenure, a->version);
		if (!w->next_at && a->version > w->store_version) {
			w->next_version = a->version;
			w->next_owner = a->owner;
			w->next_at = w->now + between(w, 0, chance(w, 100) ? 3 * S : 5 * TICK);
		}
		break;
	case GRANT:
		tenure_granted(&w->tenure, r->sent, a->id, a->seconds);
		break;
	case REGISTER:
		if (a->refused)
			tenure_refused(&w->tenure);
		else
			tenure_registered(&w->tenure);
		break;
	case RENEW:
		tenure_renewed(&w->tenure, r->sent, a->seconds);
		break;
	}
}

/* The request may still arrive. */
static void give_up(struct world *w)
{
	if (w->request.what == REGISTER)
		tenure_refused(&w->tenure);
	for (unsigned i = 0; i < LATE; i++) {
		if (!w->late[i].arrives) {
			w->late[i] = w->request;
			break;
		}
	}
}

static void run_node(struct world *w)
{
	if (w->waits && w->got.is_there && w->now >= w->request.answer) {
		w->waits = false;
		take(w);
		w->look = w->now + (w->request.what == READ ? LOOK : 0);
	} else if (w->waits && w->now - w->request.sent > TIMEOUT) {
		w->waits = false;
		give_up(w);
		w->look = w->now + LOOK;
	}
	if (!w->waits && w->now >= w->look)
		look(w);
	if (w->next_at && w->now >= w->next_at) {
		w->store_version = w->next_version;
		w->store_owner = w->next_owner;
		w->next_at = 0;
	}
}

static void serve(struct world *w)
{
	if (w->store_owner != NODE || !kv_fence_open(&w->fence, w->store_version, w->now)) {
		w->refused++;
		return;
	}
	w->done++;
	assert_int_equal(w->owner, NODE);
}

/* ---- runs ---- */

static void run_etcd(struct world *w)
{
	struct request *r = &w->request;

	if (w->now < w->silent)
		return;
	if (w->waits && r->arrives && !w->got.is_there && w->now >= r->arrives) {
		w->got = execute(w, r);
		r->arrives = 0;
		r->answer = w->now + between(w, TICK, 5 * TICK);
		if (chance(w, w->faults))
			r->answer += between(w, 0, 4 * S);
	}
	for (unsigned i = 0; i < LATE; i++) {
		if (w->late[i].arrives && w->now >= w->late[i].arrives) {
			execute(w, &w->late[i]);
			w->late[i].arrives = 0;
		}
	}
	if (chance(w, 20))
		take_over(w);
	if (chance(w, 2))
		give_back(w);
}

static void tick(struct world *w)
{
	w->now += TICK;
	if (w->now >= w->silent && between(w, 0, 99999) < w->outages)
		w->silent = w->now + between(w, 0, 3 * LEASE_S * S);
	if (w->now >= w->stopped && between(w, 0, 99999) < w->stops)
		w->stopped = w->now + between(w, 0, 3 * LEASE_S * S);
	run_etcd(w);
	if (w->now < w->stopped)
		return;
	/* The thread of the lease and those that serve run in any order. */
	if (chance(w, 500))
		serve(w);
	run_node(w);
	serve(w);
}

static void start(struct world *w, uint64_t seed)
{
	memset(w, 0, sizeof(*w));
	rng_seed(&w->rng, seed);
	w->now = 1000 * S;
	w->fast = 1000;
	w->version = w->store_version = 1;
	tenure_init(&w->tenure, LEASE_S, &w->fence);
}

static void nothing_is_done_after_a_takeover(void **state)
{
	static struct world w;
	unsigned done = 0, taken = 0, returned = 0;

	(void)state;
	for (uint64_t seed = 1; seed <= 60; seed++) {
		start(&w, seed);
		w.fast = (unsigned)between(&w, 850, 1190);
		w.faults = 50;
		w.stops = w.outages = 150;
		for (unsigned i = 0; i < 30000; i++)
			tick(&w);
		done += w.done;
		taken += w.taken;
		returned += w.returned;
	}
	print_message("%u served, %u takeovers, %u returns\n", done, taken, returned);
	/* All of this happened often. */
	assert_true(done > 100000 && taken > 200 && returned > 200);
}

static void run_until_done(struct world *w)
{
	unsigned before = w->done;

	for (unsigned i = 0; w->done == before; i++) {
		assert_true(i < 30000);
		tick(w);
	}
}

/* Without faults the node serves all the time. */
static void a_lease_is_renewed_in_time(void **state)
{
	static struct world w;
	unsigned before;

	(void)state;
	start(&w, 1);
	run_until_done(&w);
	before = w.refused;
	for (unsigned i = 0; i < 30000; i++)
		tick(&w);
	assert_int_equal(w.refused, before);
	assert_int_equal(w.taken, 0);
	assert_in_range(w.leases, 1, 1);
}

/* An outage of half of the lease is not noticed; after a long one the node serves again. */
static void outages(void **state)
{
	static struct world w;
	unsigned before;

	(void)state;
	start(&w, 2);
	run_until_done(&w);
	before = w.refused;
	w.silent = w.now + LEASE_S * S / 2;
	while (w.now < w.silent)
		tick(&w);
	assert_int_equal(w.refused, before);
	w.silent = w.now + LEASE_S * S;
	while (w.now < w.silent)
		tick(&w);
	assert_true(w.refused > before);
	run_until_done(&w);
}

static void lies(void **state)
{
	struct kv_fence fence;
	struct tenure t;

	(void)state;
	tenure_init(&t, 10, &fence);
	/* More time than was asked for is not used. */
	tenure_granted(&t, 100 * S, 7, UINT64_MAX);
	tenure_registered(&t);
	tenure_read(&t, 3);
	assert_true(kv_fence_open(&fence, 3, 101 * S));
	assert_false(kv_fence_open(&fence, 3, 109 * S));
	/* A store with an older table does not serve. */
	assert_false(kv_fence_open(&fence, 2, 101 * S));
	/* Less time is. */
	tenure_renewed(&t, 102 * S, 1);
	assert_true(kv_fence_open(&fence, 3, 102 * S + S / 2));
	assert_false(kv_fence_open(&fence, 3, 103 * S));
	/* A lease that could not be used is renewed nevertheless, which shows whether it lasts. */
	tenure_init(&t, 10, &fence);
	tenure_granted(&t, 100 * S, 7, 10);
	assert_int_equal(tenure_next(&t, 100 * S), TENURE_REGISTER);
	tenure_refused(&t);
	assert_int_equal(tenure_next(&t, 100 * S), TENURE_RENEW);
	tenure_renewed(&t, 100 * S, 10);
	assert_int_equal(tenure_next(&t, 110 * S), TENURE_REGISTER);
	tenure_registered(&t);
	assert_int_equal(tenure_next(&t, 110 * S), TENURE_RENEW);
	/* The lease has ended: a table that was read earlier is not enough. */
	tenure_renewed(&t, 103 * S, 0);
	tenure_read(&t, 3);
	assert_false(kv_fence_open(&fence, 3, 103 * S));
	assert_int_equal(tenure_next(&t, 103 * S), TENURE_GRANT);
}

/* The key vanishes between two renewals, although the lease lasts: the node serves nothing. */
static void a_key_vanishes(void **state)
{
	struct kv_fence fence;
	struct tenure t;

	(void)state;
	tenure_init(&t, 10, &fence);
	tenure_granted(&t, 100 * S, 7, 10);
	tenure_registered(&t);
	tenure_read(&t, 3);
	assert_true(kv_fence_open(&fence, 3, 101 * S));
	tenure_unregistered(&t);
	assert_false(kv_fence_open(&fence, 3, 101 * S));
	/* A renewal or a table that is read now does not open the fence. */
	tenure_renewed(&t, 101 * S, 10);
	tenure_read(&t, 3);
	assert_false(kv_fence_open(&fence, 3, 102 * S));
	assert_int_equal(tenure_next(&t, 102 * S), TENURE_REGISTER);
	tenure_registered(&t);
	assert_false(kv_fence_open(&fence, 3, 102 * S));
	/* The partitions may have been given away meanwhile. */
	tenure_read(&t, 4);
	assert_true(kv_fence_open(&fence, 4, 102 * S));
	assert_false(kv_fence_open(&fence, 3, 102 * S));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_is_done_after_a_takeover),
		cmocka_unit_test(a_lease_is_renewed_in_time),
		cmocka_unit_test(outages),
		cmocka_unit_test(lies),
		cmocka_unit_test(a_key_vanishes),
	};

	return cmocka_run_group_tests_name("leases", tests, NULL, NULL);
}
