/* SPDX-License-Identifier: BSD-2-Clause */
/* Replies: the results of operations, and the pairs of a scan. */
#include <errno.h>
#include <string.h>

#include "base/export.h"
#include "kvclient/client.h"
#include "kvwire/number.h"

static void take_result(struct roost_kv_op *op, const struct kvwire_result *got)
{
	uint32_t len = got->cut || got->data ? got->len : 0;

	/* A later node has more statistics, behind those that the program knows. */
	if (op->code == ROOST_KV_STAT && got->data && len > op->out_cap)
		len = op->out_cap;
	op->status = got->status;
	op->out_len = len;
	if (!got->cut && !got->data)
		return;
	if (len > op->out_cap) {
		/* The old value of a comparison is left out without an error of its own. */
		if (!op->status)
			op->status = -EMSGSIZE;
	} else if (got->cut) {
		/* The node has changed nothing: neither has a comparison that failed. */
		op->status = -EAGAIN;
	} else if (len) {
		memcpy(op->out, got->data, len);
	}
}

/* Each operation with a key may get 8 bytes: an element, or the version of the node's table. */
#define SMALL_RESULT (KVWIRE_RESULT_MIN + (uint32_t)sizeof(uint64_t))

/*
 * The node does not know the space of `out`. If a value is longer, it takes the space of the
 * results behind it, and their operations would be sent again, after those that follow them. A
 * later node has more statistics and partitions than this program knows. An update whose old value
 * does not fit into the reply is not done.
 */
uint64_t kvc_result_space(const struct roost_kv_op *op, bool alone)
{
	switch (op->code) {
	case ROOST_KV_PUT:
	case ROOST_KV_PUT_ABSENT:
	case ROOST_KV_PUT_PRESENT:
	case ROOST_KV_DELETE:
	case ROOST_KV_TOUCH:
	case ROOST_KV_UPDATE:
	case ROOST_KV_REDUCE:
		return SMALL_RESULT;
	case ROOST_KV_UPDATE_EACH:
	case ROOST_KV_UPDATE_VECTOR:
		return op->fetch ? UINT32_MAX : SMALL_RESULT;
	case ROOST_KV_GET:
	case ROOST_KV_PUT_COMPARE:
	case ROOST_KV_FILTER:
		if (!alone)
			return UINT32_MAX;
		return op->out_cap > sizeof(uint64_t) ? KVWIRE_RESULT_MIN + (uint64_t)op->out_cap
						      : SMALL_RESULT;
	default:
		return UINT32_MAX;
	}
}

static int status_of(const struct roost_result *result)
{
	switch (result->status) {
	case ROOST_RPC_OK:
		return 0;
	case ROOST_RPC_NO_KERNEL:
	case ROOST_RPC_DISABLED:
		return -EOPNOTSUPP;
	case ROOST_KV_BUSY:
	case ROOST_RPC_BUSY:
		return -EBUSY;
	case ROOST_RPC_BAD_PARAMS: /* batches of this library are valid in its version */
		return -EPROTONOSUPPORT;
	default:
		return -EIO;
	}
}

void kvc_take_reply(struct roost_kv_op *first, const struct roost_result *result)
{
	int rc = status_of(result);
	struct kvwire_results r;
	struct kvwire_result got;

	if (!rc)
		rc = result->data ? kvwire_reply_open(&r, result->data, result->len) : -EIO;
	if (rc == -EBADMSG)
		rc = -EIO;
	for (struct roost_kv_op *op = first; op; op = op->next) {
		op->out_len = 0;
		if (!rc && kvwire_reply_next(&r, &got) != 1)
			rc = -EIO;
		if (rc)
			op->status = rc;
		else
			take_result(op, &got);
	}
}

ROOST_EXPORT bool roost_kv_next_pair(const struct roost_kv_op *scan, uint32_t *at,
				     struct roost_kv_pair *pair, uint64_t *next)
{
	const uint8_t *data = scan->out;
	size_t len;

	if (scan->out_len < KVWIRE_CURSOR) {
		*next = 0;
		return false;
	}
	*next = get_u64(data);
	if (!*at)
		*at = KVWIRE_CURSOR;
	len = kvwire_get_pair(data + *at, scan->out_len - *at, pair);
	*at += (uint32_t)len;
	return len;
}
