/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The interface for kernels: code that a NIC runs next to its memory, for calls from its peers, on
 * streams, or for the host.
 *
 * A kernel gets parameters and payload, never packets. It has no pointer to the memory of a region:
 * it asks for each access, and the kernel runtime checks it. For example:
 *
 *	#include <roost/kernel.h>
 *
 *	struct state { uint64_t where, value; };
 *
 *	static enum roost_next run(struct roost_call *c)
 *	{
 *		struct state *s = c->state;
 *
 *		ROOST_STEPS(c);
 *		if (c->params_len != 8)
 *			ROOST_FAIL(c, ROOST_RPC_BAD_PARAMS);
 *		ROOST_READ(c, *(const uint64_t *)c->params, &s->where, 8);	// a pointer
 *		ROOST_READ(c, s->where, &s->value, 8);				// what it points to
 *		ROOST_REPLY(c, &s->value, 8);
 *		ROOST_STEPS_END;
 *	}
 *
 *	const struct roost_kernel follow = {
 *		.abi = ROOST_KERNEL_ABI, .name = "follow", .version = 1, .op = 0x1000,
 *		.state_size = sizeof(struct state), .params = run,
 *	};
 *
 * Steps. ROOST_READ makes the function return. The kernel runtime prefetches the memory, runs other
 * calls meanwhile, and calls the function again when the bytes are there; the function then
 * continues behind the macro. Therefore:
 *   - local variables lose their values across these macros; `state` keeps its contents;
 *   - the macros must not be used inside a `switch` statement of the kernel's own.
 * An access that is refused ends the call with ROOST_RPC_ACCESS. The kernel needs no code for it.
 *
 * Addresses are those of the region that the call's key names, as the caller sees them. Parameters
 * are aligned to 8. The kernel chooses the byte order of numbers in memory and parameters.
 *
 * Threads. The functions run on the thread that drives the NIC: they must not block, sleep or
 * allocate. Calls of one queue pair never run concurrently. Calls of different queue pairs may, if
 * the NIC has several processing units; they share the memory behind `self`.
 *
 * Faults. A step that crashes, or does not return for a fifth of a second (a third if its thread
 * does not run meanwhile), is left by a jump. Its call ends with ROOST_RPC_FAULT or
 * ROOST_RPC_STUCK, and the kernel is disabled until it is replaced. A lock that the step held
 * remains taken.
 */
#ifndef ROOST_KERNEL_H
#define ROOST_KERNEL_H

#include <stdbool.h>
#include <stdint.h>

#include "roost/kernel_call.h"
#include "roost/kernel_steps.h"

/*
 * Version of struct roost_kernel and struct roost_call. It increases with each change, and a node
 * refuses objects of another version. Until the first release functions may change as well.
 */
#define ROOST_KERNEL_ABI       3
#define ROOST_KERNEL_MAX_STATE 16384 /* state_size + scratch_size */
#define ROOST_KERNEL_NAME      32    /* bytes of a name, its final 0 included; printable */

#define ROOST_KERNEL_RESOURCES 256 /* resources of a kernel, at most */

#define ROOST_KERNEL_GRANTS 8  /* granted regions of a kernel, at most */
#define ROOST_KERNEL_QPS    64 /* bound queue pairs of a kernel, at most */

