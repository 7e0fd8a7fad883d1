/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Eight programs at one address, all connected with all, are killed and stopped at random under
 * load. Each WRITE is read back and compared. Each word in memory names its sender and receiver
 * with the number of their lives, so a packet that reached a wrong program or a successor is found.
 * Only the death of a peer may end a connection.
 *
 *	test-verbs-churn [KILLS [SEED]]
 */
#include "../common/network.h"
#include "fixture.h"

#include <dirent.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/rng.h"

#define MEMBERS	 8
#define KEEPER	 0 /* is stopped, but never killed */
#define WORDS	 64
#define BYTES	 (WORDS * 8)
#define PAUSE_US 200
#define LOOK_US	 500
/* Limits count looks, not the clock: a machine that slows the programs slows the looks, too. */
#define MOST_LOOKS (TIMEOUT_S * 1000000 / LOOK_US)

/* A message of a program to another about their connection. */
struct offer {
	_Atomic uint64_t lives; /* own << 32 | the other's; 0: not known yet */
	_Atomic uint32_t ready;
	uint32_t qpn, rkey;
	uint64_t addr;
};

static struct shared {
	_Atomic uint32_t life[MEMBERS], dying[MEMBERS]; /* dying: the last life that is killed */
	_Atomic uint32_t failed, fds, end;
	_Atomic uint64_t rounds[MEMBERS][MEMBERS];
	struct offer offer[MEMBERS][MEMBERS];
	char text[256];
} * shared;

static unsigned kills = 50, seed = 1;

/* ---- a program ---- */

static unsigned me;
static uint32_t life;
static struct ibv_context *ctx;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_mr *mr;
/* inbox[i] is written by program i */
static struct {
	uint64_t inbox[MEMBERS][WORDS], out[MEMBERS][WORDS], back[MEMBERS][WORDS];
} mem;
static struct link {
	struct ibv_qp *qp;
	uint32_t life; /* of the peer */
	unsigned phase, pending;
	uint64_t seq;
} links[MEMBERS];

static void failed(const char *what, unsigned peer, uint64_t value)
{
	if (!atomic_fetch_add(&shared->failed, 1))
		snprintf(shared->text, sizeof(shared->text),
			 "program %u, life %u: %s, peer %u (life %u now), value %llx", me, life,
			 what, peer, shared->life[peer], (unsigned long long)value);
}

static uint64_t word(unsigned from, uint32_t from_life, unsigned to, uint32_t to_life, uint64_t seq)
{
	return (uint64_t)(from << 4 | to | 0x80) << 56 | (uint64_t)(from_life & 0xfffff) << 36 |
	       (uint64_t)(to_life & 0xfffff) << 16 | (seq & 0xffff);
}

