/* SPDX-License-Identifier: BSD-2-Clause */
/* The simulated link: packets on their way, faults, virtual time. */
#include "port/sim_int.h"

#include <stdlib.h>
#include <string.h>

struct flight *sim_flight_get(struct sim *s)
{
	return s->num_spare ? s->spare[--s->num_spare] : malloc(sizeof(struct flight));
}

void sim_flight_put(struct sim *s, struct flight *f)
{
	if (s->num_spare == s->cap_spare) {
		size_t cap = s->cap_spare ? s->cap_spare * 2 : 256;
		struct flight **p = realloc(s->spare, cap * sizeof(*p));

		if (!p) {
			free(f);
			return;
		}
		s->spare = p;
		s->cap_spare = cap;
	}
	s->spare[s->num_spare++] = f;
}

static bool before(const struct flight *a, const struct flight *b)
{
	return a->at != b->at ? a->at < b->at : a->order < b->order;
}

static void heap_push(struct sim *s, struct flight *f)
{
	size_t i;

	if (s->count == s->cap) {
		size_t cap = s->cap ? s->cap * 2 : 256;
		struct flight **p = realloc(s->heap, cap * sizeof(*p));

		if (!p) { /* there is no memory; the packet counts as lost */
			sim_flight_put(s, f);
			return;
		}
		s->heap = p;
		s->cap = cap;
	}
	f->order = s->order++;
	for (i = s->count++; i && before(f, s->heap[(i - 1) / 2]); i = (i - 1) / 2)
		s->heap[i] = s->heap[(i - 1) / 2];
	s->heap[i] = f;
}

static struct flight *heap_pop(struct sim *s)
{
	struct flight *top = s->heap[0], *last = s->heap[--s->count];
	size_t i = 0, c;

	while ((c = 2 * i + 1) < s->count) {
		if (c + 1 < s->count && before(s->heap[c + 1], s->heap[c]))
			c++;
		if (!before(s->heap[c], last))
			break;
		s->heap[i] = s->heap[c];
		i = c;
	}
	s->heap[i] = last;
	return top;
}

static bool is_mine(const struct sim_port *p, const struct pkt_addr *dst, uint32_t qpn)
{
	if (!p || !pkt_addr_eq(&p->base.addr, dst))
		return false;
	if (p->base.shared && qpn > 1)
		return p->base.slot == PORT_SLOT_OF_QPN(qpn);
	return p->base.lane == PORT_LANE_OF_QPN(qpn, p->base.lanes);
}

/*
 * Returns the port for a packet to `dst`, or SIM_NOBODY. If several ports share the address, the
 * first one receives packets to QP 1.
 */
static unsigned receiver(struct sim *s, const struct pkt_addr *dst, const uint8_t *bth)
{
	uint32_t qpn = pkt_get24(((const struct pkt_bth *)bth)->dqpn);

	for (unsigned i = 0; i < s->num_ports; i++)
		if (is_mine(s->ports[i], dst, qpn))
			return i;
	return SIM_NOBODY;
}

static bool chance(struct sim *s, double p)
{
	return p > 0 && rng_double(&s->rng) < p;
}

/* Gives the sender a hint at once, because its exact time does not matter. */
static void hint(struct sim *s, const struct flight *f)
{
	struct port_hint h = {.dst = f->dst, .quotes = true};

	port_quote(&h, f->data, f->len);
	for (unsigned i = 0; i < s->num_ports; i++) {
		if (s->ports[i] && pkt_addr_eq(&s->ports[i]->base.addr, &f->src))
			port_add_hint(&s->ports[i]->base, &h);
	}
}

static void arrive(struct sim *s, struct flight *f, uint64_t at)
{
	if (f->port == SIM_NOBODY) {
		if (s->params.hints)
			hint(s, f);
		sim_flight_put(s, f);
		return;
	}
	if (chance(s, s->params.ce))
		f->tos |= 3;
	f->at = at;
	heap_push(s, f);
}

/* Applies the random faults to the copy for one receiver. `at` is the time at which it was sent. */
static void apply_faults(struct sim_port *p, struct flight *f, uint64_t at)
{
	struct sim *s = p->sim;
	const struct sim_params *q = &s->params;

	if (chance(s, q->loss)) {
		s->lost++;
		sim_flight_put(s, f);
		return;
	}
	at += q->delay_ns;
	if (q->jitter_ns)
		at += rng_below(&s->rng, q->jitter_ns);
	if (at < p->last_at)
		at = p->last_at;
	if (chance(s, q->reorder))
		at += (q->delay_ns ? q->delay_ns : 1000) * (1 + rng_below(&s->rng, 4));
	else
		p->last_at = at;
	if (chance(s, q->dup)) {
		struct flight *g = sim_flight_get(s);

		if (g) {
			*g = *f;
			arrive(s, g, at + rng_below(&s->rng, 2 * q->delay_ns + 1));
		}
	}
	if (chance(s, q->corrupt)) {
		s->lost++;
		f->data[rng_below(&s->rng, f->len)] ^= (uint8_t)(1u << rng_below(&s->rng, 8));
	}
	arrive(s, f, at);
}

