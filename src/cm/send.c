/* SPDX-License-Identifier: BSD-2-Clause */
/* Builds and sends messages. */
#include "cm/core.h"

#include <endian.h>
#include <string.h>

static void put(struct cm *cm, const struct pkt_addr *src, const struct pkt_addr *dst,
		uint8_t tclass, const uint8_t *mad)
{
	struct cm_datagram d = {*src, *dst, tclass, mad};

	cm->counters.sent[mad[17] - CM_ATTR_FIRST]++;
	cm->ops.send(cm->ops.ctx, &d);
}

/* Returns the type of the saved message. Reads only its attribute id. */
enum cm_attr cm_saved_attr(const struct cm_conn *c)
{
	return (enum cm_attr)c->saved[17];
}

void cm_msg_init(const struct cm_conn *c, struct cm_msg *m, enum cm_attr attr, bool own_tid)
{
	memset(m, 0, sizeof(*m));
	m->attr = attr;
	m->tid = own_tid ? (uint64_t)c->cm->tid_high << 32 | c->local_id : c->tid;
	m->local_id = c->local_id;
	m->remote_id = c->remote_id;
}

void cm_send(struct cm_conn *c, const struct cm_msg *m)
{
	cm_build(m, c->saved);
	put(c->cm, &c->src, &c->dst, c->tclass, c->saved);
}

void cm_send_again(struct cm_conn *c)
{
	put(c->cm, &c->src, &c->dst, c->tclass, c->saved);
}

void cm_answer(struct cm *cm, const struct pkt_addr *src, const struct pkt_addr *dst,
	       const struct cm_msg *m)
{
	uint8_t mad[CM_MAD_LEN];

	cm_build(m, mad);
	put(cm, src, dst, 0, mad);
}

static void fill_rej(struct cm *cm, struct cm_msg *m, uint8_t about, uint16_t reason,
		     const void *info, size_t info_len)
{
	m->rej.about = about;
	m->rej.reason = reason;
	m->rej.ari_len = (uint8_t)info_len;
	if (info_len)
		memcpy(m->rej.ari, info, info_len);
	if (reason < CM_REASONS)
		cm->counters.rejects_sent[reason]++;
}

void cm_refuse(struct cm *cm, const struct pkt_addr *src, const struct pkt_addr *dst,
	       const struct cm_msg *to, uint8_t about, uint16_t reason, const void *info,
	       size_t info_len)
{
	struct cm_msg m = {.attr = CM_REJ,
			   .tid = to->tid,
			   .local_id = to->remote_id,
			   .remote_id = to->local_id};

	fill_rej(cm, &m, about, reason, info, info_len);
	cm_answer(cm, src, dst, &m);
}

void cm_send_rej(struct cm_conn *c, uint8_t about, uint16_t reason, const void *info,
		 size_t info_len, const void *data, size_t data_len)
{
	struct cm_msg m;

	cm_msg_init(c, &m, CM_REJ, false);
	fill_rej(c->cm, &m, about, reason, info, info_len);
	if (data_len)
		memcpy(m.data, data, data_len);
	cm_send(c, &m);
}

void cm_send_rej_timeout(struct cm_conn *c)
{
	uint64_t guid = htobe64(c->cm->config.guid);

	cm_send_rej(c, CM_ABOUT_OTHER, CM_REJ_TIMEOUT, &guid, sizeof(guid), NULL, 0);
}

void cm_send_mra(struct cm_conn *c, uint8_t service_timeout)
{
	struct cm_msg m;

	cm_msg_init(c, &m, CM_MRA, false);
	m.mra.about = c->active ? CM_ABOUT_REP : CM_ABOUT_REQ;
	m.mra.service_timeout = service_timeout;
	cm_send(c, &m);
	cm_set_state(c, c->active ? CM_MRA_REP_SENT : CM_MRA_REQ_SENT);
	/* The peer repeats its request only after that time, so the refusal must be kept longer. */
	c->keep_ns += cm_interval(c->ack_timeout, service_timeout);
}

void cm_send_dreq(struct cm_conn *c, uint64_t now, const void *data, size_t data_len)
{
	struct cm_msg m;

	cm_msg_init(c, &m, CM_DREQ, true);
	m.dreq.qpn = c->remote_qpn;
	if (data_len)
		memcpy(m.data, data, data_len);
	cm_await(c, now, CM_DREQ_SENT);
	cm_send(c, &m);
}

void cm_leave_will(struct cm_conn *c, bool established)
{
	uint32_t index = (uint32_t)(c - c->cm->conns);
	struct cm_datagram d = {c->src, c->dst, c->tclass, NULL};
	uint8_t mad[CM_MAD_LEN];
	struct cm_msg m;

	if (!c->cm->ops.will)
		return;
	if (!established) {
		c->cm->ops.will(c->cm->ops.ctx, index, NULL);
		return;
	}
	cm_msg_init(c, &m, CM_DREQ, true);
	m.dreq.qpn = c->remote_qpn;
	cm_build(&m, mad);
	d.mad = mad;
	c->cm->ops.will(c->cm->ops.ctx, index, &d);
}

void cm_probe_peer(struct cm_conn *c)
{
	struct cm_msg m;

	cm_msg_init(c, &m, CM_DREQ, true);
	cm_answer(c->cm, &c->src, &c->dst, &m);
}

void cm_send_drep(struct cm_conn *c, const void *data, size_t data_len)
{
	struct cm_msg m;

	cm_msg_init(c, &m, CM_DREP, false);
	if (data_len)
		memcpy(m.data, data, data_len);
	cm_send(c, &m);
}
