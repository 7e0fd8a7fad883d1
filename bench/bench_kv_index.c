/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory accesses of a GET and of a PUT of a new key over utilization: those that the store counts
 * with settings of its tuner, and those of models of bucketised cuckoo hashing (MemC3) and
 * hopscotch hashing (FaRM) in as much memory (KV-Direct, figure 11). Prints JSON. It measures no
 * time.
 *
 * Both models have slots of 16 bytes, four in a line. A slot has a pair of at most 14 bytes, or a
 * key of 8 bytes and a pointer to a slab with the value. The index has all memory that the slabs
 * leave. Cuckoo: two lines are possible; an insertion reads both, and moves pairs at random, 500 at
 * most. Hopscotch: a neighbourhood of 8 slots is one access; an insertion reads on until an empty
 * slot, and moves it near by hops; if that fails, the pair goes to an overflow block, which costs a
 * GET one access more; at most 5% of the slots may overflow.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/rng.h"
#include "kv/kv.h"
#include "kv/slab.h"
#include "kv/tune.h"

#define MEMORY	  (16u << 20)
#define SLOT	  16u
#define WAYS	  4u
#define NEAR	  8u
#define KICKS	  500u
#define REACH	  4096u /* slots that an insertion of hopscotch looks at */
#define INLINE	  14u
#define KEY	  8u
#define LAST_PART 50u /* PUTs: the last 2% of the insertions */

struct table {
	uint32_t *keys; /* number of the key + 1; 0: empty */
	uint8_t *over;	/* overflow of each home */
	uint64_t slots, overflow;
	struct rng rng;
};

static uint64_t mix(uint64_t x)
{
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
	x = (x ^ x >> 27) * 0x94d049bb133111eb;
	return x ^ x >> 31;
}

static uint64_t place(const struct table *t, uint32_t key, unsigned way, unsigned ways)
{
	return mix(key * 2ull + way + 0x9e3779b97f4a7c15) % (t->slots / ways) * ways;
}

static int find(const struct table *t, uint64_t at, unsigned n, uint32_t key)
{
	for (unsigned i = 0; i < n; i++)
		if (t->keys[(at + i) % t->slots] == key)
			return (int)i;
	return -1;
}

/* Returns the accesses to the index, or 0: the pair does not fit. */
static unsigned cuckoo_put(struct table *t, uint32_t key)
{
	uint64_t at = place(t, key, 0, WAYS), other = place(t, key, 1, WAYS);
	unsigned accesses = 2;
	int i = find(t, at, WAYS, 0);

	if (i < 0) {
		at = other;
		i = find(t, at, WAYS, 0);
	}
	for (unsigned kick = 0; i < 0; kick++) {
		uint64_t victim = at + rng_below(&t->rng, WAYS);
		uint32_t moved = t->keys[victim];

		if (kick == KICKS)
			return 0;
		t->keys[victim] = key;
		key = moved;
		other = place(t, key, 0, WAYS);
		at = other == at ? place(t, key, 1, WAYS) : other;
		accesses += 2; /* writes the line, and reads the other line of the pair */
		i = find(t, at, WAYS, 0);
	}
	t->keys[at + (unsigned)i] = key;
	return accesses + 1;
}

static unsigned cuckoo_get(const struct table *t, uint32_t key)
{
	return find(t, place(t, key, 0, WAYS), WAYS, key) >= 0 ? 1 : 2;
}

/* Moves the empty slot nearer to `home`. Returns the slot, or -1. */
static int64_t hop(struct table *t, uint64_t home, uint64_t distance, unsigned *accesses)
{
	while (distance >= NEAR) {
		unsigned back = NEAR - 1;

		++*accesses; /* reads the slots before the empty one */
		for (; back; back--) {
			uint64_t from = (home + distance - back) % t->slots;
			uint64_t to = (home + distance) % t->slots;
			uint64_t origin = place(t, t->keys[from], 0, 1);

			if ((to + t->slots - origin) % t->slots >= NEAR)
				continue;
			t->keys[to] = t->keys[from];
			t->keys[from] = 0;
			++*accesses;
			break;
		}
		if (!back)
			return -1;
		distance -= back;
	}
	return (int64_t)((home + distance) % t->slots);
}

