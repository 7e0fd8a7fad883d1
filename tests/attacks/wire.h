/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The attacker's access to the network: an Ethernet device of its own, which sends frames with any
 * address, and optionally the packets of another network namespace. The two ends under attack are
 * left and right; they have pairs of addresses.
 */
#ifndef ROOST_TESTS_ATTACKS_WIRE_H
#define ROOST_TESTS_ATTACKS_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/rng.h"
#include "packet/icrc.h"

#define WIRE_DEVICE "v0" /* in each namespace */
#define WIRE_PAIRS  8
#define WIRE_FRAME  9200
#define WIRE_BATCH  64

enum side { LEFT, RIGHT };

struct wire {
	int out, seen; /* sockets; seen -1: no view of the packets */
	struct rng rng;
	unsigned pairs;
	struct pkt_addr addr[WIRE_PAIRS][2];
	struct pkt_addr own; /* the attacker's, of the same family */
	bool v4;
	unsigned waiting; /* frames of the batch */
	uint64_t sent;
};

/*
 * Opens the device of this namespace. `see` is the file of the network namespace whose frames are
 * seen, or NULL. Prints a line and ends the process on errors.
 */
void wire_open(struct wire *w, const char *see);
/*
 * Returns the buffer for the IP packet of the next frame. wire_put() adds a frame of `len` bytes to
 * the batch, and wire_flush() sends the batch.
 */
uint8_t *wire_space(struct wire *w);
void wire_put(struct wire *w, enum side to, size_t len);
void wire_flush(struct wire *w);

/*
 * Sends a packet (BTH to ICRC) to one end of a pair, in the name of the other end or of `from`.
 * With `sealed` the ICRC is computed.
 */
void wire_packet(struct wire *w, unsigned pair, enum side to, const struct pkt_addr *from,
		 uint8_t *bth, uint32_t len, bool sealed);
/* The same, given by addresses. Nothing is sent if neither side has `dst`. */
void wire_packet_to(struct wire *w, const struct pkt_addr *src, const struct pkt_addr *dst,
		    uint8_t *bth, uint32_t len, bool sealed);
/*
 * Sends an ICMP error to `dst` in the name of `from`. `rest` is the word behind the checksum, and
 * `quoted` the beginning of an IP packet.
 */
void wire_icmp(struct wire *w, const struct pkt_addr *from, const struct pkt_addr *dst,
	       uint8_t type, uint8_t code, uint32_t rest, const uint8_t *quoted, size_t len);

/* Returns the side that has the address; -1: neither. */
int wire_side(const struct wire *w, const struct pkt_addr *a);
/*
 * Waits at most `ms` for a RoCE frame of the ends and stores its IP packet. Returns its length; 0:
 * no frame came.
 */
size_t wire_see(struct wire *w, uint8_t *ip, size_t cap, int ms);

#endif
