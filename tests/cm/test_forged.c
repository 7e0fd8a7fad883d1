/* SPDX-License-Identifier: BSD-2-Clause */
/* A third party forges messages in the peer's name. It may have the address, but not both ids. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <endian.h>
#include <errno.h>
#include <cmocka.h>

#include "cm/core.h"
#include "rig.h"

static struct cm_msg rej(uint8_t about, uint16_t reason, uint32_t from, uint32_t to)
{
	return (struct cm_msg){.attr = CM_REJ,
			       .local_id = from,
			       .remote_id = to,
			       .rej = {.about = about, .reason = reason}};
}

/*
 * 12.6.7: a REJ with only our id, with only the peer's id and GUID, or with a wrong id ends no
 * connection. Other messages do not end one, either.
 */
static void both_ids_or_nothing(bool v6)
{
	static const uint8_t attrs[] = {CM_MRA, CM_RTU, CM_DREQ, CM_DREP, CM_REP};

	for (int side = 0; side < 2; side++) {
		struct pair p;
		struct end *e;
		struct cm_conn *c;
		uint64_t guid;
		uint32_t ours, theirs;
		struct pkt_addr peer;

		pair_open(&p);
		if (v6) {
			assert_int_equal(pkt_addr_parse("fd77::1", &p.a.addr), 0);
			assert_int_equal(pkt_addr_parse("fd77::2", &p.b.addr), 0);
		}
		pair_connect(&p);
		e = side ? &p.b : &p.a;
		c = side ? p.cb : p.ca;
		ours = c->local_id;
		theirs = c->remote_id;
		peer = side ? p.a.addr : p.b.addr;
		guid = htobe64(side ? GUID_OF(&p.a) : GUID_OF(&p.b));
		for (uint8_t about = CM_ABOUT_REQ; about <= CM_ABOUT_OTHER; about++) {
			struct cm_msg m = rej(about, CM_REJ_CONSUMER, 0, ours);

			end_play(e, &peer, &m);
			m = rej(about, CM_REJ_CONSUMER, theirs ^ 1, ours);
			end_play(e, &peer, &m);
			m = rej(about, CM_REJ_TIMEOUT, theirs, 0);
			m.rej.ari_len = sizeof(guid);
			memcpy(m.rej.ari, &guid, sizeof(guid));
			end_play(e, &peer, &m);
			end_quiet(e);
			assert_int_equal(cm_conn_state(c), CM_ESTABLISHED);
		}
		for (unsigned i = 0; i < sizeof(attrs); i++) {
			for (int from = 0; from < 2; from++) {
				struct cm_msg m = {.attr = attrs[i],
						   .local_id = from ? theirs ^ 1 : 0,
						   .remote_id = ours};

				if (attrs[i] == CM_DREQ)
					m.dreq.qpn = side ? 0x22 : 0x11;
				end_play(e, &peer, &m);
				if (attrs[i] == CM_DREQ)
					end_sent(e, CM_DREP); /* for no connection */
				if (attrs[i] == CM_REP)
					end_sent(e, CM_REJ);
				end_quiet(e);
				assert_int_equal(cm_conn_state(c), CM_ESTABLISHED);
			}
		}
		/* A message with both ids is the peer's. */
		struct cm_msg m = rej(CM_ABOUT_OTHER, CM_REJ_CONSUMER, theirs, ours);

		end_play(e, &peer, &m);
		assert_int_equal(end_told(e, CM_EV_DISCONNECTED)->status, -ECONNRESET);
		cm_release(p.ca, p.now);
		cm_release(p.cb, p.now);
		end_sent(side ? &p.a : &p.b, CM_DREQ);
		pair_close(&p);
	}
}

static void both_ids_over_ipv4(void **state)
{
	both_ids_or_nothing(false);
}

static void both_ids_over_ipv6(void **state)
{
	both_ids_or_nothing(true);
}

/*
 * Ids, transaction ids and the tables' hash come from generators whose past and future outputs
 * cannot be computed from the seen ones (test_secret.c, base/numbers.h). The simulator's generator,
 * xoshiro256**, reveals its state in 18 outputs.
 */
static void ids_are_secret(void **state)
{
	struct cm_config config = {.seed = {11, 12, 13, 14}, .slot = 37, .max_conns = 64};
	_Atomic uint32_t drawn = 0;
	struct sequence ids = {.bits = 26, .next = &drawn};
	uint64_t now = 0;
	struct secret s;
	struct end a, b;

	end_open(&a, 1, &now, &config);
	end_open(&b, 2, &now, NULL);
	secret_seed(&s, config.seed);
	assert_int_equal(a.cm->hash_seed, secret_u64(&s));
	assert_int_equal(a.cm->tid_high, (uint32_t)secret_u64(&s));
	ids.seed[0] = secret_u64(&s);
	ids.seed[1] = secret_u64(&s);
	for (uint32_t i = 0; i < 18; i++) {
		struct cm_connect p = connect_to(&a, &b, 100 + i);
		const struct sent *sent;
		struct cm_conn *c;
		uint32_t id = 37u << 26 | sequence_draw(&ids);

		assert_int_equal(cm_connect(a.cm, now, &p, NULL, &c), 0);
		sent = end_sent(&a, CM_REQ);
		assert_int_equal(sent->m.local_id, id);
		assert_int_equal(sent->m.tid, (uint64_t)a.cm->tid_high << 32 | id);
		cm_release(c, now);
		end_sent(&a, CM_REJ);
	}
	end_close(&a);
	end_close(&b);
}

/* No id returns within 60 s, at any rate of connections and refusals. */
static void ids_rest(void **state)
{
	const uint64_t second = 1000000000ull;
	_Atomic uint32_t drawn = (1u << 25) - 2;
	_Atomic uint64_t entered = numbers_second(1000 * second); /* half 0 */
	struct cm_config config = {.max_conns = 64};
	uint64_t now = 1059 * second;
	struct cm_conn *c;
	struct end a, b;

	config.ids = (struct sequence){.bits = 26, .next = &drawn, .entered = &entered};
	end_open(&a, 1, &now, &config);
	end_open(&b, 2, &now, NULL);
	for (uint32_t i = 0; i < 5; i++) {
		struct cm_connect p = connect_to(&a, &b, 100 + i);

		/* the last two of a half; the other half was drawn within a minute before them */
		if (i == 2) {
			assert_int_equal(cm_connect(a.cm, now, &p, NULL, &c), -ENOBUFS);
			now += second;
			assert_int_equal(cm_connect(a.cm, now, &p, NULL, &c), -ENOBUFS);
			assert_int_equal(cm_in_use(a.cm), 0);
			now += second;
		}
		assert_int_equal(cm_connect(a.cm, now, &p, NULL, &c), 0);
		end_sent(&a, CM_REQ);
		cm_release(c, now);
		end_sent(&a, CM_REJ);
	}
	end_close(&a);
	end_close(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(both_ids_over_ipv4),
		cmocka_unit_test(both_ids_over_ipv6),
		cmocka_unit_test(ids_are_secret),
		cmocka_unit_test(ids_rest),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
