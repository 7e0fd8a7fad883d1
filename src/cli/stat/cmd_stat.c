/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * `roost stat`: lists the addresses and their programs, and prints the counters of their NICs,
 * which it reads from their stat sockets (src/drive/stat.c).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jansson.h>

#include "cli/commands.h"
#include "cli/options.h"
#include "cli/programs.h"
#include "cli/stat/print.h"
#include "cli/watch.h"
#include "port/shm_dir.h"

static bool all, json, prometheus, watching, brief;
static const char *program;
static struct watch watch = {.every = 1};

static const struct opt opts[] = {
	OPT_VALUE("program", 'p', OPT_STRING, &program, "PROGRAM",
		  "only this process, by id or name (as an operand)"),
	OPT_SWITCH("brief", 'b', &brief, "print only the list of addresses and programs"),
	OPT_SWITCH("all", 'a', &all, "print counters that are zero, too"),
	OPT_VALUE("watch", 'w', OPT_NUMBER, &watch.every, "S", "again every S seconds, with rates",
		  .min = 0.05, .max = 86400, .given = &watching),
	OPT_VALUE("count", 'n', OPT_COUNT, &watch.looks, "N", "watch: N times (until interrupted)",
		  .min = 1, .max = 1e9),
	OPT_SWITCH("prometheus", 0, &prometheus, "in the text format of Prometheus"),
	OPT_SWITCH("json", 'j', &json, "print everything as one JSON object"),
	OPT_END};

static const struct opt_command cmd = {
	.name = "stat",
	.synopsis = "[--brief | --all] [--watch S] [--json | --prometheus] [PID | PROGRAM]...",
	.about =
		"Lists the addresses of this machine and your programs there, with their slots, queue pairs,\n"
		"connections and rates, and prints the counters of their NICs: of all, or of those in the\n"
		"processes named. A NIC answers only the user that its process belongs to.",
	.opts = opts,
	.examples = "  roost run -- ib_write_bw & sleep 1; roost stat\n"
		    "  roost stat --brief --watch 1\n"
		    "  roost stat ib_write_bw --all\n"
		    "  roost stat --json | jq '.nics[].counters.retransmitted_pkts'\n",
};

/* The selection of programs: the folder, and the operands. */
struct view {
	int dirfd, n;
	char **names;
	struct programs before; /* the previous look; nics is NULL without one */
};

/* ---- choosing ---- */

/* Returns true if an operand names the program. Records which operands matched. */
static bool wanted(const struct view *v, bool *used, const json_t *o)
{
	bool hit = v->n == 0;

	for (int i = 0; i < v->n; i++) {
		if (programs_is(o, v->names[i]))
			hit = used[i] = true;
	}
	return hit;
}

/* Removes programs that were not asked for. */
static void choose(const struct view *v, bool *used, json_t *list)
{
	size_t i = 0;

	while (i < json_array_size(list)) {
		if (wanted(v, used, json_array_get(list, i)))
			i++;
		else
			json_array_remove(list, i);
	}
}

/*
 * Complains about silent programs that were named or have a socket in the folder: they should
 * answer.
 */
static void report_silent(const struct view *v, const json_t *silent, int *rc)
{
	const json_t *o;
	size_t i;

	json_array_foreach(silent, i, o)
	{
		long long pid = json_integer_value(json_object_get(o, "pid"));

		if (pid && (v->n || json_is_true(json_object_get(o, "folder"))))
			*rc = opt_failed(
				&cmd,
				"process %lld does not answer, or not with counters; is it stopped? (kill -CONT %lld)",
				pid, pid);
	}
}

/* Selects the programs that the user asked for. Returns false when memory is exhausted. */
static bool select_programs(const struct view *v, struct programs *p, int *rc)
{
	bool *used = calloc((size_t)v->n + 1, sizeof(*used));

	if (!used) {
		*rc = opt_failed(&cmd, "out of memory");
		return false;
	}
	choose(v, used, p->nics);
	choose(v, used, p->silent);
	report_silent(v, p->silent, rc);
	for (int i = 0; i < v->n; i++) {
		if (!used[i])
			*rc = opt_failed(
				&cmd,
				"no running NIC of yours is in a process '%s'; roost stat lists them",
				v->names[i]);
	}
	free(used);
	return true;
}

