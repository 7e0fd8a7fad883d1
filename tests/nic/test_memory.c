/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory regions: keys and their reuse, bounds, protection domains, sizes beyond the machine's
 * memory, and accesses to memory that was unmapped after its registration. (test_refuse.c tests the
 * NAKs that a peer gets.)
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <cmocka.h>

#include "peer.h"

#define ALL 15 /* local write, remote write, read, atomic */

static struct world W, *const w = &W;
static struct ep A, B, *const a = &A, *const b = &B;

static void start(void)
{
	struct ep_params p = {.mtu = 1024, .max_sge = 2};

	world_init(w, 2, 9, NULL);
	ep_init(a, w, 0, &p);
	ep_init(b, w, 1, &p);
	ep_connect(a, b);
}

static void end(void)
{
	ep_fini(a);
	ep_fini(b);
	world_fini(w);
}

static uint32_t reg(struct ep *e, void *addr, uint64_t len, uint64_t iova, uint32_t access)
{
	struct nic_mr_attr m = {
		.pd = e->pd, .addr = addr, .len = len, .iova = iova, .access = access};
	uint32_t key;

	assert_int_equal(nic_mr_register(e->nic, &m, &key), 0);
	return key;
}

/* Posts a request of a's and waits for it. Returns its status. */
static unsigned status_of(const struct wr *wr)
{
	struct roost_cqe c;

	ep_post(a, wr);
	assert_true(ep_wait_send(a, &c, 100 * SEC));
	return c.status;
}

static struct wr request(enum roost_op op, uint64_t raddr, uint32_t rkey, uint32_t len)
{
	return (struct wr){.op = op,
			   .sge = {ep_sge(a, 0, len)},
			   .num_sge = 1,
			   .raddr = raddr,
			   .rkey = rkey,
			   .swap_add = 1};
}

static void what_is_refused(void **state)
{
	struct nic_mr_attr m;
	uint32_t key, pd;
	uint8_t mem[64];

	start();
	m = (struct nic_mr_attr){.pd = a->pd, .addr = mem, .len = sizeof(mem), .iova = 0};
	/* IBA 11.2.8.2: remote writing and atomics write here. */
	m.access = NIC_ACCESS_REMOTE_WRITE;
	assert_int_equal(nic_mr_register(a->nic, &m, &key), -EINVAL);
	m.access = NIC_ACCESS_REMOTE_ATOMIC;
	assert_int_equal(nic_mr_register(a->nic, &m, &key), -EINVAL);
	m.access = 0;
	m.len = UINT64_MAX;
	assert_int_equal(nic_mr_register(a->nic, &m, &key), -EINVAL);
	m.len = 64;
	m.iova = UINT64_MAX - 62;
	assert_int_equal(nic_mr_register(a->nic, &m, &key), -EINVAL);
	m.iova = 0;
	m.pd = 999;
	assert_int_equal(nic_mr_register(a->nic, &m, &key), -EINVAL);
	m.pd = a->pd;
	assert_int_equal(nic_mr_deregister(a->nic, a->key ^ 1), -ENOENT);
	assert_int_equal(nic_mr_deregister(a->nic, 0), -ENOENT);
	assert_int_equal(nic_mr_deregister(a->nic, UINT32_MAX), -ENOENT);
	assert_int_equal(nic_mr_register(a->nic, &m, &key), 0);
	assert_int_equal(nic_mr_deregister(a->nic, key), 0);
	assert_int_equal(nic_mr_deregister(a->nic, key), -ENOENT);
	/* A domain cannot be freed while it has objects. */
	assert_int_equal(nic_pd_alloc(a->nic, &pd), 0);
	m.pd = pd;
	assert_int_equal(nic_mr_register(a->nic, &m, &key), 0);
	assert_int_equal(nic_pd_free(a->nic, pd), -EBUSY);
	assert_int_equal(nic_mr_deregister(a->nic, key), 0);
	assert_int_equal(nic_pd_free(a->nic, pd), 0);
	assert_int_equal(nic_pd_free(a->nic, pd), -EINVAL);
	end();
}

static int by_value(const void *x, const void *y)
{
	uint32_t k = *(const uint32_t *)x, l = *(const uint32_t *)y;

	return k < l ? -1 : k > l;
}

/*
 * 100,000 regions at once: all keys differ, each gives access to its own memory, and keys of
 * deregistered regions give none.
 */
#define MANY 100000

