/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Ends of kernels that post work requests, of their queue pairs and of their callers: no memory is
 * used afterwards, and all get a status.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "scene.h"

/* ---- ends ---- */

/* Starts a run with operations in progress on both queue pairs. */
static struct local_call *begin_two(struct told *told)
{
	struct cmd cmds[] = {with(rdma(READ, 0, 0, 0, 4096), false, false, 0),
			     with(rdma(WRITE, 0, 0, 8192, 1000), false, false, 0),
			     with(rdma(WRITE, 1, 0, 8192, 1000), false, false, 0),
			     {.what = WAIT},
			     rdma(WRITE, 0, 0, 0, 1),
			     rdma(WRITE, 1, 0, 0, 1)};

	return start(SCRIPT_OP, cmds, sizeof(cmds), NULL, told, sizeof(*told));
}

static void end_bound(unsigned i)
{
	ep_fini(&s->bound[i]);
	s->bound[i].qp = NULL;
}

static void the_qp_goes(void **state)
{
	for (unsigned how = 0; how < 3; how++) {
		struct told told = {0};
		struct local_call *p;

		open_scene(1, &plain);
		p = begin_two(&told);
		if (how == 0)
			end_bound(0);
		else
			assert_int_equal(
				ep_modify(&s->bound[0],
					  &(struct nic_qp_attr){.state = how == 1 ? NIC_QPS_RESET
										  : NIC_QPS_ERR},
					  NIC_QPA_STATE),
				0);
		finish(p, ROOST_RPC_OK);
		assert_int_equal(told.posted, 5);
		assert_int_equal(told.status[0], ROOST_QP_FLUSHED);
		assert_int_equal(told.status[1], ROOST_QP_FLUSHED);
		assert_int_equal(told.status[2], ROOST_QP_OK);
		assert_int_equal(told.status[3], how == 0 ? ROOST_QP_NONE : ROOST_QP_STATE);
		assert_int_equal(told.status[4], ROOST_QP_OK);
		close_scene();
	}
}

/* A run that waits for space at a queue pair that is destroyed gets a status. */
static void the_full_qp_goes(void **state)
{
	struct local_call *run[80];
	struct told told[80];
	struct cmd cmds[33];

	open_scene(1, &plain);
	for (unsigned i = 0; i < 32; i++)
		cmds[i] = with(rdma(WRITE, 0, 0, 0, 8), false, false, 0);
	cmds[32] = (struct cmd){.what = WAIT};
	for (unsigned k = 0; k < 80; k++)
		run[k] = start(SCRIPT_OP, cmds, sizeof(cmds), NULL, &told[k], sizeof(told[k]));
	end_bound(0);
	for (unsigned k = 0; k < 80; k++) {
		finish(run[k], ROOST_RPC_OK);
		assert_int_equal(told[k].failed, 32);
		assert_int_equal(told[k].status[31], k < 2 ? ROOST_QP_FLUSHED : ROOST_QP_NONE);
	}
	close_scene();
}

/* A run is given up: its memory remains until its operations are done; then cut() is called. */
static void given_up(void **state)
{
	struct runtime_kernel_info info;
	struct told told;
	struct local_call *p;

	open_scene(1, &plain);
	p = begin_two(&told);
	local_call_free(p);
	assert_int_equal(cuts, 0);
	assert_true(runtime_kernel_info(s->f, 0, &info));
	assert_int_equal(info.in_flight, 1);
	assert_int_equal(runtime_undeploy(s->f, SCRIPT_OP), -EBUSY);
	while (turn())
		;
	assert_int_equal(cuts, 1);
	assert_true(runtime_kernel_info(s->f, 0, &info));
	assert_int_equal(info.in_flight, 0);
	/* A run that does not wait yet, and one that has ended. */
	p = begin_two(&told);
	while (turn())
		;
	local_call_free(p);
	assert_int_equal(cuts, 1);
	p = begin_two(&told);
	local_call_free(p);
	assert_int_equal(runtime_unload(s->f, SCRIPT_OP), 0);
	/* The other operations end with the queue pairs. */
	close_scene();
	assert_int_equal(cuts, 2);
}

