/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The out-of-band connection between the two sides of `roost perf` and `roost demo`: one JSON
 * object a line, over TCP between machines (docs/man/roost-perf.1, PROTOCOL) or over a socket pair
 * on one machine. Each object has a "type".
 *
 * Input is untrusted: the length of lines is bounded, and readers check every member. Functions
 * return -errno on errors and store one line for the user in `err`.
 */
#ifndef ROOST_CLI_OOB_H
#define ROOST_CLI_OOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#define OOB_TCP_PORT 4790 /* RoCE's UDP port 4791, less one */
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

/* Connects a TCP socket to "HOST[:PORT]" or "[V6]:PORT". Returns the socket, or -errno. */
int oob_connect(const char *where, uint64_t timeout_ns, char *err, size_t errlen);
/*
 * Waits for one peer on `port` (of `bind_to`, or of all addresses when NULL). Calls listening() as
 * soon as the socket listens.
 */
int oob_accept(const char *bind_to, unsigned port, void (*listening)(void *), void *arg, char *err,
	       size_t errlen);

/* Sends one object and drops the reference to it. Returns 0 or -errno. */
int oob_send(struct oob *o, json_t *msg);
/*
 * Waits for an object of type `type` and returns it; the caller drops the reference. A timeout of
 * UINT64_MAX never expires. Returns NULL on a timeout, a closed connection, or an object of another
 * type; o->err tells which. For an "error" object o->err is the message of the peer.
 */
json_t *oob_recv(struct oob *o, const char *type, uint64_t timeout_ns);
/*
 * Returns true when oob_recv() would not block for long, because a line or the end of the
 * connection is there. Makes at most one system call.
 */
bool oob_ready(struct oob *o);

/* Sends the peer the reason for the end of the session. */
void oob_send_error(struct oob *o, const char *msg);

/*
 * Returns true when the peer has sent an "error" that was not read yet, and stores its message in
 * o->err. Does not wait.
 */
bool oob_peer_failed(struct oob *o);

/*
 * Get a member and check its bounds. Return false and set o->err when the member is absent, has
 * another type or is out of bounds.
 */
bool oob_get_u64(struct oob *o, const json_t *msg, const char *key, uint64_t max, uint64_t *v);
bool oob_get_bool(struct oob *o, const json_t *msg, const char *key, bool *v);
/* Returns the factor for all timeouts between the two sides: ROOST_TIMEOUT_SCALE, at least 1. */
unsigned oob_timeout_scale(void);

#endif
