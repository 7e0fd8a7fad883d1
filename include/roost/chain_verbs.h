/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Chains beside the verbs: queue pairs, completion queues and memory regions for programs that are
 * made of work requests. docs/chains.md teaches them; roost_chain(3) describes each function. The
 * functions are in Roost's libibverbs.so.1; link with `pkg-config --cflags --libs roost`.
 *
 *	cq = roost_create_counting_cq(ctx, 0);
 *	qp = ibv_create_qp(pd, &init);
 *	roost_qp_set_chain(qp, &(struct roost_chain_attr){.managed_send = true, .watch = {cq}});
 *	roost_qp_connect_self(qp, 1, 0);
 *	ring = roost_reg_queue_mr(qp, ROOST_SEND_QUEUE, IBV_ACCESS_LOCAL_WRITE | ...);
 *	roost_post_wqes(qp, wqes, n, 0);
 *
 * Errors are the verbs': 0 or a positive errno, or NULL with errno. Any thread may call, as for the
 * verbs.
 */
#ifndef ROOST_CHAIN_VERBS_H
#define ROOST_CHAIN_VERBS_H

#include <infiniband/verbs.h>
#include <stdbool.h>

#include "roost/wqe.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Creates a completion queue that only counts: it holds no completions, ibv_poll_cq() finds none,
 * and it cannot overrun. ibv_destroy_cq() destroys it. NULL: EINVAL (comp_vector), ENOMEM.
 */
struct ibv_cq *roost_create_counting_cq(struct ibv_context *context, int comp_vector);
/*
 * Returns the number of completions without error that a counting completion queue has counted,
 * modulo 2^32.
 */
uint32_t roost_cq_count(struct ibv_cq *cq);

struct roost_chain_attr {
	/* The NIC takes WQEs of this queue below the count that ENABLEs move, one at a time. */
	bool managed_send, managed_recv;
	/* The completion queues that a WAIT may name by their index; NULL: none. */
	struct ibv_cq *watch[ROOST_CHAIN_WATCHES];
};

/*
 * Sets a queue pair up for chains, once, in the state RESET or INIT. The watched completion queues
 * cannot be destroyed before the queue pair. Errors:
 *  EINVAL      wrong state; managed_recv without a receive queue of its own; a completion queue of
 *              another device
 *  EOPNOTSUPP  not RC
 *  EBUSY       it is set up already, or a kernel is attached to its outgoing messages
 *  ENOMEM
 */
int roost_qp_set_chain(struct ibv_qp *qp, const struct roost_chain_attr *attr);
/*
 * Connects an RC queue pair in the state RESET to itself: its work requests act on the memory of
 * its own NIC, with all access rights. Errors: those of ibv_modify_qp(); EINVAL: no such GID.
 */
int roost_qp_connect_self(struct ibv_qp *qp, uint8_t port_num, int gid_index);

enum roost_queue { ROOST_SEND_QUEUE, ROOST_RECV_QUEUE };

/*
 * Registers exactly the ring of a queue as a memory region of the queue pair's protection domain.
 * addr and length of the region are those of the ring. ibv_dereg_mr() ends it; until then the queue
 * pair cannot be destroyed (EBUSY). NULL: EINVAL (no such queue; access), ENOMEM.
 */
struct ibv_mr *roost_reg_queue_mr(struct ibv_qp *qp, enum roost_queue queue, int access);
/* Returns the bytes between two WQEs of the ring, a power of two; 0: no such queue. */
uint32_t roost_qp_stride(struct ibv_qp *qp, enum roost_queue queue);

/*
 * Posts n send WQEs that are already in the layout of roost/wqe.h. `wqes` has them at the queue's
 * stride; their completions have wr_id, wr_id + 1 and so on. The NIC checks each WQE when it takes
 * it. Nothing is posted after an error:
 *  EINVAL  wrong state; n is 0
 *  ENOMEM  the queue has no room for n WQEs. A queue that runs its ring again has no room
 */
int roost_post_wqes(struct ibv_qp *qp, const void *wqes, uint32_t n, uint64_t wr_id);

/*
 * Post one work request for chains. send_flags: IBV_SEND_SIGNALED or 0. Errors of
 * roost_post_wqes(); also
 *  EINVAL  no op-code of that kind
 */
struct roost_wait_wr {
	uint64_t wr_id;
	unsigned int send_flags;
	uint32_t watch; /* index of roost_chain_attr.watch */
	uint32_t count;
	bool relative;
};
int roost_post_wait(struct ibv_qp *qp, const struct roost_wait_wr *wr);

struct roost_enable_wr {
	uint64_t wr_id;
	unsigned int send_flags;
	uint32_t qp_num; /* of a queue pair with the same protection domain and processing unit */
	enum roost_queue queue;
	uint32_t count;
	bool relative;
};
int roost_post_enable(struct ibv_qp *qp, const struct roost_enable_wr *wr);

struct roost_calc_wr {
	uint64_t wr_id;
	unsigned int send_flags;
	enum roost_op op;   /* ROOST_OP_MAX .. ROOST_OP_XOR */
	struct ibv_sge old; /* 8 bytes for the old value */
	uint64_t remote_addr;
	uint32_t rkey;
	uint64_t operand;
};
int roost_post_calc(struct ibv_qp *qp, const struct roost_calc_wr *wr);

/* The first WQE of a queue pair that failed; the queue pair is then in the error state. */
struct roost_chain_failure {
	enum ibv_wc_status status;
	uint32_t index; /* of the WQE in its queue, modulo 2^32 */
	struct roost_wqe wqe;
};
/*
 * Stores why a queue pair of chains is in the error state. It has raised IBV_EVENT_QP_FATAL.
 * ENOENT: no WQE of it has failed since its last reset.
 */
int roost_qp_chain_failure(struct ibv_qp *qp, struct roost_chain_failure *failure);

#ifdef __cplusplus
}
#endif

#endif
