/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Groups on shm: each member gets a copy by a ring for that group. Members join, leave, die, send
 * wrong data, or do not read.
 */
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <fcntl.h>

#include "shm_rig.h"

#define GROUP "239.1.2.3"
#define OTHER "239.1.2.4"

static struct port *open_member(const char *addr, const char *group)
{
	struct port *p = srig_open(addr, 0);
	struct pkt_addr g = srig_addr(group);

	assert_int_equal(p->ops->join(p, &g), 0);
	return p;
}

static struct port_path *path_to(struct port *p, const char *text)
{
	struct pkt_addr dst = srig_addr(text);
	struct port_path *path = p->ops->path_get(p, &dst, 0xffffff);

	assert_non_null(path);
	return path;
}

/* Packet n comes, with the right addresses. */
static void comes(struct port *p, uint64_t n, const struct port *from, const char *to)
{
	struct port_pkt pkt = srig_next(p);
	struct pkt_addr dst = srig_addr(to);

	srig_check(&pkt, n);
	assert_true(pkt_addr_eq(pkt.src, &from->addr));
	assert_true(pkt_addr_eq(pkt.dst, &dst));
	assert_int_equal(pkt.tos, (uint8_t)n);
	assert_int_equal(pkt.flags & PORT_ID_KNOWN, PORT_ID_KNOWN);
}

static void nothing(struct port *p)
{
	struct port_pkt pkts[PORT_BURST];

	for (int i = 0; i < 3; i++)
		assert_int_equal(srig_receive(p, pkts), 0);
}

static void test_members(void **state)
{
	struct port *a = open_member("10.0.0.1", GROUP), *b = open_member("10.0.0.2", GROUP),
		    *c = open_member("10.0.0.3", OTHER);
	struct port_path *path = path_to(a, GROUP), *direct = path_to(a, "10.0.0.2"),
			 *strange = path_to(c, GROUP);

	/*
	 * The sender is a member and receives its packet. A member of another group receives
	 * nothing.
	 */
	for (uint64_t n = 0; n < 300; n++) {
		srig_send_now(a, path, n);
		comes(a, n, a, GROUP);
		comes(b, n, a, GROUP);
	}
	nothing(c);
	/* In a burst, mixed with packets to one member. A sender need not be a member. */
	for (uint64_t n = 0; n < 30; n++) {
		assert_true(srig_send(a, path, 3 * n));
		assert_true(srig_send(a, path, 3 * n + 1));
		assert_true(srig_send(a, direct, 1000 + n));
		assert_true(srig_send(c, strange, 5000 + n));
	}
	assert_true(a->ops->flush(a));
	assert_true(c->ops->flush(c));
	for (int i = 0, k = 0, u = 0, s = 0; i < 120; i++) {
		struct port_pkt pkt = srig_next(b);

		if (pkt_addr_eq(pkt.dst, &b->addr))
			srig_check(&pkt, 1000 + (uint64_t)u++);
		else if (pkt_addr_eq(pkt.src, &c->addr))
			srig_check(&pkt, 5000 + (uint64_t)s++);
		else
			srig_check(&pkt, (uint64_t)(3 * (k / 2) + k % 2)), k++;
	}
	nothing(b);
	assert_int_equal(a->stats.tx_packets, 300 + 90);
	assert_int_equal(a->stats.tx_dropped, 0);
	port_close(c);
	port_close(b);
	port_close(a);
}

/* A cancelled reservation is not sent. The packet before it is. */
static void test_cancel(void **state)
{
	struct port *a = srig_open("10.0.0.1", 0), *b = open_member("10.0.0.2", GROUP);
	struct port_path *path = path_to(a, GROUP), *direct = path_to(a, "10.0.0.2");
	struct port_stats before;

	assert_true(srig_send(a, path, 1));
	before = a->stats;
	assert_true(srig_send(a, path, 2));
	a->ops->cancel(a);
	assert_memory_equal(&before, &a->stats, sizeof(before));
	assert_true(srig_send(a, direct, 3));
	a->ops->cancel(a);
	assert_memory_equal(&before, &a->stats, sizeof(before));
	assert_true(srig_send(a, path, 4));
	assert_true(a->ops->flush(a));
	a->ops->cancel(a); /* the packet has been sent */
	comes(b, 1, a, GROUP);
	comes(b, 4, a, GROUP);
	nothing(b);
	port_close(b);
	port_close(a);
}

