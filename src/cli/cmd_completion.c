/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * `roost completion SHELL`: prints the completion script for bash, zsh or fish. The script is
 * generated from the tables that define the parser and --help. The installed files (completion/)
 * only run this command when the shell loads them, so that they always match the command, and a
 * cross build does not run anything.
 */
#include <stdio.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/options.h"

static const char *const shells[] = {"bash", "zsh", "fish", NULL};

static const struct opt opts[] = {OPT_END};

static const struct opt_command cmd = {
	.name = "completion",
	.synopsis = "bash|zsh|fish",
	.about =
		"Prints the script that completes the commands, options and values of roost in a shell. Packages\n"
		"and `make install` put files that call this command where the shells look for them.",
	.opts = opts,
	.examples = "  eval \"$(roost completion bash)\"        (in ~/.bashrc)\n"
		    "  eval \"$(roost completion zsh)\"         (in ~/.zshrc, behind compinit)\n"
		    "  roost completion fish | source         (in ~/.config/fish/config.fish)\n",
	.words = shells,
};

/* ---- common parts of all three shells ---- */

/* The kind of a value, for the shells. */
enum value { VALUE_NONE, VALUE_OTHER, VALUE_CHOICE, VALUE_FILE, VALUE_FOLDER, VALUE_PORT };

static enum value value_of(const struct opt *o)
{
	if (!o->arg)
		return VALUE_NONE;
	if (o->choices)
		return VALUE_CHOICE;
	if (strcmp(o->arg, "FILE") == 0)
		return VALUE_FILE;
	if (strcmp(o->arg, "DIR") == 0)
		return VALUE_FOLDER;
	return strcmp(o->arg, "SPEC") == 0 ? VALUE_PORT : VALUE_OTHER;
}

static void print_words(const char *const *words)
{
	for (int i = 0; words[i]; i++)
		printf("%s%s", i ? " " : "", words[i]);
}

/*
 * Runs --help of each command with its table passed to `show`; the command then does nothing else.
 */
static void each_table(void (*show)(const struct opt_command *cmd))
{
	opt_show_with(show);
	for (const struct command *c = commands; c->name; c++) {
		char *argv[] = {(char *)c->name, "--help", NULL};

		c->run(2, argv);
	}
}

/*
 * Prints text within single quotes of a shell. `quote` replaces a single quote; characters of
 * `special` get a backslash.
 */
static void print_text(const char *text, const char *quote, const char *special)
{
	for (; *text; text++) {
		if (*text == '\'') {
			fputs(quote, stdout);
		} else if (*text == '\n') {
			putchar(' ');
		} else {
			if (strchr(special, *text))
				putchar('\\');
			putchar(*text);
		}
	}
}

/* ---- bash ---- */

/* Prints a pattern of `case`: the option as on the command line, behind the name of the command. */
static void bash_pattern(const struct opt_command *c, const struct opt *o)
{
	printf("\t'%s --%s'", c->name, o->name);
	if (o->letter)
		printf(" | '%s -%c'", c->name, o->letter);
	printf(") ");
}

static void bash_value(const struct opt_command *c, const struct opt *o)
{
	bash_pattern(c, o);
	switch (value_of(o)) {
	case VALUE_CHOICE:
		printf("_roost_words '");
		print_words(o->choices);
		printf("'");
		break;
	case VALUE_FILE:
		printf("_roost_files -f");
		break;
	case VALUE_FOLDER:
		printf("_roost_files -d");
		break;
	case VALUE_PORT:
		printf("_roost_words 'host: udp: shm:' && compopt -o nospace");
		break;
	default:
		printf(":");
	}
	printf("; return ;;\n");
}

static void bash_values(const struct opt_command *c)
{
	for (const struct opt *o = c->opts; o->name; o++) {
		if (value_of(o) != VALUE_NONE)
			bash_value(c, o);
	}
}

