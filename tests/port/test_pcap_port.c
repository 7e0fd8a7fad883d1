/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Captures of a port: the file has each packet once, in order, with an ICRC that verifies against
 * the headers in the file. If the file cannot be written, the capture ends, not the port.
 *
 * With two arguments: writes a short conversation into these files, for judges, and prints the
 * number of packets.
 */
#include "rig.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"
#include "packet/pcap.h"
#include "port/port_impl.h"
#include "port/sim.h"

static char folder[] = "/tmp/roost-pcap-XXXXXX";
static char path_a[256], path_b[256];

static const uint32_t sizes[] = {4148, 4148, 4148, 4148, 1076, 64, 64, 64, 64, 20, 4148};

struct file {
	uint8_t *data;
	struct pcap_reader r;
};

static void open_file(struct file *f, const char *path)
{
	int fd = open(path, O_RDONLY);
	struct stat st;

	if (fd < 0 || fstat(fd, &st))
		fail_msg("no file %s", path);
	f->data = malloc((size_t)st.st_size + 1);
	assert_int_equal(read(fd, f->data, (size_t)st.st_size), st.st_size);
	close(fd);
	assert_int_equal(pcap_reader_init(&f->r, f->data, (size_t)st.st_size), 0);
}

/* Checks that the next record is packet n between these two addresses. */
static void expect_record(struct file *f, const struct pkt_addr *src, const struct pkt_addr *dst,
			  uint32_t qpn, uint32_t n, uint32_t len, uint8_t tos, uint64_t *time)
{
	struct pcap_record rec;

	assert_int_equal(pcap_reader_next(&f->r, &rec), 1);
	assert_int_equal(rec.kind, PCAP_ROCE);
	assert_true(pkt_addr_eq(&rec.src, src) && pkt_addr_eq(&rec.dst, dst));
	assert_int_equal(rec.len, len);
	assert_int_equal(rec.tos, tos);
	assert_int_equal(pkt_get24(((const struct pkt_bth *)rec.bth)->psn), n);
	assert_int_equal(pkt_get24(((const struct pkt_bth *)rec.bth)->dqpn), qpn);
	assert_int_equal(icrc_compute_frame(rec.ip, rec.bth, rec.len),
			 icrc_load(rec.bth + rec.len - 4));
	assert_true(rec.time_ns >= *time);
	*time = rec.time_ns;
}

static void expect_end(struct file *f)
{
	struct pcap_record rec;

	assert_int_equal(pcap_reader_next(&f->r, &rec), 0);
	free(f->data);
}

static void receive(struct port *p, unsigned count, uint32_t qpn)
{
	struct port_pkt pkts[PORT_BURST];

	for (unsigned got = 0; got < count;) {
		int n = rig_burst(p, pkts, PORT_BURST);

		assert_true(n > 0);
		for (int i = 0; i < n; i++, got++)
			rig_check(p, &pkts[i], qpn, got);
	}
}

static void spec_of(char *spec, size_t n, int last, const char *options)
{
	snprintf(spec, n, "udp:127.%d.%d.%d%s", 1 + (getpid() >> 8) % 250, getpid() % 250, last,
		 options);
}

static void send_all(struct port *p, struct port_path *path, uint32_t qpn)
{
	for (unsigned i = 0; i < ARRAY_SIZE(sizes); i++) {
		assert_int_equal(rig_send(p, path, sizes[i], 0x6a, qpn, i), 0);
		if (i == 3) { /* reserved and cancelled: not in the capture */
			assert_int_equal(rig_send(p, path, 64, 0x6a, qpn, 77), 0);
			p->ops->cancel(p);
		}
	}
	assert_true(p->ops->flush(p));
}

static void converse(const char *a_options, const char *b_options, struct pkt_addr *a_addr,
		     struct pkt_addr *b_addr)
{
	char spec[400];
	struct port *a, *b;
	struct port_path *to_b, *to_a;