/*
 * Sends a packet to its receivers: for a group, a copy to each member, including the sender. If
 * `from` is NULL, there are no random faults.
 */
static void send_copies(struct sim *s, struct sim_port *from, struct flight *f, uint64_t at)
{
	bool group = pkt_addr_is_group(&f->dst);

	for (unsigned i = 0; group && i < s->num_ports; i++) {
		struct flight *copy;

		if (!s->ports[i] || !sim_member(s->ports[i], &f->dst))
			continue;
		copy = sim_flight_get(s);
		if (!copy)
			break;
		*copy = *f;
		copy->port = i;
		if (from)
			apply_faults(from, copy, at);
		else
			arrive(s, copy, at);
	}
	if (group) {
		sim_flight_put(s, f);
		return;
	}
	f->port = receiver(s, &f->dst, f->data);
	if (from)
		apply_faults(from, f, at);
	else
		arrive(s, f, at);
}

void sim_transmit(struct sim_port *p, struct flight *f)
{
	struct sim *s = p->sim;

	if (s->tap)
		s->tap(s->tap_ctx, s->now, false, &f->src, &f->dst, f->data, f->len);
	if (s->filter && s->filter(s->filter_ctx, &f->src, f->data, f->len)) {
		s->lost++;
		sim_flight_put(s, f);
		return;
	}
	if (p->busy_until < s->now)
		p->busy_until = s->now;
	if (s->params.bytes_per_us)
		p->busy_until += (uint64_t)f->len * 1000 / s->params.bytes_per_us;
	send_copies(s, p, f, p->busy_until);
}

struct sim *sim_create(uint64_t seed, const struct sim_params *params)
{
	struct sim *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	rng_seed(&s->rng, seed);
	s->inject_port = PKT_UDP_PORT;
	s->now = SIM_START;
	if (params)
		s->params = *params;
	return s;
}

void sim_destroy(struct sim *s)
{
	while (s->count)
		free(heap_pop(s));
	while (s->num_spare)
		free(s->spare[--s->num_spare]);
	free(s->spare);
	free(s->heap);
	free(s);
}

void sim_set_params(struct sim *s, const struct sim_params *params)
{
	s->params = *params;
}

void sim_set_tap(struct sim *s, sim_tap tap, void *ctx)
{
	s->tap = tap;
	s->tap_ctx = ctx;
}

void sim_set_filter(struct sim *s, sim_filter filter, void *ctx)
{
	s->filter = filter;
	s->filter_ctx = ctx;
}

uint64_t sim_now(const struct sim *s)
{
	return s->now;
}

uint64_t sim_lost(const struct sim *s)
{
	return s->lost;
}

uint64_t sim_next_event(const struct sim *s)
{
	return s->count ? s->heap[0]->at : UINT64_MAX;
}

void sim_advance(struct sim *s, uint64_t t)
{
	if (t > s->now)
		s->now = t;
	while (s->count && s->heap[0]->at <= s->now) {
		struct flight *f = heap_pop(s);
		unsigned i = f->port;

		/* The packet is lost: its receiver is gone, or the queue is full. */
		if (!s->ports[i] || s->tail[i] - s->head[i] == SIM_QUEUE) {
			s->lost++;
			sim_flight_put(s, f);
			continue;
		}
		if (s->tap)
			s->tap(s->tap_ctx, s->now, true, &f->src, &f->dst, f->data, f->len);
		s->queue[i][s->tail[i]++ % SIM_QUEUE] = f;
	}
}

void sim_inject_port(struct sim *s, uint16_t sport)
{
	s->inject_port = sport;
}

void sim_inject(struct sim *s, const struct pkt_addr *src, const struct pkt_addr *dst,
		const uint8_t *bth, uint32_t len)
{
	struct flight *f;

	if (len < sizeof(struct pkt_bth) || len > PKT_MAX_LEN)
		return;
	f = sim_flight_get(s);
	if (!f)
		return;
	f->src = *src;
	f->dst = *dst;
	f->len = len;
	f->sport = s->inject_port;
	f->tos = 0;
	memcpy(f->data, bth, len);
	send_copies(s, NULL, f, s->now + s->params.delay_ns);
}
