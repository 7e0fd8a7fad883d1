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

/*
 * Reads up to the end of the stream. Returns a text that the caller frees, or NULL when the stream
 * does not end in time. A reset of the stream gives an empty text.
 */
static char *read_answer(int fd, int answer_ms)
{
	uint64_t end = clock_ns() + (uint64_t)answer_ms * 1000000, now;
	char *buf = malloc(ANSWER_MAX);
	struct pollfd p = {.fd = fd, .events = POLLIN};
	size_t have = 0;

	while (buf && have < ANSWER_MAX) {
		ssize_t n;

		now = clock_ns();
		if (now >= end || poll(&p, 1, (int)((end - now) / 1000000) + 1) <= 0)
			break;
		n = recv(fd, buf + have, ANSWER_MAX - have, MSG_DONTWAIT);
		if (n < 0 && errno == ECONNRESET)
			have = 0;
		else if (n < 0)
			break;
		if (n <= 0) {
			buf[have] = '\0';
			return buf;
		}
		have += (size_t)n;
	}
	free(buf);
	return NULL;
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
	/* The connection may have to wait for those of other clients. */
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

json_t *ask(int dirfd, const char *name, const char *request, int answer_ms, bool *mute)
{
	bool gone;
	int fd = dial(dirfd, name, answer_ms, &gone);
	char *text = NULL;
	json_t *o = NULL;

	if (fd >= 0) {
		if (!request || send_request(fd, request))
			text = read_answer(fd, answer_ms);
		close(fd);
	}
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
	*mute = !gone;
	if (!json_is_object(o)) {
		json_decref(o);
		return NULL;
	}
	return o;
}

/* Returns the number behind the prefix; 0: the file is of another kind. */
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
	unsigned n = 0, room = 0;
	struct dirent *e;

	*pids = NULL;
	while (dir && (e = readdir(dir)) != NULL) {
		int pid = pid_of(e->d_name, prefix);

		if (!pid)
			continue;
		if (n == room) {
			int *more = realloc(*pids, (room += 64) * sizeof(*more));

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
