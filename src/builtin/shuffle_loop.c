/* SPDX-License-Identifier: BSD-2-Clause */
#include "builtin/shuffle_loop.h"

#include <endian.h>
#include <string.h>

#include "base/mem.h"
#include "builtin/mix64.h"

#define LINE  ROOST_SHUFFLE_LINE
#define BATCH 64 /* tuples whose partitions are computed before the first is copied */

bool shuffle_ok(const struct roost_shuffle_params *p)
{
	if (!p->partitions || p->partitions > ROOST_SHUFFLE_PARTITIONS || p->tuple < 8 ||
	    p->tuple > LINE || !is_pow2(p->tuple) || p->key % 8 || p->key >= p->tuple)
		return false;
	if (p->how == ROOST_SHUFFLE_RADIX)
		return is_pow2(p->partitions) && p->shift < 64;
	return p->how == ROOST_SHUFFLE_HASH && !p->shift;
}

static inline __attribute__((always_inline)) void parts(const struct roost_shuffle_params *p,
							const uint8_t *tuples, uint32_t n,
							uint32_t size, uint32_t *part)
{
	for (uint32_t i = 0; i < n; i++) {
		uint64_t key;

		memcpy(&key, tuples + (size_t)i * size + p->key, 8);
		part[i] = roost_shuffle_partition(p, le64toh(key));
	}
}

/* Writes the tuples of a partition up to `at` to memory. */
static enum shuffle_end flush(struct shuffle_work *w, uint32_t part, uint64_t at)
{
	struct shuffle_bounds *b = &w->bounds[part];
	uint64_t from = b->from;

	if (unlikely(at > b->end || at < from)) /* `at` may have wrapped around */
		return SHUFFLE_FULL;
	b->from = at;
	return w->put(w->ctx, from, w->lines + (size_t)part * LINE + from % LINE,
		      (uint32_t)(at - from))
		       ? SHUFFLE_REFUSED
		       : SHUFFLE_OK;
}

enum shuffle_end shuffle_flush(struct shuffle_work *w, uint32_t part)
{
	return w->at[part] == w->bounds[part].from ? SHUFFLE_OK : flush(w, part, w->at[part]);
}

/*
 * Copies a batch with known partitions. The lines are prefetched before the tuples are copied.
 */
static inline __attribute__((always_inline)) enum shuffle_end
move(struct shuffle_work *w, const uint32_t *part, const uint8_t *tuples, uint32_t n, uint32_t size)
{
	uint8_t *lines = w->lines;
	uint64_t *positions = w->at;

	for (uint32_t i = 0; i < n; i++) {
		uint64_t at = positions[part[i]];

		memcpy(lines + (size_t)part[i] * LINE + at % LINE, tuples + (size_t)i * size, size);
		positions[part[i]] = at += size;
		if (unlikely(at % LINE == 0)) {
			enum shuffle_end end = flush(w, part[i], at);

			if (unlikely(end))
				return end;
		}
	}
	return SHUFFLE_OK;
}

static inline __attribute__((always_inline)) enum shuffle_end
plain(struct shuffle_work *w, const uint8_t *tuples, size_t n, uint32_t size)
{
	const struct roost_shuffle_params p = w->p;

	while (n) {
		uint32_t part[BATCH], some = n < BATCH ? (uint32_t)n : BATCH;
		uint8_t own[BATCH * LINE];
		enum shuffle_end end;

		memcpy(own, tuples, some * size);
		parts(&p, own, some, size, part);
		end = move(w, part, own, some, size);
		if (unlikely(end))
			return end;
		n -= some;
		tuples += some * size;
	}
	return SHUFFLE_OK;
}

#define PLAIN(size)                                                                                \
	static enum shuffle_end plain_##size(struct shuffle_work *w, const uint8_t *tuples,        \
					     size_t n)                                             \
	{                                                                                          \
		return plain(w, tuples, n, size);                                                  \
	}
PLAIN(8)
PLAIN(16)
PLAIN(32)
PLAIN(64)
PLAIN(128)

