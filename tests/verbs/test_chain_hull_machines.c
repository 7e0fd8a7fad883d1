/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A Turing machine and rule 110 run on the NIC, a million steps and more each, while the program
 * that made them is stopped. Three processes take part. This process is the client; it forks the
 * hull, which owns the NIC and has no other task; the hull's child builds the chains and hands them
 * over as images of work requests. The client stops the child, starts both chains by one SEND, and
 * waits for their ends. Then it compares the memory with that of C programs.
 *
 *	starter (loop-back)		machine, automaton (loop-back, managed, recycled)
 *	WAIT for a receive
 *	ENABLE a turn of both	--->	turns without end; the last one writes `done`
 *
 * With --few both take fewer steps.
 */
#include "chain_hull.h"
#include "forked.h"
#include "process_state.h"

#include <signal.h>
#include <stdatomic.h>

#include "automata.h"

/*
 * Two machines of five states that halt: after 2,358,064 steps with 1,471 ones, and after 134,467
 * steps with 501 ones. With sanitizers, which cost much time, and with --few, the test takes the
 * shorter one.
 */
#define STATES 5

static const struct rule long_rules[] = {{1, 1, 2},  {1, 1, 0},	 {1, -1, 3}, {1, 1, 3}, {0, 1, 5},
					 {0, -1, 4}, {1, -1, 3}, {0, -1, 2}, {1, 1, 4}, {1, 1, 1}},
			 few_rules[] = {{1, 1, 2}, {0, -1, 3}, {1, 1, 3}, {1, 1, 4},  {1, -1, 1},
					{0, 1, 2}, {0, 1, 5},  {1, 1, 0}, {1, -1, 3}, {1, 1, 1}};
static const struct task {
	const struct rule *rules;
	uint64_t steps, ones, generations;
} long_task = {long_rules, 2358064, 1471, 1000000}, few_task = {few_rules, 134467, 501, 50000};
static const struct task *task = &long_task;

#define TAPE  2048
#define START 32 /* the machines go further to the right than to the left */
#define CELLS 16 /* of rule 110: one byte each, with a dead cell at either end */

enum { MACHINE, AUTOMATON, STARTER, QUEUES };
static const uint32_t depths[QUEUES] = {16, 32, 4};

/* The memory of the program. */
struct table {
	_Atomic uint64_t pid; /* of the child, when its chains are posted */
	uint64_t done[2];     /* of the machine and the automaton */
	struct turing turing;
	struct roost_ref cells, generations, sum;
	uint64_t data[TAPE + 256];
};

/* The requests of the child to the hull. */
struct request {
	enum { DESCRIBE, POST } kind;
	uint32_t queue, n;
	struct roost_wqe wqe[32];
};

/* ---- the child ---- */

struct program {
	struct roost_hull *hull;
	const struct chain_env *env;
	struct table *t;
	struct roost_chain_data data;
	struct roost_chain_queue queue;
	struct request request; /* has the image of the queue */
};

static struct roost_chain begin(struct program *p, uint32_t queue)
{
	const struct chain_env *e = p->env;
	struct roost_chain c = {.queue = &p->queue, .data = &p->data};

	memset(&p->request, 0, sizeof(p->request));
	p->request.kind = POST;
	p->request.queue = queue;
	p->request.n = depths[queue];
	p->queue = (struct roost_chain_queue){.ring = {e->ring[queue], e->ring_key[queue]},
					      .qp_num = e->qpn[queue],
					      .depth = depths[queue],
					      .stride = sizeof(struct roost_wqe),
					      .image = p->request.wqe};
	c.scratch = roost_chain_word(&c, 0);
	return c;
}

static bool post(struct program *p)
{
	return p->queue.error == 0 &&
	       roost_hull_ask(p->hull, &p->request, sizeof(p->request), NULL, 0) == 0;
}

static struct roost_wqe write_done(struct program *p, const struct roost_chain *c, unsigned i)
{
	const struct roost_ref done = {(uintptr_t)&p->t->done[i], p->env->table_key};

	return roost_wqe_write(done, roost_chain_word(c, 1), 8);
}

static bool post_machine(struct program *p)
{
	struct roost_chain c = begin(p, MACHINE);

	p->t->turing =
		turing_build(&c, task->rules, STATES, TAPE, START, write_done(p, &c, MACHINE));
	return post(p);
}

