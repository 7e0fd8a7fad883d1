/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The pool as an observer sees it. The observer need not be a member, takes no slot, and changes
 * nothing: it binds no name, and asks the members for their memory as a new member does.
 */
#include "pool/core.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sock_diag.h>
#include <linux/unix_diag.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/netlink.h"
#include "base/sys.h"

#define VISITORS 16

int pool_receive_visits(const struct pool *p)
{
	struct sockaddr_un name;
	socklen_t len = pool_name(&name, NAME_STAT, p->slot[0]);
	int fd = sys_socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), rc;

	if (fd < 0)
		return fd;
	rc = sys_bind(fd, (struct sockaddr *)&name, len);
	rc = rc ? rc : sys_listen(fd, VISITORS);
	if (rc == 0)
		return pool_high(fd);
	sys_close(fd);
	return rc;
}

/* Returns the process id of the other end as this process sees it; 0: unknown. */
static pid_t peer_pid(int fd)
{
	struct ucred cred = {0};
	socklen_t len = sizeof(cred);

	return sys_getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) ? 0 : cred.pid;
}

int pool_visit(unsigned slot, pid_t *pid)
{
	int fd = pool_connect(NAME_STAT, SOCK_STREAM, slot), rc;

	*pid = 0;
	if (fd < 0)
		return fd;
	rc = sys_fcntl(fd, F_SETFL, 0);
	if (!rc) {
		*pid = peer_pid(fd);
		return fd;
	}
	sys_close(fd);
	return rc;
}

const char *pool_addr_print(const struct pkt_addr *addr, uint32_t scope, char buf[POOL_ADDR_TEXT])
{
	char name[IF_NAMESIZE];
	size_t len;

	_Static_assert(POOL_ADDR_TEXT >= INET6_ADDRSTRLEN + 1 + IF_NAMESIZE, "all texts fit");
	pkt_addr_print(addr, buf, POOL_ADDR_TEXT);
	if (!scope || !pkt_addr_is_link_local(addr))
		return buf;
	len = strlen(buf);
	if (if_indextoname(scope, name))
		snprintf(buf + len, POOL_ADDR_TEXT - len, "%%%s", name);
	else
		snprintf(buf + len, POOL_ADDR_TEXT - len, "%%%u", scope);
	return buf;
}

/* ---- slots ---- */

static void read_record(struct slot_record *record, unsigned slot, struct pool_seen *s)
{
	uint32_t first = atomic_load_explicit(&record->first, memory_order_relaxed);

	s->known = true;
	s->first = first < POOL_SLOTS ? (uint8_t)first : (uint8_t)slot;
	for (unsigned i = 0; i < SLOT_SOCKETS; i++) {
		struct slot_socket *sock = &record->socket[i];
		uint64_t word[2];

		if (!atomic_load_explicit(&sock->used, memory_order_acquire))
			continue;
		word[0] = atomic_load_explicit(&sock->addr[0], memory_order_relaxed);
		word[1] = atomic_load_explicit(&sock->addr[1], memory_order_relaxed);
		s->ring[s->num_addrs] =
			atomic_load_explicit(&sock->ring, memory_order_relaxed) != 0;
		s->scope[s->num_addrs] = atomic_load_explicit(&sock->scope, memory_order_relaxed);
		memcpy(s->addr[s->num_addrs++].b, word, sizeof(word));
	}
}

static void read_state(int fd, struct pool_seen seen[POOL_SLOTS])
{
	struct pool_state *state = state_map(fd);

	for (unsigned i = 0; state && i < POOL_SLOTS; i++) {
		if (seen[i].taken &&
		    atomic_load_explicit(&state->record[i].owned, memory_order_acquire))
			read_record(&state->record[i], i, &seen[i]);
	}
	if (state)
		state_unmap(state);
}

unsigned pool_look(struct pool_seen seen[POOL_SLOTS])
{
	struct ask ask = {.magic = STATE_MAGIC, .what = ASK_STATE};
	struct pool nobody = {.listener = -1};
	unsigned silent = 0;
	bool hung_up;
	int state_fd;

	_Static_assert(POOL_SEEN_ADDRS == SLOT_SOCKETS, "all addresses of a slot");
	for (unsigned i = 0; i < POOL_SLOTS; i++)
		seen[i] = (struct pool_seen){.taken = pool_alive(&nobody, i), .first = (uint8_t)i};
	if (pool_ask(&nobody, &ask, &state_fd, 1, &silent, &hung_up) > 0) {
		read_state(state_fd, seen);
		sys_close(state_fd);
	}
	for (unsigned i = 0; i < POOL_SLOTS; i++) {
		int fd = seen[i].taken && seen[i].first == i
				 ? pool_connect(NAME_MEMBER, SOCK_SEQPACKET, i)
				 : -1;

		if (fd < 0)
			continue;
		seen[i].pid = peer_pid(fd);
		sys_close(fd);
	}
	return silent;
}

int pool_can_steer(void)
{
	return addr_can_steer();
}

/* ---- names that another user holds ---- */

/* Returns true if a name, as Linux reports it, belongs to the pool of this user. */
static bool is_ours(const char *name, size_t len)
{
	for (unsigned kind = 0; kind < NAME_KINDS; kind++) {
		struct sockaddr_un n;
		/* the name of slot 0 without its last character, the digit of the slot */
		size_t want = pool_name(&n, (enum name_kind)kind, 0) -
			      offsetof(struct sockaddr_un, sun_path) - 1;

		if (len > want && memcmp(name, n.sun_path, want) == 0)
			return true;
	}
	return false;
}

struct foreign_names {
	int names;
	uid_t uid; /* of one of them */
};

/* Counts a socket of another user with a name of this user's pool. */
static int count_foreign_name(void *ctx, const struct nlmsghdr *h)
{
	static const size_t skip = sizeof(struct unix_diag_msg);
	struct foreign_names *s = ctx;
	const char *name;
	const void *uid;
	uint32_t owner;
	size_t len;

	uid = netlink_attr(h, skip, UNIX_DIAG_UID, sizeof(owner), &len);
	name = netlink_attr(h, skip, UNIX_DIAG_NAME, 0, &len);
	if (!uid || !name || !is_ours(name, len))
		return 0;
	memcpy(&owner, uid, sizeof(owner));
	if (owner == geteuid())
		return 0;
	s->uid = owner;
	s->names++;
	return 0;
}

int pool_strangers(uid_t *uid)
{
	struct {
		struct nlmsghdr head;
		struct unix_diag_req req;
	} ask = {.head = {.nlmsg_len = sizeof(ask),
			  .nlmsg_type = SOCK_DIAG_BY_FAMILY,
			  .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP},
		 .req = {.sdiag_family = AF_UNIX,
			 .udiag_states = ~0u,
			 .udiag_show = UDIAG_SHOW_NAME | UDIAG_SHOW_UID}};
	struct foreign_names s = {0};
	int rc = netlink_list(NETLINK_SOCK_DIAG, &ask.head, count_foreign_name, &s);

	if (rc)
		return rc;
	if (s.names)
		*uid = s.uid;
	return s.names;
}
