/* SPDX-License-Identifier: BSD-2-Clause */
#include "program.h"

#include <stdlib.h>

static void *grow(void *p, size_t n)
{
	p = realloc(p, n);
	if (!p)
		abort();
	return p;
}

void side_init(struct side *s, struct rng *r)
{
	s->size = AREA_PRIVATE;
	s->cap = AREA_PRIVATE + (1u << 20);
	s->model = grow(NULL, s->cap);
	memset(s->model, 0, s->cap);
	s->num_grants = s->num_windows = 0;
	memset(s->grants, 0, sizeof(s->grants));
	memset(s->bound, 0, sizeof(s->bound));
	memset(s->freed, 0, sizeof(s->freed));
	for (uint32_t i = 0; i < AREA_LEN; i += 8) {
		uint64_t v = rng_u64(r);

		memcpy(s->model + AREA_SOURCE + i, &v, 8);
	}
}

void side_free(struct side *s)
{
	free(s->model);
}

uint32_t side_take(struct side *s, uint32_t len, struct rng *r)
{
	uint32_t off = s->size + (uint32_t)rng_below(r, 8);

	if (off + len + 64 > s->cap) {
		s->model = grow(s->model, 2 * (s->cap + len));
		memset(s->model + s->cap, 0, s->cap + 2 * len);
		s->cap = 2 * (s->cap + len);
	}
	s->size = off + len;
	return off;
}

static bool overlap(const struct piece *a, uint32_t off, uint32_t len)
{
	return a->len && len && off < a->off + a->len && a->off < off + len;
}

static bool any_overlap(const struct piece *list, unsigned n, uint32_t off, uint32_t len)
{
	for (unsigned i = 0; i < n; i++)
		if (overlap(&list[i], off, len))
			return true;
	return false;
}

static void settle(struct hazards *h)
{
	for (unsigned i = 0; i < h->num_local; i++)
		if (h->num_settled < MAX_READS)
			h->settled[h->num_settled++] = h->local[i];
	h->num_local = h->num_remote = 0;
}

/* Cuts `len` into at most `max` lengths, some of them zero. */
static unsigned cut(uint32_t len, unsigned max, uint32_t *lens, struct rng *r)
{
	unsigned n = 1 + (unsigned)rng_below(r, max);
	uint32_t left = len;

	if (len == 0 && rng_below(r, 2))
		return 0;
	for (unsigned i = 0; i + 1 < n; i++) {
		lens[i] = rng_below(r, 6) ? (uint32_t)rng_below(r, 2 * left / (n - i) + 1) : 0;
		if (lens[i] > left)
			lens[i] = left;
		left -= lens[i];
	}
	lens[n - 1] = left;
	return n;
}

/* Scatter: private memory, in pieces in any order. */
static unsigned make_scatter(struct side *s, uint32_t len, unsigned max, struct piece *out,
			     struct rng *r)
{
	uint32_t lens[ROOST_MAX_SGE];
	unsigned n = cut(len, max, lens, r);

	for (unsigned i = 0; i < n; i++)
		out[i].len = lens[i];
	for (unsigned done = 0, i = (unsigned)rng_below(r, n ? n : 1); done < n;
	     done++, i = (i + 1) % n)
		out[i].off = side_take(s, out[i].len, r);
	return n;
}

/* Gather: from the source area, sometimes from the result of an earlier READ. */
static void make_gather(struct op *o, const struct hazards *h, unsigned max, struct rng *r)
{
	uint32_t lens[ROOST_MAX_SGE];

	o->num_sge = cut(o->len, max, lens, r);
	for (unsigned i = 0; i < o->num_sge; i++) {
		const struct piece *from = NULL;

		o->sge[i].len = lens[i];
		o->sge[i].off = AREA_SOURCE + (uint32_t)rng_below(r, AREA_LEN - lens[i] + 1);
		if (h->num_settled && rng_below(r, 3) == 0)
			from = &h->settled[rng_below(r, h->num_settled)];
		else if (h->num_local && rng_below(r, 6) == 0)
			from = &h->local[rng_below(r, h->num_local)];
		if (!from || from->len < lens[i])
			continue;
		o->sge[i].off = from->off + (uint32_t)rng_below(r, from->len - lens[i] + 1);
		if (any_overlap(h->local, h->num_local, o->sge[i].off, lens[i]))
			o->flags |= ROOST_WQE_FENCE;
	}
}

