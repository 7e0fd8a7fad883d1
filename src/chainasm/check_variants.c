/* SPDX-License-Identifier: BSD-2-Clause */
/* The checker: the writers of each word, and the possible contents of the rings' slots. */
#include <stdlib.h>
#include <string.h>

#include "chainasm/check_inside.h"

static bool is_calc(uint16_t op)
{
	return op == ROOST_OP_FETCH_ADD || op == ROOST_OP_CMP_SWAP ||
	       (op >= ROOST_OP_MAX && op <= ROOST_OP_XOR);
}

static bool is_write(uint16_t op)
{
	return op == ROOST_OP_WRITE || op == ROOST_OP_WRITE_IMM;
}

int check_enables(const struct checker *c, const struct variant *v)
{
	if (variant_op(v) != ROOST_OP_ENABLE || v->computed & 1 << 2)
		return -1;
	return chain_queue_of_number(c->p, (uint32_t)v->w.raddr);
}

bool check_waits(const struct checker *c, const struct variant *v, struct chain_watch_name *watch)
{
	uint32_t index = (uint32_t)v->w.raddr;

	if (variant_op(v) != ROOST_OP_WAIT || v->computed & 1 << 2 ||
	    v->w.raddr & ROOST_CHAIN_TIME || index >= ROOST_CHAIN_WATCHES)
		return false;
	*watch = c->p->queue[v->queue].watch[index];
	return watch->queue >= 0;
}

/* ---- variants ---- */

static void add_variant(struct checker *c, const struct variant *v)
{
	uint32_t *first = &c->first[v->queue][v->slot];

	for (struct variant *old = check_first(c, v->queue, v->slot); old;
	     old = check_next(c, old)) {
		if (memcmp(&old->w, &v->w, sizeof(v->w)))
			continue;
		old->computed |= v->computed;
		return;
	}
	if (c->variants == CHECK_MAX_VARIANTS) {
		c->too_large = true;
		return;
	}
	c->variant[c->variants] = *v;
	c->variant[c->variants].next = *first;
	*first = ++c->variants;
}

static uint8_t computed_words(const struct checker *c, unsigned region, uint64_t offset)
{
	uint8_t words = 0;

	for (unsigned i = 0; i < 8; i++)
		if (offset + 8 * i < c->p->region[region].size &&
		    c->computed[region][offset / 8 + i])
			words |= (uint8_t)(1 << i);
	return words;
}

static void add_posted(struct checker *c)
{
	for (unsigned q = 0; q < c->p->queues; q++)
		for (uint32_t i = 0; i < c->p->queue[q].n; i++) {
			struct variant v = {.queue = (uint16_t)q, .slot = i};

			memcpy(&v.w, chain_slot(c->p, &c->p->queue[q], i), sizeof(v.w));
			add_variant(c, &v);
		}
}

/* ---- writes ---- */

static void add_rewrite(struct checker *c, const struct variant *by, uint64_t addr, uint32_t key,
			uint64_t len, bool response)
{
	int region = chain_region_at(c->p, addr);
	struct rewrite r;
	uint32_t *first;

	memset(&r, 0, sizeof(r)); /* clears padding, because entries are compared as bytes */
	r.queue = by->queue;
	r.slot = by->slot;
	r.response = response;
	r.len = len;
	if (region < 0 || c->p->region[region].key != key || !len)
		return;
	r.region = (uint16_t)region;
	r.offset = addr - c->p->region[region].addr;
	if (r.len > c->p->region[region].size - r.offset)
		r.len = c->p->region[region].size - r.offset;
	first = &c->first_rewrite[r.queue][r.slot];
	for (uint32_t i = *first; i; i = c->next_rewrite[i - 1])
		if (memcmp(&c->rewrite[i - 1], &r, sizeof(r)) == 0)
			return;
	for (uint64_t at = r.offset / 8; at <= (r.offset + r.len - 1) / 8; at++)
		c->computed[region][at] = 1;
	if (c->rewrites == CHECK_MAX_REWRITES) {
		c->too_large = true;
		return;
	}
	c->rewrite[c->rewrites] = r;
	c->next_rewrite[c->rewrites] = *first;
	*first = ++c->rewrites;
}

