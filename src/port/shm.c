/* SPDX-License-Identifier: BSD-2-Clause */
#include "port/shm.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/sys.h"

/* ---- paths ---- */

static void path_put(struct port *p, struct port_path *pp);

/* Refuses a path without a ring if the port is in a pool: its packets then go by udp. */
static struct port_path *has_ring(struct port *p, struct shm_path *path)
{
	if (path->tx || !shm_of(p)->pool)
		return &path->base;
	path_put(p, &path->base);
	errno = EHOSTUNREACH;
	return NULL;
}

static struct port_path *path_get(struct port *p, const struct pkt_addr *dst, uint32_t dqpn)
{
	struct shm_port *s = shm_of(p);
	uint32_t key = s->pool ? PORT_SLOT_OF_QPN(dqpn) : PORT_LANE_KEY_OF_QPN(dqpn);
	uint32_t owner = s->pool ? shm_pool_owner(s, dst, key) : 0;
	struct shm_path *path;

	if (pkt_addr_is_v4(dst) != pkt_addr_is_v4(&p->addr)) {
		errno = EAFNOSUPPORT;
		return NULL;
	}
	if (s->pool && !owner) {
		errno = EHOSTUNREACH;
		return NULL;
	}
	for (struct list_head *n = s->paths.next; n != &s->paths; n = n->next) {
		path = container_of(n, struct shm_path, node);
		if (path->lane_key == key && path->base.owner == owner &&
		    pkt_addr_eq(&path->base.dst, dst)) {
			path->refs++;
			shm_connect(s, path);
			return has_ring(p, path);
		}
	}
	path = shm_alloc(sizeof(*path));
	if (!path)
		return NULL;
	if (pkt_addr_is_group(dst) && shm_fanout_make(s, path)) {
		free(path);
		errno = ENOMEM;
		return NULL;
	}
	port_path_init(&path->base, p, dst, PKT_UDP_PORT);
	path->base.owner = owner;
	path->refs = 1;
	path->lane_key = key;
	path->retry_ms = shm_now_ms();
	path->pause_ms = SHM_RETRY_MS;
	path->ring_size = s->ring_size;
	list_add_tail(&path->node, &s->paths);
	shm_connect(s, path);
	return has_ring(p, path);
}

/* ---- sending ---- */

void shm_note_published(struct shm_port *s, struct shm_tx *tx)
{
	s->base.stats.tx_bursts++;
	s->flushed = true;
	if (!tx->unfenced) {
		tx->unfenced = true;
		s->unfenced[s->num_unfenced++] = tx;
	}
}

void shm_note_dirty(struct shm_port *s, struct shm_tx *tx)
{
	if (tx->dirty)
		return;
	tx->dirty = true;
	s->dirty[s->num_dirty++] = tx;
}

static void publish_finished(struct shm_port *s, struct shm_tx *tx)
{
	if (tx->ring.last == tx->ring.published)
		return;
	shm_prod_publish_finished(&tx->ring);
	shm_note_published(s, tx);
	shm_wake_receivers(s, false);
}

/*
 * Leaves a hint that quotes the last packet without a receiver, if it is a management datagram: the
 * sender waits for the answer to exactly this datagram.
 */
static void quote_lost(struct shm_port *s)
{
	struct port_hint hint = {.dst = s->lost_dst};

	s->quote_due = false;
	port_quote(&hint, s->scratch, PORT_QUOTE_LEN);
	if (hint.tid)
		port_add_hint(&s->base, &hint);
}

static bool flush(struct port *p)
{
	struct shm_port *s = shm_of(p);
	unsigned n;

	if (unlikely(s->staged_count))
		shm_staged_send(s, true);
	if (unlikely(s->dead_tx))
		shm_free_dead_tx(s);
	n = s->num_dirty;
	if (!n) {
		if (unlikely(s->quote_due))
			quote_lost(s);
		return true;
	}
	for (unsigned i = 0; i < n; i++) {
		struct shm_tx *tx = s->dirty[i];

		tx->dirty = false;
		if (tx->ring.index != tx->ring.published) {
			shm_prod_publish(&tx->ring);
			shm_note_published(s, tx);
		}
	}
	s->num_dirty = 0;
	shm_wake_receivers(s, false);
	return true;
}

