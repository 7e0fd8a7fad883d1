/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * More services than the filter of the kernel has space for: net.core.optmem_max limits its length.
 * Requests reach the slot that listens, some steered by the kernel, the others passed on by the
 * slot that gets them. Two lanes take the place of two programs, which use the same mail. If a slot
 * does not take its mail, its socket gets full; what is lost then is counted.
 */
#include "../common/network.h"
#include "rig.h"

#include <errno.h>
#include <linux/filter.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/sys.h"
#include "pool/filter.h"
#include "pool/pool.h"

#define SERVICES    100
#define MOST	    POOL_FILTER_SERVICES
#define SHORT	    100 /* instructions */
#define LONG	    10000
#define SERVICE(i)  (service_base + (i))
#define OPTMEM	    "/proc/sys/net/core/optmem_max"
#define OLD_OPTMEM  20480 /* bytes; the default before Linux 6.7 */
#define ATTACH_CBPF 51	  /* SO_ATTACH_REUSEPORT_CBPF */
#define BUFFER	    "buffer=64K"
#define BATCH	    16 /* requests that a mail carries */
#define BATCHES	    200

static uint64_t service_base = 0x0000000001060000ull; /* of IP ports */
static unsigned services = SERVICES;
static bool own_network;       /* the limits of the kernel may be changed */
static unsigned most, refused; /* instructions that the kernel accepts; refusals */

int __real_sys_setsockopt(int fd, int level, int name, const void *value, socklen_t len);
int __wrap_sys_setsockopt(int fd, int level, int name, const void *value, socklen_t len);

int __wrap_sys_setsockopt(int fd, int level, int name, const void *value, socklen_t len)
{
	int rc;

	if (level == SOL_SOCKET && name == ATTACH_CBPF &&
	    ((const struct sock_fprog *)value)->len > most) {
		refused++;
		return -ENOMEM;
	}
	rc = __real_sys_setsockopt(fd, level, name, value, len);
	refused += level == SOL_SOCKET && name == ATTACH_CBPF && rc == -ENOMEM;
	return rc;
}

static struct port *lane[2], *sender;

/* `options`: of the two lanes. */
static void open_with(const char *options)
{
	char spec[64], err[256];

	for (unsigned i = 0; i < 2; i++) {
		snprintf(spec, sizeof(spec), "udp:127.%d.%d.205%s", 1 + (getpid() >> 8) % 250,
			 getpid() % 250, options);
		lane[i] = port_open(spec, i, 2, err, sizeof(err));
		if (!lane[i])
			fail_msg("%s", err);
		pool_manages(pool_mine(), lane[i]->slot, true);
	}
	snprintf(spec, sizeof(spec), "udp:127.%d.%d.206", 1 + (getpid() >> 8) % 250,
		 getpid() % 250);
	sender = rig_open(spec);
}

static void open_all(void)
{
	open_with("");
}

static void send_request(uint64_t service, enum cm_attr attr)
{
	rig_send_request(sender, &lane[0]->addr, service, attr);
}

/*
 * Takes all packets of a lane, and returns their number. They wait already, since loopback delivers
 * within the call that sends. A burst may be empty if all its packets were passed on.
 */
static unsigned take(struct port *p)
{
	struct port_pkt pkts[PORT_BURST];
	unsigned all = 0;

	for (unsigned i = 0; i < 4 * services; i++)
		all += (unsigned)p->ops->rx_burst(p, pkts, PORT_BURST);
	return all;
}

/* `some`: the kernel steers some of the requests, else all. */
static void requests(enum cm_attr attr, unsigned limit, bool some)
{
	struct pool *pool = pool_mine();
	unsigned low = lane[0]->slot < lane[1]->slot ? 0 : 1;
	struct port *otherwise = lane[low], *listener = lane[!low];
	unsigned steered, refuses, passed;

	most = limit;
	refused = 0;
	for (unsigned i = 0; i < services; i++)
		assert_int_equal(pool_publish(pool, listener->slot, SERVICE(i), NULL, 0, POOL_IPV4),
				 0);
	for (unsigned i = 0; i < services; i++)
		send_request(SERVICE(i), attr);
	send_request(SERVICE(services), attr); /* no socket listens */
	steered = take(listener);
	refuses = take(otherwise);
	passed = take(listener);
	assert_int_equal(steered + refuses + passed, services + 1);
	if (some) { /* the last one came to any of the two */
		assert_true(refused > 0);
		assert_true(refuses <= 1);
		assert_true(steered > 0 && passed > 0);
	} else {
		assert_int_equal(refuses, 1);
		assert_int_equal(passed, 0);
	}
	for (unsigned i = 0; i < services; i++)
		pool_withdraw(pool, listener->slot, SERVICE(i), NULL, 0, POOL_IPV4);
}

