/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A connection to all nodes of a table of partitions. It has a connection to each node, and gives
 * each operation to the node that owns the key. An operation that a node refuses, because it does
 * not own the key, was not done; it is repeated until it succeeds or its time is over.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/export.h"
#include "kvclient/client.h"
#include "kvwire/remote.h"
#include "kvwire/table.h"

#define TIMEOUT_MS 5000
#define CHECK_NS   1000000u /* between two checks of the table, and two attempts of an operation */
#define WHY	   300

struct member {
	struct roost_kv *kv; /* NULL: not used yet, or lost */
	bool lost;
};

struct kvc_table {
	char *path;
	struct kv_follow *follow; /* a table in etcd, which a thread reads; else NULL */
	struct roost_kv_attr attr;
	struct kv_table table, next;
	struct member member[KV_TABLE_NODES];
	/*
	 * Connections that failed, or whose node the table lost. They are closed when their
	 * operations are done.
	 */
	struct roost_kv *retired;
	struct op_list to_repeat; /* operations to be repeated */
	uint64_t checked_at, repeated_at;
	unsigned refused; /* number of operations that were kept to be repeated */
};

/* ---- the table ---- */

static void retire(struct kvc_table *t, struct member *m)
{
	if (m->kv) {
		m->kv->retired = t->retired;
		t->retired = m->kv;
	}
	*m = (struct member){.lost = true};
}

/*
 * Takes the next table. Keeps the connections to nodes that both tables have, unless they
 * failed.
 */
static void take_next(struct kvc_table *t)
{
	struct member before[KV_TABLE_NODES];
	int at;

	memcpy(before, t->member, sizeof(before));
	memset(t->member, 0, sizeof(t->member));
	for (unsigned i = 0; i < t->table.nodes; i++) {
		at = kv_table_find(&t->next, t->table.node[i].address, t->table.node[i].service);
		if (at >= 0 && before[i].kv && !before[i].kv->err)
			t->member[at] = before[i];
		else
			retire(t, &before[i]);
	}
	t->table = t->next;
}

static bool read_next(struct kvc_table *t)
{
	char why[WHY];

	if (t->follow)
		return kv_table_remote->next(t->follow, &t->table, &t->next);
	return !kv_table_read(&t->next, t->path, why, sizeof(why));
}

/* Checks at intervals whether the table has a new version. Returns true if it has. */
static bool take_new_version(struct kvc_table *t)
{
	uint64_t now = kvc_now();

	if (now - t->checked_at < CHECK_NS)
		return false;
	t->checked_at = now;
	if (!read_next(t) || !kv_table_follows(&t->next, &t->table))
		return false;
	take_next(t);
	return true;
}

/* ---- operations ---- */

/*
 * Returns whether a connection failed for want of something in this process or machine. It says
 * nothing about the node.
 */
static bool is_local(int rc)
{
	switch (-rc) {
	case EINVAL:
	case ENOMEM:
	case EMFILE:
	case ENFILE:
	case ENOBUFS:
	case EAGAIN:
		return true;
	default:
		return false;
	}
}

/* Connects to a node if it is not connected. Returns 0, -EHOSTDOWN or a local error. */
static int connect_node(struct roost_kv *whole, unsigned node)
{
	struct kvc_table *t = whole->nodes;
	struct member *m = &t->member[node];
	const struct kv_table_node *at = &t->table.node[node];
	int rc;

	if (m->kv && m->kv->err)
		retire(t, m);
	if (m->lost)
		return -EHOSTDOWN;
	if (m->kv)
		return 0;
	rc = roost_kv_open(at->address, at->service, &t->attr, &m->kv);
	if (rc) {
		m->kv = NULL;
		if (is_local(rc))
			return rc;
		m->lost = true;
		return -EHOSTDOWN;
	}
	m->kv->whole = whole;
	return 0;
}