/* The descriptor of a kernel. It must remain valid while the kernel is registered. */
struct roost_kernel {
	uint32_t abi;	  /* ROOST_KERNEL_ABI */
	uint32_t version; /* its own */
	const char *name;
	uint64_t op; /* the op-code by which calls name the kernel */
	uint32_t state_size, scratch_size;
	/*
	 * start() runs when the kernel is registered: *self is the host's argument, and may be
	 * changed. Returns 0 or -errno. stop() runs after the kernel's last call. Both may be NULL.
	 */
	int (*start)(void **self);
	void (*stop)(void *self);
	/*
	 * Begins a call. If it returns ROOST_DONE without a reply, a call with payload continues
	 * with payload(), and a call without payload ends with ROOST_RPC_OK and no data.
	 */
	enum roost_next (*params)(struct roost_call *c);
	/*
	 * Processes the next piece of payload. NULL: the kernel takes no payload. Payload that no
	 * call announced begins a call without parameters.
	 */
	enum roost_next (*payload)(struct roost_call *c);
	/*
	 * Processes the next piece of a stream to which the kernel is attached (roost_qp_attach()).
	 * NULL: the kernel cannot be attached. The piece is part of a message of `total` bytes.
	 * Pieces come in order, each byte once; each message starts at offset 0. An empty piece
	 * with total 0 is the end of the stream; the reply to it goes to the host. A reply before
	 * that ends the hook, not the stream.
	 *
	 * The kernel may post to bound queue pairs and wait. The stream then waits as well, from
	 * the next piece on, and roost_hook_detach() returns EBUSY while the kernel waits, also at
	 * the end. The stream waits for params() in the same way. After such an operation `data`
	 * and `rewrite` are NULL, since the packet may be gone (not with `resizes`); received bytes
	 * are in memory, at `where`. A kernel on an outgoing stream posts to queue pairs whose
	 * outgoing stream has no hook; for others the operation fails with ROOST_QP_INVALID.
	 */
	enum roost_next (*stream)(struct roost_call *c);
	bool rewrites; /* stream() changes outgoing bytes in place: c->rewrite */
	/*
	 * stream() replaces outgoing WRITEs by the bytes, of any length, that it sends by
	 * ROOST_SEND and ROOST_SEND_FROM, in order. One WRITE may become several, to consecutive
	 * addresses. Output that remains after the last piece is sent with the next message. SENDs
	 * are not passed to the kernel.
	 */
	bool resizes;
	/*
	 * Runs instead of start() when the kernel replaces `old`, possibly another version of the
	 * same kernel. *self is the old version's. Calls in progress continue on the old version
	 * with its self. NULL: start() is called, and the versions share nothing.
	 *
	 * If take_over() leaves *self unchanged, both versions share it: the new version's stop()
	 * is called when neither has calls, and the old version's stop() is not called. If
	 * take_over() sets another *self, the old version's stop() is called after the old
	 * version's last call. Returns 0, or -errno: then nothing changes.
	 */
	int (*take_over)(void **self, const struct roost_kernel *old);
	/*
	 * Runs when the runtime has ended a call: its queue pair ended, an access was refused, the
	 * call exceeded its bound, or its payload was cut short. The call still has its state, self
	 * and parameters. cut() gives back the resources that the call took from self, and makes no
	 * request. The runtime does not call it after a crash. May be NULL.
	 */
	void (*cut)(struct roost_call *c);
	/*
	 * Resources: parts of `self` that calls take, beside their own state. They are numbered
	 * from 1 to `resources` (at most ROOST_KERNEL_RESOURCES). A resource belongs to the
	 * connection whose call took it by roost_take(), or to the host. A connection may have
	 * `resources_each` resources (0: all), and all connections of one peer (address) together
	 * may have half of them. From its first use on, each resource counts as `resource_bytes` of
	 * the node's memory. Versions that share a `self` share its resources; the first of these
	 * versions sets their number.
	 */
	uint32_t resources, resources_each;
	uint64_t resource_bytes;
	/*
	 * Runs when the connection that owned this resource has ended without giving it back, after
	 * the last call of the connection and after cut() of these calls. The number is not handed
	 * out again before ended() returns. Calls of other connections may use the resource
	 * meanwhile, on other processing units. NULL: the resource is given back without a call.
	 */
	void (*ended)(void *self, uint32_t number);
};

/*
 * Exports a descriptor from a shared object, once per object, so that the kernel can be loaded into
 * a running NIC (roost_kernel_load(), `roost kernel load`).
 */
#ifdef __cplusplus
#define ROOST_KERNEL_EXPORT(descriptor)                                                            \
	extern "C" __attribute__((visibility("default"), used))                                    \
	const struct roost_kernel *const roost_kernel_exported = &(descriptor)
#else
#define ROOST_KERNEL_EXPORT(descriptor)                                                            \
	__attribute__((visibility("default"), used))                                               \
	const struct roost_kernel *const roost_kernel_exported = &(descriptor)
#endif
#define ROOST_KERNEL_SYMBOL "roost_kernel_exported"

#endif
