/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A program is killed, and its peer still sends to it. The next program gets the same slot of the
 * address, creates queue pairs and registers memory. Its seed is that of the dead program, so only
 * the counts in the pool keep the numbers apart. No packet for the dead program may be accepted.
 *
 * The peer is a port without a NIC, which sends packets of the test. Other processes have the
 * remaining slots.
 */
#include "../common/network.h"
#include "../nic/make_packet.h"
#include "fixture.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "pool/pool.h"
#include "port/port.h"

#define QPS    32
#define AREA   64 /* bytes of each queue pair in the memory that all processes share */
#define BYTES  (QPS * AREA)
#define OTHERS 16 /* processes with 4 slots each, the last with 2 */

struct numbers {
	uint32_t qpn[QPS], rkey[QPS];
};

struct program {
	pid_t pid;
	int in, out;
};

static const char spec[] = "udp:127.0.91.1";
static uint8_t *memory;
static struct port *port;
static uint32_t peer_qpn;

static struct program start(void (*run)(int in, int out, unsigned n), unsigned n)
{
	struct program p;
	int there[2], back[2];

	assert_int_equal(pipe(there), 0);
	assert_int_equal(pipe(back), 0);
	p.pid = fork();
	assert_true(p.pid >= 0);
	if (p.pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(there[1]); /* its end is seen when the test ends */
		run(there[0], back[1], n);
		_exit(0);
	}
	close(there[0]);
	close(back[1]);
	p.in = back[0];
	p.out = there[1];
	return p;
}

static void go(const struct program *p, const void *data, size_t n)
{
	assert_int_equal(write(p->out, data, n), n);
}

static void hear(const struct program *p, void *data, size_t n)
{
	assert_int_equal(read(p->in, data, n), n);
}

static void finish(struct program *p)
{
	kill(p->pid, SIGKILL);
	waitpid(p->pid, NULL, 0);
	close(p->in);
	close(p->out);
}

/* ---- in the processes ---- */

static void take_slots(int in, int out, unsigned n)
{
	struct pool *p;
	char byte;

	if (read(in, &byte, 1) != 1)
		return;
	p = pool_get();
	byte = 1;
	for (unsigned i = 0; i < n; i++) {
		if (!p || pool_slot(p, i) < 0)
			byte = 0;
	}
	if (write(out, &byte, 1) == 1)
		pause();
}

static struct ibv_qp *connect_qp(struct ibv_context *ctx, struct ibv_pd *pd, struct ibv_cq *cq)
{
	const int access = IBV_ACCESS_REMOTE_WRITE;
	struct ibv_qp_init_attr init = {
		.cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
		.qp_type = IBV_QPT_RC,
		.send_cq = cq,
		.recv_cq = cq,
	};
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = access};
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	union ibv_gid gid;

	if (!qp || ibv_query_gid(ctx, 1, 0, &gid) ||
	    ibv_modify_qp(qp, &a,
			  IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
		return NULL;
	a = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = peer_qpn,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 1,
		.ah_attr = {.is_global = 1, .port_num = 1, .grh = {.hop_limit = 64, .dgid = gid}},
	};
	return ibv_modify_qp(qp, &a,
			     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				     IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
				     IBV_QP_MIN_RNR_TIMER)
		       ? NULL
		       : qp;
}

static void program(int in, int out, unsigned n)
{
	struct numbers own = {0};
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq;

	if (read(in, &peer_qpn, sizeof(peer_qpn)) != sizeof(peer_qpn))
		return;
	ctx = open_device();
	pd = ibv_alloc_pd(ctx);
	cq = ibv_create_cq(ctx, 16, NULL, NULL, 0);
	for (unsigned i = 0; i < QPS; i++) {
		struct ibv_qp *qp = connect_qp(ctx, pd, cq);
		struct ibv_mr *mr = ibv_reg_mr(pd, memory, BYTES,
					       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);

		if (!qp || !mr)
			break;
		own.qpn[i] = qp->qp_num;
		own.rkey[i] = mr->rkey;
	}
	if (write(out, &own, sizeof(own)) == sizeof(own))
		pause();
}

/* ---- in the test ---- */

