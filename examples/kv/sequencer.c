/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A sequencer and a lock. Four workers draw numbers with fetch-and-add, many at once: each number
 * is drawn once. Then they change a value with a GET and a PUT, each time under a lock. The lock is
 * a key: a worker that stores the key owns the lock, and deletes the key afterwards. The key
 * expires if its owner dies. usage: sequencer ADDRESS [NUMBERS]
 */
#include <stdatomic.h>

#include "client.h"

#define WORKERS	 4u
#define AT_ONCE	 256u
#define LOCK_TTL 60 /* seconds until the lock expires */

static unsigned long numbers; /* numbers of each worker */
static unsigned long turns;   /* turns of each worker under the lock */
static atomic_uchar *drawn;

static void draw_numbers(struct roost_kv *kv)
{
	static const uint64_t one = 1;
	struct roost_kv_op ops[AT_ONCE];
	uint64_t got[AT_ONCE];

	for (unsigned long n = 0; n < numbers;) {
		unsigned count = numbers - n < AT_ONCE ? (unsigned)(numbers - n) : AT_ONCE;

		for (unsigned i = 0; i < count; i++)
			ops[i] = (struct roost_kv_op){.code = ROOST_KV_UPDATE,
						      .type = ROOST_KV_U64,
						      .function = ROOST_KV_ADD,
						      .fetch = true,
						      .key = "sequence",
						      .key_len = 8,
						      .value = &one,
						      .value_len = sizeof(one),
						      .out = &got[i],
						      .out_cap = sizeof(got[i])};
		run_all(kv, ops, count, "a fetch-and-add");
		for (unsigned i = 0; i < count; i++)
			if (got[i] < WORKERS * numbers)
				drawn[got[i]]++;
		n += count;
	}
}

static void take_lock(struct roost_kv *kv, uintptr_t owner)
{
	for (;;) {
		struct roost_kv_op op = {.code = ROOST_KV_PUT_ABSENT,
					 .key = "lock",
					 .key_len = 4,
					 .value = &owner,
					 .value_len = sizeof(owner),
					 .ttl = LOCK_TTL};

		must(roost_kv_run(kv, &op, 1), "the lock");
		if (!op.status)
			return;
		must(op.status == -EEXIST ? 0 : op.status, "the lock");
		sched_yield();
	}
}

static void take_turns(struct roost_kv *kv, uintptr_t owner)
{
	for (unsigned long i = 0; i < turns; i++) {
		uint64_t value;
		size_t len;

		take_lock(kv, owner);
		must(roost_kv_get(kv, "value", 5, &value, sizeof(value), &len), "a GET");
		value++;
		must(roost_kv_put(kv, "value", 5, &value, sizeof(value), 0), "a PUT");
		must(roost_kv_delete(kv, "lock", 4), "the end of the lock");
	}
}

static void *draw_work(void *number)
{
	struct roost_kv *kv = connect_to_store();

	draw_numbers(kv);
	roost_kv_close(kv);
	return NULL;
}

static void *lock_work(void *number)
{
	struct roost_kv *kv = connect_to_store();

	take_turns(kv, (uintptr_t)number);
	roost_kv_close(kv);
	return NULL;
}

int main(int argc, char **argv)
{
	static const uint64_t zero;
	unsigned long once = 0;
	struct roost_kv *kv;
	uint64_t value;
	double start;
	size_t len;

	numbers = arguments(argc, argv, 400000) / WORKERS;
	turns = numbers / 100;
	drawn = memory(WORKERS * numbers + 1, sizeof(*drawn));
	kv = connect_to_store();
	must(roost_kv_put(kv, "sequence", 8, &zero, sizeof(zero), 0), "a PUT");
	must(roost_kv_put(kv, "value", 5, &zero, sizeof(zero), 0), "a PUT");

	start = seconds();
	run_workers(WORKERS, draw_work);
	printf("%.0f numbers a second\n", (double)(WORKERS * numbers) / (seconds() - start));
	start = seconds();
	run_workers(WORKERS, lock_work);
	printf("%.0f locks a second\n", (double)(WORKERS * turns) / (seconds() - start));

	for (unsigned long i = 0; i < WORKERS * numbers; i++)
		once += drawn[i] == 1;
	must(roost_kv_get(kv, "value", 5, &value, sizeof(value), &len), "a GET");
	roost_kv_close(kv);
	printf("%lu of %lu numbers were drawn once, %" PRIu64 " of %lu turns were counted\n", once,
	       WORKERS * numbers, value, WORKERS * turns);
	return once != WORKERS * numbers || value != WORKERS * turns;
}
