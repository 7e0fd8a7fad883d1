/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The control socket of a node: node.PID in the private folder. A client connects, sends one
 * request (node/request.h) and receives one JSON object. The folder is closed to other users; the
 * credentials of the peer are checked nevertheless. Runs in one thread; no function blocks.
 */
#ifndef ROOST_CLI_NODE_CONTROL_H
#define ROOST_CLI_NODE_CONTROL_H

#include <jansson.h>
#include <poll.h>
#include <stdbool.h>

#include "base/rest.h"
#include "cli/node/request.h"

#define NODE_CONTROL_PEERS 8 /* at this number of peers, the oldest is disconnected */
#define NODE_CONTROL_FDS   (1 + NODE_CONTROL_PEERS)

struct node_control {
	int dirfd, fd;
	int spare;	  /* base/spare.h */
	struct rest rest; /* of the socket; in ms of clock_ns() */
	uint64_t turn;
	struct node_peer {
		int fd; /* -1: a free slot */
		uint64_t since;
		size_t have;
		char line[NODE_REQUEST_MAX];
	} peer[NODE_CONTROL_PEERS];
	json_t *(*answer)(void *ctx, const struct node_request *r); /* returns a new object */
	void *ctx;
};

/*
 * Opens the control socket. Returns 0, or -errno with a line in err. The caller sets .answer and
 * .ctx.
 */
int node_control_open(struct node_control *c, char *err, size_t errlen);
void node_control_close(struct node_control *c);
/*
 * Fills NODE_CONTROL_FDS entries for poll(2), and returns the most ms that it may wait; -1: any
 * time.
 */
int node_control_fds(struct node_control *c, struct pollfd *p);
/* Handles the result of poll(2). Returns true if a client may have requested a change. */
bool node_control_serve(struct node_control *c, const struct pollfd *p);

#endif
