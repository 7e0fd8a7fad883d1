/* SPDX-License-Identifier: BSD-2-Clause */
/* Names of tables in etcd. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "etcd/name.h"

static int parse(const char *text, struct etcd_name *n)
{
	char why[500] = "";
	int rc = etcd_name_parse(n, text, why, sizeof(why));

	assert_int_equal(!rc, !*why);
	assert_null(strchr(why, '\n'));
	return rc;
}

static void good(void **state)
{
	static const struct {
		const char *text, *first, *last, *key;
		unsigned endpoints;
	} rows[] = {
		{"etcd:http://a:1/k", "http://a:1", "http://a:1", "k", 1},
		{"etcd:https://a/k/l", "https://a", "https://a", "k/l", 1},
		{"etcd:http://a:1,https://b-2.c:65535/k", "http://a:1", "https://b-2.c:65535", "k",
		 2},
		{"etcd:10.0.0.1:2379,10.0.0.2:2379,c/k,1", "http://10.0.0.1:2379", "http://c",
		 "k,1", 3},
		{"etcd:http://[::1]:2379/k", "http://[::1]:2379", "http://[::1]:2379", "k", 1},
		{"etcd:a,b,c,d,e,f,g,h/k", "http://a", "http://h", "k", 8},
	};
	struct etcd_name n;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		assert_int_equal(parse(rows[i].text, &n), 0);
		assert_int_equal(n.endpoints, rows[i].endpoints);
		assert_string_equal(n.endpoint[0], rows[i].first);
		assert_string_equal(n.endpoint[n.endpoints - 1], rows[i].last);
		assert_string_equal(n.key, rows[i].key);
	}
}

static void bad(void **state)
{
	static const char *const rows[] = {
		"etcd:",
		"etcd:/k",
		"etcd:http:///k",
		"etcd:http://",
		"etcd:http://a",
		"etcd:http://a:1/",
		"etcd:ftp://a/k",
		"etcd:http:/a/k",
		"etcd:http://a:/k",
		"etcd:http://a:0/k",
		"etcd:http://a:65536/k",
		"etcd:http://a:123456/k",
		"etcd:http://a:1x/k",
		"etcd:http://a:1,/k",
		"etcd:,http://a:1/k",
		"etcd:http://a,,b/k",
		"etcd:http://a b/k",
		"etcd:http://u@a/k",
		"etcd:http://[::1/k",
		"etcd:http://[]/k",
		"etcd:http://[::1]1/k",
		"etcd:http://:1/k",
		"etcd:http://a\n/k",
		"etcd:http://::1/k",
		"etcd:a,b,c,d,e,f,g,h,i/k",
	};
	struct etcd_name n;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		if (parse(rows[i], &n) != -EINVAL)
			fail_msg("'%s' was taken", rows[i]);
	}
}

static void long_names(void **state)
{
	char text[1000];
	struct etcd_name n;

	(void)state;
	snprintf(text, sizeof(text), "etcd:%0*d/k", (int)ETCD_ENDPOINT_MAX - 8, 0);
	assert_int_equal(parse(text, &n), 0);
	snprintf(text, sizeof(text), "etcd:%0*d/k", (int)ETCD_ENDPOINT_MAX - 7, 0);
	assert_int_equal(parse(text, &n), -EINVAL);
	snprintf(text, sizeof(text), "etcd:a/%0*d", (int)ETCD_KEY_MAX - 1, 0);
	assert_int_equal(parse(text, &n), 0);
	snprintf(text, sizeof(text), "etcd:a/%0*d", (int)ETCD_KEY_MAX, 0);
	assert_int_equal(parse(text, &n), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(good),
		cmocka_unit_test(bad),
		cmocka_unit_test(long_names),
	};

	return cmocka_run_group_tests_name("names in etcd", tests, NULL, NULL);
}
