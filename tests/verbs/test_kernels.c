/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Kernels on a NIC that threads drive, through roost/verbs.h: loaded, replaced under load, crashed,
 * and kernels that do not return.
 */
#include "fixture.h"

#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "../common/handlers.h"
#include "../kernels/objects/count.h"
#include "roost/verbs.h"

#define LONG (TIMEOUT_S * 1000000000ull) /* ns: longer than any call here takes */

static const char *built(const char *name)
{
	static char path[512];

	snprintf(path, sizeof(path), "%s/%s.so", OBJECTS, name);
	return path;
}

/* Side `side` calls. Its counter is the first word of the other side's memory. */
static struct count_reply count(struct pair *p, struct roost_caller *c, int side)
{
	struct count_params params = {.where = (uintptr_t)p->buf[1 - side]};
	struct count_reply reply = {0};
	struct roost_result r;

	assert_int_equal(roost_call(c, COUNT_OP, p->mr[1 - side]->rkey, &params, sizeof(params),
				    &reply, sizeof(reply), LONG, &r),
			 0);
	assert_int_equal(r.status, ROOST_RPC_OK);
	return reply;
}

/* ---- files ---- */

static void out_of_files(void **state)
{
	struct roost_kernel_info info[4];
	struct roost_caller *c;
	char why[300] = "";
	struct pair p;

	pair_open_rpc(&p);
	c = roost_caller_create(p.qp[0], 1, 64);
	assert_int_equal(roost_kernel_list(p.ctx, info, 4), 0);
	assert_int_equal(roost_kernel_load(p.ctx, "/nowhere/kernel.so", why, sizeof(why)), ENOENT);
	assert_non_null(strstr(why, "/nowhere/kernel.so"));
	assert_int_equal(roost_kernel_replace(p.ctx, built("count-1"), why, sizeof(why)), ENOENT);
	assert_non_null(strstr(why, "0x2000"));
	assert_int_equal(roost_kernel_load(p.ctx, built("other-abi"), NULL, 0), EPROTO);
	assert_int_equal(roost_kernel_load(p.ctx, built("count-1"), NULL, 0), 0);
	assert_int_equal(roost_kernel_load(p.ctx, built("count-2"), why, sizeof(why)), EEXIST);
	assert_non_null(strstr(why, "replace"));
	assert_int_equal(count(&p, c, 0).version, 1);
	for (unsigned i = 0; i < 20; i++) {
		assert_int_equal(roost_kernel_replace(p.ctx, built(i & 1 ? "count-1" : "count-2"),
						      why, sizeof(why)),
				 0);
		assert_int_equal(count(&p, c, 0).version, 2 - i % 2);
	}
	assert_int_equal(roost_kernel_list(p.ctx, info, 4), 1);
	assert_string_equal(info[0].name, "count");
	assert_int_equal(info[0].op, COUNT_OP);
	assert_int_equal(info[0].version, 1);
	assert_int_equal(info[0].state, ROOST_KERNEL_ACTIVE);
	assert_int_equal(info[0].flags, ROOST_KERNEL_LOADED);
	assert_int_equal(info[0].calls, 21);
	assert_int_equal(info[0].ended_ok, 21);
	assert_int_equal(roost_kernel_deploy(p.ctx, roost_kernel_builtin("get"), NULL), 0);
	assert_int_equal(roost_kernel_list(p.ctx, info, 1), 2);
	assert_int_equal(roost_kernel_unload(p.ctx, COUNT_OP), 0);
	assert_int_equal(roost_kernel_unload(p.ctx, COUNT_OP), ENOENT);
	roost_caller_destroy(c);
	pair_close(&p);
}

/* ---- replaced under load ---- */

struct tally {
	uint64_t where;
	struct count_reply r;
};

static _Atomic uint64_t generation;

static enum roost_next tally(struct roost_call *c)
{
	struct tally *s = c->state;

