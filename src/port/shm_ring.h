/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A ring of packets in memory that two processes share: one producer, one consumer, one direction.
 * The data path makes no system calls and uses no sockets. shm.c moves packets through rings, and
 * shm_conn.c passes rings between processes.
 *
 *   memfd:  | control page | 1024 descriptors of 8 bytes | data, `size` bytes, a power of two |
 *
 *   data:   | rec | rec    | rec |                       |      not touched       |
 *           0     ^free          ^pos                    ^extent                  ^size
 *
 * The size of a record is a multiple of 32 bytes. The record of a large packet has 20 unused bytes
 * in front, so that the payload of a middle packet is aligned to 32. Small packets lie close
 * together: a WRITE of 64 bytes takes one and a half cache lines. A ring of slots would have
 * strides of 4 KiB, which are bad for the TLB and the prefetchers.
 *
 * A burst begins with two cache lines whose address the consumer knows in advance. A consumer that
 * looks for packets prefetches these lines together with the line of the next descriptor. A small
 * first packet lies in them, so it arrives with its descriptor and not after it. This saves a
 * single packet one transfer between two cores. The first packet is built in private memory and
 * copied when the burst is published, because another core that reads a line takes it away from the
 * writer again and again. All other packets lie behind the two lines.
 *
 * The descriptor has everything that the consumer must know about a packet, so the consumer hands
 * out a burst without reading the packets. Reading the first line of each packet at once and the
 * rest later would halve the bandwidth, because it defeats the prefetchers.
 *
 *   descriptor:  lap (16 bits) | offset / 32 (24) | type of service (8) | length (16)
 *
 * The lap tells whether a descriptor is new. It counts the rounds of the producer, from 1. No index
 * is needed, and an idle consumer polls the line of the next descriptor. The producer publishes a
 * burst from its last descriptor to its first, so the consumer sees the whole burst at once.
 *
 * Data positions count bytes and never wrap. The offset is the position modulo size. A record never
 * crosses the end of the data: the producer skips the rest. It also skips at its `extent`, so that
 * an idle ring uses little memory. The extent grows while packets pile up. A stream is faster in a
 * large ring, because its lines have left the consumer's cache when they are written again. It is
 * also faster with a limit on the bytes in flight, because these are still in the producer's cache
 * when they are read (docs/decisions.md).
 *
 * Memory order, by pairs:
 *
 *	producer			consumer
 *	record, then descriptor		descriptor, then record		release / acquire on the
 *									descriptor
 *									(shm_prod_publish_to,
 *									shm_cons_next)
 *	`head`, then over the records	records, then `head`		acquire / release on `head`
 *									(shm_prod_look,
 *									shm_cons_release)
 *	descriptors, then `sleeping`	`sleeping`, then descriptors	store before load: a full
 * 									fence on both sides
 * 									(shm_wake.c)
 *	`want_space`, then `head`	`head`, then `want_space`	the same
 *
 * Neither side trusts the other: each keeps its state private, reads each shared word once, and
 * checks it. One thread at a time may use each side.
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
/* Bytes that are populated at the start, and bytes by which a ring grows. */
#define SHM_RING_FIRST (256u << 10)
#define SHM_RING_STEP  (512u << 10)
/*
 * If this many unconsumed bytes lie before the end of the extent, the traffic is a stream, and the
 * ring grows.
 */
#define SHM_RING_LAG (16u << 10)

/* The most bytes in flight, and the most packets. */
#define SHM_RING_WINDOW	  (1u << 20)
#define SHM_RING_DESCS	  1024u
#define SHM_RING_PENDING  128u /* the most packets reserved and not yet published */
#define SHM_RING_CTL	  4096u
#define SHM_RING_OVERHEAD (SHM_RING_CTL + SHM_RING_DESCS * 8u) /* bytes in front of the data */

#define SHM_REC_ALIGN 32u
/* offset of a large packet in its record; a small one starts at 0 */
#define SHM_REC_FRONT 20u
#define SHM_MIN_LEN   16u /* BTH and ICRC */
#define SHM_SMALL     256u
#define SHM_AHEAD     1024u /* bytes */
/* bytes at the start of a burst: two lines, which prefetchers fetch as a pair */
#define SHM_WATCHED 128u

/*
 * The control page. Words of different writers are 128 bytes apart, because prefetchers fetch lines
 * in pairs.
 */
