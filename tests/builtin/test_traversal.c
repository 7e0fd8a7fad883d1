/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The kernel `traversal`: all kinds of structures, and random parameters in comparison with a plain
 * model of the header's specification.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/rng.h"
#include "builtin/builtin.h"
#include "rig.h"
#include "roost/traversal.h"

#define SPACE 2048u

static struct rig R, *const r = &R;

static void open_rig(const struct sim_params *sp)
{
	rig_open(r, 1, &(struct rig_shape){.sp = *sp});
	assert_int_equal(runtime_deploy(r->f, kernels_builtin("traversal"), NULL), 0);
}

static struct rig_reply walk(const struct roost_traversal_params *p)
{
	return rig_call(r, ROOST_TRAVERSAL_OP, p, sizeof(*p), SPACE);
}

/* Fields are at multiples of 4 bytes. */
typedef uint64_t unaligned64 __attribute__((aligned(1)));

static unaligned64 *word(uint64_t va)
{
	return (unaligned64 *)(void *)(r->node[0].mem + (va - rig_va(r, 0)));
}

/* The value of key k, at a separate place for each key. */
#define VALUE_LEN 48u

static uint64_t make_value(unsigned i, uint64_t key)
{
	uint64_t va = rig_va(r, 512 * 1024 + (uint64_t)i * 64);

	memset(word(va), (int)(key * 3 + 1), VALUE_LEN);
	return va;
}

static void finds(const struct roost_traversal_params *p, uint64_t key)
{
	struct rig_reply a = walk(p);

	assert_int_equal(a.status, ROOST_RPC_OK);
	assert_int_equal(a.len, VALUE_LEN);
	for (uint32_t i = 0; i < VALUE_LEN; i++)
		assert_int_equal(a.data[i], (uint8_t)(key * 3 + 1));
}

/* ---- structures ---- */

/*
 * Elements in random places: key, value, next, at various positions of elements of various sizes.
 */
static void lists(const struct sim_params *sp)
{
	static const uint32_t sizes[] = {24, 64, 256, 1024};

	open_rig(sp);
	for (unsigned k = 0; k < sizeof(sizes) / sizeof(sizes[0]); k++) {
		uint32_t size = sizes[k], n = 33, last = size / 4 - 2;
		unsigned key_pos = k ? last : 0, value_pos = k ? 1 : 2, next_pos = k ? last - 4 : 4;
		struct roost_traversal_params p;
		uint64_t root = 0;

		for (unsigned i = 0; i < n; i++) {
			uint64_t va = rig_va(r, 4096 + (uint64_t)((i * 17) % n) * size);

			memset(word(va), 0x77, size);
			*word(va + 4 * key_pos) = 1000 + i;
			*word(va + 4 * value_pos) = make_value(i, 1000 + i);
			*word(va + 4 * next_pos) = root;
			root = va;
		}
		for (unsigned i = 0; i < n; i++) {
			p = roost_traversal_list(root, size, 1000 + i, key_pos, value_pos, next_pos,
						 VALUE_LEN);
			finds(&p, 1000 + i);
		}
		p = roost_traversal_list(root, size, 5, key_pos, value_pos, next_pos, VALUE_LEN);
		assert_int_equal(walk(&p).status, ROOST_RPC_MISS);
		/* A bound that is one element too small. */
		p = roost_traversal_list(root, size, 1000, key_pos, value_pos, next_pos, VALUE_LEN);
		p.bound = n - 1;
		assert_int_equal(walk(&p).status, ROOST_RPC_BOUND);
		p.bound = n;
		finds(&p, 1000);
		/* A cycle ends too. */
		*word(rig_va(r, 4096) + 4 * next_pos) = root;
		p.key[0] = 1;
		p.bound = 1000;
		assert_int_equal(walk(&p).status, ROOST_RPC_BOUND);
		p.root = 0;
		assert_int_equal(walk(&p).status, ROOST_RPC_MISS);
	}
	rig_close(r);
}

static void linked_lists(void **state)
{
	lists(&(struct sim_params){.delay_ns = 1000});
}

static void over_a_bad_link(void **state)
{
	lists(&(struct sim_params){.loss = 0.05, .dup = 0.05, .reorder = 0.05, .delay_ns = 1000});
}

