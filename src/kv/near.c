/* SPDX-License-Identifier: BSD-2-Clause */
#include "kv/near.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/mem.h"
#include "kv/memory.h"

#define SAVED_MAX  (64u << 20) /* the most bytes that a transaction changes */
#define SAVED_ONCE 8u	       /* large states that are not saved twice */
#define WRITES	   (KV_FAR_REQUESTS / 2)
#define DROPS	   64u /* lines whose memory is returned at once */
#define SLACK	   64u /* lines above the limit at which operations wait for writes */

enum {
	THERE = 1 << 0,
	DIRTY = 1 << 1,	 /* the line differs from the far tier */
	STORED = 1 << 2, /* the far tier has the line; otherwise its bytes are 0 */
	USED = 1 << 3,	 /* used since the hand of the clock passed */
	READING = 1 << 4,
	WRITING = 1 << 5,
	LEAVING = 1 << 6, /* the line is written because its place is needed */
	LISTED = 1 << 7,  /* the line is in a list */
};

struct line {
	uint16_t holds;
	uint16_t request; /* request of a line that is being read */
	uint8_t bits;
};

struct list {
	uint64_t *lines;
	uint64_t n;
};

/* An entry of the log, behind the old bytes. The log is read from its end. */
struct saved {
	void *at;
	uint64_t len;
};

struct kv_near {
	uint8_t *base;
	uint64_t lines_max, limit; /* in lines */
	unsigned shift;		   /* a line has 1 << shift bytes */
	uint32_t cacheable;	   /* cacheable lines of 2^32 */
	struct line *lines;
	struct list clock, passing, wanted;
	uint64_t hand;
	uint64_t there, leaving;

	struct kv_far *far;
	struct kv_far_request requests[KV_FAR_REQUESTS], *free;
	uint8_t *buffers; /* copies of lines that are written */
	struct iovec drops[DROPS];
	unsigned num_drops;
	bool drops_each;       /* a call returns the memory of one line */
	unsigned busy, writes; /* requests in execution */
	kv_near_wake wake;
	void *ctx;
	kv_near_failed failed;
	void *failed_ctx;
	int error;

	bool active; /* a transaction is running */
	jmp_buf abort;
	uint8_t *log;
	size_t logged;
	void *once[SAVED_ONCE];
	unsigned num_once;
	uint64_t merged_now; /* count of the present transaction */
	struct kv_near_stat stat;
};

/* ---- opening ---- */

