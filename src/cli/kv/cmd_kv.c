/* SPDX-License-Identifier: BSD-2-Clause */
/* `roost kv`: operations on the store of a node, from the command line. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/kv/kv.h"
#include "cli/kv/vector.h"
#include "cli/local.h"
#include "cli/options.h"
#include "roost/node.h"

#define TIMEOUT_NS UINT64_C(10000000000)

static struct {
	const char *port, *param, *partitions, *snapshot, *sizes, *from, *to;
	double utilization;
	uint64_t service, timeout, ttl;
	struct kv_bench bench;
	bool keys_only, fetch, lost;
	int type; /* enum roost_kv_type; -1: text */
	struct watch watch;
} want = {.service = ROOST_NODE_SERVICE,
	  .type = -1,
	  .timeout = TIMEOUT_NS,
	  .utilization = 0.5,
	  .watch = {.every = 1},
	  .bench = {.keys = 100000,
		    .value = 64,
		    .put_percent = 5,
		    .workload = -1,
		    .batch = 16,
		    .depth = 16,
		    .duration_ns = 3000000000}};

static const struct opt opts[] = {
	OPT_VALUE("ttl", 0, OPT_COUNT, &want.ttl, "SECONDS",
		  "put: the pair expires after this time (never)", .max = 4294967295.0),
	OPT_VALUE("from", 0, OPT_STRING, &want.from, "FILE",
		  "put: the value is what this file contains (-: standard\ninput)"),
	OPT_VALUE("to", 0, OPT_STRING, &want.to, "FILE",
		  "get: write exactly the value to this file (-: standard\noutput)"),
	OPT_VALUE("type", 't', OPT_CHOICE, &want.type, "TYPE",
		  "of the elements of a vector: u8 to u64, i8 to i64, float,\n"
		  "double (get, put: text; update, reduce, filter: u64)",
		  .choices = vector_types),
	OPT_VALUE("param", 0, OPT_STRING, &want.param, "LIST",
		  "numbers for a function that the node has loaded"),
	OPT_SWITCH("fetch", 0, &want.fetch, "update: print the previous value"),
	OPT_SWITCH("keys-only", 0, &want.keys_only, "scan: without the values"),
	OPT_VALUE("batch", 'b', OPT_COUNT, &want.bench.batch, "N",
		  "bench: operations of a batch (16)", .min = 1, .max = 1024),
	OPT_VALUE("depth", 'd', OPT_COUNT, &want.bench.depth, "N", "bench: batches in flight (16)",
		  .min = 1, .max = 160),
	OPT_VALUE("keys", 0, OPT_COUNT, &want.bench.keys, "N", "bench: different keys (100k)",
		  .min = 1, .max = 1e9),
	OPT_VALUE("value", 0, OPT_BYTES, &want.bench.value, "SIZE", "bench: bytes of a value (64)",
		  .max = 1 << 20),
	OPT_VALUE("put", 0, OPT_COUNT, &want.bench.put_percent, "N",
		  "bench: percent of PUTs; the others are GETs (5)", .max = 100),
	OPT_VALUE("zipf", 0, OPT_NUMBER, &want.bench.zipf, "SKEW",
		  "bench: draw keys from a Zipf distribution (uniform)", .max = 0.999),
	OPT_VALUE("workload", 0, OPT_CHOICE, &want.bench.workload, "NAME",
		  "bench: A, B, C, D or F of YCSB, in place of --put", .choices = kv_workloads),
	OPT_VALUE("duration", 0, OPT_TIME, &want.bench.duration_ns, "TIME", "bench: duration (3s)",
		  .min = 1e6, .max = 3600e9),
	OPT_VALUE("sizes", 0, OPT_STRING, &want.sizes, "LIST",
		  "tune: bytes of key and value together, SIZE:WEIGHT, separated\nby commas"),
	OPT_VALUE("utilization", 0, OPT_NUMBER, &want.utilization, "SHARE",
		  "tune: bytes of pairs for each byte of memory (0.5)", .min = 0.001, .max = 0.999),
	OPT_VALUE("every", 0, OPT_NUMBER, &want.watch.every, "S", "top: seconds between looks (1)",
		  .min = 0.01, .max = 86400),
	OPT_VALUE("count", 'n', OPT_COUNT, &want.watch.looks, "N",
		  "top: N times (until interrupted)", .min = 1, .max = 1e9),
	OPT_VALUE(
		"partitions", 0, OPT_STRING, &want.partitions, "FILE",
		"the nodes of this table, in place of ADDR; the name of a table\nis also etcd:http://HOST:PORT/KEY"),
	OPT_SWITCH("lost", 0, &want.lost,
		   "move: the former node of the partition and its pairs are lost"),
	OPT_VALUE("snapshot", 0, OPT_STRING, &want.snapshot, "FILE",
		  "move --lost: the partition begins with the pairs in this file\n(empty)"),
	OPT_VALUE("timeout", 0, OPT_TIME, &want.timeout, "TIME",
		  "for the connection, and each answer (10s)", .min = 1e6, .max = 3600e9),
	OPT_VALUE("service", 's', OPT_COUNT, &want.service, "N", "where the node listens (4792)",
		  .min = 1, .max = 65535),
	OPT_VALUE("port", 'p', OPT_STRING, &want.port, "SPEC",
		  "of this end: host, udp or shm, address, options\n(ROOST_PORT, else host)"),
	OPT_SWITCH("json", 'j', &want.bench.json,
		   "stat, bench, top, tune: one JSON object on stdout, of top at each look"),
	OPT_END};

