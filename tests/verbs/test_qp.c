/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Queue pairs: creation, states, refused work requests, data of each operation, errors and flushes.
 */
#include "fixture.h"

#include <fcntl.h>
#include <time.h>

static void caps_are_at_least_what_was_asked(void **state)
{
	struct pair p;
	struct ibv_qp_init_attr a =
					{
						.cap = {.max_send_wr = 100,
							.max_recv_wr = 3,
							.max_send_sge = 5,
							.max_recv_sge = 2,
							.max_inline_data = 220},
						.qp_type = IBV_QPT_RC,
					},
				b;
	struct ibv_qp *qp;
	struct ibv_qp_attr attr;

	pair_open(&p, NULL);
	a.send_cq = a.recv_cq = p.cq[0];
	qp = ibv_create_qp(p.pd, &a);
	assert_non_null(qp);
	assert_true(a.cap.max_send_wr >= 100 && a.cap.max_recv_wr >= 3);
	assert_true(a.cap.max_send_sge >= 5 && a.cap.max_recv_sge >= 2);
	assert_true(a.cap.max_inline_data >= 220);
	assert_true(qp->qp_num > 1 && qp->qp_num < 1 << 24);
	assert_int_equal(ibv_query_qp(qp, &attr, IBV_QP_CAP, &b), 0);
	assert_memory_equal(&b.cap, &a.cap, sizeof(a.cap));
	assert_int_equal(attr.qp_state, IBV_QPS_RESET);
	assert_null(ibv_qp_to_qp_ex(qp));
	assert_int_equal(ibv_destroy_qp(qp), 0);

	b = a;
	b.cap.max_send_wr = 32769;
	assert_null(ibv_create_qp(p.pd, &b));
	assert_int_equal(errno, EINVAL);
	b = a;
	b.cap.max_send_sge = 17;
	assert_null(ibv_create_qp(p.pd, &b));
	b = a;
	b.cap.max_inline_data = 993;
	assert_null(ibv_create_qp(p.pd, &b));
	b = a;
	b.qp_type = IBV_QPT_RAW_PACKET;
	assert_null(ibv_create_qp(p.pd, &b));
	assert_int_equal(errno, EOPNOTSUPP);
	b = a;
	b.send_cq = NULL;
	assert_null(ibv_create_qp(p.pd, &b));
	assert_int_equal(errno, EINVAL);
	pair_close(&p);
}

static void busy_objects_stay(void **state)
{
	struct pair p;

	pair_open(&p, NULL);
	assert_int_equal(ibv_destroy_cq(p.cq[0]), EBUSY);
	assert_int_equal(ibv_dealloc_pd(p.pd), EBUSY);
	assert_int_equal(ibv_destroy_comp_channel(p.channel), EBUSY);
	pair_close(&p);
}

static void posting_by_state(void **state)
{
	struct pair_options o = {.cap = {4, 4, 1, 1, 0}, .leave_reset = true};
	struct ibv_send_wr wr;
	struct ibv_sge sge;
	struct pair p;

	pair_open(&p, &o);
	wr = write_wr(&p, &sge, 1, 8);
	assert_int_equal(post_recv_one(&p, 0, 1, 8), EINVAL);
	assert_int_equal(post_one(p.qp[0], &wr), EINVAL);
	assert_int_equal(to_init(&p, 0), 0);
	assert_int_equal(post_recv_one(&p, 0, 1, 8), 0);
	assert_int_equal(post_one(p.qp[0], &wr), EINVAL);
	assert_int_equal(to_rtr(&p, 0), 0);
	assert_int_equal(post_one(p.qp[0], &wr), EINVAL);
	assert_int_equal(to_rts(&p, 0), 0);
	assert_int_equal(p.qp[0]->state, IBV_QPS_RTS);
	pair_close(&p);
}

static void modify_refuses(void **state)
{
	struct pair_options o = {.cap = {4, 4, 1, 1, 0}, .leave_reset = true};
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTS};
	struct ibv_qp_init_attr init;
	struct pair p;

	pair_open(&p, &o);
	assert_int_equal(ibv_modify_qp(p.qp[0], &a, IBV_QP_STATE), EINVAL);
	a.qp_state = IBV_QPS_INIT;
	assert_int_equal(ibv_modify_qp(p.qp[0], &a, IBV_QP_STATE), EINVAL);
	assert_int_equal(ibv_modify_qp(p.qp[0], &a, IBV_QP_CAP), EOPNOTSUPP);
	assert_int_equal(to_init(&p, 0), 0);
	/* RoCE needs a GRH. */
	a = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = 5};
	assert_int_equal(ibv_modify_qp(p.qp[0], &a,
				       IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
					       IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
					       IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
			 EINVAL);
	assert_int_equal(ibv_query_qp(p.qp[0], &a, IBV_QP_STATE, &init), 0);
	assert_int_equal(a.qp_state, IBV_QPS_INIT);
	pair_close(&p);
}

