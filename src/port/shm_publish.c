/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Publishes the length of the longest ring that the port can take from one more program of the
 * pool. Other programs read this length when they choose between shared memory and udp
 * (port/host.c), and a connection keeps its choice. The port therefore publishes the length in
 * advance: when it opens, and after each ring that was added or removed.
 */
#include "port/shm.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "base/log.h"
#include "base/sys.h"

/*
 * Tries whether two descriptors are free. A peer needs them for its connection and its ring.
 * Returns 0 or -errno.
 */
static int try_descriptors(const struct shm_port *s)
{
	int a = sys_dup_cloexec(s->base.fd);
	int b = a < 0 ? a : sys_dup_cloexec(s->base.fd);

	if (a >= 0)
		sys_close(a);
	if (b >= 0)
		sys_close(b);
	return b < 0 ? b : 0;
}

/*
 * Tries to map a ring, because address space may be limited. The test takes no memory. Returns 0 or
 * -errno.
 */
static int try_mapping(uint32_t bytes)
{
	size_t all = SHM_RING_OVERHEAD + (size_t)bytes;
	void *m = mmap(NULL, all, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (m == MAP_FAILED)
		return -errno;
	munmap(m, all);
	return 0;
}

/* Returns the bytes of the longest ring, or 0 if no ring is possible; *rc is then the reason. */
static uint32_t longest_ring(const struct shm_port *s, int *rc)
{
	*rc = s->num_rx == SHM_MAX_RX ? -ENOSPC : try_descriptors(s);
	for (uint32_t bytes = s->ring_size; *rc == 0 && bytes >= SHM_RING_MIN; bytes /= 2) {
		if (s->num_rx && s->rx_bytes + bytes > SHM_RX_BYTES)
			continue;
		*rc = try_mapping(bytes);
		if (*rc == 0)
			return bytes;
		if (bytes > SHM_RING_MIN)
			*rc = 0;
	}
	if (*rc == 0)
		*rc = -ENOSPC;
	return 0;
}

void shm_publish_ring(struct shm_port *s)
{
	uint32_t bytes;
	int rc;

	if (!s->pool || s->forked || s->ending)
		return;
	bytes = longest_ring(s, &rc);
	if (bytes == s->published_ring)
		return;
	if (!bytes && !s->logged_full) {
		s->logged_full = true;
		log_warn(
			"host: this program can take no shared memory of one more peer (%s): such peers use udp",
			strerror(-rc));
	}
	s->published_ring = bytes;
	pool_tell_ring(s->pool, &s->base.addr, s->scope, s->slot, bytes);
}

void shm_publish_end(struct shm_port *s)
{
	if (s->pool && !s->forked)
		pool_tell_ring(s->pool, &s->base.addr, s->scope, s->slot, 0);
	s->ending = true;
}
