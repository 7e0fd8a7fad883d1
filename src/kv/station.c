/* SPDX-License-Identifier: BSD-2-Clause */
#include "kv/station.h"

#include "base/assert.h"

void station_init(struct station *st)
{
	for (unsigned i = 0; i < STATION_SLOTS; i++)
		st->slots[i] = STATION_NONE;
	for (unsigned i = 0; i < STATION_ENTRIES; i++)
		st->entries[i].next = (uint16_t)(i + 1);
	st->entries[STATION_ENTRIES - 1].next = STATION_NONE;
	st->free = 0;
	st->used = 0;
}

/* Returns the link to the first entry of the key, or the end of the list of the slot. */
static uint16_t *find(struct station *st, uint64_t hash)
{
	/* The bits that select a slot are not those that select a bucket. */
	uint16_t *at = &st->slots[(hash >> 32) % STATION_SLOTS];

	while (*at != STATION_NONE && st->entries[*at].hash != hash)
		at = &st->entries[*at].next;
	return at;
}

uint16_t station_add(struct station *st, uint64_t hash, bool *ready)
{
	uint16_t e = st->free, *at;
	struct station_entry *new;

	if (e == STATION_NONE)
		return e;
	new = &st->entries[e];
	st->free = new->next;
	st->used++;
	at = find(st, hash);
	*new = (struct station_entry){.hash = hash,
				      .next = STATION_NONE,
				      .next_same_key = STATION_NONE,
				      .last = e,
				      .first = *at == STATION_NONE};
	if (new->first) {
		*at = e;
	} else {
		struct station_entry *first = &st->entries[*at];

		st->entries[first->last].next_same_key = e;
		first->last = e;
	}
	*ready = new->first;
	return e;
}

/* Removes a waiting entry from the queue of its key. */
static void leave(struct station *st, uint16_t e, uint16_t first)
{
	uint16_t before = first;

	while (st->entries[before].next_same_key != e)
		before = st->entries[before].next_same_key;
	st->entries[before].next_same_key = st->entries[e].next_same_key;
	if (st->entries[first].last == e)
		st->entries[first].last = before;
}

uint16_t station_end(struct station *st, uint16_t e)
{
	struct station_entry *gone = &st->entries[e], *first;
	uint16_t *at = find(st, gone->hash), next = gone->next_same_key;

	if (!gone->first) {
		leave(st, e, *at);
		return STATION_NONE;
	}
	if (next == STATION_NONE) {
		*at = gone->next;
		return STATION_NONE;
	}
	first = &st->entries[next];
	first->first = true;
	first->next = gone->next;
	first->last = gone->last;
	*at = next;
	return next;
}

void station_free(struct station *st, uint16_t e)
{
	ROOST_ASSERT(e < STATION_ENTRIES && st->used);
	st->entries[e].next = st->free;
	st->free = e;
	st->used--;
}
