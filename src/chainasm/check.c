/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The checker: it reports faults in the program's bytes or, if there are none, faults that the
 * model finds.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chainasm/check_inside.h"
#include "chainasm/model.h"

#define MODEL_WQES 300000

const char *const chain_fault_names[] = {"rewrite", "wait", "loop", "address", "other"};

void check_fault(struct checker *c, enum chain_fault_class class, uint32_t line, const char *fmt,
		 ...)
{
	struct chain_fault f = {.class = class, .line = line};
	va_list args;

	va_start(args, fmt);
	vsnprintf(f.text, sizeof(f.text), fmt, args);
	va_end(args);
	c->faults++;
	if (c->how->fault)
		c->how->fault(c->how->ctx, &f);
}

uint32_t check_line(const struct checker *c, unsigned queue, uint32_t slot)
{
	const struct chain_queue *q = &c->p->queue[queue];

	return q->lines && slot < q->n ? q->lines[slot] : q->line;
}

static void wait_ended(const struct checker *c, const struct chain_model *m, unsigned queue)
{
	const struct model_queue *q = &m->q[queue];
	const struct chain_queue *def = &c->p->queue[queue];
	uint32_t slot = q->next & (def->depth - 1);

	/* A server that has served all messages of the program may wait for the next one. */
	if (q->next >= def->depth)
		return;
	check_fault((struct checker *)c, CHAIN_FAULT_WAIT, check_line(c, queue, slot),
		    "no completion satisfies this WAIT before the program ends");
}

static void model_failed(struct checker *c, const struct chain_model *m, unsigned queue)
{
	const struct model_queue *q = &m->q[queue];
	uint32_t slot = q->failed_index & (c->p->queue[queue].depth - 1);
	bool address = strstr(q->reason, "outside") || strstr(q->reason, "aligned");

	check_fault(c, address ? CHAIN_FAULT_ADDRESS : CHAIN_FAULT_OTHER,
		    check_line(c, queue, slot), "when it runs: %s", q->reason);
}

static void run_model(struct checker *c)
{
	const int faults = c->faults;
	struct chain_model m;
	bool quiet, outside = false;

	if (!model_open(&m, c->p))
		return;
	quiet = model_run(&m, MODEL_WQES);
	for (unsigned i = 0; i < c->p->queues; i++) {
		outside |= c->p->queue[i].peer == CHAIN_PEER_OUTSIDE;
		if (m.q[i].own_failure && !m.open)
			model_failed(c, &m, i);
	}
	for (unsigned i = 0; i < c->p->queues && quiet && !outside && faults == c->faults; i++)
		if (m.q[i].last == MODEL_WAITS)
			wait_ended(c, &m, i);
	model_close(&m);
}

/* The model changes the images. */
static bool keep_images(struct chain_program *p, uint8_t *kept[CHAIN_MAX_REGIONS])
{
	for (unsigned i = 0; i < p->regions; i++) {
		kept[i] = malloc(p->region[i].size + 1u);
		if (!kept[i])
			return false;
		memcpy(kept[i], p->region[i].image, p->region[i].size);
	}
	return true;
}

int chain_check(struct chain_program *p, const struct chain_check *how)
{
	struct checker c = {.p = p, .how = how};
	uint8_t *kept[CHAIN_MAX_REGIONS] = {NULL};
	bool ok = keep_images(p, kept) && check_find_variants(&c);

	if (ok) {
		check_addresses(&c);
		check_rewrites(&c);
		check_loops(&c);
		check_wait_counts(&c);
		if (c.too_large)
			check_fault(&c, CHAIN_FAULT_OTHER, 0,
				    "the program is too large: it has more than %u variants of "
				    "WQEs, so a part of it was not checked",
				    CHECK_MAX_VARIANTS);
		if (!c.faults)
			run_model(&c);
	}
	check_free_variants(&c);
	for (unsigned i = 0; i < p->regions; i++) {
		if (ok)
			memcpy(p->region[i].image, kept[i], p->region[i].size);
		free(kept[i]);
	}
	return ok ? c.faults : -1;
}
