/* SPDX-License-Identifier: BSD-2-Clause */
#include "history.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX

static void *allocate(size_t n, size_t size)
{
	void *p = calloc(n ? n : 1, size);

	if (!p)
		abort();
	return p;
}

/* ---- the store, as it should be: one key of it ---- */

struct state {
	uint64_t value;
	bool there;
};

static bool is_open(const struct history_op *op)
{
	return op->end == HISTORY_OPEN;
}

/* Applies an operation. Returns whether it has the result that the state gives. */
static bool apply(const struct history_op *op, struct state *s)
{
	const struct state before = *s;
	bool returns = false;
	int status = before.there ? 0 : -ENOENT;

	switch (op->code) {
	case HISTORY_GET:
		returns = before.there;
		break;
	case HISTORY_PUT:
		status = 0;
		*s = (struct state){op->value, true};
		break;
	case HISTORY_DELETE:
		*s = (struct state){0};
		break;
	case HISTORY_COMPARE:
		returns = before.there && before.value != op->expect;
		if (returns)
			status = -ECANCELED;
		else if (before.there)
			s->value = op->value;
		break;
	case HISTORY_ADD:
		returns = before.there;
		if (before.there)
			s->value += op->value;
		break;
	default:
		abort();
	}
	return is_open(op) || (op->status == status && (!returns || op->result == before.value));
}

/* ---- which sets of operations, with which state, led nowhere ---- */

struct memory {
	uint64_t *sets;	      /* `words` words each: bits of operations, and the state */
	size_t words, n, cap; /* in sets */
	uint32_t *table;      /* `slots` numbers of sets, from 1 */
	size_t slots;
};

static uint64_t hash_of(const uint64_t *set, size_t words)
{
	uint64_t h = 0;

	for (size_t i = 0; i < words; i++) {
		h = (h ^ set[i]) * 0x9e3779b97f4a7c15u;
		h ^= h >> 29;
	}
	return h;
}

static uint32_t *find(struct memory *m, const uint64_t *set)
{
	size_t at = hash_of(set, m->words) & (m->slots - 1);

	while (m->table[at] &&
	       memcmp(&m->sets[(m->table[at] - 1) * m->words], set, m->words * sizeof(*set)) != 0)
		at = (at + 1) & (m->slots - 1);
	return &m->table[at];
}

static void enlarge(struct memory *m)
{
	m->cap = m->cap ? 2 * m->cap : 64;
	m->sets = realloc(m->sets, m->cap * m->words * sizeof(*m->sets));
	free(m->table);
	m->slots = 2 * m->cap;
	m->table = allocate(m->slots, sizeof(*m->table));
	if (!m->sets)
		abort();
	for (uint32_t i = 0; i < m->n; i++)
		*find(m, &m->sets[i * m->words]) = i + 1;
}

/* Returns whether the set is new. */
static bool remember(struct memory *m, const uint64_t *set)
{
	uint32_t *at;

	if (m->n == m->cap)
		enlarge(m);
	at = find(m, set);
	if (*at)
		return false;
	memcpy(&m->sets[m->n * m->words], set, m->words * sizeof(*set));
	*at = (uint32_t)++m->n;
	return true;
}

/* ---- the search ---- */

/* Starts and ends of operations, in the order of time. */
struct event {
	uint64_t time;
	uint32_t op;
	bool is_end;
	uint32_t before, next; /* of the events that are left; event 0 is their head */
};

struct choice {
	uint32_t start;	    /* the event */
	struct state state; /* of before */
};

struct search {
	const struct history_op *ops;
	uint32_t n, left; /* operations; those with an end that have no place yet */
	struct event *events;
	uint32_t num_events;
	uint32_t *end_of, *behind; /* of each operation: its end; the one before it in its batch */
	uint64_t *set;		   /* the operations that have a place, and the state */
	struct choice *stack;
	uint32_t depth;
	struct memory memory;
	uint32_t least_left; /* in the best order so far */
	uint32_t *stuck;     /* the operation whose end that order did not reach */
};

