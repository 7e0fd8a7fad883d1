/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The kernel `consistency`, described in roost/consistency.h. The object is copied to the call's
 * scratch memory, and checked and sent from there, so that the sent bytes are those that were
 * checked.
 */
#include <endian.h>
#include <string.h>

#include "builtin/builtin.h"
#include "builtin/crc64.h"
#include "roost/consistency.h"

#define LINE 64u

struct consistency {
	struct roost_consistency_params p;
	uint64_t again; /* the version, read after the object */
	uint32_t tried;
	uint8_t object[ROOST_CONSISTENCY_MAX] __attribute__((aligned(64)));
};

static bool take_params(struct consistency *s, const struct roost_call *c)
{
	struct roost_consistency_params *p = &s->p;

	if (c->params_len != sizeof(*p))
		return false;
	memcpy(p, c->params, sizeof(*p));
	p->object = le64toh(p->object);
	p->len = le32toh(p->len);
	p->tries = le16toh(p->tries);
	p->scheme = le16toh(p->scheme);
	if (!p->tries || p->len > ROOST_CONSISTENCY_MAX)
		return false;
	if (p->scheme == ROOST_CONSISTENCY_VERSIONS)
		return p->len && p->len % LINE == 0;
	return p->scheme == ROOST_CONSISTENCY_CRC && p->len >= sizeof(uint64_t);
}

static bool crc_right(const struct consistency *s, uint32_t len)
{
	uint64_t crc;

	memcpy(&crc, s->object + len, sizeof(crc));
	return crc64_best()(s->object, len) == le64toh(crc);
}

/*
 * Returns whether the version is even, is the same before and after the lines were read, and is
 * that of all lines. The versions of the lines alone would suffice if a line was read atomically; a
 * CPU's copy does not guarantee that.
 */
static bool versions_agree(const struct consistency *s)
{
	uint64_t version;
	uint16_t low;

	memcpy(&version, s->object, sizeof(version));
	if (version != s->again || le64toh(version) & 1)
		return false;
	for (uint32_t line = LINE; line < s->p.len; line += LINE) {
		memcpy(&low, s->object + line, sizeof(low));
		if (le16toh(low) != (uint16_t)le64toh(version))
			return false;
	}
	return true;
}

/*
 * Removes the versions from the data in place: each line moves towards the front. Returns the bytes
 * of data.
 */
static uint32_t strip(struct consistency *s)
{
	uint32_t at = LINE - sizeof(uint64_t);

	memmove(s->object, s->object + sizeof(uint64_t), at);
	for (uint32_t line = LINE; line < s->p.len; line += LINE, at += LINE - sizeof(uint16_t))
		memmove(s->object + at, s->object + line + sizeof(uint16_t),
			LINE - sizeof(uint16_t));
	return at;
}

static enum roost_next consistency(struct roost_call *c)
{
	struct consistency *s = c->scratch;

	ROOST_STEPS(c);
	if (!take_params(s, c))
		ROOST_FAIL(c, ROOST_RPC_BAD_PARAMS);
	for (s->tried = 0; s->tried < s->p.tries; s->tried++) {
		ROOST_READ(c, s->p.object, s->object, s->p.len);
		if (s->p.scheme == ROOST_CONSISTENCY_CRC) {
			if (crc_right(s, s->p.len - (uint32_t)sizeof(uint64_t)))
				ROOST_REPLY(c, s->object, s->p.len - (uint32_t)sizeof(uint64_t));
			continue;
		}
		ROOST_READ(c, s->p.object, &s->again, sizeof(s->again));
		if (versions_agree(s))
			ROOST_REPLY(c, s->object, strip(s));
	}
	ROOST_FAIL(c, ROOST_RPC_BOUND);
	ROOST_STEPS_END;
}

const struct roost_kernel kernel_consistency = {
	.abi = ROOST_KERNEL_ABI,
	.version = 1,
	.name = "consistency",
	.op = ROOST_CONSISTENCY_OP,
	.scratch_size = sizeof(struct consistency),
	.params = consistency,
};
