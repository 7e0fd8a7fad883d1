/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The golden captures (see tests/golden/README.md): every packet parses and prints, its ICRC
 * recomputes, is verified without its identification, and is refused when a bit is wrong; the
 * counts are those that tshark made; the oracles find nothing. Argument: the folder.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "packet/headers.h"
#include "packet/icrc.h"
#include "packet/oracle.h"
#include "packet/pcap.h"

#define FLOWS 64

static const char *folder;

struct image {
	uint8_t *data;
	size_t size;
};

static struct image load(const char *name, const char *suffix)
{
	struct image img = {0};
	char path[1024];
	FILE *f;
	long n;

	snprintf(path, sizeof(path), "%s/%s%s", folder, name, suffix);
	f = fopen(path, "rb");
	if (!f)
		fail_msg("can't open %s", path);
	assert_int_equal(fseek(f, 0, SEEK_END), 0);
	n = ftell(f);
	assert_true(n >= 0);
	rewind(f);
	img.size = (size_t)n;
	img.data = malloc(img.size + 1);
	assert_non_null(img.data);
	assert_int_equal(fread(img.data, 1, img.size, f), img.size);
	img.data[img.size] = '\0';
	fclose(f);
	return img;
}

/*
 * Calls `each` for every line of expected.txt except comments, with the capture's name and the rest
 * of the line.
 */
static void each_capture(void (*each)(const char *name, char *rest))
{
	struct image list = load("expected", ".txt");
	char *save = NULL;
	unsigned n = 0;

	for (char *line = strtok_r((char *)list.data, "\n", &save); line;
	     line = strtok_r(NULL, "\n", &save)) {
		char *space;

		if (*line == '#')
			continue;
		space = strchr(line, ' ');
		assert_non_null(space);
		*space = '\0';
		each(line, space + 1);
		n++;
	}
	assert_int_equal(n, 58);
	free(list.data);
}

static struct icrc_flow *flow_of(struct icrc_flow *flows, size_t *n, const struct pcap_record *rec)
{
	for (size_t i = 0; i < *n; i++) {
		struct icrc_flow *f = &flows[i];

		if (f->sport == rec->sport && pkt_addr_eq(&f->src, &rec->src) &&
		    pkt_addr_eq(&f->dst, &rec->dst))
			return f;
	}
	assert_true(*n < FLOWS);
	icrc_flow_init(&flows[*n], &rec->src, &rec->dst, rec->sport, rec->dport);
	return &flows[(*n)++];
}

static void check_icrc(const struct icrc_flow *f, const struct pcap_record *rec)
{
	uint32_t icrc = icrc_load(rec->bth + rec->len - PKT_ICRC_LEN);
	static uint16_t last;
	const uint16_t guesses[] = {0, 0xffff, last, (uint16_t)(last + 1),
				    (uint16_t)(rec->ip_id ^ 0x8001)};
	uint8_t bad[PKT_MAX_LEN];
	uint16_t id = rec->ip_id;

	assert_int_equal(icrc_compute(f, rec->ip_id, rec->bth, rec->len), icrc);
	assert_int_equal(icrc_compute_frame(rec->ip, rec->bth, rec->len), icrc);
	assert_true(icrc_verify(f, true, &id, rec->bth, rec->len));
	/*
	 * A socket does not show the identification. The search finds it after any first guess.
	 */
	for (size_t i = 0; i < sizeof(guesses) / sizeof(guesses[0]); i++) {
		id = guesses[i];
		assert_true(icrc_verify(f, false, &id, rec->bth, rec->len));
		if (rec->v4)
			assert_int_equal(id, rec->ip_id);
	}
	last = rec->ip_id;
	/* The lowest bit of the PSN, the last covered bit, and the first bit of the ICRC. */
	memcpy(bad, rec->bth, rec->len);
	for (int i = 0; i < 3; i++) {
		size_t at = i == 0 ? 11 : rec->len - (i == 1 ? 5 : 4);

		bad[at] ^= 1;
		id = rec->ip_id;
		assert_false(icrc_verify(f, true, &id, bad, rec->len));
		assert_false(icrc_verify(f, false, &id, bad, rec->len));
		bad[at] ^= 1;
	}
}

