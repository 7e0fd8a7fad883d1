/* SPDX-License-Identifier: BSD-2-Clause */
/* Calls of librdmacm newer than rdma-core 44, and calls of rsockets on ordinary descriptors. */
#include "fixture.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <rdma/rsocket.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

/* As newer headers declare them. */
enum { ADDRINFO_RESOLVED = 16, ADDRINFO_ERROR = 17, USER = 18, INTERNAL = 19 };
#define RAI_SA_OF_65  0x10
#define RAI_DNS_OF_65 0x20
int rdma_resolve_addrinfo(struct rdma_cm_id *id, const char *node, const char *service,
			  const struct rdma_addrinfo *hints);
int rdma_query_addrinfo(struct rdma_cm_id *id, struct rdma_addrinfo **info);
int rdma_write_cm_event(struct rdma_cm_id *id, enum rdma_cm_event_type event, int status,
			uint64_t arg);
int repoll_create(int flags);
int repoll_ctl(int epfd, int op, int fd, struct epoll_event *event);
int repoll_wait(int epfd, struct epoll_event *events, int maxevents, int timeout);

static struct rdma_cm_id *new_id(struct rdma_event_channel *ch)
{
	struct rdma_cm_id *id;

	assert_int_equal(rdma_create_id(ch, &id, NULL, RDMA_PS_TCP), 0);
	return id;
}

static void a_program_writes_events_to_itself(void **state)
{
	struct rdma_event_channel *ch = channel();
	struct rdma_cm_id *id = new_id(ch);
	uint64_t arg = 0x55667788aabbccdd;
	struct rdma_cm_event *e;

	assert_int_equal(rdma_write_cm_event(id, (enum rdma_cm_event_type)USER, 0x11223344, arg),
			 0);
	e = next_event(ch, (enum rdma_cm_event_type)USER);
	assert_ptr_equal(e->id, id);
	assert_int_equal(e->status, 0x11223344);
	assert_memory_equal(&e->param, &arg, sizeof(arg));
	assert_string_equal(rdma_event_str(e->event), "RDMA_CM_EVENT_USER");
	rdma_ack_cm_event(e);
	REFUSED(rdma_write_cm_event(id, RDMA_CM_EVENT_ESTABLISHED, 0, arg), EINVAL);
	REFUSED(rdma_write_cm_event(id, (enum rdma_cm_event_type)INTERNAL, 0, arg), EINVAL);
	assert_true(quiet(ch));
	rdma_destroy_id(id);
	rdma_destroy_event_channel(ch);
}

static void a_name_is_resolved_with_an_event(void **state)
{
	struct rdma_event_channel *ch = channel();
	struct rdma_cm_id *id = new_id(ch), *sync = new_id(NULL);
	struct rdma_addrinfo hints = {.ai_flags = RAI_DNS_OF_65 | RAI_NUMERICHOST}, *info;
	const struct sockaddr_in *to;

	REFUSED(rdma_query_addrinfo(id, &info), ENODATA);
	assert_int_equal(rdma_resolve_addrinfo(id, "127.9.8.7", "7471", &hints), 0);
	assert_int_equal(expect(ch, (enum rdma_cm_event_type)ADDRINFO_RESOLVED), 0);
	assert_int_equal(rdma_query_addrinfo(id, &info), 0);
	to = (const struct sockaddr_in *)info->ai_dst_addr;
	assert_int_equal(info->ai_family, AF_INET);
	assert_int_equal(ntohl(to->sin_addr.s_addr), 0x7f090807);
	assert_int_equal(ntohs(to->sin_port), 7471);
	rdma_freeaddrinfo(info);
	REFUSED(rdma_query_addrinfo(id, &info), ENODATA); /* it can be taken only once */

	/* Not a number, and the hints forbid a name server. */
	assert_int_equal(rdma_resolve_addrinfo(id, "no.number", "7471", &hints), 0);
	assert_true(expect(ch, (enum rdma_cm_event_type)ADDRINFO_ERROR) < 0);
	REFUSED(rdma_query_addrinfo(id, &info), ENODATA);

	/*
	 * A call on an id without a channel waits. A result that is never taken is freed with the
	 * id.
	 */
	assert_int_equal(rdma_resolve_addrinfo(sync, "127.9.8.7", "7471", NULL), 0);
	hints.ai_flags = RAI_SA_OF_65;
	REFUSED(rdma_resolve_addrinfo(id, NULL, "0x1", &hints), EOPNOTSUPP);
	hints.ai_flags |= RAI_DNS_OF_65;
	REFUSED(rdma_resolve_addrinfo(id, NULL, "0x1", &hints), EINVAL);
	REFUSED(rdma_resolve_addrinfo(id, NULL, NULL, NULL), EINVAL);
	assert_true(quiet(ch));
	rdma_destroy_id(sync);
	rdma_destroy_id(id);
	rdma_destroy_event_channel(ch);
}

