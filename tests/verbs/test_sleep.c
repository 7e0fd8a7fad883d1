/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Programs that wait for events outside of the library. They poll a few times in vain, arm the
 * completion queue, perhaps poll once more, and sleep in poll(2) on the channel's descriptor. Each
 * message must wake them. If one does not, the sender's tail loss probe makes the receiver's NIC
 * look, and is counted. A busy machine delays ACKs too, so a few probes are allowed. Most messages
 * need none.
 */
#include "fixture.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "verbs/objects.h"

#define MESSAGES  200
#define IN_VAIN	  10
#define MAX_SENDS 8 /* half of the send queue that pair_open() asks for */

static int sends_outstanding[2]; /* for each side */

static uint64_t probes(struct pair *p)
{
	struct verbs_ctx *ctx = verbs_ctx(p->ctx);
	struct nic_counters c;

	verbs_own_all(ctx->drive);
	nic_counters(ctx->nic, &c);
	verbs_disown_all(ctx->drive);
	return c.tail_loss_probe;
}

static void send_one(struct pair *p, int from)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr = write_wr(p, &sge, 1, 8);

	wr.opcode = IBV_WR_SEND;
	sge.addr = (uintptr_t)p->buf[from];
	sge.lkey = p->mr[from]->lkey;
	assert_int_equal(post_one(p->qp[from], &wr), 0);
	sends_outstanding[from]++;
}

/* Takes the waiting completions. Returns the number of receives among them. */
static int take(struct pair *p, int side)
{
	struct ibv_wc wc;
	int received = 0;

	while (ibv_poll_cq(p->cq[side], 1, &wc) == 1) {
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		if (wc.opcode == IBV_WC_RECV)
			received++;
		else
			sends_outstanding[side]--;
	}
	return received;
}

/*
 * A message may arrive before the sender has seen the previous ACK: on a busy machine the service
 * thread may own the sender's unit and not run. The send queue must not become full.
 */
static void wait_for_send_queue(struct pair *p, int side)
{
	time_t end = time(NULL) + TIMEOUT_S;

	while (sends_outstanding[side] > MAX_SENDS) {
		assert_int_equal(take(p, side), 0);
		assert_true(time(NULL) < end);
	}
}

static void sleep_until_event(struct pair *p)
{
	struct pollfd fd = {.fd = p->channel->fd, .events = POLLIN};
	struct ibv_cq *cq;
	void *ctx;

	assert_int_equal(poll(&fd, 1, TIMEOUT_S * 1000), 1);
	assert_int_equal(ibv_get_cq_event(p->channel, &cq, &ctx), 0);
	ibv_ack_cq_events(cq, 1);
}

/* A message to `side` is on its way. Returns when it has come. */
static void wait_for_message(struct pair *p, int side, int in_vain, bool last_poll)
{
	int received = 0;

	for (int i = 0; i < in_vain && !received; i++)
		received += take(p, side);
	while (!received) {
		assert_int_equal(ibv_req_notify_cq(p->cq[side], 0), 0);
		if (last_poll)
			received += take(p, side);
		if (!received) {
			sleep_until_event(p);
			received += take(p, side);
		}
	}
	assert_int_equal(received, 1);
}

static void ping_pong(struct pair *p, bool last_poll)
{
	uint64_t before = probes(p);

	for (int i = 0; i < MESSAGES; i++) {
		int to = i & 1;

		assert_int_equal(post_recv_one(p, to, 1, 8), 0);
		send_one(p, !to);
		wait_for_message(p, to, i % (IN_VAIN + 1), last_poll);
		take(p, !to);
		wait_for_send_queue(p, !to);
	}
	assert_true(probes(p) - before < MESSAGES / 2);
}

static void poll_arm_sleep(void **state)
{
	struct pair p;

	sends_outstanding[0] = sends_outstanding[1] = 0;
	pair_open(&p, NULL);
	ping_pong(&p, false);
	ping_pong(&p, true);
	pair_close(&p);
}

struct other {
	struct pair *p;
	int side;
	atomic_bool stop;
};

static void *poll_on(void *arg)
{
	struct other *o = arg;
	struct ibv_wc wc;

	while (!atomic_load(&o->stop))
		ibv_poll_cq(o->p->cq[o->side], 0, &wc);
	return NULL;
}

/* The same beside a thread that polls all the time, and after that thread has ended. */
static void beside_a_poller(void **state)
{
	struct other o = {.side = 1};
	struct pair p;
	pthread_t t;

	sends_outstanding[0] = sends_outstanding[1] = 0;
	pair_open(&p, NULL);
	o.p = &p;
	for (int round = 0; round < 4; round++) {
		atomic_store(&o.stop, false);
		assert_int_equal(pthread_create(&t, NULL, poll_on, &o), 0);
		for (int i = 0; i < 20; i++) {
			assert_int_equal(post_recv_one(&p, 1, 1, 8), 0);
			send_one(&p, 0);
			wait_for_message(&p, 1, i % 3, i & 1);
			take(&p, 0);
			wait_for_send_queue(&p, 0);
		}
		atomic_store(&o.stop, true);
		pthread_join(t, NULL);
		for (int i = 0; i < 20; i++) {
			assert_int_equal(post_recv_one(&p, 1, 1, 8), 0);
			send_one(&p, 0);
			wait_for_message(&p, 1, 0, false);
			take(&p, 0);
			wait_for_send_queue(&p, 0);
		}
	}
	pair_close(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(poll_arm_sleep),
		cmocka_unit_test(beside_a_poller),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
