/* SPDX-License-Identifier: BSD-2-Clause */
/* Programs: their tables, and the file that has an image of them. */
#include "chainasm/program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Numbers of a program that is bound to no NIC. They differ from likely data. */
#define OWN_ADDR(i)   (((uint64_t)(i) + 1) << 40)
#define OWN_KEY(i)    (0x52000000u + 0x101u * (i))
#define OWN_NUMBER(i) (0xc40000u + (i))

void chain_free(struct chain_program *p)
{
	if (!p)
		return;
	for (unsigned i = 0; i < p->regions; i++)
		free(p->region[i].image);
	for (unsigned i = 0; i < p->queues; i++) {
		free(p->queue[i].lines);
		free(p->queue[i].recv_lines);
	}
	free(p->symbol);
	free(p->text);
	free(p);
}

void chain_bind_own(struct chain_program *p)
{
	for (unsigned i = 0; i < p->regions; i++) {
		p->region[i].addr = OWN_ADDR(i);
		p->region[i].key = OWN_KEY(i);
	}
	for (unsigned i = 0; i < p->queues; i++)
		p->queue[i].qp_num = OWN_NUMBER(i);
}

static uint32_t power_of_two(uint32_t n)
{
	uint32_t p = 64;

	while (p < n)
		p *= 2;
	return p;
}

uint32_t chain_send_stride(uint32_t sges)
{
	return power_of_two(ROOST_WQE_SGE_OFFSET + sges * (uint32_t)sizeof(struct roost_sge));
}

uint32_t chain_recv_stride(uint32_t sges)
{
	return power_of_two(ROOST_RECV_SGE_OFFSET + sges * (uint32_t)sizeof(struct roost_sge));
}

int chain_region_at(const struct chain_program *p, uint64_t addr)
{
	for (unsigned i = 0; i < p->regions; i++)
		if (addr - p->region[i].addr < p->region[i].size)
			return (int)i;
	return -1;
}

int chain_region_of_key(const struct chain_program *p, uint32_t key)
{
	for (unsigned i = 0; i < p->regions; i++)
		if (p->region[i].key == key)
			return (int)i;
	return -1;
}

int chain_find_queue(const struct chain_program *p, const char *name)
{
	for (unsigned i = 0; i < p->queues; i++)
		if (strcmp(p->queue[i].name, name) == 0)
			return (int)i;
	return -1;
}

int chain_queue_of_number(const struct chain_program *p, uint32_t qp_num)
{
	for (unsigned i = 0; i < p->queues; i++)
		if (p->queue[i].qp_num == qp_num)
			return (int)i;
	return -1;
}

const struct chain_symbol *chain_find_symbol(const struct chain_program *p, const char *name)
{
	for (unsigned i = 0; i < p->symbols; i++)
		if (strcmp(p->symbol[i].name, name) == 0)
			return &p->symbol[i];
	return NULL;
}

bool chain_add_symbol(struct chain_program *p, const struct chain_symbol *s)
{
	if (p->symbols == CHAIN_MAX_SYMBOLS)
		return false;
	if (!p->symbol)
		p->symbol = calloc(CHAIN_MAX_SYMBOLS, sizeof(*p->symbol));
	if (!p->symbol)
		return false;
	p->symbol[p->symbols++] = *s;
	return true;
}

/* Orders constants by name, then locations by region, offset and name. */
static int by_location(const void *a, const void *b)
{
	const struct chain_symbol *x = a, *y = b;

	if (x->constant != y->constant)
		return x->constant ? -1 : 1;
	if (!x->constant && x->region != y->region)
		return x->region < y->region ? -1 : 1;
	if (!x->constant && x->value != y->value)
		return x->value < y->value ? -1 : 1;
	return strcmp(x->name, y->name);
}

void chain_sort_symbols(struct chain_program *p)
{
	if (p->symbols)
		qsort(p->symbol, p->symbols, sizeof(*p->symbol), by_location);
}

/* ---- image ---- */

static const char magic[8] = "rchain1";

struct header {
	char magic[8];
	uint32_t regions, queues, symbols, reserved;
};

struct file_region {
	char name[CHAIN_NAME];
	uint32_t kind, readonly, queue, size;
	uint64_t addr;
	uint32_t key, reserved;
};

struct file_queue {
	char name[CHAIN_NAME];
	uint32_t managed, managed_recv;
	int32_t peer;
	uint32_t depth, n, recvs, recv, sges, recv_sges, start, start_recv, qp_num;
	uint64_t rate_limit;
	int32_t watch[ROOST_CHAIN_WATCHES]; /* queue * 2 + receives; -1: none */
	int32_t region, recv_region;
};

