/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * `roost demo`: sends a file by RDMA WRITE from this process into a file that another process has
 * mapped, and reads it back by RDMA READ into a third file. Then it compares all three files.
 *
 *	this process		     the other process
 *	  sent      == WRITE ==>	received
 *	  returned  <== READ ===	received
 *
 * No code of the other process touches the data.
 *
 * Then it looks up keys in a hash table of the other process (demo/get.c, demo/offload.c).
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <xxhash.h>

#include "base/machine.h"
#include "base/mem.h"
#include "base/sys.h"
#include "cli/commands.h"
#include "cli/demo/get.h"
#include "cli/demo/report.h"
#include "cli/local.h"
#include "cli/options.h"
#include "cli/pattern.h"
#include "cli/perf/perf.h"
#include "roost/verbs.h"

#define CHUNK	     (UINT64_C(1) << 20)
#define DEPTH	     16
#define STUCK_NS     UINT64_C(60000000000)
#define ANSWER_NS    UINT64_C(60000000000)
#define DEFAULT_SIZE (UINT64_C(64) << 20)
#define MAX_SIZE     (UINT64_C(64) << 30)

static struct {
	const char *port, *file, *keep;
	uint64_t size, seed, timeout_scale;
	bool has_size, json, pin;
	int fd[DEMO_FILES];
	struct local lo;
	char address[64], peer_address[64];
	json_t *machine; /* description taken before this process was pinned */
} demo = {.size = DEFAULT_SIZE, .seed = 1, .pin = true, .fd = {-1, -1, -1}};

static const struct opt opts[] = {
	OPT_VALUE(
		"port", 'p', OPT_STRING, &demo.port, "SPEC",
		"host, udp or shm, address, options: udp,loss=0.01\n(ROOST_PORT, else host on loopback)"),
	OPT_VALUE("file", 'f', OPT_STRING, &demo.file, "FILE", "send this file (else one is made)"),
	OPT_VALUE("size", 's', OPT_BYTES, &demo.size, "SIZE",
		  "bytes of the file that is made (64M)", .min = 1, .max = 0x1p36,
		  .given = &demo.has_size),
	OPT_VALUE("seed", 0, OPT_COUNT, &demo.seed, "N", "seed of the contents of the file (1)",
		  .max = 0x1p53),
	OPT_VALUE("keep", 'k', OPT_STRING, &demo.keep, "DIR", "leave the files in this folder"),
	OPT_OFF("no-pin", &demo.pin, "don't pin the two processes to two cores"),
	OPT_VALUE("timeout-scale", 0, OPT_COUNT, &demo.timeout_scale, "N",
		  "make all time-outs N times as long, for debuggers", .min = 1, .max = 1e6),
	OPT_SWITCH("json", 'j', &demo.json, "one JSON object, last on stdout"),
	OPT_END};

static const struct opt_command cmd = {
	.name = "demo",
	.synopsis = "[OPTIONS]",
	.about =
		"Moves a file of 64 MiB by RDMA WRITE into the memory of another process, reads it back by\n"
		"RDMA READ, and compares: hashes, and byte by byte. Then looks up keys in a hash table of that\n"
		"process, by READs, by the kernel get and by a chain of work requests, and counts round trips.\n"
		"Over shared memory, or UDP on loopback. The exit status is 0 only if all three copies are\n"
		"equal, and all values right.",
	.opts = opts,
	.examples = "  roost demo\n"
		    "  roost demo --port udp,loss=0.01\n"
		    "  roost demo --port shm --size 1G\n"
		    "  roost demo --file /etc/services --json\n",
};

/* ---- files ---- */

/*
 * Creates an unlinked file in TMPDIR or /tmp, so that no file remains after any kind of exit. A
 * container may have no writable folder; the file is then a memory file. Returns -1 with errno set;
 * `path` is the name that was tried.
 */
static int make_unnamed(char *path, size_t n)
{
	const char *tmp = sys_env("TMPDIR");
	bool chosen = tmp && *tmp;
	int fd;

	snprintf(path, n, "%s/roost-demo-XXXXXX", chosen ? tmp : "/tmp");
	fd = mkostemp(path, O_CLOEXEC);
	if (fd >= 0) {
		unlink(path);
	} else if (!chosen && (errno == EROFS || errno == EACCES || errno == ENOENT)) {
		snprintf(path, n, "memory");
		fd = memfd_create("roost-demo", MFD_CLOEXEC);
	}
	return fd;
}

