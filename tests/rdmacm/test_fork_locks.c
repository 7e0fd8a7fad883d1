/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fork() while another thread is inside of the library. The test stops that thread at a function
 * that the library calls with a lock held. The fork must end, and the child must be able to use the
 * library.
 */
#include "../common/child.h"
#include "../common/threads_settle.h"
#include "fixture.h"

#include <pthread.h>
#include <semaphore.h>
#include <sys/wait.h>
#include <unistd.h>

#include "drive/drive.h"
#include "verbs/evq.h"

/* of headers newer than those of rdma-core 44 */
#define USER (RDMA_CM_EVENT_TIMEWAIT_EXIT + 3)

int rdma_write_cm_event(struct rdma_cm_id *id, enum rdma_cm_event_type event, int status,
			uint64_t arg);

static sem_t stopped, may_proceed;
static __thread bool in_raise, in_open, refuses;

void __real_evq_raise(struct evq *q, struct evq_event *ev);
void __wrap_evq_raise(struct evq *q, struct evq_event *ev);
int __real_drive_get_at(const struct nic_host_ops *ops, const struct pkt_addr *addr,
			struct drive **out, struct drive_addr *where, char *err, size_t errlen);
int __wrap_drive_get_at(const struct nic_host_ops *ops, const struct pkt_addr *addr,
			struct drive **out, struct drive_addr *where, char *err, size_t errlen);
int __real_drive_gsi_open(struct drive *d, const struct drive_gsi_ops *ops, void *ctx);
int __wrap_drive_gsi_open(struct drive *d, const struct drive_gsi_ops *ops, void *ctx);

static void stop(bool *point)
{
	if (!*point)
		return;
	*point = false;
	sem_post(&stopped);
	sem_wait(&may_proceed);
}

/* The library raises events with the agent's lock held. */
void __wrap_evq_raise(struct evq *q, struct evq_event *ev)
{
	stop(&in_raise);
	__real_evq_raise(q, ev);
}

/* The thread that opens the device keeps the others out. */
int __wrap_drive_get_at(const struct nic_host_ops *ops, const struct pkt_addr *addr,
			struct drive **out, struct drive_addr *where, char *err, size_t errlen)
{
	stop(&in_open);
	return __real_drive_get_at(ops, addr, out, where, err, errlen);
}

int __wrap_drive_gsi_open(struct drive *d, const struct drive_gsi_ops *ops, void *ctx)
{
	return refuses ? -EBUSY : __real_drive_gsi_open(d, ops, ctx);
}

static void *raise_event(void *id)
{
	in_raise = true;
	return rdma_write_cm_event(id, (enum rdma_cm_event_type)USER, 0, 0) ? id : NULL;
}

static void *bind_id(void *id)
{
	union address at = ours(0);

	in_open = true;
	return rdma_bind_addr(id, &at.sa) ? id : NULL;
}

static void succeed(pid_t pid)
{
	int status;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

/* The child of a child: it makes a connection of its own. */
static void connect_in_child(void)
{
	struct pair p;

	alarm(WAIT_MS / 1000); /* ends a child that hangs */
	choose_port(true);
	pair_open(&p, RDMA_PS_TCP);
	send_text(p.active, p.passive, "of the child");
	hang_up(&p, p.active, p.passive);
	pair_close(&p);
	_exit(0);
}

/* Forks while a thread is stopped in `run`. Then the thread proceeds and must succeed. */
static void fork_beside(void *(*run)(void *id), struct rdma_cm_id *id)
{
	pthread_t thread;
	void *failed;
	pid_t pid;

	sem_init(&stopped, 0, 0);
	sem_init(&may_proceed, 0, 0);
	CHECK(pthread_create(&thread, NULL, run, id) == 0);
	sem_wait(&stopped);
	threads_settle();
	pid = fork();
	CHECK(pid >= 0);
	if (!pid)
		connect_in_child();
	sem_post(&may_proceed);
	CHECK(pthread_join(thread, &failed) == 0);
	CHECK(!failed);
	succeed(pid);
}

/* Runs the steps in a process of their own, which has not opened the device. */
static void in_new_process(void (*steps)(void))
{
	pid_t pid;

	threads_settle();
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		alarm(WAIT_MS / 1000);
		choose_port(true);
		steps();
		exit(0);
	}
	succeed(pid);
}

static struct rdma_cm_id *new_id(void)
{
	struct rdma_cm_id *id;

	CHECK(rdma_create_id(channel(), &id, NULL, RDMA_PS_TCP) == 0);
	return id;
}

static void raise_without_device(void)
{
	fork_beside(raise_event, new_id());
}

static void raise_with_device(void)
{
	struct pair p;

	pair_open(&p, RDMA_PS_TCP);
	fork_beside(raise_event, p.listen);
	send_text(p.active, p.passive, "after the fork");
}

static void open_device(void)
{
	fork_beside(bind_id, new_id());
}

/* A program may make channels and ids long before it opens the device. */
static void fork_beside_a_call_before_the_device_is_open(void **state)
{
	in_new_process(raise_without_device);
}

static void fork_beside_a_call(void **state)
{
	in_new_process(raise_with_device);
}

static void fork_beside_an_open(void **state)
{
	in_new_process(open_device);
}

/* The device cannot be opened. A fork, an exit and a second attempt find nothing half open. */
static void fail_to_open(void)
{
	union address at = ours(0);
	struct rdma_cm_id *id = new_id();
	pid_t pid;

	refuses = true;
	CHECK(rdma_bind_addr(id, &at.sa) == -1 && errno == EBUSY);
	pid = fork();
	CHECK(pid >= 0);
	if (!pid)
		exit(0);
	succeed(pid);
	pid = fork();
	CHECK(pid >= 0);
	if (!pid) {
		refuses = false;
		connect_in_child();
	}
	succeed(pid);
}

static void fork_after_a_failed_open(void **state)
{
	struct pair p;

	pair_open(&p, RDMA_PS_TCP);
	in_new_process(fail_to_open);
	pair_close(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(fork_beside_a_call_before_the_device_is_open),
		cmocka_unit_test(fork_beside_a_call),
		cmocka_unit_test(fork_beside_an_open),
		cmocka_unit_test(fork_after_a_failed_open),
	};

	return RUN(tests);
}
