/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Capture: a port that wraps a port, changes nothing and records every packet. A sent packet is
 * encoded when the next one is reserved or the burst is flushed, before the inner port can reuse
 * its memory. A received packet is encoded before the core sees it.
 *
 * Frames are buffered. The buffer is written to the file when it is half full, when the port goes
 * to sleep, when a poller has found no packet for a while, and at the end. A failed write ends the
 * capture with one line; the port continues.
 *
 * A socket does not show the identification of received packets. This port computes it from the
 * ICRC, as the core does, so that readers of the file can verify the ICRCs. If the ICRC of a packet
 * is wrong, it is wrong in the file, too.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/sys.h"
#include "packet/headers.h"
#include "packet/ip.h"
#include "packet/pcap.h"
#include "port/port_impl.h"

#define BUFFER_BYTES (512u << 10)
#define IDLE_POLLS   1024
#define FLOWS	     64 /* a power of two */

struct pcap_port {
	struct port port;    /* first */
	struct port_ops ops; /* the name is that of the inner port */
	struct port *inner;
	uint64_t (*clock)(void *);
	void *clock_ctx;
	uint64_t last; /* time of the last record: time stamps never decrease */
	int file;      /* -1: the capture has ended */
	char *path;
	uint8_t *buf;
	size_t used;
	unsigned idle;
	/* the last reservation, complete when the next one is made */
	struct port_buf reserved;
	uint32_t len;
	uint8_t tos;
	const struct port_path *to;   /* destination of that packet; NULL: none */
	struct icrc_flow flow[FLOWS]; /* for received packets; the index is a hash of the source */
};

static struct pcap_port *pcap_port(struct port *p)
{
	return (struct pcap_port *)p;
}

static uint64_t real_time(void *ctx)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	return (uint64_t)ts.tv_sec * 1000000000ull + (uint64_t)ts.tv_nsec;
}

static uint64_t stamp(struct pcap_port *c)
{
	uint64_t t = c->clock(c->clock_ctx);

	if (t > c->last)
		c->last = t;
	return c->last;
}

static void __attribute__((cold)) end_capture(struct pcap_port *c, int rc)
{
	log_error("pcap: can't write %s any more (%s): the capture ends here", c->path,
		  strerror(-rc));
	sys_close(c->file);
	c->file = -1;
	c->used = 0;
}

static void write_out(struct pcap_port *c)
{
	size_t done = 0;

	c->idle = 0;
	while (c->file >= 0 && done < c->used) {
		ssize_t n = sys_write(c->file, c->buf + done, c->used - done);

		if (n > 0)
			done += (size_t)n;
		else if (n != -EINTR)
			end_capture(c, n ? (int)n : -EIO);
	}
	c->used = 0;
}

static void put(struct pcap_port *c, uint64_t t, const struct pkt_addr *src,
		const struct pkt_addr *dst, uint16_t sport, uint8_t tos, uint32_t ip_id,
		const uint8_t *bth, uint32_t len)
{
	if (c->file < 0)
		return;
	/*
	 * Any program can send a datagram that is longer than a packet. A datagram that does not
	 * fit the buffer is left out.
	 */
	if (c->used > BUFFER_BYTES / 2)
		write_out(c);
	c->used += pcap_encode_record(c->buf + c->used, BUFFER_BYTES - c->used, t, src, dst, sport,
				      PKT_UDP_PORT, tos, ip_id, bth, len);
}

static void put_sent(struct pcap_port *c)
{
	if (!c->to)
		return;
	put(c, stamp(c), &c->port.addr, &c->to->dst, c->to->sport, c->tos, c->reserved.ip_id,
	    c->reserved.bth, c->len);
	c->to = NULL;
}

