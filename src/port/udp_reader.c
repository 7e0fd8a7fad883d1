/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Finds the reader of a path if the other end is on this machine and in this network namespace. The
 * kernel lists every socket with the bytes that wait in it (proc(5), /proc/net/udp). It reads a
 * whole file, so it is for rare use only.
 */
#include "port/udp.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/sys.h"

#define ADDR_DIGITS 32
#define READ_BYTES  4096 /* many lines, none of which is longer than 200 */

/*
 * Prints an address as the kernel does: words of 32 bits, each in host byte order (net/ipv4/udp.c,
 * net/ipv6/datagram.c).
 */
static void print_words(char out[ADDR_DIGITS + 1], const struct pkt_addr *a)
{
	unsigned first = pkt_addr_is_v4(a) ? 3 : 0;

	for (unsigned i = first; i < 4; i++) {
		uint32_t word;

		memcpy(&word, a->b + 4 * i, sizeof(word));
		snprintf(out + 8 * (i - first), 9, "%08X", word);
	}
}

/* Returns what a line says of that address; `found` if the line is of another one. */
static enum port_reader look(const char *line, const char *wanted, enum port_reader found)
{
	char addr[ADDR_DIGITS + 1];
	unsigned port, waits;

	if (found == PORT_READER_STALLED ||
	    sscanf(line, " %*u: %32[0-9A-F]:%x %*s %*x %*x:%x", addr, &port, &waits) != 3 ||
	    port != PKT_UDP_PORT || strcmp(addr, wanted) != 0)
		return found;
	return waits ? PORT_READER_STALLED : PORT_READER_READS;
}

enum port_reader udp_reader(struct port *p, const struct port_path *path)
{
	int fd = sys_open(udp_port(p)->v6 ? "/proc/net/udp6" : "/proc/net/udp",
			  O_RDONLY | O_CLOEXEC);
	enum port_reader found = PORT_READER_UNKNOWN;
	char wanted[ADDR_DIGITS + 1], buf[READ_BYTES + 1];
	size_t have = 0; /* bytes of a line whose end has not been read yet */
	ssize_t n;

	if (fd < 0)
		return found;
	print_words(wanted, &path->dst);
	while (found != PORT_READER_STALLED &&
	       (n = sys_read(fd, buf + have, READ_BYTES - have)) > 0) {
		char *line = buf, *end;

		have += (size_t)n;
		buf[have] = '\0';
		for (; (end = strchr(line, '\n')); line = end + 1) {
			*end = '\0';
			found = look(line, wanted, found);
		}
		have -= (size_t)(line - buf);
		memmove(buf, line, have);
	}
	sys_close(fd);
	return found;
}
