/* SPDX-License-Identifier: BSD-2-Clause */
/* For tests of ports: packets with known content, sent and received. */
#ifndef ROOST_TESTS_PORT_RIG_H
#define ROOST_TESTS_PORT_RIG_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>

#include <cmocka.h>

#include "cm/mad.h"
#include "packet/headers.h"
#include "port/port.h"

/* Length of the shortest packet: BTH and ICRC. */
#define RIG_MIN_LEN 16

/* Limit of waits. Only a failing test reaches it. */
#define RIG_WAIT_MS 20000

struct pkt_addr rig_addr(const char *text);
/*
 * Calls port_open(), and fails the test if it fails. rig_close_all() is a teardown: it closes the
 * ports that a failed test left open.
 */
struct port *rig_open(const char *spec);
void rig_close(struct port *p);
int rig_close_all(void **state);

/*
 * Builds packet n: `len` bytes with QP number qpn, PSN n, and content computed from n. The ICRC is
 * that for `flow` and identification ip_id.
 */
void rig_build(uint8_t *bth, uint32_t len, uint32_t qpn, uint32_t n, const struct icrc_flow *flow,
	       uint16_t ip_id);
/* Reserves space and builds the packet. Returns the result of the reservation. */
int rig_send(struct port *p, struct port_path *path, uint32_t len, uint8_t tos, uint32_t qpn,
	     uint32_t n);
/* Sends a connection request for a service: CM_REQ or CM_SIDR_REQ. */
void rig_send_request(struct port *p, const struct pkt_addr *to, uint64_t service,
		      enum cm_attr attr);
/*
 * Fails the test unless pkt is packet n as built above and its ICRC is right. Returns whether the
 * identification was predicted.
 */
bool rig_check(const struct port *p, const struct port_pkt *pkt, uint32_t qpn, uint32_t n);
/* The same for a packet that was sent to another address, that of a group. */
bool rig_check_to(const struct pkt_addr *dst, const struct port_pkt *pkt, uint32_t qpn, uint32_t n);
/* A QP number that a NIC of this port could have. */
static inline uint32_t rig_qpn(const struct port *p)
{
	return (uint32_t)p->slot << 18 | 0x75;
}
uint32_t rig_psn(const struct port_pkt *pkt);

/*
 * Polls until a burst comes, at most RIG_WAIT_MS: the loopback may deliver after the sending call
 * has returned.
 */
int rig_burst(struct port *p, struct port_pkt *pkts, int max);
/* Returns whether the port's descriptor becomes readable within that many ms. */
bool rig_readable(const struct port *p, int ms);

#endif