/* Returns the identification for which the ICRC is right, and whether DF was set (ip.h). */
static uint32_t true_id(struct pcap_port *c, const struct port_pkt *pkt)
{
	uint64_t tail;
	struct icrc_flow *f;
	uint16_t id = pkt->ip_id;

	if (pkt->flags & PORT_ID_KNOWN)
		return id;
	memcpy(&tail, pkt->src->b + 8, sizeof(tail));
	f = &c->flow[((tail ^ tail >> 56 ^ tail >> 50) + pkt->sport) % FLOWS];
	if (f->dport != PKT_UDP_PORT || f->sport != pkt->sport || !pkt_addr_eq(&f->src, pkt->src) ||
	    !pkt_addr_eq(&f->dst, pkt->dst))
		icrc_flow_init(f, pkt->src, pkt->dst, pkt->sport, PKT_UDP_PORT);
	switch (icrc_verify(f, false, &id, pkt->bth, pkt->len)) {
	case ICRC_RIGHT:
		return id;
	case ICRC_RIGHT_NO_DF:
		return id | IP_NO_DF;
	case ICRC_WRONG:
		break;
	}
	return pkt->ip_id;
}

static struct port_path *pcap_path_get(struct port *p, const struct pkt_addr *dst, uint32_t dqpn)
{
	struct port *in = pcap_port(p)->inner;

	return in->ops->path_get(in, dst, dqpn);
}

static uint32_t pcap_qp_mtu(struct port *p, const struct pkt_addr *dst, uint32_t dqpn, uint32_t mtu)
{
	return port_qp_mtu(pcap_port(p)->inner, dst, dqpn, mtu);
}

static void pcap_path_put(struct port *p, struct port_path *path)
{
	struct pcap_port *c = pcap_port(p);

	put_sent(c);
	c->inner->ops->path_put(c->inner, path);
}

static enum port_reader pcap_reader(struct port *p, const struct port_path *path)
{
	return port_reader_of(pcap_port(p)->inner, path);
}

static struct port_progress *pcap_progress(struct port *p, const struct port_path *path)
{
	return port_progress_of(pcap_port(p)->inner, path);
}

static int pcap_join(struct port *p, const struct pkt_addr *group)
{
	struct port *in = pcap_port(p)->inner;

	return in->ops->join(in, group);
}

static void pcap_leave(struct port *p, const struct pkt_addr *group)
{
	struct port *in = pcap_port(p)->inner;

	in->ops->leave(in, group);
}

static int pcap_reserve(struct port *p, struct port_path *path, uint32_t len, uint8_t tos,
			struct port_buf *buf)
{
	struct pcap_port *c = pcap_port(p);
	int rc;

	put_sent(c);
	rc = c->inner->ops->reserve(c->inner, path, len, tos, buf);
	if (rc)
		return rc;
	c->reserved = *buf;
	c->len = len;
	c->tos = tos;
	c->to = path;
	return 0;
}

static void pcap_cancel(struct port *p)
{
	struct pcap_port *c = pcap_port(p);

	c->to = NULL;
	c->inner->ops->cancel(c->inner);
}

static bool pcap_flush(struct port *p)
{
	struct pcap_port *c = pcap_port(p);
	bool sent;

	put_sent(c);
	sent = c->inner->ops->flush(c->inner);
	p->stats = port_stats_of(c->inner);
	return sent;
}

static int pcap_rx_burst(struct port *p, struct port_pkt *pkts, int max)
{
	struct pcap_port *c = pcap_port(p);
	int n = c->inner->ops->rx_burst(c->inner, pkts, max);
	uint64_t t;

	port_pass_state(p, c->inner);
	if (n <= 0) {
		if (c->used && ++c->idle >= IDLE_POLLS)
			write_out(c);
		return n;
	}
	c->idle = 0;
	t = stamp(c);
	for (int i = 0; i < n; i++)
		put(c, t, pkts[i].src, pkts[i].dst, pkts[i].sport, pkts[i].tos,
		    true_id(c, &pkts[i]), pkts[i].bth, pkts[i].len);
	p->stats = port_stats_of(c->inner);
	return n;
}

static bool pcap_arm(struct port *p)
{
	struct pcap_port *c = pcap_port(p);

	write_out(c);
	return c->inner->ops->arm(c->inner);
}

static void pcap_disarm(struct port *p, bool woken)
{
	struct port *in = pcap_port(p)->inner;

	in->ops->disarm(in, woken);
}

static void pcap_control(struct port *p)
{
	struct port *in = pcap_port(p)->inner;

	if (in->ops->control)
		in->ops->control(in);
	port_pass_state(p, in);
}

static void pcap_after_fork(struct port *p)
{
	struct pcap_port *c = pcap_port(p);

	/* A forked child must not write the buffer: the parent writes it. */
	c->used = 0;
	c->to = NULL;
	if (c->file >= 0)
		sys_close(c->file);
	c->file = -1;
	c->inner->ops->after_fork(c->inner);
}

