/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * `roost kernel`: manages the kernels of a node on this machine through its control socket
 * (node/control.h).
 */
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jansson.h>

#include "base/mem.h"
#include "cli/ask_node.h"
#include "cli/commands.h"
#include "cli/node/request.h"
#include "cli/options.h"
#include "cli/term.h"
#include "cli/watch.h"
#include "port/shm_dir.h"

static bool json, watching;
static struct watch watch = {.every = 1};

static const struct opt opts[] = {OPT_VALUE("watch", 'w', OPT_NUMBER, &watch.every, "S",
					    "stat: again every S seconds, with rates", .min = 0.05,
					    .max = 86400, .given = &watching),
				  OPT_VALUE("count", 'n', OPT_COUNT, &watch.looks, "N",
					    "watch: N times (until interrupted)", .min = 1,
					    .max = 1e9),
				  OPT_JSON(&json), OPT_END};

enum verb { LIST, STAT, LOAD, REPLACE, UNLOAD, VERBS };
static const char *const verbs[] = {"list", "stat", "load", "replace", "unload", NULL};

static const struct opt_command cmd = {
	.name = "kernel",
	.synopsis = "list [NODE]\n"
		    "stat [--watch S] [NODE]\n"
		    "load [NODE] FILE\n"
		    "replace [NODE] FILE\n"
		    "unload [NODE] KERNEL",
	.about =
		"Shows and changes the kernels of a running node of yours on this machine (roost node). NODE is its\n"
		"process number, its --name, or its address; it may be left out when there is but one. FILE is a\n"
		"shared object with a kernel in it, KERNEL a name or an op-code. Calls that are under way end on the\n"
		"version that they began with.",
	.opts = opts,
	.examples = "  roost kernel list\n"
		    "  roost kernel stat --watch 1\n"
		    "  roost kernel load 127.0.0.2 ./sum.so\n"
		    "  roost kernel replace 127.0.0.2 ./sum2.so\n"
		    "  roost kernel unload 127.0.0.2 sum\n",
	.words = verbs,
	.operands = OPT_FILES,
};

/* ---- showing ---- */

static const char *text_of(const json_t *o, const char *key)
{
	const char *s = json_string_value(json_object_get(o, key));

	return s ? s : "?";
}

static const char *number_of(const json_t *o, const char *key, char buf[40])
{
	return fmt_count(buf, 40, (uint64_t)json_integer_value(json_object_get(o, key)));
}

static const char *state_text(const json_t *k)
{
	const char *state = text_of(k, "state");

	if (strcmp(state, "leaving") == 0)
		return "leaving: has calls in progress";
	if (strcmp(state, "disabled") == 0)
		return "disabled: it crashed, or did not return; replace or unload it";
	return json_is_true(json_object_get(k, "loaded")) ? "loaded" : "built in";
}

static void list_row(struct table *t, const json_t *k)
{
	char op[24], version[24];
	const char *cells[4] = {text_of(k, "name"), op, version, state_text(k)};

	snprintf(op, sizeof(op), "%#" PRIx64,
		 (uint64_t)json_integer_value(json_object_get(k, "op")));
	snprintf(version, sizeof(version), "%" JSON_INTEGER_FORMAT,
		 json_integer_value(json_object_get(k, "version")));
	table_row(t, cells);
}

static const char *const stat_keys[] = {"calls",  "ended_ok",	  "ended_other", "bad_params",
					"access", "too_long",	  "bound",	 "faults",
					"stuck",  "disabled",	  "dropped",	 "in_flight",
					"steps",  "payload_bytes"};
static const char *const latency_keys[] = {"p50", "p99"};
#define WATCH_COLUMNS (8 + ARRAY_SIZE(latency_keys))
#define STAT_COLUMNS  (1 + ARRAY_SIZE(stat_keys) + ARRAY_SIZE(latency_keys))

/*
 * Formats the latency of calls on the node since this version became active. The cells are empty
 * until the first call has ended.
 */
static void latency_cells(const char **cells, char (*value)[40], const json_t *k)
{
	const json_t *took = json_object_get(k, "latency_us");

	for (size_t i = 0; took && i < ARRAY_SIZE(latency_keys); i++) {
		snprintf(value[i], sizeof(value[i]), "%.2f",
			 json_number_value(json_object_get(took, latency_keys[i])));
		cells[i] = value[i];
	}
}

static void stat_row(struct table *t, const json_t *k)
{
	char value[STAT_COLUMNS][40];
	const char *cells[STAT_COLUMNS] = {text_of(k, "name")};

	for (size_t i = 0; i < ARRAY_SIZE(stat_keys); i++)
		cells[1 + i] = number_of(k, stat_keys[i], value[i]);
	latency_cells(&cells[1 + ARRAY_SIZE(stat_keys)], &value[ARRAY_SIZE(stat_keys)], k);
	table_row(t, cells);
}

