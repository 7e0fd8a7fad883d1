/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A key-value program that may be killed while clients read its values.
 *
 *	cc -o hull hull.c $(pkg-config --cflags --libs roost)
 *	./hull                     the server: a hull and its program; prints the program's pid
 *	./hull ADDRESS LIVES       a client: reads until the program has had LIVES lives
 *	kill -9 PID                in a third terminal, as often as you like
 *
 * The hull owns the NIC, the connection and the memory. The program, its child, changes the values.
 * A value that the client reads while the program changes it, or that a killed program left half
 * changed, does not match its check word: the client reads it again.
 */
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rdma/rdma_cma.h>
#include <roost/hull.h>

#define SERVICE "7475"
#define KEYS	1024

struct entry {
	_Atomic uint64_t value, check;
};

struct table {
	_Atomic uint64_t lives;
	struct entry entry[KEYS];
};

/* The server tells a client where the table is, in the private data of its reply. */
struct table_name {
	uint64_t addr;
	uint32_t rkey;
} __attribute__((packed));

static void must(int ok, const char *what)
{
	if (!ok) {
		perror(what);
		exit(1);
	}
}

static uint64_t check_of(uint64_t key, uint64_t value)
{
	return (value ^ key) * 0x9e3779b97f4a7c15u + 1;
}

/* ---- the program ---- */

static void set(struct table *t, uint64_t key, uint64_t value)
{
	t->entry[key].value = value;
	t->entry[key].check = check_of(key, value);
}

static int program(struct roost_hull *hull, void *arg)
{
	struct table *t = arg;

	/* Repairs the value that the previous process left half changed, and continues. */
	for (uint64_t key = 0; key < KEYS; key++)
		set(t, key, t->entry[key].value);
	t->lives++;
	printf("the program is process %d\n", (int)getpid());
	fflush(stdout);
	for (uint64_t n = 0; t->lives; n++) {
		set(t, n % KEYS, t->entry[n % KEYS].value + 1);
		usleep(10);
	}
	return 0;
}

/* ---- the server ---- */

static struct rdma_cm_id *make_id(const char *address, struct ibv_qp_init_attr *qp)
{
	struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP,
				      .ai_flags = address ? 0 : RAI_PASSIVE},
			     *info;
	struct rdma_cm_id *id;

	must(rdma_getaddrinfo(address, SERVICE, &hints, &info) == 0, "finding the address");
	must(rdma_create_ep(&id, info, NULL, qp) == 0, "making an endpoint");
	rdma_freeaddrinfo(info);
	return id;
}

static int serve(void)
{
	struct ibv_qp_init_attr qp = {.cap = {1, 1, 1, 1, 0}, .qp_type = IBV_QPT_RC};
	struct rdma_conn_param param = {.responder_resources = 16, .initiator_depth = 16};
	struct roost_hull *hull = roost_hull_create();
	struct roost_hull_program p = {.run = program};
	struct table_name name;
	struct rdma_cm_id *listener = make_id(NULL, &qp), *id;
	struct ibv_mr *mr;
	int err;

	must(hull != NULL, "making a hull");
	p.arg = roost_hull_memory(hull, "table", sizeof(struct table));
	must(p.arg != NULL, "making the table");
	must(rdma_listen(listener, 1) == 0, "listening");
	printf("waiting for a client\n");
	fflush(stdout);
	must(rdma_get_request(listener, &id) == 0, "waiting for a client");
	mr = ibv_reg_mr(id->pd, p.arg, sizeof(struct table),
			IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
	must(mr != NULL, "registering the table");
	name = (struct table_name){(uintptr_t)p.arg, mr->rkey};
	param.private_data = &name;
	param.private_data_len = sizeof(name);
	must(rdma_accept(id, &param) == 0, "accepting");
	err = roost_hull(hull, &p); /* until this process is killed */
	fprintf(stderr, "the program cannot be started: %s\n", strerror(err));
	return 1;
}

/* ---- the client ---- */

struct client {
	struct rdma_cm_id *id;
	struct ibv_mr *mr;
	struct table_name table;
	uint64_t buf[2];
};

static void take(struct client *c, size_t offset, uint32_t len)
{
	struct ibv_sge sge = {(uintptr_t)c->buf, len, c->mr->lkey};
	struct ibv_send_wr wr = {.sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_RDMA_READ,
				 .send_flags = IBV_SEND_SIGNALED},
			   *bad;
	struct ibv_wc wc;
	int n;

	wr.wr.rdma.remote_addr = c->table.addr + offset;
	wr.wr.rdma.rkey = c->table.rkey;
	must(ibv_post_send(c->id->qp, &wr, &bad) == 0, "posting a READ");
	while ((n = ibv_poll_cq(c->id->send_cq, 1, &wc)) == 0)
		;
	if (n < 0 || wc.status != IBV_WC_SUCCESS) {
		fprintf(stderr, "a READ failed: %s\n", ibv_wc_status_str(wc.status));
		exit(1);
	}
}

static int read_values(const char *address, uint64_t lives)
{
	struct ibv_qp_init_attr qp = {
		.cap = {1, 1, 1, 1, 0}, .qp_type = IBV_QPT_RC, .sq_sig_all = 1};
	struct rdma_conn_param param = {
		.responder_resources = 16, .initiator_depth = 16, .retry_count = 7};
	struct client c = {.id = make_id(address, &qp)};
	uint64_t seen = 0, values = 0, again = 0;

	must(rdma_connect(c.id, &param) == 0, "connecting");
	must(c.id->event->param.conn.private_data_len >= sizeof(c.table), "the server's reply");
	memcpy(&c.table, c.id->event->param.conn.private_data, sizeof(c.table));
	c.mr = ibv_reg_mr(c.id->pd, c.buf, sizeof(c.buf), IBV_ACCESS_LOCAL_WRITE);
	must(c.mr != NULL, "registering memory");
	for (uint64_t n = 0; seen < lives; n++) {
		uint64_t key = n % KEYS;

		take(&c, offsetof(struct table, entry[key]), sizeof(struct entry));
		if (c.buf[1] == check_of(key, c.buf[0]))
			values++;
		else
			again++;
		take(&c, offsetof(struct table, lives), 8);
		seen = c.buf[0];
	}
	printf("%" PRIu64 " lives, every READ succeeded\n", seen);
	fprintf(stderr, "%" PRIu64 " values, %" PRIu64 " of them read again\n", values, again);
	ibv_dereg_mr(c.mr);
	rdma_destroy_ep(c.id);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 1)
		return serve();
	if (argc == 3)
		return read_values(argv[1], strtoull(argv[2], NULL, 10));
	fprintf(stderr, "usage: hull [ADDRESS LIVES]\n");
	return 2;
}
