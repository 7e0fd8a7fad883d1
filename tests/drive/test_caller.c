/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * struct caller, the state machine of src/drive/policy.h that classifies the activity of the
 * program between its calls.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "drive/policy.h"

#define T0    (1000 * MS)
#define STAKE (40 * US)
#define SOON  policy_table.mask_most	   /* the service thread looks again within this time */
#define LATE  (policy_table.mask_most + 1) /* or later than that */

static uint64_t dice(uint64_t *seed)
{
	*seed ^= *seed >> 12;
	*seed ^= *seed << 25;
	*seed ^= *seed >> 27;
	return *seed * 0x2545f4914f6cdd1dull;
}

/*
 * The service thread finds packets that came 100 us after a call, until the program counts as
 * spinning on memory. The busy polls of a new program are used up before.
 */
static void make_it_spin(struct caller *c, uint64_t now)
{
	for (unsigned i = 0; i < policy_table.trial; i++)
		caller_gone(c);
	for (unsigned i = 0; i < 20; i++)
		caller_found_by_service(c, now + i, now + i + 100 * US);
	assert_true(caller_spins(c));
}

static struct caller a_caller(enum caller_kind kind)
{
	struct caller c = {0};

	caller_init(&c);
	if (kind == CALLER_SPINS)
		make_it_spin(&c, T0);
	if (kind == CALLER_SLEEPS)
		caller_armed(&c);
	assert_int_equal(caller_kind(&c), kind);
	return c;
}

/* ---- kinds ---- */

static void an_armed_program_sleeps(void **state)
{
	(void)state;
	/* programs may poll so often and sleep nevertheless */
	assert_true(policy_table.armed_hits > 10);
	for (unsigned spins = 0; spins < 2; spins++) {
		struct caller c = a_caller(spins ? CALLER_SPINS : CALLER_POLLS);

		caller_armed(&c);
		/* Polls in vain show nothing: the program may sleep after any of them. */
		for (unsigned i = 0; i < 1000; i++)
			caller_polled(&c, false);
		for (unsigned i = 0; i < policy_table.armed_hits; i++) {
			assert_int_equal(caller_kind(&c), CALLER_SLEEPS);
			caller_polled(&c, true);
		}
		assert_int_not_equal(caller_kind(&c), CALLER_SLEEPS);
		/* Each arming restarts the count. */
		caller_armed(&c);
		caller_polled(&c, true);
		caller_armed(&c);
		for (unsigned i = 1; i < policy_table.armed_hits; i++)
			caller_polled(&c, true);
		assert_int_equal(caller_kind(&c), CALLER_SLEEPS);
	}
}

/*
 * The service thread finds packets `late` after a call, for `times` calls. `twice`: in two turns
 * each.
 */
static enum caller_kind found_late(uint64_t late, unsigned times, bool twice)
{
	struct caller c = a_caller(CALLER_POLLS);

	for (unsigned i = 0; i < times; i++) {
		uint64_t called = T0 + i * 100 * MS;

		caller_found_by_service(&c, called, called + late);
		if (twice)
			caller_found_by_service(&c, called, called + late + US);
	}
	return caller_kind(&c);
}

static void a_program_that_makes_no_call_spins(void **state)
{
	unsigned enough = (policy_table.mem_spin_from + policy_table.mem_spin_step - 1) /
			  policy_table.mem_spin_step;
	struct caller c = a_caller(CALLER_POLLS);

	(void)state;
	assert_int_equal(found_late(policy_table.mem_spin_min + 1, enough, false), CALLER_SPINS);
	assert_int_equal(found_late(policy_table.mem_spin_max - 1, enough, false), CALLER_SPINS);
	assert_int_equal(found_late(policy_table.mem_spin_min + 1, enough - 1, true), CALLER_POLLS);
	/* The program was still calling, or had left long ago. */
	assert_int_equal(found_late(policy_table.mem_spin_min, 100, false), CALLER_POLLS);
	assert_int_equal(found_late(policy_table.mem_spin_max, 100, false), CALLER_POLLS);
	/* The program never made a call. */
	for (unsigned i = 0; i < 100; i++)
		caller_found_by_service(&c, 0, 100 * US + i);
	assert_int_equal(caller_kind(&c), CALLER_POLLS);
}

