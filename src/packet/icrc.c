/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Computes the invariant CRC by its linearity.
 *
 *     ones | IP header, id at 4..5 | UDP header | BTH, reserved byte at 4 | ... payload, pad | ICRC
 *      8   |       20 or 40        |     8      ^
 *                                               state: base ^ lengths ^ id ^ reserved byte
 *
 * A difference in a message byte is a difference in the CRC state at that byte. The difference
 * moves with the state: forward when zero bytes are appended, and back when they are removed. Both
 * operations are linear. For each variable part of the pseudo header (two length fields, the
 * identification) a table therefore has the contribution of each value to the state after the UDP
 * header. The reserved byte of the BTH, which counts as ones with any value, is corrected in the
 * state before the BTH.
 *
 * Removing n zero bytes is a multiplication by x^-8n modulo the polynomial of the CRC. It is used
 * to check a packet with an unknown identification. The difference between computed and received
 * ICRC, moved back to the identification, must be a difference in those 16 bits, or in them and DF,
 * and in no other bits.
 */
#include <assert.h>
#include <endian.h>

#include "packet/crc32.h"
#include "packet/headers.h"
#include "packet/icrc.h"

#define POLY	 0xedb88320u /* CRC-32, bit 31 is x^0 */
#define ONE	 0x80000000u
#define ICRC_LEN 4
#define MIN_LEN	 ((int)sizeof(struct pkt_bth) + ICRC_LEN)
/* The zero bytes between the start of the identification and the end of the UDP header. */
#define ID_TO_BTH (20 - 4 + 8)

_Static_assert(ICRC_MAX_LEN == PKT_MAX_LEN, "lengths that the tables cover");

/*
 * The tables, filled once before main(). They have 21 KiB, of which one packet length uses a few
 * cache lines.
 */
static struct {
	/* contribution of the IPv4 and UDP length fields, by length / 4 */
	uint32_t len4[ICRC_MAX_LEN / 4 + 1];
	uint32_t len6[ICRC_MAX_LEN / 4 + 1];
	uint32_t id_hi[256], id_lo[256];
	uint32_t resv[256]; /* difference that turns a reserved byte of this value into ones */
	uint32_t x4[16];    /* i * x^4 */
	/* x^-8n for the n bytes from the identification to the ICRC, by length / 4 */
	uint32_t back[ICRC_MAX_LEN / 4 + 1];
} tab;

static uint32_t times_x(uint32_t a)
{
	return a >> 1 ^ (POLY & -(a & 1));
}

/*
 * Returns a * b modulo the polynomial. It takes four bits of `a` at a time, the highest powers of x
 * first, which are the low bits.
 */
static uint32_t mul(uint32_t a, uint32_t b)
{
	uint32_t part[16] = {0}, r = 0;

	part[8] = b;
	part[4] = times_x(part[8]);
	part[2] = times_x(part[4]);
	part[1] = times_x(part[2]);
	for (int i = 1; i < 16; i++)
		part[i] = part[i & -i] ^ part[i & (i - 1)];
	for (int n = 0; n < 32; n += 4)
		r = r >> 4 ^ tab.x4[r & 15] ^ part[a >> n & 15];
	return r;
}

/* Moves a difference of the state forward by n zero bytes (n <= 64). */
static uint32_t forward(uint32_t d, size_t n)
{
	static const uint8_t zeros[64];

	return crc32_update(d, zeros, n) ^ crc32_update(0, zeros, n);
}

/*
 * Moves a difference back: the inverse of forward(), bit by bit. Bit 31 shows whether the
 * polynomial was added.
 */
static uint32_t backward(uint32_t d, size_t n)
{
	for (size_t i = 0; i < 8 * n; i++)
		d = d & ONE ? (d ^ POLY) << 1 | 1 : d << 1;
	return d;
}

/*
 * Adds to out[i] the contribution of a 16-bit big-endian field that has the value 4 i + plus, and
 * that `behind` bytes separate from the BTH.
 */
static void add_length_field(uint32_t *out, unsigned plus, size_t behind)
{
	uint32_t bit[16];

	for (int i = 0; i < 16; i++)
		bit[i] = forward(i < 8 ? 1u << (i + 8) : 1u << (i - 8), behind + 2);
	for (unsigned i = 0; i <= ICRC_MAX_LEN / 4; i++) {
		for (unsigned v = 4 * i + plus, b = 0; v; v >>= 1, b++)
			out[i] ^= bit[b] & -(v & 1);
	}
}

/* Fills a table of 256 values from the values of the eight single bits. */
static void fill_linear(uint32_t out[256], unsigned shift, size_t behind)
{
	for (unsigned i = 1; i < 256; i++) {
		unsigned low = i & -i;

		out[i] = low == i ? forward(i << shift, behind) : out[i ^ low] ^ out[low];
	}
}

/* Runs before other constructors, so that these can compute ICRCs. */
__attribute__((constructor(101))) static void icrc_init(void)
{
	uint32_t step;

	add_length_field(tab.len4, 20 + 8, 20 - 4 + 8);
	add_length_field(tab.len4, 8, 2);
	add_length_field(tab.len6, 8, 40 - 6 + 8);
	add_length_field(tab.len6, 8, 2);

	fill_linear(tab.id_hi, 0, ID_TO_BTH);
	fill_linear(tab.id_lo, 8, ID_TO_BTH);

	for (unsigned i = 0; i < 256; i++)
		tab.resv[i] = backward(i ^ 0xff, 4);

	for (unsigned i = 1; i < 16; i++)
		tab.x4[i] = times_x(times_x(times_x(times_x(i))));
	step = backward(ONE, 4);
	tab.back[1] = backward(ONE, ID_TO_BTH);
	for (unsigned i = 2; i <= ICRC_MAX_LEN / 4; i++)
		tab.back[i] = mul(tab.back[i - 1], step);
}

