/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How a node follows a table. This file has the etcd: it takes the requests in place of
 * http_post(), and may hold one up.
 */
#include <errno.h>
#include <jansson.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "etcd/http.h"
#include "etcd/table.h"
#include "kvwire/remote.h"

#define NAME   "etcd:http://127.0.0.1:1/k"
#define KEY    "aw==" /* base64 of "k" */
#define WAIT_S 60
#define TRIES  3 /* of a node in a row to set its key */

/* ---- etcd ---- */

static struct {
	uint64_t revision, leases;
	uint64_t set_at, lease; /* of the key of the node */
	uint64_t revoked;
	const char *delay; /* the next request to this path is delayed */
	char *delayed;
	bool late;	  /* the delayed request arrives before the next transaction */
	uint64_t version; /* of the table */
	bool timeless;	  /* it grants leases without a time */
	bool others;	  /* leases end, and others change the key of the node all the time */
	bool contested;	  /* others change the key all the time, and leases last */
	unsigned refused; /* transactions, because of that */
	char answer[4096];
} etcd;

/* guards `etcd` while the thread of a node runs */
static pthread_mutex_t etcd_lock = PTHREAD_MUTEX_INITIALIZER;

static void encode(const char *text, size_t n, char *to)
{
	static const char digit[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

	for (size_t i = 0; i < n; i += 3) {
		uint32_t w = 0;

		for (size_t k = 0; k < 3; k++)
			w = w << 8 | (i + k < n ? (uint8_t)text[i + k] : 0);
		for (int k = 0; k < 4; k++)
			*to++ = i + (size_t)k > n ? '=' : digit[w >> (18 - 6 * k) & 63];
	}
	*to = '\0';
}

static void answer_table(void)
{
	static struct kv_table t = {.seed = 1, .partitions = 1, .nodes = 1};
	char text[1024], coded[2048];
	size_t n;

	t.version = etcd.version;
	strcpy(t.node[0].address, "10.0.0.1");
	t.node[0].service = 1;
	t.from[0] = KV_TABLE_NOBODY;
	n = kv_table_format(&t, text, sizeof(text));
	assert_true(n < sizeof(text));
	encode(text, n, coded);
	snprintf(etcd.answer, sizeof(etcd.answer),
		 "{\"header\":{},\"kvs\":[{\"mod_revision\":\"%u\",\"value\":\"%s\"}]}",
		 (unsigned)etcd.version, coded);
}

static const char *text_of(json_t *o, const char *name)
{
	const char *text = json_string_value(json_object_get(o, name));

	return text ? text : "";
}

static void set_key(json_t *put)
{
	etcd.set_at = ++etcd.revision;
	etcd.lease = strtoull(text_of(put, "lease"), NULL, 10);
}

/* Sets the key of the node if its conditions hold. */
static void transact(json_t *o)
{
	json_t *compare = json_array_get(json_object_get(o, "compare"), 0);
	json_t *success = json_array_get(json_object_get(o, "success"), 0);
	bool done = !compare || strcmp(text_of(compare, "target"), "MOD") ||
		    strtoull(text_of(compare, "mod_revision"), NULL, 10) == etcd.set_at;

	if (etcd.others || etcd.contested) {
		done = false;
		etcd.refused++;
	}
	if (done)
		set_key(json_object_get(success, "request_put"));
	snprintf(etcd.answer, sizeof(etcd.answer),
		 "{\"header\":{\"revision\":\"%u\"},\"succeeded\":%s}", (unsigned)etcd.revision + 1,
		 done ? "true" : "false");
}

static void execute(const char *path, const char *body)
{
	json_t *o = json_loads(body, 0, NULL);

	assert_non_null(o);
	strcpy(etcd.answer, "{\"header\":{}}");
	if (strstr(path, "grant"))
		snprintf(etcd.answer, sizeof(etcd.answer),
			 etcd.timeless ? "{\"ID\":\"%u\"}" : "{\"ID\":\"%u\",\"TTL\":\"30\"}",
			 (unsigned)++etcd.leases);
	else if (strstr(path, "keepalive"))
		snprintf(etcd.answer, sizeof(etcd.answer),
			 etcd.others ? "{\"result\":{\"ID\":\"%u\"}}"
				     : "{\"result\":{\"ID\":\"%u\",\"TTL\":\"30\"}}",
			 (unsigned)etcd.leases);
	else if (strstr(path, "revoke"))
		etcd.revoked = strtoull(text_of(o, "ID"), NULL, 10);
	else if (strstr(path, "txn"))
		transact(o);
	else if (strstr(path, "put"))
		set_key(o);
	else if (!strcmp(text_of(o, "key"), KEY))
		answer_table();
	else if (etcd.set_at)
		snprintf(etcd.answer, sizeof(etcd.answer),
			 "{\"header\":{},\"kvs\":[{\"mod_revision\":\"%u\",\"lease\":\"%u\"}]}",
			 (unsigned)etcd.set_at, (unsigned)etcd.lease);
	json_decref(o);
}

int __wrap_http_post(struct http *h, const char *path, char *body, enum http_repeat repeat,
		     const char **answer, size_t *len, char *why, size_t why_len);

int __wrap_http_post(struct http *h, const char *path, char *body, enum http_repeat repeat,
		     const char **answer, size_t *len, char *why, size_t why_len)
{
	int rc = 0;

	assert_non_null(body);
	pthread_mutex_lock(&etcd_lock);
	if (etcd.delay && strstr(path, etcd.delay)) {
		etcd.delay = NULL;
		etcd.delayed = body;
		snprintf(why, why_len, "no answer");
		rc = -ETIMEDOUT;
	} else {
		if (etcd.late && strstr(path, "txn")) {
			etcd.late = false;
			execute(path, etcd.delayed);
		}
		execute(path, body);
		free(body);
		*answer = etcd.answer;
		*len = strlen(etcd.answer);
	}
	pthread_mutex_unlock(&etcd_lock);
	return rc;
}

/* ---- the node ---- */

int __real_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*run)(void *), void *arg);
int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*run)(void *), void *arg);

