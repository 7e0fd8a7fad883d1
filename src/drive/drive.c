/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The engine of a process. It is opened on first use, and closed with the last reference or at
 * exit.
 */
#include "drive/drive.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/rng.h"
#include "base/sys.h"
#include "drive/engine.h"
#include "pool/pool.h"

#define MAX_TIMEOUT_SCALE 1000000

pthread_mutex_t engine_lock = PTHREAD_MUTEX_INITIALIZER;
struct drive *engine;
struct drive *dead_engines;

/* ---- the environment ---- */

static int env_number(const char *name, uint64_t min, uint64_t max, uint64_t otherwise,
		      uint64_t *value, char *err, size_t errlen)
{
	const char *text = sys_env(name);
	char *end;

	*value = otherwise;
	if (!text || !*text)
		return 0;
	errno = 0;
	*value = strtoull(text, &end, 0);
	if (errno == 0 && *end == '\0' && *text >= '0' && *text <= '9' && *value >= min &&
	    *value <= max)
		return 0;
	snprintf(err, errlen, "%s=%s: give a whole number from %llu to %llu, or unset it", name,
		 text, (unsigned long long)min, (unsigned long long)max);
	return -EINVAL;
}

/* ---- the engine ---- */

static int configure(struct drive *d, const struct pkt_addr *addr, struct nic_config *cfg,
		     char *err, size_t errlen)
{
	uint64_t pus, scale, drawn[SECRET_WORDS];
	int rc;

	rc = ports_configure(d, addr, err, errlen);
	if (rc)
		return rc;
	rc = env_number("ROOST_PUS", 1, NIC_MAX_PUS, 1, &pus, err, errlen);
	if (rc == 0)
		rc = env_number("ROOST_TIMEOUT_SCALE", 1, MAX_TIMEOUT_SCALE, 1, &scale, err,
				errlen);
	if (rc)
		return rc;
	rc = secret_entropy(drawn);
	if (rc)
		snprintf(err, errlen, RNG_REFUSED);
	else
		rc = env_number("ROOST_SEED", 0, UINT64_MAX, drawn[0], &cfg->seed[0], err, errlen);
	if (rc)
		return rc;
	if (cfg->seed[0] == drawn[0]) /* ROOST_SEED is not set */
		memcpy(cfg->seed, drawn, sizeof(drawn));
	d->pus = (unsigned)pus;
	cfg->pus = d->pus;
	cfg->ports = drive_ports(d);
	cfg->timeout_scale = (unsigned)scale;
	return 0;
}

/* Makes the numbers continue after those of earlier programs, which peers may still use. */
static void continue_numbers(const struct drive *d, struct nic_config *cfg)
{
	struct pool *p = pool_mine();
	bool shared = false;

	for (unsigned port = 0; p && port < cfg->ports; port++) {
		for (unsigned i = 0; i < cfg->pus; i++) {
			const struct port *lane = d->port[port][i];

			if (!lane->shared)
				continue;
			cfg->qp_numbers[i] = pool_qp_numbers(p, lane->slot);
			shared = true;
		}
	}
	if (shared)
		pool_keys(p, &cfg->keys);
}

static void destroy(struct drive *d)
{
	watch_stop(&d->watch);
	if (d->nic)
		nic_destroy(d->nic);
	ports_close(d);
	if (d->service_set >= 0)
		sys_close(d->service_set);
	service_poller_fini(&d->service);
	service_poller_fini(&d->waiter);
	gsi_fini(d);
	pthread_mutex_destroy(&d->control);
	free(d);
}

static int create(const struct nic_host_ops *ops, const struct pkt_addr *addr, struct drive **out,
		  char *err, size_t errlen)
{
	struct drive *d = aligned_alloc(CACHE_LINE, ALIGN_UP(sizeof(*d), (size_t)CACHE_LINE));
	struct nic_config cfg = {.host = d};
	int rc;

	if (!d) {
		snprintf(err, errlen, "out of memory");
		return -ENOMEM;
	}
	clock_start();
	memset(d, 0, sizeof(*d));
	d->started = clock_now();
	d->stat_fd = d->visit_fd = d->spare_fd = d->service_set = d->service.wake_fd =
		d->waiter.wake_fd = -1;
	pthread_mutex_init(&d->control, NULL);
	gsi_init(d);
	d->ops = *ops;
	d->ops.gsi = gsi_arrived;
	d->ops.gsi_lost = gsi_lost;
	d->ops.peer_gone = gsi_peer_gone;
	d->ops.kick = pu_call;
	cfg.ops = &d->ops;
	for (unsigned i = 0; i < NIC_MAX_PUS; i++) {
		atomic_store_explicit(&d->pu[i].next_visit, UINT64_MAX, memory_order_relaxed);
		caller_init(&d->pu[i].caller);
		atomic_store_explicit(&d->pu[i].cpu, -1, memory_order_relaxed);
	}
	rc = configure(d, addr, &cfg, err, errlen);
	if (rc == 0)
		rc = ports_open(d, err, errlen);
	if (rc)
		goto fail;
	memcpy(cfg.port, d->port, sizeof(cfg.port));
	continue_numbers(d, &cfg);
	rc = nic_create(&cfg, &d->nic);
	if (rc == 0)
		rc = service_poller_init(&d->service, d, BY_SERVICE_THREAD);
	if (rc == 0)
		rc = service_poller_init(&d->waiter, d, BY_WAITER);
	if (rc)
		goto fail_unsaid;
	stat_open(d);
	rc = service_start(d);
	if (rc) {
		stat_close(d);
		goto fail_unsaid;
	}
	gsi_begin_wills(d);
	*out = d;
	return 0;
fail_unsaid:
	/* EAGAIN: no memory for the stack of a thread, or a limit of threads: pthread_create(3) */
	snprintf(
		err, errlen,
		"the NIC did not start: %s; look at the limits of memory and threads (ulimit -a, roost doctor)",
		strerror(-rc));
fail:
	destroy(d);
	return rc;
}

