/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/wheel.h"

static uint64_t tick_of(uint64_t ns)
{
	return ns >> WHEEL_TICK_BITS;
}

void wheel_init(struct wheel *w, uint64_t now)
{
	*w = (struct wheel){.tick = tick_of(now), .next = WHEEL_NEVER};
	for (unsigned i = 0; i < WHEEL_LEVELS * WHEEL_SLOTS; i++)
		list_init(&w->slot[i]);
	list_init(&w->due);
}

static bool slot_in_use(const struct wheel *w, unsigned slot)
{
	return w->used[slot / WHEEL_SLOTS] >> (slot % WHEEL_SLOTS) & 1;
}

static void slot_clear(struct wheel *w, unsigned slot)
{
	unsigned level = slot / WHEEL_SLOTS;

	w->used[level] &= ~(1ull << (slot % WHEEL_SLOTS));
	if (!w->used[level])
		w->levels &= ~(1u << level);
}

/* Inserts t, whose deadline is set, into its slot relative to w->tick. */
static void insert(struct wheel *w, struct wheel_timer *t)
{
	uint64_t tick = tick_of(t->deadline);

	if (tick < w->tick)
		tick = w->tick;

	uint64_t differ = tick ^ w->tick;
	unsigned level = differ ? (63 - (unsigned)__builtin_clzll(differ)) / WHEEL_DIGIT_BITS : 0;
	unsigned digit = tick >> (level * WHEEL_DIGIT_BITS) & (WHEEL_SLOTS - 1);
	unsigned slot = level * WHEEL_SLOTS + digit;

	if (!slot_in_use(w, slot)) {
		w->used[level] |= 1ull << digit;
		w->levels |= 1u << level;
		w->earliest[slot] = t->deadline;
	} else if (t->deadline < w->earliest[slot]) {
		w->earliest[slot] = t->deadline;
	}
	t->slot = slot;
	list_add_tail(&t->link, &w->slot[slot]);
}

void wheel_add(struct wheel *w, struct wheel_timer *t, uint64_t deadline)
{
	wheel_del(w, t);
	t->deadline = deadline;
	insert(w, t);
	if (deadline < w->next)
		w->next = deadline;
}

/*
 * A timer that wheel_run() is about to fire is on its list of due timers, and t->slot is its former
 * slot. That slot is either empty and cleared already, or used again by other timers. Both stay
 * correct here.
 */
void wheel_del(struct wheel *w, struct wheel_timer *t)
{
	if (!wheel_pending(t))
		return;
	list_del(&t->link);
	if (list_empty(&w->slot[t->slot]))
		slot_clear(w, t->slot);
}

/* Returns the earliest slot in use. At least one slot must be in use. */
static unsigned first_slot(const struct wheel *w)
{
	unsigned level = (unsigned)__builtin_ctz(w->levels);

	return level * WHEEL_SLOTS + (unsigned)__builtin_ctzll(w->used[level]);
}

uint64_t wheel_next(const struct wheel *w)
{
	if (!list_empty(&w->due))
		return 0;
	return w->levels ? w->earliest[first_slot(w)] : WHEEL_NEVER;
}

/*
 * Returns the first tick of a slot in use. Its digits above the level are those of the wheel, and
 * its digits below are zero.
 */
static uint64_t slot_start(const struct wheel *w, unsigned slot)
{
	unsigned shift = slot / WHEEL_SLOTS * WHEEL_DIGIT_BITS;
	uint64_t above = w->tick >> shift >> WHEEL_DIGIT_BITS;

	return (above << WHEEL_DIGIT_BITS | slot % WHEEL_SLOTS) << shift;
}

/* Empties a slot whose time has come: due timers move to `due`, the others to the levels below. */
static void open_slot(struct wheel *w, unsigned slot, uint64_t now)
{
	struct list_head *pos, *tmp, all;

	list_init(&all);
	list_splice_tail_init(&w->slot[slot], &all);
	slot_clear(w, slot);
	list_for_each_safe (pos, tmp, &all) {
		struct wheel_timer *t = list_entry(pos, struct wheel_timer, link);

		list_unlink(pos);
		if (slot < WHEEL_SLOTS && t->deadline <= now)
			list_add_tail(pos, &w->due);
		else
			insert(w, t);
	}
}

unsigned wheel_run(struct wheel *w, uint64_t now, unsigned most, wheel_fn fn, void *ctx)
{
	uint64_t target = tick_of(now);
	unsigned fired = 0;

	if (target < w->tick)
		target =
			/*
			 * time went back: the wheel does not, but `now` still decides which timers
			 * are due
			 */
			w->tick;
	while (w->levels) {
		unsigned slot = first_slot(w);
		uint64_t start = slot_start(w, slot);

		if (start > target)
			break;
		w->tick = start;
		open_slot(w, slot, now);
		if (start == target && slot < WHEEL_SLOTS)
			break; /* the timers that are left in this tick are not due yet */
	}
	w->tick = target;
	w->next = w->levels ? w->earliest[first_slot(w)] : WHEEL_NEVER;

	/*
	 * The functions run last, when the wheel is consistent again, because they may change it.
	 */
	while (fired < most && !list_empty(&w->due)) {
		struct wheel_timer *t = list_first_entry(&w->due, struct wheel_timer, link);

		list_del(&t->link);
		fired++;
		fn(ctx, t);
	}
	if (!list_empty(&w->due))
		w->next = 0;
	return fired;
}
