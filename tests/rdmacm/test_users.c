/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Programs of two users at loopback addresses of one network namespace. A port accepts packets of
 * another user's program only from UDP port 4791.
 */
#include "../common/child.h"
#include "../common/network.h"
#include "fixture.h"

#include <unistd.h>

#define OURS	 "127.0.83.1"
#define THEIRS	 "127.0.83.2"
#define SERVICE	 7000
#define OTHER	 65534 /* a user */
#define SOME_QPN 5     /* no end uses its queue pair */

static char folder[] = P_tmpdir "/roost-test-XXXXXX"; /* of the other user */

static union address theirs(void)
{
	return at4(0x7f005302, SERVICE);
}

static void tell(int fd)
{
	CHECK(write(fd, "", 1) == 1);
}

/*
 * The server: becomes another user, starts its NIC when it is told to, and accepts connections. The
 * test ends it.
 */
static void serve(int fd)
{
	struct rdma_conn_param param = {.qp_num = SOME_QPN};
	union address at = theirs();
	struct rdma_event_channel *ch;
	struct rdma_cm_event *e;
	struct rdma_cm_id *id;
	char spec[64], byte;

	if (setresuid(OTHER, OTHER, OTHER))
		return;			  /* the test finds this socket closed */
	prctl(PR_SET_PDEATHSIG, SIGKILL); /* the change of the user has removed it */
	setenv("ROOST_SHM_DIR", folder, 1);
	snprintf(spec, sizeof(spec), "%s:" THEIRS, getenv("RDMACM_TEST_PORT"));
	setenv("ROOST_PORT", spec, 1);
	tell(fd);
	CHECK(read(fd, &byte, 1) == 1);
	ch = rdma_create_event_channel();
	CHECK(ch);
	CHECK(rdma_create_id(ch, &id, NULL, RDMA_PS_TCP) == 0);
	CHECK(rdma_bind_addr(id, &at.sa) == 0);
	CHECK(rdma_listen(id, 4) == 0);
	tell(fd);
	for (;;) {
		CHECK(rdma_get_cm_event(ch, &e) == 0);
		if (e->event == RDMA_CM_EVENT_CONNECT_REQUEST)
			CHECK(rdma_accept(e->id, &param) == 0);
		CHECK(rdma_ack_cm_event(e) == 0);
	}
}

static struct rdma_cm_id *connect_to_them(struct rdma_event_channel *ch)
{
	struct rdma_conn_param param = {.qp_num = SOME_QPN};
	struct rdma_cm_id *id = resolved_to(ch, RDMA_PS_TCP, theirs());

	assert_int_equal(rdma_connect(id, &param), 0);
	return id;
}

/*
 * The first request finds no program at the address. Then the server of another user starts there,
 * and the client asks again.
 */
static void a_server_that_starts_after_the_first_request(void **state)
{
	struct rdma_event_channel *ch;
	struct rdma_cm_id *id;
	char byte;
	pid_t pid;
	int fd;

	assert_non_null(mkdtemp(folder));
	if (chown(folder, OTHER, OTHER))
		printf("chown: %s\n",
		       strerror(errno)); /* the child cannot change its user either */
	fflush(stdout);
	pid = child_start(serve, &fd);
	if (read(fd, &byte, 1) != 1) {
		child_finish(&pid, fd);
		printf("SKIPPED: no program of another user can be started here\n");
		skip();
	}
	ch = channel();
	for (unsigned i = 0; i < 2; i++) {
		id = connect_to_them(ch);
		expect(ch, RDMA_CM_EVENT_REJECTED);
		assert_int_equal(rdma_destroy_id(id), 0);
	}
	assert_int_equal(write(fd, "", 1), 1);
	assert_int_equal(read(fd, &byte, 1), 1);
	id = connect_to_them(ch);
	assert_int_equal(expect(ch, RDMA_CM_EVENT_CONNECT_RESPONSE), 0);
	assert_int_equal(rdma_establish(id), 0);
	assert_int_equal(rdma_destroy_id(id), 0);
	rdma_destroy_event_channel(ch);
	child_finish(&pid, fd);
}

static int remove_folder(void **state)
{
	char cmd[sizeof(folder) + 16];

	snprintf(cmd, sizeof(cmd), "rm -rf %s", folder);
	return system(cmd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(a_server_that_starts_after_the_first_request,
					  remove_folder),
	};
	char spec[64];

	if (!network_own()) {
		fprintf(stderr, "SKIPPED: no network namespace\n");
		return 77;
	}
	setenv("RDMACM_TEST_PORT", "udp", 0);
	snprintf(spec, sizeof(spec), "%s:" OURS, getenv("RDMACM_TEST_PORT"));
	setenv("ROOST_PORT", spec, 1);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