static const char *const verbs[] = {"get",    "put",  "del",  "incr",  "update", "reduce",
				    "filter", "scan", "stat", "bench", "top",	 "snapshot",
				    "table",  "move", "tune", NULL};
enum verb {
	GET,
	PUT,
	DEL,
	INCR,
	UPDATE,
	REDUCE,
	FILTER,
	SCAN,
	STAT,
	BENCH,
	TOP,
	SNAPSHOT,
	TABLE,
	MOVE,
	TUNE
};

static const struct opt_command cmd = {
	.name = "kv",
	.synopsis = "[OPTIONS] get|del ADDR KEY\n"
		    "[OPTIONS] put ADDR KEY VALUE\n"
		    "[OPTIONS] --to FILE get ADDR KEY\n"
		    "[OPTIONS] --from FILE put ADDR KEY\n"
		    "[OPTIONS] incr ADDR KEY [N]\n"
		    "[OPTIONS] update|reduce|filter ADDR KEY FUNCTION VALUE\n"
		    "[OPTIONS] scan|stat|bench|top|snapshot ADDR\n"
		    "[OPTIONS] --partitions FILE get|put|... KEY ...\n"
		    "[OPTIONS] table FILE [PARTITIONS NODE...]\n"
		    "[OPTIONS] move FILE PARTITION NODE\n"
		    "[OPTIONS] --sizes LIST tune MEMORY",
	.about =
		"Operations on the key-value store of the node at ADDR (roost node --kv SIZE). incr adds N (1) to a\n"
		"decimal number of 64 bits, which is 0 if the key does not exist, and wraps. scan prints a line\n"
		"with key, tab and value for each pair. With --type, a value is a list of numbers: 1,2,3. update\n"
		"applies FUNCTION (add, sub, mul, min, max, and, or, xor, assign, add-sat, sub-sat, mul-sat) and\n"
		"VALUE, a number or a vector, to each element; reduce combines the elements, from VALUE on; filter\n"
		"prints those for which FUNCTION (eq, ne, lt, le, gt, ge) is true. FUNCTION is also the name of one\n"
		"that the node has loaded (roost node --function). top shows rates. snapshot is for a node of this\n"
		"machine, which it may also name by its process number: it writes the file of roost node\n"
		"--snapshot. bench stores its keys first, and replaces pairs with the same keys. table writes a\n"
		"table that divides keys into partitions, and these among nodes, each ADDR or ADDR:SERVICE, which\n"
		"are started with --kv-partitions FILE. With --partitions FILE there is no ADDR: each operation\n"
		"goes to the node that owns its key. move moves the pairs of one partition to another node, which\n"
		"it adds to the table. With --lost it gives the partition of a node that is gone to another one.\n"
		"table FILE alone prints the table: its lines \"lost VERSION PARTITIONS\" show what was lost in this\n"
		"way. tune needs no node: it prints the inline threshold and the size of the index with the fewest\n"
		"accesses for a store of MEMORY bytes.",
	.opts = opts,
	.examples = "  roost kv put 127.0.0.2 colour green\n"
		    "  roost kv get 127.0.0.2 colour\n"
		    "  roost kv put 127.0.0.2 picture --from picture.png\n"
		    "  roost kv get 127.0.0.2 picture --to picture.png\n"
		    "  roost kv put 127.0.0.2 counts 1,2,3 --type u32\n"
		    "  roost kv update 127.0.0.2 counts add 10 --type u32\n"
		    "  roost kv bench 127.0.0.2 --batch 64 --put 50 --zipf 0.99\n"
		    "  roost kv table parts 16 127.0.0.2 127.0.0.3\n"
		    "  roost kv --partitions parts put colour green\n"
		    "  roost kv move parts 3 127.0.0.3\n"
		    "  roost kv move parts 5 127.0.0.3 --lost --snapshot last\n"
		    "  roost kv tune 1G --sizes 13:70,74:30 --utilization 0.4\n",
	.words = verbs,
};