static void bash_command(const struct opt_command *c)
{
	printf("\t%s)\n\t\toptions='", c->name);
	for (const struct opt *o = c->opts; o->name; o++)
		printf("--%s ", o->name);
	printf("--help'\n\t\ttakes=' ");
	for (const struct opt *o = c->opts; o->name; o++) {
		if (value_of(o) != VALUE_NONE) {
			printf("--%s ", o->name);
			if (o->letter)
				printf("-%c ", o->letter);
		}
	}
	printf("'\n\t\twords='");
	if (c->words)
		print_words(c->words);
	printf("'\n\t\toperands=%s ;;\n", c->operands == OPT_FILES     ? "files"
					  : c->operands == OPT_PROGRAM ? "program"
								       : "");
}

static void bash(void)
{
	printf("# bash completion for roost, as `roost completion bash` prints it\n"
	       "_roost_words()\n"
	       "{\n"
	       "\tCOMPREPLY=($(compgen -W \"$1\" -- \"$cur\"))\n"
	       "}\n"
	       "\n"
	       "_roost_files()\n"
	       "{\n"
	       "\tlocal IFS=$'\\n'\n"
	       "\tCOMPREPLY=($(compgen \"$1\" -- \"$cur\"))\n"
	       "\tcompopt -o filenames\n"
	       "}\n"
	       "\n"
	       "_roost()\n"
	       "{\n"
	       "\tlocal cmd=${COMP_WORDS[1]} cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}\n"
	       "\tlocal i operand=0 options= takes= words= operands=\n"
	       "\n"
	       "\tCOMPREPLY=()\n"
	       "\tif [[ $COMP_CWORD -eq 1 ]]; then\n"
	       "\t\t_roost_words '");
	for (const struct command *c = commands; c->name; c++)
		printf("%s ", c->name);
	printf("help --help --version'\n"
	       "\t\treturn\n"
	       "\tfi\n"
	       "\tcase $cmd in\n");
	each_table(bash_command);
	printf("\thelp)\n"
	       "\t\t[[ $COMP_CWORD -eq 2 ]] && _roost_words '");
	for (const struct command *c = commands; c->name; c++)
		printf("%s%s", c == commands ? "" : " ", c->name);
	printf("'\n"
	       "\t\treturn ;;\n"
	       "\t*) return ;;\n"
	       "\tesac\n"
	       "\n"
	       "\t# The first operand, if there is one. --name=VALUE comes as three words.\n"
	       "\tfor ((i = 2; i < COMP_CWORD; i++)); do\n"
	       "\t\tcase ${COMP_WORDS[i]} in\n"
	       "\t\t--) ((++i < COMP_CWORD)) && operand=$i; [[ $operand -gt 0 ]] || operand=-1; break ;;\n"
	       "\t\t-*)\n"
	       "\t\t\tif [[ $takes == *\" ${COMP_WORDS[i]} \"* ]]; then\n"
	       "\t\t\t\t((i++))\n"
	       "\t\t\t\t[[ ${COMP_WORDS[i]} == = ]] && ((i++))\n"
	       "\t\t\tfi ;;\n"
	       "\t\t*) operand=$i; break ;;\n"
	       "\t\tesac\n"
	       "\tdone\n"
	       "\tif [[ $operands == program && $operand -gt 0 ]]; then\n"
	       "\t\tif declare -F _command_offset >/dev/null; then\n"
	       "\t\t\t_command_offset \"$operand\"\n"
	       "\t\telse\n"
	       "\t\t\t_roost_files -f\n"
	       "\t\tfi\n"
	       "\t\treturn\n"
	       "\tfi\n"
	       "\n"
	       "\tif [[ $cur == = ]]; then\n"
	       "\t\tcur=\n"
	       "\telif [[ $prev == = ]]; then\n"
	       "\t\tprev=${COMP_WORDS[COMP_CWORD-2]}\n"
	       "\tfi\n"
	       "\t[[ $operand -eq 0 ]] || [[ $operands != program ]] || prev=\n"
	       "\tcase \"$cmd $prev\" in\n");
	each_table(bash_values);
	printf("\tesac\n"
	       "\n"
	       "\tif [[ $cur == -* && $operand -ge 0 ]]; then\n"
	       "\t\t_roost_words \"$options\"\n"
	       "\telif [[ $words && $operand -le 0 ]]; then\n"
	       "\t\t_roost_words \"$words\"\n"
	       "\telif [[ $operands == files ]]; then\n"
	       "\t\t_roost_files -f\n"
	       "\telif [[ $operands == program ]]; then\n"
	       "\t\tCOMPREPLY=($(compgen -c -- \"$cur\"))\n"
	       "\tfi\n"
	       "}\n"
	       "complete -F _roost roost\n");
}

