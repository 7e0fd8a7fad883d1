/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fork() with connections, as servers do. The parent's connections stay with the parent and
 * continue. The child inherits only memory, and connects by a NIC of its own.
 */
#include "../common/threads_settle.h"
#include "fixture.h"

#include <sys/wait.h>
#include <unistd.h>

#include "verbs/private.h"

static int in_child(struct pair *inherited)
{
	union address at = ours(7);
	struct pair p;

	/* The child must not change the parent's objects, but may destroy its copies. */
	if (rdma_bind_addr(inherited->listen, &at.sa) != -1 || errno != EINVAL)
		return 2;
	if (rdma_disconnect(inherited->active) != -1 || errno != EINVAL)
		return 3;
	if (rdma_destroy_id(inherited->listen))
		return 4;
	if (!quiet(inherited->lch))
		return 5;
	choose_port(true);
	pair_open(&p, RDMA_PS_TCP);
	send_text(p.active, p.passive, "of the child");
	hang_up(&p, p.active, p.passive);
	pair_close(&p);
	return 0;
}

static void parent_and_child_have_connections_of_their_own(void **state)
{
	struct pair p;
	pid_t pid;
	int status;

	pair_open(&p, RDMA_PS_TCP);
	send_text(p.active, p.passive, "before");
	for (int i = 0; i < 3; i++) {
		threads_settle();
		pid = fork();
		assert_true(pid >= 0);
		if (!pid)
			_exit(in_child(&p));
		send_text(p.passive, p.active, "meanwhile");
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_true(WIFEXITED(status));
		assert_int_equal(WEXITSTATUS(status), 0);
		assert_true(quiet(p.ach));
		assert_true(quiet(p.lch));
		send_text(p.active, p.passive, "after");
	}
	hang_up(&p, p.active, p.passive);
	pair_close(&p);
}

/* A process that ends disconnects, so that its peer need not wait for time-outs. */
static void a_peer_that_exits_disconnects(void **state)
{
	struct rdma_event_channel *ch = channel();
	struct rdma_cm_id *l = listener(ch, RDMA_PS_TCP, any(0), 0);
	union address to = ours(port_of(l));
	struct rdma_conn_param param = {.qp_num = 5};
	struct rdma_cm_event *e;
	struct rdma_cm_id *id;
	int status;
	pid_t pid;

	threads_settle();
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		struct rdma_event_channel *mine;

		choose_port(true);
		mine = channel();
		if (rdma_create_id(mine, &id, NULL, RDMA_PS_TCP) ||
		    rdma_resolve_addr(id, NULL, &to.sa, 100))
			_exit(2);
		expect(mine, RDMA_CM_EVENT_ADDR_RESOLVED);
		if (rdma_resolve_route(id, 100))
			_exit(3);
		expect(mine, RDMA_CM_EVENT_ROUTE_RESOLVED);
		if (rdma_connect(id, &param))
			_exit(4);
		rdma_ack_cm_event(next_event(mine, RDMA_CM_EVENT_CONNECT_RESPONSE));
		if (rdma_establish(id))
			_exit(5);
		exit(0);
	}
	e = next_event(ch, RDMA_CM_EVENT_CONNECT_REQUEST);
	id = e->id;
	param.qp_num = 6;
	assert_int_equal(rdma_accept(id, &param), 0);
	rdma_ack_cm_event(e);
	assert_int_equal(expect(ch, RDMA_CM_EVENT_ESTABLISHED), 0);
	assert_int_equal(expect(ch, RDMA_CM_EVENT_DISCONNECTED), 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	rdma_destroy_id(id);
	rdma_destroy_id(l);
	rdma_destroy_event_channel(ch);
}

/*
 * exit() in a signal handler that interrupts a turn of the NIC: the program ends without the
 * datagrams that would disconnect.
 */
static void exit_inside_a_turn_ends(void **state)
{
	struct pair p;
	int status;
	pid_t pid;

	threads_settle();
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		alarm(WAIT_MS / 1000); /* ends a child that hangs */
		choose_port(true);
		pair_open(&p, RDMA_PS_TCP);
		drive_own(verbs_drive(p.active->verbs), 0);
		exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(parent_and_child_have_connections_of_their_own),
		cmocka_unit_test(a_peer_that_exits_disconnects),
		cmocka_unit_test(exit_inside_a_turn_ends),
	};

	return RUN(tests);
}
