/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Leftovers are datagrams that came to the socket of a program between its death and the change of
 * the address's BPF program. Without this code, the sender of a connection request among them would
 * have to repeat it, which takes seconds. All survivors look for leftovers, because any of them may
 * be stopped; Linux gives each datagram to one of them.
 */
#include "pool/core.h"

#include <errno.h>
#include <netinet/in.h>
#include <string.h>

#include "base/sys.h"

static bool has_datagrams(int sock)
{
	uint8_t byte;

	return sys_recvfrom(sock, &byte, sizeof(byte), MSG_PEEK | MSG_DONTWAIT, NULL, NULL) >= 0;
}

/* Sends an empty mail (port/udp_mail.c) to a port of this process. Lock held. */
static void wake_port(struct pool_addr *a)
{
	unsigned slot = (unsigned)__builtin_ctzll(a->in_use);
	struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_scope_id = a->scope};
	struct sockaddr_in v4 = {.sin_family = AF_INET};
	bool is_v4 = pkt_addr_is_v4(&a->addr);
	uint16_t sport;
	struct pool_mailbox *box = pool_mailbox(a->pool, &a->addr, a->scope, slot, &sport);

	if (!box)
		return; /* the pool does not know the port yet; the port looks before it sleeps */
	v4.sin_port = v6.sin6_port = htons(sport);
	memcpy(&v4.sin_addr, a->addr.b + 12, 4);
	memcpy(&v6.sin6_addr, a->addr.b, 16);
	sys_sendto(a->sock[slot], NULL, 0, MSG_DONTWAIT | MSG_NOSIGNAL,
		   is_v4 ? (struct sockaddr *)&v4 : (struct sockaddr *)&v6,
		   is_v4 ? sizeof(v4) : sizeof(v6));
	atomic_fetch_add_explicit(&box->mails, 1, memory_order_release);
}

static void find_leftovers(struct pool_addr *a)
{
	uint64_t found = 0;

	if (a->alone || !a->in_use)
		return;
	for (unsigned i = 0; i < POOL_SLOTS; i++) {
		if (!(a->in_use >> i & 1) && !pool_owner(a->pool, i) && has_datagrams(a->sock[i]))
			found |= 1ull << i;
	}
	/*
	 * Memory order: the bits are set before the mail is counted (release). A port loads the
	 * count or the bits (acquire); of the ports that clear a bit one finds it set.
	 */
	if (found & ~atomic_fetch_or_explicit(&a->leftovers, found, memory_order_seq_cst))
		wake_port(a);
}

void pool_find_leftovers(struct pool *p)
{
	struct list_head *l;

	pthread_mutex_lock(&p->lock);
	list_for_each (l, &p->addrs)
		find_leftovers(list_entry(l, struct pool_addr, link));
	pthread_mutex_unlock(&p->lock);
}

const _Atomic uint64_t *pool_addr_leftovers(const struct pool_addr *a)
{
	return &a->leftovers;
}

int pool_addr_adopt(struct pool_addr *a, unsigned *slot)
{
	uint64_t mask;

	while ((mask = atomic_load_explicit(&a->leftovers, memory_order_acquire)) != 0) {
		uint64_t bit = mask & -mask;

		/* another port of the address may take the bit at the same time */
		if (!(atomic_fetch_and_explicit(&a->leftovers, ~bit, memory_order_seq_cst) & bit))
			continue;
		*slot = (unsigned)__builtin_ctzll(bit);
		if (!pool_owner(a->pool, *slot))
			return a->sock[*slot];
	}
	return -1;
}