static unsigned stops;

static void note_stop(void *self)
{
	stops++;
}

static void replaced_meanwhile(void **state)
{
	static struct roost_kernel old, new;
	struct told told;
	struct local_call *p;

	stops = 0;
	open_scene(1, &plain);
	assert_int_equal(runtime_undeploy(s->f, SCRIPT_OP), 0);
	old = script_kernel;
	old.stop = note_stop;
	new = old;
	new.version = 2;
	assert_int_equal(runtime_deploy(s->f, &old, NULL), 0);
	bind_qp(SCRIPT_OP, &s->bound[0], 1);
	bind_qp(SCRIPT_OP, &s->bound[1], 2);
	p = begin_two(&told);
	{
		struct kernel_version *n;

		assert_int_equal(
			runtime_prepare(s->f,
					&(struct runtime_registration){.k = &new, .replace = true},
					&n),
			0);
		runtime_publish(s->f, n);
	}
	finish(p, ROOST_RPC_OK);
	assert_int_equal(told.failed, 0);
	assert_int_equal(stops, 0);
	runtime_reap(s->f);
	assert_int_equal(stops, 1);
	/* The binding applied to all versions. */
	told = PLAY(NULL, rdma(WRITE, 1, 0, 0, 1));
	assert_int_equal(told.failed, 0);
	close_scene();
	assert_int_equal(stops, 2);
}

/* ---- called by a peer ---- */

#define REPLY 65536u /* of the caller's memory */

static void call_kernel(uint64_t op, const struct cmd *cmds, unsigned n, uint16_t mark)
{
	uint8_t *params = s->caller.mem + 4096;
	struct roost_rpc_head head = {.reply_addr = (uintptr_t)s->caller.mem + REPLY,
				      .reply_rkey = s->caller.key,
				      .reply_len = sizeof(struct told) + 8,
				      .mark = mark};

	memcpy(params, &head, sizeof(head));
	if (n)
		memcpy(params + sizeof(head), cmds, n * sizeof(*cmds));
	ep_post(&s->caller,
		&(struct wr){.op = ROOST_OP_RPC,
			     .sge = {ep_sge(&s->caller, 4096,
					    (uint32_t)(sizeof(head) + n * sizeof(*cmds)))},
			     .num_sge = 1,
			     .raddr = op,
			     .rkey = s->called.key});
}

static void call_script(const struct cmd *cmds, unsigned n, uint16_t mark)
{
	call_kernel(SCRIPT_OP, cmds, n, mark);
}

static struct told answer(uint16_t mark)
{
	const uint8_t *at = s->caller.mem + REPLY;
	struct roost_rpc_tail tail;
	struct told told;

	do {
		assert_true(turn());
		memcpy(&tail, at + sizeof(told), sizeof(tail));
	} while (tail.mark != mark);
	assert_int_equal(tail.status, ROOST_RPC_OK);
	memcpy(&told, at, sizeof(told));
	return told;
}

