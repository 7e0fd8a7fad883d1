/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A server of the memcached protocols in front of the store of a node. It is a thread with an event
 * loop (libevent), and a client of the store like any other: it connects to the node by rdma_cm.
 */
#ifndef ROOST_MEMCACHED_SERVER_H
#define ROOST_MEMCACHED_SERVER_H

#include <stddef.h>
#include <stdint.h>

#define MC_CONNECTIONS 4096u /* the most connections */

struct mc_config {
	/*
	 * ADDRESS:PORT, [ADDRESS]:PORT, or the path of a Unix socket; or several, with commas
	 * between them
	 */
	const char *listen;
	const char *host; /* host of the node; valid while the server runs */
	uint16_t service;
	const char *version;
};

struct mc_server;

/*
 * Listens and starts the thread, which connects to the node with its first request. Returns 0, or
 * -errno with a line in err.
 */
int mc_server_start(const struct mc_config *config, struct mc_server **out, char *err,
		    size_t errlen);
/* Ends connections and the thread. */
void mc_server_stop(struct mc_server *s);

#endif