	ROOST_STEPS(c);
	s->where = *(const uint64_t *)c->params;
	s->r.generation = (uintptr_t)c->self;
	ROOST_READ(c, s->where, &s->r.sum, 8);
	s->r.sum++;
	ROOST_WRITE(c, s->where, &s->r.sum, 8);
	ROOST_REPLY(c, &s->r, sizeof(s->r));
	ROOST_STEPS_END;
}

static int next_one(void **self, const struct roost_kernel *old)
{
	*self = (void *)((uintptr_t)*self + 1);
	return 0;
}

static const struct roost_kernel tallies[2] = {
	{.abi = ROOST_KERNEL_ABI,
	 .name = "tally",
	 .version = 0,
	 .op = COUNT_OP,
	 .state_size = sizeof(struct tally),
	 .params = tally,
	 .take_over = next_one},
	{.abi = ROOST_KERNEL_ABI,
	 .name = "tally",
	 .version = 1,
	 .op = COUNT_OP,
	 .state_size = sizeof(struct tally),
	 .params = tally,
	 .take_over = next_one},
};

#define FLIGHT 8

struct thread {
	struct pair *p;
	int side;
	_Atomic uint64_t calls;
	const char *_Atomic wrong;
	int ret, status; /* of the call that was lost or failed */
};

static atomic_bool done;

/* Eight calls are always under way, each with its own counter. */
static void *call_often(void *arg)
{
	struct thread *t = arg;
	struct roost_caller *c = roost_caller_create(t->p->qp[t->side], FLIGHT, 64);
	uint64_t begun[FLIGHT], counts[FLIGHT] = {0};
	unsigned id[FLIGHT];

	for (unsigned i = 0; i < FLIGHT; i++)
		id[i] = UINT32_MAX;
	for (unsigned n = 0, i = 0; !t->wrong; n++, i = n % FLIGHT) {
		uint64_t where = (uintptr_t)t->p->buf[1 - t->side] + 8 * i;
		struct roost_result r;

		if (id[i] != UINT32_MAX) {
			struct count_reply reply;
			int ret = roost_call_wait(c, id[i], LONG, &r);

			if (ret || r.status != ROOST_RPC_OK) {
				t->ret = ret;
				t->status = (int)r.status;
				t->wrong = ret ? "lost" : "failed";
				break;
			}
			memcpy(&reply, r.data, sizeof(reply));
			roost_call_end(c, id[i]);
			t->calls++;
			if (reply.sum != ++counts[i])
				t->wrong = "not run once";
			if (reply.generation < begun[i] ||
			    reply.generation > atomic_load(&generation) + 1)
				t->wrong = "run by a version that was not active";
		}
		id[i] = UINT32_MAX;
		if (atomic_load(&done)) {
			unsigned left = 0;

			for (unsigned k = 0; k < FLIGHT; k++)
				left += id[k] != UINT32_MAX;
			if (!left)
				break;
			continue;
		}
		begun[i] = atomic_load(&generation);
		if (roost_call_begin(c, COUNT_OP, t->p->mr[1 - t->side]->rkey, &where, 8, 0,
				     &id[i]))
			t->wrong = "not posted";
	}
	roost_caller_destroy(c);
	return NULL;
}

