/* SPDX-License-Identifier: BSD-2-Clause */
/* Queries running nodes (`roost node`) of this user at their control sockets (node/control.h). */
#ifndef ROOST_CLI_ASK_NODE_H
#define ROOST_CLI_ASK_NODE_H

#include <jansson.h>
#include <stdbool.h>

#include "cli/options.h"

/* Sends a request to the node with this process id; see ask(). */
json_t *ask_node(int dirfd, int pid, const char *request, bool *mute);
/*
 * Finds the only node with this process id, address or name, or the only node if `word` is NULL,
 * and returns its description. Returns NULL after `cmd` has printed an error.
 */
json_t *ask_find_node(const struct opt_command *cmd, int dirfd, const char *word);

#endif
