/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A connection with steady traffic. The client sends one message after the other, the server
 * returns it, and the client checks all bytes.
 *
 *	steady server ADDRESS SERVICE               echoes on all connections
 *	steady client ADDRESS SERVICE SECONDS       prints "rounds N" ten times a second, and "done"
 * 						    at the end
 *
 * An error ends the program with a line and status 1, and an event REJECTED with status 3. The
 * program has no time-outs of its own.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

#define MESSAGE 8192

static void __attribute__((noreturn)) end(const char *what)
{
	printf("steady: %s: %s\n", what, strerror(errno));
	fflush(stdout);
	_exit(1); /* without the leak check */
}

static struct ibv_qp_init_attr qp_attr(void)
{
	return (struct ibv_qp_init_attr){
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = 2, .max_recv_wr = 2, .max_send_sge = 1, .max_recv_sge = 1},
		.sq_sig_all = 1,
	};
}

static struct rdma_addrinfo *look_up(const char *node, const char *service, int flags)
{
	struct rdma_addrinfo hints = {.ai_flags = flags, .ai_port_space = RDMA_PS_TCP}, *res;

	if (rdma_getaddrinfo(node, service, &hints, &res))
		end("rdma_getaddrinfo");
	return res;
}

/* Returns the name of an event of the connection, which has ended; NULL: there is none. */
static const char *ended(struct rdma_cm_id *id)
{
	struct pollfd p = {.fd = id->channel->fd, .events = POLLIN};
	struct rdma_cm_event *e;

	if (poll(&p, 1, 0) != 1 || rdma_get_cm_event(id->channel, &e))
		return NULL;
	return rdma_event_str(e->event);
}

static void *serve(void *arg)
{
	struct rdma_cm_id *id = arg;
	uint8_t *buf = malloc(MESSAGE);
	struct ibv_mr *mr = rdma_reg_msgs(id, buf, MESSAGE);
	struct ibv_wc wc;

	if (!mr || rdma_post_recv(id, NULL, buf, MESSAGE, mr) || rdma_accept(id, NULL)) {
		/* The attacker's REQ: it has no client that waits. */
		rdma_destroy_ep(id);
		return NULL;
	}
	while (rdma_get_recv_comp(id, &wc) == 1 && wc.status == IBV_WC_SUCCESS) {
		if (rdma_post_send(id, NULL, buf, MESSAGE, mr, 0) ||
		    rdma_get_send_comp(id, &wc) != 1 || wc.status != IBV_WC_SUCCESS)
			break;
		if (ended(id) || rdma_post_recv(id, NULL, buf, MESSAGE, mr))
			break;
	}
	rdma_disconnect(id);
	return NULL;
}

static int server(const char *node, const char *service)
{
	struct ibv_qp_init_attr attr = qp_attr();
	struct rdma_cm_id *listener, *id;
	pthread_t thread;

	if (rdma_create_ep(&listener, look_up(node, service, RAI_PASSIVE), NULL, &attr) ||
	    rdma_listen(listener, 8))
		end("listen");
	puts("listens");
	fflush(stdout);
	for (;;) {
		if (rdma_get_request(listener, &id) || pthread_create(&thread, NULL, serve, id))
			continue;
		pthread_detach(thread);
	}
}

static double clock_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static struct rdma_cm_id *connect_to(const char *node, const char *service)
{
	struct rdma_addrinfo *res = look_up(node, service, 0);
	struct ibv_qp_init_attr attr = qp_attr();
	struct rdma_conn_param param = {.retry_count = 7, .rnr_retry_count = 7};
	struct rdma_cm_id *id;

	if (rdma_create_ep(&id, res, NULL, &attr))
		end("rdma_create_ep");
	rdma_freeaddrinfo(res);
	puts("asks");
	fflush(stdout);
	if (rdma_connect(id, &param)) {
		if (id->event && id->event->event == RDMA_CM_EVENT_REJECTED) {
			printf("rejected: %d\n", id->event->status);
			fflush(stdout);
			_exit(3);
		}
		end("rdma_connect");
	}
	return id;
}

static int client(const char *node, const char *service, double seconds)
{
	struct rdma_cm_id *id = connect_to(node, service);
	uint64_t *out = malloc(MESSAGE), *in = malloc(MESSAGE), rounds = 0;
	struct ibv_mr *mr_out = rdma_reg_msgs(id, out, MESSAGE),
		      *mr_in = rdma_reg_msgs(id, in, MESSAGE);
	double start = clock_s(), said = 0, now;
	const char *event;
	struct ibv_wc wc;

	if (!mr_out || !mr_in)
		end("rdma_reg_msgs");
	while ((now = clock_s()) - start < seconds) {
		if (now - said > 0.1) {
			printf("rounds %llu\n", (unsigned long long)rounds);
			fflush(stdout);
			said = now;
		}
		for (size_t i = 0; i < MESSAGE / 8; i++)
			out[i] = rounds * 0x9e3779b97f4a7c15ull + i;
		if (rdma_post_recv(id, NULL, in, MESSAGE, mr_in) ||
		    rdma_post_send(id, NULL, out, MESSAGE, mr_out, 0))
			end("post");
		if (rdma_get_send_comp(id, &wc) != 1 || wc.status != IBV_WC_SUCCESS) {
			printf("steady: send after %llu rounds: %s\n", (unsigned long long)rounds,
			       ibv_wc_status_str(wc.status));
			return 1;
		}
		if (rdma_get_recv_comp(id, &wc) != 1 || wc.status != IBV_WC_SUCCESS ||
		    wc.byte_len != MESSAGE) {
			printf("steady: receive after %llu rounds: %s\n",
			       (unsigned long long)rounds, ibv_wc_status_str(wc.status));
			return 1;
		}
		if (memcmp(in, out, MESSAGE)) {
			printf("steady: round %llu came back changed\n",
			       (unsigned long long)rounds);
			return 1;
		}
		event = ended(id);
		if (event) {
			printf("steady: %s after %llu rounds\n", event, (unsigned long long)rounds);
			return 1;
		}
		rounds++;
		usleep(1000);
	}
	printf("rounds %llu\ndone\n", (unsigned long long)rounds);
	fflush(stdout);
	_exit(0); /* no disconnect: the server waits for the next message and would not answer */
}

int main(int argc, char **argv)
{
	if (argc == 4 && strcmp(argv[1], "server") == 0)
		return server(argv[2], argv[3]);
	if (argc == 5 && strcmp(argv[1], "client") == 0)
		return client(argv[2], argv[3], atof(argv[4]));
	fprintf(stderr, "usage: steady server ADDRESS SERVICE | client ADDRESS SERVICE SECONDS\n");
	return 2;
}
