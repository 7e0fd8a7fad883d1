/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Attributes of the device and its ports, and its GID and P_Key tables. They list only features
 * that are built and tested.
 */
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/log.h"
#include "verbs/objects.h"

#define PAGE_SIZES   0xfffff000u  /* 4 KiB and every power of two above */
#define MAX_MR_SIZE  (1ull << 47) /* the user half of the address space */
#define MAX_CQ	     65536
#define MAX_PD	     65536
#define CLOCK_KHZ    1000000 /* time stamps are nanoseconds */
#define PHYS_LINK_UP 5

/*
 * The verbs require a link speed, and software has no lanes. 4X at 10 Gbit/s is about the rate that
 * a UDP loopback reaches.
 */
#define ACTIVE_WIDTH 2
#define ACTIVE_SPEED 8

/* Values of enum ibv_gid_type_sysfs in rdma-core's private header. */
enum { GID_TYPE_SYSFS_IB_ROCE_V1, GID_TYPE_SYSFS_ROCE_V2 };

static void fill_device(struct nic *nic, struct ibv_device_attr *a)
{
	memset(a, 0, sizeof(*a));
	snprintf(a->fw_ver, sizeof(a->fw_ver), "%s", ROOST_VERSION);
	a->node_guid = verbs_device_guid();
	a->sys_image_guid = a->node_guid;
	a->max_mr_size = MAX_MR_SIZE;
	a->page_size_cap = PAGE_SIZES;
	a->vendor_id = VERBS_VENDOR_ID;
	a->vendor_part_id = VERBS_PART_ID;
	a->max_qp = NIC_MAX_QPS;
	a->max_qp_wr = NIC_MAX_WR;
	a->device_cap_flags = IBV_DEVICE_RC_RNR_NAK_GEN | IBV_DEVICE_CURR_QP_STATE_MOD |
			      IBV_DEVICE_SRQ_RESIZE | IBV_DEVICE_MEM_WINDOW |
			      IBV_DEVICE_MEM_WINDOW_TYPE_2B;
	a->max_sge = ROOST_MAX_SGE;
	a->max_sge_rd = ROOST_MAX_SGE;
	a->max_cq = MAX_CQ;
	a->max_cqe = NIC_MAX_CQE;
	a->max_mr = NIC_MAX_MRS;
	a->max_mw = NIC_MAX_MRS; /* regions and windows share one table */
	a->max_pd = MAX_PD;
	a->max_mcast_grp = NIC_MAX_GROUPS;
	a->max_mcast_qp_attach = NIC_MAX_GROUP_QPS;
	a->max_total_mcast_qp_attach = NIC_MAX_GROUPS * NIC_MAX_GROUP_QPS;
	a->max_ah = NIC_MAX_AHS;
	a->max_srq = NIC_MAX_SRQS;
	a->max_srq_wr = NIC_MAX_WR;
	a->max_srq_sge = ROOST_MAX_SGE;
	a->max_qp_rd_atom = NIC_MAX_RD_ATOMIC;
	a->max_res_rd_atom = NIC_MAX_RD_ATOMIC * NIC_MAX_QPS;
	a->max_qp_init_rd_atom = NIC_MAX_RD_ATOMIC;
	/*
	 * The atomics are those of the CPU, so GLOB would be true. rxe and mlx5 say HCA
	 * (rxe_param.h, mlx5_ib_query_device()), and programs compare for equality: UCX's rc_verbs
	 * offers no atomics otherwise (uct_ib_device_init()).
	 */
	a->atomic_cap = IBV_ATOMIC_HCA;
	a->max_pkeys = 1;
	a->phys_port_cnt = (uint8_t)nic_port_nums(nic);
}

VERBS_EXPORT int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
	fill_device(verbs_ctx(context)->nic, attr);
	return 0;
}

int verbs_query_device_ex(struct ibv_context *ctx, const struct ibv_query_device_ex_input *input,
			  struct ibv_device_attr_ex *attr, size_t attr_size)
{
	struct ibv_device_attr_ex ex;

	if ((input && input->comp_mask) || attr_size < sizeof(ex.orig_attr))
		return verbs_ret(-EINVAL);
	memset(&ex, 0, sizeof(ex));
	fill_device(verbs_ctx(ctx)->nic, &ex.orig_attr);
	ex.completion_timestamp_mask = UINT64_MAX;
	ex.hca_core_clock = CLOCK_KHZ;
	ex.device_cap_flags_ex = ex.orig_attr.device_cap_flags;
	ex.phys_port_cnt_ex = ex.orig_attr.phys_port_cnt;
	/* A newer caller may have a longer struct, and an older one a shorter one. */
	memset(attr, 0, attr_size);
	memcpy(attr, &ex, attr_size < sizeof(ex) ? attr_size : sizeof(ex));
	return 0;
}