	spec_of(spec, sizeof(spec), 207, a_options);
	a = rig_open(spec);
	spec_of(spec, sizeof(spec), 208, b_options);
	b = rig_open(spec);
	*a_addr = a->addr;
	*b_addr = b->addr;
	to_b = a->ops->path_get(a, &b->addr, 5);
	to_a = b->ops->path_get(b, &a->addr, 6);
	assert_true(to_a && to_b);
	send_all(a, to_b, 5);
	receive(b, ARRAY_SIZE(sizes), 5);
	send_all(b, to_a, 6);
	receive(a, ARRAY_SIZE(sizes), 6);
	assert_int_equal(a->stats.tx_packets, ARRAY_SIZE(sizes));
	a->ops->path_put(a, to_b);
	b->ops->path_put(b, to_a);
	rig_close(a);
	rig_close(b);
}

static void expect_conversation(const char *path, const struct pkt_addr *a,
				const struct pkt_addr *b)
{
	struct file f;
	uint64_t time = 1500000000ull * 1000000000; /* a real date, at least */

	open_file(&f, path);
	for (unsigned i = 0; i < ARRAY_SIZE(sizes); i++)
		expect_record(&f, a, b, 5, i, sizes[i], 0x6a, &time);
	for (unsigned i = 0; i < ARRAY_SIZE(sizes); i++)
		expect_record(&f, b, a, 6, i, sizes[i], 0x6a, &time);
	expect_end(&f);
}

static void test_both_sides(void **state)
{
	char options[2][300];
	struct pkt_addr a, b;

	snprintf(options[0], sizeof(options[0]), ",pcap=%s", path_a);
	snprintf(options[1], sizeof(options[1]), ",pcap=%s", path_b);
	converse(options[0], options[1], &a, &b);
	expect_conversation(path_a, &a, &b);
	expect_conversation(path_b, &a, &b);
}

/* If the sender's packets arrive one by one, the identifications are computed from the ICRC. */
static void test_hidden_identification(void **state)
{
	char options[300];
	struct pkt_addr a, b;

	snprintf(options, sizeof(options), ",offload=0,pcap=%s", path_b);
	converse("", options, &a, &b);
	expect_conversation(path_b, &a, &b);
}

/* With faults: the sender's file has all packets sent, the receiver's all packets received. */
static void test_faults(void **state)
{
	char spec[400], options[300];
	struct port *a, *b;
	struct port_path *path;
	struct port_pkt pkts[PORT_BURST];
	struct pcap_record rec;
	struct file f;
	unsigned n;
	uint64_t time = 0;
	struct pkt_addr src, dst;

	snprintf(options, sizeof(options), ",loss=0.5,seed=3,pcap=%s", path_a);
	spec_of(spec, sizeof(spec), 207, options);
	a = rig_open(spec);
	snprintf(options, sizeof(options), ",pcap=%s", path_b);
	spec_of(spec, sizeof(spec), 208, options);
	b = rig_open(spec);
	src = a->addr;
	dst = b->addr;
	path = a->ops->path_get(a, &b->addr, 5);
	for (unsigned i = 0; i < 100; i++)
		assert_int_equal(rig_send(a, path, 64, 0, 5, i), 0);
	assert_true(a->ops->flush(a));
	for (n = 0; n < a->stats.tx_packets;)
		n += (unsigned)rig_burst(b, pkts, PORT_BURST);
	assert_in_range(n, 25, 75);
	assert_int_equal(a->stats.tx_dropped, 100 - n);
	a->ops->path_put(a, path);
	rig_close(a);
	rig_close(b);
	open_file(&f, path_a);
	for (unsigned i = 0; i < 100; i++)
		expect_record(&f, &src, &dst, 5, i, 64, 0, &time);
	expect_end(&f);
	open_file(&f, path_b);
	for (unsigned i = 0; i < n; i++)
		assert_int_equal(pcap_reader_next(&f.r, &rec), 1);
	expect_end(&f);
}

/* The file has all packets when the port goes to sleep, not only when it closes. */
static void test_written_before_sleep(void **state)
{
	char spec[400], options[300];
	struct port *a;
	struct port_path *path;
	struct file f;
	uint64_t time = 0;

	snprintf(options, sizeof(options), ",pcap=%s", path_a);
	spec_of(spec, sizeof(spec), 207, options);
	a = rig_open(spec);
	path = a->ops->path_get(a, &a->addr, 5);
	assert_int_equal(rig_send(a, path, 64, 0, 5, 1), 0);
	assert_true(a->ops->flush(a));
	a->ops->arm(a);
	a->ops->disarm(a, true);
	open_file(&f, path_a);
	expect_record(&f, &a->addr, &a->addr, 5, 1, 64, 0, &time);
	expect_end(&f);
	a->ops->path_put(a, path);
}

