/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * bench-kernels chain: hash look-ups by chains, beside READs, the kernel `get` and a two-sided
 * server, by size of the value. All fit the cache. Latency with one look-up under way; then rates
 * with eight, and with 64 for the two-sided server, beside the rate of SENDs to it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "kern.h"
#include "look_chain.h"
#include "look_server.h"
#include "roost/chain_lookup.h"
#include "roost/get.h"

#define KEYS	  64u
#define HOOD	  6u /* buckets that FaRM's way READs */
#define FLIGHT	  8u
#define MORE	  (KEYS / 2)
#define MAX_VALUE 65536u
#define PART_NS	  2000000u
#define QUIET	  16u /* SENDs, of which the last one is answered */

static const uint32_t sizes[] = {64, 256, 1024, 4096, 16384, 65536};
#define SIZES (sizeof(sizes) / sizeof(sizes[0]))

/*
 * Links: for each size FLIGHT chains of one bucket, and two of two buckets; the two-sided server.
 */
#define PER_SIZE    (FLIGHT + 2)
#define LINKS	    (SIZES * PER_SIZE + 1)
#define SERVER_LINK (LINKS - 1)
_Static_assert(LINKS <= DUO_LINKS, "links of a benchmark");

/* At the server: data of the chains; for each size a table of `get`, buckets, values. */
struct table {
	struct roost_get_entry entry[KEYS + MORE];
	struct roost_bucket bucket[KEYS + HOOD]; /* of key k at k - 1; then empty ones */
	uint8_t value[];
};

/* At the client, for each look-up under way. */
struct request {
	union {
		struct roost_lookup_request chain;
		uint8_t hood[HOOD * sizeof(struct roost_bucket)];
	};
};
#define REQUESTS   (LOOK_WINDOW * sizeof(struct request)) /* offset of the replies */
#define REPLY_SIZE (MAX_VALUE + 64u)

/* ---- the server ---- */

static size_t table_at(uint32_t value_len)
{
	size_t at = LINKS * LOOK_DATA;

	for (unsigned i = 0; i < SIZES && sizes[i] < value_len; i++)
		at += sizeof(struct table) + (size_t)KEYS * sizes[i];
	return at;
}

static size_t reply_at(unsigned slot)
{
	return REQUESTS + slot * (size_t)REPLY_SIZE;
}

static void build(struct duo *s)
{
	for (unsigned i = 0; i < SIZES; i++) {
		struct table *t = (void *)(s->mem + table_at(sizes[i]));
		uint32_t used = 0;

		for (uint64_t key = 1; key <= KEYS; key++) {
			uint8_t *value = t->value + (key - 1) * sizes[i];

			memcpy(value, &key, sizeof(key));
			memcpy(value + sizes[i] - sizeof(key), &key, sizeof(key));
			t->bucket[key - 1] =
				(struct roost_bucket){ROOST_OPERAND(key), (uintptr_t)value};
			if (roost_get_insert(t->entry, KEYS, MORE, &used, key, (uintptr_t)value,
					     sizes[i], 0))
				duo_fail("the hash table is too small");
		}
	}
	kern_deploy(s, "get");
}

static uint8_t *find(const struct duo *s, uint64_t key, uint32_t size)
{
	const struct table *t = (const void *)(s->mem + table_at(size));
	const uint64_t value = t->bucket[(key - 1) % KEYS].value;

	return (uint8_t *)(uintptr_t)value;
}

static struct look_chain chains[SERVER_LINK];
static struct look_server server;

static struct ibv_qp *make_link(struct duo *s, unsigned i)
{
	const unsigned k = i % PER_SIZE;

	if (i == SERVER_LINK)
		return look_server_make(s, &server, find);
	return look_chain_make(s, &chains[i],
			       k < FLIGHT    ? LOOK_FIRST
			       : k == FLIGHT ? LOOK_SECOND
					     : LOOK_PARALLEL);
}

static void joined(struct duo *s)
{
	for (unsigned i = 0; i < SERVER_LINK; i++)
		look_chain_start(s, &chains[i], sizes[i / PER_SIZE], i * (size_t)LOOK_DATA,
				 reply_at(i % PER_SIZE < FLIGHT ? i % PER_SIZE : 0));
	look_server_start(&server);
}