/* A new member is found while packets are sent. A member that leaves or is killed is dropped. */
static void test_come_and_go(void **state)
{
	struct port *a = srig_open("10.0.0.1", 0), *b, *c;
	struct port_path *path = path_to(a, GROUP);
	struct port_pkt pkts[PORT_BURST];
	struct pkt_addr group = srig_addr(GROUP);
	uint64_t n = 0;
	int got = 0;

	srig_send_now(a, path, n);
	b = open_member("10.0.0.2", GROUP);
	c = open_member("10.0.0.3", GROUP);
	for (int i = 0; i < SRIG_WAIT_MS && !got; i++) {
		srig_send_now(a, path, ++n);
		got = srig_receive(b, pkts);
		usleep(1000);
	}
	assert_int_equal(got, 1);
	srig_check(&pkts[0], n);
	comes(c, n, a, GROUP);

	b->ops->leave(b, &group);
	a->ops->control(a); /* reads the end of the connection */
	assert_int_equal(shm_of(a)->num_tx, 1);
	srig_send_now(a, path, 7);
	comes(c, 7, a, GROUP);
	nothing(b);
	assert_int_equal(shm_of(b)->num_rx, 0);
	/* Releasing the path releases its rings. */
	a->ops->path_put(a, path);
	assert_int_equal(shm_of(a)->num_tx, 0);
	port_close(c);
	port_close(b);
	port_close(a);
	assert_int_equal(srig_count_files(), 0);
}

static void test_killed_member(void **state)
{
	struct port *a = srig_open("10.0.0.1", 0), *b;
	struct port_path *path;
	pid_t pid;
	int ready[2];
	char c;

	assert_int_equal(pipe(ready), 0);
	pid = fork();
	if (pid == 0) {
		open_member("10.0.0.2", GROUP);
		assert_int_equal(write(ready[1], "x", 1), 1);
		pause();
	}
	assert_int_equal(read(ready[0], &c, 1), 1);
	path = path_to(a, GROUP);
	assert_int_equal(shm_of(a)->num_tx, 1);
	srig_send_now(a, path, 1);
	srig_kill(pid);
	for (int i = 0; i < SRIG_WAIT_MS && shm_of(a)->num_tx; i++) {
		a->ops->control(a);
		usleep(1000);
	}
	assert_int_equal(shm_of(a)->num_tx, 0);
	for (uint64_t n = 0; n < 100; n++)
		srig_send_now(a, path, n); /* the killed member's mark is left, but no process */
	/* The next process with the address is no member. */
	b = srig_open("10.0.0.2", 0);
	a->ops->path_put(a, path);
	path = path_to(a, GROUP);
	srig_send_now(a, path, 1);
	assert_int_equal(shm_of(a)->num_tx, 0);
	nothing(b);
	assert_int_equal(b->stats.rx_bad, 0);
	close(ready[0]);
	close(ready[1]);
	port_close(b);
	port_close(a);
}

/* A member that does not take its packets loses them, and does not delay others. */
static void test_member_that_sleeps(void **state)
{
	struct port *a = srig_open("10.0.0.1", SHM_RING_MIN), *b = open_member("10.0.0.2", GROUP),
		    *c = open_member("10.0.0.3", GROUP);
	struct port_path *path = path_to(a, GROUP);

	for (uint64_t n = 0; n < 5000; n++) {
		srig_send_now(a, path, n);
		comes(c, n, a, GROUP);
	}
	assert_true(a->stats.tx_dropped > 0);
	assert_int_equal(a->stats.tx_blocked, 0);
	comes(b, 0, a, GROUP);
	comes(b, 1, a, GROUP);
	/* There is space again. */
	for (struct port_pkt pkts[PORT_BURST]; srig_receive(b, pkts);)
		;
	srig_send_now(a, path, 1);
	comes(b, 1, a, GROUP);
	port_close(c);
	port_close(b);
	port_close(a);
}

/* A packet wakes a member that sleeps on its descriptor. */
static void test_wakes(void **state)
{
	struct port *a = srig_open("10.0.0.1", 0), *b = open_member("10.0.0.2", GROUP);
	struct port_path *path = path_to(a, GROUP);

	srig_send_now(a, path, 1);
	comes(b, 1, a, GROUP);
	nothing(b);
	assert_true(b->ops->arm(b));
	srig_send_now(a, path, 2);
	nothing(a); /* the second read of the flag, behind the fence */
	assert_true(srig_readable(b->fd, SRIG_WAIT_MS));
	b->ops->disarm(b, true);
	comes(b, 2, a, GROUP);
	port_close(b);
	port_close(a);
}

static void test_lanes(void **state)
{
	struct port *lane[2] = {srig_open_lane("10.0.0.2", 0, 0, 2, NULL),
				srig_open_lane("10.0.0.2", 0, 1, 2, NULL)};
	struct port *a = srig_open("10.0.0.1", 0);
	struct pkt_addr group = srig_addr(GROUP);

	for (int i = 0; i < 2; i++) {
		struct port_path *path;

		assert_int_equal(lane[i]->ops->join(lane[i], &group), 0);
		path = path_to(a, GROUP);
		srig_send_now(a, path, 5);
		for (int k = 0; k < 2; k++)
			if (k <= i)
				comes(lane[k], 5, a, GROUP);
			else
				nothing(lane[k]);
		a->ops->path_put(a, path);
	}
	port_close(lane[1]);
	port_close(lane[0]);
	port_close(a);
}

