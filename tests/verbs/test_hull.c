/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A hull serves a peer's READs, WRITEs and kernel calls while the program that works on its memory
 * is killed again and again. Three processes take part. This process is the peer; it forks the
 * hull, which forks or executes the program. Waits have bounds that only a failure reaches.
 */
#include "side.h"
#include "forked.h"

#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#include "roost/get.h"
#include "roost/hull.h"
#include "roost/verbs.h"

#define KILLS	 100
#define ENTRIES	 20 /* the least entries that a program appends before it is killed */
#define CAPACITY 65536
#define WORDS	 8
#define KEY	 7 /* of entry 0, for the kernel `get` */

/* The program's memory: a log that each life of the program continues. */
struct table {
	_Atomic uint64_t life;	/* number of the program's life, from 1 on */
	_Atomic uint64_t pid;	/* process of that life; valid when `life` has its number */
	_Atomic uint64_t count; /* entries that are complete */
	_Atomic uint64_t stop;	/* the peer's WRITE: the program ends */
	_Atomic uint64_t asked; /* the peer's WRITE in each life ... */
	_Atomic uint64_t seen;	/* ... and the program's copy of it */
	struct roost_get_entry index[1];
	uint64_t entry[CAPACITY][WORDS];
};

#define OFFSET(field) offsetof(struct table, field)

static uint64_t word_of(uint64_t entry, unsigned word)
{
	return (entry + 1) * 0x9e3779b97f4a7c15u + word;
}

/* ---- the program ---- */

/* Asks the hull for the number that follows. */
static bool hull_answers(struct roost_hull *hull, uint64_t n)
{
	uint64_t reply = 0;

	return roost_hull_ask(hull, &n, sizeof(n), &reply, sizeof(reply)) == sizeof(reply) &&
	       reply == n + 1 && roost_hull_ask(hull, &n, 1, &reply, sizeof(reply)) == -EBADMSG;
}

static int work(struct roost_hull *hull, void *arg)
{
	struct table *t = roost_hull_memory(hull, "table", sizeof(*t));
	uint64_t n;

	if (!t)
		return 2;
	alarm(4 * TIMEOUT_S);
	n = t->count;
	if (!hull_answers(hull, n))
		return 3;
	t->pid = (uint64_t)getpid();
	t->life++;
	while (!t->stop) {
		if (n == CAPACITY)
			return 4;
		for (unsigned i = 0; i < WORDS; i++)
			t->entry[n][i] = word_of(n, i);
		t->count = ++n;
		t->seen = t->asked;
		usleep(20);
	}
	return 0;
}

/* ---- the hull ---- */

static long answer(void *ctx, const void *request, size_t len, void *reply)
{
	uint64_t n;

	if (len != sizeof(n))
		return -EBADMSG;
	memcpy(&n, request, sizeof(n));
	n++;
	memcpy(reply, &n, sizeof(n));
	return sizeof(n);
}

/* A life that ends otherwise than by the peer's kill is a failure. */
static bool killed(void *ctx, int status)
{
	unsigned *deaths = ctx;

	if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) {
		(*deaths)++;
		return true;
	}
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	return false;
}

static void enable_calls(struct side *s)
{
	assert_int_equal(roost_qp_enable_rpc(s->qp), 0);
}

/* Peers can look up entry 0. It is complete before a peer asks for it. */
static void deploy_get(struct side *s, struct table *t)
{
	uint32_t used = 0;

	assert_int_equal(roost_get_insert(t->index, 1, 0, &used, KEY, (uintptr_t)t->entry[0],
					  sizeof(t->entry[0]), 0),
			 0);
	assert_int_equal(roost_kernel_deploy(s->ctx, roost_kernel_builtin("get"), NULL), 0);
}

static int serve(bool by_exec, int in, int out)
{
	char self[PATH_MAX] = "";
	char *argv[] = {self, "program", NULL};
	unsigned deaths = 0;
	struct roost_hull_program p = {.request = answer, .ended = killed, .ctx = &deaths};
	struct roost_hull *hull;
	static struct side s;
	struct table *t;

	if (by_exec) {
		assert_true(readlink("/proc/self/exe", self, sizeof(self) - 1) > 0);
		p.argv = argv;
	} else {
		p.run = work;
	}
	choose_port(true);
	hull = roost_hull_create();
	assert_non_null(hull);
	t = roost_hull_memory(hull, "table", sizeof(*t));
	assert_non_null(t);
	s.created = enable_calls;
	side_open(&s, t, sizeof(*t), IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE, in, out);
	deploy_get(&s, t);
	assert_int_equal(write(out, "", 1), 1);
	assert_int_equal(roost_hull(hull, &p), 0);
	assert_int_equal(deaths, KILLS);
	assert_int_equal(t->life, KILLS + 1);
	side_close(&s);
	roost_hull_destroy(hull);
	return 0;
}