/* Successful polls undo the count, however high it was. */
static void a_program_that_comes_back_polls(void **state)
{
	struct caller c = a_caller(CALLER_SPINS);

	(void)state;
	make_it_spin(&c, T0 + MS);
	for (unsigned i = 0; i < policy_table.mem_spin_cap; i++) {
		caller_polled(&c, false);
		caller_polled(&c, true);
	}
	assert_int_equal(caller_kind(&c), CALLER_POLLS);
}

/* ---- beside a service thread that sleeps on the ports ---- */

static const struct row {
	enum caller_kind kind;
	enum pu_turn turn;
	bool masked;
	/* if the service thread's next look is within mask_most, or later */
	enum caller_action soon, late;
} rows[] = {
	/*
	 * A poller drives its packets itself. While it is busy, no thread need sleep on the ports.
	 */
	{CALLER_POLLS, PU_IDLE, false, CALLER_KEEP, CALLER_KEEP},
	{CALLER_POLLS, PU_SENT, false, CALLER_REARM, CALLER_REARM},
	{CALLER_POLLS, PU_WORKED, false, CALLER_REARM, CALLER_REARM},
	{CALLER_POLLS, PU_POSTED, false, CALLER_REARM, CALLER_REARM},
	{CALLER_POLLS, PU_YIELDS, false, CALLER_REARM, CALLER_REARM},
	{CALLER_POLLS, PU_IN_VAIN, false, CALLER_KEEP, CALLER_KEEP},
	{CALLER_POLLS, PU_POLLED, false, CALLER_REARM, CALLER_REARM}, /* first in a while */
	{CALLER_POLLS, PU_BUSY, false, CALLER_WAKE, CALLER_WAKE},
	{CALLER_POLLS, PU_TAKEN, false, CALLER_REARM, CALLER_REARM},
	{CALLER_POLLS, PU_SENT, true, CALLER_KEEP, CALLER_KEEP},
	{CALLER_POLLS, PU_WORKED, true, CALLER_KEEP, CALLER_KEEP},
	{CALLER_POLLS, PU_POSTED, true, CALLER_UNMASK,
	 CALLER_UNMASK}, /* no poll followed a post yet */
	{CALLER_POLLS, PU_POLLED, true, CALLER_UNMASK, CALLER_UNMASK},
	{CALLER_POLLS, PU_TAKEN, true, CALLER_UNMASK, CALLER_UNMASK}, /* it was a busy poll */
	/* A program that sleeps needs the service thread on the ports for each packet. */
	{CALLER_SLEEPS, PU_IDLE, false, CALLER_KEEP, CALLER_KEEP},
	{CALLER_SLEEPS, PU_SENT, false, CALLER_REARM, CALLER_REARM},
	{CALLER_SLEEPS, PU_WORKED, false, CALLER_REARM, CALLER_REARM},
	{CALLER_SLEEPS, PU_POSTED, false, CALLER_REARM, CALLER_REARM},
	{CALLER_SLEEPS, PU_YIELDS, false, CALLER_REARM, CALLER_REARM},
	{CALLER_SLEEPS, PU_IN_VAIN, false, CALLER_KEEP, CALLER_KEEP},
	{CALLER_SLEEPS, PU_POLLED, false, CALLER_REARM, CALLER_REARM},
	{CALLER_SLEEPS, PU_BUSY, false, CALLER_REARM, CALLER_REARM},
	{CALLER_SLEEPS, PU_TAKEN, false, CALLER_REARM, CALLER_REARM},
	{CALLER_SLEEPS, PU_IDLE, true, CALLER_UNMASK, CALLER_UNMASK},
	{CALLER_SLEEPS, PU_SENT, true, CALLER_UNMASK, CALLER_UNMASK},
	{CALLER_SLEEPS, PU_WORKED, true, CALLER_UNMASK, CALLER_UNMASK},
	{CALLER_SLEEPS, PU_POSTED, true, CALLER_UNMASK, CALLER_UNMASK},
	{CALLER_SLEEPS, PU_YIELDS, true, CALLER_UNMASK, CALLER_UNMASK},
	{CALLER_SLEEPS, PU_IN_VAIN, true, CALLER_UNMASK, CALLER_UNMASK},
	{CALLER_SLEEPS, PU_POLLED, true, CALLER_UNMASK, CALLER_UNMASK},
	{CALLER_SLEEPS, PU_BUSY, true, CALLER_UNMASK, CALLER_UNMASK},
	{CALLER_SLEEPS, PU_TAKEN, true, CALLER_UNMASK, CALLER_UNMASK},
	/*
	 * A program that spins on memory: masked only while some thread is sure to look soon, if
	 * only the service thread.
	 */
	{CALLER_SPINS, PU_IDLE, false, CALLER_KEEP, CALLER_KEEP},
	{CALLER_SPINS, PU_SENT, false, CALLER_REARM, CALLER_REARM},
	{CALLER_SPINS, PU_WORKED, false, CALLER_REARM, CALLER_REARM},
	{CALLER_SPINS, PU_POSTED, false, CALLER_REARM, CALLER_REARM},
	{CALLER_SPINS, PU_YIELDS, false, CALLER_MASK, CALLER_WAKE},
	{CALLER_SPINS, PU_IN_VAIN, false, CALLER_KEEP, CALLER_KEEP}, /* the first in vain */
	{CALLER_SPINS, PU_POLLED, false, CALLER_REARM, CALLER_REARM},
	{CALLER_SPINS, PU_BUSY, false, CALLER_MASK, CALLER_WAKE},
	{CALLER_SPINS, PU_TAKEN, false, CALLER_REARM, CALLER_REARM},
	{CALLER_SPINS, PU_IDLE, true, CALLER_KEEP, CALLER_KEEP},
	{CALLER_SPINS, PU_SENT, true, CALLER_KEEP, CALLER_KEEP},
	{CALLER_SPINS, PU_WORKED, true, CALLER_KEEP, CALLER_KEEP},
	{CALLER_SPINS, PU_POSTED, true, CALLER_UNMASK, CALLER_UNMASK},
	{CALLER_SPINS, PU_YIELDS, true, CALLER_KEEP, CALLER_WAKE},
	{CALLER_SPINS, PU_IN_VAIN, true, CALLER_KEEP, CALLER_KEEP},
	{CALLER_SPINS, PU_POLLED, true, CALLER_KEEP, CALLER_KEEP},
	{CALLER_SPINS, PU_BUSY, true, CALLER_KEEP, CALLER_WAKE},
	{CALLER_SPINS, PU_TAKEN, true, CALLER_UNMASK, CALLER_UNMASK},
};

