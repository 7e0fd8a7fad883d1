/* SPDX-License-Identifier: BSD-2-Clause */
/* `roost perf`: its options, and the processes in which the two sides run. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/machine.h"
#include "base/sys.h"
#include "cli/commands.h"
#include "cli/local.h"
#include "cli/options.h"
#include "cli/perf/perf.h"
#include "cli/perf/report.h"
#include "port/port.h"

#define SWEEP_FROM   64
#define SWEEP_TO     (UINT64_C(4) << 20)
#define DEFAULT_SIZE 65536
#define SMALL_SIZE   64
#define DEFAULT_NS   2000000000u
#define SWEEP_NS     500000000u
#define LAT_INLINE   220 /* the value of perftest's latency programs */
#define HOPS	     8
#define CONNECT_NS   UINT64_C(10000000000)

static struct perf_job job;
static struct {
	const char *port, *peer_port, *connect, *bind, *sizes;
	bool server, local, sweep, check, json, pin, has_size, has_lat, has_inline, has_seconds,
		has_kernel, has_hops;
	uint64_t tcp_port, timeout_scale;
	int lat, transport, kernel;
} want = {.pin = true, .tcp_port = OOB_TCP_PORT};

static const struct opt opts[] = {
	OPT_SWITCH("local", 0, &want.local,
		   "both sides on this machine, two processes (the default)"),
	OPT_SWITCH("server", 0, &want.server, "wait for one client, and serve its requests"),
	OPT_VALUE("connect", 0, OPT_STRING, &want.connect, "ADDR",
		  "measure against the server at ADDR[:PORT]"),
	OPT_VALUE("bind", 0, OPT_STRING, &want.bind, "ADDR", "server: listen on this address only"),
	OPT_VALUE("tcp-port", 0, OPT_COUNT, &want.tcp_port, "N",
		  "server: TCP port to listen on (4790)", .min = 1, .max = 65535),
	OPT_VALUE(
		"port", 'p', OPT_STRING, &want.port, "SPEC",
		"host, udp or shm, address, options:\nudp:127.0.0.2,loss=0.01 (ROOST_PORT, else host)"),
	OPT_VALUE("peer-port", 0, OPT_STRING, &want.peer_port, "SPEC",
		  "local: the target's port (the next address)"),
	OPT_VALUE("size", 's', OPT_BYTES, &job.size, "SIZE",
		  "bytes a message (64K; latency, datagrams, calls 64; atomic 8)",
		  .max = PERF_MAX_SIZE, .given = &want.has_size),
	OPT_SWITCH("sweep", 0, &want.sweep, "all sizes from 64 B to 4 MiB: rate, goodput, latency"),
	OPT_VALUE(
		"lat", 0, OPT_CHOICE, &want.lat, "KIND",
		"latency instead: pingpong, completion, firstbyte,\nexecute (between two QPs of one NIC)",
		.choices = perf_lat_names, .given = &want.has_lat),
	OPT_SWITCH("check", 0, &want.check, "no measurement: verify every byte, over many sizes"),
	OPT_VALUE("sizes", 0, OPT_STRING, &want.sizes, "LIST",
		  "check, sweep: these sizes, separated by commas"),
	OPT_VALUE("seed", 0, OPT_COUNT, &job.seed, "N", "check: seed of the patterns (1)",
		  .max = 0x1p31),
	OPT_VALUE("seconds", 't', OPT_TIME, &job.duration, "TIME",
		  "duration (2 s; each size of a sweep: 0.5 s)", .min = 1e6, .max = 86400e9,
		  .given = &want.has_seconds),
	OPT_VALUE("iters", 'n', OPT_COUNT, &job.iters, "N",
		  "number of messages instead; check: rounds (4)", .min = 1, .max = 1e15),
	OPT_VALUE("transport", 'c', OPT_CHOICE, &want.transport, "KIND",
		  "rc; ud: send datagrams, and count those that arrive",
		  .choices = perf_transport_names),
	OPT_VALUE(
		"kernel", 'k', OPT_CHOICE, &want.kernel, "NAME",
		"rpc: get, traversal (values of --size come back), echo\n(--size there and back), hll (takes a "
		"payload of --size)",
		.choices = perf_kernel_names, .given = &want.has_kernel),
	OPT_VALUE("hops", 0, OPT_COUNT, &job.hops, "N",
		  "rpc: elements that traversal walks along (8)", .min = 1, .max = PERF_MAX_HOPS,
		  .given = &want.has_hops),
	OPT_SWITCH("bidir", 'b', &job.bidir, "both sides post at once"),
	OPT_VALUE("qps", 'q', OPT_COUNT, &job.qps, "N", "queue pairs (1)", .min = 1,
		  .max = PERF_MAX_QPS),
	OPT_VALUE("post-list", 'l', OPT_COUNT, &job.post_list, "N",
		  "work requests handed over at a time (1)", .min = 1, .max = PERF_MAX_DEPTH),
	OPT_VALUE("depth", 0, OPT_COUNT, &job.depth, "N",
		  "the most work requests in flight (by size)", .min = 2, .max = PERF_MAX_DEPTH),
	OPT_VALUE("cq-mod", 0, OPT_COUNT, &job.cq_mod, "N",
		  "one completion for N messages (up to 64)", .min = 1, .max = PERF_MAX_DEPTH),
	OPT_VALUE("inline", 0, OPT_BYTES, &job.inline_max, "SIZE",
		  "send up to this many bytes inline (0; latency 220)", .max = 992,
		  .given = &want.has_inline),
	OPT_VALUE("mtu", 'm', OPT_COUNT, &job.mtu, "BYTES", "path MTU: 256 to 4096 (the ports')",
		  .min = 256, .max = 4096),
	OPT_SWITCH("passive", 0, &job.passive,
		   "the target never calls the library after registering"),
	OPT_SWITCH("events", 'e', &job.events, "sleep on completion events instead of polling"),
	OPT_VALUE("gap", 0, OPT_TIME, &job.gap, "TIME",
		  "latency: sleep for this time before each message", .max = 3600e9),
	OPT_VALUE(
		"memory", 0, OPT_BYTES, &job.memory, "SIZE",
		"read --lat completion: READ from random addresses of\nthis much memory (from one address)",
		.max = PERF_MAX_MEMORY),
	OPT_OFF("no-pin", &want.pin, "local: don't pin the sides to two cores"),
	OPT_VALUE("timeout-scale", 0, OPT_COUNT, &want.timeout_scale, "N",
		  "make all time-outs N times as long, for debuggers", .min = 1, .max = 1e6),
	OPT_SWITCH("json", 'j', &want.json, "one JSON object, last on stdout"),
	OPT_END};

