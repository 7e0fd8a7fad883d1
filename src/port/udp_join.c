/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Packets of different lengths in one datagram. On one machine a datagram costs Linux more
 * than the 4 KiB of a packet in it. UDP_SEGMENT accepts packets of one length only, so WRITEs of 8
 * KiB (packets of 4,128 and 4,112 bytes) would need a datagram for every two packets. Loopback does
 * not segment a datagram of 64 KiB. Between two ports of Roost in one network namespace such a
 * datagram may contain any packets to the same destination:
 *
 *	| head: mark, QP, count, lengths | packet 0 | packet 1 | ...
 *
 * No other receiver gets such a datagram: a port announces in the pool that it accepts such
 * datagrams, and a port that makes a path reads this. The identification for the ICRC of a packet
 * is its place in the datagram, as in a group.
 */
#include "port/udp.h"

#include <string.h>

#include "base/mem.h"

/* the MTU of loopback is 65,536; a smaller MTU would fragment the datagram */
#define MIN_DEVICE_MTU 65535u

static const uint8_t mark[4] = {0xff, 'R', 'o', 1};

bool udp_join_path(const struct udp_port *u, const struct udp_path *path)
{
	struct pool_socket peer;

	return u->joins && path->mtu >= MIN_DEVICE_MTU && !path->gsi &&
	       !pkt_addr_is_group(&path->path.dst) &&
	       pool_find(u->pool, &path->path.dst, u->scope, path->slot, &peer) && peer.joins;
}

_Static_assert(sizeof(struct udp_join_head) % UDP_JOIN_ALIGN == 0,
	       "a full head needs no zeroes behind it");

static uint32_t head_bytes(uint16_t count)
{
	return ALIGN_UP((uint32_t)(offsetof(struct udp_join_head, len) + 2u * count),
			UDP_JOIN_ALIGN);
}

uint32_t udp_join_close(struct udp_join_head *h, uint16_t count, const uint8_t *bth)
{
	uint32_t bytes = head_bytes(count);
	uint32_t used = (uint32_t)(offsetof(struct udp_join_head, len) + 2u * count);

	memcpy(h->mark, mark, sizeof(mark));
	h->count = htons(count);
	h->zero = 0;
	memcpy(h->dqpn, ((const struct pkt_bth *)bth)->dqpn, sizeof(h->dqpn));
	memset((uint8_t *)h + used, 0, bytes - used);
	return bytes;
}

const struct udp_join_head *udp_join_open(const uint8_t *data, uint32_t len, uint32_t *skip)
{
	const struct udp_join_head *h = (const struct udp_join_head *)data;
	uint32_t sum, count;

	if (len < UDP_JOIN_ALIGN || memcmp(h->mark, mark, sizeof(mark)))
		return NULL;
	count = ntohs(h->count);
	if (!count || count > UDP_JOIN_MAX || head_bytes((uint16_t)count) > len)
		return NULL;
	sum = head_bytes((uint16_t)count);
	for (uint32_t i = 0; i < count; i++) {
		if (!h->len[i])
			return NULL;
		sum += ntohs(h->len[i]);
	}
	if (sum != len)
		return NULL;
	*skip = head_bytes((uint16_t)count);
	return h;
}
