/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A ring of packets in memory that two processes share: one producer, one consumer, one direction.
 * No system calls on the data path, no sockets: shm.c moves packets over rings, shm_conn.c passes
 * them between processes.
 *
 *   memfd:  | control page | 1024 descriptors of 8 bytes | data, `size` bytes, a power of two |
 *
 *   data:   | rec | rec    | rec |                       |      not touched       |
 *           0     ^free          ^pos                    ^extent                  ^size
 *
 * A record is a multiple of 32 bytes. A large packet has 20 bytes free in front, so that the
 * payload of a middle one is aligned to 32. Small packets lie close together: a WRITE of 64 bytes
 * takes one and a half cache lines, and neither TLB nor prefetchers see the 4 KiB strides of a ring
 * of slots.
 *
 * A burst begins with two lines that the consumer, when it finds nothing, asks for together with
 * the next descriptor's: it knows where they will be. A small first packet lies in them, so it
 * comes with its descriptor and not after it: one way between two cores less for a packet alone. It
 * is built in private memory and copied when the burst is published, since lines that somebody
 * looks at are taken away again and again while they are written. All other packets lie behind the
 * two lines.
 *
 * What the consumer must know of a packet is in its descriptor, not in front of it: a burst can be
 * handed out without touching the packets. To look at the first line of each, and at the rest
 * later, takes half the bandwidth: it spoils the prefetchers' work.
 *
 *   descriptor:  lap (16 bits) | place / 32 (24) | type of service (8) | length (16)
 *
 * The lap says whether a descriptor is new: it counts how often the producer has come round, from
 * 1. So no index is needed, and an idle consumer polls the very line in which the next descriptor
 * will be. A burst is published from its last descriptor to its first: the consumer sees it all at
 * once.
 *
 * Data positions count bytes and never wrap, the place is position modulo size. A record never
 * crosses the end: the producer skips what is left. It also skips at its `extent`, so that an idle
 * ring costs little memory; it extends while packets pile up. A stream is faster in a large ring,
 * whose lines have left the consumer's cache when they are written again, and with a bounded number
 * of bytes in flight, which are still in the producer's cache when they are read
 * (docs/decisions.md).
 *
 * Memory order, by pairs:
 *
 *	producer			consumer
 *	record, then descriptor		descriptor, then record		release / acquire on the
 * 									descriptor
 * 									(shm_prod_publish_to,
 * 									shm_cons_next)
 *	`head`, then over the records	records, then `head`		acquire / release on `head`
 * 									(shm_prod_look,
 * 									shm_cons_release)
 *	descriptors, then `sleeping`	`sleeping`, then descriptors	store before load: a full
 * 									fence on both sides
 * 									(shm_wake.c)
 *	`want_room`, then `head`	`head`, then `want_room`	the same
 *
 * Neither side trusts the other: each keeps its state private, reads each shared word once, and
 * checks it. Thread rules: one thread at a time for each side.
 */
#ifndef ROOST_PORT_SHM_RING_H
#define ROOST_PORT_SHM_RING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/mem.h"
#include "packet/headers.h"

#define SHM_RING_MIN	 (64u << 10)
#define SHM_RING_MAX	 (64u << 20)
#define SHM_RING_DEFAULT (4u << 20)
/* What is populated at the start, and by how much a ring extends (bytes). */
#define SHM_RING_FIRST (256u << 10)
#define SHM_RING_STEP  (512u << 10)
/* So many bytes not yet consumed at the end of the extent: a stream, worth more memory. */
#define SHM_RING_LAG (16u << 10)

/* Most bytes in flight, and most packets. */
#define SHM_RING_WINDOW	  (1u << 20)
#define SHM_RING_DESCS	  1024u
#define SHM_RING_PENDING  128u /* reserved and not yet published, at most */
#define SHM_RING_CTL	  4096u
#define SHM_RING_OVERHEAD (SHM_RING_CTL + SHM_RING_DESCS * 8u) /* bytes in front of the data */

#define SHM_REC_ALIGN 32u
/* where a large packet starts in its record; a small one fills it from its beginning */
#define SHM_REC_FRONT 20u
#define SHM_MIN_LEN   16u /* BTH and ICRC */
#define SHM_SMALL     256u
#define SHM_AHEAD     1024u /* bytes */
/* bytes at a burst's beginning: two lines, which prefetchers take for a pair */
#define SHM_WATCHED 128u

/*
 * The control page. Words of different writers stand 128 bytes apart: prefetchers fetch lines in
 * pairs.
 */
struct shm_ring_ctl {
	uint64_t magic;			     /* for a debugger; nobody relies on it */
	_Alignas(128) _Atomic uint64_t head; /* consumer: packets before it are done with */
	_Alignas(128) _Atomic uint32_t
		sleeping; /* consumer sets it: wake me; who takes it back to 0 sends the wake-up */
	/* producer sets it; the same the other way round */
	_Alignas(128) _Atomic uint32_t want_room;
};
_Static_assert(sizeof(struct shm_ring_ctl) <= SHM_RING_CTL, "control page");

