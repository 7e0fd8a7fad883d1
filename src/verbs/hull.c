/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * roost_hull(): a parent owns the NIC, and restarts the program that works on its memory whenever
 * the program ends. The memory is a memfd that both map shared, so a fork copies nothing, and peers
 * read the bytes that a dead child wrote.
 *
 *	hull: NIC, queue pairs, registrations ---- memfd ---- child (fork, or fork and exec)
 *	         '---------------- channel: SOCK_SEQPACKET ----------'
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/export.h"
#include "base/mem.h"
#include "base/sys.h"
#include "verbs/hull_int.h"

#define SHORT_LIFE_MS 1000
#define PAUSE_MIN_MS  10
#define PAUSE_MAX_MS  1000
#define NO_PROGRAM    127 /* exit status, as of a shell */

extern char **environ;

struct child {
	pid_t pid;
	int channel; /* the hull's end of the channel */
	uint64_t started;
};

static uint64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

/* ---- the hull and its memory ---- */

ROOST_EXPORT struct roost_hull *roost_hull_create(void)
{
	struct roost_hull *h = calloc(1, sizeof(*h));

	if (!h)
		return NULL;
	h->channel = -1;
	h->request = malloc(ROOST_HULL_MESSAGE_MAX);
	h->reply = malloc(sizeof(struct hull_answer) + ROOST_HULL_MESSAGE_MAX);
	if (!h->request || !h->reply || pipe2(h->stop, O_CLOEXEC | O_NONBLOCK)) {
		int err = h->request && h->reply ? errno : ENOMEM;

		free(h->request);
		free(h->reply);
		free(h);
		errno = err;
		return NULL;
	}
	return h;
}

ROOST_EXPORT void roost_hull_destroy(struct roost_hull *h)
{
	if (!h)
		return;
	for (unsigned i = 0; i < h->num; i++) {
		munmap(h->memory[i].addr, h->memory[i].len);
		sys_close(h->memory[i].fd);
	}
	if (h->channel >= 0)
		sys_close(h->channel);
	for (int i = 0; i < 2; i++)
		if (h->stop[i] >= 0)
			sys_close(h->stop[i]);
	free(h->request);
	free(h->reply);
	free(h);
}

/*
 * Returns an address for `len` bytes, half-way between the heap and the stack. An executed program
 * has random mappings of its own, all of them near these two. A hull memory among the hull's
 * mappings would sometimes get an address that the program already uses.
 */
static void *choose_address(const struct roost_hull *h, size_t len)
{
	uintptr_t heap = (uintptr_t)sbrk(0), stack = (uintptr_t)__builtin_frame_address(0);
	uintptr_t at = heap / 2 + stack / 2;

	if (h->num)
		at = (uintptr_t)h->memory[h->num - 1].addr;
	return at > len ? (void *)ALIGN_DOWN(at - len, mem_page_size()) : NULL;
}

static void *make_memory(struct roost_hull *h, const char *name, size_t len)
{
	struct hull_memory *m = &h->memory[h->num];
	int err;

	m->fd = memfd_create(name, MFD_CLOEXEC);
	if (m->fd < 0)
		return NULL;
	/* If there is no such address, or it is taken, the kernel chooses another one. */
	m->addr = ftruncate(m->fd, (off_t)len) ? MAP_FAILED
					       : mmap(choose_address(h, len), len,
						      PROT_READ | PROT_WRITE, MAP_SHARED, m->fd, 0);
	if (m->addr == MAP_FAILED) {
		err = errno;
		sys_close(m->fd);
		errno = err;
		return NULL;
	}
	strcpy(m->name, name);
	m->len = len;
	h->num++;
	return m->addr;
}

ROOST_EXPORT void *roost_hull_memory(struct roost_hull *h, const char *name, size_t len)
{
	struct hull_memory *m;
	int err = 0;

	if (!hull_name_ok(name)) {
		errno = EINVAL;
		return NULL;
	}
	m = hull_find(h, name);
	if (h->child)
		err = !m ? ENOENT : len && len != m->len ? EINVAL : 0;
	else if (!len || len > INT64_MAX)
		err = EINVAL;
	else if (m)
		err = EEXIST;
	else if (h->num == ROOST_HULL_MEMORIES)
		err = ENOSPC;
	if (err) {
		errno = err;
		return NULL;
	}
	return h->child ? m->addr : make_memory(h, name, len);
}

/* ---- starting a child ---- */

/* Writes the variable ROOST_HULL=... for a child whose end of the channel is fd. */
static void describe(const struct roost_hull *h, int fd, char *out, size_t size)
{
	int n = snprintf(out, size, HULL_ENV "=%x;", (unsigned)fd);

	for (unsigned i = 0; i < h->num; i++) {
		const struct hull_memory *m = &h->memory[i];

		n += snprintf(out + n, size - (size_t)n, "%s,%x,%llx,%llx;", m->name,
			      (unsigned)m->fd, (unsigned long long)(uintptr_t)m->addr,
			      (unsigned long long)m->len);
	}
}

/*
 * Returns the environment with this variable added, or NULL if there is no memory. The caller frees
 * it.
 */
static char **environment(char *hull)
{
	size_t n = 0, k = 0;
	char **env;

	while (environ && environ[n])
		n++;
	env = calloc(n + 2, sizeof(*env));
	if (!env)
		return NULL;
	env[k++] = hull;
	for (size_t i = 0; i < n; i++)
		if (strncmp(environ[i], HULL_ENV "=", sizeof(HULL_ENV)))
			env[k++] = environ[i];
	return env;
}

