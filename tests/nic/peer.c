/* SPDX-License-Identifier: BSD-2-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

#include "peer.h"

static void on_packet(void *ctx, uint64_t now, bool delivered, const struct pkt_addr *src,
		      const struct pkt_addr *dst, const uint8_t *bth, uint32_t len)
{
	struct peer *p = ctx;
	struct icrc_flow f;
	uint16_t id = 0;
	struct got *g;

	if (delivered)
		return;
	assert_true(pkt_addr_eq(dst, &p->addr) || pkt_addr_is_group(dst));
	assert_true(p->head - p->tail < PEER_RING);
	g = &p->ring[p->head++ % PEER_RING];
	g->at = now;
	g->len = len;
	g->dst = *dst;
	memcpy(g->data, bth, len);
	/* Each packet of the NIC must be well-formed. */
	assert_int_equal(pkt_parse(g->data, len, &g->v), PKT_OK);
	icrc_flow_init(&f, src, dst, PKT_UDP_PORT, PKT_UDP_PORT);
	assert_true(icrc_verify(&f, true, &id, g->data, len));
	if (pkt_addr_is_group(dst))
		assert_int_equal(g->v.dqpn, NIC_MCAST_QPN);
	else
		assert_true(g->v.dqpn == PEER_QPN || g->v.dqpn == NIC_GSI_QPN);
	assert_int_equal(g->v.pkey, PKT_PKEY_DEFAULT);
}

void peer_attr(const struct peer *p, struct nic_qp_attr *a)
{
	ep_attr(&p->e, &p->e, a);
	a->dest_qpn = PEER_QPN;
	a->dgid = p->addr;
	a->rq_psn = p->psn;
}

static void open_init(struct peer *p, bool v6, const struct sim_params *link,
		      const struct ep_params *params, uint32_t psn)
{
	memset(p, 0, sizeof(*p));
	p->psn = psn;
	assert_int_equal(pkt_addr_parse(v6 ? "fd00::9" : "10.9.9.9", &p->addr), 0);
	world_init_shape(&p->w, &(struct world_shape){.nics = 1, .v6 = v6}, 77, link);
	p->nic_addr = p->w.port[0][0][0]->addr;
	sim_set_tap(p->w.sim, on_packet, p);
	ep_init(&p->e, &p->w, 0, params);
	ep_to_init(&p->e);
}

void peer_open_init(struct peer *p, const struct ep_params *params, uint32_t psn)
{
	open_init(p, false, &(struct sim_params){0}, params, psn);
}

static void open_connected(struct peer *p, bool v6, const struct sim_params *link,
			   const struct ep_params *params, uint32_t psn)
{
	struct nic_qp_attr a;

	open_init(p, v6, link, params, psn);
	peer_attr(p, &a);
	ep_to_rtr(&p->e, &a);
	ep_to_rts(&p->e, &a);
}

void peer_open_ipv6(struct peer *p, const struct ep_params *params, uint32_t psn)
{
	open_connected(p, true, &(struct sim_params){0}, params, psn);
}

void peer_open(struct peer *p, const struct ep_params *params, uint32_t psn)
{
	peer_open_link(p, &(struct sim_params){0}, params, psn);
}

void peer_open_link(struct peer *p, const struct sim_params *link, const struct ep_params *params,
		    uint32_t psn)
{
	open_connected(p, false, link, params, psn);
}

void peer_open_requester(struct peer *p, uint32_t psn, struct ep_params params)
{
	params.mtu = 256;
	params.psn = psn;
	peer_open(p, &params, 0x1000);
}

void peer_close(struct peer *p)
{
	ep_fini(&p->e);
	world_fini(&p->w);
}

void peer_run(struct peer *p, uint64_t ns)
{
	world_run(&p->w, world_now(&p->w) + ns);
}

void peer_send_raw(struct peer *p, const struct pkt_addr *src, const uint8_t *bth, uint32_t len)
{
	sim_inject(p->w.sim, src ? src : &p->addr, &p->nic_addr, bth, len);
	peer_run(p, PEER_SETTLE);
}

void peer_put(struct peer *p, const struct pkt_make *m)
{
	uint8_t buf[PKT_MAX_LEN];
	uint32_t len = pkt_make_raw(buf, m, nic_qp_num(p->e.qp));

	pkt_seal(buf, len, &p->addr, &p->nic_addr);
	sim_inject(p->w.sim, &p->addr, &p->nic_addr, buf, len);
}

