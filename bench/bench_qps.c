/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Measures the cost of a queue pair, idle and busy, with 1 to 10,000 QPs: two NICs in one thread,
 * connected by a port that passes pointers. The QPs take turns. Each posts one or sixteen WRITEs of
 * 64 bytes and waits for them, so the load is the same for each number of QPs. With many QPs, a QP
 * is out of the caches at its turn. Prints JSON: nanoseconds of CPU per message (both sides, with
 * the acknowledgement and the completion), the rate relative to 16 QPs, and the memory of a QP: its
 * part in the core, and the growth of the process (with queues of 16 WQEs).
 *
 * The limit for many QPs: a message touches LINES cache lines that are out of the caches. If each
 * costs as much as a random read of 64 bytes in as much memory, where the reads do not depend on
 * each other, and none overlaps with the work, the rate is ns_of_16 / (ns_of_16 + LINES *
 * random_read_ns) of that of 16 QPs. A higher rate comes from prefetches that overlap with work.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/arena.h"
#include "wire.h"

#define MAX_QPS	    10000
#define DEPTH	    16
#define OUTSTANDING 1024 /* over all QPs */
#define CQ_DEPTH    2048
#define PER_TURN    64
#define FEW	    16 /* number of QPs for the comparison */

/*
 * Cache lines per message that a cache of 1 MiB misses with 10,000 QPs, both sides, the program and
 * the timers included: cachegrind --LL=1048576,16,64, the difference of 80,000 and 40,000 messages.
 */
#define LINES	   26
#define READ_BYTES (16u << 20) /* about LINES * 64 * MAX_QPS */

struct pair {
	struct nic_qp *qp[2];
	struct roost_queue_index *index; /* of the sender's queue */
	struct roost_wqe *sq;
	uint64_t *wr;
	uint32_t posted, done;
};

static struct wire wire[2];
static struct nic *nic[2];
static struct nic_cq *cq[2];
static struct roost_cqe *cqe[2];
static struct roost_cq_index ci[2];
static uint32_t cons, pd[2], key[2];
static uint8_t *mem[2];
static struct arena rings[2]; /* as in src/verbs */
static struct pair pairs[MAX_QPS];
static unsigned num_pairs;

static void on_cq(void *host, void *ctx)
{
}

/* Errors show in completions. */
static void on_qp(void *host, enum nic_event ev, void *ctx)
{
}

static const struct nic_host_ops host_ops = {
	.cq_event = on_cq, .qp_event = on_qp, .cq_error = on_cq};

static void must(bool ok)
{
	if (!ok) {
		fprintf(stderr, "bench_qps: out of memory, or of something else\n");
		exit(1);
	}
}

static void open_nic(int s)
{
	struct nic_config cfg = {.pus = 1, .ports = 1, .seed = {7}, .ops = &host_ops};
	struct nic_mr_attr mr = {.len = MAX_QPS * 64, .access = 15};
	struct nic_cq_attr a = {.depth = CQ_DEPTH};

	arena_init(&rings[s]);
	wire_init(&wire[s], &wire[!s], s ? "10.0.0.2" : "10.0.0.1");
	cfg.port[0][0] = &wire[s].base;
	must(nic_create(&cfg, &nic[s]) == 0 && nic_pd_alloc(nic[s], &pd[s]) == 0);
	mem[s] = mem_alloc_pages(mr.len);
	cqe[s] = mem_alloc_pages(CQ_DEPTH * sizeof(struct roost_cqe));
	must(mem[s] && cqe[s]);
	memset(mem[s], 1, mr.len);
	mr.pd = pd[s];
	mr.addr = mem[s];
	mr.iova = (uintptr_t)mem[s];
	a.ring = cqe[s];
	a.index = &ci[s];
	must(nic_mr_register(nic[s], &mr, &key[s]) == 0 && nic_cq_create(nic[s], &a, &cq[s]) == 0);
}

static void make_qp(struct pair *p, int s)
{
	struct nic_qp_init init = {
		.type = NIC_QPT_RC, .pd = pd[s], .send_cq = cq[s], .recv_cq = cq[s]};
	struct {
		struct roost_queue_index index;
		uint8_t sq[DEPTH * 64];
		uint64_t wr[DEPTH];
	} *q = arena_alloc(&rings[s], sizeof(*q));

	must(q);
	memset(q, 0, sizeof(*q));
	init.sq = (struct nic_queue_attr){q->sq, q->wr, &q->index, DEPTH, 6};
	must(nic_qp_create(nic[s], &init, &p->qp[s]) == 0);
	if (s == 0) {
		p->index = &q->index;
		p->sq = (struct roost_wqe *)q->sq;
		p->wr = q->wr;
	}
}

