/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A hull for a cache whose gets are chains, for example memcached with the patch beside this file.
 *
 *	example-memcached-hull -a ADDRESS [-s SERVICE] [-m MIB] [-b BITS] PROGRAM [ARGUMENT...]
 *
 * It owns the NIC and the memory, answers gets at ADDRESS:SERVICE, and starts the program again
 * whenever it ends. MIB is the memory for items of each of two generations (64), and BITS says how
 * many buckets each table has: 2^BITS (18).
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "server.h"

#define SERVICE	 "7477"
#define MAX_ITEM (68u << 10) /* values of 64 KiB, with key and head */

static int usage(void)
{
	fprintf(stderr, "usage: example-memcached-hull -a ADDRESS [-s SERVICE] [-m MIB] [-b BITS] "
			"PROGRAM [ARGUMENT...]\n");
	return 2;
}

int main(int argc, char **argv)
{
	struct roost_cache_shape shape = {.log_buckets = 18, .key_bits = 48, .max_item = MAX_ITEM};
	const char *address = NULL, *service = SERVICE;
	struct roost_hull *hull = roost_hull_create();
	struct roost_hull_program p = {.run = NULL};
	uint64_t mib = 64;
	int opt, err;

	while ((opt = getopt(argc, argv, "+a:s:m:b:")) != -1)
		switch (opt) {
		case 'a':
			address = optarg;
			break;
		case 's':
			service = optarg;
			break;
		case 'm':
			mib = strtoull(optarg, NULL, 10);
			break;
		case 'b':
			shape.log_buckets = (uint32_t)strtoul(optarg, NULL, 10);
			break;
		default:
			return usage();
		}
	if (!address || optind == argc || mib < 1 || mib > 1u << 18)
		return usage();
	if (!hull || getrandom(&shape.seed, sizeof(shape.seed), 0) != sizeof(shape.seed)) {
		perror("example-memcached-hull");
		return 1;
	}
	cache_serve(hull, &shape, 2 * mib << 20, address, service);
	p.argv = argv + optind;
	err = roost_hull(hull, &p);
	if (err)
		fprintf(stderr, "example-memcached-hull: %s: %s\n", p.argv[0], strerror(err));
	roost_hull_destroy(hull);
	return err != 0;
}
