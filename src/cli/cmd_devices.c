/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * `roost devices`: lists the devices as a program sees them, by the verbs that a program uses, and
 * the programs that run.
 */
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <infiniband/verbs.h>
#include <jansson.h>

#include "cli/commands.h"
#include "cli/options.h"
#include "cli/programs.h"
#include "cli/term.h"
#include "drive/drive.h"
#include "port/shm_dir.h"
#include "verbs/host.h"

static const char *port_spec, *program;
static bool json;

static const struct opt opts[] = {OPT_PORT_OF_PROGRAM(&port_spec),
				  OPT_VALUE("program", 0, OPT_STRING, &program, "PROGRAM",
					    "list only this program, by process id or name"),
				  OPT_JSON(&json), OPT_END};

static const struct opt_command cmd = {
	.name = "devices",
	.synopsis = "[--port SPEC] [--program PROGRAM] [--json]",
	.about =
		"Lists the devices, ports and addresses (GIDs) that a program started now would see. The\n"
		"addresses are opened for that, and closed again. Then lists your programs that run, and\n"
		"their addresses, slots, queue pairs, connections and rates.",
	.opts = opts,
	.examples = "  roost devices\n"
		    "  roost devices --program ib_write_bw\n"
		    "  roost devices --port shm:10.0.0.7 --json\n",
};

static json_t *describe_gids(struct ibv_context *ctx, uint8_t port, int len)
{
	json_t *gids = json_array();
	char text[INET6_ADDRSTRLEN];
	struct ibv_gid_entry e;

	for (int i = 0; i < len; i++) {
		/* Empty entries of the table are left out. */
		if (ibv_query_gid_ex(ctx, port, (uint32_t)i, &e, 0) != 0)
			continue;
		if (!inet_ntop(AF_INET6, e.gid.raw, text, sizeof(text)))
			continue;
		json_array_append_new(
			gids, json_pack("{s:i,s:s,s:s}", "index", i, "gid", text, "type",
					e.gid_type == IBV_GID_TYPE_ROCE_V2 ? "RoCE v2" : "other"));
	}
	return gids;
}

static json_t *describe_port(struct ibv_context *ctx, uint8_t n)
{
	struct ibv_port_attr a;

	if (ibv_query_port(ctx, n, &a) != 0)
		return NULL;
	return json_pack("{s:i,s:s,s:i,s:i,s:o}", "port", n, "state", ibv_port_state_str(a.state),
			 "mtu", 128 << a.active_mtu, "max_mtu", 128 << a.max_mtu, "gids",
			 describe_gids(ctx, n, a.gid_tbl_len));
}

static json_t *describe_device(struct ibv_device *dev)
{
	struct ibv_context *ctx = ibv_open_device(dev);
	struct ibv_device_attr a;
	json_t *ports = json_array(), *obj;
	char guid[24];
	uint64_t g;

	if (!ctx || ibv_query_device(ctx, &a) != 0) {
		opt_failed(&cmd, "can't open %s: %s", ibv_get_device_name(dev), strerror(errno));
		if (ctx)
			ibv_close_device(ctx);
		json_decref(ports);
		return NULL;
	}
	for (unsigned p = 1; p <= a.phys_port_cnt; p++) {
		json_t *port = describe_port(ctx, (uint8_t)p);

		if (port)
			json_array_append_new(ports, port);
	}
	g = be64toh(a.node_guid);
	snprintf(guid, sizeof(guid), "%04x:%04x:%04x:%04x", (unsigned)(g >> 48),
		 (unsigned)(g >> 32 & 0xffff), (unsigned)(g >> 16 & 0xffff),
		 (unsigned)(g & 0xffff));
	obj = json_pack("{s:s,s:s,s:s,s:i,s:i,s:i,s:o}", "name", ibv_get_device_name(dev), "guid",
			guid, "firmware", a.fw_ver, "max_qp", a.max_qp, "max_cq", a.max_cq,
			"max_mr", a.max_mr, "ports", ports);
	ibv_close_device(ctx);
	return obj;
}

