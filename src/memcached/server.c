/* SPDX-License-Identifier: BSD-2-Clause */
#include "memcached/server.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/listener.h>
#include <event2/util.h>

#include "base/list.h"
#include "memcached/session.h"

#define BACKLOG	  1024
#define LISTENERS 8
#define OUT_MAX	  (8u << 20) /* no request is read while more bytes of replies wait */

struct mc_server {
	struct mc_session session;
	struct event_base *base;
	struct evconnlistener *listener[LISTENERS];
	char *path[LISTENERS]; /* path of a Unix socket */
	unsigned listeners;
	struct event *stop, *flush;
	uint64_t flush_at; /* the time for which `flush` is set; 0: it is not */
	int stop_fd;
	pthread_t thread;
	struct list_head conns;
};

struct conn {
	struct mc_server *server;
	struct bufferevent *bev;
	struct list_head link;
	uint64_t skip;	/* bytes left to skip of data that are too long */
	bool skip_line; /* the rest of a line is skipped */
	uint32_t got;	/* bytes of the keys of a get whose values are in the reply */
	bool closing;	/* the connection closes when the replies are sent */
	bool eof;	/* the client sends nothing more; it may wait for replies */
};

/* ---- connections ---- */

static void end_conn(struct conn *c)
{
	list_del(&c->link);
	c->server->session.connections--;
	bufferevent_free(c->bev);
	free(c);
}

/* Skips data. Returns whether bytes may be left to parse. */
static bool skip(struct conn *c, struct evbuffer *in)
{
	size_t n = evbuffer_get_length(in);

	if (n > c->skip)
		n = (size_t)c->skip;
	evbuffer_drain(in, n);
	c->skip -= n;
	return !c->skip;
}

static bool skip_line(struct conn *c, struct evbuffer *in)
{
	struct evbuffer_ptr end = evbuffer_search(in, "\n", 1, NULL);

	c->skip_line = end.pos < 0;
	evbuffer_drain(in, c->skip_line ? evbuffer_get_length(in) : (size_t)end.pos + 1);
	return !c->skip_line;
}

/* Executes a request with data. Returns false if the data are not complete. */
static bool with_data(struct conn *c, const struct mc_request *r, struct evbuffer *in,
		      struct evbuffer *out)
{
	struct mc_session *m = &c->server->session;
	size_t whole = r->line_len + (size_t)r->data_len + 2;
	struct mc_request again;
	const char *p;

	if (r->data_len > ITEM_MAX || r->command == MC_INVALID) {
		mc_drop_stale(m, r, -E2BIG);
		if (r->command != MC_INVALID && !r->noreply)
			mc_line(out, "SERVER_ERROR object too large for cache");
		else if (r->command == MC_INVALID)
			mc_line(out, r->error);
		c->skip = whole;
		return skip(c, in);
	}
	if (evbuffer_get_length(in) < whole) {
		bufferevent_setwatermark(c->bev, EV_READ, whole, 0);
		return false;
	}
	bufferevent_setwatermark(c->bev, EV_READ, 0, 0);
	/* Parses the request again, because the bytes may have moved. */
	p = (const char *)evbuffer_pullup(in, (ev_ssize_t)whole);
	if (!p || !mc_parse(p, r->line_len, &again)) {
		c->closing = true;
		return false;
	}
	if (memcmp(p + whole - 2, "\r\n", 2) != 0) {
		mc_line(out, "CLIENT_ERROR bad data chunk");
		/* The rest of the line is not a request. */
		evbuffer_drain(in, whole - 2);
		c->skip_line = true;
		return true;
	}
	if (!mc_execute(m, &again, (const uint8_t *)p + r->line_len, out))
		c->closing = true;
	evbuffer_drain(in, whole);
	return true;
}

/* Parses the next line, of which the first `most` bytes are made contiguous. */
static bool parse(struct evbuffer *in, size_t most, struct mc_request *r)
{
	size_t len = evbuffer_get_length(in);
	const char *p;

	if (len > most)
		len = most;
	p = (const char *)evbuffer_pullup(in, (ev_ssize_t)len);
	return p && mc_parse(p, len, r);
}

/* Executes the next request. Returns false if there is no complete request. */
static bool serve_one(struct conn *c, struct evbuffer *in, struct evbuffer *out)
{
	size_t len = evbuffer_get_length(in);
	struct mc_request r;

	if (!len)
		return false;
	if (c->skip)
		return skip(c, in);
	if (c->skip_line)
		return skip_line(c, in);
	if (!parse(in, MC_LINE_MAX, &r) && (len <= MC_LINE_MAX || !parse(in, MC_GET_MAX, &r)))
		return false;
	if (r.has_data)
		return with_data(c, &r, in, out);
	if (r.command == MC_GET) {
		while (!mc_get(&c->server->session, &r, &c->got, out))
			if (evbuffer_get_length(out) >= OUT_MAX)
				return false; /* the next call continues */
		evbuffer_drain(in, r.line_len);
		return true;
	}
	if (!mc_execute(&c->server->session, &r, NULL, out))
		c->closing = true;
	evbuffer_drain(in, r.line_len);
	return true;
}

