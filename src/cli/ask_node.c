/* SPDX-License-Identifier: BSD-2-Clause */
#include "cli/ask_node.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/ask.h"
#include "port/shm_dir.h"

#define ANSWER_MS 30000 /* a kernel's start() may be slow */

json_t *ask_node(int dirfd, int pid, const char *request, bool *mute)
{
	char name[SHM_NAME_MAX];

	snprintf(name, sizeof(name), "node.%d", pid);
	return ask(dirfd, name, request, ANSWER_MS, mute);
}

static bool is_called(const json_t *node, const char *word)
{
	const char *address = json_string_value(json_object_get(node, "address"));
	const char *name = json_string_value(json_object_get(node, "name"));
	char pid[24];

	snprintf(pid, sizeof(pid), "%" JSON_INTEGER_FORMAT,
		 json_integer_value(json_object_get(node, "pid")));
	return !word || strcmp(pid, word) == 0 || (address && strcmp(address, word) == 0) ||
	       (name && strcmp(name, word) == 0);
}

json_t *ask_find_node(const struct opt_command *cmd, int dirfd, const char *word)
{
	unsigned found = 0, mutes = 0, count;
	json_t *node = NULL, *o;
	bool mute;
	int *pids;

	count = ask_list(dirfd, "node.", &pids);
	for (unsigned i = 0; i < count; i++) {
		o = ask_node(dirfd, pids[i], "{\"do\":\"stat\"}", &mute);
		mutes += !o && mute;
		if (!o || !is_called(o, word)) {
			json_decref(o);
			continue;
		}
		found++;
		json_decref(node);
		node = o;
	}
	free(pids);
	if (found == 1)
		return node;
	json_decref(node);
	if (found)
		opt_failed(cmd,
			   "%u nodes are %s; name one by its process number: roost stat shows them",
			   found, word ? "called so" : "running");
	else if (mutes)
		opt_failed(cmd, "a node does not answer; is it stopped?");
	else if (word)
		opt_failed(cmd, "no running node of yours is '%s'; start one with roost node",
			   word);
	else
		opt_failed(cmd, "no node of yours is running; start one with roost node");
	return NULL;
}
