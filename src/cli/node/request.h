/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a running node can be asked at its control socket: one line, a JSON object, and one JSON
 * object comes back.
 *
 *	{"do": "stat"}
 *	{"do": "load", "file": "/opt/sum.so"}	also "replace"
 *	{"do": "unload", "op": 4096}			or "kernel": "sum"
 */
#ifndef ROOST_CLI_NODE_REQUEST_H
#define ROOST_CLI_NODE_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NODE_REQUEST_MAX 8192 /* bytes of a line */
#define NODE_FILE_MAX	 4096
#define NODE_NAME_MAX	 64

enum node_do { NODE_STAT, NODE_LOAD, NODE_REPLACE, NODE_UNLOAD };

struct node_request {
	enum node_do what;
	char file[NODE_FILE_MAX];   /* load, replace: an absolute path */
	char kernel[NODE_NAME_MAX]; /* unload: its name; empty: by op */
	uint64_t op;
};

/* The line, without its end, may be anything. False with a line in err. */
bool node_request_parse(const char *line, size_t len, struct node_request *r, char *err,
			size_t errlen);

#endif
