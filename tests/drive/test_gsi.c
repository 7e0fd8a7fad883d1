/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * QP 1 in the drive: the service thread delivers datagrams and timers to the user, floods are
 * bounded, and nothing is delivered after closing.
 */
#include "harness.h"

#define QUEUE 1024 /* the drive's bound on waiting datagrams */

struct user {
	struct drive *d;
	atomic_uint inputs, expires, fired, sum;
	_Atomic uint64_t due;
	atomic_bool answer; /* send one for each received */
	atomic_bool hold;   /* input() waits */
	atomic_bool waited; /* it has waited */
	_Atomic uintptr_t thread;
	atomic_uint gone, gone_sum, lost;
	_Atomic uint64_t lost_sum;
	/* written by the service thread: the lock of ops_with_lock */
	bool locked;
	unsigned sent_before,
		inside; /* answers that had left, and calls of input(), since begin() */
	atomic_uint locks, most;
};

static void input(void *ctx, unsigned port, const struct pkt_addr *src, const struct pkt_addr *dst,
		  const uint8_t *mad)
{
	struct user *u = ctx;

	for (unsigned i = 1; i < NIC_GSI_LEN; i++) {
		if (mad[i] != mad[0])
			abort();
	}
	while (atomic_load(&u->hold)) {
		atomic_store(&u->waited, true);
		harness_sleep_ms(1);
	}
	atomic_store(&u->thread, (uintptr_t)pthread_self());
	if (atomic_load(&u->answer) && drive_gsi_send(u->d, port, src, 0, mad))
		abort();
	atomic_fetch_add(&u->sum, mad[0]);
	atomic_fetch_add(&u->inputs, 1);
}

static uint64_t expire(void *ctx, uint64_t now)
{
	struct user *u = ctx;
	uint64_t due = atomic_load(&u->due);

	atomic_fetch_add(&u->expires, 1);
	if (due <= now) {
		due = UINT64_MAX;
		atomic_store(&u->due, due);
		atomic_fetch_add(&u->fired, 1);
	}
	return due;
}

static void gone(void *ctx, const uint32_t *qpns, unsigned n)
{
	struct user *u = ctx;

	for (unsigned i = 0; i < n; i++) {
		if (i && qpns[i] <= qpns[i - 1])
			abort();
		atomic_fetch_add(&u->gone_sum, qpns[i]);
		atomic_fetch_add(&u->gone, 1);
	}
}

static void lost(void *ctx, const struct pkt_addr *dst, uint64_t tid)
{
	struct user *u = ctx;

	atomic_fetch_add(&u->lost_sum, tid + dst->b[15]);
	atomic_fetch_add(&u->lost, 1);
}

static const struct drive_gsi_ops ops = {
	.input = input, .expire = expire, .lost = lost, .gone = gone};

static void begin(void *ctx)
{
	struct user *u = ctx;

	if (u->locked)
		abort();
	u->locked = true;
	u->inside = 0;
	u->sent_before = atomic_load(&drive_nic(u->d)->gsi_sent);
}

static void input_with_lock(void *ctx, unsigned port, const struct pkt_addr *src,
			    const struct pkt_addr *dst, const uint8_t *mad)
{
	struct user *u = ctx;

	if (!u->locked)
		abort();
	u->inside++;
	input(ctx, port, src, dst, mad);
}

static void end(void *ctx)
{
	struct user *u = ctx;

	if (!u->locked || !u->inside || atomic_load(&drive_nic(u->d)->gsi_sent) != u->sent_before)
		abort();
	u->locked = false;
	if (u->inside > atomic_load(&u->most))
		atomic_store(&u->most, u->inside);
	atomic_fetch_add(&u->locks, 1);
}

static const struct drive_gsi_ops ops_with_lock = {
	.begin = begin, .end = end, .input = input_with_lock, .expire = expire};

