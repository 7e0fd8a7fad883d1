/* SPDX-License-Identifier: BSD-2-Clause */
/* `roost`: a table of subcommands. */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/commands.h"

const struct command commands[] = {
	{"demo", cmd_demo, "move a file by RDMA between two processes, and check it"},
	{"run", cmd_run, "run a stock RDMA program on Roost"},
	{"node", cmd_node, "serve memory and kernels to peers"},
	{"call", cmd_call, "call a kernel of a node"},
	{"kernel", cmd_kernel, "list, load, replace and unload the kernels of a node"},
	{"kv", cmd_kv, "read, change and measure the key-value store of a node"},
	{"chain", cmd_chain, "assemble, check, run and show programs made of work requests"},
	{"perf", cmd_perf, "measure bandwidth, message rate and latency; check every byte"},
	{"limits", cmd_limits, "measure the limits of this machine's cores, memory and sockets"},
	{"doctor", cmd_doctor, "check this machine or container, and name remedies"},
	{"devices", cmd_devices, "list the devices, ports and addresses that a program would see"},
	{"stat", cmd_stat, "print the counters of a running NIC"},
	{"pcap", cmd_pcap, "print and judge captures of RoCE traffic"},
	{"completion", cmd_completion, "print the completion script for bash, zsh or fish"},
	{NULL, NULL, NULL},
};

static void help(void)
{
	printf("usage: roost COMMAND [OPTIONS]\n"
	       "\n"
	       "A smart RDMA NIC in software: RoCE v2 over UDP or shared memory, for any Linux machine,\n"
	       "without privileges and without RDMA hardware.\n"
	       "\n"
	       "commands:\n");
	for (const struct command *c = commands; c->name; c++)
		printf("  %-12s%s\n", c->name, c->about);
	printf("\n"
	       "`roost COMMAND --help` says more, with examples.\n"
	       "\n"
	       "addresses:\n"
	       "  --port udp:127.0.0.2, --port shm:10.0.0.1, with options after commas: loss=0.01 dup= reorder=\n"
	       "  corrupt= delay=5us seed=7 mtu=1024 pcap=FILE. The environment variable ROOST_PORT says the same\n"
	       "  for programs under `roost run`. Without either, the port is of kind host: programs of a user share\n"
	       "  the machine's primary address. Packets between them go through shared memory, others by UDP.\n"
	       "\n"
	       "examples:\n"
	       "  roost demo\n"
	       "  roost run -- ib_write_bw & sleep 1; roost run -- ib_write_bw 127.0.0.1\n"
	       "  roost perf write --local --port shm --size 64K\n");
}

/*
 * Opens closed descriptors among 0 to 2 on /dev/null. Otherwise the first files and sockets would
 * get these numbers and receive the output. The descriptors are read-only, so that a write still
 * fails, and close on exec, so that a program under `roost run` finds them closed.
 */
static void fill_closed(void)
{
	int fd;

	do
		fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	while (fd >= 0 && fd <= STDERR_FILENO);
	if (fd >= 0)
		close(fd);
}

/* Flushes stdout: a command has succeeded only if its output was written. */
static int finish(const char *name, int status)
{
	bool failed = ferror(stdout);

	errno = 0;
	if (fflush(stdout) == 0 && !failed)
		return status;
	fprintf(stderr, "roost %s: can't write the output: %s\n", name,
		errno ? strerror(errno) : "cannot write standard output");
	return status == CLI_OK ? CLI_FAILED : status;
}

static int run(int argc, char **argv)
{
	for (const struct command *c = commands; c->name; c++) {
		if (strcmp(argv[0], c->name) == 0)
			return finish(argv[0], c->run(argc, argv));
	}
	fprintf(stderr, "roost: no command '%s'; `roost --help` lists them\n", argv[0]);
	return CLI_USAGE;
}

int main(int argc, char **argv)
{
	char *help_of[] = {argc > 2 ? argv[2] : NULL, "--help", NULL};

	fill_closed();
	if (argc < 2) {
		fprintf(stderr,
			"roost: which command? `roost --help` lists them; `roost demo` is a start\n");
		return CLI_USAGE;
	}
	if (strcmp(argv[1], "help") == 0 && argc > 2)
		return run(2, help_of);
	if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
	    strcmp(argv[1], "help") == 0) {
		help();
		return finish("--help", CLI_OK);
	}
	if (strcmp(argv[1], "--version") == 0) {
		printf("roost %s\n", ROOST_VERSION);
		return finish("--version", CLI_OK);
	}
	return run(argc - 1, argv + 1);
}
