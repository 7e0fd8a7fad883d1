/* SPDX-License-Identifier: BSD-2-Clause */
/* The client of the chain in `roost demo`. */
#include "cli/demo/offload.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "cli/demo/office.h"
#include "cli/oob.h"

#define WAIT_NS UINT64_C(60000000000)
#define MEM_LEN 4096u
#define REPLY	1024u /* offset of the reply in the memory */

struct demo_offload {
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	uint8_t *mem;
	struct office_reply granted;
	uint64_t number;
};

static int failed(char *err, int rc, const char *what)
{
	snprintf(err, PERF_ERR_LEN, "%s: %s", what, strerror(rc));
	return -rc;
}

/* Calls until the other process has made the offload. */
static int request_offload(struct demo_offload *f, const struct perf_nic *nic, struct ibv_qp *calls,
			   char *err)
{
	struct office_ask ask = {.reply = (uintptr_t)f->mem + REPLY,
				 .reply_key = f->mr->rkey,
				 .qp_num = f->qp->qp_num};
	struct roost_caller *caller = roost_caller_create(calls, 1, sizeof(f->granted));
	const uint64_t until = clock_ns() + WAIT_NS * oob_timeout_scale();
	struct roost_result r = {.status = ROOST_RPC_OK};
	int rc = caller ? 0 : errno;

	memcpy(ask.gid, &nic->gid, sizeof(ask.gid));
	while (!rc && !f->granted.qp_num) {
		rc = roost_call(caller, OFFICE_OP, 0, &ask, sizeof(ask), &f->granted,
				sizeof(f->granted), WAIT_NS * oob_timeout_scale(), &r);
		if (!rc && r.status != ROOST_RPC_OK)
			rc = EPROTO;
		else if (!rc && clock_ns() > until)
			rc = ETIMEDOUT;
		nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
	}
	roost_caller_destroy(caller);
	return rc ? failed(err, rc, "can't obtain a chain from the other process") : 0;
}

struct demo_offload *demo_offload_open(const struct perf_nic *nic, struct ibv_qp *calls, char *err)
{
	struct demo_offload *f = calloc(1, sizeof(*f));
	struct ibv_qp_init_attr init = {
		.cap = {.max_send_wr = 4, .max_send_sge = 1, .max_recv_wr = 1, .max_recv_sge = 1},
		.qp_type = IBV_QPT_RC};
	int rc = 0;

	if (!f) {
		failed(err, ENOMEM, "a chain");
		return NULL;
	}
	f->mem = mem_alloc_pages(MEM_LEN);
	f->mr = f->mem ? ibv_reg_mr(nic->pd, f->mem, MEM_LEN,
				    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)
		       : NULL;
	f->cq = ibv_create_cq(nic->ctx, 8, NULL, NULL, 0);
	init.send_cq = init.recv_cq = f->cq;
	f->qp = f->mr && f->cq ? ibv_create_qp(nic->pd, &init) : NULL;
	if (!f->qp)
		rc = failed(err, errno, "can't make a queue pair for a chain");
	if (!rc)
		rc = request_offload(f, nic, calls, err);
	if (!rc) {
		rc = perf_nic_connect(f->qp, f->granted.qp_num, f->granted.gid,
				      IBV_ACCESS_REMOTE_WRITE);
		if (rc)
			failed(err, rc, "can't connect to a chain");
	}
	if (!rc)
		return f;
	demo_offload_close(f);
	return NULL;
}

void demo_offload_close(struct demo_offload *f)
{
	if (!f)
		return;
	if (f->qp)
		ibv_destroy_qp(f->qp);
	if (f->cq)
		ibv_destroy_cq(f->cq);
	if (f->mr)
		ibv_dereg_mr(f->mr);
	if (f->mem)
		mem_free_pages(f->mem, MEM_LEN);
	free(f);
}

int demo_offload_get(struct demo_offload *f, uint64_t key, const uint8_t **value, char *err)
{
	const uint64_t bucket[2] = {f->granted.table + office_bucket(key, 0) * 16,
				    f->granted.table + office_bucket(key, 1) * 16};
	const struct roost_lookup_end *end = (const void *)(f->mem + REPLY + f->granted.value_len);
	const uint32_t len = roost_lookup_request((void *)f->mem, key, bucket, 2, ++f->number);
	struct ibv_sge sge = {(uintptr_t)f->mem, len, f->mr->lkey};
	struct ibv_send_wr wr = {.sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_SEND,
				 .send_flags = IBV_SEND_SIGNALED},
			   *bad;
	const uint64_t start = clock_ns();
	enum roost_lookup_result result;
	bool sent = false;
	struct ibv_wc wc;
	int rc = ibv_post_send(f->qp, &wr, &bad);

	if (rc)
		return failed(err, rc, "can't SEND to the chain");
	do {
		rc = ibv_poll_cq(f->cq, 1, &wc);
		if (rc < 0 || (rc && wc.status != IBV_WC_SUCCESS))
			return failed(err, EIO, "the SEND to the chain failed");
		sent |= rc;
		result = roost_lookup_result(end, key, 2, f->number);
		if (clock_ns() - start > WAIT_NS * oob_timeout_scale())
			return failed(err, ETIMEDOUT, "the chain gives no answer");
	} while (!sent || result == ROOST_LOOKUP_PENDING);
	*value = f->mem + REPLY;
	return result == ROOST_LOOKUP_HIT ? 0 : failed(err, ENOENT, "the chain finds no key");
}