/* Adds up the cells of all generations, as words, so that each generation has an effect. */
static bool post_automaton(struct program *p)
{
	struct roost_chain c = begin(p, AUTOMATON);
	struct roost_ref cells = roost_ref_at(roost_chain_bytes(&c, (uint64_t[4]){0}, 32), 8);
	struct roost_ref next = roost_chain_bytes(&c, (uint64_t[2]){0}, 16);
	struct roost_ref t = roost_chain_word(&c, 0), u = roost_chain_word(&c, 0);
	struct roost_ref sum = roost_chain_word(&c, 0), count = roost_chain_word(&c, 0);

	p->t->cells = cells;
	p->t->sum = sum;
	p->t->generations = count;
	((uint8_t *)(uintptr_t)cells.addr)[CELLS - 1] = 1;
	for (unsigned i = 0; i < CELLS; i += 8)
		emit_cells(&c, roost_ref_at(cells, i), roost_ref_at(next, i), t, u);
	copy(&c, cells, next, CELLS);
	for (unsigned i = 0; i < CELLS; i += 8) {
		copy(&c, AHEAD(&c, 1, swap_add), roost_ref_at(cells, i), 8);
		calc(&c, ROOST_OP_FETCH_ADD, sum, 0);
	}
	calc(&c, ROOST_OP_FETCH_ADD, count, ROOST_OPERAND(1));
	roost_chain_loop_end(&c, count, ROOST_EQ, roost_constant(task->generations),
			     write_done(p, &c, AUTOMATON));
	return post(p);
}

static bool post_starter(struct program *p)
{
	struct roost_chain c = begin(p, STARTER);

	emit(&c, roost_wqe_wait(0, 1));
	for (unsigned i = MACHINE; i <= AUTOMATON; i++)
		emit(&c, roost_wqe_enable(ROOST_OP_ENABLE, p->env->qpn[i], depths[i]));
	p->request.n = p->queue.n;
	return post(p);
}

static int work(struct roost_hull *hull, void *arg)
{
	struct table *t = roost_hull_memory(hull, "table", sizeof(*t));
	struct request describe = {.kind = DESCRIBE};
	static struct program p;
	struct chain_env e;

	alarm(16 * TIMEOUT_S);
	if (!t || roost_hull_ask(hull, &describe, sizeof(describe), &e, sizeof(e)) != sizeof(e))
		return 2;
	p = (struct program){.hull = hull, .env = &e, .t = t};
	p.data = (struct roost_chain_data){
		.at = {(uintptr_t)t->data, e.table_key}, .image = t->data, .size = sizeof(t->data)};
	if (!post_machine(&p) || !post_automaton(&p) || !post_starter(&p))
		return 3;
	t->pid = (uint64_t)getpid();
	for (;;)
		pause();
}

/* ---- the hull ---- */

static long answer(void *ctx, const void *request, size_t len, void *reply)
{
	static struct request r;

	if (len != sizeof(r))
		return -EBADMSG;
	memcpy(&r, request, sizeof(r));
	switch (r.kind) {
	case DESCRIBE:
		return chain_hull_describe(reply);
	case POST:
		if (r.queue >= QUEUES || r.n > depths[r.queue])
			return -EINVAL;
		return -roost_post_wqes(chain_hull.queue[r.queue], r.wqe, r.n, 0);
	}
	return -EINVAL;
}

static int serve(int in, int out)
{
	const struct chain_hull_shape shape = {.table = sizeof(struct table),
					       .access = IBV_ACCESS_REMOTE_READ |
							 IBV_ACCESS_REMOTE_WRITE |
							 IBV_ACCESS_REMOTE_ATOMIC,
					       .receives = 1};
	struct roost_hull_program p = {.run = work, .request = answer};
	struct ibv_recv_wr recv = {0}, *bad;
	struct chain_hull *h = &chain_hull;

	chain_hull_open(&shape, in, out);
	assert_int_equal(ibv_post_recv(h->side.qp, &recv, &bad), 0);
	for (unsigned i = 0; i < QUEUES; i++)
		h->queue[i] = chain_hull_loop(
			depths[i], &(struct roost_chain_attr){.managed_send = i != STARTER,
							      .watch = {h->receives}});
	chain_hull_register(QUEUES);
	chain_hull_serve(&p, in);
	return 0;
}

