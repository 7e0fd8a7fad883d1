/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The drive's policy in virtual time: programs of several kinds on a small machine (model.h). Each
 * test runs over shm and udp, and on machines where a wake-up costs 5, 30 and 100 us.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "model.h"

#define ALL	0xfu
#define WARM_UP (10 * MS)
#define RUN	(10 * MS)
/*
 * Time that a packet may wait in addition to the wake-up: turns and switches of other threads.
 * Shorter than the shortest nap.
 */
#define TURNS (10 * US)

/*
 * Step through the six machines. Emulators of a processor, with --few, run only the first and the
 * last. Sanitizers run only the first: the others execute the same code, and the release build has
 * all of them.
 */
#define FEW 5
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
static unsigned machine_step = 6;
#else
static unsigned machine_step = 1;
#endif

static const struct script passive = {.habit = PASSIVE};
static const struct script reader = {.habit = POLLS, .verb = V_READ, .starts = true};

static struct model model;

/* ---- each machine ---- */

typedef void machine_test(struct model *m, uint64_t wake, bool udp);

static char where[80];

static void on_each_machine(machine_test *test)
{
	static const uint64_t wakes[] = {5 * US, 30 * US, 100 * US};

	for (unsigned i = 0; i < 6; i += machine_step) {
		snprintf(where, sizeof(where), "%s, a wake-up costs %u us", i & 1 ? "udp" : "shm",
			 (unsigned)(wakes[i / 2] / US));
		test(&model, wakes[i / 2], i & 1);
	}
}

static void at_most(const char *what, unsigned variant, uint64_t value, uint64_t limit)
{
	if (value > limit)
		fail_msg("%s, variant %u: %s: %lu, at most %lu", where, variant, what,
			 (unsigned long)value, (unsigned long)limit);
}

static struct script with(struct script s, bool starts, uint64_t think)
{
	s.starts = starts;
	s.think = think;
	return s;
}

/* Creates two ends that may use all cores. */
static void begin(struct model *m, unsigned cores, uint64_t wake, bool udp,
		  const struct script *client, const struct script *server, enum strategy strategy)
{
	model_init(m, cores, wake);
	model_connect(m, client, server, ALL, ALL, udp);
	m->end[0].strategy = m->end[1].strategy = strategy;
}

static void run(struct model *m, uint64_t ns)
{
	for (unsigned i = 0; i < m->num_ends; i++)
		end_measure(&m->end[i]);
	model_run(m, ns);
}

/* Returns the median of the client's round trips. */
static uint64_t typical(struct model *m, unsigned cores, uint64_t wake, bool udp,
			const struct script *client, const struct script *server,
			enum strategy strategy)
{
	begin(m, cores, wake, udp, client, server, strategy);
	model_run(m, WARM_UP);
	run(m, RUN);
	return end_latency(&m->end[0], 50);
}

/* ---- a program that polls its completion queue, and a peer that only serves ---- */

static void reads(struct model *m, uint64_t wake, bool udp)
{
	for (unsigned cores = 1; cores <= MODEL_CORES; cores *= 2) {
		struct script rare = with(reader, true, MS);
		uint64_t best;

		/* Packets in quick succession: busy polling is best, except on a single core. */
		best = typical(m, cores, wake, udp, &reader, &passive,
			       cores > 1 ? SPIN_ALWAYS : SPIN_NEVER);
		at_most("close", cores, typical(m, cores, wake, udp, &reader, &passive, BY_POLICY),
			best * 13 / 10);
		/*
		 * Rare packets: sleeping is best. The policy must cost little more, and must not
		 * busy poll for long.
		 */
		best = typical(m, cores, wake, udp, &rare, &passive, SPIN_NEVER);
		at_most("far", cores, typical(m, cores, wake, udp, &rare, &passive, BY_POLICY),
			best * 13 / 10);
		at_most("busy polling in vain", cores, m->end[1].busy_polled_ns, RUN / 50);
	}
}

static void polls_its_queue(void **state)
{
	(void)state;
	on_each_machine(reads);
}

/* ---- a program that spins on memory: ib_write_lat ---- */

