/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Measures the cost of the core without wires: two NICs in one thread, connected by a port that
 * passes pointers. Prints JSON: nanoseconds of CPU per message, for both sides, with the
 * acknowledgement and both completions. A call is the request, its kernel, and the reply.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "builtin/builtin.h"
#include "builtin/crc64.h"
#include "core_chain.h"
#include "kernels/runtime.h"
#include "kvwire/kvwire.h"
#include "roost/consistency.h"
#include "roost/traversal.h"
#include "wire.h"

static void on_cq(void *host, void *ctx)
{
}

static void on_qp(void *host, enum nic_event ev, void *ctx)
{
	if (ev != NIC_EVENT_FIRST_PACKET)
		fprintf(stderr, "event %d\n", ev);
}

static const struct nic_host_ops host_ops = {
	.cq_event = on_cq, .qp_event = on_qp, .cq_error = on_cq};

#define DEPTH 256

/* Calls: offsets of their data, their parameters and their replies in a side's memory. */
#define CALLS	  64
#define ELEMENTS  8 /* elements of a list */
#define LISTS_AT  (512u << 10)
#define PARAMS_AT (640u << 10)
#define REPLY_AT  (704u << 10)
#define REPLY_LEN (4096u + 64)

struct side {
	struct wire wire;
	struct nic *nic;
	struct nic_cq *cq;
	struct nic_qp *qp;
	struct roost_cqe *cqe;
	struct roost_cq_index ci;
	uint32_t cons, key, pd;
	uint64_t posted, done;
	struct roost_wqe *sq;
	uint64_t *wr;
	struct roost_queue_index qi, ri;
	uint8_t *mem;
};

/*
 * Loads all built-in kernels and enables calls. Plain verbs should not become slower by it.
 */
static void load_kernels(struct side *s)
{
	struct kernel_runtime *f;

	if (runtime_create(s->nic, NULL, &f))
		abort();
	for (unsigned i = 0; kernels_builtin_at(i); i++)
		if (runtime_deploy(f, kernels_builtin_at(i), NULL))
			abort();
	if (nic_qp_set_rpc(s->nic, s->qp))
		abort();
}

/* Makes a queue of receives, which is always full, for SENDs of up to 4096 bytes. */
static void post_receives(struct side *s, struct nic_queue_attr *rq)
{
	struct roost_recv_wqe *w = mem_alloc_pages(DEPTH * sizeof(*w));

	for (unsigned i = 0; i < DEPTH; i++) {
		w[i].num_sge = 1;
		w[i].sge[0] = (struct roost_sge){(uintptr_t)s->mem + (size_t)(i % 128) * 4096, 4096,
						 s->key};
	}
	*rq = (struct nic_queue_attr){w, calloc(DEPTH, 8), &s->ri, DEPTH, 6};
}

/* Takes the completions of receives, and posts as many again. */
static __attribute__((noinline)) void take_receives(struct side *s)
{
	uint32_t first = s->cons;

	while (atomic_load_explicit(&s->cqe[s->cons & 1023].seq, memory_order_acquire) ==
	       s->cons + 1) {
		if (s->cqe[s->cons & 1023].status)
			abort();
		s->cons++;
	}
	atomic_store_explicit(&s->ci.cons, s->cons, memory_order_release);
	atomic_store_explicit(&s->ri.prod,
			      atomic_load_explicit(&s->ri.prod, memory_order_relaxed) + s->cons -
				      first,
			      memory_order_release);
}

static void side_init(struct side *s, struct side *peer, const char *addr)
{
	struct nic_config cfg = {.pus = 1, .ports = 1, .seed = {7}, .ops = &host_ops};
	struct nic_mr_attr mr = {.len = 1 << 20, .access = 15};
	struct nic_cq_attr cq = {.depth = 1024};
	struct nic_qp_init qi = {.type = NIC_QPT_RC};

	wire_init(&s->wire, &peer->wire, addr);
	cfg.port[0][0] = &s->wire.base;
	nic_create(&cfg, &s->nic);
	nic_pd_alloc(s->nic, &s->pd);
	s->mem = mem_alloc_pages(1 << 20);
	memset(s->mem, 1, 1 << 20);
	mr.pd = s->pd;
	mr.addr = s->mem;
	mr.iova = (uintptr_t)s->mem;
	nic_mr_register(s->nic, &mr, &s->key);
	s->cqe = mem_alloc_pages(1024 * 64);
	cq.ring = s->cqe;
	cq.index = &s->ci;
	nic_cq_create(s->nic, &cq, &s->cq);
	s->sq = mem_alloc_pages(DEPTH * 64);
	s->wr = calloc(DEPTH, 8);
	post_receives(s, &qi.rq);
	qi.pd = s->pd;
	qi.send_cq = qi.recv_cq = s->cq;
	qi.sq = (struct nic_queue_attr){s->sq, s->wr, &s->qi, DEPTH, 6};
	nic_qp_create(s->nic, &qi, &s->qp);
}

