/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Both ends of connections in one process, over the NIC's own address. They use only
 * <rdma/rdma_cma.h>, and exchange the same datagrams on QP 1 as two processes. The address is a
 * loopback address made from the process id, or ::1 (RDMACM_TEST_V6, in a network of the test's
 * own). RDMACM_TEST_PORT is the kind of port.
 */
#ifndef ROOST_TESTS_RDMACM_FIXTURE_H
#define ROOST_TESTS_RDMACM_FIXTURE_H

#include <errno.h>
#include <netinet/in.h>
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

#define WAIT_MS 60000

/* The call must fail as <rdma/rdma_cma.h> describes: -1 and errno. */
#define REFUSED(call, err)                                                                         \
	do {                                                                                       \
		errno = 0;                                                                         \
		assert_int_equal(call, -1);                                                        \
		assert_int_equal(errno, err);                                                      \
	} while (0)

/*
 * Sets ROOST_PORT to the process's address. With `again`, even if it is set, as in a forked child.
 */
void choose_port(bool again);
/* Runs the tests. Returns 77 if there can be no network for them. */
#define RUN(tests) (network_ready() ? cmocka_run_group_tests(tests, NULL, NULL) : 77)
bool network_ready(void);

union address {
	struct sockaddr sa;
	struct sockaddr_in in;
	struct sockaddr_in6 in6;
};

/* An address and a port in host order: an IPv4 number, ::1, or the wildcard of a family. */
union address at4(uint32_t number, uint16_t port);
union address at6(uint16_t port);
union address any4(uint16_t port);
union address any6(uint16_t port);
/* This process's address, or the wildcard of its family. */
union address ours(uint16_t port);
union address any(uint16_t port);
/* An address of this machine that no NIC has. */
union address nobody(uint16_t port);

/*
 * Takes the channel's next event, without acknowledging it. Fails the test if it is another event,
 * or if none comes in WAIT_MS.
 */
struct rdma_cm_event *next_event(struct rdma_event_channel *ch, enum rdma_cm_event_type type);
/* Takes and acknowledges the event. Returns its status. */
int expect(struct rdma_event_channel *ch, enum rdma_cm_event_type type);
/* Fails the test if an event is there now. */
bool quiet(struct rdma_event_channel *ch);

struct rdma_event_channel *channel(void);
struct rdma_cm_id *listener(struct rdma_event_channel *ch, enum rdma_port_space ps,
			    union address at, int backlog);
/* Returns an id that has resolved its route to an address, or to this process's own. */
struct rdma_cm_id *resolved_to(struct rdma_event_channel *ch, enum rdma_port_space ps,
			       union address to);
struct rdma_cm_id *resolved(struct rdma_event_channel *ch, enum rdma_port_space ps, uint16_t port);
uint16_t port_of(struct rdma_cm_id *id);
/* Creates a QP. The library creates its CQs. */
void make_qp(struct rdma_cm_id *id, enum ibv_qp_type type);

struct pair {
	struct rdma_event_channel *lch, *ach; /* passive, active */
	struct rdma_cm_id *listen, *active, *passive;
};

/* Connects two ids with QPs. */
void pair_open(struct pair *p, enum rdma_port_space ps);
/* Connects another active id to the listener. The test waits for the events of both ends. */
void connect_more(struct pair *p, struct rdma_cm_id **active, struct rdma_cm_id **passive);
/* Disconnects from the active end, and takes all events. */
void hang_up(struct pair *p, struct rdma_cm_id *active, struct rdma_cm_id *passive);
void drop(struct rdma_cm_id *id);
/* Destroys listener and channels at the end of a test. */
void quit(struct rdma_cm_id *listen, struct rdma_event_channel *lch,
	  struct rdma_event_channel *ach);
void pair_close(struct pair *p);

/* Sends some bytes with a SEND from one end to the other. */
void send_text(struct rdma_cm_id *from, struct rdma_cm_id *to, const char *text);

#endif
