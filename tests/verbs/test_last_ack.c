/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A program learns from its peer, not by a packet of the connection, that the peer has the last
 * message, and ends the connection at once. The message has been acknowledged by then, so its
 * completion is a success, although the NIC may not have looked at the ACK yet. Connection
 * management does the same: its messages take another way than packets through shared memory.
 *
 * Over udp, Linux may deliver a datagram after the system call that sent it, if a thread of the
 * kernel does this work (ksoftirqd, on a busy machine). The pipe is then faster than the ACK.
 */
#include "side.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define TIMES	  50
#define LATE_MOST 2 /* ACKs over udp that may arrive after the bytes of the pipe */

static uint8_t buf[64];

static void end(struct side *s)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

	assert_int_equal(ibv_modify_qp(s->qp, &attr, IBV_QP_STATE), 0);
}

static void receiver(int in, int out)
{
	struct ibv_recv_wr recv = {.num_sge = 1}, *bad;
	struct ibv_sge sge = {(uintptr_t)buf, sizeof(buf), 0};
	static struct side s;

	choose_port(true);
	recv.sg_list = &sge;
	for (int i = 0; i < TIMES; i++) {
		side_open(&s, buf, sizeof(buf), 0, in, out);
		sge.lkey = s.mr->lkey;
		assert_int_equal(ibv_post_recv(s.qp, &recv, &bad), 0);
		assert_int_equal(write(out, "r", 1), 1);
		assert_int_equal(side_wc(&s).status, IBV_WC_SUCCESS);
		end(&s);
		assert_int_equal(write(out, "e", 1), 1);
		side_close(&s);
	}
	_exit(0);
}

static bool over_udp(void)
{
	const char *port = getenv("VERBS_TEST_PORT");

	return !port || strcmp(port, "udp") == 0;
}

static void the_last_message_completes(void **state)
{
	unsigned late = 0, most = over_udp() ? LATE_MOST : 0;
	struct ibv_send_wr send = {.opcode = IBV_WR_SEND,
				   .send_flags = IBV_SEND_SIGNALED,
				   .num_sge = 1},
			   *bad;
	struct ibv_sge sge = {(uintptr_t)buf, sizeof(buf), 0};
	int there[2], back[2], status;
	static struct side s;
	char byte;
	pid_t pid;

	assert_int_equal(pipe(there), 0);
	assert_int_equal(pipe(back), 0);
	pid = fork();
	if (pid == 0) {
		alarm(4 * TIMEOUT_S);
		receiver(there[0], back[1]);
	}
	send.sg_list = &sge;
	for (int i = 0; i < TIMES; i++) {
		side_open(&s, buf, sizeof(buf), 0, back[0], there[1]);
		sge.lkey = s.mr->lkey;
		assert_int_equal(read(back[0], &byte, 1), 1);
		assert_int_equal(ibv_post_send(s.qp, &send, &bad), 0);
		assert_int_equal(read(back[0], &byte, 1), 1);
		end(&s);
		late += side_wc(&s).status != IBV_WC_SUCCESS;
		side_close(&s);
	}
	assert_in_range(late, 0, most);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_last_message_completes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