int verbs_query_rt_values(struct ibv_context *ctx, struct ibv_values_ex *values)
{
	uint32_t asked = values->comp_mask;
	uint64_t now;

	values->comp_mask = 0;
	if (asked & IBV_VALUES_MASK_RAW_CLOCK) {
		now = drive_now(verbs_ctx(ctx)->drive);
		values->raw_clock.tv_sec = (time_t)(now / 1000000000);
		values->raw_clock.tv_nsec = (long)(now % 1000000000);
		values->comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
	}
	return 0;
}

/* Returns NULL if the port does not exist or has no address of this index. Ports count from 1. */
static const struct port *find_port(struct ibv_context *ctx, uint32_t port_num, uint32_t index)
{
	struct nic *nic = verbs_ctx(ctx)->nic;
	struct nic_gid gid;

	return nic_gid(nic, port_num, index, &gid) ? nic_port(nic, gid.port, 0) : NULL;
}

/*
 * Returns the largest path MTU that all addresses of the port support. Interfaces have different
 * MTUs, but a port shows only one.
 */
static uint32_t mtu_of_all(struct ibv_context *ctx, uint8_t port_num, unsigned gids)
{
	uint32_t mtu = PKT_MAX_PAYLOAD;

	for (unsigned i = 0; i < gids; i++) {
		const struct port *port = find_port(ctx, port_num, i);

		if (port->mtu < mtu)
			mtu = port->mtu;
	}
	return mtu;
}

static int fill_port(struct ibv_context *ctx, uint8_t port_num, struct ibv_port_attr *a)
{
	unsigned gids = nic_gids(verbs_ctx(ctx)->nic, port_num);

	if (!gids)
		return -EINVAL;
	memset(a, 0, sizeof(*a));
	a->state = IBV_PORT_ACTIVE;
	a->max_mtu = (enum ibv_mtu)(log2_floor(mtu_of_all(ctx, port_num, gids)) - 7);
	a->active_mtu = a->max_mtu;
	a->gid_tbl_len = (int)gids;
	a->port_cap_flags = IBV_PORT_IP_BASED_GIDS;
	a->max_msg_sz = NIC_MAX_MSG;
	a->pkey_tbl_len = 1;
	a->max_vl_num = 1;
	a->active_width = ACTIVE_WIDTH;
	a->active_speed = ACTIVE_SPEED;
	a->phys_state = PHYS_LINK_UP;
	a->link_layer = IBV_LINK_LAYER_ETHERNET;
	a->flags = IBV_QPF_GRH_REQUIRED;
	return 0;
}

int verbs_query_port(struct ibv_context *ctx, uint8_t port_num, struct ibv_port_attr *attr,
		     size_t len)
{
	struct ibv_port_attr a;
	int ret = fill_port(ctx, port_num, &a);

	if (ret)
		return verbs_ret(ret);
	memset(attr, 0, len);
	memcpy(attr, &a, len < sizeof(a) ? len : sizeof(a));
	return 0;
}

/* Programs built with old headers pass a shorter struct, without the last member. */
#define OLD_PORT_ATTR_SIZE 48
_Static_assert(offsetof(struct ibv_port_attr, port_cap_flags2) == OLD_PORT_ATTR_SIZE,
	       "old struct ibv_port_attr");

VERBS_EXPORT int ibv_query_port(struct ibv_context *context, uint8_t port_num,
				struct _compat_ibv_port_attr *port_attr)
{
	return verbs_query_port(context, port_num, (struct ibv_port_attr *)port_attr,
				OLD_PORT_ATTR_SIZE);
}

void verbs_no_gid(struct ibv_context *ctx, uint32_t port_num, uint32_t index)
{
	static atomic_flag logged = ATOMIC_FLAG_INIT;
	const struct port *port = find_port(ctx, port_num, 0);
	unsigned gids = nic_gids(verbs_ctx(ctx)->nic, port_num);
	char text[46];

	if (!port || index < gids || atomic_flag_test_and_set(&logged))
		return;
	log_error(
		"no GID of index %u: port %u has %u, from index 0 on, which is %s (RoCE v2): name index 0, as in "
		"ib_write_bw -x 0 or UCX_IB_GID_INDEX=0",
		(unsigned)index, (unsigned)port_num, gids,
		pkt_addr_print(&port->addr, text, sizeof(text)));
}

static const struct pkt_addr *find_gid(struct ibv_context *ctx, uint32_t port_num, uint32_t index)
{
	const struct port *port = find_port(ctx, port_num, index);

	return port ? &port->addr : NULL;
}

VERBS_EXPORT int ibv_query_gid(struct ibv_context *context, uint8_t port_num, int index,
			       union ibv_gid *gid)
{
	const struct pkt_addr *addr = find_gid(context, port_num, (uint32_t)index);

