/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The membership of this process. A claim of a slot is a name in the abstract namespace of Unix
 * sockets: only one process can bind it, and Linux removes it when that process ends.
 *
 * A thread of the pool answers other members. It also holds a connection to each of them. The end
 * of a connection means that a member has ended; every survivor then removes the traces of this
 * member.
 */
#include "pool/core.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "base/spare.h"
#include "base/sys.h"
#include "base/thread.h"

#define STACK	    (64u << 10)
#define BACKLOG	    (4 * POOL_SLOTS)
#define FOUND_SLEEP 2  /* ms between looks at a founder */
#define JOIN_MS	    50 /* the longest wait for another program that is joining */
/*
 * The most connections of other programs. Each other member keeps one; a program that joins or
 * opens an address has another one for the time of an answer.
 */
#define MOST_LINKS (2 * POOL_SLOTS)
/*
 * A connection may end before the dead process has lost its claim. The survivors therefore look
 * again after these times, in ms.
 */
static const int looks[] = {10, 100, 1000};

/* A connection to another member. */
struct member {
	struct list_head link;
	int fd;
	bool watched; /* the connection is open as long as the member lives */
	bool owed;    /* the answer to `ask` could not be sent yet */
	bool shut;    /* it was shut down to make space for another one */
	struct ask ask;
};

static pthread_mutex_t pool_lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic(struct pool *) the_pool; /* changed only under the lock */

/* ---- slots ---- */

bool pool_alive(struct pool *p, unsigned slot)
{
	struct sockaddr_un name;
	socklen_t len = pool_name(&name, NAME_CLAIM, slot);
	int fd = sys_socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0), rc;

	(void)p;
	if (fd < 0)
		return true; /* it is not known that the owner is dead */
	rc = sys_connect(fd, (struct sockaddr *)&name, len);
	sys_close(fd);
	return rc != -ECONNREFUSED; /* the error if no process has the name */
}

/*
 * Binds the name under which others find this process, without listening, because nothing answers
 * yet. Returns 0 or -errno.
 */
static int bind_member(struct pool *p, unsigned slot)
{
	struct sockaddr_un name;
	socklen_t len = pool_name(&name, NAME_MEMBER, slot);
	int fd = sys_socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), rc;

	if (fd < 0)
		return fd;
	rc = sys_bind(fd, (struct sockaddr *)&name, len);
	if (rc)
		sys_close(fd);
	else
		p->listener = fd;
	return rc;
}

/*
 * Claims a slot. The search starts at a random slot, so that a slot stays unused for long after its
 * owner has ended. It skips slots whose name another process holds, perhaps a process of another
 * user.
 */
static int claim(struct pool *p)
{
	uint8_t first = 0;

	if (getrandom(&first, sizeof(first), GRND_NONBLOCK) != sizeof(first))
		first = (uint8_t)getpid();
	for (unsigned i = 0; i < POOL_SLOTS; i++) {
		unsigned slot = (first + i) % POOL_SLOTS;
		int fd = pool_bind_name(NAME_CLAIM, slot);
		int rc = fd < 0 ? fd : p->num_slots ? 0 : bind_member(p, slot);

		if (fd >= 0 && rc)
			sys_close(fd);
		if (rc == -EADDRINUSE)
			continue;
		if (rc)
			return rc;
		pthread_mutex_lock(&p->lock);
		p->claim[p->num_slots] = fd;
		p->slot[p->num_slots++] = (uint8_t)slot;
		pthread_mutex_unlock(&p->lock);
		return 0;
	}
	return -ENOSPC;
}

/* Makes the record of a slot this process's own. Until then it has the values of a dead owner. */
static void take_record(struct pool *p, unsigned slot)
{
	atomic_store_explicit(&p->state->record[slot].first, p->slot[0], memory_order_relaxed);
	slot_clear(p->state, slot, state_owner(p->state));
}

