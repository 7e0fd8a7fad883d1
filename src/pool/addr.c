/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The sockets of an address. Only the process that opens the address first binds sockets, all at
 * once, so the index of a socket in the group is its slot. The first socket is bound without
 * SO_REUSEPORT: Linux then refuses the address if any other socket has it.
 *
 * A process that may not attach a program binds one socket without SO_REUSEPORT, and does not share
 * it.
 */
#include "pool/core.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/log.h"
#include "base/sys.h"
#include "pool/filter.h"

#ifndef SO_ATTACH_REUSEPORT_CBPF
#define SO_ATTACH_REUSEPORT_CBPF 51
#endif

/*
 * Linux raises this size of a receive buffer to its minimum. A full buffer drops the datagrams
 * for a slot without an owner.
 */
#define LEAST_BUFFER 1
#define STEER_TRIES  64u
/* The most datagrams that are drained. No buffer holds more. */
#define DRAIN_MOST 1000000
#define SENT_MS	   10000 /* a datagram is read at the latest so long after its sender has ended */

static int set_int(int fd, int level, int name, int value)
{
	return sys_setsockopt(fd, level, name, &value, sizeof(value));
}

struct pool_addr *addr_find(struct pool *p, const struct pkt_addr *addr, uint32_t scope)
{
	struct list_head *l;

	list_for_each (l, &p->addrs) {
		struct pool_addr *a = list_entry(l, struct pool_addr, link);

		if (pkt_addr_eq(&a->addr, addr) &&
		    (!pkt_addr_is_link_local(addr) || a->scope == scope))
			return a;
	}
	return NULL;
}

/* ---- sockets ---- */

static void close_sockets(struct pool_addr *a)
{
	for (unsigned i = 0; i < POOL_SLOTS; i++) {
		if (a->sock[i] >= 0 && a->sock[i] != a->only)
			sys_close(a->sock[i]);
		a->sock[i] = -1;
	}
	if (a->only >= 0)
		sys_close(a->only);
	a->only = -1;
}

/*
 * Binds a socket of the address. The first socket is bound without SO_REUSEPORT, so that the bind
 * fails if another socket has the address.
 */
static int bind_one(const struct pool_addr *a, bool first)
{
	struct sockaddr_in6 v6 = {.sin6_family = AF_INET6,
				  .sin6_port = htons(POOL_UDP_PORT),
				  .sin6_scope_id = a->scope};
	struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(POOL_UDP_PORT)};
	bool is_v4 = pkt_addr_is_v4(&a->addr);
	int fd = sys_socket(is_v4 ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC,
			    0);
	int rc;

	if (fd < 0)
		return fd;
	memcpy(&v4.sin_addr, a->addr.b + 12, 4);
	memcpy(&v6.sin6_addr, a->addr.b, 16);
	rc = is_v4 ? 0 : set_int(fd, SOL_IPV6, IPV6_V6ONLY, 1);
	if (rc == 0 && !first)
		rc = set_int(fd, SOL_SOCKET, SO_REUSEPORT, 1);
	set_int(fd, SOL_SOCKET, SO_RCVBUF, LEAST_BUFFER);
	if (rc == 0)
		rc = is_v4 ? sys_bind(fd, (struct sockaddr *)&v4, sizeof(v4))
			   : sys_bind(fd, (struct sockaddr *)&v6, sizeof(v6));
	if (rc == 0 && first && !a->alone)
		rc = set_int(fd, SOL_SOCKET, SO_REUSEPORT, 1);
	if (rc == 0)
		return pool_high(fd);
	sys_close(fd);
	return rc;
}

static int attach(int sock, const struct pool_table *t)
{
	struct sock_filter code[POOL_FILTER_MAX];
	struct sock_fprog prog = {.filter = code};

	prog.len = (unsigned short)pool_filter(t, code);
	return sys_setsockopt(sock, SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &prog, sizeof(prog));
}

/*
 * Attaches the program, with as many services as net.core.optmem_max allows. Requests for the other
 * services come to any slot, which passes them on (route.c). After an error the old program stays,
 * and the next change tries again.
 */
