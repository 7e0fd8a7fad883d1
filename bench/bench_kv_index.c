/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory accesses of the store, after figures of KV-Direct. Prints JSON. It measures no time. The
 * utilization is bytes of keys and values for each byte of memory; the index ratio is the share of
 * the index in the memory.
 *
 * 6: a GET and a PUT over the utilization for several inline thresholds, each with the largest
 * index that fits. 9a: over the index ratio, for several utilizations. 9b: over the utilization,
 * with an index ratio of 0.5. A PUT replaces a value of the same length here. 10: the highest
 * utilization over the index ratio, for several sizes of pairs: pairs are stored until one does not
 * fit.
 *
 * 11: a GET and a PUT of a new key over the utilization, with settings of the store's tuner, and
 * those of models of bucketised cuckoo hashing (MemC3) and hopscotch hashing (FaRM) in as much
 * memory.
 *
 * Tables 5 and 6: the share of lines that are cacheable in near memory, by the paper's equation.
 *
 * Both models have slots of 16 bytes, four in a line. A slot has a pair of at most 14 bytes, or a
 * key of 8 bytes and a pointer to a slab with the value. The index has all memory that the slabs
 * leave. Cuckoo: two lines are possible; an insertion reads both, and moves pairs at random, 500 at
 * most. Hopscotch: a neighbourhood of 8 slots is one access; an insertion reads on until an empty
 * slot, and moves it near by hops; if that fails, the pair goes to an overflow block, which costs a
 * GET one access more; at most 5% of the slots may overflow.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/rng.h"
#include "kv/bucket.h"
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
#define PARTS	  64u /* index ratios that are tried for figure 6 */
#define PROBES	  50000u
#define PAIRS	  6.4e9 /* 64 GiB of pairs of 10 bytes; fits the paper's table 5 */
#define LAST_PART 50u	/* PUTs: the last 2% of the insertions */

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

struct row {
	const char *figure, *way;
	unsigned bytes; /* of a pair; 0: a mix */
	unsigned inline_max;
	double ratio, utilization, get, put;
};

static void print(struct row r)
{
	static bool more;

	printf("%s\n  {\"figure\": \"%s\", \"way\": \"%s\", \"bytes\": %u, \"inline_max\": %u, "
	       "\"ratio\": %.3f, \"utilization\": %.3f, \"get\": %.3f, \"put\": %.3f}",
	       more ? "," : "", r.figure, r.way, r.bytes, r.inline_max, r.ratio, r.utilization,
	       r.get, r.put);
	more = true;
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
		print((struct row){.figure = "11",
				   .way = way,
				   .bytes = bytes,
				   .utilization = utilization,
				   .get = (double)sum / n + outside,
				   .put = (double)last / (n / LAST_PART) + outside});
	}
out:
	free(t.keys);
	free(t.over);
}

/* Sizes of pairs. Each has the same number of pairs. */
struct sizes {
	unsigned n;
	struct kv_tune_size size[4];
};

static unsigned bytes_of(const struct sizes *s, uint64_t key)
{
	return s->size[mix(key) % s->n].bytes;
}

/* Returns the accesses of an operation; 0: the pair does not fit. */
static uint64_t run(struct kv *kv, const struct sizes *s, uint8_t code, uint64_t key)
{
	static uint8_t value[256], out[256];
	struct kv_op op = {.code = code,
			   .key = &key,
			   .key_len = KEY,
			   .value = value,
			   .value_len = bytes_of(s, key) - KEY,
			   .out = out,
			   .out_cap = sizeof(out)};
	struct kv_stat a, b;

	kv_get_stat(kv, &a);
	kv_run(kv, &op, 1);
	kv_get_stat(kv, &b);
	if (op.status && op.status != -ENOSPC)
		exit(1);
	return op.status ? 0 : b.reads + b.writes - a.reads - a.writes;
}

static struct kv *open_store(unsigned inline_max, uint64_t buckets)
{
	static const uint8_t secret[KV_SECRET] = {3};
	struct kv_config c = {.secret = secret,
			      .size = MEMORY - buckets * BUCKET_BYTES,
			      .buckets = buckets,
			      .buckets_max = buckets,
			      .inline_max = inline_max};
	struct kv *kv;

	if (kv_open(&c, &kv))
		exit(1);
	return kv;
}

static double mean(struct kv *kv, const struct sizes *s, uint8_t code, uint64_t pairs)
{
	uint64_t sum = 0;
	struct rng rng;

	rng_seed(&rng, 1);
	for (unsigned i = 0; i < PROBES; i++)
		sum += run(kv, s, code, rng_below(&rng, pairs));
	return (double)sum / PROBES;
}

/* Prints the accesses of a store with these settings, if the pairs fit. Returns whether they do. */
static bool settings(const char *figure, const struct sizes *s, unsigned inline_max, double ratio,
		     double utilization)
{
	struct kv *kv = open_store(inline_max, (uint64_t)(MEMORY * ratio) / BUCKET_BYTES);
	uint64_t bytes = 0, pairs = 0;
	bool fit = true;

	for (; fit && bytes < MEMORY * utilization; pairs++) {
		bytes += bytes_of(s, pairs);
		fit = run(kv, s, KV_PUT, pairs);
	}
	if (fit)
		print((struct row){.figure = figure,
				   .way = "store",
				   .bytes = s->n == 1 ? s->size[0].bytes : 0,
				   .inline_max = inline_max,
				   .ratio = ratio,
				   .utilization = utilization,
				   .get = mean(kv, s, KV_GET, pairs),
				   .put = mean(kv, s, KV_PUT, pairs)});
	kv_close(kv);
	return fit;
}

