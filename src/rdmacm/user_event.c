/* SPDX-License-Identifier: BSD-2-Clause */
/* Functions of rdma-core 60: they resolve names with an event, and raise events of the program. */
#include <netdb.h>
#include <string.h>

#include "rdmacm/rdmacm.h"

int rdma_resolve_addrinfo(struct rdma_cm_id *id, const char *node, const char *service,
			  const struct rdma_addrinfo *hints);
int rdma_query_addrinfo(struct rdma_cm_id *id, struct rdma_addrinfo **info);
int rdma_write_cm_event(struct rdma_cm_id *id, enum rdma_cm_event_type event, int status,
			uint64_t arg);

/* Calls rdma_getaddrinfo() and converts its result to a negative errno. */
static int get_addrinfo(const char *node, const char *service, const struct rdma_addrinfo *hints,
			struct rdma_addrinfo **info)
{
	int ret = rdma_getaddrinfo(node, service, hints, info);

	if (ret == 0)
		return 0;
	return ret == -1 || ret == EAI_SYSTEM ? -errno : ret == EAI_MEMORY ? -ENOMEM : -ENODATA;
}

/*
 * Resolves a name (rdma_resolve_addrinfo(3)). The call waits for the name server and has the answer
 * when it returns. The answer is reported as an event nevertheless. RAI_SA asks a subnet manager
 * for services, which RoCE does not have.
 */
ROOST_EXPORT int rdma_resolve_addrinfo(struct rdma_cm_id *pub, const char *node,
				       const char *service, const struct rdma_addrinfo *hints)
{
	struct rdmacm_id *id = rdmacm_id(pub);
	struct rdma_addrinfo *info = NULL, *old, plain;
	int status, ret;

	if (hints && hints->ai_flags & RDMACM_RAI_SA)
		return rdmacm_ret(hints->ai_flags & RDMACM_RAI_DNS ? -EINVAL : -EOPNOTSUPP);
	if (hints) {
		plain = *hints;
		plain.ai_flags &= ~RDMACM_RAI_DNS;
	}
	status = get_addrinfo(node, service, hints ? &plain : NULL, &info);
	if (status == -EINVAL || status == -ENOMEM)
		return rdmacm_ret(status);
	rdmacm_lock();
	old = id->resolved;
	id->resolved = info;
	ret = rdmacm_event_simple(
		id,
		(enum rdma_cm_event_type)(status ? RDMACM_EVENT_ADDRINFO_ERROR
						 : RDMACM_EVENT_ADDRINFO_RESOLVED),
		status);
	rdmacm_unlock();
	rdma_freeaddrinfo(old);
	if (ret == 0)
		ret = rdmacm_complete(id);
	return rdmacm_ret(ret);
}

/*
 * Returns the result of rdma_resolve_addrinfo(). The caller frees it with rdma_freeaddrinfo().
 * Returns -1 with ENODATA if nothing was resolved, or if the result was taken already.
 */
ROOST_EXPORT int rdma_query_addrinfo(struct rdma_cm_id *pub, struct rdma_addrinfo **info)
{
	struct rdmacm_id *id = rdmacm_id(pub);

	rdmacm_lock();
	*info = id->resolved;
	id->resolved = NULL;
	rdmacm_unlock();
	return rdmacm_ret(*info ? 0 : -ENODATA);
}

/*
 * Raises an event of the program. The type may only be RDMA_CM_EVENT_USER, as
 * rdma_write_cm_event(3) says. The argument takes the place of the parameters of other events.
 */
ROOST_EXPORT int rdma_write_cm_event(struct rdma_cm_id *pub, enum rdma_cm_event_type event,
				     int status, uint64_t arg)
{
	struct rdmacm_id *id = rdmacm_id(pub);
	struct rdmacm_event *e;

	if ((int)event != RDMACM_EVENT_USER)
		return rdmacm_ret(-EINVAL);
	rdmacm_lock();
	e = rdmacm_event_new(id, id, event);
	if (e) {
		e->event.status = status;
		memcpy(&e->event.param, &arg, sizeof(arg));
		rdmacm_event_raise(e);
	}
	rdmacm_unlock();
	return rdmacm_ret(e ? 0 : -ENOMEM);
}
