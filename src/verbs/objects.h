/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The objects behind the structs of <infiniband/verbs.h>. The public struct is the first member, so
 * that a cast converts between the two. The first member of a context is struct verbs_context; the
 * program has a pointer to the last member of that, struct ibv_context.
 *
 * Exported functions follow the convention of the verbs: they return a pointer, or NULL and errno;
 * or they return 0 or a positive errno. Internal functions return negative errno values.
 * verbs_ret() converts them.
 *
 * Lock order, outermost first: CQ, send queue, receive queue of a QP, lock of librdmacm
 * (src/rdmacm), control lock of the NIC, PU, receive queue of an SRQ. A program holds the lock of a
 * CQ from ibv_start_poll() to ibv_end_poll(), and that of a send queue from ibv_wr_start() to
 * ibv_wr_complete(), and may use other objects meanwhile. So a call that has a later lock must not
 * wait for them. No other lock is taken while the lock of an event queue or of a context is held.
 */
#ifndef ROOST_VERBS_OBJECTS_H
#define ROOST_VERBS_OBJECTS_H

#include <errno.h>
#include <infiniband/verbs.h>

/* The public header defines these as macros; here they are functions. */
#undef ibv_reg_mr
#undef ibv_reg_mr_iova
#undef ibv_query_port
#undef ibv_get_device_list

#include "base/arena.h"
#include "base/list.h"
#include "base/mem.h"
#include "base/spin.h"
#include "drive/drive.h"
#include "nic/nic.h"
#include "roost/wqe.h"
#include "verbs/evq.h"
#include "verbs/host.h"

#define VERBS_EXPORT ROOST_EXPORT

#define VERBS_VENDOR_ID 0x526f73 /* "Ros"; not an IEEE assignment */
#define VERBS_PART_ID	1

struct verbs_ctx {
	struct verbs_context vctx;
	struct drive *drive;
	struct nic *nic;
	struct evq async;
	pthread_mutex_t lock; /* guards the members below */
	struct list_head pds, ahs, mrs, mws, cqs, srqs, qps;
	struct arena queues;
	struct list_head link; /* in the list of all open contexts */
	/* inode of cmd_fd, by which ibv_import_device() recognizes a descriptor of this library */
	ino_t cmd_ino;
};

struct verbs_pd {
	struct ibv_pd pd;
	struct list_head link;
	bool imported; /* the PD belongs to another object */
};

struct verbs_mr {
	struct ibv_mr mr;
	struct list_head link;
	uint64_t iova;
	uint32_t access;
	bool imported;
	struct verbs_qp *ring_of; /* the queue pair whose ring the region is; NULL: none */
};

struct verbs_mw {
	struct ibv_mw mw;
	struct list_head link;
};

struct verbs_ah {
	struct ibv_ah ah;
	struct list_head link;
};

struct verbs_channel {
	struct ibv_comp_channel channel;
	struct evq events;
};

struct verbs_cq {
	union {
		struct ibv_cq cq; /* the first members of ex */
		struct ibv_cq_ex ex;
	};
	struct drive *drive;
	struct nic_cq *nic_cq;
	unsigned pu;
	bool single_threaded; /* the program promised to use one thread, so no lock is taken */
	bool counting;	      /* the NIC writes no completions; the ring stays empty */
	bool ended;	      /* the NIC has destroyed its object */

	struct spin lock CACHE_ALIGNED;
	uint32_t cons; /* number of CQEs taken */
	uint32_t mask;
	struct roost_cqe *ring;
	struct roost_cqe *cur; /* the current completion between start_poll and end_poll */
	struct roost_cq_index *index;

	struct evq_event comp_event CACHE_ALIGNED;
	_Atomic uint32_t announced; /* number of completions when the last event was raised */
	uint32_t comp_reported;
	struct evq_event async_event;
	uint32_t async_reported;
	struct list_head link;
	size_t ring_size;
};

struct verbs_queue {
	struct spin lock;
	uint32_t head; /* number of WQEs posted */
	/*
	 * Last value read from index->cons. The NIC's cache line is read only if the ring looks
	 * full.
	 */
	uint32_t cons_seen;
	uint32_t depth, mask;
	uint32_t max_sge;
	uint32_t max_inline;
	uint32_t shift;
	bool ud;	 /* send queue: each work request names its destination */
	uint32_t wr_ops; /* send queue: 1 << enum ibv_wr_opcode for each operation of the service */
	uint8_t *ring;
	uint64_t *wr_id;
	struct roost_queue_index *index;
} CACHE_ALIGNED;

