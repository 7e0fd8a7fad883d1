/* SPDX-License-Identifier: BSD-2-Clause */
#include "cm/mad.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "cm/layout.h"

const char *cm_reason_str(unsigned reason)
{
	static const char *const text[CM_REASONS] = {
		[CM_REJ_NO_QP] = "no QP",
		[CM_REJ_NO_EEC] = "no EE context",
		[CM_REJ_NO_RESOURCES] = "no resources",
		[CM_REJ_TIMEOUT] = "time-out",
		[CM_REJ_UNSUPPORTED] = "unsupported request",
		[CM_REJ_INVALID_COMM_ID] = "invalid communication id",
		[CM_REJ_INVALID_COMM_INSTANCE] = "invalid communication instance",
		[CM_REJ_INVALID_SERVICE_ID] = "invalid service id",
		[CM_REJ_INVALID_TRANSPORT] = "invalid transport service type",
		[CM_REJ_STALE] = "stale connection",
		[CM_REJ_RDC_NOT_EXIST] = "RDC does not exist",
		[CM_REJ_INVALID_GID] = "invalid GID",
		[CM_REJ_INVALID_LID] = "invalid LID",
		[CM_REJ_INVALID_SL] = "invalid service level",
		[CM_REJ_INVALID_TCLASS] = "invalid traffic class",
		[CM_REJ_INVALID_HOP_LIMIT] = "invalid hop limit",
		[CM_REJ_INVALID_RATE] = "invalid packet rate",
		[CM_REJ_INVALID_ALT_GID] = "invalid alternate GID",
		[CM_REJ_INVALID_ALT_LID] = "invalid alternate LID",
		[CM_REJ_INVALID_ALT_SL] = "invalid alternate service level",
		[CM_REJ_INVALID_ALT_TCLASS] = "invalid alternate traffic class",
		[CM_REJ_INVALID_ALT_HOP_LIMIT] = "invalid alternate hop limit",
		[CM_REJ_INVALID_ALT_RATE] = "invalid alternate packet rate",
		[CM_REJ_PORT_CM_REDIRECT] = "port and CM redirection",
		[CM_REJ_PORT_REDIRECT] = "port redirection",
		[CM_REJ_INVALID_MTU] = "invalid path MTU",
		[CM_REJ_INSUFFICIENT_RESOURCES] = "insufficient responder resources",
		[CM_REJ_CONSUMER] = "consumer reject",
		[CM_REJ_RNR_RETRY] = "RNR retry count reject",
		[CM_REJ_DUPLICATE_COMM_ID] = "duplicate communication id",
		[CM_REJ_INVALID_CLASS_VERSION] = "invalid class version",
		[CM_REJ_INVALID_FLOW_LABEL] = "invalid flow label",
		[CM_REJ_INVALID_ALT_FLOW_LABEL] = "invalid alternate flow label",
		[CM_REJ_VENDOR_OPTION] = "vendor option not supported",
	};

	return reason < CM_REASONS && text[reason] ? text[reason] : "unknown";
}

static void put_gid(struct text *o, const struct cm_msg *m, const struct cm_field *f)
{
	static const uint8_t none[CM_GID_LEN];
	const uint8_t *gid = (const uint8_t *)m + f->offset;
	struct pkt_addr a;
	char text[64];

	if (memcmp(gid, none, CM_GID_LEN) == 0)
		return;
	memcpy(a.b, gid, CM_GID_LEN);
	text_put(o, " %s %s", f->name, pkt_addr_print(&a, text, sizeof(text)));
}

static void put_number(struct text *o, const struct cm_field *f, uint64_t v)
{
	static const char *const about[] = {"REQ", "REP", "other", "?"};

	switch (f->form) {
	case FORM_ABOUT:
		text_put(o, " %s %s", f->name, about[v & 3]);
		return;
	case FORM_REASON:
		text_put(o, " %s %" PRIu64 " (%s)", f->name, v, cm_reason_str((unsigned)v));
		return;
	case FORM_LID:
		if (v == 0xffff)
			return;
		break;
	case FORM_MTU:
		if (v >= 1 && v <= 5) {
			text_put(o, " %s %u", f->name, 128u << v);
			return;
		}
		break;
	case FORM_HEX:
		if (v)
			text_put(o, " %s 0x%0*" PRIx64, f->name, f->width / 4, v);
		return;
	default:
		break;
	}
	if (v)
		text_put(o, " %s %" PRIu64, f->name, v);
}

/*
 * Prints the addresses before the private data, if any, and the length of the private data up to
 * the last byte that is not 0.
 */
static void put_data(struct text *o, const struct cm_msg *m)
{
	uint64_t service = m->attr == CM_REQ	    ? m->req.service_id
			   : m->attr == CM_SIDR_REQ ? m->sidr_req.service_id
						    : 0;
	size_t from = 0, len = cm_data_len(m->attr);
	char src[64], dst[64];
	struct cm_ip ip;

	if (cm_service_is_ip(service) && cm_ip_parse(m->data, &ip) == 0) {
		pkt_addr_print(&ip.src, src, sizeof(src));
		pkt_addr_print(&ip.dst, dst, sizeof(dst));
		text_put(o, " ip %s %u > %s %u", src, ip.sport, dst, (unsigned)(service & 0xffff));
		from = CM_IP_LEN;
	}
	while (len > from && !m->data[len - 1])
		len--;
	if (len > from)
		text_put(o, " data %zu", len - from);
}

int cm_print(const struct cm_msg *m, char *buf, size_t n)
{
	const struct cm_layout *l = cm_layout(m->attr);
	struct text o = {buf, n, 0};

	if (n == 0)
		return 0;
	text_put(&o, "%s tid 0x%016" PRIx64, l->name, m->tid);
	if (m->attr_mod)
		text_put(&o, " mod 0x%08x", m->attr_mod);
	for (unsigned i = 0; i < l->count; i++) {
		const struct cm_field *f = &l->fields[i];

		if (f->form == FORM_GID)
			put_gid(&o, m, f);
		else if (f->form != FORM_BYTES)
			put_number(&o, f, cm_field_get(m, f));
	}
	if (m->attr == CM_REP && m->rep.vendor_id)
		text_put(&o, " vendor 0x%06x", m->rep.vendor_id);
	if (m->attr == CM_SIDR_REP && m->sidr_rep.vendor_id)
		text_put(&o, " vendor 0x%06x", m->sidr_rep.vendor_id);
	put_data(&o, m);
	return (int)(o.used < n ? o.used : n - 1);
}
