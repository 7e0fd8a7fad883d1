/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What an attacker has: an Ethernet device of its own, from which frames leave with any address in
 * them, and, if it sits where it sees others' packets, a look at theirs. It is neither of the two
 * ends, left and right, whose addresses are given in pairs.
 */
#ifndef ROOST_TESTS_ATTACKS_WIRE_H
#define ROOST_TESTS_ATTACKS_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/rng.h"
#include "packet/icrc.h"

#define WIRE_DEVICE "v0" /* everybody's */
#define WIRE_PAIRS  8
#define WIRE_FRAME  9200
#define WIRE_BATCH  64

enum side { LEFT, RIGHT };

struct wire {
	int out, seen; /* sockets; seen: -1, it sees nothing */
	struct rng rng;
	unsigned pairs;
	struct pkt_addr addr[WIRE_PAIRS][2];
	struct pkt_addr own; /* the attacker's, of the same family */
	bool v4;
	unsigned waiting; /* frames of the batch */
	uint64_t sent;
};

/*
 * Opens the device here; `see`: the file of a network namespace, where frames are seen, or NULL.
 * Ends the process with a line if it can't.
 */
void wire_open(struct wire *w, const char *see);
/*
 * Room for a frame's IP packet, which goes to the device of that side when wire_put() has its
 * length.
 */
uint8_t *wire_room(struct wire *w);
void wire_put(struct wire *w, enum side to, size_t len);
void wire_flush(struct wire *w);

/*
 * A packet BTH .. ICRC, with the right ICRC unless `sealed` is false, to one of a pair in the
 * other's name, or in that of `from`.
 */
void wire_packet(struct wire *w, unsigned pair, enum side to, const struct pkt_addr *from,
		 uint8_t *bth, uint32_t len, bool sealed);
/* The same by addresses. Nothing is sent if neither side has `dst`. */
void wire_packet_to(struct wire *w, const struct pkt_addr *src, const struct pkt_addr *dst,
		    uint8_t *bth, uint32_t len, bool sealed);
/*
 * An ICMP error to `dst` in the name of `from`: `rest` is the word behind the checksum, `quoted` an
 * IP packet's beginning.
 */
void wire_icmp(struct wire *w, const struct pkt_addr *from, const struct pkt_addr *dst,
	       uint8_t type, uint8_t code, uint32_t rest, const uint8_t *quoted, size_t len);

/* Which side has an address; -1: neither. */
int wire_side(const struct wire *w, const struct pkt_addr *a);
/* The IP packet of a RoCE frame that was seen, waiting at most `ms` for one: its length, or 0. */
size_t wire_see(struct wire *w, uint8_t *ip, size_t cap, int ms);

#endif
