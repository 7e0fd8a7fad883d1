/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The sockets that `roost stat` reads: a unix socket in the private folder, named after the
 * process, and a socket without a file, which clients find through the pool (pool_visit() in
 * pool/pool.h). A client that connects gets one JSON object and the end of the stream, and sends no
 * request. Only clients of the same user are answered: the credentials of each are checked.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/log.h"
#include "base/spare.h"
#include "base/sys.h"
#include "drive/engine.h"
#include "nic/nic_chain.h"
#include "pool/pool.h"
#include "port/shm_dir.h"

#define OWN_FOR_STAT_NS	 (20 * MS) /* in this time an owner that lost its core runs again */
#define LOCK_FOR_STAT_NS (20 * MS) /* most control calls end in this time */
#define STAT_PREFIX	 "stat."

static const char *stat_name(char buf[SHM_NAME_MAX], int pid)
{
	snprintf(buf, SHM_NAME_MAX, STAT_PREFIX "%d", pid);
	return buf;
}

int drive_stat_path(char *buf, size_t n, int pid)
{
	char err[256], link[32], name[SHM_NAME_MAX];
	int dirfd = shm_dir_open(err, sizeof(err));
	ssize_t len;
	size_t left;

	if (dirfd < 0)
		return dirfd;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", dirfd);
	len = readlink(link, buf, n);
	if (len < 0)
		len = -errno;
	sys_close(dirfd);
	if (len < 0)
		return (int)len;
	left = n - (size_t)len;
	if (snprintf(buf + len, left, "/%s", stat_name(name, pid)) >= (int)left)
		return -ENAMETOOLONG;
	return 0;
}

/* ---- the answer ---- */

static void set(json_t *o, const char *key, uint64_t value)
{
	json_object_set_new(o, key, json_integer((json_int_t)value));
}

static void add_stats(struct port_stats *sum, const struct port_stats *s)
{
	sum->rx_packets += s->rx_packets;
	sum->rx_bytes += s->rx_bytes;
	sum->tx_packets += s->tx_packets;
	sum->tx_bytes += s->tx_bytes;
	sum->rx_bursts += s->rx_bursts;
	sum->tx_bursts += s->tx_bursts;
	sum->rx_bad += s->rx_bad;
	sum->tx_dropped += s->tx_dropped;
	sum->tx_blocked += s->tx_blocked;
	sum->rx_shm_packets += s->rx_shm_packets;
	sum->tx_shm_packets += s->tx_shm_packets;
	sum->tx_shm_fallbacks += s->tx_shm_fallbacks;
}

struct counted {
	struct nic_counters nic;
	struct port_stats port[NIC_MAX_PORTS];
	uint64_t group[STAT_GROUPS][DRIVE_STAT_VALUES]; /* groups that count by PU */
};

/* The counters of each PU at the last look. Only the service thread uses them. */
static struct counted last[NIC_MAX_PUS];

static void add_values(uint64_t *to, const uint64_t *from, size_t n)
{
	for (size_t i = 0; i < n; i++)
		to[i] += from[i];
}

static void add(struct counted *sum, const struct counted *pu)
{
	add_values((uint64_t *)&sum->nic, (const uint64_t *)&pu->nic, NIC_COUNTER_COUNT);
	for (unsigned g = 0; g < STAT_GROUPS; g++)
		add_values(sum->group[g], pu->group[g], DRIVE_STAT_VALUES);
	for (unsigned k = 0; k < NIC_MAX_PORTS; k++)
		add_stats(&sum->port[k], &pu->port[k]);
}

/*
 * Memory order: a group is constant before drive_stat_show() exchanges its pointer in; a reader
 * loads the pointer with acquire, then reads the group.
 */
static const struct drive_stat_group *group_at(struct drive *d, unsigned g)
{
	return atomic_load_explicit(&d->stat_group[g], memory_order_acquire);
}

static void count_groups(struct drive *d, unsigned pu, struct counted *c)
{
	for (unsigned g = 0; g < STAT_GROUPS; g++) {
		const struct drive_stat_group *group = group_at(d, g);

		if (group && group->read_pu)
			group->read_pu(d->nic, pu, c->group[g]);
	}
}

/*
 * Sums the counters of all PUs. They are plain words that the owner writes, so this thread owns
 * each PU while it reads, and the values of a PU are of one moment. If a PU cannot be owned in time
 * (its owner is stopped), its last values are used, so counters never decrease.
 */
static void count(struct drive *d, struct counted *sum)
{
	memset(sum, 0, sizeof(*sum));
	for (unsigned i = 0; i < d->pus; i++) {
		if (pu_own(&d->pu[i], clock_now() + OWN_FOR_STAT_NS)) {
			memset(&last[i], 0, sizeof(last[i]));
			nic_pu_counters(d->nic, i, &last[i].nic);
			for (unsigned k = 0; k < drive_ports(d); k++)
				last[i].port[k] = port_stats_of(d->port[k][i]);
			count_groups(d, i, &last[i]);
			drive_disown(d, i);
		}
		add(sum, &last[i]);
	}
}

