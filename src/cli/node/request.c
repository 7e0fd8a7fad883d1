/* SPDX-License-Identifier: BSD-2-Clause */
#include "cli/node/request.h"

#include <stdio.h>
#include <string.h>

#include <jansson.h>

static const char *const names[] = {[NODE_STAT] = "stat",
				    [NODE_LOAD] = "load",
				    [NODE_REPLACE] = "replace",
				    [NODE_UNLOAD] = "unload",
				    [NODE_SNAPSHOT] = "snapshot"};

static bool refuse(char *err, size_t errlen, const char *why)
{
	snprintf(err, errlen, "%s", why);
	return false;
}

/* Reads a text of 1 .. space - 1 bytes. */
static bool take_text(const json_t *o, const char *key, char *to, size_t space)
{
	const json_t *v = json_object_get(o, key);
	size_t n = json_string_length(v);

	if (n == 0 || n >= space)
		return false;
	memcpy(to, json_string_value(v), n + 1);
	return true;
}

static bool take_do(const json_t *o, struct node_request *r)
{
	const char *s = json_string_value(json_object_get(o, "do"));

	for (size_t i = 0; s && i < sizeof(names) / sizeof(names[0]); i++) {
		if (strcmp(s, names[i]) == 0) {
			r->what = (enum node_do)i;
			return true;
		}
	}
	return false;
}

static bool take_all(const json_t *o, struct node_request *r, char *err, size_t errlen)
{
	const json_t *op = json_object_get(o, "op");

	if (!take_do(o, r))
		return refuse(err, errlen, "\"do\" is stat, load, replace, unload or snapshot");
	if ((r->what == NODE_LOAD || r->what == NODE_REPLACE) &&
	    (!take_text(o, "file", r->file, sizeof(r->file)) || r->file[0] != '/'))
		return refuse(err, errlen, "\"file\" is the absolute path of an object file");
	if (r->what != NODE_UNLOAD || take_text(o, "kernel", r->kernel, sizeof(r->kernel)))
		return true;
	if (!json_is_integer(op))
		return refuse(err, errlen, "\"kernel\" is a name, or \"op\" a number");
	r->op = (uint64_t)json_integer_value(op);
	return true;
}

bool node_request_parse(const char *line, size_t len, struct node_request *r, char *err,
			size_t errlen)
{
	json_t *o = json_loadb(line, len, JSON_REJECT_DUPLICATES, NULL);
	bool ok;

	memset(r, 0, sizeof(*r));
	ok = json_is_object(o) ? take_all(o, r, err, errlen)
			       : refuse(err, errlen, "a request is one line with a JSON object");
	json_decref(o);
	return ok;
}
