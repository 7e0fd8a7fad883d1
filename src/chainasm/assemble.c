/* SPDX-License-Identifier: BSD-2-Clause */
/* The assembler: two passes over the lines, regions of data, and queues. */
#include <stdlib.h>
#include <string.h>

#include "chainasm/asm.h"

#define UNKNOWN_DEPTH  4096u /* depth in the first pass */
#define MAX_CONSTANTS  (1u << 20)
#define CONSTANTS_NAME "constants"

/* ---- regions ---- */

static bool name_is_free(struct asm_state *s, const char *name)
{
	if (chain_find_symbol(s->p, name) || chain_find_queue(s->p, name) >= 0)
		return asm_fail(s, "the name %s is taken", name);
	for (unsigned i = 0; i < s->p->regions; i++)
		if (strcmp(s->p->region[i].name, name) == 0)
			return asm_fail(s, "the name %s is taken", name);
	return true;
}

static bool begin_region(struct asm_state *s)
{
	struct chain_program *p = s->p;
	char name[CHAIN_NAME];
	struct chain_region *r;

	if (!asm_want_name(s, name, "the name of the region"))
		return false;
	s->section = ASM_REGION;
	s->index = s->region_count++;
	s->offset = 0;
	if (!s->second) {
		if (!name_is_free(s, name))
			return false;
		if (p->regions == CHAIN_MAX_REGIONS - 2 * CHAIN_MAX_QUEUES - 1)
			return asm_fail(s, "too many regions");
		r = &p->region[p->regions++];
		memcpy(r->name, name, CHAIN_NAME);
		r->kind = CHAIN_DATA;
		r->key = ASM_UNKNOWN_KEY;
		r->line = s->number;
	}
	r = &p->region[s->index];
	r->readonly = asm_take(s, "readonly");
	return true;
}

/*
 * The memory of all regions and queues is allocated between the passes, but a value may be an
 * address or a key, which only the second pass knows.
 */
static bool other_size(struct asm_state *s)
{
	return asm_fail(s, "a size may not depend on an address, a key or the number of a queue");
}

/* Appends bytes; `bytes` NULL: zeros. */
static bool append(struct asm_state *s, const void *bytes, uint64_t n)
{
	struct chain_region *r = &s->p->region[s->index];

	if (n > CHAIN_MAX_BYTES - s->offset)
		return asm_fail(s, "the region is larger than %u bytes", CHAIN_MAX_BYTES);
	if (s->second && n > r->size - s->offset)
		return other_size(s);
	if (s->second && bytes)
		memcpy(r->image + s->offset, bytes, n);
	s->offset += (uint32_t)n;
	if (!s->second)
		r->size = s->offset;
	return true;
}

static bool end_region(struct asm_state *s)
{
	const struct chain_region *r = &s->p->region[s->index];

	if (s->offset == r->size)
		return true;
	s->number = r->line;
	return other_size(s);
}

static bool align(struct asm_state *s)
{
	return append(s, NULL, -s->offset & 7);
}

/* Parses values of `size` bytes each; operands are shifted. */
static bool values(struct asm_state *s, unsigned size, bool operands)
{
	uint64_t v;

	do {
		if (!asm_value(s, &v))
			return false;
		if (size < 8 && v >> (8 * size) && ~v >> (8 * size))
			return asm_fail(s, "a value does not fit into %u bytes", size);
		if (operands && v >> 48)
			return asm_fail(s, "an operand has at most 48 bits");
		if (operands)
			v = ROOST_OPERAND(v);
		if (!append(s, &v, size))
			return false;
	} while (asm_take(s, ","));
	return true;
}

static bool text(struct asm_state *s)
{
	const char *end;

	if (!asm_want(s, "\""))
		return false;
	end = strchr(s->at, '"');
	if (!end)
		return asm_fail(s, "'\"' is missing at the end of the line");
	if (!append(s, s->at, (uint64_t)(end - s->at)))
		return false;
	s->at = end + 1;
	return true;
}

static bool template(struct asm_state *s)
{
	struct asm_wqe w;

	if (!asm_instruction(s, &w))
		return false;
	return append(s, w.bytes, w.len);
}