static json_t *describe_port(const struct drive *d, unsigned k, const struct port_stats *sum)
{
	const struct port *first = d->port[k][0];
	json_t *o = json_object(), *stats = json_object(), *slots = json_array();
	char addr[POOL_ADDR_TEXT];

	for (unsigned i = 0; i < d->pus && first->shared; i++)
		json_array_append_new(slots, json_integer(d->port[k][i]->slot));

	set(stats, "rx_packets", sum->rx_packets);
	set(stats, "rx_bytes", sum->rx_bytes);
	set(stats, "rx_bursts", sum->rx_bursts);
	set(stats, "rx_bad", sum->rx_bad);
	set(stats, "tx_packets", sum->tx_packets);
	set(stats, "tx_bytes", sum->tx_bytes);
	set(stats, "tx_bursts", sum->tx_bursts);
	set(stats, "tx_dropped", sum->tx_dropped);
	set(stats, "tx_blocked", sum->tx_blocked);
	set(stats, "rx_shm_packets", sum->rx_shm_packets);
	set(stats, "tx_shm_packets", sum->tx_shm_packets);
	set(stats, "tx_shm_fallbacks", sum->tx_shm_fallbacks);

	json_object_set_new(o, "kind", json_stringn(d->spec[k], strcspn(d->spec[k], ":,")));
	json_object_set_new(o, "address",
			    json_string(pool_addr_print(&first->addr,
							first->shared ? first->medium : 0, addr)));
	json_object_set_new(o, "slots", slots);
	set(o, "mtu", first->mtu);
	json_object_set_new(o, "stats", stats);
	return o;
}

void drive_stat_show(struct drive *d, const struct drive_stat_group *group)
{
	const struct drive_stat_group *none = NULL;

	for (unsigned g = 0; g < STAT_GROUPS; g++, none = NULL) {
		if (atomic_compare_exchange_strong(&d->stat_group[g], &none, group))
			return;
	}
}

static json_t *describe_group(const struct drive_stat_group *g, uint64_t *values)
{
	json_t *o = json_object();

	if (g->read)
		g->read(values);
	for (size_t i = 0; i < g->count; i++)
		set(o, g->label(i), values[i]);
	return o;
}

/*
 * Describes the queue pairs of chains that have executed the most WQEs. A PU that cannot be owned
 * in time, for example because it stands still for a debugger, shows none. Control lock held.
 */
#define SHOWN_CHAINS 32u
static json_t *describe_chains(struct drive *d)
{
	static const char *const activity[] = {
		[NIC_CHAIN_RUNS] = "runs",	    [NIC_CHAIN_IDLE] = "idle",
		[NIC_CHAIN_WAITS] = "waits",	    [NIC_CHAIN_LIMITED] = "limited",
		[NIC_CHAIN_NO_RECV] = "no receive", [NIC_CHAIN_FAILED] = "failed"};
	json_t *o = json_object(), *list = json_array();
	struct nic_chain_state s[SHOWN_CHAINS];
	unsigned total = 0;

	for (unsigned i = 0; i < d->pus; i++) {
		unsigned n, shown = (unsigned)json_array_size(list);

		if (!pu_own(&d->pu[i], clock_now() + OWN_FOR_STAT_NS))
			continue;
		n = nic_chain_states(d->nic, i, s, SHOWN_CHAINS - shown);
		drive_disown(d, i);
		total += n;
		for (unsigned k = 0; k < n && k < SHOWN_CHAINS - shown; k++)
			json_array_append_new(list, json_pack("{s:i,s:i,s:I,s:s,s:b}", "qp",
							      (int)s[k].qpn, "pu", (int)i,
							      "executed", (json_int_t)s[k].executed,
							      "state", activity[s[k].activity],
							      "managed", (int)s[k].managed));
	}
	set(o, "queues", total);
	json_object_set_new(o, "most_executed", list);
	return o;
}

/* Counts the connections. A PU that cannot be owned in time is not counted. Control lock held. */
static unsigned connections(struct drive *d)
{
	unsigned n = 0;

	for (unsigned i = 0; i < d->pus; i++) {
		if (!pu_own(&d->pu[i], clock_now() + OWN_FOR_STAT_NS))
			continue;
		n += nic_connections(d->nic, i);
		drive_disown(d, i);
	}
	return n;
}

/*
 * Describes what control calls change. A control call may hold the lock for long: below a signal
 * handler that ends the program, it never returns. The service thread must not wait for it, because
 * it also serves the ports. The answer then has no `usage` and no `chains`.
 */