static const struct opt_command cmd = {
	.name = "perf",
	.synopsis = "write|read|send|atomic|rpc [OPTIONS]\n"
		    "--server [--port SPEC]\n"
		    "write|read|send|atomic|rpc --connect ADDR [OPTIONS]",
	.about =
		"Measures bandwidth and message rate, or latency by one of four definitions, or checks\n"
		"every byte of all operations. Both sides on this machine, or a server and a client.\n"
		"An rpc is a call of a kernel, and is complete when its reply is there.\n"
		"\n"
		"  pingpong    half a round trip of two WRITEs (or SENDs), both sides polling\n"
		"  completion  from the post to the completion: the ACK, or the data, is back\n"
		"  firstbyte   from the post until the first byte is in the memory it goes to\n"
		"  execute     from the doorbell to the completion, between two QPs of one NIC",
	.opts = opts,
	.examples = "  roost perf write --local --port shm --size 64K --seconds 3\n"
		    "  roost perf read --lat completion --size 64 --passive\n"
		    "  roost perf write --sweep --post-list 16 --json\n"
		    "  roost perf send --transport ud --size 64 --post-list 16\n"
		    "  roost perf rpc --kernel get --size 64 --lat completion\n"
		    "  roost perf send --check --port udp,loss=0.01 --mtu 1024\n"
		    "  roost perf --server                    (and on the other machine:)\n"
		    "  roost perf write --connect 192.0.2.1 --qps 4 --bidir\n",
	.words = perf_op_names,
};

static const uint64_t check_sizes[] = {0, 1, 63, 64, 65, 4095, 4096, 4097, 65537, 1 << 20};

static int bad_sizes(const char *list)
{
	return opt_usage(
		&cmd, "--sizes takes up to %d sizes separated by commas, none above 2G, not '%s'",
		PERF_MAX_SIZES, list);
}

