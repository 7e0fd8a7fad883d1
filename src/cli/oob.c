/* SPDX-License-Identifier: BSD-2-Clause */
#include "cli/oob.h"

#include <ctype.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/sys.h"
#include "cli/term.h"

static int fail(struct oob *o, int rc, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

static int fail(struct oob *o, int rc, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(o->err, sizeof(o->err), fmt, ap);
	va_end(ap);
	return rc;
}

unsigned oob_timeout_scale(void)
{
	const char *s = sys_env("ROOST_TIMEOUT_SCALE");
	long v = s ? strtol(s, NULL, 10) : 1;

	return v < 1 ? 1 : v > 1000000 ? 1000000 : (unsigned)v;
}

void oob_init(struct oob *o, int fd)
{
	*o = (struct oob){.fd = fd};
}

void oob_close(struct oob *o)
{
	if (o->fd >= 0)
		close(o->fd);
	o->fd = -1;
	free(o->buf);
	o->buf = NULL;
	o->len = o->cap = 0;
}

/* getaddrinfo() accepts larger numbers and drops their high bits. */
static bool port_ok(const char *port)
{
	char *end;
	unsigned long v = strtoul(port, &end, 10);

	return isdigit((unsigned char)port[0]) && *end == '\0' && v > 0 && v <= UINT16_MAX;
}

/*
 * Splits HOST, HOST:PORT, [V6] and [V6]:PORT. A bare IPv6 address has several colons and no port.
 */
static bool split_host(const char *where, char *host, size_t n, char *port, size_t pn)
{
	const char *end, *colon;

	snprintf(port, pn, "%d", OOB_TCP_PORT);
	if (where[0] == '[') {
		end = strchr(where, ']');
		if (!end)
			return false;
		snprintf(host, n, "%.*s", (int)(end - where - 1), where + 1);
		if (end[1] == ':')
			snprintf(port, pn, "%s", end + 2);
		return (end[1] == '\0' || end[1] == ':') && port_ok(port);
	}
	colon = strchr(where, ':');
	if (colon && !strchr(colon + 1, ':')) {
		snprintf(host, n, "%.*s", (int)(colon - where), where);
		snprintf(port, pn, "%s", colon + 1);
	} else {
		snprintf(host, n, "%s", where);
	}
	return host[0] != '\0' && port_ok(port);
}

static int connect_within(int fd, const struct addrinfo *ai, int ms)
{
	struct pollfd pfd = {.fd = fd, .events = POLLOUT};
	int e = 0;
	socklen_t len = sizeof(e);

	if (connect(fd, ai->ai_addr, ai->ai_addrlen) == 0)
		return 0;
	if (errno != EINPROGRESS)
		return -errno;
	if (poll(&pfd, 1, ms) != 1)
		return -ETIMEDOUT;
	if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &e, &len) < 0)
		return -errno;
	return -e;
}

static void set_nodelay(int fd)
{
	int one = 1;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
}

int oob_connect(const char *where, uint64_t timeout_ns, char *err, size_t errlen)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list = NULL;
	char host[256], port[16];
	int rc, fd = -1;

	if (!split_host(where, host, sizeof(host), port, sizeof(port))) {
		snprintf(
			err, errlen,
			"'%s' is no address: HOST, HOST:PORT or [IPV6]:PORT, ports being 1 to 65535",
			where);
		return -EINVAL;
	}
	rc = getaddrinfo(host, port, &hints, &list);
	if (rc != 0) {
		snprintf(err, errlen, "can't find %s: %s", host, gai_strerror(rc));
		return -ENOENT;
	}
	rc = -ENOENT;
	for (struct addrinfo *ai = list; ai; ai = ai->ai_next) {
		fd = socket(ai->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
		if (fd < 0) {
			rc = -errno;
			continue;
		}
		rc = connect_within(fd, ai, (int)(timeout_ns / 1000000));
		if (rc == 0)
			break;
		close(fd);
		fd = -1;
	}
	freeaddrinfo(list);
	if (fd < 0) {
		snprintf(
			err, errlen,
			"can't connect to %s, port %s: %s; start `roost perf --server` there first",
			host, port, strerror(-rc));
		return rc;
	}
	set_nodelay(fd);
	return fd;
}