static void rows_of_the_table(void **state)
{
	(void)state;
	for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const struct row *r = &rows[i];
		struct caller soon = a_caller(r->kind), late = a_caller(r->kind);

		if (caller_beside(&soon, r->turn, r->masked, T0, T0 + SOON, false) != r->soon ||
		    caller_beside(&late, r->turn, r->masked, T0, T0 + LATE, false) != r->late)
			fail_msg("row %u: kind %u, turn %u, masked %u", i, (unsigned)r->kind,
				 (unsigned)r->turn, r->masked);
	}
}

/* After some polls in vain the program is expected to poll on. A completion ends that. */
static void polls_in_vain_mask(void **state)
{
	struct caller c = a_caller(CALLER_SPINS);

	(void)state;
	for (unsigned round = 0; round < 3; round++) {
		for (unsigned i = 1; i < policy_table.vain_polls; i++)
			assert_int_equal(caller_beside(&c, PU_IN_VAIN, false, T0, T0, false),
					 CALLER_KEEP);
		assert_int_equal(caller_beside(&c, PU_IN_VAIN, false, T0, T0, false), CALLER_MASK);
		assert_int_equal(caller_beside(&c, PU_TAKEN, true, T0, T0, false), CALLER_UNMASK);
	}
}

/* If a poll has always followed, posts mask, until one has no poll after it. */
static void posts_mask_if_polls_follow(void **state)
{
	struct caller c = a_caller(CALLER_SPINS);

	(void)state;
	for (unsigned round = 0; round < 3; round++) {
		for (unsigned i = 0; i < policy_table.posts_polled; i++) {
			caller_posted(&c, T0, i, STAKE);
			assert_int_equal(caller_beside(&c, PU_POSTED, false, T0, T0, false),
					 CALLER_REARM);
			caller_polled(&c, false);
			caller_polled(&c, false);
		}
		caller_posted(&c, T0, 0, STAKE);
		assert_int_equal(caller_beside(&c, PU_POSTED, false, T0, T0, false), CALLER_MASK);
		caller_posted(&c, T0, 0, STAKE);
		assert_int_equal(caller_beside(&c, PU_POSTED, true, T0, T0, false), CALLER_UNMASK);
		caller_polled(&c, false);
		c.posts_polled = 0;
	}
}

/*
 * A poller that posts rarely: its answers wake no thread, and it does not wake the service thread.
 * A busy one wakes it once.
 */
