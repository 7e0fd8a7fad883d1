/* SPDX-License-Identifier: BSD-2-Clause */
/* The assembler: lines, names, expressions and locations. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "chainasm/asm.h"

#define NESTING 32

bool asm_fail(struct asm_state *s, const char *fmt, ...)
{
	va_list args;

	if (s->err->text[0])
		return false;
	s->err->line = s->number;
	va_start(args, fmt);
	vsnprintf(s->err->text, sizeof(s->err->text), fmt, args);
	va_end(args);
	/* a part of the text goes to a terminal: a character of control would change it */
	for (char *c = s->err->text; *c; c++)
		if ((unsigned char)*c < ' ' || *c == 0x7f)
			*c = '?';
	return false;
}

bool asm_next_line(struct asm_state *s)
{
	const char *newline;
	size_t n, quote = 0;

	if (s->next >= s->end)
		return false;
	newline = memchr(s->next, '\n', (size_t)(s->end - s->next));
	n = (size_t)((newline ? newline : s->end) - s->next);
	s->number++;
	if (n >= sizeof(s->line)) {
		s->next = s->end;
		return asm_fail(s, "the line is longer than %zu characters", sizeof(s->line) - 1);
	}
	memcpy(s->line, s->next, n);
	s->line[n] = '\0';
	s->next += n + 1;
	for (size_t i = 0; i < n; i++) {
		if (s->line[i] == '"')
			quote = !quote;
		if (s->line[i] == '\0' || (s->line[i] == '#' && !quote)) {
			s->line[i] = '\0';
			break;
		}
	}
	s->at = s->line;
	return true;
}

char asm_peek(struct asm_state *s)
{
	while (*s->at == ' ' || *s->at == '\t' || *s->at == '\r')
		s->at++;
	return *s->at;
}