shuffle_fn *shuffle_plain(const struct roost_shuffle_params *p)
{
	switch (p->tuple) {
	case 8:
		return plain_8;
	case 16:
		return plain_16;
	case 32:
		return plain_32;
	case 64:
		return plain_64;
	default:
		return plain_128;
	}
}

#if defined(__x86_64__)

/* Returns the high halves of roost_shuffle_hash() of four keys, in the low halves. */
AVX2 static inline __m256i hash4(__m256i x)
{
	return _mm256_srli_epi64(mix64_4(x), 32);
}

/* The parameters as vectors, for find4(). */
struct finder {
	__m256i mask, count;
	__m128i shift;
	bool radix;
};

AVX2 static inline struct finder finder_of(const struct roost_shuffle_params *p)
{
	return (struct finder){_mm256_set1_epi64x(p->partitions - 1),
			       _mm256_set1_epi64x(p->partitions), _mm_cvtsi32_si128(p->shift),
			       p->how == ROOST_SHUFFLE_RADIX};
}

/* Stores the partitions of four keys. */
AVX2 static inline void find4(const struct finder *f, __m256i key, uint32_t *part)
{
	__m256i to;

	if (f->radix)
		to = _mm256_and_si256(_mm256_srl_epi64(key, f->shift), f->mask);
	else
		to = _mm256_srli_epi64(_mm256_mul_epu32(hash4(key), f->count), 32);
	to = _mm256_permutevar8x32_epi32(to, _mm256_setr_epi32(0, 2, 4, 6, 0, 2, 4, 6));
	_mm_storeu_si128((__m128i *)part, _mm256_castsi256_si128(to));
}

/* Stores the partitions of tuples of 8 bytes, four at a time. Returns their number. */
AVX2 static uint32_t parts_8(const struct roost_shuffle_params *p, const uint8_t *tuples,
			     uint32_t n, uint32_t *part)
{
	const struct finder f = finder_of(p);
	uint32_t i;

	for (i = 0; i + 4 <= n; i += 4)
		find4(&f, _mm256_loadu_si256((const __m256i *)(tuples + 8 * i)), part + i);
	return i;
}

void shuffle_parts(const struct roost_shuffle_params *p, const uint8_t *tuples, uint32_t n,
		   uint32_t *part)
{
	uint32_t done =
		p->tuple == 8 && __builtin_cpu_supports("avx2") ? parts_8(p, tuples, n, part) : 0;

	parts(p, tuples + (size_t)done * p->tuple, n - done, p->tuple, part + done);
}

/* The loop for tuples of 8 bytes. It computes the partitions of a batch with vectors. */
AVX2 static enum shuffle_end avx2_8(struct shuffle_work *w, const uint8_t *tuples, size_t n)
{
	const struct finder f = finder_of(&w->p);

	for (; n >= BATCH; n -= BATCH, tuples += 8 * BATCH) {
		uint64_t key[BATCH] __attribute__((aligned(32)));
		uint32_t part[BATCH] __attribute__((aligned(16)));
		enum shuffle_end end;

		for (unsigned i = 0; i < BATCH; i += 4) {
			__m256i k = _mm256_loadu_si256((const __m256i *)(tuples + 8 * i));

			find4(&f, k, &part[i]);
			_mm256_store_si256((__m256i *)&key[i], k);
		}
		end = move(w, part, (const uint8_t *)key, BATCH, 8);
		if (unlikely(end))
			return end;
	}
	return plain_8(w, tuples, n);
}

shuffle_fn *shuffle_best(const struct roost_shuffle_params *p)
{
	return p->tuple == 8 && __builtin_cpu_supports("avx2") ? avx2_8 : shuffle_plain(p);
}

#else

void shuffle_parts(const struct roost_shuffle_params *p, const uint8_t *tuples, uint32_t n,
		   uint32_t *part)
{
	parts(p, tuples, n, p->tuple, part);
}

shuffle_fn *shuffle_best(const struct roost_shuffle_params *p)
{
	return shuffle_plain(p);
}

#endif
