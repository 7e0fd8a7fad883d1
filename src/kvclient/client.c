/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A connection to the store of a node. Operations are encoded into the current batch when they are
 * submitted. A batch is a call of the kernel `kv`; its reply sets the results of its operations.
 */
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/assert.h"
#include "base/export.h"
#include "kvclient/client.h"

#define BATCHES	   16u
#define OPS	   64u
#define OPS_MAX	   1024u
#define TIMEOUT_MS 5000
/*
 * sends besides those of the calls in flight: a call's WRITE of payload, and calls not yet retired
 */
#define SPARE_SENDS 16
#define SENDS_MIN   64
#define SPIN_NS	    200000u /* a wait polls for this time, and then sleeps between polls */
#define NAP_NS	    50000u

uint64_t kvc_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ---- the end of operations ---- */

static void append(struct op_list *to, const struct op_list *from)
{
	if (!from->first)
		return;
	if (to->last)
		to->last->next = from->first;
	else
		to->first = from->first;
	to->last = from->last;
}

static struct roost_kv_op *take_first(struct op_list *l)
{
	struct roost_kv_op *op = l->first;

	if (!op)
		return NULL;
	l->first = op->next;
	if (!l->first)
		l->last = NULL;
	return op;
}

/* Returns the connection that the program has. */
static struct roost_kv *whole_of(struct roost_kv *kv)
{
	return kv->whole ? kv->whole : kv;
}

/*
 * Callbacks submit operations, which may end others. If their callbacks ran inside of this one, the
 * stack would grow with each of them. So they run in this loop.
 */
void kvc_run_callbacks(struct roost_kv *kv)
{
	struct roost_kv_op *op;

	if (kv->hold)
		return;
	kv->hold = true;
	kv->callbacks++;
	while ((op = take_first(&kv->finished))) {
		kv->open--;
		kv->completed++;
		op->done = true;
		if (op->complete)
			op->complete(op);
	}
	kv->callbacks--;
	kv->hold = false;
}

/* Ends operations that are in no other list. */
static void complete_all(struct roost_kv *kv, const struct op_list *done)
{
	struct roost_kv_op *next;

	if (!kv->whole) {
		append(&kv->finished, done);
		kvc_run_callbacks(kv);
		return;
	}
	for (struct roost_kv_op *op = done->first; op; op = next) {
		next = op->next;
		kv->open--;
		kv->completed++;
		if (!kvc_table_requeue(kv->whole, op))
			op_list_add(&kv->whole->finished, op);
	}
	kvc_run_callbacks(kv->whole);
}

void kvc_complete(struct roost_kv *kv, struct roost_kv_op *op)
{
	struct op_list one = {0};

	op_list_add(&one, op);
	complete_all(kv, &one);
}

static void pop_flight(struct roost_kv *kv)
{
	kv->oldest = kv->oldest + 1 == kv->batches ? 0 : kv->oldest + 1;
	ROOST_ASSERT(kv->in_flight);
	kv->in_flight--;
}

/*
 * Ends all operations when the connection has ended. Calls stay abandoned: their buffers may be
 * written.
 */
void kvc_fail(struct roost_kv *kv, int err)
{
	struct op_list all = kv->ops;

	kv->err = err;
	kv->ops = (struct op_list){0};
	append(&all, &kv->waiting);
	kv->waiting = (struct op_list){0};
	append(&all, &kv->long_queue);
	kv->long_queue = (struct op_list){0};
	for (; kv->in_flight; pop_flight(kv)) {
		struct flight *f = &kv->flight[kv->oldest];

		append(&all, &f->ops);
		roost_call_end(kv->caller, f->id);
	}
	if (kv->lane.op) {
		op_list_add(&all, kv->lane.op);
		roost_call_end(kv->lane.caller, kv->lane.id);
		kv->lane.op = NULL;
	}
	for (struct roost_kv_op *op = all.first; op; op = op->next)
		op->status = err;
	complete_all(kv, &all);
}

/* ---- the current batch ---- */