/* ---- printing ---- */

static void print_tables(const struct programs *p, const struct programs *before, json_t *rows,
			 int rc)
{
	if (json_array_size(rows)) {
		programs_print(rows);
		if (!brief && json_array_size(p->nics))
			putchar('\n');
	} else if (!json_array_size(p->nics) && rc == CLI_OK) {
		printf("no NIC of yours is running\n");
	}
	if (!brief)
		stat_print_tables(p->nics, watching && before ? before->nics : NULL,
				  before ? (double)(p->at - before->at) / 1e9 : 0, all);
}

/* Prints the counters. `before`: an earlier look, or NULL. */
static void print(const struct programs *p, const struct programs *before, int rc)
{
	json_t *top, *rows;

	if (prometheus) {
		stat_print_prometheus(p->nics, p->silent);
		return;
	}
	rows = programs_rows(p, before);
	if (json) {
		top = json_pack("{s:s,s:O,s:O}", "tool", "stat", "programs", rows, "nics", p->nics);
		json_dumpf(top, stdout, JSON_COMPACT | JSON_ENSURE_ASCII);
		putchar('\n');
		json_decref(top);
	} else {
		print_tables(p, before, rows, rc);
	}
	json_decref(rows);
}

/* Prints a look of --watch, which continues when NICs appear and disappear. */
static int look_again(void *ctx, double since, bool *end)
{
	struct view *v = ctx;
	struct programs now;
	int rc = CLI_OK;

	programs_look(v->dirfd, PROGRAMS_ANSWER_MS, &now);
	*end = !select_programs(v, &now, &rc);
	if (*end) {
		programs_free(&now);
		return rc;
	}
	if (!json)
		watch_page(since);
	print(&now, v->before.nics ? &v->before : NULL, rc);
	programs_free(&v->before);
	v->before = now;
	return rc;
}

/* Looks and prints once. Prometheus computes rates itself. */
static int look_once(struct view *v)
{
	struct programs now;
	int rc = CLI_OK;

	if (prometheus)
		programs_look(v->dirfd, PROGRAMS_ANSWER_MS, &now);
	else
		programs_look_twice(v->dirfd, &v->before, &now);
	if (select_programs(v, &now, &rc))
		print(&now, v->before.nics ? &v->before : NULL, rc);
	programs_free(&now);
	return rc;
}

/* Returns the operands, and the program of the option, or NULL when memory is exhausted. */
static char **chosen(int *n, char **names)
{
	char **list = calloc((size_t)*n + 1, sizeof(*list));

	if (!list)
		return NULL;
	memcpy(list, names, (size_t)*n * sizeof(*list));
	if (program)
		list[(*n)++] = (char *)(uintptr_t)program;
	return list;
}

int cmd_stat(int argc, char **argv)
{
	int at = opt_parse(&cmd, argc, argv, false), rc;
	struct view v = {0};
	char err[600];

	if (at < 0)
		return at == OPT_HELP ? CLI_OK : CLI_USAGE;
	if (json && prometheus)
		return opt_usage(&cmd,
				 "--json and --prometheus are two forms of the same: choose one");
	if (watch.looks && !watching)
		return opt_usage(&cmd, "--count is the number of looks of --watch: give both");
	v.dirfd = shm_dir_open(err, sizeof(err));
	if (v.dirfd < 0)
		return opt_failed(&cmd, "%s", err);
	v.n = argc - at;
	v.names = chosen(&v.n, argv + at);
	if (!v.names)
		return opt_failed(&cmd, "out of memory");
	rc = watching ? watch_run(&watch, look_again, &v) : look_once(&v);
	programs_free(&v.before);
	free(v.names);
	close(v.dirfd);
	return rc;
}
