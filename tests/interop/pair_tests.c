// SPDX-License-Identifier: BSD-2-Clause
// The tests of pair: each test is a client and a server, and a row of the table at the end.
#include <arpa/inet.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "pair.h"

enum { SEND_AT = 3, WRITE_AT = 5 }; // offsets without an alignment

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

void fill(struct pair *p, bool client)
{
	for (size_t i = 0; i < (client ? RECV : WORD); i++)
		p->mem[i] = client ? client_byte(i) : server_byte(i);
}

static struct ibv_send_wr rdma(const struct pair *p, enum ibv_wr_opcode op, uint64_t at)
{
	return (struct ibv_send_wr){
		.opcode = op, .wr.rdma = {.remote_addr = p->peer.addr + at, .rkey = p->peer.rkey}};
}

static struct ibv_send_wr atomic(const struct pair *p, enum ibv_wr_opcode op, uint64_t first,
				 uint64_t second)
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

// ---- ops: every operation, every size, every byte. An odd size index goes with an immediate.

enum { ADDED = 0x0102030405060708 };
#define SWAPPED 0x99aabbccddeeff00ull

static void do_ops(struct pair *p, int first_read)
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
		struct ibv_send_wr wr = rdma(
			p, k & 1 ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE, at + WRITE_AT);
		struct ibv_wc wc;

		snprintf(what, sizeof(what), "WRITE of %u", size_of(p, k));
		wr.imm_data = htonl(0x2000u + (uint32_t)k);
		wc = do_wr(p, what, wr, at, size_of(p, k));
		expect(what, &wc, IBV_WC_SUCCESS);
	}
	for (int k = first_read; k < SIZES; k++) {
		const size_t at = (size_t)(k + SIZES) * SLOT + 1; // a value that no operation wrote
		const uint8_t *got = p->mem + LANDING + SEND_AT;
		struct ibv_wc wc;

		snprintf(what, sizeof(what), "READ of %u", size_of(p, k));
		memset(p->mem + LANDING, 0, SLOT);
		wc = do_wr(p, what, rdma(p, IBV_WR_RDMA_READ, at), LANDING + SEND_AT,
			   size_of(p, k));
		expect(what, &wc, IBV_WC_SUCCESS);
		for (size_t i = 0; i < size_of(p, k); i++)
			if (got[i] != server_byte(at + i))
				die("%s: byte %zu is %02x, not %02x", what, i, got[i],
				    server_byte(at + i));
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
		{"fetch-and-add of 0", atomic(p, IBV_WR_ATOMIC_FETCH_AND_ADD, 0, 0),
		 SWAPPED + ADDED},
	};
	for (size_t k = 0; k < sizeof(steps) / sizeof(*steps); k++) {
		struct ibv_wc wc = do_wr(p, steps[k].what, steps[k].wr, LANDING, 8);
		uint64_t old;

		expect(steps[k].what, &wc, IBV_WC_SUCCESS);
		memcpy(&old, p->mem + LANDING, 8);
		if (old != steps[k].old)
			die("%s: the word was %" PRIx64 ", not %" PRIx64, steps[k].what, old,
			    steps[k].old);
	}
	tell(p);
}

static void ops_client(struct pair *p)
{
	do_ops(p, 0);
}

