/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Compares counters with captures. Two NICs communicate over udp sockets that lose and damage
 * packets, with every service and every kind of answer. Each NIC writes a capture of its port. The
 * test then computes each counter from the capture. Counters that no packet shows are compared with
 * the program's completions, or are named as such; a new counter needs one of these.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <cmocka.h>

#include "../common/capture.h"
#include "world.h"

#define MTU	 1024
#define QKEY	 0x11111111u
#define RECV	 262144 /* offset of the receives */
#define RECV_LEN 4096
#define ROUNDS	 60

enum { MAIN, BAD, SHORT, UC, UD, PAIRS };

static struct world w;
static struct ep e[PAIRS][2];
static char folder[32], file[2][64];
static unsigned seed; /* seed of losses and damage in the ports */
/* Completions of the program: sends, SENDs among them, receives; and those with errors. */
static struct {
	uint64_t done, sends, recvs, send_errors, recv_errors, send_flushed, recv_flushed;
} book[2];

static struct port *open_port(unsigned nic)
{
	char spec[256], err[256];
	struct port *p;

	snprintf(file[nic], sizeof(file[nic]), "%s/%u.pcap", folder, nic);
	snprintf(spec, sizeof(spec),
		 "udp:127.%d.%d.%u,mtu=%u,loss=0.04,corrupt=0.02,seed=%u,pcap=%s",
		 1 + (getpid() >> 8) % 250, getpid() % 250, 200 + nic, MTU, seed + nic, file[nic]);
	p = port_open(spec, 0, 1, err, sizeof(err));
	if (!p)
		fail_msg("%s", err);
	return p;
}

static void post_recv(unsigned pair, unsigned side, uint64_t n)
{
	struct roost_sge sge = ep_sge(&e[pair][side], RECV + n % 32 * RECV_LEN, RECV_LEN);

	ep_post_recv(&e[pair][side], n, &sge, 1);
}

static void take_completions(void)
{
	struct roost_cqe c;

	for (unsigned p = 0; p < PAIRS; p++)
		for (unsigned s = 0; s < 2; s++) {
			while (ep_poll_send(&e[p][s], &c)) {
				book[s].done += c.status == NIC_WC_SUCCESS;
				book[s].sends +=
					c.status == NIC_WC_SUCCESS && c.opcode == NIC_WC_SEND;
				book[s].send_errors += c.status != NIC_WC_SUCCESS;
				book[s].send_flushed += c.status == NIC_WC_WR_FLUSH_ERR;
			}
			while (ep_poll_recv(&e[p][s], &c)) {
				book[s].recvs += c.status == NIC_WC_SUCCESS;
				book[s].recv_errors += c.status != NIC_WC_SUCCESS;
				book[s].recv_flushed += c.status == NIC_WC_WR_FLUSH_ERR;
				if (c.status == NIC_WC_SUCCESS && p != BAD && p != SHORT)
					post_recv(p, s, c.wr_id);
			}
		}
}

static uint64_t waiting(unsigned pair, unsigned side)
{
	struct ep *x = &e[pair][side];

	return atomic_load(&x->sqi.prod) - atomic_load(&x->sqi.cons);
}

/*
 * Virtual time advances when no packet is in flight. Over loopback a sent packet has arrived,
 * unless the Linux kernel is busy.
 */
static void run_until_done(void)
{
	for (unsigned idle = 0, left = 1; left;) {
		left = 0;
		take_completions();
		for (unsigned p = 0; p < PAIRS; p++)
			left += waiting(p, 0) || waiting(p, 1);
		if (world_step(&w, world_now(&w))) {
			idle = 0;
		} else if (idle++ < 2) {
			usleep(500);
		} else {
			idle = 0;
			if (!world_step(&w, UINT64_MAX - 1))
				break;
		}
	}
	take_completions();
}

static void connect_all(void)
{
	for (unsigned p = 0; p < PAIRS; p++) {
		struct ep_params ep = {.mtu = MTU,
				       .mem = RECV + 32 * RECV_LEN,
				       .psn = p == MAIN ? 0xffffd0 : 0x100 * p,
				       .sig_all = true,
				       .timeout = 8,
				       .type = p == UC	 ? NIC_QPT_UC
					       : p == UD ? NIC_QPT_UD
							 : NIC_QPT_RC};

		for (unsigned s = 0; s < 2; s++)
			ep_init(&e[p][s], &w, s, &ep);
		ep_connect(&e[p][0], &e[p][1]);
		for (unsigned s = 0; s < 2 && p != BAD && p != SHORT; s++)
			for (uint64_t n = 0; n < 32; n++)
				post_recv(p, s, n);
	}
}