static void pcap_free(struct pcap_port *c)
{
	if (c->file >= 0)
		sys_close(c->file);
	mem_free_pages(c->buf, BUFFER_BYTES);
	free(c->path);
	free(c);
}

static void pcap_close(struct port *p)
{
	struct pcap_port *c = pcap_port(p);
	struct port *in = c->inner;

	put_sent(c);
	write_out(c);
	pcap_free(c);
	in->ops->close(in);
}

static const struct port_ops pcap_ops = {
	.path_get = pcap_path_get,
	.path_put = pcap_path_put,
	.qp_mtu = pcap_qp_mtu,
	.reader = pcap_reader,
	.progress = pcap_progress,
	.join = pcap_join,
	.leave = pcap_leave,
	.reserve = pcap_reserve,
	.cancel = pcap_cancel,
	.flush = pcap_flush,
	.rx_burst = pcap_rx_burst,
	.arm = pcap_arm,
	.disarm = pcap_disarm,
	.control = pcap_control,
	.after_fork = pcap_after_fork,
	.close = pcap_close,
};

/*
 * Returns the name with every "%p" replaced by the process id, followed by the lane. Returns NULL
 * if there is no memory. The caller frees it.
 */
static char *expand(const char *path, unsigned lane)
{
	char *out = NULL;
	size_t n;
	FILE *f = open_memstream(&out, &n);

	if (!f)
		return NULL;
	for (const char *p = path; *p; p++) {
		if (p[0] == '%' && p[1] == 'p') {
			fprintf(f, "%d", (int)getpid());
			p++;
		} else {
			fputc(*p, f);
		}
	}
	if (lane)
		fprintf(f, ".%u", lane);
	if (fclose(f)) {
		free(out);
		return NULL;
	}
	return out;
}

/*
 * Opens a file that exists, if it is a device, or belongs to the user and has no other name. Other
 * users may leave links in a folder that all users can write.
 */
static int reopen(const char *path)
{
	int fd = open(path, O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC), rc = 0;
	struct stat st;

	if (fd < 0)
		return -errno;
	if (fstat(fd, &st))
		rc = -errno;
	else if (S_ISREG(st.st_mode) && st.st_uid == geteuid() && st.st_nlink == 1)
		rc = ftruncate(fd, 0) ? -errno : 0;
	else if (!S_ISCHR(st.st_mode))
		rc = -EPERM;
	if (rc == 0)
		return fd;
	close(fd);
	return rc;
}

/* Opens the file; only the user can read the captured packets. Returns the descriptor or -errno. */
static int open_file(const char *path)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);

	if (fd >= 0)
		return fd;
	return errno == EEXIST ? reopen(path) : -errno;
}

struct port *pcap_wrap(struct port *inner, const char *path, uint64_t (*clock)(void *), void *ctx,
		       char *err, size_t errlen)
{
	struct pcap_port *c = calloc(1, sizeof(*c));

	if (c) {
		c->file = -1;
		c->path = expand(path, inner->lane);
		c->buf = mem_alloc_pages(BUFFER_BYTES);
	}
	if (!c || !c->path || !c->buf) {
		snprintf(err, errlen, "pcap: out of memory");
		goto fail;
	}
	c->file = open_file(c->path);
	if (c->file < 0) {
		if (c->file == -ELOOP || c->file == -EPERM)
			snprintf(
				err, errlen,
				"pcap: %s is a link or a file of another user: remove it, or choose another name",
				c->path);
		else
			snprintf(err, errlen, "pcap: can't create %s: %s", c->path,
				 strerror(-c->file));
		goto fail;
	}
	c->port = *inner;
	c->ops = pcap_ops;
	c->ops.name = inner->ops->name;
	c->port.ops = &c->ops;
	c->port.lag = 0; /* a packet is recorded when the next is reserved */
	c->inner = inner;
	c->clock = clock ? clock : real_time;
	c->clock_ctx = ctx;
	c->used = pcap_encode_file_header(c->buf, BUFFER_BYTES);
	write_out(c);
	return &c->port;
fail:
	if (c)
		pcap_free(c);
	return NULL;
}
