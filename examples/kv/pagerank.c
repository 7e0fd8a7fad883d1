/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * PageRank, with the weights of the vertices in a key-value store. A vertex gives each of its edges
 * an equal part of its rank. The sum of the parts that a vertex gets is computed in two ways:
 *
 *	one GET for each edge: a value is the part that a vertex gives, and the client adds them;
 *	vector reduce: a value is the vector of the parts that come to a vertex, and the store adds
 *	them.
 *
 * Both add in the order of the edges, so their ranks equal those of a plain program bit by bit.
 * usage: pagerank ADDRESS [EDGES]
 */
#include "client.h"

#define DEGREE	   16u /* edges of a vertex, on average */
#define ITERATIONS 3u
#define DAMPING	   0.85
#define CHUNK	   8192u /* operations in flight */

static uint32_t vertices, edges;
static uint32_t *first, *from; /* the edges to v come from from[first[v]] to from[first[v + 1]] */
static uint32_t *out_degree;
static struct roost_kv_op ops[CHUNK];
static uint64_t keys[CHUNK];
static double out[CHUNK];

/* ---- the graph ---- */

/* Draws a vertex. Some vertices have many edges: the number is the square of a random number. */
static uint32_t draw_vertex(uint64_t *rng)
{
	double u = (double)(draw(rng) >> 11) * 0x1p-53;

	return (uint32_t)(u * u * vertices);
}

static void make_graph(void)
{
	uint32_t *to = memory(edges, sizeof(*to)), *source = memory(edges, sizeof(*source));
	uint32_t *at = memory(vertices, sizeof(*at));
	uint64_t rng = 1;

	for (uint32_t e = 0; e < edges; e++) {
		source[e] = (uint32_t)(draw(&rng) % vertices);
		to[e] = draw_vertex(&rng);
		out_degree[source[e]]++;
		first[to[e] + 1]++;
	}
	for (uint32_t v = 0; v < vertices; v++) {
		first[v + 1] += first[v];
		at[v] = first[v];
	}
	for (uint32_t e = 0; e < edges; e++)
		from[at[to[e]]++] = source[e];
	free(to);
	free(source);
	free(at);
}

/* ---- the plain program ---- */

static double part(const double *rank, uint32_t v)
{
	return rank[v] / out_degree[v];
}

static void set_rank(double *rank, uint32_t v, double sum)
{
	rank[v] = (1 - DAMPING) / vertices + DAMPING * sum;
}

static void plain(const double *old, double *rank)
{
	for (uint32_t v = 0; v < vertices; v++) {
		double sum = 0;

		for (uint32_t e = first[v]; e < first[v + 1]; e++)
			sum += part(old, from[e]);
		set_rank(rank, v, sum);
	}
}

/* ---- the store ---- */

static struct roost_kv *kv;
static unsigned filled; /* operations of the chunk */

static void flush(const char *what)
{
	run_all(kv, ops, filled, what);
	filled = 0;
}

static struct roost_kv_op *add(unsigned code, uint64_t key)
{
	struct roost_kv_op *op = &ops[filled];

	keys[filled] = key;
	*op = (struct roost_kv_op){.code = (uint8_t)code,
				   .type = ROOST_KV_DOUBLE,
				   .function = code == ROOST_KV_REDUCE ? ROOST_KV_ADD : 0,
				   .key = &keys[filled],
				   .key_len = sizeof(*keys),
				   .out = &out[filled],
				   .out_cap = sizeof(*out)};
	filled++;
	return op;
}

/* Computes the ranks by one GET for each edge. */
static void by_gets(const double *old, double *rank)
{
	static double parts[CHUNK];
	double sum = 0;
	uint32_t v = 0, e = 0;

	for (uint32_t u = 0; u < vertices; u++) {
		struct roost_kv_op *op = add(ROOST_KV_PUT, u);

		parts[filled - 1] = out_degree[u] ? part(old, u) : 0;
		op->value = &parts[filled - 1];
		op->value_len = sizeof(*parts);
		if (filled == CHUNK || u + 1 == vertices)
			flush("a PUT");
	}
	while (e < edges) {
		uint32_t begin = e;

		while (filled < CHUNK && e < edges)
			add(ROOST_KV_GET, from[e++]);
		flush("a GET");
		for (uint32_t i = begin; i < e; i++) {
			for (; first[v + 1] <= i; sum = 0)
				set_rank(rank, v++, sum);
			sum += out[i - begin];
		}
	}
	for (; v < vertices; sum = 0)
		set_rank(rank, v++, sum);
}

/* Keys of vectors, one for each vertex. Keys below it are those of the parts. */
#define VECTOR (UINT64_C(1) << 32)

static void by_reduce(const double *old, double *rank)
{
	static const double zero;
	double *parts = memory(edges, sizeof(*parts));

	for (uint32_t e = 0; e < edges; e++)
		parts[e] = part(old, from[e]);
	for (uint32_t v = 0; v < vertices; v++) {
		struct roost_kv_op *op = add(ROOST_KV_PUT, VECTOR + v);

		op->value = &parts[first[v]];
		op->value_len = (uint32_t)((first[v + 1] - first[v]) * sizeof(*parts));
		if (filled == CHUNK || v + 1 == vertices)
			flush("a PUT of a vector");
	}
	for (uint32_t v = 0; v < vertices;) {
		uint32_t begin = v;

		while (filled < CHUNK && v < vertices) {
			struct roost_kv_op *op = add(ROOST_KV_REDUCE, VECTOR + v++);

			op->value = &zero;
			op->value_len = sizeof(zero);
		}
		flush("a reduce");
		for (uint32_t i = begin; i < v; i++)
			set_rank(rank, i, out[i - begin]);
	}
	free(parts);
}

static void measure(const char *name, void (*iterate)(const double *, double *), double *ranks[2])
{
	double start = seconds();

	for (uint32_t v = 0; v < vertices; v++)
		ranks[0][v] = 1.0 / vertices;
	for (unsigned i = 0; i < ITERATIONS; i++) {
		double *old = ranks[0];

		iterate(old, ranks[1]);
		ranks[0] = ranks[1];
		ranks[1] = old;
	}
	printf("%s: %.2f million edges a second\n", name,
	       (double)edges * ITERATIONS / (seconds() - start) / 1e6);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	double *expected[2], *ranks[2];
	int wrong = 0;

	edges = (uint32_t)arguments(argc, argv, 10000000);
	vertices = edges / DEGREE;
	must(vertices ? 0 : -EINVAL, "the number of edges");
	first = memory(vertices + 1, sizeof(*first));
	from = memory(edges, sizeof(*from));
	out_degree = memory(vertices, sizeof(*out_degree));
	make_graph();
	for (unsigned i = 0; i < 2; i++) {
		expected[i] = memory(vertices, sizeof(double));
		ranks[i] = memory(vertices, sizeof(double));
	}
	kv = connect_to_store();
	measure("a plain program", plain, expected);
	measure("one GET for each edge", by_gets, ranks);
	wrong |= memcmp(ranks[0], expected[0], vertices * sizeof(double));
	measure("vector reduce", by_reduce, ranks);
	wrong |= memcmp(ranks[0], expected[0], vertices * sizeof(double));
	roost_kv_close(kv);
	for (unsigned i = 0; i < 2; i++) {
		free(expected[i]);
		free(ranks[i]);
	}
	free(first);
	free(from);
	free(out_degree);
	printf("%u vertices, %u edges: the ranks are %s\n", vertices, edges,
	       wrong ? "wrong" : "equal");
	return wrong != 0;
}