/* ---- zsh ---- */

static void zsh_text(const char *text)
{
	print_text(text, "'\\''", "\\:[]");
}

static void zsh_option(const struct opt *o)
{
	enum value v = value_of(o);

	printf(" \\\n\t\t\t");
	if (o->letter)
		printf("'(-%c --%s)'{-%c,--%s%s}'[", o->letter, o->name, o->letter, o->name,
		       v == VALUE_NONE ? "" : "=");
	else
		printf("'--%s%s[", o->name, v == VALUE_NONE ? "" : "=");
	zsh_text(o->help);
	printf("]");
	if (v != VALUE_NONE)
		printf(":%s:", o->arg);
	if (v == VALUE_CHOICE) {
		printf("(");
		print_words(o->choices);
		printf(")");
	} else if (v == VALUE_FILE || v == VALUE_FOLDER) {
		printf("_files%s", v == VALUE_FOLDER ? " -/" : "");
	} else if (v == VALUE_PORT) {
		printf("{compadd -S \"\" host\\: udp\\: shm\\:}");
	}
	printf("'");
}

static void zsh_command(const struct opt_command *c)
{
	printf("\t%s)\n\t\t_arguments -S", c->name);
	for (const struct opt *o = c->opts; o->name; o++)
		zsh_option(o);
	printf(" \\\n\t\t\t'(-h --help)'{-h,--help}'[show this]'");
	if (c->words) {
		printf(" \\\n\t\t\t'1:word:(");
		print_words(c->words);
		printf(")'");
	}
	if (c->operands == OPT_FILES)
		printf(" \\\n\t\t\t'*:file:_files'");
	else if (c->operands == OPT_PROGRAM)
		printf(" \\\n\t\t\t'(-)1:program:_command_names -e' \\\n\t\t\t'*::arguments:_normal'");
	printf(" ;;\n");
}

static void zsh(void)
{
	printf("# zsh completion for roost, as `roost completion zsh` prints it\n"
	       "_roost_commands() {\n"
	       "\tlocal -a list=(\n");
	for (const struct command *c = commands; c->name; c++) {
		printf("\t\t'%s:", c->name);
		zsh_text(c->about);
		printf("'\n");
	}
	printf("\t)\n"
	       "\t_describe command list\n"
	       "}\n"
	       "\n"
	       "_roost() {\n"
	       "\tlocal curcontext=$curcontext state line\n"
	       "\n"
	       "\t_arguments -C '(-)'{-h,--help}'[list the commands]' '(-)--version[print the version]' \\\n"
	       "\t\t'1:command:_roost_commands' '*::argument:->arguments' && return\n"
	       "\t[[ $state == arguments ]] || return\n"
	       "\tcase $words[1] in\n");
	each_table(zsh_command);
	printf("\thelp) _arguments '1:command:_roost_commands' ;;\n"
	       "\tesac\n"
	       "}\n"
	       "compdef _roost roost\n");
}

/* ---- fish ---- */

static void fish_text(const char *text)
{
	print_text(text, "\\'", "\\");
}

static void fish_option(const struct opt_command *c, const struct opt *o)
{
	printf("complete -c roost -n '__roost_is %s' -l %s", c->name, o->name);
	if (o->letter)
		printf(" -s %c", o->letter);
	switch (value_of(o)) {
	case VALUE_NONE:
		break;
	case VALUE_FILE:
		printf(" -r -F");
		break;
	case VALUE_FOLDER:
		printf(" -x -a '(__fish_complete_directories)'");
		break;
	case VALUE_CHOICE:
		printf(" -x -a '");
		print_words(o->choices);
		printf("'");
		break;
	case VALUE_PORT:
		printf(" -x -a 'host: udp: shm:'");
		break;
	case VALUE_OTHER:
		printf(" -x");
		break;
	}
	printf(" -d '");
	fish_text(o->help);
	printf("'\n");
}

