/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * An MPI program that checks the data that it receives: `mpi_check`: messages of many sizes,
 * collective operations, one-sided ones with atomics; `mpi_check threads`: four threads of each
 * process exchange messages at the same time (MPI_THREAD_MULTIPLE). Two processes. Prints "all
 * right" from rank 0, or what was wrong, and exits with 1.
 */
#include <mpi.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_BYTES (4u << 20)
#define THREADS	  4
#define IN_FLIGHT 32

static int rank, peer;

static void fail(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	fprintf(stderr, "rank %d: failed: ", rank);
	vfprintf(stderr, fmt, ap);
	fprintf(stderr, "\n");
	va_end(ap);
	MPI_Abort(MPI_COMM_WORLD, 1);
}

/* Byte i of a message differs for each sender, tag and place. */
static uint8_t pattern(int from, unsigned tag, size_t i)
{
	return (uint8_t)((i * 2654435761u >> 13) ^ (i >> 3) ^ (tag * 37u) ^ ((unsigned)from << 7));
}

static void fill(uint8_t *buf, size_t n, int from, unsigned tag)
{
	for (size_t i = 0; i < n; i++)
		buf[i] = pattern(from, tag, i);
}

static void check(const uint8_t *buf, size_t n, int from, unsigned tag)
{
	for (size_t i = 0; i < n; i++) {
		if (buf[i] != pattern(from, tag, i))
			fail("message of %zu bytes, tag %u: byte %zu is %02x, not %02x", n, tag, i,
			     buf[i], pattern(from, tag, i));
	}
}

static void *memory(size_t n)
{
	void *p = malloc(n);

	if (!p)
		fail("no memory");
	return p;
}

/* One direction, then the other: each side has a pattern of its own. */
static void exchange(uint8_t *out, uint8_t *in, size_t n, unsigned tag)
{
	MPI_Status status;
	int got;

	fill(out, n, rank, tag);
	memset(in, 0xee, n);
	if (rank == 0)
		MPI_Send(out, (int)n, MPI_BYTE, peer, (int)tag, MPI_COMM_WORLD);
	MPI_Recv(in, (int)n, MPI_BYTE, peer, (int)tag, MPI_COMM_WORLD, &status);
	if (rank != 0)
		MPI_Send(out, (int)n, MPI_BYTE, peer, (int)tag, MPI_COMM_WORLD);
	MPI_Get_count(&status, MPI_BYTE, &got);
	if (got != (int)n)
		fail("%d bytes came, not %zu", got, n);
	check(in, n, peer, tag);
}

static void messages(void)
{
	uint8_t *out = memory(MAX_BYTES + 1), *in = memory(MAX_BYTES + 1);
	unsigned tag = 1;

	for (size_t n = 1; n <= MAX_BYTES; n *= 2) {
		for (size_t more = 0; more < 3; more++)
			exchange(out, in, n - 1 + more, tag++);
	}
	free(out);
	free(in);
}

/* Many at once, received in the opposite order. */
static void many(void)
{
	const size_t n = 20000;
	uint8_t *out = memory(n * IN_FLIGHT), *in = memory(n * IN_FLIGHT);
	MPI_Request requests[2 * IN_FLIGHT];
	MPI_Status statuses[2 * IN_FLIGHT];

	for (unsigned i = 0; i < IN_FLIGHT; i++) {
		fill(out + i * n, n, rank, i);
		MPI_Isend(out + i * n, (int)n, MPI_BYTE, peer, (int)i, MPI_COMM_WORLD,
			  &requests[i]);
	}
	for (unsigned i = IN_FLIGHT; i-- > 0;)
		MPI_Irecv(in + i * n, (int)n, MPI_BYTE, peer, (int)i, MPI_COMM_WORLD,
			  &requests[IN_FLIGHT + i]);
	MPI_Waitall(2 * IN_FLIGHT, requests, statuses);
	for (unsigned i = 0; i < IN_FLIGHT; i++)
		check(in + i * n, n, peer, i);
	free(out);
	free(in);
}