static void query_tells_what_was_set(void **state)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr a;
	union ibv_gid gid;
	struct pair p;

	pair_open(&p, NULL);
	assert_int_equal(ibv_query_gid(p.ctx, 1, 0, &gid), 0);
	assert_int_equal(ibv_query_qp(p.qp[0], &a, 0, &init), 0);
	assert_int_equal(a.qp_state, IBV_QPS_RTS);
	assert_int_equal(a.path_mtu, IBV_MTU_1024);
	assert_int_equal(a.dest_qp_num, p.qp[1]->qp_num);
	assert_int_equal(a.rq_psn, 100);
	assert_int_equal(a.sq_psn, 100);
	assert_int_equal(a.timeout, 14);
	assert_int_equal(a.retry_cnt, 7);
	assert_int_equal(a.max_rd_atomic, 4);
	assert_int_equal(a.port_num, 1);
	assert_int_equal(a.ah_attr.is_global, 1);
	assert_memory_equal(a.ah_attr.grh.dgid.raw, gid.raw, 16);
	assert_ptr_equal(init.send_cq, p.cq[0]);
	pair_close(&p);
}

static void bad_work_requests(void **state)
{
	struct pair_options o = {
		.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1}};
	struct ibv_send_wr wr, good, *bad;
	struct ibv_sge sge, two[2];
	struct ibv_recv_wr rwr = {.sg_list = two, .num_sge = 2}, *rbad;
	struct pair p;
	struct ibv_wc wc;

	pair_open(&p, &o);
	wr = write_wr(&p, &sge, 1, 8);
	wr.opcode = (enum ibv_wr_opcode)200;
	assert_int_equal(post_one(p.qp[0], &wr), EINVAL);
	wr.opcode = IBV_WR_TSO;
	assert_int_equal(post_one(p.qp[0], &wr), EOPNOTSUPP);
	wr = write_wr(&p, &sge, 1, 8);
	wr.num_sge = 2;
	wr.sg_list = two;
	assert_int_equal(post_one(p.qp[0], &wr), EINVAL);
	wr.num_sge = -1;
	assert_int_equal(post_one(p.qp[0], &wr), EINVAL);
	wr = write_wr(&p, &sge, 1, 4096); /* no stride of one SGE has space for this length */
	wr.send_flags |= IBV_SEND_INLINE;
	assert_int_equal(post_one(p.qp[0], &wr), EINVAL);
	wr = write_wr(&p, &sge, 1, 8);
	wr.opcode = IBV_WR_RDMA_READ;
	wr.send_flags |= IBV_SEND_INLINE;
	assert_int_equal(post_one(p.qp[0], &wr), EINVAL);
	wr = write_wr(&p, &sge, 1, 8);
	wr.send_flags |= IBV_SEND_IP_CSUM;
	assert_int_equal(post_one(p.qp[0], &wr), EINVAL);
	rbad = NULL;
	assert_int_equal(ibv_post_recv(p.qp[0], &rwr, &rbad), EINVAL);
	assert_ptr_equal(rbad, &rwr);

	/* The work requests before the refused one are posted. */
	good = write_wr(&p, &sge, 7, 8);
	wr = good;
	wr.opcode = (enum ibv_wr_opcode)200;
	good.next = &wr;
	assert_int_equal(ibv_post_send(p.qp[0], &good, &bad), EINVAL);
	assert_ptr_equal(bad, &wr);
	wait_wcs(p.cq[0], &wc, 1);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(wc.wr_id, 7);
	pair_close(&p);
}

