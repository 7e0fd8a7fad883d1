/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The agent connects the state machine of src/cm with QP 1 of the process's engine. The service
 * thread delivers datagrams and time; the program's threads make calls. The agent's lock serializes
 * them. The device is opened when an id first needs it, and stays open.
 */
#include <endian.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/log.h"
#include "base/thread.h"
#include "rdmacm/rdmacm.h"
#include "verbs/host.h"
#include "verbs/private.h"

struct rdmacm_agent agent = {
	.lock = PTHREAD_MUTEX_INITIALIZER,
	.progress = PTHREAD_COND_INITIALIZER,
	.ids = LIST_HEAD_INIT(agent.ids),
	.channels = LIST_HEAD_INIT(agent.channels),
	.without_rtu = LIST_HEAD_INIT(agent.without_rtu),
};

/*
 * One thread opens the device while others wait. It does not hold the agent's lock meanwhile,
 * because the service thread may need that lock.
 */
static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER;

int rdmacm_draw(uint32_t n, uint32_t *number)
{
	if (!agent.seeded) {
		uint64_t seed[SECRET_WORDS];
		int rc = secret_entropy(seed);

		if (rc)
			return rc;
		secret_seed(&agent.secret, seed);
		agent.seeded = true;
	}
	*number = (uint32_t)secret_below(&agent.secret, n);
	return 0;
}

void rdmacm_lock(void)
{
	int old;

	pthread_mutex_lock(&agent.lock);
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old);
	agent.cancel_state = old;
}

void rdmacm_unlock(void)
{
	int old = agent.cancel_state;

	pthread_mutex_unlock(&agent.lock);
	pthread_setcancelstate(old, &old);
}

void rdmacm_wait(void)
{
	int mine = agent.cancel_state;

	pthread_cond_wait(&agent.progress, &agent.lock);
	agent.cancel_state = mine;
}

int rdmacm_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	int mine = agent.cancel_state, ret;

	pthread_mutex_unlock(&agent.lock);
	ret = -ibv_modify_qp(qp, attr, mask);
	pthread_mutex_lock(&agent.lock);
	agent.cancel_state = mine;
	return ret;
}

/* Sets the NIC, or gives it up if `verbs` is NULL. Lock held. */
static void set_nic(struct ibv_context *verbs, struct ibv_pd *pd, struct cm *cm)
{
	agent.verbs = verbs;
	agent.drive = verbs ? verbs_drive(verbs) : NULL;
	agent.pd = pd;
	agent.cm = cm;
}

uint64_t rdmacm_now(void)
{
	return drive_now(agent.drive);
}

void rdmacm_started(void)
{
	drive_gsi_wake(agent.drive);
}

/* ---- between the state machine and QP 1 ---- */

static void on_begin(void *ctx)
{
	rdmacm_lock();
}

static void on_end(void *ctx)
{
	rdmacm_unlock();
}

static void on_input(void *ctx, unsigned port, const struct pkt_addr *src,
		     const struct pkt_addr *dst, const uint8_t *mad)
{
	if (!rdmacm_early_keep(src, dst, mad))
		cm_input(agent.cm, rdmacm_now(), src, dst, mad, CM_MAD_LEN);
}

static uint64_t on_expire(void *ctx, uint64_t now)
{
	uint64_t next, early;

	rdmacm_lock();
	rdmacm_comm_est_report();
	cm_expire(agent.cm, now);
	early = rdmacm_early_expire(now);
	next = cm_next(agent.cm);
	rdmacm_unlock();
	return early < next ? early : next;
}

static void on_lost(void *ctx, const struct pkt_addr *dst, uint64_t tid)
{
	rdmacm_lock();
	cm_lost(agent.cm, rdmacm_now(), dst, tid);
	rdmacm_unlock();
}

static void on_gone(void *ctx, const uint32_t *qpns, unsigned n)
{
	rdmacm_lock();
	cm_peers_gone(agent.cm, rdmacm_now(), qpns, n);
	rdmacm_unlock();
}

static const struct drive_gsi_ops gsi_ops = {.begin = on_begin,
					     .end = on_end,
					     .input = on_input,
					     .expire = on_expire,
					     .lost = on_lost,
					     .gone = on_gone};

/*
 * Sends a datagram. A datagram that cannot be sent counts as lost, and the state machine sends it
 * again.
 */
static void on_send(void *ctx, const struct cm_datagram *d)
{
	struct drive_addr where;

	if (drive_find_addr(agent.drive, &d->src, &where))
		drive_gsi_send(agent.drive, where.port, &d->dst, d->tclass, d->mad);
}

