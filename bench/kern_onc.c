/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ONC RPC over TCP, with the code that rpcgen generates from lookup.x: the same look-ups in the
 * same memory. Each slice starts with a new connection. The server sleeps in poll(), like
 * svc_run().
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <rpc/rpc.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "kern.h"
#include "kern_look.h"
#include "lookup.h"
#include "roost/get.h"

#define PORT_FIGURE 0u

extern void lookup_1(struct svc_req *, SVCXPRT *); /* rpcgen does not declare it */

static bool stop;
static CLIENT *client;

/* ---- the server ---- */

found *lookup_list_1_svc(list_args *a, struct svc_req *req)
{
	static found v;
	const struct list_element *e = (const void *)(uintptr_t)a->root;

	v.found_len = 0;
	while (e && e->key != a->key)
		e = (const void *)(uintptr_t)e->next;
	if (e) {
		v.found_len = a->len;
		v.found_val = (char *)(uintptr_t)e->value;
	}
	return &v;
}

found *lookup_get_1_svc(get_args *a, struct svc_req *req)
{
	static found v;
	const struct roost_get_entry *t = (const void *)(uintptr_t)a->table;
	uint64_t at = roost_get_hash(a->key) & (a->entries - 1);

	v.found_len = 0;
	for (;;) {
		const struct roost_get_entry *e = &t[at];

		for (unsigned i = 0; i < ROOST_GET_BUCKETS; i++)
			if (e->bucket[i].value && e->bucket[i].key == a->key) {
				v.found_len = e->bucket[i].len;
				v.found_val = (char *)(uintptr_t)e->bucket[i].value;
				return &v;
			}
		if (!e->next)
			return &v;
		at = e->next - 1;
	}
}

void *lookup_stop_1_svc(void *nothing, struct svc_req *req)
{
	static char done;

	stop = true;
	return &done;
}

static SVCXPRT *listen_tcp(struct duo *s)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	socklen_t len = sizeof(a);
	SVCXPRT *x;

	if (fd < 0 || bind(fd, (struct sockaddr *)&a, len) ||
	    getsockname(fd, (struct sockaddr *)&a, &len) || listen(fd, 4))
		duo_fail("no TCP port for ONC RPC");
	x = svctcp_create(fd, 0, 0);
	/* 0: do not register with the port mapper */
	if (!x || !svc_register(x, LOOKUP, LOOKUP_VERSION, lookup_1, 0))
		duo_fail("can't serve ONC RPC");
	atomic_store(duo_figure(s, PORT_FIGURE), ntohs(a.sin_port));
	return x;
}

void onc_serve(struct duo *s)
{
	SVCXPRT *x = listen_tcp(s);

	for (stop = false; !stop;) {
		int n = poll(svc_pollfd, (nfds_t)svc_max_pollfd, -1);

		if (n > 0)
			svc_getreq_poll(svc_pollfd, n);
	}
	svc_unregister(LOOKUP, LOOKUP_VERSION);
	svc_destroy(x);
}

/* ---- the client ---- */

void onc_begin(struct duo *c)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
	uint64_t port;
	int fd = RPC_ANYSOCK;

	atomic_store(duo_figure(c, PORT_FIGURE), 0);
	duo_phase(c, ONC_PHASE);
	while (!(port = atomic_load(duo_figure(c, PORT_FIGURE))))
		;
	a.sin_port = htons((uint16_t)port);
	client = clnttcp_create(&a, LOOKUP, LOOKUP_VERSION, &fd, 0, 0);
	if (!client)
		duo_fail("%s", clnt_spcreateerror("ONC RPC"));
}

void onc_end(struct duo *c)
{
	if (!lookup_stop_1(NULL, client))
		duo_fail("%s", clnt_sperror(client, "ONC RPC"));
	clnt_destroy(client);
	duo_phase_end(c);
}

/* The same delay as the fault port adds for the other methods. */
static void on_the_wire(void)
{
	uint64_t start = duo_ns();

	while (duo_ns() - start < kern.delay_ns)
		;
}

static uint32_t take(found *v, uint8_t *to)
{
	uint32_t len;

	if (!v)
		duo_fail("%s", clnt_sperror(client, "ONC RPC"));
	len = v->found_len;
	memcpy(to, v->found_val, len);
	clnt_freeres(client, (xdrproc_t)xdr_found, (char *)v);
	return len;
}

uint32_t onc_list(uint64_t root, uint64_t key, uint8_t *to)
{
	list_args a = {root, key, LIST_VALUE};

	if (kern.delay_ns)
		on_the_wire();
	return take(lookup_list_1(&a, client), to);
}

uint32_t onc_get(uint64_t table, uint64_t entries, uint64_t key, uint8_t *to)
{
	get_args a = {table, entries, key};

	if (kern.delay_ns)
		on_the_wire();
	return take(lookup_get_1(&a, client), to);
}
