/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Random chains on two NICs whose link loses, repeats and reorders packets, beside the model, which
 * is written after docs/chains.md and shares no source file with the NIC. Queue `main` is at the
 * one NIC, with the regions `near` and `pointers`; `other` at the other one, with `far`. Each
 * rewrites its own later WQEs by READs and by the old values of atomics, and those of the other
 * queue by WRITEs and messages. They take turns by SENDs. At the end all bytes of regions and rings
 * must be equal.
 *
 *	test-chainasm-far [SEED [PROGRAMS]]
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "chainasm/model.h"
#include "world.h"

#define WORDS	  8u
#define PARTS	  6u	  /* of a program at most: of main, then of other */
#define WQES	  256u	  /* of a ring */
#define MAX_WQES  100000u /* in the model */
#define TEXT	  65536u
#define LIMIT	  (1000 * SEC) /* of virtual time */
#define AFTERWARD SEC	       /* for copies of packets that are late */

static uint64_t seed = 20261126;
static unsigned programs = 1000, current;
static struct world W, *const w = &W;
static uint64_t faults, failures;

/* ---- programs ---- */

static uint64_t random_state;
static char text[TEXT];
static size_t used;
static unsigned labels;

static uint32_t below(uint32_t n)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return (uint32_t)(random_state >> 33) % n;
}

static void __attribute__((format(printf, 1, 2))) put(const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	used += (size_t)vsnprintf(text + used, sizeof(text) - used, fmt, args);
	va_end(args);
	assert_true(used < sizeof(text));
}

static const char *const calcs[] = {"add",	  "max", "min", "max_signed",
				    "min_signed", "and", "or",	"xor"};

/* `local` is the region of the queue's own NIC, `remote` that of its peer. */
struct side {
	const char *queue, *local, *remote;
};
static const struct side near = {"main", "n", "f"}, far = {"other", "f", "n"};

static void put_plain(const struct side *s, unsigned kind)
{
	const unsigned a = below(WORDS - 1), b = below(WORDS - 1);

	switch (kind) {
	case 0:
		put("write %s%u, %s%u, %u {signaled}\n", s->remote, a, s->local, b, 1 + below(16));
		break;
	case 1:
		put("read %s%u, %s%u, %u {signaled}\n", s->remote, a, s->local, b, 1 + below(16));
		break;
	case 2:
		put("cas %s%u, %u, %u, %s%u {signaled}\n", s->remote, a, below(3), below(1000),
		    s->local, b);
		break;
	default:
		put("%s %s%u, %u, %s%u {signaled}\n", calcs[below(8)], s->remote, a, below(1 << 20),
		    s->local, b);
	}
}

/* A WQE that an earlier one rewrites: an address, an operand, or its op-code. */
static void put_rewritten(const struct side *s, bool wild)
{
	const unsigned label = labels++, kind = below(4), word = below(WORDS);

	if (below(3) == 0) /* operand words are NOPs */
		put("\tread %so%u, l%u, 8 {signaled}\n", s->remote, word, label);
	else if (kind < 2 && wild)
		put("\tread %swild, l%u.raddr, 8 {signaled}\n", s->remote, label);
	else if (kind < 2)
		put("\tread %sp%u, l%u.raddr, 8 {signaled}\n", s->remote, word, label);
	else if (below(2))
		put("\tread %s%u, l%u.%s, 8 {signaled}\n", s->remote, word, label,
		    kind == 2 ? "compare" : "operand");
	else
		put("\tadd %s%u, %u, l%u.operand {signaled}\n", s->remote, word, below(100), label);
	put("\twait %s.sends\nl%u:\t", s->queue, label);
	put_plain(s, kind);
}

static void put_part(const struct side *s, bool wild)
{
	for (unsigned n = 1 + below(5); n; n--) {
		if (below(2)) {
			put_rewritten(s, wild);
		} else {
			put("\t");
			put_plain(s, below(4));
		}
		put("\twait %s.sends\n", s->queue);
	}
}

static void put_words(const struct side *s)
{
	put("region %sdata\n", s->local);
	for (unsigned i = 0; i < WORDS; i++)
		put("%s%u:\tword %u\n", s->local, i, below(3) ? below(1 << 24) : below(3));
	for (unsigned i = 0; i < WORDS; i++)
		put("%so%u:\t%s\n", s->local, i, below(2) ? "operand 5" : "word op(write)");
	/* the peer follows them: places at the NIC where these words are not */
	for (unsigned i = 0; i < WORDS; i++)
		put("%sp%u:\tword &%s%u\n", s->local, i, s->local, below(WORDS - 1));
	put("%swild:\tword 64\n\n", s->local);
}

/* A message fills a word, or the operand of the WQE that the receiver executes next. */
static void put_receives(const struct side *s, unsigned n, bool *into_wqe)
{
	put("\nqueue %s managed depth=%u start receives=%u peer=%s\n", s->queue, WQES, n ? n : 1,
	    s == &near ? far.queue : near.queue);
	for (unsigned i = 0; i < n; i++) {
		into_wqe[i] = below(2);
		if (into_wqe[i])
			put("\trecv %s_got%u.operand, 8\n", s->queue, i);
		else
			put("\trecv %s%u, 8\n", s->local, below(WORDS));
	}
	put("\tnop {signaled}\n\twait %s.sends\n", s->queue);
}

