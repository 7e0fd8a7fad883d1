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
#include <xxhash.h>

#include "base/sys.h"

#define ADDR_DIGITS 32
#define READ_BYTES  4096 /* many lines, none of which is longer than 200 */

/*
 * Prints an address as Linux does: words of 32 bits, each in host byte order (net/ipv4/udp.c,
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

/* The result of a search in the file. */
struct reader_search {
	const struct pkt_addr *addr; /* NULL: all sockets of port 4791 */
	uint64_t *readers;	     /* for that, a bit for each: udp.h */
	uint64_t inode;		     /* inode number of the wanted socket; 0: unknown */
	char text[ADDR_DIGITS + 1];
	unsigned sockets; /* number of sockets that match */
	bool waits;	  /* bytes wait in one of them */
};

/* Reads what print_words() prints. */
static struct pkt_addr read_words(const char *text)
{
	struct pkt_addr a = {{0}};
	unsigned first = strlen(text) == 8 ? 3 : 0;

	for (unsigned i = first; i < 4; i++) {
		unsigned word = 0;

		sscanf(text + 8 * (i - first), "%8x", &word);
		memcpy(a.b + 4 * i, &word, sizeof(word));
	}
	if (first)
		a.b[10] = a.b[11] = 0xff;
	return a;
}

static unsigned bit_of(const struct pkt_addr *a)
{
	return (unsigned)(XXH3_64bits(a->b, sizeof(a->b)) % UDP_READER_BITS);
}

static void set_bit(uint64_t *bits, unsigned i)
{
	bits[i / 64] |= 1ull << i % 64;
}

static bool has_bit(const uint64_t *bits, unsigned i)
{
	return bits[i / 64] >> i % 64 & 1;
}

static void check_line(const char *line, struct reader_search *f)
{
	char addr[ADDR_DIGITS + 1];
	unsigned long long inode;
	struct pkt_addr there;
	unsigned port, waits;

	if (sscanf(line, " %*u: %32[0-9A-F]:%x %*s %*x %*x:%x %*s %*s %*u %*d %llu", addr, &port,
		   &waits, &inode) != 4 ||
	    port != PKT_UDP_PORT)
		return;
	if (!f->addr) {
		there = read_words(addr);
		set_bit(f->readers, bit_of(&there));
		return;
	}
	if (strcmp(addr, f->text) != 0 || (f->inode && f->inode != inode))
		return;
	f->sockets++;
	f->waits |= waits != 0;
}

static void read_file(bool v6, struct reader_search *f)
{
	int fd = sys_open(v6 ? "/proc/net/udp6" : "/proc/net/udp", O_RDONLY | O_CLOEXEC);
	char buf[READ_BYTES + 1];
	size_t have = 0; /* bytes of a line whose end has not been read yet */
	ssize_t n;

	if (fd < 0)
		return;
	if (f->addr)
		print_words(f->text, f->addr);
	while ((n = sys_read(fd, buf + have, READ_BYTES - have)) > 0) {
		char *line = buf, *end;

		have += (size_t)n;
		buf[have] = '\0';
		for (; (end = strchr(line, '\n')); line = end + 1) {
			*end = '\0';
			check_line(line, f);
		}
		have -= (size_t)(line - buf);
		memmove(buf, line, have);
	}
	sys_close(fd);
}

bool udp_reader_is_there(const struct udp_port *u, const struct pkt_addr *addr)
{
	struct reader_search f = {.addr = addr};

	read_file(u->v6, &f);
	return f.sockets > 0;
}

void udp_readers_list(struct udp_port *u)
{
	struct reader_search f = {.readers = u->readers};

	memset(u->readers, 0, sizeof(u->readers));
	read_file(u->v6, &f);
}

bool udp_readers_may_have(const struct udp_port *u, const struct pkt_addr *addr)
{
	static const struct pkt_addr any4 = {{[10] = 0xff, 0xff}}, any6;

	return has_bit(u->readers, bit_of(addr)) ||
	       has_bit(u->readers, bit_of(u->v6 ? &any6 : &any4));
}

/*
 * Finds the state of the reader. The socket of a slot outlives its program, so the pool must
 * confirm that the program lives. Sockets of other users have no known slot, so their reader is
 * known only if there is exactly one socket.
 */
enum port_reader udp_reader(struct port *p, const struct port_path *path)
{
	struct udp_port *u = udp_port(p);
	unsigned slot = ((const struct udp_path *)path)->slot;
	struct reader_search f = {.addr = &path->dst,
				  .inode = pool_inode(u->pool, &path->dst, u->scope, slot)};

	if (f.inode && !pool_alive(u->pool, slot))
		return PORT_READER_UNKNOWN;
	read_file(u->v6, &f);
	if (f.sockets != 1)
		return PORT_READER_UNKNOWN;
	return f.waits ? PORT_READER_STALLED : PORT_READER_READS;
}
