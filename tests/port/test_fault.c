/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Fault injection: the same seed causes the same faults, the counters are exact, and no packet is
 * lost unless a fault loses it.
 */
#include "rig.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "port/port_impl.h"

#define MOCK_MAX 20000

/* A port that keeps its packets, numbers them as UDP_SEGMENT would, and can be full. */
struct mock {
	struct port port; /* the first member */
	struct port_path path;
	unsigned count, flushed, space; /* space: number of packets that still fit */
	int paths;			/* number of references */
	bool closed;
	struct {
		uint8_t data[256];
		uint32_t len;
		uint16_t ip_id;
		uint8_t tos;
	} pkt[MOCK_MAX];
};

static struct mock mock;

static struct port_path *mock_path_get(struct port *p, const struct pkt_addr *dst, uint32_t dqpn)
{
	mock.paths++;
	mock.path.dst = *dst;
	mock.path.sport = PKT_UDP_PORT;
	return &mock.path;
}

static void mock_path_put(struct port *p, struct port_path *path)
{
	mock.paths--;
}

static int mock_reserve(struct port *p, struct port_path *path, uint32_t len, uint8_t tos,
			struct port_buf *buf)
{
	assert_ptr_equal(path, &mock.path);
	assert_true(mock.paths > 0);
	assert_in_range(mock.count, 0, MOCK_MAX - 1);
	if (!mock.space)
		return -EAGAIN;
	mock.space--;
	mock.pkt[mock.count].len = len;
	mock.pkt[mock.count].tos = tos;
	mock.pkt[mock.count].ip_id = (uint16_t)(mock.count % 7);
	buf->ip_id = mock.pkt[mock.count].ip_id;
	buf->bth = mock.pkt[mock.count++].data;
	return 0;
}

static void mock_cancel(struct port *p)
{
	fail_msg("a packet forwarded was taken back");
}

static bool mock_flush(struct port *p)
{
	mock.port.stats.tx_packets += mock.count - mock.flushed;
	mock.flushed = mock.count;
	return true;
}

static int mock_rx_burst(struct port *p, struct port_pkt *pkts, int max)
{
	return 0;
}

static bool mock_arm(struct port *p)
{
	return true;
}

static void mock_nothing(struct port *p)
{
}

static void mock_disarm(struct port *p, bool woken)
{
}

static void mock_close(struct port *p)
{
	mock.closed = true;
}

static const struct port_ops mock_ops = {
	.name = "mock",
	.path_get = mock_path_get,
	.path_put = mock_path_put,
	.reserve = mock_reserve,
	.cancel = mock_cancel,
	.flush = mock_flush,
	.rx_burst = mock_rx_burst,
	.arm = mock_arm,
	.disarm = mock_disarm,
	.after_fork = mock_nothing,
	.close = mock_close,
};

static uint64_t virtual_time;

static uint64_t clock_of_test(void *ctx)
{
	return virtual_time;
}

static struct port *wrap(const struct port_faults *f)
{
	struct port *p;

	memset(&mock, 0, sizeof(mock));
	mock.port.ops = &mock_ops;
	mock.port.addr = rig_addr("10.0.0.1");
	mock.port.fd = mock.port.ctl_fd = -1;
	mock.port.mtu = 4096;
	mock.port.lanes = 1;
	mock.port.lag = 1;
	mock.space = MOCK_MAX;
	virtual_time = 1000000;
	p = fault_wrap(&mock.port, f, clock_of_test, NULL);
	assert_non_null(p);
	assert_string_equal(p->ops->name, "mock");
	assert_int_equal(p->mtu, 4096);
	assert_int_equal(p->lag, 0);
	return p;
}

static void unwrap(struct port *p)
{
	port_close(p);
	assert_true(mock.closed);
}

/* Sends packets 0 .. n - 1 in bursts of `burst`, a microsecond apart. */
static void run(struct port *p, unsigned n, unsigned burst)
{
	struct pkt_addr dst = rig_addr("10.0.0.2");
	struct port_path *path = p->ops->path_get(p, &dst, 5);

	for (unsigned i = 0; i < n; i++) {
		assert_int_equal(rig_send(p, path, 64 + i % 5 * 4, (uint8_t)(i % 3), 5, i), 0);
		if (i % burst == burst - 1) {
			virtual_time += 1000;
			assert_true(p->ops->flush(p));
		}
	}
	virtual_time += 100000000; /* all late or delayed packets are sent now */
	assert_true(p->ops->flush(p));
	p->ops->path_put(p, path);
	assert_int_equal(mock.paths, 0);
	assert_int_equal(mock.flushed, mock.count);
}