static void called(void **state)
{
	const struct shape *shapes[] = {&plain, &over_loop};

	for (unsigned i = 0; i < 2; i++) {
		struct roost_sge sge;
		struct roost_cqe cqe;
		struct told told;
		unsigned number;

		open_scene(1, shapes[i]);
		/* To another queue pair, and to the one on which the call arrived. */
		assert_int_equal(runtime_bind_qp(s->f, SCRIPT_OP, s->called.qp,
						 &(struct runtime_qp_limits){0}, &number),
				 0);
		assert_int_equal(number, 3);
		sge = ep_sge(&s->caller, 0, 1000);
		ep_post_recv(&s->caller, 5, &sge, 1);
		memset(s->called.mem + 16, 'c', 500);
		call_script((const struct cmd[]){fill(0, 'z', 1000),
						 rdma(WRITE, 1, 0, 0, 1000),
						 {.what = SEND, .then = 1, .qp = 3, .len = 700},
						 {.what = SEND, .then = 1, .qp = 9, .len = 1},
						 /*
				 * Its region is of another protection domain than these queue
				 * pairs.
				 */
						 with(rdma(WRITE, 1, 0, 0, 8), true, true,
						      (uintptr_t)s->called.mem)},
			    5, 1);
		told = answer(1);
		assert_int_equal(told.posted, 4);
		assert_int_equal(told.failed, 2);
		assert_int_equal(told.qps, 3);
		assert_int_equal(told.status[2], ROOST_QP_NONE);
		assert_int_equal(told.status[3], ROOST_QP_LOCAL);
		filled(s->peer[1].mem, 'z', 1000);
		assert_true(ep_wait_recv(&s->caller, &cqe, SEC));
		assert_int_equal(cqe.byte_len, 700);
		filled(s->caller.mem, 'z', 700);
		/* Its own region is usable, within the rights of the call. */
		call_script((const struct cmd[]){{.what = WRITE,
						  .then = 1,
						  .qp = 3,
						  .region = 1,
						  .raddr = (uintptr_t)s->caller.mem + 2000,
						  .rkey = s->caller.key,
						  .at = (uintptr_t)s->called.mem + 16,
						  .len = 500}},
			    1, 2);
		told = answer(2);
		assert_int_equal(told.failed, 0);
		filled(s->caller.mem + 2000, 'c', 500);
		close_scene();
	}
}

/* The call's connection ends while operations are in progress on other queue pairs. */
static void the_caller_goes(void **state)
{
	for (unsigned how = 0; how < 2; how++) {
		struct runtime_kernel_info info;

		open_scene(1, &plain);
		call_script((const struct cmd[]){fill(0, 'q', 4000), rdma(WRITE, 1, 0, 0, 4000)}, 2,
			    1);
		do {
			assert_true(turn());
			assert_true(runtime_kernel_info(s->f, 0, &info));
		} while (!info.in_flight || !nic_kernel_wrs(s->bound[1].qp));
		if (how)
			assert_int_equal(ep_modify(&s->called,
						   &(struct nic_qp_attr){.state = NIC_QPS_RESET},
						   NIC_QPA_STATE),
					 0);
		else
			ep_fini(&s->called);
		assert_int_equal(cuts, 0);
		while (nic_kernel_wrs(s->bound[1].qp))
			assert_true(turn());
		assert_int_equal(cuts, 1);
		filled(s->peer[1].mem, 'q', 4000);
		assert_true(runtime_kernel_info(s->f, 0, &info));
		assert_int_equal(info.in_flight, 0);
		runtime_reap(s->f);
		if (!how) { /* so that the scene is closed as others */
			struct ep_params p = {.rpc = true, .mem = MEM};

			ep_init(&s->called, &s->w, 0, &p);
		}
		close_scene();
	}
}

/* ---- resources of the caller ---- */

static unsigned keepers_ended;

static enum roost_next keep(struct roost_call *c)
{
	return roost_reply(c, roost_take(c) ? ROOST_RPC_OK : ROOST_RPC_FAILED, NULL, 0);
}

static void keeper_ended(void *self, uint32_t number)
{
	keepers_ended++;
}

static const struct roost_kernel keeper_kernel = {.abi = ROOST_KERNEL_ABI,
						  .version = 1,
						  .name = "keeper",
						  .op = 0x1001,
						  .params = keep,
						  .resources = 1,
						  .ended = keeper_ended};

static int drop_peer_1(void *ctx, const struct pkt_addr *src, const uint8_t *bth, uint32_t len)
{
	return pkt_addr_eq(src, ep_addr(&s->peer[1]));
}

/*
 * A connection has a resource, and one of its calls ends before its operations. The resource ends
 * with the connection.
 */
