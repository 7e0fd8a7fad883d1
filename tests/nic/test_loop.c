/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Communication between QPs of one NIC. QPs of one PU use no packets, and the results are the same
 * as with packets. QPs of two PUs use packets. Also a NIC with two ports.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "world.h"

#define T(timeout) (4096ull << (timeout))

static struct world W, *const w = &W;
static struct ep A, B, *const a = &A, *const b = &B;
static uint64_t packets;

static void count(void *ctx, uint64_t now, bool delivered, const struct pkt_addr *src,
		  const struct pkt_addr *dst, const uint8_t *bth, uint32_t len)
{
	packets += !delivered;
}

static void open_world(const struct world_shape *shape)
{
	world_init_shape(w, shape, 21, &(struct sim_params){.delay_ns = 1000});
	packets = 0;
	sim_set_tap(w->sim, count, NULL);
}

static void start(const struct ep_params *p)
{
	open_world(&(struct world_shape){.nics = 1});
	ep_init(a, w, 0, p);
	ep_init(b, w, 0, p);
	ep_connect(a, b);
}

static void end(void)
{
	ep_fini(a);
	ep_fini(b);
	world_fini(w);
}

static void no_packets(void)
{
	assert_int_equal(packets, 0);
}

static void done(uint64_t wr_id, unsigned status)
{
	struct roost_cqe c;

	assert_true(ep_wait_send(a, &c, 1000 * SEC));
	assert_int_equal(c.wr_id, wr_id);
	assert_int_equal(c.status, status);
}

/* Every operation at sizes around a turn of the loop-back (64 KiB), from and to several pieces. */
static void operations(struct ep *x, struct ep *y, uint32_t n)
{
	uint32_t half = 300000, cut = n / 3;
	struct roost_sge s[2];
	struct roost_cqe c;
	struct wr wr;

	for (uint32_t i = 0; i < n; i++)
		x->mem[i] = (uint8_t)(i * 13 + n);
	memset(y->mem, 0, n + 1);
	wr = wr_rdma(ROOST_OP_WRITE, x, 0, n, y, 0);
	wr.sge[0].len = cut;
	wr.sge[1] = ep_sge(x, cut, n - cut);
	wr.num_sge = 2;
	ep_post(x, &wr);
	assert_true(ep_wait_send(x, &c, SEC));
	assert_int_equal(c.status, NIC_WC_SUCCESS);
	assert_memory_equal(x->mem, y->mem, n);
	assert_int_equal(y->mem[n], 0);
	memset(x->mem + half, 0xee, n + 1);
	wr = wr_rdma(ROOST_OP_READ, x, half, n, y, 0);
	wr.sge[0].len = cut;
	wr.sge[1] = ep_sge(x, half + cut, n - cut);
	wr.num_sge = 2;
	ep_post(x, &wr);
	assert_true(ep_wait_send(x, &c, SEC));
	assert_int_equal(c.status, NIC_WC_SUCCESS);
	assert_int_equal(c.opcode, NIC_WC_READ);
	assert_memory_equal(x->mem + half, y->mem, n);
	assert_int_equal(x->mem[half + n], 0xee);
	s[0] = ep_sge(y, half, cut + 1);
	s[1] = ep_sge(y, half + cut + 1, n - cut + 5);
	ep_post_recv(y, 40, s, 2);
	wr = wr_rdma(ROOST_OP_SEND_IMM, x, 0, n, y, 0);
	wr.imm = 0xfeedf00d;
	ep_post(x, &wr);
	assert_true(ep_wait_recv(y, &c, SEC));
	assert_int_equal(c.status, NIC_WC_SUCCESS);
	assert_int_equal(c.wr_id, 40);
	assert_int_equal(c.opcode, NIC_WC_RECV);
	assert_int_equal(c.flags, NIC_WC_WITH_IMM);
	assert_int_equal(c.imm, 0xfeedf00d);
	assert_int_equal(c.byte_len, n);
	assert_int_equal(c.src_qpn, nic_qp_num(x->qp));
	assert_memory_equal(x->mem, y->mem + half, n);
	assert_true(ep_wait_send(x, &c, SEC));
	assert_int_equal(c.opcode, NIC_WC_SEND);
	ep_post_recv(y, 41, NULL, 0);
	wr = wr_rdma(ROOST_OP_WRITE_IMM, x, 1, n, y, 0);
	wr.imm = 7;
	ep_post(x, &wr);
	assert_true(ep_wait_recv(y, &c, SEC));
	assert_int_equal(c.opcode, NIC_WC_RECV_WRITE_IMM);
	assert_int_equal(c.byte_len, n);
	assert_memory_equal(x->mem + 1, y->mem, n);
	assert_true(ep_wait_send(x, &c, SEC));
	*(uint64_t *)y->mem = n;
	wr = wr_rdma(ROOST_OP_FETCH_ADD, x, 8, 8, y, 0);
	wr.swap_add = 5;
	ep_post(x, &wr);
	wr = wr_rdma(ROOST_OP_CMP_SWAP, x, 16, 8, y, 0);
	wr.compare = n + 5;
	wr.swap_add = 99;
	ep_post(x, &wr);
	assert_true(ep_wait_send(x, &c, SEC));
	assert_int_equal(c.opcode, NIC_WC_FETCH_ADD);
	assert_true(ep_wait_send(x, &c, SEC));
	assert_int_equal(c.opcode, NIC_WC_CMP_SWAP);
	assert_int_equal(c.status, NIC_WC_SUCCESS);
	assert_int_equal(*(uint64_t *)(x->mem + 8), n);
	assert_int_equal(*(uint64_t *)(x->mem + 16), n + 5);
	assert_int_equal(*(uint64_t *)y->mem, 99);
}