/* librspreload makes these calls for ordinary TCP. */
static void calls_of_rsockets_serve_tcp(void **state)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)},
			   seen;
	int l = socket(AF_INET, SOCK_STREAM, 0), a = socket(AF_INET, SOCK_STREAM, 0), p, one = 1,
	    got = 0;
	socklen_t len = sizeof(at);
	struct msghdr h = {0};
	struct iovec v;
	char buf[16];

	assert_int_equal(rsetsockopt(l, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)), 0);
	assert_int_equal(rbind(l, (struct sockaddr *)&at, sizeof(at)), 0);
	assert_int_equal(rlisten(l, 1), 0);
	assert_int_equal(rgetsockname(l, (struct sockaddr *)&at, &len), 0);
	assert_int_equal(rconnect(a, (struct sockaddr *)&at, sizeof(at)), 0);
	p = raccept(l, NULL, NULL);
	assert_true(p >= 0);
	len = sizeof(seen);
	assert_int_equal(rgetpeername(a, (struct sockaddr *)&seen, &len), 0);
	assert_memory_equal(&seen, &at, sizeof(at));
	len = sizeof(got);
	assert_int_equal(rgetsockopt(l, SOL_SOCKET, SO_REUSEADDR, &got, &len), 0);
	assert_int_equal(got, 1);
	assert_int_equal(rfcntl(a, F_SETFL, O_NONBLOCK), 0);
	assert_true(rfcntl(a, F_GETFL, 0) & O_NONBLOCK);
	REFUSED(rrecv(a, buf, sizeof(buf), 0), EAGAIN);

	assert_int_equal(rsend(p, "a", 1, 0), 1);
	assert_int_equal(rwrite(p, "b", 1), 1);
	assert_int_equal(rsendto(p, "c", 1, 0, NULL, 0), 1);
	v = (struct iovec){"d", 1};
	h.msg_iov = &v;
	h.msg_iovlen = 1;
	assert_int_equal(rsendmsg(p, &h, 0), 1);
	assert_int_equal(rwritev(p, &v, 1), 1);
	rfcntl(a, F_SETFL, 0);
	assert_int_equal(rrecv(a, buf, 1, 0), 1);
	assert_int_equal(rread(a, buf + 1, 1), 1);
	assert_int_equal(rrecvfrom(a, buf + 2, 1, 0, NULL, NULL), 1);
	v = (struct iovec){buf + 3, 1};
	assert_int_equal(rrecvmsg(a, &h, 0), 1);
	v = (struct iovec){buf + 4, 1};
	assert_int_equal(rreadv(a, &v, 1), 1);
	assert_memory_equal(buf, "abcdd", 5);
	assert_int_equal(rshutdown(p, SHUT_WR), 0);
	assert_int_equal(rread(a, buf, 1), 0);
	assert_int_equal(rclose(p), 0);
	REFUSED(rread(p, buf, 1), EBADF);
	rclose(a);
	rclose(l);
}

static void descriptors_are_waited_for(void **state)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.u32 = 7}, out;
	struct timeval none = {0, 0}, long_time = {60, 0};
	struct pollfd pfd;
	int fds[2], e;
	fd_set set;

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
	pfd = (struct pollfd){.fd = fds[0], .events = POLLIN};
	e = repoll_create(0);
	assert_true(e >= 0);
	assert_int_equal(repoll_ctl(e, EPOLL_CTL_ADD, fds[0], &ev), 0);
	FD_ZERO(&set);
	FD_SET(fds[0], &set);
	assert_int_equal(rpoll(&pfd, 1, 0), 0);
	assert_int_equal(rselect(fds[0] + 1, &set, NULL, NULL, &none), 0);
	assert_int_equal(repoll_wait(e, &out, 1, 0), 0);
	assert_int_equal(write(fds[1], "x", 1), 1);
	FD_SET(fds[0], &set);
	assert_int_equal(rpoll(&pfd, 1, -1), 1);
	assert_int_equal(pfd.revents, POLLIN);
	assert_int_equal(rselect(fds[0] + 1, &set, NULL, NULL, &long_time), 1);
	assert_true(FD_ISSET(fds[0], &set));
	assert_true(long_time.tv_sec > 0 && long_time.tv_sec <= 60);
	assert_int_equal(rselect(fds[0] + 1, &set, NULL, NULL, NULL), 1);
	assert_int_equal(repoll_wait(e, &out, 1, -1), 1);
	assert_int_equal(out.data.u32, 7);
	close(e);
	close(fds[0]);
	close(fds[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_program_writes_events_to_itself),
		cmocka_unit_test(a_name_is_resolved_with_an_event),
		cmocka_unit_test(calls_of_rsockets_serve_tcp),
		cmocka_unit_test(descriptors_are_waited_for),
	};

	return RUN(tests);
}
