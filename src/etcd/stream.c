/* SPDX-License-Identifier: BSD-2-Clause */
#include "etcd/stream.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <curl/curl.h>

#include "etcd/answer.h"
#include "etcd/http.h"

#define CONNECT_MS 2000L
#define IDLE_S	   5L /* after this idle time TCP checks whether the other end is there */

struct stream {
	CURLM *multi;
	CURL *curl;
	struct curl_slist *head;
	bool runs;
	char *text; /* text that was not read yet */
	size_t len;
};

static size_t collect(char *data, size_t one, size_t n, void *ctx)
{
	struct stream *s = ctx;

	(void)one; /* always 1 */
	if (n > ETCD_ANSWER_MAX - s->len)
		return 0; /* a line that is too long ends the answer */
	memcpy(s->text + s->len, data, n);
	s->len += n;
	return n;
}

struct stream *stream_open(void)
{
	struct stream *s = calloc(1, sizeof(*s));

	http_begin();
	if (!s)
		return NULL;
	s->text = malloc(ETCD_ANSWER_MAX);
	s->multi = curl_multi_init();
	s->curl = curl_easy_init();
	s->head = curl_slist_append(NULL, "Content-Type: application/json");
	if (s->text && s->multi && s->curl && s->head)
		return s;
	stream_close(s);
	return NULL;
}

static void leave(struct stream *s)
{
	if (s->runs)
		curl_multi_remove_handle(s->multi, s->curl);
	s->runs = false;
	s->len = 0;
}

void stream_close(struct stream *s)
{
	if (!s)
		return;
	leave(s);
	curl_easy_cleanup(s->curl);
	curl_multi_cleanup(s->multi);
	curl_slist_free_all(s->head);
	free(s->text);
	free(s);
}

bool stream_start(struct stream *s, const char *url, char *body)
{
	leave(s);
	if (!body)
		return false;
	http_set_up(s->curl, url, s->head);
	curl_easy_setopt(s->curl, CURLOPT_CONNECTTIMEOUT_MS, CONNECT_MS);
	curl_easy_setopt(s->curl, CURLOPT_TCP_KEEPALIVE, 1L);
	curl_easy_setopt(s->curl, CURLOPT_TCP_KEEPIDLE, IDLE_S);
	curl_easy_setopt(s->curl, CURLOPT_TCP_KEEPINTVL, 1L);
	curl_easy_setopt(s->curl, CURLOPT_COPYPOSTFIELDS, body);
	curl_easy_setopt(s->curl, CURLOPT_WRITEFUNCTION, collect);
	curl_easy_setopt(s->curl, CURLOPT_WRITEDATA, s);
	free(body);
	s->runs = !curl_multi_add_handle(s->multi, s->curl);
	return s->runs;
}

/* Reads the lines that have arrived. Returns whether a line says that the key may have changed. */
static bool take_lines(struct stream *s)
{
	bool changed = false;
	size_t used;

	if (etcd_watch_lines(s->text, s->len, &used, &changed)) {
		leave(s);
		return false;
	}
	s->len -= used;
	memmove(s->text, s->text + used, s->len);
	return changed;
}

bool stream_wait(struct stream *s, unsigned ms)
{
	int running, left;
	CURLMsg *m;

	if (curl_multi_poll(s->multi, NULL, 0, (int)ms, NULL)) /* no memory: it did not wait */
		nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
	if (!s->runs)
		return false;
	curl_multi_perform(s->multi, &running);
	if (take_lines(s))
		return true;
	m = s->runs ? curl_multi_info_read(s->multi, &left) : NULL;
	if (m && m->msg == CURLMSG_DONE)
		leave(s);
	return false;
}

bool stream_runs(const struct stream *s)
{
	return s->runs;
}

void stream_wake(struct stream *s)
{
	curl_multi_wakeup(s->multi);
}
