/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Requests to etcd's JSON gateway (/v3/kv, /v3/lease, /v3/watch), and its answers. Pure functions.
 * Keys and values are base64 in both, and 64-bit numbers are strings.
 */
#ifndef ROOST_ETCD_ANSWER_H
#define ROOST_ETCD_ANSWER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ETCD_ANSWER_MAX (1u << 20) /* the most bytes of an answer */

struct etcd_value {
	uint64_t revision; /* revision of the key's last change; 0: the key does not exist */
	uint64_t lease;	   /* the lease of the key; 0: none */
	char *text;	   /* allocated text; NULL if the key does not exist */
	size_t len;
};

/* Returns the body of a request to read a key, or NULL without memory. The caller frees it. */
char *etcd_range_request(const char *key);
/*
 * Returns the body of a transaction: if the last change of `key` has this revision (0: the key does
 * not exist), and there is no key `gone` (NULL: no condition), it sets the key, and sets `mark` to
 * a number that distinguishes this transaction from others.
 */
char *etcd_put_request(const char *key, uint64_t revision, const char *text, size_t len,
		       const char *mark, uint64_t number, const char *gone);
/* Returns the body of a transaction that reads `key` if `mark` has this number. */
char *etcd_check_request(const char *key, const char *mark, uint64_t number);

/* Returns the body of a request to read the keys that begin with `key` and '/'. */
char *etcd_below_request(const char *key);
/*
 * Returns the body of a transaction that sets such a key with a lease if the last change of the key
 * has this revision (0: the key does not exist). The value is the time of the lease.
 */
char *etcd_member_request(const char *key, const char *name, uint64_t revision, uint64_t lease,
			  unsigned seconds);
/* Returns the body of a transaction that sets such a key only if it does not exist. */
char *etcd_lock_request(const char *key, const char *name, uint64_t lease);
/* Returns the body of a request to watch a key. The answer has a line for each change. */
char *etcd_watch_request(const char *key);
/* Return the bodies of requests to get a lease of some seconds, and to keep or revoke a lease. */
char *etcd_grant_request(unsigned seconds);
char *etcd_lease_request(uint64_t lease);

/*
 * Reads the answer to a range request. Returns 0, -ENOMEM, or -EBADMSG with a line in `why`. After
 * 0 the caller frees v->text.
 */
int etcd_range_answer(const char *body, size_t len, struct etcd_value *v, char *why,
		      size_t why_len);
/*
 * Reads the answer to a transaction. *done: the transaction took effect, at *revision. For
 * etcd_check_request(), *done means that the mark has the number, and *revision is that of the last
 * change of the key.
 */
int etcd_txn_answer(const char *body, size_t len, bool *done, uint64_t *revision, char *why,
		    size_t why_len);
/*
 * Reads the answer to a request to get or keep a lease. *seconds is 0 if the lease has expired.
 * Returns 0 or -EBADMSG as above.
 */
int etcd_lease_answer(const char *body, size_t len, uint64_t *lease, uint64_t *seconds, char *why,
		      size_t why_len);
/*
 * Calls `found` for each key of an answer to etcd_below_request(), with the part of the key after
 * `key` and '/', and with the value, or 0 if the value is no number of seconds. Returns 0 or
 * -EBADMSG.
 */
int etcd_below_answer(const char *body, size_t len, const char *key,
		      void (*found)(void *ctx, const char *name, unsigned seconds), void *ctx,
		      char *why, size_t why_len);
/*
 * Reads the whole lines at the start of `text`, which is an answer to etcd_watch_request(); *used
 * is their length. *changed: the watch has begun or the key has changed. Returns 0, or -EBADMSG if
 * a line is not one of etcd or ends the watch.
 */
int etcd_watch_lines(const char *text, size_t len, size_t *used, bool *changed);
/*
 * Copies the message of an error to `why`, as one line. Leaves `why` unchanged if the body has no
 * message.
 */
void etcd_error_answer(const char *body, size_t len, char *why, size_t why_len);

/*
 * Returns the milliseconds until the next look at a table, after this many requests in a row
 * without an answer. `watched`: changes are reported meanwhile.
 */
unsigned etcd_pause_ms(unsigned failures, bool watched);

#endif