static void path_put(struct port *p, struct port_path *pp)
{
	struct shm_port *s = shm_of(p);
	struct shm_path *path = container_of(pp, struct shm_path, base);

	if (--path->refs)
		return;
	if (path->fanout)
		shm_fanout_free(s, path);
	if (path->tx && --path->tx->refs == 0) {
		flush(p);
		shm_tx_end(s, path->tx);
	}
	list_del(&path->node);
	free(path);
}

void shm_hint(struct shm_port *s, const struct shm_peer *peer)
{
	struct port_hint hint = {.dst = peer->addr, .owner = peer->owner, .slot = peer->lane};
	uint32_t now = shm_now_ms();

	if (now == s->hint_ms && shm_peer_eq(peer, &s->hinted))
		return;
	s->hint_ms = now;
	s->hinted = *peer;
	port_add_hint(&s->base, &hint);
}

/*
 * The peer is absent: reserves space whose contents are dropped, so that the core needs no special
 * case.
 */
static int reserve_lost(struct shm_port *s, const struct shm_path *path, struct port_buf *buf)
{
	shm_hint(s, &(struct shm_peer){.addr = path->base.dst,
				       .owner = path->base.owner,
				       .lane = s->pool ? (uint8_t)path->lane_key : 0});
	s->base.stats.tx_dropped++;
	s->last_tx = NULL;
	s->last_dropped = s->quote_due = true;
	s->lost_dst = path->base.dst;
	s->last_staged = false;
	buf->bth = s->scratch;
	buf->ip_id = 0;
	return 0;
}

/*
 * Handles a full ring. Publishes its waiting packets, and ends the connection if the peer died or
 * sent invalid data.
 */
static int reserve_blocked(struct shm_port *s, const struct shm_path *path, struct port_buf *buf)
{
	struct shm_tx *tx = path->tx;
	uint32_t now = shm_now_ms();
	bool gone = tx->ring.broken;

	if (gone) {
		s->base.stats.rx_bad++;
	} else if (tx->blocked && now - tx->check_ms >= SHM_RETRY_MS) {
		tx->check_ms = now;
		gone = !shm_take_wakeups(tx->end.fd);
	}
	if (gone) {
		shm_tx_end(s, tx);
		return reserve_lost(s, path, buf);
	}
	publish_finished(s, tx);
	if (!tx->blocked) {
		tx->blocked = true;
		s->num_blocked++;
	}
	s->base.stats.tx_blocked++;
	return -EAGAIN;
}

static int reserve(struct port *p, struct port_path *pp, uint32_t len, uint8_t tos,
		   struct port_buf *buf)
{
	struct shm_port *s = shm_of(p);
	struct shm_path *path = container_of(pp, struct shm_path, base);
	struct shm_tx *tx = path->tx;

	if (unlikely(len > PKT_MAX_LEN))
		return -EMSGSIZE;
	if (unlikely(s->staged_count))
		shm_staged_send(s, false);
	if (unlikely(!tx)) {
		if (path->fanout)
			return shm_stage(s, path, len, tos, buf);
		if (!shm_connect(s, path))
			return reserve_lost(s, path, buf);
		tx = path->tx;
	}
	if (unlikely(tx->ring.pos - tx->ring.sent >= SHM_PUBLISH_BYTES ||
		     tx->ring.index - tx->ring.published >= SHM_PUBLISH_PACKETS))
		publish_finished(s, tx);
	buf->bth = shm_prod_reserve(&tx->ring, len, tos);
	if (unlikely(!buf->bth))
		return reserve_blocked(s, path, buf);
	buf->ip_id = 0;
	shm_note_dirty(s, tx);
	if (unlikely(tx->blocked)) {
		tx->blocked = false;
		s->num_blocked--;
	}
	s->last_tx = tx;
	s->last_len = len;
	s->last_dropped = s->last_staged = false;
	p->stats.tx_packets++;
	p->stats.tx_bytes += len;
	return 0;
}