static void connect_side(struct pair *p, int s)
{
	struct nic_qp_attr a = {.state = NIC_QPS_INIT, .port = 1, .access = 15};

	must(nic_qp_modify(nic[s], p->qp[s], &a,
			   NIC_QPA_STATE | NIC_QPA_PKEY_INDEX | NIC_QPA_PORT | NIC_QPA_ACCESS_FLAGS,
			   1) == 0);
	a = (struct nic_qp_attr){.state = NIC_QPS_RTR,
				 .path_mtu = 4096,
				 .dgid = wire[!s].base.addr,
				 .dest_qpn = nic_qp_num(p->qp[!s]),
				 .max_rd_atomic = 1,
				 .max_dest_rd_atomic = 1,
				 .timeout = 14,
				 .retry_cnt = 7,
				 .rnr_retry = 7,
				 .port = 1};
	must(nic_qp_modify(nic[s], p->qp[s], &a,
			   NIC_QPA_STATE | NIC_QPA_AV | NIC_QPA_PATH_MTU | NIC_QPA_DEST_QPN |
				   NIC_QPA_RQ_PSN | NIC_QPA_MAX_DEST_RD_ATOMIC |
				   NIC_QPA_MIN_RNR_TIMER,
			   1) == 0);
	a.state = NIC_QPS_RTS;
	must(nic_qp_modify(nic[s], p->qp[s], &a,
			   NIC_QPA_STATE | NIC_QPA_TIMEOUT | NIC_QPA_RETRY_CNT | NIC_QPA_RNR_RETRY |
				   NIC_QPA_SQ_PSN | NIC_QPA_MAX_QP_RD_ATOMIC,
			   1) == 0);
}

