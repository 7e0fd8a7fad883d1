/* SPDX-License-Identifier: BSD-2-Clause */
/* `roost kv`: operations on one pair. */
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/kv/kv.h"
#include "cli/kv/vector.h"
#include "cli/options.h"

#define INCR_TRIES 1000

static const char *const kinds[] = {[ROOST_KV_KIND_UPDATE] = "update",
				    [ROOST_KV_KIND_REDUCE] = "reduce",
				    [ROOST_KV_KIND_FILTER] = "filter"};

static int show(const struct pair_call *c, int rc)
{
	return rc ? opt_failed(c->cmd, "%s", kv_error(rc)) : CLI_OK;
}

int pair_get(const struct pair_call *c, const char *key)
{
	char *value = malloc(ROOST_KV_VALUE_MAX);
	size_t len;
	int rc;

	if (!value)
		return show(c, -ENOMEM);
	rc = roost_kv_get(c->kv, key, strlen(key), value, ROOST_KV_VALUE_MAX, &len);
	if (!rc) {
		if (c->type >= 0 && len % vector_width((unsigned)c->type) == 0) {
			vector_print((unsigned)c->type, value, (uint32_t)len);
		} else if (c->type >= 0) {
			rc = -ERANGE;
		} else {
			kv_print(value, len);
			putchar('\n');
		}
	}
	free(value);
	return show(c, rc);
}

/*
 * Reads a file, and one byte more than a value may have, so that the client refuses a longer file.
 * Returns 0 or a negative errno value.
 */
static int read_value(const char *path, void **out, uint32_t *len)
{
	FILE *f = strcmp(path, "-") != 0 ? fopen(path, "rb") : stdin;
	int rc = 0;

	*len = 0;
	if (!f)
		return -errno;
	*out = malloc(ROOST_KV_VALUE_MAX + 1);
	if (!*out) {
		rc = -ENOMEM;
	} else {
		*len = (uint32_t)fread(*out, 1, ROOST_KV_VALUE_MAX + 1, f);
		if (ferror(f))
			rc = -errno;
	}
	if (f != stdin)
		fclose(f);
	return rc;
}

int pair_put_file(const struct pair_call *c, const char *key, const char *file)
{
	void *value = NULL;
	uint32_t len;
	int rc = read_value(file, &value, &len), status;

	if (rc)
		status = opt_failed(c->cmd, "%s: %s", file, strerror(-rc));
	else
		status = show(c, roost_kv_put(c->kv, key, strlen(key), value, len, c->ttl));
	free(value);
	return status;
}

int pair_put(const struct pair_call *c, const char *key, const char *text)
{
	void *vector = NULL;
	uint32_t len = (uint32_t)strlen(text);
	int rc = 0;

	if (c->type >= 0)
		rc = vector_parse((unsigned)c->type, text, &vector, &len);
	if (rc == -EINVAL)
		return opt_usage(c->cmd, "'%s' is no list of numbers of the type %s", text,
				 vector_types[c->type]);
	if (!rc)
		rc = roost_kv_put(c->kv, key, strlen(key), vector ? vector : text, len, c->ttl);
	free(vector);
	return show(c, rc);
}

/* Runs an update, a reduce or a filter, and prints its result. */
static int run_elements(const struct pair_call *c, struct roost_kv_op *op, unsigned kind)
{
	unsigned type = op->type;
	int rc;

	op->out_cap = ROOST_KV_VALUE_MAX;
	op->out = malloc(op->out_cap);
	if (!op->out)
		return show(c, -ENOMEM);
	op->fetch = kind == ROOST_KV_KIND_UPDATE && c->fetch;
	rc = roost_kv_run(c->kv, op, 1);
	if (!rc)
		rc = op->status;
	if (!rc && (kind != ROOST_KV_KIND_UPDATE || c->fetch))
		vector_print(type, op->out, op->out_len);
	free(op->out);
	if (rc == -EINVAL)
		return opt_failed(c->cmd, "%s has no such function for %s", kinds[kind],
				  vector_types[type]);
	return show(c, rc);
}