static bool has_place(const struct search *s, uint32_t op)
{
	return s->set[op / 64] >> op % 64 & 1;
}

static void set_state(struct search *s, const struct state *state)
{
	s->set[s->memory.words - 2] = state->value;
	s->set[s->memory.words - 1] = state->there;
}

static void unlink_event(struct search *s, uint32_t e)
{
	if (e == NONE)
		return;
	s->events[s->events[e].before].next = s->events[e].next;
	if (s->events[e].next != NONE)
		s->events[s->events[e].next].before = s->events[e].before;
}

static void relink_event(struct search *s, uint32_t e)
{
	if (e == NONE)
		return;
	s->events[s->events[e].before].next = e;
	if (s->events[e].next != NONE)
		s->events[s->events[e].next].before = e;
}

/* Puts an operation behind those that have a place, if it fits there and that is new. */
static bool place(struct search *s, uint32_t e, struct state *state)
{
	uint32_t op = s->events[e].op;
	struct state after = *state;

	if (s->behind[op] != NONE && !has_place(s, s->behind[op]))
		return false;
	if (!apply(&s->ops[op], &after))
		return false;
	s->set[op / 64] |= 1ull << op % 64;
	set_state(s, &after);
	if (!remember(&s->memory, s->set)) {
		s->set[op / 64] &= ~(1ull << op % 64);
		set_state(s, state);
		return false;
	}
	s->stack[s->depth++] = (struct choice){e, *state};
	*state = after;
	s->left -= !is_open(&s->ops[op]);
	unlink_event(s, e);
	unlink_event(s, s->end_of[op]);
	return true;
}

/* Takes the last operation back. Returns its start, or NONE: there was none. */
static uint32_t take_back(struct search *s, struct state *state)
{
	const struct choice *c;
	uint32_t op;

	if (!s->depth)
		return NONE;
	c = &s->stack[--s->depth];
	op = s->events[c->start].op;
	relink_event(s, s->end_of[op]);
	relink_event(s, c->start);
	s->left += !is_open(&s->ops[op]);
	s->set[op / 64] &= ~(1ull << op % 64);
	*state = c->state;
	set_state(s, state);
	return c->start;
}

static bool search(struct search *s)
{
	struct state state = {0};
	uint32_t e = s->events[0].next;

	while (s->left) {
		if (e != NONE && !s->events[e].is_end) {
			e = place(s, e, &state) ? s->events[0].next : s->events[e].next;
			continue;
		}
		if (s->left < s->least_left) {
			s->least_left = s->left;
			*s->stuck = e == NONE ? NONE : s->events[e].op;
		}
		e = take_back(s, &state);
		if (e == NONE)
			return false;
		e = s->events[e].next;
	}
	return true;
}

/* ---- one key ---- */

static int compare_events(const void *a, const void *b)
{
	const struct event *x = a, *y = b;

	if (x->time != y->time)
		return x->time < y->time ? -1 : 1;
	if (x->is_end != y->is_end)
		return x->is_end ? 1 : -1;
	return x->op < y->op ? -1 : x->op > y->op;
}

/* An operation that only reads has no effect if its result is unknown. */
static bool matters(const struct history_op *op)
{
	return !is_open(op) || op->code != HISTORY_GET;
}

static void list_events(struct search *s)
{
	struct event *list = s->events + 1;
	uint32_t n = 0;

	for (uint32_t i = 0; i < s->n; i++) {
		if (!matters(&s->ops[i]))
			continue;
		list[n++] = (struct event){.time = s->ops[i].start, .op = i};
		if (is_open(&s->ops[i]))
			continue;
		list[n++] = (struct event){.time = s->ops[i].end, .op = i, .is_end = true};
		s->left++;
	}
	qsort(list, n, sizeof(*list), compare_events);
	for (uint32_t i = 0; i <= n; i++) {
		s->events[i].before = i - 1;
		s->events[i].next = i < n ? i + 1 : NONE;
	}
	for (uint32_t i = 1; i <= n; i++)
		if (s->events[i].is_end)
			s->end_of[s->events[i].op] = i;
}

