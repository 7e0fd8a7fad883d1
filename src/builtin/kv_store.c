/* SPDX-License-Identifier: BSD-2-Clause */
#include "builtin/kv_store.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "kv/far.h"
#include "kv/functions.h"
#include "kv/snapshot.h"

_Static_assert(KV_STORE_FUNCTIONS == KV_FUNCTIONS_MAX, "each function has a place");
_Static_assert((int)ROOST_KV_REGISTERED == (int)KV_FN_REGISTERED, "functions have one number");
_Static_assert(ROOST_KV_INLINE_MAX == KV_INLINE_MAX, "the public limit is the engine's");
_Static_assert(KV_STORE_GROUPS <= SHARE_PLACES, "each group has a place");

#define DEFAULT_SIZE (UINT64_C(64) << 20)
#define INLINE_MAX   20u
#define STEP_BUCKETS 1024u /* buckets of a step of a snapshot, which writes some 100 KiB */
#define NAP_NS	     20000
#define GIVE_UP_NS   UINT64_C(5000000000)

/* ---- time ---- */

static uint64_t ns_of(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/*
 * Returns the seconds for which the machine was suspended since it booted. They are looked up once
 * a second: the coarse clock stops meanwhile, but it never costs a system call.
 */
static uint64_t suspended(uint64_t now)
{
	static _Atomic uint64_t looked, longest;
	uint64_t most = atomic_load_explicit(&longest, memory_order_relaxed), seconds = 0;
	uint64_t boot, running;

	if (atomic_load_explicit(&looked, memory_order_relaxed) == now)
		return most;
	/* A thread that is stopped in between gets too few seconds; the next look corrects it. */
	boot = ns_of(CLOCK_BOOTTIME);
	running = ns_of(CLOCK_MONOTONIC);
	if (boot > running)
		seconds = (boot - running) / 1000000000u;
	while (seconds > most && !atomic_compare_exchange_weak(&longest, &most, seconds))
		;
	atomic_store_explicit(&looked, now, memory_order_relaxed);
	return seconds > most ? seconds : most;
}

/* The wall clock may be set back, so the process reads it only once. */
uint32_t kv_store_now(void)
{
	static _Atomic uint64_t epoch;
	struct timespec t;
	uint64_t base = atomic_load_explicit(&epoch, memory_order_relaxed), none = 0;

	if (!base) {
		base = (ns_of(CLOCK_REALTIME) - ns_of(CLOCK_BOOTTIME)) / 1000000000u;
		if (!atomic_compare_exchange_strong(&epoch, &none, base))
			base = none;
	}
	clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
	return (uint32_t)(base + (uint64_t)t.tv_sec + suspended((uint64_t)t.tv_sec) + 1);
}

/* ---- opening ---- */

static uint64_t monotonic(void *ctx)
{
	return ns_of(CLOCK_MONOTONIC);
}

static void put_free(struct kv_store *st, struct kv_group *g)
{
	g->next = st->free;
	st->free = g;
}

static int open_groups(struct kv_store *st)
{
	st->groups = mem_alloc_pages(KV_STORE_GROUPS * sizeof(*st->groups));
	if (!st->groups) {
		kv_close(st->kv);
		return -ENOMEM;
	}
	share_init(&st->shares, KV_STORE_GROUPS);
	for (unsigned i = KV_STORE_GROUPS; i--;)
		put_free(st, &st->groups[i]);
	return 0;
}

static struct kv_config settle(const struct roost_kv_config *want)
{
	struct kv_config c = {.size = DEFAULT_SIZE, .inline_max = INLINE_MAX};

	if (!want)
		return c;
	if (want->size)
		c.size = want->size;
	if (want->inline_max)
		c.inline_max = want->inline_max == ROOST_KV_INLINE_NONE ? 0 : want->inline_max;
	c.buckets = c.buckets_max = want->buckets;
	c.evict = want->evict;
	return c;
}

int kv_store_open(const struct roost_kv_config *want, const struct kv_store_far *far,
		  struct kv_store **out)
{
	struct kv_config config = settle(want);
	struct kv_store *st = calloc(1, sizeof(*st));
	bool has_far;
	int rc = 0;

	if (!st)
		return -ENOMEM;
	if (far) {
		config.near = far->near;
		config.secret = far->secret;
		config.far = far->tier;
		if (far->folder)
			rc = kv_far_file(far->folder, false, &config.far);
	}
	has_far = config.far;
	if (!rc)
		rc = kv_open(&config, &st->kv);
	if (!rc && has_far)
		rc = open_groups(st);
	if (rc) {
		free(st);
		return rc;
	}
	kv_set_time(st->kv, kv_store_now());
	kv_set_clock(st->kv, monotonic, NULL);
	*out = st;
	return 0;
}

void kv_store_close(struct kv_store *st)
{
	kv_close(st->kv);
	free(st->parts);
	if (st->groups)
		mem_free_pages(st->groups, KV_STORE_GROUPS * sizeof(*st->groups));
	free(st);
}

/* ---- groups ---- */

struct kv_group *kv_store_take_group(struct kv_store *st, uint64_t client)
{
	struct kv_group *g = st->free;

	if (st->moves && st->moves_version != st->parts->version)
		return NULL;
	if (!share_take(&st->shares, client))
		return NULL;
	st->free = g->next;
	g->client = client;
	return g;
}

void kv_store_begin_group(struct kv_store *st, struct kv_group *g)
{
	g->version = st->parts ? st->parts->version : 0;
	if (!g->moves)
		return;
	st->moves++;
	st->moves_version = g->version;
}

void kv_store_give_group(struct kv_store *st, struct kv_group *g)
{
	share_give(&st->shares, g->client);
	st->moves -= g->moves;
	g->moves = false;
	g->n = 0;
	put_free(st, g);
}

uint64_t kv_store_version(const struct kv_store *st)
{
	uint64_t version = st->parts->version;

	for (unsigned i = 0; st->groups && i < KV_STORE_GROUPS; i++)
		if (st->groups[i].n && st->groups[i].version < version)
			version = st->groups[i].version;
	return version;
}

void kv_store_cancel_dropped(struct kv_store *st)
{
	struct kv_group *g = atomic_exchange(&st->dropped, NULL), *next;

	for (; g; g = next) {
		next = g->next;
		kv_cancel(st->kv, &g->batch);
		kv_scan_end(st->kv, &g->scan.state);
		kv_store_give_group(st, g);
	}
}

/*
 * A thread that reads the store runs no operations, so the next owner of the store cancels the
 * group.
 */
void kv_store_drop_group(struct kv_store *st, struct kv_group *g)
{
	g->next = atomic_load(&st->dropped);
	while (!atomic_compare_exchange_weak(&st->dropped, &g->next, g))
		;
	while (atomic_load(&st->busy) != KV_STORE_READS) {
		if (kv_store_try(st, KV_STORE_SERVES)) {
			kv_store_leave(st);
			return;
		}
	}
}

/* ---- functions ---- */

int kv_store_register(struct kv_store *st, const struct roost_kv_functions *f, unsigned *at)
{
	for (*at = 0; *at < f->num; ++*at) {
		int number = kv_register(st->kv, &f->list[*at]);

		if (number < 0)
			return number;
		st->functions[number - (int)ROOST_KV_REGISTERED] = &f->list[*at];
		st->num_functions++;
	}
	return 0;
}

int kv_store_find(const struct kv_store *st, const char *name, size_t len,
		  struct roost_kv_function_info *info)
{
	for (unsigned i = 0; i < st->num_functions; i++) {
		const struct roost_kv_function *f = st->functions[i];

		if (strlen(f->name) != len || memcmp(f->name, name, len) != 0)
			continue;
		*info = (struct roost_kv_function_info){.number =
								(uint16_t)(ROOST_KV_REGISTERED + i),
							.type = (uint8_t)f->type,
							.kind = f->update   ? ROOST_KV_KIND_UPDATE
								: f->reduce ? ROOST_KV_KIND_REDUCE
									    : ROOST_KV_KIND_FILTER};
		return 0;
	}
	return -ENOENT;
}

/* ---- snapshots ---- */

int kv_store_load(struct kv_store *st, const char *path, char *why, size_t why_len)
{
	return kv_snapshot_load(st->kv, path, why, why_len);
}

static void nap(uint64_t ns)
{
	struct timespec t = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};

	nanosleep(&t, NULL);
}

