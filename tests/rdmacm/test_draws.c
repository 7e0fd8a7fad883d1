/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The first numbers of each process are its own. 100 processes are forked from a process that has
 * drawn numbers, and from one that has not. Each opens the device, one after the other, at one
 * address. Their PSNs, communication ids, ports, QP numbers and keys all differ: a process's
 * numbers must not reveal those of the next process.
 */
#include "fixture.h"

#include <sys/wait.h>
#include <unistd.h>

#include "base/secret.h"
#include "cm/core.h"
#include "rdmacm/rdmacm.h"

#define PROCESSES 100

struct drawn {
	uint32_t psn[3]; /* of the process's first ids */
	uint16_t port;
	uint32_t qpn, key;
	uint32_t id; /* for connection management */
};

static struct rdma_cm_id *make_id(void)
{
	struct rdma_cm_id *id;

	assert_int_equal(rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP), 0);
	return id;
}

/* Asks this process itself for a connection to a service that is not there. */
static uint32_t connection_id(void)
{
	struct rdma_event_channel *ch = channel();
	struct rdma_cm_id *id = resolved(ch, RDMA_PS_TCP, 1);
	struct rdma_conn_param param = {.retry_count = 7};
	uint32_t drawn;

	make_qp(id, IBV_QPT_RC);
	assert_int_equal(rdma_connect(id, &param), 0);
	drawn = rdmacm_id(id)->conn->local_id;
	rdma_destroy_qp(id);
	rdma_destroy_id(id);
	rdma_destroy_event_channel(ch);
	return drawn;
}

static void draw(struct drawn *d)
{
	struct ibv_qp_init_attr attr = {.cap = {1, 1, 1, 1, 0}, .qp_type = IBV_QPT_RC};
	static char memory[64];
	union address at = ours(0);
	struct rdma_cm_id *id[3];
	struct ibv_mr *mr;

	for (int i = 0; i < 3; i++) {
		id[i] = make_id();
		d->psn[i] = rdmacm_id(id[i])->psn;
	}
	assert_int_equal(rdma_bind_addr(id[0], &at.sa), 0);
	d->port = be16toh(rdma_get_src_port(id[0]));
	assert_int_equal(rdma_create_qp(id[0], NULL, &attr), 0);
	d->qpn = id[0]->qp->qp_num;
	mr = ibv_reg_mr(id[0]->pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE);
	assert_non_null(mr);
	d->key = mr->rkey;
	d->id = connection_id();
	ibv_dereg_mr(mr);
	rdma_destroy_qp(id[0]);
	for (int i = 0; i < 3; i++)
		rdma_destroy_id(id[i]);
}

static void processes(struct drawn *all)
{
	for (int i = 0; i < PROCESSES; i++) {
		int pipes[2], status;
		pid_t pid;

		assert_int_equal(pipe(pipes), 0);
		pid = fork();
		assert_true(pid >= 0);
		if (!pid) {
			struct drawn d = {0};

			draw(&d);
			_exit(write(pipes[1], &d, sizeof(d)) != sizeof(d));
		}
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_int_equal(status, 0);
		assert_int_equal(read(pipes[0], &all[i], sizeof(all[i])), sizeof(all[i]));
		close(pipes[0]);
		close(pipes[1]);
	}
}

/*
 * Pairs may be equal by chance: with 2^24 numbers three pairs once in a million runs, with the
 * 28,232 ports seven pairs once in a billion.
 */
static void differ(const uint32_t *v, unsigned n, unsigned most, const char *what)
{
	unsigned alike = 0;

	for (unsigned i = 0; i < n; i++)
		for (unsigned k = 0; k < i; k++)
			alike += v[i] == v[k];
	if (alike > most)
		fail_msg("%s: %u pairs are alike", what, alike);
}

static void check(void)
{
	static struct drawn all[PROCESSES];
	uint32_t v[3 * PROCESSES];

	processes(all);
	for (unsigned i = 0; i < 3 * PROCESSES; i++)
		v[i] = all[i / 3].psn[i % 3];
	differ(v, 3 * PROCESSES, 2, "first PSNs");
	for (unsigned i = 0; i < PROCESSES; i++)
		v[i] = all[i].qpn;
	differ(v, PROCESSES, 2, "QP numbers");
	for (unsigned i = 0; i < PROCESSES; i++)
		v[i] = all[i].key;
	differ(v, PROCESSES, 2, "keys");
	for (unsigned i = 0; i < PROCESSES; i++)
		v[i] = all[i].id;
	differ(v, PROCESSES, 2, "ids");
	for (unsigned i = 0; i < PROCESSES; i++)
		v[i] = all[i].port;
	differ(v, PROCESSES, 6, "ports");
}

static void fresh(void **state)
{
	check();
}

/* The parent has seeded its generator. Each child must seed its own. */
static void inherited(void **state)
{
	struct rdma_cm_id *id = make_id();

	check();
	rdma_destroy_id(id);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(fresh),
		cmocka_unit_test(inherited),
	};

	choose_port(false);
	return RUN(tests);
}
