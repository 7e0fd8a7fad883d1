/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The shm port against peers that use too much: many rings, memory, and addresses of other
 * processes.
 */
#include "../common/resident.h"
#include "shm_liar.h"

/* Address number i of many addresses that this process holds. */
static void name_nth(struct shm_hello *h, unsigned i, struct shm_claim *claim)
{
	char text[32];
	struct pkt_addr a;

	snprintf(text, sizeof(text), "10.0.1.%u", i);
	a = srig_addr(text);
	memcpy(h->addr, a.b, 16);
	*claim = srig_claim(text);
}

/* More rings than places: refused until a peer leaves. */
static void test_too_many_rings(void **state)
{
	struct stage s = open_stage();
	int fd[SHM_MAX_RX];
	struct shm_claim claims[SHM_MAX_RX];
	struct shm_hello h = good_hello();
	struct port_pkt pkts[PORT_BURST];

	still_serves(&s);
	for (unsigned i = 0; i < SHM_MAX_RX - 1; i++) {
		name_nth(&h, i, &claims[i]);
		fd[i] = dial_hub();
		say(fd[i], &h, sizeof(h), ring_fd(SHM_RING_OVERHEAD + RING, SEALS), 1);
		s.hub->ops->control(s.hub);
	}
	assert_int_equal(shm_of(s.hub)->num_rx, SHM_MAX_RX);

	int more = dial_hub();

	name_nth(&h, SHM_MAX_RX - 1, &claims[SHM_MAX_RX - 1]);
	say(more, &h, sizeof(h), ring_fd(SHM_RING_OVERHEAD + RING, SEALS), 1);
	expect_refused(&s, more, "one too many");
	for (unsigned i = 0; i < SHM_MAX_RX - 1; i++)
		close(fd[i]);
	for (unsigned i = 0; i < SHM_MAX_RX; i++)
		close(claims[i].lock_fd);
	for (unsigned i = 0; i < SHM_MAX_RX; i++)
		srig_receive(s.hub, pkts);
	assert_int_equal(shm_of(s.hub)->num_rx, 1);
	still_serves(&s);
	close_stage(&s);
}

/* A sender has only one ring. Its next ring replaces the last one. */
static void test_ring_after_ring(void **state)
{
	struct stage s = open_stage();
	struct shm_hello h = good_hello();
	struct port_pkt pkts[PORT_BURST];
	int last = -1;

	still_serves(&s);
	for (unsigned i = 0; i < 3 * SHM_MAX_RX; i++) {
		int fd = dial_hub();

		say(fd, &h, sizeof(h), ring_fd(SHM_RING_OVERHEAD + RING, SEALS), 1);
		srig_receive(s.hub, pkts);
		assert_int_equal(shm_of(s.hub)->num_rx, 2);
		if (last >= 0) {
			assert_true(hung_up(last));
			close(last);
		}
		last = fd;
	}
	assert_int_equal(shm_of(s.hub)->rx_bytes, SHM_RING_DEFAULT + RING);
	close(last);
	still_serves(&s);
	close_stage(&s);
}

/*
 * A process cannot use an address that it does not hold: it can neither send packets in a peer's
 * name nor end that peer's ring.
 */
