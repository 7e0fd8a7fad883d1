/* SPDX-License-Identifier: BSD-2-Clause */
/* `roost kv snapshot`: asks a node of this machine for a snapshot, at its control socket. */
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "cli/ask_node.h"
#include "cli/commands.h"
#include "cli/kv/kv.h"
#include "port/shm_dir.h"

#define LOOK_MS 20

/* Waits until the node has ended the snapshot that began as number `begun`. */
static int wait_for(const struct opt_command *cmd, int dirfd, int pid, json_int_t begun)
{
	const json_t *s;
	json_t *node;
	bool mute;
	int rc = -1;

	while (rc < 0) {
		node = ask_node(dirfd, pid, "{\"do\":\"stat\"}", &mute);
		s = json_object_get(json_object_get(node, "kv"), "snapshot");
		if (!s)
			rc = opt_failed(
				cmd,
				"the node has ended; its file shows whether the snapshot was written");
		else if (json_integer_value(json_object_get(s, "begun")) == begun &&
			 json_is_true(json_object_get(s, "running")))
			nanosleep(&(struct timespec){.tv_nsec = LOOK_MS * 1000000}, NULL);
		else if (json_object_get(s, "error"))
			rc = opt_failed(cmd, "%s: %s",
					json_string_value(json_object_get(s, "file")),
					json_string_value(json_object_get(s, "error")));
		else
			rc = CLI_OK;
		json_decref(node);
	}
	return rc;
}

static int ask_for(const struct opt_command *cmd, int dirfd, int pid)
{
	bool mute;
	json_t *o = ask_node(dirfd, pid, "{\"do\":\"snapshot\"}", &mute);
	int rc;

	if (!o)
		rc = opt_failed(cmd, "the node does not answer");
	else if (json_object_get(o, "error"))
		rc = opt_failed(cmd, "%s", json_string_value(json_object_get(o, "error")));
	else
		rc = wait_for(cmd, dirfd, pid, json_integer_value(json_object_get(o, "begun")));
	json_decref(o);
	return rc;
}

int kv_snapshot(const struct opt_command *cmd, const char *where)
{
	char err[600];
	int dirfd = shm_dir_open(err, sizeof(err)), rc = CLI_FAILED;
	json_t *node;

	if (dirfd < 0)
		return opt_failed(cmd, "%s", err);
	node = ask_find_node(cmd, dirfd, where);
	if (node)
		rc = ask_for(cmd, dirfd, (int)json_integer_value(json_object_get(node, "pid")));
	json_decref(node);
	close(dirfd);
	return rc;
}
