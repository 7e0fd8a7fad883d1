/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Fuzzes the packets that a QP of any service receives in any state: packets of its peer,
 * well-formed or not, in any order. All have the right ICRC, so that they reach the checks of the
 * transport. The first byte chooses the shape; the rest are commands. Receives may come from an
 * SRQ. Meanwhile windows are bound and invalidated, multicast groups are joined and left, calls are
 * executed, and management datagrams come to QP 1. No memory outside of the regions may change, nor
 * memory that may only be read; each byte of a call is delivered once, every turn stays bounded,
 * and all packets of the NIC are well-formed.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "input.h"
#include "make_packet.h"
#include "world.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define PEER_QPN 0x345678u
#define MEM	 8192
#define GUARD	 256
#define MTU	 256
#define MAX_TURN 5000

struct rig {
	struct world w;
	struct ep e;
	struct pkt_addr peer, group;
	uint32_t window[2];    /* keys of a type 1 and a type 2 window, as bound last */
	uint32_t read_key;     /* of the same memory's second half: to read only */
	uint32_t ah, group_ah; /* UD: the peer, the group */
	uint8_t service;       /* enum pkt_service */
	uint64_t sent;
	bool calls;	    /* the QP takes StRoM's op-codes */
	uint32_t call_next; /* where in the call's message the next piece begins */
	unsigned pieces, answers;
	uint8_t answer[300];
};

static void on_packet(void *ctx, uint64_t now, bool delivered, const struct pkt_addr *src,
		      const struct pkt_addr *dst, const uint8_t *bth, uint32_t len)
{
	struct rig *r = ctx;
	struct icrc_flow f;
	struct pkt_view v;
	uint16_t id = 0;

	if (delivered)
		return;
	r->sent++;
	must(pkt_parse(bth, len, &v) == PKT_OK, "sent a malformed packet");
	icrc_flow_init(&f, src, dst, PKT_UDP_PORT, PKT_UDP_PORT);
	must(icrc_verify(&f, true, &id, bth, len), "sent a wrong ICRC");
	must(pkt_addr_eq(dst, &r->peer) ? v.dqpn == PEER_QPN || v.dqpn == NIC_GSI_QPN
					: pkt_addr_eq(dst, &r->group) && v.dqpn == NIC_MCAST_QPN,
	     "sent to somebody else");
	must(v.payload_len <= MTU, "sent more than the path MTU");
}

/*
 * ---- a server of calls: sometimes it cannot take a piece; it answers each call with a WRITE ----
 */

static int calls_attach(void *ctx, struct nic_qp *qp, void **qp_ctx)
{
	*qp_ctx = ctx;
	return 0;
}

static void calls_forgotten(void *ctx, void *qp_ctx)
{
	struct rig *r = ctx;

	r->call_next = r->answers = 0;
}

static bool calls_deliver(void *ctx, void *qp_ctx, const struct nic_rpc_piece *p)
{
	struct rig *r = ctx;
	uint8_t sum = 0;

	must(p->off == r->call_next && p->len <= MTU, "a piece of a call out of turn");
	must(p->total >= p->off && p->total - p->off >= p->len, "more than the call's length");
	must(p->last == (p->off + p->len == p->total), "the end of a call at another place");
	if (r->pieces++ % 3 == 2)
		return false;
	for (uint32_t i = 0; i < p->len; i++)
		sum ^= p->data[i];
	r->answer[0] = sum;
	r->call_next = p->last ? 0 : p->off + p->len;
	r->answers += p->last;
	if (p->last)
		nic_rpc_schedule(r->e.qp);
	return true;
}

static void calls_sent(void *ctx, void *qp_ctx, uint64_t cookie)
{
	must(cookie == 77, "another cookie");
}

static unsigned calls_run(void *ctx, unsigned pu, bool *more)
{
	struct nic_rpc_send s = {.cookie = 77, .raddr = 0x1000, .rkey = 77, .tail_len = 8};
	struct rig *r = ctx;
	unsigned done = 0;

	for (; r->answers; r->answers--, done++) {
		s.buf = r->answer;
		s.len = r->pieces % sizeof(r->answer);
		if (nic_rpc_send(r->e.qp, &s))
			break;
	}
	return done;
}

