/* SPDX-License-Identifier: BSD-2-Clause */
#include "kv/share.h"

#include "base/assert.h"

#define NONE UINT16_MAX

void share_init(struct shares *s, unsigned limit)
{
	*s = (struct shares){.limit = limit};
	for (unsigned i = 0; i < SHARE_PLACES; i++) {
		s->slots[i] = NONE;
		s->clients[i].next = (uint16_t)(i + 1 < SHARE_PLACES ? i + 1 : NONE);
	}
}

/* Returns the link to the client, or the end of the list of its slot. */
static uint16_t *find(struct shares *s, uint64_t client)
{
	uint16_t *at = &s->slots[client * 0x9e3779b97f4a7c15u >> 32 & (SHARE_PLACES - 1)];

	while (*at != NONE && s->clients[*at].client != client)
		at = &s->clients[*at].next;
	return at;
}

bool share_take(struct shares *s, uint64_t client)
{
	uint16_t *at = find(s, client);
	unsigned used = *at == NONE ? 0 : s->clients[*at].used;

	if (used >= SHARE_RATIO * (s->limit - s->used))
		return false;
	if (*at == NONE) {
		ROOST_ASSERT(s->free < SHARE_PLACES);
		*at = s->free;
		s->free = s->clients[*at].next;
		s->clients[*at] = (struct share){.client = client, .next = NONE};
	}
	s->clients[*at].used++;
	s->used++;
	return true;
}

void share_give(struct shares *s, uint64_t client)
{
	uint16_t *at = find(s, client), e = *at;

	ROOST_ASSERT(e < SHARE_PLACES);
	s->used--;
	if (--s->clients[e].used)
		return;
	*at = s->clients[e].next;
	s->clients[e].next = s->free;
	s->free = e;
}
