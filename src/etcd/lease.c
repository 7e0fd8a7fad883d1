/* SPDX-License-Identifier: BSD-2-Clause */
#include "etcd/lease.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "etcd/answer.h"

#define RENEW_NS (LEASE_S * UINT64_C(1000000000) / 4)

void lease_nodes(char *to, size_t len, const char *key)
{
	snprintf(to, len, "%s/nodes", key);
}

void lease_name(char *to, size_t len, const struct kv_table_node *n)
{
	snprintf(to, len, "%s:%u", n->address, n->service);
}

/* Sends a request to `path` of the server. */
static int ask(const struct lease *l, struct http *h, const char *path, char *body,
	       const char **answer, size_t *len, char *why, size_t why_len)
{
	char url[512];

	snprintf(url, sizeof(url), "%s%s", l->base, path);
	return http_post(h, url, body, answer, len, why, why_len);
}

static int renew(struct lease *l, struct http *h, char *why, size_t why_len)
{
	const char *answer;
	size_t len;
	int rc = ask(l, h, "/v3/lease/keepalive", etcd_lease_request(l->id), &answer, &len, why,
		     why_len);

	return rc ? rc : etcd_lease_answer(answer, len, &l->id, why, why_len);
}

/* Sets the key, with this lease. */
static int set(const struct lease *l, struct http *h, uint64_t id, char *why, size_t why_len)
{
	uint64_t revision;
	const char *answer;
	bool done = true;
	size_t len;
	int rc;

	if (!l->alone)
		return ask(l, h, "/v3/kv/put", etcd_member_request(l->key, l->name, id), &answer,
			   &len, why, why_len);
	rc = ask(l, h, "/v3/kv/txn", etcd_lock_request(l->key, l->name, id), &answer, &len, why,
		 why_len);
	if (!rc)
		rc = etcd_txn_answer(answer, len, &done, &revision, why, why_len);
	if (rc || done)
		return rc;
	snprintf(why, why_len, "another move is under way");
	return -EBUSY;
}

static int get(struct lease *l, struct http *h, char *why, size_t why_len)
{
	const char *answer;
	size_t len;
	int rc = ask(l, h, "/v3/lease/grant", etcd_grant_request(LEASE_S), &answer, &len, why,
		     why_len);

	if (!rc)
		rc = etcd_lease_answer(answer, len, &l->id, why, why_len);
	if (rc)
		return rc;
	rc = set(l, h, l->id, why, why_len);
	if (rc)
		lease_end(l, h);
	return rc;
}

int lease_keep(struct lease *l, struct http *h, uint64_t now_ns, char *why, size_t why_len)
{
	int rc = 0;

	if (l->id && now_ns < l->due_ns)
		return 0;
	if (l->id)
		rc = renew(l, h, why, why_len);
	/* It has expired, or there was none. */
	if (!rc && !l->id)
		rc = get(l, h, why, why_len);
	if (!rc)
		l->due_ns = now_ns + RENEW_NS;
	return rc;
}

void lease_end(struct lease *l, struct http *h)
{
	const char *answer;
	char why[100];
	size_t len;

	if (l->id)
		ask(l, h, "/v3/lease/revoke", etcd_lease_request(l->id), &answer, &len, why,
		    sizeof(why));
	l->id = 0;
}
