/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The kernel `aggregate`: filters a stream of records and adds up what is left, on its way. Records
 * are of one size, any number of bytes, one behind the other in the payload of the call
 * (ROOST_RPC_STREAM), in whatever pieces it travels. Fields are little-endian integers of 1 to 8
 * bytes, signed or not. All numbers little-endian.
 *
 *	record	| where | .... | value | ... | group | .. |	`where` is compared with an operand; a record of which that is true matches
 *
 * Of those that match: their number; sum, minimum and maximum of `value`; and one of
 *
 *	groups	the same for each value of `group`, of which there is room for max_groups
 *	rows	the bytes that `span` names of each, one behind the other, into the region that the
 *		call names at `out`, or to the caller
 *
 * The reply is rows or groups, and behind them struct roost_aggregate_result. What found no room is
 * counted there, and is in the sums of all.
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
	uint64_t operand; /* of 8 bytes, whatever the field's width: signed, when the field is */
	struct roost_aggregate_field value, group;
	uint32_t max_groups; /* 1 .. ROOST_AGGREGATE_MAX_GROUPS with a group; 0 without */
	uint32_t spans;	     /* 0: no rows; otherwise no group */
	uint64_t out;	     /* address for rows, of out_len bytes; both 0: to the caller */
	uint64_t out_len;
	struct roost_aggregate_span span[ROOST_AGGREGATE_SPANS];
};

/*
 * Sums are 128 bits, minima and maxima 64, in two's complement when the field is signed; 0 when
 * nothing matched.
 */
struct roost_aggregate_group {
	uint64_t key; /* of 64 bits as well */
	uint64_t count;
	uint64_t sum, sum_high;
	uint64_t min, max;
};

struct roost_aggregate_result {
	uint64_t records, matched;
	uint64_t sum, sum_high;
	uint64_t min, max;
	uint64_t overflow; /* that matched, but found no room for its group or its row */
	uint32_t groups;   /* in front of this */
	uint32_t rows;	   /* in front of this, or at `out` */
};

#ifndef __cplusplus
_Static_assert(sizeof(struct roost_aggregate_params) == 128, "parameters of aggregate");
_Static_assert(sizeof(struct roost_aggregate_group) == 48, "a group");
_Static_assert(sizeof(struct roost_aggregate_result) == 64, "result of aggregate");
#endif

/* The client's side. */
static inline struct roost_aggregate_field roost_aggregate_field(uint32_t offset, uint8_t width,
								 uint8_t is_signed)
{
	struct roost_aggregate_field f = {offset, width, is_signed, 0};

	return f;
}

/* Counts all records; the rest is set in it. */
static inline struct roost_aggregate_params roost_aggregate_params(uint32_t record)
{
	struct roost_aggregate_params p;

	memset(&p, 0, sizeof(p));
	p.record = record;
	return p;
}

static inline void roost_aggregate_where(struct roost_aggregate_params *p,
					 struct roost_aggregate_field field,
					 enum roost_aggregate_predicate predicate, uint64_t operand)
{
	p->where = field;
	p->predicate = predicate;
	p->operand = operand;
}

static inline void roost_aggregate_group_by(struct roost_aggregate_params *p,
					    struct roost_aggregate_field field, uint32_t max_groups)
{
	p->group = field;
	p->max_groups = max_groups;
}

/* One span more of each row. -1: there is no room for it. */
static inline int roost_aggregate_project(struct roost_aggregate_params *p, uint32_t offset,
					  uint32_t len)
{
	if (p->spans == ROOST_AGGREGATE_SPANS)
		return -1;
	p->span[p->spans].offset = offset;
	p->span[p->spans++].len = len;
	return 0;
}

/* What stands behind rows or groups, from the `len` bytes of a reply. -1: it is too short. */
static inline int roost_aggregate_result(const void *data, uint32_t len,
					 struct roost_aggregate_result *out)
{
	if (len < sizeof(*out))
		return -1;
	memcpy(out, (const uint8_t *)data + len - sizeof(*out), sizeof(*out));
	return 0;
}

#endif
