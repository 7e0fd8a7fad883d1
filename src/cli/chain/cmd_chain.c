/* SPDX-License-Identifier: BSD-2-Clause */
/* `roost chain`: assembles, checks, runs and shows programs that are made of work requests. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "chainasm/check.h"
#include "cli/chain/chain.h"
#include "cli/commands.h"

#define MAX_FILE (32u << 20)

static const char *port, *output;
static bool strict, json, watching;
static struct chain_run run;
static struct watch watch = {.every = 1};

static const struct opt opts[] = {
	OPT_VALUE("output", 'o', OPT_STRING, &output, "FILE",
		  "asm: write the image there; disasm: the text"),
	OPT_SWITCH("strict", 0, &strict, "check: a loop needs a rate limit even if it has an end"),
	OPT_SWITCH("trace", 't', &run.trace, "run: print each executed WQE and its effect"),
	OPT_SWITCH("step", 0, &run.step, "run: stop after each WQE; commands come from stdin"),
	OPT_VALUE("break", 'b', OPT_STRING, &run.stop_at, "LABEL",
		  "run: stop after the WQE that has the label"),
	OPT_VALUE("show", 0, OPT_STRING, &run.show, "LABEL",
		  "run: print this word at the end (all labels)"),
	OPT_VALUE("dump", 0, OPT_STRING, &run.dump, "FILE",
		  "run: write an image of the memory at the end"),
	OPT_VALUE("time", 0, OPT_TIME, &run.time_ns, "TIME",
		  "run: end after this time (when nothing moves)", .min = 1e6, .max = 86400e9),
	OPT_VALUE("watch", 'w', OPT_NUMBER, &watch.every, "S", "top: again every S seconds (1)",
		  .min = 0.05, .max = 86400, .given = &watching),
	OPT_VALUE("count", 'n', OPT_COUNT, &watch.looks, "N", "top: N times (until interrupted)",
		  .min = 1, .max = 1e9),
	OPT_SWITCH("json", 'j', &json, "top: JSON objects on stdout"),
	OPT_VALUE("port", 'p', OPT_STRING, &port, "SPEC",
		  "run: host, udp or shm, address, options (ROOST_PORT,\nelse host)"),
	OPT_END};

static const char *const verbs[] = {"asm", "disasm", "check", "run", "top", "costs", NULL};
enum verb { ASM, DISASM, CHECK, RUN, TOP, COSTS };

static const struct opt_command cmd = {
	.name = "chain",
	.synopsis = "[--output FILE] asm FILE\n"
		    "[--output FILE] disasm FILE\n"
		    "[--strict] check FILE...\n"
		    "[--trace] [--step] [--break LABEL] [--time TIME] run FILE\n"
		    "[--watch S] [--count N] [--json] top\n"
		    "costs",
	.about =
		"Programs that are made of work requests, and that the NIC executes (docs/chains.md). FILE is a\n"
		"text, or an image that asm has written.\n"
		"\n"
		"asm     assembles a text into an image\n"
		"disasm  prints an image as a text\n"
		"check   finds rewrites of WQEs that may have been fetched, WAITs that no completion satisfies,\n"
		"        loops without a rate limit, and addresses outside of the regions\n"
		"run     posts the program on a NIC of its own and prints its memory at the end. --step and\n"
		"        --break stop it; then s steps, c continues, p LABEL prints a word, l QUEUE lists a queue,\n"
		"        q ends\n"
		"top     shows the chains of your running NICs at an interval\n"
		"costs   prints the WQEs of each construct, beside those of RedN",
	.opts = opts,
	.examples = "  roost chain check examples/chains/if.chain\n"
		    "  roost chain run --trace examples/chains/if.chain\n"
		    "  roost chain asm while.chain -o while.img; roost chain disasm while.img\n"
		    "  roost chain top --watch 1\n",
	.words = verbs,
	.operands = OPT_FILES,
};

/* ---- files ---- */

static char *read_file(const char *file, size_t *n, char *why, size_t size)
{
	int fd = strcmp(file, "-") == 0 ? dup(STDIN_FILENO) : open(file, O_RDONLY | O_CLOEXEC);
	size_t cap = 1 << 16;
	char *buf = fd < 0 ? NULL : malloc(cap);
	ssize_t got = 0;

	*n = 0;
	while (buf && *n < MAX_FILE && (got = read(fd, buf + *n, cap - *n)) > 0) {
		*n += (size_t)got;
		if (*n == cap) {
			char *more = realloc(buf, cap *= 2);

			if (!more)
				free(buf);
			buf = more;
		}
	}
	snprintf(why, size, "%s",
		 *n >= MAX_FILE ? "it has more than 32 MiB"
		 : errno	? strerror(errno)
				: "");
	if (fd >= 0)
		close(fd);
	if (buf && !got && *n < MAX_FILE)
		return buf;
	free(buf);
	return NULL;
}

