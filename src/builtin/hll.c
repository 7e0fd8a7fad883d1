/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The kernel `hll`, described in roost/hll.h. Sketches are in the kernel's own memory, 8 MiB in
 * total, because the loop over the items cannot wait for accesses to a region. A sketch's slot is a
 * resource of the connection that made it (roost_take()). A call refers to its sketch by slot and
 * generation, and so detects that the sketch was dropped or its connection ended.
 */
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/spin.h"
#include "builtin/builtin.h"
#include "builtin/hll_update.h"
#include "roost/hll.h"

#define MAX_REGISTERS (1u << ROOST_HLL_MAX_PRECISION)
#define CHUNK	      2048u /* registers per step: a microsecond or two */

struct sketch {
	/* Under the table's lock: */
	uint64_t name;
	uint32_t precision; /* 0: a free slot */
	uint64_t owner;
	_Atomic uint32_t generation;
	_Atomic uint64_t items;
};

struct table {
	struct spin lock; /* taken to find, make and drop a sketch: once per call */
	hll_update_fn *update;
	/*
	 * MAX_REGISTERS for each sketch. Several PUs change them concurrently, byte by byte. Values
	 * only rise, except by a reset.
	 */
	uint8_t *registers;
	struct sketch sketch[ROOST_HLL_SKETCHES];
};

struct hll {
	struct roost_hll_params p;
	uint32_t slot, generation, precision;
	uint32_t from_slot, from_generation; /* JOIN */
	uint32_t at;			     /* the register where the next step begins */
	uint32_t counts[64];
	struct roost_hll_info info;
	uint8_t carry[8]; /* the first bytes of an item that continues in the next piece */
	uint32_t carry_len;
};

static uint8_t *registers_of(const struct table *t, uint32_t slot)
{
	return t->registers + (size_t)slot * MAX_REGISTERS;
}

static uint8_t value_of(const uint8_t *reg)
{
	return __atomic_load_n(reg, __ATOMIC_RELAXED);
}

static void raise_to(uint8_t *reg, uint8_t value)
{
	uint8_t old = value_of(reg);

	while (old < value && !__atomic_compare_exchange_n(reg, &old, value, true, __ATOMIC_RELAXED,
							   __ATOMIC_RELAXED))
		;
}

/* ---- sketches ---- */

static struct sketch *find(struct table *t, uint64_t name)
{
	for (unsigned i = 0; i < ROOST_HLL_SKETCHES; i++)
		if (t->sketch[i].precision && t->sketch[i].name == name)
			return &t->sketch[i];
	return NULL;
}

static void clear(struct table *t, const struct sketch *s)
{
	uint64_t *word = (uint64_t *)registers_of(t, (uint32_t)(s - t->sketch));

	for (uint32_t i = 0; i < (1u << s->precision) / 8; i++)
		__atomic_store_n(&word[i], 0, __ATOMIC_RELAXED);
}

static struct sketch *make(struct table *t, struct roost_call *c, uint64_t name, uint32_t precision)
{
	uint32_t number = roost_take(c);
	struct sketch *s;

	if (!number)
		return NULL;
	s = &t->sketch[number - 1];
	s->name = name;
	s->precision = precision;
	s->owner = c->owner;
	atomic_store_explicit(&s->items, 0, memory_order_relaxed);
	clear(t, s);
	return s;
}

/* Invalidates the sketch. Its slot can be reused afterwards. */
static void drop(struct sketch *s)
{
	s->precision = 0;
	s->generation++;
}

/* roost_kernel.ended: the connection has ended. The sketch may have been dropped before. */
static void ended(void *self, uint32_t number)
{
	struct table *t = self;
	struct sketch *s = &t->sketch[number - 1];

	spin_lock(&t->lock);
	if (s->precision)
		drop(s);
	spin_unlock(&t->lock);
}

static bool is_made_by(uint32_t what)
{
	return what == ROOST_HLL_ADD || what == ROOST_HLL_MERGE || what == ROOST_HLL_JOIN;
}