struct file_symbol {
	char name[CHAIN_NAME];
	uint32_t constant, region;
	uint64_t value;
};

static size_t image_size(const struct chain_program *p)
{
	size_t n = sizeof(struct header) + p->regions * sizeof(struct file_region) +
		   p->queues * sizeof(struct file_queue) + p->symbols * sizeof(struct file_symbol);

	for (unsigned i = 0; i < p->regions; i++)
		n += p->region[i].size;
	return n;
}

static uint8_t *put(uint8_t *to, const void *from, size_t n)
{
	if (n)
		memcpy(to, from, n);
	return to + n;
}

void *chain_write_image(const struct chain_program *p, size_t *n)
{
	struct header h = {.regions = p->regions, .queues = p->queues, .symbols = p->symbols};
	uint8_t *image = calloc(1, image_size(p)), *at = image;

	if (!image)
		return NULL;
	memcpy(h.magic, magic, sizeof(magic));
	at = put(at, &h, sizeof(h));
	for (unsigned i = 0; i < p->regions; i++) {
		const struct chain_region *r = &p->region[i];
		struct file_region f = {.kind = r->kind,
					.readonly = r->readonly,
					.queue = r->queue,
					.size = r->size,
					.addr = r->addr,
					.key = r->key};

		memcpy(f.name, r->name, CHAIN_NAME);
		at = put(at, &f, sizeof(f));
	}
	for (unsigned i = 0; i < p->queues; i++) {
		const struct chain_queue *q = &p->queue[i];
		struct file_queue f = {.managed = q->managed,
				       .managed_recv = q->managed_recv,
				       .peer = q->peer,
				       .depth = q->depth,
				       .n = q->n,
				       .recvs = q->recvs,
				       .recv = q->recv,
				       .sges = q->sges,
				       .recv_sges = q->recv_sges,
				       .start = q->start,
				       .start_recv = q->start_recv,
				       .qp_num = q->qp_num,
				       .rate_limit = q->rate_limit,
				       .region = q->region,
				       .recv_region = q->recv_region};

		memcpy(f.name, q->name, CHAIN_NAME);
		for (unsigned k = 0; k < ROOST_CHAIN_WATCHES; k++)
			f.watch[k] = q->watch[k].queue < 0
					     ? -1
					     : q->watch[k].queue * 2 + q->watch[k].receives;
		at = put(at, &f, sizeof(f));
	}
	for (unsigned i = 0; i < p->symbols; i++) {
		const struct chain_symbol *s = &p->symbol[i];
		struct file_symbol f = {
			.constant = s->constant, .region = s->region, .value = s->value};

		memcpy(f.name, s->name, CHAIN_NAME);
		at = put(at, &f, sizeof(f));
	}
	for (unsigned i = 0; i < p->regions; i++)
		at = put(at, p->region[i].image, p->region[i].size);
	*n = (size_t)(at - image);
	return image;
}

struct reader {
	const uint8_t *at, *end;
};

static bool get(struct reader *r, void *to, size_t n)
{
	if ((size_t)(r->end - r->at) < n)
		return false;
	if (n)
		memcpy(to, r->at, n);
	r->at += n;
	return true;
}

static bool name_ok(const char *name)
{
	size_t n = strnlen(name, CHAIN_NAME);

	if (!n || n == CHAIN_NAME)
		return false;
	for (size_t i = 0; i < n; i++)
		if (!(name[i] == '_' || (name[i] >= 'a' && name[i] <= 'z') ||
		      (name[i] >= 'A' && name[i] <= 'Z') ||
		      (i && name[i] >= '0' && name[i] <= '9')))
			return false;
	return true;
}

static bool read_regions(struct reader *r, struct chain_program *p, unsigned n)
{
	uint64_t total = 0;

	for (unsigned i = 0; i < n; i++) {
		struct chain_region *to = &p->region[i];
		struct file_region f;

		if (!get(r, &f, sizeof(f)) || !name_ok(f.name) || f.kind > CHAIN_RECV_RING ||
		    f.size > CHAIN_MAX_BYTES || (total += f.size) > CHAIN_MAX_BYTES ||
		    f.addr + f.size < f.addr)
			return false;
		memcpy(to->name, f.name, CHAIN_NAME);
		to->kind = (uint8_t)f.kind;
		to->readonly = f.readonly != 0;
		to->queue = (uint16_t)f.queue;
		to->size = f.size;
		to->addr = f.addr;
		to->key = f.key;
		to->image = calloc(1, f.size ? f.size : 1);
		p->regions++;
		if (!to->image)
			return false;
	}
	return true;
}

