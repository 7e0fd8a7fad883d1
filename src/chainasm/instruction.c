/* SPDX-License-Identifier: BSD-2-Clause */
/* The assembler: one instruction is one WQE. */
#include <arpa/inet.h>
#include <string.h>

#include "chainasm/asm.h"

static uint32_t sges_of(const struct asm_state *s, bool recv)
{
	if (s->section != ASM_QUEUE)
		return 1; /* a template has one slot */
	return recv ? s->p->queue[s->index].recv_sges : s->p->queue[s->index].sges;
}

/* Parses "PLACE, LEN": entry n of the scatter list at `offset`. */
static bool entry(struct asm_state *s, struct asm_wqe *w, uint32_t offset, unsigned n, bool recv)
{
	struct roost_sge sge = {0};
	struct roost_ref at;
	uint64_t len;

	if (n >= sges_of(s, recv))
		return asm_fail(s, "more than %u pieces: the queue needs sges=%u", sges_of(s, recv),
				n + 1);
	if (!asm_ref(s, &at) || !asm_want(s, ",") || !asm_value(s, &len))
		return false;
	if (len > UINT32_MAX)
		return asm_fail(s, "a piece has less than 2^32 bytes");
	sge.addr = at.addr;
	sge.lkey = at.key;
	sge.len = (uint32_t)len;
	memcpy(w->bytes + offset + n * sizeof(sge), &sge, sizeof(sge));
	return true;
}

static bool entries(struct asm_state *s, struct asm_wqe *w, unsigned first)
{
	unsigned n = first;

	for (; n == 0 || asm_take(s, ","); n++)
		if (!entry(s, w, ROOST_WQE_SGE_OFFSET, n, false))
			return false;
	w->w.num_sge = (uint16_t)n;
	w->len = chain_send_stride(n);
	return true;
}

static void set_remote(struct asm_wqe *w, struct roost_ref at)
{
	w->w.raddr = at.addr;
	w->w.rkey = at.key;
}

/* Parses ", OLD": the location of the old value, by default a word that no instruction reads. */
static bool old_value(struct asm_state *s, struct asm_wqe *w)
{
	struct roost_ref at;

	if (asm_take(s, ",")) {
		if (!asm_ref(s, &at))
			return false;
	} else {
		if (!asm_constants(s))
			return false;
		at = s->chain.scratch;
	}
	w->w.num_sge = 1;
	w->w.sge[0] = (struct roost_sge){at.addr, 8, at.key};
	return true;
}

static bool cas(struct asm_state *s, struct asm_wqe *w)
{
	struct roost_ref at;

	if (!asm_ref(s, &at) || !asm_want(s, ",") || !asm_value(s, &w->w.compare) ||
	    !asm_want(s, ",") || !asm_value(s, &w->w.swap_add))
		return false;
	set_remote(w, at);
	return old_value(s, w);
}

static bool calc(struct asm_state *s, struct asm_wqe *w)
{
	struct roost_ref at;

	if (!asm_ref(s, &at) || !asm_want(s, ",") || !asm_value(s, &w->w.swap_add))
		return false;
	set_remote(w, at);
	return old_value(s, w);
}

/* Parses "TO, VALUE {, VALUE}": a WRITE of words inside the WQE. */
static bool set(struct asm_state *s, struct asm_wqe *w)
{
	struct roost_ref at;
	uint32_t n = 0;
	uint64_t v;

	if (!asm_ref(s, &at))
		return false;
	while (asm_take(s, ",")) {
		if (ROOST_WQE_INLINE_OFFSET + n + 8 > 64)
			return asm_fail(s, "at most 4 words are inside of a WQE");
		if (!asm_value(s, &v))
			return false;
		memcpy(w->bytes + ROOST_WQE_INLINE_OFFSET + n, &v, 8);
		n += 8;
	}
	if (!n)
		return asm_fail(s, "set: a value is missing");
	set_remote(w, at);
	w->w.ctrl = ROOST_OP_WRITE;
	w->w.flags = ROOST_WQE_INLINE;
	w->w.inline_len = n;
	return true;
}

/* Parses "VALUE {, VALUE}": the words of a WQE without change. */
static bool raw(struct asm_state *s, struct asm_wqe *w)
{
	uint32_t n = 0;
	uint64_t v;

	do {
		if (n == ASM_WQE_MAX)
			return asm_fail(s, "a WQE has at most %u words", ASM_WQE_MAX / 8);
		if (!asm_value(s, &v))
			return false;
		memcpy(w->bytes + n, &v, 8);
		n += 8;
	} while (asm_take(s, ","));
	w->len = n > 64 ? n : 64;
	return true;
}

bool asm_watch(struct asm_state *s, struct chain_queue *q, unsigned *index)
{
	struct chain_watch_name name = {.queue = 0};
	int queue;

	*index = 0;
	if (!asm_queue_name(s, &queue) || !asm_want(s, "."))
		return false;
	name.receives = asm_take(s, "receives");
	if (!name.receives && !asm_take(s, "sends"))
		return asm_fail(s, "a WAIT is for QUEUE.sends or QUEUE.receives");
	if (!s->second)
		return true;
	name.queue = (int16_t)queue;
	for (unsigned i = 0; i < ROOST_CHAIN_WATCHES; i++) {
		if (q->watch[i].queue < 0)
			q->watch[i] = name;
		if (q->watch[i].queue == name.queue && q->watch[i].receives == name.receives) {
			*index = i;
			return true;
		}
	}
	return asm_fail(s, "the queue %s waits for more than %d completion queues", q->name,
			ROOST_CHAIN_WATCHES);
}

