/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The header of annex A11 before the private data (struct cma_hdr in Linux's cma.c):
 *
 *   0 version, 0 | 1 IP version << 4 | 2 source port | 4 source address, 16 bytes |
 *   20 destination address, 16 bytes
 *
 * An IPv4 address is in the last four bytes of its field; the others are 0.
 */
#include "cm/mad.h"

#include <errno.h>
#include <string.h>

static void get_addr(const uint8_t *p, bool v4, struct pkt_addr *a)
{
	memcpy(a->b, p, sizeof(a->b));
	if (v4) {
		memset(a->b, 0, 10);
		a->b[10] = a->b[11] = 0xff;
	}
}

int cm_ip_parse(const uint8_t data[CM_IP_LEN], struct cm_ip *ip)
{
	unsigned version = data[1] >> 4;

	if (data[0] != 0 || (version != 4 && version != 6))
		return -EPROTO;
	ip->v4 = version == 4;
	ip->sport = (uint16_t)(data[2] << 8 | data[3]);
	get_addr(data + 4, ip->v4, &ip->src);
	get_addr(data + 20, ip->v4, &ip->dst);
	return 0;
}

static void put_addr(uint8_t *p, bool v4, const struct pkt_addr *a)
{
	memcpy(p, a->b, sizeof(a->b));
	if (v4)
		memset(p, 0, 12);
}

void cm_ip_build(const struct cm_ip *ip, uint8_t data[CM_IP_LEN])
{
	data[0] = 0;
	data[1] = ip->v4 ? 0x40 : 0x60;
	data[2] = (uint8_t)(ip->sport >> 8);
	data[3] = (uint8_t)ip->sport;
	put_addr(data + 4, ip->v4, &ip->src);
	put_addr(data + 20, ip->v4, &ip->dst);
}