static void cancel(struct port *p)
{
	struct shm_port *s = shm_of(p);

	if (s->last_staged) {
		shm_staged_cancel(s);
	} else if (s->last_dropped) {
		p->stats.tx_dropped--;
	} else if (s->last_tx) {
		shm_prod_cancel(&s->last_tx->ring);
		p->stats.tx_packets--;
		p->stats.tx_bytes -= s->last_len;
	}
	s->last_tx = NULL;
	s->last_dropped = false;
}

/* ---- receiving ---- */

static void swap_rx(struct shm_port *s, unsigned a, unsigned b)
{
	struct shm_rx *t = s->rx[a];

	s->rx[a] = s->rx[b];
	s->rx[b] = t;
}

/*
 * Ends connections that hung up and are empty, or that are invalid. Rings that were empty for long
 * become cold.
 */
static void tidy_rings(struct shm_port *s)
{
	bool waiting = false;

	for (unsigned i = s->num_rx; i-- > 0;) {
		struct shm_rx *rx = s->rx[i];

		if (rx->broken) {
			s->base.stats.rx_bad++;
			log_debug(
				"shm: the ring of a peer has invalid contents: its connection is closed");
			shm_rx_end(s, i);
		} else if (rx->hung_up && shm_cons_look(&rx->ring) <= 0) {
			shm_rx_end(s, i);
		} else if (rx->hung_up) {
			waiting = true;
		} else if (i < s->num_hot && rx->empty_polls >= SHM_HOT_POLLS) {
			rx->empty_polls = 0;
			swap_rx(s, i, --s->num_hot);
		}
	}
	s->untidy = waiting;
}

static int poll_empty(struct shm_port *s, struct shm_rx *rx, int look)
{
	shm_wake_sender(rx);
	if (unlikely(look < 0))
		rx->broken = s->untidy = true;
	else if (unlikely(++rx->empty_polls >= SHM_HOT_POLLS))
		s->untidy = true;
	return 0;
}

/*
 * Prefetches the lines of a small packet, all of which are read. For a large packet the prefetchers
 * of the CPU do better.
 */
static void prefetch_small(const uint8_t *bth, uint32_t len)
{
	if (len <= SHM_SMALL) {
		for (uintptr_t line = ALIGN_DOWN((uintptr_t)bth, CACHE_LINE);
		     line < (uintptr_t)bth + len; line += CACHE_LINE)
			__builtin_prefetch((const void *)line, 0, 3);
	}
}

/* Fills descriptors from one ring, at most `max` (at least 1) and while *bytes lasts. */
static int take_ring(struct shm_port *s, struct shm_rx *rx, struct port_pkt *pkts, int max,
		     uint32_t *bytes)
{
	uint32_t len;
	uint8_t tos;
	int n = 0, rc = 1;

	/*
	 * Before the descriptor is read: a reader that was busy misses its line and the two lines
	 * of the burst, and the transfers of all three must overlap.
	 */
	shm_cons_watch(&rx->ring);
	while (n < max && *bytes < SHM_BURST_BYTES) {
		rc = shm_cons_next(&rx->ring, &pkts[n].bth, &len, &tos);
		if (rc <= 0)
			break;
		prefetch_small(pkts[n].bth, len);
		pkts[n].src = &rx->from.addr;
		pkts[n].dst = &rx->dst;
		pkts[n].len = len;
		pkts[n].sport = PKT_UDP_PORT;
		pkts[n].ip_id = 0;
		pkts[n].tos = tos;
		pkts[n].flags = PORT_ID_KNOWN | ((tos & 3) == 3 ? PORT_CE : 0);
		*bytes += len;
		n++;
	}
	if (n == 0)
		return poll_empty(s, rx, rc);
	if (unlikely(rc < 0))
		rx->broken = s->untidy = true;
	rx->empty_polls = 0;
	s->unreleased[s->num_unreleased++] = rx;
	shm_wake_sender(rx);
	return n;
}

