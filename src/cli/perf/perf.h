/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * `roost perf`: declarations that its files share.
 *
 * A session has two sides, the initiator, which posts, and the target, whose memory is accessed or
 * which receives. An oob connects them. The sides run jobs one after the other. A job is one
 * measurement or one check, with fresh queue pairs:
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
 * The target takes every parameter from the "job", so the command line of the server needs none.
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

#define PERF_MAX_SIZES	32
#define PERF_MAX_QPS	4096
#define PERF_MAX_DEPTH	16384
#define PERF_MAX_SIZE	(UINT64_C(1) << 31)
#define PERF_MAX_CALLS	64 /* calls in progress on a queue pair */
#define PERF_MAX_HOPS	65536
#define PERF_MAX_MEMORY (UINT64_C(1) << 36)
#define PERF_ERR_LEN	OOB_ERR_LEN

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
	/* the target's thread sleeps; only the service thread drives the target's NIC */
	bool passive;
	bool events; /* sleep on completion events instead of polling */
	uint64_t size, qps, depth, post_list, cq_mod, inline_max;
	uint64_t mtu;	    /* 0: the largest MTU that both ports carry */
	uint64_t iters;	    /* messages (check: rounds); 0: by time */
	uint64_t duration;  /* ns */
	uint64_t gap;	    /* ns of sleep before each operation; latency only */
	uint64_t seed;	    /* check: seed of the patterns */
	uint64_t hops;	    /* traversal: elements of its list */
	uint64_t memory;    /* bytes; READs have random addresses in them; 0: one address */
	unsigned num_sizes; /* check: each round uses all of these */
	uint64_t sizes[PERF_MAX_SIZES];
};

/* Returns a new object of type "job". */
json_t *perf_job_pack(const struct perf_job *job);
/* Checks all members and that they are consistent. Returns false with oob->err set on errors. */
bool perf_job_unpack(struct oob *oob, const json_t *msg, struct perf_job *job);
/* Sets the parameters that are 0: depth, cq_mod, inline_max, post_list. */
void perf_job_settle(struct perf_job *job);
/* Returns NULL if the parameters are consistent, or one line that describes the conflict. */
const char *perf_job_misfit(const struct perf_job *job);

/* ---- the device, opened once a process: perf/nic.c ---- */

struct drive;

struct perf_nic {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct drive *drive; /* used for the counters, which no verb returns */
	union ibv_gid gid;
	char address[64]; /* printable form of gid */
	unsigned mtu;	  /* bytes */
	uint32_t max_wr;
	uint32_t max_rd_atomic;
	char err[PERF_ERR_LEN];
};

int perf_nic_open(struct perf_nic *nic);
void perf_nic_close(struct perf_nic *nic);
/*
 * Connects a new RC queue pair to QP number `to` at a GID, with PSNs of 0 and access of the peer
 * (enum ibv_access_flags). Returns 0 or a positive errno.
 */
int perf_nic_connect(struct ibv_qp *qp, uint32_t to, const uint8_t *gid, int access);
void perf_nic_counters(const struct perf_nic *nic, struct nic_counters *now);
/* Returns now - before, as an object without the counters that did not change. */
json_t *perf_counters_since(const struct perf_nic *nic, const struct nic_counters *before);
uint64_t perf_counter(const json_t *counters, const char *name); /* returns 0 when absent */
/* Returns a value of enum ibv_mtu; 0 if the number is no MTU. */
enum ibv_mtu perf_mtu_code(uint64_t bytes);

/* ---- QPs and memory of a job: perf/link.c ---- */

#define PERF_RECV_TAG (UINT64_C(1) << 63) /* in wr_id: a receive */
#define PERF_POLL     64

struct perf_qp {
	struct ibv_qp *qp;
	uint32_t psn;
	struct ibv_ah *ah; /* UD: address of the peer */
	uint32_t dqpn;
	uint64_t posted, completed; /* messages */
	uint32_t recv_used;	    /* receives taken since the last repost */
};

struct perf_link {
	struct perf_nic *nic;
	struct perf_job job;
	struct oob *oob; /* NULL when both ends are in this process */
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	uint8_t *mem;
	size_t mem_len;
	/*
	 * tx: data that this side sends, or that the peer reads. rx: data that the peer writes, or
	 * that this side reads
	 */
	uint8_t *tx, *rx;
	uint64_t span; /* bytes of tx and of rx that each QP uses (not in check mode) */
	uint64_t remote_tx, remote_rx;
	uint32_t remote_rkey;
	uint32_t recv_depth, recv_batch;
	uint32_t wave;	/* messages for each signaled completion */
	uint64_t recvs; /* receives completed */
	uint64_t unacked_events;
	unsigned num_qps;
	struct perf_qp *qps;
	struct ibv_recv_wr *recv_wr; /* a linked list for each QP */
	struct ibv_sge *recv_sge;
	struct perf_rpc *rpc; /* state of op rpc: perf/rpc.c */
	bool calls;	      /* op rpc: this side makes the calls */
	char err[PERF_ERR_LEN];
};

