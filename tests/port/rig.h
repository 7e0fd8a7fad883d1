/* SPDX-License-Identifier: BSD-2-Clause */
/* For tests of ports: packets with a known content, sent and received. */
#ifndef ROOST_TESTS_PORT_RIG_H
#define ROOST_TESTS_PORT_RIG_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>

#include <cmocka.h>

#include "packet/headers.h"
#include "port/port.h"

/* Shortest packet: BTH and ICRC. */
#define RIG_MIN_LEN 16

/* Only a failure needs so long. */
#define RIG_WAIT_MS 20000

struct pkt_addr rig_addr(const char *text);
/*
 * port_open() that fails the test when it fails. rig_close_all(), a teardown, closes what a failed
 * test left open.
 */
struct port *rig_open(const char *spec);
void rig_close(struct port *p);
int rig_close_all(void **state);

/*
 * Packet n: `len` bytes with QP number qpn, PSN n, and content that follows from n; the ICRC for
 * `flow` and identification ip_id.
 */
void rig_build(uint8_t *bth, uint32_t len, uint32_t qpn, uint32_t n, const struct icrc_flow *flow,
	       uint16_t ip_id);
/* Reserves and builds. The reservation's result. */
int rig_send(struct port *p, struct port_path *path, uint32_t len, uint8_t tos, uint32_t qpn,
	     uint32_t n);
/*
 * Fails the test unless pkt is packet n as built above, its ICRC right. True: the predicted
 * identification was right.
 */
bool rig_check(const struct port *p, const struct port_pkt *pkt, uint32_t qpn, uint32_t n);
/* The same of a packet that was sent to another address: a group's. */
bool rig_check_to(const struct pkt_addr *dst, const struct port_pkt *pkt, uint32_t qpn, uint32_t n);
uint32_t rig_psn(const struct port_pkt *pkt);

/*
 * Polls until a burst comes, at most RIG_WAIT_MS: the loopback may deliver after the call that sent
 * has returned.
 */
int rig_burst(struct port *p, struct port_pkt *pkts, int max);
/* Is its descriptor readable within so many ms? */
bool rig_readable(const struct port *p, int ms);

#endif