/* Returns the packets that the mock got: their numbers, and whether each is whole. */
static unsigned trace(uint32_t *psn, bool *whole)
{
	struct pkt_addr src = rig_addr("10.0.0.1"), dst = rig_addr("10.0.0.2");
	struct icrc_flow flow;

	icrc_flow_init(&flow, &src, &dst, PKT_UDP_PORT, PKT_UDP_PORT);
	for (unsigned i = 0; i < mock.count; i++) {
		uint16_t id = mock.pkt[i].ip_id;

		psn[i] = pkt_get24(((struct pkt_bth *)mock.pkt[i].data)->psn);
		whole[i] = icrc_verify(&flow, true, &id, mock.pkt[i].data, mock.pkt[i].len);
		if (whole[i]) {
			assert_int_equal(mock.pkt[i].len, 64 + psn[i] % 5 * 4);
			assert_int_equal(mock.pkt[i].tos, psn[i] % 3);
		}
	}
	return mock.count;
}

static uint32_t psn[2][MOCK_MAX];
static bool whole[2][MOCK_MAX];

/* Without faults nothing changes. The ICRCs match the identifications that the inner port chose. */
static void test_transparent(void **state)
{
	const struct port_faults none = {.seed = 1};
	struct port *p = wrap(&none);

	run(p, 1000, 10);
	assert_int_equal(trace(psn[0], whole[0]), 1000);
	for (unsigned i = 0; i < 1000; i++) {
		assert_int_equal(psn[0][i], i);
		assert_true(whole[0][i]);
	}
	assert_int_equal(p->stats.tx_packets, 1000);
	unwrap(p);
}

/* The same faults for any size of bursts, other faults with another seed. */
static void test_seed(void **state)
{
	const struct port_faults f = {.loss = 0.05, .dup = 0.05, .corrupt = 0.05, .seed = 7},
				 g = {.loss = 0.05, .dup = 0.05, .corrupt = 0.05, .seed = 8};
	unsigned n[2];
	struct port *p = wrap(&f);

	run(p, 5000, 10);
	n[0] = trace(psn[0], whole[0]);
	unwrap(p);
	p = wrap(&f);
	run(p, 5000, 37);
	n[1] = trace(psn[1], whole[1]);
	unwrap(p);
	assert_int_equal(n[0], n[1]);
	assert_memory_equal(psn[0], psn[1], n[0] * sizeof(psn[0][0]));
	assert_memory_equal(whole[0], whole[1], n[0] * sizeof(whole[0][0]));
	p = wrap(&g);
	run(p, 5000, 10);
	n[1] = trace(psn[1], whole[1]);
	unwrap(p);
	assert_true(n[0] != n[1] || memcmp(psn[0], psn[1], n[0] * sizeof(psn[0][0])));
}

static void test_reorder_same(void **state)
{
	const struct port_faults f = {
		.loss = 0.01, .dup = 0.02, .reorder = 0.1, .delay_ns = 5000, .seed = 3};
	unsigned n[2];

	for (int i = 0; i < 2; i++) {
		struct port *p = wrap(&f);

		run(p, 5000, 10);
		n[i] = trace(psn[i], whole[i]);
		unwrap(p);
	}
	assert_int_equal(n[0], n[1]);
	assert_memory_equal(psn[0], psn[1], n[0] * sizeof(psn[0][0]));
}

/*
 * Rates are about the requested ones: one seed in a billion is six deviations off. The counters are
 * exact.
 */