static void calls_close(void *ctx)
{
}

static const struct nic_rpc_ops calls = {.attach = calls_attach,
					 .detach = calls_forgotten,
					 .deliver = calls_deliver,
					 .sent = calls_sent,
					 .stop = calls_forgotten,
					 .run = calls_run,
					 .close = calls_close};

static void attributes(struct rig *r, struct nic_qp_attr *a)
{
	ep_attr(&r->e, &r->e, a);
	a->dest_qpn = PEER_QPN;
	a->dgid = r->peer;
	a->rq_psn = 0xfffff0;
}

static void connect_again(struct rig *r)
{
	struct nic_qp_attr a = {.state = NIC_QPS_RESET};

	must(ep_modify(&r->e, &a, NIC_QPA_STATE) == 0, "no RESET");
	attributes(r, &a);
	ep_to_init(&r->e);
	if (r->calls)
		must(nic_qp_set_rpc(r->e.nic, r->e.qp) == 0, "no calls");
	ep_to_rtr(&r->e, &a);
	ep_to_rts(&r->e, &a);
}

static uint64_t address(struct input *in, const struct ep *e)
{
	uint8_t how = u8(in);

	if (how < 128)
		return (uintptr_t)e->mem + how * 8;
	if (how < 200)
		return (uintptr_t)e->mem + (how - 127) * 128;
	if (how < 230)
		return (uintptr_t)e->mem + MEM - (how & 15);
	return (uint64_t)u32(in) << 32 | u32(in);
}

static uint32_t rkey(struct input *in, const struct rig *r)
{
	uint8_t how = u8(in);

	if (how < 50)
		return r->window[how & 1];
	return how < 150 ? r->e.key : how < 220 ? r->read_key : r->e.key ^ u32(in);
}

static uint32_t length(struct input *in)
{
	uint8_t how = u8(in);

	if (how < 100)
		return how;
	if (how < 170)
		return MTU;
	if (how < 240)
		return (uint32_t)(how - 169) * 50;
	return u32(in);
}

/* A PSN near the expected one, and mostly the expected one. */
static uint32_t psn_near(struct input *in, uint32_t psn)
{
	uint8_t how = u8(in);

	if (how < 160)
		return psn;
	if (how < 250)
		return psn + (uint32_t)how - 220;
	return u32(in);
}

