/* SPDX-License-Identifier: BSD-2-Clause */
/* Opens and closes a store, and reports its statistics. */
#include "kv/kv.h"

#include <errno.h>
#include <stdlib.h>

#include "base/secret.h"
#include "kv/far.h"
#include "kv/store.h"

#define SIZE_MIN     (1ull << 20)
#define FILL_DEFAULT 55u
#define BUCKETS_MIN  64u

static int settle(struct kv_config *c)
{
	if (!c->segment)
		c->segment = SLAB_SEGMENT_MAX;
	if (c->size < SIZE_MIN || c->segment < SIZE_MIN || c->segment > SLAB_SEGMENT_MAX ||
	    c->segment % SLAB_MAX || c->inline_max > KV_INLINE_MAX || c->fill_percent > 100 ||
	    c->cacheable > 100 || c->in_flight > KV_IN_FLIGHT)
		return -EINVAL;
	if (!c->fill_percent)
		c->fill_percent = FILL_DEFAULT;
	if (!c->buckets_max)
		c->buckets_max = c->size / 128;
	if (!c->buckets)
		c->buckets = BUCKETS_MIN;
	if (c->buckets_max < c->buckets)
		c->buckets_max = c->buckets;
	return c->buckets_max > 1ull << 40 ? -EINVAL : 0;
}

static int make_secret(struct kv *kv, const uint8_t *given)
{
	uint64_t seed[SECRET_WORDS];
	struct secret s;
	int rc;

	if (given) {
		memcpy(kv->secret, given, KV_SECRET);
		return 0;
	}
	rc = secret_entropy(seed);
	if (rc)
		return rc;
	secret_seed(&s, seed);
	for (unsigned i = 0; i < KV_SECRET; i += 8) {
		uint64_t word = secret_u64(&s);

		memcpy(kv->secret + i, &word, 8);
	}
	return 0;
}

/* Lays out the address range: the index, then each segment with its stacks. */
static int lay_out(struct kv *kv)
{
	const struct kv_config *c = &kv->config;
	uint64_t share, each, at = ALIGN_UP(kv->buckets_max * BUCKET_BYTES, MEM_HUGE_PAGE);
	int err;

	kv->segments = (unsigned)pow2_ceil((c->size + c->segment - 1) / c->segment);
	share = ALIGN_UP(c->size / kv->segments, (uint64_t)SLAB_MAX);
	each = share + ALIGN_UP(slab_stack_bytes(share), (uint64_t)SLAB_MAX);
	kv->slabs = calloc(kv->segments, sizeof(*kv->slabs));
	kv->gather = malloc(KV_VALUE_MAX);
	if (!kv->slabs || !kv->gather)
		return -ENOMEM;
	err = kv_memory_open(&kv->mem, at + each * kv->segments);
	if (err)
		return err;
	if (c->far) {
		err = kv_flight_open(kv);
		if (err)
			return err;
	}
	for (unsigned i = 0; i < kv->segments; i++, at += each)
		slab_init(&kv->slabs[i], &kv->mem, at, share, share, at + share);
	if (kv->buckets < kv->segments)
		kv->buckets = kv->segments;
	if (kv->buckets_max < kv->buckets)
		return -EINVAL;
	kv_set_buckets(kv, kv->buckets);
	return 0;
}

int kv_open(const struct kv_config *config, struct kv **out)
{
	struct kv_config c = *config;
	int err = settle(&c);
	struct kv *kv = NULL;

	if (!err) {
		kv = calloc(1, sizeof(*kv));
		if (!kv)
			err = -ENOMEM;
	}
	if (err) {
		if (c.far)
			c.far->close(c.far);
		return err;
	}
	kv->config = c;
	kv->buckets = c.buckets;
	kv->buckets_max = c.buckets_max;
	kv->now = 1;
	kv->soonest = kv->next_soonest = UINT32_MAX;
	kv->elements = element_best();
	err = make_secret(kv, c.secret);
	kv->config.secret = NULL;
	if (!err)
		err = lay_out(kv);
	if (err) {
		kv_close(kv);
		return err;
	}
	*out = kv;
	return 0;
}

void kv_close(struct kv *kv)
{
	if (!kv)
		return;
	kv_flight_close(kv);
	kv_memory_close(&kv->mem);
	kv_functions_free(kv);
	free(kv->slabs);
	free(kv->gather);
	free(kv);
}

void kv_set_time(struct kv *kv, uint32_t now)
{
	if (now > kv->now)
		kv->now = now;
}

int kv_set_limit(struct kv *kv, uint64_t bytes)
{
	uint64_t share = ALIGN_DOWN(bytes / kv->segments, (uint64_t)SLAB_MAX);

	if (bytes > kv->config.size || !share)
		return -EINVAL;
	for (unsigned i = 0; i < kv->segments; i++)
		kv->slabs[i].limit = share;
	return 0;
}

void kv_on_far_error(struct kv *kv, void (*failed)(void *ctx, int err), void *ctx)
{
	if (kv->mem.near)
		kv_near_on_error(kv->mem.near, failed, ctx);
}

int kv_far_error(const struct kv *kv)
{
	return kv->mem.near ? kv_near_error(kv->mem.near) : 0;
}

void kv_get_stat(const struct kv *kv, struct kv_stat *stat)
{
	*stat = (struct kv_stat){.pairs = kv->pairs,
				 .inline_pairs = kv->inline_pairs,
				 .buckets = kv->buckets,
				 .chained = kv->chained,
				 .slots = kv->slots,
				 .reads = kv->mem.reads,
				 .writes = kv->mem.writes,
				 .growth_accesses = kv->growth_accesses,
				 .growth_steps = kv->growth_steps,
				 .evicted = kv->evicted,
				 .expired = kv->expired};
	for (unsigned i = 0; i < kv->segments; i++) {
		const struct slab *s = &kv->slabs[i];

		stat->used += s->used;
		stat->top += s->top;
		stat->limit += s->limit;
		stat->stack_accesses += s->accesses;
		stat->allocs += s->allocs;
		stat->frees += s->frees;
		stat->merges += s->merges;
	}
	kv_flight_stat(kv, stat);
}