/* Creates a file to write: in the folder of --keep, or a file without a name. */
static int make_file(unsigned which)
{
	char path[512];
	int fd, rc;

	if (demo.keep) {
		snprintf(path, sizeof(path), "%s/%s", demo.keep, demo_file_names[which]);
		fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	} else {
		fd = make_unnamed(path, sizeof(path));
	}
	if (fd < 0)
		return opt_failed(
			&cmd,
			"can't make a file in %s: %s; give another folder with TMPDIR (see roost doctor)",
			path, strerror(errno));
	demo.fd[which] = fd;
	/*
	 * Reserves the space: a page that is missing at its first access causes a signal (SIGBUS)
	 * instead of an error.
	 */
	rc = posix_fallocate(fd, 0, (off_t)demo.size);
	if (rc != 0)
		return opt_failed(
			&cmd,
			"no space for %" PRIu64
			" MiB at %s: %s; three such files are made: take a smaller --size, or another place with --keep or TMPDIR",
			(demo.size >> 20) + 1, path, strerror(rc));
	return 0;
}

static uint8_t *map_file(unsigned which, bool writable)
{
	void *p = mmap(NULL, demo.size, PROT_READ | (writable ? PROT_WRITE : 0),
		       MAP_SHARED | MAP_POPULATE, demo.fd[which], 0);

	if (p == MAP_FAILED)
		return NULL;
	/*
	 * The first write to a page of a shared mapping causes a fault. The faults occur here,
	 * before the measurement.
	 */
	for (uint64_t at = 0; writable && at < demo.size; at += mem_page_size())
		((volatile uint8_t *)p)[at] = 0;
	return p;
}

static int open_source(void)
{
	struct stat st;
	uint8_t *p;

	if (!demo.file) {
		if (make_file(DEMO_SENT) != 0)
			return CLI_FAILED;
		p = map_file(DEMO_SENT, true);
		if (!p)
			return opt_failed(&cmd, "can't map the file: %s", strerror(errno));
		pattern_fill(p, demo.size, pattern_mix(demo.seed), 0);
		munmap(p, demo.size);
		return 0;
	}
	demo.fd[DEMO_SENT] = open(demo.file, O_RDONLY | O_CLOEXEC);
	if (demo.fd[DEMO_SENT] < 0 || fstat(demo.fd[DEMO_SENT], &st) < 0)
		return opt_failed(&cmd, "can't read %s: %s", demo.file, strerror(errno));
	if (!S_ISREG(st.st_mode) || st.st_size == 0 || (uint64_t)st.st_size > MAX_SIZE)
		return opt_failed(&cmd, "%s is not a file of 1 byte to 64 GiB", demo.file);
	demo.size = (uint64_t)st.st_size;
	return 0;
}

static void hash_of(const uint8_t *p, char text[DEMO_HASH_LEN])
{
	XXH128_hash_t h = XXH3_128bits(p, demo.size);

	snprintf(text, DEMO_HASH_LEN, "%016" PRIx64 "%016" PRIx64, h.high64, h.low64);
}

/* ---- both sides ---- */

struct side {
	struct perf_nic nic;
	struct perf_link link;
	struct ibv_mr *mr[DEMO_FILES];
	uint8_t *map[DEMO_FILES];
	struct demo_table table; /* of the other process */
	struct nic_counters before;
	char err[PERF_ERR_LEN];
};

static int side_fail(struct side *s, int rc, const char *why)
{
	snprintf(s->err, sizeof(s->err), "%s", why);
	return rc;
}

static int side_file(struct side *s, unsigned which, int access)
{
	char why[128];

	s->map[which] = map_file(which, which != DEMO_SENT);
	if (s->map[which])
		s->mr[which] = ibv_reg_mr(s->nic.pd, s->map[which], demo.size, access);
	if (s->mr[which])
		return 0;
	snprintf(why, sizeof(why), "can't map and register the file: %s", strerror(errno));
	return side_fail(s, -ENOMEM, why);
}

