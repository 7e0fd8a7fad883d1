/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Registered memory that is not accessible any more: unmapped, made read-only, its file truncated,
 * or unmapped from some byte on. Accesses by a peer over the link, a peer on the same NIC, or the
 * QP's own requests get an error, and the process continues.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

#include "fault.h"
#include "world.h"

#define PAGE 65536 /* of any machine, or several of its pages */
#define LEN  3000

enum how { UNMAPPED, READ_ONLY, CUT_SHORT, HALF_GONE, HOWS };
static const char *const how_names[] = {"unmapped", "read-only", "cut short", "half gone"};

static const enum roost_op ops[] = {ROOST_OP_WRITE, ROOST_OP_WRITE_IMM, ROOST_OP_SEND,
				    ROOST_OP_READ,  ROOST_OP_CMP_SWAP,	ROOST_OP_FETCH_ADD};

struct region {
	uint8_t *mem;
	uint32_t key;
	int fd;
};

static struct region make_region(struct ep *e)
{
	struct region g = {.fd = memfd_create("gone", 0)};
	struct nic_mr_attr m = {.pd = e->pd, .len = 2 * PAGE, .access = 15};

	assert_true(g.fd >= 0);
	assert_int_equal(ftruncate(g.fd, 2 * PAGE), 0);
	g.mem = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, g.fd, 0);
	assert_true(g.mem != MAP_FAILED);
	m.addr = g.mem;
	m.iova = (uintptr_t)g.mem;
	assert_int_equal(nic_mr_register(e->nic, &m, &g.key), 0);
	return g;
}

static void make_gone(struct region *g, enum how how)
{
	switch (how) {
	case UNMAPPED:
		assert_int_equal(munmap(g->mem, 2 * PAGE), 0);
		break;
	case READ_ONLY:
		assert_int_equal(mprotect(g->mem, 2 * PAGE, PROT_READ), 0);
		break;
	case CUT_SHORT:
		assert_int_equal(ftruncate(g->fd, 0), 0);
		break;
	case HALF_GONE:
		assert_int_equal(mprotect(g->mem + PAGE, PAGE, PROT_NONE), 0);
		break;
	case HOWS:
		break;
	}
}

static void drop_region(struct ep *e, struct region *g, enum how how)
{
	assert_int_equal(nic_mr_deregister(e->nic, g->key), 0);
	if (how != UNMAPPED)
		munmap(g->mem, 2 * PAGE);
	close(g->fd);
}

static bool is_atomic(enum roost_op op)
{
	return op == ROOST_OP_CMP_SWAP || op == ROOST_OP_FETCH_ADD;
}

/* Returns whether the operation writes to the region, at its remote or local side. */
static bool writes(enum roost_op op, bool remote)
{
	if (is_atomic(op))
		return true;
	return (op == ROOST_OP_READ) != remote;
}

static void one(enum roost_op op, bool remote, enum how how, bool loop, bool inl, uint32_t mtu)
{
	struct ep_params p = {.mtu = mtu, .max_inline = 64};
	uint32_t len = is_atomic(op) ? 8 : inl ? 40 : LEN;
	/* In the unmapped half, or before it, so that a packet's copy crosses the border. */
	uint32_t off = is_atomic(op) ? PAGE : how == HALF_GONE ? PAGE - 100 : 8;
	bool fine = how == READ_ONLY && !writes(op, remote);
	uint8_t data[64] = {1};
	struct roost_sge sge;
	struct nic_counters ca, cb;
	struct roost_cqe c;
	struct region g;
	struct world w;
	struct ep a, b;
	struct wr wr;
	unsigned want;

	if (inl)
		off = how == HALF_GONE ? PAGE - 20 : 8;
	world_init(&w, 2, 1, NULL);
	ep_init(&a, &w, 0, &p);
	ep_init(&b, &w, loop ? 0 : 1, &p);
	ep_connect(&a, &b);
	g = make_region(remote ? &b : &a);
	wr = wr_rdma(op, &a, 0, len, &b, 0);
	if (inl) {
		wr.inl = data;
		wr.inline_len = len;
	}
	sge = ep_sge(&b, 0, 8192);
	if (remote && op == ROOST_OP_SEND) {
		sge = (struct roost_sge){(uintptr_t)g.mem + off, len, g.key};
	} else if (remote) {
		wr.raddr = (uintptr_t)g.mem + off;
		wr.rkey = g.key;
	} else {
		wr.sge[0] = (struct roost_sge){(uintptr_t)g.mem + off, len, g.key};
	}
	ep_post_recv(&b, 5, &sge, 1);
	make_gone(&g, how);
	ep_post(&a, &wr);
	assert_true(ep_wait_send(&a, &c, 10 * SEC));
	want = fine ? NIC_WC_SUCCESS : remote ? NIC_WC_REM_OP_ERR : NIC_WC_LOC_PROT_ERR;
	if (c.status != want) {
		print_error("op %d, %s memory %s%s: status %u, not %u\n", op,
			    remote ? "remote" : "local", how_names[how], loop ? ", loop-back" : "",
			    c.status, want);
		fail();
	}
	nic_counters(a.nic, &ca);
	nic_counters(b.nic, &cb);
	assert_int_equal(fine ? 0 : 1, (remote ? cb : ca).memory_faults);
	assert_int_equal(nic_qp_state(a.qp), fine ? NIC_QPS_RTS : NIC_QPS_ERR);
	if (!fine && remote) {
		assert_int_equal(nic_qp_state(b.qp), NIC_QPS_ERR);
		assert_true(b.events & 1u << NIC_EVENT_QP_FATAL);
		assert_true(ep_poll_recv(&b, &c));
		assert_int_equal(c.status,
				 op == ROOST_OP_SEND ? NIC_WC_LOC_PROT_ERR : NIC_WC_WR_FLUSH_ERR);
		if (op == ROOST_OP_SEND)
			assert_int_equal(cb.resp_local_protection_error, 1);
	}
	drop_region(remote ? &b : &a, &g, how);
	ep_fini(&a);
	ep_fini(&b);
	world_fini(&w);
}

static void every_access(bool loop, uint32_t mtu)
{
	faults_ours();
	for (unsigned o = 0; o < sizeof(ops) / sizeof(ops[0]); o++)
		for (int how = 0; how < HOWS; how++) {
			one(ops[o], true, (enum how)how, loop, false, mtu);
			one(ops[o], false, (enum how)how, loop, false, mtu);
			if (ops[o] == ROOST_OP_WRITE || ops[o] == ROOST_OP_SEND)
				one(ops[o], true, (enum how)how, loop, true, mtu);
		}
}

static void over_the_link(void **state)
{
	every_access(false, 1024);
	/* Long payload is copied in one pass with its CRC. */
	every_access(false, 4096);
}

static void loop_back(void **state)
{
	every_access(true, 1024);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(over_the_link),
		cmocka_unit_test(loop_back),
	};

	faults_save();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
