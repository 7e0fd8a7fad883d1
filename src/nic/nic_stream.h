/* SPDX-License-Identifier: BSD-2-Clause */
/* Stream hooks: they see the bytes of WRITEs and SENDs. The thread rules are those of nic.h. */
#ifndef ROOST_NIC_NIC_STREAM_H
#define ROOST_NIC_NIC_STREAM_H

#include "nic/nic.h"

#define NIC_MAX_CHAIN	     2 /* hooks on one side of a QP, in order */
#define NIC_MAX_REGION_HOOKS 8 /* hooks on regions */

/* Bytes of a WRITE, or of an outgoing SEND. Hooks do not see messages without bytes. */
struct nic_stream_piece {
	/* for a WRITE. Out: the peer's address; in: the address in the region, not in a window */
	uint64_t va;
	/*
	 * valid during the call. In: a peer may write to this memory meanwhile; read each byte
	 * once, change none
	 */
	uint8_t *data;
	uint32_t total;	   /* bytes of the message */
	uint32_t off, len; /* of this piece in the message */
	bool last;
	unsigned pu; /* the current PU */
};

/* A hook. The NIC borrows it until it is detached. */
struct nic_stream_hook {
	/*
	 * Takes a piece. Pieces come in order, each byte once; on an unreliable connection only the
	 * bytes that arrive. [owner of the QP's PU]
	 */
	void (*bytes)(struct nic_stream_hook *hook, const struct nic_stream_piece *piece);
	/* The QP is being destroyed. [control+owner] */
	void (*gone)(struct nic_stream_hook *hook);
	bool rewrites; /* out: bytes() may change data */
	/*
	 * The hook takes no bytes. bytes() sets it, and nic_stream_resume() clears it. Meanwhile
	 * incoming WRITEs get an RNR NAK (on an unreliable connection they are dropped), and
	 * outgoing packets wait.
	 * Memory order: another thread clears it (release) when the kernel is done with a piece;
	 * the PU loads it (acquire) before it begins the next piece.
	 */
	atomic_bool paused;
	/*
	 * For a hook on a region, which several PUs may call; else NULL. begin_piece() is called
	 * before the bytes of a piece are stored, and returns false if the hook is paused.
	 * end_piece() ends the piece, after bytes() or without it.
	 */
	bool (*begin_piece)(struct nic_stream_hook *hook);
	void (*end_piece)(struct nic_stream_hook *hook);
	/*
	 * Out: for a hook that changes the length of WRITEs; else NULL. After bytes(), stores at
	 * most `space` bytes of output; *needs_input: the piece has no more output. produce() may
	 * pause the hook; the piece then stays. The WRITE leaves as several WRITEs, and bytes()
	 * runs before they are sent. The hook does not see SENDs. [owner of the QP's PU]
	 */
	uint32_t (*produce)(struct nic_stream_hook *hook, uint8_t *to, uint32_t space,
			    bool *needs_input);
	/*
	 * With produce(): the QP has failed, or is reset or destroyed, before the piece was done.
	 * The piece is gone, and produce() does not run until the next one. [owner]
	 */
	void (*drop)(struct nic_stream_hook *hook);
};
/*
 * Attaches a hook behind the present hooks of this side. In: it sees the peer's WRITEs, once they
 * are in memory. Out: it sees the program's WRITEs and SENDs. [control+owner] Return 0, or
 *  -EOPNOTSUPP  in: neither RC nor UC. Out: not RC, or set up for chains
 *  -EBUSY       out: work is in flight
 *  -ENOSPC      NIC_MAX_CHAIN hooks, or a second hook that changes lengths
 *  -ENOMEM
 */
int nic_stream_attach_in(struct nic_qp *qp, struct nic_stream_hook *hook);
int nic_stream_attach_out(struct nic_qp *qp, struct nic_stream_hook *hook);
/* Returns true if a hook is attached to the outgoing side. [owner] */
bool nic_stream_has_out(const struct nic_qp *qp);
/*
 * Resumes a paused hook of `qp`; NULL: the hook is attached to a region, or is not attached.
 * [owner]
 */
void nic_stream_resume(struct nic_stream_hook *hook, struct nic_qp *qp);
/* Resumes a paused hook of a QP of another PU. The QP must not be destroyed meanwhile. [any] */
void nic_stream_resume_remote(struct nic_stream_hook *hook, struct nic_qp *qp);
/*
 * Detaches a hook from a QP. Returns 0; -ENOENT; -EBUSY: the hook rewrites or changes lengths, and
 * work is in flight. [control+owner]
 */
int nic_stream_detach(struct nic_qp *qp, struct nic_stream_hook *hook);
/*
 * Attaches a hook to the WRITEs of all QPs into this region, by the key of the region or of a
 * window, or detaches it. Several PUs call the hook at the same time. Attaching returns 0 or
 * -ENOSPC; detaching returns 0 or -ENOENT. [control+owner of all PUs]
 */
int nic_stream_attach_region(struct nic *nic, uint32_t key, struct nic_stream_hook *hook);
int nic_stream_detach_region(struct nic *nic, struct nic_stream_hook *hook);
/* Detaches all hooks of a region that is being deregistered. [control+owner of all PUs] */
void nic_stream_region_forget(struct nic *nic, uint32_t key);

#endif
