/* SPDX-License-Identifier: BSD-2-Clause */
/* `roost node`: the device, its memory, and the connections. */
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/node/node.h"
#include "cli/term.h"
#include "drive/drive.h"
#include "roost/node.h"
#include "roost/verbs.h"
#include "verbs/host.h"

#define BACKLOG 128

struct node_conn {
	struct rdma_cm_id *id;
	struct list_head link;
	uint64_t number;
	char peer[INET6_ADDRSTRLEN];
};

int node_fail(struct node *n, int rc, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(n->err, sizeof(n->err), fmt, ap);
	va_end(ap);
	return rc;
}

static void print_address(const struct sockaddr *sa, char *buf, size_t n)
{
	const void *raw =
		sa->sa_family == AF_INET
			? (const void *)&((const struct sockaddr_in *)(const void *)sa)->sin_addr
			: (const void *)&((const struct sockaddr_in6 *)(const void *)sa)->sin6_addr;

	if (!inet_ntop(sa->sa_family, raw, buf, (socklen_t)n))
		snprintf(buf, n, "?");
}

/* ---- the device ---- */

/* Opens the engine first, since it describes in one line why a port cannot be opened. */
static int open_device(struct node *n)
{
	struct ibv_context **list;
	int rc = drive_get(&verbs_host_ops, &n->drive, n->err, sizeof(n->err));

	if (rc)
		return rc;
	list = rdma_get_devices(NULL);
	if (!list)
		return node_fail(n, -errno, "can't open the device: %s", strerror(errno));
	n->ctx = list[0];
	rdma_free_devices(list);
	return 0;
}

static int find_address(struct node *n)
{
	union ibv_gid gid;

	if (ibv_query_gid(n->ctx, 1, 0, &gid))
		return node_fail(n, -EADDRNOTAVAIL, "the port has no address");
	if (IN6_IS_ADDR_V4MAPPED((const struct in6_addr *)&gid))
		inet_ntop(AF_INET, gid.raw + 12, n->address, sizeof(n->address));
	else
		inet_ntop(AF_INET6, gid.raw, n->address, sizeof(n->address));
	return 0;
}

int node_open(struct node *n)
{
	int rc = open_device(n);

	list_init(&n->conns);
	if (rc == 0)
		rc = find_address(n);
	if (rc)
		return rc;
	nic_memory_limit(drive_nic(n->drive), n->limit);
	n->pd = ibv_alloc_pd(n->ctx);
	n->cq = n->pd ? ibv_create_cq(n->ctx, 16, NULL, NULL, 0) : NULL;
	return n->cq ? 0
		     : node_fail(n, -errno, "can't make a completion queue: %s", strerror(errno));
}

/* ---- listening ---- */

static int bind_and_listen(struct node *n)
{
	struct sockaddr_in6 any = {.sin6_port = htobe16(n->service)};
	int rc = 0;

	/*
	 * Uses the address family of the NIC: the wildcard address of IPv6 would activate another
	 * address. The port is at the same place in both structures.
	 */
	any.sin6_family = strchr(n->address, ':') ? AF_INET6 : AF_INET;
	n->channel = rdma_create_event_channel();
	if (!n->channel || fcntl(n->channel->fd, F_SETFL, O_NONBLOCK) < 0 ||
	    rdma_create_id(n->channel, &n->listener, NULL, RDMA_PS_TCP))
		rc = -errno;
	if (rc == 0 && (rdma_bind_addr(n->listener, (struct sockaddr *)&any) ||
			rdma_listen(n->listener, BACKLOG)))
		rc = -errno;
	if (rc)
		return node_fail(n, rc,
				 "can't listen at service %u: %s; choose another with --service",
				 n->service, strerror(-rc));
	n->service = be16toh(rdma_get_src_port(n->listener));
	return 0;
}

int node_listen(struct node *n)
{
	n->mr = ibv_reg_mr(n->pd, n->region.mem, n->region.size,
			   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
				   IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC);
	if (!n->mr)
		return node_fail(n, -errno, "can't register %zu bytes: %s", n->region.size,
				 strerror(errno));
	return bind_and_listen(n);
}

/* ---- connections ---- */

static struct roost_node_hello hello_of(const struct node *n)
{
	uint64_t at = (uintptr_t)n->region.mem;

	return (struct roost_node_hello){
		.magic = htole32(ROOST_NODE_MAGIC),
		.version = htole16(ROOST_NODE_VERSION),
		.size = htole16(sizeof(struct roost_node_hello)),
		.addr = htole64(at),
		.len = htole64(n->region.size),
		.rkey = htole32(n->mr->rkey),
		.table = htole64(n->region.entries ? at : 0),
		.entries = htole64(n->region.entries),
		.used = htole64(n->region.used),
	};
}