static int attach_most(int sock, struct pool_table *t)
{
	int rc;

	while ((rc = attach(sock, t)) == -ENOMEM && (t->num || t->cut)) {
		t->cut = t->num != 0; /* the choice of a slot takes space, too */
		t->num /= 2;
	}
	if (rc)
		log_warn(
			"pool: the kernel refused the filter of an address (%s): connection requests may be lost "
			"when a program begins or ends to listen",
			strerror(-rc));
	return rc;
}

int addr_can_steer(void)
{
	struct pool_table t = {.single = true};
	int fd = sys_socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), rc;

	if (fd < 0)
		fd = sys_socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return 0; /* the cause is unknown, but the address cannot be opened either */
	rc = set_int(fd, SOL_SOCKET, SO_REUSEPORT, 1);
	rc = rc ? rc : attach(fd, &t);
	sys_close(fd);
	return rc;
}

static int bind_all(struct pool_addr *a)
{
	struct pool_table t = {0};
	int rc;

	if (a->alone) {
		rc = bind_one(a, true);
		if (rc < 0)
			return rc;
		a->only = rc;
		return 0;
	}
	for (unsigned i = 0; i < POOL_SLOTS; i++) {
		rc = bind_one(a, i == 0);
		if (rc < 0) {
			close_sockets(a);
			return rc;
		}
		a->sock[i] = rc;
	}
	rc = attach(a->sock[0], &t);
	if (rc)
		close_sockets(a);
	return rc;
}

/* ---- the program ---- */

static bool is_at(struct slot_socket *s, const struct pkt_addr *addr, uint32_t scope)
{
	return state_is_at(s->addr, &s->scope, addr, scope);
}

static struct slot_socket *find_socket(struct pool *p, unsigned slot, const struct pkt_addr *addr,
				       uint32_t scope)
{
	struct slot_record *record = &p->state->record[slot];

	if (!atomic_load_explicit(&record->owned, memory_order_acquire))
		return NULL;
	for (unsigned i = 0; i < SLOT_SOCKETS; i++) {
		struct slot_socket *s = &record->socket[i];

		if (atomic_load_explicit(&s->used, memory_order_acquire) && is_at(s, addr, scope))
			return s;
	}
	return NULL;
}

bool addr_shared(struct pool *p, unsigned a, unsigned b, unsigned families)
{
	for (unsigned i = 0; i < SLOT_SOCKETS; i++) {
		struct slot_socket *s = &p->state->record[a].socket[i];
		struct pkt_addr addr;

		if (!atomic_load_explicit(&s->used, memory_order_acquire))
			continue;
		state_load_addr(s->addr, &addr);
		if (families & (pkt_addr_is_v4(&addr) ? POOL_IPV4 : POOL_IPV6) &&
		    find_socket(p, b, &addr, atomic_load_explicit(&s->scope, memory_order_relaxed)))
			return true;
	}
	return false;
}

static void make_table(struct pool_addr *a, struct pool_table *t)
{
	uint64_t alive = 0, manage = 0;

	memset(t, 0, sizeof(*t));
	for (unsigned i = 0; i < POOL_SLOTS; i++) {
		/*
		 * The owner is dead. repair() in pool.c soon removes it, and calls this function
		 * again.
		 */
		if (!find_socket(a->pool, i, &a->addr, a->scope))
			continue;
		alive |= 1ull << i;
		if (atomic_load_explicit(&a->pool->state->record[i].manages, memory_order_acquire))
			manage |= 1ull << i;
	}
	manage = alive & manage ? alive & manage : alive;
	t->any = manage;
	t->otherwise = manage ? (uint8_t)__builtin_ctzll(manage) : 0;
	t->single = alive && !(alive & (alive - 1));
	service_routes(a, alive, t);
}

/* Returns a hash of the address. */
static uint64_t key_of(const struct pool_addr *a)
{
	return XXH3_64bits_withSeed(&a->addr, sizeof(a->addr), a->scope);
}