struct verbs_srq {
	struct ibv_srq srq;
	struct drive *drive;
	struct nic_srq *nic_srq;
	bool ended; /* the NIC has destroyed its object */
	uint32_t number;
	struct verbs_queue rq;
	void *mem;
	size_t mem_size;
	uint32_t reported;
	struct evq_event limit_event, error_event;
	struct list_head link;
};

/* IBV_EVENT_CQ_ERR .. IBV_EVENT_SQ_DRAINED, then IBV_EVENT_QP_LAST_WQE_REACHED. */
#define VERBS_QP_EVENTS	  7
#define VERBS_QP_LAST_WQE (VERBS_QP_EVENTS - 1)

/*
 * Later versions of rdma-core add operations at the end of struct ibv_qp_ex. Programs built with
 * newer headers than ours (librpma) test these members for NULL to find out whether the provider
 * has them. So the struct has space for them.
 */
#define VERBS_QP_EX_SIZE (offsetof(struct ibv_qp_ex, wr_atomic_write) + 16 * sizeof(void *))

struct verbs_qp {
	union {
		struct ibv_qp qp; /* the first members of ex */
		struct ibv_qp_ex ex;
		char longer_ex[VERBS_QP_EX_SIZE];
	};
	struct drive *drive;
	struct nic_qp *nic_qp;
	unsigned pu;
	/* ECE options offered or agreed (ece.c); 0: none yet. One thread connects a queue pair. */
	uint32_t ece;
	bool offers_rpc, offers_calc; /* the program enabled the feature; cleared by a reset */
	bool sig_all;
	bool has_ex; /* made with send_ops_flags: ibv_qp_to_qp_ex() succeeds */
	bool ended;  /* the NIC has destroyed its object */

	struct verbs_queue sq, rq;

	/*
	 * The thread that is between wr_start and wr_complete, its pthread_t; 0: none. Only this
	 * thread can find itself here, so the accesses are relaxed.
	 */
	_Atomic uintptr_t wr_thread;
	/* Used between wr_start and wr_complete, under the send queue's lock. */
	struct roost_wqe *wr_cur;
	uint32_t wr_head; /* number of WQEs built so far */
	int wr_err;	  /* positive errno of the first error */

	void *mem; /* rings, indices, wr_ids */
	size_t mem_size;
	atomic_uint ring_regions; /* memory regions of its rings */
	uint32_t async_reported;
	struct evq_event events[VERBS_QP_EVENTS];
	struct list_head link;
};

static inline struct verbs_ctx *verbs_ctx(struct ibv_context *ctx)
{
	return container_of(ctx, struct verbs_ctx, vctx.context);
}

static inline struct verbs_cq *verbs_cq(struct ibv_cq *cq)
{
	return (struct verbs_cq *)cq;
}

static inline struct verbs_qp *verbs_qp(struct ibv_qp *qp)
{
	return (struct verbs_qp *)qp;
}

static inline struct verbs_srq *verbs_srq(struct ibv_srq *srq)
{
	return (struct verbs_srq *)srq;
}

/*
 * Converts an internal return value: 0 stays 0, and -errno becomes errno. It also sets errno, as
 * newer verbs do.
 */
static inline int verbs_ret(int ret)
{
	if (ret >= 0)
		return 0;
	errno = -ret;
	return -ret;
}

static inline void *verbs_null(int err)
{
	errno = err;
	return NULL;
}

/* Unlocks a pthread_mutex_t, also for a thread that is cancelled in a wait. */
static inline void verbs_unlock(void *mutex)
{
	pthread_mutex_unlock((pthread_mutex_t *)mutex);
}

/* Returns zeroed memory, aligned to a cache line. The caller frees it with free(). */
void *verbs_new(size_t size);

/* device.c */
/*
 * Stores the address that the first process of this machine takes for ROOST_PORT. While no NIC is
 * open, this is the best guess at this process's address.
 */
void verbs_first_address(struct pkt_addr *addr);
uint64_t verbs_device_guid(void); /* network byte order */

/* query.c */
int verbs_query_device_ex(struct ibv_context *ctx, const struct ibv_query_device_ex_input *input,
			  struct ibv_device_attr_ex *attr, size_t attr_size);
int verbs_query_port(struct ibv_context *ctx, uint8_t port_num, struct ibv_port_attr *attr,
		     size_t len);
int verbs_query_rt_values(struct ibv_context *ctx, struct ibv_values_ex *values);

/*
 * Returns the index of the interface that has the address, or 0 if none has it (as on shm). All
 * addresses of 127/8 belong to the loopback interface.
 */
uint32_t verbs_interface_of(const struct pkt_addr *addr);

/*
 * Logs one line, once per process, after a program named a GID index that does not exist. The line
 * names the right index. Users of rxe and mlx5 type 1 or 3, the indices that GIDs of RoCE v2 and
 * IPv4 have there.
 */
