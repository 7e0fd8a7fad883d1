/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * `roost perf`: what its files share.
 *
 * A session has two sides, the initiator (it posts) and the target (its memory is accessed, or it
 * receives), joined by an oob. They run jobs one after the other; a job is one measurement, or one
 * check, with fresh queue pairs:
 *
 *	initiator	  target
 *	job      ------->	parameters
 *	         <-------  link	QP numbers, PSNs, GID, address, key
 *	link     ------->
 *	         <-------  go
 *	   ... RDMA ...
 *	done     ------->	the target stops
 *	         <-------  result	its messages (--bidir), its counters
 *
 * The target of a "job" takes every parameter from it, so that the server's command line needs
 * none.
 */
#ifndef ROOST_CLI_PERF_H
#define ROOST_CLI_PERF_H

#include <stdbool.h>
#include <stdint.h>

#include <infiniband/verbs.h>
#include <jansson.h>

#include "base/hist.h"
#include "cli/oob.h"
#include "cli/term.h"
#include "nic/counters.h"

#define PERF_MAX_SIZES 32
#define PERF_MAX_QPS   4096
#define PERF_MAX_DEPTH 16384
#define PERF_MAX_SIZE  (UINT64_C(1) << 31)
#define PERF_MAX_CALLS 64 /* of a queue pair, under way */
#define PERF_MAX_HOPS  65536
#define PERF_ERR_LEN   OOB_ERR_LEN

enum perf_op { PERF_WRITE, PERF_READ, PERF_SEND, PERF_ATOMIC, PERF_RPC, PERF_NUM_OPS };
enum perf_mode { PERF_BANDWIDTH, PERF_LATENCY, PERF_CHECK, PERF_NUM_MODES };
enum perf_transport { PERF_RC, PERF_UD, PERF_NUM_TRANSPORTS };
enum perf_kernel { PERF_GET, PERF_TRAVERSAL, PERF_ECHO, PERF_HLL, PERF_NUM_KERNELS };
enum perf_lat { PERF_PINGPONG, PERF_COMPLETION, PERF_FIRSTBYTE, PERF_EXECUTE, PERF_NUM_LATS };

extern const char *const perf_op_names[]; /* end with NULL */
extern const char *const perf_mode_names[];
extern const char *const perf_lat_names[];
extern const char *const perf_transport_names[];
extern const char *const perf_kernel_names[];

struct perf_job {
	enum perf_op op;
	enum perf_mode mode;
	enum perf_lat lat;
	enum perf_transport transport;
	enum perf_kernel kernel; /* rpc */
	bool bidir;		 /* both sides post */
	/* the target's thread sleeps: its NIC is driven by the service thread alone */
	bool passive;
	bool events; /* sleep on completion events instead of polling */
	uint64_t size, qps, depth, post_list, cq_mod, inline_max;
	uint64_t mtu;	    /* 0: the largest that both ports carry */
	uint64_t iters;	    /* messages (check: rounds); 0: by time */
	uint64_t duration;  /* ns */
	uint64_t gap;	    /* ns of sleep before each operation; latency only */
	uint64_t seed;	    /* check: patterns start from it */
	uint64_t hops;	    /* traversal: elements of its list */
	unsigned num_sizes; /* check: all of these in each round */
	uint64_t sizes[PERF_MAX_SIZES];
};

/* A new object of type "job". */
json_t *perf_job_pack(const struct perf_job *job);
/* Checks all members, and that they fit each other. False with oob->err set. */
bool perf_job_unpack(struct oob *oob, const json_t *msg, struct perf_job *job);
/* Fills in what was left to us (0): depth, cq_mod, inline_max, post_list. */
void perf_job_settle(struct perf_job *job);
/* NULL, or one line that says what does not fit together. */
const char *perf_job_misfit(const struct perf_job *job);

/* ---- the device, opened once a process: perf_nic.c ---- */

struct drive;

struct perf_nic {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct drive *drive; /* for the counters: there is no verbs call for them */
	union ibv_gid gid;
	char address[64]; /* printable form of gid */
	unsigned mtu;	  /* bytes */
	uint32_t max_wr;
	uint32_t max_rd_atomic;
	char err[PERF_ERR_LEN];
};

int perf_nic_open(struct perf_nic *nic);
void perf_nic_close(struct perf_nic *nic);
void perf_nic_counters(const struct perf_nic *nic, struct nic_counters *now);
/* now - before, as an object; counters that did not move are left out. */
json_t *perf_counters_since(const struct perf_nic *nic, const struct nic_counters *before);
uint64_t perf_counter(const json_t *counters, const char *name); /* 0 when absent */
/* Values of enum ibv_mtu; 0 for a number that is none. */
enum ibv_mtu perf_mtu_code(uint64_t bytes);

/* ---- QPs and memory of a job: perf_link.c ---- */

#define PERF_RECV_TAG (UINT64_C(1) << 63) /* in wr_id: a receive */
#define PERF_POLL     64

struct perf_qp {
	struct ibv_qp *qp;
	uint32_t psn;
	struct ibv_ah *ah; /* UD: who is at the other end */
	uint32_t dqpn;
	uint64_t posted, completed; /* messages */
	uint32_t recv_used;	    /* receives taken since the last repost */
};