static const uint32_t sizes[] = {0, 1, 7, 4096, 65535, 65536, 65537, 131072, 200001};

static void all_operations(void **state)
{
	struct ep_params p = {.mem = 1 << 20, .max_sge = 2, .mtu = 4096};
	struct nic_counters c;

	start(&p);
	for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		operations(a, b, sizes[i]);
		operations(b, a, sizes[i]);
	}
	no_packets();
	nic_counters(a->nic, &c);
	assert_int_equal(c.loopback_wqes, 9 * 2 * 6);
	assert_int_equal(c.completed_wqes, 9 * 2 * 6);
	end();
}

/* A QP may be connected to itself. */
static void with_itself(void **state)
{
	struct ep_params p = {.mem = 1 << 20, .max_sge = 2};
	struct wr wr;

	open_world(&(struct world_shape){.nics = 1});
	ep_init(a, w, 0, &p);
	ep_connect_self(a);
	operations(a, a, 0);
	wr = wr_rdma(ROOST_OP_WRITE, a, 0, 1000, a, 5000);
	wr.wr_id = 1;
	memset(a->mem, 3, 1000);
	ep_post(a, &wr);
	done(1, NIC_WC_SUCCESS);
	assert_memory_equal(a->mem, a->mem + 5000, 1000);
	/* An error is that of the request, not a flush. */
	wr.rkey ^= 1;
	ep_post(a, &wr);
	done(1, NIC_WC_REM_ACCESS_ERR);
	no_packets();
	ep_fini(a);
	world_fini(w);
}

