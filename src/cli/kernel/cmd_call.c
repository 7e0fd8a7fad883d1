/* SPDX-License-Identifier: BSD-2-Clause */
/* `roost call`: calls one kernel of a node from the command line. */
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "cli/commands.h"
#include "cli/local.h"
#include "cli/node/table.h"
#include "cli/options.h"
#include "cli/term.h"
#include "roost/get.h"
#include "roost/node.h"
#include "roost/verbs.h"

#define ANSWER_NS UINT64_C(10000000000)

static struct {
	const char *port, *hex;
	uint64_t service, space, timeout;
	bool json;
} want = {.service = ROOST_NODE_SERVICE, .space = 65536, .timeout = ANSWER_NS};

static const struct opt opts[] = {
	OPT_VALUE("params", 'x', OPT_STRING, &want.hex, "HEX",
		  "its parameters, byte by byte: 00ff17..."),
	OPT_VALUE("space", 0, OPT_BYTES, &want.space, "SIZE", "bytes that a reply can have (64K)",
		  .max = 1e9),
	OPT_VALUE("timeout", 0, OPT_TIME, &want.timeout, "TIME",
		  "for the connection, and the answer (10s)", .min = 1e6, .max = 3600e9),
	OPT_VALUE("service", 's', OPT_COUNT, &want.service, "N", "where the node listens (4792)",
		  .min = 1, .max = 65535),
	OPT_VALUE("port", 'p', OPT_STRING, &want.port, "SPEC",
		  "of this end: host, udp or shm, address, options\n(ROOST_PORT, else host)"),
	OPT_JSON(&want.json),
	OPT_END};

static const struct opt_command cmd = {
	.name = "call",
	.synopsis = "[OPTIONS] ADDR get KEY\n"
		    "[OPTIONS] ADDR KERNEL [--params HEX]",
	.about =
		"Calls a kernel of the node at ADDR, and prints status, value and round trip time. KEY is a\n"
		"number, or a word. Other kernels than get take their parameters as they are on the wire; KERNEL is\n"
		"the name of a built-in one, or an op-code. The exit status is 0 only when the status is ok.",
	.opts = opts,
	.examples = "  roost call 127.0.0.2 get 17\n"
		    "  roost call 127.0.0.2 get 17 --json\n"
		    "  roost call 192.0.2.1 0x1000 --params 0011223344556677\n",
};

static struct {
	uint64_t op;
	uint8_t params[ROOST_RPC_MAX_PARAMS];
	uint32_t len;
	struct roost_node *node;
	struct roost_caller *caller;
	struct roost_result result;
	uint8_t *reply;
	double us; /* time from the call to its reply */
} call;

static const char *const statuses[] = {
	[ROOST_RPC_OK] = "ok",
	[ROOST_RPC_NO_KERNEL] = "no such kernel",
	[ROOST_RPC_BAD_PARAMS] = "bad parameters",
	[ROOST_RPC_ACCESS] = "an access outside of the region",
	[ROOST_RPC_TOO_LONG] = "the reply does not fit: take a larger --space",
	[ROOST_RPC_BOUND] = "the call reached its limit of steps or elements",
	[ROOST_RPC_MISS] = "not found",
	[ROOST_RPC_BUSY] = "busy",
	[ROOST_RPC_FAILED] = "the kernel failed",
	[ROOST_RPC_FAULT] = "the kernel crashed, and is disabled",
	[ROOST_RPC_STUCK] = "the kernel did not return, and is disabled",
	[ROOST_RPC_DISABLED] = "the kernel is disabled: see roost kernel list at the node",
	[ROOST_RPC_IDLE] = "no payload came",
};

static const char *status_name(unsigned status)
{
	return status < sizeof(statuses) / sizeof(statuses[0]) ? statuses[status]
							       : "the kernel's own";
}

/* ---- parameters ---- */

static int read_hex(void)
{
	const char *s = want.hex ? want.hex : "";
	unsigned v;

	for (; *s; s += 2) {
		if (!isxdigit((unsigned char)s[0]) || !isxdigit((unsigned char)s[1]))
			return opt_usage(&cmd,
					 "--params wants pairs of hexadecimal digits, not '%s'", s);
		if (call.len == sizeof(call.params))
			return opt_usage(&cmd, "parameters have %u bytes at most",
					 ROOST_RPC_MAX_PARAMS);
		sscanf(s, "%2x", &v);
		call.params[call.len++] = (uint8_t)v;
	}
	return 0;
}

static int read_kernel(const char *word)
{
	const struct roost_kernel *k = roost_kernel_builtin(word);
	char *end;

	errno = 0;
	call.op = k ? k->op : strtoull(word, &end, 0);
	if (k || (isdigit((unsigned char)*word) && *end == '\0' && errno == 0))
		return 0;
	return opt_usage(&cmd, "'%s' is no built-in kernel, and no op-code such as 0x1000", word);
}

/* Makes the parameters of `get` from the key, in the format of the node's table. */
static int make_get(const char *key)
{
	const struct roost_node_hello *h = &call.node->hello;
	struct roost_get_params p;

	if (!h->entries)
		return opt_failed(
			&cmd, "the node has no table to look in: start it with --fill or --table");
	p = roost_get_params(h->table, h->entries, node_key(key), h->flags);
	memcpy(call.params, &p, sizeof(p));
	call.len = sizeof(p);
	return 0;
}