static void many_regions(void **state)
{
	uint32_t *keys = malloc(MANY * sizeof(*keys)), *sorted = malloc(MANY * sizeof(*keys));
	uint64_t *mem = malloc(MANY * sizeof(*mem));
	struct rng r;

	rng_seed(&r, 4);
	start();
	for (uint32_t i = 0; i < MANY; i++) {
		mem[i] = i;
		keys[i] = reg(b, &mem[i], 8, 0x1000 + i, ALL);
	}
	memcpy(sorted, keys, MANY * sizeof(*keys));
	qsort(sorted, MANY, sizeof(*sorted), by_value);
	assert_int_not_equal(sorted[0], 0);
	for (uint32_t i = 1; i < MANY; i++)
		assert_int_not_equal(sorted[i], sorted[i - 1]);
	for (int i = 0; i < 2000; i++) {
		uint32_t k = (uint32_t)rng_below(&r, MANY);
		struct wr wr = request(ROOST_OP_READ, 0x1000 + k, keys[k], 8);

		assert_int_equal(status_of(&wr), NIC_WC_SUCCESS);
		assert_int_equal(*(uint64_t *)a->mem, k);
	}
	for (uint32_t i = 0; i < MANY; i += 2)
		assert_int_equal(nic_mr_deregister(b->nic, keys[i]), 0);
	for (uint32_t i = 0; i < MANY; i += 2)
		assert_int_equal(nic_mr_deregister(b->nic, keys[i]), -ENOENT);
	for (uint32_t i = 1; i < MANY; i += 500) {
		struct wr wr = request(ROOST_OP_READ, 0x1001 + (i & ~1u), keys[i | 1], 8);

		assert_int_equal(status_of(&wr), NIC_WC_SUCCESS);
		assert_int_equal(*(uint64_t *)a->mem, i | 1);
	}
	for (uint32_t i = 1; i < MANY; i += 2)
		assert_int_equal(nic_mr_deregister(b->nic, keys[i]), 0);
	{
		struct wr wr = request(ROOST_OP_READ, 0x1000 + 77, keys[77], 8);

		assert_int_equal(status_of(&wr), NIC_WC_REM_ACCESS_ERR);
	}
	end();
	free(keys);
	free(sorted);
	free(mem);
}

/* The table can be filled exactly, and filled again after all regions were deregistered. */
static void as_many_as_fit(void **state)
{
	uint32_t *keys = malloc((NIC_MAX_MRS + 1) * sizeof(*keys));
	struct nic_mr_attr m = {.len = 8};
	struct nic_usage u;

	start();
	m.pd = b->pd;
	m.addr = b->mem;
	for (int round = 0; round < 2; round++) {
		uint32_t n = 0;

		while (nic_mr_register(b->nic, &m, &keys[n]) == 0) {
			assert_int_not_equal(keys[n], 0);
			assert_in_range(++n, 1, NIC_MAX_MRS);
		}
		assert_int_equal(n, NIC_MAX_MRS - 1); /* one is the endpoint's */
		assert_int_equal(nic_mr_register(b->nic, &m, &keys[n]), -ENOMEM);
		nic_usage(b->nic, &u);
		assert_int_equal(u.mrs, NIC_MAX_MRS);
		while (n)
			assert_int_equal(nic_mr_deregister(b->nic, keys[--n]), 0);
	}
	end();
	free(keys);
}

/*
 * A peer that knows some keys cannot predict the next one: neither its index, one of a million, nor
 * its tag has a relation to theirs.
 */
static void keys_tell_nothing_of_others(void **state)
{
	enum { KEYS = 4096 };
	static uint32_t key[KEYS];
	static uint8_t seen[NIC_MAX_MRS];
	unsigned flips[32] = {0}, again = 0;
	struct nic_mr_attr m = {.len = 8};

	start();
	m.pd = b->pd;
	m.addr = b->mem;
	memset(seen, 0, sizeof(seen));
	for (unsigned i = 0; i < KEYS; i++) {
		assert_int_equal(nic_mr_register(b->nic, &m, &key[i]), 0);
		/* Freed entries are not used next, in any order. */
		if (i % 4 == 3)
			assert_int_equal(nic_mr_deregister(b->nic, key[i]), 0);
		if (!i)
			continue;
		for (unsigned bit = 0; bit < 32; bit++)
			flips[bit] += (key[i] ^ key[i - 1]) >> bit & 1;
		again += seen[(key[i] - key[i - 1]) >> 12]++ > 0;
	}
	for (unsigned bit = 0; bit < 32; bit++)
		assert_in_range(flips[bit], KEYS / 2 - KEYS / 16, KEYS / 2 + KEYS / 16);
	assert_in_range(again, 0, KEYS / 64);
	for (unsigned i = 0; i < KEYS; i++)
		if (i % 4 != 3)
			assert_int_equal(nic_mr_deregister(b->nic, key[i]), 0);
	end();
}

