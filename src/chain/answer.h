/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The answer of a look-up: one WRITE of two pieces to the client, the value and an end (struct
 * roost_lookup_end, or another one), so that its last word is written last. Without a hit the first
 * piece is empty. The chain copies a part of the WQE from a template: one template for a hit, one
 * for a miss.
 */
#ifndef ROOST_CHAIN_ANSWER_H
#define ROOST_CHAIN_ANSWER_H

#include <stddef.h>

#include "roost/chain_lookup.h"

struct answer {
	const struct roost_chain *queue; /* the queue of the WRITE */
	const struct roost_chain *data;	 /* space for templates, and for the end of the reply */
	struct roost_ref reply;		 /* the client's memory */
	uint32_t region, value_len;	 /* key of the region of values, and bytes of a value */
	uint32_t at;			 /* number of the WRITE in its queue */
};

/* The part in which the answers differ: the WQE from raddr on, with the first piece. */
#define ANSWER_PART	offsetof(struct roost_wqe, raddr)
#define ANSWER_PART_LEN ((uint32_t)(sizeof(struct roost_wqe) - ANSWER_PART))
/* The address of the value in the part. */
#define ANSWER_VALUE (offsetof(struct roost_wqe, sge) - ANSWER_PART)

static inline struct roost_sge answer_sge(struct roost_ref r)
{
	return (struct roost_sge){r.addr, 8, r.key};
}

static inline bool answer_fits(const struct roost_chain_queue *q)
{
	return q->depth == ROOST_LOOKUP_ANSWER && q->stride >= ROOST_LOOKUP_STRIDE && !q->n;
}

/* Returns the destination of a copied part. */
static inline struct roost_ref answer_ref(const struct answer *a)
{
	return roost_chain_field(a->queue->queue, a->at, ANSWER_PART);
}

/* Puts a template of the part into the data, for len bytes of a value. */
struct roost_ref answer_part(const struct answer *a, uint32_t len);
/* Puts an end of `len` bytes, all 0, into the data. */
struct roost_ref answer_end(const struct answer *a, uint32_t len);
/*
 * Emits the WRITE of the value and of the `len` bytes of an end. If len is 0, it writes only the
 * value.
 */
void answer_write(struct answer *a, struct roost_ref end, uint32_t len);
/*
 * Emits the WRITE with a struct roost_lookup_end, and an ENABLE of the next turn of a queue.
 * Returns the end of the reply in the data.
 */
struct roost_ref answer_emit(struct answer *a, const struct roost_chain_queue *next);

/*
 * Emits into `loop` the test of a bucket: 2 copies, a CAS, and the copy of the part that the CAS
 * enables. The key found goes to `found`. Stores in sge[0] to sge[2] the places where a receive
 * must put the key and the addresses of the bucket's two words.
 */
void answer_bucket(const struct answer *a, const struct roost_chain *loop, struct roost_ref found,
		   struct roost_sge *sge);

/* Emits NOPs until WQE n is the next. */
void chain_fill(const struct roost_chain *c, uint32_t n);
/* Stores the next pieces of WQE n, from the second on; its num_sge becomes 1 + pieces. */
void chain_pieces(const struct roost_chain *c, uint32_t n, const struct roost_sge *sge,
		  uint32_t pieces);

#endif