static void collectives(void)
{
	const int n = 100000;
	int64_t *a = memory((size_t)n * 8), *b = memory((size_t)n * 8);

	for (int i = 0; i < n; i++)
		a[i] = (int64_t)i * (rank + 1);
	MPI_Allreduce(a, b, n, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
	for (int i = 0; i < n; i++) {
		if (b[i] != (int64_t)i * 3)
			fail("allreduce: element %d is %lld", i, (long long)b[i]);
	}
	MPI_Alltoall(a, n / 2, MPI_INT64_T, b, n / 2, MPI_INT64_T, MPI_COMM_WORLD);
	for (int i = 0; i < n; i++) {
		int64_t from = i / (n / 2), at = i % (n / 2) + (int64_t)rank * (n / 2);

		if (b[i] != at * (from + 1))
			fail("alltoall: element %d is %lld", i, (long long)b[i]);
	}
	for (int i = 0; i < 200; i++)
		MPI_Barrier(MPI_COMM_WORLD);
	free(a);
	free(b);
}

static void one_sided(void)
{
	const int n = 50000, adds = 500;
	int64_t *window, *local = memory((size_t)n * 8), one = 1, old, sum = 0;
	MPI_Win win;

	MPI_Win_allocate((MPI_Aint)n * 8, 8, MPI_INFO_NULL, MPI_COMM_WORLD, &window, &win);
	memset(window, 0, (size_t)n * 8);
	MPI_Barrier(MPI_COMM_WORLD);
	for (int i = 0; i < n; i++)
		local[i] = i + 1000000 * rank;
	MPI_Win_lock_all(0, win);
	MPI_Put(local, n - 1, MPI_INT64_T, peer, 1, n - 1, MPI_INT64_T, win);
	MPI_Win_flush(peer, win);
	MPI_Barrier(MPI_COMM_WORLD);
	memset(local, 0, (size_t)n * 8);
	MPI_Get(local, n - 1, MPI_INT64_T, peer, 1, n - 1, MPI_INT64_T, win);
	MPI_Win_flush(peer, win);
	for (int i = 0; i < n - 1; i++) {
		if (local[i] != i + 1000000 * rank)
			fail("get: element %d is %lld", i, (long long)local[i]);
	}
	/* Both add to element 0 of rank 0. */
	for (int i = 0; i < adds; i++) {
		MPI_Fetch_and_op(&one, &old, MPI_INT64_T, 0, 0, MPI_SUM, win);
		MPI_Win_flush(0, win);
	}
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Fetch_and_op(&one, &sum, MPI_INT64_T, 0, 0, MPI_NO_OP, win);
	MPI_Win_flush(0, win);
	if (sum != 2 * adds)
		fail("fetch and add: %lld, not %d", (long long)sum, 2 * adds);
	MPI_Win_unlock_all(win);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_free(&win);
	free(local);
}

static void *thread(void *arg)
{
	unsigned number = (unsigned)(uintptr_t)arg;
	uint8_t *out = memory(65536), *in = memory(65536);

	for (unsigned i = 0; i < 300; i++)
		exchange(out, in, i % 10 == 9 ? 65536 : i * 7 % 4096, number * 1000 + i);
	free(out);
	free(in);
	return NULL;
}

static void threads(void)
{
	pthread_t of[THREADS];

	for (unsigned i = 0; i < THREADS; i++) {
		if (pthread_create(&of[i], NULL, thread, (void *)(uintptr_t)i))
			fail("no thread");
	}
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(of[i], NULL);
}

int main(int argc, char **argv)
{
	bool threaded = argc > 1 && strcmp(argv[1], "threads") == 0;
	int wanted = threaded ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, provided, size;

	MPI_Init_thread(&argc, &argv, wanted, &provided);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	if (size != 2)
		fail("%d processes, not 2", size);
	if (provided < wanted)
		fail("this MPI provides thread level %d, not %d", provided, wanted);
	peer = !rank;
	if (threaded) {
		threads();
	} else {
		messages();
		many();
		collectives();
		one_sided();
	}
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 0)
		printf("all right\n");
	MPI_Finalize();
	return 0;
}
