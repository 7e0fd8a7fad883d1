/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The MTU of connections between two programs at one address, whose interface has 1500 bytes: the
 * device reports 1024. READs have the right bytes only if both ends segment alike. The test runs in
 * a network namespace that has such an interface.
 */
#include "../common/network.h"
#include "side.h"

#include "forked.h"

#include <sys/resource.h>
#include <unistd.h>

#define ADDRESS "10.78.0.1"
#define BYTES	100000 /* with a remainder at each MTU */
#define ROUNDS	20

static uint8_t buf[2][BYTES]; /* what this program sends, and what its peer reads and writes */

static unsigned mtu_of(struct ibv_qp *qp)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	assert_int_equal(ibv_query_qp(qp, &attr, IBV_QP_PATH_MTU, &init), 0);
	return 128u << attr.path_mtu;
}

static uint8_t content(int side, unsigned round, uint32_t i)
{
	return (uint8_t)(side * 77 + round * 31 + i * 7 + (i >> 8));
}

static void transfer(struct side *s, enum ibv_wr_opcode opcode)
{
	struct ibv_wc wc;

	assert_int_equal(side_post(s, opcode, 1, buf[0], BYTES, BYTES), 0);
	wc = side_wc(s);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
}

/* Each side writes to its half of the peer's memory, and reads it back. */
static void run_side(struct side *s, int side, int in, int out)
{
	char word = 0;

	for (unsigned round = 0; round < ROUNDS; round++) {
		for (uint32_t i = 0; i < BYTES; i++)
			buf[0][i] = content(side, round, i);
		transfer(s, IBV_WR_RDMA_WRITE);
		memset(buf[0], 0, BYTES);
		transfer(s, IBV_WR_RDMA_READ);
		for (uint32_t i = 0; i < BYTES; i++)
			assert_int_equal(buf[0][i], content(side, round, i));
	}
	assert_int_equal(write(out, &word, 1), 1); /* neither side ends before the other is ready */
	assert_int_equal(read(in, &word, 1), 1);
}

/* From now on this program can make no ring: its packets go by udp. */
static void take_space(struct side *s, struct ibv_qp_init_attr *init)
{
	struct rlimit limit;

	assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
	limit.rlim_cur = 32 << 10;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

struct program {
	const char *port;
	enum ibv_mtu stated;
	bool no_ring;
};

static void run_program(const struct program *p, unsigned mtu, int side, int in, int out)
{
	static struct side s;

	setenv("ROOST_PORT", p->port, 1);
	s.mtu = p->stated;
	s.prepare = p->no_ring ? take_space : NULL;
	side_open(&s, buf, sizeof(buf), IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE, in, out);
	assert_int_equal(mtu_of(s.qp), mtu);
	run_side(&s, side, in, out);
	side_close(&s);
}

/* Runs two programs, which end in success. The MTU of their connection is `mtu`. */
static void run_two(const struct program *a, const struct program *b, unsigned mtu)
{
	struct forked first, second;

	if (forked_start(&first, 2 * TIMEOUT_S)) {
		if (forked_start(&second, 2 * TIMEOUT_S)) {
			run_program(b, mtu, 1, second.there[0], second.back[1]);
			_exit(0);
		}
		run_program(a, mtu, 0, second.back[0], second.there[1]);
		forked_end(&second);
		_exit(0);
	}
	forked_end(&first);
}

#define HOST "host:" ADDRESS
static const struct program host = {HOST, 0, false}, host_without_rings = {HOST, 0, true},
			    host_512 = {HOST, IBV_MTU_512, false},
			    host_1024 = {HOST ",mtu=1024", 0, false},
			    udp = {"udp:" ADDRESS, 0, false},
			    loopback = {"host:127.0.0.1", 0, false}; /* its device reports 4096 */

static void larger_than_the_interface(void **state)
{
	run_two(&host, &host, 4096);
}

/* The end without rings counts packets as the other one. */
static void one_end_without_rings(void **state)
{
	run_two(&host_without_rings, &host, 4096);
	run_two(&host, &host_without_rings, 4096);
	run_two(&host_without_rings, &host_without_rings, 4096);
}

static void smaller_by_choice(void **state)
{
	run_two(&host_512, &host_512, 512);
	run_two(&host, &host_1024, 1024);
	run_two(&host_1024, &host, 1024);
}

static void peer_with_another_port(void **state)
{
	run_two(&host, &udp, 1024);
	run_two(&udp, &host, 1024);
	run_two(&host, &loopback, 4096);
}

/* Returns the result of ibv_modify_qp() to RTR. */
static int connect_to(struct ibv_qp *qp, const union ibv_gid *gid, uint32_t qpn,
		      enum ibv_mtu stated)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_RESET};

	assert_int_equal(ibv_modify_qp(qp, &a, IBV_QP_STATE), 0);
	a = (struct ibv_qp_attr){.qp_state = IBV_QPS_INIT, .port_num = 1};
	assert_int_equal(
		ibv_modify_qp(qp, &a,
			      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
		0);
	a = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR,
		.path_mtu = stated,
		.dest_qp_num = qpn,
		.ah_attr = {.is_global = 1, .port_num = 1, .grh = {.hop_limit = 64, .dgid = *gid}},
	};
	return ibv_modify_qp(qp, &a,
			     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				     IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
				     IBV_QP_MIN_RNR_TIMER);
}

/*
 * Each connection of a queue pair has the MTU of its own peer. A program may state the one that a
 * query has returned.
 */
static void run_next_peer(void)
{
	union ibv_gid own, other = {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 78, 0, 2}};
	struct pair p;
	uint32_t qpn;

	setenv("ROOST_PORT", HOST, 1);
	pair_open(&p, &(struct pair_options){.cap = {.max_send_wr = 4,
						     .max_recv_wr = 4,
						     .max_send_sge = 1,
						     .max_recv_sge = 1},
					     .leave_reset = true});
	assert_int_equal(ibv_query_gid(p.ctx, 1, 0, &own), 0);
	qpn = p.qp[1]->qp_num;
	for (int i = 0; i < 2; i++) {
		assert_int_equal(connect_to(p.qp[0], &own, qpn, IBV_MTU_1024), 0);
		assert_int_equal(mtu_of(p.qp[0]), 4096);
		assert_int_equal(connect_to(p.qp[0], &own, qpn, IBV_MTU_4096), 0);
		assert_int_equal(mtu_of(p.qp[0]), 4096);
		assert_int_equal(connect_to(p.qp[0], &other, qpn, IBV_MTU_1024), 0);
		assert_int_equal(mtu_of(p.qp[0]), 1024);
		assert_int_equal(connect_to(p.qp[0], &other, qpn, IBV_MTU_2048), EINVAL);
	}
	pair_close(&p);
}

static void next_peer(void **state)
{
	struct forked f;

	if (forked_start(&f, 2 * TIMEOUT_S)) {
		run_next_peer();
		_exit(0);
	}
	forked_end(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(larger_than_the_interface),
		cmocka_unit_test(one_end_without_rings),
		cmocka_unit_test(smaller_by_choice),
		cmocka_unit_test(peer_with_another_port),
		cmocka_unit_test(next_peer),
	};

	if (network_tunnel(ADDRESS, "fd78::1", 1500) < 0) {
		printf("no network namespace with a tunnel device here\n");
		return 77;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