	if (!addr) {
		verbs_no_gid(context, port_num, (uint32_t)index);
		errno = EINVAL;
		return -1;
	}
	memcpy(gid->raw, addr->b, sizeof(gid->raw));
	return 0;
}

uint32_t verbs_interface_of(const struct pkt_addr *addr)
{
	bool loopback = pkt_addr_is_v4(addr) && addr->b[12] == 127;
	struct ifaddrs *list, *i;
	uint32_t index = 0;
	const void *have;

	if (getifaddrs(&list))
		return 0;
	for (i = list; i && !index; i = i->ifa_next) {
		if (!i->ifa_addr)
			continue;
		if (i->ifa_addr->sa_family == AF_INET && pkt_addr_is_v4(addr)) {
			have = &((const struct sockaddr_in *)(const void *)i->ifa_addr)->sin_addr;
			if (!memcmp(have, addr->b + 12, loopback ? 1 : 4))
				index = if_nametoindex(i->ifa_name);
		} else if (i->ifa_addr->sa_family == AF_INET6) {
			have = &((const struct sockaddr_in6 *)(const void *)i->ifa_addr)->sin6_addr;
			if (!memcmp(have, addr->b, 16))
				index = if_nametoindex(i->ifa_name);
		}
	}
	freeifaddrs(list);
	return index;
}

static int fill_gid_entry(struct ibv_context *ctx, uint32_t port_num, uint32_t index,
			  struct ibv_gid_entry *e)
{
	const struct pkt_addr *addr = find_gid(ctx, port_num, index);

	if (!addr)
		return -EINVAL;
	memset(e, 0, sizeof(*e));
	memcpy(e->gid.raw, addr->b, sizeof(e->gid.raw));
	e->gid_index = index;
	e->port_num = port_num;
	e->gid_type = IBV_GID_TYPE_ROCE_V2;
	e->ndev_ifindex = verbs_interface_of(addr);
	return 0;
}

static void copy_gid_entry(void *to, size_t size, const struct ibv_gid_entry *e)
{
	memset(to, 0, size);
	memcpy(to, e, size < sizeof(*e) ? size : sizeof(*e));
}

VERBS_EXPORT int _ibv_query_gid_ex(struct ibv_context *context, uint32_t port_num,
				   uint32_t gid_index, struct ibv_gid_entry *entry, uint32_t flags,
				   size_t entry_size)
{
	struct ibv_gid_entry e;
	int ret;

	if (flags)
		return verbs_ret(-EOPNOTSUPP);
	ret = fill_gid_entry(context, port_num, gid_index, &e);
	if (ret) {
		verbs_no_gid(context, port_num, gid_index);
		return verbs_ret(ret);
	}
	copy_gid_entry(entry, entry_size, &e);
	return 0;
}

/* Returns the number of entries, or -errno. */
VERBS_EXPORT ssize_t _ibv_query_gid_table(struct ibv_context *context,
					  struct ibv_gid_entry *entries, size_t max_entries,
					  uint32_t flags, size_t entry_size)
{
	uint32_t ports = nic_port_nums(verbs_ctx(context)->nic), port, index;
	struct ibv_gid_entry e;
	size_t n = 0;

	if (flags)
		return -EOPNOTSUPP;
	for (port = 1; port <= ports; port++) {
		for (index = 0; fill_gid_entry(context, port, index, &e) == 0; index++) {
			if (n == max_entries)
				return -EINVAL;
			copy_gid_entry((char *)entries + n++ * entry_size, entry_size, &e);
		}
	}
	return (ssize_t)n;
}

VERBS_EXPORT int ibv_query_gid_type(struct ibv_context *context, uint8_t port_num,
				    unsigned int index, int *type);

/* This function is private to rdma-core, but ibv_devinfo calls it. */
int ibv_query_gid_type(struct ibv_context *context, uint8_t port_num, unsigned int index, int *type)
{
	if (!find_gid(context, port_num, index)) {
		errno = EINVAL;
		return -1;
	}
	*type = GID_TYPE_SYSFS_ROCE_V2;
	return 0;
}

VERBS_EXPORT int ibv_query_pkey(struct ibv_context *context, uint8_t port_num, int index,
				__be16 *pkey)
{
	if (!find_port(context, port_num, 0) || index != 0) {
		errno = EINVAL;
		return -1;
	}
	*pkey = htobe16(PKT_PKEY_DEFAULT);
	return 0;
}

VERBS_EXPORT int ibv_get_pkey_index(struct ibv_context *context, uint8_t port_num, __be16 pkey)
{
	__be16 have;

	if (ibv_query_pkey(context, port_num, 0, &have) || have != pkey) {
		errno = EINVAL;
		return -1;
	}
	return 0;
}
