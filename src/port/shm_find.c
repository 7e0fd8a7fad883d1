/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Finds endpoints. Without a pool they use lock files and sockets in the private folder
 * (shm_dir.h). In a pool they use the memory of the pool, and names in the abstract namespace;
 * there, a slot with a new owner is another endpoint.
 */
#include <errno.h>
#include <fcntl.h>

#include "base/spare.h"
#include "base/sys.h"
#include "port/shm.h"

/* Reads the lock file of an endpoint, even if the last descriptor is used up. */
static int holder_of(struct shm_port *s, const struct pkt_addr *addr, unsigned lane,
		     struct shm_holder *h)
{
	int rc = shm_dir_holder(s->dirfd, addr, lane, h);

	if (rc == -EMFILE && s->spare_fd >= 0) {
		sys_close(s->spare_fd);
		rc = shm_dir_holder(s->dirfd, addr, lane, h);
		s->spare_fd = spare_open();
	}
	return rc;
}

uint32_t shm_pool_owner(const struct shm_port *s, const struct pkt_addr *addr, unsigned slot)
{
	struct pool_socket sock;

	return pool_find(s->pool, addr, s->scope, slot, &sock) && sock.ring >= SHM_RING_MIN
		       ? sock.owner
		       : 0;
}

int shm_find(struct shm_port *s, const struct shm_path *path, struct shm_peer *peer)
{
	struct shm_holder h;
	int rc;

	*peer = (struct shm_peer){.addr = path->base.dst, .owner = path->base.owner};
	if (s->pool) {
		peer->lane = (uint8_t)path->lane_key;
		return 0;
	}
	rc = holder_of(s, &path->base.dst, 0, &h);
	if (rc == 0)
		peer->lane = (uint8_t)(path->lane_key % h.lanes);
	return rc;
}

int shm_find_ring(struct shm_port *s, const struct shm_peer *peer, uint32_t *ring)
{
	struct pool_socket sock;
	struct shm_holder h;
	int rc;

	if (s->pool) {
		if (!pool_find(s->pool, &peer->addr, s->scope, peer->lane, &sock) ||
		    sock.owner != peer->owner || sock.ring < SHM_RING_MIN)
			return -ENOENT;
		*ring = sock.ring;
		return 0;
	}
	rc = holder_of(s, &peer->addr, peer->lane, &h);
	*ring = rc ? 0 : h.ring;
	return rc;
}

/*
 * Accepts the last owner of the slot, too: packets of a program that has ended since it sent them
 * are delivered, as are packets that wait in a socket. Packets of earlier owners are not delivered.
 */
bool shm_is_owner(struct shm_port *s, const struct shm_peer *peer, int fd)
{
	struct shm_holder holder;
	struct ucred cred;
	socklen_t len = sizeof(cred);
	uint32_t owner;

	if (s->pool) {
		owner = pool_owner(s->pool, peer->lane);
		return !owner || owner == peer->owner;
	}
	return sys_getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) == 0 &&
	       holder_of(s, &peer->addr, peer->lane, &holder) == 0 &&
	       shm_dir_may_hold(&holder, cred.pid);
}

socklen_t shm_sockaddr(const struct shm_port *s, const struct pkt_addr *addr, unsigned lane,
		       struct sockaddr_un *sa)
{
	char name[SHM_NAME_MAX];

	if (s->pool)
		return pool_ring_name(sa, addr, lane);
	return shm_dir_sockaddr(s->dirfd, shm_dir_name(addr, lane, name), sa);
}