static void services_beyond_the_filter(void **state)
{
	static const enum cm_attr attrs[] = {CM_REQ, CM_SIDR_REQ};

	most = SHORT;
	open_all();
	for (unsigned i = 0; i < 2; i++) {
		requests(attrs[i], SHORT, true);
		requests(attrs[i], LONG, false);
	}
	port_close(lane[1]);
	port_close(lane[0]);
}

/*
 * Sends BATCH requests for the service, which the kernel gives to the other slot, and lets it pass
 * them on.
 */
static void pass_batch(uint64_t service, struct port *otherwise)
{
	for (unsigned i = 0; i < BATCH; i++)
		send_request(service, CM_REQ);
	assert_int_equal(take(otherwise), 0);
}

/* Waits for nothing: the thread of the port may sleep. */
static bool rests(struct port *p)
{
	bool armed = p->ops->arm(p), wakes = armed && rig_readable(p, 0);

	p->ops->disarm(p, wakes);
	return armed && !wakes;
}

/*
 * A slot that does not take its mail loses some. Each lost packet is counted, and the slot gets
 * later mail again.
 */
static void lost_mail_is_counted(void **state)
{
	const unsigned sent = BATCHES * BATCH;
	struct port *listener, *otherwise;
	unsigned low, got;
	uint64_t service;

	most = SHORT;
	open_with("," BUFFER);
	low = lane[0]->slot < lane[1]->slot ? 0 : 1;
	otherwise = lane[low];
	listener = lane[!low];
	/* The kernel gives requests beyond the filter to slots with a connection manager. */
	pool_manages(pool_mine(), listener->slot, false);
	for (unsigned i = 0; i < services; i++)
		assert_int_equal(
			pool_publish(pool_mine(), listener->slot, SERVICE(i), NULL, 0, POOL_IPV4),
			0);
	service = SERVICE(services - 1); /* the filter has the first ones */
	send_request(service, CM_REQ);
	assert_int_equal(take(listener), 0);
	assert_int_equal(take(otherwise), 0);
	assert_int_equal(take(listener), 1);
	for (unsigned i = 0; i < BATCHES; i++)
		pass_batch(service, otherwise);
	got = take(listener);
	assert_true(got > 0 && got < sent);
	assert_int_equal(got + port_stats_of(listener).rx_bad + port_stats_of(otherwise).rx_bad,
			 sent);
	assert_true(rests(listener));
	pass_batch(service, otherwise);
	assert_false(rests(listener));
	assert_int_equal(take(listener), BATCH);
	assert_int_equal(got + port_stats_of(listener).rx_bad + port_stats_of(otherwise).rx_bad,
			 sent);
	for (unsigned i = 0; i < services; i++)
		pool_withdraw(pool_mine(), listener->slot, SERVICE(i), NULL, 0, POOL_IPV4);
	port_close(lane[1]);
	port_close(lane[0]);
}

/*
 * The least space that a kernel gives by default. Services of other kinds than IP ports take the
 * most of it.
 */
static void least_space(void **state)
{
	FILE *f = own_network ? fopen(OPTMEM, "w") : NULL;
	bool set = f && fprintf(f, "%d", OLD_OPTMEM) > 0;

	if (!f || fclose(f) || !set) {
		printf("SKIPPED: " OPTMEM " is not this network's alone (before Linux 6.7)\n");
		skip();
	}
	service_base = 0x1000000001060000ull;
	services = MOST;
	most = LONG;
	open_all();
	requests(CM_REQ, LONG, true);
	service_base = 0x0000000001060000ull;
	services = SERVICES;
	requests(CM_REQ, LONG, false);
	port_close(lane[1]);
	port_close(lane[0]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(services_beyond_the_filter, rig_close_all),
		cmocka_unit_test_teardown(lost_mail_is_counted, rig_close_all),
		cmocka_unit_test_teardown(least_space, rig_close_all),
	};

	own_network = network_own();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
