/* SPDX-License-Identifier: BSD-2-Clause */
#include "port/shm_dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/sys.h"
#include "port/port.h"

#define LOCK_TRIES 16
#define MARK_MAX   128	     /* "GROUP@ADDRESS.LANE" */
#define SETTLED_NS 100000000 /* many ticks of any kernel */

/* Opens `path` as the private folder, and makes it if it does not exist. Its parent must exist. */
static int open_private(const char *path)
{
	struct stat st;
	int fd;

	if (mkdir(path, 0700) && errno != EEXIST)
		return -errno;
	fd = sys_open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return fd;
	if (fstat(fd, &st) == 0 && st.st_uid == geteuid() && (st.st_mode & 077) == 0)
		return fd;
	sys_close(fd);
	return -EPERM;
}

static int set_error(char *err, size_t errlen, const char *path, int rc)
{
	if (rc == -EPERM || rc == -ENOTDIR || rc == -ELOOP)
		snprintf(
			err, errlen,
			"shm: %s is not a private folder (a directory that you own, with rights 0700): "
			"correct it, or set ROOST_SHM_DIR to another folder",
			path);
	else
		snprintf(
			err, errlen,
			"shm: can't use the folder %s: %s; set ROOST_SHM_DIR to another (see roost doctor)",
			path, strerror(-rc));
	return rc;
}

int shm_dir_open(char *err, size_t errlen)
{
	const char *chosen = sys_env("ROOST_SHM_DIR"), *run = sys_env("XDG_RUNTIME_DIR");
	char path[512];
	int fd;

	if (chosen && *chosen) {
		fd = open_private(chosen);
		return fd < 0 ? set_error(err, errlen, chosen, fd) : fd;
	}
	/* After a plain su, XDG_RUNTIME_DIR belongs to another user and is of no use here. */
	if (run && *run == '/' &&
	    snprintf(path, sizeof(path), "%s/roost", run) < (int)sizeof(path)) {
		fd = open_private(path);
		if (fd >= 0)
			return fd;
	}
	snprintf(path, sizeof(path), "/tmp/roost-%u", (unsigned)geteuid());
	fd = open_private(path);
	/*
	 * This folder is used only if /tmp cannot be written. Otherwise another user could choose
	 * the folder by taking the name in /tmp.
	 */
	if (fd == -EROFS || fd == -EACCES || fd == -ENOENT) {
		snprintf(path, sizeof(path), "/dev/shm/roost-%u", (unsigned)geteuid());
		fd = open_private(path);
	}
	return fd < 0 ? set_error(err, errlen, path, fd) : fd;
}

socklen_t shm_dir_sockaddr(int dirfd, const char *name, struct sockaddr_un *sa)
{
	memset(sa, 0, sizeof(*sa));
	sa->sun_family = AF_UNIX;
	snprintf(sa->sun_path, sizeof(sa->sun_path), "/proc/self/fd/%d/%.*s", dirfd,
		 SHM_NAME_MAX - 1, name);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(sa->sun_path) + 1);
}

static bool has_listener(const struct sockaddr_un *sa, socklen_t len)
{
	int fd = sys_socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int rc = fd < 0 ? fd : sys_connect(fd, (const struct sockaddr *)sa, len);

	if (fd >= 0)
		sys_close(fd);
	return rc != -ECONNREFUSED && rc != -ENOENT;
}

/* Opens the folder for reading. Each open has a read position of its own. */
static DIR *read_folder(int dirfd)
{
	int fd = sys_openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);

	if (!d && fd >= 0)
		sys_close(fd);
	return d;
}

/* Makes a socket listen under a name of its own, which is not the name that others look for. */
static int listen_at(int dirfd, int fd, char name[SHM_NAME_MAX])
{
	struct sockaddr_un sa;
	struct stat st;
	int rc;

	if (fstat(fd, &st))
		return -errno;
	snprintf(name, SHM_NAME_MAX, ".%llx", (unsigned long long)st.st_ino);
	rc = sys_bind(fd, (struct sockaddr *)&sa, shm_dir_sockaddr(dirfd, name, &sa));
	if (rc)
		return rc;
	rc = sys_listen(fd, 16);
	if (rc)
		unlinkat(dirfd, name, 0);
	return rc;
}

/*
 * The socket gets its name when it listens. Between bind() and listen() a connection is refused,
 * and a client would take the socket for that of a dead process, and remove it.
 */
int shm_dir_listen(int dirfd, const char *name)
{
	struct sockaddr_un sa;
	socklen_t len = shm_dir_sockaddr(dirfd, name, &sa);
	char own[SHM_NAME_MAX];
	int fd = sys_socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int rc;

	if (fd < 0)
		return fd;
	rc = has_listener(&sa, len) ? -EADDRINUSE : listen_at(dirfd, fd, own);
	if (rc == 0 && renameat(dirfd, own, dirfd, name)) {
		rc = -errno;
		unlinkat(dirfd, own, 0);
	}
	if (rc == 0)
		return fd;
	sys_close(fd);
	return rc;
}