static void receiver_not_ready(void **state)
{
	struct ep_params p = {.rnr_retry = 3, .min_rnr_timer = 14}; /* 1.28 ms */
	struct wr wr;
	uint64_t at;

	start(&p);
	wr = wr_rdma(ROOST_OP_SEND, a, 0, 8, b, 0);
	wr.wr_id = 1;
	at = world_now(w);
	ep_post(a, &wr);
	world_run(w, at + 3 * MSEC);
	assert_false(ep_poll_send(a, &(struct roost_cqe){0}));
	ep_post_recv(b, 2, &(struct roost_sge){(uintptr_t)b->mem, 64, b->key}, 1);
	done(1, NIC_WC_SUCCESS);
	assert_in_range(world_now(w) - at, 3 * 1280000, 3 * 1280000 + 200000);
	/* The count restarts with each message; this message has no receive for too long. */
	wr.wr_id = 2;
	at = world_now(w);
	ep_post(a, &wr);
	ep_post(a, &wr);
	done(2, NIC_WC_RNR_RETRY_EXC_ERR);
	assert_in_range(world_now(w) - at, 3 * 1280000, 3 * 1280000 + 300000);
	done(2, NIC_WC_WR_FLUSH_ERR);
	/* The peer has not changed. */
	assert_int_equal(nic_qp_state(b->qp), NIC_QPS_RTS);
	no_packets();
	end();
}

static void receiver_never_ready(void **state)
{
	struct ep_params p = {.rnr_retry = 7, .min_rnr_timer = 31};
	struct wr wr;

	start(&p);
	wr = wr_rdma(ROOST_OP_WRITE_IMM, a, 0, 60000, b, 0);
	wr.wr_id = 1;
	ep_post(a, &wr);
	world_run(w, world_now(w) + 600 * SEC);
	assert_false(ep_poll_send(a, &(struct roost_cqe){0}));
	ep_post_recv(b, 2, NULL, 0);
	done(1, NIC_WC_SUCCESS);
	end();
}

/* Requests that a remote peer would NAK end in the same way, on both sides. */
static void errors(void **state)
{
	enum {
		RKEY,
		BOUNDS,
		QP_WRITE,
		QP_READ,
		QP_ATOMIC,
		MISALIGNED,
		TOO_LONG,
		NO_RESOURCES,
		NO_RESOURCES_ATOMIC,
		CASES
	};
	static const struct {
		enum roost_op op;
		unsigned status;
		enum nic_event ev;
	} t[CASES] = {
		[RKEY] = {ROOST_OP_WRITE, NIC_WC_REM_ACCESS_ERR, NIC_EVENT_QP_ACCESS_ERR},
		[BOUNDS] = {ROOST_OP_READ, NIC_WC_REM_ACCESS_ERR, NIC_EVENT_QP_ACCESS_ERR},
		[QP_WRITE] = {ROOST_OP_WRITE, NIC_WC_REM_INV_REQ_ERR, NIC_EVENT_QP_REQ_ERR},
		[QP_READ] = {ROOST_OP_READ, NIC_WC_REM_INV_REQ_ERR, NIC_EVENT_QP_REQ_ERR},
		[QP_ATOMIC] = {ROOST_OP_FETCH_ADD, NIC_WC_REM_INV_REQ_ERR, NIC_EVENT_QP_REQ_ERR},
		[MISALIGNED] = {ROOST_OP_CMP_SWAP, NIC_WC_REM_INV_REQ_ERR, NIC_EVENT_QP_REQ_ERR},
		[TOO_LONG] = {ROOST_OP_SEND, NIC_WC_REM_INV_REQ_ERR, NIC_EVENT_QP_REQ_ERR},
		[NO_RESOURCES] = {ROOST_OP_READ, NIC_WC_REM_INV_REQ_ERR, NIC_EVENT_QP_REQ_ERR},
		[NO_RESOURCES_ATOMIC] = {ROOST_OP_FETCH_ADD, NIC_WC_REM_INV_REQ_ERR,
					 NIC_EVENT_QP_REQ_ERR},
	};

	for (int k = 0; k < CASES; k++)
		for (int link = 0; link < 2; link++) {
			struct nic_qp_attr attr;
			struct roost_cqe c;
			struct wr wr;

			/* Over a link first: the reference. */
			open_world(&(struct world_shape){.nics = 2});
			ep_init(a, w, 0, NULL);
			ep_init(b, w, link, NULL);
			ep_connect(a, b);
			ep_attr(b, a, &attr);
			attr.access = 15 & ~(k == QP_WRITE    ? NIC_ACCESS_REMOTE_WRITE
					     : k == QP_READ   ? NIC_ACCESS_REMOTE_READ
					     : k == QP_ATOMIC ? NIC_ACCESS_REMOTE_ATOMIC
							      : 0);
			assert_int_equal(ep_modify(b, &attr, NIC_QPA_ACCESS_FLAGS), 0);
			if (k == NO_RESOURCES || k == NO_RESOURCES_ATOMIC) {
				attr.state = NIC_QPS_SQD;
				assert_int_equal(ep_modify(b, &attr, NIC_QPA_STATE), 0);
				attr.max_dest_rd_atomic = 0;
				assert_int_equal(ep_modify(b, &attr, NIC_QPA_MAX_DEST_RD_ATOMIC),
						 0);
			}
			ep_post_recv(b, 77, &(struct roost_sge){(uintptr_t)b->mem, 4, b->key}, 1);
			wr = wr_rdma(t[k].op, a, 0, 8, b, 0);
			wr.wr_id = 1;
			if (k == RKEY)
				wr.rkey ^= 1;
			if (k == BOUNDS)
				wr.raddr += 65536 - 7;
			if (k == MISALIGNED)
				wr.raddr += 4;
			ep_post(a, &wr);
			wr.wr_id = 2;
			ep_post(a, &wr);
			done(1, t[k].status);
			done(2, NIC_WC_WR_FLUSH_ERR);
			assert_int_equal(nic_qp_state(a->qp), NIC_QPS_ERR);
			assert_int_equal(nic_qp_state(b->qp), NIC_QPS_ERR);
			assert_int_equal(b->events & ~(1u << NIC_EVENT_COMM_EST), 1u << t[k].ev);
			assert_true(ep_wait_recv(b, &c, SEC));
			assert_int_equal(c.status,
					 k == TOO_LONG ? NIC_WC_LOC_LEN_ERR : NIC_WC_WR_FLUSH_ERR);
			if (!link)
				no_packets();
			end();
		}
}