/* Sets the timer for a flush_all with a later time. */
static void set_flush(struct mc_server *s)
{
	const struct mc_session *m = &s->session;
	struct timeval after = {.tv_sec = 1}; /* the store did not answer */

	if (m->flush_at == s->flush_at)
		return;
	s->flush_at = m->flush_at;
	if (m->flush_at > m->items.now)
		after.tv_sec = (time_t)(m->flush_at - m->items.now);
	if (m->flush_at)
		evtimer_add(s->flush, &after);
	else
		evtimer_del(s->flush);
}

static void on_flush(evutil_socket_t fd, short what, void *arg)
{
	struct mc_server *s = arg;

	mc_session_tick(&s->session);
	s->flush_at = 0;
	set_flush(s);
}

static void on_read(struct bufferevent *bev, void *arg)
{
	struct conn *c = arg;
	struct evbuffer *in = bufferevent_get_input(bev), *out = bufferevent_get_output(bev);

	mc_session_tick(&c->server->session);
	while (!c->closing && evbuffer_get_length(out) < OUT_MAX && serve_one(c, in, out))
		;
	set_flush(c->server);
	if (evbuffer_get_length(out) >= OUT_MAX || c->closing)
		bufferevent_disable(bev, EV_READ);
	if ((c->closing || c->eof) && !evbuffer_get_length(out))
		end_conn(c);
}

/* Runs when all replies are sent. Reading continues if it waited for that. */
static void on_write(struct bufferevent *bev, void *arg)
{
	struct conn *c = arg;

	if (c->closing) {
		if (!evbuffer_get_length(bufferevent_get_output(bev)))
			end_conn(c);
		return;
	}
	if (bufferevent_get_enabled(bev) & EV_READ)
		return;
	if (!c->eof)
		bufferevent_enable(bev, EV_READ);
	on_read(bev, arg);
}

static void on_event(struct bufferevent *bev, short what, void *arg)
{
	struct conn *c = arg;

	if (what & BEV_EVENT_ERROR) {
		end_conn(c);
	} else if (what & BEV_EVENT_EOF) {
		c->eof = true; /* libevent reads no more */
		on_read(bev, c);
	}
}