/* Returns the largest size of a sweep. An echo is one packet, at any usual path MTU. */
static uint64_t sweep_to(void)
{
	return job.op == PERF_RPC && want.kernel == PERF_ECHO ? 512 : SWEEP_TO;
}

static int read_sizes(void)
{
	const char *s = want.sizes;
	uint64_t v;

	if (want.has_size) {
		job.sizes[job.num_sizes++] = job.size;
		return 0;
	}
	if (!s && want.check) {
		memcpy(job.sizes, check_sizes, sizeof(check_sizes));
		job.num_sizes = sizeof(check_sizes) / sizeof(check_sizes[0]);
		return 0;
	}
	for (v = SWEEP_FROM; !s && v <= sweep_to(); v *= 2)
		job.sizes[job.num_sizes++] = v;
	while (s) {
		if (!opt_read_bytes(s, &v, &s) || v > PERF_MAX_SIZE ||
		    job.num_sizes == PERF_MAX_SIZES || (*s != '\0' && *s != ','))
			return bad_sizes(want.sizes);
		job.sizes[job.num_sizes++] = v;
		s = *s ? s + 1 : NULL;
	}
	return 0;
}

static int read_operation(int argc, char **argv, int at)
{
	if (argc - at != 1) {
		if (argc == at && want.server)
			return 0;
		return opt_usage(
			&cmd,
			argc == at ? "the operation is missing: write, read, send, atomic or rpc"
				   : "only one operation is possible: '%s' is one too many",
			argc == at ? "" : argv[at + 1]);
	}
	if (want.server)
		return opt_usage(&cmd, "the server does what its client asks for: leave '%s' out",
				 argv[at]);
	for (int i = 0; perf_op_names[i]; i++) {
		if (strcmp(argv[at], perf_op_names[i]) == 0) {
			job.op = (enum perf_op)i;
			return 0;
		}
	}
	return opt_usage(&cmd, "'%s' is none of write, read, send, atomic, rpc", argv[at]);
}

static uint64_t default_size(void)
{
	if (job.op == PERF_ATOMIC)
		return 8;
	if (job.mode == PERF_LATENCY || job.transport == PERF_UD ||
	    (job.op == PERF_RPC && job.kernel != PERF_HLL))
		return SMALL_SIZE;
	return DEFAULT_SIZE;
}

static void fill_defaults(void)
{
	job.mode = want.check ? PERF_CHECK : want.has_lat ? PERF_LATENCY : PERF_BANDWIDTH;
	job.lat = (enum perf_lat)want.lat;
	job.transport = (enum perf_transport)want.transport;
	job.kernel = (enum perf_kernel)want.kernel;
	if (job.op == PERF_RPC && job.kernel == PERF_TRAVERSAL && !want.has_hops)
		job.hops = HOPS;
	if (job.qps == 0)
		job.qps = 1;
	if (job.seed == 0)
		job.seed = 1;
	if (!want.has_size)
		job.size = default_size();
	if (job.mode == PERF_CHECK)
		job.size = 0;
	if (!want.has_seconds)
		job.duration = want.sweep ? SWEEP_NS : DEFAULT_NS;
	if (!want.has_inline)
		job.inline_max = job.mode == PERF_LATENCY ? LAT_INLINE
				 : job.mode == PERF_CHECK ? 64
							  : 0;
	/* A sweep sets the parameters for each size. */
	if (!want.sweep)
		perf_job_settle(&job);
	else if (job.post_list == 0)
		job.post_list = 1;
}

static int parse_command(int argc, char **argv)
{
	const char *misfit;
	int at = opt_parse(&cmd, argc, argv, false), rc;

	if (at < 0)
		return at;
	if (want.server + want.local + (want.connect != NULL) > 1)
		return opt_usage(&cmd, "one of --local, --server, --connect");
	rc = read_operation(argc, argv, at);
	if (rc != 0 || want.server)
		return rc;
	if (want.sweep + want.check + (want.has_lat && !want.sweep) > 1)
		return opt_usage(&cmd, "one of --sweep, --check, --lat");
	if (want.sweep && want.transport == PERF_UD)
		return opt_usage(&cmd,
				 "--transport ud is for one --size: its latency is not measured");
	if (want.sizes && !want.sweep && !want.check)
		return opt_usage(&cmd, "--sizes goes with --check or --sweep; one size is --size");
	if (want.sweep && (want.has_size || job.op == PERF_ATOMIC || job.bidir || job.qps > 1))
		return opt_usage(&cmd,
				 "--sweep is over sizes, of all but atomic, with one QP, one way");
	if ((want.sweep || want.check) && job.op != PERF_ATOMIC) {
		rc = read_sizes();
		if (rc != 0)
			return rc;
	}
	if (job.op != PERF_RPC && (want.has_kernel || want.has_hops))
		return opt_usage(&cmd, "--kernel and --hops go with rpc");
	if (want.connect && want.peer_port)
		return opt_usage(&cmd, "--peer-port goes with --local");
	fill_defaults();
	misfit = want.sweep ? NULL : perf_job_misfit(&job);
	return misfit ? opt_usage(&cmd, "%s", misfit) : 0;
}