struct shm_ring_ctl {
	uint64_t magic; /* for debuggers only */
	/* the consumer has released all packets before this index */
	_Alignas(128) _Atomic uint64_t head;
	/* set by a consumer that sleeps; the thread that clears it sends the wake-up */
	_Alignas(128) _Atomic uint32_t sleeping;
	/* the same for a producer that waits for space */
	_Alignas(128) _Atomic uint32_t want_space;
};
_Static_assert(sizeof(struct shm_ring_ctl) <= SHM_RING_CTL, "control page");

struct shm_prod {
	struct shm_ring_ctl *ctl;
	_Atomic uint64_t *descs;
	uint8_t *data;
	/*
	 * for each descriptor, the data position after its record. This copy is private, because
	 * the peer may change the shared one
	 */
	uint32_t *ends;
	uint64_t index; /* packets reserved so far */
	/* the last reservation: it may be cancelled, or may still lack its ICRC */
	uint64_t last;
	uint64_t published;   /* packets that the consumer can see */
	uint64_t head;	      /* packets that the consumer has released, at the last look */
	uint64_t index_limit; /* reservations up to this index ... */
	uint64_t limit;	      /* ... and this data position need no shm_prod_more() */
	uint64_t pos;	      /* data position of the next record */
	uint64_t last_pos;
	uint64_t free; /* data position up to which records are released */
	uint64_t sent; /* data position of the published records */
	uint64_t turn; /* data position at which the lap of pos began ... */
	uint32_t skip; /* ... and the bytes skipped before it */
	uint32_t size, extent, step;
	bool broken; /* the consumer's index was invalid */
	/*
	 * address of the first packet of the burst, which is built in `first`; NULL: no packet is
	 * there
	 */
	uint8_t *first_at;
	uint64_t pending[SHM_RING_PENDING];
	uint8_t first[SHM_WATCHED] __attribute__((aligned(CACHE_LINE)));
};

struct shm_cons {
	struct shm_ring_ctl *ctl;
	_Atomic uint64_t *descs;
	uint8_t *data;
	uint64_t head;	   /* packets handed out so far */
	uint64_t released; /* packets released to the producer */
	uint32_t size;
	uint32_t populated; /* bytes of data in the page table of this process */
	uint32_t next;	    /* offset after the last record handed out */
};

/*
 * A full fence. TSan of gcc does not support fences, so TSan builds use a read-modify-write
 * instead.
 */
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

static inline uint64_t shm_desc(uint64_t index, uint32_t offset, uint32_t len, uint8_t tos)
{
	return (uint64_t)shm_lap(index) << 48 | (uint64_t)(offset / SHM_REC_ALIGN) << 24 |
	       (uint64_t)tos << 16 | len;
}

/*
 * Makes a ring in new sealed memory, and maps and populates its first part. `size`: a power of two
 * between SHM_RING_MIN and _MAX. Sets *fd, which the caller closes, and *p. Returns 0 or -errno.
 * Control path.
 */
int shm_prod_create(uint32_t size, struct shm_prod *p, int *fd);
/* Unmaps the ring, and frees the private memory of the producer. */
void shm_prod_unmap(struct shm_prod *p);

/*
 * Maps a ring of another process. It first checks that the memory cannot shrink, that its accesses
 * cannot fault, and that it has exactly this size. Returns 0, -EINVAL, -EPERM (not sealed), or
 * another -errno. The descriptor still belongs to the caller.
 */
int shm_cons_map(int fd, uint32_t size, struct shm_cons *c);
/* Unmaps the ring. */
void shm_cons_unmap(struct shm_cons *c);

/* Reads how many packets the consumer has released. Sets p->broken if the value is invalid. */
void shm_prod_look(struct shm_prod *p);
/*
 * The slow path of a reservation: reads the head, wraps, or extends the ring. Returns true if
 * `need` bytes fit now.
 */
bool shm_prod_more(struct shm_prod *p, uint32_t need);
/* Publishes the packets before `index`. */
void shm_prod_publish_to(struct shm_prod *p, uint64_t index);

/*
 * Populates memory after the first part when the consumer first reaches it. Returns false if there
 * is no memory.
 */
bool shm_cons_populate(struct shm_cons *c, uint32_t upto);

/*
 * Prefetches the lines of later small records: a store that waits for its line delays the loads
 * that compute the ICRC afterwards. Only released lines are prefetched. For large records the
 * prefetchers of the CPU suffice.
 */
static inline void shm_prod_ahead(const struct shm_prod *p, uint32_t need)
{
	uint64_t at = p->pos + SHM_AHEAD;

	if (need > SHM_SMALL || at + SHM_SMALL > p->limit)
		return;
	for (uint64_t line = ALIGN_DOWN(at, CACHE_LINE); line < at + need; line += CACHE_LINE)
		mem_prefetch_write(p->data + (line & (p->size - 1)));
}