void addr_steer(struct pool_addr *a)
{
	struct pool_state *s = a->pool->state;
	uint64_t key = key_of(a), version;
	_Atomic uint64_t *attached = &s->attached[key % STATE_ATTACHED];
	struct pool_table t;

	if (a->alone)
		return;
	/*
	 * If the version changed meanwhile, another member may have attached a newer program first.
	 * A member that changes it all the time must not keep this one here; the next change of its
	 * own steers again.
	 */
	for (unsigned i = 0; i < STEER_TRIES; i++) {
		uint64_t want;

		version = pool_version(a->pool);
		make_table(a, &t);
		want = XXH3_64bits_withSeed(&t, sizeof(t), key) | 1;
		/* the version is read again after the memory */
		atomic_thread_fence(memory_order_acquire);
		if (atomic_load_explicit(attached, memory_order_seq_cst) != want) {
			atomic_store_explicit(attached, 0, memory_order_seq_cst);
			if (attach_most(a->sock[0], &t) == 0)
				atomic_store_explicit(attached, want, memory_order_seq_cst);
		}
		if (pool_version(a->pool) == version)
			return;
	}
}

void pool_steer(struct pool *p)
{
	struct list_head *l;

	pthread_mutex_lock(&p->lock);
	list_for_each (l, &p->addrs)
		addr_steer(list_entry(l, struct pool_addr, link));
	pthread_mutex_unlock(&p->lock);
}

/* ---- opening ---- */

static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER;

/*
 * Gets the sockets of an address. If a member serves the address, the function first asks the
 * members. It asks them again if the address cannot be bound, because a member may have bound it
 * meanwhile. A member listens before it binds an address.
 */
static int open_sockets(struct pool_addr *a, unsigned *silent)
{
	struct ask ask = {.magic = STATE_MAGIC,
			  .what = ASK_ADDR,
			  .slot = a->pool->slot[0],
			  .addr = a->addr,
			  .scope = a->scope};
	bool serves = pool_serves(a->pool, &a->addr, a->scope), hung_up;
	int rc, bound;

	for (int try = 0; try < 3; try++) { /* the second and third try ask the members first */
		rc = 0;
		if (!a->pool->alone && !a->alone && (try || serves))
			rc = pool_ask(a->pool, &ask, a->sock, POOL_SLOTS, silent, &hung_up);
		if (rc == -EMFILE)
			return rc;
		if (rc > 0) {
			pthread_mutex_lock(&a->pool->lock);
			list_add(&a->link, &a->pool->addrs);
			pthread_mutex_unlock(&a->pool->lock);
			return 0;
		}
		/* While the lock is held, the thread does not answer other members. */
		pthread_mutex_lock(&a->pool->lock);
		bound = bind_all(a);
		if (bound == -EMFILE && !a->alone) { /* one socket may fit */
			a->alone = bound;
			bound = bind_all(a);
		}
		if (bound == 0) {
			atomic_store_explicit(&a->pool->state->attached[key_of(a) % STATE_ATTACHED],
					      0, memory_order_seq_cst);
			list_add(&a->link, &a->pool->addrs);
		}
		pthread_mutex_unlock(&a->pool->lock);
		if (bound != -EADDRINUSE)
			return bound;
		if (a->pool->alone)
			*silent = 1;
		if (*silent || a->alone)
			break; /* a silent member may have the address */
	}
	return a->alone == -EMFILE ? -EMFILE : -EADDRINUSE;
}

struct pool_addr *pool_addr_get(struct pool *p, const struct pkt_addr *addr, uint32_t scope,
				unsigned *silent)
{
	struct pool_addr *a;
	int rc = 0;

	*silent = 0;
	pthread_mutex_lock(&open_lock);
	pthread_mutex_lock(&p->lock);
	a = addr_find(p, addr, scope);
	if (a)
		a->refs++;
	pthread_mutex_unlock(&p->lock);
	if (a)
		goto out;
	a = calloc(1, sizeof(*a));
	if (!a) {
		rc = -ENOMEM;
		goto out;
	}
	*a = (struct pool_addr){.pool = p,
				.addr = *addr,
				.scope = scope,
				.refs = 1,
				.alone = p->steers,
				.only = -1};
	for (unsigned i = 0; i < POOL_SLOTS; i++)
		a->sock[i] = -1;
	rc = open_sockets(a, silent);
	if (rc) {
		free(a);
		a = NULL;
	}
out:
	pthread_mutex_unlock(&open_lock);
	if (rc)
		errno = -rc;
	return a;
}

void pool_addr_put(struct pool_addr *a)
{
	struct pool *p = a->pool;

	if (p->pid != getpid()) { /* a forked child: another thread may have held the lock */
		if (--a->refs)
			return;
		close_sockets(a);
		free(a);
		return;
	}
	pthread_mutex_lock(&p->lock);
	if (--a->refs == 0) {
		list_del(&a->link);
		close_sockets(a);
		free(a);
	}
	pthread_mutex_unlock(&p->lock);
}