/* The first key is random; the same seed gives the same keys. */
static void keys_start_random(void **state)
{
	uint32_t key[8];

	for (int i = 0; i < 8; i++) {
		struct world v;
		struct ep e;

		world_init(&v, 1, 1000 + (uint64_t)(i / 2), NULL);
		ep_init(&e, &v, 0, NULL);
		key[i] = e.key;
		ep_fini(&e);
		world_fini(&v);
	}
	for (int i = 0; i < 8; i++)
		for (int k = 0; k < 8; k++)
			assert_int_equal(key[i] == key[k], i / 2 == k / 2);
}

/* A revoked key stays invalid when its entry is used again, however often. */
static void stale_keys(void **state)
{
	uint32_t old = 0;
	struct wr wr;

	start();
	for (int i = 0; i < 50000; i++) {
		uint32_t key = reg(b, b->mem, 64, 0, ALL);

		assert_int_not_equal(key, old);
		assert_int_equal(nic_mr_deregister(b->nic, key), 0);
		assert_int_equal(nic_mr_deregister(b->nic, old), -ENOENT);
		old = key;
	}
	reg(b, b->mem, 64, 0, ALL);
	wr = request(ROOST_OP_WRITE, 0, old, 8);
	assert_int_equal(status_of(&wr), NIC_WC_REM_ACCESS_ERR);
	world_fini(w); /* with a region left */
	ep_forget(a);
	ep_forget(b);
}

/* A region is deregistered during a long WRITE or READ: each further packet is checked again. */
static void taken_back_in_the_middle(void **state)
{
	static const enum roost_op ops[] = {ROOST_OP_WRITE, ROOST_OP_READ};

	for (unsigned i = 0; i < 2; i++) {
		struct nic_counters c;
		uint32_t key;
		struct wr wr;

		start();
		sim_set_params(w->sim,
			       &(struct sim_params){.delay_ns = 1000, .bytes_per_us = 1000});
		key = reg(b, b->mem, 65536, 0, ALL);
		memset(b->mem, 1, 65536);
		memset(a->mem, 2, 65536);
		wr = request(ops[i], 0, key, 60000);
		ep_post(a, &wr);
		do {
			world_step(w, UINT64_MAX);
			nic_counters(b->nic, &c);
		} while (!c.sent_pkts && !c.rx_write_requests);
		assert_int_equal(nic_mr_deregister(b->nic, key), 0);
		{
			uint8_t *to = i ? a->mem : b->mem, old = i ? 2 : 1;
			struct roost_cqe cqe;
			unsigned n = 0;

			while (n < 60000 && to[n] != old)
				n++;
			assert_in_range(n, i ? 0 : 1, 59999); /* it had begun */
			assert_true(ep_wait_send(a, &cqe, SEC));
			assert_int_equal(cqe.status, NIC_WC_REM_ACCESS_ERR);
			/* Its last packets did not arrive. */
			assert_int_equal(to[59999], old);
		}
		end();
	}
}

struct range {
	uint64_t iova;
	uint64_t len;
};

/* Bounds at both ends, wherever the region's addresses begin. */
static void bounds(void **state)
{
	static const struct range r[] = {
		{0, 100},
		{1, 1},
		{4096, 4096},
		{UINT64_MAX - 100, 100},
		{1ull << 63, 5000},
		{(1ull << 63) - 50, 100},
		{7, 0},
	};
	static const enum roost_op ops[] = {ROOST_OP_WRITE, ROOST_OP_READ};

	for (unsigned i = 0; i < sizeof(r) / sizeof(r[0]); i++)
		for (unsigned o = 0; o < 2; o++) {
			uint64_t lo = r[i].iova, hi = lo + r[i].len;
			struct {
				uint64_t at;
				uint32_t len;
				bool good;
			} t[] = {
				{lo, (uint32_t)r[i].len, true},
				{hi - 1, 1, r[i].len > 0},
				{lo, 0, true},
				{hi + 9, 0, true}, /* of 0 bytes */
				{hi, 1, false},
				{hi - 1, 2, false},
				{lo - 1, 1, false},
				{lo - 1, 2, false},
				{lo - 1, (uint32_t)r[i].len + 2, false},
				{lo, (uint32_t)r[i].len + 1, false},
				{lo + (1ull << 32), 1, false},
				{lo ^ (1ull << 63), 1, false},
			};

			for (unsigned k = 0; k < sizeof(t) / sizeof(t[0]); k++) {
				uint32_t key;
				struct wr wr;

				start();
				key = reg(b, b->mem + 8192, r[i].len, lo, ALL);
				wr = request(ops[o], t[k].at, key, t[k].len);
				assert_int_equal(status_of(&wr), t[k].good ? NIC_WC_SUCCESS
									   : NIC_WC_REM_ACCESS_ERR);
				assert_int_equal(nic_mr_deregister(b->nic, key), 0);
				end();
			}
		}
}

