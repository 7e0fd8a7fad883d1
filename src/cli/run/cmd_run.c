/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * `roost run`: sets the environment in which a stock RDMA program finds the libraries and the
 * device of Roost, and executes the program.
 *
 *	LD_LIBRARY_PATH	the folder of the drop-in libraries, in front of the previous value
 *	LD_PRELOAD	the preload that shows the device files (src/cli/run/preload), with
 *			ROOST_VIEW for the folder that it shows
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
#include "cli/run/dropins.h"
#include "cli/local.h"
#include "cli/options.h"
#include "port/port.h"

static const char *port;
static uint64_t timeout_scale;

static const struct opt opts[] = {
	OPT_VALUE(
		"port", 'p', OPT_STRING, &port, "SPEC",
		"the program's port: host, udp or shm, address, options\n(ROOST_PORT, else host). host: shared memory to\nprograms of this machine, udp to others"),
	OPT_VALUE("timeout-scale", 0, OPT_COUNT, &timeout_scale, "N",
		  "make all time-outs N times as long, for debuggers", .min = 1, .max = 1e6),
	OPT_END};

static const struct opt_command cmd = {
	.name = "run",
	.synopsis = "[--port SPEC] [--] PROGRAM [ARGUMENTS]",
	.about =
		"Runs a stock RDMA program on Roost: its verbs libraries are replaced for this run, nothing is\n"
		"installed or changed. Needs no privileges and no RDMA hardware. The exit status is the\n"
		"program's; 127 when it can't be found, 126 when it can't be run.",
	.opts = opts,
	.examples = "  roost run -- ib_write_bw &\n"
		    "  roost run -- ib_write_bw 127.0.0.1\n"
		    "  roost run --port shm -- ibv_devinfo -v\n",
	.operands = OPT_PROGRAM,
};

/* Sets NAME=value:previous value. */
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

static int execute(char **argv)
{
	int e;

	execvp(argv[0], argv);
	e = errno;
	if (e == ENOENT) {
		opt_failed(&cmd,
			   strchr(argv[0], '/')
				   ? "no program %s, or it lacks its interpreter"
				   : "no program '%s' in PATH: is its package installed?",
			   argv[0]);
		return CLI_NOT_FOUND;
	}
	opt_failed(&cmd, "can't run %s: %s", argv[0], strerror(e));
	return CLI_NOT_EXECUTABLE;
}

int cmd_run(int argc, char **argv)
{
	char dir[PATH_MAX], path[PATH_MAX + 32], kind[16], err[2 * PATH_MAX];
	int at = opt_parse(&cmd, argc, argv, true);

	if (at < 0)
		return at == OPT_HELP ? CLI_OK : CLI_USAGE;
	if (at == argc)
		return opt_usage(&cmd,
				 "the program is missing: roost run -- program [argument...]");
	if (port) {
		local_kind(port, kind, sizeof(kind));
		if (!port_is_kind(kind))
			return opt_usage(
				&cmd,
				"'%.64s' is no port: host, udp or shm, perhaps with an address, as udp:127.0.0.2",
				port);
	}
	if (!dropins_find(dir, sizeof(dir), err, sizeof(err)))
		return opt_failed(&cmd, "%s", err);
	/* The loader treats both characters as separators, and has no quoting. */
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
	return execute(argv + at);
}
