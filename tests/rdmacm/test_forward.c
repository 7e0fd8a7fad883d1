/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Connection requests that come to another program of the address than the one that listens,
 * because the filter of the kernel has no space for the service. The other program reads the
 * request, and is killed or stopped before or after it has passed it on. The client connects
 * without an error: it repeats a request that is lost, and a repeated one comes to any program.
 *
 * Each case has an address with two programs that are the same. The filter's choice between them is
 * made by the test: first the lower slot, then the other one.
 */
#include "../common/child.h"
#include "../common/network.h"
#include "fixture.h"

#include <linux/filter.h>
#include <poll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/sys.h"
#include "pool/filter.h"
#include "pool/pool.h"

#define OWN	    "udp:127.0.82.%u"
#define OWN_IP(f)   (0x7f005200u | (1 + (f)))
#define OUTSIDE	    "udp:127.0.82.100"
#define SERVICE(i)  (uint16_t)(7000 + (i))
#define UDP_PORT    4791
#define ATTACH_CBPF 51 /* SO_ATTACH_REUSEPORT_CBPF */
#define SOME_QPN    5  /* no end uses its queue pair */

/* What a program does when it passes a request on. */
enum fate { GOES_ON, DIES_AFTER, DIES_BEFORE, STOPS_BEFORE, FATES };

/* instructions of a filter that leaves all services out, and of one without services */
static unsigned most, least;
static _Atomic enum fate fate;
static _Atomic uint32_t choice; /* the kernel's random number */

int __real_sys_setsockopt(int fd, int level, int name, const void *value, socklen_t len);
int __wrap_sys_setsockopt(int fd, int level, int name, const void *value, socklen_t len);
ssize_t __real_sys_sendto(int fd, const void *data, size_t n, int flags, const struct sockaddr *to,
			  socklen_t len);
ssize_t __wrap_sys_sendto(int fd, const void *data, size_t n, int flags, const struct sockaddr *to,
			  socklen_t len);

/*
 * The kernel accepts a filter without services, and one that leaves all of them out. The random
 * number of the latter is no random one.
 */
int __wrap_sys_setsockopt(int fd, int level, int name, const void *value, socklen_t len)
{
	struct sock_filter code[POOL_FILTER_MAX];
	struct sock_fprog prog;
	bool leaves_out = false;

	if (level != SOL_SOCKET || name != ATTACH_CBPF)
		return __real_sys_setsockopt(fd, level, name, value, len);
	prog = *(const struct sock_fprog *)value;
	memcpy(code, prog.filter, prog.len * sizeof(code[0]));
	prog.filter = code;
	for (unsigned i = 0; i < prog.len; i++) {
		if (code[i].code == (BPF_LD | BPF_W | BPF_ABS) &&
		    code[i].k == (uint32_t)(SKF_AD_OFF + SKF_AD_RANDOM)) {
			code[i] = (struct sock_filter){BPF_LD | BPF_IMM, 0, 0, choice};
			leaves_out = true;
		}
	}
	if (prog.len > (leaves_out ? most : least))
		return -ENOMEM;
	return __real_sys_setsockopt(fd, level, name, &prog, len);
}

/* Mail goes to the sending socket of a port; everything else goes to UDP port 4791. */
static bool is_mail(const struct sockaddr *to)
{
	return to && ((const struct sockaddr_in *)to)->sin_port != htons(UDP_PORT);
}

ssize_t __wrap_sys_sendto(int fd, const void *data, size_t n, int flags, const struct sockaddr *to,
			  socklen_t len)
{
	enum fate f = is_mail(to) ? fate : GOES_ON;
	ssize_t sent;

	if (f == DIES_BEFORE)
		kill(getpid(), SIGKILL);
	if (f == STOPS_BEFORE)
		kill(getpid(), SIGSTOP);
	sent = __real_sys_sendto(fd, data, n, flags, to, len);
	if (f == DIES_AFTER)
		kill(getpid(), SIGKILL);
	return sent;
}

/* ---- the programs of the addresses: forked children, made before this process has threads ---- */

enum command { LISTEN, ARM, ACCEPT, ESTABLISHED };

struct order {
	enum command command;
	enum fate fate;
	uint16_t service;
	uint32_t choice;
};

struct program {
	pid_t pid;
	int fd, slot;
};

static struct rdma_cm_event *event_of(struct rdma_event_channel *ch, enum rdma_cm_event_type type)
{
	struct pollfd p = {.fd = ch->fd, .events = POLLIN};
	struct rdma_cm_event *e;

	CHECK(poll(&p, 1, WAIT_MS) == 1);
	CHECK(rdma_get_cm_event(ch, &e) == 0);
	CHECK(e->event == type);
	return e;
}

