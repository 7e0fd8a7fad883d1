/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Patterns of MPI jobs among any number of ranks, with checked results: all-reduce, all-to-all,
 * halo exchange, one-sided operations. `mpi_ranks ROUNDS`. Prints "all right" from rank 0, or what
 * was wrong, and exits with 1.
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define MOST 32768 /* elements of 8 bytes for each pair of ranks */

static int rank, ranks;

#define fail(...)                                                                                  \
	do {                                                                                       \
		fprintf(stderr, "rank %d: failed: ", rank);                                        \
		fprintf(stderr, __VA_ARGS__);                                                      \
		fprintf(stderr, "\n");                                                             \
		MPI_Abort(MPI_COMM_WORLD, 1);                                                      \
	} while (0)

/* Returns element i of the data that `from` sends to `to`. */
static int64_t value(int from, int to, size_t i, int round)
{
	return (int64_t)(((uint64_t)from << 40) ^ ((uint64_t)to << 32) ^ i * 2654435761u) + round;
}

static int64_t *memory(size_t elements)
{
	int64_t *p = calloc(elements, sizeof(*p));

	if (!p)
		fail("no memory");
	return p;
}

static void all_reduce(size_t n, int round)
{
	int64_t *in = memory(n), *out = memory(n);

	for (size_t i = 0; i < n; i++)
		in[i] = value(rank, 0, i, round);
	MPI_Allreduce(in, out, (int)n, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
	for (size_t i = 0; i < n; i++) {
		int64_t sum = 0;

		for (int r = 0; r < ranks; r++)
			sum += value(r, 0, i, round);
		if (out[i] != sum)
			fail("all-reduce of %zu: element %zu is %lld, not %lld", n, i,
			     (long long)out[i], (long long)sum);
	}
	free(in);
	free(out);
}

static void all_to_all(size_t n, int round)
{
	int64_t *in = memory(n * (size_t)ranks), *out = memory(n * (size_t)ranks);

	for (int r = 0; r < ranks; r++) {
		for (size_t i = 0; i < n; i++)
			in[(size_t)r * n + i] = value(rank, r, i, round);
	}
	MPI_Alltoall(in, (int)n, MPI_INT64_T, out, (int)n, MPI_INT64_T, MPI_COMM_WORLD);
	for (int r = 0; r < ranks; r++) {
		for (size_t i = 0; i < n; i++) {
			if (out[(size_t)r * n + i] != value(r, rank, i, round))
				fail("all-to-all of %zu: element %zu of rank %d is wrong", n, i, r);
		}
	}
	free(in);
	free(out);
}

/*
 * A ring of cells, each of which becomes the sum of its neighbours and itself, modulo a prime.
 * Every rank also computes the whole ring by itself.
 */
static void halo(size_t n, int steps)
{
	size_t all = n * (size_t)ranks;
	int64_t *mine = memory(n + 2), *next = memory(n + 2), *whole = memory(all),
		*after = memory(all);
	int left = (rank + ranks - 1) % ranks, right = (rank + 1) % ranks;

	for (size_t i = 0; i < all; i++)
		whole[i] = (int64_t)(i * i % 1000003);
	for (size_t i = 0; i < n; i++)
		mine[i + 1] = whole[(size_t)rank * n + i];
	for (int s = 0; s < steps; s++) {
		int64_t *swap;
		MPI_Request r[4];
		MPI_Status status[4]; /* gcc warns about MPICH's MPI_STATUSES_IGNORE */

		MPI_Irecv(&mine[0], 1, MPI_INT64_T, left, 1, MPI_COMM_WORLD, &r[0]);
		MPI_Irecv(&mine[n + 1], 1, MPI_INT64_T, right, 2, MPI_COMM_WORLD, &r[1]);
		MPI_Isend(&mine[n], 1, MPI_INT64_T, right, 1, MPI_COMM_WORLD, &r[2]);
		MPI_Isend(&mine[1], 1, MPI_INT64_T, left, 2, MPI_COMM_WORLD, &r[3]);
		MPI_Waitall(4, r, status);
		for (size_t i = 1; i <= n; i++)
			next[i] = (mine[i - 1] + mine[i] + mine[i + 1]) % 1000003;
		for (size_t i = 0; i < all; i++)
			after[i] = (whole[(i + all - 1) % all] + whole[i] + whole[(i + 1) % all]) %
				   1000003;
		swap = mine, mine = next, next = swap;
		swap = whole, whole = after, after = swap;
	}
	for (size_t i = 0; i < n; i++) {
		if (mine[i + 1] != whole[(size_t)rank * n + i])
			fail("halo exchange: cell %zu is wrong after %d steps", i, steps);
	}
	free(mine);
	free(next);
	free(whole);
	free(after);
}

/* Each rank puts into all windows, reads them back, and all add to one counter. */
static void one_sided(size_t n, int round)
{
	size_t all = n * (size_t)ranks;
	int64_t *win_mem = memory(all + 1), *out = memory(n), *in = memory(n), one = 1, seen;
	MPI_Win win;

	/* Memory of the program: MPI_Win_allocate() would take MPICH's own shared memory. */
	MPI_Win_create(win_mem, (MPI_Aint)((all + 1) * sizeof(*win_mem)), sizeof(*win_mem),
		       MPI_INFO_NULL, MPI_COMM_WORLD, &win);
	for (int r = 0; r < ranks; r++) {
		MPI_Win_lock(MPI_LOCK_SHARED, r, 0, win);
		for (size_t i = 0; i < n; i++)
			out[i] = value(rank, r, i, round);
		MPI_Put(out, (int)n, MPI_INT64_T, r, (MPI_Aint)((size_t)rank * n), (int)n,
			MPI_INT64_T, win);
		MPI_Win_flush(r, win);
		MPI_Get(in, (int)n, MPI_INT64_T, r, (MPI_Aint)((size_t)rank * n), (int)n,
			MPI_INT64_T, win);
		MPI_Fetch_and_op(&one, &seen, MPI_INT64_T, r, (MPI_Aint)all, MPI_SUM, win);
		MPI_Win_unlock(r, win);
		for (size_t i = 0; i < n; i++) {
			if (in[i] != out[i])
				fail("get after put: element %zu of rank %d is wrong", i, r);
		}
		/* Each rank adds 1 to each counter, which was 0. */
		if (seen < 0 || seen >= ranks)
			fail("fetch and add: %lld was there", (long long)seen);
	}
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, win);
	for (int r = 0; r < ranks; r++) {
		for (size_t i = 0; i < n; i++) {
			if (win_mem[(size_t)r * n + i] != value(r, rank, i, round))
				fail("put: element %zu of rank %d is wrong", i, r);
		}
	}
	if (win_mem[all] != ranks)
		fail("%d ranks added 1, and the sum is %lld", ranks, (long long)win_mem[all]);
	MPI_Win_unlock(rank, win);
	MPI_Win_free(&win);
	free(win_mem);
	free(out);
	free(in);
}

int main(int argc, char **argv)
{
	static const size_t sizes[] = {1, 100, 4096, MOST};
	int rounds = argc > 1 ? atoi(argv[1]) : 1;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	for (int round = 0; round < rounds; round++) {
		for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
			all_reduce(sizes[s], round);
			all_to_all(sizes[s], round);
			one_sided(sizes[s], round);
		}
		halo(64, 50);
	}
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 0)
		printf("all right\n");
	MPI_Finalize();
	return 0;
}