static int accept_one(struct node *n, struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.send_cq = n->cq,
		.recv_cq = n->cq,
		.cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
	};
	struct roost_node_hello hello = hello_of(n);
	struct rdma_conn_param param = {.private_data = &hello,
					.private_data_len = sizeof(hello),
					.responder_resources = RDMA_MAX_RESP_RES,
					.initiator_depth = RDMA_MAX_INIT_DEPTH,
					.rnr_retry_count = 7};
	int rc;

	if (rdma_create_qp(id, n->pd, &attr))
		return -errno;
	rc = roost_qp_offer_rpc(id->qp);
	if (rc)
		return -rc;
	return rdma_accept(id, &param) ? -errno : 0;
}

static void note(const struct node *n, const struct node_conn *c, const char *what)
{
	if (n->verbose)
		fprintf(stderr, "roost node: connection %llu of %s %s\n",
			(unsigned long long)c->number, c->peer, what);
}

static void end_conn(struct node *n, struct node_conn *c)
{
	struct rdma_cm_id *id = c->id;

	list_del(&c->link);
	n->num_conns--;
	free(c);
	if (id->qp)
		rdma_destroy_qp(id);
	rdma_destroy_id(id);
}

/*
 * Prints one line, and no further one until a connection was accepted, since a client may retry
 * often.
 */
static void print_refused(struct node *n, int rc)
{
	struct nic_usage usage;
	char used[32], limit[32];

	if (rc != -ENOMEM) {
		fprintf(stderr, "roost node: a connection is refused: %s\n", strerror(-rc));
		return;
	}
	if (n->full)
		return;
	n->full = true;
	drive_control_lock(n->drive);
	nic_usage(drive_nic(n->drive), &usage);
	drive_control_unlock(n->drive);
	fprintf(stderr,
		"roost node: connections are refused: they and kernels have %s, and may have %s (--limit)\n",
		fmt_bytes(used, sizeof(used), usage.memory),
		fmt_bytes(limit, sizeof(limit), n->limit));
}

/* Refuses a request that cannot be served, for any reason; the node continues. */
static void on_request(struct node *n, struct rdma_cm_id *id)
{
	struct node_conn *c = calloc(1, sizeof(*c));
	int rc = c ? 0 : -ENOMEM;

	if (rc == 0)
		rc = accept_one(n, id);
	if (rc) {
		print_refused(n, rc);
		if (rc == -ENOMEM)
			roost_node_reject(id);
		else
			rdma_reject(id, NULL, 0);
		if (id->qp)
			rdma_destroy_qp(id);
		free(c);
		id->context = NULL;
		return;
	}
	c->id = id;
	c->number = ++n->connected;
	print_address(rdma_get_peer_addr(id), c->peer, sizeof(c->peer));
	list_add_tail(&c->link, &n->conns);
	n->num_conns++;
	n->full = false;
	id->context = c;
	note(n, c, "accepted");
}

/* An id is destroyed after its event is acknowledged. */
int node_on_event(struct node *n)
{
	struct rdma_cm_id *id, *refused = NULL;
	enum rdma_cm_event_type type;
	struct rdma_cm_event *e;
	struct node_conn *c;

	if (rdma_get_cm_event(n->channel, &e))
		return errno == EAGAIN || errno == EINTR
			       ? 0
			       : node_fail(n, -errno, "no events of connections any more: %s",
					   strerror(errno));
	id = e->id;
	type = e->event;
	if (type == RDMA_CM_EVENT_CONNECT_REQUEST) {
		on_request(n, id);
		if (!id->context)
			refused = id;
	}
	rdma_ack_cm_event(e);
	if (refused)
		rdma_destroy_id(refused);
	if (type == RDMA_CM_EVENT_CONNECT_REQUEST || id == n->listener)
		return 0;
	c = id->context;
	if (type == RDMA_CM_EVENT_ESTABLISHED) {
		note(n, c, roost_qp_has_rpc(id->qp) ? "is up" : "is up, without calls");
		return 0;
	}
	note(n, c, type == RDMA_CM_EVENT_DISCONNECTED ? "has ended" : "was not completed");
	rdma_disconnect(id);
	end_conn(n, c);
	return 0;
}

void node_close(struct node *n)
{
	struct node_conn *c, *next;

	if (n->conns.next) {
		list_for_each_entry_safe (c, next, &n->conns, link) {
			rdma_disconnect(c->id);
			end_conn(n, c);
		}
	}
	if (n->listener)
		rdma_destroy_id(n->listener);
	if (n->channel)
		rdma_destroy_event_channel(n->channel);
	if (n->mr)
		ibv_dereg_mr(n->mr);
	if (n->cq)
		ibv_destroy_cq(n->cq);
	if (n->pd)
		ibv_dealloc_pd(n->pd);
	if (n->drive)
		drive_put(n->drive);
}
