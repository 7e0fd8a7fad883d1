/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * When a program gets and renews a lease, and until when it may rely on it. The caller sends the
 * requests, and says when it sent them. Pure, but for the fence that it moves.
 *
 * etcd ends a lease when its time has passed since etcd received the last renewal, which is later
 * than the program sent it. So the lease lasts at least until its time has passed since the renewal
 * was sent, if the clocks of both run equally fast; a fifth of the time is for clocks that do not.
 * Nobody takes partitions from a node as long as its lease lasts. A node without a lease gets a new
 * one, sets its key with it, and then reads the table, which others may have changed.
 *
 * A lease is used until a renewal shows that it has ended, also if the key could not be set: that
 * request may arrive late, and would give the key an older lease than the node renews.
 */
#ifndef ROOST_ETCD_TENURE_H
#define ROOST_ETCD_TENURE_H

#include <stdbool.h>
#include <stdint.h>

#include "kvwire/fence.h"

enum tenure_step {
	TENURE_REST,	 /* nothing is due */
	TENURE_GRANT,	 /* get a lease */
	TENURE_REGISTER, /* set the key with the lease */
	TENURE_RENEW,
};

struct tenure {
	struct kv_fence *fence; /* of a node, or NULL */
	unsigned want_s;	/* the time of the lease to ask for */
	uint64_t id;		/* of the lease; 0: none */
	bool registered;	/* the key is set with the lease */
	bool doubt;		/* it could not be set: is there a lease still? */
	bool current;		/* the table was read after that */
	uint64_t end_ns;	/* until then the lease is certain */
	uint64_t due_ns;	/* for the next renewal */
};

void tenure_init(struct tenure *t, unsigned seconds, struct kv_fence *fence);
enum tenure_step tenure_next(const struct tenure *t, uint64_t now_ns);

/* What was answered. `sent_ns` is a time before the request was sent. */
void tenure_granted(struct tenure *t, uint64_t sent_ns, uint64_t id, uint64_t seconds);
void tenure_registered(struct tenure *t);
void tenure_refused(struct tenure *t); /* the key was not set, or there was no answer */
/* `seconds` is 0 if the lease has ended. */
void tenure_renewed(struct tenure *t, uint64_t sent_ns, uint64_t seconds);
/*
 * This version of the table was read. The request was sent after the last call of another function.
 */
void tenure_read(struct tenure *t, uint64_t version);
/* The lease is given back. */
void tenure_lost(struct tenure *t);

#endif