static void a_thousand_replacements(void **state)
{
	struct roost_kernel_info info[4];
	struct thread t[2];
	pthread_t id[2];
	struct pair p;

	pair_open_rpc(&p);
	memset(p.buf[0], 0, 64);
	memset(p.buf[1], 0, 64);
	atomic_store(&generation, 0);
	atomic_store(&done, false);
	assert_int_equal(roost_kernel_deploy(p.ctx, &tallies[0], NULL), 0);
	for (int i = 0; i < 2; i++) {
		t[i] = (struct thread){.p = &p, .side = i};
		assert_int_equal(pthread_create(&id[i], NULL, call_often, &t[i]), 0);
	}
	for (unsigned i = 0; i < 1000; i++) {
		uint64_t before[2] = {t[0].calls, t[1].calls};

		assert_int_equal(roost_kernel_redeploy(p.ctx, &tallies[(i + 1) & 1], NULL), 0);
		atomic_fetch_add(&generation, 1);
		/* Under load: calls of both sides end between any two replacements. */
		for (int k = 0; k < 2; k++)
			while (t[k].calls == before[k] && !t[k].wrong)
				sched_yield();
	}
	atomic_store(&done, true);
	for (int i = 0; i < 2; i++) {
		pthread_join(id[i], NULL);
		if (t[i].wrong)
			fail_msg("%s: %s, status %d", t[i].wrong, strerror(-t[i].ret), t[i].status);
	}
	/* The last replies are acknowledged a little later. */
	while (roost_kernel_list(p.ctx, info, 4) > 1)
		settle(p.cq[0]);
	assert_int_equal(info[0].calls, t[0].calls + t[1].calls);
	assert_int_equal(info[0].ended_ok, info[0].calls);
	assert_int_equal(info[0].version, 0);
	pair_close(&p);
}

/* ---- crashes, and kernels that do not return ---- */

static enum roost_next __attribute__((no_sanitize("undefined"))) crash(struct roost_call *c)
{
	*(volatile char *)c->self = 1;
	return ROOST_DONE;
}

static enum roost_next never(struct roost_call *c)
{
	for (;;)
		__asm__ volatile("");
	return ROOST_DONE;
}

static enum roost_next sleeps(struct roost_call *c)
{
	for (;;)
		nanosleep(&(struct timespec){.tv_sec = 1000}, NULL);
	return ROOST_DONE;
}

#define BAD_OP 0x3000

static const struct roost_kernel bad[] = {
	{.abi = ROOST_KERNEL_ABI, .name = "crash", .version = 1, .op = BAD_OP, .params = crash},
	{.abi = ROOST_KERNEL_ABI, .name = "never", .version = 1, .op = BAD_OP, .params = never},
	{.abi = ROOST_KERNEL_ABI, .name = "sleeps", .version = 1, .op = BAD_OP, .params = sleeps},
};

static void bad_kernels(void **state)
{
	struct roost_kernel_info info[4];
	struct roost_caller *c, *other;
	struct roost_result r;
	struct pair p;

	take_back_handlers();
	pair_open_rpc(&p);
	c = roost_caller_create(p.qp[0], 4, 64);
	other = roost_caller_create(p.qp[1], 4, 64);
	memset(p.buf[0], 0, 64);
	memset(p.buf[1], 0, 64);
	assert_int_equal(roost_kernel_deploy(p.ctx, &tallies[0], NULL), 0);
	/*
	 * Twice: the thread that waits for the reply finds it, or the service thread while no
	 * thread waits.
	 */
	for (unsigned way = 0; way < 6; way++) {
		unsigned expected = way / 2 ? ROOST_RPC_STUCK : ROOST_RPC_FAULT, n, id;

		assert_int_equal(way ? roost_kernel_redeploy(p.ctx, &bad[way / 2], NULL)
				     : roost_kernel_deploy(p.ctx, &bad[0], NULL),
				 0);
		assert_int_equal(roost_call_begin(c, BAD_OP, 0, NULL, 0, 0, &id), 0);
		if (way & 1) {
			do {
				nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
				n = roost_kernel_list(p.ctx, info, 4);
			} while (info[1].state != ROOST_KERNEL_DISABLED);
			assert_in_range(n, 2, 3);
		}
		assert_int_equal(roost_call_wait(c, id, LONG, &r), 0);
		assert_int_equal(r.status, expected);
		roost_call_end(c, id);
		assert_int_equal(roost_call(c, BAD_OP, 0, NULL, 0, NULL, 0, LONG, &r), 0);
		assert_int_equal(r.status, ROOST_RPC_DISABLED);
		/* The NIC, this QP and the other QP continue. */
		assert_int_equal(count(&p, c, 0).sum, 2 * way + 1);
		assert_int_equal(count(&p, c, 0).sum, 2 * way + 2);
		assert_int_equal(count(&p, other, 1).sum, way + 1);
		roost_kernel_list(p.ctx, info, 4);
		assert_int_equal(info[1].state, ROOST_KERNEL_DISABLED);
		assert_string_equal(info[1].name, bad[way / 2].name);
	}
	assert_int_equal(info[1].faults, 2);
	assert_int_equal(info[1].stuck, 4);
	assert_int_equal(info[1].disabled, 6);
	roost_caller_destroy(c);
	roost_caller_destroy(other);
	pair_close(&p);
}

