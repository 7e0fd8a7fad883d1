/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Programs that poll for their completion and spin on memory for the answer: busy polls inside of a
 * poll or a post.
 */
#include <sched.h>
#include <time.h>

#include "harness.h"

#define TRIES 300
#define VAIN  8 /* polls after which ports are masked: the program is expected to poll on */
/* The request comes after so many turns in vain: more than a poll takes to arm the ports again. */
#define ANSWER	  5
#define ENOUGH	  10 /* answers */
#define ANSWERS_S 60 /* at most, to get them: a program that loses its core does not busy poll */
#define LONGER	  10 /* turns: a poll without a busy poll needs fewer */

static struct fake_pu *pu_of(struct drive *d)
{
	return &drive_nic(d)->pu[0];
}

/* The service thread repeatedly finds packets that come right after a poll. */
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
 * Sends one packet, which this thread's poll or the service thread finds. Returns the number of
 * turns of the poll; 0: the poll did not find the packet.
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
		drive_cqes_taken(d, 0);
	turns = atomic_load(&p->turns) - turns;
	*saw_answer = atomic_load(&p->requests) != requests;
	assert_true(fake_reached(&p->packets, have + 1));
	return found ? turns : 0;
}

/*
 * Returns the number of answers that polls found. `left`: another thread owns the processing unit
 * during each post. Stops after ENOUGH.
 */
static unsigned count_answers(struct drive *d, bool left)
{
	unsigned answers = 0;
	bool saw;

	for (unsigned i = 0; i < TRIES && answers < ENOUGH; i++) {
		if (i % 10 == 0)
			spin_on_memory(d);
		if (left)
			drive_own(d, 0);
		fake_post(d, 0, 1);
		if (left)
			drive_disown(d, 0);
		answers += poll_for_one(d, true, &saw) && saw;
	}
	assert_int_equal(atomic_load(&pu_of(d)->overlaps), 0);
	return answers;
}

/*
 * A program that lost its core at the first answers does not busy poll any more; the test starts
 * again then.
 */
static void finds_answers(void **state, bool left)
{
	time_t until = time(NULL) + ANSWERS_S;
	unsigned answers = 0;

	for (bool begun = false; answers < ENOUGH && time(NULL) <= until; begun = true) {
		if (begun) {
			harness_teardown(state);
			harness_setup(state);
		}
		answers = count_answers(*state, left);
	}
	assert_int_equal(answers, ENOUGH);
}

static void waits_for_the_answer(void **state)
{
	finds_answers(state, false);
}

/*
 * A post may come while another thread owns the processing unit, such as the service thread that
 * found the peer's request. The program still busy polls for its answer.
 */
static void waits_for_the_answer_to_a_post_left_to_others(void **state)
{
	finds_answers(state, true);
}

/*
 * A program that does not spin on memory gets its completion at once, after the few polls that
 * found nothing.
 */
static void polling_is_not_delayed(void **state)
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
	 * Four busy polls in vain, then 64 polls without, four, 128 without. A busy poll that the
	 * service thread cuts short does not count; few are.
	 */
	assert_true(longer < found / 3);
}

struct peer {
	struct drive *d;
	atomic_bool stop;
};

/* Answers posts whenever it gets the core. */
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
 * With one core for all, a post yields the core to the peer. When the post returns, this thread has
 * the answer.
 */
static void post_finds_the_answer(void **state)
{
	struct peer peer = {0};
	time_t end = time(NULL) + 200;
	unsigned found = 0;
	bool lost = false;
	cpu_set_t all;
	pthread_t t;

	assert_true(pin(&all));
	harness_setup(state);
	peer.d = *state;
	assert_int_equal(pthread_create(&t, NULL, answer, &peer), 0);
	/* Another process may get the yield. Then there is no yield for a while. */
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
		cmocka_unit_test_setup_teardown(polling_is_not_delayed, harness_setup,
						harness_teardown),
		cmocka_unit_test_setup_teardown(gives_up_when_no_answer_comes, harness_setup,
						harness_teardown),
		cmocka_unit_test_teardown(post_finds_the_answer, harness_teardown),
	};

	return cmocka_run_group_tests(tests, harness_begin, harness_end);
}
