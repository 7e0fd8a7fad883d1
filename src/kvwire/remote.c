/* SPDX-License-Identifier: BSD-2-Clause */
#include "kvwire/remote.h"

#include <dlfcn.h>
#include <errno.h>
#include <glob.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sys.h"

#define MODULE "roost-etcd.so"

const struct kv_table_remote *kv_table_remote;
static char load_error[200] = "it is not installed";

bool kv_table_is_remote(const char *name)
{
	return !strncmp(name, KV_TABLE_REMOTE, strlen(KV_TABLE_REMOTE));
}

/* Loads the module in dir/below. Returns false if the file does not exist. */
static bool load_from(const char *dir, const char *below)
{
	const struct kv_table_remote *(*tables)(void);
	char pattern[PATH_MAX];
	void *module = NULL;
	glob_t found;

	if (snprintf(pattern, sizeof(pattern), "%s/%s" MODULE, dir, below) >= PATH_MAX ||
	    glob(pattern, 0, NULL, &found))
		return false;
	module = dlopen(found.gl_pathv[0], RTLD_NOW | RTLD_LOCAL);
	globfree(&found);
	*(void **)&tables = module ? dlsym(module, KV_TABLE_REMOTE_TABLES) : NULL;
	if (tables)
		kv_table_remote = tables();
	else
		snprintf(load_error, sizeof(load_error), "%s", dlerror());
	return true;
}

/*
 * Loads the module, which is beside the drop-in libraries: in the folder of this library or, for
 * the command, in the library folder of an installation or of a build.
 */
static void load(void)
{
	static const char *const below[] = {"", "lib/", "../lib*/roost/", "../lib/*/roost/"};
	const char *env = sys_env("ROOST_LIBDIR");
	char dir[PATH_MAX], *slash;
	Dl_info self;

	if (kv_table_remote || (env && *env && load_from(env, "")))
		return;
	if (!dladdr(load_error, &self))
		return;
	snprintf(dir, sizeof(dir), "%s", self.dli_fname);
	slash = strrchr(dir, '/');
	/* A command that was found in PATH has no folder in its name. */
	if (!slash && realpath("/proc/self/exe", dir))
		slash = strrchr(dir, '/');
	if (!slash)
		return;
	*slash = '\0';
	for (size_t i = 0; i < sizeof(below) / sizeof(below[0]); i++) {
		if (load_from(dir, below[i]))
			return;
	}
}

int kv_table_has_remote(const char *name, char *why, size_t why_len)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, load);
	if (kv_table_remote)
		return 0;
	snprintf(why, why_len, "%s: no " MODULE ": %s (it needs libcurl)", name, load_error);
	return -EOPNOTSUPP;
}
