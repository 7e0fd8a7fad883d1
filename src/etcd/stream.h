/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A watch of a key: an answer over HTTP that does not end and has a line of JSON for each
 * change.
 */
#ifndef ROOST_ETCD_STREAM_H
#define ROOST_ETCD_STREAM_H

#include <stdbool.h>
#include <stddef.h>

struct stream; /* one thread at a time, except for stream_wake() */

struct stream *stream_open(void); /* returns NULL without memory */
void stream_close(struct stream *s);
/*
 * Sends a body to an address, and frees the body. Gives up an earlier answer. Does not wait.
 * Returns false without memory.
 */
bool stream_start(struct stream *s, const char *url, char *body);
/*
 * Returns true when the watch begins or reports a change, and false when it ends, stream_wake() is
 * called, or this time has passed.
 */
bool stream_wait(struct stream *s, unsigned ms);
/* Returns whether the last stream_start() succeeded, and the answer has not ended since. */
bool stream_runs(const struct stream *s);
void stream_wake(struct stream *s); /* any thread */

#endif