/* ---- the watching thread ---- */

/* Returns how often the thread that watches kernels has slept; -1: there is none. */
static long naps(void)
{
	struct dirent **tasks;
	/*
	 * Not opendir(3): its descriptor may have the number of one that the service thread has
	 * closed by a raw system call. TSan confuses the two.
	 */
	int num = scandir("/proc/self/task", &tasks, NULL, NULL);
	long n = -1;

	assert_true(num > 0);
	for (int i = 0; i < num; i++) {
		char path[300], line[128];
		bool watch = false;
		FILE *f;

		snprintf(path, sizeof(path), "/proc/self/task/%s/status", tasks[i]->d_name);
		free(tasks[i]);
		f = fopen(path, "r");
		while (f && fgets(line, sizeof(line), f)) {
			watch |= !strcmp(line, "Name:\troost-watch\n");
			if (watch)
				sscanf(line, "voluntary_ctxt_switches: %ld", &n);
		}
		if (f)
			fclose(f);
	}
	free(tasks);
	return n;
}

/*
 * The watching thread sleeps when no kernel has run for a while, and does not wake by itself. It
 * works when a kernel does not return.
 */
static void the_watch_sleeps(void **state)
{
	struct roost_caller *c;
	struct roost_result r;
	struct pair p;
	long before;

	take_back_handlers();
	pair_open_rpc(&p);
	c = roost_caller_create(p.qp[0], 1, 64);
	memset(p.buf[1], 0, 64);
	assert_int_equal(roost_kernel_deploy(p.ctx, &tallies[0], NULL), 0);
	assert_int_equal(count(&p, c, 0).sum, 1);
	while (naps() < 0) /* the thread has not set its name yet */
		settle(p.cq[0]);
	for (unsigned tries = 0;; tries++) {
		before = naps();
		nanosleep(&(struct timespec){.tv_nsec = 700000000}, NULL);
		if (naps() == before)
			break;
		assert_true(tries < 50);
	}
	assert_int_equal(roost_kernel_deploy(p.ctx, &bad[1], NULL), 0);
	assert_int_equal(roost_call(c, BAD_OP, 0, NULL, 0, NULL, 0, LONG, &r), 0);
	assert_int_equal(r.status, ROOST_RPC_STUCK);
	assert_true(naps() > before);
	roost_caller_destroy(c);
	pair_close(&p);
}

/* ---- grants and quotas ---- */

/* Copies 8 bytes of the first granted region to the address in its parameters. */
static enum roost_next fetch(struct roost_call *c)
{
	ROOST_STEPS(c);
	if (c->num_grants < 1 || c->grants[0].len < 8)
		ROOST_FAIL(c, ROOST_RPC_MISS);
	ROOST_REPLY_FROM_IN(c, 1, c->grants[0].addr + c->grants[0].len - 8, 8);
	ROOST_STEPS_END;
}