/* Finds or makes the sketch. Returns 0 or the status to end with. The caller holds the lock. */
static uint32_t find_or_make(struct table *t, struct roost_call *c, struct hll *h)
{
	struct sketch *s = find(t, h->p.name), *from = NULL;

	if (h->p.what == ROOST_HLL_JOIN) {
		from = find(t, h->p.from);
		if (!from)
			return ROOST_RPC_MISS;
		if (from->precision != h->p.precision)
			return ROOST_HLL_PRECISION;
		h->from_slot = (uint32_t)(from - t->sketch);
		h->from_generation = from->generation;
	}
	if (!s) {
		if (!is_made_by(h->p.what))
			return ROOST_RPC_MISS;
		s = make(t, c, h->p.name, h->p.precision);
		if (!s)
			return ROOST_HLL_FULL;
	}
	if (h->p.precision && s->precision != h->p.precision)
		return ROOST_HLL_PRECISION;
	/* Each caller may use a sketch; only its owner and the host may drop it. */
	if (h->p.what == ROOST_HLL_DROP && c->owner && c->owner != s->owner)
		return ROOST_HLL_OWNER;
	h->slot = (uint32_t)(s - t->sketch);
	h->generation = s->generation;
	h->precision = s->precision;
	if (h->p.what == ROOST_HLL_RESET) {
		clear(t, s);
		s->items = 0;
	} else if (h->p.what == ROOST_HLL_DROP) {
		drop(s);
		roost_give(c, h->slot + 1);
	}
	return 0;
}

static bool is_current(struct table *t, uint32_t slot, uint32_t generation)
{
	return atomic_load_explicit(&t->sketch[slot].generation, memory_order_relaxed) ==
	       generation;
}

/* ---- parameters ---- */

static bool take_params(struct hll *h, const struct roost_call *c)
{
	struct roost_hll_params *p = &h->p;

	if (c->params_len != sizeof(*p))
		return false;
	memcpy(p, c->params, sizeof(*p));
	p->name = le64toh(p->name);
	p->from = le64toh(p->from);
	p->what = le32toh(p->what);
	p->precision = le32toh(p->precision);
	if (!p->name || p->what < ROOST_HLL_ADD || p->what > ROOST_HLL_DROP ||
	    (p->from != 0) != (p->what == ROOST_HLL_JOIN))
		return false;
	if (!p->precision)
		return !is_made_by(p->what);
	return p->precision >= ROOST_HLL_MIN_PRECISION && p->precision <= ROOST_HLL_MAX_PRECISION;
}

static void join_chunk(struct table *t, struct hll *h)
{
	uint8_t *to = registers_of(t, h->slot);
	const uint8_t *from = registers_of(t, h->from_slot);

	for (uint32_t n = 0; n < CHUNK && h->at < 1u << h->precision; n++, h->at++)
		raise_to(&to[h->at], value_of(&from[h->at]));
}

static void count_chunk(struct table *t, struct hll *h)
{
	const uint8_t *reg = registers_of(t, h->slot);

	for (uint32_t n = 0; n < CHUNK && h->at < 1u << h->precision; n++, h->at++)
		h->counts[value_of(&reg[h->at])]++;
}

static void make_info(struct table *t, struct hll *h)
{
	double estimate = roost_hll_from_counts(h->counts, h->precision);

	h->info.estimate = htole64(estimate < 0x1p63 ? (uint64_t)(estimate + 0.5) : UINT64_MAX);
	h->info.items =
		htole64(atomic_load_explicit(&t->sketch[h->slot].items, memory_order_relaxed));
	h->info.precision = htole32(h->precision);
	h->info.zeros = htole32(h->counts[0]);
}

static enum roost_next params(struct roost_call *c)
{
	struct table *t = c->self;
	struct hll *h = c->state;
	uint32_t status;

	ROOST_STEPS(c);
	if (!take_params(h, c))
		ROOST_FAIL(c, ROOST_RPC_BAD_PARAMS);
	spin_lock(&t->lock);
	status = find_or_make(t, c, h);
	spin_unlock(&t->lock);
	if (status)
		ROOST_FAIL(c, status);
	if (h->p.what == ROOST_HLL_REGISTERS)
		ROOST_REPLY(c, registers_of(t, h->slot), 1u << h->precision);
	if (h->p.what == ROOST_HLL_JOIN) {
		while (h->at < 1u << h->precision) {
			if (!is_current(t, h->slot, h->generation) ||
			    !is_current(t, h->from_slot, h->from_generation))
				ROOST_FAIL(c, ROOST_RPC_MISS);
			join_chunk(t, h);
			ROOST_WAIT(c, ROOST_AGAIN);
		}
	}
	if (h->p.what == ROOST_HLL_ESTIMATE) {
		while (h->at < 1u << h->precision) {
			count_chunk(t, h);
			ROOST_WAIT(c, ROOST_AGAIN);
		}
		if (!is_current(t, h->slot, h->generation))
			ROOST_FAIL(c, ROOST_RPC_MISS);
		make_info(t, h);
		ROOST_REPLY(c, &h->info, sizeof(h->info));
	}
	ROOST_STEPS_END;
}