/* Returns the number behind the prefix, or 0 if the name is of another kind. */
static pid_t pid_in(const char *name, const char *prefix)
{
	size_t n = strlen(prefix);
	char *end;
	long pid;

	if (strncmp(name, prefix, n) != 0 || name[n] < '1' || name[n] > '9')
		return 0;
	pid = strtol(name + n, &end, 10);
	return *end == '\0' && pid < INT32_MAX ? (pid_t)pid : 0;
}

/*
 * The process id alone proves nothing: a container may share the folder, and its processes have
 * ids of another namespace.
 */
void shm_dir_sweep(int dirfd, const char *prefix)
{
	struct sockaddr_un sa;
	struct dirent *e;
	DIR *d = read_folder(dirfd);

	while (d && (e = readdir(d)) != NULL) {
		pid_t pid = pid_in(e->d_name, prefix);

		if (pid && kill(pid, 0) && errno == ESRCH &&
		    !has_listener(&sa, shm_dir_sockaddr(dirfd, e->d_name, &sa)))
			unlinkat(dirfd, e->d_name, 0);
	}
	if (d)
		closedir(d);
}

const char *shm_dir_name(const struct pkt_addr *addr, unsigned lane, char buf[SHM_NAME_MAX])
{
	char text[46];

	snprintf(buf, SHM_NAME_MAX, "%s.%u", pkt_addr_print(addr, text, sizeof(text)), lane);
	return buf;
}

/* ---- marks of group members ---- */

static const char *mark_name(const struct pkt_addr *group, const struct pkt_addr *addr,
			     unsigned lane, char buf[MARK_MAX])
{
	char text[46], name[SHM_NAME_MAX];

	snprintf(buf, MARK_MAX, "%s@%s", pkt_addr_print(group, text, sizeof(text)),
		 shm_dir_name(addr, lane, name));
	return buf;
}

