/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The subcommands of `roost`, one file each. argv[0] is the subcommand's own name. The returned
 * value is the exit status: CLI_OK only when what was asked happened.
 */
#ifndef ROOST_CLI_COMMANDS_H
#define ROOST_CLI_COMMANDS_H

enum cli_exit {
	CLI_OK = 0,
	CLI_FAILED = 1, /* it was tried, and did not happen */
	CLI_USAGE = 2,	/* the command line makes no sense */
	/* `roost run` says what shells and env(1) say of a program that can't be started. */
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
int cmd_completion(int argc, char **argv);
int cmd_demo(int argc, char **argv);
int cmd_devices(int argc, char **argv);
int cmd_doctor(int argc, char **argv);
int cmd_kernel(int argc, char **argv);
int cmd_limits(int argc, char **argv);
int cmd_node(int argc, char **argv);
int cmd_pcap(int argc, char **argv);
int cmd_perf(int argc, char **argv);
int cmd_run(int argc, char **argv);
int cmd_stat(int argc, char **argv);

#endif
