/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The budget of a turn for kernels. It bounds the time that other QPs wait, whatever kernels a peer
 * calls. Steps differ in length: a hop along a list takes 50 ns, a piece of payload 10 us.
 * Therefore the drive measures turns in which kernels spent many units, and the budget is adapted
 * so that a turn takes TURN_NS.
 */
#include "kernels/call.h"

#define TURN_NS	     20000
#define FIRST	     256u
#define LEAST	     8u	   /* units; enough for progress with a piece of 4 KiB */
#define MOST	     1024u /* units of a shared turn */
#define ALONE	     4096u
#define WORTH_TIMING 16u

void units_begin(struct runtime_pu *pu)
{
	pu->units.allowed = FIRST;
}

void units_begin_turn(struct runtime_pu *pu)
{
	struct nic_rpc_turn turn = nic_rpc_turn(pu->rt->nic, pu->index);
	struct turn_units *u = &pu->units;

	u->shared = turn.shared;
	if (likely(turn.number == u->number))
		return;
	u->number = turn.number;
	u->began = turn.began;
	u->spent = 0;
	u->payload_qps_before = u->payload_qps;
	u->payload_qps = 0;
}

void units_request_time(const struct runtime_pu *pu)
{
	if (pu->units.shared &&
	    (pu->units.spent >= WORTH_TIMING || pu->units.spent >= pu->units.allowed))
		nic_rpc_request_turn_end(pu->rt->nic, pu->index);
}

uint32_t units_left(const struct runtime_pu *pu, uint32_t most)
{
	const struct turn_units *u = &pu->units;
	uint32_t left;

	if (!u->shared)
		return most;
	/* Calls get at least half of the budget, however much payload has spent. */
	left = u->spent < u->allowed / 2 ? u->allowed - u->spent : u->allowed / 2;
	left = left > LEAST ? left : LEAST;
	return left < most ? left : most;
}

uint32_t units_for_piece(struct call_qp *q, uint32_t most)
{
	struct turn_units *u = &q->pu->units;
	uint32_t part;

	units_begin_turn(q->pu);
	if (q->share.number != u->number) {
		q->share.number = u->number;
		q->share.spent = 0;
		u->payload_qps++;
	}
	if (!u->shared)
		return q->share.spent < ALONE ? most : 0;
	if (u->spent >= 2 * u->allowed)
		return 0;
	part = u->payload_qps_before > 1 ? u->allowed / u->payload_qps_before : u->allowed;
	part = part > LEAST ? part : LEAST;
	if (q->share.spent >= part)
		return 0;
	part -= q->share.spent;
	return part < most ? part : most;
}

void units_charge(struct call_qp *q, uint32_t before)
{
	q->share.spent += q->pu->units.spent - before;
	units_request_time(q->pu);
}

void units_turn_ended(struct runtime_pu *pu, uint64_t now)
{
	struct turn_units *u = &pu->units;
	uint64_t took = now > u->began ? now - u->began : 0, fits;

	if (!u->shared || !u->spent)
		return;
	if (took > TURN_NS) {
		fits = (uint64_t)u->spent * TURN_NS / took;
		if (fits < u->allowed)
			u->allowed = fits > LEAST ? (uint32_t)fits : LEAST;
	} else if (u->spent >= u->allowed / 2 && u->allowed < MOST) {
		u->allowed += u->allowed / 8 + 1;
	}
}