/* ---- running ---- */

static uint64_t agreed_mtu;

static int run_one(struct perf_nic *nic, struct oob *oob, const struct perf_job *one,
		   struct perf_shared *shared, struct perf_result *r, const char *label, char *err)
{
	struct progress p;
	double total = one->mode == PERF_CHECK
			       ? (double)(one->iters ? one->iters : 4)
			       : (double)one->duration * 1.1e-9; /* includes the warm-up */
	int rc;

	if (one->iters && one->mode != PERF_CHECK)
		total = (double)one->iters;
	progress_start(&p, label, total);
	if (one->mode == PERF_LATENCY && one->lat == PERF_EXECUTE)
		rc = perf_execute(nic, one, r, &p, err);
	else
		rc = perf_initiate(nic, oob, one, shared, r, &p, err);
	progress_end(&p);
	if (rc == 0)
		agreed_mtu = r->mtu;
	return rc;
}

static int sweep_size(struct perf_nic *nic, struct oob *oob, struct perf_shared *shared, unsigned i,
		      json_t *rows, char *err)
{
	struct perf_result bw = {0}, lat = {0};
	struct perf_job one = job;
	char label[64], size[32];
	int rc;

	one.size = job.sizes[i];
	one.num_sizes = 0;
	one.mode = PERF_BANDWIDTH;
	perf_job_settle(&one);
	snprintf(label, sizeof(label), "%s %s (%u of %u)", perf_op_names[job.op],
		 fmt_bytes(size, sizeof(size), one.size), i + 1, job.num_sizes);
	rc = run_one(nic, oob, &one, shared, &bw, label, err);
	if (rc == 0) {
		one = job;
		one.size = job.sizes[i];
		one.num_sizes = 0;
		one.mode = PERF_LATENCY;
		one.depth = one.cq_mod = one.post_list = 0;
		if (!want.has_inline)
			one.inline_max = LAT_INLINE;
		if (!want.has_lat)
			one.lat = job.passive || job.op == PERF_READ || job.op == PERF_RPC ||
						  (job.events && job.op == PERF_WRITE)
					  ? PERF_COMPLETION
					  : PERF_PINGPONG;
		job.lat = one.lat;
		perf_job_settle(&one);
		rc = run_one(nic, oob, &one, shared, &lat, label, err);
	}
	if (rc == 0)
		json_array_append_new(rows, report_row(&one, &bw, &lat));
	perf_result_free(&bw);
	perf_result_free(&lat);
	return rc;
}

static int run_jobs(struct perf_nic *nic, struct oob *oob, struct perf_shared *shared, json_t *rows,
		    char *err)
{
	struct perf_result r = {0};
	int rc = 0;

	if (want.sweep) {
		for (unsigned i = 0; i < job.num_sizes && rc == 0; i++)
			rc = sweep_size(nic, oob, shared, i, rows, err);
		return rc;
	}
	rc = run_one(nic, oob, &job, shared, &r, perf_op_names[job.op], err);
	if (rc == 0)
		json_array_append_new(rows, report_row(&job, job.mode == PERF_LATENCY ? NULL : &r,
						       job.mode == PERF_LATENCY ? &r : NULL));
	perf_result_free(&r);
	return rc;
}

static json_t *machine; /* description taken before this process was pinned */

