/* SPDX-License-Identifier: BSD-2-Clause */
/* What etcd is asked, and what is taken from its answers; the pauses between requests. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "etcd/answer.h"

static void test_requests(void **state)
{
	char *body = etcd_range_request("a/b");

	(void)state;
	assert_string_equal(body, "{\"key\":\"YS9i\"}");
	free(body);
	body = etcd_put_request("a", 12, "hello", 5, "m", 255, NULL);
	assert_string_equal(
		body,
		"{\"compare\":[{\"key\":\"YQ==\",\"target\":\"MOD\",\"result\":\"EQUAL\","
		"\"mod_revision\":\"12\"}],\"success\":[{\"request_put\":{\"key\":\"YQ==\","
		"\"value\":\"aGVsbG8=\"}},{\"request_put\":{\"key\":\"bQ==\",\"value\":\"ZmY=\"}}]}");
	free(body);
	body = etcd_put_request("a", 12, "hello", 5, "m", 255, "g");
	assert_non_null(strstr(body,
			       "\"mod_revision\":\"12\"},{\"key\":\"Zw==\",\"target\":\"CREATE\","
			       "\"result\":\"EQUAL\",\"create_revision\":\"0\"}],"));
	free(body);
	body = etcd_check_request("a", "m", 255);
	assert_string_equal(
		body, "{\"compare\":[{\"key\":\"bQ==\",\"target\":\"VALUE\",\"result\":\"EQUAL\","
		      "\"value\":\"ZmY=\"}],\"success\":[{\"request_range\":{\"key\":\"YQ==\"}}]}");
	free(body);
}

static int range(const char *body, struct etcd_value *v)
{
	char why[200] = "";
	int rc = etcd_range_answer(body, strlen(body), v, why, sizeof(why));

	assert_int_equal(!rc, !*why);
	return rc;
}

static void test_values(void **state)
{
	static const struct {
		const char *base64, *value;
	} values[] = {
		{"", ""}, {"YQ==", "a"}, {"YWI=", "ab"}, {"YWJj", "abc"}, {"YWJjZA==", "abcd"}};
	struct etcd_value v;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(values); i++) {
		char body[200];

		snprintf(body, sizeof(body),
			 "{\"header\":{},\"kvs\":[{\"mod_revision\":\"6\",\"value\":\"%s\"}]}",
			 values[i].base64);
		assert_int_equal(range(body, &v), 0);
		assert_int_equal(v.revision, 6);
		assert_int_equal(v.len, strlen(values[i].value));
		assert_memory_equal(v.text, values[i].value, v.len);
		free(v.text);
	}
	assert_int_equal(v.lease, 0);
	assert_int_equal(
		range("{\"header\":{},\"kvs\":[{\"mod_revision\":\"6\",\"lease\":\"77\"}]}", &v),
		0);
	assert_int_equal(v.lease, 77);
	free(v.text);
	assert_int_equal(range("{\"header\":{\"revision\":\"3\"}}", &v), 0);
	assert_int_equal(v.revision, 0);
	assert_null(v.text);
}

static void test_bad_values(void **state)
{
	static const char *const bad[] = {
		"",
		"[]",
		"{",
		"{}",
		"<html>",
		"{\"header\":{},\"kvs\":[{}]}",
		"{\"header\":{},\"kvs\":[{\"mod_revision\":6}]}",
		"{\"header\":{},\"kvs\":[{\"mod_revision\":\"-6\"}]}",
		"{\"header\":{},\"kvs\":[{\"mod_revision\":\"0\"}]}",
		"{\"header\":{},\"kvs\":[{\"mod_revision\":\"99999999999999999999\"}]}",
		"{\"header\":{},\"kvs\":[{\"mod_revision\":\"6\",\"value\":\"a\"}]}",
		"{\"header\":{},\"kvs\":[{\"mod_revision\":\"6\",\"value\":\"a===\"}]}",
		"{\"header\":{},\"kvs\":[{\"mod_revision\":\"6\",\"value\":\"YQ==YQ==\"}]}",
	};
	struct etcd_value v;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(range(bad[i], &v), -EBADMSG);
}

static void test_transactions(void **state)
{
	static const struct {
		const char *body;
		int rc;
		bool done;
		uint64_t revision;
	} rows[] = {
		{"{\"header\":{\"revision\":\"9\"},\"succeeded\":true}", 0, true, 9},
		{"{\"header\":{\"revision\":\"9\"}}", 0, false, 9},
		{"{\"header\":{\"revision\":\"9\"},\"succeeded\":\"true\"}", 0, false, 9},
		{"{\"header\":{\"revision\":\"9\"},\"succeeded\":true,\"responses\":[{\"response_"
		 "range\":{\"kvs\":[{\"mod_revision\":\"4\"}]}}]}",
		 0, true, 4},
		{"{\"header\":{\"revision\":\"9\"},\"succeeded\":true,\"responses\":[{\"response_"
		 "range\":{}}]}",
		 0, false, 0},
		{"{\"succeeded\":true}", -EBADMSG, false, 0},
		{"nothing", -EBADMSG, false, 0},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		uint64_t revision = 0;
		char why[200] = "";
		bool done = false;

		assert_int_equal(etcd_txn_answer(rows[i].body, strlen(rows[i].body), &done,
						 &revision, why, sizeof(why)),
				 rows[i].rc);
		assert_int_equal(done, rows[i].done);
		assert_int_equal(revision, rows[i].revision);
		assert_int_equal(!rows[i].rc, !*why);
	}
}

static int leased(const char *body, uint64_t *lease, uint64_t *seconds)
{
	char why[200] = "";

	*lease = *seconds = 99;
	return etcd_lease_answer(body, strlen(body), lease, seconds, why, sizeof(why));
}

static void test_leases(void **state)
{
	char *body = etcd_member_request("a", "b", 7, UINT64_MAX, 10);
	uint64_t lease, seconds;

	(void)state;
	assert_string_equal(
		body, "{\"compare\":[{\"key\":\"YS9i\",\"target\":\"MOD\",\"result\":\"EQUAL\","
		      "\"mod_revision\":\"7\"}],\"success\":[{\"request_put\":{\"key\":\"YS9i\","
		      "\"value\":\"MTA=\",\"lease\":\"18446744073709551615\"}}]}");
	free(body);
	body = etcd_lock_request("a", "b", 3);
	assert_string_equal(
		body, "{\"compare\":[{\"key\":\"YS9i\",\"target\":\"CREATE\",\"result\":\"EQUAL\","
		      "\"create_revision\":\"0\"}],\"success\":[{\"request_put\":{\"key\":\"YS9i\","
		      "\"value\":\"\",\"lease\":\"3\"}}]}");
	free(body);
	assert_int_equal(leased("{\"header\":{},\"ID\":\"7\",\"TTL\":\"10\"}", &lease, &seconds),
			 0);
	assert_int_equal(lease, 7);
	assert_int_equal(seconds, 10);
	assert_int_equal(leased("{\"result\":{\"ID\":\"8\",\"TTL\":\"11\"}}\n", &lease, &seconds),
			 0);
	assert_int_equal(lease, 8);
	assert_int_equal(seconds, 11);
	assert_int_equal(leased("{\"result\":{\"ID\":\"8\"}}\n", &lease, &seconds), 0);
	assert_int_equal(seconds, 0);
	assert_int_equal(leased("{\"error\":{}}", &lease, &seconds), -EBADMSG);
	assert_int_equal(leased("7", &lease, &seconds), -EBADMSG);
}

static void add_name(void *ctx, const char *name, unsigned seconds)
{
	sprintf((char *)ctx + strlen(ctx), "%s %u ", name, seconds);
}

static int below(const char *body, char *names)
{
	char why[200] = "";

	*names = '\0';
	return etcd_below_answer(body, strlen(body), "a", add_name, names, why, sizeof(why));
}

static void test_members(void **state)
{
	char *body = etcd_below_request("a"), names[100];

	(void)state;
	assert_string_equal(body, "{\"key\":\"YS8=\",\"range_end\":\"YTA=\"}");
	free(body);
	assert_int_equal(below("{\"header\":{}}", names), 0);
	assert_string_equal(names, "");
	assert_int_equal(below("{\"header\":{},\"kvs\":[{\"key\":\"YS9i\",\"value\":\"MTI=\"},"
			       "{\"key\":\"YS9jYw==\",\"value\":\"MTJh\"},{\"key\":\"YS9k\"}]}",
			       names),
			 0);
	assert_string_equal(names, "b 12 cc 0 d 0 ");
	assert_int_equal(below("{\"header\":{},\"kvs\":[{\"key\":\"Yi9i\"}]}", names), -EBADMSG);
	assert_int_equal(below("{\"header\":{},\"kvs\":[{}]}", names), -EBADMSG);
	assert_int_equal(below("{\"kvs\":[]}", names), -EBADMSG);
}

static void test_watches(void **state)
{
	static const struct {
		const char *text;
		size_t used;
		int rc;
		bool changed;
	} rows[] = {
		{"", 0, 0, false},
		{"{\"result\"", 0, 0, false},
		{"\n\n{\"re", 2, 0, false},
		{"{\"result\":{\"header\":{}}}\n{", 25, 0, false},
		{"{\"result\":{\"created\":true}}\n", 28, 0, true},
		{"{\"result\":{\"events\":[]}}\n", 25, 0, false},
		{"{\"result\":{\"events\":[{}]}}\n{\"result\":{}}\n", 41, 0, true},
		{"{\"result\":{\"created\":true,\"canceled\":true}}\n", 44, -EBADMSG, false},
		{"{\"error\":{\"message\":\"no\"}}\n", 27, -EBADMSG, false},
		{"{\"result\":{\"created\":true}}\n7\n{}\n", 30, -EBADMSG, true},
		{"{\n", 2, -EBADMSG, false},
	};
	char *body = etcd_watch_request("a");

	(void)state;
	assert_string_equal(body, "{\"create_request\":{\"key\":\"YQ==\"}}");
	free(body);
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		bool changed = true;
		size_t used = 99;

		assert_int_equal(
			etcd_watch_lines(rows[i].text, strlen(rows[i].text), &used, &changed),
			rows[i].rc);
		assert_int_equal(used, rows[i].used);
		assert_int_equal(changed, rows[i].changed);
	}
}

static void test_errors(void **state)
{
	const char *body = "{\"error\":\"no\",\"message\":\"no\\nleader\"}";
	char why[40] = "as before";

	(void)state;
	etcd_error_answer("?", 1, why, sizeof(why));
	assert_string_equal(why, "as before");
	etcd_error_answer(body, strlen(body), why, sizeof(why));
	assert_string_equal(why, "no leader");
}

static void test_pauses(void **state)
{
	(void)state;
	assert_int_equal(etcd_pause_ms(0, false), 1000);
	assert_in_range(etcd_pause_ms(0, true), 2000, 10000);
	assert_in_range(etcd_pause_ms(1, true), 1, 200);
	for (unsigned i = 1; i < 40; i++)
		assert_in_range(etcd_pause_ms(i + 1, i & 1), etcd_pause_ms(i, true), 1000);
	assert_int_equal(etcd_pause_ms(UINT32_MAX, false), 1000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_requests),   cmocka_unit_test(test_values),
		cmocka_unit_test(test_bad_values), cmocka_unit_test(test_transactions),
		cmocka_unit_test(test_errors),	   cmocka_unit_test(test_pauses),
		cmocka_unit_test(test_leases),	   cmocka_unit_test(test_members),
		cmocka_unit_test(test_watches),
	};

	return cmocka_run_group_tests_name("etcd answers", tests, NULL, NULL);
}