static bool count(struct asm_state *s, struct asm_wqe *w, uint64_t usual)
{
	w->w.swap_add = usual;
	return !asm_take(s, ",") || asm_value(s, &w->w.swap_add);
}

static bool wait(struct asm_state *s, struct asm_wqe *w)
{
	unsigned index;

	if (s->section != ASM_QUEUE)
		return asm_fail(s, "a WAIT belongs into a queue");
	if (!asm_watch(s, &s->p->queue[s->index], &index))
		return false;
	w->w.raddr = index;
	return count(s, w, 1);
}

static bool enable(struct asm_state *s, struct asm_wqe *w, bool recv)
{
	const struct chain_queue *q;
	int queue;

	if (!asm_queue_name(s, &queue))
		return false;
	q = queue < 0 ? NULL : &s->p->queue[queue];
	w->w.raddr = q ? q->qp_num : 0;
	return count(s, w, recv || !q ? 1 : q->depth);
}

static bool form(struct asm_state *s, const struct chain_op *o, struct asm_wqe *w)
{
	struct roost_ref at;

	w->w.ctrl = o->op;
	switch (o->form) {
	case CHAIN_FORM_WRITE:
	case CHAIN_FORM_READ:
		if (!asm_ref(s, &at))
			return false;
		set_remote(w, at);
		if (!asm_take(s, ","))
			return true;
		return entries(s, w, 0);
	case CHAIN_FORM_SEND:
		return asm_peek(s) == '\0' || asm_peek(s) == '{' || entries(s, w, 0);
	case CHAIN_FORM_CAS:
		return cas(s, w);
	case CHAIN_FORM_CALC:
		return calc(s, w);
	case CHAIN_FORM_WAIT:
	case CHAIN_FORM_ENABLE:
		if (!(o->form == CHAIN_FORM_WAIT ? wait(s, w)
						 : enable(s, w, o->op == ROOST_OP_RECV_ENABLE)))
			return false;
		if (!o->absolute)
			w->w.raddr |= ROOST_CHAIN_RELATIVE;
		return true;
	case CHAIN_FORM_TIME:
		w->w.raddr = ROOST_CHAIN_TIME | (o->absolute ? 0 : ROOST_CHAIN_RELATIVE);
		return asm_value(s, &w->w.swap_add);
	default:
		return true;
	}
}

/* Parses modifiers, for example {signaled, id=5, imm=7}. */
static bool modifiers(struct asm_state *s, struct asm_wqe *w)
{
	char name[CHAIN_NAME];
	const struct chain_flag *f;
	uint64_t v;

	if (!asm_take(s, "{"))
		return true;
	do {
		if (!asm_want_name(s, name, "a flag"))
			return false;
		for (f = chain_flags; f->name && strcmp(f->name, name); f++)
			;
		if (f->name) {
			w->w.flags |= f->flag;
			continue;
		}
		if (!asm_want(s, "=") || !asm_value(s, &v))
			return false;
		if (strcmp(name, "id") == 0 && !(v >> 48))
			w->w.ctrl |= v << 16;
		else if (strcmp(name, "imm") == 0 && !(v >> 32))
			w->w.imm = htonl((uint32_t)v);
		else
			return asm_fail(s, "%s=%llu is no flag of a WQE", name,
					(unsigned long long)v);
	} while (asm_take(s, ","));
	return asm_want(s, "}");
}

bool asm_instruction(struct asm_state *s, struct asm_wqe *w)
{
	char name[CHAIN_NAME];
	const struct chain_op *o;

	memset(w, 0, sizeof(*w));
	w->len = sizeof(w->w);
	if (!asm_want_name(s, name, "an instruction"))
		return false;
	if (strcmp(name, "raw") == 0)
		return raw(s, w);
	if (strcmp(name, "set") == 0)
		return set(s, w) && modifiers(s, w);
	o = chain_op_named(name);
	if (!o)
		return asm_fail(s, "no instruction has the name %s", name);
	return form(s, o, w) && modifiers(s, w);
}

bool asm_receive(struct asm_state *s, struct asm_wqe *w)
{
	struct roost_recv_wqe *r = (struct roost_recv_wqe *)w->bytes;
	unsigned n = 0;

	memset(w, 0, sizeof(*w));
	w->len = sizeof(*r);
	r->ctrl = ROOST_OP_RECV;
	if (!asm_peek(s))
		return true;
	if (asm_take(s, "raw"))
		return raw(s, w);
	do {
		if (!entry(s, w, ROOST_RECV_SGE_OFFSET, n, true))
			return false;
		n++;
	} while (asm_take(s, ","));
	r->num_sge = n;
	w->len = chain_recv_stride(n);
	return true;
}