/* A kernel that crashed does not give the store back. */
static bool take(struct kv_store *st)
{
	uint64_t start = 0;

	while (!kv_store_try(st, KV_STORE_READS)) {
		uint64_t now = ns_of(CLOCK_MONOTONIC);

		if (!start)
			start = now;
		if (now - start > GIVE_UP_NS)
			return false;
		nap(NAP_NS);
	}
	return true;
}

int kv_store_set_table(struct kv_store *st, const struct kv_table *t, const char *address,
		       uint16_t service)
{
	struct kv_parts *parts = calloc(1, sizeof(*parts));

	if (!parts)
		return -ENOMEM;
	if (!take(st)) {
		free(parts);
		return -EDEADLK;
	}
	if (!st->parts) {
		st->parts = parts;
		parts = NULL;
	}
	kv_parts_set(st->parts, t, address, service);
	kv_store_leave(st);
	free(parts);
	return 0;
}

static int begin(struct kv_store *st, const char *path, struct kv_snapshot **s)
{
	int rc;

	if (!take(st))
		return -EDEADLK;
	rc = kv_snapshot_start(st->kv, path, s);
	kv_store_leave(st);
	return rc;
}

/*
 * Runs a step of a snapshot, and then leaves the store to other threads for as long as the step
 * took. Meanwhile lines of the far tier arrive, and operations are executed.
 */
static int step(struct kv_store *st, struct kv_snapshot *s)
{
	uint64_t start, took;
	int rc;

	if (!take(st))
		return -EDEADLK;
	start = ns_of(CLOCK_MONOTONIC);
	rc = kv_snapshot_step(s, STEP_BUCKETS);
	kv_store_leave(st);
	took = ns_of(CLOCK_MONOTONIC) - start;
	if (rc > 0)
		nap(rc == KV_SNAPSHOT_WAITS && took < NAP_NS ? NAP_NS : took);
	return rc;
}

int kv_store_snapshot(struct kv_store *st, const char *path, const atomic_bool *stop)
{
	struct kv_snapshot *s;
	int rc = begin(st, path, &s);

	if (rc)
		return rc;
	do {
		rc = atomic_load_explicit(stop, memory_order_relaxed) ? -ECANCELED : step(st, s);
	} while (rc > 0);
	if (!rc)
		rc = kv_snapshot_finish(s);
	/* A snapshot that was not completed may hold lines of the far tier. */
	if (rc && rc != -EDEADLK && take(st)) {
		kv_snapshot_free(s);
		kv_store_leave(st);
	} else {
		kv_snapshot_free(s);
	}
	return rc;
}