static int side_open(struct side *s, struct oob *oob)
{
	static const struct perf_job job = {
		.op = PERF_WRITE, .qps = 1, .depth = DEPTH, .post_list = 1, .cq_mod = 1};
	int rc;

	memset(s, 0, sizeof(*s));
	rc = perf_nic_open(&s->nic);
	if (rc < 0)
		return side_fail(s, rc, s->nic.err);
	rc = perf_link_create(&s->link, &s->nic, &job, oob);
	if (rc < 0)
		return side_fail(s, rc, s->link.err);
	rc = roost_qp_enable_rpc(s->link.qps[0].qp);
	return rc ? side_fail(s, -rc, strerror(rc)) : 0;
}

static void side_close(struct side *s)
{
	perf_link_destroy(&s->link);
	demo_table_free(&s->table);
	for (unsigned i = 0; i < DEMO_FILES; i++) {
		if (s->mr[i])
			ibv_dereg_mr(s->mr[i]);
		if (s->map[i])
			munmap(s->map[i], demo.size);
	}
	perf_nic_close(&s->nic);
}

static int side_connect(struct side *s, const json_t *peer)
{
	int rc = peer ? perf_link_connect(&s->link, s->link.oob, peer)
		      : side_fail(s, -EPROTO, s->link.oob->err);

	if (rc < 0 && peer)
		side_fail(s, rc, s->link.err);
	perf_nic_counters(&s->nic, &s->before);
	return rc;
}

/* ---- the other process ---- */

static int answer_steps(struct side *s, struct oob *oob)
{
	char hash[DEMO_HASH_LEN];
	json_t *msg;
	int rc;

	for (;;) {
		rc = perf_serve(&s->link);
		if (rc < 0)
			return side_fail(s, rc, s->link.err);
		msg = oob_recv(oob, "step", UINT64_MAX);
		if (!msg)
			return side_fail(s, -EPROTO, oob->err);
		rc = json_is_true(json_object_get(msg, "end"));
		json_decref(msg);
		if (rc)
			return 0;
		hash_of(s->map[DEMO_RECEIVED], hash);
		if (oob_send(oob, json_pack("{s:s,s:s,s:o}", "type", "step", "hash", hash,
					    "counters", perf_counters_since(&s->nic, &s->before))) <
		    0)
			return side_fail(s, -EPROTO, oob->err);
		perf_nic_counters(&s->nic, &s->before);
	}
}

static int other_side(struct local *lo, void *arg)
{
	struct oob *oob = &lo->oob;
	json_t *link, *peer;
	struct side s;
	int rc;

	rc = side_open(&s, oob);
	if (rc == 0)
		rc = side_file(&s, DEMO_RECEIVED,
			       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
				       IBV_ACCESS_REMOTE_READ);
	if (rc == 0) {
		link = perf_link_describe(&s.link);
		json_object_set_new(link, "file",
				    json_integer((json_int_t)(uintptr_t)s.map[DEMO_RECEIVED]));
		json_object_set_new(link, "file_rkey", json_integer(s.mr[DEMO_RECEIVED]->rkey));
		rc = demo_table_make(&s.table, &s.nic, link, s.err);
		if (rc == 0)
			oob_send(oob, link);
		else
			json_decref(link);
	}
	if (rc == 0) {
		peer = oob_recv(oob, "link", ANSWER_NS * oob_timeout_scale());
		rc = side_connect(&s, peer);
		json_decref(peer);
	}
	if (rc == 0)
		rc = oob_send(oob, json_pack("{s:s}", "type", "go"));
	if (rc == 0)
		rc = answer_steps(&s, oob);
	if (rc < 0)
		oob_send_error(oob, s.err);
	side_close(&s);
	return rc < 0 ? CLI_FAILED : CLI_OK;
}

/* ---- this process ---- */

struct remote {
	uint64_t addr, rkey;
	struct demo_lookups lookups;
};

static int exchange_links(struct side *s, struct oob *oob, struct remote *r)
{
	json_t *peer = oob_recv(oob, "link", ANSWER_NS * oob_timeout_scale()), *go = NULL;
	int rc = side_connect(s, peer);

	if (rc == 0 && (!oob_get_u64(oob, peer, "file", INT64_MAX, &r->addr) ||
			!oob_get_u64(oob, peer, "file_rkey", UINT32_MAX, &r->rkey) ||
			!demo_lookups_set_peer(&r->lookups, oob, peer)))
		rc = side_fail(s, -EPROTO, oob->err);
	if (rc == 0) {
		snprintf(demo.address, sizeof(demo.address), "%s", s->nic.address);
		snprintf(demo.peer_address, sizeof(demo.peer_address), "%s",
			 json_string_value(json_object_get(peer, "gid")));
	}
	json_decref(peer);
	if (rc < 0)
		return rc;
	if (oob_send(oob, perf_link_describe(&s->link)) == 0)
		go = oob_recv(oob, "go", ANSWER_NS * oob_timeout_scale());
	json_decref(go);
	return go ? 0 : side_fail(s, -EPROTO, oob->err);
}