static void post_to(unsigned pair, unsigned side, enum roost_op op, uint32_t len)
{
	struct wr wr = wr_rdma(op, &e[pair][side], 0, len, &e[pair][!side], 0);

	wr.compare = 1;
	ep_post(&e[pair][side], &wr);
}

static void post_ud(unsigned side, uint32_t ah, uint32_t qpn, uint32_t qkey, uint32_t len)
{
	ep_post(&e[UD][side], &(struct wr){.op = ROOST_OP_SEND,
					   .sge = {ep_sge(&e[UD][side], 0, len)},
					   .num_sge = 1,
					   .raddr = ROOST_UD_ADDR(ah, qpn),
					   .rkey = qkey});
}

static uint32_t make_ah(unsigned side, const struct pkt_addr *to, uint8_t tclass)
{
	struct nic_ah_attr a = {
		.pd = e[UD][side].pd, .dgid = *to, .port = 1, .traffic_class = tclass};
	uint32_t ah;

	assert_int_equal(nic_ah_create(w.nic[side], &a, &ah), 0);
	return ah;
}

static void traffic(void)
{
	static const enum roost_op ops[] = {
		ROOST_OP_WRITE,	    ROOST_OP_SEND,     ROOST_OP_READ,	 ROOST_OP_FETCH_ADD,
		ROOST_OP_WRITE_IMM, ROOST_OP_SEND_IMM, ROOST_OP_CMP_SWAP};
	struct pkt_addr group;
	uint8_t mad[NIC_GSI_LEN] = {1};
	uint32_t ah[2], to_group;

	assert_int_equal(pkt_addr_parse("239.88.77.66", &group), 0);
	group.b[14] = (uint8_t)(getpid() >> 8);
	group.b[15] = (uint8_t)getpid();
	assert_int_equal(nic_qp_attach(w.nic[1], e[UD][1].qp, &group), 0);
	to_group = make_ah(0, &group, 0);
	for (unsigned s = 0; s < 2; s++)
		ah[s] = make_ah(s, &w.port[!s][0][0]->addr, 3); /* "congestion experienced" */
	for (unsigned n = 0; n < ROUNDS; n++) {
		for (unsigned s = 0; s < 2; s++) {
			enum roost_op op = ops[(n + s) % 7];

			post_to(MAIN, s, op,
				op == ROOST_OP_FETCH_ADD || op == ROOST_OP_CMP_SWAP
					? 8
					: n * 61 % 3500);
			post_to(UC, s, ops[n % 2], 100 + n);
			post_ud(s, ah[s], nic_qp_num(e[UD][!s].qp), n % 9 ? QKEY : QKEY + 1,
				10 + n);
			assert_int_equal(nic_gsi_send(w.nic[s], 0, &w.port[!s][0][0]->addr, 0, mad),
					 0);
		}
		post_ud(0, to_group, NIC_MCAST_QPN, QKEY, n);
		run_until_done();
	}
	/*
	 * Each once: a receive that is posted late, a receive that is too short, memory without
	 * write access.
	 */
	post_to(SHORT, 0, ROOST_OP_SEND, 100);
	for (unsigned i = 0; i < 20 && waiting(SHORT, 0); i++)
		world_step(&w, world_now(&w));
	post_recv(SHORT, 1, 1);
	run_until_done();
	ep_post_recv(&e[SHORT][1], 2,
		     &(struct roost_sge){(uintptr_t)e[SHORT][1].mem, 10, e[SHORT][1].key}, 1);
	post_to(SHORT, 0, ROOST_OP_SEND, 100);
	e[BAD][1].key ^= 0x100;
	post_to(BAD, 0, ROOST_OP_WRITE, 100);
	post_to(BAD, 0, ROOST_OP_WRITE, 100);
	e[BAD][1].key ^= 0x100;
	run_until_done();
	for (unsigned s = 0; s < 2; s++)
		nic_ah_destroy(w.nic[s], ah[s]);
	nic_ah_destroy(w.nic[0], to_group);
}

/* ---- reading the capture ---- */

