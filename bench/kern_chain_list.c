/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * bench-kernels chain_list: look-ups in a list of eight nodes with values of 64 bytes, by chains
 * with and without break, beside READs and the kernel `traversal`, after RedN's figure 13. The key
 * is one of the first n.
 */
#include <stdlib.h>
#include <string.h>

#include "kern.h"
#include "look_chain.h"
#include "roost/chain_list.h"
#include "roost/traversal.h"

#define NODES 8u
#define VALUE 64u

enum { BREAK_LINK, WHOLE_LINK, LINKS };

/* The server's memory. */
struct list {
	uint8_t data[LINKS][LOOK_DATA];
	struct roost_list_node node[NODES];
	uint8_t value[NODES][VALUE];
};

/* The client's memory. */
struct layout {
	uint8_t value[VALUE];
	struct roost_lookup_end end;
	struct roost_list_node node;
	struct roost_lookup_request request;
};

static struct look_chain chain[LINKS];

static void build(struct duo *s)
{
	struct list *t = (struct list *)s->mem;

	for (uint64_t i = 0; i < NODES; i++) {
		const uint64_t key = i + 1;

		memcpy(t->value[i], &key, sizeof(key));
		t->node[i] =
			(struct roost_list_node){ROOST_OPERAND(key), (uintptr_t)t->value[i],
						 i + 1 < NODES ? (uintptr_t)&t->node[i + 1] : 0,
						 i + 1 < NODES ? 0 : ROOST_OPERAND(1)};
	}
	kern_deploy(s, "traversal");
}

static struct ibv_qp *make_link(struct duo *s, unsigned i)
{
	return look_chain_make(s, &chain[i], i == BREAK_LINK ? LOOK_LIST : LOOK_LIST_WHOLE);
}

static void joined(struct duo *s)
{
	for (unsigned i = 0; i < LINKS; i++)
		look_chain_start(s, &chain[i], VALUE, i * (size_t)LOOK_DATA, 0);
}

/* ---- the client ---- */

static uint64_t first_node(const struct duo *c)
{
	return c->remote + offsetof(struct list, node);
}

static unsigned by_chain(struct duo *c, unsigned link, uint64_t key)
{
	static uint64_t number;
	struct layout *p = (struct layout *)c->mem;
	struct ibv_sge sge = {(uintptr_t)&p->request, 0, c->mr->lkey};
	struct ibv_send_wr wr = {.sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_SEND,
				 .send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE},
			   *bad;

	sge.length = roost_list_request(&p->request, key, first_node(c), ++number);
	if (ibv_post_send(c->link[link], &wr, &bad))
		duo_fail("can't SEND");
	c->outstanding++;
	do
		duo_reap(c);
	while (roost_lookup_result(&p->end, key, 1, number) == ROOST_LOOKUP_PENDING ||
	       c->outstanding);
	kern_expect("chain_list", p->value, &key, sizeof(key));
	return 1;
}

static unsigned with_break(struct duo *c, uint64_t random, unsigned size)
{
	return by_chain(c, BREAK_LINK, 1 + random % size);
}

static unsigned whole(struct duo *c, uint64_t random, unsigned size)
{
	return by_chain(c, WHOLE_LINK, 1 + random % size);
}

static unsigned by_kernel(struct duo *c, uint64_t random, unsigned size)
{
	const uint64_t key = 1 + random % size;
	struct roost_traversal_params p = roost_traversal_list(
		first_node(c), sizeof(struct roost_list_node), ROOST_OPERAND(key), 0, 2, 4, VALUE);

	kern_expect("chain_list", kern_call(ROOST_TRAVERSAL_OP, c->rkey, &p, sizeof(p), VALUE),
		    &key, sizeof(key));
	return 1;
}

static unsigned by_reads(struct duo *c, uint64_t random, unsigned size)
{
	const uint64_t key = 1 + random % size;
	struct layout *p = (struct layout *)c->mem;
	uint64_t at = first_node(c);
	unsigned trips = 1;

	do {
		duo_read(c, offsetof(struct layout, node), at, sizeof(p->node));
		at = p->node.next;
		trips++;
	} while (p->node.key != ROOST_OPERAND(key));
	duo_read(c, offsetof(struct layout, value), p->node.value, VALUE);
	kern_expect("chain_list", p->value, &key, sizeof(key));
	return trips;
}

static void client(struct duo *c)
{
	static struct kern_way ways[] = {
		{.name = "READs", .once = by_reads},
		{.name = "kernel", .once = by_kernel},
		{.name = "chain with break", .once = with_break},
		{.name = "chain without break", .once = whole},
	};

	kern_make_caller(c, 1, VALUE);
	for (unsigned n = 1; n <= NODES; n++)
		kern_compare(c, "chain_list", ways, sizeof(ways) / sizeof(ways[0]), n, "");
}

void kern_chain_list(void)
{
	duo_run(&(struct duo_plan){.delay_ns = kern.delay_ns,
				   .client_len = 4096,
				   .server_len = sizeof(struct list),
				   .build = build,
				   .links = LINKS,
				   .make_link = make_link,
				   .joined = joined,
				   .client = client});
}
