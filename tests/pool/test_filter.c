/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The BPF program of an address: the slot of each message of connection management, and random
 * datagrams, through an interpreter and through a group of sockets.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/rng.h"
#include "cm/mad.h"
#include "packet/headers.h"
#include "pool/filter.h"

#ifndef SO_ATTACH_REUSEPORT_CBPF
#define SO_ATTACH_REUSEPORT_CBPF 51
#endif

#define SEED	     20261125
#define OTHERWISE    17
#define HEADERS	     (sizeof(struct pkt_bth) + sizeof(struct pkt_deth))
#define PACKET	     (HEADERS + CM_MAD_LEN)
#define RANDOM_TRIES 1000000
#define GROUP_TRIES  200000
#define BATCH	     128
#define LONGEST_MS   60000

static struct sock_filter code[POOL_FILTER_MAX];
static uint32_t random_number; /* of the kernel */

/*
 * What the kernel does with the few instructions of the program. A load beyond the end returns 0.
 */
static uint32_t run(unsigned n, const uint8_t *data, uint32_t len)
{
	uint32_t a = 0;

	for (unsigned pc = 0; pc < n; pc++) {
		const struct sock_filter *f = &code[pc];
		uint32_t size = BPF_SIZE(f->code) == BPF_W ? 4 : BPF_SIZE(f->code) == BPF_H ? 2 : 1;

		switch (BPF_CLASS(f->code)) {
		case BPF_LD:
			if (f->k == (uint32_t)(SKF_AD_OFF + SKF_AD_RANDOM)) {
				a = random_number;
				break;
			}
			if (f->k + size > len)
				return 0;
			for (a = 0; size--;)
				a = a << 8 | data[f->k +
						  (BPF_SIZE(f->code) == BPF_W	? 3
						   : BPF_SIZE(f->code) == BPF_H ? 1
										: 0) -
						  size];
			break;
		case BPF_ALU:
			a = BPF_OP(f->code) == BPF_AND	 ? a & f->k
			    : BPF_OP(f->code) == BPF_MOD ? a % f->k
							 : a >> f->k;
			break;
		case BPF_JMP:
			if (BPF_OP(f->code) == BPF_JA) {
				pc += f->k;
				break;
			}
			pc += (BPF_OP(f->code) == BPF_JEQ ? a == f->k : a > f->k) ? f->jt : f->jf;
			break;
		case BPF_RET:
			return BPF_RVAL(f->code) == BPF_A ? a : f->k;
		default:
			fail_msg("instruction %x", f->code);
		}
	}
	fail_msg("the program has no end");
	return 0;
}

static void packet(uint8_t out[PACKET], uint32_t dqpn)
{
	memset(out, 0, PACKET);
	pkt_put24(((struct pkt_bth *)out)->dqpn, dqpn);
}

static uint32_t slot_of(unsigned n, const struct cm_msg *m)
{
	uint8_t pkt[PACKET];

	packet(pkt, 1);
	cm_build(m, pkt + HEADERS);
	return run(n, pkt, sizeof(pkt));
}

static void qp_numbers(void **state)
{
	struct pool_table t = {.otherwise = OTHERWISE};
	unsigned n = pool_filter(&t, code);
	uint8_t pkt[PACKET];

	for (uint32_t slot = 0; slot < POOL_SLOTS; slot++) {
		packet(pkt, slot << 18 | 0x1234);
		assert_int_equal(run(n, pkt, sizeof(pkt)), slot);
		pkt[4] = 0xff; /* the reserved byte in front of the number */
		assert_int_equal(run(n, pkt, sizeof(struct pkt_bth)), slot);
	}
	packet(pkt, 2);
	assert_int_equal(run(n, pkt, sizeof(pkt)), 0);
	for (uint32_t qpn = 0; qpn < 2; qpn++) { /* of another management class than CM */
		packet(pkt, qpn);
		pkt[21] = 3;
		assert_int_equal(run(n, pkt, sizeof(pkt)), OTHERWISE);
	}
}

static const uint64_t ids[] = {0x0000000001061234ull,
			       0x0000000001065678ull,
			       0x0000000001111234ull,
			       0x1000000001061234ull,
			       0xc0ffee,
			       0};

static void services(void **state)
{
	struct pool_table t = {.otherwise = OTHERWISE, .num = 6};
	unsigned n;

	for (unsigned i = 0; i < t.num; i++)
		t.route[i] = (struct pool_route){ids[i], (uint8_t)(3 * i + 1)};
	n = pool_filter(&t, code);
	for (unsigned i = 0; i < t.num; i++) {
		struct cm_msg m = {.attr = CM_REQ, .local_id = 0xffffffff, .remote_id = 0x12345678};

		m.req.service_id = ids[i];
		assert_int_equal(slot_of(n, &m), 3 * i + 1);
		m.req.service_id = ids[i] + 1;
		assert_int_equal(slot_of(n, &m), OTHERWISE);
		m = (struct cm_msg){.attr = CM_SIDR_REQ, .local_id = 0xffffffff};
		m.sidr_req.service_id = ids[i];
		assert_int_equal(slot_of(n, &m), 3 * i + 1);
	}
	/* the first of two routes counts */
	t.route[1] = (struct pool_route){ids[0], 60};
	n = pool_filter(&t, code);
	struct cm_msg m = {.attr = CM_REQ};
	m.req.service_id = ids[0];
	assert_int_equal(slot_of(n, &m), 1);
}

