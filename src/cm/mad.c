/* SPDX-License-Identifier: BSD-2-Clause */
#include "cm/mad.h"

#include <endian.h>
#include <string.h>

#include "base/mem.h"
#include "cm/layout.h"

/*
 * Bytes and bits are counted from the first byte after the MAD header, as in the tables of the
 * specification. Bit 0 is the highest bit of a byte.
 */
#define F(name, byte, bit, width, member, form)                                                    \
	{                                                                                          \
		name, 8 * (byte) + (bit), width, offsetof(struct cm_msg, member),                  \
			sizeof(((struct cm_msg *)0)->member), form                                 \
	}

#define PATH(base, prefix, member)                                                                 \
	F(prefix "local lid", base + 0, 0, 16, member.local_lid, FORM_LID),                        \
		F(prefix "remote lid", base + 2, 0, 16, member.remote_lid, FORM_LID),              \
		F(prefix "gid", base + 4, 0, 128, member.local_gid, FORM_GID),                     \
		F(prefix "to", base + 20, 0, 128, member.remote_gid, FORM_GID),                    \
		F(prefix "flow", base + 36, 0, 20, member.flow_label, FORM_HEX)

#define SLOW(base, prefix, member)                                                                 \
	F(prefix "sl", base, 0, 4, member.sl, FORM_DEC),                                           \
		F(prefix "subnet local", base, 4, 1, member.subnet_local, FORM_DEC),               \
		F(prefix "ack timeout", base + 1, 0, 5, member.ack_timeout, FORM_DEC)

#define IDS F("id", 0, 0, 32, local_id, FORM_HEX), F("remote id", 4, 0, 32, remote_id, FORM_HEX)

/* Table 106, with table 96's vendor id for ECE. */
static const struct cm_field req_fields[] = {
	F("id", 0, 0, 32, local_id, FORM_HEX),
	F("vendor", 5, 0, 24, req.vendor_id, FORM_HEX),
	F("service", 8, 0, 64, req.service_id, FORM_HEX),
	F("guid", 16, 0, 64, req.ca_guid, FORM_HEX),
	F("qkey", 28, 0, 32, req.qkey, FORM_HEX),
	F("qpn", 32, 0, 24, req.qpn, FORM_HEX),
	F("resources", 35, 0, 8, req.responder_resources, FORM_DEC),
	F("eecn", 36, 0, 24, req.eecn, FORM_HEX),
	F("depth", 39, 0, 8, req.initiator_depth, FORM_DEC),
	F("remote eecn", 40, 0, 24, req.remote_eecn, FORM_HEX),
	F("remote timeout", 43, 0, 5, req.remote_timeout, FORM_DEC),
	F("transport", 43, 5, 2, req.transport, FORM_DEC),
	F("flow control", 43, 7, 1, req.flow_control, FORM_DEC),
	F("psn", 44, 0, 24, req.psn, FORM_DEC),
	F("local timeout", 47, 0, 5, req.local_timeout, FORM_DEC),
	F("retry", 47, 5, 3, req.retry_count, FORM_DEC),
	F("pkey", 48, 0, 16, req.pkey, FORM_HEX),
	F("mtu", 50, 0, 4, req.mtu, FORM_MTU),
	F("rdc", 50, 4, 1, req.rdc, FORM_DEC),
	F("rnr retry", 50, 5, 3, req.rnr_retry, FORM_DEC),
	F("cm retries", 51, 0, 4, req.max_cm_retries, FORM_DEC),
	F("srq", 51, 4, 1, req.srq, FORM_DEC),
	F("ext transport", 51, 5, 3, req.ext_transport, FORM_DEC),
	PATH(52, "", req.primary),
	F("rate", 91, 2, 6, req.primary.rate, FORM_DEC),
	F("tclass", 92, 0, 8, req.primary.tclass, FORM_DEC),
	F("hops", 93, 0, 8, req.primary.hop_limit, FORM_DEC),
	SLOW(94, "", req.primary),
	PATH(96, "alt ", req.alternate),
	F("alt rate", 135, 2, 6, req.alternate.rate, FORM_DEC),
	F("alt tclass", 136, 0, 8, req.alternate.tclass, FORM_DEC),
	F("alt hops", 137, 0, 8, req.alternate.hop_limit, FORM_DEC),
	SLOW(138, "alt ", req.alternate),
	F("sap", 139, 5, 1, req.sap, FORM_DEC),
};

/* Table 107. */
static const struct cm_field mra_fields[] = {
	IDS,
	F("about", 8, 0, 2, mra.about, FORM_ABOUT),
	F("service timeout", 9, 0, 5, mra.service_timeout, FORM_DEC),
};

