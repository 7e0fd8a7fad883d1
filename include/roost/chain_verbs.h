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

/* The limits of a managed send queue. 0: the default. */
struct roost_chain_limit {
	uint32_t rate_limit; /* WQEs per second; 0: no limit */
	uint32_t rate_burst; /* WQEs that may go at once after a pause; 0: 64 */
	uint32_t turn_limit; /* WQEs per turn of the processing unit; 0: an equal share */
};

struct roost_chain_attr {
	/* The NIC takes WQEs of this queue below the count that ENABLEs move, one at a time. */
	bool managed_send, managed_recv;
	/* The completion queues that a WAIT may name by their index; NULL: none. */
	struct ibv_cq *watch[ROOST_CHAIN_WATCHES];
	/*
	 * A completion queue that gets a completion for each executed WQE of the managed send
	 * queue, even if the WQE's SIGNALED flag is clear: imm_data is the op-code (enum roost_op,
	 * in host byte order), wr_id that of the post. WAITs of other queues do not count these
	 * completions. If the completion queue overruns, the queue pair goes to the error state: no
	 * WQE is executed without an audit. NULL: none.
	 */
	struct ibv_cq *audit;
	struct roost_chain_limit limit;
};

/*
 * Sets a queue pair up for chains, once, in the state RESET or INIT. The watched completion queues
 * cannot be destroyed before the queue pair. Errors:
 *  EINVAL      wrong state; managed_recv without a receive queue of its own; a completion queue of
 *              another device; limits or an audit without managed_send; an audit in a completion
 *              queue that only counts
 *  EOPNOTSUPP  not RC
 *  EBUSY       it is set up already, or a kernel is attached to its outgoing messages
 *  ENOMEM
 */
int roost_qp_set_chain(struct ibv_qp *qp, const struct roost_chain_attr *attr);
/*
 * Changes the limits of a managed send queue, in any state. The new burst is available at once.
 * EINVAL: the queue pair has no managed send queue.
 */
int roost_qp_limit_chain(struct ibv_qp *qp, const struct roost_chain_limit *limit);

/*
 * Stops the program of a protection domain: all its queue pairs that are set up for chains and not
 * in the state RESET go to the error state, on all processing units. Their memory, keys and objects
 * stay. No WQE of the program is executed after the call. Other queue pairs continue.
 */
int roost_pd_stop_chains(struct ibv_pd *pd);
/*
 * Stops the program of a protection domain, and destroys its queue pairs and the memory regions of
 * their rings. Their pointers become invalid. The function waits until the program's events are
 * acknowledged, as ibv_destroy_qp() does. Other regions and the protection domain stay. EBUSY: a
 * queue pair is in a multicast group; the queue pairs that the function reached before are
 * destroyed.
 */
int roost_pd_remove_chains(struct ibv_pd *pd);

/*
 * Offers calculations (ROOST_OP_MAX .. ROOST_OP_XOR) to the other end, as roost_qp_offer_rpc()
 * offers calls. Calculations between two hosts need the consent of both ends. librdmacm and
 * ibv_query_ece(3) carry the offer. Errors:
 *  EINVAL      wrong state
 *  EOPNOTSUPP  not RC
 */
int roost_qp_offer_calc(struct ibv_qp *qp);
/*
 * Enables calculations, for programs that connect without librdmacm and ECE: both ends call it
 * before RTR. Errors: those of roost_qp_offer_calc().
 */
int roost_qp_enable_calc(struct ibv_qp *qp);
/* Returns true if both ends have agreed on calculations, or calculations were enabled. */
bool roost_qp_has_calc(struct ibv_qp *qp);

/*
 * Connects an RC queue pair in the state RESET to itself: its work requests act on the memory of
 * its own NIC, with all access rights. Errors: those of ibv_modify_qp(); EINVAL: no such GID.
 */
int roost_qp_connect_self(struct ibv_qp *qp, uint8_t port_num, int gid_index);

enum roost_queue { ROOST_SEND_QUEUE, ROOST_RECV_QUEUE };