/* Datagrams that found no NIC are reported, as QPs are below. */
static void datagrams_are_lost(void **state)
{
	struct user u = {.d = *state, .due = UINT64_MAX};
	struct pkt_addr dst = {.b = {[15] = 100}};
	struct nic *nic = drive_nic(*state);

	nic->cfg.ops->gsi_lost(nic->cfg.host, &dst, 1000);
	assert_int_equal(drive_gsi_open(*state, &ops, &u), 0);
	for (unsigned i = 1; i <= 10; i++) {
		nic->cfg.ops->gsi_lost(nic->cfg.host, &dst, i);
		assert_true(fake_reached(&u.lost, i));
	}
	assert_int_equal(atomic_load(&u.lost_sum), 1055);
	drive_gsi_close(*state);
	nic->cfg.ops->gsi_lost(nic->cfg.host, &dst, 1000);
	assert_int_equal(atomic_load(&u.lost), 10);
}

/*
 * The service thread reports QPs that the core ended. There is no report before a user opens, or
 * after it closes.
 */
static void peers_go(void **state)
{
	struct user u = {.d = *state, .due = UINT64_MAX};
	struct nic *nic = drive_nic(*state);

	nic->cfg.ops->peer_gone(nic->cfg.host, 1000);
	assert_int_equal(drive_gsi_open(*state, &ops, &u), 0);
	for (unsigned i = 1; i <= 10; i++) {
		nic->cfg.ops->peer_gone(nic->cfg.host, i * 16);
		assert_true(fake_reached(&u.gone, i));
	}
	assert_int_equal(atomic_load(&u.gone_sum), 55 * 16);
	drive_gsi_close(*state);
	nic->cfg.ops->peer_gone(nic->cfg.host, 1000);
	assert_int_equal(atomic_load(&u.gone), 10);
}

/*
 * A dead peer had the connections of many QPs, which end in one turn, while the service thread
 * waits for the PU. Each QP is reported, once. The numbers of two slots have other indexes.
 */
static void many_peers_go_at_once(void **state)
{
	const unsigned n = NIC_MAX_QPS, slot = 3u << 18;
	struct user u = {.d = *state, .due = UINT64_MAX};
	struct nic *nic = drive_nic(*state);
	unsigned sum = 0;

	assert_int_equal(drive_gsi_open(*state, &ops, &u), 0);
	drive_own(*state, 0);
	for (unsigned i = 0; i < n; i++) {
		unsigned qpn = (i % 2 ? slot : 0) | (n - 1 - i) * 16 | i % 16;

		sum += qpn;
		nic->cfg.ops->peer_gone(nic->cfg.host, qpn);
	}
	drive_disown(*state, 0);
	assert_true(fake_reached(&u.gone, n));
	drive_gsi_close(*state);
	assert_int_equal(atomic_load(&u.gone), n);
	assert_int_equal(atomic_load(&u.gone_sum), sum);
}

static void datagrams_come(void **state)
{
	struct user u = {.d = *state, .due = UINT64_MAX, .answer = true};

	assert_int_equal(drive_gsi_open(*state, &ops, &u), 0);
	assert_int_equal(drive_gsi_open(*state, &ops, &u), -EBUSY);
	for (unsigned i = 1; i <= 100; i++) {
		fake_datagram(*state, 3);
		assert_true(fake_reached(&u.inputs, i));
		if (i % 25 == 0)
			harness_sleep_ms(2); /* until the service thread sleeps */
	}
	assert_int_equal(atomic_load(&u.sum), 300);
	assert_true(fake_reached(&drive_nic(*state)->gsi_sent, 100));
	assert_int_equal(atomic_load(&drive_nic(*state)->gsi_sent), 100);
	assert_int_equal(atomic_load(&drive_nic(*state)->pu[0].overlaps), 0);
	assert_true(atomic_load(&u.thread) != (uintptr_t)pthread_self());
	assert_int_equal(drive_gsi_send(*state, 7, &(struct pkt_addr){{0}}, 0, NULL), -EINVAL);
	drive_gsi_close(*state);
}

/* The calls of sys_write(), by which threads wake others. */
static atomic_uint writes;