static bool region_line(struct asm_state *s)
{
	uint64_t n;
	bool ok;

	if (asm_take(s, "word"))
		ok = values(s, 8, false);
	else if (asm_take(s, "operand"))
		ok = values(s, 8, true);
	else if (asm_take(s, "bytes"))
		ok = values(s, 1, false);
	else if (asm_take(s, "text"))
		ok = text(s);
	else if (asm_take(s, "wqe"))
		ok = template(s);
	else if (asm_take(s, "space"))
		ok = asm_value(s, &n) && append(s, NULL, n);
	else
		return asm_fail(
			s, "in a region: word, operand, bytes, text, wqe or space, not '%.20s'",
			s->at);
	return ok && asm_end(s);
}

/* ---- queues ---- */

static uint32_t power_of_two(uint32_t n)
{
	uint32_t p = 1;

	while (p < n)
		p *= 2;
	return p;
}

static bool limited(struct asm_state *s, uint64_t low, uint64_t high, uint64_t *v)
{
	if (!asm_want(s, "=") || !asm_value(s, v))
		return false;
	if (*v < low || *v > high)
		return asm_fail(s, "%llu is not from %llu to %llu", (unsigned long long)*v,
				(unsigned long long)low, (unsigned long long)high);
	return true;
}

static bool peer(struct asm_state *s, struct chain_queue *q)
{
	struct chain_queue *other;
	int i;

	if (!asm_want(s, "="))
		return false;
	if (asm_take(s, "self")) {
		q->peer = CHAIN_PEER_SELF;
		return true;
	}
	if (asm_take(s, "outside")) {
		q->peer = CHAIN_PEER_OUTSIDE;
		return true;
	}
	if (!asm_queue_name(s, &i))
		return false;
	if (!s->second || i == (int)s->index)
		return true;
	other = &s->p->queue[i];
	if (other->peer != CHAIN_PEER_SELF && other->peer != (int)s->index)
		return asm_fail(s, "the queue %s has another peer", other->name);
	q->peer = i;
	other->peer = (int)s->index;
	return true;
}

static bool watches(struct asm_state *s, struct chain_queue *q)
{
	unsigned index;

	if (!asm_want(s, "="))
		return false;
	do {
		if (!asm_watch(s, q, &index))
			return false;
	} while (asm_take(s, ","));
	return true;
}

static bool attribute(struct asm_state *s, struct chain_queue *q)
{
	char name[CHAIN_NAME];
	uint64_t v;

	if (!asm_name(s, name))
		return asm_fail(s, "an attribute of the queue is missing before '%.20s'", s->at);
	if (strcmp(name, "managed") == 0) {
		q->managed = true;
	} else if (strcmp(name, "managed_recv") == 0) {
		q->managed_recv = true;
	} else if (strcmp(name, "peer") == 0) {
		return peer(s, q);
	} else if (strcmp(name, "watch") == 0) {
		return watches(s, q);
	} else if (strcmp(name, "start") == 0) {
		s->to_first_stop = asm_peek(s) != '=';
		if (s->to_first_stop)
			return true;
		if (!limited(s, 0, UINT32_MAX, &v))
			return false;
		q->start = (uint32_t)v;
	} else if (strcmp(name, "start_recv") == 0) {
		if (!limited(s, 0, UINT32_MAX, &v))
			return false;
		q->start_recv = (uint32_t)v;
	} else if (strcmp(name, "rate_limit") == 0) {
		return limited(s, 0, UINT32_MAX, &q->rate_limit);
	} else if (strcmp(name, "depth") == 0) {
		if (!limited(s, 1, CHAIN_MAX_DEPTH, &v))
			return false;
		if (v & (v - 1))
			return asm_fail(s, "a depth is a power of two");
		q->depth = (uint32_t)v;
		s->depth_given = true;
	} else if (strcmp(name, "receives") == 0) {
		if (!limited(s, 0, CHAIN_MAX_RECEIVES, &v))
			return false;
		q->recvs = power_of_two((uint32_t)v);
	} else if (strcmp(name, "sges") == 0) {
		if (!limited(s, 1, ROOST_MAX_SGE, &v))
			return false;
		q->sges = (uint32_t)v;
	} else if (strcmp(name, "recv_sges") == 0) {
		if (!limited(s, 1, ROOST_MAX_SGE, &v))
			return false;
		q->recv_sges = (uint32_t)v;
	} else {
		return asm_fail(s, "a queue has no attribute %s", name);
	}
	return true;
}

