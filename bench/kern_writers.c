/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * bench-kernels writers: look-ups of 64-byte values beside 0 to 16 writers, after RedN's figure 15.
 * One reader and the writers have one request under way each. The server's program does the sets;
 * the look-ups are answered by a chain, or by the program. The processing unit of the server's NIC
 * has a core for itself, on which a thread drives it. The program shares the other core with the
 * client, which also plays the writers. Latency at the client; and by the clock of the server's
 * NIC, from the arrival of the SEND to the time when the reply is posted. For a chain this is the
 * time after the turn that posted it.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

#include "kern.h"
#include "look_chain.h"
#include "look_server.h"
#include "roost/chain_lookup.h"
#include "roost/chain_verbs.h"

#define WRITERS	 16u
#define OWN_KEYS 64u /* of each writer, and of the reader */
#define KEYS	 ((WRITERS + 1) * OWN_KEYS)
#define STAMPS	 4096u
#define SLICES	 5u

enum { CHAIN_LINK, SERVER_LINK, LINKS };

/* The server's memory. */
struct store {
	uint8_t data[LOOK_DATA];
	struct roost_bucket bucket[KEYS]; /* of key k at k - 1 */
	uint8_t value[KEYS][LOOK_SET];
};

/* The client's memory, for the reader and each writer. */
struct slot {
	uint8_t value[LOOK_SET];
	struct roost_lookup_end end;
	union {
		struct look_request set;
		struct roost_lookup_request look;
	} request;
};

/* By the server; shared. */
static struct figures {
	struct hist chain, polls, blocks;
} * figures;

/* ---- the server ---- */

static struct look_server server;
static struct look_chain chain;
static struct ibv_cq_ex *arrivals, *audit;
static uint64_t arrived[STAMPS], num_arrived;  /* the NIC's clock: requests */
static uint64_t answered_at[STAMPS], num_done; /* the same: answers */
static uint64_t num_matched;
static atomic_uint passes; /* of the thread that drives the NIC */

static uint8_t *find(const struct duo *s, uint64_t key, uint32_t size)
{
	return ((struct store *)s->mem)->value[(key - 1) % KEYS];
}

static void build(struct duo *s)
{
	struct store *t = (struct store *)s->mem;

	for (uint64_t key = 1; key <= KEYS; key++) {
		memcpy(t->value[key - 1], &key, sizeof(key));
		t->bucket[key - 1] =
			(struct roost_bucket){ROOST_OPERAND(key), (uintptr_t)t->value[key - 1]};
	}
}

static struct ibv_cq_ex *stamped_cq(struct duo *s)
{
	struct ibv_cq_init_attr_ex attr = {.cqe = STAMPS,
					   .wc_flags = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP};
	struct ibv_cq_ex *cq = ibv_create_cq_ex(s->ctx, &attr);

	if (!cq)
		duo_fail("can't make a completion queue with time stamps");
	return cq;
}

static struct ibv_qp *make_link(struct duo *s, unsigned i)
{
	if (i == SERVER_LINK)
		return look_server_make(s, &server, find);
	arrivals = stamped_cq(s);
	audit = stamped_cq(s);
	chain.receives = ibv_cq_ex_to_cq(arrivals);
	chain.audit = ibv_cq_ex_to_cq(audit);
	return look_chain_make(s, &chain, LOOK_FIRST);
}

/* Takes the completions of requests. A poll of an empty queue runs a turn of the NIC. */
static void take_arrivals(void)
{
	int rc = ibv_start_poll(arrivals, &(struct ibv_poll_cq_attr){0});

	if (rc)
		return;
	for (; !rc; rc = ibv_next_poll(arrivals)) {
		if (arrivals->status)
			duo_fail("writers: a chain failed");
		arrived[num_arrived++ % STAMPS] = ibv_wc_read_completion_ts(arrivals);
	}
	ibv_end_poll(arrivals);
}

/* Takes the executed WQEs of the loop. Its last one, an ENABLE, starts the answer. */
static void take_answers(struct duo *s)
{
	int rc = ibv_start_poll(audit, &(struct ibv_poll_cq_attr){0});
	uint64_t now;

	if (rc)
		return;
	now = roost_chain_time(s->ctx);
	for (; !rc; rc = ibv_next_poll(audit)) {
		if (audit->status)
			duo_fail("writers: a chain failed");
		/* A turn of another thread may add completions meanwhile. */
		if (ibv_wc_read_completion_ts(audit) > now)
			now = roost_chain_time(s->ctx);
		if (ibv_wc_read_imm_data(audit) == ROOST_OP_ENABLE)
			answered_at[num_done++ % STAMPS] = now;
	}
	ibv_end_poll(audit);
}

/* Drives the NIC on the server's core. */
static void *drive(void *arg)
{
	struct duo *s = arg;

	for (;;) {
		/* In this order: the request of an answer that was taken has arrived. */
		take_answers(s);
		take_arrivals();
		for (; num_matched < num_done; num_matched++)
			hist_add(&figures->chain,
				 answered_at[num_matched % STAMPS] - arrived[num_matched % STAMPS]);
		atomic_fetch_add_explicit(&passes, 1, memory_order_release);
	}
	return NULL;
}

static void joined(struct duo *s)
{
	pthread_t thread;

	look_chain_start(s, &chain, LOOK_SET, 0, 0);
	look_server_start(&server);
	if (pthread_create(&thread, NULL, drive, s))
		duo_fail("can't start a thread");
	duo_pin(0);
}

enum { POLLS = 1, BLOCKS };

