/* SPDX-License-Identifier: BSD-2-Clause */
/* Sends a job from the initiator to the target, and checks that its parameters are consistent. */
#include <string.h>

#include "cli/perf/check.h"
#include "roost/rpc.h"

const char *const perf_op_names[] = {"write", "read", "send", "atomic", "rpc", NULL};
const char *const perf_mode_names[] = {"bandwidth", "latency", "check", NULL};
const char *const perf_transport_names[] = {"rc", "ud", NULL};
const char *const perf_lat_names[] = {"pingpong", "completion", "firstbyte", "execute", NULL};

#define VERSION 4

/* The integers of a job, with their upper bounds. */
#define JOB_NUMBERS(X)                                                                             \
	X(size, PERF_MAX_SIZE)                                                                     \
	X(qps, PERF_MAX_QPS)                                                                       \
	X(depth, PERF_MAX_DEPTH)                                                                   \
	X(post_list, PERF_MAX_DEPTH)                                                               \
	X(cq_mod, PERF_MAX_DEPTH)                                                                  \
	X(inline_max, 992)                                                                         \
	X(mtu, 4096)                                                                               \
	X(iters, INT64_MAX)                                                                        \
	X(duration, INT64_MAX)                                                                     \
	X(gap, INT64_MAX)                                                                          \
	X(seed, INT64_MAX)                                                                         \
	X(hops, PERF_MAX_HOPS)                                                                     \
	X(memory, PERF_MAX_MEMORY)

#define JOB_FLAGS(X) X(bidir) X(passive) X(events)