void peer_send(struct peer *p, const struct pkt_make *m)
{
	peer_put(p, m);
	peer_run(p, PEER_SETTLE);
}

void peer_rnr_nak(struct peer *p, uint8_t timer, uint32_t psn)
{
	peer_ack(p, PKT_AETH_TYPE_RNR | timer, psn, 0);
}

void peer_ack(struct peer *p, uint8_t syndrome, uint32_t psn, uint32_t msn)
{
	peer_send(p, &(struct pkt_make){
			     .opcode = PKT_ACK, .syndrome = syndrome, .psn = psn, .msn = msn});
}

const struct got *peer_get(struct peer *p, uint64_t ns)
{
	uint64_t until = world_now(&p->w) + ns;

	while (p->head == p->tail)
		if (!world_step(&p->w, until))
			break;
	return p->head == p->tail ? NULL : &p->ring[p->tail++ % PEER_RING];
}

void peer_drain(struct peer *p)
{
	p->tail = p->head;
}

struct nic_counters peer_counters(const struct peer *p)
{
	struct nic_counters c;

	nic_counters(p->e.nic, &c);
	return c;
}

void peer_post(struct peer *p, enum roost_op op, uint64_t wr_id, uint64_t off, uint32_t len)
{
	struct wr wr = {.op = op,
			.wr_id = wr_id,
			.sge = {ep_sge(&p->e, off, len)},
			.num_sge = 1,
			.raddr = PEER_VA,
			.rkey = PEER_RKEY,
			.imm = 0x01020304,
			.swap_add = 0x1122334455667788,
			.compare = 0x99aabbccddeeff00};

	ep_post(&p->e, &wr);
}

static void wrong(const struct got *g, const char *what, const char *file, int line)
{
	char text[160];

	pkt_print(&g->v, text, sizeof(text));
	print_error("%s, but it sent %s\n", what, text);
	_fail(file, line);
}

const struct got *peer_expect_at(struct peer *p, uint8_t opcode, uint32_t psn, const char *file,
				 int line)
{
	const struct got *g = peer_get(p, PEER_SETTLE);
	char want[80];

	psn &= PKT_PSN_MASK;
	snprintf(want, sizeof(want), "wanted %s psn %u", pkt_ops[opcode].name, psn);
	if (!g) {
		print_error("%s, but it sent nothing\n", want);
		_fail(file, line);
	} else if (g->v.opcode != opcode || g->v.psn != psn) {
		wrong(g, want, file, line);
	}
	return g;
}

const struct got *peer_expect_ack_at(struct peer *p, uint8_t syndrome, uint32_t psn,
				     const char *file, int line)
{
	const struct got *g = peer_expect_at(p, PKT_ACK, psn, file, line);
	char want[80];

	snprintf(want, sizeof(want), "wanted syndrome 0x%02x", syndrome);
	if (g->v.syndrome != syndrome)
		wrong(g, want, file, line);
	return g;
}

void peer_quiet_at(struct peer *p, uint64_t ns, const char *file, int line)
{
	const struct got *g = peer_get(p, ns);

	if (g)
		wrong(g, "wanted silence", file, line);
}

static void check_cqe(bool there, const struct roost_cqe *c, uint64_t wr_id,
		      enum nic_wc_status status, const char *file, int line)
{
	if (!there) {
		print_error("wanted a completion of %llu, there is none\n",
			    (unsigned long long)wr_id);
		_fail(file, line);
	}
	if (c->wr_id != wr_id || c->status != status) {
		print_error("wanted completion of %llu with status %d, have %llu with %u\n",
			    (unsigned long long)wr_id, status, (unsigned long long)c->wr_id,
			    c->status);
		_fail(file, line);
	}
}

void peer_done_at(struct peer *p, uint64_t wr_id, enum nic_wc_status status, const char *file,
		  int line)
{
	struct roost_cqe c = {0};
	bool there = ep_poll_send(&p->e, &c);

	check_cqe(there, &c, wr_id, status, file, line);
}

void peer_received_at(struct peer *p, uint64_t wr_id, enum nic_wc_status status, uint32_t len,
		      const char *file, int line)
{
	struct roost_cqe c = {0};
	bool there = ep_poll_recv(&p->e, &c);

	check_cqe(there, &c, wr_id, status, file, line);
	if (c.byte_len != len) {
		print_error("wanted %u bytes received, have %u\n", len, c.byte_len);
		_fail(file, line);
	}
}