static void on_accept(struct evconnlistener *l, evutil_socket_t fd, struct sockaddr *sa, int len,
		      void *arg)
{
	struct mc_server *s = arg;
	struct conn *c = s->session.connections < MC_CONNECTIONS ? calloc(1, sizeof(*c)) : NULL;

	if (c)
		c->bev = bufferevent_socket_new(s->base, fd, BEV_OPT_CLOSE_ON_FREE);
	if (!c || !c->bev) {
		static const char full[] = "ERROR Too many open connections\r\n";

		free(c);
		if (send(fd, full, sizeof(full) - 1, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
			errno = 0; /* the socket is closed in any case */
		evutil_closesocket(fd);
		return;
	}
	c->server = s;
	s->session.connections++;
	s->session.connected++;
	list_add_tail(&c->link, &s->conns);
	bufferevent_setcb(c->bev, on_read, on_write, on_event, c);
	bufferevent_enable(c->bev, EV_READ | EV_WRITE);
}

static void accept_again(evutil_socket_t fd, short what, void *arg)
{
	evconnlistener_enable(arg);
}

/*
 * Pauses accepting when the process has no descriptor left: otherwise this event would repeat at
 * once.
 */
static void on_accept_error(struct evconnlistener *l, void *arg)
{
	static const struct timeval pause = {.tv_sec = 1};
	struct mc_server *s = arg;

	evconnlistener_disable(l);
	if (event_base_once(s->base, -1, EV_TIMEOUT, accept_again, l, &pause))
		evconnlistener_enable(l);
}

/* ---- listening ---- */

static int fail(char *err, size_t errlen, const char *where, int rc)
{
	snprintf(err, errlen, "can't listen at %s: %s", where, strerror(rc));
	return -rc;
}

/* Removes a socket that no process listens at any more. */
static void remove_old(const char *path)
{
	struct sockaddr_un sa = {.sun_family = AF_UNIX};
	struct stat st;
	int fd;

	if (stat(path, &st) || !S_ISSOCK(st.st_mode))
		return;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return;
	strcpy(sa.sun_path, path);
	if (connect(fd, (struct sockaddr *)&sa, sizeof(sa)) && errno == ECONNREFUSED)
		unlink(path);
	close(fd);
}

static int listen_at(struct mc_server *s, const char *where, char *err, size_t errlen)
{
	struct sockaddr_storage ss = {0};
	struct sockaddr_un *un = (struct sockaddr_un *)(void *)&ss;
	int len = sizeof(ss);
	unsigned flags = LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC | LEV_OPT_REUSEABLE;

	if (s->listeners == LISTENERS)
		return fail(err, errlen, where, ENOSPC);
	if (strchr(where, '/')) {
		if (strlen(where) >= sizeof(un->sun_path))
			return fail(err, errlen, where, ENAMETOOLONG);
		un->sun_family = AF_UNIX;
		strcpy(un->sun_path, where);
		len = sizeof(*un);
		flags &= ~LEV_OPT_REUSEABLE;
		remove_old(where);
		s->path[s->listeners] = strdup(where);
	} else if (!strrchr(where, ':') ||
		   evutil_parse_sockaddr_port(where, (struct sockaddr *)&ss, &len)) {
		snprintf(err, errlen,
			 "can't listen at %s: write ADDRESS:PORT, [ADDRESS]:PORT or the "
			 "path of a socket, with a '/'",
			 where);
		return -EINVAL;
	}
	s->listener[s->listeners] = evconnlistener_new_bind(s->base, on_accept, s, flags, BACKLOG,
							    (struct sockaddr *)&ss, len);
	if (!s->listener[s->listeners]) {
		free(s->path[s->listeners]);
		s->path[s->listeners] = NULL;
		return fail(err, errlen, where, errno);
	}
	evconnlistener_set_error_cb(s->listener[s->listeners], on_accept_error);
	s->listeners++;
	return 0;
}

static int listen_all(struct mc_server *s, const char *list, char *err, size_t errlen)
{
	char where[256];
	int rc = 0;

	while (!rc && *list) {
		size_t len = strcspn(list, ",");

		snprintf(where, sizeof(where), "%.*s", (int)len, list);
		rc = listen_at(s, where, err, errlen);
		list += len + (list[len] == ',');
	}
	return rc;
}

/* ---- start and stop ---- */

static void on_stop(evutil_socket_t fd, short what, void *arg)
{
	struct mc_server *s = arg;

	event_base_loopbreak(s->base);
}

static void *serve(void *arg)
{
	struct mc_server *s = arg;

	event_base_dispatch(s->base);
	return NULL;
}

static void destroy(struct mc_server *s)
{
	struct conn *c, *next;

	list_for_each_entry_safe (c, next, &s->conns, link)
		end_conn(c);
	for (unsigned i = 0; i < s->listeners; i++) {
		evconnlistener_free(s->listener[i]);
		if (s->path[i])
			unlink(s->path[i]);
		free(s->path[i]);
	}
	if (s->stop)
		event_free(s->stop);
	if (s->flush)
		event_free(s->flush);
	if (s->stop_fd >= 0)
		close(s->stop_fd);
	if (s->base)
		event_base_free(s->base);
	items_close(&s->session.items);
	free(s);
}

static int prepare(struct mc_server *s, const struct mc_config *config, char *err, size_t errlen)
{
	int rc = items_open(&s->session.items, config->host, config->service);

	s->session.version = config->version;
	s->session.started = s->session.items.now;
	if (!rc) {
		s->base = event_base_new();
		s->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
		if (s->base && s->stop_fd >= 0)
			s->stop = event_new(s->base, s->stop_fd, EV_READ, on_stop, s);
		if (s->base)
			s->flush = evtimer_new(s->base, on_flush, s);
		rc = s->stop && s->flush && !event_add(s->stop, NULL) ? 0 : -ENOMEM;
	}
	if (rc)
		snprintf(err, errlen, "no memory for the memcached front end");
	return rc ? rc : listen_all(s, config->listen, err, errlen);
}

int mc_server_start(const struct mc_config *config, struct mc_server **out, char *err,
		    size_t errlen)
{
	struct mc_server *s = calloc(1, sizeof(*s));
	sigset_t all, old;
	int rc;

	if (!s) {
		snprintf(err, errlen, "no memory for the memcached front end");
		return -ENOMEM;
	}
	list_init(&s->conns);
	s->stop_fd = -1;
	rc = prepare(s, config, err, errlen);
	if (!rc) {
		/*
		 * Faults stay unblocked: the guard of kernels needs them on threads that drive the
		 * NIC.
		 */
		sigfillset(&all);
		sigdelset(&all, SIGSEGV);
		sigdelset(&all, SIGBUS);
		sigdelset(&all, SIGFPE);
		sigdelset(&all, SIGILL);
		pthread_sigmask(SIG_SETMASK, &all, &old);
		rc = -pthread_create(&s->thread, NULL, serve, s);
		pthread_sigmask(SIG_SETMASK, &old, NULL);
		if (rc)
			snprintf(err, errlen, "can't start a thread: %s", strerror(-rc));
	}
	if (rc) {
		destroy(s);
		return rc;
	}
	*out = s;
	return 0;
}

void mc_server_stop(struct mc_server *s)
{
	uint64_t one = 1;

	if (write(s->stop_fd, &one, sizeof(one)) == sizeof(one))
		pthread_join(s->thread, NULL);
	destroy(s);
}
