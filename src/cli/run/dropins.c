/* SPDX-License-Identifier: BSD-2-Clause */
#include "cli/run/dropins.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/sys.h"

static bool has_library(const char *dir)
{
	char path[PATH_MAX];

	return snprintf(path, sizeof(path), "%s/libibverbs.so.1", dir) < (int)sizeof(path) &&
	       access(path, R_OK) == 0;
}

bool dropins_find(char *dir, size_t n, char *err, size_t errlen)
{
	static const char *const folders[] = {"lib", ROOST_DROPINS, "../lib/roost"};
	const char *env = sys_env("ROOST_LIBDIR");
	char self[PATH_MAX], joined[PATH_MAX + 16], real[PATH_MAX];
	ssize_t len;

	if (env && *env) {
		if (realpath(env, real) && has_library(real)) {
			snprintf(dir, n, "%s", real);
			return true;
		}
		snprintf(err, errlen, "ROOST_LIBDIR=%s has no libibverbs.so.1", env);
		return false;
	}
	len = readlink("/proc/self/exe", self, sizeof(self) - 1);
	if (len < 0) {
		snprintf(err, errlen,
			 "can't find out where roost is (/proc/self/exe: %s): set ROOST_LIBDIR",
			 strerror(errno));
		return false;
	}
	self[len] = '\0';
	*strrchr(self, '/') = '\0';
	for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
		snprintf(joined, sizeof(joined), "%s%s%s", folders[i][0] == '/' ? "" : self,
			 folders[i][0] == '/' ? "" : "/", folders[i]);
		if (realpath(joined, real) && has_library(real)) {
			snprintf(dir, n, "%s", real);
			return true;
		}
	}
	snprintf(err, errlen,
		 "no libibverbs.so.1 in %s/lib or %s/%s: run `make`, or set ROOST_LIBDIR", self,
		 self, ROOST_DROPINS);
	return false;
}
