/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Requests over HTTP to one of several endpoints. They block, so threads that run a NIC must not
 * use them.
 */
#ifndef ROOST_ETCD_HTTP_H
#define ROOST_ETCD_HTTP_H

#include <stddef.h>

#include <curl/curl.h>

#include "etcd/name.h"

struct http; /* a connection that stays open; one thread at a time may use it */

/*
 * Tells whether a request may be executed twice. If an endpoint does not answer, such a request
 * goes to the other endpoints.
 */
enum http_repeat { HTTP_ONCE, HTTP_REPEAT };

void http_begin(void); /* call it before the first handle of libcurl; any thread */
/* Sets the options that all requests have, and no others. */
void http_set_up(CURL *curl, const char *url, struct curl_slist *head);

/*
 * Opens a connection. `n` must remain valid as long as the connection. Returns NULL without
 * memory.
 */
struct http *http_open(const struct etcd_name *n);
void http_close(struct http *h);
/* Returns the endpoint of the next request. */
const char *http_endpoint(const struct http *h);
/*
 * Sends a body to a path of an endpoint, frees the body, and waits at most two seconds for the
 * answer of each endpoint. Returns 0 with the answer, which is valid until the next call; or
 * -EHOSTUNREACH, -ETIMEDOUT, -EFBIG, -EPERM (the server refuses the request, and would refuse it
 * again), -EPROTO (another status than 200), -ENOMEM (also if `body` is NULL), with a line in
 * `why`. The next request begins with the endpoint that answered, or after the endpoint that did
 * not answer. If there was no answer, the request may have been executed.
 */
int http_post(struct http *h, const char *path, char *body, enum http_repeat repeat,
	      const char **answer, size_t *len, char *why, size_t why_len);

#endif