/* The same checks apply to our own memory: key, bounds, right to write, protection domain. */
static void local_checks(void **state)
{
	enum { WRONG_KEY, TOO_LONG, BEFORE, READ_ONLY, OTHER_PD, CASES };
	static const enum roost_op ops[] = {ROOST_OP_WRITE, ROOST_OP_SEND, ROOST_OP_READ,
					    ROOST_OP_FETCH_ADD};

	for (int k = 0; k < CASES; k++)
		for (unsigned o = 0; o < 4; o++) {
			bool writes = o >= 2;
			uint32_t key, pd;
			struct wr wr;

			start();
			ep_post_recv(b, 1, &(struct roost_sge){(uintptr_t)b->mem, 64, b->key}, 1);
			wr = request(ops[o], (uintptr_t)b->mem, b->key, 8);
			key = reg(a, a->mem, 64, (uintptr_t)a->mem, k == READ_ONLY ? 0 : ALL);
			wr.sge[0].lkey = key;
			assert_int_equal(nic_pd_alloc(a->nic, &pd), 0);
			if (k == WRONG_KEY)
				wr.sge[0].lkey ^= 2;
			if (k == TOO_LONG)
				wr.sge[0].addr += 57;
			if (k == BEFORE)
				wr.sge[0].addr -= 1;
			if (k == OTHER_PD) {
				struct nic_mr_attr m = {.pd = pd,
							.addr = a->mem,
							.len = 64,
							.iova = (uintptr_t)a->mem,
							.access = ALL};

				assert_int_equal(nic_mr_register(a->nic, &m, &wr.sge[0].lkey), 0);
			}
			assert_int_equal(status_of(&wr), k == READ_ONLY && !writes
								 ? NIC_WC_SUCCESS
								 : NIC_WC_LOC_PROT_ERR);
			assert_int_equal(nic_mr_deregister(a->nic, key), 0);
			if (k == OTHER_PD)
				assert_int_equal(nic_mr_deregister(a->nic, wr.sge[0].lkey), 0);
			end();
		}
}

/* 64 GiB, whose pages do not exist until they are accessed. */
static void larger_than_the_machine(void **state)
{
	const uint64_t size = 64ull << 30;
	uint8_t *big = mmap(NULL, size, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	static const uint64_t at[] = {0,
				      4096,
				      1ull << 31,
				      1ull << 32,
				      (1ull << 32) - 500,
				      40ull << 30,
				      (64ull << 30) - 1000};
	struct wr wr;
	uint32_t key;

	if (big == MAP_FAILED) {
		print_message("SKIPPED: no 64 GiB of addresses to be had\n");
		skip();
	}
	start();
	key = reg(b, big, size, 0, ALL);
	for (unsigned i = 0; i < 7; i++) {
		for (int k = 0; k < 1000; k++)
			a->mem[k] = (uint8_t)(k + (int)i);
		wr = request(ROOST_OP_WRITE, at[i], key, 1000);
		assert_int_equal(status_of(&wr), NIC_WC_SUCCESS);
		assert_memory_equal(big + at[i], a->mem, 1000);
		wr = request(ROOST_OP_READ, at[i], key, 1000);
		wr.sge[0].addr += 2000;
		assert_int_equal(status_of(&wr), NIC_WC_SUCCESS);
		assert_memory_equal(a->mem + 2000, a->mem, 1000);
	}
	wr = request(ROOST_OP_READ, size - 999, key, 1000);
	assert_int_equal(status_of(&wr), NIC_WC_REM_ACCESS_ERR);
	assert_int_equal(nic_mr_deregister(b->nic, key), 0);
	end();
	munmap(big, size);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_refused),
		cmocka_unit_test(many_regions),
		cmocka_unit_test(as_many_as_fit),
		cmocka_unit_test(keys_tell_nothing_of_others),
		cmocka_unit_test(keys_tell_nothing_of_others),
		cmocka_unit_test(keys_start_random),
		cmocka_unit_test(stale_keys),
		cmocka_unit_test(taken_back_in_the_middle),
		cmocka_unit_test(bounds),
		cmocka_unit_test(local_checks),
		cmocka_unit_test(larger_than_the_machine),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