static void make_offer(unsigned j)
{
	struct offer *o = &shared->offer[me][j];
	struct link *l = &links[j];
	struct ibv_qp_init_attr init = {
		.cap = {.max_send_wr = 4, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
		.send_cq = cq,
		.recv_cq = cq,
	};
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT,
				.port_num = 1,
				.qp_access_flags =
					IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ};

	if (l->qp)
		ibv_destroy_qp(l->qp);
	*l = (struct link){.life = shared->life[j], .phase = 1};
	l->qp = ibv_create_qp(pd, &init);
	if (!l->qp ||
	    ibv_modify_qp(l->qp, &a,
			  IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
		failed("no queue pair", j, (uint64_t)errno);
	o->lives = 0;
	o->ready = 0;
	o->qpn = l->qp->qp_num;
	o->rkey = mr->rkey;
	o->addr = (uintptr_t)mem.inbox[j];
	o->lives = (uint64_t)life << 32 | l->life;
}

static void connect_link(unsigned j)
{
	const struct offer *o = &shared->offer[j][me];
	struct link *l = &links[j];
	union ibv_gid gid;
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTR,
				.path_mtu = IBV_MTU_1024,
				.dest_qp_num = o->qpn,
				.max_dest_rd_atomic = 1,
				.min_rnr_timer = 1,
				.ah_attr = {.is_global = 1, .port_num = 1, .grh.hop_limit = 64}};
	int rc = ibv_query_gid(ctx, 1, 0, &gid);

	a.ah_attr.grh.dgid = gid;
	rc = rc ? rc
		: ibv_modify_qp(l->qp, &a,
				IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
					IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
					IBV_QP_MIN_RNR_TIMER);
	a = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS,
				 .timeout = 20,
				 .retry_cnt = 7,
				 .rnr_retry = 7,
				 .max_rd_atomic = 1};
	rc = rc ? rc
		: ibv_modify_qp(l->qp, &a,
				IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
					IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
	if (rc)
		failed("can't connect", j, (uint64_t)rc);
	shared->offer[me][j].ready = 1;
}

static void post(unsigned j, enum ibv_wr_opcode op, uint64_t *at)
{
	const struct offer *o = &shared->offer[j][me];
	struct ibv_sge sge = {(uintptr_t)at, BYTES, mr->lkey};
	struct ibv_send_wr wr = {.wr_id = (uint64_t)links[j].life << 8 | j,
				 .sg_list = &sge,
				 .num_sge = 1,
				 .opcode = op,
				 .wr.rdma = {o->addr, o->rkey}},
			   *bad;

	if (ibv_post_send(links[j].qp, &wr, &bad))
		failed("can't post", j, 0);
	links[j].pending++;
}

static void advance(unsigned j)
{
	struct link *l = &links[j];
	const struct offer *o = &shared->offer[j][me];
	uint64_t lives = (uint64_t)l->life << 32 | life;

	if (!shared->life[j])
		return;
	if (l->life != shared->life[j]) {
		make_offer(j);
		return;
	}
	if (o->lives != lives)
		return;
	if (l->phase == 1) {
		connect_link(j);
		l->phase = 2;
	} else if (l->phase == 2 && o->ready) {
		l->phase = 3;
	} else if (l->phase == 3 && !l->pending) {
		l->seq++;
		for (unsigned i = 0; i < WORDS; i++)
			mem.out[j][i] = word(me, life, j, l->life, l->seq);
		post(j, IBV_WR_RDMA_WRITE, mem.out[j]);
		post(j, IBV_WR_RDMA_READ, mem.back[j]);
	}
}

static void complete(const struct ibv_wc *wc)
{
	unsigned j = wc->wr_id & 0xff;
	struct link *l = &links[j];

	if (l->life != (uint32_t)(wc->wr_id >> 8))
		return;
	if (wc->status != IBV_WC_SUCCESS) {
		if (shared->dying[j] < l->life && shared->dying[me] < life)
			failed(ibv_wc_status_str(wc->status), j, l->seq);
		l->phase = 4; /* until the next life of the peer */
		return;
	}
	if (--l->pending)
		return;
	if (memcmp(mem.out[j], mem.back[j], BYTES))
		failed("wrong bytes came back", j, mem.back[j][0]);
	atomic_fetch_add(&shared->rounds[me][j], 1);
}

static void check_inbox(unsigned j)
{
	for (unsigned i = 0; i < WORDS; i++) {
		uint64_t w = ((volatile uint64_t *)mem.inbox[j])[i];
		uint32_t from = w >> 36 & 0xfffff;

		if (w && (from > shared->life[j] || (w ^ word(j, from, me, life, w)) >> 16))
			failed("a word of another program", j, w);
	}
}

static uint32_t count_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	uint32_t n = 0;

	while (d && readdir(d))
		n++;
	closedir(d);
	return n;
}

