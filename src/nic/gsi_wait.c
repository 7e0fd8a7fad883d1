/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Datagrams of QP 1 that wait for space in the port. A ring of shared memory never loses a packet,
 * but it can be full: a program that disconnects a thousand connections at once sends its datagrams
 * faster than a peer without a processor reads them. The senders of lost datagrams repeat them only
 * after seconds. So they wait here, in order for each destination, and leave in the PU's turns, as
 * the packets of queue pairs do.
 *
 * The number of waiting datagrams is bounded, for each destination and in total. A peer that never
 * reads loses its oldest datagrams, and does not take the place of others: in a full table, the
 * destination with most datagrams loses its oldest one.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "nic/datagram.h"
#include "nic/tx.h"

/* A datagram that waits. */
struct waiting {
	struct list_head link; /* in dest.gsi_waiting, or in gsi_wait.unused */
	uint8_t tclass;
	uint8_t mad[NIC_GSI_LEN];
};

struct gsi_wait {
	struct list_head dests; /* destinations with waiting datagrams; each has a reference */
	struct list_head unused;
	/* entries of `entry` that were used once; the memory of the others is untouched */
	unsigned used;
	struct waiting entry[NIC_GSI_WAITING];
};

static struct waiting *first_of(struct dest *d)
{
	return list_first_entry(&d->gsi_waiting, struct waiting, link);
}

/* Removes a datagram. The last one of a destination removes the destination. */
static void end_wait(struct gsi_wait *w, struct dest *d, struct waiting *m)
{
	list_del(&m->link);
	list_add(&m->link, &w->unused);
	if (--d->num_gsi_waiting)
		return;
	list_del(&d->gsi_link);
	/* the ICRC of the last packet may still be due, by the addresses in `d` */
	tx_finish_late(&d->pu->ports[d->port_index]);
	dest_put(d);
}

static void drop_oldest(struct gsi_wait *w, struct dest *d)
{
	d->pu->ctr.tx_management_dropped++;
	end_wait(w, d, first_of(d));
}

static struct dest *longest(const struct gsi_wait *w)
{
	struct dest *most = NULL;
	struct list_head *l;

	list_for_each (l, &w->dests) {
		struct dest *d = list_entry(l, struct dest, gsi_link);

		if (!most || d->num_gsi_waiting > most->num_gsi_waiting)
			most = d;
	}
	return most;
}

static struct gsi_wait *table(struct nic *nic)
{
	struct gsi_wait *w = nic->gsi_wait;

	if (w)
		return w;
	w = calloc(1, sizeof(*w));
	if (!w)
		return NULL;
	list_init(&w->dests);
	list_init(&w->unused);
	nic->gsi_wait = w;
	return w;
}

static struct waiting *get_entry(struct gsi_wait *w)
{
	struct waiting *m;

	if (list_empty(&w->unused) && w->used < NIC_GSI_WAITING)
		return &w->entry[w->used++];
	if (list_empty(&w->unused))
		drop_oldest(w, longest(w));
	m = list_first_entry(&w->unused, struct waiting, link);
	list_del(&m->link);
	return m;
}

int gsi_wait(struct pu *pu, struct dest *d, uint8_t tclass, const uint8_t *mad)
{
	struct gsi_wait *w = table(pu->nic);
	struct waiting *m;

	if (!w) {
		pu->ctr.tx_management_dropped++;
		return -EAGAIN;
	}
	if (d->num_gsi_waiting == NIC_GSI_WAITING_DEST)
		drop_oldest(w, d);
	m = get_entry(w);
	m->tclass = tclass;
	memcpy(m->mad, mad, NIC_GSI_LEN);
	if (!d->num_gsi_waiting++) {
		d->refs++;
		list_init(&d->gsi_waiting);
		list_add_tail(&d->gsi_link, &w->dests);
	}
	list_add_tail(&m->link, &d->gsi_waiting);
	pu->ctr.tx_management_waits++;
	pu->stuck = true;
	return 0;
}

/* Sends datagrams of a destination until it has no space. */
static unsigned resume(struct gsi_wait *w, struct dest *d)
{
	unsigned n = 0;
	bool more = true;

	while (more) {
		struct waiting *m = first_of(d);

		if (gsi_put(d->pu, d, m->tclass, m->mad) == -EAGAIN)
			return n;
		n++;
		more = d->num_gsi_waiting > 1;
		end_wait(w, d, m); /* ends `d` with its last datagram */
	}
	return n;
}

unsigned gsi_resume(struct pu *pu)
{
	struct gsi_wait *w = pu->nic->gsi_wait;
	struct list_head all;
	unsigned n = 0;

	if (!w || pu->index)
		return 0;
	list_init(&all);
	list_splice_tail_init(&w->dests, &all);
	while (!list_empty(&all)) {
		struct dest *d = list_first_entry(&all, struct dest, gsi_link);

		list_move_tail(&d->gsi_link, &w->dests);
		n += resume(w, d);
	}
	pu->stuck |= !list_empty(&w->dests);
	return n;
}

void gsi_wait_end(struct nic *nic)
{
	struct gsi_wait *w = nic->gsi_wait;

	while (w && !list_empty(&w->dests)) {
		struct dest *d = list_first_entry(&w->dests, struct dest, gsi_link);

		end_wait(w, d, first_of(d));
	}
	free(w);
	nic->gsi_wait = NULL;
}