/*
 * Leaves datagrams that another program of the address sends if this process is killed. They
 * disconnect the connections.
 */
static void on_will(void *ctx, uint32_t index, const struct cm_datagram *d)
{
	drive_gsi_will(agent.drive, index, d ? &d->src : NULL, d ? &d->dst : NULL,
		       d ? d->tclass : 0, d ? d->mad : NULL);
}

/* ---- counters for `roost stat` ---- */

static const char *stat_label(size_t i)
{
	return cm_stat_info[i].name;
}

static void stat_read(uint64_t *values)
{
	rdmacm_lock();
	cm_stat(agent.cm, values);
	rdmacm_unlock();
}

static const struct drive_stat_group stat_group = {
	.name = "cm", .count = CM_STATS, .label = stat_label, .read = stat_read};

/* ---- fork, exit ---- */

/*
 * The longest wait for a lock. A signal handler may fork in the middle of a call of its own thread,
 * and another thread may wait for long while it opens an address.
 */
#define LOCK_BEFORE_FORK_NS UINT64_C(3000000000)

/* whether the forking thread has these locks */
static _Thread_local bool has_open_lock, has_lock;

static void before_fork(void)
{
	int old;

	has_open_lock = thread_lock_for(&open_lock, LOCK_BEFORE_FORK_NS);
	has_lock = thread_lock_for(&agent.lock, LOCK_BEFORE_FORK_NS);
	if (has_lock) {
		pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old);
		agent.cancel_state = old;
	}
}

static void in_parent(void)
{
	if (has_lock)
		rdmacm_unlock();
	if (has_open_lock)
		pthread_mutex_unlock(&open_lock);
}

/*
 * Objects that the child inherited point to the parent's context, so it is not freed. Neither is
 * the state machine if a thread was in the middle of a call. The pointers are volatile so that leak
 * checkers find them.
 */
static struct ibv_context *volatile verbs_of_parent;
static struct cm *volatile cm_of_parent;

/*
 * Gives up the NIC of the parent, which keeps its connections and listeners. The child opens its
 * own NIC.
 */
static void give_up_nic(void)
{
	struct rdmacm_id *id;

	list_for_each_entry (id, &agent.ids, link) {
		rdmacm_port_release(id);
		rdmacm_await_no_rtu(id);
		id->conn = NULL;
		id->listener = NULL;
		id->changing = false; /* by another thread of the parent */
		if (id->state != RDMACM_IDLE)
			id->state = RDMACM_DEAD;
	}
	rdmacm_early_forget();
	rdmacm_comm_est_forget();
	if (has_lock)
		cm_free(agent.cm);
	else if (agent.cm)
		cm_of_parent = agent.cm;
	if (agent.verbs)
		verbs_of_parent = agent.verbs;
	set_nic(NULL, NULL, NULL);
}

/*
 * Channels may exist without a NIC, and share their descriptors with the parent's channels. The
 * child seeds its own random numbers.
 */
static void in_child(void)
{
	int old = agent.cancel_state;
	struct rdmacm_channel *ch;

	pthread_mutex_init(&open_lock, NULL);
	pthread_mutex_init(&agent.lock, NULL);
	if (has_lock)
		pthread_setcancelstate(old, &old);
	pthread_cond_init(&agent.progress, NULL);
	agent.seeded = false;
	list_for_each_entry (ch, &agent.channels, link)
		evq_renew(&ch->queue);
	give_up_nic();
}

/*
 * Tells peers that the connections end, so that they need not detect it by time-outs. If the lock
 * is taken, another thread is inside a call, or this thread is inside a call and runs a signal
 * handler. Nothing is sent then. The same holds if this thread is inside of a turn of the NIC.
 */
static void at_exit(void)
{
	struct rdmacm_id *id;

	if (pthread_mutex_trylock(&agent.lock))
		return;
	if (agent.drive && drive_gsi_may_send_at_exit(agent.drive)) {
		list_for_each_entry (id, &agent.ids, link) {
			if (id->conn)
				cm_release(id->conn, rdmacm_now());
			id->conn = NULL;
		}
	}
	pthread_mutex_unlock(&agent.lock);
}

static void watch_exit(void)
{
	atexit(at_exit);
}

/*
 * A fork must wait for another thread that makes the first channel. Handlers that are installed
 * later run earlier before a fork. Those of the NIC are the first here: a thread that holds the
 * agent's lock may wait for the NIC.
 */
static void __attribute__((constructor)) init(void)
{
	for (unsigned i = 0; i < RDMACM_PORT_BUCKETS; i++)
		list_init(&agent.ports[i]);
	drive_watch_forks();
	pthread_atfork(before_fork, in_parent, in_child);
}

