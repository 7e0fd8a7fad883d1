/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The reservation station of KV-Direct: it tracks which operations in flight depend on each other.
 * Operations on one key run in the order in which they were added; operations on different keys do
 * not wait for each other. Keys are told apart by all 64 bits of their hash. Pure: it knows neither
 * operations nor memory.
 */
#ifndef ROOST_KV_STATION_H
#define ROOST_KV_STATION_H

#include <stdbool.h>
#include <stdint.h>

#define STATION_SLOTS	1024u
#define STATION_ENTRIES 256u
#define STATION_NONE	UINT16_MAX

/* An operation in flight. It is the first of its key, or is queued behind another operation. */
struct station_entry {
	uint64_t hash;
	uint16_t next; /* the first of the next key of the slot; or of the list of free entries */
	uint16_t next_same_key; /* the next entry of the same key */
	uint16_t last;		/* in a first entry: the last entry of the key */
	bool first;
};

struct station {
	uint16_t slots[STATION_SLOTS]; /* the first entry of the first key of the slot */
	uint16_t free;
	unsigned used;
	struct station_entry entries[STATION_ENTRIES];
};

void station_init(struct station *st);
/*
 * Adds an operation. Returns its entry, or STATION_NONE if all are in use. *ready is set if the
 * operation is the first of its key and can run.
 */
uint16_t station_add(struct station *st, uint64_t hash, bool *ready);
/*
 * Notes that an operation has ended or is cancelled. Returns the next operation of the key if it
 * can run now, or STATION_NONE. The entry stays in use until station_free().
 */
uint16_t station_end(struct station *st, uint16_t e);
void station_free(struct station *st, uint16_t e);

#endif
