/* SPDX-License-Identifier: BSD-2-Clause */
#include "cli/options.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/term.h"

static void (*show_command)(const struct opt_command *cmd) = opt_help;

static void print_error(const struct opt_command *cmd, const char *fmt, va_list ap)
{
	char text[8192]; /* file names may be long */

	vsnprintf(text, sizeof(text), fmt, ap);
	fprintf(stderr, "roost %s: %s", cmd->name, plain_text(text));
}

int opt_usage(const struct opt_command *cmd, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	print_error(cmd, fmt, ap);
	va_end(ap);
	fprintf(stderr, " (see roost %s --help)\n", cmd->name);
	return CLI_USAGE;
}

int opt_failed(const struct opt_command *cmd, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	print_error(cmd, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	return CLI_FAILED;
}

/*
 * Reads a decimal number that is not negative and has at least one digit. strtod() alone would
 * accept "nan", "0x1p3" and " 5".
 */
static bool read_number(const char *s, double *v, const char **end)
{
	size_t n = strspn(s, "0123456789.");
	char buf[64], *stop;

	if (n == 0 || n >= sizeof(buf))
		return false;
	memcpy(buf, s, n);
	buf[n] = '\0';
	*v = strtod(buf, &stop);
	*end = s + n;
	return *stop == '\0';
}

static const char *skip_suffix(const char *s, const char *suffix)
{
	size_t n = strlen(suffix);

	return strncmp(s, suffix, n) == 0 ? s + n : NULL;
}

/*
 * Returns true if the number is an integer that fits. It does not use floor(), since a compiler
 * that does not inline it needs libm.
 */
static bool whole(double d, uint64_t *v)
{
	if (!(d < 0x1p63))
		return false;
	*v = (uint64_t)d;
	return (double)*v == d;
}

bool opt_read_bytes(const char *s, uint64_t *v, const char **end)
{
	const char *e, *letter, *rest;
	double d;

	if (!read_number(s, &d, &e))
		return false;
	if (*e != '\0' && (letter = strchr("kmgt", *e | 0x20)) != NULL) {
		d = ldexp(d, 10 * (int)(letter - strchr("kmgt", 'k') + 1));
		e++;
		if ((rest = skip_suffix(e, "iB")) != NULL || (rest = skip_suffix(e, "B")) != NULL)
			e = rest;
	}
	*end = e;
	return whole(d, v);
}

static bool read_count(const char *s, uint64_t *v, const char **end)
{
	const char *e;
	double d;

	if (!read_number(s, &d, &e))
		return false;
	if (*e == 'k')
		d *= 1e3, e++;
	else if (*e == 'M')
		d *= 1e6, e++;
	else if (*e == 'G')
		d *= 1e9, e++;
	*end = e;
	return whole(d, v);
}

static bool read_time(const char *s, uint64_t *v, const char **end)
{
	static const struct {
		const char *suffix;
		double ns;
	} unit[] = {{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"min", 60e9}, {"s", 1e9}};
	const char *e, *rest;
	double d, ns = 1e9;

	if (!read_number(s, &d, &e))
		return false;
	for (size_t i = 0; i < sizeof(unit) / sizeof(unit[0]); i++) {
		rest = skip_suffix(e, unit[i].suffix);
		if (rest) {
			ns = unit[i].ns;
			e = rest;
			break;
		}
	}
	if (d * ns >= 0x1p62)
		return false;
	*v = (uint64_t)(d * ns);
	*end = e;
	return true;
}

int opt_find(const char *const *words, const char *word)
{
	for (int i = 0; words[i]; i++) {
		if (strcmp(words[i], word) == 0)
			return i;
	}
	return -1;
}

static int read_choice(const struct opt_command *cmd, const struct opt *o, const char *val)
{
	int choice = opt_find(o->choices, val);

	if (choice >= 0) {
		*(int *)o->to = choice;
		return 0;
	}
	fprintf(stderr, "roost %s: --%s is one of", cmd->name, o->name);
	for (int i = 0; o->choices[i]; i++)
		fprintf(stderr, "%s %s", i ? "," : "", o->choices[i]);
	fprintf(stderr, "; '%s' is not\n", val);
	return OPT_ERROR;
}

static bool out_of_bounds(const struct opt *o, double v)
{
	return (o->min != 0 || o->max != 0) && (v < o->min || v > o->max);
}

static int set_value(const struct opt_command *cmd, const struct opt *o, const char *val)
{
	const char *end = "", *form = "a number";
	uint64_t u = 0;
	double d = 0;
	bool ok = true;

	switch (o->kind) {
	case OPT_STRING:
		*(const char **)o->to = val;
		return 0;
	case OPT_CHOICE:
		return read_choice(cmd, o, val);
	case OPT_COUNT:
		ok = read_count(val, &u, &end);
		form = "a whole number such as 1000 or 10k";
		d = (double)u;
		break;
	case OPT_BYTES:
		ok = opt_read_bytes(val, &u, &end);
		form = "a size such as 64, 4K or 1M";
		d = (double)u;
		break;
	case OPT_TIME:
		ok = read_time(val, &u, &end);
		form = "a time such as 5us, 20ms or 3s";
		d = (double)u;
		break;
	case OPT_NUMBER:
		ok = read_number(val, &d, &end);
		break;
	default:
		break;
	}
	if (!ok || *end != '\0') {
		opt_usage(cmd, "--%s takes %s, not '%s'", o->name, form, val);
		return OPT_ERROR;
	}
	if (out_of_bounds(o, d) && o->kind == OPT_TIME) {
		opt_usage(cmd, "--%s goes from %.15g to %.15g seconds, %s is outside", o->name,
			  o->min / 1e9, o->max / 1e9, val);
		return OPT_ERROR;
	}
	if (out_of_bounds(o, d)) {
		opt_usage(cmd, "--%s goes from %.15g to %.15g, %s is outside", o->name, o->min,
			  o->max, val);
		return OPT_ERROR;
	}
	if (o->kind == OPT_NUMBER)
		*(double *)o->to = d;
	else
		*(uint64_t *)o->to = u;
	return 0;
}

static bool is_switch(const struct opt *o)
{
	return o->kind == OPT_FLAG || o->kind == OPT_NO;
}

static const struct opt *find_long(const struct opt_command *cmd, const char *name, size_t n)
{
	for (const struct opt *o = cmd->opts; o->name; o++) {
		if (strlen(o->name) == n && strncmp(o->name, name, n) == 0)
			return o;
	}
	return NULL;
}

static const struct opt *find_letter(const struct opt_command *cmd, char letter)
{
	for (const struct opt *o = cmd->opts; o->name; o++) {
		if (o->letter == letter)
			return o;
	}
	return NULL;
}

/*
 * Parses argv[i] (an option) and its value, if any. Returns the number of arguments used, or
 * OPT_ERROR or OPT_HELP.
 */
static int take_option(const struct opt_command *cmd, int argc, char **argv, int i)
{
	const char *word = argv[i], *eq = NULL, *val;
	const struct opt *o = NULL;
	int used = 1, rc;

	if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0)
		return OPT_HELP;
	if (word[1] == '-') {
		eq = strchr(word, '=');
		o = find_long(cmd, word + 2, eq ? (size_t)(eq - word) - 2 : strlen(word + 2));
	} else if (word[2] == '\0') {
		o = find_letter(cmd, word[1]);
	}
	if (!o) {
		opt_usage(cmd, "no option '%s'", word);
		return OPT_ERROR;
	}
	if (o->given)
		*o->given = true;
	if (is_switch(o)) {
		if (eq) {
			opt_usage(cmd, "--%s takes no value", o->name);
			return OPT_ERROR;
		}
		*(bool *)o->to = o->kind == OPT_FLAG;
		return 1;
	}
	if (eq) {
		val = eq + 1;
	} else if (i + 1 < argc) {
		val = argv[i + 1];
		used = 2;
	} else {
		opt_usage(cmd, "--%s takes %s after it", o->name, o->arg);
		return OPT_ERROR;
	}
	rc = set_value(cmd, o, val);
	return rc < 0 ? rc : used;
}

