/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Runs a fuzz target without the fuzzer, as a test: on each file of the folders and files that the
 * command line names, and on mutations of the small files and of an empty one, from a fixed seed. A
 * crash prints the seed and the number of the run. ROOST_FUZZ_FRACTION=N makes an N-th of the
 * mutations, for emulated machines.
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/rng.h"

#define SEED	  4791
#define MUTATIONS 150
#define RANDOM	  2000
#define SMALL	  8192
#define LARGE	  (4 << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct rng rng;
static unsigned long runs;
static int fraction = 1;

/* The memory has exactly the size of the input, so that ASan detects a read behind it. */
static void run(const uint8_t *data, size_t size)
{
	uint8_t *exact = malloc(size ? size : 1);

	if (!exact)
		exit(1);
	memcpy(exact, data, size);
	runs++;
	LLVMFuzzerTestOneInput(exact, size);
	free(exact);
}

static void mutate(uint8_t *data, size_t *size)
{
	static const uint8_t edges[] = {0x00, 0x01, 0x7f, 0x80, 0xff};

	for (uint64_t n = 1 + rng_below(&rng, 6); n && *size; n--) {
		size_t at = rng_below(&rng, *size);

		switch (rng_below(&rng, 5)) {
		case 0:
			data[at] ^= (uint8_t)(1u << rng_below(&rng, 8));
			break;
		case 1:
			data[at] = (uint8_t)rng_u64(&rng);
			break;
		case 2:
			data[at] = edges[rng_below(&rng, sizeof(edges))];
			break;
		case 3: {
			size_t from = rng_below(&rng, *size), len = rng_below(&rng, 64);

			if (from + len <= *size && at + len <= *size)
				memmove(data + at, data + from, len);
			break;
		}
		default:
			if (rng_below(&rng, 8) == 0)
				*size = at;
		}
	}
}

static void run_mutations(const uint8_t *data, size_t size)
{
	static uint8_t copy[SMALL];

	for (int i = 0; i < MUTATIONS / fraction; i++) {
		size_t n = size;

		memcpy(copy, data, size);
		mutate(copy, &n);
		run(copy, n);
	}
}

static void run_file(const char *path)
{
	static uint8_t data[LARGE];
	FILE *f = fopen(path, "rb");
	size_t n;

	if (!f) {
		fprintf(stderr, "can't open %s\n", path);
		exit(1);
	}
	n = fread(data, 1, sizeof(data), f);
	fclose(f);
	run(data, n);
	if (n <= SMALL)
		run_mutations(data, n);
}

static int by_name(const void *a, const void *b)
{
	return strcmp((*(struct dirent *const *)a)->d_name, (*(struct dirent *const *)b)->d_name);
}

/* Files are sorted by name, so that the runs are the same each time. */
static void run_path(const char *path)
{
	struct dirent **list = NULL;
	char name[2048];
	struct stat st;
	int n;

	if (stat(path, &st) == 0 && !S_ISDIR(st.st_mode)) {
		run_file(path);
		return;
	}
	n = scandir(path, &list, NULL, NULL);
	if (n < 0) {
		fprintf(stderr, "can't open %s\n", path);
		exit(1);
	}
	qsort(list, (size_t)n, sizeof(*list), by_name);
	for (int i = 0; i < n; i++) {
		if (list[i]->d_name[0] != '.') {
			snprintf(name, sizeof(name), "%s/%s", path, list[i]->d_name);
			run_path(name);
		}
		free(list[i]);
	}
	free(list);
}

/* Makes random bytes. */
static void run_random(void)
{
	uint8_t data[512];

	for (int i = 0; i < RANDOM / fraction; i++) {
		size_t n = rng_below(&rng, sizeof(data));

		for (size_t k = 0; k < n; k++)
			data[k] = (uint8_t)rng_u64(&rng);
		run(data, n);
	}
}

static void crashed(void)
{
	fprintf(stderr, "seed %d, run %lu\n", SEED, runs);
}

/* The sanitizers call it before they end the process. */
void __sanitizer_set_death_callback(void (*callback)(void)) __attribute__((weak));

int main(int argc, char **argv)
{
	if (__sanitizer_set_death_callback)
		__sanitizer_set_death_callback(crashed);
	if (getenv("ROOST_FUZZ_FRACTION"))
		fraction = atoi(getenv("ROOST_FUZZ_FRACTION"));
	if (fraction < 1 || fraction > MUTATIONS) {
		fprintf(stderr, "ROOST_FUZZ_FRACTION has to be 1 to %d\n", MUTATIONS);
		return 1;
	}
	rng_seed(&rng, SEED);
	for (int i = 1; i < argc; i++)
		run_path(argv[i]);
	run_random();
	printf("%lu runs, seed %d\n", runs, SEED);
	return 0;
}
