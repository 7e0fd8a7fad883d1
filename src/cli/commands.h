/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The subcommands of `roost`, one file each. argv[0] is the name of the subcommand. Each function
 * returns the exit status, which is CLI_OK only if the command succeeded.
 */
#ifndef ROOST_CLI_COMMANDS_H
#define ROOST_CLI_COMMANDS_H

enum cli_exit {
	CLI_OK = 0,
	CLI_FAILED = 1, /* the attempt failed */
	CLI_USAGE = 2,	/* the command line is invalid */
	/*
	 * `roost run` uses the exit statuses of shells and env(1) for a program that cannot start.
	 */
	CLI_NOT_EXECUTABLE = 126,
	CLI_NOT_FOUND = 127,
};

struct command {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *about; /* one line, without quotes */
};

extern const struct command commands[]; /* main.c; a row without a name ends it */

int cmd_call(int argc, char **argv);
int cmd_chain(int argc, char **argv);
int cmd_completion(int argc, char **argv);
int cmd_demo(int argc, char **argv);
int cmd_devices(int argc, char **argv);
int cmd_doctor(int argc, char **argv);
int cmd_kernel(int argc, char **argv);
int cmd_kv(int argc, char **argv);
int cmd_limits(int argc, char **argv);
int cmd_node(int argc, char **argv);
int cmd_pcap(int argc, char **argv);
int cmd_perf(int argc, char **argv);
int cmd_run(int argc, char **argv);
int cmd_stat(int argc, char **argv);

#endif