/* key, value, left, right */
static void binary_tree(void **state)
{
	uint64_t root = 0, keys[200];
	struct rng rng;

	rng_seed(&rng, 3);
	open_rig(&(struct sim_params){0});
	for (unsigned i = 0; i < 200; i++) {
		uint64_t va = rig_va(r, 4096 + i * 32), *link = &root;

		keys[i] = rng_u64(&rng) | 1;
		while (*link)
			link = word(*link + (keys[i] < *word(*link) ? 16 : 24));
		*link = va;
		*word(va) = keys[i];
		*word(va + 8) = make_value(i, keys[i]);
	}
	for (unsigned i = 0; i < 400; i++) {
		uint64_t key = i < 200 ? keys[i] : rng_u64(&rng) & ~1ull;
		struct roost_traversal_params p =
			roost_traversal_list(root, 32, key, 0, 2, 4, VALUE_LEN);

		p.next = ROOST_TRAVERSAL_NEXT_BY_ORDER;
		p.else_pos = 6;
		if (i < 200)
			finds(&p, key);
		else
			assert_int_equal(walk(&p).status, ROOST_RPC_MISS);
	}
	rig_close(r);
}

/*
 * A tree of two levels: nodes of three keys with a value each, and four children: child, (key,
 * value, child) x 3.
 */
static void b_tree(void **state)
{
	uint64_t root;

	open_rig(&(struct sim_params){0});
	root = rig_va(r, 4096);
	for (unsigned n = 0; n < 5; n++) {
		uint64_t va = root + n * 128;

		for (unsigned i = 0; i < 3; i++) {
			/* The root has 40, 80, 120; its child c has 40 c + 10, 20, 30. */
			uint64_t key = n ? (n - 1) * 40 + (i + 1) * 10 : (i + 1) * 40;

			*word(va + 8 + 24 * i) = key;
			*word(va + 16 + 24 * i) = make_value((unsigned)key, key);
		}
		for (unsigned i = 0; i < 4; i++)
			*word(va + 24 * i) = n ? 0 : root + (i + 1) * 128;
	}
	for (uint64_t key = 1; key < 160; key++) {
		struct roost_traversal_params p =
			roost_traversal_list(root, 80, key, 2, 2, 2, VALUE_LEN);

		p.key_mask[0] = 1ull << 2 | 1ull << 8 | 1ull << 14;
		p.flags = ROOST_TRAVERSAL_VALUE_RELATIVE;
		p.next = ROOST_TRAVERSAL_NEXT_BY_KEY;
		p.else_pos = 0;
		if (key % 10 == 0)
			finds(&p, key);
		else
			assert_int_equal(walk(&p).status, ROOST_RPC_MISS);
	}
	rig_close(r);
}

/*
 * key, value, then for each of four levels, lowest first, the key and the address of the next node
 * on the level; at the end a word that is 0.
 */
static void skip_list(void **state)
{
	uint64_t first;

	open_rig(&(struct sim_params){0});
	first = rig_va(r, 4096);
	for (unsigned i = 0; i < 100; i++) {
		uint64_t va = first + i * 88;

		*word(va) = i * 2;
		*word(va + 8) = make_value(i, i * 2);
		for (unsigned level = 0; level < 4; level++) {
			unsigned to = ((i >> level) + 1) << level;

			*word(va + 16 + 16 * level) = to < 100 ? to * 2 : UINT64_MAX;
			*word(va + 24 + 16 * level) = to < 100 ? first + to * 88 : 0;
		}
	}
	for (uint64_t key = 0; key < 220; key++) {
		struct roost_traversal_params p =
			roost_traversal_list(first, 88, key, 0, 2, 0, VALUE_LEN);

		p.next = ROOST_TRAVERSAL_NEXT_BY_KEY;
		p.order_mask[0] = 1ull << 4 | 1ull << 8 | 1ull << 12 | 1ull << 16;
		p.else_pos = 20;
		p.bound = 40; /* far fewer than a walk along the lowest level */
		if (key % 2 == 0 && key < 200)
			finds(&p, key);
		else
			assert_int_equal(walk(&p).status, ROOST_RPC_MISS);
	}
	rig_close(r);
}

/* Long keys, and a value in the element itself. */
static void long_keys(void **state)
{
	struct roost_traversal_params p;
	uint64_t root;

	open_rig(&(struct sim_params){0});
	root = rig_va(r, 4096);
	for (unsigned i = 0; i < 20; i++) {
		uint64_t va = root + i * 128;

		memset(word(va), (int)i, 64); /* the key */
		memset(word(va + 64), (int)(100 + i), 40);
		*word(va + 120) = i < 19 ? va + 128 : 0;
	}
	for (unsigned i = 0; i < 20; i++) {
		struct rig_reply a;

		p = roost_traversal_list(root, 128, 0, 0, 16, 30, 40);
		p.key_len = 64;
		memset(p.key, (int)i, 64);
		p.flags = ROOST_TRAVERSAL_VALUE_INSIDE;
		a = walk(&p);
		assert_int_equal(a.status, ROOST_RPC_OK);
		assert_int_equal(a.len, 40);
		assert_int_equal(a.data[39], 100 + i);
		p.key[0] ^= 1;
		assert_int_equal(walk(&p).status, ROOST_RPC_MISS);
	}
	rig_close(r);
}