static void side_connect(struct side *s, struct side *peer)
{
	struct nic_qp_attr a = {.state = NIC_QPS_INIT, .port = 1, .access = 15};

	nic_qp_modify(s->nic, s->qp, &a,
		      NIC_QPA_STATE | NIC_QPA_PKEY_INDEX | NIC_QPA_PORT | NIC_QPA_ACCESS_FLAGS, 1);
	a = (struct nic_qp_attr){.state = NIC_QPS_RTR,
				 .path_mtu = 4096,
				 .dgid = peer->wire.base.addr,
				 .dest_qpn = nic_qp_num(peer->qp),
				 .max_rd_atomic = 16,
				 .max_dest_rd_atomic = 16,
				 .timeout = 14,
				 .retry_cnt = 7,
				 .rnr_retry = 7,
				 .port = 1};
	if (nic_qp_modify(s->nic, s->qp, &a,
			  NIC_QPA_STATE | NIC_QPA_AV | NIC_QPA_PATH_MTU | NIC_QPA_DEST_QPN |
				  NIC_QPA_RQ_PSN | NIC_QPA_MAX_DEST_RD_ATOMIC |
				  NIC_QPA_MIN_RNR_TIMER,
			  1))
		abort();
	a.state = NIC_QPS_RTS;
	if (nic_qp_modify(s->nic, s->qp, &a,
			  NIC_QPA_STATE | NIC_QPA_TIMEOUT | NIC_QPA_RETRY_CNT | NIC_QPA_RNR_RETRY |
				  NIC_QPA_SQ_PSN | NIC_QPA_MAX_QP_RD_ATOMIC,
			  1))
		abort();
	atomic_store_explicit(&s->ri.prod, DEPTH, memory_order_release);
}

/*
 * The work requests to measure. Source and destination cycle through `slots` places.
 */
struct job {
	const char *name;
	enum roost_op op;
	uint32_t size, len, slots, step;
	uint8_t *from;
	uint64_t to;
	uint32_t to_step;
};

static const char *const verb_names[] = {
	[ROOST_OP_WRITE] = "write", [ROOST_OP_READ] = "read", [ROOST_OP_SEND] = "send"};

static enum roost_op verb_of(const char *name)
{
	if (strcmp(name, "read") == 0)
		return ROOST_OP_READ;
	return strcmp(name, "send") == 0 ? ROOST_OP_SEND : ROOST_OP_WRITE;
}

/* The places are contiguous and aligned to lines, as the buffers of a program. */
static struct job verb_job(struct side *a, struct side *b, enum roost_op op, uint32_t size)
{
	uint32_t stride = (size + 63) & ~63u;

	return (struct job){verb_names[op],    op,    size, size, 128, stride, a->mem,
			    (uintptr_t)b->mem, stride};
}

/*
 * The parameters of a call: the value of a list's last element, of `size` bytes, or an object of
 * that size with its CRC.
 */
struct asked {
	struct roost_rpc_head head;
	union {
		struct roost_traversal_params list;
		struct roost_consistency_params object;
	};
};

static void build_list(struct side *b)
{
	for (uint64_t i = 0; i < ELEMENTS; i++) {
		uint64_t at = (uintptr_t)b->mem + LISTS_AT + i * 64;
		uint64_t element[] = {i + 1, (uintptr_t)b->mem, i + 1 < ELEMENTS ? at + 64 : 0};

		memcpy(b->mem + LISTS_AT + i * 64, element, sizeof(element));
	}
}

