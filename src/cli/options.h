/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Command line options from a table. One table defines the parser, the checks and --help.
 *
 * Options are long (--name VALUE or --name=VALUE); a few have a letter as well. On an error the
 * parser prints one line with the remedy on stderr, and returns OPT_ERROR; the command then exits
 * with CLI_USAGE. On --help the parser prints the help and returns OPT_HELP; the command then exits
 * with CLI_OK.
 */
#ifndef ROOST_CLI_OPTIONS_H
#define ROOST_CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum opt_kind {
	OPT_FLAG,   /* bool *: becomes true */
	OPT_NO,	    /* bool *: becomes false */
	OPT_STRING, /* const char **: points into argv */
	OPT_COUNT,  /* uint64_t *: a whole number; k, M, G multiply by 1000 */
	OPT_BYTES,  /* uint64_t *: a size; K, M, G (or KiB ...) multiply by 1024 */
	OPT_NUMBER, /* double * */
	OPT_TIME,   /* uint64_t *: nanoseconds; from 5us, 20ms, 3s, or a plain number of seconds */
	OPT_CHOICE, /* int *: index into `choices` */
};

struct opt {
	const char *name; /* without dashes; NULL ends the table */
	char letter;	  /* 0: none */
	enum opt_kind kind;
	void *to;
	const char *arg; /* name of the value in --help; NULL for flags */
	const char *help;
	double min, max;	    /* bounds of COUNT, BYTES, NUMBER; both 0: none */
	const char *const *choices; /* ends with NULL */
	bool *given;		    /* set to true when the option is given; may be NULL */
};

/*
 * Rows of the table. The arguments behind the help of OPT_VALUE are members by name: .min = 1, .max
 * = 9, .given = &flag
 */
#define OPT_SWITCH(name_, letter_, to_, help_)                                                     \
	{                                                                                          \
		.name = name_, .letter = letter_, .kind = OPT_FLAG, .to = to_, .help = help_       \
	}
#define OPT_OFF(name_, to_, help_)                                                                 \
	{                                                                                          \
		.name = name_, .kind = OPT_NO, .to = to_, .help = help_                            \
	}
#define OPT_VALUE(name_, letter_, kind_, to_, arg_, help_, ...)                                    \
	{                                                                                          \
		.name = name_, .letter = letter_, .kind = kind_, .to = to_, .arg = arg_,           \
		.help = help_, __VA_ARGS__                                                         \
	}
/* The option --port of commands that show the view of a program that starts now. */
#define OPT_PORT_OF_PROGRAM(to_)                                                                   \
	OPT_VALUE("port", 'p', OPT_STRING, to_, "SPEC",                                            \
		  "as the program would have it (ROOST_PORT; else chosen)")
#define OPT_JSON(to_) OPT_SWITCH("json", 'j', to_, "one JSON object on stdout")
#define OPT_END                                                                                    \
	{                                                                                          \
		.name = NULL                                                                       \
	}

/* The values that the shell completion offers for operands. */
enum opt_operands {
	OPT_OTHER, /* no value: the operand is an address, a number ... */
	OPT_FILES,
	OPT_PROGRAM, /* a program, and its own arguments */
};

struct opt_command {
	const char *name;     /* the subcommand, as in `roost perf` */
	const char *synopsis; /* "[OPTIONS] FILE..."; newlines separate several forms */
	const char *about;    /* paragraphs, lines of at most 100 columns */
	const struct opt *opts;
	const char *examples; /* lines ready to print, indented by two */
	/* possible values of the first operand, ends with NULL; NULL: any */
	const char *const *words;
	enum opt_operands operands; /* the operands behind `words`, or all operands */
};

enum { OPT_HELP = -1, OPT_ERROR = -2 };

/*
 * Parses argv[1..] and returns the index of the first operand (argc when there is none), OPT_HELP
 * or OPT_ERROR. Operands may be between options and are moved to the end, unless stop_at_operand is
 * set (for commands that pass the rest on). "-5" is an operand. "--" ends the options.
 */
int opt_parse(const struct opt_command *cmd, int argc, char **argv, bool stop_at_operand);
/*
 * Parses the arguments of a command without operands. Returns OPT_HELP or OPT_ERROR if the command
 * ends, else a number that is not negative. An operand is an error.
 */
int opt_parse_all(const struct opt_command *cmd, int argc, char **argv);
void opt_help(const struct opt_command *cmd);

/*
 * Makes --help pass the command's table to `show` instead of printing it, from now on. Not
 * thread-safe.
 */
void opt_show_with(void (*show)(const struct opt_command *cmd));

/* Returns the index of `word` in a list with a NULL at its end, or -1. */
int opt_find(const char *const *words, const char *word);

/*
 * Prints one line on stderr: "roost COMMAND: message". opt_usage() adds a hint at --help and
 * returns CLI_USAGE; opt_failed() returns CLI_FAILED.
 */
int opt_usage(const struct opt_command *cmd, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
int opt_failed(const struct opt_command *cmd, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/*
 * Reads a number in the format of OPT_BYTES, for lists in an argument. Sets *end to the first
 * character that was not read. Returns false when s is no number.
 */
bool opt_read_bytes(const char *s, uint64_t *v, const char **end);

/*
 * Sets ROOST_TIMEOUT_SCALE from --timeout-scale (0: unchanged) and ROOST_PORT from --port (NULL:
 * unchanged).
 */
void opt_environment(const char *port, uint64_t timeout_scale);

#endif