/* ---- opening ---- */

static struct ibv_context *open_device(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *verbs = NULL;
	int err;

	if (!list)
		return NULL;
	errno = ENODEV;
	if (list[0])
		verbs = ibv_open_device(list[0]);
	err = errno;
	ibv_free_device_list(list);
	errno = err;
	return verbs;
}

static struct cm *open_cm(struct ibv_context *verbs, struct drive *d)
{
	struct cm_config config = {.guid = be64toh(verbs_nic_guid(verbs)),
				   .slot = (uint8_t)verbs_nic_slot(verbs)};
	struct cm_ops ops = {.send = on_send, .event = rdmacm_on_cm_event, .will = on_will};

	errno = -secret_entropy(config.seed);
	if (errno)
		return NULL;
	drive_gsi_ids(d, &config.ids);
	return cm_new(&config, &ops, drive_now(d));
}

static int agent_start(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct ibv_context *verbs = open_device();
	struct ibv_pd *pd;
	struct cm *cm;
	int ret;

	if (!verbs)
		return -errno;
	pd = ibv_alloc_pd(verbs);
	cm = pd ? open_cm(verbs, verbs_drive(verbs)) : NULL;
	if (!cm) {
		ret = -errno;
		goto close;
	}
	rdmacm_lock();
	set_nic(verbs, pd, cm);
	rdmacm_unlock();
	ret = drive_gsi_open(agent.drive, &gsi_ops, NULL);
	if (ret == 0) {
		verbs_on_first_packet(rdmacm_comm_est);
		drive_stat_show(agent.drive, &stat_group);
		pthread_once(&once, watch_exit);
		return 0;
	}
	rdmacm_lock();
	set_nic(NULL, NULL, NULL);
	rdmacm_unlock();
	cm_free(cm);
close:
	if (pd)
		ibv_dealloc_pd(pd);
	ibv_close_device(verbs);
	return ret;
}

/*
 * Starts the NIC with this address. Otherwise the NIC would first take another address, which
 * nothing needs.
 */
static int agent_start_at(const struct pkt_addr *addr)
{
	struct drive_addr where;
	struct drive *d = NULL;
	char err[256] = "";
	int ret = 0;

	if (addr)
		ret = drive_get_at(&verbs_host_ops, addr, &d, &where, err, sizeof(err));
	if (ret) {
		log_info("%s", err);
		return ret;
	}
	ret = agent_start();
	if (d)
		drive_put(d);
	return ret;
}

static int agent_add(const struct pkt_addr *addr)
{
	struct drive_addr where;
	char err[256] = "";
	int ret;

	if (!addr || drive_find_addr(agent.drive, addr, &where))
		return 0;
	ret = drive_add_addr(agent.drive, addr, &where, err, sizeof(err));
	if (ret)
		log_info("%s", err);
	return ret;
}

int rdmacm_agent_open(const struct pkt_addr *addr)
{
	int ret, old;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old); /* see rdmacm_lock() */
	pthread_mutex_lock(&open_lock);
	ret = agent.verbs ? agent_add(addr) : agent_start_at(addr);
	pthread_mutex_unlock(&open_lock);
	pthread_setcancelstate(old, &old);
	return ret;
}

int rdmacm_agent_open_for(struct rdmacm_id *id, const struct sockaddr *sa)
{
	struct pkt_addr addr;
	uint16_t port;
	bool dead;
	int ret;

	rdmacm_lock();
	dead = id->state == RDMACM_DEAD;
	rdmacm_unlock();
	if (dead)
		return -EINVAL;
	if (!sa || sa->sa_family == AF_UNSPEC)
		return rdmacm_agent_open(NULL);
	ret = rdmacm_addr_from(sa, &addr, &port);
	if (ret)
		return ret;
	return rdmacm_agent_open(rdmacm_addr_is_any(sa) ? NULL : &addr);
}

/* ---- devices ---- */

ROOST_EXPORT struct ibv_context **rdma_get_devices(int *num_devices)
{
	struct ibv_context **list;
	int ret = rdmacm_agent_open(NULL);

	if (num_devices)
		*num_devices = 0;
	if (ret) {
		errno = -ret;
		return NULL;
	}
	list = calloc(2, sizeof(*list));
	if (!list) {
		errno = ENOMEM;
		return NULL;
	}
	list[0] = agent.verbs;
	if (num_devices)
		*num_devices = 1;
	return list;
}

ROOST_EXPORT void rdma_free_devices(struct ibv_context **list)
{
	free(list);
}
