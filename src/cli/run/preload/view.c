/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The library that `roost run` preloads. Some RDMA programs (for example UCX) bypass the verbs
 * library and look for a character device /dev/infiniband/uverbsN and for files of
 * /sys/class/infiniband before they use a device. Roost's device is a library, so the Linux kernel
 * has no such files. This library redirects paths under /sys/class/infiniband and
 * /sys/class/infiniband_verbs, and /dev/infiniband/uverbs*, to the folder that ROOST_VIEW names.
 *
 * Contents that differ between processes (GIDs, interfaces) come from our libibverbs.so.1 when the
 * file is opened: src/verbs/sysfs.h. Every other path is passed to the C library unchanged; without
 * ROOST_VIEW all paths are. The library opens, lists and writes only files that the program asks
 * for.
 */
/* This file defines both sets of names, so the headers must not replace one by the other. */
#undef _FILE_OFFSET_BITS

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "verbs/sysfs.h"

/* <fcntl.h> and <stdlib.h> turn these into inline functions or macros under fortification. */
#undef open
#undef open64
#undef openat
#undef openat64
#undef realpath

#define EXPORT __attribute__((visibility("default")))

static bool is_or_under(const char *path, const char *dir)
{
	size_t n = strlen(dir);

	return strncmp(path, dir, n) == 0 && (path[n] == '\0' || path[n] == '/');
}

static bool is_ours(const char *path)
{
	return is_or_under(path, "/sys/class/infiniband") ||
	       is_or_under(path, "/sys/class/infiniband_verbs") ||
	       strcmp(path, "/dev/infiniband") == 0 || strcmp(path, "/dev/infiniband/") == 0 ||
	       strncmp(path, "/dev/infiniband/uverbs", 22) == 0;
}

/*
 * Finds roost_sysfs() in the library that the program has loaded or, if it has loaded none, in the
 * one that it would load.
 */
static int ask(const char *path, char *out, size_t n)
{
	static __typeof__(&roost_sysfs) found;
	__typeof__(&roost_sysfs) fn = __atomic_load_n(&found, __ATOMIC_RELAXED);
	int e = errno;

	if (!fn) {
		void *library = dlopen("libibverbs.so.1", RTLD_LAZY | RTLD_LOCAL);

		fn = library ? (__typeof__(&roost_sysfs))dlsym(library, "roost_sysfs") : NULL;
		__atomic_store_n(&found, fn, __ATOMIC_RELAXED);
	}
	errno = e;
	return fn ? fn(path, out, n) : ROOST_SYSFS_OTHER;
}

static const char *view_root(const char *path)
{
	const char *root;

	if (!path || path[0] != '/' || !is_ours(path))
		return NULL;
	root = secure_getenv("ROOST_VIEW");
	return root && *root && strlen(root) + strlen(path) < PATH_MAX ? root : NULL;
}

/*
 * For calls that open a file: returns the descriptor of a file with the text of this process, -1
 * with errno, or -2 when there is no such text for this path.
 */
static int open_text(const char *path, int flags)
{
	char text[PATH_MAX];
	int rc, fd;

	if (!view_root(path) || (flags & (O_PATH | O_DIRECTORY)))
		return -2;
	rc = ask(path, text, sizeof(text));
	if (rc < 0) {
		errno = -rc;
		return -1;
	}
	if (rc != ROOST_SYSFS_TEXT)
		return -2;
	if ((flags & O_ACCMODE) != O_RDONLY) {
		errno = EACCES;
		return -1;
	}
	fd = memfd_create("roost-sysfs", flags & O_CLOEXEC ? MFD_CLOEXEC : 0);
	if (fd >= 0 && (write(fd, text, strlen(text)) < 0 || lseek(fd, 0, SEEK_SET) < 0)) {
		close(fd);
		return -1;
	}
	return fd;
}

/* Returns the redirected path, in buf, or path itself. Preserves errno. */
static const char *view(const char *path, char buf[PATH_MAX])
{
	const char *root = view_root(path);
	size_t n, m;

	if (!root)
		return path;
	if (strstr(path, "/device/net") && ask(path, buf, PATH_MAX) == ROOST_SYSFS_PATH)
		return buf;
	n = strlen(root);
	m = strlen(path);
	memcpy(buf, root, n);
	memcpy(buf + n, path, m + 1);
	return buf;
}

/*
 * Looks up the C library's function of this name, once, and redirects path. OR_ENOSYS handles a
 * function that the C library lacks.
 */
