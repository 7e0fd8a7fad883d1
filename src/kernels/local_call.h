/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Kernels that no peer calls: run by the host, or attached to a stream, whose bytes they see. These
 * run where the bytes are, to the end of each piece, unless they wait for operations of their own:
 * then they hold up the stream, and go on as those do, in turns of their PU. An access is done at
 * once, and there is nobody to send to; what they reply goes to the host.
 */
#ifndef ROOST_KERNELS_LOCAL_CALL_H
#define ROOST_KERNELS_LOCAL_CALL_H

#include "kernels/runtime.h"

struct local_call;

struct local_call_attr {
	uint64_t op; /* of a registered kernel; it is this version as long as the call is there */
	const void *params;
	uint32_t params_len; /* at most ROOST_RPC_MAX_PARAMS */
	uint32_t pd, key;    /* the region of all its accesses; key 0: none */
	uint8_t *reply;	     /* where its data go; must stay */
	uint32_t room;	     /* bytes of it */
	/* it is to be attached where messages leave, and may wait before it does */
	bool out;
};

/*
 * Begins: the kernel takes its parameters. When it waits for operations of its own it goes on in
 * turns of its PU, and the stream that it is put on waits for it. 0; -ENOENT: no kernel has this
 * op-code; -EINVAL: too many parameters; -ENOMEM. The call may be finished already
 * (local_call_finished()): the kernel has replied. [control+owner of `pu`, to which it belongs]
 */
int local_call_begin(struct kernel_runtime *rt, unsigned pu, const struct local_call_attr *a,
		     struct local_call **out);
/*
 * The PU to which one should belong that is to be attached to a stream of PU `at`: where its kernel
 * can use the queue pairs that are bound to it. One that changes lengths has to belong there.
 * [control]
 */
unsigned local_call_pu(struct kernel_runtime *rt, uint64_t op, unsigned at);
/*
 * A kernel that the host runs goes on by itself, in turns of its PU, when it has begun with
 * local_call_start() instead: with payload of `len` bytes, which must stay (NULL: none). It may
 * wait, for what it has under way on bound queue pairs. As local_call_begin(), which says what that
 * returns.
 */
int local_call_start(struct kernel_runtime *rt, unsigned pu, const struct local_call_attr *a,
		     const void *payload, uint64_t len, struct local_call **out);
/* Is it finished? Release order: its reply is there. Any thread. */
bool local_call_done(const struct local_call *p);

/*
 * Attaches it to a stream: its kernel needs stream(). One stream for each. 0; -EOPNOTSUPP: it has
 * none, or the QP can't; -EXDEV: it changes lengths, and belongs to another PU; or the errors of
 * nic_stream_attach_in(), _attach_out(), _attach_region(). [as those]
 */
int local_call_attach_in(struct local_call *p, struct nic_qp *qp);
int local_call_attach_out(struct local_call *p, struct nic_qp *qp);
int local_call_attach_region(struct local_call *p, uint32_t key);
/*
 * Takes it off: it sees no more. 0, or -EBUSY. A region counts as one with a hook until
 * local_call_free(). [as those]
 */
int local_call_detach(struct local_call *p);
/*
 * Is it in the middle of a piece, waiting, or has operations under way, be it finished or not? One
 * that is off its stream is done with that some time. [owner of its PU]
 */
bool local_call_busy(const struct local_call *p);
/*
 * The stream is at its end, which the kernel sees once, and may reply to. Not while
 * local_call_busy(), which is true again when it waits, or has posted something: then this is to be
 * called once more. [owner of its PU]
 */
void local_call_end_stream(struct local_call *p);

struct local_call_result {
	uint32_t status; /* enum roost_rpc_status or the kernel's own */
	uint32_t len;	 /* bytes of data; more than `room`: they did not fit */
	uint64_t bytes;	 /* that it has seen */
};
/*
 * True when its kernel is not run any more: it has replied, or failed; *out then says how it ended,
 * else how far it is.
 */
bool local_call_finished(const struct local_call *p, struct local_call_result *out);
/*
 * Off every stream. What is under way on bound queue pairs goes on. [control+owner of its PU; of
 * all, when it was on a region]
 */
void local_call_free(struct local_call *p);

#endif