/* Closes the engine. Engine lock held. The program must not call into the engine meanwhile. */
static void shut_down(struct drive *d)
{
	gsi_end_wills(d);
	service_stop(d, UINT64_MAX);
	stat_close(d);
	destroy(d);
}

/*
 * Take and release the engine lock. The thread cannot be cancelled meanwhile, because to open a NIC
 * has many cancellation points. lock_engine() returns the argument of unlock_engine().
 */
static int lock_engine(void)
{
	int old;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old);
	pthread_mutex_lock(&engine_lock);
	return old;
}

static void unlock_engine(int old)
{
	pthread_mutex_unlock(&engine_lock);
	pthread_setcancelstate(old, &old);
}

int drive_get(const struct nic_host_ops *ops, struct drive **out, char *err, size_t errlen)
{
	int rc = 0, cancel;

	drive_watch_forks();
	cancel = lock_engine();
	if (!engine)
		rc = create(ops, NULL, &engine, err, errlen);
	if (rc == 0) {
		engine->refs++;
		*out = engine;
	}
	unlock_engine(cancel);
	return rc;
}

static void release(struct drive *d)
{
	/*
	 * An engine of the parent stays, so that calls on its handles remain harmless in the child.
	 */
	if (--d->refs == 0 && d == engine) {
		engine = NULL;
		shut_down(d);
	}
}

int drive_get_at(const struct nic_host_ops *ops, const struct pkt_addr *addr, struct drive **out,
		 struct drive_addr *where, char *err, size_t errlen)
{
	int rc = 0, cancel;

	drive_watch_forks();
	cancel = lock_engine();
	if (!engine)
		rc = create(ops, addr, &engine, err, errlen);
	if (rc == 0) {
		engine->refs++;
		rc = ports_add(engine, addr, where, err, errlen);
		if (rc == 0)
			*out = engine;
		else
			release(engine);
	}
	unlock_engine(cancel);
	return rc;
}

/* The engine lock delays a fork(): the child must not inherit a half-opened address. */
int drive_add_addr(struct drive *d, const struct pkt_addr *addr, struct drive_addr *where,
		   char *err, size_t errlen)
{
	int rc, cancel = lock_engine();

	rc = ports_add(d, addr, where, err, errlen);
	unlock_engine(cancel);
	return rc;
}

void drive_put(struct drive *d)
{
	int cancel = lock_engine();

	release(d);
	unlock_engine(cancel);
}

#define EXIT_NS	     (10 * MS)	 /* the longest wait for a turn to end at exit */
#define EXIT_LOCK_NS (100 * MS)	 /* the longest wait for the engine lock at exit */
#define EXIT_STOP_NS (3000 * MS) /* the longest wait for the service thread at exit */

/*
 * Sends the datagrams that are posted, and arms the ports for the last time, because no turn
 * follows that would do it. Arming wakes peers that have not seen the last packets, and makes a
 * capture write its buffered packets.
 */
static void arm_before_exit(struct drive *d)
{
	for (unsigned i = 0; i < d->pus; i++) {
		if (!pu_own(&d->pu[i], clock_now() + EXIT_NS))
			continue;
		drive_send_datagrams(d, i);
		pu_arm(d, i);
		pu_drop(&d->pu[i]);
	}
}

/*
 * Ends the threads and removes the stat socket at exit, before their resources are freed. The
 * engine stays, because other threads may use it; the Linux kernel closes its descriptors. If the
 * engine lock stays taken, another thread is opening or closing the engine, or this thread is,
 * below a signal handler. Nothing is done then.
 *
 * The code below a signal handler may also hold a lock for which the service thread waits: that of
 * rdma_cm, for example. So the wait for the thread has a limit, too. It then lives until the
 * process ends.
 *
 * The lock is not held while the threads end. A thread that forks may hold a lock of the user of
 * QP 1 and wait for the engine lock, while the service thread waits for the lock of the user.
 */
static void __attribute__((destructor)) at_exit(void)
{
	struct drive *d;
	bool stopped;

	if (!engine_lock_for(EXIT_LOCK_NS))
		return;
	d = engine;
	if (d)
		d->refs++; /* no other thread closes the engine */
	pthread_mutex_unlock(&engine_lock);
	if (!d)
		return;
	stopped = service_stop(d, EXIT_STOP_NS);
	/* The thread of the pool may send a will: it gives up now if it cannot own the PU. */
	gsi_end_wills(d);
	arm_before_exit(d);
	watch_stop(&d->watch);
	if (stopped)
		stat_close(d);
	else
		stat_unlink(d);
}

bool drive_dead(const struct drive *d)
{
	return atomic_load_explicit(&d->dead, memory_order_relaxed);
}

struct nic *drive_nic(struct drive *d)
{
	return d->nic;
}

uint64_t drive_now(struct drive *d)
{
	return clock_now();
}

/* The mutex was taken. */
static void disable_cancellation(struct drive *d)
{
	int old;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old);
	d->cancel_state = old;
}

void drive_control_lock(struct drive *d)
{
	pthread_mutex_lock(&d->control);
	disable_cancellation(d);
}

bool control_lock_for(struct drive *d, uint64_t ns)
{
	if (!thread_lock_for(&d->control, ns))
		return false;
	disable_cancellation(d);
	return true;
}

void drive_control_unlock(struct drive *d)
{
	int old = d->cancel_state;

	pthread_mutex_unlock(&d->control);
	pthread_setcancelstate(old, &old);
}
