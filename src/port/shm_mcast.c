/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Multicast groups on shm. A member marks itself in the private folder (shm_dir.h). A sender has a
 * separate ring to each member for each group. The hello names the group, so every packet in the
 * ring has that destination. A member accepts such a ring only while it is a member.
 *
 *	staged packet --copy--> ring to 10.0.0.2 for 239.1.1.1
 *		      --copy--> ring to 10.0.0.3 for 239.1.1.1
 *
 * A path to a group finds the members when it is made. It finds later members when the folder has
 * changed, which it checks once in a tick of the coarse clock while packets are sent. A member
 * whose ring is full loses packets: a member that does not run must not delay the others, and UD
 * does not guarantee delivery.
 */
#include "port/shm.h"

#include <errno.h>

/* ---- membership ---- */

static struct shm_member *find_member(const struct shm_port *s, const struct pkt_addr *group)
{
	for (struct list_head *n = s->groups.next; n != &s->groups; n = n->next) {
		struct shm_member *m = container_of(n, struct shm_member, node);

		if (pkt_addr_eq(&m->group, group))
			return m;
	}
	return NULL;
}

bool shm_is_member(const struct shm_port *s, const struct pkt_addr *group)
{
	return find_member(s, group) != NULL;
}

int shm_join(struct port *p, const struct pkt_addr *group)
{
	struct shm_port *s = shm_of(p);
	struct shm_member *m;
	int rc;

	if (pkt_addr_is_v4(group) != pkt_addr_is_v4(&p->addr))
		return -EAFNOSUPPORT;
	m = malloc(sizeof(*m));
	if (!m)
		return -ENOMEM;
	m->group = *group;
	list_add_tail(&m->node, &s->groups); /* before a sender can find the mark and connect */
	rc = shm_dir_mark(s->dirfd, group, &p->addr, p->lane);
	if (rc) {
		list_del(&m->node);
		free(m);
	}
	return rc;
}

void shm_leave(struct port *p, const struct pkt_addr *group)
{
	struct shm_port *s = shm_of(p);
	struct shm_member *m = find_member(s, group);

	if (!m)
		return;
	if (!s->forked)
		shm_dir_unmark(s->dirfd, group, &p->addr, p->lane);
	list_del(&m->node);
	for (unsigned i = s->num_rx; i-- > 0;) {
		if (pkt_addr_eq(&s->rx[i]->dst, group))
			shm_rx_end(s, i);
	}
	free(m);
}

void shm_leave_all(struct shm_port *s)
{
	while (!list_empty(&s->groups)) {
		struct shm_member *m = container_of(s->groups.next, struct shm_member, node);
		struct pkt_addr group = m->group;

		shm_leave(&s->base, &group);
	}
}

/* ---- receivers ---- */

int shm_fanout_make(struct shm_port *s, struct shm_path *path)
{
	if (!s->staged)
		s->staged = shm_alloc(2 * sizeof(*s->staged));
	path->fanout = s->staged ? calloc(1, sizeof(*path->fanout)) : NULL;
	return path->fanout ? 0 : -ENOMEM;
}

struct member_search {
	struct shm_port *s;
	struct shm_path *path;
	bool failed;
};

static void take_member(void *ctx, const struct pkt_addr *addr, unsigned lane)
{
	struct member_search *l = ctx;
	struct shm_fanout *f = l->path->fanout;
	struct shm_peer peer = {.addr = *addr, .lane = (uint8_t)lane};
	struct shm_tx *tx;

	if (pkt_addr_is_v4(addr) != pkt_addr_is_v4(&l->s->base.addr) || f->count == SHM_MAX_TX)
		return;
	tx = shm_tx_get(l->s, &peer, &l->path->base.dst, l->path->ring_size);
	if (!tx) {
		l->failed = true;
		return;
	}
	for (unsigned i = 0; i < f->count; i++) {
		if (f->tx[i] == tx)
			return;
	}
	tx->refs++;
	f->tx[f->count++] = tx;
}

