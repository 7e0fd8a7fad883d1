/* SPDX-License-Identifier: BSD-2-Clause */
#include "fake_nic.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "nic/nic_chain.h"
#include "nic/nic_rpc.h"

#define STUCK_S 20

char fake_spec[16][600];
atomic_uint fake_opened, fake_closed;
atomic_bool fake_busy, fake_batches;
atomic_uint fake_ctl_fd;
atomic_bool fake_hold, fake_rests;

const struct nic_counter_info nic_counter_info[NIC_COUNTER_COUNT] = {
#define COUNTER_INFO(name, help) {#name, help},
	NIC_COUNTERS(COUNTER_INFO)
#undef COUNTER_INFO
};

bool fake_reached(atomic_uint *what, unsigned n)
{
	struct timespec nap = {.tv_nsec = 100000};
	time_t end = time(NULL) + STUCK_S;

	while (atomic_load(what) < n) {
		if (time(NULL) > end)
			return false;
		nanosleep(&nap, NULL);
	}
	return true;
}

/* ---- ports ---- */

static struct fake_port *fake(struct port *p)
{
	return (struct fake_port *)p;
}

struct fake_port *fake_port_of(struct drive *d, unsigned port, unsigned lane)
{
	return fake(nic_port(drive_nic(d), port, lane));
}

void fake_inject(struct fake_port *p, unsigned n)
{
	uint64_t one = 1;

	atomic_fetch_add(&p->waiting, n);
	if (atomic_exchange(&p->armed, 0)) {
		atomic_fetch_add(&p->wakes, 1);
		if (write(p->peer_fd, &one, sizeof(one)) != sizeof(one))
			abort();
	}
}

static int rx_burst(struct port *p, struct port_pkt *pkts, int max)
{
	unsigned n = atomic_exchange(&fake(p)->waiting, 0);

	atomic_store(&fake(p)->unreleased, n != 0);
	if (!n && atomic_load(&fake(p)->unsure))
		atomic_fetch_sub(&fake(p)->unsure, 1);
	return (int)n;
}

static bool flush(struct port *p)
{
	atomic_store(&fake(p)->unsure, 2);
	return true;
}

static bool arm(struct port *p)
{
	struct fake_port *f = fake(p);

	/* As in shm: the next burst releases the packets of the last one. */
	if (atomic_load(&f->unreleased))
		return false;
	atomic_store(&f->unsure, 0);
	atomic_fetch_add(&f->arms, 1);
	atomic_store(&f->armed, 1);
	atomic_fetch_add(&f->waiting, atomic_exchange(&f->late, 0));
	if (atomic_load(&f->waiting) == 0)
		return true;
	atomic_store(&f->armed, 0);
	return false;
}

static void disarm(struct port *p, bool woken)
{
	uint64_t count;

	atomic_fetch_add(&fake(p)->disarms, 1);
	atomic_store(&fake(p)->armed, 0);
	if (read(p->fd, &count, sizeof(count)) < 0 && errno != EAGAIN)
		abort();
}

static void control(struct port *p)
{
	uint64_t count;

	p->rests = atomic_load(&fake_rests);
	if (p->rests || read(p->ctl_fd, &count, sizeof(count)) == sizeof(count))
		atomic_fetch_add(&fake(p)->controls, 1);
}

static void after_fork(struct port *p)
{
	atomic_fetch_add(&fake(p)->forks, 1);
	close(p->fd);
	p->fd = -1;
}

static void close_port(struct port *p)
{
	atomic_fetch_add(&fake_closed, 1);
	close(p->fd);
	close(fake(p)->peer_fd);
	if (p->ctl_fd >= 0)
		close(p->ctl_fd);
	free(p);
}

static const struct port_ops fake_ops = {
	.name = "fake",
	.flush = flush,
	.rx_burst = rx_burst,
	.arm = arm,
	.disarm = disarm,
	.control = control,
	.after_fork = after_fork,
	.close = close_port,
};

/* KIND:ADDRESS,OPTIONS. Without an address: 127.0.0.9. */
static struct pkt_addr address_in(const char *spec)
{
	struct pkt_addr a = {.b = {[10] = 0xff, [11] = 0xff, [12] = 127, [15] = 9}};
	size_t kind = strcspn(spec, ":");
	char text[64];

	if (spec[kind]) {
		snprintf(text, sizeof(text), "%.*s", (int)strcspn(spec + kind + 1, ","),
			 spec + kind + 1);
		if (pkt_addr_parse(text, &a))
			abort();
	}
	return a;
}

struct port *port_open(const char *spec, unsigned lane, unsigned lanes, char *err, size_t errlen)
{
	struct fake_port *f = calloc(1, sizeof(*f));
	unsigned n = atomic_fetch_add(&fake_opened, 1);
	struct pkt_addr addr;