/* Sets the function of an operation: a built-in one, or one that the node has loaded. */
static int take_function(const struct pair_call *c, struct roost_kv_op *op, unsigned kind,
			 const char *name)
{
	int function = opt_find(vector_functions, name), rc;
	struct roost_kv_function_info info;

	op->type = (uint8_t)(c->type < 0 ? ROOST_KV_U64 : c->type);
	op->function = (uint16_t)function;
	/* swap needs an expected value; put and get do the same with compare and PUT. */
	if (function >= 0 && function != ROOST_KV_SWAP)
		return 0;
	rc = roost_kv_find_function(c->kv, name, &info);
	if (rc == -ENOENT)
		return opt_usage(c->cmd, "'%s' is no function, and none that the node has loaded",
				 name);
	if (rc)
		return opt_failed(c->cmd, "%s", kv_error(rc));
	if (info.kind != kind || info.type >= ROOST_KV_TYPES)
		return opt_usage(c->cmd, "'%s' is no function for %s", name, kinds[kind]);
	if (c->type >= 0 && c->type != info.type)
		return opt_usage(c->cmd, "'%s' works on the type %s", name,
				 vector_types[info.type]);
	op->type = info.type;
	op->function = info.number;
	return 0;
}

/* Parses numbers of a type. Returns 0, or an exit status after a message. */
static int take_numbers(const struct pair_call *c, unsigned type, const char *text, void **out,
			uint32_t *len)
{
	int rc = vector_parse(type, text, out, len);

	if (rc == -EINVAL)
		return opt_usage(c->cmd, "'%s' is no list of numbers of the type %s", text,
				 vector_types[type]);
	return rc ? show(c, rc) : 0;
}

int pair_elements(const struct pair_call *c, unsigned kind, char **args)
{
	struct roost_kv_op op = {.key = args[0], .key_len = (uint32_t)strlen(args[0])};
	void *operand = NULL, *param = NULL;
	int status = take_function(c, &op, kind, args[1]);

	if (!status)
		status = take_numbers(c, op.type, args[2], &operand, &op.value_len);
	if (!status && c->param)
		status = take_numbers(c, op.type, c->param, &param, &op.param_len);
	if (!status) {
		op.value = operand;
		op.param = param;
		if (kind == ROOST_KV_KIND_UPDATE)
			op.code = op.value_len == vector_width(op.type) ? ROOST_KV_UPDATE_EACH
									: ROOST_KV_UPDATE_VECTOR;
		else
			op.code = kind == ROOST_KV_KIND_REDUCE ? ROOST_KV_REDUCE : ROOST_KV_FILTER;
		status = run_elements(c, &op, kind);
	}
	free(operand);
	free(param);
	return status;
}

/* Parses a decimal number of 64 bits without a sign. */
static bool parse_decimal(const char *text, uint64_t *value)
{
	char *end;

	errno = 0;
	*value = strtoull(text, &end, 10);
	return isdigit((unsigned char)*text) && !*end && !errno;
}

/* Tries once to replace the number. Returns -ECANCELED if another client was faster. */
static int try_incr(const struct pair_call *c, const char *key, uint64_t by, uint64_t *value)
{
	char old[24], new[24];
	struct roost_kv_op op = {.key = key,
				 .key_len = (uint32_t)strlen(key),
				 .value = new,
				 .expect = old,
				 .ttl = c->ttl};
	size_t len = 0;
	int rc = roost_kv_get(c->kv, key, strlen(key), old, sizeof(old) - 1, &len);

	if (rc && rc != -ENOENT)
		return rc == -EMSGSIZE ? -EINVAL : rc;
	old[rc ? 0 : len] = '\0';
	*value = 0;
	if (!rc && !parse_decimal(old, value))
		return -EINVAL;
	*value += by;
	op.code = rc ? ROOST_KV_PUT_ABSENT : ROOST_KV_PUT_COMPARE;
	op.expect_len = (uint32_t)len;
	op.value_len = (uint32_t)snprintf(new, sizeof(new), "%" PRIu64, *value);
	rc = roost_kv_run(c->kv, &op, 1);
	if (!rc)
		rc = op.status;
	return rc == -EEXIST || rc == -ENOENT ? -ECANCELED : rc;
}

int pair_incr(const struct pair_call *c, const char *key, const char *by)
{
	uint64_t value = 0, step = 1;
	int rc = -ECANCELED;

	if (by && !parse_decimal(by, &step))
		return opt_usage(c->cmd, "'%s' is no decimal number of 64 bits without a sign", by);
	for (unsigned i = 0; rc == -ECANCELED && i < INCR_TRIES; i++)
		rc = try_incr(c, key, step, &value);
	if (rc == -EINVAL)
		return opt_failed(c->cmd, "the value is not a decimal number of 64 bits");
	if (!rc)
		printf("%" PRIu64 "\n", value);
	return show(c, rc);
}

int pair_delete(const struct pair_call *c, const char *key)
{
	return show(c, roost_kv_delete(c->kv, key, strlen(key)));
}
