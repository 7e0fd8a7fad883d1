/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory that all members of a pool map. Only the owner of a slot writes the record of the slot.
 * There are no locks, so a member that is stopped or killed at any instant blocks nobody. A reader
 * reads `version` before and after, and starts again if it has changed. Values of a dead owner stay
 * until the next owner clears them, so readers ask pool_alive() too.
 *
 * Memory order, by pairs of accesses:
 *
 *   used		The owner writes an entry, then stores `used` (release). A reader loads
 *			`used` (acquire), then the entry.
 *   owned		A new owner stores `owned`, executes a release fence, then writes its
 *			entries. A reader loads `owned` (acquire), then an entry, executes an
 *			acquire fence, and loads `owned` again: pool_find().
 *   version		A writer changes the memory, then adds 1 (sequentially consistent). A reader
 *			loads it (acquire), then the memory, executes an acquire fence, and loads it
 *			again: addr_steer().
 *   services		Programs that publish at once store an entry, then load those of the others.
 *			All these accesses are sequentially consistent: pool_publish().
 *   wills		will.c
 */
#ifndef ROOST_POOL_STATE_H
#define ROOST_POOL_STATE_H

#include <stdatomic.h>

#include "base/numbers.h"
#include "base/secret.h"
#include "pool/pool.h"

#define STATE_MAGIC    0x43306c6f6f507352ull /* changes with the layout */
#define SLOT_SOCKETS   16
#define SLOT_SERVICES  256
#define STATE_ATTACHED 64

/* A socket that the owner uses. Its contents are valid if `used` is set. */
struct slot_socket {
	_Atomic uint32_t used;
	_Atomic uint16_t sport;
	_Atomic uint8_t joins;
	_Atomic uint8_t host;
	_Atomic uint32_t mtu, local_mtu;
	_Atomic uint32_t ring;
	struct pool_mailbox mailbox;
	_Atomic uint32_t scope; /* of a link-local address */
	_Atomic uint64_t inode;
	_Atomic uint64_t ended;	  /* pool_clock_ms() when the owner closed it, while `used` is 0 */
	_Atomic uint64_t addr[2]; /* the bytes of a struct pkt_addr */
};

struct slot_service {
	_Atomic uint32_t used;
	_Atomic uint32_t families; /* POOL_IPV4 | POOL_IPV6; 0: the service is at `addr` only */
	_Atomic uint32_t scope;	   /* of a link-local address */
	_Atomic uint64_t id;
	_Atomic uint64_t addr[2];
};

struct slot_will {
	_Atomic uint32_t used; /* the owner's number; 0: no will */
	struct pool_will will;
};

struct slot_record {
	_Atomic uint32_t owned;	   /* 0: no owner; otherwise the owner's number, see pool_owner() */
	_Atomic uint32_t first;	   /* the first slot of the same program */
	_Atomic uint32_t manages;  /* the slot has a connection manager */
	_Atomic uint32_t services; /* used entries have an index below this */
	struct slot_socket socket[SLOT_SOCKETS];
	struct slot_service service[SLOT_SERVICES];
	_Atomic uint32_t wills; /* used entries have an index below this */
	struct slot_will will[POOL_WILLS];
	_Atomic uint64_t reclaimed; /* pool_clock_ms() when the last owner's death was noticed */
};

struct pool_state {
	uint64_t magic;
	_Atomic uint64_t version;
	_Atomic uint32_t owners; /* the last number of an owner; it starts at a random value */
	/*
	 * A hash of the table and program attached last, or 0 if unknown, at an index that is a
	 * hash of the address. With it a program is not attached twice.
	 */
	_Atomic uint64_t attached[STATE_ATTACHED];
	/*
	 * The numbers used by living and dead programs. They start at random values when the pool
	 * is founded. All programs share the memory keys, because several slots may belong to one
	 * program.
	 */
	uint64_t seed[SECRET_WORDS];
	struct key_counts keys;
	struct {
		_Atomic uint64_t ids_entered;
		_Atomic uint32_t ids;
		struct qp_numbers qps;
	} used[POOL_SLOTS];
	struct slot_record record[POOL_SLOTS];
};

/*
 * Makes the memory. Returns its descriptor, -EFBIG (the limit of file sizes is too low), or another
 * -errno.
 */
int state_create(void);
/* Maps the memory. Returns NULL if it is not a state of this version, or cannot be mapped. */
struct pool_state *state_map(int fd);
void state_unmap(struct pool_state *s);

static inline void state_changed(struct pool_state *s)
{
	atomic_fetch_add_explicit(&s->version, 1, memory_order_seq_cst);
}

static inline void state_store_addr(_Atomic uint64_t to[2], const struct pkt_addr *addr)
{
	uint64_t word[2];

	__builtin_memcpy(word, addr->b, sizeof(word));
	atomic_store_explicit(&to[0], word[0], memory_order_relaxed);
	atomic_store_explicit(&to[1], word[1], memory_order_relaxed);
}

static inline void state_load_addr(_Atomic uint64_t of[2], struct pkt_addr *addr)
{
	uint64_t word[2];

	word[0] = atomic_load_explicit(&of[0], memory_order_relaxed);
	word[1] = atomic_load_explicit(&of[1], memory_order_relaxed);
	__builtin_memcpy(addr->b, word, sizeof(word));
}

static inline bool state_is_addr(_Atomic uint64_t of[2], const struct pkt_addr *addr)
{
	uint64_t word[2];

	__builtin_memcpy(word, addr->b, sizeof(word));
	return atomic_load_explicit(&of[0], memory_order_relaxed) == word[0] &&
	       atomic_load_explicit(&of[1], memory_order_relaxed) == word[1];
}

/*
 * Returns true if a stored address, with a stored scope, is this one: a link-local address belongs
 * to its interface.
 */
static inline bool state_is_at(_Atomic uint64_t of[2], _Atomic uint32_t *of_scope,
			       const struct pkt_addr *addr, uint32_t scope)
{
	return state_is_addr(of, addr) &&
	       (!pkt_addr_is_link_local(addr) ||
		atomic_load_explicit(of_scope, memory_order_relaxed) == scope);
}

/* Get the sequences that pool_keys() and pool_ids() return. */
void state_keys(struct pool_state *s, struct key_sequence *out);
void state_ids(struct pool_state *s, unsigned slot, struct sequence *out);

/* Returns a number for an owner that no earlier owner had, and not 0. */
uint32_t state_owner(struct pool_state *s);
/* Empties a record. Only the owner of the slot may call it. */
void slot_clear(struct pool_state *s, unsigned slot, uint32_t owned);

#endif