/* Completes the command line behind `roost COMMAND OPTIONS` as a separate command line. */
static void fish_program(const struct opt_command *c)
{
	printf("function __roost_%s\n"
	       "\tset -l words (commandline -opc)[3..-1]\n"
	       "\twhile set -q words[1]\n"
	       "\t\tswitch $words[1]\n"
	       "\t\t\tcase --\n"
	       "\t\t\t\tset -e words[1]\n"
	       "\t\t\t\tbreak\n"
	       "\t\t\tcase",
	       c->name);
	for (const struct opt *o = c->opts; o->name; o++) {
		if (value_of(o) != VALUE_NONE) {
			printf(" --%s", o->name);
			if (o->letter)
				printf(" -%c", o->letter);
		}
	}
	printf("\n"
	       "\t\t\t\tset -e words[1]\n"
	       "\t\t\t\tset -e words[1]\n"
	       "\t\t\tcase '-*'\n"
	       "\t\t\t\tset -e words[1]\n"
	       "\t\t\tcase '*'\n"
	       "\t\t\t\tbreak\n"
	       "\t\tend\n"
	       "\tend\n"
	       "\tset -l line (string join ' ' -- (string escape -- $words) (commandline -ct))\n"
	       "\tcomplete --do-complete=\"$line\"\n"
	       "end\n"
	       "complete -c roost -n '__roost_is %s' -x -a '(__roost_%s)'\n",
	       c->name, c->name);
}

static void fish_command(const struct opt_command *c)
{
	for (const struct opt *o = c->opts; o->name; o++)
		fish_option(c, o);
	printf("complete -c roost -n '__roost_is %s' -l help -s h -d 'show this'\n", c->name);
	if (c->words) {
		printf("complete -c roost -n '__roost_is %s; and not __fish_seen_subcommand_from ",
		       c->name);
		print_words(c->words);
		printf("' -a '");
		print_words(c->words);
		printf("'\n");
	}
	if (c->operands == OPT_FILES) {
		printf("complete -c roost -n '__roost_is %s", c->name);
		if (c->words) {
			printf("; and __fish_seen_subcommand_from ");
			print_words(c->words);
		}
		printf("' -F\n");
	} else if (c->operands == OPT_PROGRAM) {
		fish_program(c);
	}
}

static void fish(void)
{
	printf("# fish completion for roost, as `roost completion fish` prints it\n"
	       "function __roost_is\n"
	       "\tset -l words (commandline -opc)\n"
	       "\ttest (count $words) -gt 1; and test $words[2] = $argv[1]\n"
	       "end\n"
	       "\n"
	       "complete -c roost -f\n"
	       "complete -c roost -n __fish_use_subcommand -l help -s h -d 'list the commands'\n"
	       "complete -c roost -n __fish_use_subcommand -l version -d 'print the version'\n");
	for (const struct command *c = commands; c->name; c++) {
		printf("complete -c roost -n __fish_use_subcommand -a %s -d '", c->name);
		fish_text(c->about);
		printf("'\n");
		printf("complete -c roost -n '__roost_is help' -a %s\n", c->name);
	}
	each_table(fish_command);
}

int cmd_completion(int argc, char **argv)
{
	static void (*const print[])(void) = {bash, zsh, fish};
	int at = opt_parse(&cmd, argc, argv, false);

	if (at < 0)
		return at == OPT_HELP ? CLI_OK : CLI_USAGE;
	if (argc - at != 1)
		return opt_usage(&cmd, "the shell is missing: bash, zsh or fish");
	for (int i = 0; shells[i]; i++) {
		if (strcmp(argv[at], shells[i]) == 0) {
			print[i]();
			return CLI_OK;
		}
	}
	return opt_usage(&cmd, "'%s' is none of bash, zsh, fish", argv[at]);
}
