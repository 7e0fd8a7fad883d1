/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Groups of a foreign sender (UDP_SEGMENT) that have packets for several programs of an address.
 * The kernel gives a group to the program of the first packet. Each program gets, counts and
 * captures its own packets once, and no others. The programs are forked children; the sender is a
 * plain socket of the test.
 */
#include "../common/capture.h"
#include "../common/child.h"
#include "../common/network.h"
#include "rig.h"

#include <netinet/in.h>
#include <netinet/udp.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "base/rng.h"
#include "pool/pool.h"
#include "port/port_impl.h"

#define SEED	  1
#define PROGRAMS  3 /* the last one gets nothing */
#define RECEIVERS 2
#define ROUNDS	  20
#define GROUP	  40 /* packets */
#define PACKETS	  (ROUNDS * GROUP)
#define LEN	  (sizeof(struct pkt_bth) + sizeof(struct pkt_deth) + CM_MAD_LEN + PKT_ICRC_LEN)
#define LAST_LEN  64 /* the last packet of a group may be shorter */
#define SERVICE	  0x0000000001064321ull
#define LATE	  100 /* bursts that look for packets too many */
#define WAIT_MS	  60000

/* ---- programs ---- */

enum op { OPEN, TAKE, STATS, CLOSE };

struct command {
	enum op op;
	char spec[256];
	uint64_t service; /* to listen on */
};

struct packet {
	uint32_t len;
	uint16_t sport, ip_id;
	struct pkt_addr src;
	uint8_t data[LEN];
};

struct reply {
	int num;
	unsigned slot;
	struct port_stats stats;
	struct packet pkt[PORT_BURST];
};

static void take(struct port *p, struct reply *r)
{
	struct port_pkt pkts[PORT_BURST];

	r->num = p->ops->rx_burst(p, pkts, PORT_BURST);
	for (int i = 0; i < r->num; i++) {
		struct packet *k = &r->pkt[i];

		CHECK(pkts[i].len <= LEN);
		*k = (struct packet){.len = pkts[i].len,
				     .sport = pkts[i].sport,
				     .ip_id = pkts[i].ip_id,
				     .src = *pkts[i].src};
		memcpy(k->data, pkts[i].bth, k->len);
	}
}

static void serve(int fd)
{
	static struct reply r;
	struct port *p = NULL;
	struct command c;
	char err[256];

	while (read(fd, &c, sizeof(c)) == sizeof(c)) {
		memset(&r, 0, sizeof(r));
		switch (c.op) {
		case OPEN:
			p = port_open(c.spec, 0, 1, err, sizeof(err));
			if (!p)
				child_fails(err);
			r.slot = p->slot;
			pool_manages(pool_mine(), p->slot, true);
			CHECK(!pool_publish(pool_mine(), p->slot, c.service, NULL, 0,
					    POOL_IPV4 | POOL_IPV6));
			break;
		case TAKE:
			take(p, &r);
			break;
		case STATS:
			r.stats = port_stats_of(p);
			break;
		case CLOSE:
			port_close(p);
			break;
		}
		CHECK(write(fd, &r, sizeof(r)) == sizeof(r));
	}
}

struct program {
	pid_t pid;
	int fd;
	unsigned slot;
	char capture[64];
	uint64_t expected, bytes, got;
};

static struct program program[PROGRAMS];
static char folder[] = "/tmp/roost-mixed-XXXXXX";

static const struct reply *ask(const struct program *p, const struct command *c)
{
	static struct reply r;

	assert_int_equal(write(p->fd, c, sizeof(*c)), sizeof(*c));
	assert_int_equal(read(p->fd, &r, sizeof(r)), sizeof(r));
	return &r;
}

static const struct reply *ask_op(const struct program *p, enum op op)
{
	return ask(p, &(struct command){.op = op});
}

static void start_programs(const char *address)
{
	assert_non_null(mkdtemp(folder));
	for (unsigned i = 0; i < PROGRAMS; i++) {
		struct program *p = &program[i];
		struct command c = {.op = OPEN, .service = SERVICE + i};

		*p = (struct program){0};
		p->pid = child_start(serve, &p->fd);
		snprintf(p->capture, sizeof(p->capture), "%s/%u", folder, i);
		snprintf(c.spec, sizeof(c.spec), "udp:%s,pcap=%s", address, p->capture);
		p->slot = ask(p, &c)->slot;
	}
}

static int end_programs(void **state)
{
	for (unsigned i = 0; i < PROGRAMS; i++) {
		if (!program[i].pid)
			continue;
		child_kill(program[i].pid);
		close(program[i].fd);
		unlink(program[i].capture);
		program[i].pid = 0;
	}
	rmdir(folder);
	memcpy(folder + strlen(folder) - 6, "XXXXXX", 6);
	return 0;
}

