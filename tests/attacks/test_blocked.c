/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A program blocks all signals, drives the NIC by its polls, and unmaps registered memory. A work
 * request that uses this memory must fail, and the process must not end. Usually the NIC runs on
 * the program's thread, because the program polls; sometimes the service thread is first, which
 * never blocks these signals. So several processes do the same.
 */
#include "../verbs/fixture.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROCESSES 16

static void program(void)
{
	struct ibv_send_wr wr;
	struct ibv_wc wc = {0};
	struct ibv_sge sge;
	struct ibv_mr *mr;
	struct pair p;
	sigset_t all;
	void *gone;

	for (int i = 0; i < 4; i++)
		signal((const int[]){SIGSEGV, SIGBUS, SIGFPE, SIGILL}[i], SIG_DFL);
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, NULL);
	pair_open(&p, NULL);
	gone = mmap(NULL, BUF_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	mr = ibv_reg_mr(p.pd, gone, BUF_SIZE, 0);
	assert_non_null(mr);
	wr = write_wr(&p, &sge, 1, 4096);
	sge.addr = (uintptr_t)gone;
	sge.lkey = mr->lkey;
	wr.send_flags = IBV_SEND_SIGNALED;
	munmap(gone, BUF_SIZE);
	assert_int_equal(post_one(p.qp[0], &wr), 0);
	wait_wcs(p.cq[0], &wc, 1);
	assert_int_equal(wc.status, IBV_WC_LOC_PROT_ERR);
}

static void unmapped_with_signals_blocked(void **state)
{
	pid_t child;
	int status;

	for (int i = 0; i < PROCESSES; i++) {
		child = fork();
		if (child == 0) {
			program();
			_exit(0);
		}
		assert_int_equal(waitpid(child, &status, 0), child);
		if (status)
			fail_msg("process %d: wait status 0x%x", i, status);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(unmapped_with_signals_blocked)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
