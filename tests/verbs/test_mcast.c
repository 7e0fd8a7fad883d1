/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Multicast groups through the verbs, between processes: each member gets each datagram once, also
 * the sender's own QP.
 */
#include "fixture.h"

#include <netinet/in.h>
#include <sys/wait.h>
#include <unistd.h>

#define QKEY	 0x12345678
#define GRH	 40
#define MESSAGES 20
#define SPACE	 256
#define MCAST	 0xffffff

struct member {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	uint8_t buf[2 * MESSAGES * SPACE];
};

static struct member M, *const m = &M;

/* A group that no other test uses, made from its number and the test's process id. */
static union ibv_gid group_gid(int number)
{
	static int pid;
	union ibv_gid gid = {.raw = {[10] = 0xff, [11] = 0xff, [12] = 239}};

	if (!pid)
		pid = getpid();
	if (getenv("VERBS_TEST_V6"))
		gid = (union ibv_gid){.raw = {0xff, 0x0e}}; /* of global scope */
	gid.raw[13] = (uint8_t)(64 + number);
	gid.raw[14] = (uint8_t)(pid >> 8);
	gid.raw[15] = (uint8_t)pid;
	return gid;
}

static struct ibv_qp *make_qp(enum ibv_qp_type type)
{
	struct ibv_qp_init_attr init = {
		.send_cq = m->cq,
		.recv_cq = m->cq,
		.cap = {.max_send_wr = MESSAGES,
			.max_recv_wr = 2 * MESSAGES,
			.max_send_sge = 1,
			.max_recv_sge = 1},
		.qp_type = type,
		.sq_sig_all = 1,
	};
	struct ibv_qp *qp = ibv_create_qp(m->pd, &init);

	assert_non_null(qp);
	return qp;
}

static void start(void)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY};
	int i;

	memset(m, 0, sizeof(*m));
	m->ctx = open_device();
	m->pd = ibv_alloc_pd(m->ctx);
	m->cq = ibv_create_cq(m->ctx, 4 * MESSAGES, NULL, NULL, 0);
	m->mr = ibv_reg_mr(m->pd, m->buf, sizeof(m->buf), IBV_ACCESS_LOCAL_WRITE);
	m->qp = make_qp(IBV_QPT_UD);
	assert_int_equal(
		ibv_modify_qp(m->qp, &a,
			      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY),
		0);
	a.qp_state = IBV_QPS_RTR;
	assert_int_equal(ibv_modify_qp(m->qp, &a, IBV_QP_STATE), 0);
	a.qp_state = IBV_QPS_RTS;
	assert_int_equal(ibv_modify_qp(m->qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN), 0);
	for (i = 0; i < MESSAGES; i++) {
		struct ibv_sge sge = {(uintptr_t)m->buf + (unsigned)i * SPACE, SPACE, m->mr->lkey};
		struct ibv_recv_wr wr = {.wr_id = (uint64_t)i, .sg_list = &sge, .num_sge = 1}, *bad;

		assert_int_equal(ibv_post_recv(m->qp, &wr, &bad), 0);
	}
}

static void finish(void)
{
	assert_int_equal(ibv_destroy_qp(m->qp), 0);
	assert_int_equal(ibv_dereg_mr(m->mr), 0);
	assert_int_equal(ibv_destroy_cq(m->cq), 0);
	assert_int_equal(ibv_dealloc_pd(m->pd), 0);
	assert_int_equal(ibv_close_device(m->ctx), 0);
}

static struct ibv_ah *make_ah(const union ibv_gid *gid)
{
	struct ibv_ah_attr a = {.is_global = 1, .port_num = 1, .grh = {.dgid = *gid}};
	struct ibv_ah *ah = ibv_create_ah(m->pd, &a);

	assert_non_null(ah);
	return ah;
}

static void post(struct ibv_ah *ah, int k)
{
	uint8_t *from = m->buf + (MESSAGES + k) * SPACE;
	struct ibv_sge sge = {(uintptr_t)from, (uint32_t)(100 + k), m->mr->lkey};
	struct ibv_send_wr wr = {.wr_id = 1000,
				 .sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_SEND_WITH_IMM},
			   *bad;

	memset(from, k, sge.length);
	wr.imm_data = htobe32((uint32_t)k);
	wr.wr.ud.ah = ah;
	wr.wr.ud.remote_qpn = MCAST;
	wr.wr.ud.remote_qkey = QKEY;
	assert_int_equal(ibv_post_send(m->qp, &wr, &bad), 0);
}

/* Checks that message k came, to the group. */
static void check(const struct ibv_wc *wc, int k, const union ibv_gid *gid, uint32_t src_qp)
{
	const uint8_t *b = m->buf + wc->wr_id * SPACE;
	int i;

	assert_int_equal(wc->status, IBV_WC_SUCCESS);
	assert_int_equal(wc->opcode, IBV_WC_RECV);
	assert_int_equal(be32toh(wc->imm_data), k);
	assert_int_equal(wc->byte_len, GRH + 100 + k);
	assert_int_equal(wc->wc_flags, IBV_WC_GRH | IBV_WC_WITH_IMM);
	assert_int_equal(wc->src_qp, src_qp);
	if (getenv("VERBS_TEST_V6"))
		assert_memory_equal(b + 24, gid->raw, 16);
	else
		assert_memory_equal(b + 36, gid->raw + 12, 4);
	for (i = 0; i < 100 + k; i++)
		assert_int_equal(b[GRH + i], k);
}

struct said {
	uint32_t qp_num;
};

/*
 * Runs in a process of its own: attaches, reports that, expects each message once, and detaches.
 * `outsider`: it is in another group.
 */
