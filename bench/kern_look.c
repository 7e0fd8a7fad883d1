/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * bench-kernels list, get: look-ups in lists and in a hash table that fit the cache, by READs, by
 * the kernels, and by ONC RPC. The key is in a list's last element. A single 64-byte READ gives the
 * time of a round trip.
 */
#include "kern_look.h"

#include <stdlib.h>
#include <string.h>

#include "kern.h"
#include "roost/get.h"
#include "roost/traversal.h"

#define LISTS	   64u
#define LIST_MAX   32u
#define ELEMENTS   (LISTS * LIST_MAX)
#define KEYS	   1024u
#define ENTRIES	   1024u
#define MORE	   512u
#define TABLE_LEN  ((ENTRIES + MORE) * sizeof(struct roost_get_entry))
#define MAX_VALUE  4096u
#define CLIENT_LEN 65536u

static void phase(struct duo *s, unsigned n)
{
#ifdef KERN_ONC
	onc_serve(s);
#endif
}

static unsigned one_read(struct duo *c, uint64_t random, unsigned size)
{
	duo_read(c, 0, c->remote + random % LISTS * 64, 64);
	return 1;
}

/* ---- lists ---- */

static uint64_t key_of(unsigned list, unsigned at)
{
	return 1 + (uint64_t)list * LIST_MAX + at;
}

/* Element 0 of list n is at index n. The other elements and the values are shuffled. */
static void build_lists(struct duo *s)
{
	struct list_element *e = (void *)s->mem;
	uint8_t *values = s->mem + ELEMENTS * sizeof(*e);
	uint32_t order[ELEMENTS];

	kern_mix(order, ELEMENTS, LISTS, 1);
	for (unsigned list = 0; list < LISTS; list++) {
		struct list_element *at = &e[list];

		for (unsigned n = 0; n < LIST_MAX; n++) {
			struct list_element *next = &e[order[LISTS + list * (LIST_MAX - 1) + n]];
			uint64_t key = key_of(list, n);
			uint8_t *value = values + (ELEMENTS - 1 - (size_t)(at - e)) * LIST_VALUE;

			memcpy(value, &key, sizeof(key));
			at->key = key;
			at->value = (uintptr_t)value;
			at->next = n + 1 < LIST_MAX ? (uintptr_t)next : 0;
			at = next;
		}
	}
	kern_deploy(s, "traversal");
}

static unsigned list_by_reads(struct duo *c, uint64_t random, unsigned size)
{
	unsigned list = random % LISTS, trips = 0;
	uint64_t key = key_of(list, size - 1), at = c->remote + list * sizeof(struct list_element);
	const struct list_element *e = (const void *)c->mem;

	do {
		duo_read(c, 0, at, sizeof(*e));
		at = e->next;
		trips++;
	} while (e->key != key && at);
	duo_read(c, 64, e->value, LIST_VALUE);
	kern_expect("list", c->mem + 64, &key, sizeof(key));
	return trips + 1;
}

static unsigned list_by_kernel(struct duo *c, uint64_t random, unsigned size)
{
	unsigned list = random % LISTS;
	uint64_t key = key_of(list, size - 1);
	struct roost_traversal_params p =
		roost_traversal_list(c->remote + list * sizeof(struct list_element), 64, key,
				     LIST_KEY_POS, LIST_VALUE_POS, LIST_NEXT_POS, LIST_VALUE);

	kern_expect("list", kern_call(ROOST_TRAVERSAL_OP, c->rkey, &p, sizeof(p), LIST_VALUE), &key,
		    sizeof(key));
	return 1;
}

#ifdef KERN_ONC
static unsigned list_by_onc(struct duo *c, uint64_t random, unsigned size)
{
	unsigned list = random % LISTS;
	uint64_t key = key_of(list, size - 1);

	if (onc_list(c->remote + list * sizeof(struct list_element), key, c->mem) != LIST_VALUE)
		duo_fail("ONC RPC finds nothing");
	kern_expect("list", c->mem, &key, sizeof(key));
	return 1;
}
#endif

static void list_client(struct duo *c)
{
	static struct kern_way ways[] = {
		{.name = "one READ", .once = one_read},
		{.name = "kernel", .once = list_by_kernel},
		{.name = "READs", .once = list_by_reads},
#ifdef KERN_ONC
		{.name = "ONC RPC", .once = list_by_onc, .begin = onc_begin, .end = onc_end},
#endif
	};

	kern_make_caller(c, 1, MAX_VALUE);
	for (unsigned size = 4; size <= LIST_MAX; size *= 2)
		kern_compare(c, "list", ways, sizeof(ways) / sizeof(ways[0]), size, "");
}