struct shm_prod {
	struct shm_ring_ctl *ctl;
	_Atomic uint64_t *descs;
	uint8_t *data;
	/*
	 * by descriptor: the data position behind its record (private: the shared one may be
	 * changed)
	 */
	uint32_t *ends;
	uint64_t index; /* packets reserved so far */
	/* the last reservation: it may be taken back, or lack its ICRC still */
	uint64_t last;
	uint64_t published;   /* packets that the consumer can see */
	uint64_t head;	      /* packets that the consumer is done with, as last seen */
	uint64_t index_limit; /* reservations up to here, */
	uint64_t limit;	      /* and to here in the data, need no look at anything */
	uint64_t pos;	      /* data position of the next record */
	uint64_t last_pos;
	uint64_t free; /* data position up to which records are done with */
	uint64_t sent; /* data position of what is published */
	uint64_t turn; /* where the lap of pos began, */
	uint32_t skip; /* and what was skipped in front of it */
	uint32_t size, extent, step;
	bool broken; /* the consumer's index made no sense */
	/* where the burst's first packet goes, which is in `first`; NULL: it is not there */
	uint8_t *place;
	uint64_t pending[SHM_RING_PENDING];
	uint8_t first[SHM_WATCHED] __attribute__((aligned(CACHE_LINE)));
};

struct shm_cons {
	struct shm_ring_ctl *ctl;
	_Atomic uint64_t *descs;
	uint8_t *data;
	uint64_t head;	   /* handed out so far */
	uint64_t released; /* what the producer was told */
	uint32_t size;
	uint32_t populated; /* bytes of data that are in our page table */
	uint32_t next;	    /* place behind the last record handed out */
};

/* A full fence. gcc's TSan knows none, and takes a read-modify-write in its stead. */
static inline void shm_fence(void)
{
#ifdef __SANITIZE_THREAD__
	static _Atomic uint32_t nothing;

	atomic_fetch_add_explicit(&nothing, 1, memory_order_seq_cst);
#else
	atomic_thread_fence(memory_order_seq_cst);
#endif
}

static inline uint32_t shm_rec_front(uint32_t len)
{
	return len > SHM_SMALL ? SHM_REC_FRONT : 0;
}

static inline uint32_t shm_rec_size(uint32_t len)
{
	return ALIGN_UP(shm_rec_front(len) + len, SHM_REC_ALIGN);
}

static inline uint16_t shm_lap(uint64_t index)
{
	return (uint16_t)(index / SHM_RING_DESCS + 1);
}

static inline uint64_t shm_desc(uint64_t index, uint32_t place, uint32_t len, uint8_t tos)
{
	return (uint64_t)shm_lap(index) << 48 | (uint64_t)(place / SHM_REC_ALIGN) << 24 |
	       (uint64_t)tos << 16 | len;
}

/*
 * Makes a ring in new sealed memory, maps and populates its first part. `size`: a power of two
 * between SHM_RING_MIN and _MAX. Sets *fd (the caller's to close) and *p. 0 or -errno. Control
 * path.
 */
int shm_prod_create(uint32_t size, struct shm_prod *p, int *fd);
void shm_prod_unmap(struct shm_prod *p);

/*
 * Maps a ring that another process made, after checking that it is what it must be: memory that can
 * neither shrink nor fault, of exactly that size. 0, or -EINVAL, -EPERM (not sealed), -errno. The
 * descriptor stays the caller's.
 */
int shm_cons_map(int fd, uint32_t size, struct shm_cons *c);
void shm_cons_unmap(struct shm_cons *c);

/* Looks at what the consumer is done with; sets p->broken if that makes no sense. */
void shm_prod_look(struct shm_prod *p);
/* The slow path of a reservation: looks, turns, extends. True when `need` bytes fit now. */
bool shm_prod_more(struct shm_prod *p, uint32_t need);
/* Publishes up to a packet that was reserved. */
void shm_prod_publish_to(struct shm_prod *p, uint64_t index);

/* Memory behind the first part, when the consumer comes there first. False: there is none. */
bool shm_cons_populate(struct shm_cons *c, uint32_t upto);

/*
 * Asks for the lines of small records to come: a store that waits for its line holds up the ICRC's
 * loads behind it. Only where the consumer is done; large records keep the prefetchers of the CPU
 * busy without.
 */
static inline void shm_prod_ahead(const struct shm_prod *p, uint32_t need)
{
	uint64_t at = p->pos + SHM_AHEAD;

	if (need > SHM_SMALL || at + SHM_SMALL > p->limit)
		return;
	for (uint64_t line = ALIGN_DOWN(at, CACHE_LINE); line < at + need; line += CACHE_LINE)
		mem_prefetch_write(p->data + (line & (p->size - 1)));
}

