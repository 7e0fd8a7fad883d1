/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Rows of `roost doctor` about memory and files: locked memory, huge pages, /dev/shm, the private
 * folder.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/sys.h"
#include "cli/doctor/doctor.h"
#include "cli/term.h"
#include "port/shm_dir.h"

#define MEMLOCK_LEAST (1u << 20) /* some containers have 64 KiB; the default of systems is 8 MiB */
#define SHM_LEAST     (16u << 20)

/*
 * Memory regions are not pinned (src/nic/mr.c). When the Linux kernel has moved a page, it is found
 * again through the page tables of the process.
 */
void doctor_memlock(const struct doctor *d, struct doctor_finding *f)
{
	struct rlimit limit = {0};
	char size[32];

	getrlimit(RLIMIT_MEMLOCK, &limit);
	if (limit.rlim_cur == RLIM_INFINITY)
		doctor_found(f, "no limit; Roost locks no memory");
	else
		doctor_found(f, "%s; Roost locks no memory",
			     fmt_bytes(size, sizeof(size), (uint64_t)limit.rlim_cur));
	if (limit.rlim_cur < MEMLOCK_LEAST)
		doctor_remedy(
			f, DOCTOR_WARN,
			"only for a program that calls mlock() itself: ulimit -l, or --ulimit memlock=-1");
}

void doctor_huge_pages(const struct doctor *d, struct doctor_finding *f)
{
	static const char path[] = "/sys/kernel/mm/transparent_hugepage/enabled";
	char line[64];

	if (!doctor_line(path, line, sizeof(line)))
		snprintf(line, sizeof(line), "this kernel has none, or hides them");
	doctor_found(f, "transparent: %s", line);
	if (!strstr(line, "[always]") && !strstr(line, "[madvise]"))
		doctor_remedy(f, DOCTOR_WARN,
			      "large regions are a little slower: echo madvise > %s, on the host",
			      path);
}

/*
 * The rings of shm are memory files, which no mount limits. Other programs (MPI) use this folder,
 * and Roost uses it when /tmp is not writable.
 */
void doctor_dev_shm(const struct doctor *d, struct doctor_finding *f)
{
	struct statvfs fs;
	uint64_t size, space;
	char total[32], left[32];

	if (statvfs("/dev/shm", &fs)) {
		doctor_found(f, "not there (%s)", strerror(errno));
		doctor_remedy(f, DOCTOR_WARN,
			      "programs that share memory (MPI) fail: mount a tmpfs at /dev/shm");
		return;
	}
	size = (uint64_t)fs.f_blocks * fs.f_frsize;
	space = (uint64_t)fs.f_bavail * fs.f_frsize;
	doctor_found(f, "%s, %s free", fmt_bytes(total, sizeof(total), size),
		     fmt_bytes(left, sizeof(left), space));
	if (access("/dev/shm", W_OK))
		doctor_remedy(
			f, DOCTOR_WARN,
			"can't be written; programs that share memory (MPI) fail: chmod 1777 /dev/shm");
	else if (space < SHM_LEAST)
		doctor_remedy(
			f, DOCTOR_WARN,
			"programs that share memory (MPI) may end by SIGBUS: remove files there, or --shm-size=256m");
}

/* Checks that a socket and a file with contents can be created there. Returns 0 or -errno. */
static int use_folder(int dirfd)
{
	char name[SHM_NAME_MAX];
	int fd, rc;

	snprintf(name, sizeof(name), "doctor.%d", (int)getpid());
	fd = shm_dir_listen(dirfd, name);
	if (fd < 0)
		return fd;
	sys_close(fd);
	unlinkat(dirfd, name, 0);
	fd = openat(dirfd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	rc = write(fd, name, strlen(name)) == (ssize_t)strlen(name) ? 0 : -errno;
	close(fd);
	unlinkat(dirfd, name, 0);
	return rc;
}

/*
 * Checks the folder of the endpoints of shm, and of the sockets of `roost stat` and `roost kernel`.
 */
void doctor_folder(const struct doctor *d, struct doctor_finding *f)
{
	char err[256], link[32], path[256] = "?";
	int rc, dirfd = shm_dir_open(err, sizeof(err));
	ssize_t n;

	if (dirfd < 0) {
		doctor_found(f, "none: no shm; roost stat and kernel see nothing");
		doctor_remedy(f, DOCTOR_FAIL, "%s", err);
		return;
	}
	snprintf(link, sizeof(link), "/proc/self/fd/%d", dirfd);
	n = readlink(link, path, sizeof(path) - 1);
	path[n > 0 ? n : 0] = '\0';
	doctor_found(f, "%s", path);
	rc = use_folder(dirfd);
	if (rc)
		doctor_remedy(
			f, DOCTOR_FAIL,
			"sockets and files can't be made there (%s): correct this, or name another folder in ROOST_SHM_DIR",
			strerror(-rc));
	sys_close(dirfd);
}