static bool is_ring(const struct chain_program *p, int region, unsigned queue, unsigned kind,
		    uint64_t size)
{
	const struct chain_region *r;

	if (region < 0 || (unsigned)region >= p->regions)
		return false;
	r = &p->region[region];
	return r->kind == kind && r->queue == queue && r->size == size;
}

static bool depth_ok(uint32_t depth, uint32_t used, uint32_t sges)
{
	return depth && depth <= CHAIN_MAX_DEPTH && !(depth & (depth - 1)) && used <= depth &&
	       sges <= ROOST_MAX_SGE;
}

static bool read_queue(struct reader *r, struct chain_program *p, unsigned i, unsigned n)
{
	struct chain_queue *q = &p->queue[i];
	struct file_queue f;

	if (!get(r, &f, sizeof(f)) || !name_ok(f.name) || !depth_ok(f.depth, f.n, f.sges) ||
	    (f.recvs && !depth_ok(f.recvs, f.recv, f.recv_sges)) || f.peer < CHAIN_PEER_OUTSIDE ||
	    f.peer >= (int32_t)n)
		return false;
	memcpy(q->name, f.name, CHAIN_NAME);
	q->managed = f.managed != 0;
	q->managed_recv = f.managed_recv != 0;
	q->peer = f.peer;
	q->depth = f.depth;
	q->n = f.n;
	q->recvs = f.recvs;
	q->recv = f.recvs ? f.recv : 0;
	q->sges = f.sges;
	q->recv_sges = f.recv_sges;
	q->stride = chain_send_stride(f.sges);
	q->recv_stride = chain_recv_stride(f.recvs ? f.recv_sges : 0);
	q->start = f.start;
	q->start_recv = f.start_recv;
	q->qp_num = f.qp_num;
	q->rate_limit = f.rate_limit;
	q->region = f.region;
	q->recv_region = f.recvs ? f.recv_region : -1;
	for (unsigned k = 0; k < ROOST_CHAIN_WATCHES; k++) {
		if (f.watch[k] < -1 || f.watch[k] / 2 >= (int32_t)n)
			return false;
		q->watch[k].queue = (int16_t)(f.watch[k] < 0 ? -1 : f.watch[k] / 2);
		q->watch[k].receives = f.watch[k] >= 0 && f.watch[k] & 1;
	}
	return is_ring(p, q->region, i, CHAIN_SEND_RING, (uint64_t)q->depth * q->stride) &&
	       (!q->recvs || is_ring(p, q->recv_region, i, CHAIN_RECV_RING,
				     (uint64_t)q->recvs * q->recv_stride));
}

static bool read_symbols(struct reader *r, struct chain_program *p, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		struct chain_symbol s = {0};
		struct file_symbol f;

		if (!get(r, &f, sizeof(f)) || !name_ok(f.name) ||
		    (!f.constant && (f.region >= p->regions || f.value > p->region[f.region].size)))
			return false;
		memcpy(s.name, f.name, CHAIN_NAME);
		s.constant = f.constant != 0;
		s.region = (uint16_t)f.region;
		s.value = f.value;
		if (!chain_add_symbol(p, &s))
			return false;
	}
	return true;
}

static bool read_all(struct reader *r, struct chain_program *p)
{
	struct header h;

	if (!get(r, &h, sizeof(h)) || memcmp(h.magic, magic, sizeof(magic)) ||
	    h.regions > CHAIN_MAX_REGIONS || h.queues > CHAIN_MAX_QUEUES ||
	    h.symbols > CHAIN_MAX_SYMBOLS || !read_regions(r, p, h.regions))
		return false;
	for (unsigned i = 0; i < h.queues; i++, p->queues++)
		if (!read_queue(r, p, i, h.queues))
			return false;
	for (unsigned i = 0; i < p->regions; i++)
		if (p->region[i].kind != CHAIN_DATA && p->region[i].queue >= p->queues)
			return false;
	if (!read_symbols(r, p, h.symbols))
		return false;
	for (unsigned i = 0; i < p->regions; i++)
		if (!get(r, p->region[i].image, p->region[i].size))
			return false;
	return r->at == r->end;
}

/*
 * Assembles the program from the text of the image, so that only the assembler has the rules of
 * programs, and the program can be bound to other addresses.
 */
struct chain_program *chain_read_image(const void *image, size_t n, struct chain_error *err)
{
	struct reader r = {image, (const uint8_t *)image + n};
	struct chain_program *read = calloc(1, sizeof(*read)), *p = NULL;
	char *text = read && read_all(&r, read) ? chain_disassemble(read) : NULL;

	*err = (struct chain_error){0};
	if (text)
		p = chain_assemble(text, strlen(text), err);
	if (!p)
		*err = (struct chain_error){
			.text = "this is no image of a chain, or it is damaged"};
	free(text);
	chain_free(read);
	return p;
}