static unsigned hopscotch_put(struct table *t, uint32_t key)
{
	uint64_t home = place(t, key, 0, 1), distance = 0;
	unsigned accesses = 1;
	int64_t slot = -1;

	while (distance < REACH && t->keys[(home + distance) % t->slots])
		if (++distance % NEAR == 0)
			accesses++;
	if (distance < REACH)
		slot = hop(t, home, distance, &accesses);
	if (slot >= 0) {
		t->keys[slot] = key;
		return accesses + 1;
	}
	t->over[home]++;
	if (++t->overflow > t->slots / 20)
		return 0;
	return accesses + 2; /* the block, and the pointer to it */
}

static unsigned hopscotch_get(const struct table *t, uint32_t key)
{
	return find(t, place(t, key, 0, 1), NEAR, key) >= 0 ? 1 : 2;
}

static bool first = true;

static void row(const char *way, unsigned bytes, double utilization, double get, double put)
{
	printf("%s\n  {\"way\": \"%s\", \"bytes\": %u, \"utilization\": %.2f, \"get\": %.3f, "
	       "\"put\": %.3f}",
	       first ? "" : ",", way, bytes, utilization, get, put);
	first = false;
}

static void model(const char *way, unsigned bytes, double utilization,
		  unsigned (*put)(struct table *, uint32_t),
		  unsigned (*get)(const struct table *, uint32_t))
{
	uint32_t n = (uint32_t)(MEMORY * utilization / bytes);
	unsigned outside = bytes > INLINE;
	uint64_t slab = outside ? slab_size(slab_class_of(bytes - KEY)) : 0, sum = 0, last = 0;
	struct table t = {0};

	if (n * (slab + SLOT) < MEMORY) {
		t.slots = (MEMORY - n * slab) / SLOT / WAYS * WAYS;
		t.keys = calloc(t.slots, sizeof(*t.keys));
		t.over = calloc(t.slots, 1);
		if (!t.keys || !t.over)
			exit(1);
		rng_seed(&t.rng, 1);
		for (uint32_t k = 1; k <= n; k++) {
			unsigned accesses = put(&t, k);

			if (!accesses)
				goto out;
			if (k > n - n / LAST_PART)
				last += accesses;
		}
		for (uint32_t k = 1; k <= n; k++)
			sum += get(&t, k);
		row(way, bytes, utilization, (double)sum / n + outside,
		    (double)last / (n / LAST_PART) + outside);
	}
out:
	free(t.keys);
	free(t.over);
}

static uint64_t run(struct kv *kv, uint8_t code, uint64_t key, uint32_t len)
{
	static uint8_t value[256], out[256];
	struct kv_op op = {.code = code,
			   .key = &key,
			   .key_len = KEY,
			   .value = value,
			   .value_len = len,
			   .out = out,
			   .out_cap = sizeof(out)};
	struct kv_stat a, b;

	kv_get_stat(kv, &a);
	kv_run(kv, &op, 1);
	kv_get_stat(kv, &b);
	if (op.status)
		exit(1);
	return b.reads + b.writes - a.reads - a.writes;
}

static void ours(unsigned bytes, double utilization)
{
	static const uint8_t secret[KV_SECRET] = {3};
	struct kv_tune_size size = {bytes, 1};
	struct kv_workload w = {&size, 1, MEMORY, utilization};
	struct kv_config c = {.secret = secret};
	uint64_t gets = 0, last = 0;
	struct kv_tuned t;
	struct kv *kv;

	if (kv_tune(&w, &t))
		return;
	c.size = t.size;
	c.buckets = c.buckets_max = t.buckets;
	c.inline_max = t.inline_max;
	if (kv_open(&c, &kv))
		exit(1);
	for (uint64_t k = 0; k < t.pairs; k++) {
		uint64_t accesses = run(kv, KV_PUT, k, bytes - KEY);

		if (k >= t.pairs - t.pairs / LAST_PART)
			last += accesses;
	}
	for (uint64_t k = 0; k < t.pairs; k++)
		gets += run(kv, KV_GET, k, bytes - KEY);
	row("store", bytes, utilization, (double)gets / (double)t.pairs,
	    (double)last / (double)(t.pairs / LAST_PART));
	kv_close(kv);
}

int main(void)
{
	static const unsigned sizes[] = {10, 254};

	printf("{\"rows\": [");
	for (unsigned s = 0; s < 2; s++)
		for (unsigned u = 1; u <= 16; u++) {
			ours(sizes[s], u * 0.05);
			model("cuckoo", sizes[s], u * 0.05, cuckoo_put, cuckoo_get);
			model("hopscotch", sizes[s], u * 0.05, hopscotch_put, hopscotch_get);
		}
	printf("\n]}\n");
	return 0;
}
