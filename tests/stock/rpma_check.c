/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * librpma's operations between two processes, checked: `rpma_check ADDRESS PORT` serves memory
 * once, `rpma_check ADDRESS PORT client` writes patterns of many sizes there, flushes them, reads
 * them back, and writes 8 bytes atomically. Completions are awaited through the channel
 * (rpma_cq_wait). The client prints "all right".
 */
#include <librpma.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SIZE (1u << 20)

#define TRY(call)                                                                                  \
	do {                                                                                       \
		int ret_ = (call);                                                                 \
		if (ret_) {                                                                        \
			fprintf(stderr, "failed: %s: %s\n", #call, rpma_err_2str(ret_));           \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

static void expect(struct rpma_conn *conn, enum rpma_conn_event wanted)
{
	enum rpma_conn_event event;

	TRY(rpma_conn_next_event(conn, &event));
	if (event != wanted) {
		fprintf(stderr, "failed: event %s, not %s\n", rpma_utils_conn_event_2str(event),
			rpma_utils_conn_event_2str(wanted));
		exit(1);
	}
}

static void serve(struct rpma_peer *peer, const char *addr, const char *port, char *memory)
{
	struct rpma_conn_private_data pdata;
	struct rpma_conn_req *req;
	struct rpma_mr_local *mr;
	struct rpma_conn *conn;
	struct rpma_ep *ep;
	char descriptor[64];
	size_t size;

	TRY(rpma_mr_reg(peer, memory, SIZE,
			RPMA_MR_USAGE_READ_SRC | RPMA_MR_USAGE_WRITE_DST |
				RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY,
			&mr));
	TRY(rpma_mr_get_descriptor_size(mr, &size));
	TRY(size > sizeof(descriptor) ? RPMA_E_INVAL : 0);
	TRY(rpma_mr_get_descriptor(mr, descriptor));
	pdata = (struct rpma_conn_private_data){.ptr = descriptor, .len = (uint8_t)size};
	TRY(rpma_ep_listen(peer, addr, port, &ep));
	TRY(rpma_ep_next_conn_req(ep, NULL, &req));
	TRY(rpma_conn_req_connect(&req, &pdata, &conn));
	expect(conn, RPMA_CONN_ESTABLISHED);
	expect(conn, RPMA_CONN_CLOSED);
	TRY(rpma_conn_disconnect(conn));
	TRY(rpma_conn_delete(&conn));
	TRY(rpma_ep_shutdown(&ep));
	TRY(rpma_mr_dereg(&mr));
}

/*
 * rpma_cq_wait() takes an event and arms before the completion is polled, which raises one event
 * more, as on ConnectX. librpma's own examples (08-messages-ping-pong) take a wait without a
 * completion without a request, too.
 */
static void done(struct rpma_cq *cq, const void *context)
{
	struct ibv_wc wc;
	int ret;

	do {
		TRY(rpma_cq_wait(cq));
		ret = rpma_cq_get_wc(cq, 1, &wc, NULL);
	} while (ret == RPMA_E_NO_COMPLETION);
	TRY(ret);
	if (wc.status != IBV_WC_SUCCESS || wc.wr_id != (uint64_t)(uintptr_t)context) {
		fprintf(stderr, "failed: completion %s of %#llx\n", ibv_wc_status_str(wc.status),
			(unsigned long long)wc.wr_id);
		exit(1);
	}
}

static void one_size(struct rpma_conn *conn, struct rpma_cq *cq, struct rpma_mr_remote *remote,
		     struct rpma_mr_local *local, char *memory, size_t n)
{
	for (size_t i = 0; i < n; i++)
		memory[i] = (char)(i * 131 + (i >> 8) + n);
	TRY(rpma_write(conn, remote, 0, local, 0, n, RPMA_F_COMPLETION_ON_ERROR, NULL));
	TRY(rpma_flush(conn, remote, 0, n, RPMA_FLUSH_TYPE_VISIBILITY, RPMA_F_COMPLETION_ALWAYS,
		       memory));
	done(cq, memory);
	memset(memory, 0, n);
	TRY(rpma_read(conn, local, 0, remote, 0, n, RPMA_F_COMPLETION_ALWAYS, memory + 1));
	done(cq, memory + 1);
	for (size_t i = 0; i < n; i++) {
		if (memory[i] != (char)(i * 131 + (i >> 8) + n)) {
			fprintf(stderr, "failed: %zu bytes: byte %zu differs\n", n, i);
			exit(1);
		}
	}
}

static void ask(struct rpma_peer *peer, const char *addr, const char *port, char *memory)
{
	struct rpma_conn_private_data pdata;
	struct rpma_mr_remote *remote;
	struct rpma_mr_local *local;
	struct rpma_conn_req *req;
	struct rpma_conn *conn;
	struct rpma_cq *cq;

	TRY(rpma_mr_reg(peer, memory, SIZE,
			RPMA_MR_USAGE_WRITE_SRC | RPMA_MR_USAGE_READ_DST | RPMA_MR_USAGE_READ_SRC,
			&local));
	TRY(rpma_conn_req_new(peer, addr, port, NULL, &req));
	TRY(rpma_conn_req_connect(&req, NULL, &conn));
	expect(conn, RPMA_CONN_ESTABLISHED);
	TRY(rpma_conn_get_private_data(conn, &pdata));
	TRY(rpma_mr_remote_from_descriptor(pdata.ptr, pdata.len, &remote));
	TRY(rpma_conn_get_cq(conn, &cq));
	for (size_t n = 1; n <= SIZE; n *= 2) {
		one_size(conn, cq, remote, local, memory, n);
		one_size(conn, cq, remote, local, memory, n - n / 3);
	}
	TRY(rpma_atomic_write(conn, remote, 64, "12345678", RPMA_F_COMPLETION_ALWAYS, memory));
	done(cq, memory);
	TRY(rpma_read(conn, local, 0, remote, 64, 8, RPMA_F_COMPLETION_ALWAYS, memory));
	done(cq, memory);
	TRY(memcmp(memory, "12345678", 8) ? RPMA_E_UNKNOWN : 0);
	TRY(rpma_conn_disconnect(conn));
	expect(conn, RPMA_CONN_CLOSED);
	TRY(rpma_mr_remote_delete(&remote));
	TRY(rpma_conn_delete(&conn));
	TRY(rpma_mr_dereg(&local));
	printf("all right\n");
}

int main(int argc, char **argv)
{
	struct ibv_context *context;
	struct rpma_peer *peer;
	char *memory = calloc(1, SIZE);
	bool client = argc > 3;

	if (argc < 3 || !memory)
		return 2;
	TRY(rpma_utils_get_ibv_context(
		argv[1], client ? RPMA_UTIL_IBV_CONTEXT_REMOTE : RPMA_UTIL_IBV_CONTEXT_LOCAL,
		&context));
	TRY(rpma_peer_new(context, &peer));
	(client ? ask : serve)(peer, argv[1], argv[2], memory);
	TRY(rpma_peer_delete(&peer));
	free(memory);
	return 0;
}