static void put_send(const struct side *s)
{
	put("\tsend %s%u, 8 {signaled}\n\twait %s.sends\n", s->local, below(WORDS), s->queue);
}

static void put_got(const struct side *s, unsigned i, bool into_wqe)
{
	put("\twait %s.receives\n", s->queue);
	if (into_wqe)
		put("%s_got%u:\tadd %s%u, 0, %s%u {signaled}\n\twait %s.sends\n", s->queue, i,
		    s->remote, below(WORDS), s->local, below(WORDS), s->queue);
}

static void make_text(bool wild)
{
	const unsigned rounds = 1 + below(PARTS / 2);
	bool into_wqe[PARTS];

	used = labels = 0;
	put_words(&near);
	put_words(&far);
	put("region end\ndone:\tword 0\n");
	put_receives(&far, rounds, into_wqe);
	for (unsigned i = 0; i < rounds; i++) {
		put_got(&far, i, into_wqe[i]);
		put_part(&far, false);
		put_send(&far);
	}
	put_receives(&near, rounds, into_wqe);
	for (unsigned i = 0; i < rounds; i++) {
		put_part(&near, wild);
		put_send(&near);
		put_got(&near, i, into_wqe[i]);
	}
	put("\tread fo0, done, 8 {signaled}\n\twait main.sends\n");
}

/* ---- the NICs ---- */

static bool is_far(const struct chain_program *p, const struct chain_region *r)
{
	if (r->kind == CHAIN_DATA)
		return !strcmp(r->name, "fdata");
	return !strcmp(p->queue[r->queue].name, far.queue);
}

static void open_ends(struct ep e[2], const struct chain_program *p)
{
	for (unsigned i = 0; i < 2; i++) {
		const struct chain_queue *q = &p->queue[i];
		struct ep_params params = {.chain = true,
					   .counts = true,
					   .calc = true,
					   .managed_send = true,
					   .depth = q->depth,
					   .max_sge = q->sges,
					   .mem = 64};

		ep_init(&e[i], w, !strcmp(q->name, far.queue), &params);
		assert_int_equal(1u << e[i].sq_shift, q->stride);
		/* the watched CQs of a test's endpoint */
		assert_true(q->watch[0].queue == (int)i && !q->watch[0].receives);
		assert_true(q->watch[1].queue == (int)i && q->watch[1].receives);
	}
	ep_connect(&e[0], &e[1]);
}

static struct ep *end_of(const struct chain_program *p, const struct chain_region *r,
			 struct ep e[2])
{
	return &e[is_far(p, r) == (e[1].nic_index == 1)];
}

/* Both programs get the addresses and keys of the NICs. */
static void bind(struct chain_program *p, struct chain_program *model, struct ep e[2])
{
	struct chain_error err;

	for (unsigned i = 0; i < p->regions; i++) {
		struct chain_region *r = &p->region[i];
		const struct ep *at = end_of(p, r, e);

		if (r->kind == CHAIN_SEND_RING) {
			r->addr = (uintptr_t)e[r->queue].sq;
			r->key = e[r->queue].sq_key;
		} else if (r->kind == CHAIN_RECV_RING) {
			r->addr = (uintptr_t)e[r->queue].rq;
			r->key = e[r->queue].rq_key;
		} else {
			struct nic_mr_attr mr = {.pd = at->pd,
						 .addr = r->image,
						 .len = r->size ? r->size : 1,
						 .iova = (uintptr_t)r->image,
						 .access = 15};

			assert_int_equal(nic_mr_register(at->nic, &mr, &r->key), 0);
			r->addr = (uintptr_t)r->image;
		}
		model->region[i].addr = r->addr;
		model->region[i].key = r->key;
	}
	for (unsigned i = 0; i < 2; i++)
		p->queue[i].qp_num = model->queue[i].qp_num = nic_qp_num(e[i].qp);
	assert_true(chain_bind(p, &err) && chain_bind(model, &err));
}

static void deregister(const struct chain_program *p, struct ep e[2])
{
	for (unsigned i = 0; i < p->regions; i++)
		if (p->region[i].kind == CHAIN_DATA)
			assert_int_equal(nic_mr_deregister(end_of(p, &p->region[i], e)->nic,
							   p->region[i].key),
					 0);
}