static bool open_images(struct asm_state *s, struct chain_queue *q)
{
	const struct chain_region *r = q->region < 0 ? NULL : &s->p->region[q->region];

	s->queue = (struct roost_chain_queue){.qp_num = q->qp_num,
					      .depth = q->depth ? q->depth : UNKNOWN_DEPTH,
					      .stride = q->stride};
	if (s->second) {
		s->queue.image = (struct roost_wqe *)r->image;
		s->queue.ring = (struct roost_ref){r->addr, r->key};
	} else {
		s->queue.image = calloc(s->queue.depth, s->queue.stride);
	}
	s->chain.queue = &s->queue;
	s->chain.data = &s->data;
	return s->queue.image || asm_fail(s, "out of memory");
}

/* Parses the attributes. In the second pass they must give the sizes of the first. */
static bool attributes(struct asm_state *s, struct chain_queue *q)
{
	const struct chain_queue was = *q;

	q->recv = 0;
	while (asm_peek(s))
		if (!attribute(s, q))
			return false;
	if (!s->second)
		return true;
	/* Fewer receives than the lines that follow are an error of those lines. */
	if (q->depth != was.depth || q->sges != was.sges || q->recv_sges != was.recv_sges ||
	    (q->recvs != was.recvs && (q->recvs > was.recvs || q->recvs >= was.recv))) {
		q->depth = was.depth;
		q->sges = was.sges;
		q->recv_sges = was.recv_sges;
		q->recvs = was.recvs;
		return other_size(s);
	}
	return true;
}

static bool begin_queue(struct asm_state *s)
{
	struct chain_program *p = s->p;
	char name[CHAIN_NAME];
	struct chain_queue *q;

	if (!asm_want_name(s, name, "the name of the queue"))
		return false;
	s->section = ASM_QUEUE;
	s->index = s->queue_count++;
	s->depth_given = s->to_first_stop = false;
	s->stops = 0;
	q = &p->queue[s->index];
	if (!s->second) {
		if (!name_is_free(s, name))
			return false;
		if (p->queues == CHAIN_MAX_QUEUES) {
			s->section = ASM_NONE;
			return asm_fail(s, "more than %d queues", CHAIN_MAX_QUEUES);
		}
		*q = (struct chain_queue){.peer = CHAIN_PEER_SELF,
					  .sges = 1,
					  .recv_sges = 3,
					  .region = -1,
					  .recv_region = -1,
					  .line = s->number};
		memcpy(q->name, name, CHAIN_NAME);
		for (unsigned i = 0; i < ROOST_CHAIN_WATCHES; i++)
			q->watch[i].queue = -1;
		p->queues++;
	}
	if (!attributes(s, q))
		return false;
	q->stride = chain_send_stride(q->sges);
	q->recv_stride = chain_recv_stride(q->recv_sges);
	return open_images(s, q);
}

static bool end_queue(struct asm_state *s)
{
	struct chain_queue *q = &s->p->queue[s->index];

	for (unsigned i = 0; i < s->stops; i++)
		*s->stop_count[i] =
			(i + 1 < s->stops ? s->stop_at[i + 1] : s->queue.n) - s->stop_at[i];
	if (s->second && s->queue.n != q->n) {
		s->number = q->line;
		return other_size(s);
	}
	q->n = s->queue.n;
	if (s->to_first_stop)
		q->start = s->stops ? s->stop_at[0] : q->n;
	if (q->start && !q->managed)
		return asm_fail(s, "the queue %s has a start, and is not managed", q->name);
	if (q->managed_recv && !q->recv && !q->recvs)
		return asm_fail(s, "the queue %s is managed_recv, and has no receives", q->name);
	if (s->second)
		return true;
	free(s->queue.image);
	s->queue.image = NULL;
	q->depth = q->depth ? q->depth : power_of_two(q->n);
	q->recvs = q->recvs > q->recv ? q->recvs : q->recv ? power_of_two(q->recv) : 0;
	return true;
}

/* ---- lines ---- */

