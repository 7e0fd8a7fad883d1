/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A cache whose writer, the child of a hull, is killed 20 times while a client gets its items. The
 * writer has 16 threads that change values, and takes memory back at once. No get fails; each value
 * is whole and not older than a value that was seen before; keys that are not deleted are always
 * found, and a deleted key is not found. Before, a client refuses the connection that it asked for.
 *
 *	test-cache-writer [KILLS]
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <rdma/rdma_cma.h>

#include "client.h"
#include "server.h"

#define WRITERS 16
#define KEYS	(WRITERS * 32u) /* key n belongs to writer n % WRITERS */
#define SLOT	1024u
#define SLOTS	4096u /* of a generation */
#define SERVICE "7476"
#define LIMIT	600 /* seconds; only a failure takes so long */

static unsigned max_kills = 20;

static const struct roost_cache_shape shape = {
	.seed = 99, .log_buckets = 12, .key_bits = 48, .max_item = SLOT};
#define ITEMS_LEN (2ull * SLOT * SLOTS)

/* Makes a value: the number, repeated; the number gives the count. */
struct value {
	uint64_t life, pid, number;
	uint64_t fill[96];
};

static uint32_t value_len(uint64_t number)
{
	return (uint32_t)(offsetof(struct value, fill) + 8 * (number % 97));
}

/* ---- the writer: a process ---- */

static struct roost_cache cache;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct roost_cache_item *item_of[KEYS + 1];
static uint64_t number_of[KEYS + 1], life;
static uint32_t free_slot[SLOTS], num_free;

static uint32_t name_key(char *name, uint32_t key)
{
	return (uint32_t)sprintf(name, "key-%u", key);
}

static struct roost_cache_item *slot_at(uint32_t i)
{
	return (void *)((uint8_t *)roost_cache_memory(&cache) + (size_t)i * SLOT);
}

static void release(struct roost_cache_item *item)
{
	roost_cache_withdraw(&cache, item);
	free_slot[num_free++] =
		(uint32_t)(((uint8_t *)item - (uint8_t *)roost_cache_memory(&cache)) / SLOT);
}

static void set(uint32_t key, uint64_t number)
{
	struct value v = {.life = life, .pid = (uint64_t)getpid(), .number = number};
	struct roost_cache_item *item, *before;

	for (unsigned i = 0; i < 96; i++)
		v.fill[i] = number;
	pthread_mutex_lock(&lock);
	item = slot_at(free_slot[--num_free]);
	*item = (struct roost_cache_item){.key_at = sizeof(*item),
					  .value_at = sizeof(*item) + 32,
					  .value_len = value_len(number)};
	item->key_len = (uint16_t)name_key((char *)item + item->key_at, key);
	memcpy((uint8_t *)item + item->value_at, &v, value_len(number));
	if (roost_cache_publish(&cache, item, 0))
		_exit(5);
	before = item_of[key];
	if (before)
		release(before);
	item_of[key] = item;
	number_of[key] = number;
	pthread_mutex_unlock(&lock);
}

static void load(void)
{
	const struct roost_cache_item *old;
	struct value v;
	uint32_t key;

	while ((old = roost_cache_old(&cache))) {
		memcpy(&v, (const uint8_t *)old + old->value_at, offsetof(struct value, fill));
		key = (uint32_t)strtoul((const char *)old + old->key_at + 4, NULL, 10);
		if (key > KEYS)
			_exit(6);
		if (v.life > life)
			life = v.life;
		if (v.number >= number_of[key])
			set(key, v.number);
	}
}

static void *write_values(void *arg)
{
	const uint32_t first = *(const uint32_t *)arg;
	uint32_t key = first;

	for (;;) {
		set(key, number_of[key] + 1);
		key = key + WRITERS < KEYS ? key + WRITERS : first;
		usleep(50);
	}
	return NULL;
}

static int work(struct roost_hull *hull, void *arg)
{
	static uint32_t first[WRITERS];
	pthread_t thread;

	alarm(LIMIT);
	for (uint32_t i = 0; i < SLOTS; i++)
		free_slot[num_free++] = i;
	if (roost_cache_begin(&cache, roost_hull_memory(hull, CACHE_INDEX, 0),
			      roost_hull_memory(hull, CACHE_ITEMS, 0)))
		return 2;
	load();
	life++;
	for (uint32_t key = 0; key < KEYS; key++)
		set(key, number_of[key] + 1);
	roost_cache_serve(&cache);
	/* The key KEYS exists for a moment only; a deleted key does not come back. */
	set(KEYS, 1);
	release(item_of[KEYS]);
	item_of[KEYS] = NULL;
	for (uint32_t i = 0; i < WRITERS; i++) {
		first[i] = i;
		if (pthread_create(&thread, NULL, write_values, &first[i]))
			return 3;
	}
	for (;;)
		pause();
}

/* Addresses of this process's own: 1 is the hull's, 2 the client's. */
static char address[2][32];

/* ---- the hull ---- */

static bool killed(void *ctx, int status)
{
	if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
		return true;
	fprintf(stderr, "the writer ended with status 0x%x\n", status);
	_exit(4);
}

static int serve(int ready)
{
	struct roost_hull_program p = {.run = work, .ended = killed};
	struct roost_hull *hull = roost_hull_create();

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (!hull)
		return 2;
	cache_serve(hull, &shape, ITEMS_LEN, address[0], SERVICE);
	if (write(ready, "", 1) != 1)
		return 3;
	return roost_hull(hull, &p);
}

