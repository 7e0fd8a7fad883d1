/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Decides when a program gets and renews a lease, and until when the program may rely on it. The
 * caller sends the requests, and passes the times at which it sent them. The functions are pure,
 * except that they set the fence.
 *
 * etcd ends a lease when its time has passed since etcd received the last renewal, which is later
 * than the time at which the program sent it. The lease therefore lasts at least until its time has
 * passed since the renewal was sent, if both clocks run equally fast; a fifth of the time is
 * reserved for clocks that differ. No program takes partitions from a node as long as its lease
 * lasts. A node without a lease gets a new lease, sets its key with this lease, and then reads the
 * table, which other programs may have changed.
 *
 * A lease is used until a renewal shows that it has ended, even if the key could not be set: the
 * request to set the key may arrive late, and would give the key an older lease than the one that
 * the node renews.
 */
#ifndef ROOST_ETCD_TENURE_H
#define ROOST_ETCD_TENURE_H

#include <stdbool.h>
#include <stdint.h>

#include "kvwire/fence.h"

enum tenure_step {
	TENURE_REST,	 /* no request is due */
	TENURE_GRANT,	 /* get a lease */
	TENURE_REGISTER, /* set the key with the lease */
	TENURE_RENEW,
};

struct tenure {
	struct kv_fence *fence; /* fence of a node, or NULL */
	unsigned want_s;	/* the time of the lease to request */
	uint64_t id;		/* id of the lease; 0: none */
	bool registered;	/* the key is set with the lease */
	bool doubt;		/* the key could not be set: the lease may have ended */
	bool current;		/* the table was read after the key was set */
	uint64_t end_ns;	/* the time until which the lease is certain */
	uint64_t due_ns;	/* time of the next renewal */
};

void tenure_init(struct tenure *t, unsigned seconds, struct kv_fence *fence);
enum tenure_step tenure_next(const struct tenure *t, uint64_t now_ns);

/* Record that etcd granted a lease. `sent_ns` is a time before the request was sent. */
void tenure_granted(struct tenure *t, uint64_t sent_ns, uint64_t id, uint64_t seconds);
void tenure_registered(struct tenure *t);
void tenure_refused(struct tenure *t); /* records that the key was not set, or no answer */
/*
 * Records that the key does not have the lease any more, and closes the fence. The lease lasts; the
 * key is to be set again.
 */
void tenure_unregistered(struct tenure *t);
/* Records a renewal. `seconds` is 0 if the lease has ended. */
void tenure_renewed(struct tenure *t, uint64_t sent_ns, uint64_t seconds);
/*
 * Records that this version of the table was read. The request was sent after the last call of
 * another function of tenure.h.
 */
void tenure_read(struct tenure *t, uint64_t version);
/* Records that the lease was given back, and closes the fence. */
void tenure_lost(struct tenure *t);

#endif