/* ---- the client ---- */

static struct side client;
static struct table local; /* a copy of the program's memory */

static void read_table(size_t offset, size_t n)
{
	struct ibv_wc wc;

	assert_int_equal(side_post(&client, IBV_WR_RDMA_READ, 1, (char *)&local + offset,
				   (uint32_t)n, offset),
			 0);
	wc = side_wc(&client);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
}

/* Returns the copy of what a reference of the program names. */
static void *copied(struct roost_ref p)
{
	return (char *)&local + (p.addr - client.peer.addr);
}

static void check_machine(void)
{
	static uint8_t tape[TAPE];
	unsigned at = START, s = 0, ones = 0;
	uint64_t steps = 0;

	do {
		const struct rule *r = &task->rules[2 * s + tape[at]];

		tape[at] = r->symbol;
		at += (unsigned)r->move;
		assert_true(at < TAPE);
		s = r->next - 1u;
		steps++;
	} while (s < STATES);
	for (unsigned i = 0; i < TAPE; i++) {
		const uint64_t *cell = copied(roost_ref_at(local.turing.tape, 8 * i));

		if (tape[i] != !!*cell)
			fail_msg("the tapes differ at cell %u", i);
		ones += tape[i];
	}
	assert_int_equal(steps, task->steps);
	assert_int_equal(ones, task->ones);
	assert_int_equal(*(uint64_t *)copied(local.turing.steps), task->steps);
	assert_int_equal(*(uint64_t *)copied(local.turing.head), local.turing.tape.addr + 8 * at);
}

static void check_automaton(void)
{
	uint8_t model[CELLS + 2] = {0}, old[CELLS + 2];
	uint64_t sum = 0;

	model[CELLS] = 1;
	for (uint64_t n = 0; n < task->generations; n++) {
		memcpy(old, model, sizeof(old));
		for (unsigned i = 1; i <= CELLS; i++)
			model[i] = (old[i] | old[i + 1]) ^ (old[i - 1] & old[i] & old[i + 1]);
		for (unsigned i = 0; i < CELLS; i += 8) {
			uint64_t word;

			memcpy(&word, model + 1 + i, 8);
			sum += word;
		}
	}
	assert_memory_equal(copied(local.cells), model + 1, CELLS);
	assert_int_equal(*(uint64_t *)copied(local.generations), ROOST_OPERAND(task->generations));
	assert_int_equal(*(uint64_t *)copied(local.sum), sum);
}

static void machines_run_without_their_program(void **state)
{
	struct forked hull;
	struct ibv_wc wc;
	time_t until;

	if (forked_start(&hull, 16 * TIMEOUT_S))
		_exit(serve(hull.there[0], hull.back[1]));
	side_open(&client, &local, sizeof(local), 0, hull.back[0], hull.there[1]);
	until = time(NULL) + TIMEOUT_S;
	do {
		assert_true(time(NULL) < until);
		read_table(0, sizeof(local.pid));
	} while (!local.pid);
	assert_int_equal(kill((pid_t)local.pid, SIGSTOP), 0);
	wait_for_state(local.pid, true);
	read_table(0, sizeof(local));
	assert_int_equal(*(uint64_t *)copied(local.turing.steps), 0);
	assert_int_equal(*(uint64_t *)copied(local.generations), 0);

	assert_int_equal(side_post(&client, IBV_WR_SEND, 2, &local, 0, 0), 0);
	wc = side_wc(&client);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	until = time(NULL) + 12 * TIMEOUT_S;
	do {
		assert_true(time(NULL) < until);
		usleep(20000);
		read_table(offsetof(struct table, done), sizeof(local.done));
	} while (!local.done[MACHINE] || !local.done[AUTOMATON]);
	assert_int_equal(state_of(local.pid), 'T');
	read_table(0, sizeof(local));
	check_machine();
	check_automaton();

	assert_int_equal(kill((pid_t)local.pid, SIGKILL), 0);
	assert_int_equal(write(hull.there[1], "", 1), 1);
	forked_end(&hull);
	side_close(&client);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(machines_run_without_their_program),
	};

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	task = &few_task;
#endif
	if (argc > 1 && !strcmp(argv[1], "--few"))
		task = &few_task;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
