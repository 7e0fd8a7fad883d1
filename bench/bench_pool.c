/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Programs behind one address, connected by rdma_cm. One client measures, as JSON:
 *
 *	setup	the time of a connection to each of N servers: from the resolution of the address to
 *		the end of the handshake
 *	serves	the time from the kill of a server until its successor, which starts then, listens
 *		and has accepted a connection at the same service
 *	eager	the same, when the client asks for a connection all the time
 *
 *	bench-pool [SERVERS [KILLS]]
 *
 * An address has 64 slots, one of which is the client's. ROOST_PUS=1 gives each program one slot.
 * Run it in a network namespace without other programs of Roost.
 */
#include <rdma/rdma_cma.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common.h"

#define MOST	 63
#define ADDRESS	 0x7f000002u /* 127.0.0.2 */
#define SERVICE	 20000
#define LIMIT_MS 10000

static const struct timespec retry = {.tv_nsec = 200000};

static struct sockaddr_in name_of(unsigned server)
{
	struct sockaddr_in in = {.sin_family = AF_INET,
				 .sin_port = htons((uint16_t)(SERVICE + server))};

	in.sin_addr.s_addr = htonl(ADDRESS);
	return in;
}

static void make_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attr = {.cap = {1, 1, 1, 1, 0}, .qp_type = IBV_QPT_RC};

	if (rdma_create_qp(id, NULL, &attr))
		die("rdma_create_qp");
}

/* ---- a server ---- */

/* Accepts all, until it is killed. Says on standard output that it listens. */
static void serve(unsigned server)
{
	struct rdma_event_channel *ch = rdma_create_event_channel();
	struct sockaddr_in at = name_of(server);
	struct rdma_conn_param param = {.retry_count = 7, .rnr_retry_count = 7};
	struct rdma_cm_event *ev;
	struct rdma_cm_id *id;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (!ch || rdma_create_id(ch, &id, NULL, RDMA_PS_TCP) ||
	    rdma_bind_addr(id, (struct sockaddr *)&at) || rdma_listen(id, 16))
		die("rdma_listen");
	if (write(STDOUT_FILENO, "l", 1) != 1)
		exit(1);
	while (rdma_get_cm_event(ch, &ev) == 0) {
		enum rdma_cm_event_type type = ev->event;

		id = ev->id;
		rdma_ack_cm_event(ev);
		if (type == RDMA_CM_EVENT_CONNECT_REQUEST) {
			make_qp(id);
			if (rdma_accept(id, &param))
				die("rdma_accept");
		} else if (type == RDMA_CM_EVENT_DISCONNECTED) {
			rdma_disconnect(id);
			rdma_destroy_qp(id);
			rdma_destroy_id(id);
		}
	}
}

/* Starts a server without waiting for it. *said: the pipe on which it says that it listens. */
static pid_t start(unsigned server, int *said)
{
	char number[16];
	int fds[2];
	pid_t pid;

	snprintf(number, sizeof(number), "%u", server);
	if (pipe(fds))
		die("pipe");
	pid = fork();
	if (pid == 0) {
		dup2(fds[1], STDOUT_FILENO);
		execl("/proc/self/exe", "bench-pool", "serve", number, (char *)NULL);
		_exit(1);
	}
	close(fds[1]);
	*said = fds[0];
	return pid;
}

/* ---- the client ---- */

static bool came(struct rdma_event_channel *ch, enum rdma_cm_event_type type)
{
	struct rdma_cm_event *ev;
	bool good;

	if (rdma_get_cm_event(ch, &ev))
		die("rdma_get_cm_event");
	good = ev->event == type;
	rdma_ack_cm_event(ev);
	return good;
}

