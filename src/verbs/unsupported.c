/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Verbs that this device does not have. They fail with EOPNOTSUPP, and the device does not
 * advertise them. If a member of struct verbs_context is NULL, the header's inline function fails
 * with EOPNOTSUPP. This file fills in the members that programs call without a check.
 */
#include "verbs/objects.h"

/* ---- pointers of the context ---- */

static void *no_compat(void)
{
	return verbs_null(EOPNOTSUPP);
}

static int no_close_xrcd(struct ibv_xrcd *xrcd)
{
	return verbs_ret(-EOPNOTSUPP);
}

int ibv_query_port(struct ibv_context *context, uint8_t port_num,
		   struct _compat_ibv_port_attr *port_attr);

void verbs_unsupported_init(struct verbs_context *v)
{
	struct ibv_context_ops *ops = &v->context.ops;

	v->close_xrcd = no_close_xrcd;
	/* Old headers have these members in the table. */
	ops->_compat_query_device = ibv_query_device;
	ops->_compat_query_port = ibv_query_port;
	ops->_compat_alloc_pd = no_compat;
	ops->_compat_dealloc_pd = no_compat;
	ops->_compat_reg_mr = no_compat;
	ops->_compat_rereg_mr = no_compat;
	ops->_compat_dereg_mr = no_compat;
	ops->_compat_create_cq = no_compat;
	ops->_compat_cq_event = no_compat;
	ops->_compat_resize_cq = no_compat;
	ops->_compat_destroy_cq = no_compat;
	ops->_compat_create_srq = no_compat;
	ops->_compat_modify_srq = no_compat;
	ops->_compat_query_srq = no_compat;
	ops->_compat_destroy_srq = no_compat;
	ops->_compat_create_qp = no_compat;
	ops->_compat_query_qp = no_compat;
	ops->_compat_modify_qp = no_compat;
	ops->_compat_destroy_qp = no_compat;
	ops->_compat_create_ah = no_compat;
	ops->_compat_destroy_ah = no_compat;
	ops->_compat_attach_mcast = no_compat;
	ops->_compat_detach_mcast = no_compat;
	ops->_compat_async_event = no_compat;
}

/* ---- exported functions ---- */

VERBS_EXPORT struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length,
					      uint64_t iova, int fd, int access)
{
	return verbs_null(EOPNOTSUPP);
}

VERBS_EXPORT struct ibv_dm *ibv_import_dm(struct ibv_context *context, uint32_t dm_handle)
{
	return verbs_null(EOPNOTSUPP);
}

VERBS_EXPORT void ibv_unimport_dm(struct ibv_dm *dm)
{
}

/* Has nothing to resolve: the layer below is the host's network stack. */
VERBS_EXPORT int ibv_resolve_eth_l2_from_gid(struct ibv_context *context, struct ibv_ah_attr *attr,
					     uint8_t eth_mac[ETHERNET_LL_SIZE], uint16_t *vid)
{
	return verbs_ret(-EOPNOTSUPP);
}

/* Provider libraries call it when they are loaded. It has had no effect since rdma-core 1. */
typedef struct ibv_device *(*ibv_driver_init_func)(const char *uverbs_sys_path, int abi_version);
VERBS_EXPORT void ibv_register_driver(const char *name, ibv_driver_init_func init_func);

void ibv_register_driver(const char *name, ibv_driver_init_func init_func)
{
}
