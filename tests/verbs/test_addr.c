/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A device with several addresses: queries after an address was added to the open device, traffic
 * by all addresses, and addresses that cannot be opened.
 */
#include "fixture.h"
#include "verbs/objects.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

/* An address of this process's own block of loopback addresses (choose_port): 127.a.b.(c + n). */
static struct pkt_addr nth(const struct ibv_context *ctx, unsigned n)
{
	struct pkt_addr a =
		nic_port(verbs_ctx((struct ibv_context *)(uintptr_t)ctx)->nic, 0, 0)->addr;

	a.b[13] = (uint8_t)(a.b[13] ^ 0x80); /* the half that no other test uses */
	a.b[12] = 127;
	a.b[15] = (uint8_t)(1 + (a.b[15] + n) % 254);
	return a;
}

static int add(struct ibv_context *ctx, const struct pkt_addr *addr, struct drive_addr *where)
{
	char err[256] = "";
	int rc = drive_add_addr(verbs_ctx(ctx)->drive, addr, where, err, sizeof(err));

	assert_true(rc == 0 || err[0]);
	return rc;
}

static void gid_table(void **state)
{
	struct ibv_context *ctx = open_device();
	struct pkt_addr first = nth(ctx, 1), second = nth(ctx, 2);
	struct ibv_port_attr attr;
	struct ibv_gid_entry e[4];
	struct drive_addr where;
	union ibv_gid gid;

	assert_int_equal(verbs_query_port(ctx, 1, &attr, sizeof(attr)), 0);
	assert_int_equal(attr.gid_tbl_len, 1);
	assert_int_equal(ibv_query_gid(ctx, 1, 1, &gid), -1);
	assert_int_equal(add(ctx, &first, &where), 0);
	assert_int_equal(where.gid_index, 1);
	assert_int_equal(add(ctx, &second, &where), 0);
	assert_int_equal(where.port_num, 1);
	assert_int_equal(where.gid_index, 2);
	assert_int_equal(verbs_query_port(ctx, 1, &attr, sizeof(attr)), 0);
	assert_int_equal(attr.gid_tbl_len, 3);
	assert_int_equal(ibv_query_gid(ctx, 1, 2, &gid), 0);
	assert_memory_equal(gid.raw, second.b, 16);
	assert_int_equal(ibv_query_gid(ctx, 1, 3, &gid), -1);
	assert_int_equal(ibv_query_gid_table(ctx, e, 2, 0), -EINVAL);
	assert_int_equal(ibv_query_gid_table(ctx, e, 4, 0), 3);
	assert_int_equal(e[1].gid_index, 1);
	assert_memory_equal(e[1].gid.raw, first.b, 16);
	assert_int_equal(ibv_close_device(ctx), 0);
	/* A new engine has one address again. */
	ctx = open_device();
	assert_int_equal(verbs_query_port(ctx, 1, &attr, sizeof(attr)), 0);
	assert_int_equal(attr.gid_tbl_len, 1);
	assert_int_equal(ibv_close_device(ctx), 0);
}

/* Brings one side from RESET to RTS with a source GID, to the other's address. */
static void connect_side(struct pair *p, int side, uint8_t sgid, uint8_t dgid)
{
	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = p->qp[!side]->qp_num,
		.rq_psn = 100,
		.max_dest_rd_atomic = 4,
		.min_rnr_timer = 1,
		.ah_attr = {.is_global = 1,
			    .port_num = 1,
			    .grh = {.hop_limit = 64, .sgid_index = sgid}},
	};

	assert_int_equal(ibv_query_gid(p->ctx, 1, dgid, &a.ah_attr.grh.dgid), 0);
	assert_int_equal(ibv_modify_qp(p->qp[side], &a,
				       IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
					       IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
					       IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
			 0);
}

static void traffic(struct pair *p)
{
	for (uint32_t n = 1; n <= 16; n++) {
		struct ibv_sge sge;
		struct ibv_send_wr wr = write_wr(p, &sge, n, n * 1000);

		memset(p->buf[0], (int)n, n * 1000);
		assert_int_equal(post_one(p->qp[0], &wr), 0);
		assert_int_equal(wait_good(p->cq[0]).wr_id, n);
		assert_memory_equal(p->buf[0], p->buf[1], n * 1000);
	}
}

/*
 * Traffic between each two of three addresses. The last two are added while the device is in use.
 */
static void traffic_by_all(void **state)
{
	static const struct pair_options raw = {
		.cap = {.max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1},
		.leave_reset = true,
	};
	struct pair busy, p;
	struct drive_addr where;
	struct pkt_addr a;

	pair_open(&busy, NULL);
	for (unsigned n = 1; n <= 2; n++) {
		a = nth(busy.ctx, n);
		assert_int_equal(add(busy.ctx, &a, &where), 0);
		traffic(&busy);
	}
	for (uint8_t x = 0; x < 3; x++) {
		for (uint8_t y = 0; y < 3; y++) {
			pair_open(&p, &raw);
			for (int side = 0; side < 2; side++) {
				assert_int_equal(to_init(&p, side), 0);
				connect_side(&p, side, side ? y : x, side ? x : y);
				assert_int_equal(to_rts(&p, side), 0);
			}
			traffic(&p);
			pair_close(&p);
		}
	}
	pair_close(&busy);
}

static int bind_4791(const struct pkt_addr *a)
{
	struct sockaddr_in sa = {.sin_family = AF_INET, .sin_port = htons(4791)};
	int fd = socket(AF_INET, SOCK_DGRAM, 0);

	memcpy(&sa.sin_addr, a->b + 12, 4);
	assert_int_equal(bind(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
	return fd;
}

static void refused(void **state)
{
	struct ibv_context *ctx = open_device();
	bool udp = strcmp(nic_port(verbs_ctx(ctx)->nic, 0, 0)->ops->name, "udp") == 0;
	struct pkt_addr taken = nth(ctx, 1), unknown, group;
	struct drive_addr where;
	struct ibv_port_attr attr;
	int fd;

	assert_int_equal(pkt_addr_parse("198.51.100.7", &unknown), 0); /* TEST-NET-2 */
	assert_int_equal(pkt_addr_parse("224.0.0.9", &group), 0);
	assert_int_equal(add(ctx, &group, &where), -EINVAL);
	if (udp) { /* shm can open any address */
		assert_int_equal(add(ctx, &unknown, &where), -EADDRNOTAVAIL);
		fd = bind_4791(&taken);
		assert_int_equal(add(ctx, &taken, &where), -EADDRINUSE);
		close(fd);
	}
	assert_int_equal(add(ctx, &taken, &where), 0);
	assert_int_equal(where.gid_index, 1);
	assert_int_equal(verbs_query_port(ctx, 1, &attr, sizeof(attr)), 0);
	assert_int_equal(attr.gid_tbl_len, 2);
	assert_int_equal(ibv_close_device(ctx), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(gid_table),
		cmocka_unit_test(traffic_by_all),
		cmocka_unit_test(refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