static void a_poller_now_and_then(void **state)
{
	struct caller c = a_caller(CALLER_POLLS);
	uint64_t now = T0;

	(void)state;
	for (unsigned i = 0; i < 20; i++, now += policy_table.dense) {
		bool known = i >= policy_table.posts_polled;

		assert_int_equal(caller_beside(&c, PU_POSTED, false, now, now + SOON, false),
				 known ? CALLER_MASK : CALLER_REARM);
		caller_polled(&c, true);
		assert_int_equal(caller_beside(&c, PU_POLLED, known, now, now + SOON, false),
				 known ? CALLER_UNMASK : CALLER_REARM);
	}
	/* If the service thread sleeps for long, the ports are not masked. */
	assert_int_equal(caller_beside(&c, PU_POSTED, false, now, now + LATE, false), CALLER_REARM);
	/* A post without a poll after it: from here on perhaps no thread looks. */
	assert_int_equal(caller_beside(&c, PU_POSTED, true, now, now + SOON, false), CALLER_UNMASK);
	caller_polled(&c, true);
	assert_int_equal(caller_beside(&c, PU_POLLED, false, now, now + SOON, false), CALLER_REARM);
	assert_int_equal(caller_beside(&c, PU_POLLED, false, now + policy_table.dense - 1,
				       now + SOON, false),
			 CALLER_WAKE);
}

/*
 * After any history, no mask begins while the program may sleep, and none is left after any turn.
 */
static void no_mask_while_it_sleeps(void **state)
{
	(void)state;
	for (uint64_t run = 1; run <= 200; run++) {
		uint64_t seed = run * 0x9e3779b97f4a7c15ull, now = T0, called = T0, requests = 0;
		struct caller c = a_caller(CALLER_POLLS);
		unsigned spun = 0, masks = 0;
		bool masked = false;

		for (unsigned i = 0; i < 5000; i++) {
			uint64_t r = dice(&seed);
			enum pu_turn turn = (enum pu_turn)(r >> 8 & 7);
			enum caller_action a;
			bool slept;

			now += r >> 32 & 0xffff;
			requests += r >> 16 & 1;
			if (r % 128 == 0)
				caller_armed(&c);
			else if (r % 4 == 1)
				caller_found_by_service(&c, called, now);
			else if (r % 8 == 2)
				caller_posted(&c, now, requests, STAKE);
			else if (r % 8 == 3)
				caller_polled(&c, true);
			else if (r % 8 == 6)
				caller_busy_poll(&c, now, STAKE, requests);
			called = r & 64 ? now : called;
			slept = caller_kind(&c) == CALLER_SLEEPS;
			spun += caller_kind(&c) == CALLER_SPINS;
			a = caller_beside(&c, turn, masked, now,
					  now + (r >> 20) % (2 * policy_table.late_ok), false);
			masked = a == CALLER_MASK ||
				 (masked && a != CALLER_UNMASK && a != CALLER_WAKE);
			masks += a == CALLER_MASK;
			if (slept && (masked || a == CALLER_MASK))
				fail_msg("run %lu, event %u: masked", (unsigned long)run, i);
		}
		assert_true(spun && masks); /* else the test shows nothing */
	}
}

/* ---- busy polling ---- */

static void busy_polls_while_it_pays(void **state)
{
	struct caller c = a_caller(CALLER_SPINS);
	uint64_t now = T0, requests = 0;
	unsigned busy_polls = 0;

	(void)state;
	/* The peer writes 5 us after its ACK. */
	for (unsigned i = 0; i < 100; i++, now += 100 * US) {
		caller_posted(&c, now, requests, STAKE);
		assert_int_equal(caller_busy_poll(&c, now, STAKE, requests), now + STAKE);
		assert_int_equal(caller_busy_poll(&c, now, STAKE, requests),
				 0); /* the program waits for that request already */
		caller_requests(&c, now + 5 * US, STAKE, ++requests, false);
		/* the request has come */
		assert_int_equal(caller_busy_poll(&c, now + 5 * US, STAKE, requests), 0);
	}
	/*
	 * No more requests: busy polling stops after as many posts as the bet remembers, not at
	 * once.
	 */
	for (unsigned i = 0; i < 100; i++, now += 100 * US) {
		caller_posted(&c, now, requests, STAKE);
		busy_polls += caller_busy_poll(&c, now, STAKE, requests) != 0;
	}
	assert_in_range(busy_polls, 1, policy_table.bet_cap + 2);
	/* Requests come soon again. The service thread, which had to be woken, finds them. */
	for (unsigned i = 0; i < 4 * policy_table.bet_cap; i++, now += 100 * US) {
		caller_posted(&c, now, requests, STAKE);
		caller_busy_poll(&c, now, STAKE, requests);
		caller_requests(&c, now + 5 * US + STAKE / 2, STAKE, ++requests, true);
	}
	caller_posted(&c, now, requests, STAKE);
	assert_int_equal(caller_busy_poll(&c, now, STAKE, requests), now + STAKE);
}