/* No option begins with a digit: "-5" and "-.5" are numbers. */
static bool is_operand(const char *word)
{
	return word[0] != '-' || word[1] == '\0' || strchr(".0123456789", word[1]) != NULL;
}

int opt_parse(const struct opt_command *cmd, int argc, char **argv, bool stop_at_operand)
{
	int operands = 0, i = 1;
	char **kept = calloc((size_t)argc + 1, sizeof(*kept));

	if (!kept) {
		opt_failed(cmd, "out of memory");
		return OPT_ERROR;
	}
	while (i < argc) {
		int used;

		if (strcmp(argv[i], "--") == 0) {
			i++;
			break;
		}
		if (is_operand(argv[i])) {
			if (stop_at_operand)
				break;
			kept[operands++] = argv[i++];
			continue;
		}
		used = take_option(cmd, argc, argv, i);
		if (used < 0) {
			free(kept);
			if (used == OPT_HELP)
				show_command(cmd);
			return used;
		}
		i += used;
	}
	/*
	 * Operands that were found on the way move in front of the ones after "--"; the arguments
	 * that they displace are used up.
	 */
	memcpy(&argv[i - operands], kept, (size_t)operands * sizeof(*kept));
	free(kept);
	return i - operands;
}

int opt_parse_all(const struct opt_command *cmd, int argc, char **argv)
{
	int at = opt_parse(cmd, argc, argv, false);

	if (at < 0 || at == argc)
		return at;
	opt_usage(cmd, "unexpected argument '%s'", argv[at]);
	return OPT_ERROR;
}

static void help_option(const struct opt *o)
{
	char left[64];
	int n = snprintf(left, sizeof(left), "  %s%c%s --%s%s%s", o->letter ? "-" : " ",
			 o->letter ? o->letter : ' ', o->letter ? "," : " ", o->name,
			 o->arg ? " " : "", o->arg ? o->arg : "");

	if (n >= 29)
		printf("%s\n%29s", left, "");
	else
		printf("%-29s", left);
	for (const char *s = o->help; *s; s++) {
		putchar(*s);
		if (*s == '\n')
			printf("%29s", "");
	}
	putchar('\n');
}

void opt_help(const struct opt_command *cmd)
{
	const char *s = cmd->synopsis, *nl;
	const char *lead = "usage:";

	while (*s) {
		nl = strchrnul(s, '\n');
		printf("%s roost %s %.*s\n", lead, cmd->name, (int)(nl - s), s);
		lead = "      ";
		s = *nl ? nl + 1 : nl;
	}
	printf("\n%s\n\noptions:\n", cmd->about);
	for (const struct opt *o = cmd->opts; o->name; o++)
		help_option(o);
	printf("  -h, --help                 show this\n");
	printf("\nexamples:\n%s", cmd->examples);
}

void opt_show_with(void (*show)(const struct opt_command *cmd))
{
	show_command = show;
}

void opt_environment(const char *port, uint64_t timeout_scale)
{
	char buf[32];

	if (port)
		setenv("ROOST_PORT", port, 1);
	if (timeout_scale) {
		snprintf(buf, sizeof(buf), "%llu", (unsigned long long)timeout_scale);
		setenv("ROOST_TIMEOUT_SCALE", buf, 1);
	}
}