/* Requests for services that are left out go to all programs in turn, others do not. */
static void services_left_out(void **state)
{
	static const uint64_t unknown[] = {0x0000000001069999ull, 0x2000000001069999ull};
	struct pool_table t = {.otherwise = OTHERWISE,
			       .num = 6,
			       .cut = true,
			       .any = 1ull << 63 | 1 << 20 | 1 << 3};
	static const uint32_t slots[] = {3, 20, 63};
	unsigned n;

	for (unsigned i = 0; i < t.num; i++)
		t.route[i] = (struct pool_route){ids[i], 5};
	n = pool_filter(&t, code);
	for (random_number = 0; random_number < 12; random_number++) {
		struct cm_msg m = {.attr = CM_REQ};

		for (unsigned i = 0; i < t.num; i++) {
			m.req.service_id = ids[i];
			assert_int_equal(slot_of(n, &m), 5);
		}
		for (unsigned i = 0; i < 2; i++) {
			m.req.service_id = unknown[i];
			assert_int_equal(slot_of(n, &m), slots[random_number % 3]);
		}
		m = (struct cm_msg){.attr = CM_DREQ, .remote_id = 41u << 26 | 7};
		assert_int_equal(slot_of(n, &m), 41);
	}
	t.any = UINT64_MAX;
	t.num = POOL_FILTER_SERVICES;
	for (unsigned i = 0; i < t.num; i++)
		t.route[i] = (struct pool_route){ids[3] + i, 5};
	assert_true(pool_filter(&t, code) <= POOL_FILTER_MAX);
}

static void communication_ids(void **state)
{
	static const uint16_t to_id[] = {CM_MRA,  CM_REJ,  CM_REP, CM_RTU,
					 CM_DREQ, CM_DREP, CM_LAP, CM_APR};
	struct pool_table t = {.otherwise = OTHERWISE};
	unsigned n = pool_filter(&t, code);

	for (unsigned i = 0; i < sizeof(to_id) / sizeof(to_id[0]); i++) {
		struct cm_msg m = {
			.attr = to_id[i], .local_id = 5u << 26, .remote_id = 41u << 26 | 7};
		uint8_t pkt[PACKET];

		packet(pkt, 1);
		if (to_id[i] == CM_LAP || to_id[i] == CM_APR) {
			/*
			 * not sent by this project: only the places that all messages have in
			 * common
			 */
			cm_build(&(struct cm_msg){.attr = CM_RTU,
						  .local_id = m.local_id,
						  .remote_id = m.remote_id},
				 pkt + HEADERS);
			pkt[HEADERS + 17] = (uint8_t)to_id[i];
			assert_int_equal(run(n, pkt, sizeof(pkt)), 41);
			continue;
		}
		assert_int_equal(slot_of(n, &m), 41);
	}
	/* the answer to a SIDR_REQ has one id only, which the asking side made */
	struct cm_msg rep = {.attr = CM_SIDR_REP, .remote_id = 41u << 26 | 7};
	assert_int_equal(slot_of(n, &rep), 41);
}

/* Random bytes; half of them go on far enough to be a message. */
static uint32_t random_datagram(struct rng *r, uint8_t pkt[PACKET])
{
	static const uint8_t attrs[] = {0x10, 0x17, 0x18, 0x12, 0x11, 0x7f};

	for (unsigned i = 0; i < 80; i += 8) {
		uint64_t v = rng_u64(r);

		memcpy(pkt + i, &v, 8);
	}
	if (rng_u64(r) & 1) {
		pkt_put24(((struct pkt_bth *)pkt)->dqpn, (uint32_t)(rng_u64(r) & 1));
		pkt[21] = rng_u64(r) & 7 ? 7 : pkt[21];
		pkt[36] = 0;
		pkt[37] = attrs[rng_u64(r) % sizeof(attrs)];
		if (rng_u64(r) & 1) {
			uint64_t id = ids[rng_u64(r) % 6];

			for (unsigned i = 0; i < 8; i++)
				pkt[52 + i] = (uint8_t)(id >> (56 - 8 * i));
		}
	}
	return rng_u64(r) & 7 ? 80 : (uint32_t)(rng_u64(r) % 80);
}

static void random_table(struct rng *r, struct pool_table *t)
{
	*t = (struct pool_table){.otherwise = (uint8_t)(rng_u64(r) % POOL_SLOTS)};
	t->num = (unsigned)(rng_u64(r) % (POOL_FILTER_SERVICES + 1));
	for (unsigned i = 0; i < t->num; i++)
		t->route[i] = (struct pool_route){i < 6 ? ids[i] : rng_u64(r) >> (i & 32),
						  (uint8_t)rng_u64(r)};
}

