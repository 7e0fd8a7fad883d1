/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which listener gets a request: wildcards of both families, alone and together, and addresses that
 * the NIC gets later. The process is in a network of its own, with 127.0.0.0/8 and ::1.
 */
#include "fixture.h"
#include "../common/network.h"

#define FIRST 0x7f000002
#define LATER 0x7f000003

/* Creates an id and sets RDMA_OPTION_ID_AFONLY to 0 or 1; -1: does not set it. */
static struct rdma_cm_id *make_id(struct rdma_event_channel *ch, int af_only)
{
	struct rdma_cm_id *id;

	assert_int_equal(rdma_create_id(ch, &id, NULL, RDMA_PS_TCP), 0);
	if (af_only >= 0)
		assert_int_equal(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY,
						 &af_only, sizeof(af_only)),
				 0);
	return id;
}

static struct rdma_cm_id *listen_at(struct rdma_event_channel *ch, union address at, int af_only)
{
	struct rdma_cm_id *id = make_id(ch, af_only);

	assert_int_equal(rdma_bind_addr(id, &at.sa), 0);
	assert_int_equal(rdma_listen(id, 0), 0);
	return id;
}

/*
 * Connects to the address. The listener of this channel must get the request, and refuses it. NULL:
 * no listener gets it.
 */
static void heard_by(struct rdma_event_channel *lch, union address to)
{
	struct rdma_conn_param param = {.qp_num = 5};
	struct rdma_event_channel *ach = channel();
	struct rdma_cm_id *a = resolved_to(ach, RDMA_PS_TCP, to);
	struct rdma_cm_event *e;

	assert_int_equal(rdma_connect(a, &param), 0);
	if (lch) {
		e = next_event(lch, RDMA_CM_EVENT_CONNECT_REQUEST);
		assert_int_equal(rdma_get_local_addr(e->id)->sa_family, to.sa.sa_family);
		assert_int_equal(rdma_get_peer_addr(e->id)->sa_family, to.sa.sa_family);
		assert_int_equal(rdma_reject(e->id, NULL, 0), 0);
		assert_int_equal(rdma_destroy_id(e->id), 0);
		assert_int_equal(rdma_ack_cm_event(e), 0);
	}
	assert_int_equal(expect(ach, RDMA_CM_EVENT_REJECTED), lch ? 28 : 8);
	assert_int_equal(rdma_destroy_id(a), 0);
	rdma_destroy_event_channel(ach);
}

/*
 * drivers/infiniband/core/cma.c, cma_check_port(): a wildcard of IPv6 includes IPv4, unless the
 * option AFONLY is set.
 */
static void wildcards_of_both_families_share_a_port(void **state)
{
	struct rdma_event_channel *ch4 = channel(), *ch6 = channel();
	struct rdma_cm_id *l4, *l6;
	union address at;
	uint16_t port;

	for (int six_first = 0; six_first < 2; six_first++) {
		if (six_first) {
			l6 = listen_at(ch6, any6(0), 1);
			port = port_of(l6);
			l4 = listen_at(ch4, any4(port), -1);
		} else {
			l4 = listen_at(ch4, any4(0), -1);
			port = port_of(l4);
			l6 = listen_at(ch6, any6(port), 1);
		}
		heard_by(ch4, at4(FIRST, port));
		heard_by(ch6, at6(port));
		rdma_destroy_id(six_first ? l4 : l6);
		rdma_destroy_id(six_first ? l6 : l4);
	}
	/* Both would get requests over IPv4. */
	l4 = listen_at(ch4, any4(0), -1);
	l6 = make_id(ch6, 0);
	at = any6(port_of(l4));
	REFUSED(rdma_bind_addr(l6, &at.sa), EADDRINUSE);
	rdma_destroy_id(l4);
	assert_int_equal(rdma_bind_addr(l6, &at.sa), 0);
	l4 = make_id(ch4, -1);
	at = any4(port_of(l6));
	REFUSED(rdma_bind_addr(l4, &at.sa), EADDRINUSE);
	at = at4(FIRST, port_of(l6));
	REFUSED(rdma_bind_addr(l4, &at.sa), EADDRINUSE);
	rdma_destroy_id(l4);
	rdma_destroy_id(l6);
	rdma_destroy_event_channel(ch4);
	rdma_destroy_event_channel(ch6);
}

static void a_wildcard_of_ipv6_hears_ipv4_too_unless_told_not_to(void **state)
{
	struct rdma_event_channel *ch = channel();
	struct rdma_cm_id *l = listen_at(ch, any6(0), 0);

	heard_by(ch, at4(FIRST, port_of(l)));
	heard_by(ch, at6(port_of(l)));
	rdma_destroy_id(l);
	l = listen_at(ch, any6(0), 1);
	heard_by(NULL, at4(FIRST, port_of(l)));
	heard_by(ch, at6(port_of(l)));
	rdma_destroy_id(l);
	rdma_destroy_event_channel(ch);
}