int pool_slot(struct pool *p, unsigned unit)
{
	int rc = 0;

	if (unit >= POOL_MAX_OWN)
		return -EINVAL;
	pthread_mutex_lock(&pool_lock);
	while (rc == 0 && p->num_slots <= unit) {
		rc = claim(p);
		if (rc == 0)
			take_record(p, p->slot[p->num_slots - 1]);
	}
	pthread_mutex_unlock(&pool_lock);
	return rc ? rc : p->slot[unit];
}

struct qp_numbers *pool_qp_numbers(struct pool *p, unsigned slot)
{
	return &p->state->used[slot].qps;
}

void pool_keys(struct pool *p, struct key_sequence *out)
{
	state_keys(p->state, out);
}

void pool_ids(struct pool *p, unsigned slot, struct sequence *out)
{
	state_ids(p->state, slot, out);
}

uint64_t pool_version(const struct pool *p)
{
	return atomic_load_explicit(&p->state->version, memory_order_acquire);
}

/* ---- the thread ---- */

/*
 * Adds a connection to the epoll set, or closes it after an error. Any thread. The lock is held
 * while the connection enters the set, and run() takes the lock between an event and its first look
 * at the member, so run() sees everything that is written here.
 */
static void keep(struct pool *p, int fd, bool watched)
{
	struct member *m = calloc(1, sizeof(*m));
	struct epoll_event ev = {.events = EPOLLIN};
	int rc;

	if (!m) {
		sys_close(fd);
		return;
	}
	pthread_mutex_lock(&p->lock);
	m->fd = pool_high(fd);
	m->watched = watched;
	ev.data.ptr = m;
	rc = sys_epoll_ctl(p->epoll, EPOLL_CTL_ADD, m->fd, &ev);
	if (rc == 0)
		list_add(&m->link, &p->links);
	pthread_mutex_unlock(&p->lock);
	if (rc) {
		sys_close(m->fd);
		free(m);
	}
}

static void drop(struct pool *p, struct member *m)
{
	pthread_mutex_lock(&p->lock);
	list_del(&m->link);
	pthread_mutex_unlock(&p->lock);
	sys_epoll_ctl(p->epoll, EPOLL_CTL_DEL, m->fd, NULL);
	sys_close(m->fd);
	free(m);
}

static int watch_listener(struct pool *p, int op, uint32_t events)
{
	struct epoll_event ev = {.events = events, .data.ptr = &p->listener};

	return sys_epoll_ctl(p->epoll, op, p->listener, &ev);
}

/*
 * Makes space for a connection: shuts down the oldest one of a program that has not said that it
 * keeps it. serve() finds the end, since an event of this connection may be waiting now. Returns
 * false if programs keep all connections.
 */
static bool limit_links(struct pool *p)
{
	struct member *oldest = NULL;
	struct list_head *l;
	unsigned n = 0;

	pthread_mutex_lock(&p->lock);
	list_for_each (l, &p->links) { /* the latest one is first */
		struct member *m = list_entry(l, struct member, link);

		n += !m->shut;
		if (!m->watched && !m->shut)
			oldest = m;
	}
	if (n >= MOST_LINKS && oldest) {
		oldest->shut = true;
		sys_shutdown(oldest->fd, SHUT_RDWR);
	}
	pthread_mutex_unlock(&p->lock);
	return n < MOST_LINKS || oldest;
}

/*
 * Without a free descriptor the thread does not hang up: the other program would take this member
 * for one of another version.
 */
static void accept_one(struct pool *p)
{
	enum spare_result result;
	int fd;

	result = spare_accept(p->listener, SOCK_NONBLOCK, NULL, &fd);
	if (result == SPARE_REST) {
		watch_listener(p, EPOLL_CTL_MOD, 0);
		rest_begin(&p->rest, pool_clock_ms());
	} else if (result == SPARE_ACCEPTED && (!pool_same_user(fd) || !limit_links(p))) {
		sys_close(fd);
	} else if (result == SPARE_ACCEPTED) {
		keep(p, fd, false);
	}
}

/*
 * Answers m->ask. Lock held: another thread holds it while it opens an address, and the answer must
 * wait for that thread.
 *
 * The descriptors that a user sends and nobody has received yet are limited, too (RLIMIT_NOFILE,
 * ETOOMANYREFS). Many programs that join at once reach the limit. The thread then tries again after
 * a rest. It does not hang up: see accept_one().
 */
