/* SPDX-License-Identifier: BSD-2-Clause */
#include "etcd/http.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "etcd/answer.h"

#define TIMEOUT_MS 2000L
#define STATUS_OK  200
#define STATUS_OWN 500 /* from here on: errors of one endpoint; another may answer */

/* Errors that pass, although they are among those of requests (RFC 9110, 15.5; RFC 6585, 4). */
#define STATUS_LATE	 408
#define STATUS_MANY	 429
#define STATUS_CANCELLED 499 /* of etcd's gateway */

struct http {
	const struct etcd_name *name;
	unsigned at; /* the endpoint for the next request */
	CURL *curl;
	struct curl_slist *head;
	char *body;
	size_t len;
};

static void begin_curl(void)
{
	curl_global_init(CURL_GLOBAL_DEFAULT);
}

static size_t collect(char *data, size_t one, size_t n, void *ctx)
{
	struct http *h = ctx;

	(void)one; /* always 1 */
	if (n > ETCD_ANSWER_MAX - h->len)
		return 0;
	memcpy(h->body + h->len, data, n);
	h->len += n;
	return n;
}

void http_begin(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, begin_curl);
}

struct http *http_open(const struct etcd_name *n)
{
	struct http *h = calloc(1, sizeof(*h));

	http_begin();
	if (!h)
		return NULL;
	h->name = n;
	h->body = malloc(ETCD_ANSWER_MAX);
	h->curl = curl_easy_init();
	h->head = curl_slist_append(NULL, "Content-Type: application/json");
	if (h->body && h->curl && h->head)
		return h;
	http_close(h);
	return NULL;
}

void http_close(struct http *h)
{
	if (!h)
		return;
	curl_easy_cleanup(h->curl);
	curl_slist_free_all(h->head);
	free(h->body);
	free(h);
}

const char *http_endpoint(const struct http *h)
{
	return h->name->endpoint[h->at];
}

void http_set_up(CURL *curl, const char *url, struct curl_slist *head)
{
	curl_easy_reset(curl); /* this keeps the connection */
	curl_easy_setopt(curl, CURLOPT_URL, url);
	curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
	curl_easy_setopt(curl, CURLOPT_PROXY, "");
	curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(curl, CURLOPT_HTTPHEADER, head);
}

static void set_up(struct http *h, const char *url, const char *body)
{
	http_set_up(h->curl, url, h->head);
	curl_easy_setopt(h->curl, CURLOPT_TIMEOUT_MS, TIMEOUT_MS);
	curl_easy_setopt(h->curl, CURLOPT_POSTFIELDS, body);
	curl_easy_setopt(h->curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)strlen(body));
	curl_easy_setopt(h->curl, CURLOPT_WRITEFUNCTION, collect);
	curl_easy_setopt(h->curl, CURLOPT_WRITEDATA, h);
}

/* Returns true if the server would refuse the request again. */
static bool is_refusal(long status)
{
	return status >= 400 && status < STATUS_OWN && status != STATUS_LATE &&
	       status != STATUS_MANY && status != STATUS_CANCELLED;
}

/* Sends a request to the present endpoint. *other: another endpoint may answer. */
static int post(struct http *h, const char *path, const char *body, bool *other, char *why,
		size_t why_len)
{
	char url[ETCD_ENDPOINT_MAX + 64];
	long status = 0;
	CURLcode rc;

	snprintf(url, sizeof(url), "%s%s", http_endpoint(h), path);
	set_up(h, url, body);
	h->len = 0;
	rc = curl_easy_perform(h->curl);
	*other = true;
	if (rc == CURLE_WRITE_ERROR) {
		snprintf(why, why_len, "the answer is longer than %u bytes", ETCD_ANSWER_MAX);
		return -EFBIG;
	}
	if (rc) {
		snprintf(why, why_len, "%s", curl_easy_strerror(rc));
		return rc == CURLE_OPERATION_TIMEDOUT ? -ETIMEDOUT : -EHOSTUNREACH;
	}
	curl_easy_getinfo(h->curl, CURLINFO_RESPONSE_CODE, &status);
	*other = status >= STATUS_OWN;
	if (status == STATUS_OK)
		return 0;
	snprintf(why, why_len, "HTTP status %ld", status);
	etcd_error_answer(h->body, h->len, why, why_len);
	return is_refusal(status) ? -EPERM : -EPROTO;
}

int http_post(struct http *h, const char *path, char *body, enum http_repeat repeat,
	      const char **answer, size_t *len, char *why, size_t why_len)
{
	unsigned tries = repeat == HTTP_REPEAT ? h->name->endpoints : 1;
	bool other = body;
	int rc = -ENOMEM;

	if (!body)
		snprintf(why, why_len, "%s", strerror(ENOMEM));
	while (other && tries--) {
		rc = post(h, path, body, &other, why, why_len);
		if (other)
			h->at = (h->at + 1) % h->name->endpoints;
	}
	free(body);
	*answer = h->body;
	*len = h->len;
	return rc;
}
