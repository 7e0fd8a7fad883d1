/* SPDX-License-Identifier: BSD-2-Clause */
/* `roost pcap`: prints captures of RoCE traffic, verifies each ICRC, and runs the oracles. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "cli/pcap/capture_file.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/term.h"
#include "cm/mad.h"
#include "packet/headers.h"
#include "packet/icrc.h"
#include "packet/oracle.h"
#include "packet/pcap.h"

static struct {
	bool json, quiet, no_oracles, disorder;
	const char *local;
	uint64_t mtu;
} opt;

static const struct opt options[] = {
	{"local", 0, OPT_STRING, &opt.local, "ADDR",
	 "the captures are of this end's NIC: judge it exactly", 0, 0, NULL, NULL},
	{"disorder", 0, OPT_FLAG, &opt.disorder, NULL,
	 "with --local: the network reorders or duplicates", 0, 0, NULL, NULL},
	{"mtu", 0, OPT_COUNT, &opt.mtu, "BYTES", "path MTU (learnt from the packets if not given)",
	 256, 4096, NULL, NULL},
	{"no-oracles", 0, OPT_FLAG, &opt.no_oracles, NULL, "print and verify only", 0, 0, NULL,
	 NULL},
	{"quiet", 'q', OPT_FLAG, &opt.quiet, NULL, "no line per packet, only those that are wrong",
	 0, 0, NULL, NULL},
	{"json", 'j', OPT_FLAG, &opt.json, NULL, "the summary as JSON, and no line per packet", 0,
	 0, NULL, NULL},
	{0},
};

static const struct opt_command command = {
	.name = "pcap",
	.synopsis = "[OPTIONS] FILE...",
	.about = "Reads captures (pcap files of tcpdump, Wireshark, or a port's pcap= option;\n"
		 "`-` is stdin), prints a line for each RoCE v2 packet, verifies its ICRC, and\n"
		 "checks the conversations of each file against rules of the protocol. Exit\n"
		 "status 0 only if every packet parses, every ICRC is right, and no rule is\n"
		 "broken.",
	.opts = options,
	.examples =
		"  roost perf write --local --port udp,loss=0.01,pcap=run.%p.pcap; roost pcap -q run.*.pcap\n"
		"  tcpdump -i eth0 -w - -c 1000 udp port 4791 | roost pcap -\n",
	.operands = OPT_FILES,
};

/* The counts of a file, and of all files together. */
struct tally {
	uint64_t records, kinds[PCAP_KIND_COUNT];
	/* of the RoCE packets; refused[PKT_ERR_ICRC] is the count of wrong ICRCs */
	uint64_t good, refused[PKT_ERR_COUNT];
	uint64_t ops[256];
	uint64_t oversized;
	uint64_t unread; /* files that could not be read to the end */
	struct oracle_totals oracles;
	json_t *findings; /* NULL: findings are printed */
};

static bool icrc_right(const struct pcap_record *rec)
{
	/* No specification defines an ICRC for headers with options. */
	return rec->ip && icrc_compute_frame(rec->ip, rec->bth, rec->len) ==
				  icrc_load(rec->bth + rec->len - PKT_ICRC_LEN);
}

static void print_record(uint64_t index, uint64_t since, const struct pcap_record *rec,
			 const char *what, const char *verdict)
{
	char src[64], dst[64];

	pkt_addr_print(&rec->src, src, sizeof(src));
	pkt_addr_print(&rec->dst, dst, sizeof(dst));
	printf("%6" PRIu64 " %4" PRIu64 ".%09" PRIu64 " %s > %s %s icrc %s\n", index,
	       since / 1000000000, since % 1000000000, src, dst, what, verdict);
}

/*
 * Formats the packet into text: its headers, and the management datagram if it carries one to QP 1.
 */
static void describe(const struct pkt_view *v, char *text, size_t n)
{
	int used = pkt_print(v, text, n);
	struct cm_msg m;

	if (v->dqpn != CM_QPN || !(v->op->flags & PKT_DETH) || (size_t)used + 2 >= n)
		return;
	if (cm_parse(v->payload, v->payload_len, &m) == CM_OK) {
		text[used++] = ' ';
		cm_print(&m, text + used, n - (size_t)used);
	}
}