/* Runs the program in the forked child. Does not return. */
static void run_child(struct roost_hull *h, const struct roost_hull_program *p, pid_t parent,
		      int fd, char **env)
{
	/* A child does not outlive the thread that forked it, which waits in roost_hull(). */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(NO_PROGRAM);
	h->child = true;
	h->channel = fd;
	for (int i = 0; i < 2; i++) {
		sys_close(h->stop[i]);
		h->stop[i] = -1;
	}
	if (!p->argv)
		_exit(p->run(h, p->arg));
	for (unsigned i = 0; i < h->num; i++)
		sys_fcntl(h->memory[i].fd, F_SETFD, 0);
	sys_fcntl(fd, F_SETFD, 0);
	execvpe(p->argv[0], p->argv, env);
	_exit(NO_PROGRAM);
}

static int start(struct roost_hull *h, const struct roost_hull_program *p, struct child *c)
{
	char text[HULL_ENV_MAX], **env = NULL;
	pid_t parent = getpid();
	int fds[2], rc;

	rc = sys_socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds);
	if (rc < 0)
		return rc;
	if (p->argv) {
		describe(h, fds[1], text, sizeof(text));
		env = environment(text);
		if (!env) {
			sys_close(fds[0]);
			sys_close(fds[1]);
			return -ENOMEM;
		}
	}
	c->started = now_ms();
	c->pid = fork();
	if (c->pid == 0) {
		sys_close(fds[0]);
		run_child(h, p, parent, fds[1], env);
	}
	rc = c->pid < 0 ? -errno : 0;
	free(env);
	sys_close(fds[1]);
	if (rc)
		sys_close(fds[0]);
	c->channel = rc ? -1 : fds[0];
	return rc;
}

/* ---- while a child runs ---- */

/* Answers a request of the child. Returns false at the end of the channel. */
static bool serve(struct roost_hull *h, const struct roost_hull_program *p, int fd)
{
	struct hull_answer *answer = (struct hull_answer *)h->reply;
	ssize_t n = sys_recvfrom(fd, h->request, ROOST_HULL_MESSAGE_MAX, MSG_DONTWAIT, NULL, NULL);
	size_t len = 0;

	if (n == -EAGAIN || n == -EINTR)
		return true;
	if (n <= 0)
		return false;
	answer->result =
		p->request ? p->request(p->ctx, h->request, (size_t)n, answer + 1) : -EOPNOTSUPP;
	if (answer->result > ROOST_HULL_MESSAGE_MAX)
		answer->result = -EMSGSIZE;
	if (answer->result > 0)
		len = (size_t)answer->result;
	/* The hull does not wait for a child that does not read its replies. */
	n = sys_sendto(fd, answer, sizeof(*answer) + len, MSG_NOSIGNAL | MSG_DONTWAIT, NULL, 0);
	return n >= 0 || n == -EAGAIN;
}

static void end(struct child *c, int *status)
{
	while (waitpid(c->pid, status, 0) < 0 && errno == EINTR)
		;
	if (c->channel >= 0)
		sys_close(c->channel);
}

/*
 * Answers the child until it ends. Its death closes the channel, unless its own children hold the
 * channel, so the hull also checks its state every 10 ms. Returns true if roost_hull_stop() ended
 * it.
 */
static bool watch(struct roost_hull *h, const struct roost_hull_program *p, struct child *c,
		  int *status)
{
	const struct timespec look = {.tv_nsec = 10 * 1000 * 1000};

	for (;;) {
		struct pollfd fds[2] = {{.fd = h->stop[0], .events = POLLIN},
					{.fd = c->channel, .events = POLLIN}};
		siginfo_t info = {0};

		sys_ppoll(fds, 2, &look, NULL);
		if (fds[0].revents) {
			kill(c->pid, SIGKILL);
			end(c, status);
			return true;
		}
		if (fds[1].revents && !serve(h, p, c->channel)) {
			sys_close(c->channel);
			c->channel = -1; /* poll(2) skips a negative descriptor */
		}
		if (!waitid(P_PID, (id_t)c->pid, &info, WEXITED | WNOHANG | WNOWAIT) &&
		    info.si_pid) {
			end(c, status);
			return false;
		}
	}
}

static bool restart_wanted(const struct roost_hull_program *p, int status)
{
	if (p->ended)
		return p->ended(p->ctx, status);
	return !(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* Waits. Returns true if roost_hull_stop() was called meanwhile. */
static bool pause_for(struct roost_hull *h, unsigned ms)
{
	struct pollfd fd = {.fd = h->stop[0], .events = POLLIN};
	struct timespec ts = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};

	return ms && sys_ppoll(&fd, 1, &ts, NULL) > 0;
}

ROOST_EXPORT int roost_hull(struct roost_hull *h, const struct roost_hull_program *p)
{
	unsigned pause = 0;

	if (h->child || (!p->run && !p->argv))
		return EINVAL;
	for (;;) {
		struct child c;
		int status = 0, rc = start(h, p, &c);

		if (rc)
			return -rc;
		if (watch(h, p, &c, &status) || !restart_wanted(p, status))
			return 0;
		if (now_ms() - c.started >= SHORT_LIFE_MS ||
		    (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL))
			pause = 0;
		else
			pause = pause ? pause * 2 : PAUSE_MIN_MS;
		if (pause > PAUSE_MAX_MS)
			pause = PAUSE_MAX_MS;
		if (pause_for(h, pause))
			return 0;
	}
}

ROOST_EXPORT void roost_hull_stop(struct roost_hull *h)
{
	int err = errno;

	sys_write(h->stop[1], "", 1);
	errno = err;
}