/* Our builders make the Linux kernel's packets, byte by byte. */
static void check_frame(const struct pcap_record *rec)
{
	uint8_t ours[PCAP_MAX_RECORD];
	size_t n = pcap_encode_frame(ours, sizeof(ours), &rec->src, &rec->dst, rec->sport,
				     rec->dport, rec->tos, rec->ip_id, rec->bth, rec->len);

	assert_int_equal(n, (rec->v4 ? PCAP_IP4_UDP_LEN : PCAP_IP6_UDP_LEN) + rec->len);
	if (rec->v4) {
		/* Multicast has a TTL of its own. */
		if (rec->ttl != 64) {
			assert_int_equal(rec->dst.b[12] >> 4, 14);
			return;
		}
		assert_memory_equal(ours, rec->ip, n);
		return;
	}
	/* Over IPv6 the Linux kernel sends a flow label, and no UDP checksum. */
	assert_memory_equal(ours + 4, rec->ip + 4, 48 - 4 - 2);
	assert_memory_equal(ours + 48, rec->bth, rec->len);
}

/* Compares "RC_ACK=5 ... aeth:1f=5" with the counts. */
static void check_counts(const char *name, char *rest, const unsigned *ops, const unsigned *aeth)
{
	unsigned packets = (unsigned)strtoul(rest, &rest, 10), sum = 0, want_aeth = 0, got_aeth = 0;

	while (*rest == ' ') {
		char *eq = strchr(++rest, '=');
		size_t len = (size_t)(eq - rest);
		unsigned n, got = 0;

		assert_non_null(eq);
		n = (unsigned)strtoul(eq + 1, &eq, 10);
		if (strncmp(rest, "aeth:", 5) == 0) {
			got = aeth[strtoul(rest + 5, NULL, 16) & 0xff];
			want_aeth += n;
		} else {
			for (int i = 0; i < 256; i++) {
				if (pkt_ops[i].name && strlen(pkt_ops[i].name) == len &&
				    memcmp(pkt_ops[i].name, rest, len) == 0)
					got = ops[i];
			}
			sum += n;
		}
		if (got != n)
			fail_msg("%s: %u of %.*s, should be %u", name, got, (int)len, rest, n);
		rest = eq;
	}
	assert_int_equal(sum, packets);
	for (int i = 0; i < 256; i++) {
		packets -= ops[i];
		got_aeth += aeth[i];
	}
	assert_int_equal(packets, 0);
	assert_int_equal(got_aeth, want_aeth);
}

static void check_capture(const char *name, char *rest)
{
	unsigned ops[256] = {0}, aeth[256] = {0};
	struct image img = load(name, ".pcap");
	struct icrc_flow flows[FLOWS];
	struct pcap_record rec;
	struct pcap_reader r;
	size_t nflows = 0;
	int more;

	assert_int_equal(pcap_reader_init(&r, img.data, img.size), 0);
	while ((more = pcap_reader_next(&r, &rec)) > 0) {
		struct pkt_view v;
		char text[256];

		if (rec.kind == PCAP_OTHER)
			continue;
		assert_int_equal(rec.kind, PCAP_ROCE);
		assert_int_equal(pkt_parse(rec.bth, rec.len, &v), PKT_OK);
		assert_in_range(pkt_print(&v, text, sizeof(text)), 20, sizeof(text) - 2);
		assert_memory_equal(text, v.op->name, strlen(v.op->name));
		check_icrc(flow_of(flows, &nflows, &rec), &rec);
		check_frame(&rec);
		ops[v.opcode]++;
		if (v.op->flags & PKT_AETH)
			aeth[v.syndrome]++;
	}
	assert_int_equal(more, 0);
	check_counts(name, rest, ops, aeth);
	free(img.data);
}