static void begin_batch(struct roost_kv *kv)
{
	kvwire_begin(&kv->w, kv->batch, kv->batch_max);
	kv->resend = false;
	kv->reply_space = KVWIRE_HEAD;
	kv->ops = (struct op_list){0};
}

static bool add(struct roost_kv *kv, struct roost_kv_op *op)
{
	if (kv->w.count == kv->ops_max || !kvwire_add(&kv->w, op))
		return false;
	op_list_add(&kv->ops, op);
	kv->reply_space += kvc_result_space(op, kv->w.count == 1);
	if (kv->w.count == 2) /* the first one is no longer alone */
		kv->reply_space += kvc_result_space(kv->ops.first, false);
	return true;
}

/* Fills the current batch with operations that callbacks have submitted. */
static void take_waiting(struct roost_kv *kv)
{
	struct roost_kv_op *op, *next;

	while ((op = kv->waiting.first)) {
		next = op->next;
		if (!add(kv, op)) {
			if (kv->w.count)
				return;
			op_list_add(&kv->long_queue, op); /* no batch has space for it */
		}
		kv->waiting.first = next;
		if (!next)
			kv->waiting.last = NULL;
	}
}

/* Sends the current batch. Returns -EAGAIN if too many are in flight. */
static int send_batch(struct roost_kv *kv)
{
	struct flight *f;
	int rc;

	if (!kv->w.count)
		return 0;
	if (kv->in_flight == kv->batches)
		return -EAGAIN;
	f = &kv->flight[(kv->oldest + kv->in_flight) % kv->batches];
	rc = -roost_call_begin(kv->caller, ROOST_KV_OP, NO_REGION, kv->batch,
			       (uint32_t)kvwire_finish(&kv->w, 0),
			       kv->reply_space <= ROOST_CALL_SHORT ? ROOST_RPC_JOIN : 0, &f->id);
	if (rc == -ENOMEM) /* the send queue is full */
		return -EAGAIN;
	if (rc)
		return rc == -EAGAIN ? rc : -ENOTCONN;
	f->ops = kv->ops;
	kv->in_flight++;
	kv->sent++;
	begin_batch(kv);
	if (kv->waiting.first)
		take_waiting(kv);
	return 0;
}

/*
 * Sends the batch if it has operations that wait for it, and, without a batch in flight, in any
 * case: no reply would come that a larger batch waits for.
 */
static int send_due(struct roost_kv *kv)
{
	int rc = 0;

	while (!rc && kv->w.count && (kv->resend || kv->waiting.first || !kv->in_flight))
		rc = send_batch(kv);
	return rc;
}

/* ---- replies ---- */

/* Requests data that were cut again: in the current batch, or in the lane. */
static void request_cut_data(struct roost_kv *kv, struct roost_kv_op *op)
{
	if (op->out_len > SHORT_MAX || !add(kv, op))
		op_list_add(&kv->long_queue, op);
	else
		kv->resend = true;
}

/* Ends the oldest batch, whose reply is there. */
static void end_oldest_batch(struct roost_kv *kv, const struct roost_result *result)
{
	struct flight *f = &kv->flight[kv->oldest];
	struct roost_kv_op *op = f->ops.first, *next;
	struct op_list done = {0};

	kvc_take_reply(op, result);
	roost_call_end(kv->caller, f->id);
	pop_flight(kv);
	for (; op; op = next) {
		next = op->next;
		if (op->status == -EAGAIN)
			request_cut_data(kv, op);
		else
			op_list_add(&done, op);
	}
	complete_all(kv, &done);
}

/* Starts the next operation that waits for the lane. */
static void start_next_long(struct roost_kv *kv)
{
	struct roost_kv_op *op = kv->long_queue.first;
	int rc;

	if (!op || kv->lane.op)
		return;
	rc = kvc_long_start(kv, op);
	if (rc == -EAGAIN)
		return;
	take_first(&kv->long_queue);
	if (!rc)
		return;
	op->status = rc;
	kvc_complete(kv, op);
}