/* Returns the node for an operation, or KV_TABLE_NOBODY. */
static unsigned node_for(struct roost_kv *whole, const struct roost_kv_op *op)
{
	const struct kv_table *t = &whole->nodes->table;

	if (op->code != ROOST_KV_FIND_FUNCTION)
		return t->owner[kv_table_partition(t->seed, t->partitions, op->key, op->key_len)];
	for (unsigned i = 0; i < t->nodes; i++) {
		if (connect_node(whole, i) != -EHOSTDOWN)
			return i;
	}
	return KV_TABLE_NOBODY;
}

/* Gives an operation to its node. Returns 0, or an error if the node does not keep it. */
static int route(struct roost_kv *whole, struct roost_kv_op *op)
{
	struct kvc_table *t = whole->nodes;
	int rc;

	do {
		unsigned node = node_for(whole, op);

		rc = node == KV_TABLE_NOBODY ? -EHOSTDOWN : connect_node(whole, node);
		if (!rc)
			rc = roost_kv_submit(t->member[node].kv, op);
		if (rc == -ENOTCONN || rc == -ETIMEDOUT)
			rc = -EHOSTDOWN;
	} while (rc == -EHOSTDOWN && take_new_version(t));
	return rc;
}

bool kvc_table_requeue(struct roost_kv *whole, struct roost_kv_op *op)
{
	uint64_t now;

	if (op->status != -EREMCHG || whole->err)
		return false;
	now = kvc_now();
	if (!op->since)
		op->since = now;
	if (now - op->since > whole->timeout_ns)
		return false;
	op_list_add(&whole->nodes->to_repeat, op);
	whole->nodes->refused++;
	return true;
}

static void end_all(struct roost_kv *whole, struct op_list *all, int status)
{
	struct roost_kv_op *next;

	for (struct roost_kv_op *op = all->first; op; op = next) {
		next = op->next;
		op->status = status;
		kvc_complete(whole, op);
	}
}

/* Repeats the operations that were refused. */
static void repeat_refused(struct roost_kv *whole)
{
	struct kvc_table *t = whole->nodes;
	struct op_list all = t->to_repeat;
	uint64_t now = kvc_now();
	struct roost_kv_op *next;

	if (!all.first || now - t->repeated_at < CHECK_NS)
		return;
	t->repeated_at = now;
	take_new_version(t);
	t->to_repeat = (struct op_list){0};
	for (struct roost_kv_op *op = all.first; op; op = next) {
		int rc;

		next = op->next;
		rc = route(whole, op);
		if (rc) {
			op->status = rc;
			kvc_complete(whole, op);
		}
	}
	/* The next poll sends these batches without a wait. */
	for (unsigned i = 0; i < t->table.nodes; i++) {
		if (t->member[i].kv)
			t->member[i].kv->resend = true;
	}
}

int kvc_table_submit(struct roost_kv *whole, struct roost_kv_op *op)
{
	int rc;

	if (!kvc_has_key(op->code))
		return -EOPNOTSUPP;
	op->since = 0;
	whole->open++;
	rc = route(whole, op);
	if (rc)
		whole->open--;
	return rc;
}

int kvc_table_flush(struct roost_kv *whole)
{
	const struct kvc_table *t = whole->nodes;

	/* An error concerns the operations of one node. */
	for (unsigned i = 0; i < t->table.nodes; i++) {
		if (t->member[i].kv)
			roost_kv_flush(t->member[i].kv);
	}
	for (struct roost_kv *kv = t->retired; kv; kv = kv->retired)
		roost_kv_flush(kv);
	return whole->err;
}

/*
 * Closes the connections of the list that have no operation any more. Not in a callback: a
 * connection may be in use by a caller of the callback.
 */
static void close_retired(struct roost_kv *whole)
{
	struct roost_kv **at = &whole->nodes->retired, *kv;

	if (whole->callbacks)
		return;
	while ((kv = *at)) {
		if (kv->open) {
			at = &kv->retired;
			continue;
		}
		*at = kv->retired;
		roost_kv_close(kv);
	}
}

