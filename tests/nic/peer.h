/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A protocol harness: one NIC in its own world, and a peer that the test plays packet by packet.
 * The peer has an address and a QP number, but no NIC. Packets of the NIC under test are captured
 * and read by peer_get(). The test builds the packets of the peer.
 */
#ifndef ROOST_TESTS_PEER_H
#define ROOST_TESTS_PEER_H

#include "base/rng.h"
#include "make_packet.h"
#include "world.h"

#define PEER_QPN    0x2b67c5u
#define PEER_RING   1024
#define PEER_SETTLE 2000 /* ns of virtual time in which the NIC processes an injected packet */

struct got {
	uint64_t at;
	uint32_t len;
	struct pkt_addr dst; /* the peer's, or a group's */
	struct pkt_view v;   /* v.payload points into data */
	uint8_t data[PKT_MAX_LEN];
};

struct peer {
	struct world w;
	struct ep e; /* the side under test */
	struct pkt_addr addr, nic_addr;
	uint32_t psn; /* the first of ours that the NIC expects */
	struct got ring[PEER_RING];
	unsigned head, tail;
};

/*
 * Makes the NIC and its QP, and connects it. The NIC's first PSN is params->psn, the peer's `psn`.
 * The other fields of ep_params are as in world.h. The structure is large: keep it static or on the
 * heap.
 */
void peer_open(struct peer *p, const struct ep_params *params, uint32_t psn);
/* The same, with addresses of IPv6. */
void peer_open_ipv6(struct peer *p, const struct ep_params *params, uint32_t psn);
/* The same as peer_open(), over a link with these properties. */
void peer_open_link(struct peer *p, const struct sim_params *link, const struct ep_params *params,
		    uint32_t psn);
/* The same, but stops in INIT; peer_attr has the arguments of to_rtr and to_rts. */
void peer_open_init(struct peer *p, const struct ep_params *params, uint32_t psn);
void peer_attr(const struct peer *p, struct nic_qp_attr *a);
/* For tests of the requester: path MTU 256, and the NIC's first PSN is `psn`. */
void peer_open_requester(struct peer *p, uint32_t psn, struct ep_params params);
void peer_close(struct peer *p);

/* Queues a packet to the NIC's QP: queued packets arrive in one burst. */
void peer_put(struct peer *p, const struct pkt_make *m);
/* Sends a packet to the NIC's QP, and runs the NIC until it has processed the packet. */
void peer_send(struct peer *p, const struct pkt_make *m);
/* Sends bytes without changes, from the peer's address or another one. */
void peer_send_raw(struct peer *p, const struct pkt_addr *src, const uint8_t *bth, uint32_t len);
void peer_ack(struct peer *p, uint8_t syndrome, uint32_t psn, uint32_t msn);
/* `timer`: a code of IBA's table 45. */
void peer_rnr_nak(struct peer *p, uint8_t timer, uint32_t psn);
/*
 * Returns the next packet that the NIC sends within `ns` of virtual time; NULL: none. The packet is
 * valid until the next call.
 */
const struct got *peer_get(struct peer *p, uint64_t ns);
void peer_run(struct peer *p, uint64_t ns);
/* Removes the captured packets. */
void peer_drain(struct peer *p);
struct nic_counters peer_counters(const struct peer *p);
/* Posts a signaled work request of the NIC's side; the remote range is arbitrary. */
void peer_post(struct peer *p, enum roost_op op, uint64_t wr_id, uint64_t off, uint32_t len);
#define PEER_RKEY 0x7710a5c3u
#define PEER_VA	  0x7f0010002000ull

/* Assertions that print the caller's line. */
const struct got *peer_expect_at(struct peer *p, uint8_t opcode, uint32_t psn, const char *file,
				 int line);
const struct got *peer_expect_ack_at(struct peer *p, uint8_t syndrome, uint32_t psn,
				     const char *file, int line);
void peer_quiet_at(struct peer *p, uint64_t ns, const char *file, int line);
void peer_done_at(struct peer *p, uint64_t wr_id, enum nic_wc_status status, const char *file,
		  int line);
void peer_received_at(struct peer *p, uint64_t wr_id, enum nic_wc_status status, uint32_t len,
		      const char *file, int line);

/* Asserts that the next packet equals this one. */
#define expect(p, opcode, psn) peer_expect_at(p, opcode, psn, __FILE__, __LINE__)
/* Asserts that the next packet is an ACK or NAK with this syndrome. */
#define expect_ack(p, syndrome, psn) peer_expect_ack_at(p, syndrome, psn, __FILE__, __LINE__)
/* Asserts that no packet is sent for this time. */
#define expect_quiet(p, ns) peer_quiet_at(p, ns, __FILE__, __LINE__)
/* Asserts that a completion of the send or receive queue is there, with these fields. */
#define expect_done(p, wr_id, status) peer_done_at(p, wr_id, status, __FILE__, __LINE__)
#define expect_recv(p, wr_id, status, len)                                                         \
	peer_received_at(p, wr_id, status, len, __FILE__, __LINE__)

#endif