/* Adds a row for each GID; a port without GIDs has one row too. */
static void port_rows(struct table *t, const char *name, const char *guid, const json_t *port)
{
	const json_t *gids = json_object_get(port, "gids");
	char number[16], mtu[16], index[16];
	size_t i = 0;

	snprintf(number, sizeof(number), "%d",
		 (int)json_integer_value(json_object_get(port, "port")));
	snprintf(mtu, sizeof(mtu), "%d", (int)json_integer_value(json_object_get(port, "mtu")));
	do {
		const json_t *g = json_array_get(gids, i);
		const char *cells[8] = {name, guid, number,
					json_string_value(json_object_get(port, "state")), mtu};

		if (g) {
			snprintf(index, sizeof(index), "%d",
				 (int)json_integer_value(json_object_get(g, "index")));
			cells[5] = index;
			cells[6] = json_string_value(json_object_get(g, "gid"));
			cells[7] = json_string_value(json_object_get(g, "type"));
		}
		table_row(t, cells);
	} while (++i < json_array_size(gids));
}

static void print_table(const json_t *devices)
{
	static const char *const head[] = {"device", "GUID",	  "port", "state",
					   "MTU",    "GID index", "GID",  "type"};
	json_t *dev, *port;
	struct table t;
	size_t i, k;

	table_init(&t, 8);
	table_row(&t, head);
	json_array_foreach(devices, i, dev)
	{
		json_array_foreach(json_object_get(dev, "ports"), k, port)
			port_rows(&t, json_string_value(json_object_get(dev, "name")),
				  json_string_value(json_object_get(dev, "guid")), port);
	}
	table_print(&t, stdout, 1 << 0 | 1 << 1 | 1 << 3 | 1 << 6 | 1 << 7);
	table_free(&t);
}

/* Lists the devices. Returns NULL after a message if a device cannot be opened. */
static json_t *list_devices(void)
{
	struct ibv_device **list;
	json_t *devices = json_array();
	int n = 0;

	list = ibv_get_device_list(&n);
	for (int i = 0; list && devices && i < n; i++) {
		json_t *dev = describe_device(list[i]);

		if (dev) {
			json_array_append_new(devices, dev);
		} else {
			json_decref(devices);
			devices = NULL;
		}
	}
	if (list)
		ibv_free_device_list(list);
	return devices;
}

/*
 * Opens the engine and lists the devices. The engine describes in one line why it cannot open a
 * port; the verbs return only errno. Returns NULL with the line in err, which is empty if the line
 * was printed.
 */
static json_t *open_and_list(char *err, size_t errlen)
{
	json_t *devices;
	struct drive *d;

	err[0] = '\0';
	if (drive_get(&verbs_host_ops, &d, err, errlen) < 0)
		return NULL;
	devices = list_devices();
	drive_put(d);
	return devices;
}

/* ---- programs ---- */

static void keep_named(json_t *list)
{
	size_t i = 0;

	while (program && i < json_array_size(list)) {
		if (programs_is(json_array_get(list, i), program))
			i++;
		else
			json_array_remove(list, i);
	}
}

static json_t *list_programs(void)
{
	struct programs before, now;
	char err[600];
	/* Without a folder, the list has the programs of the pool. */
	int dirfd = shm_dir_open(err, sizeof(err));
	json_t *rows;

	programs_look_twice(dirfd, &before, &now);
	rows = programs_rows(&now, &before);
	keep_named(rows);
	programs_free(&before);
	programs_free(&now);
	if (dirfd >= 0)
		close(dirfd);
	return rows;
}

int cmd_devices(int argc, char **argv)
{
	json_t *devices, *programs, *top;
	char err[256];
	int at = opt_parse_all(&cmd, argc, argv), rc = CLI_OK;

	if (at < 0)
		return at == OPT_HELP ? CLI_OK : CLI_USAGE;
	opt_environment(port_spec, 0);
	/* Lists the programs before this process is one of them. */
	programs = list_programs();
	devices = open_and_list(err, sizeof(err));
	if (!devices) {
		/*
		 * The programs are listed even after an error, since the user may have to stop
		 * one.
		 */
		rc = err[0] ? opt_failed(&cmd, "%s", err) : CLI_FAILED;
		devices = json_array();
	}
	if (program && !json_array_size(programs))
		rc = opt_failed(
			&cmd,
			"no running NIC of yours is in a process '%s'; roost devices lists them",
			program);
	top = json_pack("{s:s,s:o,s:o}", "tool", "devices", "devices", devices, "programs",
			programs);
	if (json && rc == CLI_OK) {
		json_dumpf(top, stdout, JSON_COMPACT | JSON_ENSURE_ASCII);
		putchar('\n');
	} else if (!json) {
		if (json_array_size(devices) && rc == CLI_OK)
			print_table(devices);
		if (json_array_size(programs)) {
			if (json_array_size(devices))
				putchar('\n');
			programs_print(programs);
		}
	}
	json_decref(top);
	return rc;
}
