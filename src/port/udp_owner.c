/* SPDX-License-Identifier: BSD-2-Clause */
/* Finds the user that has a socket with an address, for a message. */
#include <stdio.h>
#include <string.h>

#include "packet/headers.h"
#include "port/udp.h"

/* Formats an address as in /proc/net/udp and udp6: words of 32 bits in memory order. */
static void proc_address(const struct pkt_addr *a, char *buf, size_t n)
{
	uint32_t w[4];

	memcpy(w, a->b, sizeof(w));
	if (pkt_addr_is_v4(a))
		snprintf(buf, n, "%08X", w[3]);
	else
		snprintf(buf, n, "%08X%08X%08X%08X", w[0], w[1], w[2], w[3]);
}

bool udp_owner(const struct pkt_addr *addr, struct udp_holder *h)
{
	char line[512], local[40], address[40];
	FILE *f = fopen(pkt_addr_is_v4(addr) ? "/proc/net/udp" : "/proc/net/udp6", "re");
	bool found = false;
	unsigned port;

	proc_address(addr, address, sizeof(address));
	while (f && !found && fgets(line, sizeof(line), f)) {
		/* a socket of all addresses has zeros here */
		found = sscanf(line, " %*[^:]: %39[0-9A-F]:%x %*s %*s %*s %*s %*s %u %*s %lu",
			       local, &port, &h->uid, &h->inode) == 4 &&
			port == PKT_UDP_PORT &&
			(strcmp(local, address) == 0 || !local[strspn(local, "0")]);
	}
	if (f)
		fclose(f);
	return found;
}
