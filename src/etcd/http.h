/* SPDX-License-Identifier: BSD-2-Clause */
/* Requests over HTTP. They block: not for a thread of a NIC. */
#ifndef ROOST_ETCD_HTTP_H
#define ROOST_ETCD_HTTP_H

#include <stddef.h>

struct http; /* a connection that stays open; one thread at a time */

struct http *http_open(void); /* NULL: no memory */
void http_close(struct http *h);
/*
 * Sends a body, which it frees, and waits at most two seconds for the answer. Returns 0, with the
 * answer until the next call; or -EHOSTUNREACH, -ETIMEDOUT, -EFBIG, -EPROTO (a status other than
 * 200), -ENOMEM (also if `body` is NULL), with a line in `why`. If there was no answer, the request
 * may have been executed.
 */
int http_post(struct http *h, const char *url, char *body, const char **answer, size_t *len,
	      char *why, size_t why_len);

#endif