int shm_dir_mark(int dirfd, const struct pkt_addr *group, const struct pkt_addr *addr,
		 unsigned lane)
{
	char name[MARK_MAX];
	int fd = sys_openat(dirfd, mark_name(group, addr, lane, name),
			    O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

	if (fd < 0)
		return fd;
	sys_close(fd);
	return 0;
}

void shm_dir_unmark(int dirfd, const struct pkt_addr *group, const struct pkt_addr *addr,
		    unsigned lane)
{
	char name[MARK_MAX];

	unlinkat(dirfd, mark_name(group, addr, lane, name), 0);
}

/* Parses "ADDRESS.LANE". */
static bool parse_member(const char *text, struct pkt_addr *addr, unsigned *lane)
{
	char copy[SHM_NAME_MAX], *dot;

	if (strlen(text) >= sizeof(copy))
		return false;
	strcpy(copy, text);
	dot = strrchr(copy, '.');
	if (!dot || dot[1] < '0' || dot[1] >= '0' + PORT_MAX_LANES || dot[2])
		return false;
	*dot = '\0';
	*lane = (unsigned)(dot[1] - '0');
	return !pkt_addr_parse(copy, addr);
}

void shm_dir_members(int dirfd, const struct pkt_addr *group,
		     void (*fn)(void *ctx, const struct pkt_addr *addr, unsigned lane), void *ctx)
{
	char prefix[64];
	struct pkt_addr addr;
	struct dirent *e;
	unsigned lane;
	size_t n;
	DIR *d = read_folder(dirfd);

	if (!d)
		return;
	pkt_addr_print(group, prefix, sizeof(prefix) - 1);
	strcat(prefix, "@");
	n = strlen(prefix);
	while ((e = readdir(d)) != NULL) {
		if (strncmp(e->d_name, prefix, n) == 0 && parse_member(e->d_name + n, &addr, &lane))
			fn(ctx, &addr, lane);
	}
	closedir(d);
}

/*
 * Removes the marks of an address and lane that this process has claimed: the process that left
 * them is dead.
 */
static void remove_marks(int dirfd, const char *name)
{
	struct dirent *e;
	DIR *d = read_folder(dirfd);

	if (!d)
		return;
	while ((e = readdir(d)) != NULL) {
		const char *at = strchr(e->d_name, '@');

		if (at && strcmp(at + 1, name) == 0)
			unlinkat(dirfd, e->d_name, 0);
	}
	closedir(d);
}

uint64_t shm_dir_changed(int dirfd)
{
	struct timespec now;
	struct stat st;
	uint64_t t;

	if (fstat(dirfd, &st))
		return 0;
	clock_gettime(CLOCK_REALTIME_COARSE, &now);
	t = (uint64_t)st.st_mtim.tv_sec * 1000000000ull + (uint64_t)st.st_mtim.tv_nsec;
	return t + SETTLED_NS < (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec ? t
											     : 0;
}

/* ---- claims ---- */

static void lock_name(const char *name, char buf[SHM_NAME_MAX])
{
	snprintf(buf, SHM_NAME_MAX, "%.70s.lock", name);
}

/* Returns the namespace of this process's id, or 0 if it is unknown. */
static uint64_t own_pid_ns(void)
{
	struct stat st;

	return stat("/proc/self/ns/pid", &st) ? 0 : (uint64_t)st.st_ino;
}

/* Reads "PID LANES RING NAMESPACE\n". Returns false if the contents are invalid. */
static bool read_lock(int fd, struct shm_holder *h)
{
	char buf[96];
	ssize_t n = sys_pread(fd, buf, sizeof(buf) - 1, 0);

	if (n <= 0)
		return false;
	buf[n] = '\0';
	return sscanf(buf, "%ld %u %" SCNu32 " %" SCNu64, &h->pid, &h->lanes, &h->ring,
		      &h->pid_ns) == 4 &&
	       h->pid > 0 && h->lanes >= 1 && h->lanes <= PORT_MAX_LANES;
}

static int write_lock(int fd, unsigned lanes, uint32_t ring)
{
	char text[96];
	int n = snprintf(text, sizeof(text), "%ld %u %" PRIu32 " %" PRIu64 "\n", (long)getpid(),
			 lanes, ring, own_pid_ns());

	ssize_t written;

	if (ftruncate(fd, 0))
		return -errno;
	written = sys_pwrite(fd, text, (size_t)n, 0);
	return written == n ? 0 : written < 0 ? (int)written : -EIO;
}

/*
 * Opens and locks the lock file. A holder that leaves removes the file, so a process that waited
 * with the old file open must notice this and begin again.
 */
static int take_lock(int dirfd, const char *lock, pid_t *holder)
{
	for (int i = 0; i < LOCK_TRIES; i++) {
		int fd = sys_openat(dirfd, lock,
				    O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
		struct stat mine, there;
		struct shm_holder h;

		if (fd < 0)
			return fd == -ELOOP || fd == -EISDIR || fd == -ENXIO ? -EEXIST : fd;
		if (fstat(fd, &mine) || !S_ISREG(mine.st_mode)) {
			sys_close(fd);
			return -EEXIST;
		}
		if (flock(fd, LOCK_EX | LOCK_NB)) {
			int rc = errno == EWOULDBLOCK ? -EADDRINUSE : -errno;

			*holder = read_lock(fd, &h) ? (pid_t)h.pid : 0;
			sys_close(fd);
			return rc;
		}
		if (fstatat(dirfd, lock, &there, AT_SYMLINK_NOFOLLOW) == 0 &&
		    there.st_ino == mine.st_ino && there.st_dev == mine.st_dev)
			return fd;
		sys_close(fd);
	}
	return -EADDRINUSE;
}

int shm_dir_holder(int dirfd, const struct pkt_addr *addr, unsigned lane, struct shm_holder *h)
{
	char name[SHM_NAME_MAX], lock[SHM_NAME_MAX];
	int fd, rc;

	lock_name(shm_dir_name(addr, lane, name), lock);
	fd = sys_openat(dirfd, lock, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0);
	if (fd < 0)
		return fd;
	rc = read_lock(fd, h) ? 0 : -EINVAL;
	sys_close(fd);
	return rc;
}

bool shm_dir_may_hold(const struct shm_holder *h, pid_t pid)
{
	return pid == 0 || !h->pid_ns || h->pid_ns != own_pid_ns() || h->pid == pid;
}

/* Removes the socket of a dead process. A file of another type stays. */
static int remove_stale(int dirfd, const char *name)
{
	struct stat st;

	if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW))
		return errno == ENOENT ? 0 : -errno;
	if (!S_ISSOCK(st.st_mode))
		return -EEXIST;
	return unlinkat(dirfd, name, 0) && errno != ENOENT ? -errno : 0;
}

int shm_claim(int dirfd, const struct pkt_addr *addr, unsigned lane, unsigned lanes, uint32_t ring,
	      struct shm_claim *c, pid_t *holder)
{
	struct shm_holder first = {.pid = 0};
	char lock[SHM_NAME_MAX];
	int fd, rc;

	*holder = 0;
	if (lane > 0 && (shm_dir_holder(dirfd, addr, 0, &first) || first.pid != getpid())) {
		*holder = (pid_t)first.pid;
		return -EADDRINUSE;
	}
	shm_dir_name(addr, lane, c->name);
	lock_name(c->name, lock);
	fd = take_lock(dirfd, lock, holder);
	if (fd < 0)
		return fd;
	rc = remove_stale(dirfd, c->name);
	remove_marks(dirfd, c->name);
	if (rc == 0)
		rc = write_lock(fd, lanes, ring);
	if (rc) {
		unlinkat(dirfd, lock, 0);
		sys_close(fd);
		return rc;
	}
	c->lock_fd = fd;
	return 0;
}

void shm_unclaim(int dirfd, struct shm_claim *c, bool forked)
{
	char lock[SHM_NAME_MAX];

	if (!forked) {
		lock_name(c->name, lock);
		unlinkat(dirfd, c->name, 0);
		unlinkat(dirfd, lock, 0);
	}
	sys_close(c->lock_fd);
}
