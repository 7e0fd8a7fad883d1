/* SPDX-License-Identifier: BSD-2-Clause */
#include "builtin/hll_update.h"

#include <endian.h>
#include <string.h>

#include "base/mem.h"
#include "builtin/mix64.h"
#include "roost/hll.h"

/*
 * In the common case the register has the value already. It then costs a load and a well-predicted
 * branch.
 */
static inline __attribute__((always_inline)) void add_hash(uint8_t *registers, unsigned precision,
							   uint64_t hash)
{
	uint8_t *to = &registers[roost_hll_index(hash, precision)];
	uint8_t rank = roost_hll_rank(hash, precision);
	uint8_t old = __atomic_load_n(to, __ATOMIC_RELAXED);

	while (unlikely(old < rank) &&
	       !__atomic_compare_exchange_n(to, &old, rank, true, __ATOMIC_RELAXED,
					    __ATOMIC_RELAXED))
		;
}

void hll_update_scalar(uint8_t *registers, unsigned precision, const uint8_t *items, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		uint64_t item;

		memcpy(&item, items + 8 * i, 8);
		add_hash(registers, precision, roost_hll_hash(le64toh(item)));
	}
}

#if defined(__x86_64__)

/*
 * The hashes of a batch are stored before the registers are updated, so that the loads of the
 * registers do not wait for multiplications.
 */
#define BATCH 32

AVX2 static void update_avx2(uint8_t *registers, unsigned precision, const uint8_t *items, size_t n)
{
	while (n >= BATCH) {
		uint64_t hash[BATCH] __attribute__((aligned(32)));

		for (unsigned i = 0; i < BATCH; i += 4)
			_mm256_store_si256(
				(__m256i *)&hash[i],
				mix64_4(_mm256_loadu_si256((const __m256i *)(items + 8 * i))));
		for (unsigned i = 0; i < BATCH; i++)
			add_hash(registers, precision, hash[i]);
		items += 8 * BATCH;
		n -= BATCH;
	}
	hll_update_scalar(registers, precision, items, n);
}

hll_update_fn *hll_update_best(void)
{
	return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2") ? update_avx2
										: hll_update_scalar;
}

#else

hll_update_fn *hll_update_best(void)
{
	return hll_update_scalar;
}

#endif
