/* SPDX-License-Identifier: BSD-2-Clause */
/* Stream hooks inside the core, and the hook that changes the length of WRITEs. */
#ifndef ROOST_NIC_STREAM_H
#define ROOST_NIC_STREAM_H

#include "nic/core.h"
#include "nic/nic_stream.h"

/* stream.c */
/* Returns true if hooks may see the peer's WRITEs. */
static inline bool stream_has_in(const struct nic_qp *qp)
{
	return qp->num_in | qp->nic->num_region_hooks;
}
/*
 * Shows bytes, which are in memory now, to the hooks. `key` is the key of the region, even if the
 * peer named a window.
 */
void stream_run_in(struct nic_qp *qp, uint32_t key, const struct nic_stream_piece *piece);
/*
 * Begins a piece for the hooks of the region. Returns false if a hook is paused. stream_run_in()
 * ends the piece, or stream_abort_in() if the bytes could not be stored.
 */
bool stream_begin_in(const struct nic_qp *qp, uint32_t key);
void stream_abort_in(const struct nic_qp *qp, uint32_t key);
/* Returns true if hooks see this outgoing message. */
static inline bool stream_sees_out(const struct nic_qp *qp, const struct sq_entry *e)
{
	return qp->num_out && sq_origins[e->origin].hooked && e->op >= ROOST_OP_WRITE &&
	       e->op <= ROOST_OP_SEND_INV;
}
void stream_run_out(struct nic_qp *qp, const struct sq_entry *e, uint8_t *data, uint32_t off,
		    uint32_t n);
bool stream_space(const struct nic_qp *qp);  /* true if another packet may leave */
bool stream_paused(const struct nic_qp *qp); /* true if an outgoing hook is paused */
int stream_gather(struct nic_qp *qp, const struct sq_entry *e, uint32_t pkt, uint8_t *dst,
		  uint32_t n); /* like sq_gather() */
void stream_detach(struct nic_qp *qp);
/* Returns true if the region has a hook. [control] */
bool stream_on_region(const struct nic *nic, uint32_t key);
/* Show a piece of a WRITE to the hooks before, or behind, the hook that changes lengths. */
void stream_run_out_before(struct nic_qp *qp, const struct nic_stream_hook *hook,
			   const struct nic_stream_piece *piece);
void stream_run_out_after(struct nic_qp *qp, const struct nic_stream_hook *hook,
			  const struct nic_stream_piece *piece);

/* resize.c */
/* Sets qp->resize. Returns 0 or -ENOMEM. */
int resize_begin(struct nic_qp *qp, struct nic_stream_hook *hook);
void resize_end(struct nic_qp *qp);
bool resize_fetch(struct nic_qp *qp); /* sq_fetch() for such a queue */
/*
 * Returns true if all segments are in use, or a hook is paused. An ACK, or the resumed hook,
 * schedules the QP then.
 */
bool resize_blocked(const struct nic_qp *qp);
bool resize_active(const struct nic_qp *qp);
/* Returns true if a part of a WQE was sent, and its next segment was not. */
bool resize_continues(const struct nic_qp *qp);
int resize_gather(struct nic_qp *qp, const struct sq_entry *e, uint32_t off, uint8_t *dst,
		  uint32_t n);
void resize_retired(struct nic_qp *qp, const struct sq_entry *e);
void resize_flush(struct nic_qp *qp);
void resize_reset(struct nic_qp *qp);

#endif
