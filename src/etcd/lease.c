/* SPDX-License-Identifier: BSD-2-Clause */
#include "etcd/lease.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "etcd/answer.h"
#include "kvwire/fence.h"

void lease_nodes(char *to, size_t len, const char *key)
{
	snprintf(to, len, "%s/nodes", key);
}

void lease_name(char *to, size_t len, const struct kv_table_node *n)
{
	snprintf(to, len, "%s:%u", n->address, n->service);
}

static int renew(struct lease *l, struct http *h, char *why, size_t why_len)
{
	uint64_t sent = kv_fence_now(), id, seconds;
	const char *answer;
	size_t len;
	int rc = http_post(h, "/v3/lease/keepalive", etcd_lease_request(l->tenure.id), HTTP_REPEAT,
			   &answer, &len, why, why_len);

	if (!rc)
		rc = etcd_lease_answer(answer, len, &id, &seconds, why, why_len);
	if (!rc)
		tenure_renewed(&l->tenure, sent, seconds);
	return rc;
}

/* Sets the key, with the lease. */
static int set(const struct lease *l, struct http *h, char *why, size_t why_len)
{
	const struct tenure *t = &l->tenure;
	uint64_t revision;
	const char *answer;
	bool done = true;
	size_t len;
	int rc;

	if (!l->alone)
		return http_post(h, "/v3/kv/put",
				 etcd_member_request(l->key, l->name, t->id, t->want_s),
				 HTTP_REPEAT, &answer, &len, why, why_len);
	rc = http_post(h, "/v3/kv/txn", etcd_lock_request(l->key, l->name, t->id), HTTP_ONCE,
		       &answer, &len, why, why_len);
	if (!rc)
		rc = etcd_txn_answer(answer, len, &done, &revision, why, why_len);
	if (rc || done)
		return rc;
	snprintf(why, why_len, "another move is in progress");
	return -EBUSY;
}

static int get(struct lease *l, struct http *h, char *why, size_t why_len)
{
	uint64_t sent = kv_fence_now(), id, seconds;
	const char *answer;
	size_t len;
	int rc = http_post(h, "/v3/lease/grant", etcd_grant_request(l->tenure.want_s), HTTP_REPEAT,
			   &answer, &len, why, why_len);

	if (!rc)
		rc = etcd_lease_answer(answer, len, &id, &seconds, why, why_len);
	if (!rc)
		tenure_granted(&l->tenure, sent, id, seconds);
	return rc;
}

static int set_key(struct lease *l, struct http *h, char *why, size_t why_len)
{
	int rc = set(l, h, why, why_len);

	if (rc)
		tenure_refused(&l->tenure);
	else
		tenure_registered(&l->tenure);
	return rc;
}

int lease_keep(struct lease *l, struct http *h, char *why, size_t why_len)
{
	int rc = 0;

	/* Three steps are the most: a lease that has ended, a new lease, and its key. */
	for (unsigned i = 0; i < 3 && !rc; i++) {
		switch (tenure_next(&l->tenure, kv_fence_now())) {
		case TENURE_REST:
			return 0;
		case TENURE_GRANT:
			rc = get(l, h, why, why_len);
			break;
		case TENURE_REGISTER:
			rc = set_key(l, h, why, why_len);
			break;
		case TENURE_RENEW:
			rc = renew(l, h, why, why_len);
			break;
		}
	}
	return rc;
}

void lease_end(struct lease *l, struct http *h)
{
	const char *answer;
	char why[100];
	size_t len;
	uint64_t id = l->tenure.id;

	tenure_lost(&l->tenure); /* the fence is closed first */
	if (id)
		http_post(h, "/v3/lease/revoke", etcd_lease_request(id), HTTP_REPEAT, &answer, &len,
			  why, sizeof(why));
}
