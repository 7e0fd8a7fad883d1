/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Management datagrams of communication management: the 256 bytes of a datagram to QP 1, and their
 * fields.
 *
 *   | MAD header 24 | fields of the message | private data, to byte 256 |
 *
 * One table (mad.c) has the places of the fields of each message. Parsing, building and printing
 * use it. The contents of reserved bits are not kept. Pure functions: any thread.
 *
 * Sources: InfiniBand Architecture Specification, volume 1, 12.6 (messages), 13.4 (MAD header),
 * annex A11 (RDMA IP CM service); the vendor id of ECE is the Linux kernel's
 * (include/rdma/ibta_vol1_c12.h).
 */
#ifndef ROOST_CM_MAD_H
#define ROOST_CM_MAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "packet/icrc.h"

#define CM_MAD_LEN 256
#define CM_QPN	   1
#define CM_QKEY	   0x80010000u /* Q_Key of QP 1 */
#define CM_GID_LEN 16
#define CM_ARI_LEN 72
/* The most private data of any message, and of the messages that programs fill: */
#define CM_DATA_MAX	 224
#define CM_REQ_DATA	 92
#define CM_MRA_DATA	 222
#define CM_REJ_DATA	 148
#define CM_REP_DATA	 196
#define CM_RTU_DATA	 224
#define CM_DREQ_DATA	 220
#define CM_DREP_DATA	 224
#define CM_SIDR_REQ_DATA 216
#define CM_SIDR_REP_DATA 136

/* Attribute ids: the messages (table 101). */
enum cm_attr {
	CM_REQ = 0x10,
	CM_MRA = 0x11,
	CM_REJ = 0x12,
	CM_REP = 0x13,
	CM_RTU = 0x14,
	CM_DREQ = 0x15,
	CM_DREP = 0x16,
	CM_SIDR_REQ = 0x17,
	CM_SIDR_REP = 0x18,
	CM_LAP = 0x19,
	CM_APR = 0x1a,
};

#define CM_ATTR_FIRST 0x10
#define CM_ATTRS      11 /* size of arrays that are indexed by attr - CM_ATTR_FIRST */

/* The reasons of a rejection (table 109; Linux defines 35). */
enum cm_reason {
	CM_REJ_NO_QP = 1,
	CM_REJ_NO_EEC = 2,
	CM_REJ_NO_RESOURCES = 3,
	CM_REJ_TIMEOUT = 4,
	CM_REJ_UNSUPPORTED = 5,
	CM_REJ_INVALID_COMM_ID = 6,
	CM_REJ_INVALID_COMM_INSTANCE = 7,
	CM_REJ_INVALID_SERVICE_ID = 8,
	CM_REJ_INVALID_TRANSPORT = 9,
	CM_REJ_STALE = 10,
	CM_REJ_RDC_NOT_EXIST = 11,
	CM_REJ_INVALID_GID = 12,
	CM_REJ_INVALID_LID = 13,
	CM_REJ_INVALID_SL = 14,
	CM_REJ_INVALID_TCLASS = 15,
	CM_REJ_INVALID_HOP_LIMIT = 16,
	CM_REJ_INVALID_RATE = 17,
	CM_REJ_INVALID_ALT_GID = 18,
	CM_REJ_INVALID_ALT_LID = 19,
	CM_REJ_INVALID_ALT_SL = 20,
	CM_REJ_INVALID_ALT_TCLASS = 21,
	CM_REJ_INVALID_ALT_HOP_LIMIT = 22,
	CM_REJ_INVALID_ALT_RATE = 23,
	CM_REJ_PORT_CM_REDIRECT = 24,
	CM_REJ_PORT_REDIRECT = 25,
	CM_REJ_INVALID_MTU = 26,
	CM_REJ_INSUFFICIENT_RESOURCES = 27,
	CM_REJ_CONSUMER = 28,
	CM_REJ_RNR_RETRY = 29,
	CM_REJ_DUPLICATE_COMM_ID = 30,
	CM_REJ_INVALID_CLASS_VERSION = 31,
	CM_REJ_INVALID_FLOW_LABEL = 32,
	CM_REJ_INVALID_ALT_FLOW_LABEL = 33,
	CM_REJ_VENDOR_OPTION = 35,
	CM_REASONS = 36
};

/* The message to which a REJ or MRA refers. */
#define CM_ABOUT_REQ   0
#define CM_ABOUT_REP   1
#define CM_ABOUT_OTHER 2

/* REQ's transport service type. */
#define CM_TRANSPORT_RC 0
#define CM_TRANSPORT_UC 1

/* SIDR_REP's status (table 121). */
#define CM_SIDR_OK	    0
#define CM_SIDR_UNSUPPORTED 1
#define CM_SIDR_REJECT	    2
#define CM_SIDR_NO_QP	    3

/* APR's status (table 117). */
#define CM_APR_INVALID_ID  1
#define CM_APR_UNSUPPORTED 2

struct cm_path {
	/* as seen by the sender of the message */
	uint8_t local_gid[CM_GID_LEN], remote_gid[CM_GID_LEN];
	uint32_t flow_label;
	uint16_t local_lid, remote_lid; /* RoCE: 0xffff */
	uint8_t rate, tclass, hop_limit, sl, subnet_local;
	uint8_t ack_timeout; /* 4.096 us << this */
};