/* Local errors end in the same way, too. */
static void local_errors(void **state)
{
	struct wr wr;

	start(NULL);
	wr = wr_rdma(ROOST_OP_WRITE, a, 0, 8, b, 0);
	wr.wr_id = 1;
	wr.sge[0].lkey ^= 1;
	ep_post(a, &wr);
	done(1, NIC_WC_LOC_PROT_ERR);
	assert_int_equal(nic_qp_state(b->qp), NIC_QPS_RTS);
	end();
	start(&(struct ep_params){.rd_atomic = 255});
	wr = wr_rdma(ROOST_OP_READ, a, 0, 8, b, 0);
	wr.wr_id = 2;
	ep_post(a, &wr);
	done(2, NIC_WC_LOC_QP_OP_ERR);
	end();
	start(NULL);
	wr = wr_rdma(ROOST_OP_FETCH_ADD, a, 0, 7, b, 0);
	wr.wr_id = 3;
	ep_post(a, &wr);
	done(3, NIC_WC_LOC_LEN_ERR);
	end();
}

/* Without a peer QP, or with a peer QP that has another peer, all packets count as lost. */
static void nobody_there(void **state)
{
	enum { IN_INIT, DESTROYED, IN_ERROR, OTHERS, CASES };

	for (int k = 0; k < CASES; k++)
		for (uint8_t retries = 0; retries < 3; retries++) {
			struct ep_params p = {.timeout = 10, .retry_cnt = retries ? retries : 255};
			struct nic_qp_attr attr;
			struct wr wr;
			uint64_t at;

			open_world(&(struct world_shape){.nics = 1});
			ep_init(a, w, 0, &p);
			ep_init(b, w, 0, &p);
			ep_to_init(a);
			ep_to_init(b);
			ep_attr(a, b, &attr);
			ep_to_rtr(a, &attr);
			ep_to_rts(a, &attr);
			ep_attr(b, a, &attr);
			if (k == OTHERS)
				attr.dest_qpn ^= 0x10;
			if (k != IN_INIT)
				ep_to_rtr(b, &attr);
			if (k == IN_ERROR) {
				attr.state = NIC_QPS_ERR;
				assert_int_equal(ep_modify(b, &attr, NIC_QPA_STATE), 0);
			}
			if (k == DESTROYED)
				ep_fini(b);
			wr = (struct wr){.op = ROOST_OP_WRITE, .wr_id = 1};
			at = world_now(w);
			ep_post(a, &wr);
			done(1, NIC_WC_RETRY_EXC_ERR);
			assert_in_range(world_now(w) - at, (retries + 1) * T(10),
					(retries + 1) * 4 * T(10));
			no_packets();
			ep_fini(a);
			if (k != DESTROYED)
				ep_fini(b);
			world_fini(w);
		}
}