static void test_in_anothers_name(void **state)
{
	struct stage s = open_stage();
	uint64_t bad;
	pid_t pid;

	still_serves(&s);
	bad = s.hub->stats.rx_bad;
	pid = fork();
	if (pid == 0) {
		struct shm_hello h = good_hello();

		memcpy(h.addr, s.honest->addr.b, 16);
		say(dial_hub(), &h, sizeof(h), ring_fd(SHM_RING_OVERHEAD + RING, SEALS), 1);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	s.hub->ops->control(s.hub);
	assert_int_equal(s.hub->stats.rx_bad, bad + 1);
	assert_int_equal(shm_of(s.hub)->num_rx, 1);
	still_serves(&s);
	close_stage(&s);
}

/*
 * The total size of peers' rings is bounded. A correct peer that finds no space offers shorter
 * rings. Of a ring that was not used, only the beginning is mapped in this process.
 */
static void test_memory_of_all_rings(void **state)
{
	enum { LONG = 4u << 20, FIT = (SHM_RX_BYTES - SHM_RING_DEFAULT) / LONG };
	struct stage s = open_stage();
	struct shm_hello h = good_hello();
	struct shm_claim claims[FIT + 1];
	int fd[FIT + 1];
	struct port_pkt pkts[PORT_BURST];
	struct port *late;
	struct port_path *path;
	uint64_t before, one;

	still_serves(&s);
	before = resident_shared_bytes();
	assert_true(before > 0);
	for (unsigned i = 0; i <= FIT; i++) {
		struct shm_prod ring;
		int mem;

		name_nth(&h, i, &claims[i]);
		h.ring_size = LONG;
		assert_int_equal(shm_prod_create(LONG, &ring, &mem), 0);
		fd[i] = dial_hub();
		say(fd[i], &h, sizeof(h), mem, 1);
		shm_prod_unmap(&ring);
		if (i < FIT) {
			s.hub->ops->control(s.hub);
			assert_false(hung_up(fd[i]));
		} else {
			expect_refused(&s, fd[i], "one ring too long");
		}
	}
	assert_int_equal(shm_of(s.hub)->rx_bytes, SHM_RX_BYTES);
	/* the beginning may not begin and end with a page */
	one = SHM_RING_OVERHEAD + SHM_RING_FIRST + 2 * mem_page_size();
	assert_true(resident_shared_bytes() < before + FIT * one + (2u << 20));
	/* Space for half a ring: too little for its first offer. */
	close(fd[0]);
	while (shm_of(s.hub)->rx_bytes == SHM_RX_BYTES)
		srig_receive(s.hub, pkts);
	h.ring_size = LONG / 2;
	name_nth(&h, 100, &claims[FIT]);
	{
		struct shm_prod ring;
		int mem;

		assert_int_equal(shm_prod_create(LONG / 2, &ring, &mem), 0);
		fd[0] = dial_hub();
		say(fd[0], &h, sizeof(h), mem, 1);
		shm_prod_unmap(&ring);
		s.hub->ops->control(s.hub);
		assert_false(hung_up(fd[0]));
	}
	late = srig_open("10.0.0.3", 0);
	path = late->ops->path_get(late, &s.hub->addr, 0);
	for (int i = 0; i < SRIG_WAIT_MS && shm_of(s.hub)->rx_bytes < SHM_RX_BYTES; i++) {
		srig_send(late, path, 0);
		late->ops->flush(late);
		late->ops->control(late);
		s.hub->ops->control(s.hub);
		usleep(1000);
	}
	assert_int_equal(shm_of(s.hub)->rx_bytes, SHM_RX_BYTES);
	port_close(late);
	while (shm_of(s.hub)->rx_bytes == SHM_RX_BYTES)
		srig_receive(s.hub, pkts);
	still_serves(&s);
	for (unsigned i = 0; i < FIT; i++)
		close(fd[i]);
	for (unsigned i = 0; i <= FIT; i++)
		close(claims[i].lock_fd);
	close_stage(&s);
}

/* Peers offer an endpoint with short rings no longer ones. */
static void test_short_rings(void **state)
{
	struct port *hub = srig_open("10.0.0.1", SHM_RING_MIN),
		    *peer = srig_open("10.0.0.2", SHM_RING_MAX);
	struct port_path *path = peer->ops->path_get(peer, &hub->addr, 0);

	srig_send_now(peer, path, 0);

	struct port_pkt pkt = srig_next(hub);

	srig_check(&pkt, 0);
	assert_int_equal(shm_of(hub)->rx_bytes, SHM_RING_MIN);
	assert_int_equal(hub->stats.rx_bad, 0);
	port_close(peer);
	port_close(hub);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, srig_setup, srig_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_too_many_rings),   TEST(test_ring_after_ring),
		TEST(test_in_anothers_name), TEST(test_memory_of_all_rings),
		TEST(test_short_rings),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