/* ---- the peer ---- */

static uint64_t local[WORDS];

static void transfer(struct side *s, enum ibv_wr_opcode opcode, uint32_t n, uint64_t offset)
{
	struct ibv_wc wc;

	assert_int_equal(side_post(s, opcode, offset, local, n, offset), 0);
	wc = side_wc(s);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(wc.wr_id, offset);
}

static uint64_t read_word(struct side *s, uint64_t offset)
{
	transfer(s, IBV_WR_RDMA_READ, 8, offset);
	return local[0];
}

/* Reads the newest entry, which must be whole. Returns the number of entries. */
static uint64_t check_newest(struct side *s)
{
	uint64_t n = read_word(s, OFFSET(count));

	assert_true(n <= CAPACITY);
	if (n) {
		transfer(s, IBV_WR_RDMA_READ, sizeof(local), OFFSET(entry[n - 1]));
		for (unsigned i = 0; i < WORDS; i++)
			assert_int_equal(local[i], word_of(n - 1, i));
	}
	return n;
}

/* Reads until the program has `life` and `count`, and checks the newest entry all the while. */
static uint64_t wait_for(struct side *s, uint64_t life, uint64_t count)
{
	time_t until = time(NULL) + TIMEOUT_S;
	uint64_t n, now;

	for (;;) {
		n = check_newest(s);
		now = read_word(s, OFFSET(life));
		assert_true(now <= life);
		if (now == life && n >= count)
			return n;
		if (time(NULL) > until)
			fail_msg("life %llu, %llu entries: no progress in %d seconds",
				 (unsigned long long)now, (unsigned long long)n, TIMEOUT_S);
	}
}

static void write_word(struct side *s, uint64_t offset, uint64_t value)
{
	local[0] = value;
	transfer(s, IBV_WR_RDMA_WRITE, 8, offset);
}

/* Waits until the program has copied the peer's last WRITE. */
static void wait_until_seen(struct side *s, uint64_t asked)
{
	time_t until = time(NULL) + TIMEOUT_S;

	while (read_word(s, OFFSET(seen)) != asked) {
		if (time(NULL) > until)
			fail_msg("the program has not seen WRITE %llu in %d seconds",
				 (unsigned long long)asked, TIMEOUT_S);
	}
}

static void call_get(struct side *s, struct roost_caller *caller)
{
	struct roost_get_params params = roost_get_params(s->peer.addr + OFFSET(index), 1, KEY, 0);
	struct roost_result result;
	uint64_t value[WORDS];

	assert_int_equal(roost_call(caller, ROOST_GET_OP, s->peer.rkey, &params, sizeof(params),
				    value, sizeof(value), TIMEOUT_S * 1000000000ull, &result),
			 0);
	assert_int_equal(side_wc(s).status, IBV_WC_SUCCESS); /* the queue pair signals all */
	assert_int_equal(result.status, ROOST_RPC_OK);
	assert_int_equal(result.len, sizeof(value));
	for (unsigned i = 0; i < WORDS; i++)
		assert_int_equal(value[i], word_of(0, i));
}

static void peers_continue(bool by_exec)
{
	static struct side s;
	struct roost_caller *caller;
	struct forked hull;
	uint64_t n = 0;
	char deployed;

	if (forked_start(&hull, 4 * TIMEOUT_S))
		_exit(serve(by_exec, hull.there[0], hull.back[1]));
	s.created = enable_calls;
	/* the reply to a call is a WRITE to this side */
	side_open(&s, local, sizeof(local), IBV_ACCESS_REMOTE_WRITE, hull.back[0], hull.there[1]);
	assert_int_equal(read(hull.back[0], &deployed, 1), 1);
	caller = roost_caller_create(s.qp, 1, sizeof(local));
	assert_non_null(caller);
	for (uint64_t life = 1; life <= KILLS; life++) {
		n = wait_for(&s, life, n + ENTRIES);
		wait_until_seen(&s, life - 1);
		call_get(&s, caller);
		assert_int_equal(kill((pid_t)read_word(&s, OFFSET(pid)), SIGKILL), 0);
		/* no program runs now; the next one sees the WRITE */
		write_word(&s, OFFSET(asked), life);
		call_get(&s, caller);
	}
	wait_for(&s, KILLS + 1, n + ENTRIES);
	wait_until_seen(&s, KILLS);
	write_word(&s, OFFSET(stop), 1);
	forked_end(&hull);
	roost_caller_destroy(caller);
	side_close(&s);
}