/* Connects to a server and disconnects. Returns the microseconds of the set-up, or -1. */
static double connect_once(struct rdma_event_channel *ch, unsigned server)
{
	struct rdma_conn_param param = {.retry_count = 7, .rnr_retry_count = 7};
	struct sockaddr_in to = name_of(server);
	struct rdma_cm_id *id;
	uint64_t start = monotonic_ns();
	double took = -1;

	if (rdma_create_id(ch, &id, NULL, RDMA_PS_TCP) ||
	    rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, LIMIT_MS))
		die("rdma_resolve_addr");
	if (came(ch, RDMA_CM_EVENT_ADDR_RESOLVED) && rdma_resolve_route(id, LIMIT_MS) == 0 &&
	    came(ch, RDMA_CM_EVENT_ROUTE_RESOLVED)) {
		make_qp(id);
		if (rdma_connect(id, &param))
			die("rdma_connect");
		if (came(ch, RDMA_CM_EVENT_ESTABLISHED)) {
			took = (double)(monotonic_ns() - start) / 1000;
			rdma_disconnect(id);
			if (!came(ch, RDMA_CM_EVENT_DISCONNECTED))
				die("rdma_disconnect");
		}
		rdma_destroy_qp(id);
	}
	rdma_destroy_id(id);
	return took;
}

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void print(const char *what, double *us, unsigned n, const char *end)
{
	qsort(us, n, sizeof(*us), by_size);
	printf("\"%s\": {\"n\": %u, \"p50_us\": %.0f, \"p90_us\": %.0f, \"max_us\": %.0f}%s", what,
	       n, us[n / 2], us[n * 9 / 10], us[n - 1], end);
}

/* Kills a server and starts its successor. Returns the microseconds until that has accepted. */
static double succeed(struct rdma_event_channel *ch, pid_t *pid, unsigned server, bool eager)
{
	uint64_t from = monotonic_ns();
	double took;
	int said;
	char byte;

	kill(*pid, SIGKILL);
	waitpid(*pid, NULL, 0);
	*pid = start(server, &said);
	if (!eager && read(said, &byte, 1) != 1)
		die("a successor");
	while (connect_once(ch, server) < 0) /* refused: no program listens yet */
		nanosleep(&retry, NULL);
	took = (double)(monotonic_ns() - from) / 1000;
	if (eager && read(said, &byte, 1) != 1)
		die("a successor");
	close(said);
	return took;
}

int main(int argc, char **argv)
{
	unsigned servers = argc > 1 ? (unsigned)atoi(argv[1]) : MOST;
	unsigned kills = argc > 2 ? (unsigned)atoi(argv[2]) : 20;
	static double setup[MOST], serves[1000], eager[1000];
	static pid_t pid[MOST];
	struct rdma_event_channel *ch;
	int said;
	char byte;

	setenv("ROOST_PORT", "udp:127.0.0.2", 0);
	setenv("ROOST_PUS", "1", 0);
	if (argc > 2 && strcmp(argv[1], "serve") == 0) {
		serve((unsigned)atoi(argv[2]));
		return 1;
	}
	if (servers < 1 || servers > MOST || kills < 1 || kills > 1000)
		return 2;
	for (unsigned i = 0; i < servers; i++) {
		pid[i] = start(i, &said);
		if (read(said, &byte, 1) != 1)
			return 1;
		close(said);
	}
	ch = rdma_create_event_channel();
	if (!ch || connect_once(ch, 0) < 0) /* opens the device */
		die("the first connection");
	for (unsigned i = 0; i < servers; i++) {
		setup[i] = connect_once(ch, i);
		if (setup[i] < 0)
			die("a connection");
	}
	for (unsigned i = 0; i < kills; i++) {
		serves[i] = succeed(ch, &pid[i % servers], i % servers, false);
		eager[i] = succeed(ch, &pid[i % servers], i % servers, true);
	}
	printf("{\"tool\": \"bench-pool\", \"servers\": %u, ", servers);
	print("setup", setup, servers, ", ");
	print("serves", serves, kills, ", ");
	print("eager", eager, kills, "}\n");
	for (unsigned i = 0; i < servers; i++) {
		kill(pid[i], SIGKILL);
		waitpid(pid[i], NULL, 0);
	}
	return 0;
}