struct cm_req {
	uint64_t service_id, ca_guid;
	uint32_t vendor_id; /* ECE, with attr_mod of the header */
	uint32_t qkey, qpn, eecn, remote_eecn;
	uint32_t psn; /* the first PSN that the other end sends */
	uint16_t pkey;
	uint8_t responder_resources, initiator_depth;
	uint8_t remote_timeout, local_timeout; /* CM response time-outs, 4.096 us << this */
	uint8_t transport, ext_transport, flow_control, retry_count, rnr_retry, mtu, rdc,
		max_cm_retries, srq, sap;
	struct cm_path primary, alternate;
};

struct cm_mra {
	uint8_t about, service_timeout;
};

struct cm_rej {
	uint16_t reason;
	uint8_t about, ari_len;
	uint8_t ari[CM_ARI_LEN];
};

struct cm_rep {
	uint64_t ca_guid;
	uint32_t vendor_id;
	uint32_t qkey, qpn, eecn, psn;
	uint8_t responder_resources, initiator_depth, ack_delay, failover, flow_control, rnr_retry,
		srq;
};

struct cm_dreq {
	uint32_t qpn;
};

struct cm_sidr_req {
	uint64_t service_id;
	uint16_t pkey;
};

struct cm_sidr_rep {
	uint64_t service_id;
	uint32_t vendor_id, qpn, qkey;
	uint8_t status, info_len;
	uint8_t info[CM_ARI_LEN];
};

struct cm_lap {
	uint32_t qpn;
	uint8_t timeout;
	struct cm_path alternate;
};

struct cm_apr {
	uint8_t status, info_len;
	uint8_t info[CM_ARI_LEN];
};

/*
 * A parsed message, in host byte order. Ids are as seen by the sender. A SIDR_REQ has a local id
 * only, a SIDR_REP a remote id only.
 */
struct cm_msg {
	enum cm_attr attr;
	uint32_t attr_mod;
	uint64_t tid;
	uint32_t local_id, remote_id;
	union {
		struct cm_req req;
		struct cm_mra mra;
		struct cm_rej rej;
		struct cm_rep rep;
		struct cm_dreq dreq;
		struct cm_sidr_req sidr_req;
		struct cm_sidr_rep sidr_rep;
		struct cm_lap lap;
		struct cm_apr apr;
	};
	/* private data; the message does not say how much of it is used */
	uint8_t data[CM_DATA_MAX];
};

enum cm_error {
	CM_OK = 0,
	CM_ERR_LENGTH,	/* not 256 bytes */
	CM_ERR_BASE,	/* base version not 1 */
	CM_ERR_CLASS,	/* not communication management */
	CM_ERR_VERSION, /* class version not 2 */
	CM_ERR_METHOD,	/* not Send */
	CM_ERR_ATTR,	/* no such message */
	CM_ERR_COUNT
};

const char *cm_error_str(enum cm_error e);
const char *cm_attr_str(enum cm_attr a); /* returns "REQ" ..., or NULL */
/* Returns "invalid service id" ...; "unknown": no known reason */
const char *cm_reason_str(unsigned reason);

/* Returns the bytes of private data of a message; 0: no message. */
size_t cm_data_len(enum cm_attr a);

/*
 * Parses `len` bytes. Returns CM_OK and fills *m (fields that the message does not have are 0), or
 * returns the cause. Never reads past len.
 */
enum cm_error cm_parse(const uint8_t *mad, size_t len, struct cm_msg *m);

/*
 * Returns true if the datagram is a REQ or a SIDR_REQ, and sets its service id. Costs much less
 * than cm_parse().
 */
bool cm_is_request(const uint8_t mad[CM_MAD_LEN], uint64_t *service_id);

/* Builds the 256 bytes of a message. A value that is wider than its field loses its upper bits. */
void cm_build(const struct cm_msg *m, uint8_t mad[CM_MAD_LEN]);

/*
 * Prints one line without newline, at most n bytes including the terminating 0: the message and its
 * fields that are not 0. Returns the length.
 */
int cm_print(const struct cm_msg *m, char *buf, size_t n);

/*
 * Annex A11. Service ids of the form 0x0000000001PPxxxx: PP is an IP protocol number (6: TCP, 17:
 * UDP), xxxx a port. A REQ or SIDR_REQ to such a service has 36 bytes before the private data:
 * version, IP version, source port, addresses.
 */
#define CM_IP_LEN  36
#define CM_PS_TCP  0x06
#define CM_PS_UDP  0x11
#define CM_IP_BASE 0x0000000001000000ull
#define CM_IP_MASK 0xffffffffff000000ull

struct cm_ip {
	struct pkt_addr src, dst;
	uint16_t sport;
	bool v4;
};

static inline bool cm_service_is_ip(uint64_t service_id)
{
	return (service_id & CM_IP_MASK) == CM_IP_BASE;
}

static inline uint64_t cm_service_id(uint8_t port_space, uint16_t port)
{
	return CM_IP_BASE | (uint64_t)port_space << 16 | port;
}

/*
 * Returns 0 and fills *ip, or returns -EPROTO: a version other than 0, or an IP version other than
 * 4 and 6.
 */
int cm_ip_parse(const uint8_t data[CM_IP_LEN], struct cm_ip *ip);
void cm_ip_build(const struct cm_ip *ip, uint8_t data[CM_IP_LEN]);

#endif
