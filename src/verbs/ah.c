/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Address handles: destinations of UD queue pairs. The handle is the NIC's number. ibv_create_ah()
 * may be called like any control call. It waits until the PUs' turns have ended, because it takes
 * paths of their ports.
 */
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include "packet/ip.h"
#include "verbs/objects.h"

static int ah_handle_new(struct verbs_ctx *ctx, const struct nic_ah_attr *attr, uint32_t *handle)
{
	int ret;

	drive_control_lock(ctx->drive);
	verbs_own_all(ctx->drive);
	ret = nic_ah_create(ctx->nic, attr, handle);
	verbs_disown_all(ctx->drive);
	drive_control_unlock(ctx->drive);
	return ret;
}

static void ah_handle_free(struct verbs_ctx *ctx, uint32_t handle)
{
	drive_control_lock(ctx->drive);
	verbs_own_all(ctx->drive);
	for (unsigned i = 0; i < nic_pus(ctx->nic); i++)
		drive_send_datagrams(ctx->drive, i);
	nic_ah_destroy(ctx->nic, handle);
	verbs_disown_all(ctx->drive);
	drive_control_unlock(ctx->drive);
}

VERBS_EXPORT struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
	struct verbs_ctx *ctx = verbs_ctx(pd->context);
	struct nic_ah_attr a = {
		.pd = pd->handle,
		.port = attr->port_num,
		.sgid_index = attr->grh.sgid_index,
		.traffic_class = attr->grh.traffic_class,
	};
	struct verbs_ah *ah;
	int ret;

	if (!attr->is_global) /* RoCE needs a GRH: IBV_QPF_GRH_REQUIRED */
		return verbs_null(EINVAL);
	memcpy(a.dgid.b, attr->grh.dgid.raw, sizeof(a.dgid.b));
	ah = verbs_new(sizeof(*ah));
	if (!ah)
		return NULL;
	ret = ah_handle_new(ctx, &a, &ah->ah.handle);
	if (ret) {
		verbs_no_gid(pd->context, attr->port_num, attr->grh.sgid_index);
		free(ah);
		return verbs_null(-ret);
	}
	ah->ah.context = pd->context;
	ah->ah.pd = pd;
	pthread_mutex_lock(&ctx->lock);
	list_add_tail(&ah->link, &ctx->ahs);
	pthread_mutex_unlock(&ctx->lock);
	return &ah->ah;
}

VERBS_EXPORT int ibv_destroy_ah(struct ibv_ah *ibah)
{
	struct verbs_ah *ah = (struct verbs_ah *)ibah;
	struct verbs_ctx *ctx = verbs_ctx(ibah->context);

	ah_handle_free(ctx, ibah->handle);
	pthread_mutex_lock(&ctx->lock);
	list_del(&ah->link);
	pthread_mutex_unlock(&ctx->lock);
	free(ah);
	return 0;
}

/*
 * Ends the address handles. Their memory stays, because the program still has the objects (as in
 * cq.c).
 */
void verbs_ah_reap(struct verbs_ctx *ctx)
{
	struct verbs_ah *ah;

	while (!list_empty(&ctx->ahs)) {
		ah = list_first_entry(&ctx->ahs, struct verbs_ah, link);
		list_del(&ah->link);
		ah_handle_free(ctx, ah->ah.handle);
	}
}

/*
 * Returns the version of the IP header at the start of a receive buffer: 4, 6, or 0 for neither. An
 * IPv4 header is in the last 20 of the 40 bytes, and the bytes before it may have any value. Only
 * the header's checksum distinguishes it from the middle of an IPv6 header.
 */
static int grh_version(const uint8_t *grh)
{
	const uint8_t *ip4 = grh + IP6_HDR_LEN - IP4_HDR_LEN;
	bool four = ip4[0] == 0x45 && ip_fold16(ip_sum16(0, ip4, IP4_HDR_LEN)) == 0;

	return four ? 4 : grh[0] >> 4 == 6 ? 6 : 0;
}

static int find_gid_index(struct ibv_context *context, uint8_t port_num,
			  const struct pkt_addr *addr)
{
	struct nic_gid gid;

	return nic_gid_of(verbs_ctx(context)->nic, addr, &gid) && gid.port_num == port_num
		       ? (int)gid.index
		       : -1;
}

static void map_v4(struct pkt_addr *to, const uint8_t *ip)
{
	memset(to->b, 0, 10);
	memset(to->b + 10, 0xff, 2);
	memcpy(to->b + 12, ip, 4);
}

/*
 * Fills in the address of a received datagram's sender, for a reply. Returns 0, or -1 with errno
 * set.
 */
VERBS_EXPORT int ibv_init_ah_from_wc(struct ibv_context *context, uint8_t port_num,
				     struct ibv_wc *wc, struct ibv_grh *grh,
				     struct ibv_ah_attr *attr)
{
	const uint8_t *b = (const uint8_t *)grh, *ip4 = b + IP6_HDR_LEN - IP4_HDR_LEN;
	struct pkt_addr us, them;
	int index;

	memset(attr, 0, sizeof(*attr));
	attr->port_num = port_num;
	attr->dlid = wc->slid;
	attr->sl = wc->sl;
	attr->src_path_bits = wc->dlid_path_bits;
	if (!(wc->wc_flags & IBV_WC_GRH))
		return 0;
	attr->is_global = 1;
	switch (grh_version(b)) {
	case 4:
		map_v4(&them, ip4 + 12);
		map_v4(&us, ip4 + 16);
		attr->grh.traffic_class = ip4[1];
		attr->grh.hop_limit = ip4[8];
		break;
	case 6:
		memcpy(them.b, b + 8, sizeof(them.b));
		memcpy(us.b, b + 24, sizeof(us.b));
		attr->grh.traffic_class = (uint8_t)(b[0] << 4 | b[1] >> 4);
		attr->grh.flow_label = be32toh(grh->version_tclass_flow) & 0xfffff;
		attr->grh.hop_limit = b[7];
		break;
	default:
		errno = EPROTONOSUPPORT;
		return -1;
	}
	memcpy(attr->grh.dgid.raw, them.b, sizeof(attr->grh.dgid.raw));
	/* a datagram to the address of a group has no such GID */
	index = find_gid_index(context, port_num, &us);
	if (index < 0) {
		errno = EINVAL;
		return -1;
	}
	attr->grh.sgid_index = (uint8_t)index;
	return 0;
}

VERBS_EXPORT struct ibv_ah *ibv_create_ah_from_wc(struct ibv_pd *pd, struct ibv_wc *wc,
						  struct ibv_grh *grh, uint8_t port_num)
{
	struct ibv_ah_attr attr;

	if (ibv_init_ah_from_wc(pd->context, port_num, wc, grh, &attr))
		return NULL;
	return ibv_create_ah(pd, &attr);
}