/*
 * Creates QPs, CQ and memory. Returns 0, or -errno with l->err set. perf_link_destroy() accepts a
 * partly created link.
 */
int perf_link_create(struct perf_link *l, struct perf_nic *nic, const struct perf_job *job,
		     struct oob *oob);
void perf_link_destroy(struct perf_link *l);
/* Returns the object of type "link" for the peer. */
json_t *perf_link_describe(const struct perf_link *l);
/* Takes the peer's link object and moves all QPs to RTS. */
int perf_link_connect(struct perf_link *l, struct oob *check, const json_t *peer);

/*
 * Datagrams: perf/ud.c. perf_ud_init() moves a QP to INIT. perf_ud_connect() moves it to RTS and
 * creates the address handle of its peer. perf_ud_address() writes the address of the peer into a
 * work request.
 */
#define PERF_GRH 40 /* bytes in front of received data */
int perf_ud_init(struct perf_link *l, struct perf_qp *q);
int perf_ud_connect(struct perf_link *l, struct perf_qp *q, uint32_t dqpn,
		    const struct ibv_ah_attr *to);
void perf_ud_address(const struct perf_qp *q, struct ibv_send_wr *wr);
/*
 * Called by the target when the initiator has sent `sent` messages: receives the messages that are
 * still in flight.
 */
int perf_ud_drain(struct perf_link *l, uint64_t sent);

/*
 * Calls: perf/rpc.c. The target builds the data of its kernel and deploys the kernel in
 * perf_rpc_offer(), before it describes the link. The initiator calls perf_rpc_open() after
 * connect. perf_rpc_close() is called after the queue pairs are destroyed. perf_rpc_post() begins
 * one call; perf_rpc_reap() is perf_reap() for calls.
 */
uint64_t perf_rpc_memory(const struct perf_job *job); /* bytes of tx and of rx */
int perf_rpc_offer(struct perf_link *l);
int perf_rpc_open(struct perf_link *l);
void perf_rpc_close(struct perf_link *l);
int perf_rpc_post(struct perf_link *l, unsigned q); /* returns 0 or an errno */
int perf_rpc_reap(struct perf_link *l);

/* Posts the first receives (SEND). Called after connect. */
int perf_link_fill_recvs(struct perf_link *l);

/*
 * Polls the CQ once, counts completed messages and reposts receives. Returns the number of
 * completions, or -EIO with l->err set when one failed.
 */
int perf_reap(struct perf_link *l);
/*
 * Sleeps until a completion arrives; returns at once when one arrived in the meantime. Returns 0 or
 * -errno; with or_oob also 1, when the oob became readable. It consists of perf_arm() (request a
 * notification of the next completion), perf_reap() and perf_wait() (sleep on the channel).
 */
int perf_sleep(struct perf_link *l, bool or_oob);
int perf_arm(struct perf_link *l);
int perf_wait(struct perf_link *l, bool or_oob);
/* Runs the target while the initiator works, until the oob is readable. Returns 0 or -errno. */
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
	uint64_t mtu;		 /* the MTU that the sides agreed on */
	uint64_t sent, received; /* UD, of the whole run: sent here, arrived at the peer */
	json_t *counters, *peer_counters;
};

/* Shared memory of the two processes of --local, for the one-way latencies. */
struct perf_shared {
	_Atomic uint64_t seq, stamp; /* the target saw message `seq` at `stamp` */
};

int perf_bandwidth(struct perf_link *l, struct perf_result *r, struct progress *p);
int perf_latency(struct perf_link *l, struct perf_result *r, struct perf_shared *shared,
		 struct progress *p);
int perf_latency_target(struct perf_link *l, struct perf_shared *shared);
/* Measures with both ends in this process: QPs of one NIC that are connected to each other. */
int perf_execute(struct perf_nic *nic, const struct perf_job *job, struct perf_result *r,
		 struct progress *p, char *err);
uint64_t perf_check_memory(const struct perf_job *job); /* bytes of tx and of rx */
int perf_check(struct perf_link *l, struct perf_result *r, struct progress *p);
int perf_check_target(struct perf_link *l);

/* ---- sides: perf/session.c ---- */

int perf_initiate(struct perf_nic *nic, struct oob *oob, const struct perf_job *job,
		  struct perf_shared *shared, struct perf_result *r, struct progress *p, char *err);
int perf_finish(struct oob *oob); /* tells the target that there are no more jobs */
/*
 * Serves jobs until the initiator has no more. Returns 0, or -errno with a line in err; the
 * initiator has received the error then.
 */
int perf_target(struct perf_nic *nic, struct oob *oob, struct perf_shared *shared, char *err);
void perf_result_free(struct perf_result *r);

#endif
