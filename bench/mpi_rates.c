/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Times of MPI between any number of ranks, as JSON from rank 0: half a round trip of 8 bytes and
 * the goodput of 64 KiB between the first two ranks, an all-reduce of 8 bytes and of 64 KiB, and an
 * all-to-all of 1 KiB for each pair. Medians. Built by mpi.py with the compiler of an MPI.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#define BYTES  65536
#define WINDOW 16
#define PAIR   1024
#define TIMES  200
#define WARM   20
#define MOST   64 /* ranks */

static int rank, ranks;
static char in[WINDOW][BYTES], out[WINDOW][BYTES];
static char all_in[MOST * PAIR], all_out[MOST * PAIR];

static void ping_pong(void)
{
	MPI_Status status;

	if (rank == 0) {
		MPI_Send(out[0], 8, MPI_CHAR, 1, 1, MPI_COMM_WORLD);
		MPI_Recv(in[0], 8, MPI_CHAR, 1, 1, MPI_COMM_WORLD, &status);
	} else if (rank == 1) {
		MPI_Recv(in[0], 8, MPI_CHAR, 0, 1, MPI_COMM_WORLD, &status);
		MPI_Send(out[0], 8, MPI_CHAR, 0, 1, MPI_COMM_WORLD);
	}
}

static void window(void)
{
	MPI_Request r[WINDOW];
	MPI_Status status[WINDOW];

	if (rank > 1)
		return;
	for (int i = 0; i < WINDOW; i++) {
		if (rank == 0)
			MPI_Isend(out[i], BYTES, MPI_CHAR, 1, 2, MPI_COMM_WORLD, &r[i]);
		else
			MPI_Irecv(in[i], BYTES, MPI_CHAR, 0, 2, MPI_COMM_WORLD, &r[i]);
	}
	MPI_Waitall(WINDOW, r, status);
	if (rank == 0)
		MPI_Recv(in[0], 1, MPI_CHAR, 1, 3, MPI_COMM_WORLD, &status[0]);
	else
		MPI_Send(out[0], 1, MPI_CHAR, 0, 3, MPI_COMM_WORLD);
}

static void reduce_short(void)
{
	MPI_Allreduce(out[0], in[0], 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
}

static void reduce_long(void)
{
	MPI_Allreduce(out[0], in[0], BYTES / 8, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
}

static void all_to_all(void)
{
	MPI_Alltoall(all_out, PAIR, MPI_CHAR, all_in, PAIR, MPI_CHAR, MPI_COMM_WORLD);
}

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Microseconds of one call, as rank 0 sees it. */
static double median(void (*fn)(void))
{
	static double us[TIMES];

	MPI_Barrier(MPI_COMM_WORLD);
	for (int i = -WARM; i < TIMES; i++) {
		double start = MPI_Wtime();

		fn();
		if (i >= 0)
			us[i] = 1e6 * (MPI_Wtime() - start);
	}
	MPI_Barrier(MPI_COMM_WORLD);
	qsort(us, TIMES, sizeof(us[0]), by_size);
	return us[TIMES / 2];
}

int main(int argc, char **argv)
{
	double us[5];

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	if (ranks < 2 || ranks > MOST)
		MPI_Abort(MPI_COMM_WORLD, 2);
	us[0] = median(ping_pong) / 2;
	us[1] = median(window);
	us[2] = median(reduce_short);
	us[3] = median(reduce_long);
	us[4] = median(all_to_all);
	if (rank == 0)
		printf("{\"ranks\": %d, \"latency_8_us\": %.2f, \"goodput_64k_gbps\": %.2f, "
		       "\"allreduce_8_us\": %.2f, \"allreduce_64k_us\": %.2f, \"alltoall_1k_us\": %.2f}\n",
		       ranks, us[0], 8e-3 * WINDOW * BYTES / us[1], us[2], us[3], us[4]);
	MPI_Finalize();
	return 0;
}