void kern_list(void)
{
	duo_run(&(struct duo_plan){.delay_ns = kern.delay_ns,
				   .client_len = CLIENT_LEN,
				   .server_len = (size_t)ELEMENTS *
						 (sizeof(struct list_element) + LIST_VALUE),
				   .build = build_lists,
				   .phase = phase,
				   .client = list_client});
}

/* ---- the hash table ---- */

/* The offset of the table for this size of values. */
static size_t table_at(unsigned value_len)
{
	size_t at = 0;

	for (unsigned len = 64; len < value_len; len *= 4)
		at += TABLE_LEN + (size_t)KEYS * len;
	return at;
}

static void build_tables(struct duo *s)
{
	for (unsigned len = 64; len <= MAX_VALUE; len *= 4) {
		struct roost_get_entry *t = (void *)(s->mem + table_at(len));
		uint8_t *value = (uint8_t *)t + TABLE_LEN;
		uint32_t used = 0;

		for (uint64_t key = 1; key <= KEYS; key++, value += len) {
			memcpy(value, &key, sizeof(key));
			if (roost_get_insert(t, ENTRIES, MORE, &used, key, (uintptr_t)value, len,
					     0))
				duo_fail("the hash table is too small");
		}
	}
	kern_deploy(s, "get");
}

static unsigned get_by_reads(struct duo *c, uint64_t random, unsigned size)
{
	uint64_t key = 1 + random % KEYS, table = c->remote + table_at(size),
		 at = roost_get_hash(key) & (ENTRIES - 1);
	const struct roost_get_entry *e = (const void *)c->mem;

	for (unsigned trips = 1;; trips++) {
		duo_read(c, 0, table + at * sizeof(*e), sizeof(*e));
		for (unsigned i = 0; i < ROOST_GET_BUCKETS; i++) {
			if (!e->bucket[i].value || e->bucket[i].key != key)
				continue;
			duo_read(c, 64, e->bucket[i].value, e->bucket[i].len);
			kern_expect("get", c->mem + 64, &key, sizeof(key));
			return trips + 1;
		}
		if (!e->next)
			duo_fail("a key is not in the table");
		at = e->next - 1;
	}
}

static unsigned get_by_kernel(struct duo *c, uint64_t random, unsigned size)
{
	uint64_t key = 1 + random % KEYS;
	struct roost_get_params p = roost_get_params(c->remote + table_at(size), ENTRIES, key, 0);

	kern_expect("get", kern_call(ROOST_GET_OP, c->rkey, &p, sizeof(p), size), &key,
		    sizeof(key));
	return 1;
}

#ifdef KERN_ONC
static unsigned get_by_onc(struct duo *c, uint64_t random, unsigned size)
{
	uint64_t key = 1 + random % KEYS;

	if (onc_get(c->remote + table_at(size), ENTRIES, key, c->mem) != size)
		duo_fail("ONC RPC finds nothing");
	kern_expect("get", c->mem, &key, sizeof(key));
	return 1;
}
#endif

static unsigned one_value(struct duo *c, uint64_t random, unsigned size)
{
	duo_read(c, 0, c->remote + table_at(size) + TABLE_LEN + random % KEYS * size, size);
	return 1;
}

static void get_client(struct duo *c)
{
	static struct kern_way ways[] = {
		{.name = "one READ", .once = one_value},
		{.name = "kernel", .once = get_by_kernel},
		{.name = "READs", .once = get_by_reads},
#ifdef KERN_ONC
		{.name = "ONC RPC", .once = get_by_onc, .begin = onc_begin, .end = onc_end},
#endif
	};

	kern_make_caller(c, 1, MAX_VALUE);
	for (unsigned size = 64; size <= MAX_VALUE; size *= 4)
		kern_compare(c, "get", ways, sizeof(ways) / sizeof(ways[0]), size, "");
}

void kern_get(void)
{
	duo_run(&(struct duo_plan){.delay_ns = kern.delay_ns,
				   .client_len = CLIENT_LEN,
				   .server_len = table_at(4 * MAX_VALUE),
				   .build = build_tables,
				   .phase = phase,
				   .client = get_client});
}