int kvc_table_poll(struct roost_kv *whole)
{
	const struct kvc_table *t = whole->nodes;
	unsigned before = whole->completed;

	for (unsigned i = 0; i < t->table.nodes; i++) {
		if (t->member[i].kv)
			roost_kv_poll(t->member[i].kv);
	}
	for (struct roost_kv *kv = t->retired; kv; kv = kv->retired)
		roost_kv_poll(kv);
	repeat_refused(whole);
	if (t->retired)
		close_retired(whole);
	return (int)(whole->completed - before);
}

/* Ends the connections that have not answered. */
static void give_up(struct kvc_table *t)
{
	for (unsigned i = 0; i < t->table.nodes; i++) {
		if (t->member[i].kv && t->member[i].kv->open)
			kvc_fail(t->member[i].kv, -ETIMEDOUT);
	}
	for (struct roost_kv *kv = t->retired; kv; kv = kv->retired) {
		if (kv->open)
			kvc_fail(kv, -ETIMEDOUT);
	}
}

int kvc_table_wait(struct roost_kv *whole)
{
	uint64_t start = kvc_now();

	while (whole->open && !whole->err) {
		unsigned refused = whole->nodes->refused;

		kvc_table_flush(whole);
		/* A node that refuses has answered. */
		if (kvc_table_poll(whole) || whole->nodes->refused != refused)
			start = kvc_now();
		else if (whole->open && !whole->nodes->to_repeat.first &&
			 kvc_now() - start > whole->timeout_ns)
			give_up(whole->nodes);
		else
			kvc_pause(start);
	}
	return whole->err;
}

/* ---- opening and closing ---- */

static void free_all(struct roost_kv *whole)
{
	if (whole->nodes->follow)
		kv_table_remote->end(whole->nodes->follow);
	free(whole->nodes->path);
	free(whole->nodes);
	free(whole);
}

void kvc_table_close(struct roost_kv *whole)
{
	struct kvc_table *t = whole->nodes;
	struct roost_kv *next;

	whole->err = -ENOTCONN;
	end_all(whole, &t->to_repeat, -ENOTCONN);
	for (unsigned i = 0; i < t->table.nodes; i++) {
		if (t->member[i].kv)
			roost_kv_close(t->member[i].kv);
	}
	for (struct roost_kv *kv = t->retired; kv; kv = next) {
		next = kv->retired;
		roost_kv_close(kv);
	}
	free_all(whole);
}

static int first_table(struct kvc_table *t, char *why, size_t why_len)
{
	int rc;

	if (!kv_table_is_remote(t->path))
		return kv_table_read(&t->table, t->path, why, why_len);
	rc = kv_table_has_remote(t->path, why, why_len);
	return rc ? rc
		  : kv_table_remote->follow(&t->table, t->path, NULL, "roost", &t->follow, why,
					    why_len);
}

ROOST_EXPORT int roost_kv_open_table(const char *path, const struct roost_kv_attr *attr,
				     struct roost_kv **out, char *why, size_t why_len)
{
	struct roost_kv *whole = calloc(1, sizeof(*whole));
	struct kvc_table *t = calloc(1, sizeof(*t));
	char none[WHY];
	int rc = -ENOMEM;

	if (!why || !why_len) {
		why = none;
		why_len = sizeof(none);
	}
	snprintf(why, why_len, "%s: %s", path, strerror(ENOMEM));
	if (!whole || !t)
		goto failed;
	t->path = strdup(path);
	if (!t->path)
		goto failed;
	if (attr)
		t->attr = *attr;
	rc = first_table(t, why, why_len);
	if (rc)
		goto failed;
	whole->nodes = t;
	whole->timeout_ns =
		(uint64_t)(t->attr.timeout_ms > 0 ? t->attr.timeout_ms : TIMEOUT_MS) * 1000000u;
	*out = whole;
	return 0;

failed:
	if (t)
		free(t->path);
	free(t);
	free(whole);
	return rc;
}
