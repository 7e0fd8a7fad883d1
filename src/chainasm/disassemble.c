/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The disassembler. It prints a WQE as an instruction only if the instruction produces all of its
 * bytes; otherwise it prints the words. The assembler therefore gives the same bytes.
 */
#include <arpa/inet.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chainasm/op.h"
#include "chainasm/program.h"

#define LINE 900

struct out {
	char *buf;
	size_t n, cap;
	bool failed;
};

static void add(struct out *o, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void add(struct out *o, const char *fmt, ...)
{
	va_list args;
	int n;

	if (o->failed)
		return;
	if (o->cap - o->n < 2 * LINE) {
		char *more = realloc(o->buf, o->cap * 2 + 4 * LINE);

		if (!more) {
			o->failed = true;
			return;
		}
		o->buf = more;
		o->cap = o->cap * 2 + 4 * LINE;
	}
	va_start(args, fmt);
	n = vsnprintf(o->buf + o->n, o->cap - o->n, fmt, args);
	va_end(args);
	o->n += n < 0 ? 0 : (size_t)n;
}

/* ---- locations and words ---- */

static const char *symbol_at(const struct chain_program *p, unsigned region, uint64_t offset)
{
	for (unsigned i = 0; i < p->symbols; i++) {
		const struct chain_symbol *s = &p->symbol[i];

		if (!s->constant && s->region == region && s->value == offset)
			return s->name;
	}
	return NULL;
}

void chain_print_location(const struct chain_program *p, unsigned region, uint64_t offset,
			  char *buf, size_t n)
{
	const struct chain_region *r = &p->region[region];
	const char *name = symbol_at(p, region, offset);
	const struct chain_field *f;
	uint32_t stride;
	uint64_t in;
	char head[2 * CHAIN_NAME];

	if (name) {
		snprintf(buf, n, "%s", name);
		return;
	}
	if (r->kind == CHAIN_DATA) {
		for (uint64_t back = 1; back <= offset && back < 64; back++) {
			name = symbol_at(p, region, offset - back);
			if (name) {
				snprintf(buf, n, "%s+%llu", name, (unsigned long long)back);
				return;
			}
		}
		if (offset)
			snprintf(buf, n, "%s+%llu", r->name, (unsigned long long)offset);
		else
			snprintf(buf, n, "%s", r->name);
		return;
	}
	stride = r->kind == CHAIN_SEND_RING ? p->queue[r->queue].stride
					    : p->queue[r->queue].recv_stride;
	in = offset % stride;
	name = symbol_at(p, region, offset - in);
	if (name)
		snprintf(head, sizeof(head), "%s", name);
	else
		snprintf(head, sizeof(head), "%s%s[%llu]", r->name,
			 r->kind == CHAIN_RECV_RING ? ".receives" : "",
			 (unsigned long long)(offset / stride));
	f = r->kind == CHAIN_SEND_RING ? chain_field_at((uint32_t)in) : NULL;
	if (!in)
		snprintf(buf, n, "%s", head);
	else if (f)
		snprintf(buf, n, "%s.%s", head, f->name);
	else
		snprintf(buf, n, "%s+%llu", head, (unsigned long long)in);
}

static void print_ref(const struct chain_program *p, uint64_t addr, uint32_t key, char *buf,
		      size_t n)
{
	int at = chain_region_at(p, addr), of = chain_region_of_key(p, key);

	if (at >= 0 && at == of)
		chain_print_location(p, (unsigned)at, addr - p->region[at].addr, buf, n);
	else if (of >= 0)
		snprintf(buf, n, "%s%s@%#llx", p->region[of].name,
			 p->region[of].kind == CHAIN_RECV_RING ? ".receives" : "",
			 (unsigned long long)addr);
	else
		snprintf(buf, n, "raw(%#llx, %#x)", (unsigned long long)addr, key);
}

static const char *ring_suffix(const struct chain_region *r)
{
	return r->kind == CHAIN_RECV_RING ? ".receives" : "";
}

/* Prints a word as the name of an address, key or queue if it has such a number. */
void chain_print_word(const struct chain_program *p, uint64_t v, char *buf, size_t n)
{
	int at = v >> 16 ? chain_region_at(p, v) : -1;
	int key = v >> 32 ? -1 : chain_region_of_key(p, (uint32_t)v);
	int high = chain_region_of_key(p, (uint32_t)(v >> 32));
	int queue = chain_queue_of_number(p, (uint32_t)v);
	char location[160];

	if (at >= 0) {
		chain_print_location(p, (unsigned)at, v - p->region[at].addr, location,
				     sizeof(location));
		snprintf(buf, n, "&%s", location);
	} else if (key >= 0 && v) {
		snprintf(buf, n, "key(%s%s)", p->region[key].name, ring_suffix(&p->region[key]));
	} else if (high >= 0 && v >> 32) {
		snprintf(buf, n, "key(%s%s) << 32 | %u", p->region[high].name,
			 ring_suffix(&p->region[high]), (uint32_t)v);
	} else if (queue >= 0 && (uint32_t)v && v >> 32 <= 1) {
		snprintf(buf, n, v >> 32 ? "qp(%s) | 1 << 32" : "qp(%s)", p->queue[queue].name);
	} else if (v < 1000) {
		snprintf(buf, n, "%llu", (unsigned long long)v);
	} else if (!(v & 0xffff)) {
		snprintf(buf, n, "operand(%llu)", (unsigned long long)(v >> 16));
	} else {
		snprintf(buf, n, "%#llx", (unsigned long long)v);
	}
}

/* ---- instructions ---- */

union wqe {
	struct roost_wqe w;
	uint8_t bytes[1024];
	uint64_t word[128];
};

struct text {
	char *buf;
	size_t n, at;
};

static void say(struct text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void say(struct text *t, const char *fmt, ...)
{
	va_list args;
	int n;

	va_start(args, fmt);
	n = vsnprintf(t->buf + t->at, t->n - t->at, fmt, args);
	va_end(args);
	t->at += n < 0 ? 0 : (size_t)n;
	if (t->at >= t->n)
		t->at = t->n - 1;
}

static void say_ref(const struct chain_program *p, struct text *t, uint64_t addr, uint32_t key)
{
	char location[200];

	print_ref(p, addr, key, location, sizeof(location));
	say(t, "%s", location);
}

static void say_word(const struct chain_program *p, struct text *t, uint64_t v)
{
	char word[200];

	chain_print_word(p, v, word, sizeof(word));
	say(t, "%s", word);
}

static void say_sges(const struct chain_program *p, struct text *t, const union wqe *u,
		     uint32_t offset, unsigned num, bool first)
{
	for (unsigned i = 0; i < num; i++) {
		struct roost_sge sge;

		memcpy(&sge, u->bytes + offset + i * sizeof(sge), sizeof(sge));
		say(t, "%s", first && !i ? " " : ", ");
		say_ref(p, t, sge.addr, sge.lkey);
		say(t, ", %u", sge.len);
	}
}

static void say_words(const struct chain_program *p, struct text *t, const union wqe *u,
		      uint32_t stride, const char *name)
{
	unsigned n = stride / 8;

	while (n > 1 && !u->word[n - 1])
		n--;
	say(t, "%s", name);
	for (unsigned i = 0; i < n; i++) {
		say(t, i ? ", " : " ");
		say_word(p, t, u->word[i]);
	}
}

/* Returns true if the WQE has no bytes beside those of the instruction, which are 0 in `rest`. */
static bool all_zero(const union wqe *rest, uint32_t stride)
{
	for (unsigned i = 0; i < stride / 8; i++)
		if (rest->word[i])
			return false;
	return true;
}

static void forget_sges(union wqe *rest, unsigned num)
{
	memset(rest->bytes + ROOST_WQE_SGE_OFFSET, 0, num * sizeof(struct roost_sge));
	rest->w.num_sge = 0;
}

static void say_flags(struct text *t, union wqe *rest)
{
	const char *between = " {";

	for (const struct chain_flag *f = chain_flags; f->name; f++) {
		if (!(rest->w.flags & f->flag))
			continue;
		say(t, "%s%s", between, f->name);
		between = ", ";
		rest->w.flags &= (uint16_t)~f->flag;
	}
	if (rest->w.ctrl >> 16) {
		say(t, "%sid=%llu", between, (unsigned long long)(rest->w.ctrl >> 16));
		between = ", ";
	}
	if (rest->w.imm) {
		say(t, "%simm=%u", between, ntohl(rest->w.imm));
		between = ", ";
	}
	if (between[0] == ',')
		say(t, "}");
	rest->w.ctrl = 0;
	rest->w.imm = 0;
}

static void say_inline(const struct chain_program *p, struct text *t, union wqe *rest)
{
	say(t, "set ");
	say_ref(p, t, rest->w.raddr, rest->w.rkey);
	for (uint32_t i = 0; i < rest->w.inline_len; i += 8) {
		say(t, ", ");
		say_word(p, t, rest->word[(ROOST_WQE_INLINE_OFFSET + i) / 8]);
	}
	memset(rest->bytes + ROOST_WQE_INLINE_OFFSET, 0, rest->w.inline_len);
	rest->w.inline_len = 0;
	rest->w.raddr = 0;
	rest->w.rkey = 0;
	rest->w.flags &= (uint16_t)~ROOST_WQE_INLINE;
}

static bool say_wait(const struct chain_program *p, struct text *t, union wqe *rest, int queue)
{
	const struct chain_watch_name *w;
	uint32_t index = (uint32_t)rest->w.raddr;

	if (queue < 0 || index >= ROOST_CHAIN_WATCHES)
		return false;
	w = &p->queue[queue].watch[index];
	if (w->queue < 0)
		return false;
	for (unsigned i = 0; i < index; i++) /* of two equal names the assembler takes the first */
		if (p->queue[queue].watch[i].queue == w->queue &&
		    p->queue[queue].watch[i].receives == w->receives)
			return false;
	say(t, " %s.%s", p->queue[w->queue].name, w->receives ? "receives" : "sends");
	return true;
}

static bool say_form(const struct chain_program *p, struct text *t, const struct chain_op *o,
		     union wqe *rest, uint32_t stride, int queue)
{
	unsigned num = rest->w.num_sge, max = (stride - ROOST_WQE_SGE_OFFSET) / 16;
	int to;

	say(t, "%s", o->name);
	if (num > max || num > ROOST_MAX_SGE)
		return false;
	switch (o->form) {
	case CHAIN_FORM_WRITE:
	case CHAIN_FORM_READ:
	case CHAIN_FORM_SEND:
		if (o->form != CHAIN_FORM_SEND) {
			say(t, " ");
			say_ref(p, t, rest->w.raddr, rest->w.rkey);
			rest->w.raddr = 0;
			rest->w.rkey = 0;
		}
		say_sges(p, t, rest, ROOST_WQE_SGE_OFFSET, num, o->form == CHAIN_FORM_SEND);
		forget_sges(rest, num);
		return true;
	case CHAIN_FORM_CAS:
	case CHAIN_FORM_CALC:
		if (num != 1 || rest->w.sge[0].len != 8)
			return false;
		say(t, " ");
		say_ref(p, t, rest->w.raddr, rest->w.rkey);
		if (o->form == CHAIN_FORM_CAS) {
			say(t, ", ");
			say_word(p, t, rest->w.compare);
			rest->w.compare = 0;
		}
		say(t, ", ");
		say_word(p, t, rest->w.swap_add);
		say(t, ", ");
		say_ref(p, t, rest->w.sge[0].addr, rest->w.sge[0].lkey);
		rest->w.raddr = rest->w.swap_add = 0;
		rest->w.rkey = 0;
		forget_sges(rest, 1);
		return true;
	case CHAIN_FORM_WAIT:
	case CHAIN_FORM_ENABLE:
		to = chain_queue_of_number(p, (uint32_t)rest->w.raddr);
		if (rest->w.raddr & ~(ROOST_CHAIN_RELATIVE | UINT32_MAX) ||
		    (o->form == CHAIN_FORM_WAIT ? !say_wait(p, t, rest, queue) : to < 0))
			return false;
		if (o->form == CHAIN_FORM_ENABLE)
			say(t, " %s", p->queue[to].name);
		say(t, ", ");
		say_word(p, t, rest->w.swap_add);
		rest->w.raddr = rest->w.swap_add = 0;
		return true;
	case CHAIN_FORM_TIME:
		if (rest->w.raddr & ~(ROOST_CHAIN_TIME | ROOST_CHAIN_RELATIVE))
			return false;
		say(t, " ");
		say_word(p, t, rest->w.swap_add);
		rest->w.raddr = rest->w.swap_add = 0;
		return true;
	default:
		return true;
	}
}

void chain_print_wqe(const struct chain_program *p, const void *wqe, uint32_t stride, int queue,
		     char *buf, size_t n)
{
	union wqe rest = {.word = {0}}, whole;
	struct text t = {buf, n, 0};
	const struct chain_op *o;
	bool ok;

	if (stride > sizeof(rest))
		stride = sizeof(rest);
	memcpy(rest.bytes, wqe, stride);
	whole = rest;
	buf[0] = '\0';
	o = chain_op_of(ROOST_CTRL_OP(rest.w.ctrl), false);
	if (o && o->op == ROOST_OP_WAIT && rest.w.raddr & ROOST_CHAIN_TIME)
		o = chain_op_named(rest.w.raddr & ROOST_CHAIN_RELATIVE ? "wait_time"
								       : "wait_until");
	else if (o && o->form >= CHAIN_FORM_WAIT && !(rest.w.raddr & ROOST_CHAIN_RELATIVE))
		o = chain_op_of(o->op, true);
	ok = o != NULL;
	if (ok && rest.w.flags & ROOST_WQE_INLINE) {
		ok = o->op == ROOST_OP_WRITE && rest.w.inline_len % 8 == 0 &&
		     rest.w.inline_len >= 8 && rest.w.inline_len <= 64 - ROOST_WQE_INLINE_OFFSET;
		if (ok)
			say_inline(p, &t, &rest);
	} else if (ok) {
		ok = say_form(p, &t, o, &rest, stride, queue);
	}
	if (ok) {
		rest.w.ctrl &= ~(uint64_t)0xffff;
		say_flags(&t, &rest);
	}
	if (ok && all_zero(&rest, stride))
		return;
	t.at = 0;
	say_words(p, &t, &whole, stride, "raw");
}

static void print_receive(const struct chain_program *p, const uint8_t *slot, uint32_t stride,
			  char *buf, size_t n)
{
	union wqe whole = {.word = {0}}, rest;
	struct roost_recv_wqe *r = (struct roost_recv_wqe *)rest.bytes;
	struct text t = {buf, n, 0};
	unsigned num;

	memcpy(whole.bytes, slot, stride);
	rest = whole;
	num = r->num_sge;
	if (num <= ROOST_MAX_SGE && ROOST_RECV_SGE_OFFSET + num * 16 <= stride &&
	    r->ctrl == ROOST_OP_RECV) {
		say(&t, "recv");
		say_sges(p, &t, &rest, ROOST_RECV_SGE_OFFSET, num, true);
		memset(rest.bytes + ROOST_RECV_SGE_OFFSET, 0, num * 16);
		r->num_sge = 0;
		r->ctrl = 0;
		if (all_zero(&rest, stride))
			return;
		t.at = 0;
	}
	say_words(p, &t, &whole, stride, "recv raw");
}

/* ---- regions and queues ---- */

/* Prints all labels of a location, the last one before its contents. */
static void print_labels(const struct chain_program *p, unsigned region, uint64_t offset,
			 struct out *o)
{
	bool any = false;

	for (unsigned i = 0; i < p->symbols; i++) {
		const struct chain_symbol *s = &p->symbol[i];

		if (s->constant || s->region != region || s->value != offset)
			continue;
		add(o, "%s%s:", any ? "\n" : "", s->name);
		any = true;
	}
}

/* Prints a template: 64 bytes that are an instruction, without a label inside. */
static bool print_template(const struct chain_program *p, unsigned region, uint64_t offset,
			   char *buf, size_t n)
{
	const struct chain_region *r = &p->region[region];
	uint64_t ctrl;

	if (offset % 8 || r->size - offset < 64)
		return false;
	memcpy(&ctrl, r->image + offset, 8);
	if (!ROOST_CTRL_OP(ctrl) || ctrl >> 16)
		return false;
	for (unsigned i = 8; i < 64; i++)
		if (symbol_at(p, region, offset + i))
			return false;
	chain_print_wqe(p, r->image + offset, 64, -1, buf, n);
	return strncmp(buf, "raw", 3) != 0 && !strstr(buf, "raw(");
}

static uint64_t zeros_at(const struct chain_program *p, unsigned region, uint64_t offset)
{
	const struct chain_region *r = &p->region[region];
	uint64_t n = 0;

	while (offset + n < r->size && !r->image[offset + n] &&
	       (!n || !symbol_at(p, region, offset + n)))
		n++;
	return n;
}

static void print_region(const struct chain_program *p, unsigned region, struct out *o)
{
	const struct chain_region *r = &p->region[region];
	uint64_t offset = 0, v;
	char buf[LINE];

	add(o, "region %s%s\n", r->name, r->readonly ? " readonly" : "");
	while (offset < r->size) {
		uint64_t zeros = zeros_at(p, region, offset), left = r->size - offset;

		/* a label at an odd address precedes bytes, which are not aligned */
		print_labels(p, region, offset, o);
		if (!(offset % 8) && zeros >= 16) {
			zeros &= ~7ull;
			add(o, "\tspace %llu\n", (unsigned long long)zeros);
			offset += zeros;
		} else if (print_template(p, region, offset, buf, sizeof(buf))) {
			add(o, "\twqe %s\n", buf);
			offset += 64;
		} else {
			unsigned n = 1;

			while (n < 8 && n < left && !symbol_at(p, region, offset + n))
				n++;
			if (n == 8 && !(offset % 8)) {
				memcpy(&v, r->image + offset, 8);
				chain_print_word(p, v, buf, sizeof(buf));
				add(o, "\tword %s\n", buf);
			} else {
				add(o, "\tbytes");
				for (unsigned i = 0; i < n; i++)
					add(o, "%s %u", i ? "," : "", r->image[offset + i]);
				add(o, "\n");
			}
			offset += n;
		}
	}
	print_labels(p, region, r->size, o);
	add(o, "\n");
}

static void print_watches(const struct chain_program *p, const struct chain_queue *q, struct out *o)
{
	const char *between = " watch=";

	for (unsigned i = 0; i < ROOST_CHAIN_WATCHES && q->watch[i].queue >= 0; i++) {
		add(o, "%s%s.%s", between, p->queue[q->watch[i].queue].name,
		    q->watch[i].receives ? "receives" : "sends");
		between = ",";
	}
}

static void print_queue(const struct chain_program *p, unsigned index, struct out *o)
{
	const struct chain_queue *q = &p->queue[index];
	char buf[LINE];

	add(o, "queue %s depth=%u", q->name, q->depth);
	if (q->managed)
		add(o, " managed");
	if (q->start)
		add(o, " start=%u", q->start);
	if (q->sges != 1)
		add(o, " sges=%u", q->sges);
	if (q->recvs)
		add(o, " receives=%u recv_sges=%u", q->recvs, q->recv_sges);
	if (q->managed_recv)
		add(o, " managed_recv");
	if (q->start_recv)
		add(o, " start_recv=%u", q->start_recv);
	if (q->rate_limit)
		add(o, " rate_limit=%llu", (unsigned long long)q->rate_limit);
	if (q->peer == CHAIN_PEER_OUTSIDE)
		add(o, " peer=outside");
	else if (q->peer >= 0)
		add(o, " peer=%s", p->queue[q->peer].name);
	print_watches(p, q, o);
	add(o, "\n");
	for (uint32_t i = 0; i < q->recv; i++) {
		print_receive(p, chain_recv_slot(p, q, i), q->recv_stride, buf, sizeof(buf));
		add(o, "\t%s\n", buf);
	}
	for (uint32_t i = 0; i < q->n; i++) {
		chain_print_wqe(p, chain_slot(p, q, i), q->stride, (int)index, buf, sizeof(buf));
		print_labels(p, (unsigned)q->region, (uint64_t)i * q->stride, o);
		add(o, "\t%s\n", buf);
	}
	print_labels(p, (unsigned)q->region, (uint64_t)q->n * q->stride, o);
	add(o, "\n");
}

char *chain_disassemble(const struct chain_program *p)
{
	struct out o = {NULL, 0, 0, false};

	add(&o, "# %u regions, %u queues\n\n", p->regions, p->queues);
	for (unsigned i = 0; i < p->symbols; i++)
		if (p->symbol[i].constant)
			add(&o, "const %s = %#llx\n", p->symbol[i].name,
			    (unsigned long long)p->symbol[i].value);
	for (unsigned i = 0; i < p->regions; i++)
		if (p->region[i].kind == CHAIN_DATA)
			print_region(p, i, &o);
	for (unsigned i = 0; i < p->queues; i++)
		print_queue(p, i, &o);
	if (o.failed) {
		free(o.buf);
		return NULL;
	}
	return o.buf;
}