/* A full disk: one line is logged, and packets are still sent. */
static void test_full_disk(void **state)
{
	struct pkt_addr a, b;

	if (access("/dev/full", W_OK)) {
		print_message("SKIPPED: no /dev/full\n");
		skip();
	}
	converse(",pcap=/dev/full", "", &a, &b);
}

static void test_no_file(void **state)
{
	char spec[300], err[256];

	spec_of(spec, sizeof(spec), 207, ",pcap=/nowhere/at/all.pcap");
	assert_null(port_open(spec, 0, 1, err, sizeof(err)));
	assert_non_null(strstr(err, "can't create /nowhere/at/all.pcap"));
	spec_of(spec, sizeof(spec), 207, "");
	rig_close(rig_open(spec)); /* the inner port was closed */
}

static void assert_file_refused(const char *path)
{
	char spec[400], options[300], err[400];

	snprintf(options, sizeof(options), ",pcap=%s", path);
	spec_of(spec, sizeof(spec), 207, options);
	assert_null(port_open(spec, 0, 1, err, sizeof(err)));
	if (!strstr(err, "a file of another user") || strchr(err, '\n'))
		fail_msg("%s: '%s'", path, err);
}

static void write_file(const char *path)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, "kept", 4), 4);
	close(fd);
}

static void assert_kept(const char *path)
{
	struct stat st;

	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_size, 4);
}

/*
 * In a folder that others may write to: hard and symbolic links to this user's files, a pipe that
 * another user reads, and another user's file are refused.
 */
