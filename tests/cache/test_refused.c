/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A server of a cache that lacks a resource for a client refuses this client, and serves the next
 * one. Each call of the server that needs a resource fails once, and then its limit of descriptors
 * is reached.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <rdma/rdma_cma.h>
#include <roost/chain_verbs.h>

#include "client.h"
#include "server.h"

#define SLOT	1024u
#define SERVICE "7477"
#define LIMIT	120 /* seconds; only a failure takes so long */

static const struct roost_cache_shape shape = {
	.seed = 99, .log_buckets = 8, .key_bits = 48, .max_item = SLOT};

/* The calls that can fail. */
enum call {
	NO_CALL,
	COUNTING_CQ,
	CM_QP,
	SET_CHAIN,
	LOOP_QP,
	CONNECT_SELF,
	RING,
	POST,
	ENABLE,
};

/* What fails next, in memory of both processes, and after how many calls of it. */
static struct {
	_Atomic int call, after;
} * next_failure;

static bool fails(enum call call)
{
	if (next_failure->call != (int)call || next_failure->after-- > 0)
		return false;
	next_failure->call = NO_CALL;
	errno = ENOMEM;
	return true;
}

#define WRAP(call, failed, type, name, params, args)                                               \
	type __real_##name params;                                                                 \
	type __wrap_##name params;                                                                 \
	type __wrap_##name params                                                                  \
	{                                                                                          \
		return fails(call) ? failed : __real_##name args;                                  \
	}

WRAP(COUNTING_CQ, NULL, struct ibv_cq *, roost_create_counting_cq,
     (struct ibv_context * ctx, int vector), (ctx, vector))
WRAP(CM_QP, -1, int, rdma_create_qp,
     (struct rdma_cm_id * id, struct ibv_pd *pd, struct ibv_qp_init_attr *attr), (id, pd, attr))
WRAP(SET_CHAIN, ENOMEM, int, roost_qp_set_chain,
     (struct ibv_qp * qp, const struct roost_chain_attr *attr), (qp, attr))
WRAP(LOOP_QP, NULL, struct ibv_qp *, ibv_create_qp,
     (struct ibv_pd * pd, struct ibv_qp_init_attr *attr), (pd, attr))
WRAP(CONNECT_SELF, ENOMEM, int, roost_qp_connect_self, (struct ibv_qp * qp, uint8_t port, int gid),
     (qp, port, gid))
WRAP(RING, NULL, struct ibv_mr *, roost_reg_queue_mr,
     (struct ibv_qp * qp, enum roost_queue queue, int access), (qp, queue, access))
WRAP(POST, ENOMEM, int, roost_post_wqes,
     (struct ibv_qp * qp, const void *wqes, uint32_t n, uint64_t id), (qp, wqes, n, id))
WRAP(ENABLE, ENOMEM, int, roost_post_enable, (struct ibv_qp * qp, const struct roost_enable_wr *wr),
     (qp, wr))

/* Addresses of this process's own: 1 is the server's, 2 the client's. */
static char address[2][32];

static void choose_port(int side)
{
	const char *kind = getenv("CACHE_TEST_PORT");
	char port[64];

	snprintf(port, sizeof(port), "%s:%s", kind ? kind : "udp", address[side]);
	setenv("ROOST_PORT", port, 1);
}

static int serve(int ready)
{
	struct roost_hull *hull = roost_hull_create();

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (!hull)
		return 2;
	cache_serve(hull, &shape, 2ull * SLOT * 16, address[0], SERVICE);
	if (write(ready, "", 1) != 1)
		return 3;
	for (;;)
		pause();
}

static pid_t start_server(void)
{
	int ready[2];
	char byte;
	pid_t pid;

	for (int i = 0; i < 2; i++)
		snprintf(address[i], sizeof(address[i]), "127.%d.%d.%d", 2 + (getpid() >> 8) % 250,
			 getpid() & 0xff, 3 + i);
	next_failure = mmap(NULL, sizeof(*next_failure), PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(next_failure != MAP_FAILED);
	assert_int_equal(pipe(ready), 0);
	pid = fork();
	if (pid == 0) {
		choose_port(0);
		_exit(serve(ready[1]));
	}
	choose_port(1);
	close(ready[1]);
	assert_int_equal(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	return pid;
}

/* The answer shows that the server has made all calls for the client. */
static void is_answered(void)
{
	struct cache_client *c = cache_connect(address[0], SERVICE, SLOT);
	const struct roost_cache_item *item;

	assert_non_null(c);
	assert_int_equal(cache_get(c, "key", 3, &item), 0); /* there is none */
	cache_close(c);
}

/* Lets a call of the server for a client fail. */
static const struct failure {
	enum call call;
	int after;     /* so many calls that succeed */
	bool accepted; /* the client is connected already, and loses the connection */
} failures[] = {
	{COUNTING_CQ, 0, false}, {CM_QP, 0, false}, {SET_CHAIN, 0, false}, {SET_CHAIN, 1, false},
	{LOOP_QP, 0, false},	 {RING, 0, false},  {RING, 1, false},	   {CONNECT_SELF, 0, false},
	{POST, 0, false},	 {POST, 1, true},   {ENABLE, 0, true},	   {ENABLE, 1, true},
};

static void loses(const struct failure *f)
{
	struct cache_client *c;

	next_failure->after = f->after;
	next_failure->call = (int)f->call;
	c = cache_connect(address[0], SERVICE, SLOT);
	if (!f->accepted)
		assert_null(c);
	cache_close(c);
	is_answered();
	assert_int_equal(next_failure->call, NO_CALL); /* it failed */
}

static void a_client_that_costs_too_much_is_refused(void **state)
{
	pid_t server = start_server();
	struct rlimit limit, low;
	int status;

	alarm(LIMIT);
	is_answered();
	for (unsigned i = 0; i < sizeof(failures) / sizeof(failures[0]); i++)
		loses(&failures[i]);
	assert_int_equal(prlimit(server, RLIMIT_NOFILE, NULL, &limit), 0);
	low = (struct rlimit){.rlim_cur = 3, .rlim_max = limit.rlim_max};
	assert_int_equal(prlimit(server, RLIMIT_NOFILE, &low, NULL), 0);
	assert_null(cache_connect(address[0], SERVICE, SLOT));
	assert_int_equal(prlimit(server, RLIMIT_NOFILE, &limit, NULL), 0);
	is_answered();
	assert_int_equal(waitpid(server, &status, WNOHANG), 0);
	assert_int_equal(kill(server, SIGKILL), 0);
	assert_int_equal(waitpid(server, &status, 0), server);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_client_that_costs_too_much_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
