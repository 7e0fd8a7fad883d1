/* SPDX-License-Identifier: BSD-2-Clause */
#include "tally.h"

#include <stddef.h>

struct state {
	uint64_t digest, word;
	uint32_t next; /* offset of the payload that is to come */
	uint16_t i;
	uint8_t begun;
	uint8_t block[TALLY_BLOCK];
};

/* FNV-1a works byte by byte, so the pieces do not matter. */
uint64_t tally_add(uint64_t digest, const void *data, uint32_t len)
{
	const uint8_t *p = data;

	for (uint32_t i = 0; i < len; i++)
		digest = (digest ^ p[i]) * 0x100000001b3ull;
	return digest;
}

static struct tally_entry *entry(const struct roost_call *c)
{
	const struct tally_params *p = c->params;
	struct tally *t = c->self;

	if (c->params_len >= sizeof(*p) && p->entry < TALLY_ENTRIES)
		return &t->entry[p->entry];
	t->strange++;
	return NULL;
}

static bool begin(struct roost_call *c)
{
	struct state *s = c->state;
	struct tally_entry *e = entry(c);

	if (!e)
		return false;
	e->begun++;
	s->begun = 1;
	s->digest = tally_add(TALLY_START, c->params, c->params_len);
	return true;
}

static void take_piece(struct roost_call *c)
{
	struct state *s = c->state;

	entry(c)->wrong += c->offset != s->next || c->offset + c->len > c->total ||
			   c->last != (c->offset + c->len == c->total);
	s->digest = tally_add(s->digest, c->data, c->len);
	s->next += c->len;
}

/* Handles parameters and pieces of payload. */
static enum roost_next run(struct roost_call *c)
{
	const struct tally_params *p = c->params;
	struct state *s = c->state;

	ROOST_STEPS(c);
	if (s->begun) {
		take_piece(c);
		if (p->reads) /* the packet waits for it */
			ROOST_READ(c, p->from, s->block, TALLY_BLOCK);
		if (!c->last)
			return ROOST_DONE;
	} else {
		if (!begin(c))
			ROOST_FAIL(c, ROOST_RPC_BAD_PARAMS);
		for (s->i = 0; s->i < p->reads; s->i++) {
			ROOST_READ(c, p->from + s->i * TALLY_BLOCK, s->block, TALLY_BLOCK);
			s->digest = tally_add(s->digest, s->block, TALLY_BLOCK);
		}
		ROOST_READ(c, p->word, &s->word, sizeof(s->word));
		s->word++;
		ROOST_WRITE(c, p->word, &s->word, sizeof(s->word));
		if (p->stream)
			return ROOST_DONE;
	}
	if (p->how == TALLY_ACCESS && p->len % 2)
		ROOST_READ(c, 8, s->block, TALLY_BLOCK);
	if (p->how == TALLY_ACCESS)
		ROOST_SEND_FROM(c, 8, TALLY_BLOCK);
	if (p->how == TALLY_PIECES) {
		ROOST_SEND_FROM(c, p->from, p->len / 2);
		ROOST_SEND(c, &s->digest, sizeof(s->digest));
		ROOST_SEND_FROM(c, p->from + p->len / 2, p->len - p->len / 2);
	}
	entry(c)->ended++;
	if (p->how == TALLY_DIGEST)
		ROOST_REPLY(c, &s->digest, sizeof(s->digest));
	if (p->how == TALLY_FROM || p->how == TALLY_LONG)
		ROOST_REPLY_FROM(c, p->from, p->len);
	if (p->how == TALLY_FAIL)
		ROOST_FAIL(c, TALLY_STATUS);
	ROOST_STEPS_END;
}

static void cut(struct roost_call *c)
{
	struct tally_entry *e = entry(c);

	if (e)
		e->cut++;
}

const struct roost_kernel tally_kernel = {
	.abi = ROOST_KERNEL_ABI,
	.version = 1,
	.name = "tally",
	.op = TALLY_OP,
	.state_size = sizeof(struct state),
	.params = run,
	.payload = run,
	.cut = cut,
};
