/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Macros that let a kernel be written as straight code over the functions of roost/kernel_call.h.
 * A macro may make the function return; the next step then continues behind the macro. A kernel
 * includes roost/kernel.h, which has the rules.
 */
#ifndef ROOST_KERNEL_STEPS_H
#define ROOST_KERNEL_STEPS_H

#include "roost/kernel_call.h"

#define ROOST_CONTINUE -1
/* Returns what the step has to return, or ROOST_CONTINUE if the request is done already. */
static inline int roost_wait(struct roost_call *c, enum roost_next next)
{
	return next == ROOST_AGAIN && c->at_once && c->at_once(c) ? ROOST_CONTINUE : (int)next;
}

/* ROOST_STEPS begins the steps of a function, and ROOST_STEPS_END ends them. */
#define ROOST_STEPS(c)                                                                             \
	switch ((c)->resume) {                                                                     \
	case 0:
#define ROOST_STEPS_END                                                                            \
	}                                                                                          \
	return ROOST_DONE

#define ROOST_WAIT(c, what)                                                                        \
	do {                                                                                       \
		(c)->resume = __LINE__;                                                            \
		{                                                                                  \
			int roost_next_ = roost_wait(c, what);                                     \
			if (roost_next_ != ROOST_CONTINUE)                                         \
				return (enum roost_next)roost_next_;                               \
		}                                                                                  \
		__attribute__((fallthrough));                                                      \
	case __LINE__:;                                                                            \
	} while (0)

#define ROOST_READ(c, va, buf, len)   ROOST_WAIT(c, roost_read(c, va, buf, len))
#define ROOST_WRITE(c, va, buf, len)  ROOST_WAIT(c, roost_write(c, va, buf, len))
#define ROOST_COPY(c, to, from, len)  ROOST_WAIT(c, roost_copy(c, to, from, len))
#define ROOST_CAS(c, va, old, swap)   ROOST_WAIT(c, roost_cas(c, va, old, swap))
#define ROOST_PAUSE(c)		      ROOST_WAIT(c, roost_pause(c))
#define ROOST_SEND(c, buf, len)	      ROOST_WAIT(c, roost_send(c, buf, len))
#define ROOST_SEND_FROM(c, from, len) ROOST_WAIT(c, roost_send_from(c, from, len))
/* Accesses to granted region n. ROOST_COPY_IN copies from region m to n; 0 is the caller's. */
#define ROOST_READ_IN(c, n, va, buf, len) ROOST_WAIT(c, roost_in(c, n, roost_read(c, va, buf, len)))
#define ROOST_WRITE_IN(c, n, va, buf, len)                                                         \
	ROOST_WAIT(c, roost_in(c, n, roost_write(c, va, buf, len)))
#define ROOST_COPY_IN(c, n, to, m, from, len)                                                      \
	ROOST_WAIT(c, roost_in2(c, n, m, roost_copy(c, to, from, len)))
#define ROOST_CAS_IN(c, n, va, old, swap) ROOST_WAIT(c, roost_in(c, n, roost_cas(c, va, old, swap)))
#define ROOST_SEND_FROM_IN(c, n, from, len)                                                        \
	ROOST_WAIT(c, roost_in(c, n, roost_send_from(c, from, len)))
#define ROOST_REPLY_FROM_IN(c, n, from, len) return roost_in(c, n, roost_reply_from(c, from, len))

/*
 * Operations on bound queue pair n. The kernel continues when the operation and all operations
 * posted before it are done; roost_qp_status(c, c->qp_posted) is its status. _AT: the local bytes
 * are at va in the caller's region.
 */
#define ROOST_QP_DO(c, what)   ROOST_WAIT(c, roost_qp_then(c, what))
#define ROOST_QP_POST(c, what) ROOST_WAIT(c, what) /* the kernel continues when it is posted */
#define ROOST_QP_READ(c, n, raddr, rkey, buf, len)                                                 \
	ROOST_QP_DO(c, roost_qp_read(c, n, raddr, rkey, buf, 0, len))
#define ROOST_QP_WRITE(c, n, raddr, rkey, buf, len)                                                \
	ROOST_QP_DO(c, roost_qp_write(c, n, raddr, rkey, buf, 0, len))
#define ROOST_QP_SEND(c, n, buf, len) ROOST_QP_DO(c, roost_qp_send(c, n, buf, 0, len))
#define ROOST_QP_READ_AT(c, n, raddr, rkey, va, len)                                               \
	ROOST_QP_DO(c, roost_qp_read(c, n, raddr, rkey, 0, va, len))
#define ROOST_QP_WRITE_AT(c, n, raddr, rkey, va, len)                                              \
	ROOST_QP_DO(c, roost_qp_write(c, n, raddr, rkey, 0, va, len))