/* Table 108. */
static const struct cm_field rej_fields[] = {
	IDS,
	F("about", 8, 0, 2, rej.about, FORM_ABOUT),
	F("info", 9, 0, 7, rej.ari_len, FORM_DEC),
	F("reason", 10, 0, 16, rej.reason, FORM_REASON),
	F("ari", 12, 0, 8 * CM_ARI_LEN, rej.ari, FORM_BYTES),
};

/*
 * Table 110. Linux stores the vendor id in three reserved bytes; the vendor_* functions below
 * combine them.
 */
static const struct cm_field rep_fields[] = {
	IDS,
	F("qkey", 8, 0, 32, rep.qkey, FORM_HEX),
	F("qpn", 12, 0, 24, rep.qpn, FORM_HEX),
	F("eecn", 16, 0, 24, rep.eecn, FORM_HEX),
	F("psn", 20, 0, 24, rep.psn, FORM_DEC),
	F("resources", 24, 0, 8, rep.responder_resources, FORM_DEC),
	F("depth", 25, 0, 8, rep.initiator_depth, FORM_DEC),
	F("ack delay", 26, 0, 5, rep.ack_delay, FORM_DEC),
	F("failover", 26, 5, 2, rep.failover, FORM_DEC),
	F("flow control", 26, 7, 1, rep.flow_control, FORM_DEC),
	F("rnr retry", 27, 0, 3, rep.rnr_retry, FORM_DEC),
	F("srq", 27, 3, 1, rep.srq, FORM_DEC),
	F("guid", 28, 0, 64, rep.ca_guid, FORM_HEX),
};

/* Tables 111 and 113. */
static const struct cm_field id_fields[] = {IDS};

/* Table 112. */
static const struct cm_field dreq_fields[] = {IDS, F("qpn", 8, 0, 24, dreq.qpn, FORM_HEX)};

/* Table 119. */
static const struct cm_field sidr_req_fields[] = {
	F("id", 0, 0, 32, local_id, FORM_HEX),
	F("pkey", 4, 0, 16, sidr_req.pkey, FORM_HEX),
	F("service", 8, 0, 64, sidr_req.service_id, FORM_HEX),
};

/* Table 120. */
static const struct cm_field sidr_rep_fields[] = {
	F("remote id", 0, 0, 32, remote_id, FORM_HEX),
	F("status", 4, 0, 8, sidr_rep.status, FORM_DEC),
	F("info", 5, 0, 8, sidr_rep.info_len, FORM_DEC),
	F("qpn", 8, 0, 24, sidr_rep.qpn, FORM_HEX),
	F("service", 12, 0, 64, sidr_rep.service_id, FORM_HEX),
	F("qkey", 20, 0, 32, sidr_rep.qkey, FORM_HEX),
	F("ari", 24, 0, 8 * CM_ARI_LEN, sidr_rep.info, FORM_BYTES),
};

/* Table 115. Its path has the fields of a REQ, but not all at the same positions. */
static const struct cm_field lap_fields[] = {
	IDS,
	F("qpn", 12, 0, 24, lap.qpn, FORM_HEX),
	F("timeout", 15, 0, 5, lap.timeout, FORM_DEC),
	PATH(20, "", lap.alternate),
	F("tclass", 59, 0, 8, lap.alternate.tclass, FORM_DEC),
	F("hops", 60, 0, 8, lap.alternate.hop_limit, FORM_DEC),
	F("rate", 61, 2, 6, lap.alternate.rate, FORM_DEC),
	SLOW(62, "", lap.alternate),
};

/* Table 116. */
static const struct cm_field apr_fields[] = {
	IDS,
	F("info", 8, 0, 8, apr.info_len, FORM_DEC),
	F("status", 9, 0, 8, apr.status, FORM_DEC),
	F("ari", 12, 0, 8 * CM_ARI_LEN, apr.info, FORM_BYTES),
};

#define BODY (CM_MAD_LEN - CM_HDR_LEN)
#define LAYOUT(name, fields, data)                                                                 \
	{                                                                                          \
		name, fields, ARRAY_SIZE(fields), data                                             \
	}

const struct cm_layout cm_layouts[CM_ATTRS] = {
	[CM_REQ - CM_ATTR_FIRST] = LAYOUT("REQ", req_fields, 140),
	[CM_MRA - CM_ATTR_FIRST] = LAYOUT("MRA", mra_fields, 10),
	[CM_REJ - CM_ATTR_FIRST] = LAYOUT("REJ", rej_fields, 84),
	[CM_REP - CM_ATTR_FIRST] = LAYOUT("REP", rep_fields, 36),
	[CM_RTU - CM_ATTR_FIRST] = LAYOUT("RTU", id_fields, 8),
	[CM_DREQ - CM_ATTR_FIRST] = LAYOUT("DREQ", dreq_fields, 12),
	[CM_DREP - CM_ATTR_FIRST] = LAYOUT("DREP", id_fields, 8),
	[CM_SIDR_REQ - CM_ATTR_FIRST] = LAYOUT("SIDR_REQ", sidr_req_fields, 16),
	[CM_SIDR_REP - CM_ATTR_FIRST] = LAYOUT("SIDR_REP", sidr_rep_fields, 96),
	[CM_LAP - CM_ATTR_FIRST] = LAYOUT("LAP", lap_fields, 64),
	[CM_APR - CM_ATTR_FIRST] = LAYOUT("APR", apr_fields, 84),
};