/* One direction of a connection, as its responder's capture shows it. */
struct flow {
	uint32_t qpn; /* the responder's */
	/* expected by the responder; never sent before by the requester */
	uint32_t epsn, next;
	const struct pkt_op *last; /* of the request accepted last */
	bool dead;
	/* a later PSN than the expected one came, and the expected one has not come since */
	bool gap;
};

static struct flow flows[2][PAIRS]; /* by the NIC of the responder */

static int32_t ahead(uint32_t psn, uint32_t of)
{
	return (int32_t)((psn - of) << 8) >> 8;
}

static struct flow *flow_to(unsigned nic, uint32_t qpn)
{
	for (unsigned p = 0; p < PAIRS; p++)
		if (flows[nic][p].qpn == qpn)
			return &flows[nic][p];
	return NULL;
}

static uint32_t psns(const struct pkt_view *v)
{
	return v->op->kind == PKT_KIND_READ_REQ && v->dmalen > MTU ? (v->dmalen + MTU - 1) / MTU
								   : 1;
}

static uint64_t *accepted(struct nic_counters *c, const struct pkt_op *op)
{
	return op->kind == PKT_KIND_SEND       ? &c->rx_send_requests
	       : op->kind == PKT_KIND_WRITE    ? &c->rx_write_requests
	       : op->kind == PKT_KIND_READ_REQ ? &c->rx_read_requests
					       : &c->rx_atomic_requests;
}

static void request_in(struct nic_counters *c, struct flow *f, const struct pkt_view *v)
{
	int32_t d = ahead(v->psn, f->epsn);

	if (f->dead) {
		c->rx_bad_qpn++;
		return;
	}
	if (v->op->service == PKT_UC) { /* accepts any PSN; all messages here have one packet */
		c->out_of_sequence += d != 0;
	} else if (d) {
		c->duplicate_request += d < 0;
		c->out_of_sequence += d > 0 && !f->gap;
		f->gap |= d > 0;
		return;
	}
	f->gap = false;
	*accepted(c, v->op) += 1;
	f->epsn = (v->psn + psns(v)) & 0xffffff;
	f->last = v->op;
}

/* A NAK in the capture shows the responder's result for the request before. */
static void answer_out(struct nic_counters *c, struct flow *f, const struct pkt_view *v)
{
	bool nak = PKT_AETH_TYPE(v->syndrome) == PKT_AETH_TYPE_NAK;

	if (!(v->op->flags & PKT_AETH) || v->syndrome == PKT_NAK_PSN_SEQ)
		return;
	if (f->dead) /* refused again, since the NAK may have been lost: still one error */
		return;
	if (PKT_AETH_TYPE(v->syndrome) == PKT_AETH_TYPE_RNR) {
		c->send_rnr_err++;
		c->out_of_buffer++;
	}
	c->resp_remote_invalid_request += v->syndrome == PKT_NAK_INVALID_REQ;
	c->resp_remote_access_errors += v->syndrome == PKT_NAK_REM_ACCESS;
	c->resp_remote_op_errors += v->syndrome == PKT_NAK_REM_OP;
	if (nak || PKT_AETH_TYPE(v->syndrome) == PKT_AETH_TYPE_RNR) {
		/*
		 * Also the requests behind it that arrived before the response left; all have one
		 * packet here.
		 */
		*accepted(c, f->last) -= (uint64_t)ahead(f->epsn, v->psn);
		f->epsn = v->psn;
		f->dead = nak;
	}
}

static void answer_in(struct nic_counters *c, const struct pkt_view *v)
{
	if (!(v->op->flags & PKT_AETH))
		return;
	c->packet_seq_err += v->syndrome == PKT_NAK_PSN_SEQ;
	c->rnr_nak_retry_err += PKT_AETH_TYPE(v->syndrome) == PKT_AETH_TYPE_RNR;
	c->req_remote_invalid_request += v->syndrome == PKT_NAK_INVALID_REQ;
	c->req_remote_access_errors += v->syndrome == PKT_NAK_REM_ACCESS;
	c->req_remote_op_errors += v->syndrome == PKT_NAK_REM_OP;
}

static void datagram_in(struct nic_counters *c, const struct pkt_view *v)
{
	if (v->dqpn == NIC_GSI_QPN) {
		c->rx_management++;
		return;
	}
	c->rx_multicast += v->dqpn == NIC_MCAST_QPN;
	if (v->qkey == QKEY)
		c->rx_send_requests++;
	else
		c->rx_bad_qkey++;
}

