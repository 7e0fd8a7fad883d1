/* SPDX-License-Identifier: BSD-2-Clause */
#include "cli/ask.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "cli/term.h"
#include "port/shm_dir.h"

#define ANSWER_MAX (1u << 20) /* bytes */

/* Ends an answer. `complete`: the whole answer has arrived. */
static void end_answer(struct ask_answer *a, bool complete)
{
	close(a->fd);
	a->fd = -1;
	if (complete && a->text) {
		a->text[a->have] = '\0';
		return;
	}
	free(a->text);
	a->text = NULL;
}

/* Reads the bytes that have arrived. */
static void read_more(struct ask_answer *a)
{
	ssize_t n;

	if (a->space - a->have < 2) {
		size_t space = a->space ? 2 * a->space : 1u << 16;
		char *more = space > ANSWER_MAX ? NULL : realloc(a->text, space);

		if (!more) {
			end_answer(a, false);
			return;
		}
		a->text = more;
		a->space = space;
	}
	n = recv(a->fd, a->text + a->have, a->space - a->have - 1, MSG_DONTWAIT);
	if (n > 0)
		a->have += (size_t)n;
	else if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	else if (n < 0 && errno == ECONNRESET)
		a->have = 0;
	if (n <= 0)
		end_answer(a, n == 0 || errno == ECONNRESET);
}

void ask_read_all(struct ask_answer *a, unsigned n, int answer_ms)
{
	uint64_t end = clock_ns() + (uint64_t)answer_ms * 1000000, now;
	struct pollfd *p = calloc(n, sizeof(*p));
	unsigned left = p ? 1 : 0;

	while (left && (now = clock_ns()) < end) {
		left = 0;
		for (unsigned i = 0; i < n; i++) {
			p[i] = (struct pollfd){.fd = a[i].fd, .events = POLLIN}; /* -1: ignored */
			left += a[i].fd >= 0;
		}
		if (!left || poll(p, n, (int)((end - now) / 1000000) + 1) <= 0)
			continue;
		for (unsigned i = 0; i < n; i++) {
			if (a[i].fd >= 0 && p[i].revents)
				read_more(&a[i]);
		}
	}
	for (unsigned i = 0; i < n; i++) {
		if (a[i].fd >= 0)
			end_answer(&a[i], false);
	}
	free(p);
}

/* Sends without waiting: the request fits in the buffer of a fresh socket. */
static bool send_request(int fd, const char *request)
{
	struct iovec line[2] = {{(void *)(uintptr_t)request, strlen(request)}, {"\n", 1}};
	struct msghdr msg = {.msg_iov = line, .msg_iovlen = 2};

	return sendmsg(fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)(line[0].iov_len + 1);
}

/*
 * Returns a socket that is connected to `name`, or -1. Sets *gone if the process of the socket has
 * ended; its name is removed then.
 */
static int dial(int dirfd, const char *name, int answer_ms, bool *gone)
{
	struct sockaddr_un sa;
	socklen_t len = shm_dir_sockaddr(dirfd, name, &sa);
	struct timeval timeout = {answer_ms / 1000, answer_ms % 1000 * 1000};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	*gone = false;
	if (fd < 0)
		return -1;
	/* The connection may have to wait for connections of other clients. */
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
	if (connect(fd, (struct sockaddr *)&sa, len) == 0)
		return fd;
	if (errno == ECONNREFUSED || errno == ENOENT) {
		unlinkat(dirfd, name, 0);
		*gone = true;
	}
	close(fd);
	return -1;
}

json_t *ask(int dirfd, const char *name, const char *request, int answer_ms, bool *no_answer)
{
	bool gone;
	int fd = dial(dirfd, name, answer_ms, &gone);
	struct ask_answer a = {.fd = fd};
	char *text;
	json_t *o = NULL;

	if (fd >= 0 && request && !send_request(fd, request))
		end_answer(&a, false);
	ask_read_all(&a, 1, answer_ms);
	text = a.text;
	if (text)
		o = json_loads(text, 0, NULL);
	/*
	 * A process that ends before it answers closes the connection. A second connection attempt
	 * then finds that no process listens.
	 */
	if (text && !*text) {
		fd = dial(dirfd, name, answer_ms, &gone);
		if (fd >= 0)
			close(fd);
	}
	free(text);
	*no_answer = !gone;
	if (!json_is_object(o)) {
		json_decref(o);
		return NULL;
	}
	return o;
}

/* Returns the number behind the prefix, or 0 if the file is of another kind. */
static int pid_of(const char *name, const char *prefix)
{
	size_t n = strlen(prefix);
	char *end;
	long pid;

	if (strncmp(name, prefix, n) != 0 || !isdigit((unsigned char)name[n]))
		return 0;
	pid = strtol(name + n, &end, 10);
	return *end == '\0' && pid > 0 && pid < INT32_MAX ? (int)pid : 0;
}

static int compare_pids(const void *a, const void *b)
{
	return (*(const int *)a > *(const int *)b) - (*(const int *)a < *(const int *)b);
}

unsigned ask_list(int dirfd, const char *prefix, int **pids)
{
	int copy = openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = copy < 0 ? NULL : fdopendir(copy);
	unsigned n = 0, space = 0;
	struct dirent *e;

	*pids = NULL;
	while (dir && (e = readdir(dir)) != NULL) {
		int pid = pid_of(e->d_name, prefix);

		if (!pid)
			continue;
		if (n == space) {
			int *more = realloc(*pids, (space += 64) * sizeof(*more));

			if (!more)
				break;
			*pids = more;
		}
		(*pids)[n++] = pid;
	}
	if (dir)
		closedir(dir);
	if (n)
		qsort(*pids, n, sizeof(**pids), compare_pids);
	return n;
}
