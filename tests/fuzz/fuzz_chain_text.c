/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Fuzzes the assembler of chains, and the reader of images. An accepted program becomes a text that
 * is accepted again, and an image that gives the same text. The checker then reads the program.
 */
#include <stdlib.h>
#include <string.h>

#include "chainasm/check.h"
#include "input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CHECKED_BYTES 16384 /* of all images; the checker takes long for large ones */

static bool is_small(const struct chain_program *p)
{
	size_t n = 0;

	for (unsigned i = 0; i < p->regions; i++)
		n += p->region[i].size;
	return n <= CHECKED_BYTES;
}

static void same_text(const struct chain_program *p, const char *text, const char *what)
{
	char *other = chain_disassemble(p);

	must(other != NULL, "no memory");
	must(strcmp(other, text) == 0, what);
	free(other);
}

static void accepted(struct chain_program *p)
{
	struct chain_program *again;
	struct chain_error err;
	char *text = chain_disassemble(p);
	void *image;
	size_t n;

	must(text != NULL, "no memory");
	image = chain_write_image(p, &n);
	must(image != NULL, "no memory");
	again = chain_read_image(image, n, &err);
	must(again != NULL, "its own image is refused");
	same_text(again, text, "an image has another text");
	chain_free(again);
	free(image);
	again = chain_assemble(text, strlen(text), &err);
	must(again != NULL, "its own text is refused");
	same_text(again, text, "a text has another text");
	chain_free(again);
	free(text);
	if (is_small(p))
		must(chain_check(p, &(struct chain_check){0}) >= 0, "no memory");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct chain_error err = {0};
	struct chain_program *p;

	if (size >= 7 && memcmp(data, "rchain1", 7) == 0)
		p = chain_read_image(data, size, &err);
	else
		p = chain_assemble((const char *)data, size, &err);
	must(p || err.text[0], "an error without a text");
	if (p)
		accepted(p);
	chain_free(p);
	return 0;
}