static void packet_out(struct nic_counters *c, unsigned nic, const struct pkt_view *v)
{
	struct flow *f = flow_to(!nic, v->dqpn);

	if (v->op->flags & PKT_RESPONSE) {
		/*
		 * The response belongs to the flow whose requester has its destination QP number.
		 */
		for (unsigned p = 0; p < PAIRS; p++)
			if (nic_qp_num(e[p][!nic].qp) == v->dqpn)
				answer_out(c, &flows[nic][p], v);
	} else if (v->op->service == PKT_RC) {
		c->retransmitted_pkts += ahead(v->psn, f->next) < 0;
		if (ahead(v->psn + psns(v), f->next) > 0)
			f->next = (v->psn + psns(v)) & 0xffffff;
	} else {
		c->tx_management += v->dqpn == NIC_GSI_QPN;
	}
}

/* QP 1 checks the Q_Key before the ICRC. */
static bool seems_of_another_qkey(const struct pkt_view *v)
{
	return v->opcode == (PKT_UD | PKT_SEND_ONLY) && v->dqpn == NIC_GSI_QPN &&
	       v->sqpn == NIC_GSI_QPN && v->qkey != NIC_GSI_QKEY;
}

/*
 * Returns the number of damaged packets. The parser's counter of a drop is not predicted, except
 * for the Q_Key of QP 1.
 */
static uint64_t read_capture(unsigned nic, struct nic_counters *c)
{
	struct pcap_reader reader;
	struct pcap_record rec;
	uint64_t damaged = 0;
	uint8_t *data = capture_load(NULL, file[nic], &reader);

	while (pcap_reader_next(&reader, &rec) == 1) {
		bool out = pkt_addr_eq(&rec.src, &w.port[nic][0][0]->addr);
		enum pkt_error error;
		struct pkt_view v;

		assert_int_equal(rec.kind, PCAP_ROCE);
		*(out ? &c->sent_pkts : &c->rcvd_pkts) += 1;
		*(out ? &c->sent_bytes : &c->rcvd_bytes) += rec.len;
		error = pkt_parse(rec.bth, (uint32_t)rec.len, &v);
		if (error != PKT_OK || icrc_compute_frame(rec.ip, rec.bth, rec.len) !=
					       icrc_load(rec.bth + rec.len - PKT_ICRC_LEN)) {
			assert_false(out);
			if (error == PKT_OK && seems_of_another_qkey(&v))
				c->rx_bad_qkey++;
			else
				damaged++;
			continue;
		}
		if (out) {
			packet_out(c, nic, &v);
			continue;
		}
		/* Counted for accepted packets; QP 1 and groups differ. */
		c->np_ecn_marked_roce_packets += (rec.tos & 3) == 3;
		if (v.op->flags & PKT_RESPONSE)
			answer_in(c, &v);
		else if (v.op->service == PKT_UD)
			datagram_in(c, &v);
		else
			request_in(c, flow_to(nic, v.dqpn), &v);
	}
	free(data);
	return damaged;
}

/* ---- the comparison ---- */

/* Counters that no packet shows: times, actions of the program, events that this test lacks. */
static const char *const elsewhere[] = {
	"implied_nak_seq_err",
	"local_ack_timeout_err",
	"tail_loss_probe",
	"doorbells",
	"turns",
	"wait_window",
	"wait_reads",
	"wait_psn",
	"wait_copies",
	"wait_batch",
	"wait_order",
	"wait_hook",
	"wait_chain",
	"wait_rate",
	"wait_rnr",
};

static void from_the_book(unsigned nic, struct nic_counters *want)
{
	want->completed_wqes = book[nic].done;
	want->rdma_sends = book[nic].sends;
	want->rdma_recvs = book[nic].recvs;
	want->req_cqe_error = book[nic].send_errors;
	want->req_cqe_flush_error = book[nic].send_flushed;
	want->resp_cqe_error = book[nic].recv_errors;
	want->resp_cqe_flush_error = book[nic].recv_flushed;
	want->resp_local_length_error = nic == 1; /* the SEND that was too long */
}

static uint64_t take_drops(struct nic_counters *c)
{
	uint64_t *drops[] = {&c->rx_short,    &c->rx_bad_opcode,	&c->rx_bad_version,
			     &c->rx_bad_pad,  &c->rx_icrc_encapsulated, &c->rx_bad_pkey,
			     &c->rx_bad_qpn,  &c->rx_bad_source,	&c->rx_bad_service,
			     &c->rx_bad_group},
		 sum = 0;

	for (unsigned i = 0; i < sizeof(drops) / sizeof(drops[0]); i++) {
		sum += *drops[i];
		*drops[i] = 0;
	}
	return sum;
}

