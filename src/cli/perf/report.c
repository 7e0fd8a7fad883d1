/* SPDX-License-Identifier: BSD-2-Clause */
#include "cli/perf/report.h"

static void set_latency(json_t *row, const struct perf_result *r, enum perf_lat kind)
{
	static const struct {
		const char *name;
		double percent;
	} points[] = {{"p1", 1}, {"p50", 50}, {"p90", 90}, {"p99", 99}, {"p999", 99.9}};
	json_t *lat = json_object();

	json_object_set_new(lat, "kind", json_string(perf_lat_names[kind]));
	json_object_set_new(lat, "count", json_integer((json_int_t)r->hist->count));
	json_object_set_new(lat, "min", json_real((double)hist_min(r->hist) / 1e3));
	for (size_t i = 0; i < sizeof(points) / sizeof(points[0]); i++)
		json_object_set_new(
			lat, points[i].name,
			json_real((double)hist_percentile(r->hist, points[i].percent) / 1e3));
	json_object_set_new(lat, "max", json_real((double)hist_max(r->hist) / 1e3));
	json_object_set_new(row, "latency_us", lat);
}

static void set_counters(json_t *row, const struct perf_result *r)
{
	if (r->counters)
		json_object_set(row, "counters", r->counters);
	if (r->peer_counters)
		json_object_set(row, "target_counters", r->peer_counters);
}

json_t *report_row(const struct perf_job *job, const struct perf_result *bw,
		   const struct perf_result *lat)
{
	const struct perf_result *r = bw ? bw : lat;
	json_t *row = json_object();
	double rate;

	if (job->mode == PERF_CHECK) {
		json_t *sizes = json_array();

		for (unsigned i = 0; i < job->num_sizes; i++)
			json_array_append_new(sizes, json_integer((json_int_t)job->sizes[i]));
		json_object_set_new(row, "sizes", sizes);
		json_object_set_new(row, "bytes_checked",
				    json_integer((json_int_t)r->bytes_checked));
	} else {
		json_object_set_new(row, "size", json_integer((json_int_t)job->size));
	}
	json_object_set_new(row, "seconds", json_real(r->seconds));
	json_object_set_new(row, "messages", json_integer((json_int_t)r->messages));
	if (bw && job->mode != PERF_CHECK && r->seconds > 0) {
		rate = (double)r->messages / r->seconds;
		if (job->transport == PERF_UD && r->sent) {
			/* Only messages that arrived count. */
			rate *= (double)r->received / (double)r->sent;
			json_object_set_new(row, "sent", json_integer((json_int_t)r->sent));
			json_object_set_new(row, "received", json_integer((json_int_t)r->received));
		}
		if (job->bidir) {
			json_object_set_new(row, "msg_rate_out", json_real(rate));
			json_object_set_new(row, "msg_rate_in", json_real(r->peer_rate));
			rate += r->peer_rate;
		}
		json_object_set_new(row, "goodput_gbps",
				    json_real(rate * (double)job->size * 8 / 1e9));
		json_object_set_new(row, "msg_rate", json_real(rate));
	}
	if (lat)
		set_latency(row, lat, job->lat);
	set_counters(row, r);
	return row;
}

static const char *target_kind(const struct perf_job *job)
{
	return job->passive ? "passive" : job->events ? "events" : "polling";
}

void report_json(const struct perf_job *job, const char *port, json_t *rows, bool sweep,
		 json_t *machine)
{
	json_t *top = json_object();

	json_object_set_new(top, "tool", json_string("perf"));
	json_object_set_new(top, "test", json_string(perf_op_names[job->op]));
	if (job->op == PERF_RPC)
		json_object_set_new(top, "kernel", json_string(perf_kernel_names[job->kernel]));
	if (job->hops)
		json_object_set_new(top, "hops", json_integer((json_int_t)job->hops));
	json_object_set_new(top, "mode", json_string(perf_mode_names[job->mode]));
	json_object_set_new(top, "transport", json_string(perf_transport_names[job->transport]));
	json_object_set_new(top, "port", json_string(port));
	json_object_set_new(top, "qps", json_integer((json_int_t)job->qps));
	json_object_set_new(top, "post_list", json_integer((json_int_t)job->post_list));
	if (!sweep) /* in a sweep the value follows the size */
		json_object_set_new(top, "depth", json_integer((json_int_t)job->depth));
	json_object_set_new(top, "mtu", json_integer((json_int_t)job->mtu));
	json_object_set_new(top, "bidir", json_boolean(job->bidir));
	json_object_set_new(top, "target", json_string(target_kind(job)));
	if (job->mode == PERF_CHECK)
		json_object_set_new(top, "seed", json_integer((json_int_t)job->seed));
	if (sweep)
		json_object_set(top, "rows", rows);
	else
		json_object_update(top, json_array_get(rows, 0));
	json_object_set_new(top, "machine", machine);
	json_dumpf(top, stdout, JSON_COMPACT | JSON_REAL_PRECISION(9));
	putchar('\n');
	json_decref(top);
	json_decref(rows);
}