enum { POLLS = 1, BLOCKS };

static void phase(struct duo *s, unsigned n)
{
	look_server_run(s, &server, n == BLOCKS);
}

/* ---- the client ---- */

enum way { ONE_READ, READS, KERNEL, CHAIN, SECOND, PARALLEL, TWO_SIDED, SENDS };

/* A look-up under way. */
struct look {
	uint64_t key, number; /* number: of the request, or of the last READ */
	unsigned call, reads;
};

static struct look looks[LOOK_WINDOW];
static uint64_t numbers, reads; /* given; posted */

static struct request *request(struct duo *c, unsigned slot)
{
	return (struct request *)c->mem + slot;
}

static void post_read(struct duo *c, struct look *l, size_t at, uint64_t from, uint32_t len)
{
	duo_post(c, IBV_WR_RDMA_READ, at, c->remote + from, len);
	l->number = ++reads;
	l->reads++;
}

static void read_value(struct duo *c, struct look *l, uint32_t size)
{
	post_read(c, l, reply_at((unsigned)(l - looks)),
		  table_at(size) + offsetof(struct table, value) + (l->key - 1) * size, size);
}

static void send(struct duo *c, unsigned link, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;

	for (struct ibv_send_wr *w = wr; w; w = w->next)
		c->outstanding += !!(w->send_flags & IBV_SEND_SIGNALED);
	if (ibv_post_send(c->link[link], wr, &bad))
		duo_fail("can't SEND");
}

static void ask_chain(struct duo *c, struct look *l, enum way way, uint32_t size)
{
	const unsigned slot = (unsigned)(l - looks);
	const uint64_t bucket = c->remote + table_at(size) + offsetof(struct table, bucket),
		       own = bucket + (l->key - 1) * sizeof(struct roost_bucket),
		       other = bucket + l->key % KEYS * sizeof(struct roost_bucket);
	const uint64_t one[] = {own}, two[] = {other, own};
	unsigned i = 0;
	struct ibv_sge sge = {(uintptr_t)request(c, slot), 0, c->mr->lkey};
	struct ibv_send_wr wr = {.sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_SEND,
				 .send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE};

	sge.length =
		roost_lookup_request(&request(c, slot)->chain, l->key, way == CHAIN ? one : two,
				     way == CHAIN ? 1 : 2, l->number);
	while (sizes[i] < size)
		i++;
	send(c, i * PER_SIZE + (way == CHAIN ? slot : FLIGHT + (way == PARALLEL)), &wr);
}

/* Requests to the two-sided server wait here, to be posted as a list. */
static struct ibv_send_wr waiting[LOOK_WINDOW];
static struct ibv_sge waiting_sge[LOOK_WINDOW];
static struct look_request waiting_request[LOOK_WINDOW]; /* inline */
static unsigned num_waiting;

static void flush(struct duo *c)
{
	if (!num_waiting)
		return;
	waiting[num_waiting - 1].next = NULL;
	waiting[num_waiting - 1].send_flags |= IBV_SEND_SIGNALED;
	send(c, SERVER_LINK, waiting);
	num_waiting = 0;
}

static void ask_server(const struct look_request *r)
{
	const unsigned i = num_waiting++;

	waiting_request[i] = *r;
	waiting_sge[i] = (struct ibv_sge){(uintptr_t)&waiting_request[i], LOOK_GET_LEN, 0};
	waiting[i] = (struct ibv_send_wr){.sg_list = &waiting_sge[i],
					  .num_sge = 1,
					  .next = &waiting[i + 1],
					  .opcode = IBV_WR_SEND,
					  .send_flags = IBV_SEND_INLINE};
}

