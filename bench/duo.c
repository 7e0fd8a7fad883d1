/* SPDX-License-Identifier: BSD-2-Clause */
#include "duo.h"

#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"

#define PSN	   77u
#define FIGURES	   16u
#define TIMEOUT_NS 60000000000u /* ns until the other side counts as dead */

enum { CLIENT, SERVER };

struct joint {
	union ibv_gid gid;
	uint64_t mem;
	uint32_t qpn, rkey;
};

struct duo_shared {
	struct joint joint[2][1 + DUO_LINKS];
	_Atomic unsigned ready[2];	      /* the last step that each side has reached */
	_Alignas(128) _Atomic unsigned order; /* 0: drive the NIC */
	_Alignas(128) _Atomic unsigned doing;
	_Alignas(128) _Atomic bool over;
	_Alignas(128) _Atomic uint64_t figure[FIGURES];
};

void duo_fail(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	fprintf(stderr, "bench-kernels: ");
	vfprintf(stderr, fmt, ap);
	fputc('\n', stderr);
	va_end(ap);
	_exit(1);
}

void duo_pin(unsigned side)
{
	cpu_set_t allowed, one;
	unsigned seen = 0;

	if (sched_getaffinity(0, sizeof(allowed), &allowed) || CPU_COUNT(&allowed) < 2)
		return;
	for (int c = 0; c < CPU_SETSIZE; c++) {
		if (!CPU_ISSET(c, &allowed) || seen++ != side)
			continue;
		CPU_ZERO(&one);
		CPU_SET(c, &one);
		sched_setaffinity(0, sizeof(one), &one);
		return;
	}
}

static void open_nic(struct duo *d, uint64_t delay_ns)
{
	struct ibv_device **list;
	char spec[64] = "shm";

	if (delay_ns)
		snprintf(spec, sizeof(spec), "shm,delay=%lluns", (unsigned long long)delay_ns);
	setenv("ROOST_PORT", spec, 1);
	list = ibv_get_device_list(NULL);
	d->ctx = list && *list ? ibv_open_device(*list) : NULL;
	if (!d->ctx)
		duo_fail("can't open the device on port %s", spec);
	ibv_free_device_list(list);
	d->pd = ibv_alloc_pd(d->ctx);
	d->cq = ibv_create_cq(d->ctx, 2 * DUO_DEPTH, NULL, NULL, 0);
	if (!d->pd || !d->cq)
		duo_fail("can't make a protection domain or a completion queue");
}

static void make_memory(struct duo *d, size_t len)
{
	d->len = len;
	d->mem = mem_alloc_pages(len);
	if (!d->mem)
		duo_fail("no memory for %zu MiB", len >> 20);
	memset(d->mem, 0, len);
	d->mr = ibv_reg_mr(d->pd, d->mem, len,
			   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
				   IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
	if (!d->mr)
		duo_fail("can't register %zu MiB", len >> 20);
}

static struct ibv_qp *make_qp(struct duo *d)
{
	struct ibv_qp_init_attr init = {
		.send_cq = d->cq,
		.recv_cq = d->cq,
		.qp_type = IBV_QPT_RC,
		.cap = {DUO_DEPTH, 1, 1, 1, 256},
	};
	struct ibv_qp *qp = ibv_create_qp(d->pd, &init);

	if (!qp)
		duo_fail("can't make a queue pair");
	return qp;
}

static void init_qp(struct duo *d, struct ibv_qp *qp, struct joint *j)
{
	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags =
			IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
	};

	if (ibv_modify_qp(qp, &a,
			  IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
		duo_fail("queue pair to INIT");
	*j = (struct joint){.mem = (uintptr_t)d->mem, .qpn = qp->qp_num, .rkey = d->mr->rkey};
	if (ibv_query_gid(d->ctx, 1, 0, &j->gid))
		duo_fail("the port has no address");
}

static void make_qps(struct duo *d, const struct duo_plan *plan, unsigned me)
{
	d->qp = make_qp(d);
	if (roost_qp_enable_rpc(d->qp))
		duo_fail("can't make a queue pair with the op-codes of calls");
	init_qp(d, d->qp, &d->shared->joint[me][0]);
	for (unsigned i = 0; i < plan->links; i++) {
		d->link[i] = me == SERVER ? plan->make_link(d, i) : make_qp(d);
		init_qp(d, d->link[i], &d->shared->joint[me][1 + i]);
	}
}

static void join(struct ibv_qp *qp, const struct joint *peer)
{
	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_4096,
		.dest_qp_num = peer->qpn,
		.rq_psn = PSN,
		.max_dest_rd_atomic = 16,
		.min_rnr_timer = 1,
		.ah_attr = {.is_global = 1,
			    .port_num = 1,
			    .grh = {.dgid = peer->gid, .hop_limit = 64}},
	};

	if (ibv_modify_qp(qp, &a,
			  IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				  IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER))
		duo_fail("queue pair to RTR");
	a = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS,
				 .timeout = 18,
				 .retry_cnt = 7,
				 .rnr_retry = 7,
				 .sq_psn = PSN,
				 .max_rd_atomic = 16};
	if (ibv_modify_qp(qp, &a,
			  IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				  IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC))
		duo_fail("queue pair to RTS");
}