static void a_full_queue_says_so(void **state)
{
	struct pair_options o = {.cap = {4, 4, 1, 1, 0}};
	struct pair p;
	int i;

	/* Receives that no message takes fill the queue. */
	pair_open(&p, &o);
	for (i = 0; i < 4; i++)
		assert_int_equal(post_recv_one(&p, 0, (uint64_t)i, 8), 0);
	assert_int_equal(post_recv_one(&p, 0, 4, 8), ENOMEM);
	pair_close(&p);

	/* Sends to a receiver that is not ready stay in the queue. */
	pair_open(&p, &o);
	for (i = 0; i < 5; i++) {
		struct ibv_sge sge;
		struct ibv_send_wr wr = write_wr(&p, &sge, (uint64_t)i, 8);

		wr.opcode = IBV_WR_SEND;
		assert_int_equal(post_one(p.qp[0], &wr), i < 4 ? 0 : ENOMEM);
	}
	pair_close(&p);
}

static void fill(uint8_t *p, size_t n, unsigned seed)
{
	size_t i;

	for (i = 0; i < n; i++)
		p[i] = (uint8_t)(seed + i * 7 + (i >> 8));
}

static void every_operation(void **state)
{
	struct ibv_send_wr wr;
	struct ibv_sge sge;
	struct ibv_wc wc;
	struct pair p;
	uint64_t word;

	pair_open(&p, NULL);

	fill(p.buf[0], 5000, 1);
	wr = write_wr(&p, &sge, 1, 5000);
	assert_int_equal(post_one(p.qp[0], &wr), 0);
	wc = wait_good(p.cq[0]);
	assert_int_equal(wc.wr_id, 1);
	assert_int_equal(wc.opcode, IBV_WC_RDMA_WRITE);
	assert_int_equal(wc.qp_num, p.qp[0]->qp_num);
	assert_memory_equal(p.buf[0], p.buf[1], 5000);

	assert_int_equal(post_recv_one(&p, 1, 20, 0), 0);
	fill(p.buf[0], 100, 2);
	wr = write_wr(&p, &sge, 2, 100);
	wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
	wr.imm_data = 0x01020304;
	assert_int_equal(post_one(p.qp[0], &wr), 0);
	wait_good(p.cq[0]);
	wc = wait_good(p.cq[1]);
	assert_int_equal(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
	assert_int_equal(wc.wr_id, 20);
	assert_int_equal(wc.byte_len, 100);
	assert_int_equal(wc.imm_data, 0x01020304);
	assert_true(wc.wc_flags & IBV_WC_WITH_IMM);
	assert_memory_equal(p.buf[0], p.buf[1], 100);

	assert_int_equal(post_recv_one(&p, 1, 21, 4096), 0);
	fill(p.buf[0], 3000, 3);
	wr = write_wr(&p, &sge, 3, 3000);
	wr.opcode = IBV_WR_SEND;
	assert_int_equal(post_one(p.qp[0], &wr), 0);
	assert_int_equal(wait_good(p.cq[0]).opcode, IBV_WC_SEND);
	wc = wait_good(p.cq[1]);
	assert_int_equal(wc.opcode, IBV_WC_RECV);
	assert_int_equal(wc.byte_len, 3000);
	assert_false(wc.wc_flags & IBV_WC_WITH_IMM);
	assert_memory_equal(p.buf[0], p.buf[1], 3000);

	fill(p.buf[1], 9000, 4);
	wr = write_wr(&p, &sge, 4, 9000);
	wr.opcode = IBV_WR_RDMA_READ;
	assert_int_equal(post_one(p.qp[0], &wr), 0);
	assert_int_equal(wait_good(p.cq[0]).opcode, IBV_WC_RDMA_READ);
	assert_memory_equal(p.buf[0], p.buf[1], 9000);

	word = 41;
	memcpy(p.buf[1], &word, 8);
	wr = write_wr(&p, &sge, 5, 8);
	wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
	wr.wr.atomic.remote_addr = (uintptr_t)p.buf[1];
	wr.wr.atomic.rkey = p.mr[1]->rkey;
	wr.wr.atomic.compare_add = 2;
	assert_int_equal(post_one(p.qp[0], &wr), 0);
	assert_int_equal(wait_good(p.cq[0]).opcode, IBV_WC_FETCH_ADD);
	memcpy(&word, p.buf[0], 8);
	assert_int_equal(word, 41);
	wr.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
	wr.wr.atomic.compare_add = 43;
	wr.wr.atomic.swap = 99;
	assert_int_equal(post_one(p.qp[0], &wr), 0);
	assert_int_equal(wait_good(p.cq[0]).opcode, IBV_WC_COMP_SWAP);
	memcpy(&word, p.buf[0], 8);
	assert_int_equal(word, 43);
	memcpy(&word, p.buf[1], 8);
	assert_int_equal(word, 99);
	pair_close(&p);
}

static void scatter_and_inline(void **state)
{
	struct pair_options o = {.cap = {8, 8, 16, 3, 200}};
	struct ibv_sge sges[16], rs[3];
	struct ibv_recv_wr rwr = {.wr_id = 9, .sg_list = rs, .num_sge = 3}, *rbad;
	struct ibv_send_wr wr;
	struct pair p;
	uint8_t text[200];
	int i;

	pair_open(&p, &o);
	fill(p.buf[0], 4096, 5);
	for (i = 0; i < 16; i++)
		sges[i] =
			(struct ibv_sge){(uintptr_t)p.buf[0] + (unsigned)i * 17, 17, p.mr[0]->lkey};
	for (i = 0; i < 3; i++)
		rs[i] = (struct ibv_sge){(uintptr_t)p.buf[1] + (unsigned)i * 100, 100,
					 p.mr[1]->lkey};
	assert_int_equal(ibv_post_recv(p.qp[1], &rwr, &rbad), 0);
	wr = write_wr(&p, &sges[0], 1, 17);
	wr.opcode = IBV_WR_SEND;
	wr.sg_list = sges;
	wr.num_sge = 16;
	assert_int_equal(post_one(p.qp[0], &wr), 0);
	wait_good(p.cq[0]);
	assert_int_equal(wait_good(p.cq[1]).byte_len, 16 * 17);
	assert_memory_equal(p.buf[0], p.buf[1], 16 * 17);

	/*
	 * Inline data may be overwritten when the call returns. They need no key, and may be in
	 * several pieces.
	 */
	fill(text, sizeof(text), 6);
	sges[0] = (struct ibv_sge){(uintptr_t)text, 150, 0};
	sges[1] = (struct ibv_sge){(uintptr_t)text + 150, 50, 0};
	wr.opcode = IBV_WR_RDMA_WRITE;
	wr.num_sge = 2;
	wr.send_flags |= IBV_SEND_INLINE;
	assert_int_equal(post_one(p.qp[0], &wr), 0);
	memset(text, 0, sizeof(text));
	wait_good(p.cq[0]);
	fill(text, sizeof(text), 6);
	assert_memory_equal(text, p.buf[1], sizeof(text));
	pair_close(&p);
}

static void unsignaled_and_sig_all(void **state)
{
	struct pair_options all = {.cap = {8, 8, 1, 1, 0}, .sig_all = true};
	struct ibv_send_wr wr;
	struct ibv_sge sge;
	struct ibv_wc wc;
	struct pair p;
	int i;

	pair_open(&p, NULL);
	for (i = 0; i < 100; i++) {
		wr = write_wr(&p, &sge, (uint64_t)i, 8);
		wr.send_flags = i % 10 == 9 ? IBV_SEND_SIGNALED : 0;
		assert_int_equal(post_one(p.qp[0], &wr), 0);
		if (wr.send_flags) {
			wait_wcs(p.cq[0], &wc, 1);
			assert_int_equal(wc.wr_id, i);
		}
	}
	assert_int_equal(ibv_poll_cq(p.cq[0], 1, &wc), 0);
	pair_close(&p);

	pair_open(&p, &all);
	wr = write_wr(&p, &sge, 3, 8);
	wr.send_flags = 0;
	assert_int_equal(post_one(p.qp[0], &wr), 0);
	assert_int_equal(wait_good(p.cq[0]).wr_id, 3);
	pair_close(&p);
}

/*
 * A bad key puts the QP into the error state. All sends and receives posted then or later are
 * flushed.
 */
static void errors_flush(void **state)
{
	struct ibv_send_wr wr;
	struct ibv_sge sge;
	struct ibv_wc wc[8];
	struct ibv_qp_attr a;
	struct ibv_qp_init_attr init;
	struct pair p;

	pair_open(&p, NULL);
	assert_int_equal(post_recv_one(&p, 0, 50, 8), 0);
	wr = write_wr(&p, &sge, 1, 8);
	wr.wr.rdma.rkey ^= 0x5a5a;
	assert_int_equal(post_one(p.qp[0], &wr), 0);
	wait_wcs(p.cq[0], wc, 2);
	assert_int_equal(wc[0].wr_id, 1);
	assert_int_equal(wc[0].status, IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(wc[1].wr_id, 50);
	assert_int_equal(wc[1].status, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(ibv_query_qp(p.qp[0], &a, IBV_QP_STATE, &init), 0);
	assert_int_equal(a.qp_state, IBV_QPS_ERR);

	assert_int_equal(post_recv_one(&p, 0, 51, 8), 0);
	wait_wcs(p.cq[0], wc, 1);
	assert_int_equal(wc[0].wr_id, 51);
	assert_int_equal(wc[0].status, IBV_WC_WR_FLUSH_ERR);
	wr = write_wr(&p, &sge, 2, 8);
	assert_int_equal(post_one(p.qp[0], &wr), 0);
	wait_wcs(p.cq[0], wc, 1);
	assert_int_equal(wc[0].wr_id, 2);
	assert_int_equal(wc[0].status, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(wc[0].qp_num, p.qp[0]->qp_num);
	pair_close(&p);
}

/* RESET drops work requests and completions. The QP can be connected again. */
static void reset_and_again(void **state)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_RESET};
	struct ibv_send_wr wr;
	struct ibv_sge sge;
	struct ibv_wc wc;
	struct pair p;
	int i, round;

	pair_open(&p, NULL);
	for (round = 0; round < 3; round++) {
		for (i = 0; i < 10; i++) {
			wr = write_wr(&p, &sge, (uint64_t)i, 64);
			assert_int_equal(post_one(p.qp[0], &wr), 0);
			assert_int_equal(post_recv_one(&p, 0, 77, 8), 0);
		}
		for (i = 0; i < 2; i++)
			assert_int_equal(ibv_modify_qp(p.qp[i], &a, IBV_QP_STATE), 0);
		settle(p.cq[0]);
		assert_int_equal(ibv_poll_cq(p.cq[0], 1, &wc), 0);
		/*
		 * On a busy machine packets of the WRITEs above may still be on their way. With the
		 * same PSNs they would be taken for those of the next connection.
		 */
		p.psn += 1 << 20;
		for (i = 0; i < 2; i++) {
			assert_int_equal(to_init(&p, i), 0);
			assert_int_equal(to_rtr(&p, i), 0);
		}
		for (i = 0; i < 2; i++)
			assert_int_equal(to_rts(&p, i), 0);
		fill(p.buf[0], 64, (unsigned)round);
		wr = write_wr(&p, &sge, 1000, 64);
		assert_int_equal(post_one(p.qp[0], &wr), 0);
		assert_int_equal(wait_good(p.cq[0]).wr_id, 1000);
		assert_memory_equal(p.buf[0], p.buf[1], 64);
	}
	pair_close(&p);
}

/*
 * Moves side 0 to SQD and back to RTS. Returns how many events report that the send queue has been
 * drained.
 */
static unsigned drain(struct pair *p, int mask, uint8_t notify)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_SQD, .en_sqd_async_notify = notify};
	time_t end = time(NULL) + TIMEOUT_S;
	struct ibv_async_event event;
	struct ibv_qp_init_attr init;
	unsigned n = 0;

	assert_int_equal(ibv_modify_qp(p->qp[0], &a, IBV_QP_STATE | mask), 0);
	do {
		settle(p->cq[0]);
		assert_int_equal(ibv_query_qp(p->qp[0], &a, IBV_QP_STATE, &init), 0);
		assert_int_equal(a.qp_state, IBV_QPS_SQD);
		assert_true(time(NULL) < end);
	} while (a.sq_draining);
	while (!ibv_get_async_event(p->ctx, &event)) {
		if (event.event_type == IBV_EVENT_SQ_DRAINED) {
			assert_ptr_equal(event.element.qp, p->qp[0]);
			n++;
		}
		ibv_ack_async_event(&event);
	}
	assert_int_equal(errno, EAGAIN);
	a.qp_state = IBV_QPS_RTS;
	assert_int_equal(ibv_modify_qp(p->qp[0], &a, IBV_QP_STATE), 0);
	return n;
}