static void test_captures(void **state)
{
	each_capture(check_capture);
}

/* The results of an oracle for a capture. */
static struct oracle_totals judge(const char *name)
{
	struct oracle *o = oracle_new(&oracle_defaults);
	struct image img = load(name, ".pcap");
	const struct oracle_finding *f;
	struct oracle_totals t;
	struct pcap_record rec;
	struct pcap_reader r;
	uint64_t index = 0;
	size_t n;

	assert_non_null(o);
	assert_int_equal(pcap_reader_init(&r, img.data, img.size), 0);
	while (pcap_reader_next(&r, &rec) > 0) {
		struct pkt_view v;

		index++;
		if (rec.kind == PCAP_ROCE && pkt_parse(rec.bth, rec.len, &v) == PKT_OK)
			oracle_feed(o, index, rec.time_ns, &rec.src, &rec.dst, &v);
	}
	f = oracle_findings(o, &n);
	if (n)
		fail_msg("%s, packet %llu: %s: %s", name, (unsigned long long)f->index,
			 oracle_rule_name(f->rule), f->text);
	t = *oracle_totals(o);
	oracle_free(o);
	free(img.data);
	return t;
}

static void judge_capture(const char *name, char *rest)
{
	struct oracle_totals t = judge(name);

	assert_int_equal(t.violations, 0);
	/* Every response found the requests it answers. */
	assert_int_equal(t.unpaired, 0);
	assert_int_equal(t.packets, strtoul(rest, NULL, 10));
}

static void test_oracles(void **state)
{
	each_capture(judge_capture);
}

/* The captures with loss and refusals contain these cases. */
static void test_counts(void **state)
{
	static const struct {
		const char *name;
		uint64_t naks_seq, naks_rnr, naks_access, naks_op, retransmitted, gaps, reads_again,
			atomics_again;
	} rows[] = {
		{"loss_write_bw", 1, 0, 0, 0, 17, 1, 0, 0},
		{"loss_send_bw", 4, 0, 0, 0, 76, 4, 0, 0},
		{"loss_read_bw", 0, 0, 0, 0, 43, 0, 43, 0},
		{"loss_atomic", 2, 0, 0, 0, 13, 2, 0, 10},
		{"rnr_nak", 0, 3, 0, 0, 3, 0, 0, 0},
		{"rnr_infinite", 0, 575, 0, 0, 574, 0, 0, 0},
		{"retry_exceeded", 0, 0, 0, 0, 3, 0, 0, 0},
		{"nak_badrkey_read", 0, 0, 1, 0, 0, 0, 0, 0},
		{"nak_toolong", 0, 0, 0, 1, 0, 0, 0, 0},
		{"write_bw_long", 0, 0, 0, 0, 0, 0, 0, 0},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct oracle_totals t = judge(rows[i].name);

		if (t.c.naks_seq != rows[i].naks_seq || t.c.naks_rnr != rows[i].naks_rnr ||
		    t.c.naks_access != rows[i].naks_access || t.c.naks_op != rows[i].naks_op ||
		    t.c.retransmitted != rows[i].retransmitted || t.c.gaps != rows[i].gaps ||
		    t.c.reads_again != rows[i].reads_again ||
		    t.c.atomics_again != rows[i].atomics_again)
			fail_msg(
				"%s: %llu sequence NAKs, %llu RNR, %llu again, %llu gaps, %llu READs again",
				rows[i].name, (unsigned long long)t.c.naks_seq,
				(unsigned long long)t.c.naks_rnr,
				(unsigned long long)t.c.retransmitted, (unsigned long long)t.c.gaps,
				(unsigned long long)t.c.reads_again);
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_captures),
		cmocka_unit_test(test_oracles),
		cmocka_unit_test(test_counts),
	};

	if (argc != 2) {
		fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
		return 2;
	}
	folder = argv[1];
	return cmocka_run_group_tests(tests, NULL, NULL);
}