/* ---- use ---- */

/*
 * Takes a socket for a slot: the first slot in use gets the socket of the address, each other slot
 * gets a socket that receives nothing.
 */
static int use_alone(struct pool_addr *a, unsigned slot)
{
	int fd = a->only;

	for (unsigned i = 0; fd >= 0 && i < POOL_SLOTS; i++) {
		if (a->sock[i] == a->only)
			fd = -1;
	}
	if (fd < 0)
		fd = sys_socket(pkt_addr_is_v4(&a->addr) ? AF_INET : AF_INET6,
				SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd >= 0)
		a->sock[slot] = fd == a->only ? fd : pool_high(fd);
	return fd < 0 ? fd : a->sock[slot];
}

int pool_addr_alone(const struct pool_addr *a)
{
	return a->alone;
}

int pool_addr_sender(const struct pool_addr *a, unsigned slot)
{
	return a->alone ? a->only : a->sock[slot];
}

int pool_addr_use(struct pool_addr *a, unsigned slot)
{
	uint8_t byte;
	int rc = 0;

	pthread_mutex_lock(&a->pool->lock);
	if (a->in_use >> slot & 1) {
		pthread_mutex_unlock(&a->pool->lock);
		return -EADDRINUSE;
	}
	if (a->alone)
		rc = use_alone(a, slot);
	if (rc >= 0)
		a->in_use |= 1ull << slot;
	pthread_mutex_unlock(&a->pool->lock);
	if (rc < 0 || a->alone)
		return rc;
	/* This owner must not get datagrams for an earlier owner. */
	for (unsigned i = 0; i < DRAIN_MOST; i++) {
		if (sys_recvfrom(a->sock[slot], &byte, sizeof(byte), MSG_DONTWAIT, NULL, NULL) ==
		    -EAGAIN)
			break;
	}
	return a->sock[slot];
}

int pool_addr_tell(struct pool_addr *a, unsigned slot, const struct pool_socket *sock)
{
	struct pool *p = a->pool;
	struct stat st;
	int rc = -ENOSPC;

	pthread_mutex_lock(&p->lock);
	for (unsigned i = 0; i < SLOT_SOCKETS; i++) {
		struct slot_socket *s = &p->state->record[slot].socket[i];

		if (atomic_load_explicit(&s->used, memory_order_relaxed))
			continue;
		state_store_addr(s->addr, &a->addr);
		atomic_store_explicit(&s->scope, a->scope, memory_order_relaxed);
		atomic_store_explicit(&s->sport, sock->sport, memory_order_relaxed);
		atomic_store_explicit(&s->joins, sock->joins, memory_order_relaxed);
		atomic_store_explicit(&s->host, sock->host, memory_order_relaxed);
		atomic_store_explicit(&s->mtu, sock->mtu, memory_order_relaxed);
		atomic_store_explicit(&s->local_mtu, sock->local_mtu, memory_order_relaxed);
		atomic_store_explicit(&s->ring, 0, memory_order_relaxed);
		atomic_store_explicit(&s->inode, fstat(a->sock[slot], &st) ? 0 : st.st_ino,
				      memory_order_relaxed);
		atomic_store_explicit(&s->used, 1, memory_order_release);
		rc = 0;
		break;
	}
	state_changed(p->state);
	addr_steer(a);
	pthread_mutex_unlock(&p->lock);
	return rc;
}

void pool_addr_unuse(struct pool_addr *a, unsigned slot)
{
	struct pool *p = a->pool;
	struct slot_socket *s;

	if (p->pid != getpid())
		return;
	pthread_mutex_lock(&p->lock);
	a->in_use &= ~(1ull << slot);
	s = find_socket(p, slot, &a->addr, a->scope);
	if (s) {
		atomic_store_explicit(&s->ended, pool_clock_ms(), memory_order_relaxed);
		atomic_store_explicit(&s->used, 0, memory_order_release);
	}
	state_changed(p->state);
	if (a->alone) {
		if (a->sock[slot] != a->only)
			sys_close(a->sock[slot]);
		a->sock[slot] = -1;
	} else {
		set_int(a->sock[slot], SOL_SOCKET, SO_RCVBUF, LEAST_BUFFER);
	}
	addr_steer(a);
	pthread_mutex_unlock(&p->lock);
}

