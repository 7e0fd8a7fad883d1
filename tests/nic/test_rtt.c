/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Without loss nothing is retransmitted: after the first answer the requester knows the round-trip
 * time. The time is virtual, so results are exact: paths of 1 us to 300 ms, READ and WRITE, one
 * message at a time and many, with and without windows.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "world.h"

#define MTU   1024
#define DEPTH 64
#define MEM   (8u * 65536)

/* The packets on the link, as the requester (NIC 0) sees them. */
struct seen {
	struct pkt_addr requester;
	uint32_t next;	 /* one past the highest PSN */
	bool answered;	 /* the first answer has come */
	uint64_t before; /* packets sent again until then */
	uint64_t after;	 /* and since */
};

static void on_packet(void *ctx, uint64_t now, bool delivered, const struct pkt_addr *src,
		      const struct pkt_addr *dst, const uint8_t *bth, uint32_t len)
{
	struct seen *s = ctx;
	struct pkt_view v;
	uint32_t psns = 1;

	assert_int_equal(pkt_parse(bth, len, &v), PKT_OK);
	if (delivered) {
		s->answered |= pkt_addr_eq(dst, &s->requester);
		return;
	}
	if (!pkt_addr_eq(src, &s->requester))
		return;
	if (v.op->kind == PKT_KIND_READ_REQ)
		psns = v.dmalen ? (v.dmalen + MTU - 1) / MTU : 1;
	if ((int32_t)(v.psn - s->next) < 0)
		*(s->answered ? &s->after : &s->before) += 1;
	else
		s->next = v.psn + psns;
}

struct path {
	uint64_t rtt_ns;
	uint64_t bytes_per_us;
	uint32_t window, read_window;
	uint8_t timeout;
};

struct load {
	const char *name;
	uint32_t len;
	unsigned at_a_time, messages;
	unsigned pause; /* in half round trips: between messages */
};

static const struct load loads[] = {
	{"small ones, one at a time", 8, 1, 12, 0},    {"small ones, with pauses", 8, 1, 12, 3},
	{"long ones, one at a time", 65536, 1, 12, 0}, {"two long ones at a time", 65536, 2, 24, 0},
	{"small ones, many", 8, 48, 480, 0},	       {"long ones, many", 65536, 6, 120, 0},
	{"odd ones, few", 3 * MTU + 5, 5, 60, 0},
};

static void carry_out(const struct path *path, const struct load *load, enum roost_op op)
{
	struct sim_params sp = {
		.delay_ns = path->rtt_ns / 2,
		.bytes_per_us = path->bytes_per_us,
		.window = path->window,
		.read_window = path->read_window,
	};
	struct ep_params p = {.mtu = MTU,
			      .timeout = path->timeout,
			      .rd_atomic = 16,
			      .depth = DEPTH,
			      .mem = MEM,
			      .psn = 0};
	unsigned posted = 0, done = 0;
	struct seen seen = {.next = 0};
	struct nic_counters ctr;
	struct roost_cqe c;
	struct world w;
	struct ep a, b;

	world_init(&w, 2, 3, &sp);
	ep_init(&a, &w, 0, &p);
	ep_init(&b, &w, 1, &p);
	ep_connect(&a, &b);
	seen.requester = *ep_addr(&a);
	sim_set_tap(w.sim, on_packet, &seen);
	while (done < load->messages) {
		for (; posted < load->messages && posted - done < load->at_a_time; posted++) {
			struct wr wr = wr_rdma(op, &a, 65536ull * (posted % 8), load->len, &b,
					       65536ull * (posted % 8));

			wr.wr_id = posted;
			ep_post(&a, &wr);
		}
		assert_true(ep_wait_send(&a, &c, 100 * SEC));
		assert_int_equal(c.status, NIC_WC_SUCCESS);
		assert_int_equal(c.wr_id, done++);
		if (load->pause)
			world_run(&w, world_now(&w) + load->pause * path->rtt_ns / 2 + done * 100);
	}
	assert_int_equal(sim_lost(w.sim), 0);
	nic_counters(a.nic, &ctr);
	if (seen.after || seen.before != ctr.tail_loss_probe + ctr.retransmitted_pkts) {
		print_error(
			"round trip %llu us, time-out %u, window %u, %s of %s: sent again %llu times after the first answer, "
			"%llu before, of these %llu probes\n",
			(unsigned long long)path->rtt_ns / 1000, path->timeout, path->window,
			op == ROOST_OP_READ ? "READ" : "WRITE", load->name,
			(unsigned long long)seen.after, (unsigned long long)seen.before,
			(unsigned long long)ctr.tail_loss_probe);
		fail();
	}
	ep_fini(&a);
	ep_fini(&b);
	world_fini(&w);
}

static const uint64_t trips[] = {1000,	    10000,     100000,	  400000,   700000,
				 1000000,   1040000,   1500000,	  2100000,  3300000,
				 7000000,   20000000,  40000000,  63000000, 90000000,
				 128000000, 200000000, 255000000, 300000000};

static void each(const struct path *shape)
{
	static const enum roost_op ops[] = {ROOST_OP_READ, ROOST_OP_WRITE};

	for (unsigned t = 0; t < sizeof(trips) / sizeof(trips[0]); t++)
		for (unsigned l = 0; l < sizeof(loads) / sizeof(loads[0]); l++)
			for (unsigned o = 0; o < 2; o++) {
				struct path path = *shape;

				path.rtt_ns = trips[t];
				carry_out(&path, &loads[l], ops[o]);
			}
}

static void no_window(void **state)
{
	each(&(struct path){.timeout = 20});
}

static void windows_full(void **state)
{
	each(&(struct path){.timeout = 20, .window = 180000, .read_window = 150000});
}

/* 10 Gbit/s: packets come one after the other. */
static void serialized(void **state)
{
	each(&(struct path){
		.timeout = 20, .bytes_per_us = 1250, .window = 180000, .read_window = 150000});
}

/* The program's time-out (67 ms) is shorter than some of the paths, as perftest's is. */
static void short_timeout(void **state)
{
	each(&(struct path){.timeout = 14, .window = 180000, .read_window = 150000});
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(no_window),
		cmocka_unit_test(windows_full),
		cmocka_unit_test(serialized),
		cmocka_unit_test(short_timeout),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
