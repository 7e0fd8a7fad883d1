/* SPDX-License-Identifier: BSD-2-Clause */
/* Requests over HTTP to one of several endpoints. They block: not for a thread of a NIC. */
#ifndef ROOST_ETCD_HTTP_H
#define ROOST_ETCD_HTTP_H

#include <stddef.h>

#include <curl/curl.h>

#include "etcd/name.h"

struct http; /* a connection that stays open; one thread at a time */

/* Whether a request may be executed twice: if an endpoint does not answer, the others are asked. */
enum http_repeat { HTTP_ONCE, HTTP_REPEAT };

void http_begin(void); /* before the first handle of libcurl; any thread */
/* Sets the options that all requests have, and no others. */
void http_set_up(CURL *curl, const char *url, struct curl_slist *head);

/* `n` lasts as long as the connection. Returns NULL without memory. */
struct http *http_open(const struct etcd_name *n);
void http_close(struct http *h);
/* Returns the endpoint of the next request. */
const char *http_endpoint(const struct http *h);
/*
 * Sends a body, which it frees, to a path of an endpoint, and waits at most two seconds for the
 * answer of each. Returns 0, with the answer until the next call; or -EHOSTUNREACH, -ETIMEDOUT,
 * -EFBIG, -EPROTO (a status other than 200), -ENOMEM (also if `body` is NULL), with a line in `why`.
 * The next request begins with the endpoint that answered, or behind the one that did not. If there
 * was no answer, the request may have been executed.
 */
int http_post(struct http *h, const char *path, char *body, enum http_repeat repeat,
	      const char **answer, size_t *len, char *why, size_t why_len);

#endif
