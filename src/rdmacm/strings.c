/* SPDX-License-Identifier: BSD-2-Clause */
#include "rdmacm/rdmacm.h"

ROOST_EXPORT const char *rdma_event_str(enum rdma_cm_event_type event)
{
	static const char *const text[] = {
#define NAME(e) [RDMA_CM_EVENT_##e] = "RDMA_CM_EVENT_" #e
		NAME(ADDR_RESOLVED),   NAME(ADDR_ERROR),       NAME(ROUTE_RESOLVED), NAME(ROUTE_ERROR),
		NAME(CONNECT_REQUEST), NAME(CONNECT_RESPONSE), NAME(CONNECT_ERROR),  NAME(UNREACHABLE),
		NAME(REJECTED),	       NAME(ESTABLISHED),      NAME(DISCONNECTED),   NAME(DEVICE_REMOVAL),
		NAME(MULTICAST_JOIN),  NAME(MULTICAST_ERROR),  NAME(ADDR_CHANGE),    NAME(TIMEWAIT_EXIT),
#undef NAME
	};

	if ((unsigned)event >= sizeof(text) / sizeof(text[0]))
		return "UNKNOWN EVENT";
	return text[event];
}