/* Busy polling finds each request, so the program counts as a poller. */
static enum caller_kind found_requests(struct caller *c, uint64_t *now, uint64_t *requests,
				       unsigned times)
{
	for (unsigned i = 0; i < times; i++, *now += 100 * US) {
		caller_posted(c, *now, *requests, STAKE);
		caller_busy_poll(c, *now, STAKE, *requests);
		caller_requests(c, *now + 5 * US, STAKE, ++*requests, false);
	}
	return caller_kind(c);
}

/*
 * While busy polling finds the peer's requests, the service thread need not sleep on the ports.
 * After the first request that it does not find, the service thread must.
 */
static void a_busy_poll_that_finds_all(void **state)
{
	(void)state;
	for (unsigned how = 0; how < 6; how++) {
		struct caller c = a_caller(CALLER_SPINS);
		uint64_t now = T0, n = 0;
		unsigned enough = policy_table.poller_from;

		assert_int_equal(found_requests(&c, &now, &n, enough - 1), CALLER_SPINS);
		assert_int_equal(found_requests(&c, &now, &n, 1), CALLER_POLLS);
		caller_posted(&c, now, n, STAKE);
		caller_busy_poll(&c, now, STAKE, n);
		assert_int_equal(caller_kind(&c), CALLER_POLLS);
		switch (how) {
		case 0: /* the busy poll ended in vain */
			caller_gone(&c);
			break;
		case 1: /* found by the service thread, which had to be woken */
			caller_requests(&c, now + 5 * US, STAKE, ++n, true);
			break;
		case 2: /* found by another call, too late */
			caller_requests(&c, now + STAKE, STAKE, ++n, false);
			break;
		case 3: /* no request came before the next post */
			caller_posted(&c, now + 5 * US, n, STAKE);
			break;
		case 4: /* found by the service thread while the program did not wait */
			caller_found_by_service(&c, now, now + policy_table.mem_spin_min + 1);
			enough *= 2; /* the packets waited for a thread */
			break;
		case 5: /* any packet wakes a program that sleeps, after any earlier activity */
			caller_armed(&c);
			assert_int_equal(caller_kind(&c), CALLER_SLEEPS);
			continue;
		}
		assert_int_equal(caller_kind(&c), CALLER_SPINS);
		/* The program counts as a poller again after several requests. */
		caller_requests(&c, now + STAKE, STAKE, ++n, false);
		now += MS;
		assert_int_equal(found_requests(&c, &now, &n, enough - 1), CALLER_SPINS);
		assert_int_equal(found_requests(&c, &now, &n, 1), CALLER_POLLS);
	}
}

/*
 * Beside a program whose busy polls find every request, the service thread sleeps on until it looks
 * by itself, and its first nap is the longest. The first busy poll in vain ends that.
 */