static void program(void)
{
	struct ibv_wc wc[16];

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	ctx = open_device();
	pd = ibv_alloc_pd(ctx);
	cq = ibv_create_cq(ctx, 256, NULL, NULL, 0);
	mr = ibv_reg_mr(pd, &mem, sizeof(mem),
			IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
	if (!cq || !mr)
		failed("can't open", me, (uint64_t)errno);
	while (!shared->end && !shared->failed) {
		int n = ibv_poll_cq(cq, 16, wc);

		for (int i = 0; i < n; i++)
			complete(&wc[i]);
		for (unsigned j = 0; j < MEMBERS; j++) {
			if (j == me)
				continue;
			advance(j);
			check_inbox(j);
		}
		if (me == KEEPER)
			shared->fds = count_fds();
		usleep(PAUSE_US);
	}
	ibv_close_device(ctx);
	_exit(0);
}

/* ---- the test ---- */

static pid_t pid[MEMBERS];

static void start(unsigned i)
{
	uint32_t next = shared->life[i] + 1;

	pid[i] = fork();
	assert_true(pid[i] >= 0);
	if (pid[i] == 0) {
		me = i;
		life = next;
		shared->life[i] = next;
		program();
	}
}

static void check_failures(void)
{
	if (shared->failed)
		fail_msg("%u failures (seed %u); the first: %s", shared->failed, seed,
			 shared->text);
}

/* Waits until all programs but one have exchanged bytes with each other since now. */
static void wait_without(unsigned left_out)
{
	uint64_t before[MEMBERS][MEMBERS];
	unsigned looks = 0;

	memcpy(before, shared->rounds, sizeof(before));
	for (unsigned i = 0; i < MEMBERS; i++) {
		for (unsigned j = 0; j < MEMBERS; j++) {
			while (i != j && i != left_out && j != left_out &&
			       shared->rounds[i][j] < before[i][j] + 2) {
				check_failures();
				if (looks++ == MOST_LOOKS)
					fail_msg("program %u gets nothing from %u (seed %u)", i, j,
						 seed);
				usleep(LOOK_US);
			}
		}
	}
	check_failures();
}

static void wait_all(void)
{
	wait_without(MEMBERS);
}

/* While a program is stopped, the others wait for nothing. */
static void stop_each(void)
{
	for (unsigned i = 0; i < MEMBERS; i++) {
		kill(pid[i], SIGSTOP);
		for (int round = 0; round < 10; round++)
			wait_without(i);
		kill(pid[i], SIGCONT);
		wait_all();
	}
}

static void wait_for_fds(uint32_t fds)
{
	unsigned looks = 0;

	while (shared->fds > fds) { /* the ends of dead programs are closed soon */
		if (looks++ == MOST_LOOKS)
			fail_msg("%u descriptors, %u before (seed %u)", shared->fds, fds, seed);
		usleep(LOOK_US);
	}
}

/* Names of sockets of `roost stat` in the folder whose process has ended. */
static unsigned count_left_names(void)
{
	DIR *d = opendir(getenv("ROOST_SHM_DIR"));
	struct dirent *e;
	unsigned n = 0;
	int of;

	assert_non_null(d);
	while ((e = readdir(d)) != NULL)
		n += sscanf(e->d_name, "stat.%d", &of) == 1 && kill(of, 0) && errno == ESRCH;
	closedir(d);
	return n;
}

/* Names of the pool that some process has. */
static unsigned count_names(void)
{
	FILE *f = fopen("/proc/net/unix", "r");
	char line[512];
	unsigned n = 0;

	while (f && fgets(line, sizeof(line), f))
		n += strstr(line, "roost-pool-") != NULL;
	if (f)
		fclose(f);
	return n;
}

static void kills_and_stops(void **state)
{
	struct rng r;
	uint32_t fds;

	rng_seed(&r, seed);
	for (unsigned i = 0; i < MEMBERS; i++)
		start(i);
	wait_all();
	stop_each();
	fds = shared->fds;
	for (unsigned n = 0; n < kills; n++) {
		unsigned victim = KEEPER + 1 + (unsigned)(rng_u64(&r) % (MEMBERS - 1));
		unsigned stopped = (unsigned)(rng_u64(&r) % MEMBERS);

		usleep((useconds_t)(rng_u64(&r) % 4000));
		kill(pid[stopped], SIGSTOP);
		usleep((useconds_t)(rng_u64(&r) % 2000));
		shared->dying[victim] = shared->life[victim] + 1; /* it may not have begun */
		kill(pid[victim], SIGKILL);
		waitpid(pid[victim], NULL, 0);
		shared->dying[victim] = shared->life[victim];
		start(victim);
		usleep((useconds_t)(rng_u64(&r) % 4000));
		kill(pid[stopped], SIGCONT);
		if (rng_u64(&r) % 8 == 0)
			wait_all();
		check_failures();
	}
	wait_all();
	wait_all();
	wait_for_fds(fds);
	assert_int_equal(count_left_names(), 0);
	shared->end = 1;
	for (unsigned i = 0; i < MEMBERS; i++) {
		int status;

		assert_int_equal(waitpid(pid[i], &status, 0), pid[i]);
		assert_int_equal(status, 0);
	}
	check_failures();
	assert_int_equal(count_names(), 0);
}

/* Its child lives, without a call of exec, and holds no slot of the program that was killed. */
static void forked_child_lives(void **state)
{
	pid_t program_pid, child;
	uint64_t waited = 0;
	int fd[2];

	assert_int_equal(pipe(fd), 0);
	program_pid = fork();
	if (program_pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		ctx = open_device();
		child = fork();
		if (child == 0)
			pause();
		if (write(fd[1], &child, sizeof(child)) == sizeof(child))
			pause();
		_exit(1);
	}
	assert_int_equal(read(fd[0], &child, sizeof(child)), sizeof(child));
	assert_true(count_names() > 0);
	kill(program_pid, SIGKILL);
	assert_int_equal(waitpid(program_pid, NULL, 0), program_pid);
	/* The child closes its copies when it runs first. A second of sleeps is the limit. */
	while (count_names() && waited++ < 1000)
		usleep(1000);
	assert_int_equal(kill(child, 0), 0);
	assert_int_equal(count_names(), 0);
	kill(child, SIGKILL);
	close(fd[0]);
	close(fd[1]);
}

static bool at_one_address(void)
{
	const char *kind = getenv("VERBS_TEST_PORT");
	char spec[64];

	snprintf(spec, sizeof(spec), "%s:127.0.92.1", kind ? kind : "udp");
	return setenv("ROOST_PORT", spec, 1) == 0;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(kills_and_stops),
		cmocka_unit_test(forked_child_lives),
	};

	if (argc > 1)
		kills = (unsigned)strtoul(argv[1], NULL, 0);
	if (argc > 2)
		seed = (unsigned)strtoul(argv[2], NULL, 0);
	if (!network_own()) {
		printf("skipped: no network of its own\n");
		return 77;
	}
	printf("%u kills, seed %u\n", kills, seed);
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	if (shared == MAP_FAILED || !at_one_address())
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