static struct roost_rpc_head call_head(const struct side *a, unsigned i)
{
	return (struct roost_rpc_head){.reply_addr = (uintptr_t)a->mem + REPLY_AT +
						     (uint64_t)(i % 16) * REPLY_LEN,
				       .reply_rkey = a->key,
				       .reply_len = REPLY_LEN,
				       .mark = 1};
}

static struct job call_job(struct side *a, struct side *b, bool object, uint32_t size)
{
	struct job j = {.name = object ? "object" : "list",
			.op = ROOST_OP_RPC,
			.size = size,
			.slots = CALLS,
			.step = 512,
			.from = a->mem + PARAMS_AT};
	uint64_t crc;

	j.to = object ? ROOST_CONSISTENCY_OP : ROOST_TRAVERSAL_OP;
	j.len = sizeof(struct roost_rpc_head) + (object ? sizeof(struct roost_consistency_params)
							: sizeof(struct roost_traversal_params));
	for (unsigned i = 0; i < CALLS; i++) {
		struct asked *p = (void *)(j.from + (size_t)i * j.step);

		p->head = call_head(a, i);
		if (object)
			p->object = roost_consistency_params((uintptr_t)b->mem, size, 1,
							     ROOST_CONSISTENCY_CRC);
		else
			p->list = roost_traversal_list((uintptr_t)b->mem + LISTS_AT, 64, ELEMENTS,
						       0, 2, 4, size);
	}
	build_list(b);
	crc = crc64_plain(b->mem, size - 8);
	memcpy(b->mem + size - 8, &crc, sizeof(crc));
	return j;
}

/* Calls of the store, each with an operation on a key of its own and a value of `size` bytes. */
static struct job store_job(struct side *a, enum roost_kv_code code, uint32_t size)
{
	struct job j = {.name = "get",
			.op = ROOST_OP_RPC,
			.size = size,
			.slots = CALLS,
			.step = 512,
			.from = a->mem + PARAMS_AT,
			.to = ROOST_KV_OP};

	for (uint64_t i = 0; i < CALLS; i++) {
		struct asked *p = (void *)(j.from + i * j.step);
		struct roost_kv_op op = {.code = code,
					 .key = &i,
					 .key_len = sizeof(i),
					 .value = a->mem,
					 .value_len = size};
		struct kvwire_writer w;

		p->head = call_head(a, (unsigned)i);
		kvwire_begin(&w, &p->list, j.step - sizeof(p->head));
		if (!kvwire_add(&w, &op))
			abort();
		j.len = (uint32_t)(sizeof(p->head) + kvwire_finish(&w, 0));
	}
	return j;
}

/* Checks the tail of the first reply. */
static void expect_reply(const struct side *a, const struct job *j)
{
	struct roost_rpc_tail tail;

	memcpy(&tail, a->mem + REPLY_AT + REPLY_LEN - sizeof(tail), sizeof(tail));
	if (j->op == ROOST_OP_RPC && (tail.mark != 1 || tail.status != ROOST_RPC_OK)) {
		fprintf(stderr, "bench_core: a call fails\n");
		exit(1);
	}
}

static double now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* Runs for `seconds`, or for `messages` messages if not 0. */
static double run(struct side *a, struct side *b, const struct job *j, unsigned batch,
		  double seconds, uint64_t messages)
{
	double start = now_ns(), t = start;
	uint64_t first = a->done;
	static uint64_t fake = 1;

	while ((t = now_ns()), messages ? a->done - first < messages : t - start < seconds * 1e9) {
		for (int k = 0; k < 64; k++) {
			uint32_t prod = (uint32_t)a->posted;
			unsigned n = a->posted - a->done + batch <= DEPTH ? batch : 0;

			for (unsigned i = 0; i < n; i++) {
				struct roost_wqe *w = &a->sq[(prod + i) % DEPTH];
				uint32_t slot = (prod + i) % j->slots;

				w->ctrl = ROOST_CTRL(j->op, prod + i);
				w->flags = i + 1 == n ? ROOST_WQE_SIGNALED : 0;
				w->num_sge = 1;
				w->raddr = j->to + (uint64_t)slot * j->to_step;
				w->rkey = b->key;
				w->sge[0] = (struct roost_sge){(uintptr_t)j->from +
								       (size_t)slot * j->step,
							       j->len, a->key};
				a->wr[(prod + i) % DEPTH] = n;
			}
			if (n) {
				atomic_store_explicit(&a->qi.prod, prod + n, memory_order_release);
				nic_doorbell(a->nic, a->qp);
				a->posted += n;
			}
			fake += 10000;
			nic_poll(a->nic, 0, fake);
			nic_poll(b->nic, 0, fake);
			if (j->op == ROOST_OP_SEND)
				take_receives(b);
			while (atomic_load_explicit(&a->cqe[a->cons & 1023].seq,
						    memory_order_acquire) == a->cons + 1) {
				if (a->cqe[a->cons & 1023].status)
					abort();
				a->done += a->cqe[a->cons & 1023].wr_id;
				a->cons++;
			}
			atomic_store_explicit(&a->ci.cons, a->cons, memory_order_release);
		}
	}
	expect_reply(a, j);
	return (t - start) / (double)(a->done - first);
}

