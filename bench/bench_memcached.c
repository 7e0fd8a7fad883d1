/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The rate of a memcached server at a Unix socket, by one thread: GETs of random keys, `batch` keys
 * in a request, `depth` requests in flight. All values and keys are equally long, so replies are
 * counted by their bytes, which costs this side next to nothing. Prints JSON.
 *
 *	bench-memcached PATH BATCH DEPTH KEYS VALUE SECONDS
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/rng.h"

#define KEY	 12u
#define CHUNK	 (1u << 20)
#define LOAD_ONE 64u /* sets in flight */

static int sock;
static char out[CHUNK], in[CHUNK];

static void fail(const char *what)
{
	fprintf(stderr, "bench-memcached: %s\n", what);
	exit(1);
}

static double seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void dial(const char *path)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};

	if (strlen(path) >= sizeof(a.sun_path))
		fail("the path is too long");
	strcpy(a.sun_path, path);
	sock = socket(AF_UNIX, SOCK_STREAM, 0);
	if (sock < 0 || connect(sock, (struct sockaddr *)&a, sizeof(a)))
		fail("can't connect");
}

static void send_all(size_t n)
{
	for (size_t at = 0; at < n;) {
		ssize_t rc = write(sock, out + at, n - at);

		if (rc <= 0)
			fail("the server closed the connection");
		at += (size_t)rc;
	}
}

static size_t receive(void)
{
	ssize_t rc = read(sock, in, sizeof(in));

	if (rc <= 0)
		fail("the server closed the connection");
	return (size_t)rc;
}

static void load(unsigned keys, unsigned value)
{
	for (unsigned k = 0; k < keys;) {
		size_t n = 0, want = 0;

		for (unsigned i = 0; i < LOAD_ONE && k < keys; i++, k++, want += 8) {
			n += (size_t)sprintf(out + n, "set key-%08u 0 0 %u\r\n", k, value);
			memset(out + n, 'x', value);
			memcpy(out + n + value, "\r\n", 2);
			n += value + 2;
		}
		send_all(n);
		for (size_t got = 0; got < want;)
			got += receive(); /* STORED\r\n */
	}
}

static size_t add_request(char *at, unsigned batch, unsigned keys, struct rng *rng)
{
	size_t n = 3;

	memcpy(at, "get", 3);
	for (unsigned i = 0; i < batch; i++)
		n += (size_t)sprintf(at + n, " key-%08u", (unsigned)rng_below(rng, keys));
	memcpy(at + n, "\r\n", 2);
	return n + 2;
}

int main(int argc, char **argv)
{
	unsigned batch, depth, keys, value, waiting = 0;
	size_t reply, part = 0;
	double start, end, length;
	char head[64];
	uint64_t done = 0;
	struct rng rng;

	if (argc != 7)
		fail("PATH BATCH DEPTH KEYS VALUE SECONDS");
	batch = (unsigned)atoi(argv[2]);
	depth = (unsigned)atoi(argv[3]);
	keys = (unsigned)atoi(argv[4]);
	value = (unsigned)atoi(argv[5]);
	length = atof(argv[6]);
	if (!batch || !depth || !keys || keys > 99999999 || value > 1000 ||
	    (size_t)depth * (batch * (KEY + 1) + 8) > CHUNK)
		fail("a number is out of range");
	dial(argv[1]);
	load(keys, value);
	reply = batch * ((size_t)snprintf(head, sizeof(head), "VALUE key-00000000 0 %u\r\n",
					  value) +
			 value + 2) +
		5;
	rng_seed(&rng, 1);
	start = end = seconds();
	while (end - start < length) {
		size_t n = 0;

		for (; waiting < depth; waiting++)
			n += add_request(out + n, batch, keys, &rng);
		send_all(n);
		part += receive();
		waiting -= (unsigned)(part / reply);
		done += part / reply;
		part %= reply;
		end = seconds();
	}
	printf("{\"tool\": \"bench-memcached\", \"batch\": %u, \"depth\": %u, \"per_second\": %.0f}\n",
	       batch, depth, (double)done * batch / (end - start));
	return 0;
}