/* ---- payload ---- */

static void add_piece(struct table *t, struct hll *h, const uint8_t *data, uint32_t len)
{
	uint8_t *reg = registers_of(t, h->slot);
	uint32_t n = 0;

	if (h->carry_len) {
		n = 8 - h->carry_len < len ? 8 - h->carry_len : len;
		memcpy(h->carry + h->carry_len, data, n);
		h->carry_len += n;
		if (h->carry_len < 8)
			return;
		t->update(reg, h->precision, h->carry, 1);
	}
	t->update(reg, h->precision, data + n, (len - n) / 8);
	h->carry_len = (len - n) % 8;
	memcpy(h->carry, data + len - h->carry_len, h->carry_len);
}

/* Returns false if a register has a value that is impossible with this precision. */
static bool merge_piece(struct table *t, struct hll *h, const uint8_t *data, uint32_t len)
{
	uint8_t *reg = registers_of(t, h->slot);

	for (uint32_t i = 0; i < len; i++) {
		uint8_t value = value_of(&data[i]);

		if (value > 65 - h->precision)
			return false;
		raise_to(&reg[h->at++], value);
	}
	return true;
}

/* Returns whether the length of the payload is valid for the operation. */
static bool fits(const struct hll *h, uint32_t total)
{
	if (h->p.what == ROOST_HLL_ADD)
		return total % 8 == 0;
	return h->p.what == ROOST_HLL_MERGE && total == 1u << h->precision;
}

static enum roost_next payload(struct roost_call *c)
{
	struct table *t = c->self;
	struct hll *h = c->state;

	if (!fits(h, c->total))
		ROOST_FAIL(c, ROOST_RPC_BAD_PARAMS);
	if (!is_current(t, h->slot, h->generation))
		ROOST_FAIL(c, ROOST_RPC_MISS);
	if (h->p.what == ROOST_HLL_MERGE) {
		if (!merge_piece(t, h, c->data, c->len))
			ROOST_FAIL(c, ROOST_RPC_BAD_PARAMS);
		return ROOST_DONE;
	}
	atomic_fetch_add_explicit(&t->sketch[h->slot].items, (h->carry_len + c->len) / 8,
				  memory_order_relaxed);
	add_piece(t, h, c->data, c->len);
	return ROOST_DONE;
}

/* Items do not continue across messages of the stream. */
static enum roost_next stream(struct roost_call *c)
{
	struct table *t = c->self;
	struct hll *h = c->state;

	if (h->p.what != ROOST_HLL_ADD)
		ROOST_FAIL(c, ROOST_RPC_BAD_PARAMS);
	if (!is_current(t, h->slot, h->generation))
		ROOST_FAIL(c, ROOST_RPC_MISS);
	atomic_fetch_add_explicit(&t->sketch[h->slot].items, (h->carry_len + c->len) / 8,
				  memory_order_relaxed);
	if (c->len)
		add_piece(t, h, c->data, c->len);
	if (c->last)
		h->carry_len = 0; /* drops an incomplete item */
	return ROOST_DONE;
}

/* ---- start and stop ---- */

static int start(void **self)
{
	struct table *t = calloc(1, sizeof(*t));

	if (!t)
		return -ENOMEM;
	t->registers = mem_alloc_pages((size_t)ROOST_HLL_SKETCHES * MAX_REGISTERS);
	if (!t->registers) {
		free(t);
		return -ENOMEM;
	}
	t->update = hll_update_best();
	*self = t;
	return 0;
}

static void stop(void *self)
{
	struct table *t = self;

	mem_free_pages(t->registers, (size_t)ROOST_HLL_SKETCHES * MAX_REGISTERS);
	free(t);
}

const struct roost_kernel kernel_hll = {
	.abi = ROOST_KERNEL_ABI,
	.version = 1,
	.name = "hll",
	.op = ROOST_HLL_OP,
	.state_size = sizeof(struct hll),
	.resources = ROOST_HLL_SKETCHES,
	.resources_each = ROOST_HLL_SHARE,
	.resource_bytes = MAX_REGISTERS,
	.start = start,
	.stop = stop,
	.ended = ended,
	.params = params,
	.payload = payload,
	.stream = stream,
};