/* ---- the client ---- */

static uint64_t seen[KEYS];

/* Returns false if there is none. */
static bool get(struct cache_client *c, uint32_t key, struct value *v)
{
	const struct roost_cache_item *item;
	char name[32];
	int found = cache_get(c, name, name_key(name, key), &item);

	assert_in_range(found, 0, 1);
	if (!found)
		return false;
	memcpy(v, roost_cache_item_value(item), item->value_len);
	assert_int_equal(item->value_len, value_len(v->number));
	for (unsigned i = 0; i < v->number % 97; i++)
		assert_int_equal(v->fill[i], v->number);
	return true;
}

static void choose_port(int side)
{
	const char *kind = getenv("CACHE_TEST_PORT");
	char port[64];

	snprintf(port, sizeof(port), "%s:%s", kind ? kind : "udp", address[side]);
	setenv("ROOST_PORT", port, 1);
}

/* Waits for an event, which must be of this type. */
static void expect(struct rdma_event_channel *ch, enum rdma_cm_event_type type)
{
	struct rdma_cm_event *e;

	assert_int_equal(rdma_get_cm_event(ch, &e), 0);
	assert_int_equal(e->event, type);
	rdma_ack_cm_event(e);
}

/* Asks for a connection, and refuses it when the server has accepted. */
static void ask_and_refuse(void)
{
	struct rdma_event_channel *ch = rdma_create_event_channel();
	struct ibv_qp_init_attr init = {.cap = {1, 1, 1, 1, 0}, .qp_type = IBV_QPT_RC};
	struct cache_hello hello = {.len = ROOST_CACHE_REPLY(SLOT)};
	struct rdma_conn_param param = {.private_data = &hello, .private_data_len = sizeof(hello)};
	struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP}, *info;
	struct rdma_cm_id *id;

	assert_non_null(ch);
	assert_int_equal(rdma_getaddrinfo(address[0], SERVICE, &hints, &info), 0);
	assert_int_equal(rdma_create_id(ch, &id, NULL, RDMA_PS_TCP), 0);
	assert_int_equal(rdma_resolve_addr(id, NULL, info->ai_dst_addr, 10000), 0);
	expect(ch, RDMA_CM_EVENT_ADDR_RESOLVED);
	assert_int_equal(rdma_resolve_route(id, 10000), 0);
	expect(ch, RDMA_CM_EVENT_ROUTE_RESOLVED);
	init.send_cq = init.recv_cq = ibv_create_cq(id->verbs, 4, NULL, NULL, 0);
	assert_non_null(init.send_cq);
	id->qp = ibv_create_qp(id->pd, &init);
	assert_non_null(id->qp);
	param.qp_num = id->qp->qp_num;
	assert_int_equal(ibv_destroy_qp(id->qp), 0); /* without one, the id waits for the program */
	id->qp = NULL;
	assert_int_equal(rdma_connect(id, &param), 0);
	expect(ch, RDMA_CM_EVENT_CONNECT_RESPONSE);
	assert_int_equal(rdma_reject(id, NULL, 0), 0);
	rdma_destroy_id(id);
	rdma_destroy_event_channel(ch);
	ibv_destroy_cq(init.send_cq);
	rdma_freeaddrinfo(info);
}

static void sees_no_kill(void **state)
{
	struct cache_client *c;
	uint64_t kills = 0, gets = 0, lives = 0, since = 0;
	struct value v;
	int ready[2], status;
	pid_t hull;
	char byte;

	alarm(LIMIT);
	for (int i = 0; i < 2; i++)
		snprintf(address[i], sizeof(address[i]), "127.%d.%d.%d", 2 + (getpid() >> 8) % 250,
			 getpid() & 0xff, 1 + i);
	assert_int_equal(pipe(ready), 0);
	hull = fork();
	if (hull == 0) {
		choose_port(0);
		_exit(serve(ready[1]));
	}
	choose_port(1);
	close(ready[1]);
	assert_int_equal(read(ready[0], &byte, 1), 1);
	ask_and_refuse(); /* the hull serves others */
	c = cache_connect(address[0], SERVICE, SLOT);
	assert_non_null(c);
	while (!get(c, 0, &v)) /* the first life begins */
		;
	for (uint32_t key = 0; kills < max_kills || v.life <= lives;
	     key = (key + 1) % KEYS, gets++) {
		if (!get(c, key, &v))
			fail_msg("key %u is not found", key);
		assert_true(v.number >= seen[key]);
		seen[key] = v.number;
		if (v.life <= lives)
			since = gets; /* the life before still serves */
		if (gets > since + 100 && kills < max_kills) {
			lives = v.life;
			kills++;
			assert_int_equal(kill((pid_t)v.pid, SIGKILL), 0);
		}
	}
	while (get(c, KEYS, &v)) /* the last life's deletion */
		;
	print_message("%llu gets during %llu kills, %llu requests repeated\n",
		      (unsigned long long)gets, (unsigned long long)kills,
		      (unsigned long long)cache_repeated(c));
	cache_close(c);
	assert_int_equal(kill(hull, SIGKILL), 0);
	assert_int_equal(waitpid(hull, &status, 0), hull);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sees_no_kill),
	};

	if (argc > 1)
		max_kills = (unsigned)strtoul(argv[1], NULL, 10);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