static void poll_lane(struct roost_kv *kv)
{
	struct roost_kv_op *op = kvc_long_poll(kv);

	if (!op)
		return;
	if (op->status == -EBUSY) /* the node's buffers are taken: the operation was not done */
		op_list_add(&kv->long_queue, op);
	else
		kvc_complete(kv, op);
}

/* Takes the replies that are there. Returns their number. */
static unsigned take_replies(struct roost_kv *kv)
{
	struct roost_result result;
	unsigned n = 0;

	for (; kv->in_flight; n++) {
		if (roost_call_look(kv->caller, kv->flight[kv->oldest].id, &result))
			break;
		end_oldest_batch(kv, &result);
	}
	return n;
}

/*
 * Drives the NIC beside replies that were there. They come without a poll if each post runs a turn
 * of the NIC, as it does while the NIC does not expect a poll soon. Without this call the NIC would
 * never see the program poll, and the posts would go on to run turns.
 */
static void drive(struct roost_kv *kv)
{
	struct ibv_wc wc; /* of an error; roost_call_poll() reports it */

	ibv_poll_cq(kv->node->id->qp->send_cq, 1, &wc);
}

/*
 * Drives the NIC until replies to a quarter of the calls have come, or no more come. Then the
 * program begins its next operations, while later replies are on the way. Otherwise all calls in
 * flight would form one group, and program and node would wait for each other.
 */
static void poll_batches(struct roost_kv *kv)
{
	unsigned enough = kv->in_flight / 4, n = take_replies(kv);

	if (n > 1 && n > enough) /* the post of a call alone runs a turn in any case */
		drive(kv);
	while (kv->in_flight && n <= enough) {
		struct roost_result result;
		int rc = roost_call_poll(kv->caller, kv->flight[kv->oldest].id, &result);

		if (rc && rc != EAGAIN)
			kv->err = -rc;
		if (rc)
			return;
		end_oldest_batch(kv, &result);
		n += 1 + take_replies(kv);
	}
}

ROOST_EXPORT int roost_kv_poll(struct roost_kv *kv)
{
	unsigned before = kv->completed;

	if (kv->nodes)
		return kvc_table_poll(kv);
	if (!kv->err)
		poll_batches(kv);
	if (!kv->err) {
		poll_lane(kv);
		start_next_long(kv);
		if (send_due(kv) == -ENOTCONN)
			kv->err = -ENOTCONN;
	}
	if (kv->err && kv->open)
		kvc_fail(kv, kv->err);
	return (int)(kv->completed - before);
}

void kvc_pause(uint64_t start)
{
	if (kvc_now() - start > SPIN_NS)
		nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
}

/* A wait: it is over if no operation has ended for the timeout of the connection. */
struct wait {
	uint64_t start;
	unsigned seen; /* `completed` at the start */
};

static struct wait begin_wait(const struct roost_kv *kv)
{
	return (struct wait){kvc_now(), kv->completed};
}

/* Polls once, and sleeps if this wait takes long. Returns 0 or the error of the connection. */
static int wait_step(struct roost_kv *kv, struct wait *w)
{
	roost_kv_poll(kv);
	if (kv->completed != w->seen)
		*w = begin_wait(kv);
	else if (kvc_now() - w->start > kv->timeout_ns)
		kvc_fail(kv, -ETIMEDOUT);
	else
		kvc_pause(w->start);
	return kv->err;
}

/* Waits until the current batch has left. */
static int await_send(struct roost_kv *kv)
{
	struct wait w = begin_wait(kv);
	unsigned sent = kv->sent;
	int rc;

	do {
		rc = wait_step(kv, &w);
		if (!rc && kv->sent == sent)
			rc = send_batch(kv);
	} while (rc == -EAGAIN);
	return rc;
}

ROOST_EXPORT int roost_kv_flush(struct roost_kv *kv)
{
	int rc;

	if (kv->nodes)
		return kvc_table_flush(kv);
	rc = kv->err ? kv->err : send_batch(kv);
	if (rc == -EAGAIN && whole_of(kv)->hold) {
		/* The program has not left its callback, and the next poll sends the batch. */
		kv->resend = true;
		return 0;
	}
	if (rc == -EAGAIN)
		rc = await_send(kv);
	if (rc && !kv->err)
		kvc_fail(kv, rc);
	return rc;
}

