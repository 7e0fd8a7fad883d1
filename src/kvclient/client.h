/* SPDX-License-Identifier: BSD-2-Clause */
/* Internals of a connection to a store, for the files of src/kvclient. */
#ifndef ROOST_KVCLIENT_CLIENT_H
#define ROOST_KVCLIENT_CLIENT_H

#include <infiniband/verbs.h>

#include "kvwire/kvwire.h"
#include "roost/kv.h"
#include "roost/node.h"
#include "roost/verbs.h"

/*
 * This is less than the slots for calls and the WRITEs of replies that the node has for a
 * connection.
 */
#define CALLS_MAX 160u
/* The key of a call: the store is the kernel's own memory. */
#define NO_REGION 0
/* A cut value is requested again in a batch up to this length, otherwise in a long reply. */
#define SHORT_MAX 8192u

struct op_list {
	struct roost_kv_op *first, *last;
};

static inline void op_list_add(struct op_list *l, struct roost_kv_op *op)
{
	op->next = NULL;
	if (l->last)
		l->last->next = op;
	else
		l->first = op;
	l->last = op;
}

/* A batch in flight. */
struct flight {
	struct op_list ops;
	unsigned id; /* id of the call */
};

/*
 * Calls with an operation that does not fit into a packet, or whose reply does not: one at a time.
 */
struct long_lane {
	struct roost_caller *caller; /* NULL: not used yet */
	struct roost_kv_op *op;	     /* the operation in flight; NULL: none */
	unsigned id;
	uint32_t unsent; /* bytes of payload that wait for space in the send queue */
	uint8_t *batch;	 /* KVWIRE_BATCH_MAX bytes */
	struct ibv_mr *mr;
};

struct kvc_table;

struct roost_kv {
	struct roost_node *node;
	struct roost_caller *caller;
	unsigned batches, ops_max;
	uint64_t timeout_ns;
	int err;		  /* the connection ended */
	unsigned open, completed; /* operations that are not done, and that were done in total */

	struct kvwire_writer w; /* the current batch */
	uint8_t batch[ROOST_RPC_MAX_PARAMS];
	uint32_t batch_max;   /* bytes of a batch: the path MTU less the head of a call */
	uint64_t reply_space; /* bytes that the reply to the current batch must have */
	struct op_list ops;
	/*
	 * Operations that were done, and whose callbacks come next. Those of a node of a table are
	 * in the list of `whole`.
	 */
	struct op_list finished;
	/* Operations of callbacks for which the batch has no space, while the window is full. */
	struct op_list waiting;
	bool hold;	    /* a callback runs, and those of `finished` come after it */
	unsigned callbacks; /* on the stack: more than one if a callback waits */
	unsigned sent;	    /* batches */

	/* a ring, the oldest at `oldest`: its reply comes first, or nearly so */
	struct flight flight[CALLS_MAX];
	unsigned oldest, in_flight;
	struct long_lane lane;
	bool resend; /* the current batch has operations that request cut data again */
	/*
	 * A connection to all nodes of a table uses `nodes`, and of the fields above only err,
	 * open, completed, timeout_ns, finished, hold and callbacks. A connection to one node of a
	 * table has `whole`, the connection to all nodes.
	 */
	struct kvc_table *nodes;
	struct roost_kv *whole;
	struct roost_kv *retired; /* next connection of kvc_table.retired */
	/* operations to request in the long lane when the lane is free */
	struct op_list long_queue;
};

/* ---- client.c ---- */

uint64_t kvc_now(void);
/* Waits between two polls that found nothing, and began at `start`. */
void kvc_pause(uint64_t start);
/* Calls the callbacks of the operations that are done, unless a callback runs already. */
void kvc_run_callbacks(struct roost_kv *kv);
/* Ends an operation that is in none of the lists. */
void kvc_complete(struct roost_kv *kv, struct roost_kv_op *op);
/* Ends the connection. All its operations get this status. */
void kvc_fail(struct roost_kv *kv, int err);
/* Checks code and lengths. Returns 0, -EINVAL or -E2BIG. */
int kvc_check(const struct roost_kv_op *op);
/* Returns whether operations with this code have a key. */
bool kvc_has_key(unsigned code);

/* ---- table.c ---- */

/* The functions of roost/kv.h, for a connection to all nodes of a table. */
int kvc_table_submit(struct roost_kv *whole, struct roost_kv_op *op);
int kvc_table_flush(struct roost_kv *whole);
int kvc_table_poll(struct roost_kv *whole);
int kvc_table_wait(struct roost_kv *whole);
void kvc_table_close(struct roost_kv *whole);
/* Takes back an operation that a node has refused, to repeat it. Returns false if it is done. */
bool kvc_table_requeue(struct roost_kv *whole, struct roost_kv_op *op);

/* ---- long.c ---- */

/* Starts an operation in the lane, which is free. Returns 0 or a negative errno. */
int kvc_long_start(struct roost_kv *kv, struct roost_kv_op *op);
/*
 * Checks the operation in the lane. If it is done, frees the lane, sets the status of the operation
 * and returns it; else NULL. Sets kv->err if the connection has ended.
 */
struct roost_kv_op *kvc_long_poll(struct roost_kv *kv);
void kvc_long_close(struct roost_kv *kv); /* must be called after the queue pair was destroyed */

/* ---- reply.c ---- */

/*
 * Sets the results of operations from the reply of their call. Operations whose data were cut, and
 * for which `out` has space, keep the status -EAGAIN and the length in out_len.
 */
void kvc_take_reply(struct roost_kv_op *first, const struct roost_result *result);
/*
 * Returns the bytes that the reply to a batch must have for the operation's result. `alone`: it is
 * the only operation of the batch.
 */
uint64_t kvc_result_space(const struct roost_kv_op *op, bool alone);

#endif
