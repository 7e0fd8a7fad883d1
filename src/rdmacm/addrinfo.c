/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rdma_getaddrinfo(): resolves names and services with libc's getaddrinfo(), and fills in the type
 * of the connection.
 */
#include <netdb.h>
#include <stdlib.h>
#include <string.h>

#include "rdmacm/rdmacm.h"

static void ask_libc(const struct rdma_addrinfo *hints, struct addrinfo *ai)
{
	memset(ai, 0, sizeof(*ai));
	if (!hints)
		return;
	if (hints->ai_flags & RAI_PASSIVE)
		ai->ai_flags |= AI_PASSIVE;
	if (hints->ai_flags & RAI_NUMERICHOST)
		ai->ai_flags |= AI_NUMERICHOST;
	if (hints->ai_flags & RAI_FAMILY || hints->ai_family)
		ai->ai_family = hints->ai_family;
	if (hints->ai_qp_type == IBV_QPT_UD || hints->ai_port_space == RDMA_PS_UDP ||
	    hints->ai_port_space == RDMA_PS_IPOIB)
		ai->ai_socktype = SOCK_DGRAM;
	else if (hints->ai_qp_type || hints->ai_port_space)
		ai->ai_socktype = SOCK_STREAM;
}

static int copy_addr(struct sockaddr **to, socklen_t *to_len, const struct sockaddr *from,
		     socklen_t len)
{
	*to = calloc(1, sizeof(struct sockaddr_storage));
	if (!*to)
		return -ENOMEM;
	memcpy(*to, from, len);
	*to_len = len;
	return 0;
}

static int copy_name(char **to, const char *from)
{
	*to = from ? strdup(from) : NULL;
	return from && !*to ? -ENOMEM : 0;
}

/*
 * Fills in a result. The answer of libc is the address to listen on, or the address to connect to.
 */
static int fill(struct rdma_addrinfo *rai, const struct rdma_addrinfo *hints,
		const struct addrinfo *ai)
{
	bool passive = hints && hints->ai_flags & RAI_PASSIVE,
	     dgram = ai->ai_socktype == SOCK_DGRAM;
	int ret;

	rai->ai_flags = hints ? hints->ai_flags : 0;
	rai->ai_family = ai->ai_family;
	rai->ai_qp_type = hints && hints->ai_qp_type ? hints->ai_qp_type
			  : dgram		     ? IBV_QPT_UD
						     : IBV_QPT_RC;
	rai->ai_port_space = hints && hints->ai_port_space ? hints->ai_port_space
			     : dgram			   ? RDMA_PS_UDP
							   : RDMA_PS_TCP;
	if (passive) {
		ret = copy_addr(&rai->ai_src_addr, &rai->ai_src_len, ai->ai_addr, ai->ai_addrlen);
		return ret ? ret : copy_name(&rai->ai_src_canonname, ai->ai_canonname);
	}
	ret = copy_addr(&rai->ai_dst_addr, &rai->ai_dst_len, ai->ai_addr, ai->ai_addrlen);
	if (ret == 0)
		ret = copy_name(&rai->ai_dst_canonname, ai->ai_canonname);
	if (ret == 0 && hints && hints->ai_src_len &&
	    hints->ai_src_len <= sizeof(struct sockaddr_storage))
		ret = copy_addr(&rai->ai_src_addr, &rai->ai_src_len, hints->ai_src_addr,
				hints->ai_src_len);
	return ret;
}

static int copy_hint(struct sockaddr **to, socklen_t *to_len, const struct sockaddr *from,
		     socklen_t len)
{
	if (!from || !len)
		return 0;
	return len <= sizeof(struct sockaddr_storage) ? copy_addr(to, to_len, from, len) : -EINVAL;
}

/*
 * Fills in a result without a node and a service: the addresses of the hints (both, one or none).
 */
static int fill_from_hints(struct rdma_addrinfo *rai, const struct rdma_addrinfo *hints)
{
	int ret;

	rai->ai_flags = hints->ai_flags;
	rai->ai_family = hints->ai_family;
	rai->ai_qp_type = hints->ai_qp_type;
	rai->ai_port_space = hints->ai_port_space;
	ret = copy_hint(&rai->ai_dst_addr, &rai->ai_dst_len, hints->ai_dst_addr, hints->ai_dst_len);
	return ret ? ret
		   : copy_hint(&rai->ai_src_addr, &rai->ai_src_len, hints->ai_src_addr,
			       hints->ai_src_len);
}

/*
 * Returns 0, -1 with errno, or the error of getaddrinfo(3) (EAI_*), as rdma-core's librdmacm does.
 */
ROOST_EXPORT int rdma_getaddrinfo(const char *node, const char *service,
				  const struct rdma_addrinfo *hints, struct rdma_addrinfo **res)
{
	struct addrinfo ask, *ai = NULL;
	struct rdma_addrinfo *rai;
	int ret;

	if (!node && !service && !hints)
		return rdmacm_ret(-EINVAL);
	rai = calloc(1, sizeof(*rai));
	if (!rai)
		return rdmacm_ret(-ENOMEM);
	if (!node && !service) {
		ret = fill_from_hints(rai, hints);
	} else {
		ask_libc(hints, &ask);
		ret = getaddrinfo(node, service, &ask, &ai);
		if (ret) {
			free(rai);
			return ret;
		}
		ret = fill(rai, hints, ai);
		freeaddrinfo(ai);
	}
	if (ret) {
		rdma_freeaddrinfo(rai);
		return rdmacm_ret(ret);
	}
	*res = rai;
	return 0;
}

ROOST_EXPORT void rdma_freeaddrinfo(struct rdma_addrinfo *res)
{
	while (res) {
		struct rdma_addrinfo *next = res->ai_next;

		free(res->ai_src_addr);
		free(res->ai_dst_addr);
		free(res->ai_src_canonname);
		free(res->ai_dst_canonname);
		free(res);
		res = next;
	}
}
