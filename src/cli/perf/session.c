/* SPDX-License-Identifier: BSD-2-Clause */
/* The two sides of a session and their messages (perf.h has the diagram). */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/perf/perf.h"
#include "nic/counters.h"

#define ANSWER_NS UINT64_C(60000000000)

static uint64_t answer_time(void)
{
	return ANSWER_NS * oob_timeout_scale();
}

void perf_result_free(struct perf_result *r)
{
	free(r->hist);
	json_decref(r->counters);
	json_decref(r->peer_counters);
	memset(r, 0, sizeof(*r));
}

static int oob_failed(struct perf_link *l)
{
	return perf_fail(l, -EPROTO, "%s", l->oob->err);
}

/* Sends msg, waits for an answer of type `want`, and returns it; the caller drops the reference. */
static json_t *exchange(struct perf_link *l, json_t *msg, const char *want)
{
	json_t *answer = NULL;

	if (oob_send(l->oob, msg) == 0)
		answer = oob_recv(l->oob, want, answer_time());
	if (!answer)
		oob_failed(l);
	return answer;
}

static int join(struct perf_link *l)
{
	json_t *peer = exchange(l, perf_job_pack(&l->job), "link"), *go;
	int rc;

	if (!peer)
		return -EPROTO;
	rc = perf_link_connect(l, l->oob, peer);
	json_decref(peer);
	if (rc == 0 && l->job.op == PERF_RPC)
		rc = perf_rpc_open(l);
	if (rc == 0 && l->job.bidir)
		rc = perf_link_fill_recvs(l);
	if (rc == 0 && l->job.mode == PERF_LATENCY && l->job.lat == PERF_PINGPONG)
		rc = perf_link_fill_recvs(l);
	if (rc < 0)
		return rc;
	go = exchange(l, perf_link_describe(l), "go");
	json_decref(go);
	return go ? 0 : -EPROTO;
}

static int measure(struct perf_link *l, struct perf_shared *shared, struct perf_result *r,
		   struct progress *p)
{
	switch (l->job.mode) {
	case PERF_BANDWIDTH:
		return perf_bandwidth(l, r, p);
	case PERF_LATENCY:
		return perf_latency(l, r, shared, p);
	default:
		return perf_check(l, r, p);
	}
}

static uint64_t posted(const struct perf_link *l)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < l->num_qps; i++)
		sum += l->qps[i].posted;
	return sum;
}

/* With --bidir the other side may still be sending: this side serves it until it has drained. */
static int finish_bidir(struct perf_link *l, struct perf_result *r)
{
	json_t *msg;
	double rate;
	int rc;

	r->sent = posted(l);
	rc = oob_send(l->oob, json_pack("{s:s,s:I}", "type", "done", "sent", (json_int_t)r->sent));
	if (rc < 0)
		return oob_failed(l);
	if (l->job.bidir) {
		rc = perf_serve(l);
		if (rc < 0)
			return rc;
	}
	msg = oob_recv(l->oob, "result", answer_time());
	if (!msg)
		return oob_failed(l);
	rate = json_number_value(json_object_get(msg, "msg_rate"));
	r->peer_rate = rate > 0 ? rate : 0;
	r->received = (uint64_t)json_integer_value(json_object_get(msg, "received"));
	if (l->job.transport == PERF_UD && r->received > r->sent) {
		json_decref(msg);
		return perf_fail(l, -EPROTO, "the other side received more than was sent");
	}
	r->peer_counters = json_incref(json_object_get(msg, "counters"));
	json_decref(msg);
	return 0;
}

int perf_initiate(struct perf_nic *nic, struct oob *oob, const struct perf_job *job,
		  struct perf_shared *shared, struct perf_result *r, struct progress *p, char *err)
{
	struct nic_counters before;
	struct perf_link l;
	int rc;