static bool runs; /* else no node goes beyond its begin: its thread does not start */

int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*run)(void *), void *arg)
{
	return runs ? __real_pthread_create(t, a, run, arg) : EAGAIN;
}

static struct kv_fence fence;
static struct kv_table table;

static int begin_to_follow(unsigned lease_s, struct kv_follow **f)
{
	struct kv_table_self self = {
		.node = {.address = "10.0.0.1", .service = 1}, .lease_s = lease_s, .fence = &fence};
	char why[300] = "";
	int rc = roost_etcd_tables()->follow(&table, NAME, &self, "test", f, why, sizeof(why));

	assert_true(!rc == !*why);
	return rc;
}

/* Returns the error of a node that cannot follow. */
static int follow(void)
{
	struct kv_follow *f;

	return begin_to_follow(30, &f);
}

static int begin(void **state)
{
	free(etcd.delayed);
	memset(&etcd, 0, sizeof(etcd));
	etcd.version = 1;
	runs = false;
	return 0;
}

/* A node whose thread does not start gives its lease back, and serves nothing. */
static void without_a_thread(void **state)
{
	assert_int_equal(follow(), -EAGAIN);
	assert_int_equal(etcd.lease, 1);
	assert_int_equal(etcd.revoked, 1);
	assert_int_equal(fence.until_ns, 0);
}

/*
 * The request that sets the key of a node is delayed. The process ends, and the next one sets the
 * key. Then the request arrives: the key keeps the lease of the new process.
 */
static void late_request_of_a_former_process(void **state)
{
	static const char *const paths[] = {"/kv/put", "/kv/txn"};

	for (unsigned earlier = 0; earlier < 2; earlier++) {
		begin(NULL);
		if (earlier) /* the key is there already */
			assert_int_equal(follow(), -EAGAIN);
		for (unsigned i = 0; i < 2 && !etcd.delayed; i++) {
			etcd.delay = paths[i];
			follow();
		}
		etcd.delay = NULL;
		assert_non_null(etcd.delayed);
		assert_int_equal(follow(), -EAGAIN);
		assert_int_equal(etcd.lease, etcd.leases);
		execute("/v3/kv/txn", etcd.delayed);
		assert_int_equal(etcd.lease, etcd.leases);
	}
}