_Static_assert(BODY - 140 == CM_REQ_DATA && BODY - 10 == CM_MRA_DATA && BODY - 84 == CM_REJ_DATA &&
		       BODY - 36 == CM_REP_DATA && BODY - 8 == CM_RTU_DATA &&
		       BODY - 12 == CM_DREQ_DATA && BODY - 16 == CM_SIDR_REQ_DATA &&
		       BODY - 96 == CM_SIDR_REP_DATA,
	       "private data");

const struct cm_layout *cm_layout(enum cm_attr a)
{
	unsigned i = (unsigned)a - CM_ATTR_FIRST;

	return i < CM_ATTRS ? &cm_layouts[i] : NULL;
}

const char *cm_attr_str(enum cm_attr a)
{
	const struct cm_layout *l = cm_layout(a);

	return l ? l->name : NULL;
}

size_t cm_data_len(enum cm_attr a)
{
	const struct cm_layout *l = cm_layout(a);

	return l ? BODY - l->data : 0;
}

const char *cm_error_str(enum cm_error e)
{
	static const char *const text[CM_ERR_COUNT] = {
		[CM_OK] = "right",
		[CM_ERR_LENGTH] = "not 256 bytes",
		[CM_ERR_BASE] = "base version not 1",
		[CM_ERR_CLASS] = "not communication management",
		[CM_ERR_VERSION] = "class version not 2",
		[CM_ERR_METHOD] = "method not Send",
		[CM_ERR_ATTR] = "no such message",
	};

	return (unsigned)e < CM_ERR_COUNT ? text[e] : "unknown error";
}

/* ---- bits ---- */

/*
 * Returns `width` bits (at most 64) from bit `at` on, the first bit highest. It reads eight bytes,
 * which exist because more bytes of private data follow each field.
 */
static uint64_t get_bits(const uint8_t *p, unsigned at, unsigned width)
{
	uint64_t v = 0;

	if (likely(at % 8 + width <= 64)) {
		memcpy(&v, p + at / 8, sizeof(v));
		return be64toh(v) << at % 8 >> (64 - width);
	}

	for (unsigned end = at + width; at < end;) {
		unsigned in = 8 - at % 8, n = end - at < in ? end - at : in;

		v = v << n | (p[at / 8] >> (in - n) & ((1u << n) - 1));
		at += n;
	}
	return v;
}

/* Stores bits where get_bits() reads them. The bits must be 0 before. */
static void put_bits(uint8_t *p, unsigned at, unsigned width, uint64_t v)
{
	uint64_t word;

	if (likely(at % 8 + width <= 64)) {
		memcpy(&word, p + at / 8, sizeof(word));
		word |= htobe64(v << (64 - width) >> at % 8);
		memcpy(p + at / 8, &word, sizeof(word));
		return;
	}
	for (unsigned end = at + width; at < end;) {
		unsigned in = 8 - at % 8, n = end - at < in ? end - at : in;

		p[at / 8] |= (uint8_t)((v >> (end - at - n) & ((1u << n) - 1)) << (in - n));
		at += n;
	}
}

/* Returns an integer of the parsed form, by its size. */
uint64_t cm_field_get(const struct cm_msg *m, const struct cm_field *f)
{
	const uint8_t *p = (const uint8_t *)m + f->offset;
	uint64_t v64 = 0;

	switch (f->size) {
	case 1:
		return *p;
	case 2:
		return *(const uint16_t *)(const void *)p;
	case 4:
		return *(const uint32_t *)(const void *)p;
	default:
		memcpy(&v64, p, sizeof(v64));
		return v64;
	}
}

static void field_set(struct cm_msg *m, const struct cm_field *f, uint64_t v)
{
	uint8_t *p = (uint8_t *)m + f->offset;

	switch (f->size) {
	case 1:
		*p = (uint8_t)v;
		break;
	case 2:
		*(uint16_t *)(void *)p = (uint16_t)v;
		break;
	case 4:
		*(uint32_t *)(void *)p = (uint32_t)v;
		break;
	default:
		memcpy(p, &v, sizeof(v));
	}
}

/*
 * ---- the vendor id of ECE in a REP and a SIDR_REP: the free bits between other fields
 * (ibta_vol1_c12.h) ----
 */

