/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The control socket of a node: node.PID in the private folder. Who connects sends one request
 * (node_request.h) and gets one JSON object. The folder keeps other users out, and the peer's
 * credentials are checked all the same. One thread; nothing here blocks.
 */
#ifndef ROOST_CLI_NODE_CONTROL_H
#define ROOST_CLI_NODE_CONTROL_H

#include <jansson.h>
#include <poll.h>
#include <stdbool.h>

#include "cli/node/request.h"

#define NODE_CONTROL_PEERS 8 /* who says nothing is let go when so many do */
#define NODE_CONTROL_FDS   (1 + NODE_CONTROL_PEERS)

struct node_control {
	int dirfd, fd;
	uint64_t turn;
	struct node_peer {
		int fd; /* -1: a free slot */
		uint64_t since;
		size_t have;
		char line[NODE_REQUEST_MAX];
	} peer[NODE_CONTROL_PEERS];
	json_t *(*answer)(void *ctx, const struct node_request *r); /* a new object */
	void *ctx;
};

/* 0, or -errno with a line in err. .answer and .ctx are the caller's to set. */
int node_control_open(struct node_control *c, char *err, size_t errlen);
void node_control_close(struct node_control *c);
/* What to poll for: fills NODE_CONTROL_FDS entries. */
void node_control_fds(const struct node_control *c, struct pollfd *p);
/* After a poll of these. True: somebody may have asked for a change. */
bool node_control_serve(struct node_control *c, const struct pollfd *p);

#endif
