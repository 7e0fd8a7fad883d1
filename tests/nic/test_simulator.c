/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The simulator: random programs over random links, a seed each (see runner.h, program.h).
 *
 *   test-nic-simulator                   500 seeds (100 under a sanitizer), or as many as ROOST_SIM_SEEDS says
 *   test-nic-simulator --count 10000     as many
 *   test-nic-simulator --seed 1234       one alone, with its parameters: replays a failure
 *   test-nic-simulator --trace --seed 1234   prints every packet too
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runner.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SEEDS 100
#else
#define SEEDS 500
#endif

static uint64_t number(const char *text)
{
	char *end;
	uint64_t v = strtoull(text, &end, 0);

	if (!*text || *end) {
		fprintf(stderr, "%s is not a number\n", text);
		exit(2);
	}
	return v;
}

int main(int argc, char **argv)
{
	const char *env = getenv("ROOST_SIM_SEEDS");
	uint64_t first = 1, count = env ? number(env) : SEEDS;
	struct run_stats st = {0};
	bool verbose = false;
	FILE *live = NULL;

	for (int i = 1; i < argc; i += 2) {
		if (!strcmp(argv[i], "--trace")) {
			live = stdout;
			i--;
			continue;
		}
		if (i + 1 == argc) {
			fprintf(stderr, "usage: %s [--trace] [--seed S | --count N | --first S]\n", argv[0]);
			return 2;
		}
		if (!strcmp(argv[i], "--seed")) {
			first = number(argv[i + 1]);
			count = 1;
			verbose = true;
		} else if (!strcmp(argv[i], "--count")) {
			count = number(argv[i + 1]);
		} else if (!strcmp(argv[i], "--first")) {
			first = number(argv[i + 1]);
		} else {
			fprintf(stderr, "no option %s\n", argv[i]);
			return 2;
		}
	}
	for (uint64_t s = first; s < first + count; s++)
		if (!run_seed(s, verbose, live, &st)) {
			fprintf(stderr, "replay: %s --seed %" PRIu64 "\n", argv[0], s);
			return 1;
		}
	printf("%" PRIu64 " runs: %" PRIu64 " requests, %.1f MB, %" PRIu64 " packets seen, %" PRIu64
	       " sent again, %" PRIu64 " ended by a fault, %" PRIu64 " of %" PRIu64
	       " unreliable messages came, %.3f s of virtual time\n",
	       count, st.ops, (double)st.bytes / 1e6, st.packets, st.retransmitted, st.faults, st.loose_got,
	       st.loose_sent, (double)st.virtual_ns / 1e9);
	return 0;
}
