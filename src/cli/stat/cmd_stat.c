/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * `roost stat`: prints counters of running NICs, which it reads from their stat sockets
 * (src/drive/stat.c).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jansson.h>

#include "cli/ask.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/stat/print.h"
#include "cli/watch.h"
#include "port/shm_dir.h"

#define ANSWER_MS 2000

static bool all, json, prometheus, watching;
static struct watch watch = {.every = 1};

static const struct opt opts[] = {
	OPT_SWITCH("all", 'a', &all, "counters that are zero, too"),
	OPT_VALUE("watch", 'w', OPT_NUMBER, &watch.every, "S", "again every S seconds, with rates",
		  .min = 0.05, .max = 86400, .given = &watching),
	OPT_VALUE("count", 'n', OPT_COUNT, &watch.looks, "N", "watch: N times (until interrupted)",
		  .min = 1, .max = 1e9),
	OPT_SWITCH("prometheus", 0, &prometheus, "in the text format of Prometheus"),
	OPT_SWITCH("json", 'j', &json, "one JSON object on stdout, everything in it"),
	OPT_END};

static const struct opt_command cmd = {
	.name = "stat",
	.synopsis = "[--all] [--watch S] [--json | --prometheus] [PID | PROGRAM]...",
	.about =
		"Prints the counters of your running NICs: of all, or of those in the processes named. A NIC\n"
		"answers only the user that its process belongs to.",
	.opts = opts,
	.examples = "  roost run -- ib_write_bw & sleep 1; roost stat\n"
		    "  roost stat ib_write_bw --all\n"
		    "  roost stat --watch 1\n"
		    "  roost stat --json | jq '.nics[].counters.retransmitted_pkts'\n",
};

/* ---- choosing ---- */

static const char *program_of(const json_t *nic)
{
	const char *s = json_string_value(json_object_get(nic, "program"));

	return s ? s : "?";
}

/* Returns true if an operand names the NIC. Records which operands matched. */
static bool wanted(char **names, bool *used, int n, int pid, const char *program)
{
	char number[16];
	bool hit = n == 0;

	snprintf(number, sizeof(number), "%d", pid);
	for (int i = 0; i < n; i++) {
		if (strcmp(names[i], number) == 0 || (program && strcmp(names[i], program) == 0))
			hit = used[i] = true;
	}
	return hit;
}

static json_t *collect(int dirfd, char **names, bool *used, int n, int *rc)
{
	json_t *nics = json_array();
	int *pids;
	unsigned count = ask_list(dirfd, "stat.", &pids);

	for (unsigned i = 0; i < count; i++) {
		char name[SHM_NAME_MAX];
		json_t *nic;
		bool mute;

		snprintf(name, sizeof(name), "stat.%d", pids[i]);
		nic = ask(dirfd, name, NULL, ANSWER_MS, &mute);
		if (nic && wanted(names, used, n, pids[i], program_of(nic))) {
			json_array_append(nics, nic);
		} else if (!nic && mute && wanted(names, used, n, pids[i], NULL)) {
			*rc = opt_failed(
				&cmd,
				"process %d does not answer, or not with counters; is it stopped? (kill -CONT %d)",
				pids[i], pids[i]);
		}
		json_decref(nic);
	}
	free(pids);
	return nics;
}

/*
 * Reads all NICs that the user asked for. Returns NULL when memory is exhausted; *rc is the exit
 * status.
 */
static json_t *look(int dirfd, char **names, int n, int *rc)
{
	bool *used = calloc((size_t)n + 1, sizeof(*used));
	json_t *nics = used ? collect(dirfd, names, used, n, rc) : NULL;

	for (int i = 0; nics && i < n; i++) {
		if (!used[i])
			*rc = opt_failed(
				&cmd,
				"no running NIC of yours is in a process '%s'; roost stat lists them",
				names[i]);
	}
	free(used);
	if (!nics)
		*rc = opt_failed(&cmd, "out of memory");
	return nics;
}

static void print(json_t *nics, const json_t *before, double since, int rc)
{
	json_t *top;

	if (json) {
		top = json_pack("{s:s,s:O}", "tool", "stat", "nics", nics);
		json_dumpf(top, stdout, JSON_COMPACT | JSON_ENSURE_ASCII);
		putchar('\n');
		json_decref(top);
	} else if (prometheus) {
		stat_print_prometheus(nics);
	} else if (json_array_size(nics)) {
		stat_print_tables(nics, before, since, all);
	} else if (rc == CLI_OK) {
		printf("no NIC of yours is running\n");
	}
}

struct view {
	int dirfd, n;
	char **names;
	json_t *before;
};

/* NICs may appear and disappear during --watch; neither ends it. */
static int look_again(void *ctx, double since, bool *end)
{
	struct view *v = ctx;
	int rc = CLI_OK;
	json_t *nics = look(v->dirfd, v->names, v->n, &rc);

	*end = !nics;
	if (!nics)
		return rc;
	if (!json)
		watch_page(since);
	print(nics, v->before, since, rc);
	json_decref(v->before);
	v->before = nics;
	return rc;
}

int cmd_stat(int argc, char **argv)
{
	int at = opt_parse(&cmd, argc, argv, false), rc = CLI_OK, dirfd;
	char err[600];
	json_t *nics;

	if (at < 0)
		return at == OPT_HELP ? CLI_OK : CLI_USAGE;
	if (json && prometheus)
		return opt_usage(&cmd,
				 "--json and --prometheus are two forms of the same: choose one");
	if (watch.looks && !watching)
		return opt_usage(&cmd, "--count says how often --watch looks: give both");
	dirfd = shm_dir_open(err, sizeof(err));
	if (dirfd < 0)
		return opt_failed(&cmd, "%s", err);
	if (watching) {
		struct view v = {dirfd, argc - at, argv + at, NULL};

		rc = watch_run(&watch, look_again, &v);
		json_decref(v.before);
	} else {
		nics = look(dirfd, argv + at, argc - at, &rc);
		if (nics)
			print(nics, NULL, 0, rc);
		json_decref(nics);
	}
	close(dirfd);
	return rc;
}