	rc = perf_link_create(&l, nic, job, oob);
	if (rc == 0)
		rc = join(&l);
	if (rc == 0) {
		r->mtu = l.job.mtu;
		perf_nic_counters(nic, &before);
		rc = measure(&l, shared, r, p);
		r->counters = perf_counters_since(nic, &before);
	}
	if (rc == 0)
		rc = finish_bidir(&l, r);
	/* An error message of the target explains more than a timeout on this side. */
	if (rc < 0)
		snprintf(err, PERF_ERR_LEN, "%s", oob_peer_failed(oob) ? oob->err : l.err);
	perf_link_destroy(&l);
	return rc;
}

int perf_finish(struct oob *oob)
{
	return oob_send(oob, json_pack("{s:s,s:b}", "type", "job", "end", 1));
}

/* Reads the counters before the initiator may begin, so that they count its first messages. */
static int exchange_links(struct perf_link *l, struct nic_counters *before)
{
	json_t *peer = exchange(l, perf_link_describe(l), "link");
	int rc;

	if (!peer)
		return -EPROTO;
	rc = perf_link_connect(l, l->oob, peer);
	json_decref(peer);
	if (rc == 0)
		rc = perf_link_fill_recvs(l);
	if (rc < 0)
		return rc;
	perf_nic_counters(l->nic, before);
	return oob_send(l->oob, json_pack("{s:s}", "type", "go")) < 0 ? oob_failed(l) : 0;
}

static int serve(struct perf_link *l, struct perf_shared *shared, struct perf_result *r)
{
	int rc;

	switch (l->job.mode) {
	case PERF_LATENCY:
		return perf_latency_target(l, shared);
	case PERF_CHECK:
		return perf_check_target(l);
	default:
		rc = l->job.bidir ? perf_bandwidth(l, r, NULL) : 0;
		return rc < 0 ? rc : perf_serve(l);
	}
}

static int report(struct perf_link *l, const struct perf_result *r,
		  const struct nic_counters *before)
{
	json_t *done = oob_recv(l->oob, "done", UINT64_MAX);
	double rate = r->seconds > 0 ? (double)r->messages / r->seconds : 0;
	uint64_t sent;
	bool ok;
	int rc;

	if (!done)
		return oob_failed(l);
	ok = oob_get_u64(l->oob, done, "sent", INT64_MAX, &sent);
	json_decref(done);
	if (!ok)
		return oob_failed(l);
	rc = l->job.transport == PERF_UD ? perf_ud_drain(l, sent) : 0;
	if (rc < 0)
		return rc;
	if (oob_send(l->oob, json_pack("{s:s,s:f,s:I,s:o}", "type", "result", "msg_rate", rate,
				       "received", (json_int_t)l->recvs, "counters",
				       perf_counters_since(l->nic, before))) < 0)
		return oob_failed(l);
	return 0;
}

static int run_job(struct perf_nic *nic, struct oob *oob, const struct perf_job *job,
		   struct perf_shared *shared, char *err)
{
	struct perf_result r = {0};
	struct nic_counters before;
	struct perf_link l;
	int rc;

	rc = perf_link_create(&l, nic, job, oob);
	if (rc == 0 && job->op == PERF_RPC)
		rc = perf_rpc_offer(&l);
	if (rc == 0)
		rc = exchange_links(&l, &before);
	if (rc == 0)
		rc = serve(&l, shared, &r);
	if (rc == 0)
		rc = report(&l, &r, &before);
	if (rc < 0)
		snprintf(err, PERF_ERR_LEN, "%s", l.err);
	perf_link_destroy(&l);
	perf_result_free(&r);
	return rc;
}

int perf_target(struct perf_nic *nic, struct oob *oob, struct perf_shared *shared, char *err)
{
	struct perf_job job;
	json_t *msg;
	bool ok;
	int rc = 0;

	while (rc == 0) {
		msg = oob_recv(oob, "job", UINT64_MAX);
		if (msg && json_is_true(json_object_get(msg, "end"))) {
			json_decref(msg);
			return 0;
		}
		ok = msg && perf_job_unpack(oob, msg, &job);
		json_decref(msg);
		if (ok) {
			rc = run_job(nic, oob, &job, shared, err);
		} else {
			snprintf(err, PERF_ERR_LEN, "%s", oob->err);
			rc = -EPROTO;
		}
	}
	oob_send_error(oob, err);
	return rc;
}
