/* SPDX-License-Identifier: BSD-2-Clause */
#include "cli/demo/get.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "cli/demo/offload.h"
#include "roost/get.h"
#include "roost/verbs.h"

/* Three in four entries are full or chained, as in a table that was created for fewer keys. */
#define ENTRIES	  256u
#define MORE	  512u
#define KEYS	  1000u
#define VALUE_LEN 64u
#define TABLE_LEN ((ENTRIES + MORE) * sizeof(struct roost_get_entry))
#define MEM_LEN	  (TABLE_LEN + KEYS * VALUE_LEN)
#define LOOKUPS	  500u
#define STUCK_NS  UINT64_C(60000000000)

static void value_of(uint64_t key, uint8_t *out)
{
	for (unsigned i = 0; i < VALUE_LEN; i++)
		out[i] = (uint8_t)(key * 131 + i * 7);
}

int demo_table_make(struct demo_table *t, const struct perf_nic *nic, json_t *link, char *err)
{
	uint8_t *value;
	uint32_t used = 0;
	int rc;

	t->mem = mem_alloc_pages(MEM_LEN);
	if (t->mem)
		t->mr = ibv_reg_mr(nic->pd, t->mem, MEM_LEN, IBV_ACCESS_REMOTE_READ);
	if (!t->mr) {
		snprintf(err, PERF_ERR_LEN, "can't make a hash table: %s", strerror(errno));
		return -ENOMEM;
	}
	value = (uint8_t *)t->mem + TABLE_LEN;
	for (uint64_t key = 1; key <= KEYS; key++, value += VALUE_LEN) {
		value_of(key, value);
		if (roost_get_insert(t->mem, ENTRIES, MORE, &used, key, (uintptr_t)value, VALUE_LEN,
				     0)) {
			snprintf(err, PERF_ERR_LEN, "the hash table is too small");
			return -ENOSPC;
		}
	}
	rc = roost_kernel_deploy(nic->ctx, roost_kernel_builtin("get"), NULL);
	if (rc) {
		snprintf(err, PERF_ERR_LEN, "can't deploy the kernel 'get': %s", strerror(rc));
		return -rc;
	}
	t->office =
		demo_office_open(nic, KEYS, (const uint8_t *)t->mem + TABLE_LEN, VALUE_LEN, err);
	if (!t->office)
		return -EIO;
	json_object_set_new(link, "table", json_integer((json_int_t)(uintptr_t)t->mem));
	json_object_set_new(link, "table_rkey", json_integer(t->mr->rkey));
	return 0;
}

void demo_table_free(struct demo_table *t)
{
	demo_office_close(t->office);
	if (t->mr)
		ibv_dereg_mr(t->mr);
	if (t->mem)
		mem_free_pages(t->mem, MEM_LEN);
}

bool demo_lookups_set_peer(struct demo_lookups *d, struct oob *oob, const json_t *link)
{
	return oob_get_u64(oob, link, "table", INT64_MAX, &d->table) &&
	       oob_get_u64(oob, link, "table_rkey", UINT32_MAX, &d->rkey);
}

/* Posts one READ into the memory of the link and waits for its completion. */
static int read_once(struct perf_link *l, uint64_t from, uint32_t rkey, uint32_t len)
{
	struct ibv_sge sge = {(uintptr_t)l->rx, len, l->mr->lkey};
	struct ibv_send_wr wr = {.sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_RDMA_READ,
				 .send_flags = IBV_SEND_SIGNALED};
	struct perf_qp *q = &l->qps[0];
	uint64_t start = clock_ns(), done = q->completed;
	struct ibv_send_wr *bad;
	int rc;

	wr.wr.rdma.remote_addr = from;
	wr.wr.rdma.rkey = rkey;
	rc = ibv_post_send(q->qp, &wr, &bad);
	if (rc)
		return perf_fail(l, -EIO, "can't post a READ: %s", strerror(rc));
	q->posted++;
	while (q->completed == done) {
		rc = perf_reap(l);
		if (rc < 0)
			return rc;
		if (rc == 0 && clock_ns() - start > STUCK_NS * oob_timeout_scale())
			return perf_fail(l, -ETIMEDOUT, "a READ gets no answer");
	}
	return 0;
}

