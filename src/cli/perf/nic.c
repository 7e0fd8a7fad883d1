/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The device of `roost perf`, through the standard verbs. The counters come from the engine, since
 * the verbs do not return them.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cli/perf/perf.h"
#include "drive/drive.h"
#include "nic/nic.h"
#include "verbs/host.h"

#define READS 16 /* READs and atomics in progress on a queue pair of perf_nic_connect() */

enum ibv_mtu perf_mtu_code(uint64_t bytes)
{
	switch (bytes) {
	case 256:
		return IBV_MTU_256;
	case 512:
		return IBV_MTU_512;
	case 1024:
		return IBV_MTU_1024;
	case 2048:
		return IBV_MTU_2048;
	case 4096:
		return IBV_MTU_4096;
	default:
		return 0;
	}
}

static void print_gid(const union ibv_gid *gid, char *buf, size_t n)
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

	if (memcmp(gid->raw, mapped, sizeof(mapped)) == 0)
		inet_ntop(AF_INET, gid->raw + 12, buf, (socklen_t)n);
	else
		inet_ntop(AF_INET6, gid->raw, buf, (socklen_t)n);
}

static int query(struct perf_nic *nic)
{
	struct ibv_device_attr dev;
	struct ibv_port_attr port;
	int rc;

	rc = ibv_query_device(nic->ctx, &dev);
	if (rc == 0)
		rc = ibv_query_port(nic->ctx, 1, &port);
	if (rc != 0) {
		snprintf(nic->err, sizeof(nic->err), "can't query the device: %s",
			 strerror(rc < 0 ? errno : rc));
		return -EIO;
	}
	if (ibv_query_gid(nic->ctx, 1, 0, &nic->gid) != 0) {
		snprintf(nic->err, sizeof(nic->err), "the port has no address (GID 0)");
		return -EADDRNOTAVAIL;
	}
	nic->mtu = 128u << port.active_mtu;
	nic->max_wr = (uint32_t)dev.max_qp_wr;
	nic->max_rd_atomic = (uint32_t)(dev.max_qp_rd_atom < 255 ? dev.max_qp_rd_atom : 255);
	print_gid(&nic->gid, nic->address, sizeof(nic->address));
	return 0;
}

int perf_nic_open(struct perf_nic *nic)
{
	struct ibv_device **list;
	int n = 0, rc = 0;

	memset(nic, 0, sizeof(*nic));
	/*
	 * Opens the engine first, since it describes in one line why a port cannot be opened; the
	 * verbs return only errno.
	 */
	rc = drive_get(&verbs_host_ops, &nic->drive, nic->err, sizeof(nic->err));
	if (rc < 0)
		return rc;
	list = ibv_get_device_list(&n);
	if (list && n > 0)
		nic->ctx = ibv_open_device(list[0]);
	if (!nic->ctx)
		rc = errno ? -errno : -ENODEV;
	if (list)
		ibv_free_device_list(list);
	if (!nic->ctx) {
		snprintf(nic->err, sizeof(nic->err), "can't open the device: %s", strerror(-rc));
		return rc;
	}
	nic->pd = ibv_alloc_pd(nic->ctx);
	if (!nic->pd) {
		snprintf(nic->err, sizeof(nic->err), "can't allocate a protection domain: %s",
			 strerror(errno));
		return -EIO;
	}
	return query(nic);
}

void perf_nic_close(struct perf_nic *nic)
{
	if (nic->pd)
		ibv_dealloc_pd(nic->pd);
	if (nic->ctx)
		ibv_close_device(nic->ctx);
	if (nic->drive)
		drive_put(nic->drive);
	nic->pd = NULL;
	nic->ctx = NULL;
	nic->drive = NULL;
}

void perf_nic_counters(const struct perf_nic *nic, struct nic_counters *now)
{
	struct nic *core = drive_nic(nic->drive);

	/*
	 * Owns all PUs, so that the counters are exact. Otherwise the values may be one turn old.
	 */
	for (unsigned pu = 0; pu < nic_pus(core); pu++)
		drive_own(nic->drive, pu);
	nic_counters(core, now);
	for (unsigned pu = 0; pu < nic_pus(core); pu++)
		drive_disown(nic->drive, pu);
}

json_t *perf_counters_since(const struct perf_nic *nic, const struct nic_counters *before)
{
	struct nic_counters now;
	uint64_t a[NIC_COUNTER_COUNT], b[NIC_COUNTER_COUNT];
	json_t *obj = json_object();

	perf_nic_counters(nic, &now);
	memcpy(a, before, sizeof(a));
	memcpy(b, &now, sizeof(b));
	for (size_t i = 0; i < NIC_COUNTER_COUNT; i++) {
		if (b[i] != a[i])
			json_object_set_new(obj, nic_counter_info[i].name,
					    json_integer((json_int_t)(b[i] - a[i])));
	}
	return obj;
}

uint64_t perf_counter(const json_t *counters, const char *name)
{
	return (uint64_t)json_integer_value(json_object_get(counters, name));
}

int perf_nic_connect(struct ibv_qp *qp, uint32_t to, const uint8_t *gid, int access)
{
	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = (unsigned)access};
	int rc = ibv_modify_qp(
		qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);

	a = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = to,
		.max_dest_rd_atomic = READS,
		.min_rnr_timer = 1,
		.ah_attr = {.is_global = 1, .port_num = 1, .grh = {.hop_limit = 64}}};
	memcpy(&a.ah_attr.grh.dgid, gid, 16);
	if (!rc)
		rc = ibv_modify_qp(qp, &a,
				   IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
					   IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
					   IBV_QP_MIN_RNR_TIMER);
	a = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS,
				 .timeout = 14,
				 .retry_cnt = 7,
				 .rnr_retry = 7,
				 .max_rd_atomic = READS};
	if (!rc)
		rc = ibv_modify_qp(qp, &a,
				   IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
					   IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
					   IBV_QP_MAX_QP_RD_ATOMIC);
	return rc;
}