static void program_is_forked(void **state)
{
	peers_continue(false);
}

static void program_is_executed(void **state)
{
	peers_continue(true);
}

#ifndef __SANITIZE_THREAD__ /* TSan chooses addresses itself */

/*
 * The kernel maps each program at addresses of its own. A memory of the hull is so far from its
 * other mappings that no program has one there.
 */
#define APART (1ull << 32)

static void away_from_mappings(void **state)
{
	unsigned long long from, to;
	struct roost_hull *hull = roost_hull_create();
	char line[PATH_MAX + 128];
	uintptr_t low, high;
	FILE *maps;

	assert_non_null(hull);
	high = (uintptr_t)roost_hull_memory(hull, "high", 1 << 20);
	low = (uintptr_t)roost_hull_memory(hull, "low", 1 << 20);
	assert_true(low && high);
	maps = fopen("/proc/self/maps", "re");
	assert_non_null(maps);
	while (fgets(line, sizeof(line), maps)) {
		assert_int_equal(sscanf(line, "%llx-%llx", &from, &to), 2);
		if (strstr(line, "/memfd:low") || strstr(line, "/memfd:high"))
			continue;
		if (to + APART > low && from < high + APART)
			fail_msg("a memory at %#lx is near %s", (unsigned long)low, line);
	}
	fclose(maps);
	roost_hull_destroy(hull);
}

#endif

/* ---- bad input ---- */

static void join_refuses(const char *env, int err)
{
	if (env)
		assert_int_equal(setenv("ROOST_HULL", env, 1), 0);
	else
		assert_int_equal(unsetenv("ROOST_HULL"), 0);
	errno = 0;
	assert_null(roost_hull_join());
	assert_int_equal(errno, err);
}

/* The environment may have any contents. */
static void garbage_in_the_environment(void **state)
{
	static const char *const garbage[] = {
		"",
		";",
		"3",
		"-3;",
		"+3;",
		"x;",
		"ffffffffffffffffff;",
		"80000000;",
		"3;table",
		"3;table,",
		"3;table,3",
		"3;table,3,1000",
		"3;table,3,1000,1000",
		"3;table,3,0,1000;",
		"3;table,3,1000,0;",
		"3;ta/ble,3,1000,1000;",
		"3;,3,1000,1000;",
		"3;abcdefghijklmnopqrstuvwxyz0123456789,3,1000,1000;",
		"3;table,7fffffff,7f0000000000,1000;",
	};

	join_refuses(NULL, ENOENT);
	for (size_t i = 0; i < sizeof(garbage) / sizeof(*garbage); i++)
		join_refuses(garbage[i], EINVAL);
	unsetenv("ROOST_HULL");
}

static void wrong_use(void **state)
{
	struct roost_hull *hull = roost_hull_create();
	char name[24] = "memory00";

	assert_non_null(hull);
	assert_int_equal(roost_hull(hull, &(struct roost_hull_program){0}), EINVAL);
	assert_int_equal(roost_hull_ask(hull, "", 1, NULL, 0), -EPIPE);
	assert_int_equal(roost_hull_ask(hull, "", 0, NULL, 0), -EINVAL);
	assert_null(roost_hull_memory(hull, "", 4096));
	assert_int_equal(errno, EINVAL);
	assert_null(roost_hull_memory(hull, "a b", 4096));
	assert_int_equal(errno, EINVAL);
	assert_null(roost_hull_memory(hull, "empty", 0));
	assert_int_equal(errno, EINVAL);
	for (int i = 0; i < ROOST_HULL_MEMORIES; i++) {
		snprintf(name, sizeof(name), "memory%02d", i);
		assert_non_null(roost_hull_memory(hull, name, 4096));
		assert_null(roost_hull_memory(hull, name, 4096));
		assert_int_equal(errno, EEXIST);
	}
	assert_null(roost_hull_memory(hull, "more", 4096));
	assert_int_equal(errno, ENOSPC);
	roost_hull_destroy(hull);
	roost_hull_destroy(NULL);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(program_is_forked),	      cmocka_unit_test(program_is_executed),
#ifndef __SANITIZE_THREAD__
		cmocka_unit_test(away_from_mappings),
#endif
		cmocka_unit_test(garbage_in_the_environment), cmocka_unit_test(wrong_use),
	};

	if (argc == 2 && !strcmp(argv[1], "program")) {
		struct roost_hull *hull = roost_hull_join();
		int status = hull ? work(hull, NULL) : 1;

		roost_hull_destroy(hull);
		return status;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