struct perf_link {
	struct perf_nic *nic;
	struct perf_job job;
	struct oob *oob; /* NULL when both ends are this process's */
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	uint8_t *mem;
	size_t mem_len;
	/* what this side sends or others read; what others write or this side reads into */
	uint8_t *tx, *rx;
	uint64_t span; /* bytes of tx and of rx each QP uses (not in check mode) */
	uint64_t remote_tx, remote_rx;
	uint32_t remote_rkey;
	uint32_t recv_depth, recv_batch;
	uint32_t wave;	/* messages a signaled completion stands for */
	uint64_t recvs; /* receives completed */
	uint64_t unacked_events;
	unsigned num_qps;
	struct perf_qp *qps;
	struct ibv_recv_wr *recv_wr; /* a linked batch for each QP */
	struct ibv_sge *recv_sge;
	struct perf_rpc *rpc; /* op rpc: perf_rpc.c */
	bool calls;	      /* ... and this side makes the calls */
	char err[PERF_ERR_LEN];
};

/* Creates all; errors -errno with l->err. perf_link_destroy takes half-made ones. */
int perf_link_create(struct perf_link *l, struct perf_nic *nic, const struct perf_job *job,
		     struct oob *oob);
void perf_link_destroy(struct perf_link *l);
/* The object of type "link" for the peer. */
json_t *perf_link_describe(const struct perf_link *l);
/* Takes the peer's and moves all QPs to RTS. */
int perf_link_connect(struct perf_link *l, struct oob *check, const json_t *peer);

/*
 * Datagrams: perf_ud.c. A QP to INIT; on to RTS, with what it takes to send to its peer; into a
 * work request where to.
 */
#define PERF_GRH 40 /* bytes in front of what is received */
int perf_ud_init(struct perf_link *l, struct perf_qp *q);
int perf_ud_connect(struct perf_link *l, struct perf_qp *q, uint32_t dqpn,
		    const struct ibv_ah_attr *to);
void perf_ud_address(const struct perf_qp *q, struct ibv_send_wr *wr);
/* The target, when `sent` have left the initiator: takes what is still on its way. */
int perf_ud_drain(struct perf_link *l, uint64_t sent);

/*
 * Calls: perf_rpc.c. The target builds what its kernel looks at, and deploys it, before it
 * describes the link; the initiator opens after connect. Close: when the queue pairs are gone. A
 * post begins one call; a reap is perf_reap for calls.
 */
uint64_t perf_rpc_memory(const struct perf_job *job); /* bytes of tx and of rx */
int perf_rpc_offer(struct perf_link *l);
int perf_rpc_open(struct perf_link *l);
void perf_rpc_close(struct perf_link *l);
int perf_rpc_post(struct perf_link *l, unsigned q); /* 0 or an errno */
int perf_rpc_reap(struct perf_link *l);

/* Posts the first receives (SEND). After connect. */
int perf_link_fill_recvs(struct perf_link *l);

/*
 * Polls once: counts completed messages, reposts receives. Returns completions taken, or -EIO with
 * l->err set when one failed.
 */
int perf_reap(struct perf_link *l);
/*
 * Sleeps until a completion comes; returns at once when one came meanwhile. 0, -errno, or with
 * or_oob: 1 when the oob woke it. It is perf_arm (notify on the next completion), perf_reap,
 * perf_wait (sleep on the channel).
 */
int perf_sleep(struct perf_link *l, bool or_oob);
int perf_arm(struct perf_link *l);
int perf_wait(struct perf_link *l, bool or_oob);
/* The target's part while the initiator works: until the oob has something. 0 or -errno. */
int perf_serve(struct perf_link *l);
int perf_wc_failed(struct perf_link *l, const struct ibv_wc *wc);
int perf_fail(struct perf_link *l, int rc, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* ---- the measurements ---- */

struct perf_result {
	uint64_t messages;
	double seconds;
	double peer_rate;  /* --bidir: messages a second of the other direction */
	struct hist *hist; /* ns; latency */
	uint64_t bytes_checked;
	uint64_t mtu;		 /* what the sides agreed on */
	uint64_t sent, received; /* UD: of the whole run, what left here and what arrived there */
	json_t *counters, *peer_counters;
};

/* Shared between the two processes of --local, for the one-way latencies. */
struct perf_shared {
	_Atomic uint64_t seq, stamp; /* the target saw message `seq` at `stamp` */
};

int perf_bandwidth(struct perf_link *l, struct perf_result *r, struct progress *p);
int perf_latency(struct perf_link *l, struct perf_result *r, struct perf_shared *shared,
		 struct progress *p);
int perf_latency_target(struct perf_link *l, struct perf_shared *shared);
/* Both ends in this process: QPs of one NIC joined to each other. */
int perf_execute(struct perf_nic *nic, const struct perf_job *job, struct perf_result *r,
		 struct progress *p, char *err);
uint64_t perf_check_memory(const struct perf_job *job); /* bytes of tx and of rx */
int perf_check(struct perf_link *l, struct perf_result *r, struct progress *p);
int perf_check_target(struct perf_link *l);

/* ---- sides: perf_session.c ---- */

int perf_initiate(struct perf_nic *nic, struct oob *oob, const struct perf_job *job,
		  struct perf_shared *shared, struct perf_result *r, struct progress *p, char *err);
int perf_finish(struct oob *oob); /* tells the target that no job follows */
/*
 * Serves jobs until the initiator says that it has no more. 0 or -errno with a line in err (the
 * initiator was told).
 */
int perf_target(struct perf_nic *nic, struct oob *oob, struct perf_shared *shared, char *err);
void perf_result_free(struct perf_result *r);

#endif
