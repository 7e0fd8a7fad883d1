/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Asking running processes of ours at their sockets in the private folder (port/shm_dir.h), each
 * named after its process: "stat.1234".
 */
#ifndef ROOST_CLI_ASK_H
#define ROOST_CLI_ASK_H

#include <jansson.h>
#include <stdbool.h>

/*
 * The processes that have a socket of the kind `prefix` ("stat."), in order; *pids is the caller's
 * to free.
 */
unsigned ask_list(int dirfd, const char *prefix, int **pids);

/*
 * The JSON object that the process answers; NULL: it is no more, or, with *mute, says nothing
 * sensible within answer_ms. `request`: what it is asked, a line without its end; NULL: it answers
 * whoever connects.
 */
json_t *ask(int dirfd, const char *name, const char *request, int answer_ms, bool *mute);

#endif