static void phase(struct duo *s, unsigned n)
{
	unsigned before;

	server.gets = n == BLOCKS ? &figures->blocks : &figures->polls;
	if (n == BLOCKS)
		look_server_run(s, &server, true);
	else
		look_server_run_beside(s, &server);
	before = atomic_load(&passes);
	/* until the last stamps have been taken */
	while (atomic_load(&passes) - before < 2)
		sched_yield();
}

/* ---- the client ---- */

static uint64_t numbers, number[WRITERS + 1], key_of[WRITERS + 1]; /* under way; 0: the reader */

static struct slot *slot_of(struct duo *c, unsigned i)
{
	return (struct slot *)c->mem + i;
}

static void send(struct duo *c, unsigned link, const void *from, uint32_t len)
{
	struct ibv_sge sge = {(uintptr_t)from, len, c->mr->lkey};
	struct ibv_send_wr wr = {.sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_SEND,
				 .send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE},
			   *bad;

	if (ibv_post_send(c->link[link], &wr, &bad))
		duo_fail("can't SEND");
	c->outstanding++;
}

/* Where the number comes: behind the value. */
static uint64_t *number_at(struct duo *c, unsigned i, bool by_chain)
{
	struct slot *t = slot_of(c, i);

	return by_chain ? &t->end.number : &t->end.found[0];
}

static void ask_server(struct duo *c, unsigned i, bool set)
{
	struct slot *t = slot_of(c, i);
	struct look_request *r = &t->request.set;

	*r = (struct look_request){.key = key_of[i],
				   .number = number[i],
				   .size = LOOK_SET,
				   .reply = (uint32_t)((uint8_t *)t - c->mem),
				   .set = set};
	memcpy(r->value, &r->key, sizeof(r->key));
	send(c, SERVER_LINK, r, set ? sizeof(*r) : LOOK_GET_LEN);
}

static void ask(struct duo *c, unsigned i, bool by_chain)
{
	struct slot *t = slot_of(c, i);
	uint64_t bucket;

	number[i] = ++numbers;
	key_of[i] = 1 + i * OWN_KEYS + numbers % OWN_KEYS;
	bucket = c->remote + offsetof(struct store, bucket) +
		 (key_of[i] - 1) * sizeof(struct roost_bucket);
	if (i || !by_chain)
		ask_server(c, i, i > 0);
	else
		send(c, CHAIN_LINK, &t->request,
		     roost_lookup_request(&t->request.look, key_of[i], &bucket, 1, number[i]));
}

static bool answered(struct duo *c, unsigned i, bool by_chain)
{
	return __atomic_load_n(number_at(c, i, by_chain && !i), __ATOMIC_ACQUIRE) == number[i];
}

static void read_beside(struct duo *c, unsigned writers, bool by_chain, struct hist *h)
{
	uint64_t start = duo_ns(), asked = start, now = start, answers = 0;

	for (unsigned i = 0; i <= writers; i++)
		ask(c, i, by_chain);
	while (now - start < kern.point_ns / SLICES || !answers) {
		bool any = false;

		duo_reap(c);
		now = duo_ns();
		for (unsigned i = 0; i <= writers; i++) {
			if (!answered(c, i, by_chain))
				continue;
			if (i == 0) {
				kern_expect("writers", c->mem, &key_of[0], sizeof(key_of[0]));
				hist_add(h, now - asked);
				asked = now;
				answers++;
			}
			any = true;
			ask(c, i, by_chain);
		}
		if (!any)
			sched_yield(); /* to the server's program */
	}
	for (unsigned i = 0; i <= writers; i++)
		while (!answered(c, i, by_chain)) {
			duo_reap(c);
			sched_yield();
		}
}

static struct way {
	const char *name, *at_nic;
	bool by_chain;
	unsigned phase;
	struct hist times;
} ways[] = {
	{.name = "chain", .at_nic = "chain, at the NIC", .by_chain = true, .phase = POLLS},
	{.name = "two-sided, polls", .at_nic = "two-sided, polls, at the NIC", .phase = POLLS},
	{.name = "two-sided, blocks", .at_nic = "two-sided, blocks, at the NIC", .phase = BLOCKS},
};
#define WAYS (sizeof(ways) / sizeof(ways[0]))

static void slice(struct duo *c, unsigned writers, struct way *w)
{
	const struct look_request over = {.number = 1, .size = 0};

	duo_phase(c, w->phase);
	read_beside(c, writers, w->by_chain, &w->times);
	send(c, SERVER_LINK, &over, LOOK_GET_LEN);
	duo_phase_end(c);
	while (c->outstanding)
		duo_reap(c);
}

static void client(struct duo *c)
{
	struct hist *at_nic[WAYS] = {&figures->chain, &figures->polls, &figures->blocks};

	for (unsigned writers = 0; writers <= WRITERS; writers = writers ? 2 * writers : 1) {
		for (unsigned k = 0; k < WAYS; k++) {
			hist_reset(&ways[k].times);
			hist_reset(at_nic[k]);
		}
		for (unsigned i = 0; i < SLICES; i++)
			for (unsigned k = 0; k < WAYS; k++)
				slice(c, writers, &ways[k]);
		for (unsigned k = 0; k < WAYS; k++) {
			kern_row("writers", ways[k].name, writers, &ways[k].times, 0, "");
			kern_row("writers", ways[k].at_nic, writers, at_nic[k], 0, "");
		}
	}
}

void kern_writers(void)
{
	figures = mmap(NULL, sizeof(*figures), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		       -1, 0);
	if (figures == MAP_FAILED)
		duo_fail("no memory");
	duo_run(&(struct duo_plan){.delay_ns = kern.delay_ns,
				   .client_len = sizeof(struct slot) * (WRITERS + 1),
				   .server_len = sizeof(struct store),
				   .build = build,
				   .links = LINKS,
				   .make_link = make_link,
				   .joined = joined,
				   .phase = phase,
				   .client = client});
}