/* ---- the sender ---- */

static struct sent {
	uint8_t to; /* program */
	uint8_t in_group;
	uint8_t seen, captured;
	uint32_t len;
	uint8_t data[LEN];
} sent[PACKETS];

static struct pkt_addr from, to;
static uint16_t sport;

union name {
	struct sockaddr sa;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
};

static socklen_t name_of(union name *n, const struct pkt_addr *a, uint16_t port)
{
	memset(n, 0, sizeof(*n));
	if (pkt_addr_is_v4(a)) {
		n->v4 = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(port)};
		memcpy(&n->v4.sin_addr, a->b + 12, 4);
		return sizeof(n->v4);
	}
	n->v6 = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_port = htons(port)};
	memcpy(&n->v6.sin6_addr, a->b, 16);
	return sizeof(n->v6);
}

/* A message of connection management for a program, by its service or by its id. */
static void build_message(uint8_t *bth, unsigned n, const struct program *p, enum cm_attr attr)
{
	uint32_t id = p->slot << 26 | n;
	struct cm_msg m = {.attr = attr, .tid = n, .local_id = ~id, .remote_id = id};
	uint8_t *b =
		pkt_put_bth(bth, PKT_UD | PKT_SEND_ONLY, PKT_BTH_MIGREQ, PKT_GSI_QPN, false, n);

	if (attr == CM_REQ)
		m.req.service_id = SERVICE + (unsigned)(p - program);
	else if (attr == CM_SIDR_REQ)
		m.sidr_req.service_id = SERVICE + (unsigned)(p - program);
	cm_build(&m, pkt_put_deth(b, CM_QKEY, CM_QPN));
}

/*
 * Builds packet n, whose PSN is n. The first of a group is for a queue pair, so it is known whose.
 */
static void build(unsigned n, struct rng *r, const struct icrc_flow *flow)
{
	static const enum cm_attr attrs[] = {CM_REQ, CM_SIDR_REQ, CM_SIDR_REP, CM_REP,
					     CM_RTU, CM_DREQ,	  CM_REJ};
	struct sent *s = &sent[n];
	unsigned in_group = n % GROUP, kind = (unsigned)(rng_u64(r) % 3);
	struct program *p;

	*s = (struct sent){.in_group = (uint8_t)in_group, .len = LEN};
	s->to = in_group ? (uint8_t)(rng_u64(r) % RECEIVERS) : (uint8_t)(n / GROUP % RECEIVERS);
	p = &program[s->to];
	if (in_group == GROUP - 1)
		s->len = LAST_LEN;
	if (in_group && s->len == LEN && !kind)
		build_message(s->data, n, p, attrs[rng_u64(r) % ARRAY_SIZE(attrs)]);
	else
		rig_build(s->data, s->len, p->slot << 18 | 0x75, n, flow, (uint16_t)in_group);
	icrc_store(s->data + s->len - PKT_ICRC_LEN,
		   icrc_compute(flow, (uint16_t)in_group, s->data, s->len));
	p->expected++;
	p->bytes += s->len;
}