/* ---- a model ---- */

#define AREA	  (256u * 64)
#define AREA_AT	  65536u
#define VALUES_AT 4096u

/* A plain implementation of the header. Returns the status; sets *value and *len if it is OK. */
static unsigned model(const struct roost_traversal_params *p, const uint8_t **value, uint32_t *len)
{
	uint64_t at = p->root;

	for (uint32_t looked = 0;; looked++) {
		const uint8_t *e;
		int next = -1, orders = 0;

		if (!at)
			return ROOST_RPC_MISS;
		if (looked == p->bound)
			return ROOST_RPC_BOUND;
		if (at < rig_va(r, 0) || at + p->element_len > rig_va(r, RIG_MEM) ||
		    at + p->element_len < at)
			return ROOST_RPC_ACCESS;
		e = (const uint8_t *)word(at);
		for (int pos = 0; pos < 256; pos++) {
			uint64_t have = 0, want = 0;
			bool hit;

			if (!(p->key_mask[pos / 64] >> pos % 64 & 1))
				continue;
			memcpy(&have, e + 4 * pos, p->key_len);
			memcpy(&want, p->key, p->key_len);
			hit = p->predicate == 0	  ? have == want
			      : p->predicate == 1 ? have < want
			      : p->predicate == 2 ? have > want
						  : have != want;
			if (!hit)
				continue;
			pos = p->value_pos + (p->flags & 1 ? pos : 0);
			*len = p->value_len;
			if (pos < 0 ||
			    (uint32_t)pos * 4 + (p->flags & 2 ? p->value_len : 8) > p->element_len)
				return ROOST_RPC_BAD_PARAMS;
			*value = e + 4 * pos;
			if (p->flags & 2)
				return p->value_len > SPACE ? ROOST_RPC_TOO_LONG : ROOST_RPC_OK;
			memcpy(&have, e + 4 * pos, 8);
			if (p->value_len > SPACE)
				return ROOST_RPC_TOO_LONG;
			if (p->value_len &&
			    (have < rig_va(r, 0) || have + p->value_len > rig_va(r, RIG_MEM)))
				return ROOST_RPC_ACCESS;
			*value = p->value_len ? (const uint8_t *)word(have) : NULL;
			return ROOST_RPC_OK;
		}
		if (p->next == 0)
			return ROOST_RPC_MISS;
		if (p->next == 1)
			next = p->next_pos;
		else
			next = p->else_pos;
		for (int pos = 0; pos < 256 && p->next > 1; pos++) {
			const uint64_t *mask = p->order_mask[0] | p->order_mask[1] |
							       p->order_mask[2] | p->order_mask[3]
						       ? p->order_mask
						       : p->key_mask;
			uint64_t have = 0, want = 0;

			if (!(mask[pos / 64] >> pos % 64 & 1))
				continue;
			memcpy(&have, e + 4 * pos, p->key_len);
			memcpy(&want, p->key, p->key_len);
			if (p->next == 3) {
				if (!orders++ && want < have)
					next = p->next_pos;
			} else if (have > want) {
				break;
			} else {
				next = pos + p->key_len / 4 + p->next_pos;
			}
			orders++;
		}
		if (p->next == 3 && !orders)
			return ROOST_RPC_BAD_PARAMS;
		if (next < 0 || (uint32_t)next * 4 + 8 > p->element_len)
			return ROOST_RPC_BAD_PARAMS;
		memcpy(&at, e + 4 * next, 8);
	}
}

static uint64_t some_mask(struct rng *rng, unsigned positions)
{
	uint64_t m = 0;

	for (uint64_t n = rng_below(rng, 4); n > 0; n--)
		m |= 1ull << rng_below(rng, positions);
	return m;
}

/*
 * With memory full of small numbers and pointers, and parameters of all kinds, the kernel and the
 * model have the same result.
 */