/* Figure 6. A prediction finds the largest index. */
static void thresholds(void)
{
	static const struct sizes s = {4, {{10, 1}, {15, 1}, {20, 1}, {25, 1}}};

	for (unsigned max = 10; max <= 25; max += 5)
		for (unsigned u = 1; u <= 16; u++) {
			struct kv_workload w = {s.size, s.n, MEMORY, u * 0.05};
			unsigned part = PARTS - 1;
			struct kv_tuned t;

			while (part &&
			       kv_predict(&w, max, (uint64_t)MEMORY / PARTS * part / 64, &t))
				part--;
			if (part)
				settings("6", &s, max, (double)part / PARTS, u * 0.05);
		}
}

/* Figures 9a and 9b: pairs of 10 bytes inline, and records of 60 bytes. */
static void ratios(void)
{
	static const struct sizes sizes[] = {{1, {{10, 1}}}, {1, {{60, 1}}}};

	for (unsigned i = 0; i < 2; i++) {
		for (unsigned u = 3; u <= 5; u++)
			for (unsigned r = 1; r <= 9; r++)
				settings("9a", &sizes[i], 10, r * 0.1, u * 0.1);
		for (unsigned u = 1; u <= 16; u++)
			settings("9b", &sizes[i], 10, 0.5, u * 0.05);
	}
}

/* Figure 10: the highest utilization. */
static void most(void)
{
	static const unsigned bytes[] = {10, 20, 60, 252, 254};

	for (unsigned i = 0; i < sizeof(bytes) / sizeof(*bytes); i++)
		for (unsigned r = 1; r <= 9; r++) {
			struct sizes s = {1, {{bytes[i], 1}}};
			struct kv *kv = open_store(20, (uint64_t)(MEMORY * 0.1 * r) / BUCKET_BYTES);
			uint64_t pairs = 0;

			while (run(kv, &s, KV_PUT, pairs))
				pairs++;
			print((struct row){.figure = "10",
					   .way = "store",
					   .bytes = bytes[i],
					   .inline_max = 20,
					   .ratio = 0.1 * r,
					   .utilization = (double)(pairs * bytes[i]) / MEMORY,
					   .get = mean(kv, &s, KV_GET, pairs),
					   .put = mean(kv, &s, KV_PUT, pairs)});
			kv_close(kv);
		}
}

/* Figure 11. */
static void ours(unsigned bytes, double utilization)
{
	struct sizes s = {1, {{bytes, 1}}};
	struct kv_workload w = {s.size, 1, MEMORY, utilization};
	uint64_t last = 0;
	struct kv_tuned t;
	struct kv *kv;

	if (kv_tune(&w, &t))
		return;
	kv = open_store(t.inline_max, t.buckets);
	for (uint64_t k = 0; k < t.pairs; k++) {
		uint64_t accesses = run(kv, &s, KV_PUT, k);

		if (k >= t.pairs - t.pairs / LAST_PART)
			last += accesses;
	}
	print((struct row){.figure = "11",
			   .way = "store",
			   .bytes = bytes,
			   .inline_max = t.inline_max,
			   .ratio = t.index_ratio,
			   .utilization = utilization,
			   .get = mean(kv, &s, KV_GET, t.pairs),
			   .put = (double)last / (double)(t.pairs / LAST_PART)});
	kv_close(kv);
}

/*
 * Tables 5 and 6. The load dispatcher sends a share of the lines to near memory, which caches them.
 * A hit costs near memory an access, a miss costs far memory one; so do the lines that are not
 * cacheable. The best share makes both take the same time. With Zipf load the hit rate is
 * log(cache) / log(cacheable lines) (section 3.3.4); with uniform load it is the ratio of both.
 */
static double busy_far(double share, double near, bool zipf)
{
	double hits = zipf ? log(near * PAIRS) / log(share * PAIRS) : near / share;

	return 1 - share * (hits < 1 || zipf ? hits : 1);
}

static void dispatch(bool zipf)
{
	for (double speed = 0.5; speed <= 1024; speed *= speed < 8 ? 2 : 128)
		for (double near = 1.0 / 1024; near <= 1; near *= 4) {
			double low = 1e-6, high = 1, plain = near / (1 + near), far, rate;

			/* Below the best share, far memory takes longer. */
			for (unsigned i = 0; i < 50; i++) {
				double share = (low + high) / 2;

				if (share / speed > busy_far(share, near, zipf))
					high = share;
				else
					low = share;
			}
			far = busy_far(high, near, zipf);
			rate = 1 / (high / speed > far ? high / speed : far);
			if (plain > speed / (1 + speed))
				plain = speed / (1 + speed);
			printf(",\n  {\"figure\": \"dispatch\", \"way\": \"%s\", \"speed\": %g, "
			       "\"near\": %g, \"share\": %.3f, \"times\": %.2f}",
			       zipf ? "Zipf" : "uniform", speed, near, high, rate * (1 - plain));
		}
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
	thresholds();
	ratios();
	most();
	dispatch(true);
	dispatch(false);
	printf("\n]}\n");
	return 0;
}