static int answer(struct pool *p, struct member *m)
{
	struct pool_addr *a = NULL;
	int rc;

	if (m->ask.what == ASK_ADDR)
		a = addr_find(p, &m->ask.addr, m->ask.scope);
	if (a && a->alone)
		a = NULL;
	if (m->ask.what == ASK_STATE)
		rc = pool_answer(m->fd, &p->state_fd, 1);
	else
		rc = pool_answer(m->fd, a ? a->sock : NULL, a ? POOL_SLOTS : 0);
	m->owed = rc == -ETOOMANYREFS || rc == -ENOBUFS || rc == -ENOMEM;
	if (!m->owed)
		return rc;
	rest_begin(&p->owes, pool_clock_ms());
	return 0;
}

static void answer_again(struct pool *p)
{
	struct list_head *l;

	pthread_mutex_lock(&p->lock);
	list_for_each (l, &p->links) {
		struct member *m = list_entry(l, struct member, link);

		if (m->owed && answer(p, m))
			sys_shutdown(m->fd, SHUT_RDWR); /* serve() finds the end */
	}
	pthread_mutex_unlock(&p->lock);
}

/* Returns true if a member has ended. */
static bool serve(struct pool *p, struct member *m)
{
	ssize_t n = sys_recvfrom(m->fd, &m->ask, sizeof(m->ask), MSG_DONTWAIT, NULL, NULL);
	bool watched = m->watched;
	int rc;

	if (n == -EAGAIN || n == -EINTR)
		return false;
	if (n == sizeof(m->ask) && m->ask.magic == STATE_MAGIC) {
		if (m->ask.what == ASK_WATCH) {
			m->watched = true;
			return false;
		}
		pthread_mutex_lock(&p->lock);
		rc = answer(p, m);
		pthread_mutex_unlock(&p->lock);
		if (rc)
			drop(p, m);
		return false;
	}
	drop(p, m);
	return watched;
}

bool pool_reclaim_slot(struct pool *p, unsigned slot)
{
	_Atomic uint32_t *owned = &p->state->record[slot].owned;
	uint32_t was = atomic_load_explicit(owned, memory_order_seq_cst);

	if (!was)
		return true;
	if (pool_alive(p, slot))
		return false;
	/*
	 * The next owner has another token, so this removes only the dead owner, and only one
	 * survivor succeeds.
	 */
	atomic_store_explicit(&p->state->record[slot].reclaimed, pool_clock_ms(),
			      memory_order_relaxed);
	if (atomic_compare_exchange_strong(owned, &was, 0))
		state_changed(p->state);
	return true;
}

/* Removes the traces of dead members. Any number of survivors may do this at once. */
static void repair(struct pool *p)
{
	uint64_t version;

	for (unsigned i = 0; i < POOL_SLOTS; i++)
		pool_reclaim_slot(p, i);
	pool_execute_wills(p);
	version = pool_version(p);
	if (version != p->repaired)
		pool_steer(p);
	p->repaired = version;
	pool_find_leftovers(p);
}

/* Returns the milliseconds until a time or the end of a rest; -1: none of them comes. */
static int until(const struct pool *p, uint64_t at)
{
	uint64_t now = pool_clock_ms();
	int left[] = {at == UINT64_MAX ? -1
		      : at > now       ? (int)(at - now)
				       : 0,
		      rest_left(&p->rest, now), rest_left(&p->owes, now)};
	int least = -1;

	for (unsigned i = 0; i < sizeof(left) / sizeof(left[0]); i++) {
		if (left[i] >= 0 && (least < 0 || left[i] < least))
			least = left[i];
	}
	return least;
}