static void no_wake_ups_while_it_finds_all(void **state)
{
	static const enum pu_turn turns[] = {PU_WORKED, PU_POSTED, PU_YIELDS,
					     PU_POLLED, PU_BUSY,   PU_TAKEN};
	struct caller c = a_caller(CALLER_SPINS);
	uint64_t now = T0, n = 0;

	(void)state;
	found_requests(&c, &now, &n, policy_table.poller_from);
	for (unsigned masked = 0; masked < 2; masked++) {
		for (unsigned i = 0; i < sizeof(turns) / sizeof(turns[0]); i++) {
			assert_int_equal(
				caller_beside(&c, turns[i], masked, now, now + SOON, false),
				masked ? CALLER_KEEP : CALLER_MASK);
			assert_int_equal(
				caller_beside(&c, turns[i], masked, now, now + LATE, false),
				CALLER_WAKE);
		}
		/* the program may sleep until the answer to a datagram of QP 1 */
		assert_int_equal(caller_beside(&c, PU_SENT, masked, now, now + SOON, false),
				 masked ? CALLER_KEEP : CALLER_REARM);
		assert_int_equal(caller_beside(&c, PU_IDLE, masked, now, now + LATE, false),
				 CALLER_KEEP);
		assert_int_equal(caller_beside(&c, PU_IN_VAIN, masked, now, now + LATE, false),
				 CALLER_KEEP);
	}
	/* A thread that waits for an event leaves the ports, as beside any poller. */
	caller_beside(&c, PU_POLLED, false, now, now + SOON, true);
	assert_int_equal(caller_beside(&c, PU_POLLED, false, now, now + SOON, true), CALLER_WAKE);
	assert_int_equal(policy_nap(&c, 0, false), policy_table.nap_max);
	assert_int_equal(policy_nap(&c, 0, true), policy_table.nap_armed);
	caller_posted(&c, now, n, STAKE);
	caller_busy_poll(&c, now, STAKE, n);
	caller_gone(&c);
	assert_int_equal(caller_beside(&c, PU_TAKEN, true, now, now + SOON, false), CALLER_UNMASK);
	assert_int_equal(policy_nap(&c, 0, false), policy_table.nap_min);
}

/*
 * The peer sends more than busy polls find, for example two requests in each round, so each row
 * ends with a request that waited until the service thread looked. Such rows become rare. A late
 * answer, for which the service thread is woken, does not count.
 */
static void rows_that_mislead_become_rare(void **state)
{
	struct caller c = a_caller(CALLER_SPINS);
	uint64_t now = T0, n = 0;
	unsigned seen = 0, rounds = 20 * policy_table.poller_most;

	(void)state;
	for (unsigned i = 0; i < rounds; i++) {
		if (found_requests(&c, &now, &n, 1) == CALLER_POLLS)
			seen++;
		else
			continue;
		caller_found_by_service(&c, now - US, now + policy_table.late_ok);
		assert_int_equal(caller_kind(&c), CALLER_SPINS);
	}
	assert_in_range(seen, 19, 20 + 10);
	/* Rows that end with a busy poll in vain make up for them. */
	caller_received(&c);
	for (unsigned left = policy_table.poller_most; left > policy_table.poller_from; left /= 2) {
		assert_int_equal(found_requests(&c, &now, &n, left - 1), CALLER_SPINS);
		assert_int_equal(found_requests(&c, &now, &n, 1), CALLER_POLLS);
		caller_posted(&c, now, n, STAKE);
		caller_busy_poll(&c, now, STAKE, n);
		caller_gone(&c);
		caller_requests(&c, now + STAKE, STAKE, ++n, true);
		now += MS;
	}
	assert_int_equal(found_requests(&c, &now, &n, policy_table.poller_from), CALLER_POLLS);
	c = a_caller(CALLER_SPINS);
	for (unsigned i = 0; i < 20; i++) {
		assert_int_equal(found_requests(&c, &now, &n, policy_table.poller_from),
				 CALLER_POLLS);
		caller_posted(&c, now, n, STAKE);
		caller_busy_poll(&c, now, STAKE, n);
		caller_gone(&c);
		caller_requests(&c, now + STAKE, STAKE, ++n, true);
		caller_found_by_service(&c, now, now + STAKE);
	}
}

/*
 * While busy polling finds the requests, polls that find a completion do not show that the program
 * polls for requests too.
 */
static void a_busy_poll_is_no_call(void **state)
{
	struct caller c = a_caller(CALLER_SPINS);
	uint64_t now = T0, requests = 0;

	(void)state;
	for (unsigned i = 0; i < 10000; i++) {
		caller_polled(&c, true);
		assert_int_equal(found_requests(&c, &now, &requests, 1),
				 i + 1 < policy_table.poller_from ? CALLER_SPINS : CALLER_POLLS);
	}
	assert_true(caller_spins(&c));
	/* It polls from here on, and no requests come. */
	caller_gone(&c);
	for (unsigned i = 0; i < policy_table.mem_spin_cap; i++)
		caller_polled(&c, true);
	assert_false(caller_spins(&c));
}

/*
 * A new program may busy poll a few times. The first request found in a busy poll shows its kind.
 */
static void a_new_program_busy_polls(void **state)
{
	struct caller c = a_caller(CALLER_POLLS);
	uint64_t now = T0, requests = 7;

	(void)state;
	assert_int_equal(found_requests(&c, &now, &requests, 1), CALLER_POLLS);
	assert_true(caller_spins(&c));
	/* From the first late request on, packets wake the service thread. */
	caller_gone(&c);
	assert_int_equal(caller_kind(&c), CALLER_SPINS);
}