static void ask(struct duo *c, enum way way, unsigned slot, uint64_t random, uint32_t size)
{
	struct look *l = &looks[slot];
	struct roost_get_params p;

	*l = (struct look){.key = 1 + random % KEYS, .number = ++numbers};
	switch (way) {
	case ONE_READ:
		read_value(c, l, size);
		return;
	case READS:
		post_read(c, l, slot * sizeof(struct request),
			  table_at(size) + offsetof(struct table, bucket) +
				  (l->key - 1) * sizeof(struct roost_bucket),
			  HOOD * sizeof(struct roost_bucket));
		return;
	case KERNEL:
		p = roost_get_params(c->remote + table_at(size), KEYS, l->key, 0);
		if (roost_call_begin(kern_caller, ROOST_GET_OP, c->rkey, &p, sizeof(p), 0,
				     &l->call))
			duo_fail("chain: a call can't begin");
		return;
	case CHAIN:
	case SECOND:
	case PARALLEL:
		ask_chain(c, l, way, size);
		return;
	case TWO_SIDED:
	case SENDS:
		for (unsigned i = way == SENDS ? QUIET : 1; i--;)
			ask_server(&(struct look_request){.key = l->key,
							  .number = l->number,
							  .size = size,
							  .reply = (uint32_t)reply_at(slot),
							  .quiet = i});
		return;
	}
}

/* The key is at both ends of the value. */
static void expect(enum way way, uint32_t size, const uint8_t *value, uint64_t key)
{
	uint64_t first, last;

	memcpy(&first, value, sizeof(first));
	memcpy(&last, value + size - sizeof(last), sizeof(last));
	if (first != key || last != key)
		duo_fail(
			"chain: way %d, %u bytes: the value of key %u begins with that of %u and ends "
			"with that of %u",
			way, size, (unsigned)key, (unsigned)first, (unsigned)last);
}

/* READs complete in their order. */
static bool read_is_done(const struct duo *c, const struct look *l)
{
	return l->number <= reads - c->outstanding;
}

/* True once for each look-up: it is answered, and its value is right. */
static bool answered(struct duo *c, enum way way, unsigned slot, uint32_t size)
{
	struct look *l = &looks[slot];
	const uint8_t *value = c->mem + reply_at(slot);
	const struct roost_lookup_end *end = (const void *)(value + size);
	struct roost_result r;
	int rc;

	switch (way) {
	case ONE_READ:
	case READS:
		if (!read_is_done(c, l))
			return false;
		if (way == READS && l->reads == 1) {
			read_value(c, l, size);
			return false;
		}
		break;
	case KERNEL:
		rc = roost_call_poll(kern_caller, l->call, &r);
		if (rc == EAGAIN)
			return false;
		if (rc || r.status || r.len != size)
			duo_fail("chain: a call fails");
		expect(way, size, r.data, l->key);
		roost_call_end(kern_caller, l->call);
		return true;
	case CHAIN:
	case SECOND:
	case PARALLEL:
		switch (roost_lookup_result(end, l->key, way == CHAIN ? 1 : 2, l->number)) {
		case ROOST_LOOKUP_PENDING:
			return false;
		case ROOST_LOOKUP_HIT:
			break;
		case ROOST_LOOKUP_MISS:
			duo_fail("a chain finds nothing");
		}
		break;
	case SENDS:
	case TWO_SIDED:
		if (__atomic_load_n((const uint64_t *)(const void *)end, __ATOMIC_ACQUIRE) !=
		    l->number)
			return false;
		break;
	}
	expect(way, size, value, l->key);
	return true;
}

static void drain(struct duo *c)
{
	while (c->outstanding)
		duo_reap(c);
}

static unsigned look_up(struct duo *c, enum way way, uint64_t random, uint32_t size)
{
	ask(c, way, 0, random, size);
	flush(c);
	do
		duo_reap(c);
	while (!answered(c, way, 0, size));
	return way == READS ? 2 : 1;
}

/* The highest rate of a part of the time, as a shared machine stops one side or the other. */
static double rate(struct duo *c, enum way way, unsigned flight, uint32_t size)
{
	static struct rng rng;
	uint64_t done = 0, start, now, part;
	double most = 0;

	if (!rng.s[0])
		rng_seed(&rng, 5);
	drain(c);
	for (unsigned i = 0; i < flight; i++)
		ask(c, way, i, rng_u64(&rng), size);
	flush(c);
	start = part = now = duo_ns();
	while (now - start < kern.point_ns) {
		duo_reap(c);
		for (unsigned i = 0; i < flight; i++)
			if (answered(c, way, i, size)) {
				done += way == SENDS ? QUIET : 1;
				ask(c, way, i, rng_u64(&rng), size);
			}
		flush(c);
		now = duo_ns();
		if (now - part < PART_NS)
			continue;
		if ((double)done * 1e9 / (double)(now - part) > most)
			most = (double)done * 1e9 / (double)(now - part);
		part = now;
		done = 0;
	}
	for (unsigned i = 0; i < flight; i++)
		while (!answered(c, way, i, size))
			duo_reap(c);
	drain(c);
	return most;
}

