/* SPDX-License-Identifier: BSD-2-Clause */
/* The process that has the table of `roost demo`, and makes a chain for each client that calls. */
#include "cli/demo/office.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "cli/demo/offload.h"

#define CLIENTS	  8u
#define DATA_LEN  1024u /* bytes of data of a client's chain */
#define TABLE_LEN (OFFICE_BUCKETS * sizeof(struct roost_bucket))
#define LOCAL	  IBV_ACCESS_LOCAL_WRITE
#define REMOTE	  (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)

/* The objects of one client. */
struct client {
	struct ibv_cq *receives, *quiet;
	struct ibv_qp *conn, *loop, *starter;
	struct ibv_mr *rings[2];
};

/* The kernel takes one call at a time: the client of another call repeats it. */
enum state { FREE, CLAIMED, ASKED, READY };

struct demo_office {
	const struct perf_nic *nic;
	uint8_t *mem, *data;
	size_t mem_len;
	struct ibv_mr *table, *chains; /* no remote access to the table */
	uint32_t value_len;
	struct client client[CLIENTS];
	unsigned clients;
	pthread_t thread;
	bool has_thread, deployed;
	atomic_bool stop;
	_Atomic(enum state) state;
	uint64_t owner; /* owner of the call; `state` tells whether `ask` and `reply` are valid */
	struct office_ask ask;
	struct office_reply reply;
};

/* ---- the kernel, in the NIC's thread ---- */

static enum roost_next called(struct roost_call *c)
{
	struct office_reply *r = c->state;
	struct demo_office *o = c->self;
	enum state is = atomic_load(&o->state);

	memset(r, 0, sizeof(*r));
	if (c->params_len != sizeof(o->ask))
		return roost_reply(c, ROOST_RPC_BAD_PARAMS, NULL, 0);
	if (is == READY && o->owner == c->owner) {
		*r = o->reply;
		atomic_store(&o->state, FREE);
	} else if (is == FREE && atomic_compare_exchange_strong(&o->state, &is, CLAIMED)) {
		o->owner = c->owner;
		memcpy(&o->ask, c->params, sizeof(o->ask));
		atomic_store(&o->state, ASKED);
	}
	return roost_reply(c, ROOST_RPC_OK, r, sizeof(*r));
}

static const struct roost_kernel kernel = {.abi = ROOST_KERNEL_ABI,
					   .version = 1,
					   .name = "offload",
					   .op = OFFICE_OP,
					   .state_size = sizeof(struct office_reply),
					   .params = called};

/* ---- a client's queue pairs ---- */

static struct ibv_qp *make_queue(const struct demo_office *o, const struct client *p,
				 struct ibv_qp_cap cap, const struct roost_chain_attr *attr)
{
	struct ibv_qp_init_attr init = {
		.send_cq = p->quiet, .recv_cq = p->receives, .cap = cap, .qp_type = IBV_QPT_RC};
	struct ibv_qp *qp = ibv_create_qp(o->nic->pd, &init);
	int rc = qp ? roost_qp_set_chain(qp, attr) : 0;

	if (rc) {
		ibv_destroy_qp(qp);
		errno = rc;
		return NULL;
	}
	return qp;
}

static int make_queues(const struct demo_office *o, struct client *p)
{
	struct roost_chain_attr attr = {.managed_send = true, .managed_recv = true};

	p->receives = roost_create_counting_cq(o->nic->ctx, 0);
	p->quiet = roost_create_counting_cq(o->nic->ctx, 0);
	if (!p->receives || !p->quiet)
		return errno;
	p->conn = make_queue(o, p,
			     (struct ibv_qp_cap){.max_send_wr = ROOST_LOOKUP_ANSWER,
						 .max_send_sge = 2,
						 .max_recv_wr = 1,
						 .max_recv_sge = ROOST_LOOKUP_SGES},
			     &attr);
	attr = (struct roost_chain_attr){.managed_send = true, .watch = {p->receives}};
	p->loop = make_queue(
		o, p, (struct ibv_qp_cap){.max_send_wr = ROOST_LOOKUP_LOOP(2), .max_send_sge = 1},
		&attr);
	p->starter = make_queue(o, p, (struct ibv_qp_cap){.max_send_wr = 2, .max_send_sge = 1},
				&(struct roost_chain_attr){0});
	if (!p->conn || !p->loop || !p->starter)
		return errno;
	p->rings[0] = roost_reg_queue_mr(p->conn, ROOST_SEND_QUEUE, LOCAL | REMOTE);
	p->rings[1] = roost_reg_queue_mr(p->loop, ROOST_SEND_QUEUE, LOCAL | REMOTE);
	return p->rings[0] && p->rings[1] ? 0 : errno;
}

