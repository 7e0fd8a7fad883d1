/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Address handles: destinations of UD queue pairs. The control path creates a handle with a
 * destination for each PU. The table of this destination has those of all lanes of the receiver, so
 * sending only indexes an array. All handles of an address share the table. A handle is index (16
 * bits) | tag (16 bits). The NIC checks the handle in a WQE as it checks a key.
 */
#include <stdlib.h>

#include "nic/datagram.h"
#include "nic/dest.h"

#define INDEX_BITS 16
_Static_assert(NIC_MAX_AHS == 1u << INDEX_BITS, "index of a handle");

static void put_paths(struct nic_ah *ah)
{
	for (unsigned pu = 0; pu < NIC_MAX_PUS; pu++)
		if (ah->dest[pu])
			dest_put(ah->dest[pu]);
}

static int get_paths(struct nic *nic, struct nic_ah *ah, unsigned port, const struct pkt_addr *dgid)
{
	for (unsigned pu = 0; pu < nic->cfg.pus; pu++) {
		int rc = dest_get(nic->pus[pu], (uint8_t)port, dgid, PORT_QPN_OF_LANE_KEY(0),
				  &ah->dest[pu]);

		if (!rc)
			rc = dest_make_lanes(ah->dest[pu]);
		if (rc)
			return rc;
	}
	return 0;
}

static int free_index(struct nic *nic, uint32_t *index)
{
	for (uint32_t i = 0; i < NIC_MAX_AHS; i++) {
		*index = nic->ah_hint++ & (NIC_MAX_AHS - 1);
		if (!atomic_load_explicit(&nic->ahs[*index], memory_order_relaxed))
			return 0;
	}
	return -ENOMEM;
}

int nic_ah_create(struct nic *nic, const struct nic_ah_attr *a, uint32_t *handle)
{
	struct nic_gid gid;
	struct nic_ah *ah;
	uint32_t index;
	int rc;

	if (!nic_gid(nic, a->port, a->sgid_index, &gid))
		return -EINVAL;
	rc = free_index(nic, &index);
	if (rc)
		return rc;
	ah = calloc(1, sizeof(*ah));
	if (!ah)
		return -ENOMEM;
	ah->pd = a->pd;
	ah->port_num = a->port;
	ah->mtu = nic_port(nic, gid.port, 0)->mtu;
	ah->tos = a->traffic_class;
	ah->handle = index | (uint32_t)(secret_below(&nic->secret, UINT16_MAX) + 1) << INDEX_BITS;
	rc = get_paths(nic, ah, gid.port, &a->dgid);
	if (!rc && !nic_pd_ref(nic, a->pd))
		rc = -EINVAL;
	if (rc) {
		put_paths(ah);
		free(ah);
		return rc;
	}
	nic->num_ahs++;
	atomic_store_explicit(&nic->ahs[index], ah, memory_order_release);
	*handle = ah->handle;
	return 0;
}

struct nic_ah *ah_find(struct nic *nic, uint32_t handle)
{
	struct nic_ah *ah =
		atomic_load_explicit(&nic->ahs[handle & (NIC_MAX_AHS - 1)], memory_order_acquire);

	return ah && ah->handle == handle ? ah : NULL;
}

int nic_ah_destroy(struct nic *nic, uint32_t handle)
{
	struct nic_ah *ah = ah_find(nic, handle);

	if (!ah)
		return -ENOENT;
	atomic_store_explicit(&nic->ahs[handle & (NIC_MAX_AHS - 1)], NULL, memory_order_release);
	put_paths(ah);
	nic_pd_unref(nic, ah->pd);
	nic->num_ahs--;
	free(ah);
	return 0;
}

void ah_table_fini(struct nic *nic)
{
	for (uint32_t i = 0; i < NIC_MAX_AHS && nic->num_ahs; i++) {
		struct nic_ah *ah = atomic_load_explicit(&nic->ahs[i], memory_order_relaxed);

		if (ah)
			nic_ah_destroy(nic, ah->handle);
	}
}
