/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Options that two Roost ends agree on while they connect. They are in the 32 bits of the
 * connection manager's ECE (ibv_query_ece(3), ibv_set_ece(3)). docs/wire.md defines the bits.
 *
 *	active: query -> offer --REQ--> passive: set, query -> answer --REP--> active: set
 *
 * The answer is computed from the offer. For a vendor that its device does not know, rdma-core's
 * librdmacm answers with that vendor's id and arbitrary options. Such an answer must not be
 * mistaken for consent.
 */
#include "base/rng.h"
#include "nic/nic_chain.h"
#include "nic/nic_rpc.h"
#include "roost/chain_verbs.h"
#include "roost/verbs.h"
#include "verbs/objects.h"

#define ECE_KEEPALIVE (1u << 0)
#define ECE_RPC	      (1u << 1) /* the op-codes of calls; only if the program offers them */
#define ECE_CALC      (1u << 2) /* the op-code of calculations; only if the program offers it */
#define ECE_FEATURES  0xffu
#define ECE_ANSWER    (1u << 15)
#define ECE_NUMBER(o) ((o) >> 16)

static uint32_t offered_features(const struct verbs_qp *qp)
{
	if (qp->qp.qp_type != IBV_QPT_RC)
		return 0;
	return ECE_KEEPALIVE | (qp->offers_rpc ? ECE_RPC : 0) | (qp->offers_calc ? ECE_CALC : 0);
}

static uint32_t answer_to(uint32_t offer, uint32_t features)
{
	uint32_t number = (ECE_NUMBER(offer) * 0x9e35u + 0x79b9u + features) & 0xffff;

	return number << 16 | ECE_ANSWER | features;
}

/* Returns the offer, which is created once for each connection. It is never 0. */
static uint32_t offer_of(struct verbs_qp *qp)
{
	if (!qp->ece && offered_features(qp))
		qp->ece = (uint32_t)rng_entropy() << 16 | offered_features(qp);
	return qp->ece;
}

static int enable_calc(struct verbs_qp *qp)
{
	int ret;

	drive_own(qp->drive, qp->pu);
	ret = nic_qp_set_calc(qp->nic_qp);
	drive_disown(qp->drive, qp->pu);
	return ret;
}

static int enable_features(struct verbs_qp *qp, uint32_t features)
{
	int ret;

	drive_control_lock(qp->drive);
	drive_own(qp->drive, qp->pu);
	ret = nic_qp_keepalive(drive_nic(qp->drive), qp->nic_qp, features & ECE_KEEPALIVE,
			       drive_now(qp->drive));
	drive_disown(qp->drive, qp->pu);
	drive_control_unlock(qp->drive);
	if (!ret && features & ECE_RPC)
		ret = verbs_enable_rpc(qp);
	if (!ret && features & ECE_CALC)
		ret = enable_calc(qp);
	return ret;
}

static int set_options(struct verbs_qp *qp, uint32_t options)
{
	/* 0: this end has made no offer, so `options` is not that offer */
	uint32_t features = options & offered_features(qp), offer = qp->ece;
	int ret;

	if (options & ECE_ANSWER) {
		if (offer & ECE_ANSWER || !offer || options != answer_to(offer, features))
			return -EOPNOTSUPP;
	} else if (!features || options == offer) {
		/* the value has no option that Roost knows, or is this end's own offer */
		return -EOPNOTSUPP;
	} else {
		options = answer_to(options, features);
	}
	ret = enable_features(qp, features);
	if (!ret)
		qp->ece = options;
	return ret;
}

/* Returns this end's offer, or the agreed options after ibv_set_ece(). */
VERBS_EXPORT int ibv_query_ece(struct ibv_qp *ibqp, struct ibv_ece *ece)
{
	uint32_t options = offer_of(verbs_qp(ibqp));

	*ece = (struct ibv_ece){.vendor_id = options ? VERBS_VENDOR_ID : 0, .options = options};
	return 0;
}

/*
 * Takes the other end's offer or answer. Options of other vendors cannot be used. An ECE of another
 * vendor without options is no error.
 */
VERBS_EXPORT int ibv_set_ece(struct ibv_qp *ibqp, struct ibv_ece *ece)
{
	struct verbs_qp *qp = verbs_qp(ibqp);

	if (ece->comp_mask || (ibqp->state != IBV_QPS_RESET && ibqp->state != IBV_QPS_INIT))
		return verbs_ret(-EINVAL);
	if (ece->vendor_id != VERBS_VENDOR_ID)
		return verbs_ret(ece->vendor_id && !ece->options ? 0 : -EOPNOTSUPP);
	return verbs_ret(set_options(qp, ece->options));
}

/*
 * Offers a feature. If the offer exists already, one bit is added to it: an end that has received
 * the offer without the bit has not connected yet.
 */
static int offer(struct verbs_qp *qp, bool *offers, uint32_t feature)
{
	if (qp->qp.qp_type != IBV_QPT_RC)
		return verbs_ret(-EOPNOTSUPP);
	if (qp->ece & ECE_ANSWER || (qp->qp.state != IBV_QPS_RESET && qp->qp.state != IBV_QPS_INIT))
		return verbs_ret(-EINVAL);
	*offers = true;
	if (qp->ece)
		qp->ece |= feature;
	return 0;
}

VERBS_EXPORT int roost_qp_offer_rpc(struct ibv_qp *qp)
{
	return offer(verbs_qp(qp), &verbs_qp(qp)->offers_rpc, ECE_RPC);
}

VERBS_EXPORT int roost_qp_offer_calc(struct ibv_qp *qp)
{
	return offer(verbs_qp(qp), &verbs_qp(qp)->offers_calc, ECE_CALC);
}

VERBS_EXPORT int roost_qp_enable_calc(struct ibv_qp *qp)
{
	return verbs_ret(enable_calc(verbs_qp(qp)));
}

VERBS_EXPORT bool roost_qp_has_calc(struct ibv_qp *qp)
{
	return nic_qp_has_calc(verbs_qp(qp)->nic_qp);
}

VERBS_EXPORT bool roost_qp_has_rpc(struct ibv_qp *qp)
{
	return nic_qp_rpc(verbs_qp(qp)->nic_qp);
}