static void show_error(const char *file, const struct chain_error *err)
{
	if (err->line)
		fprintf(stderr, "%s:%u: %s\n", file, err->line, err->text);
	else
		fprintf(stderr, "%s: %s\n", file, err->text);
}

struct chain_program *chain_open(const struct opt_command *c, const char *file)
{
	struct chain_program *p;
	struct chain_error err;
	char why[128];
	char *text;
	size_t n;

	errno = 0;
	text = read_file(file, &n, why, sizeof(why));
	if (!text) {
		opt_failed(c, "can't read %s: %s", file, why);
		return NULL;
	}
	if (n >= 7 && memcmp(text, "rchain1", 7) == 0)
		p = chain_read_image(text, n, &err);
	else
		p = chain_assemble(text, n, &err);
	free(text);
	if (!p)
		show_error(file, &err);
	return p;
}

int chain_save(const struct opt_command *c, const char *file, const void *bytes, size_t n)
{
	FILE *f = file ? fopen(file, "we") : stdout;
	bool ok = f && fwrite(bytes, 1, n, f) == n;

	if (f && file)
		ok = fclose(f) == 0 && ok;
	if (ok)
		return CLI_OK;
	return opt_failed(c, "can't write %s: %s", file ? file : "the output", strerror(errno));
}

/* ---- verbs ---- */

static int assemble(const char *file)
{
	struct chain_program *p = chain_open(&cmd, file);
	size_t n = 0;
	void *image;
	int rc = CLI_FAILED;

	if (!p)
		return CLI_FAILED;
	if (!output && isatty(STDOUT_FILENO)) {
		rc = opt_usage(&cmd, "an image can't be shown on a terminal: give --output FILE");
	} else {
		image = chain_write_image(p, &n);
		rc = image ? chain_save(&cmd, output, image, n) : opt_failed(&cmd, "out of memory");
		free(image);
	}
	chain_free(p);
	return rc;
}

static int disassemble(const char *file)
{
	struct chain_program *p = chain_open(&cmd, file);
	char *text = p ? chain_disassemble(p) : NULL;
	int rc;

	if (!p)
		return CLI_FAILED;
	rc = text ? chain_save(&cmd, output, text, strlen(text))
		  : opt_failed(&cmd, "out of memory");
	free(text);
	chain_free(p);
	return rc;
}

static void print_fault(void *ctx, const struct chain_fault *f)
{
	if (f->line)
		printf("%s:%u: %s: %s\n", (const char *)ctx, f->line, chain_fault_names[f->class],
		       f->text);
	else
		printf("%s: %s: %s\n", (const char *)ctx, chain_fault_names[f->class], f->text);
}

static int check(char **files, int n)
{
	int rc = CLI_OK;

	for (int i = 0; i < n; i++) {
		struct chain_program *p = chain_open(&cmd, files[i]);
		const struct chain_check how = {
			.strict = strict, .fault = print_fault, .ctx = files[i]};
		int faults = p ? chain_check(p, &how) : 1;

		if (faults < 0)
			opt_failed(&cmd, "out of memory");
		if (faults)
			rc = CLI_FAILED;
		chain_free(p);
	}
	return rc;
}

static int execute(const char *file)
{
	struct chain_program *p = chain_open(&cmd, file);
	int rc = p ? chain_run_program(&cmd, p, &run) : CLI_FAILED;

	chain_free(p);
	return rc;
}

int cmd_chain(int argc, char **argv)
{
	int at = opt_parse(&cmd, argc, argv, false), verb, given;

	if (at < 0)
		return at == OPT_HELP ? CLI_OK : CLI_USAGE;
	if (at == argc)
		return opt_usage(&cmd, "the action is missing: roost chain check FILE");
	verb = opt_find(verbs, argv[at]);
	if (verb < 0)
		return opt_usage(&cmd, "'%s' is none of asm, disasm, check, run, top and costs",
				 argv[at]);
	given = argc - at - 1;
	if (verb < TOP && given < 1)
		return opt_usage(&cmd, "%s which file?", argv[at]);
	if (verb >= TOP ? given > 0 : verb != CHECK && given > 1)
		return opt_usage(&cmd, "unexpected argument '%s'", argv[argc - 1]);
	opt_environment(port, 0);
	run.file = argv[at + 1];
	switch ((enum verb)verb) {
	case ASM:
		return assemble(argv[at + 1]);
	case DISASM:
		return disassemble(argv[at + 1]);
	case CHECK:
		return check(argv + at + 1, given);
	case RUN:
		return execute(argv[at + 1]);
	case TOP:
		return chain_top(&cmd, &watch, json);
	case COSTS:
		return chain_costs(&cmd);
	}
	return CLI_USAGE;
}
