/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Both ends of connections in one process, over the NIC's own address: through <rdma/rdma_cma.h> alone, and the same datagrams on QP 1
 * that two processes exchange. The address is a loopback one made from the process id; RDMACM_TEST_PORT is the kind of port.
 */
#ifndef ROOST_TESTS_RDMACM_FIXTURE_H
#define ROOST_TESTS_RDMACM_FIXTURE_H

#include <errno.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* after the standard headers it relies on */
#include <cmocka.h>

#define WAIT_MS 20000

/* Sets ROOST_PORT to the process's address; `again`: even if it is set, as in a forked child. */
void choose_port(bool again);
/* Our address, or all, with a port in host order. */
struct sockaddr_in ours(uint16_t port);
struct sockaddr_in any(uint16_t port);

/* The channel's next event, not acknowledged; fails the test when it is another, or none in WAIT_MS. */
struct rdma_cm_event *next_event(struct rdma_event_channel *ch, enum rdma_cm_event_type type);
/* The same, acknowledged; returns its status. */
int expect(struct rdma_event_channel *ch, enum rdma_cm_event_type type);
/* Nothing is there now. */
bool quiet(struct rdma_event_channel *ch);

struct rdma_event_channel *channel(void);
struct rdma_cm_id *listener(struct rdma_event_channel *ch, enum rdma_port_space ps, struct sockaddr_in at,
			    int backlog);
/* An id that has its route to our own address. */
struct rdma_cm_id *resolved(struct rdma_event_channel *ch, enum rdma_port_space ps, uint16_t port);
uint16_t port_of(struct rdma_cm_id *id);
/* A QP with CQs of the library's making. */
void make_qp(struct rdma_cm_id *id, enum ibv_qp_type type);

struct pair {
	struct rdma_event_channel *lch, *ach; /* passive, active */
	struct rdma_cm_id *listen, *active, *passive;
};

/* Connects two ids with QPs. */
void pair_open(struct pair *p, enum rdma_port_space ps);
/* Connects another active id to the listener; ends are told. */
void connect_more(struct pair *p, struct rdma_cm_id **active, struct rdma_cm_id **passive);
/* Disconnects from the active end, with all events. */
void hang_up(struct pair *p, struct rdma_cm_id *active, struct rdma_cm_id *passive);
void drop(struct rdma_cm_id *id);
void pair_close(struct pair *p);

/* A SEND of some bytes from one end to the other. */
void send_text(struct rdma_cm_id *from, struct rdma_cm_id *to, const char *text);

#endif