static int post_chunk(struct side *s, enum ibv_wr_opcode op, unsigned which, const struct remote *r,
		      uint64_t at)
{
	uint64_t len = demo.size - at < CHUNK ? demo.size - at : CHUNK;
	struct ibv_sge sge = {(uintptr_t)(s->map[which] + at), (uint32_t)len, s->mr[which]->lkey};
	struct ibv_send_wr wr = {.sg_list = &sge,
				 .num_sge = 1,
				 .opcode = op,
				 .send_flags = IBV_SEND_SIGNALED},
			   *bad;
	int rc;

	wr.wr.rdma.remote_addr = r->addr + at;
	wr.wr.rdma.rkey = (uint32_t)r->rkey;
	rc = ibv_post_send(s->link.qps[0].qp, &wr, &bad);
	if (rc != 0)
		return side_fail(s, -EIO, strerror(rc < 0 ? errno : rc));
	s->link.qps[0].posted++;
	return 0;
}

/* Transfers the whole file, in pieces of 1 MiB, with several in progress. */
static int move(struct side *s, enum ibv_wr_opcode op, unsigned which, const struct remote *r,
		struct demo_step *step)
{
	uint64_t start = clock_ns(), chunks = (demo.size + CHUNK - 1) / CHUNK, next = 0,
		 moved = start, idle = 0;
	struct perf_qp *q = &s->link.qps[0];
	struct progress p;
	int rc = 0;

	q->posted = q->completed = 0;
	progress_start(&p, step->what, (double)chunks);
	while (rc == 0 && q->completed < chunks) {
		while (rc == 0 && next < chunks && q->posted - q->completed < DEPTH)
			rc = post_chunk(s, op, which, r, next++ * CHUNK);
		if (rc < 0)
			break;
		rc = perf_reap(&s->link);
		if (rc < 0) {
			side_fail(s, rc, s->link.err);
		} else if (rc > 0) {
			moved = clock_ns();
			progress_at(&p, (double)q->completed, NULL);
			rc = 0;
		} else if (++idle % 4096 == 0 &&
			   clock_ns() - moved > STUCK_NS * oob_timeout_scale()) {
			rc = side_fail(s, -ETIMEDOUT, "the transfer makes no progress");
		}
	}
	step->seconds = (double)(clock_ns() - start) / 1e9;
	progress_end(&p);
	return rc;
}

/* Requests the hash and counters of the other side, and adds up the counters of the step. */
static int collect_counters(struct side *s, struct oob *oob, struct demo_step *step, char *hash)
{
	json_t *mine, *msg = NULL, *theirs;
	const char *text;

	if (oob_send(oob, json_pack("{s:s}", "type", "step")) == 0)
		msg = oob_recv(oob, "step", ANSWER_NS * oob_timeout_scale());
	if (!msg)
		return side_fail(s, -EPROTO, oob->err);
	mine = perf_counters_since(&s->nic, &s->before);
	perf_nic_counters(&s->nic, &s->before);
	theirs = json_object_get(msg, "counters");
	step->packets = perf_counter(mine, "sent_pkts") + perf_counter(theirs, "sent_pkts");
	step->again = perf_counter(mine, "retransmitted_pkts") +
		      perf_counter(mine, "tail_loss_probe") +
		      perf_counter(theirs, "retransmitted_pkts") +
		      perf_counter(theirs, "tail_loss_probe");
	text = json_string_value(json_object_get(msg, "hash"));
	snprintf(hash, DEMO_HASH_LEN, "%s", text ? text : "");
	json_decref(mine);
	json_decref(msg);
	return 0;
}