void verbs_no_gid(struct ibv_context *ctx, uint32_t port_num, uint32_t index);

/*
 * pd.c, mr.c, mw.c, cq.c, srq.c, qp.c: free the objects that a program did not free before it
 * closed its context.
 */
void verbs_pd_reap(struct verbs_ctx *ctx);
void verbs_ah_reap(struct verbs_ctx *ctx);
void verbs_mr_reap(struct verbs_ctx *ctx);
void verbs_mw_reap(struct verbs_ctx *ctx);
void verbs_cq_reap(struct verbs_ctx *ctx);
void verbs_srq_reap(struct verbs_ctx *ctx);
void verbs_qp_reap(struct verbs_ctx *ctx);

/*
 * context.c: calls fn for each open context until fn returns non-NULL, and returns that value. A
 * context stays open while fn runs on it.
 */
void *verbs_each_context(void *(*fn)(struct verbs_ctx *ctx, void *arg), void *arg);

/* queue.c */
/* Returns the exponent n of a stride of 2^n bytes that has space for `bytes`. */
uint32_t verbs_stride_shift(size_t bytes);
/* Sets depth and stride of a receive queue for these maxima. */
void verbs_recv_size(struct verbs_queue *rq, uint32_t max_wr, uint32_t max_sge);
/*
 * Allocates one zeroed piece of memory for the rings, indices and wr_ids of n queues, whose sizes
 * are set. Returns 0 or -ENOMEM.
 */
int verbs_queues_alloc(struct verbs_ctx *ctx, struct verbs_queue *const *queues, int n, void **mem,
		       size_t *size);
void verbs_queues_free(struct verbs_ctx *ctx, void *mem, size_t size);
/* Describes the queue for the NIC. */
struct nic_queue_attr verbs_queue_attr(const struct verbs_queue *q);
/* Take and release the ownership of all processing units. */
void verbs_own_all(struct drive *d);
void verbs_disown_all(struct drive *d);

/* cq.c */
struct ibv_cq_ex *verbs_create_cq_ex(struct ibv_context *ctx, struct ibv_cq_init_attr_ex *attr);
/*
 * Creates a CQ. With `counting` the NIC writes no completions. Returns NULL with errno set on a
 * failure.
 */
struct ibv_cq *verbs_create_any_cq(struct ibv_context *ctx, struct ibv_cq_init_attr_ex *attr,
				   bool counting);
int verbs_req_notify_cq(struct ibv_cq *cq, int solicited_only);
static inline struct evq *verbs_evq(struct ibv_comp_channel *channel)
{
	return &container_of(channel, struct verbs_channel, channel)->events;
}
/* Raises the event of an armed CQ. Any thread, including the owner of a PU. */
void verbs_cq_fired(struct verbs_cq *cq);
/*
 * Remove the completions of a destroyed or reset QP from its CQs. The QP's PU is owned when
 * verbs_cqs_end() notes the last completion that the QP can have. verbs_cqs_clean() waits for the
 * CQs, so it is called later, without the control lock and PUs. Another QP may have the number by
 * then; its completions are newer and stay.
 */
struct verbs_cqs_end {
	uint32_t send, recv;
};
struct verbs_cqs_end verbs_cqs_end(const struct verbs_qp *qp);
void verbs_cqs_clean(const struct verbs_qp *qp, struct verbs_cqs_end end);

/* cq_ex.c */
void verbs_cq_ex_init(struct verbs_cq *cq);
#define VERBS_CQ_EX_FLAGS                                                                          \
	(IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |                             \
	 IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK)

/* poll.c */
int verbs_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc);

/* qp.c */
struct ibv_qp *verbs_create_qp_ex(struct ibv_context *ctx, struct ibv_qp_init_attr_ex *attr);

/* qp_ex.c */
#define VERBS_QP_EX_OPS                                                                            \
	(IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND |    \
	 IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_SEND_WITH_INV | IBV_QP_EX_WITH_RDMA_READ |  \
	 IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD |                 \
	 IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW)
void verbs_qp_ex_init(struct verbs_qp *qp);

/* mw.c */
struct ibv_mw *verbs_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type);
int verbs_dealloc_mw(struct ibv_mw *mw);

/* post.c */
int verbs_bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind);
int verbs_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr);
int verbs_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr);
int verbs_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr);

/* rpc.c */
/* Does the work of roost_qp_enable_rpc(). Returns 0 or -errno. */
int verbs_enable_rpc(struct verbs_qp *qp);

/* srq.c */
int verbs_get_srq_num(struct ibv_srq *srq, uint32_t *number);

/* unsupported.c */
void verbs_unsupported_init(struct verbs_context *vctx);

#endif