static uint64_t length(const struct variant *v)
{
	if (v->w.flags & ROOST_WQE_INLINE)
		return v->w.inline_len;
	return v->w.num_sge ? v->w.sge[0].len : 0;
}

static bool outside(const struct checker *c, const struct variant *v)
{
	return c->p->queue[v->queue].peer == CHAIN_PEER_OUTSIDE;
}

/* Returns the length of all pieces. Pieces behind the first are read from the ring. */
static uint64_t whole_length(const struct checker *c, const struct variant *v)
{
	const struct chain_queue *q = &c->p->queue[v->queue];
	const uint8_t *slot = chain_slot(c->p, q, v->slot);
	uint64_t n = length(v);

	if (v->w.flags & ROOST_WQE_INLINE)
		return n;
	for (unsigned i = 1; i < v->w.num_sge && i < q->sges; i++) {
		struct roost_sge sge;

		memcpy(&sge, slot + ROOST_WQE_SGE_OFFSET + i * sizeof(sge), sizeof(sge));
		n += sge.len;
	}
	return n;
}

static void note_writes(struct checker *c, const struct variant *v)
{
	const uint16_t op = variant_op(v);
	const bool remote_known = !(v->computed & 1 << 2), local_known = !(v->computed & 1 << 6);

	if ((is_write(op) || is_calc(op)) && remote_known && !outside(c, v))
		add_rewrite(c, v, v->w.raddr, v->w.rkey, is_calc(op) ? 8 : whole_length(c, v),
			    false);
	if ((op == ROOST_OP_READ || is_calc(op)) && local_known && v->w.num_sge)
		add_rewrite(c, v, v->w.sge[0].addr, v->w.sge[0].lkey, v->w.sge[0].len,
			    outside(c, v));
}

static void note_receives(struct checker *c)
{
	for (unsigned q = 0; q < c->p->queues; q++)
		for (uint32_t i = 0; i < c->p->queue[q].recv; i++) {
			const uint8_t *slot = chain_recv_slot(c->p, &c->p->queue[q], i);
			const struct variant by = {.queue = (uint16_t)q, .slot = i};
			struct roost_recv_wqe r;

			memcpy(&r, slot, sizeof(r));
			for (uint32_t k = 0; k < r.num_sge && k < c->p->queue[q].recv_sges; k++) {
				uint32_t before = c->rewrites;
				struct roost_sge sge;

				memcpy(&sge, slot + ROOST_RECV_SGE_OFFSET + k * sizeof(sge),
				       sizeof(sge));
				add_rewrite(c, &by, sge.addr, sge.lkey, sge.len, false);
				if (c->rewrites > before)
					c->rewrite[before].receive = true;
			}
		}
}

/* ---- effects of a write on a slot ---- */

/* Finds the queue whose send ring has the location, the slot, and the offset in the slot. */
static int ring_at(const struct checker *c, uint64_t addr, uint32_t key, uint32_t *slot,
		   uint32_t *in)
{
	int region = chain_region_at(c->p, addr);
	const struct chain_region *r = &c->p->region[region < 0 ? 0 : region];

	if (region < 0 || r->kind != CHAIN_SEND_RING || r->key != key)
		return -1;
	*slot = (uint32_t)((addr - r->addr) / c->p->queue[r->queue].stride);
	*in = (uint32_t)((addr - r->addr) % c->p->queue[r->queue].stride);
	return r->queue;
}

/* Adds the variants that a CAS of the op-code makes. */
static void swapped(struct checker *c, const struct variant *by)
{
	uint32_t slot, in;
	int q = ring_at(c, by->w.raddr, by->w.rkey, &slot, &in);

	if (q < 0 || in || by->computed & (1 << 2 | 1 << 4))
		return;
	/* a new variant comes before the first one, so that it is not seen here */
	for (const struct variant *old = check_first(c, (unsigned)q, slot); old;
	     old = check_next(c, old)) {
		struct variant v = *old;

		v.w.ctrl = by->w.swap_add;
		v.rewritten = true;
		add_variant(c, &v);
	}
}