static uint64_t count_of(const json_t *k, const char *key)
{
	return (uint64_t)json_integer_value(json_object_get(k, key));
}

/*
 * Returns the number of calls that ended in another way than their kernel intended. A status that
 * the kernel defines is no failure.
 */
static uint64_t failed(const json_t *k)
{
	static const char *const keys[] = {"bad_params", "access", "too_long", "bound",
					   "faults",	 "stuck",  "disabled", "dropped"};
	uint64_t sum = 0;

	for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
		sum += count_of(k, keys[i]);
	return sum;
}

/* The counters that have rates. */
struct sums {
	uint64_t calls, failed, steps, payload_bytes;
};

/*
 * Sums the counters of all rows of an op-code. A version that leaves moves its counts from the
 * active row to its own row, and moves them back when it is gone; only the sum does not jump.
 */
static struct sums sums_of(const json_t *kernels, uint64_t op)
{
	struct sums sums = {0};
	const json_t *k;
	size_t i;

	json_array_foreach(kernels, i, k)
	{
		if (count_of(k, "op") != op)
			continue;
		sums.calls += count_of(k, "calls");
		sums.failed += failed(k);
		sums.steps += count_of(k, "steps");
		sums.payload_bytes += count_of(k, "payload_bytes");
	}
	return sums;
}

/*
 * Returns true for the first row of an op-code. This is the active version, if there is one, since
 * the node lists it before leaving versions.
 */
static bool first_of_op(const json_t *kernels, size_t at)
{
	for (size_t i = 0; i < at; i++)
		if (count_of(json_array_get(kernels, i), "op") ==
		    count_of(json_array_get(kernels, at), "op"))
			return false;
	return true;
}

/*
 * Prints a rate per second. A sum that decreased has no rate: a kernel was unloaded together with
 * its counts.
 */
static const char *rate(char buf[40], uint64_t now, uint64_t was, double since)
{
	return since > 0 && now >= was
		       ? fmt_count(buf, 40, (uint64_t)((double)(now - was) / since + 0.5))
		       : NULL;
}

static void watch_row(struct table *t, const json_t *kernels, size_t at, const json_t *before,
		      double since)
{
	const json_t *k = json_array_get(kernels, at);
	struct sums now = sums_of(kernels, count_of(k, "op")),
		    was = sums_of(before, count_of(k, "op"));
	const char *cells[WATCH_COLUMNS] = {text_of(k, "name")};
	char value[WATCH_COLUMNS][40];

	cells[1] = number_of(k, "calls", value[1]);
	cells[3] = fmt_count(value[3], sizeof(value[3]), failed(k));
	cells[5] = number_of(k, "in_flight", value[5]);
	if (first_of_op(kernels, at)) {
		cells[2] = rate(value[2], now.calls, was.calls, since);
		cells[4] = rate(value[4], now.failed, was.failed, since);
		cells[6] = rate(value[6], now.steps, was.steps, since);
		cells[7] = rate(value[7], now.payload_bytes, was.payload_bytes, since);
	}
	latency_cells(&cells[8], &value[8], k);
	table_row(t, cells);
}

static void show_rates(const json_t *node, const json_t *before, double since)
{
	static const char *const head[WATCH_COLUMNS] = {
		"kernel",    "calls",	"calls/s",	   "failed", "failures/s",
		"under way", "steps/s", "payload bytes/s", "p50 us", "p99 us"};
	const json_t *kernels = json_object_get(node, "kernels");
	struct table t;

	table_init(&t, WATCH_COLUMNS);
	table_row(&t, head);
	for (size_t i = 0; i < json_array_size(kernels); i++)
		watch_row(&t, kernels, i, json_object_get(before, "kernels"), since);
	table_print(&t, stdout, 1u << 0);
	table_free(&t);
}

static void show(const json_t *node, enum verb verb)
{
	static const char *const list_head[] = {"kernel", "op-code", "version", "is"};
	static const char *const stat_head[STAT_COLUMNS] = {
		"kernel",   "calls",	"ok",	     "own status", "bad params",
		"access",   "too long", "bound",     "crashed",	   "stuck",
		"disabled", "dropped",	"under way", "steps",	   "payload bytes",
		"p50 us",   "p99 us"};
	struct table t;
	json_t *k;
	size_t i;

	table_init(&t, verb == LIST ? 4 : STAT_COLUMNS);
	table_row(&t, verb == LIST ? list_head : stat_head);
	json_array_foreach(json_object_get(node, "kernels"), i, k)
	{
		if (verb == LIST)
			list_row(&t, k);
		else
			stat_row(&t, k);
	}
	table_print(&t, stdout, verb == LIST ? 1u << 0 | 1u << 3 : 1u << 0);
	table_free(&t);
}

static void print_json(const json_t *o)
{
	json_dumpf(o, stdout, JSON_COMPACT | JSON_ENSURE_ASCII);
	putchar('\n');
}

/* ---- changing ---- */