ssize_t __real_sys_write(int fd, const void *buf, size_t len);
ssize_t __wrap_sys_write(int fd, const void *buf, size_t len);
ssize_t __wrap_sys_write(int fd, const void *buf, size_t len)
{
	atomic_fetch_add(&writes, 1);
	return __real_sys_write(fd, buf, len);
}

/* The state when the last datagram came, in a turn. */
static struct {
	const struct nic_host_ops *ops;
	struct fake_port *port;
	unsigned arms, writes;
} at_turn;

static void came(void *host, unsigned port, const struct pkt_addr *src, const struct pkt_addr *dst,
		 const uint8_t *mad)
{
	at_turn.arms = atomic_load(&at_turn.port->arms);
	at_turn.writes = atomic_load(&writes);
	at_turn.ops->gsi(host, port, src, dst, mad);
}

static void input_at_once(void *ctx, unsigned port, const struct pkt_addr *src,
			  const struct pkt_addr *dst, const uint8_t *mad)
{
	if (atomic_load(&at_turn.port->arms) != at_turn.arms ||
	    atomic_load(&writes) != at_turn.writes)
		abort();
	input(ctx, port, src, dst, mad);
}

/*
 * The service thread neither wakes itself for the datagrams of its own turns, nor arms the ports
 * before it has delivered them: both are system calls for each burst of a flood.
 */
static void own_datagrams_need_no_wake_up(void **state)
{
	static const struct drive_gsi_ops at_once = {.input = input_at_once, .expire = expire};
	struct user u = {.d = *state, .due = UINT64_MAX};
	struct nic *nic = drive_nic(*state);
	struct nic_host_ops host = *nic->cfg.ops;

	at_turn.ops = nic->cfg.ops;
	at_turn.port = fake_port_of(*state, 0, 0);
	host.gsi = came;
	nic->cfg.ops = &host;
	assert_int_equal(drive_gsi_open(*state, &at_once, &u), 0);
	assert_true(fake_reached(&u.expires, 1));
	atomic_store(&nic->for_qp1, true);
	for (unsigned i = 1; i <= 100; i++) {
		fake_inject(at_turn.port, 1);
		assert_true(fake_reached(&u.inputs, i));
		if (i % 25 == 0)
			harness_sleep_ms(2); /* until the service thread sleeps */
	}
	drive_gsi_close(*state);
	atomic_store(&nic->for_qp1, false);
	nic->cfg.ops = at_turn.ops;
}

/* Many datagrams wait, and each gets its answer: more than the service thread keeps at a time. */
static void waiting_datagrams_are_answered(void **state)
{
	struct user u = {.d = *state, .due = UINT64_MAX, .answer = true, .hold = true};

	assert_int_equal(drive_gsi_open(*state, &ops, &u), 0);
	for (unsigned i = 0; i < QUEUE; i++)
		fake_datagram(*state, 1);
	atomic_store(&u.hold, false);
	assert_true(fake_reached(&u.inputs, QUEUE));
	assert_true(fake_reached(&drive_nic(*state)->gsi_sent, QUEUE));
	assert_int_equal(atomic_load(&drive_nic(*state)->gsi_sent), atomic_load(&u.inputs));
	assert_int_equal(atomic_load(&drive_nic(*state)->pu[0].overlaps), 0);
	drive_gsi_close(*state);
}

/*
 * The user's lock is taken once for many datagrams, but not for all that wait, and the answers
 * leave without it: end() aborts otherwise.
 */
static void a_lock_is_for_many(void **state)
{
	struct user u = {.d = *state, .due = UINT64_MAX, .answer = true};

	for (unsigned i = 0; i < QUEUE; i++)
		fake_datagram(*state, 1);
	assert_int_equal(drive_gsi_open(*state, &ops_with_lock, &u), 0);
	assert_true(fake_reached(&u.inputs, QUEUE));
	assert_true(fake_reached(&drive_nic(*state)->gsi_sent, QUEUE));
	drive_gsi_close(*state);
	assert_int_equal(atomic_load(&u.most), 8);
	assert_int_equal(atomic_load(&u.locks), QUEUE / 8);
}