static void post(const struct chain_program *p, unsigned queue, struct ep *e)
{
	const struct chain_queue *q = &p->queue[queue];
	struct ep starter;

	for (uint32_t i = 0; i < q->recv; i++) {
		const uint8_t *slot = chain_recv_slot(p, q, i);
		struct roost_recv_wqe r;
		struct roost_sge sge;

		memcpy(&r, slot, sizeof(r));
		memcpy(&sge, slot + ROOST_RECV_SGE_OFFSET, sizeof(sge));
		assert_int_equal(r.num_sge, 1);
		ep_post_recv(e, 0, &sge, 1);
	}
	memcpy(e->sq, p->region[q->region].image, p->region[q->region].size);
	atomic_store(&e->sqi.prod, q->n);
	nic_doorbell(e->nic, e->qp);
	ep_init(&starter, w, e->nic_index,
		&(struct ep_params){.chain = true, .pd_of = e, .mem = 64});
	ep_connect_self(&starter);
	ep_post(&starter, &(struct wr){.op = ROOST_OP_ENABLE,
				       .raddr = nic_qp_num(e->qp) | ROOST_CHAIN_RELATIVE,
				       .swap_add = q->n});
	world_step(w, world_now(w) + MSEC);
	ep_fini(&starter);
}

/* ---- comparison ---- */

static void print_program(void)
{
	fprintf(stderr, "seed %llu, program %u\n%s", (unsigned long long)seed, current, text);
}

static void compare(const struct chain_program *p, const struct chain_program *model,
		    const struct ep e[2])
{
	for (unsigned i = 0; i < p->regions; i++) {
		const struct chain_region *r = &p->region[i];
		const uint8_t *nic = r->kind == CHAIN_SEND_RING	  ? e[r->queue].sq
				     : r->kind == CHAIN_RECV_RING ? NULL
								  : r->image;

		for (uint64_t at = 0; nic && at < r->size; at += 8) {
			const size_t n = r->size - at < 8 ? r->size - at : 8;
			char location[96];

			if (memcmp(nic + at, model->region[i].image + at, n) == 0)
				continue;
			chain_print_location(p, i, at, location, sizeof(location));
			print_program();
			fail_msg("%s differs from the model", location);
		}
	}
}

static void must_run(const struct chain_program *p, const struct ep e[2])
{
	for (unsigned i = 0; i < 2; i++) {
		struct nic_chain_failure f = {.index = 0};

		if (!nic_qp_chain_failure(e[i].qp, &f))
			continue;
		print_program();
		fail_msg("WQE %u of %s, line %u: status %u; the model's did not fail", f.index,
			 p->queue[i].name, p->queue[i].lines[f.index % p->queue[i].n], f.status);
	}
}

static void run_nics(const struct chain_program *p, const struct ep e[2], bool fails)
{
	const unsigned near_end = e[0].nic_index != 0;
	const struct chain_symbol *done = chain_find_symbol(p, "done");
	const uint8_t *word = p->region[done->region].image + done->value;
	const uint64_t until = world_now(w) + LIMIT;
	struct nic_chain_failure f;
	uint8_t zero[8] = {0};

	while (fails ? !nic_qp_chain_failure(e[near_end].qp, &f) : memcmp(word, zero, 8) == 0) {
		if (!fails)
			must_run(p, e);
		assert_true(world_now(w) < until);
		world_step(w, until);
	}
	world_run(w, world_now(w) + AFTERWARD);
}

static void one_program(unsigned i)
{
	const struct sim_params link = {.delay_ns = 1000,
					.jitter_ns = 500,
					.loss = below(3) * 0.08,
					.dup = below(3) * 0.08,
					.reorder = below(3) * 0.08};
	struct chain_program *p, *model;
	struct chain_error err = {0};
	struct chain_model m;
	struct ep e[2];
	bool quiet, failed;

	make_text(i % 10 == 9);
	p = chain_assemble(text, used, &err);
	model = chain_assemble(text, used, &err);
	if (!p || !model)
		fail_msg("line %u: %s", err.line, err.text);
	world_init(w, 2, seed + i, &link);
	open_ends(e, p);
	bind(p, model, e);
	assert_true(model_open(&m, model));
	m.calc = true;
	quiet = model_run(&m, MAX_WQES);
	assert_true(quiet && !m.open);
	failed = m.q[0].own_failure || m.q[1].own_failure;
	failures += failed;
	post(p, 0, &e[0]);
	post(p, 1, &e[1]);
	run_nics(p, e, failed);
	compare(p, model, e);
	faults += sim_lost(w->sim);
	model_close(&m);
	deregister(p, e);
	for (unsigned k = 0; k < 2; k++)
		ep_fini(&e[k]);
	world_fini(w);
	chain_free(p);
	chain_free(model);
}

static void test_programs(void **state)
{
	(void)state;
	for (unsigned i = 0; i < programs; i++) {
		random_state = (seed + i) * 0x9e3779b97f4a7c15 | 1;
		for (unsigned k = 0; k < 8; k++)
			below(2);
		current = i;
		one_program(i);
	}
	printf("%u programs, %llu with a queue that failed, %llu packets lost\n", programs,
	       (unsigned long long)failures, (unsigned long long)faults);
	if (programs >= 100)
		assert_true(failures && faults > programs);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_programs)};

	if (argc > 1)
		seed = strtoull(argv[1], NULL, 10);
	if (argc > 2)
		programs = (unsigned)strtoul(argv[2], NULL, 10);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