static void packet(struct input *in, struct rig *r)
{
	static const uint8_t rc[] = {0,	 1,  2,	 3,  4,	 5,  6,	 7,  8,	 9,  10, 11,
				     12, 13, 14, 15, 16, 17, 18, 19, 20, 22, 23};
	const struct pkt_addr *dst = &r->w.port[0][0][0]->addr;
	uint32_t qpn = nic_qp_num(r->e.qp);
	uint8_t buf[PKT_MAX_LEN + 512], c = u8(in);
	struct nic_qp_attr q;
	struct pkt_make m = {0};
	uint32_t len;

	nic_qp_query(r->e.qp, &q);
	m.opcode = c < 250 ? rc[c % sizeof(rc)] : u8(in);
	if (c < 200 && r->calls && c & 1)
		m.opcode = (uint8_t)(PKT_RPC_PARAMS + (c >> 1) % 5);
	if (c < 240 && r->service == PKT_UC)
		m.opcode = (uint8_t)(PKT_UC + m.opcode % (PKT_WRITE_ONLY_IMM + 1));
	if (c < 240 && r->service == PKT_UD)
		m.opcode = (uint8_t)(PKT_UD + PKT_SEND_ONLY + (c & 1));
	c = u8(in);
	m.ackreq = c & 1;
	m.solicited = c & 2;
	/* Responses answer outstanding requests: some PSNs before the next one to be sent. */
	if (pkt_ops[m.opcode].flags & PKT_RESPONSE)
		m.psn = q.sq_psn - (u8(in) & 15);
	else
		m.psn = psn_near(in, q.rq_psn);
	if (pkt_ops[m.opcode].flags & (PKT_RETH | PKT_ATOMIC_ETH)) {
		m.va = address(in, &r->e);
		m.rkey = rkey(in, r);
		m.dmalen = length(in);
	}
	m.swap_add = u8(in);
	m.qkey = r->service == PKT_UD && c & 4 && c & 8 ? 1 : 0;
	m.syndrome = u8(in);
	m.inv_rkey = c & 16 ? r->window[c & 1] : r->e.key ^ (c & 64);
	if (pkt_ops[m.opcode].flags & PKT_PAYLOAD)
		m.len = length(in) % (PKT_MAX_PAYLOAD + 1);
	/* A packet to the group, valid or not. */
	if (r->service == PKT_UD && c & 16) {
		dst = c & 1 && c & 2 ? dst : &r->group;
		qpn = c & 1 && !(c & 2) ? qpn : NIC_MCAST_QPN;
	}
	len = pkt_make_raw(buf, &m, qpn);
	/* Sometimes changes a few bytes. */
	for (uint8_t n = c & 128 ? u8(in) & 7 : 0; n; n--)
		buf[u8(in) % len] = u8(in);
	if (c & 32)
		len = 16 + (u8(in) << 2);
	if (len > PKT_MAX_LEN || len & 3)
		return;
	pkt_seal(buf, len, &r->peer, dst);
	sim_inject(r->w.sim, &r->peer, dst, buf, len);
}

static void turns(struct rig *r, uint64_t ns)
{
	uint64_t until = world_now(&r->w) + ns;

	for (int i = 0; i < 400; i++) {
		uint64_t before = r->sent;

		if (!world_step(&r->w, until))
			break;
		must(r->sent - before <= MAX_TURN, "a turn without end");
	}
}

/* A packet to QP 1: with valid length, Q_Key, source and op-code, or not. */
static void datagram(struct input *in, struct rig *r)
{
	const struct pkt_addr *dst = &r->w.port[0][0][0]->addr;
	uint8_t buf[PKT_MAX_LEN], c = u8(in);
	struct pkt_make m = {.opcode = PKT_UD + PKT_SEND_ONLY};
	uint64_t before = r->w.gsi.count;
	uint32_t len;

	m.qkey = c & 7 ? NIC_GSI_QKEY : u32(in);
	m.sqpn = c & 24 ? NIC_GSI_QPN : u32(in) & PKT_QPN_MASK;
	m.len = c & 96 ? NIC_GSI_LEN : length(in) % (PKT_MAX_PAYLOAD + 1);
	if ((c & 131) == 128)
		m.opcode = u8(in);
	if (c == 255)
		dst = &r->group;
	len = pkt_make_raw(buf, &m, NIC_GSI_QPN);
	pkt_seal(buf, len, &r->peer, dst);
	sim_inject(r->w.sim, &r->peer, dst, buf, len);
	turns(r, 1000);
	must(r->w.gsi.count == before ||
		     (m.qkey == NIC_GSI_QKEY && m.sqpn == NIC_GSI_QPN && m.len == NIC_GSI_LEN &&
		      c != 255 && m.opcode == PKT_UD + PKT_SEND_ONLY),
	     "QP 1 took what is no management datagram");
	if (r->w.gsi.count != before && c & 1)
		must(nic_gsi_send(r->e.nic, 0, &r->peer, 0, r->w.gsi.mad) == 0,
		     "QP 1 can't answer");
}

static bool sq_has_space(const struct rig *r)
{
	struct roost_queue_index *i = (struct roost_queue_index *)(uintptr_t)&r->e.sqi;

	return atomic_load(&i->prod) - atomic_load(&i->cons) != r->e.p.depth;
}