static bool constant(struct asm_state *s)
{
	struct chain_symbol sym;

	memset(&sym, 0, sizeof(sym));
	sym.constant = true;
	if (!asm_want_name(s, sym.name, "the name of the constant") || !asm_want(s, "=") ||
	    !asm_value(s, &sym.value) || !asm_end(s))
		return false;
	if (s->second) {
		/* The value may name a location that the first pass did not know. */
		for (unsigned i = 0; i < s->p->symbols; i++)
			if (strcmp(s->p->symbol[i].name, sym.name) == 0)
				s->p->symbol[i].value = sym.value;
		return true;
	}
	return name_is_free(s, sym.name) &&
	       (chain_add_symbol(s->p, &sym) || asm_fail(s, "too many names"));
}

/*
 * Parses "NAME:" at the start of a line. A label of a queue gets its location when the rings have
 * locations.
 */
static bool label(struct asm_state *s)
{
	const char *at = s->at;
	struct chain_symbol sym;

	memset(&sym, 0, sizeof(sym));
	if (!asm_name(s, sym.name) || asm_peek(s) != ':' || strcmp(sym.name, "switch") == 0) {
		s->at = at;
		return !s->err->text[0];
	}
	s->at++;
	if (s->section == ASM_NONE)
		return asm_fail(s, "a label belongs into a region or a queue");
	if (s->section == ASM_REGION && asm_peek(s) && strncmp(s->at, "bytes", 5) &&
	    strncmp(s->at, "text", 4) && !align(s))
		return false;
	if (s->second)
		return true;
	if (!name_is_free(s, sym.name))
		return false;
	sym.region = (uint16_t)(s->section == ASM_REGION ? s->index : CHAIN_MAX_REGIONS + s->index);
	sym.value = s->section == ASM_REGION ? s->offset : (uint64_t)s->queue.n * s->queue.stride;
	return chain_add_symbol(s->p, &sym) || asm_fail(s, "too many names");
}

static bool end_section(struct asm_state *s)
{
	const bool ok = s->section == ASM_QUEUE	   ? end_queue(s)
			: s->section == ASM_REGION ? end_region(s)
						   : true;

	s->section = ASM_NONE;
	return ok;
}

static void note_lines(struct asm_state *s, uint32_t from, uint32_t number)
{
	const struct chain_queue *q = &s->p->queue[s->index];

	for (uint32_t i = from; s->second && i < s->queue.n; i++)
		q->lines[i] = number;
}

static bool line(struct asm_state *s)
{
	const uint32_t n = s->section == ASM_QUEUE ? s->queue.n : 0, number = s->number;

	if (asm_take(s, "const"))
		return constant(s);
	if (asm_take(s, "region"))
		return end_section(s) && begin_region(s) && asm_end(s);
	if (asm_take(s, "queue"))
		return end_section(s) && begin_queue(s);
	if (!label(s))
		return false;
	if (!asm_peek(s))
		return true;
	if (s->section == ASM_REGION)
		return region_line(s);
	if (s->section == ASM_NONE)
		return asm_fail(s, "a program begins with const, region or queue");
	if (!asm_queue_line(s))
		return false;
	note_lines(s, n, number);
	return true;
}

static bool pass(struct asm_state *s, const char *from, size_t n)
{
	bool ok = true;

	s->next = from;
	s->end = from + n;
	s->number = 0;
	s->section = ASM_NONE;
	s->region_count = s->queue_count = 0;
	s->data.n = 0;
	while (ok && asm_next_line(s))
		ok = !asm_peek(s) || line(s);
	if (ok && !s->err->text[0])
		return end_section(s);
	if (!s->second && s->section == ASM_QUEUE) {
		free(s->queue.image);
		s->queue.image = NULL;
	}
	return false;
}

/* ---- sizes, between the passes ---- */

static int add_region(struct chain_program *p, const char *name, enum chain_region_kind kind,
		      unsigned queue, uint32_t size)
{
	struct chain_region *r = &p->region[p->regions];

	memcpy(r->name, name, strlen(name) + 1);
	r->kind = (uint8_t)kind;
	r->queue = (uint16_t)queue;
	r->size = size;
	return (int)p->regions++;
}

