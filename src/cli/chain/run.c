/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * `roost chain run`: a program on a NIC of this process. The NIC calls the debugger after each WQE,
 * in the thread that owns the processing unit; the debugger compares the memory with its copy and
 * prints what has changed. While it waits for a command, the processing unit runs no turn.
 */
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "cli/chain/chain.h"
#include "cli/chain/load.h"
#include "cli/commands.h"
#include "drive/drive.h"
#include "nic/nic_chain.h"
#include "roost/chain_verbs.h"
#include "verbs/objects.h"

#define LINE	    900
#define MAX_CHANGES 4

static struct debugger {
	const struct chain_run *how;
	struct chain_loaded l;
	uint8_t *copy[CHAIN_MAX_REGIONS]; /* copies of the memory, after the previous WQE */
	bool step, input_ended;
	atomic_bool quit; /* the copy has the memory of that moment, and is not changed any more */
	int stop_region;  /* --break; -1: none */
	uint64_t stop_offset;
} d;

/* Returns the present memory, or that of the time when the user quit: the NIC may still run. */
static const uint8_t *shown(unsigned region)
{
	return d.quit ? d.copy[region] : d.l.memory[region];
}

/* ---- changes ---- */

static void print_change(unsigned region, uint64_t offset, uint64_t was, uint64_t is)
{
	char location[160], a[200], b[200];

	chain_print_location(d.l.p, region, offset, location, sizeof(location));
	chain_print_word(d.l.p, was, a, sizeof(a));
	chain_print_word(d.l.p, is, b, sizeof(b));
	printf("%s: %s -> %s", location, a, b);
}

/* A whole WQE that has changed is printed as one. */
static bool print_wqe_change(unsigned region, uint64_t offset)
{
	const struct chain_region *r = &d.l.p->region[region];
	const struct chain_queue *q = &d.l.p->queue[r->queue];
	char location[160], text[LINE];
	unsigned words = 0;

	if (r->kind != CHAIN_SEND_RING || offset % q->stride)
		return false;
	for (unsigned i = 0; i < 64; i += 8)
		words += memcmp(d.copy[region] + offset + i, d.l.memory[region] + offset + i, 8) !=
			 0;
	if (words < 2)
		return false;
	chain_print_location(d.l.p, region, offset, location, sizeof(location));
	chain_print_wqe(d.l.p, d.l.memory[region] + offset, q->stride, r->queue, text,
			sizeof(text));
	printf("%s: %s", location, text);
	memcpy(d.copy[region] + offset, d.l.memory[region] + offset, q->stride);
	return true;
}

static unsigned print_region_changes(unsigned region, unsigned n)
{
	const struct chain_region *r = &d.l.p->region[region];
	uint64_t was = 0, is = 0;

	for (uint64_t at = 0; at < r->size; at += 8) {
		const size_t len = r->size - at < 8 ? r->size - at : 8;

		if (memcmp(d.copy[region] + at, d.l.memory[region] + at, len) == 0)
			continue;
		if (n < MAX_CHANGES) {
			printf("%s", n ? "; " : "    ");
			if (!print_wqe_change(region, at)) {
				memcpy(&was, d.copy[region] + at, len);
				memcpy(&is, d.l.memory[region] + at, len);
				print_change(region, at, was, is);
			}
		}
		memcpy(d.copy[region] + at, d.l.memory[region] + at, len);
		n++;
	}
	return n;
}

static void print_changes(void)
{
	unsigned n = 0;

	for (unsigned i = 0; i < d.l.p->regions; i++)
		n = print_region_changes(i, n);
	if (n > MAX_CHANGES)
		printf("; and %u words more", n - MAX_CHANGES);
	printf("\n");
}

/* ---- commands ---- */

static const struct chain_symbol *label(const char *name)
{
	const struct chain_symbol *s = chain_find_symbol(d.l.p, name);

	return s && !s->constant ? s : NULL;
}

static void print_symbol(const struct chain_symbol *s)
{
	const struct chain_region *r = &d.l.p->region[s->region];
	const size_t len = r->size - s->value < 8 ? r->size - s->value : 8;
	uint64_t v = 0;
	char text[200];

	memcpy(&v, shown(s->region) + s->value, len);
	chain_print_word(d.l.p, v, text, sizeof(text));
	printf("%s = %s\n", s->name, text);
}

