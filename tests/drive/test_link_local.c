/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * NICs of two programs that have one link-local address on two interfaces: the address moves from
 * one interface to the other between them. Both may listen on a service there.
 */
#include "../common/child.h"
#include "../common/network.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "drive/drive.h"
#include "nic/nic.h"

#define ADDRESS "fe80::85:1"
#define SERVICE 0x000000000106fe85ull

static struct pkt_addr addr;

/* ---- in the child ---- */

static void on_cq(void *host, void *ctx)
{
}

static void on_qp(void *host, enum nic_event ev, void *ctx)
{
}

static const struct nic_host_ops ops = {.cq_event = on_cq, .qp_event = on_qp, .cq_error = on_cq};

/* Opens a NIC, and listens at its address each time that a byte comes. */
static void serve(int fd)
{
	char err[256] = "", byte;
	struct drive *d;

	setenv("ROOST_PORT", "udp:" ADDRESS, 1);
	if (drive_get(&ops, &d, err, sizeof(err)))
		child_fails(err);
	while (read(fd, &byte, 1) == 1) {
		int rc = drive_gsi_listen(d, SERVICE, &addr, 0);

		CHECK(write(fd, &rc, sizeof(rc)) == sizeof(rc));
	}
}

/* ---- in the test ---- */

struct program {
	pid_t pid;
	int fd;
};

static struct program start(void)
{
	struct program p;

	p.pid = child_start(serve, &p.fd);
	return p;
}

static int listens(const struct program *p)
{
	int rc;

	assert_int_equal(write(p->fd, "", 1), 1);
	assert_int_equal(read(p->fd, &rc, sizeof(rc)), sizeof(rc));
	return rc;
}

static void each_interface_has_its_listener(void **state)
{
	struct program p[3] = {start()};

	assert_int_equal(listens(&p[0]), 0);
	assert_true(network_remove6("tun0", ADDRESS) && network_add6("tun1", ADDRESS));
	for (unsigned i = 1; i < 3; i++)
		p[i] = start();
	assert_int_equal(listens(&p[1]), 0);
	assert_int_equal(listens(&p[2]), -EADDRINUSE);
	for (unsigned i = 0; i < 3; i++)
		child_finish(&p[i].pid, p[i].fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(each_interface_has_its_listener)};

	if (pkt_addr_parse(ADDRESS, &addr) || !network_own() || network_link("tun0", ADDRESS) < 0 ||
	    network_link("tun1", "fe80::85:2") < 0) {
		printf("skipped: no network of its own with tunnel devices\n");
		return 77;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