static struct roost_kv *kv;
static struct kv_view view;

const char *kv_error(int err)
{
	switch (err) {
	case -ENOENT:
		return "no such key";
	case -E2BIG:
		return "the key or value is too long (255 bytes, 1 MiB)";
	case -ERANGE:
		return "the value is not a vector of this type, or not as long as the operand";
	case -EFAULT:
		return "the function has crashed, and is disabled";
	case -ETIME:
		return "the function did not return, and is disabled";
	case -ENOSPC:
		return "the store is full: start the node with a larger --kv";
	case -EOPNOTSUPP:
		return "the node has no store: start it with --kv SIZE";
	case -EREMCHG:
		return "another node owns the key: use --partitions FILE";
	case -EHOSTDOWN:
		return "the node of this partition is lost: start it again, or give the partition "
		       "to another one (roost kv move --lost)";
	case -EIO:
		return "the node could not execute it: see the node's messages, and far_errors in "
		       "roost kv stat";
	case -EBADMSG:
		return "the node's reply is not valid: check that it runs the kernel kv of this "
		       "version";
	case -EPROTONOSUPPORT:
		return "the node has another version of the store's wire format: use the roost of "
		       "the node's version";
	case -ENOTCONN:
		return "the connection ended: check that the node runs (roost node)";
	case -ETIMEDOUT:
		return "no answer in time: check that the node runs, or wait longer (--timeout)";
	default:
		return strerror(-err);
	}
}

static int perform(enum verb verb, char **args)
{
	const struct pair_call call = {.cmd = &cmd,
				       .kv = kv,
				       .param = want.param,
				       .type = want.type,
				       .ttl = (uint32_t)want.ttl,
				       .fetch = want.fetch};

	switch (verb) {
	case GET:
		return want.to ? pair_get_file(&call, args[0], want.to) : pair_get(&call, args[0]);
	case PUT:
		return want.from ? pair_put_file(&call, args[0], want.from)
				 : pair_put(&call, args[0], args[1]);
	case DEL:
		return pair_delete(&call, args[0]);
	case INCR:
		return pair_incr(&call, args[0], args[1]);
	case UPDATE:
		return pair_elements(&call, ROOST_KV_KIND_UPDATE, args);
	case REDUCE:
		return pair_elements(&call, ROOST_KV_KIND_REDUCE, args);
	case FILTER:
		return pair_elements(&call, ROOST_KV_KIND_FILTER, args);
	case SCAN:
		return kv_show_pairs(&cmd, &view, want.keys_only);
	case STAT:
		return kv_show_stat(&cmd, &view, want.bench.json);
	case BENCH:
		return kv_bench_run(&cmd, kv, &view, &want.bench);
	case TOP:
		return kv_top(&cmd, &view, &want.watch, want.bench.json);
	case SNAPSHOT:
	case TABLE:
	case MOVE:
	case TUNE:
		break; /* works without a connection */
	}
	return CLI_USAGE;
}

/* Returns whether the verb works on nodes, not on keys. */
static bool of_nodes(enum verb verb)
{
	return verb == SCAN || verb == STAT || verb == TOP;
}

static struct roost_kv_attr attributes(void)
{
	return (struct roost_kv_attr){.batches = (unsigned)want.bench.depth,
				      .ops = (unsigned)want.bench.batch,
				      .timeout_ms = (int)(want.timeout / 1000000)};
}

static int do_move(const char *file, const char *partition, const char *to)
{
	struct roost_kv_attr attr = attributes();
	struct kv_move move = {
		.partition = partition, .lost = want.lost, .snapshot = want.snapshot};

	if (!kv_parse_node(to, (uint16_t)want.service, &move.to))
		return opt_usage(&cmd, "'%s' is no ADDRESS or ADDRESS:SERVICE", to);
	return kv_move(&cmd, file, &move, &attr);
}