/* Runs the initiator in this process. */
static int initiate(struct oob *oob, struct perf_shared *shared, const char *kind)
{
	struct perf_nic nic;
	char err[PERF_ERR_LEN] = "";
	json_t *rows = json_array();
	int rc = perf_nic_open(&nic);

	if (rc < 0)
		snprintf(err, sizeof(err), "%s", nic.err);
	if (rc == 0)
		rc = run_jobs(&nic, oob, shared, rows, err);
	if (rc == 0 && oob)
		perf_finish(oob);
	job.mtu = agreed_mtu;
	perf_nic_close(&nic);
	if (rc < 0) {
		json_decref(rows);
		return opt_failed(&cmd, "%s", err);
	}
	if (want.json) {
		report_json(&job, kind, rows, want.sweep, machine);
	} else {
		report_text(&job, kind, rows, want.sweep);
		json_decref(rows);
	}
	return CLI_OK;
}

/* Runs the target. Its errors go to the initiator, which prints them. */
static int local_target(struct local *lo, void *shared)
{
	char err[PERF_ERR_LEN];
	struct perf_nic nic;
	int rc = perf_nic_open(&nic);

	if (rc < 0)
		oob_send_error(&lo->oob, nic.err);
	else
		rc = perf_target(&nic, &lo->oob, shared, err);
	perf_nic_close(&nic);
	return rc < 0 ? CLI_FAILED : CLI_OK;
}

static int run_local(void)
{
	struct perf_shared *shared;
	struct local lo;
	char err[256];
	int rc, theirs;

	if (!local_plan(&lo, want.port, want.peer_port, want.pin, err, sizeof(err)))
		return opt_usage(&cmd, "%s", err);
	if (job.mode == PERF_LATENCY && job.lat == PERF_EXECUTE) {
		opt_environment(lo.port, 0);
		return initiate(NULL, NULL, lo.kind);
	}
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	if (shared == MAP_FAILED)
		return opt_failed(&cmd, "no memory");
	rc = local_start(&lo, local_target, shared);
	if (rc < 0)
		return opt_failed(&cmd, "can't start a second process: %s", strerror(-rc));
	rc = initiate(&lo.oob, shared, lo.kind);
	oob_close(&lo.oob);
	theirs = local_wait(&lo);
	if (theirs > 128)
		return opt_failed(&cmd, "the target was killed by signal %d (%s)", theirs - 128,
				  strsignal(theirs - 128));
	return rc != CLI_OK ? rc : theirs;
}

static void environment_kind(char *kind, size_t n)
{
	const char *spec = sys_env("ROOST_PORT");

	local_kind(spec && *spec ? spec : PORT_DEFAULT_SPEC, kind, n);
}

static int run_client(void)
{
	char err[PERF_ERR_LEN], kind[16];
	struct oob oob;
	int fd, rc;

	fd = oob_connect(want.connect, CONNECT_NS * oob_timeout_scale(), err, sizeof(err));
	if (fd < 0)
		return opt_failed(&cmd, "%s", err);
	oob_init(&oob, fd);
	environment_kind(kind, sizeof(kind));
	rc = initiate(&oob, NULL, kind);
	oob_close(&oob);
	return rc;
}

static void print_listening(void *arg)
{
	fprintf(stderr, "roost perf: waiting for a client on TCP port %u\n",
		(unsigned)want.tcp_port);
}

/*
 * Opens the NIC before it waits for a client, so that the server reports a problem with the port at
 * once.
 */
static int run_server(void)
{
	char err[PERF_ERR_LEN];
	struct perf_nic nic;
	struct oob oob;
	int fd, rc = perf_nic_open(&nic);

	if (rc < 0) {
		opt_failed(&cmd, "%s", nic.err);
		goto close_nic;
	}
	rc = fd = oob_accept(want.bind, (unsigned)want.tcp_port, print_listening, NULL, err,
			     sizeof(err));
	if (rc >= 0) {
		oob_init(&oob, fd);
		rc = perf_target(&nic, &oob, NULL, err);
		oob_close(&oob);
	}
	if (rc < 0)
		opt_failed(&cmd, "%s", err);
close_nic:
	perf_nic_close(&nic);
	return rc < 0 ? CLI_FAILED : CLI_OK;
}

int cmd_perf(int argc, char **argv)
{
	int rc = parse_command(argc, argv);

	if (rc == OPT_HELP)
		return CLI_OK;
	if (rc != 0)
		return CLI_USAGE;
	opt_environment(NULL, want.timeout_scale);
	if (want.json)
		machine = machine_describe();
	if (!want.server && !want.connect)
		return run_local();
	opt_environment(want.port, 0);
	return want.server ? run_server() : run_client();
}