/* The event follows only if the program asks for it: en_sqd_async_notify of ibv_modify_qp(3). */
static void the_drained_event_is_optional(void **state)
{
	struct ibv_send_wr wr;
	struct ibv_sge sge;
	struct pair p;

	pair_open(&p, NULL);
	fcntl(p.ctx->async_fd, F_SETFL, fcntl(p.ctx->async_fd, F_GETFL) | O_NONBLOCK);
	for (uint64_t i = 0; i < 8; i++) {
		wr = write_wr(&p, &sge, i, 1024);
		if (i % 2)
			assert_int_equal(post_one(p.qp[0], &wr), 0);
		assert_int_equal(drain(&p, IBV_QP_EN_SQD_ASYNC_NOTIFY, 0), 0);
		assert_int_equal(drain(&p, IBV_QP_EN_SQD_ASYNC_NOTIFY, 1), 1);
		assert_int_equal(drain(&p, 0, 1), 0);
	}
	for (uint64_t i = 1; i < 8; i += 2)
		assert_int_equal(wait_good(p.cq[0]).wr_id, i);
	pair_close(&p);
}

/* ---- the extended QP ---- */

#define ALL_OPS                                                                                    \
	(IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND |    \
	 IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ |                                 \
	 IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD)

static void ex_every_operation(void **state)
{
	struct pair_options o = {.cap = {8, 8, 2, 1, 64}, .send_ops = ALL_OPS};
	struct ibv_qp_ex *ex;
	struct ibv_data_buf bufs[2];
	struct ibv_sge sges[2];
	struct ibv_wc wc;
	struct pair p;
	char text[] = "inline data in two pieces";
	uint64_t raddr, word = 5;
	uint32_t rkey, lkey;

	pair_open(&p, &o);
	ex = ibv_qp_to_qp_ex(p.qp[0]);
	assert_non_null(ex);
	raddr = (uintptr_t)p.buf[1];
	rkey = p.mr[1]->rkey;
	lkey = p.mr[0]->lkey;
	fill(p.buf[0], 300, 7);

	/* Three requests in one list. Only the last is signaled. */
	ibv_wr_start(ex);
	ex->wr_id = 1;
	ex->wr_flags = 0;
	ibv_wr_rdma_write(ex, rkey, raddr);
	ibv_wr_set_sge(ex, lkey, (uintptr_t)p.buf[0], 100);
	ibv_wr_rdma_write(ex, rkey, raddr + 100);
	sges[0] = (struct ibv_sge){(uintptr_t)p.buf[0] + 100, 60, lkey};
	sges[1] = (struct ibv_sge){(uintptr_t)p.buf[0] + 160, 40, lkey};
	ibv_wr_set_sge_list(ex, 2, sges);
	ex->wr_id = 3;
	ex->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_rdma_write(ex, rkey, raddr + 200);
	ibv_wr_set_sge(ex, lkey, (uintptr_t)p.buf[0] + 200, 100);
	assert_int_equal(ibv_wr_complete(ex), 0);
	assert_int_equal(wait_good(p.cq[0]).wr_id, 3);
	assert_memory_equal(p.buf[0], p.buf[1], 300);

	assert_int_equal(post_recv_one(&p, 1, 30, 64), 0);
	ibv_wr_start(ex);
	ex->wr_id = 4;
	ibv_wr_send_imm(ex, 0x11223344);
	bufs[0] = (struct ibv_data_buf){text, 10};
	bufs[1] = (struct ibv_data_buf){text + 10, sizeof(text) - 10};
	ibv_wr_set_inline_data_list(ex, 2, bufs);
	assert_int_equal(ibv_wr_complete(ex), 0);
	wait_good(p.cq[0]);
	wc = wait_good(p.cq[1]);
	assert_int_equal(wc.imm_data, 0x11223344);
	assert_int_equal(wc.byte_len, sizeof(text));
	assert_memory_equal(p.buf[1], text, sizeof(text));

	assert_int_equal(post_recv_one(&p, 1, 31, 64), 0);
	ibv_wr_start(ex);
	ibv_wr_send(ex); /* no data */
	assert_int_equal(ibv_wr_complete(ex), 0);
	wait_good(p.cq[0]);
	assert_int_equal(wait_good(p.cq[1]).byte_len, 0);

	memcpy(p.buf[1], &word, 8);
	ibv_wr_start(ex);
	ibv_wr_atomic_fetch_add(ex, rkey, raddr, 6);
	ibv_wr_set_sge(ex, lkey, (uintptr_t)p.buf[0], 8);
	ibv_wr_atomic_cmp_swp(ex, rkey, raddr, 11, 77);
	ibv_wr_set_sge(ex, lkey, (uintptr_t)p.buf[0] + 8, 8);
	ibv_wr_rdma_read(ex, rkey, raddr);
	ibv_wr_set_sge(ex, lkey, (uintptr_t)p.buf[0] + 16, 8);
	assert_int_equal(ibv_wr_complete(ex), 0);
	wait_good(p.cq[0]);
	wait_good(p.cq[0]);
	wait_good(p.cq[0]);
	memcpy(&word, p.buf[0], 8);
	assert_int_equal(word, 5);
	memcpy(&word, p.buf[0] + 8, 8);
	assert_int_equal(word, 11);
	memcpy(&word, p.buf[0] + 16, 8);
	assert_int_equal(word, 77);
	pair_close(&p);
}