static void test_counts(void **state)
{
	const struct port_faults f = {
		.loss = 0.1, .dup = 0.1, .reorder = 0.1, .corrupt = 0.1, .seed = 99};
	static unsigned times[MOCK_MAX];
	struct port *p = wrap(&f);
	struct fault_counts c;
	unsigned n, lost = 0, twice = 0, bad = 0, late = 0, highest = 0;

	run(p, 10000, 16);
	n = trace(psn[0], whole[0]);
	c = fault_counts(p);
	memset(times, 0, sizeof(times));
	for (unsigned i = 0; i < n; i++) {
		if (!whole[0][i]) {
			bad++;
			continue;
		}
		assert_in_range(psn[0][i], 0, 9999);
		times[psn[0][i]]++;
		late += psn[0][i] < highest && times[psn[0][i]] == 1;
		highest = psn[0][i] > highest ? psn[0][i] : highest;
	}
	for (unsigned i = 0; i < 10000; i++) {
		assert_in_range(times[i], 0, 2);
		lost += times[i] == 0; /* a corrupted one counts, unless it was duplicated before */
		twice += times[i] == 2;
	}
	assert_int_equal(c.seen, 10000);
	assert_int_equal(n, c.seen - c.lost + c.duplicated);
	assert_in_range(c.lost, 820, 1180);
	assert_in_range(c.duplicated, 720, 1080);
	assert_in_range(c.reordered, 720, 1080);
	/* The ICRC does not cover the BTH's reserved byte, where some flips fall. */
	assert_in_range(bad, c.corrupted * 95 / 100, c.corrupted);
	assert_in_range(lost, c.lost + c.corrupted * 3 / 4, c.lost + c.corrupted);
	assert_in_range(twice, c.duplicated * 3 / 4, c.duplicated);
	assert_in_range(late, c.reordered / 2, c.reordered + c.corrupted);
	assert_int_equal(p->stats.tx_dropped, c.lost);
	unwrap(p);
}

static void test_everything_lost(void **state)
{
	const struct port_faults f = {.loss = 1, .seed = 1};
	struct port *p = wrap(&f);

	run(p, 5000, 16);
	assert_int_equal(mock.count, 0);
	unwrap(p);
}

/* A delayed packet is sent in order by the next flush or poll after its time, and not before. */
static void test_delay(void **state)
{
	const struct port_faults f = {.delay_ns = 5000, .seed = 1};
	struct pkt_addr dst = rig_addr("10.0.0.2");
	struct port *p = wrap(&f);
	struct port_path *path = p->ops->path_get(p, &dst, 5);
	struct port_pkt pkt;

	assert_int_equal(rig_send(p, path, 64, 0, 5, 0), 0);
	assert_true(p->ops->flush(p));
	virtual_time += 3000;
	assert_int_equal(rig_send(p, path, 68, 1, 5, 1), 0);
	assert_true(p->ops->flush(p));
	virtual_time += 1999;
	assert_true(p->ops->flush(p));
	assert_int_equal(mock.count, 0);
	assert_true(p->ops->arm(p)); /* nothing to do yet */
	virtual_time += 1;
	assert_false(p->ops->arm(p));
	p->ops->rx_burst(p, &pkt, 1);
	assert_int_equal(mock.flushed, 1);
	virtual_time += 3000;
	assert_true(p->ops->flush(p));
	assert_int_equal(mock.flushed, 2);
	trace(psn[0], whole[0]);
	assert_int_equal(psn[0][0], 0);
	assert_int_equal(psn[0][1], 1);
	p->ops->path_put(p, path);
	unwrap(p);
}

/* A reordered packet is sent after a while if no other packet passes it. */
static void test_late(void **state)
{
	const struct port_faults f = {.reorder = 1, .seed = 1};
	struct pkt_addr dst = rig_addr("10.0.0.2");
	struct port *p = wrap(&f);
	struct port_path *path = p->ops->path_get(p, &dst, 5);

	assert_int_equal(rig_send(p, path, 64, 0, 5, 0), 0);
	assert_true(p->ops->flush(p));
	assert_int_equal(mock.count, 0);
	virtual_time += 1000000;
	assert_true(p->ops->flush(p));
	assert_int_equal(mock.flushed, 1);
	p->ops->path_put(p, path);
	unwrap(p);
}

