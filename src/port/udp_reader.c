/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Who reads, where the other end is on this machine and in our network namespace: the kernel shows every socket with the bytes that wait in
 * it (proc(5), /proc/net/udp). A file to read through: nothing for every day.
 */
#include "port/udp.h"

#include <stdio.h>
#include <string.h>

#define ADDR_DIGITS 32

/* As the kernel prints it: words of 32 bits, each in our byte order (net/ipv4/udp.c, net/ipv6/datagram.c). */
static void print_words(char out[ADDR_DIGITS + 1], const struct pkt_addr *a)
{
	unsigned first = pkt_addr_is_v4(a) ? 3 : 0;

	for (unsigned i = first; i < 4; i++) {
		uint32_t word;

		memcpy(&word, a->b + 4 * i, sizeof(word));
		snprintf(out + 8 * (i - first), 9, "%08X", word);
	}
}

enum port_reader udp_reader(struct port *p, const struct port_path *path)
{
	enum port_reader found = PORT_READER_UNKNOWN;
	char wanted[ADDR_DIGITS + 1], addr[ADDR_DIGITS + 1], line[256];
	FILE *f = fopen(udp_port(p)->v6 ? "/proc/net/udp6" : "/proc/net/udp", "re");

	if (!f)
		return found;
	print_words(wanted, &path->dst);
	while (found != PORT_READER_STANDS && fgets(line, sizeof(line), f)) {
		unsigned port, waits;

		if (sscanf(line, " %*u: %32[0-9A-F]:%x %*s %*x %*x:%x", addr, &port, &waits) == 3 &&
		    port == PKT_UDP_PORT && !strcmp(addr, wanted))
			found = waits ? PORT_READER_STANDS : PORT_READER_READS;
	}
	fclose(f);
	return found;
}
