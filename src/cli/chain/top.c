/* SPDX-License-Identifier: BSD-2-Clause */
/* `roost chain top`: the chains of the running NICs, which their stat sockets show. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jansson.h>

#include "cli/ask.h"
#include "cli/chain/chain.h"
#include "cli/commands.h"
#include "port/shm_dir.h"

#define ANSWER_MS 2000

struct view {
	const struct opt_command *cmd;
	bool json;
	int dirfd;
	json_t *before;
};

static json_t *collect(int dirfd)
{
	json_t *all = json_array();
	int *pids;
	unsigned n = ask_list(dirfd, "stat.", &pids);

	for (unsigned i = 0; i < n; i++) {
		char name[SHM_NAME_MAX];
		json_t *nic, *chains;
		bool mute;

		snprintf(name, sizeof(name), "stat.%d", pids[i]);
		nic = ask(dirfd, name, NULL, ANSWER_MS, &mute);
		chains = json_object_get(nic, "chains");
		if (json_integer_value(json_object_get(chains, "queues")))
			json_array_append_new(
				all, json_pack("{s:i,s:O,s:O}", "pid", pids[i], "program",
					       json_object_get(nic, "program"), "chains", chains));
		json_decref(nic);
	}
	free(pids);
	return all;
}

/* Returns the count of the same queue in the previous sample, or -1 if there was none. */
static json_int_t count_before(const json_t *before, int pid, json_int_t qp)
{
	const json_t *o, *q;
	size_t i, k;

	json_array_foreach(before, i, o)
	{
		if (json_integer_value(json_object_get(o, "pid")) != pid)
			continue;
		json_array_foreach(
			json_object_get(json_object_get(o, "chains"), "most_executed"), k,
			q) if (json_integer_value(json_object_get(q, "qp")) ==
			       qp) return json_integer_value(json_object_get(q, "executed"));
	}
	return -1;
}

static void print_process(const json_t *o, const json_t *before, double since)
{
	const json_t *chains = json_object_get(o, "chains"), *q;
	const json_t *list = json_object_get(chains, "most_executed");
	int pid = (int)json_integer_value(json_object_get(o, "pid"));
	size_t i;

	json_array_foreach(list, i, q)
	{
		json_int_t qp = json_integer_value(json_object_get(q, "qp"));
		json_int_t now = json_integer_value(json_object_get(q, "executed"));
		json_int_t was = count_before(before, pid, qp);
		char rate[32] = "-";

		if (was >= 0 && since > 0)
			snprintf(rate, sizeof(rate), "%.0f", (double)(uint32_t)(now - was) / since);
		printf("%8d  %-16.16s  %08x  %2d  %-10s  %12lld  %12s\n", pid,
		       json_string_value(json_object_get(o, "program")), (unsigned)qp,
		       (int)json_integer_value(json_object_get(q, "pu")),
		       json_string_value(json_object_get(q, "state")), (long long)now, rate);
	}
	if (json_integer_value(json_object_get(chains, "queues")) >
	    (json_int_t)json_array_size(list))
		printf("%8d  ... of %lld queues\n", pid,
		       (long long)json_integer_value(json_object_get(chains, "queues")));
}

static int look(void *ctx, double since, bool *end)
{
	struct view *v = ctx;
	json_t *all = collect(v->dirfd), *o;
	size_t i;

	*end = false;
	if (v->json) {
		o = json_pack("{s:s,s:O}", "tool", "chain top", "processes", all);
		json_dumpf(o, stdout, JSON_COMPACT | JSON_ENSURE_ASCII);
		putchar('\n');
		json_decref(o);
	} else {
		watch_page(since);
		if (json_array_size(all))
			printf("%8s  %-16s  %-8s  %2s  %-10s  %12s  %12s\n", "PID", "program", "QP",
			       "PU", "state", "WQEs", "WQEs/s");
		else
			printf("no chains of yours are running\n");
		json_array_foreach(all, i, o) print_process(o, v->before, since);
	}
	json_decref(v->before);
	v->before = all;
	return CLI_OK;
}

int chain_top(const struct opt_command *cmd, const struct watch *watch, bool json)
{
	struct view v = {.cmd = cmd, .json = json};
	char err[600];
	int rc;

	v.dirfd = shm_dir_open(err, sizeof(err));
	if (v.dirfd < 0)
		return opt_failed(cmd, "%s", err);
	rc = watch_run(watch, look, &v);
	json_decref(v.before);
	close(v.dirfd);
	return rc;
}