static void *run(void *arg)
{
	const unsigned last = sizeof(looks) / sizeof(looks[0]) - 1;
	struct pool *p = arg;
	uint64_t look_at = UINT64_MAX;
	unsigned look = 0;

	for (;;) {
		struct epoll_event ev[16];
		bool ended = false, due;
		int n = sys_epoll_wait(p->epoll, ev, 16, until(p, look_at));

		/* makes the members of these events visible: see keep() */
		pthread_mutex_lock(&p->lock);
		pthread_mutex_unlock(&p->lock);
		for (int i = 0; i < n; i++) {
			if (ev[i].data.ptr == &p->stop)
				return NULL;
			if (ev[i].data.ptr == &p->listener)
				accept_one(p);
			else
				ended |= serve(p, ev[i].data.ptr);
		}
		if (rest_ends(&p->rest, pool_clock_ms()))
			watch_listener(p, EPOLL_CTL_MOD, EPOLLIN);
		if (rest_ends(&p->owes, pool_clock_ms()))
			answer_again(p);
		due = pool_clock_ms() >= look_at;
		if (!due && !ended)
			continue;
		repair(p);
		look_at = UINT64_MAX;
		if (ended || look < last) {
			look = ended ? 0 : look + 1;
			look_at = pool_clock_ms() + (uint64_t)looks[look];
		}
	}
}

static int start_thread(struct pool *p)
{
	struct epoll_event stop = {.events = EPOLLIN, .data.ptr = &p->stop};
	int rc;

	p->epoll = sys_epoll_create1(EPOLL_CLOEXEC);
	p->stop = sys_eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (p->epoll < 0 || p->stop < 0)
		return p->epoll < 0 ? p->epoll : p->stop;
	rc = sys_epoll_ctl(p->epoll, EPOLL_CTL_ADD, p->stop, &stop);
	if (rc == 0)
		rc = watch_listener(p, EPOLL_CTL_ADD, EPOLLIN);
	if (rc == 0)
		rc = thread_start(&p->thread, STACK, run, p);
	p->running = rc == 0;
	return rc;
}

/* ---- joining ---- */

/*
 * Gets the memory of the pool from a member, or makes it if there is no other member. Only the
 * process that holds the founder's name may make it. If there are members and none answers (all are
 * stopped), or the founder does not finish, the process stays alone: it has memory of its own,
 * answers no requests, and uses addresses that no other program has.
 */
static int get_state(struct pool *p, int *founder)
{
	struct ask ask = {.magic = STATE_MAGIC, .what = ASK_STATE, .slot = p->slot[0]};
	struct pool_wait answer = pool_wait_begin(ANSWER_MS), joins = pool_wait_begin(JOIN_MS);
	unsigned silent;
	int rc;

	/*
	 * Programs join one after the other. Otherwise a program could get the memory from a member
	 * that then ends, and a second program that sees neither of them would found another pool.
	 */
	while ((*founder = pool_bind_name(NAME_FOUNDER, 0)) == -EADDRINUSE &&
	       pool_wait_look(&joins))
		pool_sleep_ms(FOUND_SLEEP);
	while ((rc = pool_ask(p, &ask, &p->state_fd, 1, &silent, &p->foreign)) == 0 &&
	       *founder < 0) {
		*founder = pool_bind_name(NAME_FOUNDER, 0);
		if (*founder < 0 && *founder != -EADDRINUSE)
			return *founder;
		p->alone = silent || (*founder < 0 && !pool_wait_look(&answer));
		if (p->alone)
			break;
		if (*founder < 0)
			pool_sleep_ms(FOUND_SLEEP);
	}
	if (rc < 0)
		return rc;
	if (rc == 0) {
		p->alone |= silent != 0;
		p->state_fd = state_create();
		if (p->state_fd < 0)
			return p->state_fd;
		p->state_fd = pool_high(p->state_fd);
	}
	p->state = state_map(p->state_fd);
	return p->state ? 0 : -EPROTO;
}

/* Connects to the members that came earlier. Later members connect to this process. */
static void watch_others(struct pool *p)
{
	struct ask ask = {.magic = STATE_MAGIC, .what = ASK_WATCH, .slot = p->slot[0]};

	for (unsigned i = 0; i < POOL_SLOTS; i++) {
		int fd = i == p->slot[0] ? -1 : pool_connect(NAME_MEMBER, SOCK_SEQPACKET, i);

		if (fd < 0)
			continue;
		if (sys_sendto(fd, &ask, sizeof(ask), MSG_DONTWAIT | MSG_NOSIGNAL, NULL, 0) < 0)
			sys_close(fd);
		else
			keep(p, fd, true);
	}
}