void gather(const struct side *s, const struct op *o, uint8_t *dst)
{
	for (unsigned i = 0; i < o->num_sge; i++) {
		memcpy(dst, s->model + o->sge[i].off, o->sge[i].len);
		dst += o->sge[i].len;
	}
}

static void scatter(struct side *s, const struct piece *sge, unsigned n, const uint8_t *src,
		    uint32_t len)
{
	for (unsigned i = 0; i < n && len; i++) {
		uint32_t part = sge[i].len < len ? sge[i].len : len;

		memcpy(s->model + sge[i].off, src, part);
		src += part;
		len -= part;
	}
}

static uint32_t pick_len(const struct limits *l, struct rng *r)
{
	uint64_t bound;

	switch (rng_below(r, 8)) {
	case 0:
		return 0;
	case 1:
		bound = 16;
		break;
	case 2:
	case 3:
		bound = l->mtu + 2;
		break;
	case 4: { /* at the edges of packets */
		uint32_t n = (uint32_t)(l->mtu * rng_below(r, 6) + rng_below(r, 3));

		n = n ? n - 1 : 0;
		return n < l->max_len ? n : l->max_len;
	}
	case 5:
	case 6:
		bound = 20000;
		break;
	default:
		bound = PROG_MAX_LEN;
		break;
	}
	if (bound > l->max_len)
		bound = l->max_len;
	return (uint32_t)rng_below(r, bound + 1);
}

/* `d`: has the request for which it is made. */
static enum roost_op pick_op(const struct direction *d, const struct limits *l, struct rng *r)
{
	static const enum roost_op reliable[] = {
		ROOST_OP_WRITE,	    ROOST_OP_WRITE,   ROOST_OP_WRITE,	 ROOST_OP_WRITE_IMM,
		ROOST_OP_SEND,	    ROOST_OP_SEND,    ROOST_OP_SEND_IMM, ROOST_OP_READ,
		ROOST_OP_READ,	    ROOST_OP_READ,    ROOST_OP_CMP_SWAP, ROOST_OP_FETCH_ADD,
		ROOST_OP_FETCH_ADD, ROOST_OP_NOP,     ROOST_OP_SEND_INV, ROOST_OP_LOCAL_INV,
		ROOST_OP_BIND_MW,   ROOST_OP_BIND_MW,
	};
	static const enum roost_op unreliable[] = {
		ROOST_OP_WRITE, ROOST_OP_WRITE_IMM, ROOST_OP_SEND,    ROOST_OP_SEND,
		ROOST_OP_NOP,	ROOST_OP_SEND_IMM,  ROOST_OP_BIND_MW, ROOST_OP_LOCAL_INV,
	};

	if (l->calls && d->stream && (d->num_ops == l->num_ops || rng_below(r, 2)))
		return ROOST_OP_RPC_WRITE;
	if (l->calls && d->num_calls < MAX_CALLS && rng_below(r, 3) == 0)
		return ROOST_OP_RPC;
	if (l->type == NIC_QPT_RC)
		return reliable[rng_below(r, sizeof(reliable) / sizeof(reliable[0]))];
	if (l->type == NIC_QPT_UC)
		return unreliable[rng_below(r, sizeof(unreliable) / sizeof(unreliable[0]))];
	return rng_below(r, 12) == 0 ? ROOST_OP_NOP
	       : rng_below(r, 2)     ? ROOST_OP_SEND
				     : ROOST_OP_SEND_IMM;
}

/* Makes a receive for this message: as long as the message, or longer. */
static struct receive *add_receive(struct direction *d, struct side *to, const struct op *o,
				   const struct limits *l, struct rng *r)
{
	struct receive *v = &d->receives[d->num_receives++];
	uint32_t extra = rng_below(r, 2) ? 0 : (uint32_t)rng_below(r, 300);
	bool imm = o->op == ROOST_OP_SEND_IMM || o->op == ROOST_OP_WRITE_IMM;

	memset(v, 0, sizeof(*v));
	if (l->pooled) {
		v->num_sge = 1;
		v->sge[0].len = o->op == ROOST_OP_WRITE_IMM ? 0 : o->len;
		v->sge[0].off = side_take(to, v->sge[0].len, r);
	} else if (o->op != ROOST_OP_WRITE_IMM) {
		v->num_sge = make_scatter(to, o->len + extra, l->max_sge, v->sge, r);
	} else if (rng_below(r, 2)) {
		v->num_sge = make_scatter(to, extra, l->max_sge, v->sge, r); /* stays untouched */
	}
	v->len = o->len;
	v->opcode = o->op == ROOST_OP_WRITE_IMM ? NIC_WC_RECV_WRITE_IMM : NIC_WC_RECV;
	v->flags = imm ? NIC_WC_WITH_IMM : o->op == ROOST_OP_SEND_INV ? NIC_WC_WITH_INV : 0;
	v->imm = imm ? o->imm : o->grant - 1;
	return v;
}