/*
 * The peer of a new program answers late, for example because it begins later. Packets wake the
 * service thread until the program polls again. Each late answer allows one more busy poll, up to a
 * limit.
 */
static void a_late_answer_is_not_the_last(void **state)
{
	(void)state;
	for (unsigned slept = 0; slept < 2; slept++) {
		struct caller c = a_caller(CALLER_POLLS);
		uint64_t now = T0, n = 0;
		unsigned busy_polls = 0;

		for (unsigned i = 0; i < 100; i++, now += 100 * MS) {
			caller_posted(&c, now, n, STAKE);
			caller_polled(&c, true);
			assert_int_equal(caller_kind(&c), CALLER_POLLS);
			if (!caller_may_busy_poll(&c))
				break;
			busy_polls += caller_busy_poll(&c, now, STAKE, n) != 0;
			caller_gone(&c);
			assert_int_equal(caller_kind(&c), CALLER_SPINS);
			caller_requests(&c, now + 50 * MS, STAKE, ++n, slept);
			assert_int_equal(caller_kind(&c), CALLER_SPINS);
		}
		assert_int_equal(busy_polls, policy_table.trial);
	}
}

/* No request comes: a program that polls for everything pays for one busy poll in vain. */
static void a_poller_busy_polls_once(void **state)
{
	(void)state;
	for (unsigned how = 0; how < 4; how++) {
		struct caller c = a_caller(how == 3 ? CALLER_SLEEPS : CALLER_POLLS);
		uint64_t now = T0;
		unsigned busy_polls = 0, polls = 0;

		for (; caller_may_busy_poll(&c) && polls < 100; polls++, now += 100 * US) {
			if (how == 1) /* the program never posts */
				caller_left(&c, true);
			caller_posted(&c, now, 0, STAKE);
			caller_polled(&c, true);
			if (caller_busy_poll(&c, now, STAKE, 0))
				busy_polls++;
			if (how == 2)
				caller_received(&c);
			else
				caller_gone(&c);
		}
		assert_in_range(polls, 1, policy_table.trial + 1);
		assert_in_range(busy_polls, how % 2 == 0,
				how == 0   ? 1
				: how == 2 ? policy_table.trial
					   : 0);
		assert_int_equal(caller_kind(&c), how == 3 ? CALLER_SLEEPS : CALLER_POLLS);
	}
}

/*
 * If another thread takes a post's turn, the next poll sees the post once. It busy polls for this
 * post's answer, not for the one before.
 */
static void a_post_left_to_others(void **state)
{
	struct caller c = a_caller(CALLER_SPINS);

	(void)state;
	caller_posted(&c, T0, 1, STAKE);
	assert_false(caller_was_left(&c));
	caller_left(&c, false);
	assert_int_equal(caller_busy_poll(&c, T0, STAKE, 2), 0); /* that request is there */
	assert_true(caller_was_left(&c));
	assert_false(caller_was_left(&c));
	caller_posted(&c, T0 + US, 2, STAKE);
	assert_int_equal(caller_busy_poll(&c, T0 + US, STAKE, 2), T0 + US + STAKE);
}

/* ---- yielding the only core ---- */

static unsigned yields_of(struct caller *c, uint64_t now, unsigned posts)
{
	unsigned yields = 0;

	for (unsigned i = 0; i < posts; i++)
		yields += caller_yields(c, now);
	return yields;
}

static void yields(void **state)
{
	struct caller c = a_caller(CALLER_POLLS);
	uint64_t now = T0;

	(void)state;
	/* The peer takes each yield and answers. */
	for (unsigned i = 0; i < 100; i++) {
		assert_true(caller_yields(&c, now));
		caller_yielded(&c, now, 3 * MS, US, true);
	}
	/* Several cores: no yields for a while. */
	caller_yield_needless(&c, now);
	assert_int_equal(yields_of(&c, now + policy_table.core_recheck - 1, 1000), 0);
	assert_int_equal(yields_of(&c, now + policy_table.core_recheck, 10), 10);
	now += policy_table.core_recheck;
	/* Yields that no thread takes become rare. */
	for (unsigned i = 0; i < 5000; i++) {
		if (caller_yields(&c, now))
			caller_yielded(&c, now, policy_table.yield_untaken - 1, 100, false);
	}
	assert_int_equal(yields_of(&c, now, 10 * policy_table.yield_rarely), 10);
	/* Once a yield is taken, each post yields again. */
	caller_yielded(&c, now, policy_table.yield_untaken, 100, true);
	yields_of(&c, now, policy_table.yield_rarely);
	assert_int_equal(yields_of(&c, now, 10), 10);
	/*
	 * Another thread took the core: no yields for a multiple of that time. The peer may take as
	 * long without this effect.
	 */
	caller_yielded(&c, now, policy_table.yield_long + 1, 100, false);
	now += policy_table.yield_long + 1;
	assert_int_equal(
		yields_of(&c, now + policy_table.yield_factor * policy_table.yield_long, 100), 0);
	assert_true(
		caller_yields(&c, now + policy_table.yield_factor * (policy_table.yield_long + 1)));
}