/* Parses, verifies and prints a RoCE packet, and passes it to the oracles. */
static void take_packet(struct tally *t, struct oracle *oracle, uint64_t index, uint64_t since,
			const struct pcap_record *rec)
{
	bool show = !opt.json && !opt.quiet;
	struct pkt_view v;
	enum pkt_error err = pkt_parse(rec->bth, rec->len, &v);
	char text[1536];

	if (err) {
		t->refused[err]++;
		t->oversized += rec->len > PKT_MAX_LEN;
		if (!opt.json) {
			snprintf(text, sizeof(text), "REFUSED: %s, %zu bytes,", pkt_error_str(err),
				 rec->len);
			print_record(index, since, rec, text, "not checked");
		}
		return;
	}
	t->ops[v.opcode]++;
	if (!icrc_right(rec)) {
		t->refused[PKT_ERR_ICRC]++;
		show = !opt.json;
		err = PKT_ERR_ICRC;
	} else {
		t->good++;
		if (oracle)
			oracle_feed(oracle, index, since, &rec->src, &rec->dst, &v);
	}
	if (show) {
		describe(&v, text, sizeof(text));
		print_record(index, since, rec, text, err ? "BAD" : "ok");
	}
}

/* Prints one line on stderr about a file that cannot be read, or not to its end. */
static void print_error(const char *name, int err)
{
	switch (err) {
	case -EINVAL:
		opt_failed(&command, "%s is no pcap file", name);
		break;
	case -EPROTONOSUPPORT:
		opt_failed(&command, "%s is a pcapng file; convert it: editcap -F nsecpcap %s NEW",
			   name, name);
		break;
	case -ENOTSUP:
		opt_failed(
			&command,
			"%s has a link type other than Ethernet, raw IP or Linux cooked; capture on a device "
			"that has one of these",
			name);
		break;
	case -ENODATA:
		opt_failed(&command,
			   "%s is truncated: it ends within a packet; earlier packets were read",
			   name);
		break;
	case -EBADMSG:
		opt_failed(
			&command,
			"%s is damaged: the length of a packet is impossible; earlier packets were read",
			name);
		break;
	default:
		opt_failed(&command, "can't read %s: %s", name, strerror(-err));
	}
}

static void add_totals(struct oracle_totals *sum, const struct oracle_totals *one)
{
	const uint64_t *from = (const uint64_t *)&one->c;
	uint64_t *to = (uint64_t *)&sum->c;

	for (size_t i = 0; i < sizeof(sum->c) / sizeof(*to); i++)
		to[i] += from[i];
	for (int r = 0; r < ORACLE_RULES; r++)
		sum->broken[r] += one->broken[r];
	sum->packets += one->packets;
	sum->unpaired += one->unpaired;
	sum->unfollowed += one->unfollowed;
	sum->streams += one->streams;
	sum->violations += one->violations;
}

/* Prints the verdict of the oracles on a file, or collects it for --json. */
static void take_verdict(const char *file, struct tally *t, struct oracle *oracle)
{
	const struct oracle_totals *o = oracle_totals(oracle);
	const struct oracle_finding *f;
	char name[256];
	size_t n;

	snprintf(name, sizeof(name), "%s", file);
	plain_text(name);
	add_totals(&t->oracles, o);
	f = oracle_findings(oracle, &n);
	for (size_t i = 0; i < n; i++) {
		const char *rule = oracle_rule_name(f[i].rule);
		char src[64], dst[64];

		pkt_addr_print(&f[i].src, src, sizeof(src));
		pkt_addr_print(&f[i].dst, dst, sizeof(dst));
		if (t->findings)
			json_array_append_new(
				t->findings,
				json_pack("{ss sI ss ss sI sI ss ss}", "file", name, "packet",
					  (json_int_t)f[i].index, "src", src, "dst", dst, "qp",
					  (json_int_t)f[i].dqpn, "psn", (json_int_t)f[i].psn,
					  "rule", rule, "text", f[i].text));
		else
			printf("%s: packet %" PRIu64 ", %s > %s qp 0x%06x: %s: %s\n", name,
			       f[i].index, src, dst, f[i].dqpn, rule, f[i].text);
	}
	if (o->violations > n && !t->findings)
		printf("%s: ... and %" PRIu64 " more\n", name, o->violations - n);
}

/* Checks one file. Conversations do not continue across files. Returns 0, or the exit status. */
static int take_file(const char *name, struct tally *t, const struct oracle_options *oo)
{
	struct oracle *oracle = NULL;
	uint64_t first = 0, index = 0;
	struct capture_file file;
	struct pcap_record rec;
	int err;

	if (!opt.no_oracles) {
		oracle = oracle_new(oo);
		if (!oracle)
			return opt_failed(&command,
					  "not enough memory for the oracles; use --no-oracles");
	}
	err = capture_open(&file, name);
	while (!err && (err = capture_next(&file, &rec)) > 0) {
		err = 0;
		if (index++ == 0)
			first = rec.time_ns;
		t->records++;
		t->kinds[rec.kind]++;
		if (rec.kind == PCAP_ROCE)
			take_packet(t, oracle, index, rec.time_ns > first ? rec.time_ns - first : 0,
				    &rec);
	}
	if (err) {
		print_error(name, err);
		t->unread++;
	}
	capture_close(&file);
	if (oracle)
		take_verdict(name, t, oracle);
	oracle_free(oracle);
	return 0;
}

