/* SPDX-License-Identifier: BSD-2-Clause */
/* Operations and scans in flight of a store with a far tier, for flight.c and flight_scan.c. */
#ifndef ROOST_KV_FLIGHT_H
#define ROOST_KV_FLIGHT_H

#include "kv/far.h"
#include "kv/near.h"
#include "kv/share.h"
#include "kv/station.h"
#include "kv/store.h"

/* The numbers of the growth of the index and of scans among the operations that await lines. */
#define GROWTH	   STATION_ENTRIES
#define FIRST_SCAN (GROWTH + 1)
#define SCANS	   (KV_FAR_WAITERS - FIRST_SCAN)
_Static_assert(KV_IN_FLIGHT == STATION_ENTRIES, "each operation has an entry");
_Static_assert(SHARE_PLACES >= STATION_ENTRIES, "each operation has a place");

#define RESULT_KEPT 4096u /* bytes of memory for a result that an entry keeps */

struct entry {
	struct kv_op *op;
	struct kv_batch *batch;
	struct kv_holds holds;
	/*
	 * Result of an operation with an arena, until the earlier operations of the batch have
	 * ended.
	 */
	uint8_t *result;
	uint32_t result_len, result_cap;
	bool ready, ended;
	bool awaits_turn; /* runs when the earlier operations of the batch have ended */
	bool follows;	  /* ran right after an operation on the same key */
	bool waited;	  /* the operation has waited for lines */
};

/* A scan that awaits lines, or holds the lines of the buckets that it visits next. */
struct waiting {
	struct kv_holds holds;
	uint64_t until; /* the first bucket whose lines were not requested */
	bool used;
};

struct kv_flight {
	struct station station;
	struct kv_near *near;
	struct shares shares; /* shares of the clients in the operations in flight */
	struct entry entries[STATION_ENTRIES];
	struct kv_holds growth;
	bool growing; /* the growth of the index awaits lines */
	struct waiting scans[SCANS];
	struct shares scan_shares;
	uint64_t ahead_max; /* lines that scans may hold for buckets that they visit later */
	uint16_t ready[STATION_ENTRIES], first_ready, num_ready;
	struct kv_batch *first, *last; /* batches with operations that were not begun */
	bool may_admit;		       /* a place became free, or a batch was submitted */
	struct kv saved;	       /* the store before a transaction */
	/* the entry whose operation is divided, if kv_divided() */
	uint16_t divided;
	/* the arena of the batch, while an operation uses `own`; NULL: it uses its own arena */
	struct kv_arena *arena, own;
	uint8_t *arena_at; /* where the results end that came before the operation */
	uint64_t parked, forwarded, runs;
};

/* The function of a transaction. */
typedef void (*kv_transaction)(struct kv *kv, void *arg);
/*
 * Executes a transaction, which takes effect only with `keep`. Returns false if lines are missing.
 * If the operation is divided now, the transaction goes on (kv_divided()).
 */
bool kv_attempt(struct kv *kv, kv_transaction what, void *arg, bool keep);

#endif