static void row(struct side *a, struct side *b, const struct job *j, unsigned batch, double secs,
		uint64_t messages, bool first)
{
	double ns = run(a, b, j, batch, secs, messages);

	printf("%s\n  {\"op\": \"%s\", \"size\": %u, \"posted\": %u, \"ns\": %.1f}",
	       first ? "" : ",", j->name, j->size, batch, ns);
}

static struct job job(struct side *a, struct side *b, const char *op, uint32_t size)
{
	bool object = strcmp(op, "object") == 0;

	if (strcmp(op, "get") == 0) {
		struct job puts = store_job(a, ROOST_KV_PUT, size);

		run(a, b, &puts, 1, 0, CALLS);
		return store_job(a, ROOST_KV_GET, size);
	}
	if (object || strcmp(op, "list") == 0)
		return call_job(a, b, object, size);
	return verb_job(a, b, verb_of(op), size);
}

/*
 * bench_core SECONDS chain [ROW [LOOK-UPS]]: the rows of chains, or one of them.
 * bench_core [SECONDS [OP SIZE POSTED [MESSAGES [kernels]]]]: one row for OP write, read, send,
 * list, object or get (the last three are calls); without OP, all rows of WRITEs, READs and chains.
 * It ends after MESSAGES messages if given. Calls use the built-in kernels. With `kernels` they are
 * loaded for verbs too.
 */
int main(int argc, char **argv)
{
	static struct side a, b;
	static const uint32_t sizes[] = {8, 64, 512, 4096};
	double secs = argc > 1 ? atof(argv[1]) : 0.3;
	bool first = true, get = argc > 2 && !strcmp(argv[2], "get"),
	     calls = get || (argc > 2 && (!strcmp(argv[2], "list") || !strcmp(argv[2], "object")));
	struct job j;

	side_init(&a, &b, "10.0.0.1");
	side_init(&b, &a, "10.0.0.2");
	if (argc > 6 || calls) {
		load_kernels(&a);
		load_kernels(&b);
	}
	side_connect(&a, &b);
	side_connect(&b, &a);
	printf("{\"tool\": \"bench_core\", \"unit\": \"ns per message, both sides\", \"rows\": [");
	if (argc > 2 && !strcmp(argv[2], "chain")) {
		chain_rows(secs, true, argc > 3 ? argv[3] : NULL,
			   argc > 4 ? strtoull(argv[4], NULL, 10) : 0);
	} else if (argc > 4) {
		uint32_t size = (uint32_t)atoi(argv[3]);
		unsigned posted = (unsigned)atoi(argv[4]), most = calls ? CALLS / 2 : DEPTH;

		if (size > (get ? 256 : 4096) || (calls && size < 64) || posted < 1 ||
		    posted > most) {
			fprintf(stderr,
				"bench_core: SIZE up to 4096 (calls: from 64; get: up to 256), "
				"POSTED 1 to %u\n",
				most);
			return 2;
		}
		j = job(&a, &b, argv[2], size);
		row(&a, &b, &j, posted, secs, argc > 5 ? strtoull(argv[5], NULL, 10) : 0, true);
	} else {
		for (unsigned i = 0; i < 16; i++, first = false) {
			j = verb_job(&a, &b, i & 8 ? ROOST_OP_READ : ROOST_OP_WRITE,
				     sizes[(i >> 1) & 3]);
			row(&a, &b, &j, i & 1 ? 32 : 1, secs, 0, first);
		}
		chain_rows(secs, false, NULL, 0);
	}
	printf("\n]}\n");
	return 0;
}