static void make_read(struct op *o, unsigned index, struct side *from, struct side *to,
		      const struct limits *l, struct rng *r)
{
	uint32_t area = rng_below(r, 3) ? AREA_TARGET : AREA_SOURCE;

	o->roff = area + (uint32_t)rng_below(r, AREA_LEN - o->len + 1);
	if (rng_below(r, 3) == 0)
		grant_use(o, index, to, l, r);
	o->num_sge = make_scatter(from, o->len, l->max_sge, o->sge, r);
	scatter(from, o->sge, o->num_sge, to->model + o->roff, o->len);
}

static void make_atomic(struct op *o, unsigned index, struct side *from, struct side *to,
			const struct hazards *h, const struct limits *l, struct rng *r)
{
	uint64_t old, now;

	o->len = 8;
	o->num_sge = make_scatter(from, 8, l->max_sge < 3 ? l->max_sge : 3, o->sge, r);
	o->swap_add = rng_u64(r);
	if (l->shared_words && o->op == ROOST_OP_FETCH_ADD && rng_below(r, 2)) {
		o->shared = true; /* its result is unknown: it is not modelled, and not sent */
		o->roff = (uint32_t)rng_below(r, l->shared_words);
		o->swap_add = 1;
		return;
	}
	o->roff = AREA_WORDS + 8 * (uint32_t)rng_below(r, rng_below(r, 2) ? 4 : AREA_WORDS_N);
	if (rng_below(r, 2))
		grant_use(o, index, to, l, r);
	if (any_overlap(h->remote, h->num_remote, o->roff, 8))
		o->flags |= ROOST_WQE_FENCE;
	memcpy(&old, to->model + o->roff, 8);
	o->compare = rng_below(r, 2) ? old : rng_u64(r);
	now = o->op == ROOST_OP_FETCH_ADD ? old + o->swap_add
	      : old == o->compare	  ? o->swap_add
					  : old;
	memcpy(to->model + o->roff, &now, 8);
	scatter(from, o->sge, o->num_sge, (uint8_t *)&old, 8);
}

/* Chooses the target of a WRITE, which may get shorter for its key. */
static void choose_target(struct op *o, unsigned index, struct side *to, struct hazards *h,
			  const struct limits *l, struct rng *r)
{
	if (l->type == NIC_QPT_RC) {
		o->roff = AREA_TARGET + (uint32_t)rng_below(r, AREA_LEN - o->len + 1);
	} else {
		if (o->len > AREA_LEN - h->next)
			o->len = AREA_LEN - h->next;
		o->roff = AREA_TARGET + h->next;
		h->next += o->len;
	}
	if (rng_below(r, 3) == 0)
		grant_use(o, index, to, l, r);
	if (any_overlap(h->remote, h->num_remote, o->roff, o->len))
		o->flags |= ROOST_WQE_FENCE;
}

static void make_payload(struct op *o, const struct hazards *h, const struct limits *l,
			 struct rng *r)
{
	if (o->len > l->max_inline || rng_below(r, 2)) {
		make_gather(o, h, l->max_sge, r);
		return;
	}
	o->flags |= ROOST_WQE_INLINE;
	o->num_sge = 1;
	o->sge[0] =
		(struct piece){AREA_SOURCE + (uint32_t)rng_below(r, AREA_LEN - o->len + 1), o->len};
}

static void make_transfer(struct direction *d, struct op *o, unsigned index, struct side *from,
			  struct side *to, struct hazards *h, const struct limits *l, struct rng *r)
{
	bool write = o->op == ROOST_OP_WRITE || o->op == ROOST_OP_WRITE_IMM;
	uint8_t *data;

	if (!write && l->max_send && o->len > l->max_send)
		o->len = (uint32_t)rng_below(r, l->max_send + 1);
	if (write)
		choose_target(o, index, to, h, l, r);
	make_payload(o, h, l, r);
	if (l->type != NIC_QPT_RC)
		return;
	data = grow(NULL, o->len + 1);
	gather(from, o, data);
	if (write)
		memcpy(to->model + o->roff, data, o->len);
	if (o->op != ROOST_OP_WRITE) {
		struct receive *v = add_receive(d, to, o, l, r);

		if (!write)
			scatter(to, v->sge, v->num_sge, data, o->len);
	}
	free(data);
}