	while (atomic_load(&fake_hold))
		sched_yield();
	pthread_testcancel(); /* as real ports, which read files */
	if (strncmp(spec, "bad", 3) == 0 || !f) {
		free(f);
		snprintf(err, errlen, "no such port");
		errno = 0;
		return NULL;
	}
	addr = address_in(spec);
	if (addr.b[14] == 0 && addr.b[15] == 66) {
		free(f);
		snprintf(err, errlen, "in use");
		errno = EADDRINUSE;
		return NULL;
	}
	snprintf(fake_spec[n % 16], sizeof(fake_spec[0]), "%s|%u/%u", spec, lane, lanes);
	f->base = (struct port){
		.ops = &fake_ops,
		.addr = addr,
		.mtu = 1024,
		.fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC),
		.ctl_fd = atomic_load(&fake_ctl_fd) ? eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC) : -1,
		.lane = (uint8_t)lane,
		.lanes = (uint8_t)lanes,
	};
	f->peer_fd = dup(f->base.fd);
	return &f->base;
}

/* ---- the core ---- */

int nic_create(const struct nic_config *cfg, struct nic **out)
{
	struct nic *nic = calloc(1, sizeof(*nic));

	if (!nic)
		return -ENOMEM;
	nic->cfg = *cfg;
	atomic_store(&nic->ports, cfg->ports);
	for (unsigned i = 0; i < FAKE_QPS; i++)
		nic->qp[i].pu = i % cfg->pus;
	*out = nic;
	return 0;
}

void nic_destroy(struct nic *nic)
{
	free(nic);
}

static unsigned run_qps(struct nic *nic, unsigned i)
{
	unsigned done = 0;

	for (unsigned q = 0; q < FAKE_QPS; q++) {
		struct nic_qp *qp = &nic->qp[q];
		unsigned n;

		if (qp->pu != i || !atomic_exchange(&qp->queued, 0))
			continue;
		atomic_exchange(&qp->active, 0);
		n = atomic_load(&qp->prod) - atomic_load(&qp->cons);
		atomic_fetch_add(&qp->cons, n);
		done += n;
	}
	return done;
}

unsigned nic_poll(struct nic *nic, unsigned i, uint64_t now)
{
	struct fake_pu *p = &nic->pu[i];
	unsigned packets = 0, done;

	if (atomic_exchange(&p->inside, 1))
		atomic_fetch_add(&p->overlaps, 1);
	atomic_fetch_add(&p->turns, 1);
	for (unsigned k = 0; k < atomic_load(&nic->ports); k++) {
		struct port *port = nic->cfg.port[k][i];

		packets += (unsigned)port->ops->rx_burst(port, NULL, PORT_BURST);
	}
	done = run_qps(nic, i);
	for (unsigned k = 0; done && k < atomic_load(&nic->ports); k++)
		flush(nic->cfg.port[k][i]);
	if (done && atomic_load(&p->rto))
		atomic_store(&p->deadline, now + atomic_load(&p->rto));
	if (atomic_load(&p->deadline) && now >= atomic_load(&p->deadline)) {
		atomic_store(&p->deadline, 0);
		atomic_fetch_add(&p->fired, 1);
	}
	if (packets)
		atomic_fetch_add(&p->leave, atomic_load(&p->answers));
	if (atomic_load(&p->leave)) {
		atomic_fetch_sub(&p->leave, 1);
		done++;
	}
	if (!packets && atomic_load(&p->answer) &&
	    atomic_load(&p->last) == (uintptr_t)pthread_self() &&
	    atomic_fetch_sub(&p->answer, 1) == 1)
		atomic_fetch_add(&p->requests, 1);
	if (packets || done)
		atomic_store(&p->last, (uintptr_t)pthread_self());
	for (unsigned n = 0; n < packets && atomic_load(&nic->for_qp1); n++)
		nic->cfg.ops->gsi(nic->cfg.host, 0, &nic->cfg.port[0][i]->addr,
				  &nic->cfg.port[0][i]->addr, (uint8_t[NIC_GSI_LEN]){0});
	if (packets && nic->event_ctx)
		nic->cfg.ops->cq_event(nic->cfg.host, nic->event_ctx);
	atomic_fetch_add(&p->executed, done);
	atomic_store(&p->inside, 0);
	/* The last store: a thread that waits for it must find the turn over. */
	atomic_fetch_add(&p->packets, packets);
	return packets + done;
}

struct nic_rx_totals nic_rx_totals(const struct nic *nic, unsigned i)
{
	return (struct nic_rx_totals){.packets = atomic_load(&nic->pu[i].packets),
				      .requests = atomic_load(&nic->pu[i].requests)};
}

uint64_t nic_deadline(struct nic *nic, unsigned i)
{
	uint64_t t = atomic_load(&nic->pu[i].deadline);

	return t ? t : UINT64_MAX;
}

