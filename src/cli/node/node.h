/* SPDX-License-Identifier: BSD-2-Clause */
/* `roost node`: what its files share. One thread does all that is not the NIC's own. */
#ifndef ROOST_CLI_NODE_H
#define ROOST_CLI_NODE_H

#include <jansson.h>
#include <rdma/rdma_cma.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "cli/node/table.h"

#define NODE_ERR_LEN 512

struct drive;

struct node {
	/* as the command line says */
	const char *name; /* by which `roost kernel` finds it; NULL: none */
	uint16_t service;
	uint64_t limit; /* bytes that connections and kernels may take */
	bool verbose;

	struct drive *drive;
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq; /* of all connections: a node posts nothing, so nothing completes */
	struct ibv_mr *mr;
	struct node_region region;
	struct rdma_event_channel *channel;
	struct rdma_cm_id *listener;
	char address[64];
	struct list_head conns;
	uint64_t num_conns, connected; /* now, and ever */
	/* a connection was refused for want of memory; none was taken since */
	bool full;
	char err[NODE_ERR_LEN];
};

/* 0, or a negative errno with n->err. */
int node_fail(struct node *n, int rc, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* ---- node_serve.c ---- */

/* Opens the NIC: n->ctx, n->pd. node_close() takes half of it. */
int node_open(struct node *n);
/* Registers the region, listens. */
int node_listen(struct node *n);
/* n->channel has an event. */
int node_on_event(struct node *n);
void node_close(struct node *n);

/* ---- node_kernels.c ---- */

/* The built-in ones with these names, apart by commas; "all", "none". */
int node_deploy(struct node *n, const char *names);
/* Ends versions that were replaced or unloaded and have no calls any more. True: one has. */
bool node_reap(const struct node *n);
/* What `roost kernel` asks: the request's own answer, or {"error": ...}. */
struct node_request;
json_t *node_answer(void *node, const struct node_request *r);

#endif