/* The peer becomes ready before the retries end; the first message raises its event. */
static void peer_comes_up(void **state)
{
	struct ep_params p = {.timeout = 14, .retry_cnt = 2};
	struct nic_qp_attr attr;
	struct wr wr;

	open_world(&(struct world_shape){.nics = 1});
	ep_init(a, w, 0, &p);
	ep_init(b, w, 0, &p);
	ep_to_init(a);
	ep_to_init(b);
	ep_attr(a, b, &attr);
	ep_to_rtr(a, &attr);
	ep_to_rts(a, &attr);
	wr = wr_rdma(ROOST_OP_WRITE, a, 0, 8, b, 0);
	wr.wr_id = 1;
	memset(a->mem, 9, 8);
	ep_post(a, &wr);
	world_run(w, world_now(w) + T(14) + MSEC);
	ep_attr(b, a, &attr);
	ep_to_rtr(b, &attr);
	assert_int_equal(b->events, 0);
	done(1, NIC_WC_SUCCESS);
	assert_int_equal(b->mem[7], 9);
	assert_int_equal(b->events, 1u << NIC_EVENT_COMM_EST);
	end();
}

/*
 * SQD: the message in progress completes, the event is raised, and the next message does not begin.
 */
static void drain(void **state)
{
	struct ep_params p = {.mem = 1 << 20};
	struct nic_qp_attr attr = {.state = NIC_QPS_SQD};
	struct wr wr;

	start(&p);
	wr = wr_rdma(ROOST_OP_WRITE, a, 0, 500000, b, 0);
	for (wr.wr_id = 1; wr.wr_id <= 3; wr.wr_id++)
		ep_post(a, &wr);
	world_step(w, UINT64_MAX);
	world_step(w, UINT64_MAX);
	assert_int_equal(ep_modify(a, &attr, NIC_QPA_STATE | NIC_QPA_EN_SQD_ASYNC_NOTIFY), 0);
	assert_int_equal(a->events, 0);
	done(1, NIC_WC_SUCCESS);
	assert_int_equal(a->events, 1u << NIC_EVENT_SQ_DRAINED);
	world_run(w, world_now(w) + SEC);
	assert_false(ep_poll_send(a, &(struct roost_cqe){0}));
	attr.state = NIC_QPS_RTS;
	assert_int_equal(ep_modify(a, &attr, NIC_QPA_STATE), 0);
	done(2, NIC_WC_SUCCESS);
	done(3, NIC_WC_SUCCESS);
	end();
}

/*
 * In SQD the connection cannot leave the NIC: its peer is at this address, and expects no PSN of
 * later packets. Another program may have the other address.
 */
static void stays_in_the_nic(void **state)
{
	struct nic_qp_attr attr = {.state = NIC_QPS_SQD}, path;
	struct wr wr;

	start(&(struct ep_params){0});
	ep_attr(a, b, &path);
	wr = wr_rdma(ROOST_OP_WRITE, a, 0, 100, b, 0);
	ep_post(a, &wr);
	done(0, NIC_WC_SUCCESS);
	assert_int_equal(ep_modify(a, &attr, NIC_QPA_STATE), 0);
	assert_int_equal(ep_modify(a, &path, NIC_QPA_AV), 0);
	path.dgid.b[15] ^= 1;
	assert_int_equal(ep_modify(a, &path, NIC_QPA_AV), -EINVAL);
	attr.state = NIC_QPS_RTS;
	assert_int_equal(ep_modify(a, &attr, NIC_QPA_STATE), 0);
	ep_post(a, &wr);
	done(0, NIC_WC_SUCCESS);
	no_packets();
	end();
}