int oob_accept(const char *bind_to, unsigned port, void (*listening)(void *), void *arg, char *err,
	       size_t errlen)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
				 .ai_flags = AI_PASSIVE | AI_NUMERICHOST},
			*list = NULL;
	char service[16];
	int rc, lfd, fd, one = 1;

	snprintf(service, sizeof(service), "%u", port);
	rc = getaddrinfo(bind_to ? bind_to : "::", service, &hints, &list);
	if (rc != 0) {
		snprintf(err, errlen, "--bind wants an address of this machine, not '%s'", bind_to);
		return -EINVAL;
	}
	lfd = socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (lfd < 0 && !bind_to) { /* this machine has no IPv6 */
		freeaddrinfo(list);
		if (getaddrinfo("0.0.0.0", service, &hints, &list) != 0)
			return -EINVAL;
		lfd = socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	}
	setsockopt(lfd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	rc = bind(lfd, list->ai_addr, list->ai_addrlen) < 0 || listen(lfd, 1) < 0 ? -errno : 0;
	freeaddrinfo(list);
	if (rc < 0) {
		snprintf(err, errlen,
			 "can't listen on TCP port %u: %s; take another with --tcp-port", port,
			 strerror(-rc));
		close(lfd);
		return rc;
	}
	if (listening)
		listening(arg);
	fd = accept4(lfd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	rc = -errno;
	close(lfd);
	if (fd < 0) {
		snprintf(err, errlen, "accept: %s", strerror(-rc));
		return rc;
	}
	set_nodelay(fd);
	return fd;
}

static int wait_fd(int fd, short events, uint64_t deadline)
{
	struct pollfd pfd = {.fd = fd, .events = events};
	uint64_t now = clock_ns(), left;
	int ms = -1;

	/* Single bytes that keep coming are no reason to wait longer. */
	if (now >= deadline)
		return -ETIMEDOUT;
	if (deadline != UINT64_MAX) {
		left = deadline - now;
		ms = left / 1000000 > 1000000 ? 1000000 : (int)((left + 999999) / 1000000);
	}
	if (poll(&pfd, 1, ms) < 0 && errno != EINTR)
		return -errno;
	if (pfd.revents == 0 && deadline != UINT64_MAX && clock_ns() >= deadline)
		return -ETIMEDOUT;
	return 0;
}

int oob_send(struct oob *o, json_t *msg)
{
	char *text = msg ? json_dumps(msg, JSON_COMPACT) : NULL;
	size_t len, at = 0;
	uint64_t deadline = clock_ns() + 10000000000u * oob_timeout_scale();
	int rc = 0;

	json_decref(msg);
	if (!text)
		return fail(o, -ENOMEM, "out of memory");
	len = strlen(text);
	text[len++] = '\n'; /* replaces the NUL: the line is sent by its length */
	while (at < len && rc == 0) {
		ssize_t n = send(o->fd, text + at, len - at, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n >= 0)
			at += (size_t)n;
		else if (errno == EAGAIN || errno == EWOULDBLOCK)
			rc = wait_fd(o->fd, POLLOUT, deadline);
		else if (errno != EINTR)
			rc = -errno;
	}
	free(text);
	if (rc < 0)
		return fail(o, rc, "the other side does not listen any more: %s", strerror(-rc));
	return 0;
}

void oob_send_error(struct oob *o, const char *msg)
{
	char keep[OOB_ERR_LEN];

	snprintf(keep, sizeof(keep), "%s", o->err);
	oob_send(o, json_pack("{s:s,s:s}", "type", "error", "message", msg));
	snprintf(o->err, sizeof(o->err), "%s", keep);
}

/* The peer's text is printed on a terminal, so control characters are removed. */
static void make_printable(char *s)
{
	for (; *s; s++) {
		if ((unsigned char)*s < ' ' || *s == 0x7f)
			*s = '?';
	}
}

static char *find_line(const struct oob *o)
{
	return o->len ? memchr(o->buf, '\n', o->len) : NULL;
}

bool oob_ready(struct oob *o)
{
	struct pollfd pfd = {.fd = o->fd, .events = POLLIN};

	return find_line(o) || (poll(&pfd, 1, 0) == 1 && pfd.revents);
}

/* Reads the available bytes. Returns 0, -EAGAIN, or an error. */
static int read_some(struct oob *o)
{
	ssize_t n;

	if (o->cap - o->len < 4096) {
		size_t cap = o->cap ? o->cap * 2 : 16384;
		char *buf;

		if (cap > OOB_MAX_LINE)
			return fail(o, -EMSGSIZE, "the other side sent a line longer than %u bytes",
				    OOB_MAX_LINE);
		buf = realloc(o->buf, cap);
		if (!buf)
			return fail(o, -ENOMEM, "out of memory");
		o->buf = buf;
		o->cap = cap;
	}
	n = recv(o->fd, o->buf + o->len, o->cap - o->len, MSG_DONTWAIT);
	if (n > 0) {
		o->len += (size_t)n;
		return 0;
	}
	if (n == 0)
		return fail(o, -ECONNRESET, "the other side has ended");
	if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)
		return -EAGAIN;
	return fail(o, -errno, "the other side has ended: %s", strerror(errno));
}