static int move_both(struct side *s, struct oob *oob, struct demo_report *report)
{
	struct demo_step *step = report->step;
	char *received = report->hash[DEMO_RECEIVED];
	struct remote r = {0};
	int rc;

	rc = side_open(s, oob);
	if (rc == 0)
		rc = side_file(s, DEMO_SENT, 0);
	if (rc == 0)
		rc = side_file(s, DEMO_RETURNED, IBV_ACCESS_LOCAL_WRITE);
	if (rc == 0)
		rc = exchange_links(s, oob, &r);
	if (rc == 0)
		rc = move(s, IBV_WR_RDMA_WRITE, DEMO_SENT, &r, &step[0]);
	if (rc == 0)
		rc = collect_counters(s, oob, &step[0], received);
	if (rc == 0)
		rc = move(s, IBV_WR_RDMA_READ, DEMO_RETURNED, &r, &step[1]);
	if (rc == 0)
		rc = collect_counters(s, oob, &step[1], received);
	if (rc == 0)
		rc = demo_lookups_run(&r.lookups, &s->link, s->err);
	report->lookups = r.lookups;
	if (rc == 0)
		oob_send(oob, json_pack("{s:s,s:b}", "type", "step", "end", 1));
	return rc;
}

/*
 * Compares the hashes, and the bytes of all three files, and prints the report. `received` is the
 * file that the mapping of the other process wrote.
 */
static int compare(struct side *s, struct demo_report *r)
{
	uint8_t *received = mmap(NULL, demo.size, PROT_READ, MAP_SHARED, demo.fd[DEMO_RECEIVED], 0);
	char(*hash)[DEMO_HASH_LEN] = r->hash;

	if (received == MAP_FAILED)
		return opt_failed(&cmd, "can't map the received file: %s", strerror(errno));
	hash_of(s->map[DEMO_SENT], hash[DEMO_SENT]);
	hash_of(s->map[DEMO_RETURNED], hash[DEMO_RETURNED]);
	r->equal = memcmp(s->map[DEMO_SENT], received, demo.size) == 0 &&
		   memcmp(s->map[DEMO_SENT], s->map[DEMO_RETURNED], demo.size) == 0 &&
		   strcmp(hash[DEMO_SENT], hash[DEMO_RECEIVED]) == 0 &&
		   strcmp(hash[DEMO_SENT], hash[DEMO_RETURNED]) == 0;
	munmap(received, demo.size);
	if (demo.json)
		demo_print_json(r);
	else
		demo_print_text(r);
	return r->equal ? CLI_OK : opt_failed(&cmd, "THE COPIES DIFFER");
}

static int run(void)
{
	struct demo_report report = {
		.step = {{.name = "write", .what = "RDMA WRITE sent -> received"},
			 {.name = "read", .what = "RDMA READ received -> returned"}},
		.address = demo.address,
		.peer_address = demo.peer_address,
		.keep = demo.keep,
		.size = demo.size,
		.machine = demo.machine,
	};
	struct side s;
	int rc, theirs;

	rc = local_start(&demo.lo, other_side, NULL);
	if (rc < 0)
		return opt_failed(&cmd, "can't start a second process: %s", strerror(-rc));
	report.port = demo.lo.kind;
	rc = move_both(&s, &demo.lo.oob, &report);
	rc = rc < 0 ? opt_failed(&cmd, "%s", s.err) : compare(&s, &report);
	oob_close(&demo.lo.oob);
	side_close(&s);
	theirs = local_wait(&demo.lo);
	if (theirs > 128)
		return opt_failed(&cmd, "the other process was killed by signal %d (%s)",
				  theirs - 128, strsignal(theirs - 128));
	return rc != CLI_OK ? rc : theirs;
}

int cmd_demo(int argc, char **argv)
{
	char err[256];
	int at = opt_parse(&cmd, argc, argv, false), rc;

	if (at < 0)
		return at == OPT_HELP ? CLI_OK : CLI_USAGE;
	if (at < argc)
		return opt_usage(&cmd, "unexpected argument '%s'; a file is sent with --file",
				 argv[at]);
	if (demo.file && demo.has_size)
		return opt_usage(&cmd, "--file has its own size: omit --size");
	if (!local_plan(&demo.lo, demo.port, NULL, demo.pin, err, sizeof(err)))
		return opt_usage(&cmd, "%s", err);
	opt_environment(NULL, demo.timeout_scale);
	if (demo.json)
		demo.machine = machine_describe();
	rc = open_source();
	if (rc == 0)
		rc = make_file(DEMO_RECEIVED);
	if (rc == 0)
		rc = make_file(DEMO_RETURNED);
	return rc != 0 ? rc : run();
}