json_t *perf_job_pack(const struct perf_job *job)
{
	json_t *msg = json_object(), *sizes = json_array();

	json_object_set_new(msg, "type", json_string("job"));
	json_object_set_new(msg, "version", json_integer(VERSION));
	json_object_set_new(msg, "op", json_integer(job->op));
	json_object_set_new(msg, "mode", json_integer(job->mode));
	json_object_set_new(msg, "lat", json_integer(job->lat));
	json_object_set_new(msg, "transport", json_integer(job->transport));
	json_object_set_new(msg, "kernel", json_integer(job->kernel));
#define PACK_NUMBER(name, most)                                                                    \
	json_object_set_new(msg, #name, json_integer((json_int_t)job->name));
	JOB_NUMBERS(PACK_NUMBER)
#define PACK_FLAG(name) json_object_set_new(msg, #name, json_boolean(job->name));
	JOB_FLAGS(PACK_FLAG)
	for (unsigned i = 0; i < job->num_sizes; i++)
		json_array_append_new(sizes, json_integer((json_int_t)job->sizes[i]));
	json_object_set_new(msg, "sizes", sizes);
	return msg;
}

static bool unpack_sizes(struct oob *oob, const json_t *msg, struct perf_job *job)
{
	const json_t *sizes = json_object_get(msg, "sizes"), *j;
	size_t n = json_array_size(sizes);

	if (!json_is_array(sizes) || n > PERF_MAX_SIZES)
		goto bad;
	for (size_t i = 0; i < n; i++) {
		j = json_array_get(sizes, i);
		if (!json_is_integer(j) || json_integer_value(j) < 0 ||
		    json_integer_value(j) > (json_int_t)PERF_MAX_SIZE)
			goto bad;
		job->sizes[i] = (uint64_t)json_integer_value(j);
	}
	job->num_sizes = (unsigned)n;
	return true;
bad:
	snprintf(oob->err, sizeof(oob->err), "the other side's 'sizes' is absent or out of range");
	return false;
}

bool perf_job_unpack(struct oob *oob, const json_t *msg, struct perf_job *job)
{
	const char *misfit;
	uint64_t v;

	memset(job, 0, sizeof(*job));
	if (!oob_get_u64(oob, msg, "version", UINT32_MAX, &v))
		return false;
	if (v != VERSION) {
		snprintf(oob->err, sizeof(oob->err),
			 "the sides run different versions of roost perf");
		return false;
	}
	if (!oob_get_u64(oob, msg, "op", PERF_NUM_OPS - 1, &v))
		return false;
	job->op = (enum perf_op)v;
	if (!oob_get_u64(oob, msg, "mode", PERF_NUM_MODES - 1, &v))
		return false;
	job->mode = (enum perf_mode)v;
	if (!oob_get_u64(oob, msg, "lat", PERF_NUM_LATS - 1, &v))
		return false;
	job->lat = (enum perf_lat)v;
	if (!oob_get_u64(oob, msg, "transport", PERF_NUM_TRANSPORTS - 1, &v))
		return false;
	job->transport = (enum perf_transport)v;
	if (!oob_get_u64(oob, msg, "kernel", PERF_NUM_KERNELS - 1, &v))
		return false;
	job->kernel = (enum perf_kernel)v;
#define UNPACK_NUMBER(name, most)                                                                  \
	if (!oob_get_u64(oob, msg, #name, most, &job->name))                                       \
		return false;
	JOB_NUMBERS(UNPACK_NUMBER)
#define UNPACK_FLAG(name)                                                                          \
	if (!oob_get_bool(oob, msg, #name, &job->name))                                            \
		return false;
	JOB_FLAGS(UNPACK_FLAG)
	if (!unpack_sizes(oob, msg, job))
		return false;
	misfit = perf_job_misfit(job);
	if (misfit)
		snprintf(oob->err, sizeof(oob->err), "%s", misfit);
	return !misfit;
}

/*
 * Maximum bytes in flight of one QP. More bytes would only move the waiting time from one queue to
 * another.
 */
#define BYTES_IN_FLIGHT (UINT64_C(16) << 20)

void perf_job_settle(struct perf_job *job)
{
	bool lat = job->mode == PERF_LATENCY, rpc = job->op == PERF_RPC;

	if (job->post_list == 0)
		job->post_list = 1;
	if (job->depth == 0) {
		job->depth = lat || rpc ? 64 : job->size <= 4096 ? 512 : 128;
		while (!lat && job->depth > 8 && job->depth * job->size > BYTES_IN_FLIGHT)
			job->depth /= 2;
		if (job->depth < 2 * job->post_list)
			job->depth = 2 * job->post_list;
	}
	if (job->cq_mod == 0 && rpc)
		job->cq_mod = 1;
	if (job->cq_mod == 0) {
		job->cq_mod = job->depth / 4 < 64 ? job->depth / 4 : 64;
		if (job->cq_mod < job->post_list)
			job->cq_mod = job->post_list;
		if (job->cq_mod == 0)
			job->cq_mod = 1;
	}
}

static const char *latency_misfit(const struct perf_job *job)
{
	if (job->bidir)
		return "--bidir is for bandwidth: a ping-pong goes both ways as it is";
	if (job->qps != 1 && job->lat != PERF_EXECUTE)
		return "latency is measured with one QP: omit --qps";
	switch (job->lat) {
	case PERF_PINGPONG:
		if (job->op != PERF_WRITE && job->op != PERF_SEND)
			return "pingpong is for write and send; for the others take --lat completion";
		if (job->passive)
			return "the target of a pingpong answers, it can't be passive; take --lat completion";
		if (job->events && job->op == PERF_WRITE)
			return "a WRITE makes no event at the target: take send, or --lat completion";
		if (job->op == PERF_WRITE && job->size == 0)
			return "a pingpong of WRITEs polls the last byte: --size 1 or more";
		break;
	case PERF_FIRSTBYTE:
		if (job->op != PERF_WRITE && job->op != PERF_READ)
			return "firstbyte is for write and read";
		if (job->size == 0)
			return "firstbyte needs a byte: --size 1 or more";
		if (job->events)
			return "firstbyte watches memory, not events";
		break;
	case PERF_EXECUTE:
		if (job->passive)
			return "execute has no target process: omit --passive";
		break;
	default:
		break;
	}
	if (job->gap && job->lat == PERF_PINGPONG)
		return "--gap goes with --lat completion, firstbyte or execute";
	return NULL;
}

static const char *call_misfit(const struct perf_job *job)
{
	if (job->mode == PERF_CHECK)
		return "--check is for write, read, send and atomic: every call's status and length are checked as it is";
	if (job->mode == PERF_LATENCY && job->lat != PERF_COMPLETION)
		return "the latency of a call is from its post to its reply: --lat completion";
	if (job->bidir || job->events)
		return "calls go one way, and their replies make no events: omit --bidir and --events";
	if (job->post_list != 1 || job->cq_mod != 1)
		return "calls are posted one by one, and each has its reply: omit --post-list and --cq-mod";
	if (job->depth > PERF_MAX_CALLS)
		return "a queue pair has up to 64 calls in flight: --depth 64 at most";
	if (job->size > PERF_MAX_SIZE / 2)
		return "a call moves 1G at most: take a smaller --size";
	if (job->kernel == PERF_HLL && (job->size == 0 || job->size % 8))
		return "hll takes items of 8 bytes: --size is a multiple of it";
	if (job->kernel == PERF_ECHO && job->size > ROOST_RPC_MAX_PARAMS)
		return "an echo's bytes come in one packet: --size is at most 4072";
	if (job->kernel == PERF_TRAVERSAL ? job->hops == 0 : job->hops != 0)
		return "--hops goes with --kernel traversal, and starts at 1";
	return NULL;
}

static const char *datagram_misfit(const struct perf_job *job)
{
	if (job->op != PERF_SEND || job->mode != PERF_BANDWIDTH)
		return "--transport ud is for the rate of send: for latency and --check leave it out";
	if (job->bidir)
		return "--transport ud goes one way: omit --bidir";
	if (job->size > 4096 || (job->mtu && job->size > job->mtu))
		return "a datagram is one packet: --size is at most the path MTU";
	return NULL;
}

const char *perf_job_misfit(const struct perf_job *job)
{
	if (job->qps == 0 || job->depth < 2 || job->post_list == 0 || job->cq_mod == 0)
		return "--qps, --post-list and --cq-mod start at 1, --depth at 2";
	if (job->cq_mod > job->depth || job->post_list > job->depth)
		return "--post-list and --cq-mod are at most --depth";
	if (job->depth * job->qps > 1u << 20)
		return "--depth times --qps is at most 1,048,576";
	if (job->size * job->qps > PERF_MAX_MEMORY)
		return "--size times --qps is at most 64G";
	if (job->mtu && !perf_mtu_code(job->mtu))
		return "--mtu is one of 256, 512, 1024, 2048, 4096";
	if (job->iters == 0 && job->duration == 0)
		return "for how long? --seconds or --iters above 0";
	if (job->passive && job->op == PERF_SEND)
		return "the target of SENDs posts receives, it can't be passive";
	if (job->passive && job->bidir)
		return "with --bidir both sides post, none is passive";
	if (job->op == PERF_ATOMIC && job->mode != PERF_CHECK && job->size != 8)
		return "atomics are of 8 bytes: omit --size";
	if (job->op == PERF_RPC && call_misfit(job))
		return call_misfit(job);
	if (job->transport == PERF_UD && datagram_misfit(job))
		return datagram_misfit(job);
	if (job->memory && (job->op != PERF_READ || job->mode != PERF_LATENCY ||
			    job->lat != PERF_COMPLETION || job->memory < job->size))
		return "--memory goes with read --lat completion, and is at least --size";
	if (job->gap && job->mode != PERF_LATENCY)
		return "--gap goes with --lat";
	if (job->mode == PERF_LATENCY)
		return latency_misfit(job);
	if (job->mode == PERF_CHECK && job->bidir)
		return "--check goes one way: omit --bidir";
	if (job->mode == PERF_CHECK && job->op != PERF_ATOMIC && job->num_sizes == 0)
		return "--check needs sizes";
	if (job->mode == PERF_CHECK && (job->num_sizes >= job->depth || job->depth < CHECK_ATOMICS))
		return "--check posts all messages of a round at once: --depth 48 or more";
	return NULL;
}