static void ex_refuses(void **state)
{
	struct pair_options o = {.cap = {2, 2, 1, 1, 0}, .send_ops = ALL_OPS};
	struct ibv_qp_init_attr_ex attr = {
		.cap = {1, 1, 1, 1, 0},
		.qp_type = IBV_QPT_RC,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_TSO,
	};
	struct ibv_qp_ex *ex;
	struct pair p;
	char big[2000];
	int i;

	pair_open(&p, &o);
	attr.pd = p.pd;
	attr.send_cq = attr.recv_cq = p.cq[0];
	assert_null(ibv_create_qp_ex(p.ctx, &attr));
	assert_int_equal(errno, EOPNOTSUPP);

	ex = ibv_qp_to_qp_ex(p.qp[0]);
	/*
	 * Newer programs test these members before they call them. wr_flush may be missing in our
	 * headers.
	 */
	for (i = 0; i < 16; i++)
		assert_null(*(void **)((char *)ex + offsetof(struct ibv_qp_ex, wr_atomic_write) +
				       i * sizeof(void *)));
	ex->wr_flags = IBV_SEND_SIGNALED;
	/* Programs call these pointers without a check. They make the whole list fail. */
	ibv_wr_start(ex);
	ibv_wr_rdma_write(ex, p.mr[1]->rkey, (uintptr_t)p.buf[1]);
	ibv_wr_set_sge(ex, p.mr[0]->lkey, (uintptr_t)p.buf[0], 8);
	ibv_wr_send_tso(ex, big, 8, 8);
	assert_int_equal(ibv_wr_complete(ex), EOPNOTSUPP);
	ibv_wr_start(ex);
	ibv_wr_rdma_write(ex, 1, 1);
	ibv_wr_set_inline_data(ex, big, sizeof(big));
	assert_int_equal(ibv_wr_complete(ex), EINVAL);
	ibv_wr_start(ex);
	for (i = 0; i < 3; i++) {
		ibv_wr_rdma_write(ex, p.mr[1]->rkey, (uintptr_t)p.buf[1]);
		ibv_wr_set_sge(ex, p.mr[0]->lkey, (uintptr_t)p.buf[0], 8);
	}
	assert_int_equal(ibv_wr_complete(ex), ENOMEM);
	ibv_wr_start(ex);
	ibv_wr_rdma_write(ex, p.mr[1]->rkey, (uintptr_t)p.buf[1]);
	ibv_wr_abort(ex);
	/* None of these requests was posted. */
	settle(p.cq[0]);
	ibv_wr_start(ex);
	ex->wr_id = 42;
	ibv_wr_rdma_write(ex, p.mr[1]->rkey, (uintptr_t)p.buf[1]);
	ibv_wr_set_sge(ex, p.mr[0]->lkey, (uintptr_t)p.buf[0], 8);
	assert_int_equal(ibv_wr_complete(ex), 0);
	assert_int_equal(wait_good(p.cq[0]).wr_id, 42);
	pair_close(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(caps_are_at_least_what_was_asked),
		cmocka_unit_test(busy_objects_stay),
		cmocka_unit_test(posting_by_state),
		cmocka_unit_test(modify_refuses),
		cmocka_unit_test(query_tells_what_was_set),
		cmocka_unit_test(bad_work_requests),
		cmocka_unit_test(a_full_queue_says_so),
		cmocka_unit_test(every_operation),
		cmocka_unit_test(scatter_and_inline),
		cmocka_unit_test(unsignaled_and_sig_all),
		cmocka_unit_test(errors_flush),
		cmocka_unit_test(reset_and_again),
		cmocka_unit_test(the_drained_event_is_optional),
		cmocka_unit_test(ex_every_operation),
		cmocka_unit_test(ex_refuses),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
