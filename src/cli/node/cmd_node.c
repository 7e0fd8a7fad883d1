/* SPDX-License-Identifier: BSD-2-Clause */
/* `roost node`: a process that hosts a NIC and serves memory and kernels. */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/mem.h"
#include "cli/commands.h"
#include "cli/node/node.h"
#include "cli/node/control.h"
#include "cli/options.h"
#include "cli/term.h"
#include "memcached/server.h"
#include "roost/node.h"

#define DEFAULT_MEMORY (UINT64_C(64) << 20)
#define LEAST_LIMIT    (UINT64_C(64) << 20)
#define LEAVING_MS     100 /* time between checks for versions without calls */

static struct {
	const char *port, *kernels, *table, *memcached;
	uint64_t service, memory, fill, every;
	uint64_t kv_inline;
	bool json, has_fill, has_inline;
} want = {.kernels = "all", .service = ROOST_NODE_SERVICE, .memory = DEFAULT_MEMORY};

static struct node node;
static struct node_control control;
static struct mc_server *memcached;

static const struct opt opts[] = {
	OPT_VALUE("port", 'p', OPT_STRING, &want.port, "SPEC",
		  "host, udp or shm, address, options: udp:127.0.0.2\n(ROOST_PORT, else host)"),
	OPT_VALUE("service", 's', OPT_COUNT, &want.service, "N",
		  "the port of rdma_cm to listen at (4792); 0: a free one", .max = 65535),
	OPT_VALUE("memory", 'm', OPT_BYTES, &want.memory, "SIZE", "bytes of the region (64M)",
		  .min = 4096, .max = 0x1p40),
	OPT_VALUE(
		"limit", 'l', OPT_BYTES, &node.limit, "SIZE",
		"bytes that connections and kernels take at most (a quarter of\nthe memory there is)",
		.min = 1 << 20, .max = 0x1p50),
	OPT_VALUE("kernels", 'k', OPT_STRING, &want.kernels, "LIST",
		  "built-in kernels, separated by commas; all, or none (all)"),
	OPT_VALUE(
		"kv", 0, OPT_BYTES, &node.kv.config.size, "SIZE",
		"bytes of a key-value store (roost kv); without it there is none.\nPairs of at most 20 bytes are in the index, which grows with the\npairs, at 55% of its slots, to half of SIZE",
		.min = 1 << 20, .max = 0x1p50),
	OPT_VALUE("kv-index", 0, OPT_COUNT, &node.kv.config.buckets, "BUCKETS",
		  "buckets of the index, which then does not grow (roost kv tune)", .min = 1,
		  .max = 0x1p40),
	OPT_VALUE("kv-inline", 0, OPT_COUNT, &want.kv_inline, "BYTES",
		  "most bytes of a pair in the index, 0 to 44 (20; roost kv tune)",
		  .max = ROOST_KV_INLINE_MAX, .given = &want.has_inline),
	OPT_SWITCH("kv-evict", 0, &node.kv.config.evict,
		   "if the store is full, evict pairs that were not used lately"),
	OPT_VALUE(
		"kv-partitions", 0, OPT_STRING, &node.partitions.file, "FILE",
		"the table of partitions (roost kv table): the store has the keys\nthat it gives to this node"),
	OPT_VALUE(
		"kv-lease", 0, OPT_TIME, &node.partitions.lease_ns, "TIME",
		"with a table in etcd: after this time without etcd another node\nmay have the partitions, and before that they are not served (30s)",
		.min = KV_TABLE_LEASE_S_LEAST * 1e9, .max = KV_TABLE_LEASE_S_MOST * 1e9),
	OPT_VALUE("kv-far", 0, OPT_STRING, &node.kv.far.folder, "FOLDER",
		  "the store's memory is a file in this folder; only a part is in\nnear memory"),
	OPT_VALUE("kv-near", 0, OPT_BYTES, &node.kv.far.near, "SIZE",
		  "bytes of near memory (a sixteenth of the store)", .min = 1 << 20, .max = 0x1p50),
	OPT_VALUE(
		"snapshot", 0, OPT_STRING, &node.kv.snapshot, "FILE",
		"the store's snapshot: loaded at the start, written at the end, at\nSIGUSR1 and for roost kv snapshot"),
	OPT_VALUE("snapshot-every", 0, OPT_TIME, &want.every, "TIME",
		  "also write the snapshot at this interval", .min = 1e8, .max = 86400e9),
	OPT_VALUE(
		"function", 0, OPT_STRING, &node.kv.functions, "LIST",
		"files of functions for roost kv update, reduce and filter,\nseparated by commas"),
	OPT_VALUE(
		"memcached", 0, OPT_STRING, &want.memcached, "LIST",
		"serve the store to memcached's clients as well, at\nADDRESS:PORT or /UNIX/SOCKET, separated by commas"),
	OPT_VALUE("fill", 'f', OPT_COUNT, &want.fill, "N",
		  "fill the table with keys 1 to N, whose values are texts", .min = 1, .max = 1e9,
		  .given = &want.has_fill),
	OPT_VALUE("table", 't', OPT_STRING, &want.table, "FILE",
		  "fill the table from lines of a key, blanks and a value"),
	OPT_VALUE("name", 'n', OPT_STRING, &node.name, "NAME",
		  "name of the node, for `roost kernel`"),
	OPT_SWITCH("verbose", 'v', &node.verbose,
		   "print a line when a peer connects or disconnects"),
	OPT_SWITCH("json", 'j', &want.json,
		   "describe the node as one JSON object, when it is ready"),
	OPT_END};