/* Returns the most bytes of the ring that a packet takes. */
static inline uint32_t shm_most_size(uint32_t len)
{
	return SHM_WATCHED + shm_rec_size(len);
}

/*
 * Reserves space for a packet of `len` bytes. Returns NULL if the ring is full or broken.
 * Publishing sends the packet.
 */
static inline uint8_t *shm_prod_reserve(struct shm_prod *p, uint32_t len, uint8_t tos)
{
	bool begins = p->index == p->published;
	uint32_t need = shm_rec_size(len), front = 0, offset;
	uint8_t *at = p->first;

	if (begins && need <= SHM_WATCHED)
		need = SHM_WATCHED;
	else if (begins)
		need += front = SHM_WATCHED;
	if (unlikely(p->pos + need > p->limit || p->index >= p->index_limit) &&
	    !shm_prod_more(p, need))
		return NULL;
	offset = ((uint32_t)p->pos & (p->size - 1)) + front;
	p->pending[p->index % SHM_RING_PENDING] = shm_desc(p->index, offset, len, tos);
	p->last = p->index;
	p->last_pos = p->pos;
	p->pos += need;
	p->ends[p->index++ % SHM_RING_DESCS] = (uint32_t)p->pos;
	if (begins && !front) {
		p->first_at = p->data + offset;
	} else {
		shm_prod_ahead(p, need);
		at = p->data + offset;
	}
	return at + shm_rec_front(len);
}

/* Cancels the last reservation. Has no effect if it was published or cancelled already. */
static inline void shm_prod_cancel(struct shm_prod *p)
{
	if (p->index != p->last) {
		p->index = p->last;
		p->pos = p->last_pos;
		p->limit = 0; /* the limit may be that of the next lap */
		if (p->index == p->published)
			p->first_at = NULL;
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

/* Publishes all but the last packet, which may lack its ICRC. */
static inline void shm_prod_publish_finished(struct shm_prod *p)
{
	shm_prod_publish_to(p, p->last);
	p->sent = p->last_pos;
}

/* Returns true if the consumer has not yet released all published packets. */
static inline bool shm_prod_unread(const struct shm_prod *p)
{
	return atomic_load_explicit(&p->ctl->head, memory_order_relaxed) != p->published;
}

/* Returns 1 if there is a packet, 0 if there is none, or -1 if the ring is invalid. */
static inline int shm_cons_look(const struct shm_cons *c)
{
	uint64_t d =
		atomic_load_explicit(&c->descs[c->head % SHM_RING_DESCS], memory_order_acquire);
	uint16_t laps = (uint16_t)((d >> 48) - shm_lap(c->head));

	return laps == 0 ? 1 : laps == 0xffff ? 0 : -1;
}

/*
 * Prefetches the lines in which the next burst will probably begin; the producer may continue
 * elsewhere.
 */
static inline void shm_cons_watch(const struct shm_cons *c)
{
	const uint8_t *at = c->data + (ALIGN_UP(c->next, SHM_WATCHED) & (c->size - 1));

	__builtin_prefetch(at);
	__builtin_prefetch(at + CACHE_LINE);
}

/*
 * Gets the next packet. Returns 1 and the packet (in shared memory, so it may change at any time),
 * its length (checked and private) and its type of service. Returns 0 if there is none, -1 if the
 * ring is invalid.
 */
static inline int shm_cons_next(struct shm_cons *c, uint8_t **bth, uint32_t *len, uint8_t *tos)
{
	uint64_t d =
		atomic_load_explicit(&c->descs[c->head % SHM_RING_DESCS], memory_order_acquire);
	uint16_t laps = (uint16_t)((d >> 48) - shm_lap(c->head));
	uint32_t offset = (uint32_t)(d >> 24 & 0xffffff) * SHM_REC_ALIGN, end;

	/* The producer cannot be more laps ahead than the released records allow. */
	if (laps != 0)
		return laps == 0xffff ? 0 : -1;
	*len = d & 0xffff;
	*tos = (uint8_t)(d >> 16);
	end = offset + shm_rec_size(*len);
	if (unlikely(*len < SHM_MIN_LEN || *len > PKT_MAX_LEN || end > c->size))
		return -1;
	if (unlikely(end > c->populated) && !shm_cons_populate(c, end))
		return -1;
	*bth = c->data + offset + shm_rec_front(*len);
	c->next = end;
	c->head++;
	return 1;
}

/* Releases all packets that were handed out. */
static inline void shm_cons_release(struct shm_cons *c)
{
	c->released = c->head;
	atomic_store_explicit(&c->ctl->head, c->head, memory_order_release);
}

#endif