/* Reserves memory whose pages are allocated when they are first written. */
static void *reserve(uint64_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

/*
 * The same, for memory of which little is used. A huge page may have more bytes than near memory:
 * 32 MiB on arm64 with pages of 16 KiB.
 */
static void *reserve_sparse(uint64_t bytes)
{
	void *p = reserve(bytes);

	if (p)
		madvise(p, bytes, MADV_NOHUGEPAGE);
	return p;
}

static int allocate(struct kv_near *n)
{
	uint64_t list = n->lines_max * sizeof(uint64_t);

	n->lines = reserve(n->lines_max * sizeof(*n->lines));
	n->clock.lines = reserve_sparse(list);
	n->passing.lines = reserve_sparse(list);
	n->wanted.lines = reserve_sparse(list);
	n->buffers = reserve_sparse((uint64_t)KV_FAR_REQUESTS << n->shift);
	n->log = reserve_sparse(SAVED_MAX);
	return n->lines && n->clock.lines && n->passing.lines && n->wanted.lines && n->buffers &&
			       n->log
		       ? 0
		       : -ENOMEM;
}

int kv_near_open(uint8_t *base, uint64_t size, uint64_t limit, unsigned cacheable,
		 struct kv_far *far, struct kv_near **out)
{
	struct kv_near *n = calloc(1, sizeof(*n));
	int err;

	if (!n) {
		far->close(far);
		return -ENOMEM;
	}
	n->base = base;
	n->shift = log2_floor(mem_page_size());
	n->lines_max = size >> n->shift;
	n->limit = limit >> n->shift;
	n->cacheable = cacheable >= 100 ? UINT32_MAX : UINT32_MAX / 100 * cacheable;
	n->far = far;
	madvise(base, size, MADV_NOHUGEPAGE);
	err = allocate(n);
	if (!err)
		err = far->open(far, size);
	if (err) {
		kv_near_close(n);
		return err;
	}
	for (unsigned i = KV_FAR_REQUESTS; i--;) {
		n->requests[i].len = 1u << n->shift;
		n->requests[i].next = n->free;
		n->free = &n->requests[i];
	}
	*out = n;
	return 0;
}

static void unreserve(void *p, uint64_t bytes)
{
	if (p)
		munmap(p, bytes);
}

void kv_near_close(struct kv_near *n)
{
	uint64_t list = n->lines_max * sizeof(uint64_t);

	n->wake = NULL;
	while (n->busy)
		kv_near_poll(n, true);
	n->far->close(n->far);
	unreserve(n->lines, n->lines_max * sizeof(*n->lines));
	unreserve(n->clock.lines, list);
	unreserve(n->passing.lines, list);
	unreserve(n->wanted.lines, list);
	unreserve(n->buffers, (uint64_t)KV_FAR_REQUESTS << n->shift);
	unreserve(n->log, SAVED_MAX);
	free(n);
}

/* ---- lines ---- */

/* Returns whether a line is cacheable: the load dispatcher of KV-Direct. */
static bool is_cacheable(const struct kv_near *n, uint64_t line)
{
	return (uint32_t)(line * 0x9e3779b97f4a7c15ull >> 32) <= n->cacheable;
}

static void add(struct kv_near *n, uint64_t line)
{
	struct line *l = &n->lines[line];
	struct list *list = is_cacheable(n, line) ? &n->clock : &n->passing;

	l->bits |= THERE;
	n->there++;
	if (!(l->bits & LISTED))
		list->lines[list->n++] = line;
	l->bits |= LISTED;
}

/* From Linux 6.15. The number of PIDFD_SELF_THREAD_GROUP has changed since, this one has not. */
#ifndef PIDFD_SELF_THREAD
#define PIDFD_SELF_THREAD (-10000)
#endif

/*
 * Returns the memory of lines that are not there. This must come before the next access to them,
 * which would lose its bytes.
 */
static void flush_drops(struct kv_near *n)
{
	size_t bytes = (size_t)n->num_drops << n->shift;

	/* One call for all lines works from Linux 6.15. */
	if (n->num_drops > 1 && !n->drops_each)
		n->drops_each = syscall(SYS_process_madvise, PIDFD_SELF_THREAD, n->drops,
					(size_t)n->num_drops, MADV_DONTNEED, 0) != (long)bytes;
	if (n->num_drops == 1 || n->drops_each)
		for (unsigned i = 0; i < n->num_drops; i++)
			madvise(n->drops[i].iov_base, n->drops[i].iov_len, MADV_DONTNEED);
	n->num_drops = 0;
}

/* Queues the memory of a line for flush_drops(), which the caller must call. */
static void give_back(struct kv_near *n, uint64_t line)
{
	n->drops[n->num_drops++] =
		(struct iovec){n->base + (line << n->shift), (size_t)1 << n->shift};
	if (n->num_drops == DROPS)
		flush_drops(n);
}

/*
 * Drops a line from near memory. The next pass over the list of the line removes the entry. The
 * caller must call flush_drops().
 */
static void drop(struct kv_near *n, uint64_t line)
{
	n->lines[line].bits &= (uint8_t) ~(THERE | DIRTY | USED);
	n->there--;
	give_back(n, line);
}

static bool is_waiter(const struct kv_far_request *r, unsigned id)
{
	return r->waiters[id / 64] >> id % 64 & 1;
}

/* ---- the far tier ---- */

static void start(struct kv_near *n, uint64_t line, bool write)
{
	struct kv_far_request *r = n->free;

	n->free = r->next;
	r->line = line;
	r->offset = line << n->shift;
	r->write = write;
	r->result = 0;
	memset(r->waiters, 0, sizeof(r->waiters));
	n->busy++;
	n->writes += write;
	if (write) {
		r->data = n->buffers + ((uint64_t)(r - n->requests) << n->shift);
		memcpy(r->data, n->base + r->offset, r->len);
	} else {
		r->data = n->base + r->offset;
		n->lines[line].request = (uint16_t)(r - n->requests);
	}
	n->far->start(n->far, r);
}

static void start_write(struct kv_near *n, uint64_t line, unsigned leaving)
{
	struct line *l = &n->lines[line];

	l->bits = (uint8_t)((l->bits & ~DIRTY) | WRITING | leaving);
	n->leaving += leaving != 0;
	start(n, line, true);
}

static void end_write(struct kv_near *n, struct kv_far_request *r)
{
	struct line *l = &n->lines[r->line];
	bool leaving = l->bits & LEAVING;

	l->bits = (uint8_t)((l->bits | STORED) & ~(WRITING | LEAVING));
	n->leaving -= leaving;
	ROOST_ASSERT(n->writes);
	n->writes--;
	n->stat.far_writes++;
	if (leaving && !r->result && !l->holds && !(l->bits & (DIRTY | USED)))
		drop(n, r->line);
}

static void end_read(struct kv_near *n, struct kv_far_request *r)
{
	n->lines[r->line].bits &= (uint8_t)~READING;
	n->stat.far_reads++;
	if (r->result)
		give_back(n, r->line);
	else
		add(n, r->line);
	for (unsigned i = 0; i < KV_FAR_WAITERS / 64; i++)
		for (uint64_t map = r->waiters[i]; map && n->wake; map &= map - 1)
			n->wake(n->ctx, i * 64 + (unsigned)__builtin_ctzll(map));
}

static void note_error(struct kv_near *n, int err)
{
	bool first = !n->error;

	n->error = -EIO;
	n->stat.far_errors++;
	if (first && n->failed)
		n->failed(n->failed_ctx, err);
}

unsigned kv_near_poll(struct kv_near *n, bool wait)
{
	struct kv_far_request *r = n->busy ? n->far->poll(n->far, wait) : NULL;
	unsigned num = 0;

	while (r) {
		struct kv_far_request *next = r->next;

		if (r->result)
			note_error(n, r->result);
		if (r->write)
			end_write(n, r);
		else
			end_read(n, r);
		r->next = n->free;
		n->free = r;
		n->busy--;
		num++;
		r = next;
	}
	flush_drops(n);
	return num;
}

/* Starts to read a line, unless the read was started before. */
static struct kv_far_request *start_read(struct kv_near *n, uint64_t line)
{
	struct line *l = &n->lines[line];

	while (!n->free)
		kv_near_poll(n, true);
	if (l->bits & THERE)
		return NULL;
	if (!(l->bits & READING)) {
		l->bits |= READING;
		start(n, line, false);
	}
	return &n->requests[l->request];
}

/* ---- accesses ---- */

/* Handles missing lines: aborts the transaction or, outside of a transaction, reads the lines. */
static void miss(struct kv_near *n)
{
	if (n->active)
		longjmp(n->abort, 1);
	for (uint64_t i = 0; i < n->wanted.n; i++)
		start_read(n, n->wanted.lines[i]);
	for (uint64_t i = 0; i < n->wanted.n; i++)
		while (n->lines[n->wanted.lines[i]].bits & READING)
			kv_near_poll(n, true);
	n->wanted.n = 0;
}

static bool want(struct kv_near *n, uint64_t addr, uint32_t len)
{
	uint64_t last = (addr + len - 1) >> n->shift;
	bool missing = false;

	for (uint64_t line = addr >> n->shift; line <= last; line++) {
		struct line *l = &n->lines[line];

		if (unlikely(!(l->bits & THERE))) {
			if (l->bits & STORED) {
				if (n->wanted.n < n->lines_max)
					n->wanted.lines[n->wanted.n++] = line;
				missing = true;
				continue;
			}
			add(n, line);
		}
		l->bits |= USED;
	}
	return missing;
}

/* If the far tier failed, bytes may be wrong. All later operations fail: kv_near_error(). */
void kv_near_need(struct kv_near *n, uint64_t addr, uint32_t len)
{
	if (unlikely(want(n, addr, len)))
		miss(n);
}

bool kv_near_want(struct kv_near *n, uint64_t addr, uint32_t len)
{
	return want(n, addr, len);
}

uint64_t kv_near_num_wanted(const struct kv_near *n)
{
	return n->wanted.n;
}

static void save(struct kv_near *n, void *at, uint32_t len)
{
	struct saved s = {at, len};

	if (n->logged + len + sizeof(s) > SAVED_MAX) {
		n->error = -EIO;
		longjmp(n->abort, 1);
	}
	memcpy(n->log + n->logged, at, len);
	n->logged += len;
	memcpy(n->log + n->logged, &s, sizeof(s));
	n->logged += sizeof(s);
}

void kv_near_save(struct kv_near *n, void *at, uint32_t len)
{
	if (!n->active)
		return;
	for (unsigned i = 0; i < n->num_once; i++)
		if (n->once[i] == at)
			return;
	if (n->num_once < SAVED_ONCE)
		n->once[n->num_once++] = at;
	save(n, at, len);
}

void kv_near_change(struct kv_near *n, uint64_t addr, uint32_t len)
{
	uint64_t last = (addr + len - 1) >> n->shift;

	kv_near_need(n, addr, len);
	if (n->active)
		save(n, n->base + addr, len);
	for (uint64_t line = addr >> n->shift; line <= last; line++) {
		n->merged_now += (n->lines[line].bits & DIRTY) != 0;
		n->lines[line].bits |= DIRTY;
	}
}

/* ---- transactions ---- */

jmp_buf *kv_near_begin(struct kv_near *n)
{
	n->active = true;
	n->logged = 0;
	n->num_once = 0;
	n->wanted.n = 0;
	n->merged_now = 0;
	return &n->abort;
}

void kv_near_end(struct kv_near *n)
{
	n->active = false;
	n->wanted.n = 0;
	n->stat.merged += n->merged_now;
}

void kv_near_suspend(struct kv_near *n)
{
	n->active = false;
}

jmp_buf *kv_near_resume(struct kv_near *n)
{
	n->active = true;
	n->wanted.n = 0;
	return &n->abort;
}

void kv_near_undo(struct kv_near *n)
{
	n->active = false;
	while (n->logged) {
		struct saved s;

		n->logged -= sizeof(s);
		memcpy(&s, n->log + n->logged, sizeof(s));
		n->logged -= s.len;
		memcpy(s.at, n->log + n->logged, s.len);
	}
}

static int hold(struct kv_near *n, uint64_t line, struct kv_holds *h)
{
	if (h->n == h->cap) {
		uint32_t cap = h->cap ? 2 * h->cap : 8;
		uint64_t *more = realloc(h->lines, cap * sizeof(*more));

		if (!more)
			return -ENOMEM;
		h->lines = more;
		h->cap = cap;
	}
	h->lines[h->n++] = line;
	n->lines[line].holds++;
	return 0;
}

int kv_near_fetch(struct kv_near *n, unsigned id, struct kv_holds *h)
{
	int err = 0;

	h->missing++; /* prevents a wake-up before all lines are counted */
	for (uint64_t i = 0; i < n->wanted.n && !err; i++) {
		uint64_t line = n->wanted.lines[i];
		struct kv_far_request *r = start_read(n, line);

		if (r && is_waiter(r, id))
			continue;
		err = hold(n, line, h);
		if (!err && r) {
			r->waiters[id / 64] |= 1ull << id % 64;
			h->missing++;
		}
	}
	n->wanted.n = 0;
	h->missing--;
	return err;
}

void kv_near_release(struct kv_near *n, unsigned id, struct kv_holds *h)
{
	for (uint32_t i = 0; i < h->n; i++) {
		struct line *l = &n->lines[h->lines[i]];

		ROOST_ASSERT(l->holds);
		l->holds--;
		if (l->bits & READING)
			n->requests[l->request].waiters[id / 64] &= ~(1ull << id % 64);
	}
	h->n = 0;
	h->missing = 0;
}

void kv_near_on_line(struct kv_near *n, kv_near_wake wake, void *ctx)
{
	n->wake = wake;
	n->ctx = ctx;
}

/* ---- the limit ---- */

/* Makes lines that are not cacheable leave as soon as they are idle. */
static void trim_passing(struct kv_near *n)
{
	struct list *p = &n->passing;
	uint64_t kept = 0;

	for (uint64_t i = 0; i < p->n; i++) {
		uint64_t line = p->lines[i];
		struct line *l = &n->lines[line];
		bool idle = !l->holds && !(l->bits & (WRITING | READING));

		if (l->bits & THERE && idle) {
			if (!(l->bits & DIRTY))
				drop(n, line);
			else if (n->free && n->writes < WRITES)
				start_write(n, line, 0);
		}
		if (l->bits & THERE)
			p->lines[kept++] = line;
		else
			l->bits &= (uint8_t)~LISTED;
	}
	p->n = kept;
}

static void unlist_at_hand(struct kv_near *n)
{
	n->lines[n->clock.lines[n->hand]].bits &= (uint8_t)~LISTED;
	n->clock.lines[n->hand] = n->clock.lines[--n->clock.n];
}

static void trim_clock(struct kv_near *n)
{
	uint64_t steps = 2 * n->clock.n;

	while (n->there > n->limit + n->leaving && n->clock.n && steps--) {
		uint64_t line;
		struct line *l;

		if (n->hand >= n->clock.n)
			n->hand = 0;
		line = n->clock.lines[n->hand];
		l = &n->lines[line];
		if (!(l->bits & THERE)) {
			unlist_at_hand(n);
		} else if (l->holds || l->bits & (WRITING | USED)) {
			l->bits &= (uint8_t)~USED;
			n->hand++;
		} else if (!(l->bits & DIRTY)) {
			drop(n, line);
			unlist_at_hand(n);
		} else {
			if (!n->free || n->writes >= WRITES)
				return;
			start_write(n, line, LEAVING);
			n->hand++;
		}
	}
}

bool kv_near_trim(struct kv_near *n)
{
	if (n->passing.n)
		trim_passing(n);
	trim_clock(n);
	flush_drops(n);
	return n->there <= n->limit + SLACK + n->passing.n || !n->writes;
}

bool kv_near_is_busy(const struct kv_near *n)
{
	return n->busy;
}

void kv_near_on_error(struct kv_near *n, kv_near_failed failed, void *ctx)
{
	n->failed = failed;
	n->failed_ctx = ctx;
}

int kv_near_error(const struct kv_near *n)
{
	return n->error;
}

void kv_near_get_stat(const struct kv_near *n, struct kv_near_stat *stat)
{
	*stat = n->stat;
	stat->lines = n->there;
}