/* Binds a window at any address, or invalidates its key. */
static void window(struct input *in, struct rig *r)
{
	uint8_t c = u8(in);
	uint32_t *key = &r->window[c & 1], old = *key;

	if (!sq_has_space(r))
		return;
	if (c & 2) {
		ep_post(&r->e, &(struct wr){.op = ROOST_OP_LOCAL_INV, .imm = old});
		return;
	}
	*key = (old & ~0xffu) | u8(in);
	ep_post(&r->e, &(struct wr){.op = ROOST_OP_BIND_MW,
				    .rkey = old,
				    .imm = *key,
				    .raddr = address(in, &r->e),
				    .swap_add = length(in),
				    .compare = ROOST_BIND(c & 4 ? r->read_key : r->e.key, u8(in))});
}

/* Joins or leaves the group. Only a UD QP may do this. */
static void membership(struct input *in, struct rig *r)
{
	bool join = u8(in) & 1;

	if (join)
		nic_qp_attach(r->e.nic, r->e.qp, &r->group);
	else
		nic_qp_detach(r->e.nic, r->e.qp, &r->group);
	must(nic_qp_groups(r->e.qp) == (join && r->service == PKT_UD), "groups miscounted");
}

static void post(struct input *in, struct rig *r)
{
	static const enum roost_op ops[] = {ROOST_OP_WRITE,    ROOST_OP_SEND,
					    ROOST_OP_READ,     ROOST_OP_FETCH_ADD,
					    ROOST_OP_CMP_SWAP, ROOST_OP_WRITE_IMM};
	enum roost_op op = ops[u8(in) % 6];
	struct wr wr = {.op = op, .num_sge = 1, .raddr = 0x1000, .rkey = 77};

	if (r->service == PKT_UD) {
		uint8_t whom = u8(in);

		wr.raddr = whom < 50 ? ROOST_UD_ADDR(r->group_ah, NIC_MCAST_QPN)
				     : ROOST_UD_ADDR(r->ah ^ (whom > 250), PEER_QPN);
		wr.rkey = (uint32_t)u8(in) << 24;
	}
	if (!sq_has_space(r))
		return;
	wr.sge[0] = ep_sge(
		&r->e, (uint64_t)u8(in) * 8,
		op == ROOST_OP_FETCH_ADD || op == ROOST_OP_CMP_SWAP ? 8 : (uint32_t)u8(in) * 16);
	ep_post(&r->e, &wr);
}

static void post_recv(struct input *in, struct rig *r)
{
	struct roost_sge s[2] = {ep_sge(&r->e, (uint64_t)u8(in) * 8, length(in) % 4096), {0}};

	if (atomic_load(&r->e.rqi.prod) - atomic_load(&r->e.rqi.cons) == r->e.p.depth)
		return;
	s[1] = (struct roost_sge){(uintptr_t)r->e.mem + u8(in), u8(in),
				  u8(in) < 200 ? r->e.key : r->read_key};
	ep_post_recv(&r->e, 1, s, 2);
}

static void take_completions(struct ep *e)
{
	struct roost_cqe c;

	while (ep_poll_send(e, &c))
		;
	while (ep_poll_recv(e, &c))
		;
}