static double real(const json_t *obj, const char *key)
{
	return json_number_value(json_object_get(obj, key));
}

static void heading(const struct perf_job *job, const char *port)
{
	printf("%s%s", perf_op_names[job->op], job->transport == PERF_UD ? ", datagrams" : "");
	if (job->op == PERF_RPC)
		printf(" %s", perf_kernel_names[job->kernel]);
	if (job->hops)
		printf(" of %u hops", (unsigned)job->hops);
	if (job->mode == PERF_LATENCY)
		printf(", latency: %s", perf_lat_names[job->lat]);
	if (job->bidir)
		printf(", both directions");
	printf(" | %s, path MTU %u | %u QP%s", port, (unsigned)job->mtu, (unsigned)job->qps,
	       job->qps == 1 ? "" : "s");
	if (job->op == PERF_RPC && job->depth && job->mode == PERF_BANDWIDTH)
		printf(", %u calls in flight", (unsigned)job->depth);
	else if (job->op != PERF_RPC && job->mode == PERF_BANDWIDTH)
		printf(", lists of %u", (unsigned)job->post_list);
	if (job->mode != PERF_LATENCY || job->lat != PERF_EXECUTE)
		printf(" | target %s", target_kind(job));
	printf("\n");
}

static void text_check(const struct perf_job *job, const json_t *row)
{
	char count[32];

	fmt_count(count, sizeof(count), (uint64_t)real(row, "bytes_checked"));
	printf("%s, path MTU %u: every byte is right: %llu messages, %s bytes, %.3f s; %llu packets sent again\n",
	       perf_op_names[job->op], (unsigned)job->mtu,
	       (unsigned long long)real(row, "messages"), count, real(row, "seconds"),
	       (unsigned long long)(perf_counter(json_object_get(row, "counters"),
						 "retransmitted_pkts") +
				    perf_counter(json_object_get(row, "target_counters"),
						 "retransmitted_pkts")));
}

static void rate_cells(const json_t *row, char (*cell)[32], const char **cells, unsigned *n)
{
	static const char *const keys[] = {"messages", "seconds", "msg_rate", "goodput_gbps"};
	static const double unit[] = {1, 1, 1e6, 1};
	static const char *const form[] = {"%.0f", "%.2f", "%.4f", "%.3f"};

	for (unsigned i = 0; i < 4; i++) {
		snprintf(cell[*n], sizeof(cell[0]), form[i], real(row, keys[i]) / unit[i]);
		cells[*n] = cell[*n];
		++*n;
	}
}

/* Returns the datagrams that did not arrive or, for other transports, the retransmitted packets. */
static uint64_t not_at_once(const struct perf_job *job, const json_t *row)
{
	if (job->transport == PERF_UD)
		return (uint64_t)(real(row, "sent") - real(row, "received"));
	return perf_counter(json_object_get(row, "counters"), "retransmitted_pkts") +
	       perf_counter(json_object_get(row, "target_counters"), "retransmitted_pkts");
}

void report_text(const struct perf_job *job, const char *port, const json_t *rows, bool sweep)
{
	static const char *const lat_keys[] = {"p1", "p50", "p99", "p999", "max"};
	static const char *const head_rate[] = {"messages", "seconds", "M/s", "Gbit/s"};
	static const char *const head_lat[] = {"p1 us", "p50 us", "p99 us", "p99.9 us", "max us"};
	bool rates = sweep || job->mode == PERF_BANDWIDTH,
	     lats = sweep || job->mode == PERF_LATENCY;
	const char *cells[16];
	char cell[16][32];
	struct table t;
	size_t i;
	json_t *row;
	unsigned n = 0;

	if (job->mode == PERF_CHECK) {
		text_check(job, json_array_get(rows, 0));
		return;
	}
	heading(job, port);
	cells[n++] = "size";
	for (unsigned k = 0; rates && k < 4; k++)
		cells[n++] = head_rate[k];
	for (unsigned k = 0; lats && k < 5; k++)
		cells[n++] = head_lat[k];
	cells[n++] = job->transport == PERF_UD ? "lost" : "sent again";
	table_init(&t, n);
	table_row(&t, cells);
	json_array_foreach(rows, i, row)
	{
		const json_t *lat = json_object_get(row, "latency_us");

		n = 0;
		cells[n++] = fmt_bytes(cell[0], sizeof(cell[0]), (uint64_t)real(row, "size"));
		if (rates)
			rate_cells(row, cell, cells, &n);
		for (unsigned k = 0; lats && k < 5; k++, n++) {
			snprintf(cell[n], sizeof(cell[n]), "%.3f", real(lat, lat_keys[k]));
			cells[n] = cell[n];
		}
		snprintf(cell[n], sizeof(cell[n]), "%llu",
			 (unsigned long long)not_at_once(job, row));
		cells[n] = cell[n];
		table_row(&t, cells);
	}
	table_print(&t, stdout, 0);
	table_free(&t);
}
