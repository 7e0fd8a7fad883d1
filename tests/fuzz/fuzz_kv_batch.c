/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Fuzzes the codec of store operations with bytes as a batch, a reply, and the pairs of a scan.
 * Operations that were read are written and read again: they are the same.
 */
#include <string.h>

#include "input.h"
#include "kvwire/kvwire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define OPS 64

static bool equal(const void *a, uint32_t a_len, const void *b, uint32_t b_len)
{
	return a_len == b_len && (!a_len || memcmp(a, b, a_len) == 0);
}

static void write_again(const struct roost_kv_op *ops, unsigned n)
{
	static uint8_t buf[KVWIRE_BATCH_MAX];
	struct kvwire_writer w;
	struct kvwire_reader r;
	struct roost_kv_op op;

	kvwire_begin(&w, buf, sizeof(buf));
	for (unsigned i = 0; i < n; i++) {
		if (!kvwire_add(&w, &ops[i]))
			return;
	}
	must(kvwire_open(&r, buf, kvwire_finish(&w, 0)) == 0, "written, and not read");
	for (unsigned i = 0; i < n; i++) {
		must(kvwire_next(&r, &op) == 1, "an operation is gone");
		must(op.code == ops[i].code && op.ttl == ops[i].ttl && op.cursor == ops[i].cursor &&
			     op.function == ops[i].function && op.type == ops[i].type &&
			     op.fetch == ops[i].fetch &&
			     equal(op.param, op.param_len, ops[i].param, ops[i].param_len) &&
			     equal(op.key, op.key_len, ops[i].key, ops[i].key_len) &&
			     equal(op.value, op.value_len, ops[i].value, ops[i].value_len) &&
			     equal(op.expect, op.expect_len, ops[i].expect, ops[i].expect_len),
		     "another operation");
	}
	must(kvwire_next(&r, &op) == 0, "more operations");
}

static void read_batch(const uint8_t *data, size_t size)
{
	struct roost_kv_op ops[OPS], op;
	struct kvwire_reader r;
	unsigned n = 0;

	if (kvwire_open(&r, data, size))
		return;
	while (kvwire_next(&r, &op) == 1) {
		if (n < OPS)
			ops[n++] = op;
	}
	write_again(ops, n);
}

static void read_reply(const uint8_t *data, size_t size)
{
	struct kvwire_results r;
	struct kvwire_result got;
	unsigned sum = 0;

	if (kvwire_reply_open(&r, data, size))
		return;
	while (kvwire_reply_next(&r, &got) == 1) {
		for (uint32_t i = 0; got.data && i < got.len; i++)
			sum += got.data[i];
	}
	must(sum != 1 || size, "unreachable");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct roost_kv_pair pair;
	size_t at = 0, len;

	read_batch(data, size);
	read_reply(data, size);
	while ((len = kvwire_get_pair(data + at, size - at, &pair)) != 0)
		at += len;
	must(at <= size, "a pair beyond the end");
	return 0;
}