/* Connects to the node at `host`; NULL: to the nodes of a table. Returns an exit status. */
static int reach(enum verb verb, const char *host)
{
	char why[400];
	struct roost_kv_attr attr = attributes();
	int rc;

	if (!host && of_nodes(verb))
		return kv_view_open(&cmd, &view, want.partitions, &attr);
	if (!host)
		return roost_kv_open_table(want.partitions, &attr, &kv, why, sizeof(why))
			       ? opt_failed(&cmd, "%s", why)
			       : CLI_OK;
	rc = roost_kv_open(host, (uint16_t)want.service, &attr, &kv);
	if (!rc && (of_nodes(verb) || verb == BENCH)) {
		view.kv[0] = kv;
		view.nodes = 1;
	}
	if (!rc)
		return CLI_OK;
	return opt_failed(
		&cmd, "%s, service %" PRIu64 ": %s", host, want.service,
		rc == -ECONNREFUSED   ? "no node listens there (roost node --kv)"
		: rc == -EHOSTUNREACH ? "the host is unknown or unreachable"
		: rc == -ENOMEM
			? "the node has no memory for another connection (roost node --limit)"
			: kv_error(rc));
}

/* Does what needs a connection. `where`: the address, or the file of a move. */
static int connected(enum verb verb, const char *where, char **args)
{
	int rc;

	if (verb == MOVE)
		return do_move(where, args[0], args[1]);
	if (reach(verb, where))
		return CLI_FAILED;
	rc = perform(verb, args);
	if (of_nodes(verb))
		kv_view_close(&view);
	else
		roost_kv_close(kv);
	return rc;
}

int cmd_kv(int argc, char **argv)
{
	static const unsigned char operands[][2] = {
		[GET] = {1, 1},	    [PUT] = {2, 2},    [DEL] = {1, 1},	  [INCR] = {1, 2},
		[UPDATE] = {3, 3},  [REDUCE] = {3, 3}, [FILTER] = {3, 3}, [SCAN] = {0, 0},
		[STAT] = {0, 0},    [BENCH] = {0, 0},  [TOP] = {0, 0},	  [SNAPSHOT] = {0, 0},
		[TABLE] = {0, 255}, [MOVE] = {2, 2},   [TUNE] = {0, 0}};
	int at = opt_parse(&cmd, argc, argv, false), verb, given, least, most, rc;
	const char *where;
	struct drive *drive;

	if (at < 0)
		return at == OPT_HELP ? CLI_OK : CLI_USAGE;
	if (at == argc)
		return opt_usage(&cmd,
				 "the action and the address are missing: roost kv get ADDR KEY");
	verb = opt_find(verbs, argv[at]);
	if (verb < 0)
		return opt_usage(
			&cmd,
			"'%s' is none of get, put, del, incr, update, reduce, filter, scan, stat, bench, top, snapshot, table, move and tune",
			argv[at]);
	if (want.snapshot && !want.lost)
		return opt_usage(&cmd, "--snapshot is for move --lost");
	if (want.lost && verb != MOVE)
		return opt_usage(&cmd, "--lost is for move");
	if (want.bench.workload >= 0 && verb != BENCH)
		return opt_usage(&cmd, "--workload is for bench");
	if (want.from && (verb != PUT || want.type >= 0))
		return opt_usage(&cmd, "--from is for put without --type");
	if (want.to && (verb != GET || want.type >= 0))
		return opt_usage(&cmd, "--to is for get without --type");
	if (want.partitions && verb >= SNAPSHOT)
		return opt_usage(&cmd, "%s has no --partitions", verbs[verb]);
	where = want.partitions ? NULL : argv[++at];
	at++;
	given = argc - at;				 /* -1: without `where` */
	least = operands[verb][0] - (want.from != NULL); /* without VALUE */
	most = operands[verb][1] - (want.from != NULL);
	if (given < least)
		return opt_usage(&cmd, "%s needs more arguments: see the forms", verbs[verb]);
	if (given > most)
		return opt_usage(&cmd, "unexpected argument '%s'", argv[argc - 1]);
	if (verb <= FILTER && !*argv[at])
		return opt_usage(&cmd, "the key is empty: keys have 1 to 255 bytes");
	if (verb == TUNE)
		return kv_tune_command(&cmd, where, want.sizes, want.utilization, want.bench.json);
	if (verb == SNAPSHOT)
		return kv_snapshot(&cmd, where);
	if (verb == TABLE && !given)
		return kv_show_table(&cmd, where);
	if (verb == TABLE && given == 1)
		return opt_usage(&cmd, "table needs more arguments: see the forms");
	if (verb == TABLE)
		return kv_create_table(&cmd, where, argv[at], argv + at + 1, given - 1,
				       (uint16_t)want.service);
	if (!local_port_fits(&cmd, want.port))
		return CLI_USAGE;
	opt_environment(want.port, 0);
	rc = local_port_open(&cmd, &drive);
	if (rc)
		return rc;
	rc = connected((enum verb)verb, where, argv + at);
	local_port_close(drive);
	return rc;
}
