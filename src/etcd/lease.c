/* SPDX-License-Identifier: BSD-2-Clause */
#include "etcd/lease.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "etcd/answer.h"
#include "kvwire/fence.h"

#define SET_TRIES 3u

void lease_nodes(char *to, size_t len, const char *key)
{
	snprintf(to, len, "%s/nodes", key);
}

void lease_name(char *to, size_t len, const struct kv_table_node *n)
{
	snprintf(to, len, "%s:%u", n->address, n->service);
}

static int txn(struct http *h, char *body, enum http_repeat repeat, bool *done, char *why,
	       size_t why_len)
{
	uint64_t revision;
	const char *answer;
	size_t len;
	int rc = http_post(h, "/v3/kv/txn", body, repeat, &answer, &len, why, why_len);

	return rc ? rc : etcd_txn_answer(answer, len, done, &revision, why, why_len);
}

/*
 * Reads the revision of the last change of the key, and the lease that it has; 0: there is no such
 * key, or it has none.
 */
static int read_key(const struct lease *l, struct http *h, uint64_t *revision, uint64_t *lease,
		    char *why, size_t why_len)
{
	char key[sizeof(l->key) + sizeof(l->name)];
	struct etcd_value v;
	const char *answer;
	size_t len;
	int rc;

	snprintf(key, sizeof(key), "%s/%s", l->key, l->name);
	rc = http_post(h, "/v3/kv/range", etcd_range_request(key), HTTP_REPEAT, &answer, &len, why,
		       why_len);
	if (!rc)
		rc = etcd_range_answer(answer, len, &v, why, why_len);
	if (rc)
		return rc;
	*revision = v.revision;
	*lease = v.lease;
	free(v.text);
	return 0;
}

/* Requests a lease or its renewal. *seconds is 0 if the lease has expired. */
static int request(struct http *h, const char *path, char *body, uint64_t *id, uint64_t *seconds,
		   char *why, size_t why_len)
{
	const char *answer;
	size_t len;
	int rc = http_post(h, path, body, HTTP_REPEAT, &answer, &len, why, why_len);

	return rc ? rc : etcd_lease_answer(answer, len, id, seconds, why, why_len);
}

/*
 * Renews the lease, and checks that the key of a node still has it. `move --lost` looks at the key,
 * not at the lease. The renewal extends the fence only if both requests were answered.
 */
static int renew(struct lease *l, struct http *h, char *why, size_t why_len)
{
	uint64_t sent = kv_fence_now(), id, seconds, revision, lease;
	bool ours = true;
	int rc = request(h, "/v3/lease/keepalive", etcd_lease_request(l->tenure.id), &id, &seconds,
			 why, why_len);

	if (!rc && seconds && l->tenure.registered && !l->alone) {
		rc = read_key(l, h, &revision, &lease, why, why_len);
		ours = rc || lease == l->tenure.id;
	}
	if (!ours) {
		tenure_unregistered(&l->tenure);
		snprintf(why, why_len, "another program has removed or set the key of this node");
		rc = -EBUSY;
	} else if (!rc) {
		tenure_renewed(&l->tenure, sent, seconds);
	}
	return rc;
}

/*
 * Sets the key of a node, if nobody else has set it since it was read. So a request of a former
 * process of the node that was held up changes nothing once this process has set the key. The
 * condition also fails for a request that is repeated after it took effect, or behind such a late
 * one; the next try reads the key again.
 */
static int set_member(const struct lease *l, struct http *h, char *why, size_t why_len)
{
	const struct tenure *t = &l->tenure;
	uint64_t revision, lease;
	bool done;

	for (unsigned i = 0; i < SET_TRIES; i++) {
		int rc = read_key(l, h, &revision, &lease, why, why_len);

		if (!rc)
			rc = txn(h,
				 etcd_member_request(l->key, l->name, revision, t->id, t->want_s),
				 HTTP_REPEAT, &done, why, why_len);
		if (rc || done)
			return rc;
	}
	snprintf(why, why_len, "others set the key of this node, too");
	return -EBUSY;
}

/* Sets the key with the lease. */
static int set(const struct lease *l, struct http *h, char *why, size_t why_len)
{
	bool done;
	int rc;

	if (!l->alone)
		return set_member(l, h, why, why_len);
	rc = txn(h, etcd_lock_request(l->key, l->name, l->tenure.id), HTTP_ONCE, &done, why,
		 why_len);
	if (rc || done)
		return rc;
	snprintf(why, why_len, "another move is in progress");
	return -EBUSY;
}

static int get(struct lease *l, struct http *h, char *why, size_t why_len)
{
	uint64_t sent = kv_fence_now(), id, seconds;
	int rc = request(h, "/v3/lease/grant", etcd_grant_request(l->tenure.want_s), &id, &seconds,
			 why, why_len);

	if (!rc && !seconds) { /* it would be due at once, again and again */
		snprintf(why, why_len, "the answer is not that of etcd: a new lease has no time");
		rc = -EBADMSG;
	}
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
