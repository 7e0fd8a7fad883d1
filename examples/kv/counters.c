/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Counters of packets: a flow is a key (addresses, ports, protocol), and its value the vector of
 * its packets and bytes. A packet is one update, which adds to both numbers. The first packet of a
 * flow finds no key: the program stores the counters, unless another program has stored them, and
 * repeats the update. usage: counters ADDRESS [PACKETS]
 */
#include "client.h"

#define FLOWS	1000u
#define AT_ONCE 1024u

struct __attribute__((packed)) flow {
	uint32_t source, destination;
	uint16_t source_port, destination_port;
	uint8_t protocol;
};

struct counters {
	uint64_t packets, bytes;
};

static struct flow flows[FLOWS];
static struct counters plain[FLOWS];
static struct roost_kv_op ops[AT_ONCE];
static unsigned flow_of[AT_ONCE];
static struct counters change[AT_ONCE];

static struct roost_kv_op update(unsigned i)
{
	return (struct roost_kv_op){.code = ROOST_KV_UPDATE_VECTOR,
				    .type = ROOST_KV_U64,
				    .function = ROOST_KV_ADD,
				    .key = &flows[flow_of[i]],
				    .key_len = sizeof(struct flow),
				    .value = &change[i],
				    .value_len = sizeof(change[i])};
}

/* Draws a flow. A few flows have most of the packets. */
static unsigned draw_flow(uint64_t *rng)
{
	double u = (double)(draw(rng) >> 11) * 0x1p-53;

	return (unsigned)(u * u * u * FLOWS);
}

static void count(struct roost_kv *kv, uint64_t *rng, unsigned n)
{
	static const struct counters zero;

	for (unsigned i = 0; i < n; i++) {
		struct counters *own;

		flow_of[i] = draw_flow(rng);
		change[i] = (struct counters){1, 64 + draw(rng) % 1437};
		own = &plain[flow_of[i]];
		own->packets++;
		own->bytes += change[i].bytes;
		ops[i] = update(i);
	}
	must(roost_kv_run(kv, ops, n), "an update");
	for (unsigned i = 0; i < n; i++) {
		struct roost_kv_op new[2];

		if (ops[i].status == -ENOENT) {
			new[1] = update(i);
			new[0] = (struct roost_kv_op){.code = ROOST_KV_PUT_ABSENT,
						      .key = new[1].key,
						      .key_len = new[1].key_len,
						      .value = &zero,
						      .value_len = sizeof(zero)};
			must(roost_kv_run(kv, new, 2), "a new flow");
			ops[i].status = new[1].status;
		}
		must(ops[i].status, "an update");
	}
}

int main(int argc, char **argv)
{
	unsigned long packets = arguments(argc, argv, 2000000);
	unsigned used = 0, right = 0;
	struct roost_kv *kv;
	uint64_t rng = 5;
	double start;

	for (unsigned i = 0; i < FLOWS; i++)
		flows[i] = (struct flow){(uint32_t)draw(&rng), (uint32_t)draw(&rng),
					 (uint16_t)draw(&rng), 443, 6};
	kv = connect_to_store();
	for (unsigned i = 0; i < FLOWS; i++) /* deletes the counters of an earlier run */
		roost_kv_delete(kv, &flows[i], sizeof(flows[i]));
	start = seconds();
	for (unsigned long done = 0; done < packets;) {
		unsigned n = packets - done < AT_ONCE ? (unsigned)(packets - done) : AT_ONCE;

		count(kv, &rng, n);
		done += n;
	}
	printf("%.2f million packets a second\n", (double)packets / (seconds() - start) / 1e6);

	for (unsigned i = 0; i < FLOWS; i++) {
		struct counters c = {0};
		size_t len;

		if (!plain[i].packets)
			continue;
		used++;
		must(roost_kv_get(kv, &flows[i], sizeof(flows[i]), &c, sizeof(c), &len), "a GET");
		right += !memcmp(&c, &plain[i], sizeof(c));
	}
	roost_kv_close(kv);
	printf("the counters of %u of %u flows are right\n", right, used);
	return right != used;
}
