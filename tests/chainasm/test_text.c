/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Texts of strangers. The memory of a program is allocated for the sizes that the first pass over
 * its text finds; the second pass, which knows addresses and keys, must not find others.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "chainasm/check.h"

#define SIZE_ERROR "a size may not depend"

static void refused(const char *text, uint32_t line, const char *words)
{
	struct chain_error err = {0};
	struct chain_program *p = chain_assemble(text, strlen(text), &err);

	if (p)
		fail_msg("accepted: %s", text);
	if (err.line != line || !strstr(err.text, words))
		fail_msg("line %u: %s; of: %s", err.line, err.text, text);
}

static struct chain_program *assembled(const char *text)
{
	struct chain_error err = {0};
	struct chain_program *p = chain_assemble(text, strlen(text), &err);

	if (!p)
		fail_msg("line %u: %s; of: %s", err.line, err.text, text);
	return p;
}

/* In the first pass, keys and numbers of queues are 0 or 1, and addresses are 0. */
static void test_region_sizes(void **state)
{
	(void)state;
	refused("region b\n\tspace (key(b) >> 24) * 100000\n\ttext \"AAAAAAAAAAAAAAAAAAAAAAAA\"\n"
		"queue q depth=4\n\tnop\n",
		2, SIZE_ERROR);
	refused("region b\n\tspace 64\n\tspace (&x >> 32) * 4096\nx:\tword 1\nqueue q\n\tnop\n", 3,
		SIZE_ERROR);
	refused("region b\n\tspace (qp(q) >> 16) * 8\nqueue q\n\tnop\n", 2, SIZE_ERROR);
	/* a region that becomes smaller: its later labels would be elsewhere */
	refused("region b\n\tspace 256 >> (key(b) >> 24 & 15)\nregion c\n\tword 1\nqueue q\n\tnop\n",
		1, SIZE_ERROR);
}

static void test_queue_sizes(void **state)
{
	(void)state;
	refused("region b\n\tword 1\nqueue q depth=1<<(key(b)>>24&15)*4 managed start\n\tforever\n",
		3, SIZE_ERROR);
	refused("region b\n\tword 1\nqueue q sges=1+(key(b)>>24&15)\n\tnop\n", 3, SIZE_ERROR);
	refused("region b\nx:\tword 1\nqueue q receives=1 recv_sges=1+(key(b)>>24&15)\n"
		"\trecv x, 8\n\tnop\n",
		3, SIZE_ERROR);
	refused("region b\nx:\tword 1\nqueue q receives=1<<(key(b)>>24&15)\n\trecv x, 8\n\tnop\n",
		3, SIZE_ERROR);
	/* fewer receives than lines are an error of the line, as before */
	refused("region b\nx:\tword 1\nqueue q receives=1\n\trecv x, 8\n\trecv x, 8\n\tnop\n", 5,
		"more than receives=1");
}

/* A label behind a comparison with a word, which takes more WQEs than one with a constant. */
static void test_label_behind_word(void **state)
{
	static const char *const operands[] = {"y", "b", "before", "q[0]", "later"};
	char text[256];

	(void)state;
	for (unsigned i = 0; i < 5; i++) {
		struct chain_program *p;

		snprintf(text, sizeof(text),
			 "region b\nx:\tword 1\ny:\tword 2\nqueue first\n\tnop\n"
			 "queue q depth=16 managed start\nbefore:\tnop\n\tif x <= %s: nop\n"
			 "after:\tnop\nregion c\nlater:\tword 1\n",
			 operands[i]);
		p = assembled(text);
		assert_int_equal(chain_find_symbol(p, "after")->value,
				 (p->queue[1].n - 1) * p->queue[1].stride);
		chain_free(p);
	}
}

/* A size that is the same for each key is accepted, and for other keys too. */
static void test_same_size(void **state)
{
	static const char text[] = "region b\n\tspace 8 + (key(b) & 0)\nx:\tword key(b), &x\n"
				   "queue q depth=4<<(key(b)&0) receives=2 managed start\n"
				   "\trecv x, 8\n\tnop\n";
	struct chain_program *p = assembled(text);
	struct chain_error err;

	(void)state;
	for (unsigned i = 0; i < p->regions; i++)
		p->region[i].key = 0xfedcba98 - i;
	assert_true(chain_bind(p, &err));
	chain_free(p);
}

/* The keys of a loader are others than those of the assembler. */
static void test_bound_again(void **state)
{
	static const char *const texts[] = {
		"region b\n\tspace (key(b) >> 31) * 100000\n\ttext \"AAAAAAAAAAAAAAAA\"\n"
		"queue q depth=4\n\tnop\n",
		"region b\n\tword 1\nqueue q depth=1<<(key(b)>>31)*4 managed start\n\tforever\n",
	};
	struct chain_error err;

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		struct chain_program *p = assembled(texts[i]);

		p->region[0].key = 0xffffffff;
		assert_false(chain_bind(p, &err));
		assert_int_equal(err.line, i + 2);
		assert_non_null(strstr(err.text, SIZE_ERROR));
		p->region[0].key = 0x100; /* the program is as it was */
		assert_true(chain_bind(p, &err));
		chain_free(p);
	}
}

/* ---- the checker ---- */

static unsigned faults;
static struct chain_fault first_fault;

static void note(void *ctx, const struct chain_fault *f)
{
	(void)ctx;
	if (!faults++)
		first_fault = *f;
}

/*
 * Each queue enables all others: the number of paths of ENABLEs grows with the factorial of the
 * queues. The receive rewrites itself, and `first` starts what enables it again.
 */
static void write_dense(char *text, size_t size, const char *first)
{
	size_t n = (size_t)snprintf(text, size, "region d\nx:\tword 1\n");

	for (unsigned i = 0; i < CHAIN_MAX_QUEUES; i++) {
		n += (size_t)snprintf(text + n, size - n, "queue q%u managed%s%s\n", i,
				      i ? "" : " receives=1 managed_recv",
				      i == CHAIN_MAX_QUEUES - 1 ? first : "");
		if (!i)
			n += (size_t)snprintf(text + n, size - n, "\trecv q0.receives[0], 8\n");
		for (unsigned k = 0; k < CHAIN_MAX_QUEUES; k++)
			if (k != i)
				n += (size_t)snprintf(text + n, size - n, "\tenable q%u, 1\n", k);
		if (i == 1)
			n += (size_t)snprintf(text + n, size - n, "\trecv_enable q0, 2\n");
		assert_true(n < size);
	}
}

static void test_dense(void **state)
{
	static char text[32 * 1024];

	(void)state;
	for (unsigned started = 0; started < 2; started++) {
		struct chain_program *p;

		write_dense(text, sizeof(text), started ? " start=1" : "");
		p = assembled(text);
		faults = 0;
		assert_int_equal(chain_check(p, &(struct chain_check){.fault = note}), 1);
		assert_int_equal(faults, 1);
		assert_int_equal(first_fault.class, CHAIN_FAULT_REWRITE);
		assert_int_equal(first_fault.line, 4);
		assert_non_null(strstr(first_fault.text,
				       started ? "may come before" : "no RECV_ENABLE of it"));
		chain_free(p);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_region_sizes),	  cmocka_unit_test(test_queue_sizes),
		cmocka_unit_test(test_same_size),	  cmocka_unit_test(test_bound_again),
		cmocka_unit_test(test_label_behind_word), cmocka_unit_test(test_dense),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