static void describe_objects(struct drive *d, json_t *o)
{
	struct nic_usage usage;
	json_t *u;

	if (!control_lock_for(d, LOCK_FOR_STAT_NS))
		return;
	u = json_object();
	nic_usage(d->nic, &usage);
	set(u, "qps", usage.qps);
	set(u, "connections", connections(d));
	set(u, "groups", usage.groups);
	set(u, "cqs", usage.cqs);
	set(u, "mrs", usage.mrs);
	set(u, "mws", usage.mws);
	set(u, "srqs", usage.srqs);
	set(u, "pds", usage.pds);
	set(u, "qp_bytes", usage.qp_bytes);
	set(u, "memory", usage.memory);
	set(u, "memory_limit", usage.memory_limit);
	set(u, "memory_refused", usage.memory_refused);
	json_object_set_new(o, "usage", u);
	json_object_set_new(o, "chains", describe_chains(d));
	drive_control_unlock(d);
}

static json_t *describe(struct drive *d)
{
	struct counted sum;
	const uint64_t *value = (const uint64_t *)&sum.nic;
	const struct drive_stat_group *group;
	unsigned num_ports = drive_ports(d);
	char instance[24];
	json_t *o = json_object(), *ports = json_array(), *c = json_object();

	count(d, &sum);
	for (unsigned k = 0; k < num_ports; k++)
		json_array_append_new(ports, describe_port(d, k, &sum.port[k]));
	for (size_t i = 0; i < NIC_COUNTER_COUNT; i++)
		set(c, nic_counter_info[i].name, value[i]);

	set(o, "pid", (uint64_t)getpid());
	json_object_set_new(o, "program", json_string(program_invocation_short_name));
	snprintf(instance, sizeof(instance), "%016" PRIx64, d->instance);
	json_object_set_new(o, "instance", json_string(instance));
	json_object_set_new(o, "uptime_s", json_real((double)(clock_now() - d->started) / 1e9));
	set(o, "pus", d->pus);
	json_object_set_new(o, "ports", ports);
	describe_objects(d, o);
	json_object_set_new(o, "counters", c);
	for (unsigned g = 0; g < STAT_GROUPS; g++) {
		group = group_at(d, g);
		if (group)
			json_object_set_new(o, group->name, describe_group(group, sum.group[g]));
	}
	return o;
}

static void answer(struct drive *d, int fd)
{
	struct ucred peer = {0};
	socklen_t len = sizeof(peer);
	json_t *o;
	char *text;

	if (sys_getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) || peer.uid != geteuid())
		return;
	o = describe(d);
	text = json_dumps(o, JSON_COMPACT);
	json_decref(o);
	/*
	 * The answer has a few KiB. It fits into the buffer of a new socket, so no client can block
	 * the service thread.
	 */
	if (text)
		sys_sendto(fd, text, strlen(text), MSG_DONTWAIT | MSG_NOSIGNAL, NULL, 0);
	free(text);
}

bool stat_serve(struct drive *d, int listener)
{
	enum spare_result result;
	int fd;

	result = spare_accept(listener, SOCK_NONBLOCK, &d->spare_fd, &fd);
	if (result == SPARE_ACCEPTED) {
		answer(d, fd);
		sys_close(fd);
	}
	return result != SPARE_REST;
}

/* ---- the sockets ---- */

/*
 * Opens the socket that clients find through the pool. A program without a udp port is in no pool.
 */
static void open_for_visits(struct drive *d)
{
	const struct pool *p = pool_mine();
	int fd = p ? pool_receive_visits(p) : -ENOENT;

	d->visit_fd = fd < 0 ? -1 : fd;
	if (p && fd < 0)
		log_info("the pool has no stat socket of this process: %s", strerror(-fd));
}

void stat_open(struct drive *d)
{
	char err[256], name[SHM_NAME_MAX];
	int dirfd = shm_dir_open(err, sizeof(err));
	int rc = dirfd;

	memset(last, 0, sizeof(last));
	d->stat_fd = -1;
	if (getrandom(&d->instance, sizeof(d->instance), GRND_NONBLOCK) != sizeof(d->instance))
		d->instance = (uint64_t)getpid() << 32 ^ clock_now();
	d->spare_fd = spare_open();
	open_for_visits(d);
	if (dirfd >= 0) {
		snprintf(err, sizeof(err), "can't listen");
		shm_dir_sweep(dirfd, STAT_PREFIX);
		rc = shm_dir_listen(dirfd, stat_name(name, getpid()));
		if (rc >= 0) {
			d->stat_fd = rc;
			d->stat_dir = dirfd;
			return;
		}
		sys_close(dirfd);
	}
	log_info(
		"the stat socket did not open, so `roost stat` does not show this process: %s (%s)",
		err, strerror(-rc));
}

void stat_forget(struct drive *d)
{
	if (d->visit_fd >= 0)
		sys_close(d->visit_fd);
	if (d->spare_fd >= 0)
		sys_close(d->spare_fd);
	d->visit_fd = d->spare_fd = -1;
	if (d->stat_fd < 0)
		return;
	sys_close(d->stat_fd);
	sys_close(d->stat_dir);
	d->stat_fd = -1;
}

void stat_unlink(struct drive *d)
{
	char name[SHM_NAME_MAX];

	if (d->stat_fd >= 0)
		unlinkat(d->stat_dir, stat_name(name, getpid()), 0);
}

void stat_close(struct drive *d)
{
	stat_unlink(d);
	stat_forget(d);
}