static void nonempty_client(struct pair *p)
{
	do_ops(p, 1);
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
			continue; // a plain WRITE has no completion here
		wc = completion(p, "receive");
		expect("receive", &wc, IBV_WC_SUCCESS);
		if (wc.wr_id != (uint64_t)r++ || wc.byte_len != size ||
		    wc.opcode != (send ? IBV_WC_RECV : IBV_WC_RECV_RDMA_WITH_IMM))
			die("receive %d: id %" PRIu64 ", op-code %d, %u bytes, not %u", k, wc.wr_id,
			    wc.opcode, wc.byte_len, size);
		if (!!(wc.wc_flags & IBV_WC_WITH_IMM) != imm ||
		    (imm &&
		     ntohl(wc.imm_data) != (send ? 0x1000u : 0x2000u) + (uint32_t)(k % SIZES)))
			die("receive %d: immediate %x, flags %x", k, ntohl(wc.imm_data),
			    wc.wc_flags);
		for (size_t i = 0; send && i < size; i++)
			if (p->mem[RECV + wc.wr_id * SLOT + i] != client_byte(at + SEND_AT + i))
				die("receive %d: byte %zu is wrong", k, i);
	}
	await(p);
	for (size_t i = 0; i < WORD; i++) {
		const size_t k = i / SLOT, at = i % SLOT;
		const bool written =
			k < SIZES && at >= WRITE_AT && at < WRITE_AT + size_of(p, (int)k);
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

// IBA 9.9.3 (a SEND longer than the receive) requires "invalid request"; the Linux
// kernel's rxe answers "operational error" (rxe_resp.c).
static void long_client(struct pair *p)
{
	struct ibv_wc wc =
		do_wr(p, p->test->name, (struct ibv_send_wr){.opcode = IBV_WR_SEND}, 0, 64);

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
	struct ibv_send_wr *bad, wr = {.opcode = IBV_WR_SEND,
				       .sg_list = &sge,
				       .num_sge = 1,
				       .send_flags = IBV_SEND_SIGNALED};
	struct ibv_wc wc;

	if (ibv_post_send(p->qp, &wr, &bad))
		die("post_send failed");
	// Long enough for a refusal or more; the capture shows whether a refusal was sent.
	usleep(100000);
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

// ---- a peer that has ended

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

// ---- memory windows of type 2: a key that the peer may invalidate

static void window_client(struct pair *p)
{
	struct ibv_send_wr take_back = {.opcode = IBV_WR_SEND_WITH_INV};
	struct ibv_wc wc;

	if (recv(p->tcp, &p->peer.rkey, sizeof(p->peer.rkey), MSG_WAITALL) != sizeof(p->peer.rkey))
		die("the other end has no window");
	wc = do_wr(p, "WRITE through a window", rdma(p, IBV_WR_RDMA_WRITE, 0), 0, 32);
	expect("WRITE through a window", &wc, IBV_WC_SUCCESS);
	take_back.invalidate_rkey = p->peer.rkey;
	wc = do_wr(p, "SEND with invalidate", take_back, 0, 24);
	expect("SEND with invalidate", &wc, IBV_WC_SUCCESS);
	fails(p, rdma(p, IBV_WR_RDMA_WRITE, 64), 32, IBV_WC_REM_ACCESS_ERR);
}

static void window_server(struct pair *p)
{
	struct ibv_mw *mw = ibv_alloc_mw(p->pd, IBV_MW_TYPE_2);
	struct ibv_send_wr bind = {.opcode = IBV_WR_BIND_MW};
	struct ibv_wc wc;
	uint32_t key;

	if (!mw)
		die("no memory window");
	key = ibv_inc_rkey(mw->rkey);
	bind.bind_mw.mw = mw;
	bind.bind_mw.rkey = key;
	bind.bind_mw.bind_info =
		(struct ibv_mw_bind_info){p->mr, (uintptr_t)p->mem, SLOT, IBV_ACCESS_REMOTE_WRITE};
	wc = do_wr(p, "bind", bind, 0, 0);
	expect("bind", &wc, IBV_WC_SUCCESS);
	if (write(p->tcp, &key, sizeof(key)) != sizeof(key))
		die("the other end is gone");
	wc = completion(p, "receive");
	expect("receive", &wc, IBV_WC_SUCCESS);
	// rxe returns the Linux kernel's number of this flag (ib_verbs.h), which is IP_CSUM_OK in
	// the verbs.
	if (!(wc.wc_flags & (IBV_WC_WITH_INV | IBV_WC_IP_CSUM_OK)) || wc.invalidated_rkey != key ||
	    wc.byte_len != 24)
		die("receive: flags %x, key %x, not %x, %u bytes", wc.wc_flags, wc.invalidated_rkey,
		    key, wc.byte_len);
	await(p);
	for (size_t i = 0; i < SLOT; i++)
		if (p->mem[i] != (i < 32 ? client_byte(i) : server_byte(i)))
			die("byte %zu of the window is %02x", i, p->mem[i]);
}

static const struct test tests[] = {
	{"ops", ops_client, ops_server, ALL, 7, SLOT},
	// rxe of Linux 6.12 does not answer a READ of 0 bytes again, so its first answer must
	// arrive.
	{"ops-answered-again", nonempty_client, ops_server, ALL, 7, SLOT},
	{"wrong-key-write", key_write, untouched, ALL, 7, SLOT},
	{"wrong-key-read", key_read, untouched, ALL, 7, SLOT},
	{"wrong-key-atomic", key_atomic, untouched, ALL, 7, SLOT},
	{"beyond-the-end", beyond, untouched, ALL, 7, SLOT},
	{"read-only", plain_write, untouched, IBV_ACCESS_REMOTE_READ, 7, SLOT},
	{"too-long", long_client, long_server, ALL, 7, 8},
	{"late-receive", late_client, late_server, ALL, 7, 0},
	{"no-receive", never_client, untouched, ALL, 1, 0},
	{"window", window_client, window_server, ALL | IBV_ACCESS_MW_BIND, 7, SLOT},
	{"gone", gone_client, gone_server, ALL, 7, 0},
};

const struct test *find_test(const char *name)
{
	for (size_t k = 0; k < sizeof(tests) / sizeof(*tests); k++)
		if (name && !strcmp(tests[k].name, name))
			return &tests[k];
	die("no test %s", name ? name : "is named");
}