/* ---- calling ---- */

static int reach(const char *host)
{
	const char *why = NULL;
	int rc = roost_node_connect(host, (uint16_t)want.service, (int)(want.timeout / 1000000),
				    &call.node);

	switch (rc) {
	case 0:
		break;
	case ECONNREFUSED:
		why = "no node listens there (roost node --service)";
		break;
	case ENOMEM:
		why = "the node has no memory for another connection (roost node --limit)";
		break;
	case ETIMEDOUT:
		why = "no answer; is a node running there, and is UDP port 4791 open?";
		break;
	case EHOSTUNREACH:
		why = "the host is unknown or unreachable";
		break;
	case EPROTO:
		why = "the process that listens there is no node, or a node of another version";
		break;
	default:
		why = strerror(rc);
	}
	return rc ? opt_failed(&cmd, "%s, service %" PRIu64 ": %s", host, want.service, why) : 0;
}

static int make_call(void)
{
	uint64_t start = clock_ns();
	int rc = roost_call(call.caller, call.op, call.node->hello.rkey, call.params, call.len,
			    call.reply, (uint32_t)want.space, want.timeout, &call.result);

	call.us = (double)(clock_ns() - start) / 1e3;
	if (rc)
		return opt_failed(&cmd, "%s",
				  rc == ETIMEDOUT ? "no answer to the call in time (--timeout)"
						  : strerror(rc));
	return 0;
}

/* ---- the reply ---- */

static bool is_text(const uint8_t *p, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		if (!isprint(p[i]))
			return false;
	}
	return n > 0;
}

static void print_hex(const uint8_t *p, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		printf("%s%02x",
		       i && i % 32 == 0	 ? "\n         "
		       : i && i % 8 == 0 ? " "
					 : "",
		       p[i]);
}

static void print_text(const struct roost_result *r)
{
	printf("status   %s\n", status_name(r->status));
	if (r->data && r->len) {
		printf("value    ");
		if (is_text(call.reply, r->len))
			printf("%.*s", (int)r->len, (const char *)call.reply);
		else
			print_hex(call.reply, r->len);
		putchar('\n');
	}
	printf("time     %.1f us\n", call.us);
}

static void print_json(const char *host, const struct roost_result *r)
{
	json_t *o = json_pack("{s:s,s:s,s:I,s:i,s:s,s:I,s:f}", "tool", "call", "node", host, "op",
			      (json_int_t)call.op, "status", (int)r->status, "status_text",
			      status_name(r->status), "len", (json_int_t)r->len, "us", call.us);
	char *hex = r->data ? malloc(2 * (size_t)r->len + 1) : NULL;

	if (hex) {
		hex[0] = '\0';
		for (uint32_t i = 0; i < r->len; i++)
			sprintf(hex + 2 * (size_t)i, "%02x", call.reply[i]);
		json_object_set_new(o, "hex", json_string(hex));
		if (is_text(call.reply, r->len))
			json_object_set_new(o, "text",
					    json_stringn((const char *)call.reply, r->len));
	}
	free(hex);
	json_dumpf(o, stdout, JSON_COMPACT);
	putchar('\n');
	json_decref(o);
}

static int run(const char *host, const char *key)
{
	int rc = reach(host);

	if (rc == 0 && key)
		rc = make_get(key);
	if (rc)
		return rc;
	call.caller = roost_caller_create(call.node->id->qp, 1, (uint32_t)want.space);
	call.reply = malloc(want.space + 1);
	if (!call.caller || !call.reply)
		return opt_failed(&cmd, "no memory for replies: take a smaller --space");
	rc = make_call();
	if (rc)
		return rc;
	if (want.json)
		print_json(host, &call.result);
	else
		print_text(&call.result);
	return call.result.status == ROOST_RPC_OK ? CLI_OK : CLI_FAILED;
}

int cmd_call(int argc, char **argv)
{
	int at = opt_parse(&cmd, argc, argv, false), rc;
	struct drive *drive;
	bool get;

	if (at < 0)
		return at == OPT_HELP ? CLI_OK : CLI_USAGE;
	if (argc - at < 2)
		return opt_usage(&cmd,
				 "the address and the kernel are missing: roost call ADDR get KEY");
	get = strcmp(argv[at + 1], "get") == 0 && !want.hex;
	if (argc - at != 2 + get)
		return opt_usage(&cmd, get ? "get takes one key" : "unexpected argument '%s'",
				 argv[argc - 1]);
	if (read_kernel(argv[at + 1]) || read_hex())
		return CLI_USAGE;
	if (!local_port_fits(&cmd, want.port))
		return CLI_USAGE;
	opt_environment(want.port, 0);
	rc = local_port_open(&cmd, &drive);
	if (rc)
		return rc;
	rc = run(argv[at], get ? argv[at + 2] : NULL);
	free(call.reply);
	/* Destroys the queue pair first: an answer to an abandoned call may still arrive. */
	if (call.node)
		roost_node_close(call.node);
	if (call.caller)
		roost_caller_destroy(call.caller);
	local_port_close(drive);
	return rc;
}