static void resources_of_a_caller(void **state)
{
	struct cmd later = with(rdma(WRITE, 1, 0, 0, 1000), false, false, 0);
	struct runtime_kernel_info info;

	open_scene(1, &plain);
	assert_int_equal(runtime_deploy(s->f, &keeper_kernel, NULL), 0);
	keepers_ended = 0;
	call_kernel(0x1001, NULL, 0, 1);
	while (turn())
		;
	assert_true(runtime_kernel_info(s->f, 1, &info));
	assert_int_equal(info.resources, 1);
	sim_set_filter(s->w.sim, drop_peer_1, NULL);
	call_script(&later, 1, 2);
	assert_int_equal(answer(2).done, 0);
	world_run(&s->w, world_now(&s->w) + MSEC); /* the reply is acknowledged */
	sim_set_filter(s->w.sim, NULL, NULL);
	while (turn())
		;
	assert_true(runtime_kernel_info(s->f, 0, &info));
	assert_int_equal(info.in_flight, 0);
	assert_int_equal(keepers_ended, 0);
	assert_int_equal(
		ep_modify(&s->called, &(struct nic_qp_attr){.state = NIC_QPS_ERR}, NIC_QPA_STATE),
		0);
	assert_int_equal(keepers_ended, 1);
	assert_true(runtime_kernel_info(s->f, 1, &info));
	assert_int_equal(info.resources, 0);
	close_scene();
}

/* ---- binding ---- */

static void rules_of_binding(void **state)
{
	struct ep_params uc = {.type = NIC_QPT_UC};
	struct ep extra[ROOST_KERNEL_QPS], other;
	unsigned number;

	open_scene(1, &plain);
	assert_int_equal(runtime_bind_qp(s->f, 0x999, s->bound[0].qp,
					 &(struct runtime_qp_limits){0}, &number),
			 -ENOENT);
	ep_init(&other, &s->w, 0, &uc);
	assert_int_equal(
		runtime_bind_qp(s->f, SCRIPT_OP, other.qp, &(struct runtime_qp_limits){0}, &number),
		-EOPNOTSUPP);
	ep_fini(&other);
	for (unsigned i = 2; i < ROOST_KERNEL_QPS; i++) {
		ep_init(&extra[i], &s->w, 0, &(struct ep_params){0});
		bind_qp(SCRIPT_OP, &extra[i], i + 1);
	}
	ep_init(&other, &s->w, 0, &(struct ep_params){0});
	assert_int_equal(
		runtime_bind_qp(s->f, SCRIPT_OP, other.qp, &(struct runtime_qp_limits){0}, &number),
		-ENOSPC);
	/* The number of a queue pair that is gone is reused. */
	ep_fini(&extra[7]);
	bind_qp(SCRIPT_OP, &other, 8);
	for (unsigned i = 2; i < ROOST_KERNEL_QPS; i++)
		if (i != 7)
			ep_fini(&extra[i]);
	ep_fini(&other);
	close_scene();
}

/* Binding a queue pair while its program's requests are in progress: they are kept. */
static void bound_in_mid_flight(void **state)
{
	struct roost_cqe cqe;
	struct ep a, b;
	unsigned number;

	open_scene(1, &plain);
	ep_init(&a, &s->w, 0, &(struct ep_params){.psn = 5});
	ep_init(&b, &s->w, 1, &(struct ep_params){0});
	ep_connect(&a, &b);
	memset(a.mem, 'm', 65536);
	for (unsigned i = 0; i < 40; i++) {
		struct wr wr = wr_rdma(ROOST_OP_WRITE, &a, i * 1024, 1024, &b, i * 1024);

		wr.wr_id = i;
		ep_post(&a, &wr);
		if (i % 8 == 7)
			turn();
	}
	assert_int_equal(
		runtime_bind_qp(s->f, SCRIPT_OP, a.qp, &(struct runtime_qp_limits){0}, &number), 0);
	for (unsigned i = 0; i < 40; i++) {
		assert_true(ep_wait_send(&a, &cqe, SEC));
		assert_int_equal(cqe.wr_id, i);
		assert_int_equal(cqe.status, NIC_WC_SUCCESS);
	}
	filled(b.mem, 'm', 40960);
	ep_fini(&a);
	ep_fini(&b);
	close_scene();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_qp_goes),
		cmocka_unit_test(the_full_qp_goes),
		cmocka_unit_test(given_up),
		cmocka_unit_test(replaced_meanwhile),
		cmocka_unit_test(called),
		cmocka_unit_test(the_caller_goes),
		cmocka_unit_test(rules_of_binding),
		cmocka_unit_test(bound_in_mid_flight),
		cmocka_unit_test(resources_of_a_caller),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
