/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Fuzzes the parser of the memcached protocols with bytes as a client's stream: the pointers of a
 * request point into its line, lengths keep their limits, and parsing a line again gives the same.
 */
#include <string.h>

#include "input.h"
#include "memcached/request.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void inside(struct mc_word w, const char *line, uint32_t len, const char *what)
{
	must(!w.len || (w.p >= line && w.p + w.len <= line + len), what);
}

static void check(const struct mc_request *r, const char *line)
{
	struct mc_word keys = r->keys, key;

	inside(r->key, line, r->line_len, "a key outside of the line");
	inside(r->keys, line, r->line_len, "keys outside of the line");
	inside(r->word, line, r->line_len, "a word outside of the line");
	for (unsigned i = 0; i < r->num_flags; i++)
		inside(r->flag[i].arg, line, r->line_len, "a flag outside of the line");
	must((r->command == MC_INVALID) == (r->error != NULL), "an error without a text");
	must(r->meta_key_len <= MC_KEY_MAX, "a key that is too long");
	if (r->command == MC_GET) {
		while (mc_next_key(&keys, &key))
			must(key.len && key.len <= MC_KEY_MAX, "a key of a get");
	}
	if (r->command >= MC_META_GET && r->command <= MC_META_DEBUG && r->command != MC_META_NOOP)
		must(r->meta_key_len, "a meta command without a key");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *p = (const char *)data;
	static struct mc_request r, again;

	while (mc_parse(p, size, &r)) {
		size_t whole = r.line_len + (r.has_data ? (size_t)r.data_len + 2 : 0);

		must(r.line_len <= size && r.line_len <= MC_LINE_MAX, "a line beyond the end");
		check(&r, p);
		if (!r.line_len)
			break;
		must(mc_parse(p, r.line_len, &again) && !memcmp(&r, &again, sizeof(r)),
		     "another request");
		if (whole > size)
			break;
		p += whole;
		size -= whole;
	}
	return 0;
}