/* Makes the request of a verb. Returns NULL after an error was printed. */
static json_t *request_for(enum verb verb, const char *word)
{
	char *path, *end;
	json_t *o;

	if (verb == UNLOAD) {
		uint64_t op = strtoull(word, &end, 0);

		return isdigit((unsigned char)*word) && *end == '\0'
			       ? json_pack("{s:s,s:I}", "do", "unload", "op", (json_int_t)op)
			       : json_pack("{s:s,s:s}", "do", "unload", "kernel", word);
	}
	path = realpath(word, NULL);
	if (!path) {
		opt_failed(&cmd, "can't read %s: %s", word, strerror(errno));
		return NULL;
	}
	o = json_pack("{s:s,s:s}", "do", verbs[verb], "file", path);
	if (!o)
		opt_failed(&cmd, "%s: a path that is not UTF-8 can't be sent to the node", word);
	free(path);
	return o;
}

static int change(int dirfd, const json_t *node, enum verb verb, const char *word)
{
	json_t *request = request_for(verb, word), *o = NULL;
	char *line = request ? json_dumps(request, JSON_COMPACT) : NULL;
	int rc = CLI_FAILED;
	bool mute;

	json_decref(request);
	if (!line)
		return rc;
	if (strlen(line) >= NODE_REQUEST_MAX) {
		opt_failed(&cmd, "%s: too long", word);
	} else {
		o = ask_node(dirfd, (int)json_integer_value(json_object_get(node, "pid")), line,
			     &mute);
		if (!o)
			opt_failed(
				&cmd,
				"the node does not answer; roost kernel list shows whether the change was made");
		else if (json_object_get(o, "error"))
			opt_failed(&cmd, "%s%s%s", verb == UNLOAD ? word : "",
				   verb == UNLOAD ? ": " : "",
				   text_of(o, "error")); /* errors of files include the path */
		else
			rc = CLI_OK;
	}
	if (rc == CLI_OK && json)
		print_json(o);
	json_decref(o);
	free(line);
	return rc;
}

struct view {
	int dirfd;
	const char *where;
	json_t *before;
};

/* Prints the table once. Sets *end when the node has ended. */
static int look_again(void *ctx, double since, bool *end)
{
	struct view *v = ctx;
	json_t *node = ask_find_node(&cmd, v->dirfd, v->where);

	*end = !node;
	if (!node)
		return CLI_FAILED;
	if (json) {
		print_json(node);
	} else {
		watch_page(since);
		show_rates(node, v->before, since);
	}
	json_decref(v->before);
	v->before = node;
	return CLI_OK;
}

static int run_watch(const char *where)
{
	char err[600];
	struct view v = {.dirfd = shm_dir_open(err, sizeof(err)), .where = where};
	int rc;

	if (v.dirfd < 0)
		return opt_failed(&cmd, "%s", err);
	rc = watch_run(&watch, look_again, &v);
	json_decref(v.before);
	close(v.dirfd);
	return rc;
}

static int run(enum verb verb, const char *where, const char *what)
{
	char err[600];
	int dirfd = shm_dir_open(err, sizeof(err)), rc = CLI_FAILED;
	json_t *node;

	if (dirfd < 0)
		return opt_failed(&cmd, "%s", err);
	node = ask_find_node(&cmd, dirfd, where);
	if (node && what) {
		rc = change(dirfd, node, verb, what);
	} else if (node) {
		if (json)
			print_json(node);
		else
			show(node, verb);
		rc = CLI_OK;
	}
	json_decref(node);
	close(dirfd);
	return rc;
}

int cmd_kernel(int argc, char **argv)
{
	int at = opt_parse(&cmd, argc, argv, false), n = argc - at;
	enum verb verb = LIST;
	bool changes;

	if (at < 0)
		return at == OPT_HELP ? CLI_OK : CLI_USAGE;
	if (n == 0)
		return opt_usage(&cmd,
				 "the action is missing: list, stat, load, replace or unload");
	while (verb < VERBS && strcmp(verbs[verb], argv[at]) != 0)
		verb++;
	if (verb == VERBS)
		return opt_usage(&cmd, "'%s' is none of list, stat, load, replace, unload",
				 argv[at]);
	changes = verb >= LOAD;
	if (changes && n < 2)
		return opt_usage(&cmd, "%s needs %s", verbs[verb],
				 verb == UNLOAD ? "a kernel's name, or its op-code"
						: "a shared object");
	if (n > 2 + changes)
		return opt_usage(&cmd, "unexpected argument '%s'", argv[argc - 1]);
	if (watching && verb != STAT)
		return opt_usage(&cmd, "--watch is for stat");
	if (watch.looks && !watching)
		return opt_usage(&cmd, "--count is the number of looks of --watch: give both");
	if (watching)
		return run_watch(n == 2 ? argv[at + 1] : NULL);
	return run(verb, n == 2 + changes ? argv[at + 1] : NULL, changes ? argv[argc - 1] : NULL);
}