static const uint8_t *source(const struct checker *c, const struct variant *by, uint64_t offset,
			     uint64_t n, uint8_t *computed)
{
	int region = chain_region_at(c->p, by->w.sge[0].addr);
	uint64_t at;

	*computed = 0;
	if (by->w.flags & ROOST_WQE_INLINE)
		return offset + n <= 32 ? (const uint8_t *)&by->w + ROOST_WQE_INLINE_OFFSET + offset
					: NULL;
	if (region < 0 || by->computed & 1 << 6 || !by->w.num_sge)
		return NULL;
	at = by->w.sge[0].addr - c->p->region[region].addr + offset;
	if (at + n > c->p->region[region].size)
		return NULL;
	*computed = computed_words(c, (unsigned)region, at);
	return c->p->region[region].image + at;
}

/*
 * Adds the variants that a WRITE over the start of slots makes: the source, within the copied
 * bytes.
 */
static void copied(struct checker *c, const struct variant *by)
{
	const uint64_t len = length(by);
	uint32_t slot, in;
	int q = ring_at(c, by->w.raddr, by->w.rkey, &slot, &in);

	if (q < 0 || in || by->computed & 1 << 2)
		return;
	for (uint64_t done = 0; done + 8 <= len && slot < c->p->queue[q].n;
	     done += c->p->queue[q].stride, slot++) {
		uint64_t n = len - done < sizeof(by->w) ? len - done : sizeof(by->w);
		struct variant v = {.queue = (uint16_t)q, .slot = slot, .rewritten = true};
		const uint8_t *from = source(c, by, done, n, &v.computed);

		memcpy(&v.w, chain_slot(c->p, &c->p->queue[q], slot), sizeof(v.w));
		if (!from)
			v.w.ctrl = ROOST_OP_NOP; /* the word is an operand */
		else
			memcpy(&v.w, from, n);
		if (from && n == 8 && v.computed & 1)
			v.w.ctrl = ROOST_OP_NOP;
		for (unsigned i = (unsigned)(n / 8); i < 8; i++)
			v.computed &= (uint8_t) ~(1 << i);
		v.computed &= (uint8_t)~1;
		add_variant(c, &v);
	}
}

static void expand(struct checker *c)
{
	for (uint32_t i = 0; i < c->variants; i++) {
		struct variant v;

		note_writes(c, &c->variant[i]);
		v = c->variant[i];
		if (variant_op(&v) == ROOST_OP_CMP_SWAP)
			swapped(c, &v);
		if (is_write(variant_op(&v)) && !outside(c, &v))
			copied(c, &v);
	}
}

/*
 * Marks words of rings that are written without the start of their WQE as computed. A copy of the
 * whole WQE has its words in its variant.
 */
static void mark_computed(struct checker *c)
{
	uint8_t mask;

	for (uint32_t i = 0; i < c->rewrites; i++) {
		const struct rewrite *r = &c->rewrite[i];
		const struct chain_region *region = &c->p->region[r->region];
		uint32_t stride;

		if (region->kind != CHAIN_SEND_RING)
			continue;
		stride = c->p->queue[region->queue].stride;
		if (r->offset % stride == 0 && !r->receive)
			continue;
		for (struct variant *v =
			     check_first(c, region->queue, (uint32_t)(r->offset / stride));
		     v; v = check_next(c, v)) {
			mask = 0;
			for (uint64_t at = r->offset % stride / 8;
			     at < 8 && at <= (r->offset % stride + r->len - 1) / 8; at++)
				mask |= (uint8_t)(1 << at);
			v->computed |= mask;
		}
	}
}

/*
 * Returns the turns of `to` that a turn of `from` enables: for each slot the mean of its variants,
 * since only one of them is executed.
 */