static void list_queue(const char *name)
{
	int i = chain_find_queue(d.l.p, name);
	const struct chain_queue *q = &d.l.p->queue[i < 0 ? 0 : i];
	char location[160], text[LINE];

	if (i < 0) {
		printf("no queue has the name %s\n", name);
		return;
	}
	for (uint32_t n = 0; n < q->n; n++) {
		chain_print_location(d.l.p, (unsigned)q->region, (uint64_t)n * q->stride, location,
				     sizeof(location));
		chain_print_wqe(d.l.p, d.l.memory[q->region] + (size_t)n * q->stride, q->stride, i,
				text, sizeof(text));
		printf("  %-16s %s\n", location, text);
	}
}

static void command(void)
{
	char line[128], word[2] = "", arg[CHAIN_NAME] = "";

	for (;;) {
		printf("> ");
		fflush(stdout);
		if (!fgets(line, sizeof(line), stdin)) {
			d.input_ended = true;
			d.step = false;
			printf("\n");
			return;
		}
		word[0] = arg[0] = '\0';
		sscanf(line, "%1s%*[^ \n] %31s", word, arg);
		if (!arg[0])
			sscanf(line, "%1s %31s", word, arg);
		switch (word[0]) {
		case '\0':
		case 's':
			d.step = true;
			return;
		case 'c':
			d.step = false;
			return;
		case 'q':
			d.step = false;
			d.quit = true;
			return;
		case 'p':
			if (label(arg))
				print_symbol(label(arg));
			else
				printf("no label has the name %s\n", arg);
			break;
		case 'l':
			list_queue(arg);
			break;
		default:
			printf("s steps, c continues, p LABEL prints a word, l QUEUE lists a queue, q ends\n");
		}
	}
}

/* ---- calls from the NIC ---- */

static void executed(void *ctx, struct nic_qp *qp, uint32_t index, const struct roost_wqe *wqe)
{
	const unsigned i = (unsigned)(uintptr_t)ctx;
	const struct chain_queue *q = &d.l.p->queue[i];
	const uint32_t slot = index & (q->depth - 1);
	const uint64_t offset = (uint64_t)slot * q->stride;
	bool stop = d.step || (d.stop_region == q->region && d.stop_offset == offset);
	char location[160], text[LINE];

	if (d.quit)
		return;
	if (d.how->trace || stop) {
		uint8_t whole[1024] = {0};

		/* the copy of the NIC has the pieces of the WQE only */
		memcpy(whole, wqe, sizeof(*wqe));
		if (!(wqe->flags & ROOST_WQE_INLINE) && wqe->num_sge > 1 && wqe->num_sge <= q->sges)
			memcpy(whole + sizeof(*wqe), wqe + 1,
			       (wqe->num_sge - 1u) * sizeof(wqe->sge[0]));
		chain_print_location(d.l.p, (unsigned)q->region, offset, location,
				     sizeof(location));
		chain_print_wqe(d.l.p, whole, q->stride, (int)i, text, sizeof(text));
		printf("%6u  %-12s %-16s %s", index, q->name, location, text);
		print_changes();
	}
	if (stop && !d.input_ended)
		command();
}

/* ---- the program ---- */

