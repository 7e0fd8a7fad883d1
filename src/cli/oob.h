/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How the two sides of `roost perf` and `roost demo` talk beside the NIC: one JSON object a line,
 * over TCP between machines (docs/man/roost-perf.1, PROTOCOL) or a socket pair on one. Each object
 * has a "type".
 *
 * What comes in is a stranger's: lines are bounded, and readers check every member. Errors are
 * -errno with one line in `err`, ready to be shown.
 */
#ifndef ROOST_CLI_OOB_H
#define ROOST_CLI_OOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#define OOB_TCP_PORT 4790 /* one below RoCE's 4791, and TCP */
#define OOB_MAX_LINE (1u << 20)
#define OOB_ERR_LEN  256

struct oob {
	int fd;
	char *buf;
	size_t len, cap;
	char err[OOB_ERR_LEN];
};

void oob_init(struct oob *o, int fd);
void oob_close(struct oob *o);

/* A connected TCP socket to "HOST[:PORT]" or "[V6]:PORT", or -errno. */
int oob_connect(const char *where, uint64_t timeout_ns, char *err, size_t errlen);
/*
 * Waits for one peer on `port` (of `bind_to`, or all addresses when NULL). Calls listening() once
 * it listens.
 */
int oob_accept(const char *bind_to, unsigned port, void (*listening)(void *), void *arg, char *err,
	       size_t errlen);

/* Sends one object, and drops the reference to it. 0 or -errno. */
int oob_send(struct oob *o, json_t *msg);
/*
 * Waits for an object of type `type`; UINT64_MAX: for ever. NULL on time-out, a closed connection,
 * or an object of another type: o->err says which; of "error" objects it is their message. The
 * caller drops it.
 */
json_t *oob_recv(struct oob *o, const char *type, uint64_t timeout_ns);
/*
 * True when oob_recv would not block for long: a line, or the peer's end. One system call at most.
 */
bool oob_ready(struct oob *o);

/* Tells the peer why it ends. */
void oob_send_error(struct oob *o, const char *msg);

/* True when the peer has sent an "error" that nobody read: it is in o->err now. Does not wait. */
bool oob_peer_failed(struct oob *o);

/*
 * Members with bounds: false, with o->err set, when they are absent, of another kind, or outside.
 */
bool oob_get_u64(struct oob *o, const json_t *msg, const char *key, uint64_t max, uint64_t *v);
bool oob_get_bool(struct oob *o, const json_t *msg, const char *key, bool *v);
/* Times all waits between the two sides are multiplied with: ROOST_TIMEOUT_SCALE, at least 1. */
unsigned oob_timeout_scale(void);

#endif