static bool is_letter(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

bool asm_take(struct asm_state *s, const char *text)
{
	size_t n = strlen(text);

	asm_peek(s);
	if (strncmp(s->at, text, n))
		return false;
	/* a text that ends with a letter must end a word */
	if (is_letter(text[n - 1]) && (is_letter(s->at[n]) || is_digit(s->at[n])))
		return false;
	s->at += n;
	return true;
}

bool asm_want(struct asm_state *s, const char *text)
{
	if (asm_take(s, text))
		return true;
	if (!asm_peek(s))
		return asm_fail(s, "'%s' is missing at the end of the line", text);
	return asm_fail(s, "'%s' is missing before '%.20s'", text, s->at);
}

bool asm_name(struct asm_state *s, char name[CHAIN_NAME])
{
	size_t n = 0;

	if (!is_letter(asm_peek(s)))
		return false;
	while (is_letter(s->at[n]) || is_digit(s->at[n]))
		n++;
	if (n >= CHAIN_NAME)
		return asm_fail(s, "the name %.31s... is longer than %d characters", s->at,
				CHAIN_NAME - 1);
	memset(name, 0, CHAIN_NAME);
	memcpy(name, s->at, n);
	s->at += n;
	return true;
}

bool asm_want_name(struct asm_state *s, char name[CHAIN_NAME], const char *what)
{
	return asm_name(s, name) || asm_fail(s, "%s is missing", what);
}

bool asm_end(struct asm_state *s)
{
	return !asm_peek(s) || asm_fail(s, "nothing may follow here: '%.40s'", s->at);
}

/* ---- locations ---- */

static bool expression(struct asm_state *s, uint64_t *v, int depth, unsigned level);

static void location_in(struct asm_state *s, int region, uint64_t offset, struct asm_location *p)
{
	const struct chain_region *r = &s->p->region[region];

	*p = (struct asm_location){region, offset, {r->addr + offset, r->key}};
}

/* Returns a location that the first pass does not know. */
static void unknown(struct asm_location *p)
{
	*p = (struct asm_location){-1, 0, {0, ASM_UNKNOWN_KEY}};
}

/* Parses the text behind the name of a queue: [n], .receives[n], or nothing. */
static bool slot_location(struct asm_state *s, int queue, struct asm_location *p)
{
	const struct chain_queue *q = &s->p->queue[queue];
	bool recv = asm_take(s, ".receives");
	uint64_t n = 0;

	if (asm_take(s, "[") && (!expression(s, &n, 0, 0) || !asm_want(s, "]")))
		return false;
	if (!s->second) {
		unknown(p);
		return true;
	}
	if (recv && q->recv_region < 0)
		return asm_fail(s, "the queue %s has no receives", q->name);
	if (n >= (recv ? q->recvs : q->depth))
		return asm_fail(s, "the queue %s has no WQE %llu", q->name, (unsigned long long)n);
	location_in(s, recv ? q->recv_region : q->region, n * (recv ? q->recv_stride : q->stride),
		    p);
	return true;
}

static bool named_location(struct asm_state *s, const char *name, struct asm_location *p)
{
	const struct chain_symbol *sym = chain_find_symbol(s->p, name);
	int queue = chain_find_queue(s->p, name);

	if (queue >= 0)
		return slot_location(s, queue, p);
	if (sym && sym->constant)
		return asm_fail(s, "%s is a constant, and no location", name);
	for (unsigned i = 0; i < s->p->regions && !sym; i++)
		if (s->p->region[i].kind == CHAIN_DATA && strcmp(s->p->region[i].name, name) == 0) {
			location_in(s, (int)i, 0, p);
			return true;
		}
	if (sym && sym->region >= CHAIN_MAX_REGIONS) { /* a label of a queue, in the first pass */
		unknown(p);
		return true;
	}
	if (sym) {
		location_in(s, sym->region, sym->value, p);
		return true;
	}
	if (s->second)
		return asm_fail(s, "no location has the name %s", name);
	unknown(p);
	if (asm_take(s, ".receives") && asm_peek(s) != '[') /* a queue that is defined later */
		return true;
	if (asm_take(s, "[")) {
		uint64_t n;

		return expression(s, &n, 0, 0) && asm_want(s, "]");
	}
	return true;
}

/* Parses NAME@ADDR, an address with the key of a region, and raw(ADDR, KEY). */
static bool addressed_location(struct asm_state *s, const char *name, struct asm_location *p)
{
	uint64_t addr, key = 0;
	struct asm_location of = {0};

	if (strcmp(name, "raw") == 0) {
		if (!expression(s, &addr, 0, 0) || !asm_want(s, ",") ||
		    !expression(s, &key, 0, 0) || !asm_want(s, ")"))
			return false;
	} else {
		if (!named_location(s, name, &of) || !asm_want(s, "@") ||
		    !expression(s, &addr, 9, 0))
			return false;
		key = of.ref.key;
	}
	*p = (struct asm_location){-1, 0, {addr, (uint32_t)key}};
	return true;
}

static bool is_at(struct asm_state *s)
{
	const char *c = s->at;

	if (strncmp(c, ".receives", 9) == 0)
		c += 9;
	return *c == '@';
}

bool asm_location(struct asm_state *s, struct asm_location *p)
{
	char name[CHAIN_NAME], field[CHAIN_NAME];
	uint64_t v;

	if (!asm_name(s, name))
		return asm_fail(s, "a location is missing%s%.20s", asm_peek(s) ? " before " : "",
				s->at);
	if (is_at(s) || (strcmp(name, "raw") == 0 && asm_take(s, "(")))
		return addressed_location(s, name, p);
	if (!named_location(s, name, p))
		return false;
	if (asm_take(s, ".")) {
		const struct chain_field *f;

		if (!asm_want_name(s, field, "the name of a field"))
			return false;
		f = chain_field_named(field);
		if (!f)
			return asm_fail(s, "a WQE has no field %s", field);
		p->offset += f->offset;
		p->ref.addr += f->offset;
	}
	while (asm_peek(s) == '+' || (asm_peek(s) == '-' && s->at[1] != '>')) {
		bool minus = *s->at++ == '-';

		if (!expression(s, &v, 9, 0))
			return false;
		p->offset += minus ? -v : v;
		p->ref.addr += minus ? -v : v;
	}
	return true;
}

bool asm_ref(struct asm_state *s, struct roost_ref *r)
{
	struct asm_location p;

	if (!asm_location(s, &p))
		return false;
	*r = p.ref;
	return true;
}

bool asm_is_location(struct asm_state *s)
{
	const char *at;
	char name[CHAIN_NAME];
	const struct chain_symbol *sym;
	bool is = false;

	asm_peek(s);
	at = s->at;
	if (asm_name(s, name)) {
		sym = chain_find_symbol(s->p, name);
		is = !(sym && sym->constant) && (*s->at != '(' || strcmp(name, "raw") == 0);
	}
	s->at = at;
	return is;
}

bool asm_queue_name(struct asm_state *s, int *queue)
{
	char name[CHAIN_NAME];

	if (!asm_want_name(s, name, "the name of a queue"))
		return false;
	*queue = chain_find_queue(s->p, name);
	if (*queue < 0 && s->second)
		return asm_fail(s, "no queue has the name %s", name);
	return true;
}

/* ---- expressions ---- */

static bool number(struct asm_state *s, uint64_t *v)
{
	unsigned base = 10, digit;
	bool any = false;

	*v = 0;
	if (s->at[0] == '0' && (s->at[1] == 'x' || s->at[1] == 'X')) {
		base = 16;
		s->at += 2;
	}
	for (;; s->at++, any = true) {
		char c = *s->at;

		if (is_digit(c))
			digit = (unsigned)(c - '0');
		else if (base == 16 && (c | 32) >= 'a' && (c | 32) <= 'f')
			digit = (unsigned)((c | 32) - 'a' + 10);
		else
			break;
		if (*v > (UINT64_MAX - digit) / base)
			return asm_fail(s, "a number has more than 64 bits");
		*v = *v * base + digit;
	}
	if (!any || is_letter(*s->at))
		return asm_fail(s, "'%.20s' does not belong to a number", s->at);
	return true;
}

/* Parses operand(V), key(REGION), qp(QUEUE), op(NAME). */
static bool function(struct asm_state *s, const char *name, uint64_t *v, unsigned level)
{
	char arg[CHAIN_NAME];
	const struct chain_op *o;
	struct asm_location p;
	int queue;

	if (strcmp(name, "operand") == 0) {
		if (!expression(s, v, 0, level + 1))
			return false;
		if (*v >> 48)
			return asm_fail(s, "an operand has at most 48 bits");
		*v = ROOST_OPERAND(*v);
	} else if (strcmp(name, "key") == 0) {
		if (!asm_location(s, &p))
			return false;
		*v = p.ref.key;
	} else if (strcmp(name, "qp") == 0) {
		if (!asm_queue_name(s, &queue))
			return false;
		*v = queue < 0 ? 0 : s->p->queue[queue].qp_num;
	} else if (strcmp(name, "op") == 0) {
		if (!asm_want_name(s, arg, "the name of an op-code"))
			return false;
		o = chain_op_named(arg);
		if (!o)
			return asm_fail(s, "no op-code has the name %s", arg);
		*v = o->op;
	} else {
		return asm_fail(s, "no function has the name %s", name);
	}
	return asm_want(s, ")");
}

static bool primary(struct asm_state *s, uint64_t *v, unsigned level)
{
	char name[CHAIN_NAME];
	const struct chain_symbol *sym;
	struct asm_location p;
	char c = asm_peek(s);

	if (level > NESTING)
		return asm_fail(s, "the expression is nested too deeply");
	if (is_digit(c))
		return number(s, v);
	switch (c) {
	case '(':
		s->at++;
		return expression(s, v, 0, level + 1) && asm_want(s, ")");
	case '-':
	case '~':
		s->at++;
		if (!primary(s, v, level + 1))
			return false;
		*v = c == '-' ? -*v : ~*v;
		return true;
	case '&':
		s->at++;
		if (!asm_location(s, &p))
			return false;
		*v = p.ref.addr;
		return true;
	default:
		break;
	}
	if (!asm_name(s, name))
		return asm_fail(s, c ? "a value is missing before '%.20s'" : "a value is missing%s",
				c ? s->at : "");
	if (*s->at == '(') {
		s->at++;
		return function(s, name, v, level);
	}
	sym = chain_find_symbol(s->p, name);
	if (!sym || !sym->constant)
		return asm_fail(s, "no constant has the name %s before this line", name);
	*v = sym->value;
	return true;
}

static const struct {
	const char *text;
	int level;
} operators[] = {{"|", 1}, {"^", 2}, {"&", 3}, {"<<", 4}, {">>", 4}, {"+", 5},
		 {"-", 5}, {"*", 6}, {"/", 6}, {"%", 6},  {NULL, 0}};

static bool apply(struct asm_state *s, const char *op, uint64_t *a, uint64_t b)
{
	switch (op[0]) {
	case '|':
		*a |= b;
		return true;
	case '^':
		*a ^= b;
		return true;
	case '&':
		*a &= b;
		return true;
	case '<':
		*a = b > 63 ? 0 : *a << b;
		return true;
	case '>':
		*a = b > 63 ? 0 : *a >> b;
		return true;
	case '+':
		*a += b;
		return true;
	case '-':
		*a -= b;
		return true;
	case '*':
		*a *= b;
		return true;
	default:
		if (!b)
			return asm_fail(s, "a division by 0");
		*a = op[0] == '/' ? *a / b : *a % b;
		return true;
	}
}

/*
 * Takes the operators with the precedence `depth` or a higher one. A depth above all operators
 * takes one value.
 */
static bool expression(struct asm_state *s, uint64_t *v, int depth, unsigned level)
{
	uint64_t b;

	if (!primary(s, v, level))
		return false;
	for (;;) {
		int i = 0;

		asm_peek(s);
		while (operators[i].text &&
		       (operators[i].level < depth ||
			strncmp(s->at, operators[i].text, strlen(operators[i].text))))
			i++;
		if (!operators[i].text || strncmp(s->at, "->", 2) == 0)
			return true;
		s->at += strlen(operators[i].text);
		if (!expression(s, &b, operators[i].level + 1, level + 1) ||
		    !apply(s, operators[i].text, v, b))
			return false;
	}
}

bool asm_value(struct asm_state *s, uint64_t *v)
{
	return expression(s, v, 0, 0);
}

bool asm_operand(struct asm_state *s, struct roost_operand *o)
{
	uint64_t v;

	*o = (struct roost_operand){0};
	if (asm_is_location(s))
		return asm_ref(s, &o->at);
	if (!asm_value(s, &v))
		return false;
	if (v >> 48)
		return asm_fail(s, "an operand has at most 48 bits");
	*o = roost_constant(v);
	return true;
}