static void random_walks(void **state)
{
	unsigned ends[16] = {0};
	struct rng rng;

	rng_seed(&rng, 5);
	open_rig(&(struct sim_params){0});
	for (unsigned round = 0; round < 3000; round++) {
		struct roost_traversal_params p = {
			.root = rig_va(r, AREA_AT + rng_below(&rng, 200) * 64)};
		const uint8_t *value = NULL;
		struct rig_reply a;
		unsigned want, units;
		uint32_t len = 0;

		for (unsigned i = 0; i < AREA / 8 && round % 50 == 0; i++) {
			uint64_t pick = rng_below(&rng, 10);

			*word(rig_va(r, AREA_AT + i * 8)) =
				pick < 6    ? rig_va(r, AREA_AT + rng_below(&rng, 240) * 64)
				: pick == 6 ? 0
				: pick == 7 ? rng_u64(&rng)
					    : rng_below(&rng, 8);
		}
		p.element_len = 4 * (uint32_t)(2 + rng_below(&rng, 15));
		p.key_len = rng_below(&rng, 2) ? 8 : 4;
		units = (p.element_len - p.key_len) / 4 + 1;
		p.value_len = (uint32_t)rng_below(&rng, rng_below(&rng, 20) ? 65 : 3000);
		p.bound = 1 + (uint32_t)rng_below(&rng, 30);
		p.predicate = (uint8_t)rng_below(&rng, 4);
		p.next = (uint8_t)rng_below(&rng, 4);
		p.value_pos = (int16_t)(rng_below(&rng, 10) - rng_below(&rng, 3));
		p.next_pos = (int16_t)(rng_below(&rng, 10) - rng_below(&rng, 3));
		p.else_pos = (int16_t)(rng_below(&rng, 10) - rng_below(&rng, 3));
		p.flags = (uint16_t)rng_below(&rng, 4);
		p.key_mask[0] = some_mask(&rng, units);
		if (rng_below(&rng, 2))
			p.order_mask[0] = some_mask(&rng, units);
		*(unaligned64 *)(void *)p.key =
			rng_below(&rng, 3) ? rng_below(&rng, 8)
					   : rig_va(r, AREA_AT + 64 * rng_below(&rng, 240));
		want = model(&p, &value, &len);
		a = walk(&p);
		assert_int_equal(a.status, want);
		ends[want]++;
		if (want == ROOST_RPC_OK) {
			assert_int_equal(a.len, len);
			if (len)
				assert_memory_equal(a.data, value, len);
		}
	}
	/* All statuses occurred. */
	assert_true(ends[ROOST_RPC_OK] > 100 && ends[ROOST_RPC_MISS] > 100 &&
		    ends[ROOST_RPC_BOUND] > 20);
	assert_true(ends[ROOST_RPC_ACCESS] > 20 && ends[ROOST_RPC_BAD_PARAMS] > 20 &&
		    ends[ROOST_RPC_TOO_LONG] > 5);
	rig_close(r);
}

static void bad_parameters(void **state)
{
	struct roost_traversal_params good, p;
	uint8_t some[sizeof(p) + 8] = {0};

	open_rig(&(struct sim_params){0});
	for (uint32_t n = 0; n < sizeof(some); n++)
		if (n != sizeof(p))
			assert_int_equal(rig_call(r, ROOST_TRAVERSAL_OP, some, n, SPACE).status,
					 ROOST_RPC_BAD_PARAMS);
	good = roost_traversal_list(rig_va(r, 4096), 64, 1, 0, 2, 4, VALUE_LEN);
	assert_int_equal(walk(&good).status, ROOST_RPC_MISS);
#define BAD(change)                                                                                \
	do {                                                                                       \
		p = good;                                                                          \
		change;                                                                            \
		assert_int_equal(walk(&p).status, ROOST_RPC_BAD_PARAMS);                           \
	} while (0)
	BAD(p.element_len = 0);
	BAD(p.element_len = 62);
	BAD(p.element_len = 1028);
	BAD(p.bound = 0);
	BAD(p.key_len = 0);
	BAD(p.key_len = 6);
	BAD(p.key_len = 68);
	BAD((p.element_len = 4, p.key_mask[0] = 1));
	BAD(p.predicate = 4);
	BAD(p.next = 4);
	BAD(p.flags = 4);
	BAD(p.key_mask[0] = 1ull << 15);
	BAD(p.key_mask[1] = 1);
	BAD(p.order_mask[3] = 1);
	BAD(p.next_pos = 15);
	BAD(p.next_pos = -1);
	rig_close(r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(linked_lists), cmocka_unit_test(over_a_bad_link),
		cmocka_unit_test(binary_tree),	cmocka_unit_test(b_tree),
		cmocka_unit_test(skip_list),	cmocka_unit_test(long_keys),
		cmocka_unit_test(random_walks), cmocka_unit_test(bad_parameters),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