static void close_one(int *fd)
{
	if (*fd >= 0)
		sys_close(*fd);
	*fd = -1;
}

/* Ends the membership. In a forked child it only closes the descriptors of the child. */
static void destroy(struct pool *p)
{
	bool own = p->pid == getpid();
	uint64_t one = 1;
	struct list_head *l;

	if (own && p->running) {
		sys_write(p->stop, &one, sizeof(one));
		thread_join(p->thread);
	}
	for (unsigned i = 0; i < p->num_slots; i++) {
		if (own && p->state)
			slot_clear(p->state, p->slot[i], 0);
		close_one(&p->claim[i]);
	}
	close_one(&p->listener);
	close_one(&p->epoll);
	close_one(&p->stop);
	close_one(&p->state_fd);
	while (!list_empty(&p->links)) {
		struct member *m;

		l = p->links.next;
		m = list_entry(l, struct member, link);
		list_del(l);
		sys_close(m->fd);
		free(m);
	}
	/* The child's copy of the parent's NIC still refers to the state. */
	if (own && p->state)
		state_unmap(p->state);
	free(p);
}

static int join(struct pool *p)
{
	int founder = -1, rc;

	pool_raise_limit();
	p->steers = addr_can_steer();
	rc = claim(p);
	rc = rc ? rc : get_state(p, &founder);
	if (rc == 0)
		take_record(p, p->slot[0]);
	/*
	 * The name is bound only when the thread can answer; otherwise other programs would wait
	 * for an answer.
	 */
	if (rc == 0 && !p->alone) {
		rc = sys_listen(p->listener, BACKLOG);
		rc = rc ? rc : start_thread(p);
		if (rc == 0)
			watch_others(p);
	}
	close_one(&founder);
	return rc;
}

struct pool *pool_get(void)
{
	struct pool *p;
	int rc = 0;

	pthread_mutex_lock(&pool_lock);
	p = the_pool;
	if (p && p->pid == getpid()) {
		p->refs++;
		goto out;
	}
	p = calloc(1, sizeof(*p));
	if (!p) {
		rc = -ENOMEM;
		goto out;
	}
	p->pid = getpid();
	p->refs = 1;
	p->listener = p->epoll = p->stop = p->state_fd = -1;
	pthread_mutex_init(&p->lock, NULL);
	pthread_mutex_init(&p->will_lock, NULL);
	list_init(&p->addrs);
	list_init(&p->links);
	rc = join(p);
	if (rc) {
		destroy(p);
		p = NULL;
	} else {
		the_pool = p;
	}
out:
	pthread_mutex_unlock(&pool_lock);
	if (rc)
		errno = -rc;
	return p;
}

bool pool_is_foreign(const struct pool *p)
{
	return p->foreign;
}

uint64_t pool_file_bytes(void)
{
	return sizeof(struct pool_state);
}

struct pool *pool_mine(void)
{
	struct pool *p = the_pool;

	/* This takes no lock, because a thread may have held the lock at the fork. */
	return p && p->pid == getpid() ? p : NULL;
}

void pool_put(struct pool *p)
{
	pthread_mutex_lock(&pool_lock);
	if (--p->refs == 0) {
		if (the_pool == p)
			the_pool = NULL;
		destroy(p);
	}
	pthread_mutex_unlock(&pool_lock);
}

/* ---- forks ---- */

static bool pool_locked, lists_locked; /* by the fork in progress */

void pool_before_fork(uint64_t ns)
{
	pool_locked = thread_lock_for(&pool_lock, ns);
	lists_locked = pool_locked && the_pool && thread_lock_for(&the_pool->lock, ns);
}

void pool_after_fork(void)
{
	if (lists_locked)
		pthread_mutex_unlock(&the_pool->lock);
	if (pool_locked)
		pthread_mutex_unlock(&pool_lock);
}
