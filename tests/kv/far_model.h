/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A far tier in virtual time, for tests. A request ends some time after its start, so requests end
 * in another order than they started. Waiting moves the time on to the next end, and polling by 1.
 * Only lines that were written are read. While it is stopped no request ends, and a wait aborts.
 */
#ifndef ROOST_TESTS_KV_FAR_MODEL_H
#define ROOST_TESTS_KV_FAR_MODEL_H

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "kv/far.h"

#ifdef __SANITIZE_ADDRESS__
/*
 * An access to a missing line ends in longjmp(), after which ASan searches all frames that its fake
 * stack may have. These programs need few: with the default of 1 MiB, the search takes most of
 * their time.
 */
__attribute__((visibility("default"))) const char *__asan_default_options(void);

const char *__asan_default_options(void)
{
	return "max_uar_stack_size_log=16";
}
#endif

struct far_model {
	struct kv_far far;
	uint64_t now;		   /* virtual */
	uint64_t least, most;	   /* time of a request */
	uint64_t stuck, stuck_num; /* lines whose reads take `stuck_by` longer */
	uint64_t stuck_by;
	uint64_t fail_at; /* the request that fails; 0: none */
	uint64_t started;
	bool stopped;
	struct rng rng;
	uint8_t **lines;
	uint64_t num_lines, size;
	struct {
		struct kv_far_request *r;
		uint64_t at;
	} busy[KV_FAR_REQUESTS];
	unsigned num_busy;
	bool closed;
};

static inline int far_model_open(struct kv_far *far, uint64_t size)
{
	struct far_model *m = (struct far_model *)far;

	m->size = size;
	return 0;
}

static inline void far_model_start(struct kv_far *far, struct kv_far_request *r)
{
	struct far_model *m = (struct far_model *)far;
	uint64_t end = m->now + m->least + rng_below(&m->rng, m->most - m->least + 1);

	if (!m->lines) {
		m->num_lines = m->size / r->len;
		m->lines = calloc(m->num_lines, sizeof(*m->lines));
	}
	if (!m->lines || m->num_busy == KV_FAR_REQUESTS || r->offset != r->line * r->len ||
	    r->line >= m->num_lines)
		abort();
	if (!r->write && r->line - m->stuck < m->stuck_num)
		end += m->stuck_by;
	m->busy[m->num_busy].r = r;
	m->busy[m->num_busy++].at = end;
	m->started++;
}

static inline void far_model_end(struct far_model *m, struct kv_far_request *r)
{
	uint8_t **line = &m->lines[r->line];

	r->result = 0;
	if (m->fail_at && m->started >= m->fail_at) {
		r->result = -EBADMSG;
	} else if (r->write) {
		if (!*line)
			*line = malloc(r->len);
		memcpy(*line, r->data, r->len);
	} else {
		if (!*line)
			abort();
		memcpy(r->data, *line, r->len);
	}
}

static inline struct kv_far_request *far_model_poll(struct kv_far *far, bool wait)
{
	struct far_model *m = (struct far_model *)far;
	struct kv_far_request *list = NULL;
	uint64_t next = UINT64_MAX;

	if (m->stopped && wait)
		abort();
	if (m->stopped)
		return NULL;
	for (unsigned i = 0; i < m->num_busy; i++)
		if (m->busy[i].at < next)
			next = m->busy[i].at;
	if (!wait)
		m->now++;
	else if (m->num_busy && next > m->now)
		m->now = next;
	for (unsigned i = 0; i < m->num_busy;) {
		struct kv_far_request *r = m->busy[i].r;

		if (m->busy[i].at > m->now) {
			i++;
			continue;
		}
		m->busy[i] = m->busy[--m->num_busy];
		far_model_end(m, r);
		r->next = list;
		list = r;
	}
	return list;
}

/* The model itself is the caller's. */
static inline void far_model_close(struct kv_far *far)
{
	struct far_model *m = (struct far_model *)far;

	for (uint64_t i = 0; m->lines && i < m->num_lines; i++)
		free(m->lines[i]);
	free(m->lines);
	m->lines = NULL;
	m->closed = true;
}

static inline void far_model_init(struct far_model *m, uint64_t least, uint64_t most)
{
	*m = (struct far_model){
		.far = {far_model_open, far_model_start, far_model_poll, far_model_close},
		.least = least,
		.most = most};
	rng_seed(&m->rng, 77);
}

#endif