static bool size_all(struct asm_state *s)
{
	struct chain_program *p = s->p;
	uint64_t total = 0;

	s->number = 0;
	if (s->constants == -2) {
		if (!name_is_free(s, CONSTANTS_NAME))
			return false;
		s->constants = add_region(p, CONSTANTS_NAME, CHAIN_DATA, 0, s->data.n);
	}
	for (unsigned i = 0; i < p->queues; i++) {
		struct chain_queue *q = &p->queue[i];

		q->region = add_region(p, q->name, CHAIN_SEND_RING, i, q->depth * q->stride);
		if (q->recvs)
			q->recv_region = add_region(p, q->name, CHAIN_RECV_RING, i,
						    q->recvs * q->recv_stride);
		q->lines = calloc(q->depth, sizeof(*q->lines));
		q->recv_lines = calloc(q->recvs + 1, sizeof(*q->recv_lines));
		if (!q->lines || !q->recv_lines)
			return asm_fail(s, "out of memory");
	}
	for (unsigned i = 0; i < p->symbols; i++)
		if (p->symbol[i].region >= CHAIN_MAX_REGIONS)
			p->symbol[i].region =
				(uint16_t)p->queue[p->symbol[i].region - CHAIN_MAX_REGIONS].region;
	for (unsigned i = 0; i < p->regions; i++)
		if ((total += p->region[i].size) > CHAIN_MAX_BYTES)
			return asm_fail(s, "the program has more than %u bytes", CHAIN_MAX_BYTES);
	for (unsigned i = 0; i < p->regions; i++) {
		p->region[i].image = calloc(1, p->region[i].size + 1u);
		if (!p->region[i].image)
			return asm_fail(s, "out of memory");
	}
	return true;
}

static bool second_pass(struct chain_program *p, struct chain_error *err, int constants)
{
	struct asm_state s = {.p = p, .err = err, .second = true, .constants = constants};

	if (constants >= 0)
		s.data = (struct roost_chain_data){
			.at = {p->region[constants].addr, p->region[constants].key},
			.image = p->region[constants].image,
			.size = p->region[constants].size};
	/* The second pass uses the values of receives and peers that the first pass has set. */
	return pass(&s, p->text, strlen(p->text));
}

/* A byte of 0 belongs to another kind of file, of which a part may look like a text. */
static bool is_text(struct asm_state *s, const char *from, size_t n)
{
	const char *zero = n ? memchr(from, 0, n) : NULL;

	if (!zero)
		return true;
	s->number = 1;
	for (; from < zero; from++)
		s->number += *from == '\n';
	return asm_fail(s, "this is no text: it has a byte of 0; give a text, or an image of asm");
}

static bool has_queues(struct asm_state *s)
{
	s->number = 0;
	return s->p->queues ||
	       asm_fail(s, "the program has no queue, so nothing would be executed");
}

struct chain_program *chain_assemble(const char *from, size_t n, struct chain_error *err)
{
	struct chain_program *p = calloc(1, sizeof(*p));
	struct asm_state s = {.p = p, .err = err, .constants = -1};
	bool ok;

	*err = (struct chain_error){0};
	if (!p) {
		asm_fail(&s, "out of memory");
		return NULL;
	}
	if (!is_text(&s, from, n)) {
		chain_free(p);
		return NULL;
	}
	p->text = malloc(n + 1);
	if (p->text) {
		memcpy(p->text, from, n);
		p->text[n] = 0;
	}
	s.data = (struct roost_chain_data){
		.at = {0, ASM_UNKNOWN_KEY}, .image = malloc(MAX_CONSTANTS), .size = MAX_CONSTANTS};
	ok = p->text && s.data.image ? pass(&s, p->text, strlen(p->text))
				     : asm_fail(&s, "out of memory");
	ok = ok && has_queues(&s) && size_all(&s);
	free(s.queue.image); /* image of a queue that an error ended */
	free(s.data.image);
	if (ok) {
		chain_bind_own(p);
		ok = second_pass(p, err, s.constants);
	}
	if (ok) {
		chain_sort_symbols(p);
		return p;
	}
	chain_free(p);
	return NULL;
}

bool chain_bind(struct chain_program *p, struct chain_error *err)
{
	int constants = -1;

	*err = (struct chain_error){0};
	for (unsigned i = 0; i < p->regions; i++) {
		memset(p->region[i].image, 0, p->region[i].size);
		if (p->region[i].kind == CHAIN_DATA &&
		    strcmp(p->region[i].name, CONSTANTS_NAME) == 0)
			constants = (int)i;
	}
	if (!p->text) {
		err->text[0] = '?';
		return false;
	}
	return second_pass(p, err, constants);
}
