/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * `roost run`: sets the environment in which a stock RDMA program finds Roost's libraries and device, and becomes it.
 *
 *	LD_LIBRARY_PATH	the folder of the drop-in libraries, before what was there
 *	LD_PRELOAD	the preload that shows the device files (src/cli/preload), and ROOST_VIEW, the folder it shows
 *	ROOST_PORT	from --port
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/sys.h"
#include "cli/commands.h"
#include "cli/local.h"
#include "cli/options.h"

static const char *port;
static uint64_t timeout_scale;

static const struct opt opts[] = {
	OPT_VALUE(
		"port", 'p', OPT_STRING, &port, "SPEC",
		"the program's port: udp or shm, address, options\n(ROOST_PORT; else an address is chosen)"),
	OPT_VALUE("timeout-scale", 0, OPT_COUNT, &timeout_scale, "N",
		  "all time-outs N times as long, for debuggers", .min = 1, .max = 1e6),
	OPT_END};

static const struct opt_command cmd = {
	.name = "run",
	.synopsis = "[--port SPEC] [--] PROGRAM [ARGUMENTS]",
	.about =
		"Runs a stock RDMA program on Roost: its verbs libraries are replaced for this run, nothing is\n"
		"installed or changed. Needs no privileges and no RDMA hardware. The exit status is the\n"
		"program's; 127 when it can't be found, 126 when it can't be run.",
	.opts = opts,
	.examples = "  roost run --port udp:127.0.0.2 -- ib_write_bw &\n"
		    "  roost run --port udp:127.0.0.3 -- ib_write_bw 127.0.0.1\n"
		    "  roost run --port shm -- ibv_devinfo -v\n",
	.operands = OPT_PROGRAM,
};

static bool has_library(const char *dir)
{
	char path[PATH_MAX];

	return snprintf(path, sizeof(path), "%s/libibverbs.so.1", dir) < (int)sizeof(path) &&
	       access(path, R_OK) == 0;
}

/*
 * The folder of our libraries: ROOST_LIBDIR; lib beside the command (a build tree); as this build installs them.
 * False with one line said.
 */
static bool find_libraries(char *dir, size_t n)
{
	static const char *const places[] = {"lib", ROOST_DROPINS, "../lib/roost"};
	const char *env = sys_env("ROOST_LIBDIR");
	char self[PATH_MAX], joined[PATH_MAX + 16], real[PATH_MAX];
	ssize_t len;

	if (env && *env) {
		if (realpath(env, real) && has_library(real)) {
			snprintf(dir, n, "%s", real);
			return true;
		}
		opt_failed(&cmd, "ROOST_LIBDIR=%s has no libibverbs.so.1", env);
		return false;
	}
	len = readlink("/proc/self/exe", self, sizeof(self) - 1);
	if (len < 0) {
		opt_failed(&cmd, "can't find out where roost is (/proc/self/exe: %s): set ROOST_LIBDIR",
			   strerror(errno));
		return false;
	}
	self[len] = '\0';
	*strrchr(self, '/') = '\0';
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		snprintf(joined, sizeof(joined), "%s%s%s", places[i][0] == '/' ? "" : self,
			 places[i][0] == '/' ? "" : "/", places[i]);
		if (realpath(joined, real) && has_library(real)) {
			snprintf(dir, n, "%s", real);
			return true;
		}
	}
	opt_failed(&cmd, "no libibverbs.so.1 in %s/lib or %s/%s: run `make`, or set ROOST_LIBDIR", self, self,
		   ROOST_DROPINS);
	return false;
}

/* NAME=value:what was there */
static void prepend(const char *name, const char *value)
{
	const char *old = sys_env(name);
	char *joined;

	if (!old || !*old) {
		setenv(name, value, 1);
	} else if (asprintf(&joined, "%s:%s", value, old) >= 0) {
		setenv(name, joined, 1);
		free(joined);
	}
}

static int become(char **argv)
{
	int e;

	execvp(argv[0], argv);
	e = errno;
	if (e == ENOENT) {
		opt_failed(&cmd,
			   strchr(argv[0], '/') ? "no program %s, or it lacks its interpreter"
						: "no program '%s' in PATH: is its package installed?",
			   argv[0]);
		return CLI_NOT_FOUND;
	}
	opt_failed(&cmd, "can't run %s: %s", argv[0], strerror(e));
	return CLI_NOT_EXECUTABLE;
}

int cmd_run(int argc, char **argv)
{
	char dir[PATH_MAX], path[PATH_MAX + 32], kind[16];
	int at = opt_parse(&cmd, argc, argv, true);

	if (at < 0)
		return at == OPT_HELP ? CLI_OK : CLI_USAGE;
	if (at == argc)
		return opt_usage(&cmd, "run what? A program, perhaps with arguments");
	if (port) {
		local_kind(port, kind, sizeof(kind));
		if (strcmp(kind, "udp") != 0 && strcmp(kind, "shm") != 0)
			return opt_usage(
				&cmd,
				"'%.64s' is no port: udp or shm, perhaps with an address, as udp:127.0.0.2",
				port);
	}
	if (!find_libraries(dir, sizeof(dir)))
		return CLI_FAILED;
	/* The loader takes both for separators, and knows no quoting. */
	if (strpbrk(dir, ": "))
		return opt_failed(
			&cmd,
			"the path %s has a blank or a colon, which the loader can't take: move Roost, or set ROOST_LIBDIR",
			dir);
	opt_environment(port, timeout_scale);
	prepend("LD_LIBRARY_PATH", dir);
	snprintf(path, sizeof(path), "%s/libroost-view.so", dir);
	if (access(path, R_OK) == 0) {
		prepend("LD_PRELOAD", path);
		snprintf(path, sizeof(path), "%s/view", dir);
		setenv("ROOST_VIEW", path, 1);
	}
	return become(argv + at);
}