static uint64_t refused_sum(const struct tally *t)
{
	uint64_t n = 0;

	for (int e = 0; e < PKT_ERR_COUNT; e++)
		n += t->refused[e];
	return n;
}

static bool all_well(const struct tally *t)
{
	return t->good && !refused_sum(t) && !t->kinds[PCAP_CUT] && !t->kinds[PCAP_FRAGMENT] &&
	       !t->kinds[PCAP_BAD] && !t->unread && !t->oracles.violations;
}

static void print_summary(const struct tally *t)
{
	const struct oracle_totals *o = &t->oracles;

	printf("%" PRIu64 " RoCE packets, %" PRIu64 " right", t->kinds[PCAP_ROCE], t->good);
	for (int e = 0; e < PKT_ERR_COUNT; e++) {
		if (t->refused[e])
			printf(", %" PRIu64 " %s", t->refused[e], pkt_error_str((enum pkt_error)e));
	}
	if (t->kinds[PCAP_CUT])
		printf(", %" PRIu64 " cut short by the capture", t->kinds[PCAP_CUT]);
	if (t->kinds[PCAP_FRAGMENT])
		printf(", %" PRIu64 " IP fragments", t->kinds[PCAP_FRAGMENT]);
	if (t->kinds[PCAP_BAD])
		printf(", %" PRIu64 " frames with wrong lengths", t->kinds[PCAP_BAD]);
	printf("; %" PRIu64 " other frames\n", t->kinds[PCAP_OTHER]);
	for (int i = 0; i < 256; i++) {
		if (t->ops[i])
			printf("  %-24s %" PRIu64 "\n", pkt_ops[i].name, t->ops[i]);
	}
	if (opt.no_oracles)
		return;
	printf("%u streams: %" PRIu64 " requests, %" PRIu64 " sent again in %" PRIu64
	       " turns, %" PRIu64 " gaps, %" PRIu64 " duplicates; %" PRIu64 " responses: %" PRIu64
	       " ACKs, %" PRIu64 " sequence NAKs, %" PRIu64 " RNR NAKs, %" PRIu64 " other NAKs\n",
	       o->streams, o->c.requests, o->c.retransmitted, o->c.turns, o->c.gaps,
	       o->c.duplicates, o->c.responses, o->c.acks, o->c.naks_seq, o->c.naks_rnr,
	       o->c.naks_invalid + o->c.naks_access + o->c.naks_op + o->c.naks_other);
	if (o->unpaired)
		printf("%" PRIu64 " responses not judged: their requests are ambiguous\n",
		       o->unpaired);
	if (o->unfollowed)
		printf("%" PRIu64 " packets not judged: too many QPs\n", o->unfollowed);
	printf("oracles: %" PRIu64 " violations\n", o->violations);
}

static json_t *counts_json(const struct oracle_counts *c)
{
	return json_pack("{sI sI sI sI sI sI sI sI sI sI sI sI sI sI sI sI sI sI}", "requests",
			 (json_int_t)c->requests, "responses", (json_int_t)c->responses, "acks",
			 (json_int_t)c->acks, "naks_seq", (json_int_t)c->naks_seq, "naks_invalid",
			 (json_int_t)c->naks_invalid, "naks_access", (json_int_t)c->naks_access,
			 "naks_op", (json_int_t)c->naks_op, "naks_rnr", (json_int_t)c->naks_rnr,
			 "retransmitted", (json_int_t)c->retransmitted, "turns",
			 (json_int_t)c->turns, "duplicates", (json_int_t)c->duplicates, "gaps",
			 (json_int_t)c->gaps, "out_of_order", (json_int_t)c->out_of_order, "reads",
			 (json_int_t)c->reads, "reads_again", (json_int_t)c->reads_again, "atomics",
			 (json_int_t)c->atomics, "atomics_again", (json_int_t)c->atomics_again,
			 "payload", (json_int_t)c->payload);
}