/* Most bytes that a packet takes of the ring. */
static inline uint32_t shm_most_size(uint32_t len)
{
	return SHM_WATCHED + shm_rec_size(len);
}

/* Room for a packet of `len` bytes, or NULL: full, or broken. Sent by publish. */
static inline uint8_t *shm_prod_reserve(struct shm_prod *p, uint32_t len, uint8_t tos)
{
	bool begins = p->index == p->published;
	uint32_t need = shm_rec_size(len), front = 0, place;
	uint8_t *at = p->first;

	if (begins && need <= SHM_WATCHED)
		need = SHM_WATCHED;
	else if (begins)
		need += front = SHM_WATCHED;
	if (unlikely(p->pos + need > p->limit || p->index >= p->index_limit) &&
	    !shm_prod_more(p, need))
		return NULL;
	place = ((uint32_t)p->pos & (p->size - 1)) + front;
	p->pending[p->index % SHM_RING_PENDING] = shm_desc(p->index, place, len, tos);
	p->last = p->index;
	p->last_pos = p->pos;
	p->pos += need;
	p->ends[p->index++ % SHM_RING_DESCS] = (uint32_t)p->pos;
	if (begins && !front) {
		p->place = p->data + place;
	} else {
		shm_prod_ahead(p, need);
		at = p->data + place;
	}
	return at + shm_rec_front(len);
}

/* Takes back the last reservation, once, if it was not published. */
static inline void shm_prod_cancel(struct shm_prod *p)
{
	if (p->index != p->last) {
		p->index = p->last;
		p->pos = p->last_pos;
		p->limit = 0; /* it may be that of the next lap */
		if (p->index == p->published)
			p->place = NULL;
	}
}

static inline void shm_prod_publish(struct shm_prod *p)
{
	uint64_t next = ALIGN_UP(p->pos, SHM_WATCHED);

	shm_prod_publish_to(p, p->index);
	p->last = p->index;
	if (next <= p->limit)
		p->pos = next;
	p->sent = p->pos;
}

/* The same without the last packet, which may lack its ICRC. */
static inline void shm_prod_publish_finished(struct shm_prod *p)
{
	shm_prod_publish_to(p, p->last);
	p->sent = p->last_pos;
}

/* Has the consumer not yet given back all that was published? */
static inline bool shm_prod_unread(const struct shm_prod *p)
{
	return atomic_load_explicit(&p->ctl->head, memory_order_relaxed) != p->published;
}

/* Is there a packet? 1: yes, 0: no, -1: nonsense. */
static inline int shm_cons_look(const struct shm_cons *c)
{
	uint64_t d =
		atomic_load_explicit(&c->descs[c->head % SHM_RING_DESCS], memory_order_acquire);
	uint16_t laps = (uint16_t)((d >> 48) - shm_lap(c->head));

	return laps == 0 ? 1 : laps == 0xffff ? 0 : -1;
}

/*
 * Asks for the lines in which the next burst will begin. No promise: the producer may go on
 * elsewhere.
 */
static inline void shm_cons_watch(const struct shm_cons *c)
{
	const uint8_t *at = c->data + (ALIGN_UP(c->next, SHM_WATCHED) & (c->size - 1));

	__builtin_prefetch(at);
	__builtin_prefetch(at + CACHE_LINE);
}

/*
 * The next packet. 1 and the packet (in shared memory: it may change at any time), its length
 * (checked, and private) and type of service; 0: none; -1: nonsense in the ring.
 */
static inline int shm_cons_next(struct shm_cons *c, uint8_t **bth, uint32_t *len, uint8_t *tos)
{
	uint64_t d =
		atomic_load_explicit(&c->descs[c->head % SHM_RING_DESCS], memory_order_acquire);
	uint16_t laps = (uint16_t)((d >> 48) - shm_lap(c->head));
	uint32_t place = (uint32_t)(d >> 24 & 0xffffff) * SHM_REC_ALIGN, end;

	/* The producer cannot be further round than we let it. */
	if (laps != 0)
		return laps == 0xffff ? 0 : -1;
	*len = d & 0xffff;
	*tos = (uint8_t)(d >> 16);
	end = place + shm_rec_size(*len);
	if (unlikely(*len < SHM_MIN_LEN || *len > PKT_MAX_LEN || end > c->size))
		return -1;
	if (unlikely(end > c->populated) && !shm_cons_populate(c, end))
		return -1;
	*bth = c->data + place + shm_rec_front(*len);
	c->next = end;
	c->head++;
	return 1;
}

/* Gives back everything that was handed out. */
static inline void shm_cons_release(struct shm_cons *c)
{
	c->released = c->head;
	atomic_store_explicit(&c->ctl->head, c->head, memory_order_release);
}

#endif
