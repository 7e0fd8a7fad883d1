/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A program that has an address for itself, since the system refuses SO_ATTACH_REUSEPORT_CBPF, has
 * one socket, and the port of one processing unit receives for all. The program polls only the
 * other unit: the service thread serves the first one.
 */
#include "fixture.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#define ATTACH_CBPF 51 /* SO_ATTACH_REUSEPORT_CBPF */
#define ROUNDS	    200

static int refuse_attach(void **state)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_setsockopt, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ATTACH_CBPF, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOPROTOOPT),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = {sizeof(code) / sizeof(code[0]), code};

	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	       prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog);
}

/* The sender is at one unit, the receiver at the other; each in turn is the only one polled. */
static void one_unit_is_polled(void **state)
{
	struct pair p;

	assert_int_equal(setenv("ROOST_PUS", "2", 1), 0);
	assert_int_equal(setenv("VERBS_TEST_PORT", "udp", 1), 0);
	pair_open(&p, NULL);
	for (int side = 0; side < 2; side++) {
		for (uint64_t i = 0; i < ROUNDS; i++) {
			struct ibv_sge sge = {(uintptr_t)p.buf[side], 64, p.mr[side]->lkey};
			struct ibv_send_wr wr = {.wr_id = i,
						 .sg_list = &sge,
						 .num_sge = 1,
						 .opcode = IBV_WR_RDMA_WRITE,
						 .send_flags = IBV_SEND_SIGNALED};

			wr.wr.rdma.remote_addr = (uintptr_t)p.buf[!side];
			wr.wr.rdma.rkey = p.mr[!side]->rkey;
			memset(p.buf[side], (int)i, 64);
			memset(p.buf[!side], ~(int)i, 64);
			assert_int_equal(post_one(p.qp[side], &wr), 0);
			assert_int_equal(wait_good(p.cq[side]).wr_id, i);
			assert_memory_equal(p.buf[side], p.buf[!side], 64);
		}
	}
	pair_close(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_unit_is_polled),
	};

	return cmocka_run_group_tests(tests, refuse_attach, NULL);
}