/* Records the operations that may be in progress until the next fence. */
static void leave_open(struct hazards *h, const struct op *o)
{
	if (o->flags & ROOST_WQE_FENCE)
		settle(h);
	if ((o->op != ROOST_OP_READ && o->op != ROOST_OP_CMP_SWAP && o->op != ROOST_OP_FETCH_ADD) ||
	    o->shared)
		return;
	h->by[h->num_remote] = o->grant;
	h->remote[h->num_remote++] = (struct piece){o->roff, o->len};
	for (unsigned i = 0; i < o->num_sge; i++)
		h->local[h->num_local++] = o->sge[i];
}

/* Makes a new request, without the fields of its operation. */
static struct op *new_op(struct direction *d, const struct limits *l, const struct hazards *h,
			 uint32_t budget, struct rng *r)
{
	struct op *o = &d->ops[d->num_ops++];

	memset(o, 0, sizeof(*o));
	o->op = pick_op(d, l, r);
	o->imm = (uint32_t)rng_u64(r) | 1; /* in network byte order: no call's mark */
	o->len = pick_len(l, r);
	if (o->len > budget)
		o->len = (uint32_t)rng_below(r, budget < l->mtu ? budget + 1 : l->mtu);
	if (rng_below(r, 3))
		o->flags |= ROOST_WQE_SIGNALED;
	if (rng_below(r, 4) == 0)
		o->flags |= ROOST_WQE_SOLICITED;
	if (rng_below(r, 12) == 0 || h->num_local + ROOST_MAX_SGE > MAX_READS ||
	    h->num_remote == MAX_READS)
		o->flags |= ROOST_WQE_FENCE;
	return o;
}

static void make_local(struct op *o)
{
	o->len = 0;
	o->flags &= (uint16_t)~ROOST_WQE_SOLICITED;
}

/* Makes the next request of d[i]. */
static void make_one(struct direction d[2], struct side s[2], int i, struct hazards *h,
		     const struct limits *l, uint32_t *budget, struct rng *r)
{
	struct direction *other = &d[1 - i];
	struct side *from = &s[i], *to = &s[1 - i];
	unsigned index = d[i].num_ops;
	struct op *o = new_op(&d[i], l, h, *budget, r);

	switch (o->op) {
	case ROOST_OP_NOP:
		make_local(o);
		break;
	case ROOST_OP_BIND_MW:
	case ROOST_OP_LOCAL_INV:
		make_local(o);
		if (o->op == ROOST_OP_LOCAL_INV || !grant_bind(o, index, from, other, l, r))
			if (!grant_local_inv(o, from, other, l, r))
				o->op = ROOST_OP_NOP;
		break;
	case ROOST_OP_READ:
		make_read(o, index, from, to, l, r);
		break;
	case ROOST_OP_CMP_SWAP:
	case ROOST_OP_FETCH_ADD:
		make_atomic(o, index, from, to, h, l, r);
		break;
	case ROOST_OP_RPC:
		calls_make(o, &d[i], from, to, l, r);
		break;
	case ROOST_OP_RPC_WRITE:
		o->call = d[i].stream;
		d[i].stream = 0;
		make_payload(o, h, l, r);
		break;
	case ROOST_OP_SEND_INV:
		if (!grant_send_inv(o, index, to, other, h, r))
			o->op = ROOST_OP_SEND;
		make_transfer(&d[i], o, index, from, to, h, l, r);
		break;
	default:
		make_transfer(&d[i], o, index, from, to, h, l, r);
	}
	*budget -= o->len < *budget ? o->len : *budget;
	leave_open(h, o);
}

/* Makes a SEND that ends with an error of its receive. */
static void bad_receive(struct direction *d, struct op *o, struct side *to, uint32_t space,
			uint16_t status, const struct limits *l, struct rng *r)
{
	struct receive *v = &d->receives[d->num_receives++];

	*v = (struct receive){.status = status, .opcode = NIC_WC_RECV};
	v->num_sge = make_scatter(to, space, l->max_sge, v->sge, r);
}

/*
 * Makes the request that ends the program with an error. It changes only bytes that the model marks
 * as unsure (see the runner).
 */