static void release_all(struct shm_port *s)
{
	for (unsigned i = 0; i < s->num_unreleased; i++)
		shm_cons_release(&s->unreleased[i]->ring);
	s->num_unreleased = 0;
}

/* Looks at a few cold rings. A ring with packets becomes hot. */
static void poll_cold(struct shm_port *s)
{
	for (int i = 0; i < SHM_COLD_POLLS && s->num_hot < s->num_rx; i++) {
		unsigned at = s->num_hot + s->cold_turn++ % (s->num_rx - s->num_hot);

		shm_wake_sender(s->rx[at]);
		if (s->rx[at]->hung_up || shm_cons_look(&s->rx[at]->ring))
			swap_rx(s, at, s->num_hot++);
	}
}

/* Gives each hot ring a fair share first, and the rest to the rings that have more packets. */
static int take_rings(struct shm_port *s, struct port_pkt *pkts, int max, uint32_t *bytes)
{
	unsigned hot = s->num_hot, start = s->turn++;
	int share = max / (int)hot, n = 0;

	if (share < 4)
		share = 4;
	for (int pass = 0; pass < 2 && n < max; pass++) {
		for (unsigned i = 0; i < hot && n < max; i++) {
			struct shm_rx *rx = s->rx[(start + i) % hot];
			int left = max - n, most = pass == 0 && share < left ? share : left;

			if (!rx->broken && (pass == 0 || shm_cons_look(&rx->ring) > 0))
				n += take_ring(s, rx, pkts + n, most, bytes);
		}
	}
	return n;
}

static int rx_burst(struct port *p, struct port_pkt *pkts, int max)
{
	struct shm_port *s = shm_of(p);
	uint32_t bytes = 0;
	int n = 0;

	if (s->num_unreleased)
		release_all(s);
	if (unlikely(s->dead_rx))
		shm_free_dead_rx(s);
	if (s->num_unfenced)
		shm_wake_receivers(s, false);
	if (s->num_hot < s->num_rx)
		poll_cold(s);
	if (s->num_hot == 1)
		n = take_ring(s, s->rx[0], pkts, max, &bytes);
	else if (s->num_hot > 1)
		n = take_rings(s, pkts, max, &bytes);
	if (unlikely(s->untidy))
		tidy_rings(s);
	if (n) {
		p->stats.rx_packets += (unsigned)n;
		p->stats.rx_bytes += bytes;
		p->stats.rx_bursts++;
	} else if (s->num_unfenced && !s->flushed) {
		shm_wake_receivers(s, true);
	}
	s->flushed = false;
	return n;
}

/*
 * Returns the state of the reader. The socket hangs up when the process of the reader ends. A
 * stopped process leaves its ring unchanged.
 */
static enum port_reader reader(struct port *p, const struct port_path *base)
{
	const struct shm_tx *tx = ((const struct shm_path *)base)->tx;

	if (!tx || tx->ring.broken)
		return PORT_READER_UNKNOWN;
	return shm_prod_unread(&tx->ring) ? PORT_READER_STALLED : PORT_READER_READS;
}

/*
 * The progress belongs to the ring, because all paths to the lane of a peer share the ring, and the
 * next peer gets another one. A packet counts when the reader has released it.
 */
static struct port_progress *progress(struct port *p, const struct port_path *base)
{
	struct shm_tx *tx = ((const struct shm_path *)base)->tx;

	if (!tx)
		return NULL;
	tx->progress.taken = tx->ring.head;
	return &tx->progress;
}

const struct port_ops shm_ops = {
	.name = "shm",
	.path_get = path_get,
	.path_put = path_put,
	.reader = reader,
	.progress = progress,
	.join = shm_join,
	.leave = shm_leave,
	.reserve = reserve,
	.cancel = cancel,
	.flush = flush,
	.rx_burst = rx_burst,
	.arm = shm_arm,
	.disarm = shm_disarm,
	.control = shm_control,
	.after_fork = shm_after_fork,
	.close = shm_close,
};