static json_t *oracles_json(const struct tally *t)
{
	const struct oracle_totals *o = &t->oracles;
	json_t *rules = json_object();

	for (int r = 0; r < ORACLE_RULES; r++)
		json_object_set_new(rules, oracle_rule_name((enum oracle_rule)r),
				    json_integer((json_int_t)o->broken[r]));
	return json_pack("{sI sI sI sI so so sO}", "streams", (json_int_t)o->streams, "violations",
			 (json_int_t)o->violations, "unpaired", (json_int_t)o->unpaired,
			 "unfollowed", (json_int_t)o->unfollowed, "counts", counts_json(&o->c),
			 "rules", rules, "findings", t->findings);
}

static void print_json(const struct tally *t, bool ok)
{
	json_t *ops = json_object(), *refused = json_object(), *all;

	for (int i = 0; i < 256; i++) {
		if (t->ops[i])
			json_object_set_new(ops, pkt_ops[i].name,
					    json_integer((json_int_t)t->ops[i]));
	}
	for (int e = 1; e < PKT_ERR_COUNT; e++) {
		if (t->refused[e])
			json_object_set_new(refused, pkt_error_str((enum pkt_error)e),
					    json_integer((json_int_t)t->refused[e]));
	}
	all = json_pack("{ss sb sI sI sI sI sI sI sI so so}", "tool", "pcap", "ok", ok, "frames",
			(json_int_t)t->records, "packets", (json_int_t)t->kinds[PCAP_ROCE], "right",
			(json_int_t)t->good, "bad_icrc", (json_int_t)t->refused[PKT_ERR_ICRC],
			"cut", (json_int_t)t->kinds[PCAP_CUT], "fragments",
			(json_int_t)t->kinds[PCAP_FRAGMENT], "bad_frames",
			(json_int_t)t->kinds[PCAP_BAD], "opcodes", ops, "refused", refused);
	if (all && !opt.no_oracles)
		json_object_set_new(all, "oracles", oracles_json(t));
	json_dumpf(all, stdout, JSON_COMPACT | JSON_ENSURE_ASCII);
	putchar('\n');
	json_decref(all);
}

/* Prints problems that the lines of the packets do not show, and how to solve them. */
static void hints(const struct tally *t)
{
	if (!t->unread && !t->kinds[PCAP_ROCE])
		opt_failed(
			&command,
			"no RoCE v2 packet (UDP port %d) in there: capture on the device that carries them",
			PKT_UDP_PORT);
	if (t->kinds[PCAP_CUT])
		opt_failed(&command,
			   "%" PRIu64 " packets were cut short: capture with `tcpdump -s 0`",
			   t->kinds[PCAP_CUT]);
	if (t->oversized)
		opt_failed(
			&command,
			"%" PRIu64
			" datagrams are longer than any RoCE packet: captured before segmentation; "
			"use a port's pcap= option, or switch the device's tx-udp-segmentation off",
			t->oversized);
}

static int oracle_setup(struct oracle_options *oo)
{
	*oo = oracle_defaults;
	if (opt.mtu & (opt.mtu - 1))
		return opt_usage(&command, "--mtu is one of 256, 512, 1024, 2048, 4096");
	if (opt.disorder && !opt.local)
		return opt_usage(&command, "--disorder needs --local ADDR: the end that is judged");
	if (opt.local && pkt_addr_parse(opt.local, &oo->local) < 0)
		return opt_usage(&command, "--local wants an IPv4 or IPv6 address, not '%s'",
				 opt.local);
	oo->has_local = opt.local != NULL;
	oo->disorder = opt.disorder;
	oo->mtu = (uint32_t)opt.mtu;
	return CLI_OK;
}

int cmd_pcap(int argc, char **argv)
{
	struct oracle_options oo;
	struct tally t = {0};
	int operand, status;
	bool ok;

	operand = opt_parse(&command, argc, argv, false);
	if (operand < 0)
		return operand == OPT_HELP ? CLI_OK : CLI_USAGE;
	if (operand == argc)
		return opt_usage(&command, "the file is missing; `-` reads stdin");
	status = oracle_setup(&oo);
	if (status != CLI_OK)
		return status;

	if (opt.json)
		t.findings = json_array();
	for (int i = operand; i < argc && status == CLI_OK; i++)
		status = take_file(argv[i], &t, &oo);
	ok = status == CLI_OK && all_well(&t);
	if (opt.json)
		print_json(&t, ok);
	else if (t.unread < (uint64_t)(argc - operand) || t.records)
		print_summary(&t);
	hints(&t);
	json_decref(t.findings);
	return ok ? status : CLI_FAILED;
}