static struct roost_chain_queue image_of(struct ibv_qp *qp, const struct ibv_mr *ring,
					 uint32_t depth)
{
	const uint32_t stride = roost_qp_stride(qp, ROOST_SEND_QUEUE);

	return (struct roost_chain_queue){.ring = {(uintptr_t)ring->addr, ring->rkey},
					  .qp_num = qp->qp_num,
					  .depth = depth,
					  .stride = stride,
					  .image = calloc(depth, stride)};
}

static int start(const struct client *p, const struct roost_chain_queue *loop,
		 const struct roost_chain_queue *answer, const struct roost_sge *sge, uint32_t n)
{
	struct roost_enable_wr go = {
		.qp_num = p->conn->qp_num, .queue = ROOST_RECV_QUEUE, .count = 1, .relative = true};
	struct ibv_sge list[ROOST_LOOKUP_SGES];
	struct ibv_recv_wr wr = {.sg_list = list, .num_sge = (int)n}, *bad;
	int rc = loop->error || answer->error ? EINVAL : 0;

	for (uint32_t i = 0; i < n; i++)
		list[i] = (struct ibv_sge){sge[i].addr, sge[i].len, sge[i].lkey};
	if (!rc)
		rc = roost_post_wqes(p->loop, loop->image, loop->depth, 0);
	if (!rc)
		rc = roost_post_wqes(p->conn, answer->image, answer->depth, 0);
	if (!rc)
		rc = ibv_post_recv(p->conn, &wr, &bad);
	if (!rc)
		rc = roost_post_enable(p->starter, &go);
	go = (struct roost_enable_wr){.qp_num = p->loop->qp_num,
				      .queue = ROOST_SEND_QUEUE,
				      .count = loop->depth,
				      .relative = true};
	return rc ? rc : roost_post_enable(p->starter, &go);
}

/* Makes the requested offload. Returns an errno. */
static int make_client(struct demo_office *o, struct client *p)
{
	const size_t at = o->clients * (size_t)DATA_LEN;
	struct roost_chain_data data = {.at = {(uintptr_t)o->data + at, o->chains->rkey},
					.image = o->data + at,
					.size = DATA_LEN};
	struct roost_chain_queue loop = {.image = NULL}, answer = {.image = NULL};
	struct roost_lookup l = {.loop = {.queue = &loop, .data = &data},
				 .answer = {.queue = &answer, .data = &data},
				 .buckets = 2,
				 .table_key = o->table->lkey,
				 .value_len = o->value_len,
				 .reply = {o->ask.reply, o->ask.reply_key}};
	struct roost_sge sge[ROOST_LOOKUP_SGES];
	uint32_t n = 0;
	int rc = make_queues(o, p);

	if (!rc) /* the client may only SEND */
		rc = perf_nic_connect(p->conn, o->ask.qp_num, o->ask.gid, 0);
	if (!rc)
		rc = roost_qp_connect_self(p->loop, 1, 0);
	if (!rc)
		rc = roost_qp_connect_self(p->starter, 1, 0);
	if (rc)
		return rc;
	loop = image_of(p->loop, p->rings[1], ROOST_LOOKUP_LOOP(2));
	answer = image_of(p->conn, p->rings[0], ROOST_LOOKUP_ANSWER);
	if (loop.image && answer.image) {
		roost_lookup_emit(&l, sge, &n);
		rc = start(p, &loop, &answer, sge, n);
	} else {
		rc = ENOMEM;
	}
	free(loop.image);
	free(answer.image);
	return rc;
}