static void join_all(struct duo *d, const struct duo_plan *plan, const struct joint *peer)
{
	join(d->qp, &peer[0]);
	for (unsigned i = 0; i < plan->links; i++)
		join(d->link[i], &peer[1 + i]);
	d->remote = peer->mem;
	d->rkey = peer->rkey;
}

/* Waits until both sides have reached `step`. */
static void meet(struct duo *d, unsigned me, unsigned step)
{
	struct duo_shared *sh = d->shared;
	uint64_t start = duo_ns();

	atomic_store(&sh->ready[me], step);
	while (atomic_load(&sh->ready[!me]) < step) {
		if (duo_ns() - start > TIMEOUT_NS)
			duo_fail("the other side does not come");
		usleep(100);
	}
}

static void open_side(struct duo *d, const struct duo_plan *plan, unsigned me)
{
	duo_pin(me);
	open_nic(d, plan->delay_ns / 2);
	make_memory(d, me == SERVER ? plan->server_len : plan->client_len);
	if (me == SERVER && plan->build)
		plan->build(d);
	make_qps(d, plan, me);
	meet(d, me, 1);
	join_all(d, plan, d->shared->joint[!me]);
	if (me == SERVER && plan->joined)
		plan->joined(d);
	meet(d, me, 2);
}

static void serve(struct duo *d, const struct duo_plan *plan)
{
	struct duo_shared *sh = d->shared;

	open_side(d, plan, SERVER);
	while (!atomic_load_explicit(&sh->over, memory_order_relaxed)) {
		unsigned n = atomic_load_explicit(&sh->order, memory_order_acquire);

		duo_reap(d);
		if (plan->turn)
			plan->turn(d);
		if (!n)
			continue;
		atomic_store(&sh->doing, n);
		plan->phase(d, n);
		atomic_store(&sh->order, 0);
		atomic_store(&sh->doing, 0);
	}
	_exit(0);
}

void duo_run(const struct duo_plan *plan)
{
	pid_t parent = getpid(), pid;
	struct duo d = {0};
	int status = 0;

	d.shared = mmap(NULL, sizeof(*d.shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
			-1, 0);
	if (d.shared == MAP_FAILED)
		duo_fail("no memory");
	fflush(NULL);
	pid = fork();
	if (pid < 0)
		duo_fail("can't fork");
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(1);
		serve(&d, plan);
	}
	open_side(&d, plan, CLIENT);
	plan->client(&d);
	atomic_store(&d.shared->over, true);
	waitpid(pid, &status, 0);
	if (status)
		duo_fail("the server failed");
	/* The process ends next and frees everything else. */
}

void duo_phase(struct duo *c, unsigned n)
{
	uint64_t start = duo_ns();

	atomic_store(&c->shared->order, n);
	while (atomic_load(&c->shared->doing) != n) {
		if (duo_ns() - start > TIMEOUT_NS)
			duo_fail("the server does not begin");
		duo_reap(c);
		sched_yield(); /* the server's program may have only this core */
	}
}

void duo_phase_end(struct duo *c)
{
	uint64_t start = duo_ns();

	while (atomic_load(&c->shared->doing)) {
		if (duo_ns() - start > TIMEOUT_NS)
			duo_fail("the server does not come to an end");
		duo_reap(c);
		sched_yield();
	}
}

_Atomic uint64_t *duo_figure(struct duo *d, unsigned i)
{
	return &d->shared->figure[i % FIGURES];
}

void duo_post(struct duo *c, enum ibv_wr_opcode op, size_t at, uint64_t to, uint32_t len)
{
	struct ibv_sge sge = {(uintptr_t)c->mem + at, len, c->mr->lkey};
	struct ibv_send_wr wr = {
		.sg_list = &sge, .num_sge = 1, .opcode = op, .send_flags = IBV_SEND_SIGNALED};
	struct ibv_send_wr *bad;

	wr.wr.rdma.remote_addr = to;
	wr.wr.rdma.rkey = c->rkey;
	if (ibv_post_send(c->qp, &wr, &bad))
		duo_fail("can't post");
	c->outstanding++;
}

unsigned duo_reap(struct duo *c)
{
	struct ibv_wc wc[16];
	int n = ibv_poll_cq(c->cq, 16, wc);

	if (n < 0)
		duo_fail("the completion queue failed");
	for (int i = 0; i < n; i++)
		if (wc[i].status)
			duo_fail("a work request failed: %s", ibv_wc_status_str(wc[i].status));
	c->outstanding -= (unsigned)n;
	return (unsigned)n;
}

void duo_read(struct duo *c, size_t at, uint64_t from, uint32_t len)
{
	duo_post(c, IBV_WR_RDMA_READ, at, from, len);
	while (c->outstanding)
		duo_reap(c);
}