/*
 * A ring for a group is refused if the receiver is not in the group, and so is a group address as
 * sender.
 */
static void test_lies(void **state)
{
	struct port *b = open_member("10.0.0.2", GROUP);
	const char *const addr[] = {"10.0.0.66", "10.0.0.66", "10.0.0.66", GROUP};
	const char *const group[] = {OTHER, "10.0.0.2", "ff0e::1", GROUP};

	for (int i = 0; i < 4; i++) {
		struct sockaddr_un sa = {.sun_family = AF_UNIX};
		struct shm_hello h = {.magic = SHM_HELLO_MAGIC,
				      .version = SHM_HELLO_VERSION,
				      .ring_size = SHM_RING_MIN};
		struct pkt_addr t = srig_addr(addr[i]), g = srig_addr(group[i]);
		union {
			struct cmsghdr align;
			char buf[CMSG_SPACE(sizeof(int))];
		} control = {0};
		struct iovec iov = {&h, sizeof(h)};
		struct msghdr msg = {.msg_iov = &iov,
				     .msg_iovlen = 1,
				     .msg_control = control.buf,
				     .msg_controllen = sizeof(control.buf)};
		struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
		int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
		struct shm_prod ring;
		int ring_fd;
		char byte;

		assert_int_equal(shm_prod_create(SHM_RING_MIN, &ring, &ring_fd), 0);
		memcpy(h.addr, t.b, 16);
		memcpy(h.group, g.b, 16);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(c), &ring_fd, sizeof(int));
		snprintf(sa.sun_path, sizeof(sa.sun_path), "%s/10.0.0.2.0", srig_dir);
		assert_int_equal(connect(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
		assert_int_equal(sendmsg(fd, &msg, MSG_NOSIGNAL), sizeof(h));
		b->ops->control(b);
		assert_int_equal(recv(fd, &byte, 1, MSG_DONTWAIT), 0);
		assert_int_equal(b->stats.rx_bad, i + 1);
		assert_int_equal(shm_of(b)->num_rx, 0);
		shm_prod_unmap(&ring);
		close(ring_fd);
		close(fd);
	}
	port_close(b);
}

/* Files in the folder with names like a mark's that are no marks have no effect. */
static void test_odd_marks(void **state)
{
	static const char *const names[] = {"239.1.2.3@",	    "239.1.2.3@10.0.0.9",
					    "239.1.2.3@10.0.0.9.7", "239.1.2.3@10.0.0.9.00",
					    "239.1.2.3@fd00::1.0",  "239.1.2.3@.0",
					    "239.1.2.3@10.0.0.9.0"};
	struct pkt_addr six = srig_addr("ff0e::1");
	struct port *a = srig_open("10.0.0.1", 0), *b = open_member("10.0.0.2", GROUP);
	struct port_path *path;
	char file[128];

	for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		snprintf(file, sizeof(file), "%s/%s", srig_dir, names[i]);
		close(open(file, O_CREAT | O_WRONLY, 0600));
	}
	path = path_to(a, GROUP);
	srig_send_now(a, path, 1);
	comes(b, 1, a, GROUP);
	assert_int_equal(shm_of(a)->num_tx, 1);
	assert_int_equal(a->ops->join(a, &six), -EAFNOSUPPORT);
	for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		snprintf(file, sizeof(file), "%s/%s", srig_dir, names[i]);
		unlink(file);
	}
	port_close(b);
	port_close(a);
}

/* A forked child leaves its parent's membership alone. */
static void test_forked(void **state)
{
	struct port *a = srig_open("10.0.0.1", 0), *b = open_member("10.0.0.2", GROUP);
	struct port_path *path;
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		b->ops->after_fork(b);
		port_close(b);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	path = path_to(a, GROUP);
	srig_send_now(a, path, 1);
	comes(b, 1, a, GROUP);
	port_close(b);
	port_close(a);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_members),
		cmocka_unit_test(test_cancel),
		cmocka_unit_test(test_come_and_go),
		cmocka_unit_test(test_killed_member),
		cmocka_unit_test(test_member_that_sleeps),
		cmocka_unit_test(test_wakes),
		cmocka_unit_test(test_lanes),
		cmocka_unit_test(test_lies),
		cmocka_unit_test(test_odd_marks),
		cmocka_unit_test(test_forked),
	};

	return cmocka_run_group_tests(tests, srig_setup, srig_teardown);
}
