/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A packet may come to a processing unit although its queue pair belongs to another one: the peer
 * chose the QP number, or the port delivered the packet to the wrong lane. The other unit's thread
 * may free the queue pair at this moment, so the unit drops the packet and does not read the queue
 * pair. The test makes its memory inaccessible.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <cmocka.h>

#include "make_packet.h"
#include "nic/counters.h"
#include "nic/qp.h"
#include "world.h"

#define PUS   2
#define OTHER 1
/* Enough that the pages around the middle one hold only queue pairs, also if a page has 64 KiB. */
#define QPS 200

static struct world W, *const w = &W;
static struct ep E[QPS];
static uint8_t packet[PKT_MAX_LEN];
static uint32_t packet_len;

/* Receives the packet once. */
static int rx_packet(struct port *port, struct port_pkt *pkts, int max)
{
	assert_true(max > 0);
	if (!packet_len)
		return 0;
	pkts[0] = (struct port_pkt){.bth = packet,
				    .src = &port->addr,
				    .dst = &port->addr,
				    .len = packet_len,
				    .sport = PKT_UDP_PORT};
	packet_len = 0;
	return 1;
}

static uint64_t refused_packets(void)
{
	struct nic_counters c;

	nic_counters(w->nic[0], &c);
	return c.rx_bad_qpn;
}

/* Changes the protection of the pages of a queue pair. */
static void protect(const struct nic_qp *qp, int prot)
{
	uintptr_t page = mem_page_size(), from = (uintptr_t)qp & ~(page - 1);
	uintptr_t end = ALIGN_UP((uintptr_t)(qp + 1), page);

	assert_int_equal(mprotect((void *)from, end - from, prot), 0);
}

static void queue_pairs_of_another_unit_are_not_read(void **state)
{
	static const struct ep_params params = {.pu = OTHER, .depth = 1, .no_mem = true};
	const struct pkt_make write = {.opcode = PKT_RC | PKT_WRITE_ONLY, .len = 8, .dmalen = 8};
	const struct nic_qp *qp;
	struct port_ops ops;
	struct port *port;
	uint64_t before;

	world_init_shape(w, &(struct world_shape){.nics = 1, .pus = PUS}, 4, NULL);
	for (unsigned i = 0; i < QPS; i++)
		ep_init(&E[i], w, 0, &params);
	qp = E[QPS / 2].qp;
	port = w->port[0][0][0];
	ops = *port->ops;
	ops.rx_burst = rx_packet;
	port->ops = &ops;
	before = refused_packets();
	packet_len = pkt_make_raw(packet, &write, nic_qp_num(qp));
	pkt_seal(packet, packet_len, &port->addr, &port->addr);
	protect(qp, PROT_NONE);
	for (unsigned i = 0; i < 4; i++)
		nic_poll(w->nic[0], 0, world_now(w));
	protect(qp, PROT_READ | PROT_WRITE);
	assert_int_equal(packet_len, 0);
	assert_int_equal(refused_packets(), before + 1);
	for (unsigned i = 0; i < QPS; i++)
		ep_fini(&E[i]);
	world_fini(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(queue_pairs_of_another_unit_are_not_read),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
