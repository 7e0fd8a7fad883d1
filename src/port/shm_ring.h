/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A ring of packets in memory that two processes share: one producer, one consumer, one direction. No system calls
 * on the data path, no sockets: shm.c moves packets over rings, shm_conn.c passes them between processes.
 *
 *   memfd:  | control page | data, `size` bytes, a power of two                        |
 *
 *   data:   | rec | rec    | rec | turn |            unused               |
 *           0     ^head          ^tail  ^extent                           ^size
 *
 * A record is a multiple of 64 bytes: a header of 8, 12 bytes left free so that the payload of a middle packet is
 * aligned to 32, the packet, the rest up to the next 64. Small packets so lie close together: a WRITE of 64 bytes takes
 * two cache lines, and neither TLB nor prefetchers see the 4 KiB strides of a ring of slots.
 *
 * Indices count bytes and never wrap; the place in data is index modulo size. A record never crosses the end: a "turn"
 * record says that the rest up to `size` is skipped. The producer may turn early, at its `extent`, so that an idle ring
 * costs little memory; it extends while packets pile up. A large ring is faster for streams: lines that left the
 * cache of the other core are cheaper to take than lines that are still in it (docs/decisions.md).
 *
 * Neither side trusts the other: a side keeps its own index private and only publishes it, checks what it reads (an
 * index must lie between the last one seen and what the other can have reached), and reads each word once.
 * Thread rules: one thread at a time for each side.
 */
#ifndef ROOST_PORT_SHM_RING_H
#define ROOST_PORT_SHM_RING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/mem.h"
#include "packet/headers.h"

#define SHM_RING_CTL_BYTES 4096u
#define SHM_RING_MIN	   (64u << 10)
#define SHM_RING_MAX	   (64u << 20)
#define SHM_RING_DEFAULT   (8u << 20)
/* What is populated at the start, and by how much a ring extends (bytes). */
#define SHM_RING_FIRST (256u << 10)
#define SHM_RING_STEP  (512u << 10)
/* So many bytes not yet consumed at the end of the extent: a stream, worth more memory. */
#define SHM_RING_LAG (16u << 10)

#define SHM_REC_ALIGN 64u
#define SHM_REC_BTH   20u /* where the packet starts in its record */
#define SHM_MIN_LEN   16u /* BTH and ICRC */

/* Record header: length in bits 0..15, type of service in 16..23, kind in 24..31, the rest 0. */
#define SHM_REC_DATA 1u
#define SHM_REC_TURN 2u

/* The control page. Words of different writers stand 128 bytes apart: prefetchers fetch lines in pairs. */
struct shm_ring_ctl {
	uint64_t magic;			     /* for a debugger; nobody relies on it */
	_Alignas(128) _Atomic uint64_t tail; /* producer: records before it are complete */
	_Alignas(128) _Atomic uint64_t head; /* consumer: bytes before it may be written again */
	_Alignas(128) _Atomic uint32_t
		sleeping; /* consumer sets it: wake me; who takes it back to 0 sends the wake-up */
	_Alignas(128) _Atomic uint32_t want_room; /* producer sets it; the same the other way round */
};
_Static_assert(sizeof(struct shm_ring_ctl) <= SHM_RING_CTL_BYTES, "control page");

struct shm_prod {
	struct shm_ring_ctl *ctl;
	uint8_t *data;
	uint64_t tail; /* reserved so far */
	uint64_t last; /* where the last reservation starts: it may be taken back, or lack its ICRC still */
	uint64_t published; /* what the consumer was told */
	uint64_t head;	    /* the consumer's, as last seen */
	uint64_t limit;	    /* reservations up to here need no look at anything */
	uint32_t size, extent, step;
	bool broken; /* the consumer's index made no sense */
};