static void make_fault(struct direction *d, struct side *to, const struct limits *l, struct rng *r)
{
	static const enum roost_op remote[] = {ROOST_OP_WRITE, ROOST_OP_READ, ROOST_OP_FETCH_ADD,
					       ROOST_OP_CMP_SWAP};
	struct op *o = &d->ops[d->num_ops++];

	memset(o, 0, sizeof(*o));
	o->fault = l->fault;
	o->num_sge = 1;
	o->len = 8;
	o->op = remote[rng_below(r, 4)];
	o->roff = AREA_WORDS;
	switch (l->fault) {
	case FAULT_RKEY:
	case FAULT_BOUNDS:
		break;
	case FAULT_STALE:
	case FAULT_RIGHTS:
	case FAULT_OUTSIDE:
		if (!grant_fault(o, to, r))
			o->fault = FAULT_RKEY;
		break;
	case FAULT_MISALIGNED:
		o->op = rng_below(r, 2) ? ROOST_OP_FETCH_ADD : ROOST_OP_CMP_SWAP;
		o->roff += 1 + (uint32_t)rng_below(r, 7);
		break;
	case FAULT_TOO_LONG:
		o->op = ROOST_OP_SEND;
		o->len = 1 + pick_len(l, r);
		bad_receive(d, o, to, (uint32_t)rng_below(r, o->len), NIC_WC_LOC_LEN_ERR, l, r);
		break;
	case FAULT_SEND_INV:
		o->op = ROOST_OP_SEND_INV;
		o->len = pick_len(l, r);
		bad_receive(d, o, to, o->len, NIC_WC_LOC_PROT_ERR, l, r);
		break;
	case FAULT_LKEY:
		o->op = ROOST_OP_WRITE;
		o->roff = AREA_TARGET;
		o->len = 1 + pick_len(l, r);
		break;
	case FAULT_OPCODE:
		o->op = 13 + (unsigned)rng_below(r, 3);
		break;
	case FAULT_BIND:
		o->op = ROOST_OP_BIND_MW;
		o->len = 0;
		break;
	case FAULT_INVALIDATE:
		o->op = ROOST_OP_LOCAL_INV;
		o->len = 0;
		break;
	case FAULT_NONE:
	case FAULTS:
		break;
	}
	o->num_sge = o->len ? 1 : 0;
	o->sge[0] = (struct piece){AREA_SOURCE, o->len};
}

static void direction_init(struct direction *d, unsigned num_ops)
{
	memset(d, 0, sizeof(*d));
	d->ops = grow(NULL, (num_ops + 1) * sizeof(*d->ops));
	d->receives = grow(NULL, (num_ops + 1) * sizeof(*d->receives));
}

void programs_make(struct direction d[2], struct side s[2], const struct limits l[2], struct rng *r)
{
	struct hazards *h = grow(NULL, 2 * sizeof(*h));
	uint32_t budget[2] = {l[0].budget, l[1].budget};

	memset(h, 0, 2 * sizeof(*h));
	for (int i = 0; i < 2; i++) {
		direction_init(&d[i], l[i].num_ops);
		grants_init(&s[i], r);
	}
	while (d[0].num_ops < l[0].num_ops || d[1].num_ops < l[1].num_ops) {
		int i = (int)rng_below(r, 2);

		if (d[i].num_ops == l[i].num_ops)
			i = 1 - i;
		make_one(d, s, i, &h[i], &l[i], &budget[i], r);
	}
	if (l[0].fault) {
		make_fault(&d[0], &s[1], &l[0], r);
		/*
		 * The peer's requests are complete by then; otherwise the error would cut them off.
		 */
		d[0].ops[d[0].num_ops - 1].after = d[1].num_ops;
		if (d[1].num_ops)
			d[1].ops[d[1].num_ops - 1].flags |= ROOST_WQE_SIGNALED;
	}
	free(h);
}

void datagrams_make(struct direction *d, struct side *from, const struct limits *l, struct rng *r)
{
	struct hazards none = {.num_remote = 0};

	direction_init(d, l->num_ops);
	while (d->num_ops < l->num_ops) {
		struct op *o = new_op(d, l, &none, UINT32_MAX, r);

		o->to = (unsigned)rng_below(r, l->receivers);
		if (o->op == ROOST_OP_NOP)
			make_local(o);
		else
			make_payload(o, &none, l, r);
	}
}

void direction_free(struct direction *d)
{
	free(d->ops);
	free(d->receives);
}