/* Where a system call takes 1 us and more, a yield that no thread takes is as long. */
static void yields_of_slow_system_calls(void **state)
{
	struct caller c = a_caller(CALLER_POLLS);
	uint64_t call = 2 * policy_table.yield_untaken, took = policy_table.yield_calls * call;

	(void)state;
	for (unsigned i = 0; i < 5000; i++) {
		if (caller_yields(&c, T0))
			caller_yielded(&c, T0, took - 1, call, true);
	}
	assert_int_equal(yields_of(&c, T0, 10 * policy_table.yield_rarely), 10);
	caller_yielded(&c, T0, took, call, true);
	yields_of(&c, T0, policy_table.yield_rarely);
	assert_int_equal(yields_of(&c, T0, 10), 10);
}

/* Returns the number of yields in `looks` looks of busy polls. Each lasts `took` ns. */
static unsigned yields_in_polls(struct caller *c, unsigned looks, uint64_t took)
{
	unsigned yields = 0;

	for (unsigned i = 0; i < looks; i++) {
		if (!caller_yields_in_poll(c))
			continue;
		caller_yielded_in_poll(c, took);
		yields++;
	}
	return yields;
}

/* Busy polls yield as posts do: rarely, while no other thread takes the yields. */
static void yields_in_busy_polls(void **state)
{
	struct caller c = a_caller(CALLER_POLLS);
	uint64_t call = policy_table.yield_untaken, taken = policy_table.yield_calls * call;

	(void)state;
	assert_int_equal(yields_in_polls(&c, 1000, taken), 0); /* several cores, as far as known */
	caller_yielded(&c, T0, taken, call, true);
	assert_int_equal(yields_in_polls(&c, 1000, taken), 1000);
	yields_in_polls(&c, 5000, taken - 1);
	assert_int_equal(yields_in_polls(&c, 10 * policy_table.yield_rarely, taken - 1), 10);
	/* Posts have a rate of their own. */
	assert_int_equal(yields_of(&c, T0, 10), 10);
	/* Once a yield is taken, each look yields again. */
	yields_in_polls(&c, 2 * policy_table.yield_rarely, taken);
	assert_int_equal(yields_in_polls(&c, 10, taken), 10);
	/* A thread that may use several cores does not yield. */
	caller_yield_needless(&c, T0);
	assert_int_equal(yields_in_polls(&c, 1000, taken), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_armed_program_sleeps),
		cmocka_unit_test(a_program_that_makes_no_call_spins),
		cmocka_unit_test(a_program_that_comes_back_polls),
		cmocka_unit_test(rows_of_the_table),
		cmocka_unit_test(polls_in_vain_mask),
		cmocka_unit_test(posts_mask_if_polls_follow),
		cmocka_unit_test(a_poller_now_and_then),
		cmocka_unit_test(no_mask_while_it_sleeps),
		cmocka_unit_test(busy_polls_while_it_pays),
		cmocka_unit_test(no_wake_ups_while_it_finds_all),
		cmocka_unit_test(rows_that_mislead_become_rare),
		cmocka_unit_test(a_busy_poll_is_no_call),
		cmocka_unit_test(a_busy_poll_that_finds_all),
		cmocka_unit_test(a_new_program_busy_polls),
		cmocka_unit_test(a_late_answer_is_not_the_last),
		cmocka_unit_test(a_poller_busy_polls_once),
		cmocka_unit_test(a_post_left_to_others),
		cmocka_unit_test(yields),
		cmocka_unit_test(yields_of_slow_system_calls),
		cmocka_unit_test(yields_in_busy_polls),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
