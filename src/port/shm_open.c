/* SPDX-License-Identifier: BSD-2-Clause */
/* Opens and closes endpoints of the shm port (shm.h). */
#include "port/shm.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>

#include "base/spare.h"
#include "base/sys.h"

#define FIRST_ADDRESS	0x0a000001u /* 10.0.0.1 */
#define ADDRESS_CHOICES 254

/* ---- closing ---- */

static void close_descriptors(struct shm_port *s)
{
	shm_publish_end(s);
	shm_leave_all(s);
	shm_close_all(s);
	if (s->claim.lock_fd >= 0)
		shm_unclaim(s->dirfd, &s->claim, s->forked);
	s->claim.lock_fd = -1;

	int *fds[] = {&s->spare_fd, &s->dirfd, &s->base.fd, &s->base.ctl_fd};

	for (unsigned i = 0; i < ARRAY_SIZE(fds); i++) {
		if (*fds[i] >= 0)
			sys_close(*fds[i]);
		*fds[i] = -1;
	}
}

void shm_after_fork(struct port *p)
{
	struct shm_port *s = shm_of(p);

	s->forked = true;
	close_descriptors(s);
}

void shm_close(struct port *p)
{
	struct shm_port *s = shm_of(p);

	if (!s->forked) {
		p->ops->flush(p);
		shm_wake_receivers(s, true);
	}
	close_descriptors(s);
	while (!list_empty(&s->paths)) {
		struct shm_path *path = container_of(s->paths.next, struct shm_path, node);

		list_del(&path->node);
		free(path->fanout);
		free(path);
	}
	free(s->staged);
	free(s->scratch);
	free(s);
}

/* ---- opening ---- */

static struct pkt_addr candidate(unsigned i)
{
	struct pkt_addr a = {.b = {[10] = 0xff, [11] = 0xff}};
	uint32_t v = FIRST_ADDRESS + i;

	for (int k = 0; k < 4; k++)
		a.b[12 + k] = (uint8_t)(v >> (24 - 8 * k));
	return a;
}

/* Returns true for an address that one endpoint may have: unicast and not unspecified. */
static bool addr_usable(const struct pkt_addr *a)
{
	static const struct pkt_addr none;

	if (pkt_addr_is_v4(a))
		return a->b[12] != 0 && a->b[12] < 224;
	return !pkt_addr_eq(a, &none) && !pkt_addr_is_group(a);
}

/* Returns advice if a limit of the machine is the cause of `rc`; otherwise an empty string. */
static const char *remedy(int rc)
{
	switch (-rc) {
	case ENOSPC:
	case EDQUOT:
		return " in the folder of the shm endpoints: free space there, or set ROOST_SHM_DIR to another folder "
		       "(see roost doctor)";
	case EMFILE:
		return ": raise the limit of open files (ulimit -n)";
	default:
		return "";
	}
}

static int claim_given(struct shm_port *s, const struct pkt_addr *addr, char *err, size_t errlen)
{
	char text[46];
	pid_t holder;
	int rc = shm_claim(s->dirfd, addr, s->base.lane, s->base.lanes, s->ring_size, &s->claim,
			   &holder);

	pkt_addr_print(addr, text, sizeof(text));
	if (rc == -EADDRINUSE)
		snprintf(
			err, errlen,
			"shm: address %s is taken by process %d: choose another, or write only shm for a free address",
			text, (int)holder);
	else if (rc == -EEXIST)
		snprintf(
			err, errlen,
			"shm: a file that is no socket has the name of %s in the folder of the shm endpoints: "
			"remove it, or choose another address",
			text);
	else if (rc)
		snprintf(err, errlen, "shm: can't take address %s: %s%s", text, strerror(-rc),
			 remedy(rc));
	else
		s->base.addr = *addr;
	return rc;
}

void shm_first_address(struct pkt_addr *out)
{
	*out = candidate(0);
}

static int claim_any(struct shm_port *s, char *err, size_t errlen)
{
	pid_t holder;

	for (unsigned i = 0; i < ADDRESS_CHOICES; i++) {
		struct pkt_addr a = candidate(i);
		int rc = shm_claim(s->dirfd, &a, s->base.lane, s->base.lanes, s->ring_size,
				   &s->claim, &holder);

		if (rc == 0) {
			s->base.addr = a;
			return 0;
		}
		if (rc != -EADDRINUSE && rc != -EEXIST) {
			snprintf(err, errlen, "shm: can't take an address: %s%s", strerror(-rc),
				 remedy(rc));
			return rc;
		}
	}
	snprintf(
		err, errlen,
		"shm: all of 10.0.0.1 to 10.0.0.254 are taken: choose an address, as in shm:10.1.0.1");
	return -EADDRINUSE;
}