/*
 * Returns the CRC state after eight bytes of ones and the headers at ip (as in a frame), with the
 * mutable fields as ones.
 */
static uint32_t pseudo_header(const uint8_t *ip)
{
	uint8_t h[8 + 40 + 8];
	size_t ip_len = ip[0] >> 4 == 4 ? 20 : 40;
	uint8_t *p = h + 8, *udp = p + ip_len;

	memset(h, 0xff, 8);
	memcpy(p, ip, ip_len + 8);
	if (ip_len == 20) {
		p[1] = 0xff;		 /* type of service */
		p[8] = 0xff;		 /* time to live */
		memset(p + 10, 0xff, 2); /* header checksum */
	} else {
		p[0] |= 0x0f; /* traffic class and flow label */
		memset(p + 1, 0xff, 3);
		p[7] = 0xff; /* hop limit */
	}
	memset(udp + 6, 0xff, 2); /* UDP checksum */
	return crc32_update(0, h, (size_t)(udp + 8 - h));
}

void icrc_flow_init(struct icrc_flow *f, const struct pkt_addr *src, const struct pkt_addr *dst,
		    uint16_t sport, uint16_t dport)
{
	uint8_t frame[48] = {0}, *udp;

	f->src = *src;
	f->dst = *dst;
	f->sport = sport;
	f->dport = dport;
	f->v4 = pkt_addr_is_v4(src) && pkt_addr_is_v4(dst);
	/* Lengths and identification are 0 here, because the tables add them. */
	if (f->v4) {
		frame[0] = 0x45;
		frame[6] = 0x40; /* don't fragment */
		frame[9] = 17;	 /* UDP */
		memcpy(frame + 12, src->b + 12, 4);
		memcpy(frame + 16, dst->b + 12, 4);
		udp = frame + 20;
	} else {
		frame[0] = 0x60;
		frame[6] = 17;
		memcpy(frame + 8, src->b, 16);
		memcpy(frame + 24, dst->b, 16);
		udp = frame + 40;
	}
	udp[0] = (uint8_t)(sport >> 8);
	udp[1] = (uint8_t)sport;
	udp[2] = (uint8_t)(dport >> 8);
	udp[3] = (uint8_t)dport;
	f->base = pseudo_header(frame);
}

static inline bool length_ok(size_t len)
{
	return len >= MIN_LEN && len <= ICRC_MAX_LEN && !(len & 3);
}

/* The reserved byte is read once. If it changes meanwhile, only this packet is wrong. */
static inline uint32_t body(uint32_t state, const uint8_t *bth, size_t n)
{
	return crc32_update(state ^ tab.resv[*(const volatile uint8_t *)(bth + 4)], bth, n);
}

uint32_t icrc_begin(const struct icrc_flow *f, uint16_t ip_id, const uint8_t *bth, size_t n,
		    size_t len)
{
	uint32_t state;

	assert(length_ok(len));
	if (f->v4)
		state = f->base ^ tab.len4[len / 4] ^ tab.id_hi[ip_id >> 8] ^
			tab.id_lo[ip_id & 0xff];
	else
		state = f->base ^ tab.len6[len / 4];
	return body(state, bth, n);
}

uint32_t icrc_compute(const struct icrc_flow *f, uint16_t ip_id, const uint8_t *bth, size_t len)
{
	return icrc_begin(f, ip_id, bth, len - ICRC_LEN, len);
}

uint32_t icrc_compute_frame(const uint8_t *ip, const uint8_t *bth, size_t len)
{
	assert(len >= MIN_LEN);
	return body(pseudo_header(ip), bth, len - ICRC_LEN);
}

/*
 * DF in the four bytes from the identification on. In a difference, byte k is in the bits 8k to 8k
 * + 7.
 */
#define DF_BIT 0x40u

/*
 * `wrong` is the difference between the computed and the received ICRC. Shifted back to the
 * identification, it is the difference in the four bytes from there on. The last two are flags and
 * offset. In a packet that is no fragment they are 0 except for DF, which the sender chooses.
 */
__attribute__((noinline)) static enum icrc_result solve_id(uint32_t wrong, size_t len,
							   uint16_t *ip_id)
{
	uint32_t d = mul(wrong, tab.back[len / 4]);

	if ((d >> 16 & ~DF_BIT) != 0)
		return ICRC_WRONG;
	*ip_id ^= (uint16_t)(d << 8 | (d >> 8 & 0xff));
	return d >> 16 ? ICRC_RIGHT_NO_DF : ICRC_RIGHT;
}

enum icrc_result icrc_verify(const struct icrc_flow *f, bool id_known, uint16_t *ip_id,
			     const uint8_t *bth, size_t len)
{
	uint32_t wrong;

	if (!length_ok(len))
		return ICRC_WRONG;
	wrong = icrc_compute(f, *ip_id, bth, len) ^ icrc_load(bth + len - ICRC_LEN);
	if (__builtin_expect(wrong == 0, 1))
		return ICRC_RIGHT;
	return !id_known && f->v4 ? solve_id(wrong, len, ip_id) : ICRC_WRONG;
}
