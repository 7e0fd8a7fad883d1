/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Requests to a running node at its control socket. A request is one line with a JSON object; the
 * node answers with one JSON object.
 *
 *	{"do": "stat"}
 *	{"do": "load", "file": "/opt/sum.so"}	also "replace"
 *	{"do": "unload", "op": 4096}			or "kernel": "sum"
 *	{"do": "snapshot"}
 */
#ifndef ROOST_CLI_NODE_REQUEST_H
#define ROOST_CLI_NODE_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NODE_REQUEST_MAX 8192 /* bytes of a line */
#define NODE_FILE_MAX	 4096
#define NODE_NAME_MAX	 64

enum node_do { NODE_STAT, NODE_LOAD, NODE_REPLACE, NODE_UNLOAD, NODE_SNAPSHOT };

struct node_request {
	enum node_do what;
	char file[NODE_FILE_MAX];   /* load, replace: an absolute path */
	char kernel[NODE_NAME_MAX]; /* unload: name of the kernel; empty: by op */
	uint64_t op;
};

/*
 * Parses a line without its end; the line is untrusted. Returns false with a line in err if it is
 * invalid.
 */
bool node_request_parse(const char *line, size_t len, struct node_request *r, char *err,
			size_t errlen);

#endif
