/* SPDX-License-Identifier: BSD-2-Clause */
/* The child's part of a hull: it finds the memory again, and uses the channel to the hull. */
#include "verbs/hull_int.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include "base/export.h"
#include "base/sys.h"

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

bool hull_name_ok(const char *name)
{
	size_t n = name ? strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
				       "0123456789-_")
			: 0;

	return n && n <= ROOST_HULL_NAME_MAX && !name[n];
}

struct hull_memory *hull_find(struct roost_hull *h, const char *name)
{
	for (unsigned i = 0; i < h->num; i++)
		if (!strcmp(h->memory[i].name, name))
			return &h->memory[i];
	return NULL;
}

/* Parses a hexadecimal number that `end` follows, and moves *at behind `end`. */
static bool take_number(const char **at, char end, uint64_t *out)
{
	char *behind;

	errno = 0;
	*out = strtoull(*at, &behind, 16);
	if (errno || behind == *at || *behind != end || **at == '-' || **at == '+')
		return false;
	*at = behind + 1;
	return true;
}

static bool take_memory(const char **at, struct hull_memory *m)
{
	size_t n = strcspn(*at, ",");
	uint64_t fd, addr, len;

	if (!n || n > ROOST_HULL_NAME_MAX || (*at)[n] != ',')
		return false;
	memcpy(m->name, *at, n);
	m->name[n] = '\0';
	*at += n + 1;
	if (!hull_name_ok(m->name) || !take_number(at, ',', &fd) || !take_number(at, ',', &addr) ||
	    !take_number(at, ';', &len) || fd > INT32_MAX || !addr || !len)
		return false;
	m->fd = (int)fd;
	m->addr = (void *)(uintptr_t)addr;
	m->len = len;
	return true;
}

/*
 * Maps a memory. Returns 0 or -errno. The length of the descriptor is checked, because access
 * beyond its end would raise SIGBUS.
 */
static int map(const struct hull_memory *m)
{
	struct stat st;
	void *at;

	if (fstat(m->fd, &st) || st.st_size < 0 || (uint64_t)st.st_size < m->len)
		return -EINVAL;
	at = mmap(m->addr, m->len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED_NOREPLACE, m->fd,
		  0);
	if (at == MAP_FAILED)
		return -errno;
	if (at != m->addr) { /* kernels before 4.17 treat the address as a hint */
		munmap(at, m->len);
		return -EEXIST;
	}
	return 0;
}

static int join(struct roost_hull *h, const char *env)
{
	uint64_t channel;
	int rc;

	if (!take_number(&env, ';', &channel) || channel > INT32_MAX)
		return -EINVAL;
	h->channel = (int)channel;
	while (*env) {
		struct hull_memory *m = &h->memory[h->num];

		if (h->num == ROOST_HULL_MEMORIES || !take_memory(&env, m) || hull_find(h, m->name))
			return -EINVAL;
		rc = map(m);
		if (rc)
			return rc;
		h->num++;
		/* the child's own children do not inherit it */
		sys_fcntl(m->fd, F_SETFD, FD_CLOEXEC);
	}
	sys_fcntl(h->channel, F_SETFD, FD_CLOEXEC);
	return 0;
}

ROOST_EXPORT struct roost_hull *roost_hull_join(void)
{
	const char *env = sys_env(HULL_ENV);
	struct roost_hull *h;
	int rc;

	if (!env) {
		errno = ENOENT;
		return NULL;
	}
	h = calloc(1, sizeof(*h));
	if (!h)
		return NULL;
	h->child = true;
	h->stop[0] = h->stop[1] = -1;
	rc = join(h, env);
	if (!rc)
		return h;
	for (unsigned i = 0; i < h->num; i++)
		munmap(h->memory[i].addr, h->memory[i].len);
	free(h);
	errno = -rc;
	return NULL;
}

static ssize_t receive_answer(int fd, struct hull_answer *answer, void *reply, size_t size)
{
	struct iovec io[2] = {{answer, sizeof(*answer)}, {reply, size}};
	struct msghdr msg = {.msg_iov = io, .msg_iovlen = 2};
	ssize_t n;

	do
		n = sys_recvmsg(fd, &msg, 0);
	while (n == -EINTR);
	return n;
}

ROOST_EXPORT long roost_hull_ask(struct roost_hull *h, const void *request, size_t len, void *reply,
				 size_t size)
{
	struct hull_answer answer;
	ssize_t n;

	if (!len) /* an empty message looks like the end of the channel */
		return -EINVAL;
	if (len > ROOST_HULL_MESSAGE_MAX)
		return -EMSGSIZE;
	if (!h->child || h->channel < 0)
		return -EPIPE;
	do
		n = sys_sendto(h->channel, request, len, MSG_NOSIGNAL, NULL, 0);
	while (n == -EINTR);
	if (n < 0)
		return n == -ECONNRESET ? -EPIPE : (long)n;
	n = receive_answer(h->channel, &answer, reply, size);
	if (n < (ssize_t)sizeof(answer))
		return n < 0 && n != -ECONNRESET ? (long)n : -EPIPE;
	return answer.result;
}