static void writes(struct model *m, uint64_t wake, bool udp)
{
	struct script client = {.habit = SPINS, .verb = V_WRITE, .starts = true},
		      server = with(client, false, 0);
	struct script polls = {.habit = POLLS, .verb = V_SEND, .starts = true},
		      polled = with(polls, false, 0);
	struct script slow = with(server, false, 300 * US);

	for (unsigned cores = 2; cores <= MODEL_CORES; cores *= 2) {
		/*
		 * Compared with two sides that poll and do not sleep. Masking a socket takes system
		 * calls.
		 */
		uint64_t best = typical(m, cores, wake, udp, &polls, &polled, BY_POLICY);

		at_most("ping-pong", cores,
			typical(m, cores, wake, udp, &client, &server, BY_POLICY),
			best * (udp ? 16 : 11) / 10);
		/* No thread is woken for it. */
		at_most("wake-ups", cores,
			(m->end[0].service->wakeups + m->end[1].service->wakeups) * 10,
			m->end[0].requests);
		/*
		 * The peer answers late: the service thread is woken for the answer, and busy
		 * polling stops.
		 */
		at_most("late answers", cores,
			typical(m, cores, wake, udp, &client, &slow, BY_POLICY),
			slow.think + 2 * (wake + TURNS));
		at_most("waits", cores, m->end[0].worst_wait, wake + TURNS);
		assert_int_not_equal(m->end[0].samples, 0);
	}
}

/*
 * From the first operation on: perftest measures 1,000 (its default) and reports the slowest. None
 * may wait until the policy has classified the program.
 */
static void begins(struct model *m, uint64_t wake, bool udp)
{
	struct script client = {.habit = SPINS, .verb = V_WRITE, .starts = true},
		      server = with(client, false, 0);

	for (unsigned cores = 2; cores <= MODEL_CORES; cores *= 2) {
		begin(m, cores, wake, udp, &client, &server, BY_POLICY);
		run(m, RUN);
		assert_true(m->end[0].samples > 1000);
		m->end[0].samples = 1000;
		at_most("slowest of the first", cores, end_latency(&m->end[0], 100),
			5 * end_latency(&m->end[0], 50));
	}
}

static void spins_from_the_first(void **state)
{
	(void)state;
	on_each_machine(begins);
}

/* Returns the number of the first 1,000 round trips that took more than five times the median. */
static unsigned slow_at_first(struct end *e)
{
	unsigned slow = 0;

	e->samples = 1000;
	end_latency(e, 50); /* sorts the samples */
	for (unsigned i = 0; i < e->samples; i++)
		slow += e->lat[i] > 5 * e->lat[e->samples / 2];
	return slow;
}

/*
 * One side begins late: perftest measures its clock for some milliseconds first. Only the first
 * round trip waits for it. A service thread that naps must not find the packets of later ones.
 */
static void begins_late(struct model *m, uint64_t wake, bool udp)
{
	static const uint64_t lates[] = {40 * US, 300 * US, 5 * MS};
	struct script scripts[2] = {{.habit = SPINS, .verb = V_WRITE, .starts = true},
				    {.habit = SPINS, .verb = V_WRITE}};

	for (unsigned v = 0; v < 2 * 2 * 3; v++) {
		scripts[v & 1].late = lates[v / 4];
		scripts[!(v & 1)].late = 0;
		begin(m, v & 2 ? 4 : 2, wake, udp, &scripts[0], &scripts[1], BY_POLICY);
		run(m, 2 * RUN);
		assert_true(m->end[0].samples > 1000);
		at_most("slow round trips", v, slow_at_first(&m->end[0]), 1);
		at_most("waits", v, m->end[0].worst_wait, wake + 2 * TURNS);
	}
}

static void spins_when_the_peer_is_late(void **state)
{
	(void)state;
	on_each_machine(begins_late);
}

/* Runs until the client has made this many round trips. Returns the wake-ups of both services. */
static unsigned wakeups_until(struct model *m, unsigned samples)
{
	for (unsigned i = 0; i < 20 * MS / US && m->end[0].samples < samples; i++)
		model_run(m, US);
	assert_true(m->end[0].samples >= samples);
	return m->end[0].service->wakeups + m->end[1].service->wakeups;
}

/*
 * A wake-up of a service thread takes the core of a program for longer than several round trips,
 * and the ten slowest of 1,000 are the p99. After the first round trips the threads sleep, whether
 * one side was late or not, but for a page fault in the middle: there the answer is later than a
 * busy poll lasts.
 */
static void wakes_rarely(struct model *m, uint64_t wake, bool udp)
{
	static const uint64_t lates[] = {0, 40 * US, 300 * US, 5 * MS};
	struct script scripts[2] = {{.habit = SPINS, .verb = V_WRITE, .starts = true},
				    {.habit = SPINS, .verb = V_WRITE}};

	for (unsigned v = 0; v < 2 * 3 * 4; v++) {
		unsigned first;

		scripts[v & 1].late = lates[v / 6];
		scripts[!(v & 1)].late = 0;
		for (unsigned i = 0; i < 2; i++) {
			scripts[i].fault_at = 510;
			scripts[i].fault = v / 2 % 3 * 30 * US;
		}
		begin(m, 2, wake, udp, &scripts[0], &scripts[1], BY_POLICY);
		first = wakeups_until(m, 20);
		at_most("wake-ups", v, wakeups_until(m, 1000) - first, 4);
	}
}