static void nap(void)
{
	nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

static unsigned pu_of(const struct chain_loaded *l)
{
	return verbs_qp(l->starter)->pu;
}

/*
 * Returns true if no queue has a WQE that it can execute. All of them are on one processing unit.
 */
static bool is_stuck(void)
{
	struct nic_chain_state s;
	bool runs = false;

	drive_own(d.l.nic.drive, pu_of(&d.l));
	for (unsigned i = 0; i <= d.l.p->queues && !runs; i++) {
		struct ibv_qp *qp = i < d.l.p->queues ? d.l.qp[i] : d.l.starter;

		nic_qp_chain_state(verbs_qp(qp)->nic_qp, &s);
		runs = s.activity == NIC_CHAIN_RUNS || s.activity == NIC_CHAIN_LIMITED;
	}
	drive_disown(d.l.nic.drive, pu_of(&d.l));
	return !runs;
}

static void set_trace(bool on)
{
	drive_own(d.l.nic.drive, pu_of(&d.l));
	for (unsigned i = 0; i < d.l.p->queues; i++) {
		const struct nic_chain_trace t = {executed, (void *)(uintptr_t)i};

		nic_qp_trace_chain(verbs_qp(d.l.qp[i])->nic_qp, on ? &t : NULL);
	}
	drive_disown(d.l.nic.drive, pu_of(&d.l));
}

static int copy_memory(const struct opt_command *cmd)
{
	for (unsigned i = 0; i < d.l.p->regions; i++) {
		d.copy[i] = calloc(1, d.l.p->region[i].size + 1u);
		if (!d.copy[i])
			return opt_failed(cmd, "out of memory");
		memcpy(d.copy[i], d.l.p->region[i].image, d.l.p->region[i].size);
	}
	return CLI_OK;
}

static int show_failures(const struct opt_command *cmd)
{
	int rc = CLI_OK;

	for (unsigned i = 0; i < d.l.p->queues; i++) {
		const struct chain_queue *q = &d.l.p->queue[i];
		struct roost_chain_failure f;
		uint32_t slot;

		if (roost_qp_chain_failure(d.l.qp[i], &f))
			continue;
		slot = f.index & (q->depth - 1);
		fflush(stdout);
		fprintf(stderr, "%s:%u: WQE %u of the queue %s: %s\n", d.how->file,
			q->lines && slot < q->n ? q->lines[slot] : q->line, f.index, q->name,
			ibv_wc_status_str(f.status));
		rc = CLI_FAILED;
	}
	return rc;
}

static void show_memory(void)
{
	for (unsigned i = 0; i < d.l.p->symbols; i++) {
		const struct chain_symbol *s = &d.l.p->symbol[i];

		if (s->constant || d.l.p->region[s->region].kind != CHAIN_DATA)
			continue;
		if (d.how->show ? strcmp(d.how->show, s->name) == 0
				: s->value < d.l.p->region[s->region].size)
			print_symbol(s);
	}
}

static int save_memory(const struct opt_command *cmd)
{
	struct chain_program *p = d.l.p;
	void *image;
	size_t n;
	int rc;

	for (unsigned i = 0; i < p->regions; i++)
		if (p->region[i].image != shown(i))
			memcpy(p->region[i].image, shown(i), p->region[i].size);
	image = chain_write_image(p, &n);
	rc = image ? chain_save(cmd, d.how->dump, image, n) : opt_failed(cmd, "out of memory");
	free(image);
	return rc;
}

static int perform(const struct opt_command *cmd)
{
	const bool debugs = d.how->trace || d.how->step || d.how->stop_at;
	uint64_t end = 0;
	int rc = debugs ? copy_memory(cmd) : CLI_OK;

	if (rc)
		return rc;
	if (debugs)
		set_trace(true);
	if (chain_start(&d.l))
		return opt_failed(cmd, "%s", d.l.err);
	if (d.how->time_ns)
		end = clock_ns() + d.how->time_ns;
	do
		nap();
	while (!d.quit && !is_stuck() && (!end || clock_ns() < end));
	if (debugs)
		set_trace(false);
	rc = d.quit ? CLI_OK : show_failures(cmd);
	show_memory();
	if (d.how->dump && rc == CLI_OK)
		rc = save_memory(cmd);
	return rc;
}

int chain_run_program(const struct opt_command *cmd, struct chain_program *p,
		      const struct chain_run *how)
{
	int rc;

	d = (struct debugger){.how = how, .step = how->step, .stop_region = -1};
	d.l.p = p;
	for (unsigned i = 0; i < 2; i++) {
		const char *name = i ? how->show : how->stop_at;

		if (name && !label(name))
			return opt_usage(cmd, "no label has the name %s", name);
	}
	if (how->stop_at) {
		d.stop_region = label(how->stop_at)->region;
		d.stop_offset = label(how->stop_at)->value;
		if (p->region[d.stop_region].kind != CHAIN_SEND_RING)
			return opt_usage(cmd, "%s is no label of a WQE", how->stop_at);
	}
	if (chain_load(&d.l, p))
		rc = opt_failed(cmd, "%s", d.l.err);
	else
		rc = perform(cmd);
	chain_unload(&d.l);
	for (unsigned i = 0; i < CHAIN_MAX_REGIONS; i++)
		free(d.copy[i]);
	return rc;
}