static unsigned compare(unsigned nic)
{
	struct nic_counters have, want = {0};
	uint64_t damaged, dropped;
	unsigned wrong = 0;

	nic_counters(w.nic[nic], &have);
	/* A capture does not distinguish them. */
	have.retransmitted_pkts += have.tail_loss_probe;
	damaged = read_capture(nic, &want);
	from_the_book(nic, &want);
	/* A damaged packet is dropped and counted for its first error. */
	dropped = take_drops(&have);
	if (dropped != damaged + take_drops(&want)) {
		print_message("NIC %u dropped %llu packets, the capture has %llu\n", nic,
			      (unsigned long long)dropped, (unsigned long long)damaged);
		wrong++;
	}
	for (size_t i = 0; i < NIC_COUNTER_COUNT; i++) {
		uint64_t h = ((uint64_t *)&have)[i], x = ((uint64_t *)&want)[i];
		bool skip = false;

		for (unsigned k = 0; k < sizeof(elsewhere) / sizeof(elsewhere[0]); k++)
			skip |= strcmp(elsewhere[k], nic_counter_info[i].name) == 0;
		if (skip || h == x)
			continue;
		print_message("NIC %u: %s is %llu, the capture says %llu\n", nic,
			      nic_counter_info[i].name, (unsigned long long)h,
			      (unsigned long long)x);
		wrong++;
	}
	/* With this seed each compared counter has counted. */
	if (seed != 71)
		return wrong;
	assert_true(want.retransmitted_pkts && want.packet_seq_err && want.duplicate_request &&
		    want.out_of_sequence);
	assert_true(damaged && want.np_ecn_marked_roce_packets && want.rx_bad_qkey &&
		    want.rx_management);
	if (nic)
		assert_true(want.rx_multicast && want.send_rnr_err &&
			    want.resp_remote_access_errors);
	return wrong;
}

static void counters_equal_the_capture(void **state)
{
	unsigned wrong = 0;

	seed = *(const unsigned *)*state;
	memset(book, 0, sizeof(book));
	memcpy(folder, "/tmp/roost-counters-XXXXXX", sizeof("/tmp/roost-counters-XXXXXX"));
	assert_non_null(mkdtemp(folder));
	world_init_shape(&w, &(struct world_shape){.nics = 2, .open = open_port}, 7,
			 &(struct sim_params){0});
	connect_all();
	for (unsigned p = 0; p < PAIRS; p++)
		for (unsigned s = 0; s < 2; s++)
			flows[s][p] = (struct flow){.qpn = nic_qp_num(e[p][s].qp),
						    .epsn = p == MAIN ? 0xffffd0 : 0x100 * p,
						    .next = p == MAIN ? 0xffffd0 : 0x100 * p};
	traffic();
	/* Arming a port writes its capture. */
	for (unsigned s = 0; s < 2; s++) {
		w.port[s][0][0]->ops->arm(w.port[s][0][0]);
		w.port[s][0][0]->ops->disarm(w.port[s][0][0], true);
	}
	for (unsigned s = 0; s < 2; s++) {
		struct flow before[2][PAIRS];

		memcpy(before, flows, sizeof(flows));
		wrong += compare(s);
		memcpy(flows, before, sizeof(flows));
	}
	assert_int_equal(wrong, 0);
	for (unsigned p = 0; p < PAIRS; p++)
		for (unsigned s = 0; s < 2; s++)
			ep_fini(&e[p][s]);
	world_fini(&w);
	for (unsigned s = 0; s < 2; s++)
		unlink(file[s]);
	rmdir(folder);
}

int main(void)
{
	/*
	 * 101, 139: a NAK that ends a connection is lost. 107, 120: a management datagram's Q_Key
	 * is damaged.
	 */
	static unsigned seeds[] = {71, 101, 107, 120, 139};
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_prestate(counters_equal_the_capture, &seeds[0]),
		cmocka_unit_test_prestate(counters_equal_the_capture, &seeds[1]),
		cmocka_unit_test_prestate(counters_equal_the_capture, &seeds[2]),
		cmocka_unit_test_prestate(counters_equal_the_capture, &seeds[3]),
		cmocka_unit_test_prestate(counters_equal_the_capture, &seeds[4]),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
