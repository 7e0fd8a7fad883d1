/* SPDX-License-Identifier: BSD-2-Clause */
/* Calls of a hostile peer, whose packets the test makes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "kernels/runtime.h"
#include "peer.h"

#define KERNEL 0x4000

static struct peer P, *const p = &P;
static struct kernel_runtime *f;
static uint8_t said[8] = "piece";
static struct {
	unsigned pieces, cut;
	uint32_t total, offset;
} seen;

/* Sends to the caller, and waits for the acknowledgement before it is done with the piece. */
static enum roost_next payload(struct roost_call *c)
{
	ROOST_STEPS(c);
	seen.total = c->total;
	seen.offset = c->offset;
	ROOST_SEND(c, said, sizeof(said));
	seen.pieces++;
	ROOST_STEPS_END;
}

static enum roost_next params(struct roost_call *c)
{
	return ROOST_DONE;
}

static void cut(struct roost_call *c)
{
	seen.cut++;
}

static const struct roost_kernel kernel = {.abi = ROOST_KERNEL_ABI,
					   .version = 1,
					   .name = "waits",
					   .op = KERNEL,
					   .params = params,
					   .payload = payload,
					   .cut = cut};

static void open_peer(uint32_t psn)
{
	struct nic_qp_attr a;

	memset(&seen, 0, sizeof(seen));
	peer_open_init(p, &(struct ep_params){.mtu = 256}, psn);
	assert_int_equal(runtime_create(p->e.nic, NULL, &f), 0);
	assert_int_equal(runtime_deploy(f, &kernel, NULL), 0);
	assert_int_equal(nic_qp_set_rpc(p->e.nic, p->e.qp), 0);
	peer_attr(p, &a);
	ep_to_rtr(&p->e, &a);
	ep_to_rts(&p->e, &a);
}

static void send_call(uint8_t opcode, uint32_t psn, const void *data, uint32_t dmalen, uint32_t len)
{
	peer_send(p, &(struct pkt_make){.opcode = opcode,
					.ackreq = true,
					.psn = psn,
					.va = KERNEL,
					.dmalen = dmalen,
					.payload = data,
					.len = len});
}

static void announce(uint32_t psn)
{
	struct roost_rpc_head head = {.reply_addr = PEER_VA,
				      .reply_rkey = PEER_RKEY,
				      .reply_len = 64,
				      .mark = 7,
				      .flags = ROOST_RPC_STREAM};

	send_call(PKT_RPC_PARAMS, psn, &head, sizeof(head), sizeof(head));
	expect_ack(p, PKT_AETH_ACK, psn);
}

/* Returns the next answer to a request of the test. Counts WRITEs of the NIC in *written. */
static uint8_t answer(uint32_t psn, unsigned *written)
{
	for (;;) {
		const struct got *g = peer_get(p, 10 * MSEC);

		assert_non_null(g);
		if (g->v.opcode == PKT_ACK) {
			assert_int_equal(g->v.psn, psn & 0xffffff);
			return g->v.syndrome;
		}
		assert_int_equal(g->v.opcode, PKT_WRITE_ONLY);
		*written += 1;
	}
}

/*
 * A piece is refused while its kernel is in the middle of it. The peer then sends the beginning of
 * another message instead, for the same kernel and with the same bytes in the packet. The runtime
 * must detect that: the call ends with ROOST_RPC_BAD_PARAMS, and the other message counts as
 * unannounced payload.
 */
static void another_message_instead(void **state)
{
	const struct got *g;
	struct roost_rpc_tail tail;
	unsigned written = 0;
	uint32_t psn;

	open_peer(100);
	announce(100);
	send_call(PKT_RPC_WRITE_FIRST, 101, NULL, 512, 256);
	assert_int_equal(PKT_AETH_TYPE(answer(101, &written)), PKT_AETH_TYPE_RNR);
	assert_int_equal(seen.total, 512);
	send_call(PKT_RPC_WRITE_ONLY, 101, NULL, 256, 256);
	assert_int_equal(answer(101, &written), PKT_AETH_ACK);
	assert_int_equal(seen.total, 256);
	assert_int_equal(seen.offset, 0);
	assert_int_equal(seen.pieces, 1);
	psn = p->e.p.psn;
	peer_ack(p, PKT_AETH_ACK, psn, 1);
	do
		g = peer_get(p, 100 * MSEC);
	while (g && !(g->v.opcode == PKT_WRITE_ONLY && g->v.psn != (psn & 0xffffff)));
	assert_non_null(g);
	assert_int_equal(g->v.va, PEER_VA + 64 - sizeof(tail));
	memcpy(&tail, g->v.payload, sizeof(tail));
	assert_int_equal(tail.status, ROOST_RPC_BAD_PARAMS);
	assert_int_equal(tail.mark, 7);
	assert_int_equal(tail.len, sizeof(said));
	assert_int_equal(seen.cut, 1);
	peer_close(p);
}

/*
 * The peer repeats the refused message: the kernel continues, and gets each piece once.
 */
static void the_same_again(void **state)
{
	unsigned written = 0;

	open_peer(0xffffff);
	announce(0xffffff);
	for (unsigned i = 0; i < 3; i++) {
		send_call(PKT_RPC_WRITE_FIRST, 0, NULL, 512, 256);
		assert_int_equal(PKT_AETH_TYPE(answer(0, &written)), PKT_AETH_TYPE_RNR);
	}
	peer_ack(p, PKT_AETH_ACK, p->e.p.psn, 1);
	send_call(PKT_RPC_WRITE_FIRST, 0, NULL, 512, 256);
	assert_int_equal(answer(0, &written), PKT_AETH_ACK);
	assert_int_equal(seen.pieces, 1);
	assert_int_equal(seen.cut, 0);
	peer_close(p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(another_message_instead),
		cmocka_unit_test(the_same_again),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