void shm_fanout_update(struct shm_port *s, struct shm_path *path)
{
	struct member_search l = {.s = s, .path = path};
	struct shm_fanout *f = path->fanout;
	uint64_t changed = shm_dir_changed(s->dirfd);

	path->retry_ms = shm_now_ms() + 1;
	if (changed && changed == f->seen)
		return;
	shm_dir_members(s->dirfd, &path->base.dst, take_member, &l);
	f->seen = changed;
	/*
	 * The member of a mark is dead, or has no space for this sender. It is tried again, but not
	 * at every look.
	 */
	if (l.failed) {
		f->seen = 0;
		path->retry_ms += changed ? SHM_RETRY_MAX_MS : 0;
	}
}

bool shm_fanout_forget(struct shm_path *path, const struct shm_tx *tx)
{
	struct shm_fanout *f = path->fanout;
	bool found = false;

	for (unsigned i = 0; i < f->count; i++) {
		if (f->tx[i] != tx)
			continue;
		f->tx[i] = f->tx[--f->count];
		f->seen = 0;
		path->retry_ms = shm_now_ms() + SHM_RETRY_MAX_MS;
		found = true;
	}
	return found;
}

void shm_fanout_free(struct shm_port *s, struct shm_path *path)
{
	struct shm_fanout *f = path->fanout;

	s->base.ops->flush(&s->base);
	while (f->count) {
		struct shm_tx *tx = f->tx[--f->count];

		if (--tx->refs == 0)
			shm_tx_end(s, tx);
	}
	free(f);
}

/* ---- sending ---- */

int shm_stage(struct shm_port *s, struct shm_path *path, uint32_t len, uint8_t tos,
	      struct port_buf *buf)
{
	struct shm_staged *st = &s->staged[(s->staged_first + s->staged_count) % 2];

	if ((int32_t)(shm_now_ms() - path->retry_ms) >= 0)
		shm_fanout_update(s, path);
	st->path = path;
	st->len = len;
	st->tos = tos;
	s->staged_count++;
	s->last_staged = true;
	s->last_dropped = false;
	s->last_tx = NULL;
	s->base.stats.tx_packets++;
	s->base.stats.tx_bytes += len;
	buf->bth = st->data;
	buf->ip_id = 0;
	return 0;
}

/*
 * Publishes the waiting packets. The number of unpublished packets of a ring is limited, and the
 * receiver works meanwhile.
 */
static void publish(struct shm_port *s, struct shm_tx *tx)
{
	if (tx->ring.index == tx->ring.published)
		return;
	shm_prod_publish(&tx->ring);
	shm_note_published(s, tx);
	shm_wake_receivers(s, false);
}

static void copy_to(struct shm_port *s, struct shm_tx *tx, const struct shm_staged *st)
{
	uint8_t *p;

	if (tx->ring.index - tx->ring.published >= SHM_PUBLISH_PACKETS)
		publish(s, tx);
	p = shm_prod_reserve(&tx->ring, st->len, st->tos);
	if (p) {
		memcpy(p, st->data, st->len);
		shm_note_dirty(s, tx);
		return;
	}
	s->base.stats.tx_dropped++;
	if (tx->ring.broken) {
		s->base.stats.rx_bad++;
		shm_tx_end(s, tx);
	} else {
		publish(s, tx);
	}
}

void shm_staged_send(struct shm_port *s, bool all)
{
	unsigned keep = !all && s->last_staged;

	while (s->staged_count > keep) {
		const struct shm_staged *st = &s->staged[s->staged_first];
		struct shm_fanout *f = st->path->fanout;

		/*
		 * The loop runs backwards, because a broken member leaves the list and the last
		 * member takes its place.
		 */
		for (unsigned i = f->count; i-- > 0;)
			copy_to(s, f->tx[i], st);
		s->staged_first = (s->staged_first + 1) % 2;
		s->staged_count--;
	}
	if (all)
		s->last_staged = false;
}

void shm_staged_cancel(struct shm_port *s)
{
	const struct shm_staged *st = &s->staged[(s->staged_first + s->staged_count - 1) % 2];

	s->staged_count--;
	s->last_staged = false;
	s->base.stats.tx_packets--;
	s->base.stats.tx_bytes -= st->len;
}