static void test_planted(void **state)
{
	char kept[64], planted[64], spec[400], options[300];
	struct stat st;
	int reader;

	snprintf(kept, sizeof(kept), "%s/kept", folder);
	snprintf(planted, sizeof(planted), "%s/planted.pcap", folder);
	write_file(kept);
	assert_int_equal(symlink(kept, planted), 0);
	assert_file_refused(planted);
	assert_int_equal(unlink(planted), 0);
	assert_int_equal(link(kept, planted), 0);
	assert_file_refused(planted);
	assert_int_equal(unlink(planted), 0);
	assert_kept(kept);
	assert_int_equal(symlink("/nowhere/at/all", planted), 0);
	assert_file_refused(planted);
	assert_int_equal(unlink(planted), 0);
	assert_int_equal(mkfifo(planted, 0666), 0);
	reader = open(planted, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	assert_file_refused(planted);
	close(reader);
	assert_int_equal(unlink(planted), 0);
	if (geteuid() == 0) {
		write_file(planted);
		assert_int_equal(chown(planted, 65534, 65534), 0);
		assert_file_refused(planted);
		assert_kept(planted);
		assert_int_equal(unlink(planted), 0);
	}
	/* The user's own file is overwritten. A new file is readable only by its owner. */
	snprintf(options, sizeof(options), ",pcap=%s", kept);
	spec_of(spec, sizeof(spec), 207, options);
	rig_close(rig_open(spec));
	assert_int_equal(stat(kept, &st), 0);
	assert_int_equal(st.st_size, 24);
	assert_int_equal(unlink(kept), 0);
	rig_close(rig_open(spec));
	assert_int_equal(stat(kept, &st), 0);
	assert_int_equal(st.st_mode & 077, 0);
	assert_int_equal(unlink(kept), 0);
}

static void test_name(void **state)
{
	char spec[400], options[300], want[300];

	snprintf(options, sizeof(options), ",pcap=%s/p%%p-%%p.pcap", folder);
	snprintf(want, sizeof(want), "%s/p%d-%d.pcap", folder, (int)getpid(), (int)getpid());
	spec_of(spec, sizeof(spec), 207, options);
	rig_close(rig_open(spec));
	assert_int_equal(unlink(want), 0);
}

/* A child that releases the port leaves the file to the parent. */
static void test_fork(void **state)
{
	char spec[400], options[300];
	struct port *a;
	struct port_path *path;
	struct file f;
	int status;
	pid_t child;

	snprintf(options, sizeof(options), ",pcap=%s", path_a);
	spec_of(spec, sizeof(spec), 207, options);
	a = rig_open(spec);
	path = a->ops->path_get(a, &a->addr, 5);
	assert_int_equal(rig_send(a, path, 64, 0, 5, 1), 0);
	assert_true(a->ops->flush(a));
	child = fork();
	if (child == 0) {
		a->ops->after_fork(a);
		port_close(a);
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	a->ops->path_put(a, path);
	rig_close(a);
	open_file(&f, path_a);
	assert_int_equal(pcap_reader_next(&f.r, &(struct pcap_record){0}), 1);
	expect_end(&f);
}

/* Around a simulated port: time stamps in virtual time. */
static uint64_t virtual_time(void *ctx)
{
	return sim_now(ctx);
}

static void test_simulated(void **state)
{
	struct sim_params params = {.delay_ns = 5000};
	struct sim *sim = sim_create(1, &params);
	struct pkt_addr src = rig_addr("10.0.0.1"), dst = rig_addr("10.0.0.2");
	struct port *a = sim_port(sim, &src, 0, 1), *b = sim_port(sim, &dst, 0, 1);
	struct port_pkt pkts[4];
	struct port_path *path;
	struct pcap_record rec;
	struct file f;
	char err[200];

	b = pcap_wrap(b, path_b, virtual_time, sim, err, sizeof(err));
	assert_non_null(b);
	path = a->ops->path_get(a, &dst, 5);
	assert_int_equal(rig_send(a, path, 64, 0, 5, 1), 0);
	a->ops->flush(a);
	sim_advance(sim, sim_next_event(sim));
	assert_int_equal(b->ops->rx_burst(b, pkts, 4), 1);
	a->ops->path_put(a, path);
	open_file(&f, path_b);
	assert_int_equal(pcap_reader_next(&f.r, &rec), 0); /* not yet */
	free(f.data);
	for (int i = 0; i < 2000; i++) /* a poller that finds no packets */
		assert_int_equal(b->ops->rx_burst(b, pkts, 4), 0);
	open_file(&f, path_b);
	assert_int_equal(pcap_reader_next(&f.r, &rec), 1);
	assert_int_equal(rec.time_ns, sim_now(sim));
	expect_end(&f);
	port_close(a);
	port_close(b);
	sim_destroy(sim);
}

static int write_for_judges(char **argv)
{
	char options[2][300];
	struct pkt_addr a, b;

	for (int i = 0; i < 2; i++)
		snprintf(options[i], sizeof(options[i]), ",pcap=%s", argv[1 + i]);
	converse(options[0], options[1], &a, &b);
	printf("%zu\n", 2 * ARRAY_SIZE(sizes));
	return 0;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(test_both_sides, rig_close_all),
		cmocka_unit_test_teardown(test_hidden_identification, rig_close_all),
		cmocka_unit_test_teardown(test_faults, rig_close_all),
		cmocka_unit_test_teardown(test_written_before_sleep, rig_close_all),
		cmocka_unit_test_teardown(test_full_disk, rig_close_all),
		cmocka_unit_test_teardown(test_no_file, rig_close_all),
		cmocka_unit_test_teardown(test_planted, rig_close_all),
		cmocka_unit_test_teardown(test_name, rig_close_all),
		cmocka_unit_test_teardown(test_fork, rig_close_all),
		cmocka_unit_test(test_simulated),
	};
	int rc;

	if (argc == 3)
		return write_for_judges(argv);
	if (!mkdtemp(folder)) {
		perror(folder);
		return 1;
	}
	snprintf(path_a, sizeof(path_a), "%s/a.pcap", folder);
	snprintf(path_b, sizeof(path_b), "%s/b.pcap", folder);
	rc = cmocka_run_group_tests(tests, NULL, NULL);
	unlink(path_a);
	unlink(path_b);
	rmdir(folder);
	return rc;
}