/*
 * The peer's CQ is full when the receive completes: the peer ends as over a link, and our message
 * is not acknowledged.
 */
static void peer_overruns(void **state)
{
	struct wr wr;

	start(&(struct ep_params){.cq_depth = 2, .retry_cnt = 1, .timeout = 8});
	for (uint64_t i = 0; i < 4; i++)
		ep_post_recv(b, i, &(struct roost_sge){(uintptr_t)b->mem, 64, b->key}, 1);
	for (uint64_t i = 0; i < 3; i++) {
		wr = (struct wr){.op = ROOST_OP_SEND,
				 .wr_id = i,
				 .sge = {{(uintptr_t)a->mem, 8, a->key}},
				 .num_sge = 1};
		ep_post(a, &wr);
		done(i, i < 2 ? NIC_WC_SUCCESS : NIC_WC_RETRY_EXC_ERR);
	}
	assert_int_equal(nic_qp_state(b->qp), NIC_QPS_ERR);
	assert_true(b->events & 1u << NIC_EVENT_QP_FATAL);
	assert_int_equal(w->cq_errors, 1);
	no_packets();
	end();
}

/* The peer is destroyed during a long message. */
static void peer_goes_away(void **state)
{
	static const enum roost_op ops[] = {ROOST_OP_WRITE, ROOST_OP_READ, ROOST_OP_SEND};

	for (unsigned o = 0; o < 3; o++) {
		struct ep_params p = {.mem = 1 << 20, .timeout = 8, .retry_cnt = 1};
		struct roost_sge sge;
		struct wr wr;

		start(&p);
		sge = ep_sge(b, 0, 500000);
		ep_post_recv(b, 1, &sge, 1);
		wr = wr_rdma(ops[o], a, 0, 500000, b, 0);
		wr.wr_id = 1;
		ep_post(a, &wr);
		world_step(w, UINT64_MAX);
		world_step(w, UINT64_MAX);
		ep_fini(b);
		done(1, NIC_WC_RETRY_EXC_ERR);
		no_packets();
		ep_fini(a);
		world_fini(w);
	}
}

/* QPs of two PUs of one NIC use packets; QPs of one PU use none. */
static void two_pus(void **state)
{
	for (uint8_t x = 0; x < 2; x++)
		for (uint8_t y = 0; y < 2; y++) {
			struct ep_params p = {.mem = 1 << 20, .max_sge = 2, .mtu = 1024, .pu = x};

			open_world(&(struct world_shape){.nics = 1, .pus = 2});
			ep_init(a, w, 0, &p);
			p.pu = y;
			ep_init(b, w, 0, &p);
			assert_int_equal(nic_qp_pu(a->qp), x);
			assert_int_equal(PORT_LANE_OF_QPN(nic_qp_num(b->qp), 2), y);
			ep_connect(a, b);
			operations(a, b, 70000);
			operations(b, a, 1);
			if (x == y)
				no_packets();
			else
				assert_in_range(packets, 100, 2000);
			end();
		}
}

/* Two PUs on each side, over a link. */
static void lanes(void **state)
{
	for (uint8_t x = 0; x < 4; x++)
		for (uint8_t y = 0; y < 4; y++) {
			struct ep_params p = {.mem = 1 << 20, .max_sge = 2, .mtu = 1024, .pu = x};

			open_world(&(struct world_shape){.nics = 2, .pus = 4});
			ep_init(a, w, 0, &p);
			p.pu = y;
			ep_init(b, w, 1, &p);
			ep_connect(a, b);
			operations(a, b, 5000);
			operations(b, a, 5000);
			end();
		}
}

