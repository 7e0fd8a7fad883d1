/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Programs that poll for their completion and spin on memory for the answer: what a poll, or a
 * post, does for them beyond what it was called for.
 */
#include <sched.h>

#include "harness.h"

#define TRIES 300
#define VAIN  8 /* polls after which packets wake nobody: the program is taken to poll on */
/* turns in vain until it is there: more than a poll takes to arm the ports again */
#define ANSWER 5
#define ENOUGH 10 /* answers */
#define LONGER 10 /* turns: a poll that does not go on as a busy poll has no need of as many */

static struct fake_pu *pu_of(struct drive *d)
{
	return &drive_nic(d)->pu[0];
}

/* The service thread finds packets, again and again, that come right behind a poll. */
static void spin_on_memory(struct drive *d)
{
	struct fake_port *port = fake_port_of(d, 0, 0);
	unsigned have = atomic_load(&pu_of(d)->packets);

	for (unsigned i = 1; i <= 200; i++) {
		drive_progress(d, 0);
		fake_inject(port, 1);
		assert_true(fake_reached(&pu_of(d)->packets, have + i));
	}
}

/*
 * One packet, which this thread's poll finds if the service thread does not. Returns how many turns
 * that took; 0: it did not find it.
 */
static unsigned poll_for_one(struct drive *d, bool answered, bool *saw_answer)
{
	struct fake_pu *p = pu_of(d);
	unsigned have = atomic_load(&p->packets), requests, turns;
	bool found;

	for (unsigned i = 0; i < VAIN; i++)
		drive_progress(d, 0);
	atomic_store(&p->answer, answered ? ANSWER : 0);
	requests = atomic_load(&p->requests);
	fake_inject(fake_port_of(d, 0, 0), 1);
	turns = atomic_load(&p->turns);
	found = drive_progress(d, 0);
	if (found)
		drive_taken(d, 0);
	turns = atomic_load(&p->turns) - turns;
	*saw_answer = atomic_load(&p->requests) != requests;
	assert_true(fake_reached(&p->packets, have + 1));
	return found ? turns : 0;
}

static void waits_for_the_answer(void **state)
{
	struct drive *d = *state;
	unsigned answers = 0;
	bool saw;

	for (unsigned i = 0; i < TRIES; i++) {
		if (i % 10 == 0)
			spin_on_memory(d);
		fake_post(d, 0, 1);
		answers += poll_for_one(d, true, &saw) && saw;
	}
	assert_true(answers > 0);
	assert_int_equal(atomic_load(&pu_of(d)->overlaps), 0);
}

/*
 * How many answers it got of posts that came while somebody else owned the processing unit; no more
 * than it takes to know.
 */
static unsigned answers_to_posts_left_to_others(struct drive *d)
{
	unsigned answers = 0;
	bool saw;

	for (unsigned i = 0; i < TRIES && answers < ENOUGH; i++) {
		if (i % 10 == 0)
			spin_on_memory(d);
		drive_own(d, 0);
		fake_post(d, 0, 1);
		drive_disown(d, 0);
		answers += poll_for_one(d, true, &saw) && saw;
	}
	assert_int_equal(atomic_load(&pu_of(d)->overlaps), 0);
	return answers;
}

/*
 * A post that comes while somebody else owns the processing unit, as the service thread does that
 * found the peer's request: its answer is waited for, too. A program that lost its core at the
 * first answers waits for none any more, and has to begin anew.
 */
static void waits_for_the_answer_to_a_post_left_to_others(void **state)
{
	unsigned answers = 0;

	for (unsigned begun = 0; begun < 20 && answers < ENOUGH; begun++) {
		if (begun) {
			harness_teardown(state);
			harness_setup(state);
		}
		answers = answers_to_posts_left_to_others(*state);
	}
	assert_int_equal(answers, ENOUGH);
}

/*
 * A program that does not spin on memory gets its completion at once, after the few polls that
 * showed that nothing comes soon.
 */
static void polling_is_not_held_up(void **state)
{
	struct drive *d = *state;
	bool saw;

	for (unsigned i = 0; i < TRIES; i++) {
		fake_post(d, 0, 1);
		assert_false(poll_for_one(d, i >= TRIES / 2, &saw) && saw);
	}
}

static void gives_up_when_no_answer_comes(void **state)
{
	struct drive *d = *state;
	unsigned longer = 0, found = 0;
	bool saw;

	for (unsigned i = 0; i < TRIES; i++) {
		unsigned turns;

		if (i % 10 == 0)
			spin_on_memory(d);
		fake_post(d, 0, 1);
		turns = poll_for_one(d, false, &saw);
		found += turns != 0;
		longer += turns > LONGER;
	}
	/*
	 * Four in vain, then 64 polls without, four, 128 without; one that the service thread cuts
	 * short does not count, and few are.
	 */
	assert_true(longer < found / 3);
}

struct peer {
	struct drive *d;
	atomic_bool stop;
};

/* Answers what was posted, when it gets the core. */
static void *answer(void *arg)
{
	struct peer *peer = arg;
	unsigned answered = 0;

	while (!atomic_load(&peer->stop)) {
		unsigned executed = atomic_load(&pu_of(peer->d)->executed);

		if (executed != answered)
			fake_inject(fake_port_of(peer->d, 0, 0), executed - answered);
		answered = executed;
		sched_yield();
	}
	return NULL;
}

static bool pin(cpu_set_t *all)
{
	cpu_set_t one;

	if (sched_getaffinity(0, sizeof(*all), all))
		return false;
	CPU_ZERO(&one);
	for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; cpu++)
		if (CPU_ISSET(cpu, all))
			CPU_SET(cpu, &one);
	return sched_setaffinity(0, sizeof(one), &one) == 0;
}

/*
 * With one core for all, a post yields it to the peer, and finds the answer itself: when it
 * returns, this thread has had it.
 */
static void post_finds_the_answer(void **state)
{
	struct peer peer = {0};
	time_t end = time(NULL) + 30;
	unsigned found = 0;
	bool lost = false;
	cpu_set_t all;
	pthread_t t;

	assert_true(pin(&all));
	harness_setup(state);
	peer.d = *state;
	assert_int_equal(pthread_create(&t, NULL, answer, &peer), 0);
	/* Whoever else wants the core gets the yield too, and then there is none for a while. */
	for (unsigned i = 0; found < 10 && !lost && time(NULL) <= end; i++) {
		struct fake_pu *p = pu_of(peer.d);
		unsigned have;

		if (i % 10 == 0) {
			spin_on_memory(peer.d);
			harness_sleep_ms(2);
		}
		have = atomic_load(&p->packets);
		fake_post(peer.d, 0, 1);
		found += atomic_load(&p->packets) == have + 1 &&
			 atomic_load(&p->last) == (uintptr_t)pthread_self();
		lost = !fake_reached(&p->packets, have + 1);
	}
	atomic_store(&peer.stop, true);
	pthread_join(t, NULL);
	sched_setaffinity(0, sizeof(all), &all);
	assert_false(lost);
	assert_int_equal(found, 10);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(waits_for_the_answer, harness_setup,
						harness_teardown),
		cmocka_unit_test_setup_teardown(waits_for_the_answer_to_a_post_left_to_others,
						harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(polling_is_not_held_up, harness_setup,
						harness_teardown),
		cmocka_unit_test_setup_teardown(gives_up_when_no_answer_comes, harness_setup,
						harness_teardown),
		cmocka_unit_test_teardown(post_finds_the_answer, harness_teardown),
	};

	return cmocka_run_group_tests(tests, harness_begin, harness_end);
}
