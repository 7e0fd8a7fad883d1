/* SPDX-License-Identifier: BSD-2-Clause */
/* `roost node`: declarations that its files share. One thread does all work outside of the NIC. */
#ifndef ROOST_CLI_NODE_H
#define ROOST_CLI_NODE_H

#include <jansson.h>
#include <rdma/rdma_cma.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "cli/node/partitions.h"
#include "cli/node/store.h"
#include "cli/node/table.h"

#define NODE_ERR_LEN 512

struct drive;

struct node {
	/* from the command line */
	const char *name; /* the name for `roost kernel`; NULL: none */
	uint16_t service;
	uint64_t limit; /* bytes of memory that connections and kernels may take */
	bool verbose;
	struct node_store kv;
	struct node_partitions partitions;

	struct drive *drive;
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq; /* CQ of all connections; always empty, since a node posts nothing */
	struct ibv_mr *mr;
	struct node_region region;
	struct rdma_event_channel *channel;
	struct rdma_cm_id *listener;
	char address[64];
	struct list_head conns;
	uint64_t num_conns, connected; /* current connections; all connections since the start */
	/* a connection was refused for lack of memory, and no connection was accepted since */
	bool full;
	char err[NODE_ERR_LEN];
};

/* Sets n->err. Returns rc, 0 or a negative errno. */
int node_fail(struct node *n, int rc, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* ---- node/serve.c ---- */

/* Opens the NIC: n->ctx, n->pd. node_close() accepts a partly opened node. */
int node_open(struct node *n);
/* Registers the region and listens for connections. */
int node_listen(struct node *n);
/* Handles an event of n->channel. */
int node_on_event(struct node *n);
void node_close(struct node *n); /* closes all objects except the store */

/* ---- node/kernels.c ---- */

/*
 * Deploys the built-in kernels with these names, separated by commas; also "all" and "none". The
 * store is opened, and the kernel kv deployed, if n->kv.config has a size.
 */
int node_deploy(struct node *n, const char *names);
/*
 * Ends versions that were replaced or unloaded and have no calls in progress. Returns true if a
 * version is still leaving.
 */
bool node_reap(const struct node *n);
/* Answers a request of `roost kernel`: the answer of the request, or {"error": ...}. */
struct node_request;
json_t *node_answer(void *node, const struct node_request *r);

#endif