static const struct opt_command cmd = {
	.name = "node",
	.synopsis = "[OPTIONS]",
	.about =
		"Hosts a NIC and serves memory and kernels to all peers that connect, until it is interrupted. It\n"
		"sleeps while there are no calls. A hash table for the kernel get can be filled at the start.\n"
		"`roost call` calls its kernels, `roost kernel` loads, replaces and unloads them.",
	.opts = opts,
	.examples = "  roost node --port udp:127.0.0.2 --fill 1000 -v\n"
		    "  roost node --memory 1G --kernels get,traversal --table /etc/services\n"
		    "  roost node --kv 1G --memcached 127.0.0.1:11211\n"
		    "  roost node --kv 1G --snapshot /var/tmp/store --snapshot-every 60s\n"
		    "  roost call 127.0.0.2 get 17\n"
		    "  roost kernel list\n",
};

static int fill(void)
{
	struct node_region *r = &node.region;
	int rc = 0;

	r->size = want.memory;
	r->mem = mem_alloc_pages(want.memory);
	if (!r->mem)
		return opt_failed(&cmd,
				  "no memory for a region of %" PRIu64
				  " bytes: take a smaller --memory",
				  want.memory);
	if (want.has_fill)
		rc = node_table_fill(r, want.fill);
	if (want.table)
		rc = node_table_read(r, want.table);
	return rc ? opt_failed(&cmd, "%s", r->err) : 0;
}

/* Prints the line for which scripts that start a node wait. */
static void announce(void)
{
	static const struct node_request stat = {.what = NODE_STAT};
	json_t *all = node_answer(&node, &stat), *kernel;
	char size[32], keys[40];
	size_t i;

	if (want.json) {
		json_dumpf(all, stdout, JSON_COMPACT);
	} else {
		printf("node %d at %s, service %u: %s of memory, %s keys; kernels:", (int)getpid(),
		       node.address, node.service, fmt_bytes(size, sizeof(size), node.region.size),
		       fmt_count(keys, sizeof(keys), node.region.keys));
		json_array_foreach(json_object_get(all, "kernels"), i, kernel)
			printf(" %s", json_string_value(json_object_get(kernel, "name")));
		if (!i)
			printf(" none");
	}
	putchar('\n');
	fflush(stdout);
	json_decref(all);
}