/* A receive CQ of another PU than the QP's. */
static void completions_elsewhere(void **state)
{
	struct ep_params p = {.pu = 0}, q = {.pu = 1};
	struct ep other;
	struct nic_qp_init init = {.type = NIC_QPT_RC};
	struct roost_cqe c;
	struct wr wr;

	open_world(&(struct world_shape){.nics = 2, .pus = 2});
	ep_init(a, w, 0, &p);
	ep_init(b, w, 1, &p);
	ep_init(&other, w, 1, &q); /* its receive CQ, of PU 1, is shared */
	nic_qp_destroy(b->nic, b->qp);
	init.pd = b->pd;
	init.send_cq = b->scq;
	init.recv_cq = other.rcq;
	init.ctx = b;
	init.sq = (struct nic_queue_attr){b->sq, b->sq_wr, &b->sqi, b->p.depth, b->sq_shift};
	init.rq = (struct nic_queue_attr){b->rq, b->rq_wr, &b->rqi, b->p.depth, b->rq_shift};
	assert_int_equal(nic_qp_create(b->nic, &init, &b->qp), 0);
	assert_int_equal(nic_qp_pu(b->qp), 0);
	ep_connect(a, b);
	for (int i = 0; i < 20; i++) {
		atomic_store(&other.ridx.arm, ROOST_CQ_ARM_NEXT);
		ep_post_recv(b, 5, NULL, 0);
		wr = wr_rdma(ROOST_OP_SEND, a, 0, 0, b, 0);
		ep_post(a, &wr);
		assert_true(ep_wait_send(a, &c, SEC));
		assert_true(ep_poll_recv(&other, &c));
		assert_int_equal(c.qpn, nic_qp_num(b->qp));
		assert_int_equal(w->cq_events, i + 1);
	}
	ep_fini(a);
	ep_fini(b);
	ep_fini(&other);
	world_fini(w);
}

/*
 * Two ports: QPs of either port connect to either port of the peer. Packets at the wrong port are
 * not from the peer.
 */
static void two_ports(void **state)
{
	for (uint8_t x = 0; x < 2; x++)
		for (uint8_t y = 0; y < 2; y++) {
			struct ep_params p = {.mem = 1 << 20, .max_sge = 2, .mtu = 1024, .port = x};

			open_world(&(struct world_shape){.nics = 2, .ports = 2, .pus = 2});
			assert_int_equal(nic_ports(w->nic[0]), 2);
			ep_init(a, w, 0, &p);
			p.port = y;
			p.pu = 1;
			ep_init(b, w, 1, &p);
			ep_connect(a, b);
			operations(a, b, 5000);
			operations(b, a, 70000);
			end();
		}
}

/* From one port of a NIC to its other one. */
static void port_to_port(void **state)
{
	struct ep_params p = {.mem = 1 << 20, .max_sge = 2, .mtu = 1024};

	open_world(&(struct world_shape){.nics = 1, .ports = 2});
	ep_init(a, w, 0, &p);
	p.port = 1;
	ep_init(b, w, 0, &p);
	ep_connect(a, b);
	operations(a, b, 5000);
	operations(b, a, 5000);
	assert_in_range(packets, 20, 2000);
	end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_operations),
		cmocka_unit_test(with_itself),
		cmocka_unit_test(receiver_not_ready),
		cmocka_unit_test(receiver_never_ready),
		cmocka_unit_test(errors),
		cmocka_unit_test(local_errors),
		cmocka_unit_test(nobody_there),
		cmocka_unit_test(peer_comes_up),
		cmocka_unit_test(drain),
		cmocka_unit_test(stays_in_the_nic),
		cmocka_unit_test(peer_overruns),
		cmocka_unit_test(peer_goes_away),
		cmocka_unit_test(two_pus),
		cmocka_unit_test(lanes),
		cmocka_unit_test(completions_elsewhere),
		cmocka_unit_test(two_ports),
		cmocka_unit_test(port_to_port),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
