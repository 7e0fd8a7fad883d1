/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Near memory: the lines of a store with a far tier that are in memory. A line is a page. A hash of
 * its number decides whether it is cacheable. A cacheable line stays until the clock of near memory
 * needs its place; any other line leaves as soon as no operation needs it. A changed line is
 * written back before it leaves.
 *
 * An operation is a transaction: kv_near_begin(), accesses, kv_near_end(). If a line is missing,
 * the access jumps to `abort`: the caller calls kv_near_undo() and then kv_near_fetch(), and runs
 * the operation again when all of its lines are there. An access outside of a transaction waits for
 * its lines.
 */
#ifndef ROOST_KV_NEAR_H
#define ROOST_KV_NEAR_H

#include <setjmp.h>
#include <stdbool.h>
#include <stdint.h>

#include "kv/far.h"

struct kv_near;

struct kv_near_stat {
	uint64_t far_reads, far_writes, lines, merged;
	uint64_t far_errors; /* requests that failed */
};

/*
 * Lines that an operation holds, and that therefore do not leave. Zeroed memory is a valid
 * start.
 */
struct kv_holds {
	uint64_t *lines;
	uint32_t n, cap;
	uint32_t missing; /* lines that are being read */
};

/*
 * Takes over the range of `size` bytes at `base`, of which at most `limit` bytes are in memory
 * between two operations. Closes `far` at the end, also if this fails. Returns 0 or a negative
 * errno.
 */
int kv_near_open(uint8_t *base, uint64_t size, uint64_t limit, unsigned cacheable,
		 struct kv_far *far, struct kv_near **out);
void kv_near_close(struct kv_near *n);

jmp_buf *kv_near_begin(struct kv_near *n);
void kv_near_end(struct kv_near *n);
/*
 * A transaction may be interrupted: kv_near_suspend(), and later kv_near_resume(), which returns
 * the target of the next jump. In between lines may come, but there must be no kv_near_trim() and
 * no access.
 */
void kv_near_suspend(struct kv_near *n);
jmp_buf *kv_near_resume(struct kv_near *n);
void kv_near_undo(struct kv_near *n);
/*
 * Starts to read the lines that the last transaction missed. Operation number `id` holds and awaits
 * them. Returns 0, or -ENOMEM.
 */
int kv_near_fetch(struct kv_near *n, unsigned id, struct kv_holds *h);
/* Returns the number of lines that kv_near_fetch() would read. */
uint64_t kv_near_num_wanted(const struct kv_near *n);
void kv_near_release(struct kv_near *n, unsigned id, struct kv_holds *h);

/*
 * Sets the function that is called for each operation that awaits a line, when the line is there or
 * its read has failed.
 */
typedef void (*kv_near_wake)(void *ctx, unsigned id);
void kv_near_on_line(struct kv_near *n, kv_near_wake wake, void *ctx);
/*
 * Ends requests of the far tier, and returns their number. With `wait` it blocks until a request
 * ends.
 */
unsigned kv_near_poll(struct kv_near *n, bool wait);
/*
 * Starts to write lines back, and frees lines, until the limit is kept. Must be called between two
 * operations. Returns false if writes must end before other operations run.
 */
bool kv_near_trim(struct kv_near *n);
bool kv_near_is_busy(const struct kv_near *n);
/* Sets the function that is called once, with a negative errno, when the far tier fails. */
typedef void (*kv_near_failed)(void *ctx, int err);
void kv_near_on_error(struct kv_near *n, kv_near_failed failed, void *ctx);
/* Returns 0, or -EIO if the far tier has failed, which remains. */
int kv_near_error(const struct kv_near *n);
void kv_near_get_stat(const struct kv_near *n, struct kv_near_stat *stat);

#endif