static uint64_t resident(void)
{
	unsigned long total, pages = 0;
	FILE *f = fopen("/proc/self/statm", "r");

	if (f && fscanf(f, "%lu %lu", &total, &pages) != 2)
		pages = 0;
	if (f)
		fclose(f);
	return (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* Growth of the process in bytes, per QP (half of a pair's). */
static double grow(unsigned qps)
{
	uint64_t before = resident();
	unsigned had = num_pairs;

	for (; num_pairs < qps; num_pairs++) {
		for (int s = 0; s < 2; s++)
			make_qp(&pairs[num_pairs], s);
		for (int s = 0; s < 2; s++)
			connect_side(&pairs[num_pairs], s);
	}
	return qps > had ? (double)(resident() - before) / (2.0 * (qps - had)) : 0;
}

static double cpu_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* Nanoseconds of a random read of a line. The reads do not depend on each other. */
static double random_read_ns(void)
{
	static struct arena a;
	uint8_t *pieces[READ_BYTES >> 12];
	uint64_t sum = 0, x = 7;
	double start;

	arena_init(&a);
	for (unsigned i = 0; i < READ_BYTES >> 12; i++) {
		pieces[i] = arena_alloc(&a, 4032);
		must(pieces[i]);
		memset(pieces[i], (int)i, 4032);
	}
	start = cpu_ns();
	for (unsigned i = 0; i < 1u << 21; i++) {
		x = x * 6364136223846793005ull + 1442695040888963407ull;
		sum += pieces[(x >> 40) % (READ_BYTES >> 12)][(x >> 33 & 63) % 63 * 64];
	}
	start = (cpu_ns() - start) / (1u << 21);
	must(sum != 0);
	for (unsigned i = 0; i < READ_BYTES >> 12; i++)
		arena_free(&a, pieces[i], 4032);
	arena_fini(&a);
	return start;
}

static void put(struct pair *p, unsigned i)
{
	struct roost_wqe *w = &p->sq[p->posted % DEPTH];

	w->ctrl = ROOST_CTRL(ROOST_OP_WRITE, 0);
	w->flags = ROOST_WQE_SIGNALED;
	w->num_sge = 1;
	w->raddr = (uintptr_t)mem[1] + 64ull * i;
	w->rkey = key[1];
	w->sge[0] = (struct roost_sge){(uintptr_t)mem[0] + 64ull * i, 64, key[0]};
	p->wr[p->posted++ % DEPTH] = i;
}

/* Posts the next WRITEs of QP i if none are outstanding; returns their number. */
static unsigned post(unsigned i, unsigned batch)
{
	struct pair *p = &pairs[i];

	if (p->posted != p->done)
		return 0;
	for (unsigned k = 0; k < batch; k++)
		put(p, i);
	atomic_store_explicit(&p->index->prod, p->posted, memory_order_release);
	nic_doorbell(nic[0], p->qp[0]);
	return batch;
}

static unsigned take_completions(void)
{
	unsigned n = 0;

	for (; n < CQ_DEPTH; n++) {
		struct roost_cqe *e = &cqe[0][cons % CQ_DEPTH];

		if (atomic_load_explicit(&e->seq, memory_order_acquire) != cons + 1)
			break;
		must(e->status == NIC_WC_SUCCESS);
		pairs[e->wr_id].done++;
		cons++;
	}
	atomic_store_explicit(&ci[0].cons, cons, memory_order_release);
	return n;
}

/*
 * Nanoseconds of CPU per message; the QPs take turns. Ends after this time, or after this number of
 * messages if it is not 0.
 */
static double busy(unsigned qps, unsigned batch, double seconds, uint64_t messages)
{
	static uint64_t now = 1;
	static unsigned out;
	unsigned next = 0;
	uint64_t done = 0;
	double start = cpu_ns(), t = start;

	while (messages ? done < messages : t - start < seconds * 1e9) {
		for (unsigned turn = 0; turn < 64; turn++) {
			for (unsigned i = 0; i < PER_TURN && out + batch <= OUTSTANDING; i++) {
				out += post(next, batch);
				next = next + 1 == qps ? 0 : next + 1;
			}
			now += 10000;
			nic_poll(nic[0], 0, now);
			nic_poll(nic[1], 0, now);

			unsigned n = take_completions();

			out -= n;
			done += n;
		}
		t = cpu_ns();
	}
	/* Outstanding messages belong to this row too. */
	while (out) {
		unsigned n;

		now += 10000;
		nic_poll(nic[0], 0, now);
		nic_poll(nic[1], 0, now);
		n = take_completions();
		out -= n;
		done += n;
	}
	return (cpu_ns() - start) / (double)done;
}

/* Measures after a warm-up of queues and caches. */
static double measured(unsigned qps, unsigned batch, double seconds)
{
	busy(qps, batch, seconds / 4, 0);
	return busy(qps, batch, seconds, 0);
}

static void rows_of(unsigned qps, double seconds, bool first)
{
	double bytes = grow(qps);
	struct nic_usage u;

	nic_usage(nic[0], &u);
	for (unsigned batch = 1; batch <= DEPTH; batch *= DEPTH) {
		double few = measured(qps < FEW ? qps : FEW, batch, seconds / 2),
		       ns = measured(qps, batch, seconds);

		/* Measured before and after: the load of a shared machine changes. */
		few = (few + measured(qps < FEW ? qps : FEW, batch, seconds / 2)) / 2;
		printf("%s\n  {\"qps\": %u, \"posted\": %u, \"ns\": %.1f, \"ns_of_16\": %.1f, \"rate_of_16\": %.3f, "
		       "\"core_bytes\": %llu, \"grown_bytes\": %.0f}",
		       first && batch == 1 ? "" : ",", qps, batch, ns, few, few / ns,
		       (unsigned long long)(u.qp_bytes / u.qps), bytes);
	}
}

/*
 * bench_qps [SECONDS [QPS BATCH MESSAGES]]: SECONDS is the time for each row. With the other
 * arguments it only sends this number of messages, for a count of instructions or cache misses.
 */
int main(int argc, char **argv)
{
	static const unsigned counts[] = {1, 16, 100, 1000, 4000, MAX_QPS};
	double secs = argc > 1 ? atof(argv[1]) : 0.5;

	for (int s = 0; s < 2; s++)
		open_nic(s);
	if (argc == 5) {
		unsigned qps = (unsigned)atoi(argv[2]);

		must(qps && qps <= MAX_QPS && atoi(argv[3]) >= 1 && atoi(argv[3]) <= DEPTH);
		grow(qps);
		busy(qps, (unsigned)atoi(argv[3]), 0, strtoull(argv[4], NULL, 10));
		return 0;
	}
	printf("{\"tool\": \"bench_qps\", \"unit\": \"ns per WRITE of 64 bytes, both sides; bytes per QP\", "
	       "\"lines\": %d, \"random_read_ns\": %.2f, \"rows\": [",
	       LINES, random_read_ns());
	for (unsigned i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
		rows_of(counts[i], secs, i == 0);
	printf("\n]}\n");
	return 0;
}