static void free_client(struct client *p)
{
	for (unsigned i = 0; i < 2; i++)
		if (p->rings[i])
			ibv_dereg_mr(p->rings[i]);
	if (p->starter)
		ibv_destroy_qp(p->starter);
	if (p->loop)
		ibv_destroy_qp(p->loop);
	if (p->conn)
		ibv_destroy_qp(p->conn);
	if (p->receives)
		ibv_destroy_cq(p->receives);
	if (p->quiet)
		ibv_destroy_cq(p->quiet);
}

/* ---- the thread ---- */

static void *work(void *arg)
{
	struct demo_office *o = arg;

	while (!atomic_load(&o->stop)) {
		nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
		if (atomic_load(&o->state) != ASKED)
			continue;
		o->reply = (struct office_reply){.value_len = o->value_len,
						 .table = (uintptr_t)o->mem};
		memcpy(o->reply.gid, &o->nic->gid, sizeof(o->reply.gid));
		if (o->clients < CLIENTS) {
			struct client *p = &o->client[o->clients];

			if (make_client(o, p) == 0)
				o->reply.qp_num = p->conn->qp_num;
			o->clients++;
		}
		atomic_store(&o->state, READY);
	}
	return NULL;
}

static int fill(struct demo_office *o, uint64_t keys, const uint8_t *values)
{
	struct roost_bucket *table = (struct roost_bucket *)o->mem;
	uint8_t *value = o->mem + TABLE_LEN;

	memcpy(value, values, keys * o->value_len);
	for (uint64_t key = 1; key <= keys; key++, value += o->value_len) {
		struct roost_bucket *b = &table[office_bucket(key, 0)];

		if (b->key)
			b = &table[office_bucket(key, 1)];
		if (b->key)
			return ENOSPC;
		*b = (struct roost_bucket){ROOST_OPERAND(key), (uintptr_t)value};
	}
	return 0;
}

struct demo_office *demo_office_open(const struct perf_nic *nic, uint64_t keys,
				     const uint8_t *values, uint32_t len, char *err)
{
	struct demo_office *o = calloc(1, sizeof(*o));
	int rc = o ? 0 : ENOMEM;

	if (!rc) {
		o->nic = nic;
		o->value_len = len;
		o->mem_len = TABLE_LEN + keys * len;
		o->mem = mem_alloc_pages(o->mem_len);
		o->data = mem_alloc_pages((size_t)CLIENTS * DATA_LEN);
		rc = o->mem && o->data ? fill(o, keys, values) : ENOMEM;
	}
	if (!rc) {
		o->table = ibv_reg_mr(nic->pd, o->mem, o->mem_len, 0);
		o->chains =
			ibv_reg_mr(nic->pd, o->data, (size_t)CLIENTS * DATA_LEN, LOCAL | REMOTE);
		rc = o->table && o->chains ? 0 : errno;
	}
	if (!rc)
		rc = roost_kernel_deploy(nic->ctx, &kernel, o);
	if (!rc) {
		o->deployed = true;
		rc = pthread_create(&o->thread, NULL, work, o);
		o->has_thread = !rc;
	}
	if (!rc)
		return o;
	snprintf(err, PERF_ERR_LEN, "can't offer chains: %s", strerror(rc));
	demo_office_close(o);
	return NULL;
}

void demo_office_close(struct demo_office *o)
{
	if (!o)
		return;
	if (o->deployed)
		roost_kernel_undeploy(o->nic->ctx, OFFICE_OP);
	atomic_store(&o->stop, true);
	if (o->has_thread)
		pthread_join(o->thread, NULL);
	for (unsigned i = 0; i < o->clients; i++)
		free_client(&o->client[i]);
	if (o->table)
		ibv_dereg_mr(o->table);
	if (o->chains)
		ibv_dereg_mr(o->chains);
	if (o->mem)
		mem_free_pages(o->mem, o->mem_len);
	if (o->data)
		mem_free_pages(o->data, (size_t)CLIENTS * DATA_LEN);
	free(o);
}