static int wait_all(struct roost_kv *kv)
{
	struct wait w = begin_wait(kv);
	int rc = 0;

	while (kv->open && !rc) {
		rc = roost_kv_flush(kv);
		if (!rc)
			rc = wait_step(kv, &w);
	}
	return kv->err ? kv->err : rc;
}

ROOST_EXPORT int roost_kv_wait(struct roost_kv *kv)
{
	bool hold = kv->hold;
	int rc;

	/* A callback that waits gets the callbacks of the other operations meanwhile. */
	kv->hold = false;
	kvc_run_callbacks(kv);
	rc = kv->nodes ? kvc_table_wait(kv) : wait_all(kv);
	kv->hold = hold;
	return rc;
}

/* ---- submitting ---- */

bool kvc_has_key(unsigned code)
{
	return code != ROOST_KV_SCAN && code != ROOST_KV_STAT && code != ROOST_KV_PARTITIONS;
}

int kvc_check(const struct roost_kv_op *op)
{
	if (op->code >= ROOST_KV_CODES || op->type >= 128 ||
	    (!op->key_len && kvc_has_key(op->code)))
		return -EINVAL;
	if (op->key_len > ROOST_KV_KEY_MAX || op->value_len > ROOST_KV_VALUE_MAX ||
	    op->expect_len > ROOST_KV_VALUE_MAX || op->param_len > ROOST_KV_VALUE_MAX)
		return -E2BIG;
	return 0;
}

/*
 * Takes an operation for which the current batch has no space. A callback does not wait: the
 * callbacks behind it would not come.
 */
static int submit_behind(struct roost_kv *kv, struct roost_kv_op *op)
{
	int rc = whole_of(kv)->hold && kv->waiting.first ? 0 : roost_kv_flush(kv);

	if (rc || (!kv->waiting.first && add(kv, op)))
		return rc;
	if (kv->w.count) /* by a full window, or callbacks have filled the next batch already */
		op_list_add(&kv->waiting, op);
	else
		op_list_add(&kv->long_queue, op);
	return 0;
}

ROOST_EXPORT int roost_kv_submit(struct roost_kv *kv, struct roost_kv_op *op)
{
	int rc = kv->err ? kv->err : kvc_check(op);

	if (rc)
		return rc;
	if (kv->nodes)
		return kvc_table_submit(kv, op);
	op->done = false;
	op->status = 0;
	op->out_len = 0;
	if (kv->waiting.first || !add(kv, op)) {
		rc = submit_behind(kv, op);
		if (rc)
			return rc;
	}
	kv->open++;
	start_next_long(kv);
	/* An error ends the connection, and the operation with it. */
	if (kv->w.count == kv->ops_max)
		roost_kv_flush(kv);
	return 0;
}

ROOST_EXPORT int roost_kv_run(struct roost_kv *kv, struct roost_kv_op *ops, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		int rc = roost_kv_submit(kv, &ops[i]);
		if (rc) {
			ops[i].status = rc;
			ops[i].done = true;
		}
	}
	return roost_kv_wait(kv);
}

static int run_one(struct roost_kv *kv, struct roost_kv_op *op)
{
	int rc = roost_kv_run(kv, op, 1);

	return rc ? rc : op->status;
}

ROOST_EXPORT int roost_kv_get(struct roost_kv *kv, const void *key, size_t key_len, void *out,
			      size_t cap, size_t *len)
{
	struct roost_kv_op op = {.code = ROOST_KV_GET, .key = key, .out = out};
	int rc;

	if (key_len > ROOST_KV_KEY_MAX)
		return -E2BIG;
	op.key_len = (uint32_t)key_len;
	op.out_cap = cap < ROOST_KV_VALUE_MAX ? (uint32_t)cap : ROOST_KV_VALUE_MAX;
	rc = run_one(kv, &op);
	*len = op.out_len;
	return rc;
}