bool nic_turn_end_requested(const struct nic *nic, unsigned i)
{
	return false;
}

void nic_turn_ended(struct nic *nic, unsigned i, uint64_t now)
{
}

void nic_send_datagrams(struct nic *nic, unsigned i, uint64_t now)
{
}

bool nic_pending(struct nic *nic, unsigned i)
{
	for (unsigned q = 0; q < FAKE_QPS; q++) {
		if (nic->qp[q].pu == i && atomic_load(&nic->qp[q].queued))
			return true;
	}
	return atomic_load(&nic->pu[i].leave) != 0;
}

unsigned nic_slot(const struct nic *nic, unsigned pu)
{
	return 0;
}

unsigned nic_pus(const struct nic *nic)
{
	return nic->cfg.pus;
}

struct port *nic_port(const struct nic *nic, unsigned port, unsigned pu)
{
	return nic->cfg.port[port][pu];
}

bool nic_gid_of(const struct nic *nic, const struct pkt_addr *addr, struct nic_gid *out)
{
	for (unsigned k = 0; k < atomic_load(&nic->ports); k++) {
		if (pkt_addr_eq(&nic->cfg.port[k][0]->addr, addr)) {
			*out = (struct nic_gid){k, 1, k};
			return true;
		}
	}
	return false;
}

/* No thread may be in a turn. */
int nic_port_add(struct nic *nic, unsigned port_num, struct port *const lane[NIC_MAX_PUS])
{
	unsigned k = atomic_load(&nic->ports);

	for (unsigned i = 0; i < nic->cfg.pus; i++) {
		if (atomic_exchange(&nic->pu[i].inside, 1))
			atomic_fetch_add(&nic->pu[i].overlaps, 1);
	}
	memcpy(nic->cfg.port[k], lane, sizeof(nic->cfg.port[k]));
	atomic_store(&nic->ports, k + 1);
	for (unsigned i = 0; i < nic->cfg.pus; i++)
		atomic_store(&nic->pu[i].inside, 0);
	return 0;
}

void nic_pu_counters(const struct nic *nic, unsigned pu, struct nic_counters *sum)
{
	sum->rcvd_pkts += atomic_load(&nic->pu[pu].packets);
}

unsigned nic_connections(const struct nic *nic, unsigned pu)
{
	return 2;
}

void nic_usage(const struct nic *nic, struct nic_usage *out)
{
	*out = (struct nic_usage){.qps = 3, .qp_bytes = 4096};
}

unsigned nic_qp_pu(const struct nic_qp *qp)
{
	return qp->pu;
}

bool nic_doorbell(struct nic *nic, struct nic_qp *qp)
{
	if (atomic_exchange(&qp->active, 1))
		return false;
	atomic_store(&qp->queued, 1);
	return true;
}

bool nic_qp_busy(struct nic_qp *qp)
{
	return atomic_load(&fake_busy);
}

bool nic_qp_batches(const struct nic_qp *qp)
{
	return atomic_load(&fake_batches);
}

void fake_post(struct drive *d, unsigned qp, unsigned n)
{
	struct nic_qp *q = &drive_nic(d)->qp[qp];

	atomic_fetch_add(&q->prod, n);
	drive_doorbell(d, q);
}

int nic_gsi_send(struct nic *nic, unsigned port, const struct pkt_addr *dst, uint8_t tclass,
		 const uint8_t *mad)
{
	struct fake_pu *p = &nic->pu[0];

	if (port >= atomic_load(&nic->ports))
		return -EINVAL;
	if (atomic_exchange(&p->inside, 1))
		atomic_fetch_add(&p->overlaps, 1);
	atomic_fetch_add(&nic->gsi_sent, 1);
	flush(nic->cfg.port[port][0]);
	atomic_store(&p->inside, 0);
	return 0;
}

int nic_gsi_stage(struct nic *nic, unsigned port, const struct pkt_addr *dst, uint8_t tclass,
		  const uint8_t *mad)
{
	return nic_gsi_send(nic, port, dst, tclass, mad);
}

void nic_gsi_expect(struct nic *nic, unsigned port, const struct pkt_addr *dst, unsigned n)
{
}

void nic_gsi_flush(struct nic *nic, unsigned port)
{
}

void fake_datagram(struct drive *d, uint8_t fill)
{
	struct nic *nic = drive_nic(d);
	uint8_t mad[NIC_GSI_LEN];

	memset(mad, fill, sizeof(mad));
	drive_own(d, 0);
	nic->cfg.ops->gsi(nic->cfg.host, 0, &nic->cfg.port[0][0]->addr, &nic->cfg.port[0][0]->addr,
			  mad);
	drive_disown(d, 0);
}

unsigned nic_chain_states(const struct nic *nic, unsigned pu, struct nic_chain_state *out,
			  unsigned max)
{
	return 0;
}
