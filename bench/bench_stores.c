/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The rate, delay and CPU time of a memcached or Redis server at a Unix socket, by one thread:
 * `batch` keys in a request, `depth` requests in flight. Requests are "get" with one or several
 * keys, "GET", or "MGET"; "set" and "SET", of which a request has `batch`. All values and keys are
 * equally long, so replies are counted by their bytes, which costs this side next to nothing.
 *
 *	bench-stores store=memcached|redis at=PATH fill=1 batch=N depth=N keys=N value=BYTES
 *		put=0|100 zipf=SKEW seconds=S servers=PID
 *	bench-stores store=memory|clock seconds=S rate=SHARE
 *
 * store=memory measures random reads of 64 bytes instead, 16 in flight, in 256 MiB with the page
 * size that the store of a node has: the limit of one core. store=clock measures the delay of
 * requests that arrive each microsecond and are done as soon as this program runs: the limit of any
 * open loop on a machine that stops its programs at times. With a rate, each request takes this
 * share of a microsecond of a server that stops with this program: at 0.8 a stop of 20 us delays
 * the requests of the next 100 us.
 */
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/mem.h"
#include "common.h"
#include "load.h"

#define CHUNK	 (4u << 20)
#define FLIGHT	 4096u /* requests in flight, at most */
#define LOAD_ONE 64u   /* sets in flight */
#define MEMORY	 (256ull << 20)
#define READS	 16u
#define STOP_NS	 1000u /* a look at the clock takes less */

static struct load_options o = {.batch = 1, .depth = 1, .keys = 100000, .value = 64, .seconds = 1};
static bool redis;
static int sock;
static char out[CHUNK], in[CHUNK];
static uint64_t since[FLIGHT];
static struct hist hist;

static void dial(const char *path)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};

	if (strlen(path) >= sizeof(a.sun_path))
		load_fail("the path is too long");
	strcpy(a.sun_path, path);
	sock = socket(AF_UNIX, SOCK_STREAM, 0);
	if (sock < 0 || connect(sock, (struct sockaddr *)&a, sizeof(a)))
		load_fail("can't connect");
}

static void send_all(size_t n)
{
	for (size_t at = 0; at < n;) {
		ssize_t rc = write(sock, out + at, n - at);

		if (rc <= 0)
			load_fail("the server closed the connection");
		at += (size_t)rc;
	}
}

static size_t receive(void)
{
	ssize_t rc = read(sock, in, sizeof(in));

	if (rc <= 0)
		load_fail("the server closed the connection");
	return (size_t)rc;
}

/* The constant parts of requests. */
static char get_head[32], get_between[16], set_head[48], set_middle[32];
static size_t get_head_len, get_between_len, set_head_len, set_middle_len;

static void make_parts(void)
{
	unsigned n = o.batch;

	if (redis) {
		get_head_len = (size_t)(n > 1 ? sprintf(get_head, "*%u\r\n$4\r\nMGET", n + 1)
					      : sprintf(get_head, "*2\r\n$3\r\nGET"));
		get_between_len = (size_t)sprintf(get_between, "\r\n$%u\r\n", LOAD_KEY);
		set_head_len = (size_t)sprintf(set_head, "*3\r\n$3\r\nSET\r\n$%u\r\n", LOAD_KEY);
		set_middle_len = (size_t)sprintf(set_middle, "\r\n$%u\r\n", o.value);
	} else {
		get_head_len = (size_t)sprintf(get_head, "get");
		get_between_len = (size_t)sprintf(get_between, " ");
		set_head_len = (size_t)sprintf(set_head, "set ");
		set_middle_len = (size_t)sprintf(set_middle, " 0 0 %u\r\n", o.value);
	}
}

static char *append(char *to, const char *what, size_t len)
{
	memcpy(to, what, len);
	return to + len;
}

static char *add_set(char *to, uint64_t key)
{
	to = append(to, set_head, set_head_len);
	load_digits(to, key);
	to = append(to + LOAD_KEY, set_middle, set_middle_len);
	memset(to, 'x', o.value);
	return append(to + o.value, "\r\n", 2);
}

/* Bytes of the replies to a request. */
static size_t set_reply(void)
{
	return redis ? 5 : 8; /* +OK, STORED */
}

