/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Gets from a cache whose gets are chains.
 *
 *	example-memcached-get ADDRESS SERVICE KEY...   prints the values
 *	example-memcached-get ADDRESS SERVICE -        reads keys from its input, one a line, and
 *	                                               answers each by a line: "HIT VALUE" or "MISS"
 */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "client.h"

#define SPACE (68u << 10)

/* Returns false if the connection failed. */
static bool answer(struct cache_client *c, const char *key)
{
	const struct roost_cache_item *item;
	int found = cache_get(c, key, (uint32_t)strlen(key), &item);

	if (found < 0) {
		fprintf(stderr, "%s: %s\n", key, strerror(-found));
		return false;
	}
	if (found) {
		fputs("HIT ", stdout);
		fwrite(roost_cache_item_value(item), 1, item->value_len, stdout);
		putchar('\n');
	} else {
		puts("MISS");
	}
	return true;
}

static bool answer_input(struct cache_client *c)
{
	char line[512];

	while (fgets(line, sizeof(line), stdin)) {
		line[strcspn(line, "\n")] = 0;
		if (!answer(c, line))
			return false;
		fflush(stdout);
	}
	return true;
}

int main(int argc, char **argv)
{
	struct cache_client *c;
	bool ok = true;

	if (argc < 4) {
		fprintf(stderr, "usage: example-memcached-get ADDRESS SERVICE KEY...|-\n");
		return 2;
	}
	c = cache_connect(argv[1], argv[2], SPACE);
	if (!c) {
		fprintf(stderr, "%s: %s\n", argv[1], strerror(errno));
		return 1;
	}
	if (strcmp(argv[3], "-") == 0)
		ok = answer_input(c);
	else
		for (int i = 3; i < argc && ok; i++)
			ok = answer(c, argv[i]);
	cache_close(c);
	return !ok;
}