/* Reads one entry after the other, then the value; each READ is a round trip. */
static int get_by_reads(struct demo_lookups *d, struct perf_link *l, uint64_t key)
{
	uint64_t at = roost_get_hash(key) & (ENTRIES - 1);
	struct roost_get_entry e;

	for (;;) {
		int rc = read_once(l, d->table + at * sizeof(e), (uint32_t)d->rkey, sizeof(e));

		d->reads++;
		if (rc < 0)
			return rc;
		memcpy(&e, l->rx, sizeof(e));
		for (unsigned i = 0; i < ROOST_GET_BUCKETS; i++) {
			if (!e.bucket[i].value || e.bucket[i].key != key)
				continue;
			d->reads++;
			return read_once(l, e.bucket[i].value, (uint32_t)d->rkey, VALUE_LEN);
		}
		if (!e.next)
			return perf_fail(l, -EPROTO, "key %llu is not in the table",
					 (unsigned long long)key);
		at = e.next - 1;
	}
}

static int get_by_call(struct demo_lookups *d, struct perf_link *l, struct roost_caller *caller,
		       uint64_t key)
{
	struct roost_get_params params = roost_get_params(d->table, ENTRIES, key, 0);
	struct roost_result result;
	int rc = roost_call(caller, ROOST_GET_OP, (uint32_t)d->rkey, &params, sizeof(params), l->rx,
			    VALUE_LEN, STUCK_NS * oob_timeout_scale(), &result);

	d->calls++;
	if (rc)
		return perf_fail(l, -rc, "a call of 'get' fails: %s", strerror(rc));
	if (result.status != ROOST_RPC_OK || result.len != VALUE_LEN)
		return perf_fail(l, -EPROTO, "'get' answers with status %u", result.status);
	return 0;
}

static int get_by_chain(struct demo_lookups *d, struct perf_link *l, struct demo_offload *offload,
			uint64_t key)
{
	const uint8_t *value;
	int rc = demo_offload_get(offload, key, &value, l->err);

	d->sends++;
	if (rc == 0)
		memcpy(l->rx, value, VALUE_LEN);
	return rc;
}

static int by_time(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/*
 * Runs all look-ups in one way: by calls, by a chain, or by READs if both are NULL. Stores the
 * median time of a look-up.
 */
static int look_up(struct demo_lookups *d, struct perf_link *l, struct roost_caller *caller,
		   struct demo_offload *offload, double *us)
{
	uint64_t ns[LOOKUPS];
	uint8_t want[VALUE_LEN];

	for (unsigned i = 0; i < LOOKUPS; i++) {
		uint64_t key = 1 + i * 7 % KEYS, start = clock_ns();
		int rc = caller	   ? get_by_call(d, l, caller, key)
			 : offload ? get_by_chain(d, l, offload, key)
				   : get_by_reads(d, l, key);

		ns[i] = clock_ns() - start;
		if (rc < 0)
			return rc;
		value_of(key, want);
		if (memcmp(l->rx, want, VALUE_LEN))
			return perf_fail(l, -EPROTO, "the value of key %llu is wrong",
					 (unsigned long long)key);
		memset(l->rx, 0, VALUE_LEN);
	}
	qsort(ns, LOOKUPS, sizeof(ns[0]), by_time);
	*us = (double)ns[LOOKUPS / 2] / 1e3;
	return 0;
}

int demo_lookups_run(struct demo_lookups *d, struct perf_link *l, char *err)
{
	struct roost_caller *caller = roost_caller_create(l->qps[0].qp, 1, VALUE_LEN);
	struct demo_offload *offload;
	int rc;

	d->keys = LOOKUPS;
	d->reads = d->calls = d->sends = 0;
	if (!caller) {
		snprintf(err, PERF_ERR_LEN, "can't make a caller: %s", strerror(errno));
		return -ENOMEM;
	}
	rc = look_up(d, l, NULL, NULL, &d->read_us);
	if (rc == 0)
		rc = look_up(d, l, caller, NULL, &d->call_us);
	roost_caller_destroy(caller);
	if (rc == 0) {
		offload = demo_offload_open(l->nic, l->qps[0].qp, l->err);
		rc = offload ? look_up(d, l, NULL, offload, &d->chain_us) : -EIO;
		demo_offload_close(offload);
	}
	if (rc < 0)
		snprintf(err, PERF_ERR_LEN, "%s", l->err);
	return rc;
}
