/* SPDX-License-Identifier: BSD-2-Clause */
/* Replies to batches, and the pairs of a scan (docs/kv-wire.md). */
#include <errno.h>

#include "kvwire/kvwire.h"
#include "kvwire/number.h"

/* The first byte of a result: its status, and flags. */
#define STATUS	   0x0fu
#define DATA	   0x10u /* a length and data follow */
#define CUT	   0x20u /* a length follows: the data did not fit */
#define SAME_VALUE 0x40u
#define SAME_SIZE  0x80u

/* The index is the status on the wire. */
static const int statuses[] = {0,      -ENOENT,	 -EEXIST,     -ECANCELED, -EINVAL,
			       -E2BIG, -ENOSPC,	 -EOPNOTSUPP, -ERANGE,	  -EFAULT,
			       -ETIME, -EREMCHG, -ETIMEDOUT};
#define STATUSES (sizeof(statuses) / sizeof(statuses[0]))
#define FAILED	 STATUS /* any other error */

static unsigned status_of(int err)
{
	for (unsigned i = 0; i < STATUSES; i++) {
		if (statuses[i] == err)
			return i;
	}
	return FAILED;
}

/* ---- writing ---- */

bool kvwire_reply_begin(struct kvwire_reply *w, void *buf, size_t len, uint32_t count)
{
	if (len < kvwire_least(count))
		return false;
	*w = (struct kvwire_reply){
		.start = buf, .at = buf, .end = (uint8_t *)buf + len, .left = count};
	w->at += KVWIRE_HEAD;
	return true;
}

uint8_t *kvwire_reply_space(const struct kvwire_reply *w, uint32_t n, size_t *len)
{
	uint8_t *from = w->at + (size_t)n * KVWIRE_RESULT_MIN;

	*len = (size_t)(w->end - from) - (size_t)(w->left - n) * KVWIRE_RESULT_MIN;
	return from;
}

void kvwire_reply_add_cut(struct kvwire_reply *w, int status, uint32_t len)
{
	*w->at++ = (uint8_t)(status_of(status) | CUT);
	w->at = put_length(w->at, len);
	w->count++;
	w->left--;
}

/* Most data differ in their first or last bytes, which need no call of a function. */
static inline bool same_as_before(const struct kvwire_reply *w, const uint8_t *data, uint32_t len)
{
	uint64_t a, b;

	if (!w->same || w->same_len != len)
		return false;
	if (len < sizeof(a))
		return !len || !memcmp(w->same, data, len);
	memcpy(&a, w->same, sizeof(a));
	memcpy(&b, data, sizeof(b));
	if (a != b)
		return false;
	memcpy(&a, w->same + len - sizeof(a), sizeof(a));
	memcpy(&b, data + len - sizeof(b), sizeof(b));
	return a == b && !memcmp(w->same, data, len);
}

void kvwire_reply_add(struct kvwire_reply *w, int status, const void *data, uint32_t len)
{
	size_t space = (size_t)(w->end - w->at) - (size_t)w->left * KVWIRE_RESULT_MIN;
	uint8_t *first = w->at;

	if (!data) {
		*w->at++ = (uint8_t)status_of(status);
	} else if (same_as_before(w, data, len)) {
		*w->at++ = (uint8_t)(status_of(status) | DATA | SAME_SIZE | SAME_VALUE);
	} else if (len > space) {
		kvwire_reply_add_cut(w, status, len);
		return;
	} else {
		*first = (uint8_t)(status_of(status) | DATA);
		w->at++;
		if (w->same && w->same_len == len)
			*first |= SAME_SIZE;
		else
			w->at = put_length(w->at, len);
		memmove(w->at, data, len);
		w->same = w->at;
		w->same_len = len;
		w->at += len;
	}
	w->count++;
	w->left--;
}

size_t kvwire_reply_finish(struct kvwire_reply *w, unsigned flags)
{
	w->start[0] = KVWIRE_VERSION;
	w->start[1] = (uint8_t)flags;
	put_u16(w->start + 2, (uint16_t)w->count);
	return (size_t)(w->at - w->start);
}

/* ---- reading ---- */

int kvwire_reply_open(struct kvwire_results *r, const void *reply, size_t len)
{
	const uint8_t *p = reply;

	if (len < KVWIRE_HEAD)
		return -EBADMSG;
	if (p[0] != KVWIRE_VERSION || p[1] & ~KVWIRE_BROKEN)
		return -EPROTONOSUPPORT;
	*r = (struct kvwire_results){
		.at = p + KVWIRE_HEAD, .end = p + len, .left = get_u16(p + 2), .flags = p[1]};
	return 0;
}

static int take_data(struct kvwire_results *r, unsigned first, struct kvwire_result *out)
{
	if (first & (SAME_SIZE | SAME_VALUE) && !r->same)
		return -EBADMSG;
	out->len = r->same_len;
	if (!(first & SAME_SIZE) && !get_length(&r->at, r->end, &out->len))
		return -EBADMSG;
	if (first & SAME_VALUE) {
		out->data = r->same;
		return out->len == r->same_len ? 1 : -EBADMSG;
	}
	if (out->len > (size_t)(r->end - r->at))
		return -EBADMSG;
	out->data = r->same = r->at;
	r->same_len = out->len;
	r->at += out->len;
	return 1;
}

int kvwire_reply_next(struct kvwire_results *r, struct kvwire_result *out)
{
	unsigned first;

	if (!r->left)
		return r->at == r->end ? 0 : -EBADMSG;
	if (r->at == r->end)
		return -EBADMSG;
	first = *r->at++;
	r->left--;
	*out = (struct kvwire_result){.cut = first & CUT};
	out->status = (first & STATUS) < STATUSES ? statuses[first & STATUS] : -EIO;
	if (first & DATA)
		return first & CUT ? -EBADMSG : take_data(r, first, out);
	if (first & (SAME_SIZE | SAME_VALUE))
		return -EBADMSG;
	return !out->cut || get_length(&r->at, r->end, &out->len) ? 1 : -EBADMSG;
}

/* ---- pairs of a scan ---- */

void kvwire_put_pair(uint8_t *to, const struct roost_kv_pair *pair)
{
	to[0] = (uint8_t)pair->key_len;
	to[1] = (uint8_t)pair->value_len;
	to[2] = (uint8_t)(pair->value_len >> 8);
	to[3] = (uint8_t)(pair->value_len >> 16);
	memcpy(to + 4, pair->key, pair->key_len);
	if (pair->value_len)
		memcpy(to + 4 + pair->key_len, pair->value, pair->value_len);
}

size_t kvwire_get_pair(const uint8_t *from, size_t len, struct roost_kv_pair *pair)
{
	uint32_t value_len;
	size_t need;

	if (len < 4)
		return 0;
	value_len = from[1] | (uint32_t)from[2] << 8 | (uint32_t)from[3] << 16;
	need = kvwire_pair_len(from[0], value_len);
	if (need > len)
		return 0;
	*pair = (struct roost_kv_pair){from + 4, from + 4 + from[0], from[0], value_len};
	return need;
}