static void a_wildcard_of_ipv4_hears_ipv4(void **state)
{
	struct rdma_event_channel *ch = channel();
	struct rdma_cm_id *l = listen_at(ch, any4(0), -1);

	heard_by(ch, at4(FIRST, port_of(l)));
	heard_by(NULL, at6(port_of(l)));
	rdma_destroy_id(l);
	rdma_destroy_event_channel(ch);
}

static void addresses_that_come_later_are_heard(void **state)
{
	struct rdma_event_channel *ch = channel();
	struct rdma_cm_id *l = listen_at(ch, any4(0), -1), *other;

	other = listener(ch, RDMA_PS_TCP, at4(LATER, 0), 0);
	heard_by(ch, at4(LATER, port_of(l)));
	heard_by(ch, at4(FIRST, port_of(l)));
	/* A listener on the exact address gets the request first. */
	heard_by(ch, at4(LATER, port_of(other)));
	heard_by(NULL, at4(FIRST, port_of(other)));
	rdma_destroy_id(other);
	rdma_destroy_id(l);
	rdma_destroy_event_channel(ch);
}

/* Runs first, while the NIC has only one address, of IPv4. */
static void a_wildcard_of_ipv6_brings_up_an_address_of_ipv6(void **state)
{
	struct rdma_event_channel *ch = channel();
	struct ibv_context **list = rdma_get_devices(NULL);
	struct ibv_port_attr attr;
	union ibv_gid gid;
	struct rdma_cm_id *l;

	assert_int_equal(ibv_query_port(list[0], 1, &attr), 0);
	assert_int_equal(attr.gid_tbl_len, 1);
	l = listen_at(ch, any6(0), 0);
	assert_int_equal(ibv_query_port(list[0], 1, &attr), 0);
	assert_int_equal(attr.gid_tbl_len, 2);
	assert_int_equal(ibv_query_gid(list[0], 1, 1, &gid), 0);
	assert_memory_equal(gid.raw, &in6addr_loopback, sizeof(gid.raw));
	heard_by(ch, at6(port_of(l)));
	rdma_destroy_id(l);
	rdma_free_devices(list);
	rdma_destroy_event_channel(ch);
}

/*
 * cma_any_addr() of the same file: a loopback address is bound like a wildcard, without a device,
 * once the NIC has an address that other hosts reach. This does not apply to a loopback address
 * that the NIC has, nor to destinations. Runs last, because the NIC keeps the address.
 */
static void loopback_has_no_device_when_others_reach_the_nic(void **state)
{
	union address outside = at4(0x0a090807, 0), loopback = at4(0x7f000009, 0),
		      ours = at4(FIRST, 0);
	struct rdma_event_channel *ch = channel(), *ach = channel();
	struct rdma_cm_id *first, *l, *own, *a;
	const char *kind = getenv("RDMACM_TEST_PORT");
	uint16_t port;

	if (!kind || strcmp(kind, "shm") != 0) {
		rdma_destroy_event_channel(ch);
		rdma_destroy_event_channel(ach);
		print_message(
			"SKIPPED: this network has no address for udp that others reach; over shm this runs\n");
		skip();
	}
	first = make_id(ch, -1);
	l = make_id(ch, -1);
	own = make_id(ch, -1);
	assert_int_equal(rdma_bind_addr(first, &outside.sa), 0);
	assert_int_equal(rdma_bind_addr(l, &loopback.sa), 0);
	assert_null(l->verbs);
	port = port_of(l);
	assert_int_equal(rdma_listen(l, 0), 0);
	heard_by(ch, at4(FIRST, port));
	heard_by(ch, at4(0x0a090807, port));
	assert_int_equal(rdma_bind_addr(own, &ours.sa), 0);
	assert_non_null(own->verbs);
	a = resolved_to(ach, RDMA_PS_TCP, at4(0x7f000009, port));
	assert_memory_equal(&((struct sockaddr_in *)rdma_get_peer_addr(a))->sin_addr,
			    &loopback.in.sin_addr, 4);
	rdma_destroy_id(a);
	rdma_destroy_id(own);
	rdma_destroy_id(l);
	rdma_destroy_id(first);
	rdma_destroy_event_channel(ch);
	rdma_destroy_event_channel(ach);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_wildcard_of_ipv6_brings_up_an_address_of_ipv6),
		cmocka_unit_test(wildcards_of_both_families_share_a_port),
		cmocka_unit_test(a_wildcard_of_ipv6_hears_ipv4_too_unless_told_not_to),
		cmocka_unit_test(a_wildcard_of_ipv4_hears_ipv4),
		cmocka_unit_test(addresses_that_come_later_are_heard),
		cmocka_unit_test(loopback_has_no_device_when_others_reach_the_nic),
	};
	const char *kind = getenv("RDMACM_TEST_PORT");
	char spec[32];

	if (!network_own()) {
		fprintf(stderr, "SKIPPED: no network namespace with an IPv6 loopback\n");
		return 77;
	}
	snprintf(spec, sizeof(spec), "%s:127.0.0.2", kind ? kind : "udp");
	setenv("ROOST_PORT", spec, 1);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