static size_t get_reply(void)
{
	char head[64];
	size_t one = o.value + 2;

	if (redis) {
		one += (size_t)sprintf(head, "$%u\r\n", o.value);
		return o.batch > 1 ? o.batch * one + (size_t)sprintf(head, "*%u\r\n", o.batch)
				   : one;
	}
	one += (size_t)sprintf(head, "VALUE %0*u 0 %u\r\n", (int)LOAD_KEY, 0, o.value);
	return o.batch * one + 5;
}

static void fill(void)
{
	for (unsigned k = 0; k < o.keys;) {
		size_t want = 0;
		char *to = out;

		for (unsigned i = 0; i < LOAD_ONE && k < o.keys; i++, k++) {
			to = add_set(to, k);
			want += set_reply();
		}
		send_all((size_t)(to - out));
		for (size_t got = 0; got < want;)
			got += receive();
	}
}

static char *add_request(char *to)
{
	if (o.put) {
		for (unsigned i = 0; i < o.batch; i++)
			to = add_set(to, load_key());
		return to;
	}
	to = append(to, get_head, get_head_len);
	for (unsigned i = 0; i < o.batch; i++) {
		to = append(to, get_between, get_between_len);
		load_digits(to, load_key());
		to += LOAD_KEY;
	}
	return append(to, "\r\n", 2);
}

static uint64_t measure(void)
{
	size_t reply = o.put ? o.batch * set_reply() : get_reply(), part = 0;
	uint64_t sent = 0, done = 0, now = monotonic_ns();
	uint64_t until = now + (uint64_t)(o.seconds * 1e9);

	while (now < until) {
		char *to = out;

		for (; sent - done < o.depth; sent++) {
			since[sent % FLIGHT] = now;
			to = add_request(to);
		}
		send_all((size_t)(to - out));
		part += receive();
		now = monotonic_ns();
		for (; part >= reply; part -= reply)
			hist_add(&hist, now - since[done++ % FLIGHT]);
	}
	return done * o.batch;
}

static uint64_t read_memory(void)
{
	uint64_t *mem = mem_alloc_pages(MEMORY), sum = 0, done = 0;
	const uint64_t *at[READS];
	uint64_t until;

	if (!mem)
		load_fail("no memory");
	memset(mem, 1, MEMORY);
	for (unsigned i = 0; i < READS; i++)
		at[i] = mem;
	load_prepare(&o);
	load_begin();
	until = monotonic_ns() + (uint64_t)(o.seconds * 1e9);
	for (; monotonic_ns() < until; done += 1024)
		for (unsigned i = 0; i < 1024; i++) {
			for (unsigned k = 0; k < 8; k++)
				sum += at[i % READS][k];
			at[i % READS] = mem + load_below(MEMORY / 64) * 8;
			__builtin_prefetch(at[i % READS]);
		}
	__asm__ volatile("" : : "r"(sum));
	return done;
}

static uint64_t watch_clock(void)
{
	uint64_t last, now, next, until, done = 0;
	double free_at = 0; /* of the server */

	load_prepare(&o);
	load_begin();
	next = last = now = monotonic_ns();
	until = now + (uint64_t)(o.seconds * 1e9);
	for (; now < until; last = now, now = monotonic_ns()) {
		bool stopped = now - last > STOP_NS;

		if (stopped && free_at > (double)last)
			free_at += (double)(now - last);
		for (; next <= now; next += 1000, done++) {
			double from = (double)(stopped ? now : next);

			free_at = (free_at > from ? free_at : from) + o.rate * 1000;
			hist_add(&hist,
				 o.rate > 0 ? (uint64_t)(free_at - (double)next) : now - next);
		}
	}
	return done;
}

int main(int argc, char **argv)
{
	uint64_t done;

	load_parse(&o, argc, argv);
	if (o.store && (!strcmp(o.store, "memory") || !strcmp(o.store, "clock"))) {
		done = *o.store == 'm' ? read_memory() : watch_clock();
		load_print("bench-stores", done, &hist);
		return 0;
	}
	redis = o.store && !strcmp(o.store, "redis");
	if (!o.at || o.depth > FLIGHT ||
	    (size_t)o.depth * o.batch * (o.value + 64) + o.depth * 64 > CHUNK)
		load_fail("a number is out of range");
	make_parts();
	dial(o.at);
	if (o.fill) {
		fill();
		return 0;
	}
	load_prepare(&o);
	load_begin();
	done = measure();
	load_print("bench-stores", done, &hist);
	return 0;
}