/* Sends a WRITE of AREA bytes into area i. */
static void send_write(uint32_t qpn, uint32_t rkey, unsigned i, uint8_t value)
{
	struct port_path *path = port->ops->path_get(port, &port->addr, qpn);
	struct pkt_make m = {.opcode = PKT_WRITE_ONLY,
			     .ackreq = true,
			     .va = (uintptr_t)memory + i * AREA,
			     .rkey = rkey,
			     .dmalen = AREA,
			     .len = AREA};
	uint8_t payload[AREA], pkt[256];
	struct port_buf buf;
	struct icrc_flow flow;
	uint32_t len;

	assert_non_null(path);
	memset(payload, value, sizeof(payload));
	m.payload = payload;
	len = pkt_make_raw(pkt, &m, qpn);
	assert_int_equal(port->ops->reserve(port, path, len, 0, &buf), 0);
	memcpy(buf.bth, pkt, len);
	icrc_flow_init(&flow, &port->addr, &path->dst, path->sport, PKT_UDP_PORT);
	icrc_store(buf.bth + len - PKT_ICRC_LEN, icrc_compute(&flow, buf.ip_id, buf.bth, len));
	assert_true(port->ops->flush(port));
	port->ops->path_put(port, path);
}

static void wait_for(unsigned i, uint8_t value)
{
	time_t until = time(NULL) + TIMEOUT_S;

	while (((volatile uint8_t *)memory)[(i + 1) * AREA - 1] != value) {
		if (time(NULL) > until)
			fail_msg("no WRITE of %d into area %u", value, i);
		usleep(100);
	}
}

static void run_program(struct program *p, struct numbers *n)
{
	go(p, &peer_qpn, sizeof(peer_qpn));
	hear(p, n, sizeof(*n));
	for (unsigned i = 0; i < QPS; i++)
		assert_int_not_equal(n->rkey[i], 0);
}

static void packets_of_the_dead(void **state)
{
	struct program dead = start(program, 0), next = start(program, 0), other[OTHERS];
	struct numbers old, new;

	for (unsigned i = 0; i < OTHERS; i++)
		other[i] = start(take_slots, i < OTHERS - 1 ? 4 : 2);
	{
		char err[256];

		port = port_open(spec, 0, 1, err, sizeof(err));
		if (!port)
			fail_msg("%s", err);
	}
	peer_qpn = (uint32_t)port->slot << 18 | 0x75;
	for (unsigned i = 0; i < OTHERS; i++) {
		char byte = 0;

		go(&other[i], &byte, 1);
		hear(&other[i], &byte, 1);
		assert_int_equal(byte, 1);
	}
	run_program(&dead, &old);
	for (unsigned i = 0; i < QPS; i++)
		send_write(old.qpn[i], old.rkey[i], i, 1);
	for (unsigned i = 0; i < QPS; i++)
		wait_for(i, 1);
	finish(&dead);
	run_program(&next, &new);
	assert_int_equal(new.qpn[0] >> 18, old.qpn[0] >> 18);
	for (unsigned i = 0; i < QPS; i++) {
		send_write(old.qpn[i], old.rkey[i], i, 2);
		send_write(old.qpn[i], new.rkey[i], i, 3); /* the QP number alone protects */
		if (i >= QPS / 2)
			send_write(new.qpn[i], old.rkey[i], i, 4); /* the key alone */
	}
	/*
	 * A socket keeps the order: when this packet has arrived, all earlier ones were processed.
	 */
	send_write(new.qpn[0], new.rkey[0], 0, 5);
	wait_for(0, 5);
	for (unsigned i = AREA; i < BYTES; i++) {
		if (memory[i] != 1)
			fail_msg("byte %u is %u: a packet for the dead program was accepted", i,
				 memory[i]);
	}
	finish(&next);
	for (unsigned i = 0; i < OTHERS; i++)
		finish(&other[i]);
	port_close(port);
}

static int setup(void **state)
{
	signal(SIGPIPE, SIG_IGN);
	memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	return memory == MAP_FAILED || setenv("ROOST_PORT", spec, 1) ||
	       setenv("ROOST_SEED", "1", 1) || setenv("ROOST_PUS", "1", 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(packets_of_the_dead),
	};

	if (!network_own()) { /* all slots of the pool are taken: other tests have one, too */
		printf("skipped: no network of its own\n");
		return 77;
	}
	return cmocka_run_group_tests(tests, setup, NULL);
}