static void every_result_is_a_slot(void **state)
{
	struct pool_table t;
	uint8_t pkt[PACKET] = {0};
	struct rng r;
	unsigned n = 0, by_ids = 0;

	rng_seed(&r, SEED);
	for (unsigned i = 0; i < RANDOM_TRIES; i++) {
		uint32_t len, slot;
		int by_id;

		if (i % 10000 == 0) {
			random_table(&r, &t);
			n = pool_filter(&t, code);
			assert_true(n <= POOL_FILTER_MAX);
		}
		len = random_datagram(&r, pkt);
		slot = run(n, pkt, len);
		if (slot >= POOL_SLOTS)
			fail_msg("seed %d: datagram %u is steered to no slot", SEED, i);
		/* the rule for datagrams that the kernel did not look at */
		by_id = pool_filter_id_slot(pkt, len);
		if (by_id >= 0 && by_id != (int)slot)
			fail_msg("seed %d: datagram %u has an id of slot %d, and goes to %u", SEED,
				 i, by_id, slot);
		by_ids += by_id >= 0;
	}
	assert_true(by_ids > RANDOM_TRIES / 10);
}

/* ---- through the kernel ---- */

static void open_group(int fd[POOL_SLOTS], struct sockaddr_in *name)
{
	socklen_t len = sizeof(*name);
	int on = 1;

	*name = (struct sockaddr_in){.sin_family = AF_INET,
				     .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	for (unsigned i = 0; i < POOL_SLOTS; i++) {
		fd[i] = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);
		assert_true(fd[i] >= 0);
		assert_int_equal(setsockopt(fd[i], SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on)), 0);
		assert_int_equal(bind(fd[i], (struct sockaddr *)name, len), 0);
		assert_int_equal(getsockname(fd[i], (struct sockaddr *)name, &len), 0);
	}
}

/* Takes what waits at socket i. All of it must be for slot i. Returns the number. */
static unsigned drain(unsigned n, int fd, unsigned i)
{
	uint8_t pkt[PACKET];
	unsigned got = 0;
	ssize_t len;

	while ((len = recv(fd, pkt, sizeof(pkt), 0)) >= 0) {
		if (run(n, pkt, (uint32_t)len) != i)
			fail_msg("seed %d: a datagram of slot %u is at socket %u", SEED,
				 run(n, pkt, (uint32_t)len), i);
		got++;
	}
	return got;
}

/* Takes `want` datagrams from all sockets. On a busy machine the kernel delivers them later. */
static void drain_all(unsigned n, const int fd[POOL_SLOTS], unsigned want)
{
	struct pollfd at[POOL_SLOTS];
	unsigned got = 0;

	for (;;) {
		for (unsigned i = 0; i < POOL_SLOTS; i++) {
			at[i] = (struct pollfd){.fd = fd[i], .events = POLLIN};
			got += drain(n, fd[i], i);
		}
		if (got == want)
			return;
		if (got > want || poll(at, POOL_SLOTS, LONGEST_MS) < 1)
			fail_msg("seed %d: %u datagrams of %u arrived", SEED, got, want);
	}
}

/*
 * Attaches the program of a table. Returns its length. Before Linux 6.7 there is less space for it
 * (net.core.optmem_max), so the table has fewer services.
 */
static unsigned attach(int fd, struct pool_table *t)
{
	for (;;) {
		unsigned n = pool_filter(t, code);
		struct sock_fprog prog = {.len = (unsigned short)n, .filter = code};

		if (setsockopt(fd, SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &prog, sizeof(prog)) == 0)
			return n;
		assert_int_equal(errno, ENOMEM);
		assert_true(t->num > 0);
		t->num /= 2;
	}
}

static void kernel_agrees(void **state)
{
	int fd[POOL_SLOTS], from = socket(AF_INET, SOCK_DGRAM, 0);
	unsigned n = 0, sent = 0;
	uint8_t pkt[PACKET] = {0};
	struct sockaddr_in name;
	struct pool_table t;
	struct rng r;

	open_group(fd, &name);
	rng_seed(&r, SEED);
	while (sent < GROUP_TRIES) {
		if (sent % (BATCH * 256) == 0) {
			random_table(&r, &t);
			n = attach(fd[0], &t);
		}
		for (unsigned i = 0; i < BATCH; i++, sent++) {
			uint32_t len = random_datagram(&r, pkt);

			assert_int_equal(
				sendto(from, pkt, len, 0, (struct sockaddr *)&name, sizeof(name)),
				len);
		}
		drain_all(n, fd, BATCH);
	}
	for (unsigned i = 0; i < POOL_SLOTS; i++)
		close(fd[i]);
	close(from);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(qp_numbers),	     cmocka_unit_test(services),
		cmocka_unit_test(services_left_out), cmocka_unit_test(communication_ids),
		cmocka_unit_test(kernel_agrees),     cmocka_unit_test(every_result_is_a_slot),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