struct shm_cons {
	struct shm_ring_ctl *ctl;
	uint8_t *data;
	uint64_t head;	   /* handed out so far */
	uint64_t released; /* what the producer was told */
	uint64_t tail;	   /* the producer's, as last seen */
	uint32_t size;
	uint32_t populated; /* bytes of data that are in our page table */
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

static inline uint32_t shm_rec_size(uint32_t len)
{
	return ALIGN_UP(SHM_REC_BTH + len, SHM_REC_ALIGN);
}

static inline _Atomic uint64_t *shm_rec_word(uint8_t *data, uint64_t index, uint32_t size)
{
	return (_Atomic uint64_t *)(void *)(data + (index & (size - 1)));
}

/*
 * Makes a ring in new sealed memory, maps and populates its first part. `size`: a power of two between SHM_RING_MIN and
 * _MAX. Sets *fd (the caller's to close) and *p. 0 or -errno. Control path.
 */
int shm_prod_create(uint32_t size, struct shm_prod *p, int *fd);
void shm_prod_unmap(struct shm_prod *p);

/*
 * Maps a ring that another process made, after checking that it is what it must be: memory that can neither shrink nor
 * fault, of exactly that size. 0, or -EINVAL, -EPERM (not sealed), -errno. The descriptor stays the caller's.
 */
int shm_cons_map(int fd, uint32_t size, struct shm_cons *c);
void shm_cons_unmap(struct shm_cons *c);

/* The slow path of a reservation: looks at the consumer's index, turns, extends. True when `need` bytes fit now. */
bool shm_prod_more(struct shm_prod *p, uint32_t need);

/* Memory behind the first part, when the consumer comes there first. */
void shm_cons_populate(struct shm_cons *c, uint32_t upto);

/* Room for a packet of `len` bytes, or NULL: full, or broken. Sent by publish. */
static inline uint8_t *shm_prod_reserve(struct shm_prod *p, uint32_t len, uint8_t tos)
{
	uint32_t need = shm_rec_size(len);

	if (unlikely(p->tail + need > p->limit) && !shm_prod_more(p, need))
		return NULL;

	_Atomic uint64_t *word = shm_rec_word(p->data, p->tail, p->size);

	atomic_store_explicit(word, len | (uint64_t)tos << 16 | (uint64_t)SHM_REC_DATA << 24,
			      memory_order_relaxed);
	p->last = p->tail;
	p->tail += need;
	return (uint8_t *)word + SHM_REC_BTH;
}

/* Takes back the last reservation, once, if it was not published. */
static inline void shm_prod_cancel(struct shm_prod *p)
{
	p->tail = p->last;
}

static inline void shm_prod_publish(struct shm_prod *p)
{
	p->last = p->published = p->tail;
	atomic_store_explicit(&p->ctl->tail, p->tail, memory_order_release);
}

/* The same without the last packet, which may lack its ICRC. */
static inline void shm_prod_publish_finished(struct shm_prod *p)
{
	p->published = p->last;
	atomic_store_explicit(&p->ctl->tail, p->last, memory_order_release);
}

/* Looks for new records. 1: there are, 0: none, -1: the producer's index makes no sense. */
static inline int shm_cons_look(struct shm_cons *c)
{
	uint64_t tail = atomic_load_explicit(&c->ctl->tail, memory_order_acquire);

	if (tail == c->head)
		return 0;
	/* Never back, never more than the ring holds, never half a record. */
	if (unlikely(tail - c->released > c->size || tail - c->released < c->tail - c->released ||
		     (tail & (SHM_REC_ALIGN - 1))))
		return -1;
	c->tail = tail;
	return 1;
}

/*
 * Where a record starts stands in the one before it, so each header is a cache miss that waits for the last one. Packets
 * mostly come in runs of one size: the headers are fetched ahead where they would then stand. Never beyond
 * the tail: the line may be one that the producer is about to write.
 */
#define SHM_AHEAD 8u

static inline void shm_cons_prefetch(const struct shm_cons *c, uint32_t distance)
{
	if (c->tail - c->head > distance)
		__builtin_prefetch(c->data + ((c->head + distance) & (c->size - 1)), 0, 3);
}

static inline void shm_cons_ahead(const struct shm_cons *c, uint32_t stride)
{
	for (uint32_t i = 1; i < SHM_AHEAD; i++)
		shm_cons_prefetch(c, i * stride);
}

/*
 * The next record before the tail last seen. 1 and the packet (in shared memory: it may change at any time), its length
 * (checked, and private) and type of service; 0: none left; -1: nonsense in the ring.
 */
static inline int shm_cons_next(struct shm_cons *c, uint8_t **bth, uint32_t *len, uint8_t *tos)
{
	while (c->head != c->tail) {
		uint64_t left = c->tail - c->head;
		uint32_t off = (uint32_t)c->head & (c->size - 1);
		_Atomic uint64_t *at = shm_rec_word(c->data, c->head, c->size);
		uint64_t word = atomic_load_explicit(at, memory_order_relaxed);
		uint32_t need;

		if (unlikely(word >> 24 != SHM_REC_DATA)) {
			if (word != (uint64_t)SHM_REC_TURN << 24 || c->size - off > left)
				return -1;
			c->head += c->size - off;
			continue;
		}
		*len = word & 0xffff;
		*tos = (uint8_t)(word >> 16);
		need = shm_rec_size(*len);
		if (unlikely(*len < SHM_MIN_LEN || *len > PKT_MAX_LEN || need > left || need > c->size - off))
			return -1;
		if (unlikely(off + need > c->populated))
			shm_cons_populate(c, off + need);
		*bth = (uint8_t *)at + SHM_REC_BTH;
		c->head += need;
		return 1;
	}
	return 0;
}

/* Gives back everything that was handed out. */
static inline void shm_cons_release(struct shm_cons *c)
{
	c->released = c->head;
	atomic_store_explicit(&c->ctl->head, c->head, memory_order_release);
}

/* Puts a fresh look at the consumer's index into p->head; sets p->broken if it makes no sense. */
void shm_prod_look(struct shm_prod *p);

#endif