/*
 * A control call that ends a queue pair receives what has arrived, but in a flood not more than can
 * wait for the service thread, which is busy here. The rest stays in the port, and is not lost.
 */
static void control_calls_lose_no_datagrams(void **state)
{
	struct user u = {.d = *state, .due = UINT64_MAX, .hold = true};
	struct nic *nic = drive_nic(*state);
	struct fake_port *port = fake_port_of(*state, 0, 0);
	const unsigned burst = 128, n = QUEUE + burst;

	assert_int_equal(drive_gsi_open(*state, &ops, &u), 0);
	assert_true(fake_reached(&u.expires, 1));
	atomic_store(&nic->for_qp1, true);
	fake_inject(port, 1);
	while (!atomic_load(&u.waited))
		harness_sleep_ms(1);
	for (unsigned i = 0; i < n; i += burst) {
		fake_inject(port, burst);
		drive_receive(*state, 0);
	}
	atomic_store(&u.hold, false);
	assert_true(fake_reached(&u.inputs, n + 1));
	drive_gsi_close(*state);
	atomic_store(&nic->for_qp1, false);
}

/*
 * Control calls of the program, and answers of QP 1, do not wait for each other: the mutex of
 * control calls is held here until the answers and a datagram of the program have left.
 */
static void no_datagram_waits_for_control_calls(void **state)
{
	struct user u = {.d = *state, .due = UINT64_MAX, .answer = true};
	struct pkt_addr dst = {{0}};
	uint8_t mad[NIC_GSI_LEN] = {0};
	bool left;

	assert_int_equal(drive_gsi_open(*state, &ops, &u), 0);
	drive_control_lock(*state);
	for (unsigned i = 0; i < QUEUE / 2; i++)
		fake_datagram(*state, 1);
	left = fake_reached(&drive_nic(*state)->gsi_sent, QUEUE / 2) &&
	       drive_gsi_send(*state, 0, &dst, 0, mad) == 0;
	drive_control_unlock(*state);
	assert_true(left);
	assert_int_equal(atomic_load(&drive_nic(*state)->pu[0].overlaps), 0);
	drive_gsi_close(*state);
}

/*
 * A datagram of a program leaves while the service thread sleeps on the ports. A peer on shm may go
 * to sleep at the same time: the port must be armed or looked at again, or the peer sleeps on.
 */
static void the_peer_of_a_datagram_is_woken(void **state)
{
	struct drive *d = *state;
	struct fake_port *port = fake_port_of(d, 0, 0);
	struct pkt_addr dst = {.b = {[15] = 1}};
	uint8_t mad[NIC_GSI_LEN] = {0};
	int tid = harness_find_service();

	assert_true(tid > 0);
	for (unsigned i = 0; i < 5; i++) {
		long before;

		do { /* until the service thread has slept for a while */
			before = harness_switches(tid);
			harness_sleep_ms(30);
		} while (harness_switches(tid) != before);
		assert_int_equal(drive_gsi_send(d, 0, &dst, 0, mad), 0);
		for (unsigned tries = 0; tries < 60000 && atomic_load(&port->unsure); tries++)
			harness_sleep_ms(1);
		assert_int_equal(atomic_load(&port->unsure), 0);
	}
	assert_int_equal(atomic_load(&drive_nic(d)->pu[0].overlaps), 0);
}

static void timers_come(void **state)
{
	struct user u = {.d = *state, .due = UINT64_MAX};
	unsigned n;

	assert_int_equal(drive_gsi_open(*state, &ops, &u), 0);
	assert_true(fake_reached(&u.expires, 1));
	/* No timer is due: expire() is not called repeatedly. */
	harness_sleep_ms(20);
	n = atomic_load(&u.expires);
	assert_true(n < 10);
	/* A timer is due earlier than expire() had returned. */
	atomic_store(&u.due, drive_now(*state) + 5000000);
	drive_gsi_wake(*state);
	assert_true(fake_reached(&u.fired, 1));
	assert_true(atomic_load(&u.expires) > n);
	assert_true(atomic_load(&u.due) == UINT64_MAX);
	drive_gsi_close(*state);
}