static uint32_t vendor_get(const uint8_t *body, enum cm_attr a)
{
	if (a == CM_REP)
		return (uint32_t)body[15] << 16 | (uint32_t)body[19] << 8 | body[23];
	return (uint32_t)body[6] << 16 | (uint32_t)body[7] << 8 | body[11];
}

static void vendor_put(uint8_t *body, enum cm_attr a, uint32_t v)
{
	body[a == CM_REP ? 15 : 6] = (uint8_t)(v >> 16);
	body[a == CM_REP ? 19 : 7] = (uint8_t)(v >> 8);
	body[a == CM_REP ? 23 : 11] = (uint8_t)v;
}

/* ---- messages ---- */

#define HDR_BASE    1
#define HDR_CLASS   7
#define HDR_VERSION 2
#define HDR_METHOD  3 /* Send */

static enum cm_error check_header(const uint8_t *mad)
{
	if (mad[0] != HDR_BASE)
		return CM_ERR_BASE;
	if (mad[1] != HDR_CLASS)
		return CM_ERR_CLASS;
	if (mad[2] != HDR_VERSION)
		return CM_ERR_VERSION;
	if (mad[3] != HDR_METHOD)
		return CM_ERR_METHOD;
	return cm_layout((enum cm_attr)get_bits(mad, 128, 16)) ? CM_OK : CM_ERR_ATTR;
}

/* Limits lengths that exceed their fields. */
static void clamp_lengths(struct cm_msg *m)
{
	uint8_t *len = m->attr == CM_REJ	? &m->rej.ari_len
		       : m->attr == CM_SIDR_REP ? &m->sidr_rep.info_len
		       : m->attr == CM_APR	? &m->apr.info_len
						: NULL;

	if (len && *len > CM_ARI_LEN)
		*len = CM_ARI_LEN;
}

enum cm_error cm_parse(const uint8_t *mad, size_t len, struct cm_msg *m)
{
	const uint8_t *body = mad + CM_HDR_LEN;
	const struct cm_layout *l;
	enum cm_error err;

	if (len != CM_MAD_LEN)
		return CM_ERR_LENGTH;
	err = check_header(mad);
	if (err)
		return err;
	memset(m, 0, sizeof(*m));
	m->attr = (enum cm_attr)get_bits(mad, 128, 16);
	m->tid = get_bits(mad, 64, 64);
	m->attr_mod = (uint32_t)get_bits(mad, 160, 32);
	l = cm_layout(m->attr);
	for (unsigned i = 0; i < l->count; i++) {
		const struct cm_field *f = &l->fields[i];

		if (f->width > 64)
			memcpy((uint8_t *)m + f->offset, body + f->bit / 8, f->size);
		else
			field_set(m, f, get_bits(body, f->bit, f->width));
	}
	if (m->attr == CM_REP)
		m->rep.vendor_id = vendor_get(body, m->attr);
	if (m->attr == CM_SIDR_REP)
		m->sidr_rep.vendor_id = vendor_get(body, m->attr);
	memcpy(m->data, body + l->data, BODY - l->data);
	clamp_lengths(m);
	return CM_OK;
}

/* Both requests have their service id at the same place (tables 106 and 119). */
bool cm_is_request(const uint8_t mad[CM_MAD_LEN], uint64_t *service_id)
{
	enum cm_attr attr = (enum cm_attr)get_bits(mad, 128, 16);

	if (check_header(mad) != CM_OK || (attr != CM_REQ && attr != CM_SIDR_REQ))
		return false;
	*service_id = get_bits(mad + CM_HDR_LEN, 64, 64);
	return true;
}

void cm_build(const struct cm_msg *m, uint8_t mad[CM_MAD_LEN])
{
	const struct cm_layout *l = cm_layout(m->attr);
	uint8_t *body = mad + CM_HDR_LEN;

	memset(mad, 0, CM_MAD_LEN);
	mad[0] = HDR_BASE;
	mad[1] = HDR_CLASS;
	mad[2] = HDR_VERSION;
	mad[3] = HDR_METHOD;
	put_bits(mad, 64, 64, m->tid);
	put_bits(mad, 128, 16, (uint64_t)m->attr);
	put_bits(mad, 160, 32, m->attr_mod);
	for (unsigned i = 0; i < l->count; i++) {
		const struct cm_field *f = &l->fields[i];

		if (f->width > 64)
			memcpy(body + f->bit / 8, (const uint8_t *)m + f->offset, f->size);
		else
			put_bits(body, f->bit, f->width, cm_field_get(m, f));
	}
	if (m->attr == CM_REP)
		vendor_put(body, m->attr, m->rep.vendor_id);
	if (m->attr == CM_SIDR_REP)
		vendor_put(body, m->attr, m->sidr_rep.vendor_id);
	memcpy(body + l->data, m->data, BODY - l->data);
}