/*
 * Registers exactly the ring of a queue as a memory region of the queue pair's protection domain.
 * addr and length of the region are those of the ring. ibv_dereg_mr() deregisters it; until then
 * the queue pair cannot be destroyed (EBUSY). NULL: EINVAL (no such queue; access), ENOMEM.
 */
struct ibv_mr *roost_reg_queue_mr(struct ibv_qp *qp, enum roost_queue queue, int access);
/* Returns the bytes between two WQEs of the ring, a power of two; 0: no such queue. */
uint32_t roost_qp_stride(struct ibv_qp *qp, enum roost_queue queue);

/*
 * Posts n send WQEs that are already in the layout of roost/wqe.h. In `wqes` they follow each other
 * at the queue's stride. Their completions have wr_id, wr_id + 1 and so on. The NIC checks each WQE
 * when it takes it. Nothing is posted after an error:
 *  EINVAL  wrong state; n is 0
 *  ENOMEM  the queue has no space for n WQEs. A queue that runs its ring again has no space
 */
int roost_post_wqes(struct ibv_qp *qp, const void *wqes, uint32_t n, uint64_t wr_id);

/* ---- single work requests for chains. send_flags: IBV_SEND_SIGNALED or 0 ---- */

struct roost_wait_wr {
	uint64_t wr_id;
	unsigned int send_flags;
	uint32_t watch; /* index of roost_chain_attr.watch */
	uint32_t count;
	bool relative;
};
/*
 * Posts a WAIT for completions of a watched CQ. Errors: those of roost_post_wqes(); EINVAL: also
 * another send flag.
 */
int roost_post_wait(struct ibv_qp *qp, const struct roost_wait_wr *wr);

struct roost_wait_time_wr {
	uint64_t wr_id;
	unsigned int send_flags;
	/* The queue waits until roost_chain_time() is `ns`; relative: for `ns` from its turn on. */
	uint64_t ns;
	bool relative;
};
/*
 * Posts a WAIT for a time. Errors: those of roost_post_wqes(); EINVAL: also another send flag.
 */
int roost_post_wait_time(struct ibv_qp *qp, const struct roost_wait_time_wr *wr);
/* Returns the time of the NIC's clock in ns. Completion time stamps have the same clock. */
uint64_t roost_chain_time(struct ibv_context *context);

struct roost_enable_wr {
	uint64_t wr_id;
	unsigned int send_flags;
	uint32_t qp_num; /* of a queue pair with the same protection domain */
	enum roost_queue queue;
	uint32_t count;
	bool relative;
};
/*
 * Posts an ENABLE, or a RECV_ENABLE for `queue` ROOST_RECV_QUEUE. Errors: those of
 * roost_post_wqes(); EINVAL: also another send flag.
 */
int roost_post_enable(struct ibv_qp *qp, const struct roost_enable_wr *wr);

struct roost_calc_wr {
	uint64_t wr_id;
	unsigned int send_flags;
	enum roost_op op;   /* ROOST_OP_FETCH_ADD, ROOST_OP_MAX .. ROOST_OP_XOR */
	struct ibv_sge old; /* 8 bytes for the old value */
	uint64_t remote_addr;
	uint32_t rkey;
	uint64_t operand;
};
/*
 * Posts a calculation. IBV_SEND_FENCE is allowed, too. Errors: those of roost_post_wqes(), and
 *  EINVAL      `op` is no calculation; another send flag
 *  EOPNOTSUPP  the queue pair is not connected to this NIC, and the ends have not agreed
 */
int roost_post_calc(struct ibv_qp *qp, const struct roost_calc_wr *wr);

/* The first WQE of a queue pair that failed; the queue pair is then in the error state. */
struct roost_chain_failure {
	enum ibv_wc_status status;
	uint32_t index; /* of the WQE in its queue, modulo 2^32 */
	struct roost_wqe wqe;
};
/*
 * Stores the first WQE of the queue pair that failed, and its status. The queue pair has then
 * raised IBV_EVENT_QP_FATAL. ENOENT: no WQE has failed since the last reset.
 */
int roost_qp_chain_failure(struct ibv_qp *qp, struct roost_chain_failure *failure);

#ifdef __cplusplus
}
#endif

#endif
