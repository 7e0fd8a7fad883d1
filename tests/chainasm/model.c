/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * model FILE: assembles a program of chains, executes it in the model and prints the words of its
 * data as `roost chain run` does. Exit status 0; 1 if a queue failed; 3 if docs/chains.md leaves
 * the result open.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chainasm/model.h"

#define MAX_WQES 1000000
#define MAX_TEXT 65536

static void print_words(const struct chain_program *p)
{
	for (unsigned i = 0; i < p->symbols; i++) {
		const struct chain_symbol *s = &p->symbol[i];
		const struct chain_region *r = &p->region[s->region];
		uint64_t v = 0;
		char text[200];

		if (s->constant || r->kind != CHAIN_DATA || s->value >= r->size)
			continue;
		memcpy(&v, r->image + s->value, r->size - s->value < 8 ? r->size - s->value : 8);
		chain_print_word(p, v, text, sizeof(text));
		printf("%s = %s\n", s->name, text);
	}
}

int main(int argc, char **argv)
{
	static char text[MAX_TEXT];
	FILE *f = argc == 2 ? fopen(argv[1], "re") : NULL;
	struct chain_program *p;
	struct chain_error err;
	struct chain_model m;
	bool quiet, failed = false;
	size_t n;

	if (!f) {
		fprintf(stderr, "usage: model FILE\n");
		return 2;
	}
	n = fread(text, 1, sizeof(text), f);
	fclose(f);
	p = chain_assemble(text, n, &err);
	if (!p || !model_open(&m, p)) {
		fprintf(stderr, "%s:%u: %s\n", argv[1], p ? 0 : err.line,
			p ? "no memory" : err.text);
		return 2;
	}
	quiet = model_run(&m, MAX_WQES);
	for (unsigned i = 0; i < p->queues; i++) {
		failed |= m.q[i].own_failure;
		if (m.q[i].own_failure)
			fprintf(stderr, "%s: %s\n", p->queue[i].name, m.q[i].reason);
	}
	print_words(p);
	model_close(&m);
	chain_free(p);
	if (m.open)
		return 3;
	return quiet && !failed ? 0 : 1;
}