/* ---- the rows ---- */

static void begin(struct duo *c)
{
	drain(c);
}

static void begin_polls(struct duo *c)
{
	duo_phase(c, POLLS);
}

static void begin_blocks(struct duo *c)
{
	duo_phase(c, BLOCKS);
}

static void end_server(struct duo *c)
{
	ask_server(&(struct look_request){.number = 1, .size = 0});
	flush(c);
	duo_phase_end(c);
	drain(c);
}

#define ONCE(name, way)                                                                            \
	static unsigned once_##name(struct duo *c, uint64_t random, unsigned size)                 \
	{                                                                                          \
		return look_up(c, way, random, size);                                              \
	}

ONCE(read, ONE_READ)
ONCE(reads, READS)
ONCE(kernel, KERNEL)
ONCE(chain, CHAIN)
ONCE(second, SECOND)
ONCE(parallel, PARALLEL)
ONCE(server, TWO_SIDED)

static struct kern_way ways[] = {
	{.name = "one READ", .once = once_read, .begin = begin, .end = begin},
	{.name = "READs", .once = once_reads, .begin = begin, .end = begin},
	{.name = "kernel", .once = once_kernel},
	{.name = "chain", .once = once_chain},
	{.name = "chain, second bucket", .once = once_second},
	{.name = "chain, second, parallel", .once = once_parallel},
	{.name = "two-sided, polls", .once = once_server, .begin = begin_polls, .end = end_server},
	{.name = "two-sided, blocks",
	 .once = once_server,
	 .begin = begin_blocks,
	 .end = end_server},
};

#define RATE(name, way, flight)                                                                    \
	static double rate_##name(struct duo *c, unsigned size)                                    \
	{                                                                                          \
		return rate(c, way, flight, size);                                                 \
	}

#define BY_SERVER(name, way, flight)                                                               \
	static double rate_##name(struct duo *c, unsigned size)                                    \
	{                                                                                          \
		double v;                                                                          \
                                                                                                   \
		begin_polls(c);                                                                    \
		v = rate(c, way, flight, size);                                                    \
		end_server(c);                                                                     \
		return v;                                                                          \
	}

RATE(read, ONE_READ, FLIGHT)
RATE(reads, READS, FLIGHT)
RATE(kernel, KERNEL, FLIGHT)
RATE(chain, CHAIN, FLIGHT)
BY_SERVER(server, TWO_SIDED, FLIGHT)
BY_SERVER(server_64, TWO_SIDED, LOOK_WINDOW)
BY_SERVER(sends, SENDS, LOOK_WINDOW / QUIET)

static void client(struct duo *c)
{
	kern_make_caller(c, FLIGHT, MAX_VALUE);
	for (unsigned i = 0; i < SIZES; i++) {
		const struct kern_rate rates[] = {
			{"rate: one READ", rate_read, sizes[i]},
			{"rate: READs", rate_reads, sizes[i]},
			{"rate: kernel", rate_kernel, sizes[i]},
			{"rate: chain", rate_chain, sizes[i]},
			{"rate: two-sided", rate_server, sizes[i]},
			{"rate: two-sided, 64", rate_server_64, sizes[i]},
			{"rate: SEND", rate_sends, sizes[i]}, /* of the shortest values only */
		};

		if (kern.size && kern.size != sizes[i])
			continue;
		kern_compare(c, "chain", ways, sizeof(ways) / sizeof(ways[0]), sizes[i], "");
		kern_rates(c, "chain", rates, sizeof(rates) / sizeof(rates[0]) - (i > 0), 3,
			   "rate");
	}
}

void kern_chain(void)
{
	duo_run(&(struct duo_plan){.delay_ns = kern.delay_ns,
				   .client_len = reply_at(LOOK_WINDOW),
				   .server_len = table_at(2 * MAX_VALUE),
				   .build = build,
				   .links = LINKS,
				   .make_link = make_link,
				   .joined = joined,
				   .phase = phase,
				   .client = client});
}
