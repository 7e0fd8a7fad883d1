/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Probes the abilities of the running kernel by sending over loopback. No packet leaves the
 * machine.
 */
#include "port/udp.h"

#include <linux/sock_diag.h>
#include <string.h>

#include "base/sys.h"

#ifndef SO_MEMINFO
#define SO_MEMINFO 55
#endif

/* how long to wait for the datagram, which usually arrives before the call returns */
#define PROBE_WAIT_NS 20000000

/* Returns the used bytes of the receive buffer, or 0 if they are unknown. */
static uint32_t receive_memory(int fd)
{
	uint32_t info[SK_MEMINFO_VARS] = {0};
	socklen_t n = sizeof(info);

	return sys_getsockopt(fd, SOL_SOCKET, SO_MEMINFO, info, &n) ? 0
								    : info[SK_MEMINFO_RMEM_ALLOC];
}

/* Returns true if Linux sends `count` pieces of one byte with one call. */
static bool cuts(int fd, const union udp_name *self, socklen_t len, unsigned count)
{
	static const uint8_t zeros[UDP_SEGS_NEW];

	return sys_sendto(fd, zeros, count, MSG_DONTWAIT, &self->sa, len) == (ssize_t)count;
}

static uint16_t probe_segments(int fd, const union udp_name *self, socklen_t len)
{
	int size = 1;

	/*
	 * Kernels without UDP_SEGMENT would ignore the control message and send one long datagram.
	 * They fail this call.
	 */
	if (sys_setsockopt(fd, SOL_UDP, UDP_SEGMENT, &size, sizeof(size)))
		return 1;
	if (cuts(fd, self, len, UDP_SEGS_NEW))
		return UDP_SEGS_NEW;
	return cuts(fd, self, len, UDP_SEGS_OLD) ? UDP_SEGS_OLD : 1;
}

static uint32_t probe_cost(int fd, const union udp_name *self, socklen_t len, uint32_t bytes)
{
	static const uint8_t zeros[PKT_MAX_LEN];
	struct pollfd p = {.fd = fd, .events = POLLIN};
	struct timespec ts = {.tv_nsec = PROBE_WAIT_NS};

	if (sys_sendto(fd, zeros, bytes, MSG_DONTWAIT, &self->sa, len) != (ssize_t)bytes)
		return 0;
	if (sys_ppoll(&p, 1, &ts, NULL) <= 0)
		return 0;
	return receive_memory(fd);
}

void udp_probe(const struct pkt_addr *addr, uint32_t scope, uint32_t bytes,
	       struct udp_abilities *out)
{
	union udp_name self;
	socklen_t len = udp_name(&self, addr, 0, scope);
	int fd = sys_socket(self.sa.sa_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	/*
	 * Values if nothing can be probed: no segmentation, and memory in powers of two with
	 * separate headers, as the allocator of Linux provides it.
	 */
	out->max_segs = 1;
	out->cost = 2 * bytes + 512;
	if (fd < 0)
		return;
	if (!sys_bind(fd, &self.sa, len) && !sys_getsockname(fd, &self.sa, &len)) {
		uint32_t cost = probe_cost(fd, &self, len, bytes);

		if (cost > bytes)
			out->cost = cost;
		out->max_segs = probe_segments(fd, &self, len);
	}
	sys_close(fd);
}