/* The path is released after the packets that need it. */
static void test_path_waits(void **state)
{
	const struct port_faults f = {.delay_ns = 5000, .seed = 1};
	struct pkt_addr dst = rig_addr("10.0.0.2");
	struct port *p = wrap(&f);
	struct port_path *path = p->ops->path_get(p, &dst, 5);

	assert_int_equal(rig_send(p, path, 64, 0, 5, 0), 0);
	p->ops->path_put(p, path);
	assert_int_equal(mock.paths, 1);
	virtual_time += 5000;
	assert_true(p->ops->flush(p));
	assert_int_equal(mock.flushed, 1);
	assert_int_equal(mock.paths, 0);
	unwrap(p);
	/* If the port closes while a packet waits, the packet is dropped without a leak. */
	p = wrap(&f);
	path = p->ops->path_get(p, &dst, 5);
	assert_int_equal(rig_send(p, path, 64, 0, 5, 0), 0);
	p->ops->path_put(p, path);
	unwrap(p);
}

/* The inner port is full: all packets are kept, flush returns false, and no loop spins. */
static void test_inner_full(void **state)
{
	const struct port_faults f = {.dup = 0.5, .seed = 1};
	struct pkt_addr dst = rig_addr("10.0.0.2");
	struct port *p = wrap(&f);
	struct port_path *path = p->ops->path_get(p, &dst, 5);
	struct port_buf buf;
	unsigned sent = 0;

	mock.space = 10;
	while (rig_send(p, path, 64 + sent % 5 * 4, (uint8_t)(sent % 3), 5, sent) == 0)
		sent++;
	assert_in_range(sent, 1000, 4000); /* size of the pool */
	assert_int_equal(p->ops->reserve(p, path, 64, 0, &buf), -EAGAIN);
	assert_false(p->ops->flush(p));
	assert_true(p->ops->arm(p)); /* the inner port's descriptor shows when there is space */
	assert_int_equal(mock.count, 10);
	mock.space = MOCK_MAX;
	assert_true(p->ops->flush(p));
	assert_int_equal(mock.flushed, sent + fault_counts(p).duplicated);
	assert_int_equal(p->ops->reserve(p, path, 64, 0, &buf), 0);
	p->ops->cancel(p);
	assert_true(p->ops->flush(p));
	assert_int_equal(mock.flushed, sent + fault_counts(p).duplicated);
	p->ops->path_put(p, path);
	unwrap(p);
}

/*
 * Around a real port: the descriptor wakes a sleeper when a delayed packet is due. Packets arrive
 * whole.
 */
static void test_udp(void **state)
{
	char spec[2][96];
	struct port *a, *b;
	struct port_path *path;
	struct port_pkt pkts[PORT_BURST];
	unsigned got = 0;

	for (int i = 0; i < 2; i++)
		snprintf(spec[i], sizeof(spec[i]), "udp:127.%d.%d.%d%s", 1 + (getpid() >> 8) % 250,
			 getpid() % 250, 205 + i, i ? "" : ",delay=20ms,dup=1,seed=5");
	a = rig_open(spec[0]);
	b = rig_open(spec[1]);
	assert_string_equal(a->ops->name, "udp");
	path = a->ops->path_get(a, &b->addr, 5);
	assert_non_null(path);
	for (unsigned i = 0; i < 20; i++)
		assert_int_equal(rig_send(a, path, 64, 0, 5, i), 0);
	assert_true(a->ops->flush(a));
	/* Each packet has its own time: a sleeper is woken until all have been sent. */
	while (a->stats.tx_packets < 40) {
		if (a->ops->arm(a))
			assert_true(rig_readable(a, RIG_WAIT_MS));
		a->ops->disarm(a, true);
		assert_int_equal(a->ops->rx_burst(a, pkts, PORT_BURST), 0);
	}
	for (got = 0; got < 40;) {
		int n = rig_burst(b, pkts, PORT_BURST);

		assert_true(n > 0);
		for (int i = 0; i < n; i++, got++)
			assert_true(rig_check(b, &pkts[i], 5, got / 2));
	}
	assert_true(a->ops->arm(a));
	assert_false(rig_readable(a, 0));
	a->ops->disarm(a, true);
	a->ops->path_put(a, path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_transparent),
		cmocka_unit_test(test_seed),
		cmocka_unit_test(test_reorder_same),
		cmocka_unit_test(test_counts),
		cmocka_unit_test(test_everything_lost),
		cmocka_unit_test(test_delay),
		cmocka_unit_test(test_late),
		cmocka_unit_test(test_path_waits),
		cmocka_unit_test(test_inner_full),
		cmocka_unit_test_teardown(test_udp, rig_close_all),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