static double turns_enabled(const struct checker *c, unsigned from, unsigned to)
{
	double turns = 0;

	for (uint32_t slot = 0; slot < c->p->queue[from].n; slot++) {
		double sum = 0;
		unsigned n = 0;

		for (const struct variant *v = check_first(c, from, slot); v;
		     v = check_next(c, v)) {
			if (check_enables(c, v) != (int)to)
				continue;
			n++;
			if (v->computed & 1 << 4)
				sum += c->p->queue[to].depth;
			else if (v->w.raddr & ROOST_CHAIN_RELATIVE)
				sum += (uint32_t)v->w.swap_add;
		}
		turns += n ? sum / n / c->p->queue[to].depth : 0;
	}
	return turns;
}

/* Finds loops: queues from which ENABLEs lead back to themselves with a turn or more. */
static void find_loops(struct checker *c)
{
	static const double most = 1e6;
	const unsigned n = c->p->queues;
	double way[CHAIN_MAX_QUEUES][CHAIN_MAX_QUEUES];

	for (unsigned a = 0; a < n; a++)
		for (unsigned b = 0; b < n; b++)
			way[a][b] = turns_enabled(c, a, b);
	for (unsigned k = 0; k < n; k++)
		for (unsigned a = 0; a < n; a++)
			for (unsigned b = 0; b < n; b++) {
				double through = way[a][k] * way[k][b];

				if (through > way[a][b])
					way[a][b] = through < most ? through : most;
			}
	for (unsigned i = 0; i < n; i++) {
		c->loops[i] = c->p->queue[i].managed && way[i][i] >= 1 - 1e-9;
		c->recycles[i] |= c->loops[i];
	}
}

static void count_enables(struct checker *c)
{
	for (unsigned i = 0; i < c->p->queues; i++)
		c->total[i] = c->p->queue[i].start;
	for (uint32_t i = 0; i < c->variants; i++) {
		const struct variant *v = &c->variant[i];
		int q = check_enables(c, v);

		if (q < 0)
			continue;
		if (v->computed & 1 << 4)
			c->total[q] = UINT32_MAX;
		else if (v->w.raddr & ROOST_CHAIN_RELATIVE)
			c->total[q] += (uint32_t)v->w.swap_add;
		else if (c->total[q] < (uint32_t)v->w.swap_add)
			c->total[q] = (uint32_t)v->w.swap_add;
	}
	for (unsigned i = 0; i < c->p->queues; i++)
		c->recycles[i] = c->p->queue[i].managed && c->total[i] > c->p->queue[i].depth;
	find_loops(c);
}

bool check_find_variants(struct checker *c)
{
	uint32_t n = 0, rewrites = 0;

	c->variant = calloc(CHECK_MAX_VARIANTS, sizeof(*c->variant));
	c->rewrite = calloc(CHECK_MAX_REWRITES, sizeof(*c->rewrite));
	c->next_rewrite = calloc(CHECK_MAX_REWRITES, sizeof(*c->next_rewrite));
	for (unsigned i = 0; i < c->p->regions; i++) {
		c->computed[i] = calloc(c->p->region[i].size / 8 + 1, 1);
		if (!c->computed[i])
			return false;
	}
	for (unsigned i = 0; i < c->p->queues; i++) {
		const struct chain_queue *q = &c->p->queue[i];
		const uint32_t writers = q->depth > q->recvs ? q->depth : q->recvs;

		c->first[i] = calloc(q->depth, sizeof(*c->first[i]));
		c->first_rewrite[i] = calloc(writers, sizeof(*c->first_rewrite[i]));
		if (!c->first[i] || !c->first_rewrite[i])
			return false;
	}
	if (!c->variant || !c->rewrite || !c->next_rewrite)
		return false;
	add_posted(c);
	note_receives(c);
	/* repeat until no new variant is found */
	do {
		n = c->variants;
		rewrites = c->rewrites;
		mark_computed(c);
		expand(c);
	} while (n != c->variants || rewrites != c->rewrites);
	mark_computed(c);
	count_enables(c);
	return true;
}

void check_free_variants(struct checker *c)
{
	free(c->variant);
	free(c->rewrite);
	free(c->next_rewrite);
	for (unsigned i = 0; i < c->p->regions; i++)
		free(c->computed[i]);
	for (unsigned i = 0; i < c->p->queues; i++) {
		free(c->first[i]);
		free(c->first_rewrite[i]);
	}
}