/* ---- look-ups ---- */

bool pool_find(struct pool *p, const struct pkt_addr *addr, uint32_t scope, unsigned slot,
	       struct pool_socket *sock)
{
	uint32_t owner = pool_owner(p, slot);
	struct slot_socket *s = find_socket(p, slot, addr, scope);

	if (!s || !pool_alive(p, slot))
		return false;
	sock->sport = atomic_load_explicit(&s->sport, memory_order_relaxed);
	sock->joins = atomic_load_explicit(&s->joins, memory_order_relaxed);
	sock->host = atomic_load_explicit(&s->host, memory_order_relaxed);
	sock->mtu = atomic_load_explicit(&s->mtu, memory_order_relaxed);
	sock->local_mtu = atomic_load_explicit(&s->local_mtu, memory_order_relaxed);
	sock->ring = atomic_load_explicit(&s->ring, memory_order_acquire);
	sock->owner = owner;
	atomic_thread_fence(memory_order_acquire); /* `owned` is read again after the entry */
	return owner && owner == pool_owner(p, slot);
}

uint32_t pool_owner(const struct pool *p, unsigned slot)
{
	return atomic_load_explicit(&p->state->record[slot].owned, memory_order_acquire);
}

void pool_tell_ring(struct pool *p, const struct pkt_addr *addr, uint32_t scope, unsigned slot,
		    uint32_t bytes)
{
	struct slot_socket *s;

	if (p->pid != getpid())
		return;
	pthread_mutex_lock(&p->lock);
	s = find_socket(p, slot, addr, scope);
	if (s)
		atomic_store_explicit(&s->ring, bytes, memory_order_release);
	state_changed(p->state);
	pthread_mutex_unlock(&p->lock);
}

bool pool_serves(struct pool *p, const struct pkt_addr *addr, uint32_t scope)
{
	for (unsigned i = 0; i < POOL_SLOTS; i++) {
		if (find_socket(p, i, addr, scope) && pool_alive(p, i))
			return true;
	}
	return false;
}

bool pool_sends(struct pool *p, const struct pkt_addr *addr, uint32_t scope, uint16_t sport)
{
	for (unsigned i = 0; i < POOL_SLOTS; i++) {
		struct slot_socket *s = find_socket(p, i, addr, scope);

		if (s && atomic_load_explicit(&s->sport, memory_order_relaxed) == sport)
			return true;
	}
	return false;
}

/* Returns true if its program has closed the socket, or has ended, not long ago. */
static bool ended_lately(const struct slot_record *record, const struct slot_socket *s)
{
	uint64_t ended = atomic_load_explicit(atomic_load_explicit(&s->used, memory_order_acquire)
						      ? &record->reclaimed
						      : &s->ended,
					      memory_order_relaxed);

	return pool_clock_ms() - ended < SENT_MS;
}

bool pool_sent_lately(struct pool *p, const struct pkt_addr *addr, uint32_t scope, uint16_t sport)
{
	for (unsigned i = 0; sport && i < POOL_SLOTS; i++) {
		for (unsigned k = 0; k < SLOT_SOCKETS; k++) {
			struct slot_record *record = &p->state->record[i];
			struct slot_socket *s = &record->socket[k];

			if (atomic_load_explicit(&s->sport, memory_order_relaxed) == sport &&
			    is_at(s, addr, scope) && ended_lately(record, s))
				return true;
		}
	}
	return false;
}

uint64_t pool_inode(struct pool *p, const struct pkt_addr *addr, uint32_t scope, unsigned slot)
{
	struct slot_socket *s = find_socket(p, slot, addr, scope);

	return s ? atomic_load_explicit(&s->inode, memory_order_relaxed) : 0;
}

struct pool_mailbox *pool_mailbox(struct pool *p, const struct pkt_addr *addr, uint32_t scope,
				  unsigned slot, uint16_t *sport)
{
	struct slot_socket *s = find_socket(p, slot, addr, scope);

	*sport = s ? atomic_load_explicit(&s->sport, memory_order_relaxed) : 0;
	return s ? &s->mailbox : NULL;
}
