/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Queries running Roost processes at their sockets in the private folder (port/shm_dir.h). A socket
 * is named after its process: "stat.1234".
 */
#ifndef ROOST_CLI_ASK_H
#define ROOST_CLI_ASK_H

#include <jansson.h>
#include <stdbool.h>

/*
 * Returns the number of processes that have a socket of the kind `prefix` ("stat."), and their ids
 * in ascending order in *pids, which the caller frees.
 */
unsigned ask_list(int dirfd, const char *prefix, int **pids);

/*
 * Sends `request`, a line without its end, to the process and returns the JSON object that it
 * answers. `request` is NULL if the process answers without a request. Returns NULL if the process
 * has ended or, with *no_answer set, if it does not answer with a JSON object within answer_ms.
 */
json_t *ask(int dirfd, const char *name, const char *request, int answer_ms, bool *no_answer);

/*
 * The answer of a program that needs no request. The caller sets `fd` to the connection, or to a
 * negative number if there is no program.
 */
struct ask_answer {
	int fd;
	char *text; /* the whole answer, which the caller frees; NULL: none in time */
	size_t have, space;
};

/*
 * Reads the answers of all connections at once, for answer_ms at most, and closes the connections.
 * A connection that was reset has an empty answer.
 */
void ask_read_all(struct ask_answer *a, unsigned n, int answer_ms);

#endif
