/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Fuzzes the readers of etcd's answers. The first byte selects the kind of the answer. An answer
 * that is refused has one line about the reason; a value that is taken has a revision.
 */
#include <stdlib.h>
#include <string.h>

#include "etcd/answer.h"
#include "input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_range(const char *body, size_t len)
{
	char why[200] = "";
	struct etcd_value v;
	int rc = etcd_range_answer(body, len, &v, why, sizeof(why));

	must(!rc == !*why && !strchr(why, '\n'), "an error is not one line");
	if (rc)
		return;
	must(!v.revision == !v.text, "a value has a revision");
	must(v.len <= len, "a value is longer than its base64");
	free(v.text);
}

static void read_txn(const char *body, size_t len)
{
	uint64_t revision = 0;
	char why[200] = "";
	bool done = false;
	int rc = etcd_txn_answer(body, len, &done, &revision, why, sizeof(why));

	must(!rc == !*why && !strchr(why, '\n'), "an error is not one line");
	must(rc || !done || revision, "a change has a revision");
}

static void found(void *ctx, const char *name, unsigned seconds)
{
	must(seconds <= 86400, "a lease of more than a day");
	*(size_t *)ctx += strlen(name);
}

static void read_lease(const char *body, size_t len)
{
	uint64_t lease = 0, seconds = 0;
	char why[200] = "";
	int rc = etcd_lease_answer(body, len, &lease, &seconds, why, sizeof(why));

	must(!rc == !*why && !strchr(why, '\n'), "an error is not one line");
}

static void read_below(const char *body, size_t len)
{
	char why[200] = "";
	size_t all = 0;
	int rc = etcd_below_answer(body, len, "a", found, &all, why, sizeof(why));

	must(!rc == !*why && !strchr(why, '\n'), "an error is not one line");
	must(all <= len, "names are longer than their base64");
}

/* Lines that come in two pieces have the same result as one text, up to the first error. */
static void read_watch(const char *body, size_t len)
{
	size_t used, cut = len / 2, first, rest;
	bool changed, before, behind;
	int rc = etcd_watch_lines(body, len, &used, &changed), rc2;

	must(used <= len && (!used || body[used - 1] == '\n'), "whole lines are read");
	rc2 = etcd_watch_lines(body, cut, &first, &before);
	must(first <= cut, "more than there is");
	if (rc2)
		return;
	rc2 = etcd_watch_lines(body + first, len - first, &rest, &behind);
	must(rc == rc2 && used == first + rest && changed == (before || behind),
	     "the result depends on the pieces");
}

static void read_error(const char *body, size_t len)
{
	char why[40] = "";

	etcd_error_answer(body, len, why, sizeof(why));
	must(!strchr(why, '\n'), "an error is not one line");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *body = (const char *)data + 1;

	if (!size)
		return 0;
	if (*data == 'r')
		read_range(body, size - 1);
	else if (*data == 't')
		read_txn(body, size - 1);
	else if (*data == 'l')
		read_lease(body, size - 1);
	else if (*data == 'b')
		read_below(body, size - 1);
	else if (*data == 'w')
		read_watch(body, size - 1);
	else
		read_error(body, size - 1);
	return 0;
}