/* Returns whether the node continues: SIGUSR1 only asks for a snapshot. */
static bool on_signals(int signals)
{
	struct signalfd_siginfo info;

	while (read(signals, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
		if (info.ssi_signo != SIGUSR1)
			return false;
		node_store_snapshot(&node.kv); /* a snapshot in progress is enough */
	}
	return true;
}

static void on_timer(int timer)
{
	uint64_t times;

	if (read(timer, &times, sizeof(times)) == (ssize_t)sizeof(times))
		node_store_snapshot(&node.kv);
}

/*
 * Waits for connections, requests, the last calls of leaving versions, and the end. The service
 * thread of the NIC does the rest. `timer` may be -1.
 */
static int serve(int signals, int timer)
{
	struct pollfd p[4 + NODE_CONTROL_FDS];
	bool leaving = false;
	int rc = 0, wait;

	p[0] = (struct pollfd){.fd = signals, .events = POLLIN};
	p[1] = (struct pollfd){.fd = node.channel->fd, .events = POLLIN};
	p[2] = (struct pollfd){.fd = timer, .events = POLLIN};
	p[3] = (struct pollfd){.fd = node.partitions.watch, .events = POLLIN};
	while (rc == 0) {
		wait = node_control_fds(&control, p + 4);
		if (leaving && (wait < 0 || wait > LEAVING_MS))
			wait = LEAVING_MS;
		if (poll(p, sizeof(p) / sizeof(p[0]), wait) < 0)
			continue;
		if (p[0].revents && !on_signals(signals))
			return CLI_OK;
		if (p[1].revents)
			rc = node_on_event(&node);
		if (p[2].revents)
			on_timer(timer);
		if (p[3].revents)
			node_partitions_look(&node.partitions);
		if (node_control_serve(&control, p + 4) || leaving)
			leaving = node_reap(&node);
	}
	return opt_failed(&cmd, "%s", node.err);
}

/* Returns a timer for snapshots, or -1. */
static int start_timer(void)
{
	struct timespec every = {(time_t)(want.every / 1000000000),
				 (long)(want.every % 1000000000)};
	struct itimerspec spec = {every, every};
	int fd;

	if (!want.every)
		return -1;
	fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (fd >= 0)
		timerfd_settime(fd, 0, &spec, NULL);
	return fd;
}

/* The front end is a client of this node: it connects when its first request comes. */
static int start_memcached(char *err)
{
	const struct mc_config config = {.listen = want.memcached,
					 .host = node.address,
					 .service = node.service,
					 .version = ROOST_VERSION};

	return mc_server_start(&config, &memcached, err, NODE_ERR_LEN);
}

static int run(int signals)
{
	char err[NODE_ERR_LEN];
	int timer, rc;

	if (fill())
		return CLI_FAILED;
	/*
	 * A node that is started twice fails to listen, before it takes the key of the node that
	 * runs. Connections wait for serve().
	 */
	if (node_open(&node) || node_deploy(&node, want.kernels) || node_listen(&node) ||
	    node_partitions_open(&node.partitions, node.kv.store, node.address, node.service,
				 node.err, sizeof(node.err)))
		return opt_failed(&cmd, "%s", node.err);
	if (want.memcached && start_memcached(err))
		return opt_failed(&cmd, "%s", err);
	control.answer = node_answer;
	control.ctx = &node;
	/*
	 * The control socket may be impossible, because another user may own the name of the
	 * folder. The node serves calls nevertheless.
	 */
	if (node_control_open(&control, err, sizeof(err)))
		fprintf(stderr,
			"roost node: no control socket, so roost kernel does not reach this node: %s\n",
			err);
	announce();
	timer = start_timer();
	rc = serve(signals, timer);
	if (timer >= 0)
		close(timer);
	return rc;
}

/* The last snapshot has all acknowledged operations, so connections end before it. */
static int end(int rc)
{
	if (memcached)
		mc_server_stop(memcached);
	node_control_close(&control);
	node_close(&node);
	if (rc == CLI_OK && node_store_last_snapshot(&node.kv))
		rc = CLI_FAILED;
	node_partitions_close(&node.partitions);
	node_store_close(&node.kv);
	if (node.region.mem)
		mem_free_pages(node.region.mem, node.region.size);
	return rc;
}

/*
 * Blocks the signals that the node takes. Must be called before threads are created, since they
 * inherit the mask.
 */
static int take_signals(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGUSR1);
	sigprocmask(SIG_BLOCK, &set, NULL);
	/* The end of a reader of stdout or stderr must not end the node, which has a store. */
	signal(SIGPIPE, SIG_IGN);
	return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

static int check_store_options(void)
{
	if (node.kv.config.size)
		return want.every && !node.kv.snapshot
			       ? opt_usage(&cmd, "--snapshot-every needs --snapshot FILE")
		       : node.kv.far.near && !node.kv.far.folder
			       ? opt_usage(&cmd, "--kv-near needs --kv-far FOLDER")
		       : node.partitions.file && want.memcached
			       ? opt_usage(&cmd,
					   "--memcached serves all keys, --kv-partitions a part")
		       : node.partitions.file && !want.service
			       ? opt_usage(&cmd,
					   "--kv-partitions needs a --service, which the table has")
		       : node.partitions.lease_ns && !(node.partitions.file &&
						       kv_table_is_remote(node.partitions.file))
			       ? opt_usage(&cmd, "--kv-lease needs --kv-partitions etcd:...")
			       : 0;
	if (node.kv.config.evict)
		return opt_usage(&cmd, "--kv-evict needs --kv SIZE");
	if (node.kv.config.buckets || want.has_inline)
		return opt_usage(&cmd, "--kv-index and --kv-inline need --kv SIZE");
	if (node.kv.far.folder || node.kv.far.near)
		return opt_usage(&cmd, "--kv-far and --kv-near need --kv SIZE");
	if (node.partitions.file || node.partitions.lease_ns)
		return opt_usage(&cmd, "--kv-partitions needs --kv SIZE");
	if (want.memcached)
		return opt_usage(&cmd, "--memcached needs --kv SIZE");
	if (node.kv.snapshot || want.every)
		return opt_usage(&cmd, "--snapshot needs --kv SIZE");
	if (node.kv.functions)
		return opt_usage(&cmd, "--function needs --kv SIZE");
	return 0;
}

int cmd_node(int argc, char **argv)
{
	int at = opt_parse(&cmd, argc, argv, false), signals, rc;

	if (at < 0)
		return at == OPT_HELP ? CLI_OK : CLI_USAGE;
	if (at < argc)
		return opt_usage(&cmd,
				 "unexpected argument '%s'; an address goes with --port udp:ADDR",
				 argv[at]);
	rc = check_store_options();
	if (rc)
		return rc;
	if (want.has_inline)
		node.kv.config.inline_max =
			want.kv_inline ? (uint32_t)want.kv_inline : ROOST_KV_INLINE_NONE;
	if (want.has_fill && want.table)
		return opt_usage(&cmd, "--fill and --table: give only one of them");
	opt_environment(want.port, 0);
	if (!node.limit)
		node.limit = mem_allowed() / 4 > LEAST_LIMIT ? mem_allowed() / 4 : LEAST_LIMIT;
	node.service = (uint16_t)want.service;
	control.dirfd = -1;
	signals = take_signals();
	if (signals < 0)
		return opt_failed(&cmd, "can't wait for signals: %s", strerror(errno));
	rc = end(run(signals));
	close(signals);
	return rc;
}
