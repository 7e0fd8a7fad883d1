// SPDX-License-Identifier: BSD-2-Clause
/*
 * Two ends of a reliable connection, each on a stack of its own, that check what perftest does not: every byte and length of every
 * operation, and how an operation that must fail does. Knows the standard verbs alone: the same binary runs on the kernel's stack
 * in the guest and on the drop-in library here.
 *
 *	pair [-d DEVICE] [-x GID INDEX] [-m PATH MTU] [-p TCP PORT] TEST [SERVER]
 *
 * Both ends are given the same TEST; the one without SERVER's address waits for the other, and what arrives there is checked there.
 * They meet over TCP (IPv4), and take turns by a byte on it. Exit status 0 when all was as it should be.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
	SLOT = 32 << 10,
	SLOTS = 32,	     // of the target area: one operation each
	WORD = SLOTS * SLOT, // the word for atomics
	RECV = WORD + SLOT,  // receive buffers, a slot each
	RECVS = 24,
	LANDING = RECV, // the client receives nothing: READs land there
	MEMORY = RECV + RECVS * SLOT,
	SEND_AT = 3, // offsets that no alignment helps
	WRITE_AT = 5,
	COMPLETION_LIMIT_S = 60, // emulation is slow; a completion that never comes is a failure
};

struct end {
	uint32_t qpn, psn, rkey;
	uint64_t addr;
	union ibv_gid gid;
};

struct test;

struct pair {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	uint8_t *mem;
	struct end peer;
	int tcp, gid_index;
	uint32_t mtu;
	const struct test *test;
};

struct test {
	const char *name;
	void (*client)(struct pair *p);
	void (*server)(struct pair *p);
	int access;	    // of the server's memory, beside local write
	uint8_t rnr_retry;  // of the client
	uint32_t recv_size; // of the receives that the server posts before they meet; 0: none
};

__attribute__((format(printf, 1, 2), noreturn)) static void die(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	fprintf(stderr, "pair: ");
	vfprintf(stderr, fmt, ap);
	fprintf(stderr, "\n");
	va_end(ap);
	exit(1);
}

static uint8_t client_byte(size_t i)
{
	return (uint8_t)(i * 7 + (i >> 8) + 0x55);
}

static uint8_t server_byte(size_t i)
{
	return (uint8_t)(i * 11 + (i >> 8) + 1);
}

// Message sizes around the path MTU, where packets begin and end.
static uint32_t size_of(const struct pair *p, int k)
{
	const uint32_t m = p->mtu;
	const uint32_t sizes[] = {0, 1, 13, 64, m - 1, m, m + 1, 2 * m, 3 * m + 5, 5 * m};

	return sizes[k];
}
enum { SIZES = 10 };

// ---- the two ends meet

static void tell(struct pair *p)
{
	if (write(p->tcp, "!", 1) != 1)
		die("the other end is gone");
}

static void await(struct pair *p)
{
	char c;

	if (read(p->tcp, &c, 1) != 1)
		die("the other end gave up");
}

static void meet(struct pair *p, const char *server, uint16_t port)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};
	int s = socket(AF_INET, SOCK_STREAM, 0), one = 1;

	if (s < 0)
		die("socket: %s", strerror(errno));
	if (server) {
		if (inet_pton(AF_INET, server, &a.sin_addr) != 1)
			die("%s: no IPv4 address", server);
		if (connect(s, (struct sockaddr *)&a, sizeof(a)))
			die("connect: %s", strerror(errno));
		p->tcp = s;
		return;
	}
	setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(s, (struct sockaddr *)&a, sizeof(a)) || listen(s, 1))
		die("listen: %s", strerror(errno));
	p->tcp = accept(s, NULL, NULL);
	if (p->tcp < 0)
		die("accept: %s", strerror(errno));
	close(s);
}

// Both ends are of one byte order: the struct goes as it is.
static void exchange(struct pair *p, const struct end *own)
{
	if (write(p->tcp, own, sizeof(*own)) != sizeof(*own) ||
	    recv(p->tcp, &p->peer, sizeof(p->peer), MSG_WAITALL) != sizeof(p->peer))
		die("the other end went away before it said who it is");
}

// ---- verbs

static void post_recv(struct pair *p, int k, uint32_t size)
{
	struct ibv_sge sge = {(uintptr_t)p->mem + RECV + (size_t)k * SLOT, size, p->mr->lkey};
	struct ibv_recv_wr *bad, wr = {.wr_id = (uint64_t)k, .sg_list = &sge, .num_sge = 1};
	int e = ibv_post_recv(p->qp, &wr, &bad);

	if (e)
		die("post_recv: %s", strerror(e));
}

static void post_recvs(struct pair *p, uint32_t size)
{
	for (int k = 0; k < RECVS; k++)
		post_recv(p, k, size);
}

static struct ibv_wc completion(struct pair *p, const char *what)
{
	time_t until = time(NULL) + COMPLETION_LIMIT_S;
	struct ibv_wc wc;
	int n;

	while ((n = ibv_poll_cq(p->cq, 1, &wc)) == 0) {
		if (time(NULL) > until)
			die("%s: no completion in %d s", what, COMPLETION_LIMIT_S);
		usleep(100);
	}
	if (n < 0)
		die("poll_cq: %s", strerror(-n));
	return wc;
}

static struct ibv_wc do_wr(struct pair *p, const char *what, struct ibv_send_wr wr, size_t at, uint32_t size)
{
	struct ibv_sge sge = {(uintptr_t)p->mem + at, size, p->mr->lkey};
	struct ibv_send_wr *bad;
	int e;

	wr.sg_list = &sge;
	wr.num_sge = size ? 1 : 0;
	wr.send_flags = IBV_SEND_SIGNALED;
	e = ibv_post_send(p->qp, &wr, &bad);
	if (e)
		die("%s: post_send: %s", what, strerror(e));
	return completion(p, what);
}

static struct ibv_send_wr rdma(const struct pair *p, enum ibv_wr_opcode op, uint64_t at)
{
	return (struct ibv_send_wr){.opcode = op,
				    .wr.rdma = {.remote_addr = p->peer.addr + at, .rkey = p->peer.rkey}};
}

static struct ibv_send_wr atomic(const struct pair *p, enum ibv_wr_opcode op, uint64_t first, uint64_t second)
{
	return (struct ibv_send_wr){.opcode = op,
				    .wr.atomic = {.remote_addr = p->peer.addr + WORD,
						  .compare_add = first,
						  .swap = second,
						  .rkey = p->peer.rkey}};
}

static void expect(const char *what, const struct ibv_wc *wc, enum ibv_wc_status status)
{
	if (wc->status != status)
		die("%s: completed with \"%s\", not \"%s\"", what, ibv_wc_status_str(wc->status),
		    ibv_wc_status_str(status));
}

static void open_device(struct pair *p, const char *name, int access)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC, .cap = {64, 64, 1, 1, 0}};
	int k = 0;

	for (; list && list[k] && name && strcmp(ibv_get_device_name(list[k]), name); k++)
		;
	if (!list || !list[k])
		die("no device %s", name ? name : "at all");
	p->ctx = ibv_open_device(list[k]);
	p->pd = p->ctx ? ibv_alloc_pd(p->ctx) : NULL;
	if (!p->pd || posix_memalign((void **)&p->mem, 4096, MEMORY))
		die("open_device: %s", strerror(errno));
	memset(p->mem, 0, MEMORY);
	p->mr = ibv_reg_mr(p->pd, p->mem, MEMORY, IBV_ACCESS_LOCAL_WRITE | access);
	p->cq = ibv_create_cq(p->ctx, 128, NULL, NULL, 0);
	if (!p->mr || !p->cq)
		die("reg_mr, create_cq: %s", strerror(errno));
	init.send_cq = init.recv_cq = p->cq;
	p->qp = ibv_create_qp(p->pd, &init);
	if (!p->qp)
		die("create_qp: %s", strerror(errno));
	ibv_free_device_list(list);
}

static void to_init(struct pair *p, int access)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = (unsigned)access};
	int e = ibv_modify_qp(p->qp, &a,
			      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);

	if (e)
		die("to INIT: %s", strerror(e));
}

// A time-out of 67 ms, or four times that. Six retries: the kernel's rxe takes seven for "forever" (rxe_comp.c).
static void to_rts(struct pair *p, uint32_t psn)
{
	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_RTR,
		.dest_qp_num = p->peer.qpn,
		.rq_psn = p->peer.psn,
		.max_dest_rd_atomic = 4,
		.min_rnr_timer = 14, // 1.28 ms
		.ah_attr = {
			.is_global = 1,
			.port_num = 1,
			.grh = {.dgid = p->peer.gid, .sgid_index = (uint8_t)p->gid_index, .hop_limit = 64}}};
	int e;

	for (a.path_mtu = IBV_MTU_256; 128u << a.path_mtu < p->mtu; a.path_mtu++)
		;
	e = ibv_modify_qp(p->qp, &a,
			  IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				  IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	if (e)
		die("to RTR: %s", strerror(e));
	a = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS,
				 .timeout = 14,
				 .retry_cnt = 6,
				 .rnr_retry = p->test->rnr_retry,
				 .sq_psn = psn,
				 .max_rd_atomic = 4};
	e = ibv_modify_qp(p->qp, &a,
			  IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				  IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
	if (e)
		die("to RTS: %s", strerror(e));
}

// ---- ops: every operation, every size, every byte. An odd size index goes with an immediate.

enum { ADDED = 0x0102030405060708 };
#define SWAPPED 0x99aabbccddeeff00ull

static void ops_client(struct pair *p)
{
	char what[64];

	for (int k = 0; k < SIZES; k++) {
		struct ibv_send_wr wr = {.opcode = k & 1 ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND,
					 .imm_data = htonl(0x1000u + (uint32_t)k)};
		struct ibv_wc wc;

		snprintf(what, sizeof(what), "SEND of %u", size_of(p, k));
		wc = do_wr(p, what, wr, SEND_AT + (size_t)k * SLOT, size_of(p, k));
		expect(what, &wc, IBV_WC_SUCCESS);
	}
	for (int k = 0; k < SIZES; k++) {
		const size_t at = (size_t)k * SLOT;
		struct ibv_send_wr wr =
			rdma(p, k & 1 ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE, at + WRITE_AT);
		struct ibv_wc wc;

		snprintf(what, sizeof(what), "WRITE of %u", size_of(p, k));
		wr.imm_data = htonl(0x2000u + (uint32_t)k);
		wc = do_wr(p, what, wr, at, size_of(p, k));
		expect(what, &wc, IBV_WC_SUCCESS);
	}
	for (int k = 0; k < SIZES; k++) {
		const size_t at = (size_t)(k + SIZES) * SLOT + 1; // what nobody wrote
		const uint8_t *got = p->mem + LANDING + SEND_AT;
		struct ibv_wc wc;

		snprintf(what, sizeof(what), "READ of %u", size_of(p, k));
		memset(p->mem + LANDING, 0, SLOT);
		wc = do_wr(p, what, rdma(p, IBV_WR_RDMA_READ, at), LANDING + SEND_AT, size_of(p, k));
		expect(what, &wc, IBV_WC_SUCCESS);
		for (size_t i = 0; i < size_of(p, k); i++)
			if (got[i] != server_byte(at + i))
				die("%s: byte %zu is %02x, not %02x", what, i, got[i], server_byte(at + i));
		if (got[-1] || got[size_of(p, k)])
			die("%s: bytes beside it were written", what);
	}
	const struct {
		const char *what;
		struct ibv_send_wr wr;
		uint64_t old;
	} steps[] = {
		{"compare-and-swap that misses", atomic(p, IBV_WR_ATOMIC_CMP_AND_SWP, 1, 2), 0},
		{"compare-and-swap", atomic(p, IBV_WR_ATOMIC_CMP_AND_SWP, 0, SWAPPED), 0},
		{"fetch-and-add", atomic(p, IBV_WR_ATOMIC_FETCH_AND_ADD, ADDED, 0), SWAPPED},
		{"fetch-and-add of 0", atomic(p, IBV_WR_ATOMIC_FETCH_AND_ADD, 0, 0), SWAPPED + ADDED},
	};
	for (size_t k = 0; k < sizeof(steps) / sizeof(*steps); k++) {
		struct ibv_wc wc = do_wr(p, steps[k].what, steps[k].wr, LANDING, 8);
		uint64_t old;

		expect(steps[k].what, &wc, IBV_WC_SUCCESS);
		memcpy(&old, p->mem + LANDING, 8);
		if (old != steps[k].old)
			die("%s: the word was %" PRIx64 ", not %" PRIx64, steps[k].what, old, steps[k].old);
	}
	tell(p);
}

static void ops_server(struct pair *p)
{
	uint64_t word;

	for (int k = 0, r = 0; k < 2 * SIZES; k++) {
		const bool send = k < SIZES, imm = k & 1; // SIZES is even
		const uint32_t size = size_of(p, k % SIZES);
		const size_t at = (size_t)(k % SIZES) * SLOT;
		struct ibv_wc wc;

		if (!send && !imm)
			continue; // a plain WRITE: nothing is completed here
		wc = completion(p, "receive");
		expect("receive", &wc, IBV_WC_SUCCESS);
		if (wc.wr_id != (uint64_t)r++ || wc.byte_len != size ||
		    wc.opcode != (send ? IBV_WC_RECV : IBV_WC_RECV_RDMA_WITH_IMM))
			die("receive %d: id %" PRIu64 ", op-code %d, %u bytes, not %u", k, wc.wr_id,
			    wc.opcode, wc.byte_len, size);
		if (!!(wc.wc_flags & IBV_WC_WITH_IMM) != imm ||
		    (imm && ntohl(wc.imm_data) != (send ? 0x1000u : 0x2000u) + (uint32_t)(k % SIZES)))
			die("receive %d: immediate %x, flags %x", k, ntohl(wc.imm_data), wc.wc_flags);
		for (size_t i = 0; send && i < size; i++)
			if (p->mem[RECV + wc.wr_id * SLOT + i] != client_byte(at + SEND_AT + i))
				die("receive %d: byte %zu is wrong", k, i);
	}
	await(p);
	for (size_t i = 0; i < WORD; i++) {
		const size_t k = i / SLOT, at = i % SLOT;
		const bool written = k < SIZES && at >= WRITE_AT && at < WRITE_AT + size_of(p, (int)k);
		const uint8_t want = written ? client_byte(i - WRITE_AT) : server_byte(i);

		if (p->mem[i] != want)
			die("byte %zu of WRITE %zu is %02x, not %02x", at, k, p->mem[i], want);
	}
	memcpy(&word, p->mem + WORD, 8);
	if (word != SWAPPED + ADDED)
		die("the word of the atomics is %" PRIx64, word);
}

// ---- operations that must fail, and leave the memory as it is

static void untouched(struct pair *p)
{
	await(p);
	for (size_t i = 0; i < WORD; i++)
		if (p->mem[i] != server_byte(i))
			die("byte %zu was written", i);
}

static void fails(struct pair *p, struct ibv_send_wr wr, uint32_t size, enum ibv_wc_status status)
{
	struct ibv_qp_attr a;
	struct ibv_qp_init_attr init;
	struct ibv_wc wc = do_wr(p, p->test->name, wr, LANDING, size);

	expect(p->test->name, &wc, status);
	if (ibv_query_qp(p->qp, &a, IBV_QP_STATE, &init) || a.qp_state != IBV_QPS_ERR)
		die("%s: the QP is in state %d, not in error", p->test->name, a.qp_state);
	tell(p);
}

static void key_write(struct pair *p)
{
	p->peer.rkey ^= 0x55;
	fails(p, rdma(p, IBV_WR_RDMA_WRITE, 0), 64, IBV_WC_REM_ACCESS_ERR);
}

static void key_read(struct pair *p)
{
	p->peer.rkey ^= 0x55;
	fails(p, rdma(p, IBV_WR_RDMA_READ, 0), 64, IBV_WC_REM_ACCESS_ERR);
}

static void key_atomic(struct pair *p)
{
	p->peer.rkey ^= 0x55;
	fails(p, atomic(p, IBV_WR_ATOMIC_FETCH_AND_ADD, 1, 0), 8, IBV_WC_REM_ACCESS_ERR);
}

static void beyond(struct pair *p)
{
	fails(p, rdma(p, IBV_WR_RDMA_WRITE, MEMORY - 32), 64, IBV_WC_REM_ACCESS_ERR);
}

static void plain_write(struct pair *p)
{
	fails(p, rdma(p, IBV_WR_RDMA_WRITE, 0), 64, IBV_WC_REM_ACCESS_ERR);
}

// IBA C9-88 (a SEND longer than the receive) wants "invalid request"; the kernel's rxe answers "operational error" (rxe_resp.c).
static void long_client(struct pair *p)
{
	struct ibv_wc wc = do_wr(p, p->test->name, (struct ibv_send_wr){.opcode = IBV_WR_SEND}, 0, 64);

	if (wc.status != IBV_WC_REM_INV_REQ_ERR && wc.status != IBV_WC_REM_OP_ERR)
		die("%s: completed with \"%s\"", p->test->name, ibv_wc_status_str(wc.status));
	tell(p);
}

static void long_server(struct pair *p)
{
	struct ibv_wc wc = completion(p, p->test->name);

	if (wc.status == IBV_WC_SUCCESS)
		die("%u bytes fitted in a receive of %u", wc.byte_len, p->test->recv_size);
	await(p);
}

// ---- receivers that are not ready

static void late_client(struct pair *p)
{
	struct ibv_sge sge = {(uintptr_t)p->mem, 64, p->mr->lkey};
	struct ibv_send_wr *bad,
		wr = {.opcode = IBV_WR_SEND, .sg_list = &sge, .num_sge = 1, .send_flags = IBV_SEND_SIGNALED};
	struct ibv_wc wc;

	if (ibv_post_send(p->qp, &wr, &bad))
		die("post_send failed");
	usleep(100000); // long enough for a refusal or more; the capture shows whether there was one
	tell(p);
	wc = completion(p, "SEND before its receive");
	expect("SEND before its receive", &wc, IBV_WC_SUCCESS);
}

static void late_server(struct pair *p)
{
	struct ibv_wc wc;

	await(p);
	post_recvs(p, SLOT);
	wc = completion(p, "late receive");
	expect("late receive", &wc, IBV_WC_SUCCESS);
	for (size_t i = 0; i < 64; i++)
		if (p->mem[RECV + i] != client_byte(i))
			die("late receive: byte %zu is wrong", i);
}

static void never_client(struct pair *p)
{
	fails(p, (struct ibv_send_wr){.opcode = IBV_WR_SEND}, 64, IBV_WC_RNR_RETRY_EXC_ERR);
}

// ---- a peer that is gone

static void gone_client(struct pair *p)
{
	await(p);
	fails(p, rdma(p, IBV_WR_RDMA_WRITE, 0), 64, IBV_WC_RETRY_EXC_ERR);
}

static void gone_server(struct pair *p)
{
	ibv_destroy_qp(p->qp);
	p->qp = NULL;
	tell(p);
	untouched(p);
}

enum {
	ALL = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
	READ_ONLY = IBV_ACCESS_REMOTE_READ,
};

static const struct test tests[] = {
	{"ops", ops_client, ops_server, ALL, 7, SLOT},
	{"wrong-key-write", key_write, untouched, ALL, 7, SLOT},
	{"wrong-key-read", key_read, untouched, ALL, 7, SLOT},
	{"wrong-key-atomic", key_atomic, untouched, ALL, 7, SLOT},
	{"beyond-the-end", beyond, untouched, ALL, 7, SLOT},
	{"read-only", plain_write, untouched, READ_ONLY, 7, SLOT},
	{"too-long", long_client, long_server, ALL, 7, 8},
	{"late-receive", late_client, late_server, ALL, 7, 0},
	{"no-receive", never_client, untouched, ALL, 1, 0},
	{"gone", gone_client, gone_server, ALL, 7, 0},
};

static const struct test *find(const char *name)
{
	for (size_t k = 0; k < sizeof(tests) / sizeof(*tests); k++)
		if (name && !strcmp(tests[k].name, name))
			return &tests[k];
	die("no test %s", name ? name : "is named");
}

int main(int argc, char **argv)
{
	struct pair p = {.mtu = 1024};
	const char *device = NULL, *server;
	uint16_t port = 18515;
	struct end own = {0};
	int o;

	while ((o = getopt(argc, argv, "d:x:m:p:")) > 0) {
		switch (o) {
		case 'd':
			device = optarg;
			break;
		case 'x':
			p.gid_index = atoi(optarg);
			break;
		case 'm':
			p.mtu = (uint32_t)atoi(optarg);
			break;
		case 'p':
			port = (uint16_t)atoi(optarg);
			break;
		default:
			die("what is -%c?", o);
		}
	}
	p.test = find(argv[optind]);
	server = argv[optind + 1];

	// The memory region allows what the test wants of it; the QP allows everything, so that it is the region that refuses.
	open_device(&p, device, p.test->access);
	for (size_t i = 0; i < (server ? RECV : WORD); i++)
		p.mem[i] = server ? client_byte(i) : server_byte(i);
	to_init(&p, ALL);
	if (!server && p.test->recv_size)
		post_recvs(&p, p.test->recv_size);

	own = (struct end){p.qp->qp_num, 0xfffff0, p.mr->rkey, (uintptr_t)p.mem, {{0}}}; // PSNs wrap soon
	if (ibv_query_gid(p.ctx, 1, p.gid_index, &own.gid))
		die("no GID %d", p.gid_index);
	meet(&p, server, port);
	exchange(&p, &own);
	to_rts(&p, own.psn);
	tell(&p);
	await(&p);

	if (server)
		p.test->client(&p);
	else
		p.test->server(&p);
	// Nobody leaves before the other has what it waits for: a last ACK would have no QP to come from.
	tell(&p);
	await(&p);
	printf("pair: %s: as it should be\n", p.test->name);
	return 0;
}