static void wakes_no_thread_in_a_ping_pong(void **state)
{
	(void)state;
	on_each_machine(wakes_rarely);
}

/*
 * Over UC only the peer's WRITE comes back. It starts after a pause long enough for both service
 * threads to sleep without a time-out. One end posts, busy polls (in vain if the peer is slow), and
 * reads memory from then on.
 */
static void begins_over_uc(struct model *m, uint64_t wake, bool udp)
{
	struct script client = {.habit = SPINS, .verb = V_UC_WRITE, .starts = true},
		      server = with(client, false, 0);

	for (unsigned cores = 2; cores <= MODEL_CORES; cores *= 2) {
		for (unsigned slow = 0; slow < 2; slow++) {
			server.think = slow * 300 * US;
			begin(m, cores, wake, udp, &client, &server, BY_POLICY);
			m->end[0].until = m->now + 3 * policy_table.active;
			run(m, 4 * policy_table.active);
			assert_true(m->end[0].samples > 100);
			at_most("waits", cores, m->end[0].worst_wait, wake + 2 * TURNS);
			at_most("waits of the other", cores, m->end[1].worst_wait,
				wake + 2 * TURNS);
		}
	}
}

static void spins_over_uc(void **state)
{
	(void)state;
	on_each_machine(begins_over_uc);
}

static void spins_on_memory(void **state)
{
	(void)state;
	on_each_machine(writes);
}

/* ---- a program that sleeps in a completion channel ---- */

static void sleeps(struct model *m, uint64_t wake, bool udp)
{
	static const uint64_t thinks[] = {0, 200 * US, 20 * MS};

	for (unsigned v = 0; v < 20 * 3 * 3; v++) {
		struct script client = {.habit = SLEEPS_IN,
					.verb = v & 2 ? V_READ : V_SEND,
					.starts = true,
					.vain_polls = 1 + v % 10,
					.last_poll = v / 10 % 2,
					.think = thinks[v / 20 % 3]};
		struct script server = client.verb == V_READ ? passive : with(client, false, 0);

		begin(m, 1u << v / 60, wake, udp, &client, &server, BY_POLICY);
		m->late_at = wake + TURNS;
		run(m, client.think > MS ? 5 * client.think : RUN / 2);
		at_most("packets that waited for more than a wake-up", v,
			m->end[0].late_packets + m->end[1].late_packets, 0);
		/* Two wake-ups at each side: of the service thread and of the program. */
		at_most("round trip", v, end_latency(&m->end[0], 100), 4 * (wake + TURNS));
	}
}

static void sleeps_in_a_channel(void **state)
{
	(void)state;
	on_each_machine(sleeps);
}

/*
 * The program found its completions by polling, and counts as a poller, or as spinning on memory.
 * Then the peer answers slowly.
 */
static void turns_to_sleep(struct model *m, uint64_t wake, bool udp)
{
	for (unsigned v = 0; v < 8; v++) {
		struct script client = {.habit = SLEEPS_IN,
					.verb = V_SEND,
					.starts = true,
					.vain_polls = v & 4 ? 20 : 1000,
					.last_poll = v & 1};
		struct script server = {.habit = POLLS, .verb = V_SEND, .think = 400 * US};
		struct end *e = &m->end[0];

		begin(m, 4, wake, udp, &client, &server, BY_POLICY);
		m->end[1].script.slow_from = m->now + WARM_UP;
		while (m->now < m->end[1].script.slow_from) {
			for (unsigned i = 0; i < 8 && v & 2; i++)
				caller_found_by_service(&e->caller, m->now - i, m->now + 100 * US);
			model_run(m, v & 2 ? 8 * US : MS);
		}
		assert_int_equal(caller_kind(&e->caller), v & 2 ? CALLER_SPINS : CALLER_POLLS);
		m->late_at = wake + TURNS;
		run(m, RUN);
		at_most("packets that waited", v, e->late_packets, 0);
		assert_true(e->samples > 10 && e->events > 10);
	}
}

static void a_poller_turns_to_sleep(void **state)
{
	(void)state;
	on_each_machine(turns_to_sleep);
}

/* ---- two programs on one core ---- */