static pid_t start_member(int *ready, int *go, bool outsider)
{
	union ibv_gid gid = group_gid(outsider);
	struct ibv_wc wc[MESSAGES];
	struct said sender;
	pid_t pid = fork();
	int i;

	if (pid)
		return pid;
	choose_port(true);
	start();
	assert_int_equal(ibv_attach_mcast(m->qp, &gid, 0), 0);
	assert_int_equal(write(ready[1], "x", 1), 1);
	assert_int_equal(read(go[0], &sender, sizeof(sender)), sizeof(sender));
	if (outsider) {
		/* The others have got all messages by now. */
		settle(m->cq);
		assert_int_equal(ibv_poll_cq(m->cq, 1, wc), 0);
	} else {
		wait_wcs(m->cq, wc, MESSAGES);
		for (i = 0; i < MESSAGES; i++)
			check(&wc[i], i, &gid, sender.qp_num);
	}
	assert_int_equal(ibv_detach_mcast(m->qp, &gid, 0), 0);
	finish();
	_exit(0);
}

static void end_member(pid_t pid)
{
	int status = -1;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

/* `members` processes in the group, one in another. The sender is a member or not. */
static void between(int members, bool itself)
{
	union ibv_gid gid = group_gid(0);
	int ready[2], go[2], late[2], i, got = 0;
	struct ibv_wc wc[2 * MESSAGES];
	struct said said;
	struct ibv_ah *ah;
	pid_t pid[3], outsider;
	char c;

	assert_int_equal(pipe(ready) | pipe(go) | pipe(late), 0);
	for (i = 0; i < members; i++)
		pid[i] = start_member(ready, go, false);
	outsider = start_member(ready, late, true);
	for (i = 0; i <= members; i++)
		assert_int_equal(read(ready[0], &c, 1), 1);
	choose_port(true);
	start();
	if (itself)
		assert_int_equal(ibv_attach_mcast(m->qp, &gid, 0), 0);
	said.qp_num = m->qp->qp_num;
	for (i = 0; i < members; i++)
		assert_int_equal(write(go[1], &said, sizeof(said)), sizeof(said));
	ah = make_ah(&gid);
	for (i = 0; i < MESSAGES; i++)
		post(ah, i);
	wait_wcs(m->cq, wc, itself ? 2 * MESSAGES : MESSAGES);
	for (i = 0; i < (itself ? 2 * MESSAGES : MESSAGES); i++) {
		if (wc[i].wr_id == 1000)
			assert_int_equal(wc[i].status, IBV_WC_SUCCESS);
		else
			check(&wc[i], got++, &gid, said.qp_num);
	}
	for (i = 0; i < members; i++)
		end_member(pid[i]);
	assert_int_equal(write(late[1], &said, sizeof(said)), sizeof(said));
	end_member(outsider);
	assert_int_equal(ibv_destroy_ah(ah), 0);
	if (itself)
		assert_int_equal(ibv_detach_mcast(m->qp, &gid, 0), 0);
	finish();
	for (i = 0; i < 2; i++) {
		close(ready[i]);
		close(go[i]);
		close(late[i]);
	}
}

static void two_processes(void **state)
{
	between(1, false);
	between(1, true);
}

static void three_processes(void **state)
{
	between(3, true);
}

/* The verbs' limits and errors. A QP in a group may not be destroyed. */
static void calls(void **state)
{
	union ibv_gid gid = group_gid(0), other = group_gid(1),
		      none = {.raw = {[10] = 0xff, [11] = 0xff, 10, 0, 0, 1}},
		      foreign = {.raw = {0xff, 0x0e, [15] = 1}};
	struct ibv_device_attr dev;
	struct ibv_qp *rc;

	if (getenv("VERBS_TEST_V6"))
		foreign = (union ibv_gid){.raw = {[10] = 0xff, [11] = 0xff, 239, 1, 1, 1}};
	start();
	assert_int_equal(ibv_query_device(m->ctx, &dev), 0);
	assert_in_range(dev.max_mcast_grp, 16, 65536);
	assert_in_range(dev.max_mcast_qp_attach, 16, 65536);
	assert_int_equal(dev.max_total_mcast_qp_attach,
			 dev.max_mcast_grp * dev.max_mcast_qp_attach);
	assert_int_equal(ibv_attach_mcast(m->qp, &none, 0), EINVAL);
	assert_int_equal(ibv_attach_mcast(m->qp, &foreign, 0), EAFNOSUPPORT);
	assert_int_equal(ibv_detach_mcast(m->qp, &gid, 0), EINVAL);
	rc = make_qp(IBV_QPT_RC);
	assert_int_equal(ibv_attach_mcast(rc, &gid, 0), EINVAL);
	assert_int_equal(ibv_destroy_qp(rc), 0);
	assert_int_equal(ibv_attach_mcast(m->qp, &gid, 0), 0);
	assert_int_equal(ibv_attach_mcast(m->qp, &gid, 0), 0);
	assert_int_equal(ibv_attach_mcast(m->qp, &other, 0), 0);
	assert_int_equal(ibv_destroy_qp(m->qp), EBUSY);
	assert_int_equal(ibv_detach_mcast(m->qp, &gid, 0), 0);
	assert_int_equal(ibv_destroy_qp(m->qp), EBUSY);
	assert_int_equal(ibv_detach_mcast(m->qp, &gid, 0), EINVAL);
	assert_int_equal(ibv_detach_mcast(m->qp, &other, 0), 0);
	finish();
	/* A program may close the device while the QP is attached. */
	start();
	assert_int_equal(ibv_attach_mcast(m->qp, &gid, 0), 0);
	assert_int_equal(ibv_close_device(m->ctx), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(two_processes),
		cmocka_unit_test(three_processes),
		cmocka_unit_test(calls),
	};

	if (!network_ready())
		return 77;
	/* The members of a test compute the group from this process's id. */
	group_gid(0);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