static void regions_of_the_node(void **state)
{
	static const struct roost_kernel k = {.abi = ROOST_KERNEL_ABI,
					      .name = "fetch",
					      .version = 1,
					      .op = 0x4000,
					      .params = fetch};
	static uint64_t memory[512];
	struct roost_caller *c;
	struct roost_result r;
	struct ibv_mr *mr;
	unsigned number = 0;
	uint64_t got = 0;
	struct pair p;

	pair_open_rpc(&p);
	c = roost_caller_create(p.qp[0], 1, 64);
	memory[511] = 0x1234567890;
	mr = ibv_reg_mr(p.pd, memory, sizeof(memory), 0); /* no rights for peers */
	assert_non_null(mr);
	assert_int_equal(roost_kernel_grant(p.ctx, 0x4000, mr, IBV_ACCESS_REMOTE_READ, &number),
			 ENOENT);
	assert_int_equal(roost_kernel_deploy(p.ctx, &k, NULL), 0);
	assert_int_equal(roost_call(c, 0x4000, 0, NULL, 0, &got, 8, LONG, &r), 0);
	assert_int_equal(r.status, ROOST_RPC_MISS);
	assert_int_equal(roost_kernel_grant(p.ctx, 0x4000, mr, 0, &number), EINVAL);
	assert_int_equal(roost_kernel_grant(p.ctx, 0x4000, mr, IBV_ACCESS_LOCAL_WRITE, &number),
			 EINVAL);
	assert_int_equal(roost_kernel_grant(p.ctx, 0x4000, mr, IBV_ACCESS_REMOTE_WRITE, &number),
			 EINVAL);
	assert_int_equal(roost_kernel_grant(p.ctx, 0x4000, mr, IBV_ACCESS_REMOTE_READ, &number), 0);
	assert_int_equal(number, 1);
	assert_int_equal(roost_call(c, 0x4000, 0, NULL, 0, &got, 8, LONG, &r), 0);
	assert_int_equal(r.status, ROOST_RPC_OK);
	assert_int_equal(got, 0x1234567890);
	assert_int_equal(roost_kernel_revoke(p.ctx, 0x4000, 2), ENOENT);
	assert_int_equal(roost_kernel_revoke(p.ctx, 0x4000, 1), 0);
	assert_int_equal(roost_call(c, 0x4000, 0, NULL, 0, &got, 8, LONG, &r), 0);
	assert_int_equal(r.status, ROOST_RPC_MISS);
	assert_int_equal(roost_kernel_grant(p.ctx, 0x4000, mr, IBV_ACCESS_REMOTE_READ, &number), 0);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	assert_int_equal(roost_call(c, 0x4000, 0, NULL, 0, &got, 8, LONG, &r), 0);
	assert_int_equal(r.status, ROOST_RPC_ACCESS);
	roost_caller_destroy(c);
	pair_close(&p);
}

static void quotas(void **state)
{
	struct roost_caller *c;
	struct pair p, plain;

	pair_open_rpc(&p);
	c = roost_caller_create(p.qp[0], 1, 64);
	memset(p.buf[1], 0, 64);
	assert_int_equal(roost_kernel_deploy(p.ctx, &tallies[0], NULL), 0);
	/* One call and one step a turn: calls only take longer. */
	assert_int_equal(roost_qp_set_quota(p.qp[1], 1, 1), 0);
	for (unsigned i = 1; i < 50; i++)
		assert_int_equal(count(&p, c, 0).sum, i);
	roost_caller_destroy(c);
	pair_close(&p);
	pair_open(&plain, NULL);
	assert_int_equal(roost_qp_set_quota(plain.qp[1], 1, 1), EINVAL);
	pair_close(&plain);
}

static int install_handlers(void **state)
{
	struct pair p;

	pair_open_rpc(&p);
	pair_close(&p);
	keep_handlers();
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(out_of_files),	       cmocka_unit_test(a_thousand_replacements),
		cmocka_unit_test(bad_kernels),	       cmocka_unit_test(the_watch_sleeps),
		cmocka_unit_test(regions_of_the_node), cmocka_unit_test(quotas),
	};

	return cmocka_run_group_tests(tests, install_handlers, NULL);
}