/* The late request arrives between the read and the write of the new process, which tries again. */
static void late_request_in_between(void **state)
{
	etcd.delay = "/kv/txn";
	assert_int_equal(follow(), -ETIMEDOUT);
	etcd.late = true;
	assert_int_equal(follow(), -EAGAIN);
	assert_false(etcd.late);
	assert_int_equal(etcd.lease, etcd.leases);
}

/* A lease without a time would be due at once, again and again. */
static void a_lease_without_time(void **state)
{
	etcd.timeless = true;
	assert_int_equal(follow(), -EBADMSG);
	assert_int_equal(fence.until_ns, 0);
}

static unsigned refused(void)
{
	unsigned n;

	pthread_mutex_lock(&etcd_lock);
	n = etcd.refused;
	pthread_mutex_unlock(&etcd_lock);
	return n;
}

static void set_etcd(bool others, uint64_t version)
{
	pthread_mutex_lock(&etcd_lock);
	etcd.others = others;
	etcd.version = version;
	pthread_mutex_unlock(&etcd_lock);
}

/*
 * The lease of a node has ended, and others change its key whenever it tries to set it. The node
 * serves nothing, and follows the table.
 */
static void others_set_its_key(void **state)
{
	const struct kv_table_remote *remote = roost_etcd_tables();
	time_t until = time(NULL) + WAIT_S;
	struct pollfd p = {.events = POLLIN};
	static struct kv_table next;
	struct kv_follow *f;

	runs = true;
	assert_int_equal(begin_to_follow(1, &f), 0); /* renewed after an eighth of a second */
	set_etcd(true, 1);
	while (refused() < 2 * TRIES && time(NULL) < until)
		usleep(1000);
	set_etcd(true, 2); /* after a round that ended with an error */
	p.fd = remote->fd(f);
	assert_int_equal(poll(&p, 1, WAIT_S * 1000), 1);
	assert_true(remote->next(f, &table, &next));
	assert_int_equal(next.version, 2);
	assert_int_equal(atomic_load(&fence.until_ns), 0);
	set_etcd(false, 2);
	while (!atomic_load(&fence.until_ns) && time(NULL) < until)
		usleep(1000);
	assert_int_equal(atomic_load(&fence.version), 2);
	remote->end(f);
}

static void change_key(uint64_t set_at, uint64_t lease, bool contested, uint64_t version)
{
	pthread_mutex_lock(&etcd_lock);
	etcd.set_at = set_at;
	etcd.lease = lease;
	etcd.contested = contested;
	etcd.version = version;
	pthread_mutex_unlock(&etcd_lock);
}

static void wait_for_fence(bool open)
{
	time_t until = time(NULL) + WAIT_S;

	while (!atomic_load(&fence.until_ns) == open && time(NULL) < until)
		usleep(1000);
	assert_int_equal(!!atomic_load(&fence.until_ns), open);
}

/*
 * Another program removes the key of a node, or sets it with its own lease, while the lease of the
 * node lasts. Others may take the partitions of such a node, so it serves nothing until it has set
 * the key and read the table again.
 */
static void another_program_takes_its_key(void **state)
{
	const struct kv_table_remote *remote = roost_etcd_tables();
	struct kv_follow *f;

	runs = true;
	assert_int_equal(begin_to_follow(1, &f), 0); /* renewed after an eighth of a second */
	for (unsigned removed = 0; removed < 2; removed++) {
		uint64_t version = 2 + removed;

		wait_for_fence(true);
		change_key(removed ? 0 : 1000, removed ? 0 : 9, true, version);
		wait_for_fence(false);
		pthread_mutex_lock(&etcd_lock);
		etcd.contested = false;
		pthread_mutex_unlock(&etcd_lock);
		wait_for_fence(true);
		assert_int_equal(atomic_load(&fence.version), version);
		pthread_mutex_lock(&etcd_lock);
		assert_int_equal(etcd.lease, 1);
		assert_int_equal(etcd.leases, 1);
		pthread_mutex_unlock(&etcd_lock);
	}
	remote->end(f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(without_a_thread, begin),
		cmocka_unit_test_setup(late_request_of_a_former_process, begin),
		cmocka_unit_test_setup(late_request_in_between, begin),
		cmocka_unit_test_setup(a_lease_without_time, begin),
		cmocka_unit_test_setup(others_set_its_key, begin),
		cmocka_unit_test_setup(another_program_takes_its_key, begin),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
