/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The kernel `aggregate`: filters the records of a stream and aggregates the records that match,
 * while the stream comes in.
 *
 *	record	| .... | where | .... | value | ... | group | .. |
 *
 * The records are the payload of the call (ROOST_RPC_STREAM). They all have the same size, which
 * may be any number of bytes, and follow each other without a gap. A record may lie across packets.
 * Fields are integers of 1 to 8 bytes, signed or unsigned. All numbers are little-endian.
 *
 * A record matches if the comparison of its field `where` with the operand is true. The kernel
 * counts the matching records, and computes the sum, minimum and maximum of their field `value`. In
 * addition it does one of the following:
 *
 *	groups	computes count, sum, minimum and maximum for each value of the field `group`, for at
 *		most max_groups values
 *	rows	copies the bytes that `span` selects of each matching record, without a gap, to
 *		address `out` of the call's region, or to the caller
 *
 * The reply has the rows or groups, followed by struct roost_aggregate_result. A matching record
 * without space for its group or row is counted in `overflow`, and is part of the total sums.
 */
#ifndef ROOST_AGGREGATE_H
#define ROOST_AGGREGATE_H

#include <stdint.h>
#include <string.h>

#include "roost/rpc.h"

#define ROOST_AGGREGATE_OP	   6ull
#define ROOST_AGGREGATE_SPANS	   8
#define ROOST_AGGREGATE_MAX_ROW	   1024 /* bytes of a row */
#define ROOST_AGGREGATE_MAX_GROUPS 256

enum roost_aggregate_predicate {
	ROOST_AGGREGATE_ALL, /* every record matches */
	ROOST_AGGREGATE_EQUAL,
	ROOST_AGGREGATE_NOT_EQUAL,
	ROOST_AGGREGATE_LESS_THAN, /* the field is less than the operand */
	ROOST_AGGREGATE_GREATER_THAN,
};

struct roost_aggregate_field {
	uint32_t offset; /* in the record */
	uint8_t width;	 /* 1 .. 8; 0: no field */
	uint8_t is_signed;
	uint16_t reserved; /* 0 */
};

struct roost_aggregate_span {
	uint32_t offset, len;
};

struct roost_aggregate_params {
	uint32_t record;    /* bytes of a record; the payload is a multiple of it */
	uint32_t predicate; /* enum roost_aggregate_predicate */
	struct roost_aggregate_field where;
	uint64_t operand; /* 8 bytes for each width of the field; signed if the field is signed */
	struct roost_aggregate_field value, group;
	uint32_t max_groups; /* 1 .. ROOST_AGGREGATE_MAX_GROUPS with a group; 0 without */
	uint32_t spans;	     /* 0: no rows; otherwise no group */
	uint64_t out;	     /* address of out_len bytes for rows; both 0: to the caller */
	uint64_t out_len;
	struct roost_aggregate_span span[ROOST_AGGREGATE_SPANS];
};

/*
 * Sums have 128 bits, minima and maxima 64. They are in two's complement if the field is signed,
 * and 0 if no record matched.
 */
struct roost_aggregate_group {
	uint64_t key; /* value of the field `group`, extended to 64 bits */
	uint64_t count;
	uint64_t sum, sum_high;
	uint64_t min, max;
};

struct roost_aggregate_result {
	uint64_t records, matched;
	uint64_t sum, sum_high;
	uint64_t min, max;
	uint64_t overflow; /* matching records without space for their group or row */
	uint32_t groups;   /* number of groups in front of this struct */
	uint32_t rows;	   /* number of rows in front of this struct, or at `out` */
};

#ifndef __cplusplus
_Static_assert(sizeof(struct roost_aggregate_params) == 128, "parameters of aggregate");
_Static_assert(sizeof(struct roost_aggregate_group) == 48, "a group");
_Static_assert(sizeof(struct roost_aggregate_result) == 64, "result of aggregate");
#endif

/* ---- the caller ---- */

/* Returns the description of a field of the records. */
static inline struct roost_aggregate_field roost_aggregate_field(uint32_t offset, uint8_t width,
								 uint8_t is_signed)
{
	struct roost_aggregate_field f = {offset, width, is_signed, 0};

	return f;
}

/* Returns parameters that count all records. The caller sets the other fields. */
static inline struct roost_aggregate_params roost_aggregate_params(uint32_t record)
{
	struct roost_aggregate_params p;

	memset(&p, 0, sizeof(p));
	p.record = record;
	return p;
}

/* Sets the condition: only records whose field satisfies it are counted. */
static inline void roost_aggregate_where(struct roost_aggregate_params *p,
					 struct roost_aggregate_field field,
					 enum roost_aggregate_predicate predicate, uint64_t operand)
{
	p->where = field;
	p->predicate = predicate;
	p->operand = operand;
}

/* Groups the records by a field, into at most `max_groups` groups. */
static inline void roost_aggregate_group_by(struct roost_aggregate_params *p,
					    struct roost_aggregate_field field, uint32_t max_groups)
{
	p->group = field;
	p->max_groups = max_groups;
}

/* Adds a span to the row. Returns 0, or -1 if the row has ROOST_AGGREGATE_SPANS already. */
static inline int roost_aggregate_project(struct roost_aggregate_params *p, uint32_t offset,
					  uint32_t len)
{
	if (p->spans == ROOST_AGGREGATE_SPANS)
		return -1;
	p->span[p->spans].offset = offset;
	p->span[p->spans++].len = len;
	return 0;
}

/*
 * Copies the result from the end of a reply of `len` bytes to *out. Returns 0, or -1 if the reply
 * is too short.
 */
static inline int roost_aggregate_result(const void *data, uint32_t len,
					 struct roost_aggregate_result *out)
{
	if (len < sizeof(*out))
		return -1;
	memcpy(out, (const uint8_t *)data + len - sizeof(*out), sizeof(*out));
	return 0;
}

#endif