/* The operations are sorted by their start, so those of a batch are neighbours. */
static void list_batches(struct search *s)
{
	uint32_t last = NONE;

	for (uint32_t i = 0; i < s->n; i++) {
		s->end_of[i] = s->behind[i] = NONE;
		if (!matters(&s->ops[i]))
			continue;
		if (last != NONE && s->ops[i].batch && s->ops[last].batch == s->ops[i].batch)
			s->behind[i] = last;
		last = i;
	}
}

static bool check_key(const struct history_op *ops, uint32_t n, uint32_t *stuck)
{
	struct search s = {.ops = ops, .n = n, .stuck = stuck, .least_left = NONE};
	bool ok;

	*stuck = NONE;
	s.events = allocate(2 * (size_t)n + 1, sizeof(*s.events));
	s.end_of = allocate(n, sizeof(*s.end_of));
	s.behind = allocate(n, sizeof(*s.behind));
	s.stack = allocate(n, sizeof(*s.stack));
	s.memory.words = (n + 63) / 64 + 2;
	s.set = allocate(s.memory.words, sizeof(*s.set));
	list_batches(&s);
	list_events(&s);
	ok = search(&s);
	free(s.events);
	free(s.end_of);
	free(s.behind);
	free(s.stack);
	free(s.set);
	free(s.memory.sets);
	free(s.memory.table);
	return ok;
}

/* ---- all keys ---- */

static int compare_ops(const void *a, const void *b)
{
	const struct history_op *x = a, *y = b;

	if (x->key != y->key)
		return x->key < y->key ? -1 : 1;
	if (x->start != y->start)
		return x->start < y->start ? -1 : 1;
	return 0;
}

/* Sorts, and keeps the order of the list where keys and starts are equal. */
static void sort(struct history_op *ops, struct history_op *other, size_t n)
{
	size_t half = n / 2, a = 0, b = half;

	if (n < 2)
		return;
	sort(ops, other, half);
	sort(ops + half, other, n - half);
	for (size_t i = 0; i < n; i++) {
		bool second = a == half || (b < n && compare_ops(&ops[b], &ops[a]) < 0);

		other[i] = ops[second ? b++ : a++];
	}
	memcpy(ops, other, n * sizeof(*ops));
}

static void print_key(FILE *out, const struct history_op *ops, uint32_t n, uint32_t stuck)
{
	static const char *const names[] = {"get", "put", "delete", "compare", "add"};

	fprintf(out, "the history of key %" PRIu64 " is not linearizable\n", ops->key);
	for (uint32_t i = 0; i < n; i++) {
		const struct history_op *op = &ops[i];

		fprintf(out, "%c %-8s", i == stuck ? '*' : ' ', names[op->code]);
		fprintf(out, " %10" PRIu64 " to ", op->start);
		if (is_open(op))
			fprintf(out, "%10s", "open");
		else
			fprintf(out, "%10" PRIu64, op->end);
		fprintf(out, " batch %-8" PRIu64 " value %" PRIx64, op->batch, op->value);
		if (op->code == HISTORY_COMPARE)
			fprintf(out, " expect %" PRIx64, op->expect);
		if (!is_open(op))
			fprintf(out, ": %d %" PRIx64, op->status, op->result);
		fprintf(out, "\n");
	}
}

bool history_check(struct history_op *ops, size_t n, FILE *out)
{
	struct history_op *other = allocate(n, sizeof(*other));
	uint32_t stuck;

	sort(ops, other, n);
	free(other);
	for (size_t from = 0, to; from < n; from = to) {
		for (to = from; to < n && ops[to].key == ops[from].key;)
			to++;
		if (check_key(ops + from, (uint32_t)(to - from), &stuck))
			continue;
		if (out)
			print_key(out, ops + from, (uint32_t)(to - from), stuck);
		return false;
	}
	return true;
}