#define NEXT(fn)                                                                                   \
	static __typeof__(&fn) next;                                                               \
	__typeof__(&fn) call = __atomic_load_n(&next, __ATOMIC_RELAXED);                           \
	if (!call) {                                                                               \
		call = (__typeof__(&fn))dlsym(RTLD_NEXT, #fn);                                     \
		__atomic_store_n(&next, call, __ATOMIC_RELAXED);                                   \
	}                                                                                          \
	char buf[PATH_MAX];                                                                        \
	path = view(path, buf)

#define OR_ENOSYS(value)                                                                           \
	if (!call) {                                                                               \
		errno = ENOSYS;                                                                    \
		return value;                                                                      \
	}

/* ---- stat functions; programs built before glibc 2.33 call the __x variants ---- */

int __xstat(int ver, const char *path, struct stat *st);
int __lxstat(int ver, const char *path, struct stat *st);
int __fxstatat(int ver, int dir, const char *path, struct stat *st, int flags);
int __xstat64(int ver, const char *path, struct stat64 *st);
int __lxstat64(int ver, const char *path, struct stat64 *st);
int __fxstatat64(int ver, int dir, const char *path, struct stat64 *st, int flags);
int __open_2(const char *path, int flags);
int __open64_2(const char *path, int flags);
int __openat_2(int dir, const char *path, int flags);
int __openat64_2(int dir, const char *path, int flags);
char *__realpath_chk(const char *path, char *out, size_t n);
ssize_t __readlink_chk(const char *path, char *out, size_t len, size_t n);

#define STAT_FAMILY(suffix)                                                                        \
	EXPORT int stat##suffix(const char *path, struct stat##suffix *st)                         \
	{                                                                                          \
		NEXT(stat##suffix);                                                                \
		OR_ENOSYS(-1)                                                                      \
		return call(path, st);                                                             \
	}                                                                                          \
	EXPORT int lstat##suffix(const char *path, struct stat##suffix *st)                        \
	{                                                                                          \
		NEXT(lstat##suffix);                                                               \
		OR_ENOSYS(-1)                                                                      \
		return call(path, st);                                                             \
	}                                                                                          \
	EXPORT int fstatat##suffix(int dir, const char *path, struct stat##suffix *st, int flags)  \
	{                                                                                          \
		NEXT(fstatat##suffix);                                                             \
		OR_ENOSYS(-1)                                                                      \
		return call(dir, path, st, flags);                                                 \
	}                                                                                          \
	EXPORT int __xstat##suffix(int ver, const char *path, struct stat##suffix *st)             \
	{                                                                                          \
		NEXT(__xstat##suffix);                                                             \
		OR_ENOSYS(-1)                                                                      \
		return call(ver, path, st);                                                        \
	}                                                                                          \
	EXPORT int __lxstat##suffix(int ver, const char *path, struct stat##suffix *st)            \
	{                                                                                          \
		NEXT(__lxstat##suffix);                                                            \
		OR_ENOSYS(-1)                                                                      \
		return call(ver, path, st);                                                        \
	}                                                                                          \
	EXPORT int __fxstatat##suffix(int ver, int dir, const char *path, struct stat##suffix *st, \
				      int flags)                                                   \
	{                                                                                          \
		NEXT(__fxstatat##suffix);                                                          \
		OR_ENOSYS(-1)                                                                      \
		return call(ver, dir, path, st, flags);                                            \
	}

STAT_FAMILY()
STAT_FAMILY(64)

EXPORT int statx(int dir, const char *path, int flags, unsigned mask, struct statx *st)
{
	NEXT(statx);
	OR_ENOSYS(-1)
	return call(dir, path, flags, mask, st);
}

EXPORT int access(const char *path, int mode)
{
	NEXT(access);
	return call(path, mode);
}

EXPORT int euidaccess(const char *path, int mode)
{
	NEXT(euidaccess);
	OR_ENOSYS(-1)
	return call(path, mode);
}

EXPORT int eaccess(const char *path, int mode)
{
	NEXT(eaccess);
	OR_ENOSYS(-1)
	return call(path, mode);
}

EXPORT int faccessat(int dir, const char *path, int mode, int flags)
{
	NEXT(faccessat);
	return call(dir, path, mode, flags);
}

/* ls -l uses these functions too. */
ssize_t getxattr(const char *path, const char *name, void *value, size_t size);
ssize_t lgetxattr(const char *path, const char *name, void *value, size_t size);
ssize_t listxattr(const char *path, char *list, size_t size);
ssize_t llistxattr(const char *path, char *list, size_t size);

EXPORT ssize_t getxattr(const char *path, const char *name, void *value, size_t size)
{
	NEXT(getxattr);
	return call(path, name, value, size);
}

EXPORT ssize_t lgetxattr(const char *path, const char *name, void *value, size_t size)
{
	NEXT(lgetxattr);
	return call(path, name, value, size);
}

EXPORT ssize_t listxattr(const char *path, char *list, size_t size)
{
	NEXT(listxattr);
	return call(path, list, size);
}

EXPORT ssize_t llistxattr(const char *path, char *list, size_t size)
{
	NEXT(llistxattr);
	return call(path, list, size);
}

/* ---- opening ---- */

/* The third argument of open exists only if the call may create a file. */
#define TAKE_MODE(flags)                                                                           \
	mode_t mode = 0;                                                                           \
	if ((flags) & (O_CREAT | __O_TMPFILE)) {                                                   \
		va_list ap;                                                                        \
		va_start(ap, flags);                                                               \
		mode = va_arg(ap, mode_t);                                                         \
		va_end(ap);                                                                        \
	}

#define OPEN_TEXT(flags)                                                                           \
	int text = open_text(path, flags);                                                         \
	if (text != -2)                                                                            \
		return text;

#define OPEN_FAMILY(suffix)                                                                        \
	EXPORT int open##suffix(const char *path, int flags, ...)                                  \
	{                                                                                          \
		OPEN_TEXT(flags)                                                                   \
		NEXT(open##suffix);                                                                \
		TAKE_MODE(flags)                                                                   \
		return call(path, flags, mode);                                                    \
	}                                                                                          \
	EXPORT int openat##suffix(int dir, const char *path, int flags, ...)                       \
	{                                                                                          \
		OPEN_TEXT(flags)                                                                   \
		NEXT(openat##suffix);                                                              \
		TAKE_MODE(flags)                                                                   \
		return call(dir, path, flags, mode);                                               \
	}                                                                                          \
	EXPORT int __open##suffix##_2(const char *path, int flags)                                 \
	{                                                                                          \
		OPEN_TEXT(flags)                                                                   \
		NEXT(__open##suffix##_2);                                                          \
		OR_ENOSYS(-1)                                                                      \
		return call(path, flags);                                                          \
	}                                                                                          \
	EXPORT int __openat##suffix##_2(int dir, const char *path, int flags)                      \
	{                                                                                          \
		OPEN_TEXT(flags)                                                                   \
		NEXT(__openat##suffix##_2);                                                        \
		OR_ENOSYS(-1)                                                                      \
		return call(dir, path, flags);                                                     \
	}                                                                                          \
	EXPORT FILE *fopen##suffix(const char *path, const char *mode)                             \
	{                                                                                          \
		int text = open_text(path, mode[0] != 'r' || strchr(mode, '+')                     \
						   ? O_RDWR                                        \
						   : (strchr(mode, 'e') ? O_CLOEXEC : 0));         \
		if (text != -2)                                                                    \
			return text < 0 ? NULL : fdopen(text, mode);                               \
		NEXT(fopen##suffix);                                                               \
		OR_ENOSYS(NULL)                                                                    \
		return call(path, mode);                                                           \
	}

OPEN_FAMILY()
OPEN_FAMILY(64)

EXPORT int chdir(const char *path)
{
	NEXT(chdir);
	return call(path);
}

EXPORT DIR *opendir(const char *path)
{
	NEXT(opendir);
	return call(path);
}

EXPORT int scandir(const char *path, struct dirent ***list, int (*filter)(const struct dirent *),
		   int (*compare)(const struct dirent **, const struct dirent **))
{
	NEXT(scandir);
	return call(path, list, filter, compare);
}

EXPORT int scandir64(const char *path, struct dirent64 ***list,
		     int (*filter)(const struct dirent64 *),
		     int (*compare)(const struct dirent64 **, const struct dirent64 **))
{
	NEXT(scandir64);
	OR_ENOSYS(-1)
	return call(path, list, filter, compare);
}

/* ---- links ---- */

EXPORT ssize_t readlink(const char *path, char *out, size_t n)
{
	NEXT(readlink);
	return call(path, out, n);
}

EXPORT ssize_t __readlink_chk(const char *path, char *out, size_t len, size_t n)
{
	NEXT(__readlink_chk);
	OR_ENOSYS(-1)
	return call(path, out, len, n);
}

EXPORT char *realpath(const char *path, char *out)
{
	NEXT(realpath);
	return call(path, out);
}

EXPORT char *__realpath_chk(const char *path, char *out, size_t n)
{
	NEXT(__realpath_chk);
	OR_ENOSYS(NULL)
	return call(path, out, n);
}
