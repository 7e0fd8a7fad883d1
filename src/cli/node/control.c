/* SPDX-License-Identifier: BSD-2-Clause */
#include "cli/node/control.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/spare.h"
#include "cli/term.h"
#include "port/shm_dir.h"

#define PREFIX "node."

static const char *control_name(char buf[SHM_NAME_MAX])
{
	snprintf(buf, SHM_NAME_MAX, PREFIX "%d", (int)getpid());
	return buf;
}

int node_control_open(struct node_control *c, char *err, size_t errlen)
{
	char name[SHM_NAME_MAX];

	for (unsigned i = 0; i < NODE_CONTROL_PEERS; i++)
		c->peer[i].fd = -1;
	c->fd = c->spare = -1;
	c->dirfd = shm_dir_open(err, errlen);
	if (c->dirfd < 0)
		return c->dirfd;
	shm_dir_sweep(c->dirfd, PREFIX);
	c->fd = shm_dir_listen(c->dirfd, control_name(name));
	if (c->fd >= 0) {
		c->spare = spare_open();
		return 0;
	}
	snprintf(err, errlen, "can't make the control socket %s: %s", name, strerror(-c->fd));
	close(c->dirfd);
	c->dirfd = -1;
	return c->fd;
}

static uint64_t now_ms(void)
{
	return clock_ns() / 1000000;
}

static void disconnect(struct node_peer *p)
{
	if (p->fd >= 0)
		close(p->fd);
	p->fd = -1;
}

void node_control_close(struct node_control *c)
{
	char name[SHM_NAME_MAX];

	if (c->dirfd < 0)
		return;
	for (unsigned i = 0; i < NODE_CONTROL_PEERS; i++)
		disconnect(&c->peer[i]);
	unlinkat(c->dirfd, control_name(name), 0);
	close(c->fd);
	close(c->dirfd);
	if (c->spare >= 0)
		close(c->spare);
	c->dirfd = c->fd = c->spare = -1;
}

int node_control_fds(struct node_control *c, struct pollfd *p)
{
	uint64_t now = now_ms();

	rest_ends(&c->rest, now);
	p[0] = (struct pollfd){.fd = c->rest.until ? -1 : c->fd, .events = POLLIN};
	for (unsigned i = 0; i < NODE_CONTROL_PEERS; i++)
		p[1 + i] = (struct pollfd){.fd = c->peer[i].fd, .events = POLLIN};
	return rest_left(&c->rest, now);
}

/*
 * Sends an answer, which fits in the buffer of a fresh socket, so no client can block the node. A
 * client that does not read loses its answer.
 */
static void send_answer(int fd, json_t *o)
{
	char *text = o ? json_dumps(o, JSON_COMPACT) : NULL;

	if (text)
		send(fd, text, strlen(text), MSG_DONTWAIT | MSG_NOSIGNAL);
	free(text);
	json_decref(o);
}

static void answer(struct node_control *c, const struct node_peer *p, size_t len)
{
	struct node_request r;
	char err[256];

	if (node_request_parse(p->line, len, &r, err, sizeof(err)))
		send_answer(p->fd, c->answer(c->ctx, &r));
	else
		send_answer(p->fd, json_pack("{s:s}", "error", err));
}

/*
 * Reads one line, answers it and closes the connection. When the buffer is full or the stream ends
 * without an end of line, the part in the buffer is answered.
 */
static void serve_client(struct node_control *c, struct node_peer *p)
{
	ssize_t n = recv(p->fd, p->line + p->have, sizeof(p->line) - p->have, MSG_DONTWAIT);
	char *end;

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n > 0) {
		p->have += (size_t)n;
		end = memchr(p->line, '\n', p->have);
		if (!end && p->have < sizeof(p->line))
			return;
		answer(c, p, end ? (size_t)(end - p->line) : p->have);
	}
	disconnect(p);
}

static struct node_peer *slot_for_peer(struct node_control *c)
{
	struct node_peer *oldest = &c->peer[0];

	for (unsigned i = 0; i < NODE_CONTROL_PEERS; i++) {
		if (c->peer[i].fd < 0)
			return &c->peer[i];
		if (c->peer[i].since < oldest->since)
			oldest = &c->peer[i];
	}
	disconnect(oldest);
	return oldest;
}

static void accept_client(struct node_control *c)
{
	struct ucred peer = {0};
	socklen_t len = sizeof(peer);
	enum spare_result result;
	struct node_peer *p;
	int fd;

	result = spare_accept(c->fd, SOCK_NONBLOCK, &c->spare, &fd);
	if (result == SPARE_REST)
		rest_begin(&c->rest, now_ms());
	if (result != SPARE_ACCEPTED)
		return;
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) || peer.uid != geteuid()) {
		close(fd);
		return;
	}
	p = slot_for_peer(c);
	p->fd = fd;
	p->have = 0;
	p->since = ++c->turn;
	serve_client(c, p);
}

bool node_control_serve(struct node_control *c, const struct pollfd *p)
{
	bool received = false;

	for (unsigned i = 0; i < NODE_CONTROL_PEERS; i++) {
		if (p[1 + i].fd >= 0 && p[1 + i].revents) {
			serve_client(c, &c->peer[i]);
			received = true;
		}
	}
	if (p[0].revents) {
		accept_client(c);
		received = true;
	}
	return received;
}
