/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The wire format of batches of store operations and of their replies (docs/kv-wire.md). Pure
 * functions on memory. A reader takes any bytes; its results point into them.
 */
#ifndef ROOST_KVWIRE_KVWIRE_H
#define ROOST_KVWIRE_KVWIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "roost/kv.h"

#define KVWIRE_VERSION	  2
#define KVWIRE_HEAD	  4u /* bytes of the head of a batch or reply */
#define KVWIRE_RESULT_MIN 4u /* the most bytes of a result without its data */
#define KVWIRE_OPS_MAX	  UINT16_MAX

enum kvwire_flags {
	KVWIRE_LONG = 1,   /* batch: the reply may be longer than KVWIRE_REPLY_MAX */
	KVWIRE_BROKEN = 1, /* reply: the batch was invalid after the operations that have results */
};

/* Bytes of a reply to a batch without KVWIRE_LONG, and of the longest reply. */
#define KVWIRE_REPLY_MAX 12288u
#define KVWIRE_LONG_MAX	 (ROOST_KV_VALUE_MAX + 65536u)
/* Bytes of the longest batch: value, expected value, parameter, key, and the fields. */
#define KVWIRE_BATCH_MAX (3 * ROOST_KV_VALUE_MAX + 4096u)

/* ---- batches ---- */

/* The previous values, to which "same as before" refers. */
struct kvwire_same {
	uint32_t key_len, value_len;
	const uint8_t *value; /* NULL: none yet */
};

struct kvwire_writer {
	uint8_t *start, *at, *end;
	uint32_t count;
	struct kvwire_same same;
};

/* Begins a batch in `len` bytes at buf, at least KVWIRE_HEAD. */
void kvwire_begin(struct kvwire_writer *w, void *buf, size_t len);
/*
 * Appends an operation, whose code and lengths must be within their limits. Returns false, and
 * appends nothing, if there is no space.
 */
bool kvwire_add(struct kvwire_writer *w, const struct roost_kv_op *op);
/* Completes the head. Returns the length of the batch. */
size_t kvwire_finish(struct kvwire_writer *w, unsigned flags);
/* Returns whether operations with this code carry a value, besides a key. */
bool kvwire_has_value(unsigned code);

struct kvwire_reader {
	const uint8_t *at, *end;
	uint32_t count, left; /* operations of the batch, and those not read yet */
	unsigned flags;
	struct kvwire_same same;
};

/* Begins to read a batch. Returns 0, -EBADMSG, or -EPROTONOSUPPORT if it is of another version. */
int kvwire_open(struct kvwire_reader *r, const void *batch, size_t len);
/*
 * Reads the next operation into the fields that describe it, and clears those that it does not
 * have. `out` and the fields behind it are left as they are. Returns 1, 0 at the end, or -EBADMSG
 * if the rest of the batch is invalid.
 */
int kvwire_next(struct kvwire_reader *r, struct roost_kv_op *op);

/* Flag in the first byte of an operation: sizes as in the previous one. */
#define KVWIRE_SAME_SIZES 0x80u

/*
 * Reads the next operation, if it is a GET. Otherwise, or if the batch is invalid here, returns
 * false and reads nothing: kvwire_next() reads it. Most operations are GETs, which have a key and
 * no other field.
 */
static inline bool kvwire_next_get(struct kvwire_reader *r, const void **key, uint32_t *key_len)
{
	size_t bytes = (size_t)(r->end - r->at), head = 2;
	uint32_t len;

	if (!r->left || bytes < 2)
		return false;
	if (r->at[0] == (ROOST_KV_GET | KVWIRE_SAME_SIZES) && r->left != r->count) {
		len = r->same.key_len;
		head = 1;
	} else if (r->at[0] == ROOST_KV_GET) {
		len = r->at[1];
	} else {
		return false;
	}
	if (len > bytes - head)
		return false;
	*key = r->at + head;
	*key_len = r->same.key_len = len;
	r->at += head + len;
	r->left--;
	return true;
}

/* ---- replies ---- */

struct kvwire_reply {
	uint8_t *start, *at, *end;
	uint32_t count, left; /* results that were written, and results still to be written */
	uint32_t same_len;
	const uint8_t *same; /* NULL: none yet */
};

/* Begins a reply of `count` results. Returns false if `len` is less than kvwire_least(count). */
bool kvwire_reply_begin(struct kvwire_reply *w, void *buf, size_t len, uint32_t count);
static inline size_t kvwire_least(uint32_t count)
{
	return KVWIRE_HEAD + (size_t)count * KVWIRE_RESULT_MIN;
}
/*
 * Returns the memory for the data of the next `n` results: *len bytes, which no head of a result
 * overwrites before its own data were added.
 */
uint8_t *kvwire_reply_space(const struct kvwire_reply *w, uint32_t n, size_t *len);
/*
 * Appends a result: a status (0 or a negative errno), and its data; NULL: none. Data that do not
 * fit are left out, and only their length is sent. Data may be in kvwire_reply_space().
 */
void kvwire_reply_add(struct kvwire_reply *w, int status, const void *data, uint32_t len);
/* Appends the length of data that do not fit. */
void kvwire_reply_add_cut(struct kvwire_reply *w, int status, uint32_t len);
/* Completes the head. Returns the length of the reply. */
size_t kvwire_reply_finish(struct kvwire_reply *w, unsigned flags);

struct kvwire_result {
	int status; /* 0 or a negative errno */
	bool cut;   /* the data did not fit; len is their length */
	uint32_t len;
	const uint8_t *data; /* NULL if there are none, or `cut` */
};

struct kvwire_results {
	const uint8_t *at, *end;
	uint32_t left;
	unsigned flags;
	uint32_t same_len;
	const uint8_t *same;
};

/* Begin to read a reply, and read its next result, as kvwire_open() and kvwire_next() do. */
int kvwire_reply_open(struct kvwire_results *r, const void *reply, size_t len);
int kvwire_reply_next(struct kvwire_results *r, struct kvwire_result *result);

/* ---- pairs of a SCAN ---- */

/* The data of a SCAN: the next cursor, then pairs. */
#define KVWIRE_CURSOR 8u

static inline size_t kvwire_pair_len(uint32_t key_len, uint32_t value_len)
{
	return 4 + (size_t)key_len + value_len;
}
/* Writes a pair of kvwire_pair_len() bytes. */
void kvwire_put_pair(uint8_t *to, const struct roost_kv_pair *pair);
/* Reads a pair from `len` bytes. Returns its length, or 0 if there is none. */
size_t kvwire_get_pair(const uint8_t *from, size_t len, struct roost_kv_pair *pair);

#endif