static int open_descriptors(struct shm_port *s)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.ptr = &s->kick};
	int rc;

	s->base.fd = sys_epoll_create1(EPOLL_CLOEXEC);
	s->base.ctl_fd = sys_epoll_create1(EPOLL_CLOEXEC);
	s->kick = (struct shm_end){SHM_END_KICK, sys_eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
	s->spare_fd = spare_open();
	if (s->base.fd < 0)
		return s->base.fd;
	if (s->base.ctl_fd < 0)
		return s->base.ctl_fd;
	if (s->kick.fd < 0)
		return s->kick.fd;
	rc = sys_epoll_ctl(s->base.fd, EPOLL_CTL_ADD, s->kick.fd, &ev);
	return rc ? rc : shm_listen(s);
}

bool shm_ring_ok(const struct port_spec *spec)
{
	return !spec->ring ||
	       (is_pow2(spec->ring) && spec->ring >= SHM_RING_MIN && spec->ring <= SHM_RING_MAX);
}

static bool spec_ok(const struct port_spec *spec, unsigned lane, unsigned lanes, char *err,
		    size_t errlen)
{
	if (!shm_ring_ok(spec)) {
		snprintf(err, errlen, "shm: ring= is a power of two from 64K to 64M");
		return false;
	}
	if (spec->has_address && !addr_usable(&spec->addr)) {
		snprintf(err, errlen,
			 "shm: this is no address of one endpoint: choose one, as in shm:10.0.0.1");
		return false;
	}
	if (lanes < 1 || lanes > PORT_MAX_LANES || lane >= lanes ||
	    (lane > 0 && !spec->has_address)) {
		snprintf(err, errlen, "shm: no lane %u of %u", lane, lanes);
		return false;
	}
	return true;
}

/*
 * Makes an endpoint without an address and without descriptors. Returns NULL if there is no memory.
 */
static struct shm_port *make(const struct port_spec *spec, unsigned lane, unsigned lanes)
{
	struct shm_port *s = shm_alloc(sizeof(*s));

	if (!s)
		return NULL;
	s->base = (struct port){
		.ops = &shm_ops,
		.mtu = port_mtu_fit(PKT_MAX_LEN, spec->mtu),
		.window = spec->window,
		.fd = -1,
		.ctl_fd = -1,
		.medium = 1, /* all endpoints of the folder */
		.lane = (uint8_t)lane,
		.lanes = (uint8_t)lanes,
		.lag = 1,
		.paths_block = true,
	};
	s->dirfd = s->listen.fd = s->kick.fd = s->spare_fd = s->claim.lock_fd = -1;
	s->ring_size = spec->ring ? spec->ring : SHM_RING_DEFAULT;
	list_init(&s->tx);
	list_init(&s->paths);
	list_init(&s->groups);
	s->scratch = shm_alloc(PKT_MAX_LEN);
	return s;
}

struct port *shm_open_port(const struct port_spec *spec, unsigned lane, unsigned lanes, char *err,
			   size_t errlen)
{
	struct shm_port *s;
	int rc;

	if (!spec_ok(spec, lane, lanes, err, errlen)) {
		errno = EINVAL;
		return NULL;
	}
	s = make(spec, lane, lanes);
	if (!s) {
		snprintf(err, errlen, "shm: out of memory");
		errno = ENOMEM;
		return NULL;
	}
	rc = s->dirfd = shm_dir_open(err, errlen);
	if (rc < 0)
		goto fail;
	rc = spec->has_address ? claim_given(s, &spec->addr, err, errlen)
			       : claim_any(s, err, errlen);
	if (rc)
		goto fail;
	rc = s->scratch ? open_descriptors(s) : -ENOMEM;
	if (rc == 0)
		return &s->base;
	snprintf(err, errlen, "shm: can't open the endpoint: %s%s", strerror(-rc), remedy(rc));
fail:
	shm_close(&s->base);
	errno = -rc;
	return NULL;
}

struct port *shm_open_in_pool(const struct port_spec *spec, struct pool *pool,
			      const struct pkt_addr *addr, uint32_t scope, unsigned slot, char *err,
			      size_t errlen)
{
	struct shm_port *s = make(spec, 0, 1);
	int rc;

	if (!s) {
		snprintf(err, errlen, "%s", strerror(ENOMEM));
		errno = ENOMEM;
		return NULL;
	}
	s->pool = pool;
	s->scope = scope;
	s->slot = (uint8_t)slot;
	s->owner = pool_owner(pool, slot);
	s->base.addr = *addr;
	rc = s->scratch ? open_descriptors(s) : -ENOMEM;
	rc = rc ? rc : shm_try_ring();
	if (rc == 0) {
		shm_publish_ring(s);
		return &s->base;
	}
	snprintf(err, errlen, "%s%s", strerror(-rc), remedy(rc));
	shm_close(&s->base);
	errno = -rc;
	return NULL;
}