static void one_core(struct model *m, uint64_t wake, bool udp)
{
	static const struct script habits[] = {{.habit = POLLS, .verb = V_SEND, .starts = true},
					       {.habit = SPINS, .verb = V_WRITE, .starts = true}};

	for (unsigned v = 0; v < 2; v++) {
		struct script server = with(habits[v], false, 0);

		/* Some switches for each round trip, but never a slice of the scheduler. */
		at_most("median", v, typical(m, 1, wake, udp, &habits[v], &server, BY_POLICY),
			10 * US);
		at_most("p99", v, end_latency(&m->end[0], 99), 20 * US);
		at_most("busy polling", v, m->end[0].busy_polled_ns + m->end[1].busy_polled_ns,
			RUN / 100);
	}
}

static void two_programs_on_one_core(void **state)
{
	(void)state;
	on_each_machine(one_core);
}

/* ---- other tasks that want the core ---- */

/* One hog for each core: the service threads may busy poll only for a small share of the time. */
static void hogs(struct model *m, uint64_t wake, bool udp)
{
	for (unsigned v = 0; v < 2; v++) {
		uint64_t spun;

		begin(m, 2, wake, udp, &reader, &passive, BY_POLICY);
		model_hog(m, 1, 0, 0);
		model_hog(m, 2, 0, 0);
		model_run(m, v * 50 * MS);
		run(m, 100 * MS);
		spun = m->end[0].busy_polled_ns + m->end[1].busy_polled_ns;
		at_most("busy polling against others", v, spun, 100 * MS / 100);
		assert_true(m->end[0].packets > 10);
	}
}

static void beside_who_wants_the_core(void **state)
{
	(void)state;
	on_each_machine(hogs);
}

/* A slice lost now and then stops busy polling for little longer than the slice. */
static void slices(struct model *m, uint64_t wake, bool udp)
{
	uint64_t best = typical(m, 2, wake, udp, &reader, &passive, SPIN_ALWAYS);

	for (unsigned v = 0; v < 2; v++) {
		begin(m, 2, wake, udp, &reader, &passive, BY_POLICY);
		model_hog(m, 1u << v, 150 * MS, 3 * MS);
		/* A timer or doorbell has measured the cost of a wake-up. */
		wake_cost_learn(&m->end[1].wake_cost, wake);
		model_run(m, 75 * MS);
		run(m, 150 * MS);
		at_most("median", v, end_latency(&m->end[0], 50), best * 13 / 10);
		/* The client may be descheduled. Its service thread takes over after a nap then. */
		at_most("waits", v, m->end[0].worst_wait, policy_table.nap_max + wake + 2 * 3 * MS);
	}
}

static void descheduled_for_a_slice(void **state)
{
	(void)state;
	on_each_machine(slices);
}

/* ---- idle ---- */

static void idle(struct model *m, uint64_t wake, bool udp)
{
	static const struct script habits[] = {
		{.habit = PASSIVE},
		{.habit = POLLS, .verb = V_READ, .starts = true},
		{.habit = POLLS, .verb = V_SEND, .starts = true},
		{.habit = SPINS, .verb = V_WRITE, .starts = true},
		{.habit = SLEEPS_IN, .verb = V_SEND, .starts = true, .vain_polls = 3},
	};

	for (unsigned v = 0; v < 10; v++) {
		struct script client = habits[v / 2], server = with(client, false, 0);
		uint64_t steps;

		model_init(m, 2, wake);
		client.stop = server.stop = m->now + 10 * MS;
		model_connect(m, &client, client.verb == V_READ ? &passive : &server, ALL,
			      v & 1 ? 1 : ALL, udp);
		model_run(m, 10 * MS);
		/* The lease, naps, and looks after recent activity. */
		model_run(m, 20 * MS + policy_table.active);
		steps = m->end[0].service->steps + m->end[1].service->steps;
		model_run(m, 10000 * MS);
		at_most("steps of service threads", v,
			m->end[0].service->steps + m->end[1].service->steps - steps, 0);
	}
}

static void idle_takes_no_steps(void **state)
{
	(void)state;
	on_each_machine(idle);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(polls_its_queue),
		cmocka_unit_test(spins_on_memory),
		cmocka_unit_test(spins_from_the_first),
		cmocka_unit_test(spins_when_the_peer_is_late),
		cmocka_unit_test(wakes_no_thread_in_a_ping_pong),
		cmocka_unit_test(spins_over_uc),
		cmocka_unit_test(sleeps_in_a_channel),
		cmocka_unit_test(a_poller_turns_to_sleep),
		cmocka_unit_test(two_programs_on_one_core),
		cmocka_unit_test(beside_who_wants_the_core),
		cmocka_unit_test(descheduled_for_a_slice),
		cmocka_unit_test(idle_takes_no_steps),
	};

	if (argc > 1 && !strcmp(argv[1], "--few"))
		machine_step = FEW;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