#define ROOST_QP_SEND_AT(c, n, va, len) ROOST_QP_DO(c, roost_qp_send(c, n, 0, va, len))
#define ROOST_QP_WRITE_IMM(c, n, raddr, rkey, buf, len, imm)                                       \
	ROOST_QP_DO(c, roost_qp_write_imm(c, n, raddr, rkey, buf, 0, len, imm))
#define ROOST_QP_SEND_IMM(c, n, buf, len, imm)                                                     \
	ROOST_QP_DO(c, roost_qp_send_imm(c, n, buf, 0, len, imm))
#define ROOST_QP_SEND_SOLICITED(c, n, buf, len)                                                    \
	ROOST_QP_DO(c, roost_qp_solicit(c, roost_qp_send(c, n, buf, 0, len)))
#define ROOST_QP_CAS(c, n, raddr, rkey, old, compare, swap)                                        \
	ROOST_QP_DO(c, roost_qp_cas(c, n, raddr, rkey, old, 0, compare, swap))
#define ROOST_QP_FETCH_ADD(c, n, raddr, rkey, old, add)                                            \
	ROOST_QP_DO(c, roost_qp_fetch_add(c, n, raddr, rkey, old, 0, add))
#define ROOST_QP_WRITE_IMM_AT(c, n, raddr, rkey, va, len, imm)                                     \
	ROOST_QP_DO(c, roost_qp_write_imm(c, n, raddr, rkey, 0, va, len, imm))
#define ROOST_QP_SEND_IMM_AT(c, n, va, len, imm)                                                   \
	ROOST_QP_DO(c, roost_qp_send_imm(c, n, 0, va, len, imm))
#define ROOST_QP_SEND_SOLICITED_AT(c, n, va, len)                                                  \
	ROOST_QP_DO(c, roost_qp_solicit(c, roost_qp_send(c, n, 0, va, len)))
#define ROOST_QP_CAS_AT(c, n, raddr, rkey, va, compare, swap)                                      \
	ROOST_QP_DO(c, roost_qp_cas(c, n, raddr, rkey, 0, va, compare, swap))
#define ROOST_QP_FETCH_ADD_AT(c, n, raddr, rkey, va, add)                                          \
	ROOST_QP_DO(c, roost_qp_fetch_add(c, n, raddr, rkey, 0, va, add))
/* The kernel continues when the operation is posted. buf must not change until it is done. */
#define ROOST_QP_POST_READ(c, n, raddr, rkey, buf, len)                                            \
	ROOST_WAIT(c, roost_qp_read(c, n, raddr, rkey, buf, 0, len))
#define ROOST_QP_POST_WRITE(c, n, raddr, rkey, buf, len)                                           \
	ROOST_WAIT(c, roost_qp_write(c, n, raddr, rkey, buf, 0, len))
#define ROOST_QP_POST_SEND(c, n, buf, len) ROOST_WAIT(c, roost_qp_send(c, n, buf, 0, len))
#define ROOST_QP_POST_WRITE_IMM(c, n, raddr, rkey, buf, len, imm)                                  \
	ROOST_WAIT(c, roost_qp_write_imm(c, n, raddr, rkey, buf, 0, len, imm))
#define ROOST_QP_POST_SEND_IMM(c, n, buf, len, imm)                                                \
	ROOST_WAIT(c, roost_qp_send_imm(c, n, buf, 0, len, imm))
#define ROOST_QP_POST_SEND_SOLICITED(c, n, buf, len)                                               \
	ROOST_WAIT(c, roost_qp_solicit(c, roost_qp_send(c, n, buf, 0, len)))
#define ROOST_QP_POST_CAS(c, n, raddr, rkey, old, compare, swap)                                   \
	ROOST_WAIT(c, roost_qp_cas(c, n, raddr, rkey, old, 0, compare, swap))
#define ROOST_QP_POST_FETCH_ADD(c, n, raddr, rkey, old, add)                                       \
	ROOST_WAIT(c, roost_qp_fetch_add(c, n, raddr, rkey, old, 0, add))
/* Wait until operation `number` and all before it are done, or until all operations are done. */
#define ROOST_QP_WAIT(c, number) ROOST_WAIT(c, roost_qp_wait(c, number))
#define ROOST_QP_WAIT_ALL(c)	 ROOST_QP_WAIT(c, (c)->qp_posted)

#define ROOST_REPLY(c, buf, len)       return roost_reply(c, ROOST_RPC_OK, buf, len)
#define ROOST_REPLY_FROM(c, from, len) return roost_reply_from(c, from, len)
#define ROOST_FAIL(c, status)	       return roost_reply(c, status, 0, 0)

#endif