static void serve(int fd)
{
	struct rdma_conn_param param = {.qp_num = SOME_QPN};
	struct rdma_event_channel *ch = NULL;
	struct rdma_cm_event *e;
	struct rdma_cm_id *id;
	struct order o;
	char spec[32];

	while (read(fd, &o, sizeof(o)) == sizeof(o)) {
		union address at = at4(OWN_IP(o.fate), o.service);
		int slot = 0;

		if (o.command == LISTEN) {
			choice = o.choice;
			snprintf(spec, sizeof(spec), OWN, 1 + (unsigned)o.fate);
			CHECK(setenv("ROOST_PORT", spec, 1) == 0);
			ch = ch ? ch : rdma_create_event_channel();
			CHECK(ch && rdma_create_id(ch, &id, NULL, RDMA_PS_TCP) == 0);
			CHECK(rdma_bind_addr(id, &at.sa) == 0 && rdma_listen(id, 1) == 0);
			slot = pool_slot(pool_mine(), 0);
			CHECK(slot >= 0);
		} else if (o.command == ARM) {
			fate = o.fate;
		} else if (o.command == ACCEPT) {
			e = event_of(ch, RDMA_CM_EVENT_CONNECT_REQUEST);
			CHECK(rdma_accept(e->id, &param) == 0);
			rdma_ack_cm_event(e);
		} else {
			rdma_ack_cm_event(event_of(ch, RDMA_CM_EVENT_ESTABLISHED));
		}
		CHECK(write(fd, &slot, sizeof(slot)) == sizeof(slot));
	}
	_exit(0);
}

static int ask(const struct program *p, struct order o)
{
	int slot = -1;

	assert_int_equal(write(p->fd, &o, sizeof(o)), sizeof(o));
	assert_int_equal(read(p->fd, &slot, sizeof(slot)), sizeof(slot));
	return slot;
}

/* ---- in the test ---- */

static struct program program[FATES][2];
static struct attempt {
	struct rdma_event_channel *ch;
	struct rdma_cm_id *id;
	struct program *listens;
	uint64_t start;
} attempts[FATES];

static uint64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

/* Returns when the program is killed or stopped. */
static int wait_for_end(struct program *p)
{
	uint64_t until = now_ms() + WAIT_MS;
	int status = 0;

	while (waitpid(p->pid, &status, WNOHANG | WUNTRACED) != p->pid) {
		if (now_ms() > until)
			fail_msg("no request came to the lower slot");
		usleep(1000);
	}
	return status;
}

/* Sends a request, and waits for the end of the program that gets it. */
static void begin(enum fate f)
{
	struct rdma_conn_param param = {.qp_num = SOME_QPN};
	struct attempt *a = &attempts[f];
	struct program *p = program[f], *other;
	unsigned low;

	for (unsigned i = 0; i < 2; i++)
		p[i].slot = ask(&p[i], (struct order){LISTEN, f, SERVICE(i), 0});
	low = p[0].slot < p[1].slot ? 0 : 1;
	other = &p[low];
	a->listens = &p[!low];
	ask(other, (struct order){ARM, f, 0, 0});
	a->ch = channel();
	a->id = resolved_to(a->ch, RDMA_PS_TCP, at4(OWN_IP(f), SERVICE(!low)));
	a->start = now_ms();
	assert_int_equal(rdma_connect(a->id, &param), 0);
	if (f == DIES_BEFORE || f == DIES_AFTER) {
		assert_true(WIFSIGNALED(wait_for_end(other)));
		close(other->fd);
		other->pid = 0;
	} else if (f == STOPS_BEFORE) {
		assert_true(WIFSTOPPED(wait_for_end(other)));
		assert_true(quiet(a->ch));
		/* one more service: the filter is made again */
		ask(a->listens, (struct order){LISTEN, f, SERVICE(2), 1});
	}
}

static void end(enum fate f)
{
	static const char *const what[] = {"passed on", "killed after", "killed before",
					   "stopped before"};
	struct attempt *a = &attempts[f];

	ask(a->listens, (struct order){ACCEPT, f, 0, 0});
	rdma_ack_cm_event(next_event(a->ch, RDMA_CM_EVENT_CONNECT_RESPONSE));
	assert_int_equal(rdma_establish(a->id), 0);
	ask(a->listens, (struct order){ESTABLISHED, f, 0, 0});
	printf("%s: connected after %u ms\n", what[f], (unsigned)(now_ms() - a->start));
	assert_true(quiet(a->ch));
	rdma_destroy_id(a->id);
	rdma_destroy_event_channel(a->ch);
}

/* All cases at once, because a repetition takes seconds. */
static void all_connect(void **state)
{
	for (unsigned f = 0; f < FATES; f++)
		begin(f);
	for (unsigned f = 0; f < FATES; f++)
		end(f);
}

static int setup(void **state)
{
	static struct pool_table none, left_out = {.cut = true, .any = 3};
	static struct sock_filter code[POOL_FILTER_MAX];

	least = pool_filter(&none, code);
	most = pool_filter(&left_out, code);
	for (unsigned f = 0; f < FATES; f++) {
		for (unsigned i = 0; i < 2; i++)
			program[f][i].pid = child_start(serve, &program[f][i].fd);
	}
	return setenv("ROOST_PORT", OUTSIDE, 1);
}

static int teardown(void **state)
{
	for (unsigned f = 0; f < FATES; f++) {
		for (unsigned i = 0; i < 2; i++)
			child_finish(&program[f][i].pid, program[f][i].fd);
	}
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_connect),
	};

	if (!network_own()) { /* other programs of the machine may have the lowest slot */
		printf("skipped: no network of its own\n");
		return 77;
	}
	setenv("ROOST_PUS", "1", 1);
	return cmocka_run_group_tests(tests, setup, teardown);
}
