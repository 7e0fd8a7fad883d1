/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Handlers for fork(2). The NIC stays with the parent. The child closes its copies of the ports'
 * descriptors, and opens a new engine when it opens a device. The inherited objects stay in memory.
 * Calls on them do nothing, and do not crash.
 */
#include <errno.h>
#include <pthread.h>

#include "base/sys.h"
#include "drive/engine.h"
#include "pool/pool.h"

/* A turn takes a third of a second at most: watch.c ends a step of a kernel that takes longer. */
#define OWN_BEFORE_FORK_NS  (1000 * MS)
#define POOL_BEFORE_FORK_NS (100 * MS)
#define LOCK_BEFORE_FORK_NS (3000 * MS)

/* ---- the functions of a port in the child ---- */

static struct port_path *no_path_get(struct port *p, const struct pkt_addr *dst, uint32_t dqpn)
{
	errno = ENODEV;
	return NULL;
}

static void no_path_put(struct port *p, struct port_path *path)
{
}

static int no_join(struct port *p, const struct pkt_addr *group)
{
	return -ENODEV;
}

static void no_leave(struct port *p, const struct pkt_addr *group)
{
}

static int no_reserve(struct port *p, struct port_path *path, uint32_t len, uint8_t tos,
		      struct port_buf *buf)
{
	return -EAGAIN;
}

static void no_op(struct port *p)
{
}

static void no_disarm(struct port *p, bool woken)
{
}

static bool no_flush(struct port *p)
{
	return true;
}

static int no_rx_burst(struct port *p, struct port_pkt *pkts, int max)
{
	return 0;
}

static const struct port_ops no_port = {
	.name = "none",
	.path_get = no_path_get,
	.path_put = no_path_put,
	.join = no_join,
	.leave = no_leave,
	.reserve = no_reserve,
	.cancel = no_op,
	.flush = no_flush,
	.rx_burst = no_rx_burst,
	.arm = no_flush,
	.disarm = no_disarm,
	.control = no_op,
	.after_fork = no_op,
	.close = no_op,
};

/* ---- the handlers ---- */

/* whether the forking thread has engine_lock, and bits of the PUs that it owns */
static _Thread_local bool locked;
static _Thread_local unsigned owned;

bool engine_lock_for(uint64_t ns)
{
	return thread_lock_for(&engine_lock, ns);
}

/*
 * Waits until all turns and all changes of the pool end, because the child must find ports, queues
 * and lists in a consistent state.
 */
static void before_fork(void)
{
	/*
	 * The waits have limits, because a signal handler may fork in the middle of a turn, or of
	 * an open, of its own thread. An open of another thread may take a second.
	 */
	uint64_t until;

	locked = engine_lock_for(LOCK_BEFORE_FORK_NS);
	owned = 0;
	until = clock_now() + OWN_BEFORE_FORK_NS;
	for (unsigned i = 0; locked && engine && i < engine->pus; i++) {
		if (pu_own(&engine->pu[i], until))
			owned |= 1u << i;
	}
	pool_before_fork(POOL_BEFORE_FORK_NS);
}

static void in_parent(void)
{
	pool_after_fork();
	if (!locked)
		return;
	for (unsigned i = 0; engine && i < engine->pus; i++) {
		if (owned & 1u << i)
			drive_disown(engine, i);
	}
	pthread_mutex_unlock(&engine_lock);
}

static void in_child(void)
{
	struct drive *d = engine;

	pool_after_fork();
	if (d) {
		atomic_store(&d->dead, true);
		d->running = d->watch.running = false;
		for (unsigned i = 0; i < d->pus; i++) {
			/* The PU stays owned for ever, so polls and doorbells do nothing. */
			atomic_store(&d->pu[i].word, PU_OWNED);
			for (unsigned k = 0; k < drive_ports(d); k++) {
				struct port *p = d->port[k][i];

				if (owned & 1u << i)
					p->ops->after_fork(p);
				p->ops = &no_port;
				p->fd = p->ctl_fd = -1;
			}
		}
		sys_close(d->service_set);
		service_poller_fini(&d->service);
		service_poller_fini(&d->waiter);
		stat_forget(d);
		/* A thread that does not exist in the child may hold a lock. */
		pthread_mutex_init(&d->control, NULL);
		pthread_mutex_init(&d->gsi.user_lock, NULL);
		d->gsi.queue_lock = (struct spin){0};
		atomic_store(&d->waiting, 0);
		d->next_dead = dead_engines;
		dead_engines = d;
		engine = NULL;
	}
	/* Another thread, or the code below this signal handler, may hold the lock. */
	if (locked)
		pthread_mutex_unlock(&engine_lock);
	else
		pthread_mutex_init(&engine_lock, NULL);
}

static void install(void)
{
	pthread_atfork(before_fork, in_parent, in_child);
}

void drive_watch_forks(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, install);
}