static json_t *take_line(struct oob *o, char *nl)
{
	json_error_t why;
	size_t n = (size_t)(nl - o->buf);
	json_t *msg = json_loadb(o->buf, n, 0, &why);

	memmove(o->buf, nl + 1, o->len - n - 1);
	o->len -= n + 1;
	if (!json_is_object(msg)) {
		json_decref(msg);
		fail(o, -EPROTO, "the other side does not speak roost's protocol");
		return NULL;
	}
	return msg;
}

/* Returns the message of an "error" object, or NULL for other objects. */
static const char *error_of(const json_t *msg)
{
	const char *type = json_string_value(json_object_get(msg, "type"));

	return type && strcmp(type, "error") == 0
		       ? json_string_value(json_object_get(msg, "message"))
		       : NULL;
}

json_t *oob_recv(struct oob *o, const char *type, uint64_t timeout_ns)
{
	uint64_t deadline = timeout_ns == UINT64_MAX ? UINT64_MAX : clock_ns() + timeout_ns;
	const char *got, *text;
	char *nl;
	json_t *msg;

	while (!(nl = find_line(o))) {
		int rc = read_some(o);

		if (rc == -EAGAIN)
			rc = wait_fd(o->fd, POLLIN, deadline);
		if (rc == -ETIMEDOUT)
			fail(o, rc, "no answer from the other side (waited for '%s')", type);
		if (rc < 0)
			return NULL;
	}
	msg = take_line(o, nl);
	if (!msg)
		return NULL;
	got = json_string_value(json_object_get(msg, "type"));
	if (got && strcmp(got, type) == 0)
		return msg;
	text = error_of(msg);
	if (text)
		fail(o, -EPROTO, "%.200s", text);
	else
		fail(o, -EPROTO, "the other side sent '%.32s' where '%s' was due",
		     got ? got : "nothing", type);
	make_printable(o->err);
	json_decref(msg);
	return NULL;
}

bool oob_peer_failed(struct oob *o)
{
	bool failed = false;
	const char *text;
	json_t *msg;
	char *nl;

	while (!failed && oob_ready(o)) {
		nl = find_line(o);
		if (!nl) {
			if (read_some(o) < 0)
				return false;
			continue;
		}
		msg = take_line(o, nl);
		if (!msg)
			return false;
		text = error_of(msg);
		failed = text != NULL;
		if (failed)
			fail(o, -EPROTO, "%.200s", text);
		make_printable(o->err);
		json_decref(msg);
	}
	return failed;
}

bool oob_get_u64(struct oob *o, const json_t *msg, const char *key, uint64_t max, uint64_t *v)
{
	const json_t *j = json_object_get(msg, key);

	if (!json_is_integer(j) || json_integer_value(j) < 0 ||
	    (uint64_t)json_integer_value(j) > max) {
		fail(o, -EPROTO, "the other side's '%s' is absent or out of range", key);
		return false;
	}
	*v = (uint64_t)json_integer_value(j);
	return true;
}

bool oob_get_bool(struct oob *o, const json_t *msg, const char *key, bool *v)
{
	const json_t *j = json_object_get(msg, key);

	if (!json_is_boolean(j)) {
		fail(o, -EPROTO, "the other side's '%s' is absent or not a boolean", key);
		return false;
	}
	*v = json_is_true(j);
	return true;
}