/* While the user is busy the queue fills up to its bound. */
static void floods_are_bounded(void **state)
{
	struct user u = {.d = *state, .due = UINT64_MAX, .hold = true};

	assert_int_equal(drive_gsi_open(*state, &ops, &u), 0);
	for (unsigned i = 0; i < 20 * QUEUE; i++)
		fake_datagram(*state, 1);
	atomic_store(&u.hold, false);
	assert_true(fake_reached(&u.inputs, QUEUE));
	harness_sleep_ms(10);
	assert_true(atomic_load(&u.inputs) <= QUEUE + 1); /* plus the one being delivered */
	/* Then datagrams are delivered again. */
	fake_datagram(*state, 1);
	assert_true(fake_reached(&u.inputs, QUEUE + 1));
	drive_gsi_close(*state);
}

/* Peers may know the address shortly before a user opens. */
static void the_first_user_gets_what_came_before(void **state)
{
	struct user u = {.d = *state, .due = UINT64_MAX};

	for (unsigned i = 0; i < 2 * QUEUE; i++)
		fake_datagram(*state, 1);
	assert_int_equal(drive_gsi_open(*state, &ops, &u), 0);
	assert_true(fake_reached(&u.inputs, QUEUE));
	harness_sleep_ms(10);
	assert_int_equal(atomic_load(&u.inputs), QUEUE);
	drive_gsi_close(*state);
}

static void closed_is_closed(void **state)
{
	struct user u = {.d = *state, .due = UINT64_MAX}, v = u;

	for (unsigned i = 0; i < 200; i++) {
		assert_int_equal(drive_gsi_open(*state, &ops, &u), 0);
		fake_datagram(*state, 1);
		fake_datagram(*state, 1);
		drive_gsi_close(*state);
		atomic_store(&u.hold, true); /* a call now would hang, and so would the test */
		fake_datagram(*state, 1);
		drive_gsi_close(*state);
		atomic_store(&u.hold, false);
	}
	assert_true(atomic_load(&u.inputs) <= 400);
	/* Datagrams for the first user are not delivered to the next. */
	assert_int_equal(drive_gsi_open(*state, &ops, &v), 0);
	assert_true(fake_reached(&v.expires, 1));
	assert_int_equal(atomic_load(&v.inputs), 0);
	drive_gsi_close(*state);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(peers_go, harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(many_peers_go_at_once, harness_setup,
						harness_teardown),
		cmocka_unit_test_setup_teardown(datagrams_are_lost, harness_setup,
						harness_teardown),
		cmocka_unit_test_setup_teardown(datagrams_come, harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(own_datagrams_need_no_wake_up, harness_setup,
						harness_teardown),
		cmocka_unit_test_setup_teardown(waiting_datagrams_are_answered, harness_setup,
						harness_teardown),
		cmocka_unit_test_setup_teardown(a_lock_is_for_many, harness_setup,
						harness_teardown),
		cmocka_unit_test_setup_teardown(control_calls_lose_no_datagrams, harness_setup,
						harness_teardown),
		cmocka_unit_test_setup_teardown(no_datagram_waits_for_control_calls, harness_setup,
						harness_teardown),
		cmocka_unit_test_setup_teardown(the_peer_of_a_datagram_is_woken, harness_setup,
						harness_teardown),
		cmocka_unit_test_setup_teardown(timers_come, harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(floods_are_bounded, harness_setup,
						harness_teardown),
		cmocka_unit_test_setup_teardown(the_first_user_gets_what_came_before, harness_setup,
						harness_teardown),
		cmocka_unit_test_setup_teardown(closed_is_closed, harness_setup, harness_teardown),
	};

	return cmocka_run_group_tests(tests, harness_begin, harness_end);
}