static void open_rig(struct rig *r, uint8_t shape)
{
	struct ep_params p = {.depth = 16,
			      .max_sge = 2,
			      .mem = MEM + GUARD,
			      .mtu = MTU,
			      .psn = 0xfffffa,
			      .timeout = (uint8_t)(1 + (shape & 7)),
			      .retry_cnt = 2,
			      .rnr_retry = 2,
			      .rd_atomic = (uint8_t)(1 + (shape >> 3 & 3)),
			      .own_srq = (shape >> 3 & 3) == 3};
	struct nic_ah_attr ah = {.port = 1};
	struct sim_params sp = {
		.mtu = MTU, .window = shape & 64 ? 1000 : 0, .read_window = shape & 128 ? 500 : 0};
	struct nic_mr_attr m;

	memset(r, 0, sizeof(*r));
	p.type = (shape & 7) == 6 ? NIC_QPT_UC : (shape & 7) == 7 ? NIC_QPT_UD : NIC_QPT_RC;
	r->calls = (shape & 7) == 5;
	p.calc = (shape & 7) == 4;
	r->service = (shape & 7) == 6 ? PKT_UC : (shape & 7) == 7 ? PKT_UD : PKT_RC;
	must(pkt_addr_parse("10.7.7.7", &r->peer) == 0, "no address");
	must(pkt_addr_parse("239.7.7.7", &r->group) == 0, "no group");
	world_init(&r->w, 1, 1, &sp);
	sim_set_tap(r->w.sim, on_packet, r);
	nic_rpc_serve(r->w.nic[0], &calls, r);
	ep_init(&r->e, &r->w, 0, &p);
	must(nic_mr_deregister(r->e.nic, r->e.key) == 0, "no region");
	/*
	 * The first half may be written and read, the second only read; the bytes behind belong to
	 * no region.
	 */
	m = (struct nic_mr_attr){.pd = r->e.pd,
				 .addr = r->e.mem,
				 .len = MEM / 2,
				 .iova = (uintptr_t)r->e.mem,
				 .access = 15 | NIC_ACCESS_MW_BIND,
				 .invalidatable = shape & 32};
	must(nic_mr_register(r->e.nic, &m, &r->e.key) == 0, "no region");
	m.addr = r->e.mem + MEM / 2;
	m.iova += MEM / 2;
	m.access = NIC_ACCESS_REMOTE_READ;
	must(nic_mr_register(r->e.nic, &m, &r->read_key) == 0, "no region");
	memset(r->e.mem + MEM / 2, 0xa5, MEM / 2 + GUARD);
	ah.pd = r->e.pd;
	ah.dgid = r->peer;
	must(nic_ah_create(r->e.nic, &ah, &r->ah) == 0, "no address handle");
	ah.dgid = r->group;
	must(nic_ah_create(r->e.nic, &ah, &r->group_ah) == 0, "no address handle");
	for (unsigned i = 0; i < 2; i++)
		must(nic_mw_alloc(r->e.nic, r->e.pd, i + 1, 0, &r->window[i]) == 0, "no window");
	connect_again(r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = {data, data + size};
	struct rig *r = malloc(sizeof(*r));

	if (!r)
		return 0;
	open_rig(r, u8(&in));
	while (in.p < in.end) {
		uint8_t c = u8(&in);

		switch (c % 16) {
		case 0:
			post(&in, r);
			break;
		case 1:
			post_recv(&in, r);
			break;
		case 2:
			turns(r, (uint64_t)u8(&in) * 50000);
			take_completions(&r->e);
			break;
		case 3:
			if (nic_qp_state(r->e.qp) > NIC_QPS_RTS)
				connect_again(r);
			break;
		case 4:
		case 5: /* several arrive in one burst */
			packet(&in, r);
			break;
		case 6:
			window(&in, r);
			break;
		case 7:
			membership(&in, r);
			break;
		case 8:
			datagram(&in, r);
			break;
		default:
			packet(&in, r);
			turns(r, 1000);
		}
	}
	turns(r, SEC);
	take_completions(&r->e);
	for (int i = MEM / 2; i < MEM + GUARD; i++)
		must(r->e.mem[i] == 0xa5, "wrote where nobody may write");
	must(nic_qp_state(r->e.qp) == NIC_QPS_RTS || nic_qp_state(r->e.qp) == NIC_QPS_ERR ||
		     (r->service && nic_qp_state(r->e.qp) == NIC_QPS_SQE),
	     "a state of its own making");
	must(nic_mr_deregister(r->e.nic, r->read_key) == 0, "the region went away");
	must(nic_ah_destroy(r->e.nic, r->ah) == 0, "the handle went away");
	must(nic_ah_destroy(r->e.nic, r->group_ah) == 0, "the handle went away");
	for (unsigned i = 0; i < 2; i++)
		must(nic_mw_dealloc(r->e.nic, r->window[i]) == 0, "a window went away");
	ep_fini(&r->e);
	world_fini(&r->w);
	free(r);
	return 0;
}
