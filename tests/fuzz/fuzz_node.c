/* SPDX-License-Identifier: BSD-2-Clause */
/* Fuzzes requests at a node's control socket: an accepted request keeps its bounds. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "cli/node/request.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool ok)
{
	if (!ok)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct node_request r;
	char err[64] = "";

	if (!node_request_parse((const char *)data, size, &r, err, sizeof(err))) {
		must(*err && strlen(err) < sizeof(err));
		return 0;
	}
	must(r.what <= NODE_SNAPSHOT);
	must(strlen(r.file) < sizeof(r.file) && strlen(r.kernel) < sizeof(r.kernel));
	must((r.what != NODE_LOAD && r.what != NODE_REPLACE) || *r.file == '/');
	return 0;
}