/* Returns a socket whose sends are groups. Skips the test if the kernel makes none. */
static int open_sender(uint16_t port)
{
	int fd = socket(pkt_addr_is_v4(&from) ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	int size = LEN;
	union name n;
	socklen_t len = name_of(&n, &from, port);

	assert_true(fd >= 0);
	assert_int_equal(bind(fd, &n.sa, len), 0);
	assert_int_equal(getsockname(fd, &n.sa, &len), 0);
	sport = ntohs(pkt_addr_is_v4(&from) ? n.v4.sin_port : n.v6.sin6_port);
	if (setsockopt(fd, SOL_UDP, UDP_SEGMENT, &size, sizeof(size))) {
		close(fd);
		printf("SKIPPED: this kernel has no UDP_SEGMENT\n");
		skip();
	}
	return fd;
}

static void send_group(int fd, unsigned first)
{
	static uint8_t group[GROUP * LEN];
	size_t used = 0;
	union name n;
	socklen_t len = name_of(&n, &to, PKT_UDP_PORT);

	for (unsigned i = first; i < first + GROUP; i++) {
		memcpy(group + used, sent[i].data, sent[i].len);
		used += sent[i].len;
	}
	assert_int_equal(sendto(fd, group, used, 0, &n.sa, len), used);
}

/* ---- checks ---- */

static uint64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

/* Returns the packet that these bytes are; it must be the program's. */
static struct sent *identify(unsigned program_index, const uint8_t *bth, uint32_t len)
{
	uint32_t n = pkt_get24(((const struct pkt_bth *)bth)->psn);

	assert_true(len >= RIG_MIN_LEN && n < PACKETS);
	assert_int_equal(len, sent[n].len);
	assert_memory_equal(bth, sent[n].data, len);
	if (sent[n].to != program_index)
		fail_msg("packet %u is for program %u, and came to %u", n, sent[n].to,
			 program_index);
	return &sent[n];
}

static void take_all(unsigned i)
{
	const struct reply *r = ask_op(&program[i], TAKE);

	for (int k = 0; k < r->num; k++) {
		struct sent *s = identify(i, r->pkt[k].data, r->pkt[k].len);

		assert_int_equal(s->seen++, 0);
		assert_int_equal(r->pkt[k].sport, sport);
		assert_int_equal(r->pkt[k].ip_id, s->in_group);
		assert_true(pkt_addr_eq(&r->pkt[k].src, &from));
		program[i].got++;
	}
}

static void check_counters(const struct program *p)
{
	struct port_stats s = ask_op(p, STATS)->stats;

	assert_int_equal(s.rx_packets, p->expected);
	assert_int_equal(s.rx_bytes, p->bytes);
	assert_int_equal(s.rx_bad, 0);
	assert_int_equal(s.rx_bursts > 0, p->expected > 0);
	assert_int_equal(s.tx_packets, 0);
}

/* The file has each packet of the program once, with a header whose ICRC is right. */
static void check_capture(unsigned i)
{
	struct pcap_reader reader;
	struct pcap_record rec;
	uint8_t *data = capture_load(NULL, program[i].capture, &reader);
	uint64_t count = 0;

	for (; pcap_reader_next(&reader, &rec) == 1; count++) {
		assert_int_equal(rec.kind, PCAP_ROCE);
		assert_int_equal(identify(i, rec.bth, (uint32_t)rec.len)->captured++, 0);
		assert_true(pkt_addr_eq(&rec.src, &from) && pkt_addr_eq(&rec.dst, &to));
		assert_int_equal(icrc_compute_frame(rec.ip, rec.bth, rec.len),
				 icrc_load(rec.bth + rec.len - PKT_ICRC_LEN));
	}
	assert_int_equal(count, program[i].expected);
	free(data);
}

/* `port`: of the sender; 0: any. */
static void mixed(const char *own, const char *other, uint16_t port)
{
	struct icrc_flow flow;
	struct rng r;
	int fd;

	to = rig_addr(own);
	from = rig_addr(other);
	fd = open_sender(port);
	start_programs(own);
	rng_seed(&r, SEED);
	icrc_flow_init(&flow, &from, &to, sport, PKT_UDP_PORT);
	for (unsigned n = 0; n < PACKETS; n++)
		build(n, &r, &flow);
	for (unsigned n = 0; n < PACKETS; n += GROUP) {
		uint64_t until = now_ms() + WAIT_MS;

		send_group(fd, n);
		/* The programs look in turn, as often as it takes: no buffer is ever full. */
		for (unsigned after = n + GROUP, got = 0; got < after && now_ms() < until;) {
			got = 0;
			for (unsigned i = 0; i < PROGRAMS; i++) {
				take_all(i);
				got += (unsigned)program[i].got;
			}
		}
	}
	close(fd);
	for (unsigned late = 0; late < LATE; late++)
		take_all(late % PROGRAMS);
	for (unsigned i = 0; i < PROGRAMS; i++) {
		assert_int_equal(program[i].got, program[i].expected);
		check_counters(&program[i]);
		ask_op(&program[i], CLOSE);
		check_capture(i);
	}
	assert_true(program[0].expected > PACKETS / 4 && program[1].expected > PACKETS / 4);
	assert_int_equal(program[2].expected, 0);
}

static bool private_network;

static void ipv4(void **state)
{
	mixed("127.0.80.1", "127.0.80.2", PKT_UDP_PORT);
}

/* As from another machine: with a source port of its own. */
static void source_port(void **state)
{
	if (!private_network) {
		printf("SKIPPED: no network of its own here\n");
		skip();
	}
	mixed("10.77.0.1", "10.77.0.2", 0);
}

static void ipv6(void **state)
{
	if (!private_network) {
		printf("SKIPPED: no network of its own here\n");
		skip();
	}
	mixed("fd77::1", "fd77::2", 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(ipv4, end_programs),
		cmocka_unit_test_teardown(source_port, end_programs),
		cmocka_unit_test_teardown(ipv6, end_programs),
	};

	private_network = network_private();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