ROOST_EXPORT int roost_kv_put(struct roost_kv *kv, const void *key, size_t key_len,
			      const void *value, size_t len, uint32_t ttl)
{
	struct roost_kv_op op = {.code = ROOST_KV_PUT, .key = key, .value = value, .ttl = ttl};

	if (key_len > ROOST_KV_KEY_MAX || len > ROOST_KV_VALUE_MAX)
		return -E2BIG;
	op.key_len = (uint32_t)key_len;
	op.value_len = (uint32_t)len;
	return run_one(kv, &op);
}

ROOST_EXPORT int roost_kv_delete(struct roost_kv *kv, const void *key, size_t key_len)
{
	struct roost_kv_op op = {.code = ROOST_KV_DELETE, .key = key};

	if (key_len > ROOST_KV_KEY_MAX)
		return -E2BIG;
	op.key_len = (uint32_t)key_len;
	return run_one(kv, &op);
}

ROOST_EXPORT int roost_kv_find_function(struct roost_kv *kv, const char *name,
					struct roost_kv_function_info *info)
{
	size_t len = strlen(name);
	struct roost_kv_op op = {
		.code = ROOST_KV_FIND_FUNCTION, .key = name, .out = info, .out_cap = sizeof(*info)};
	int rc;

	if (len > ROOST_KV_KEY_MAX)
		return -ENOENT;
	op.key_len = (uint32_t)len;
	rc = run_one(kv, &op);
	if (!rc && op.out_len != sizeof(*info))
		rc = -EIO;
	if (!rc)
		info->number = le16toh(info->number);
	return rc;
}

/* ---- connections ---- */

/* Returns the bytes of parameters that fit into a packet of the connection, or 0. */
static uint32_t packet_space(struct ibv_qp *qp)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	uint32_t mtu;

	if (ibv_query_qp(qp, &attr, IBV_QP_PATH_MTU, &init))
		return 0;
	mtu = 128u << attr.path_mtu;
	return mtu - (uint32_t)sizeof(struct roost_rpc_head);
}

static unsigned sends_of(unsigned batches)
{
	return batches + SPARE_SENDS > SENDS_MIN ? batches + SPARE_SENDS : SENDS_MIN;
}

ROOST_EXPORT int roost_kv_open(const char *host, uint16_t service, const struct roost_kv_attr *attr,
			       struct roost_kv **out)
{
	static const struct roost_kv_attr defaults;
	struct roost_kv *kv;
	int timeout, rc;

	if (!attr)
		attr = &defaults;
	if (attr->batches > CALLS_MAX || attr->ops > OPS_MAX || attr->timeout_ms < 0)
		return -EINVAL;
	kv = calloc(1, sizeof(*kv));
	if (!kv)
		return -ENOMEM;
	kv->batches = attr->batches ? attr->batches : BATCHES;
	kv->ops_max = attr->ops ? attr->ops : OPS;
	timeout = attr->timeout_ms ? attr->timeout_ms : TIMEOUT_MS;
	kv->timeout_ns = (uint64_t)timeout * 1000000u;
	rc = -roost_node_connect_sends(host, service, timeout, sends_of(kv->batches), &kv->node);
	if (rc)
		goto free_kv;
	rc = -ENOMEM;
	kv->batch_max = packet_space(kv->node->id->qp);
	kv->caller = roost_caller_create(kv->node->id->qp, kv->batches, KVWIRE_REPLY_MAX);
	if (!kv->caller || !kv->batch_max)
		goto close_node;
	begin_batch(kv);
	*out = kv;
	return 0;

close_node:
	roost_node_close(kv->node);
	if (kv->caller)
		roost_caller_destroy(kv->caller);
free_kv:
	free(kv);
	return rc;
}

ROOST_EXPORT void roost_kv_close(struct roost_kv *kv)
{
	if (kv->nodes) {
		kvc_table_close(kv);
		return;
	}
	kvc_fail(kv, -ENOTCONN);
	/* The queue pair first: replies to abandoned calls may still arrive. */
	roost_node_close(kv->node);
	kvc_long_close(kv);
	roost_caller_destroy(kv->caller);
	free(kv);
}
