/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * `roost doctor`: finds properties of this machine or container that prevent the use of Roost, and
 * tells the user how to change them.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jansson.h>

#include "base/machine.h"
#include "base/sys.h"
#include "cli/commands.h"
#include "cli/doctor/doctor.h"
#include "cli/options.h"
#include "cli/term.h"
#include "drive/drive.h"
#include "port/port.h"
#include "verbs/host.h"

static const char *port_spec;
static bool json;

static const struct opt opts[] = {OPT_PORT_OF_PROGRAM(&port_spec), OPT_JSON(&json), OPT_END};

static const struct opt_command cmd = {
	.name = "doctor",
	.synopsis = "[--port SPEC] [--json]",
	.about =
		"Looks at all of this machine or container that Roost depends on, one row a condition, with the\n"
		"remedy where there is something to mend. The last row opens a NIC, as a program started now\n"
		"would. The exit status is 1 if something does not work; a warning does not change it.",
	.opts = opts,
	.examples = "  roost doctor\n"
		    "  roost doctor --port udp:192.0.2.7\n"
		    "  docker run --rm IMAGE doctor --json\n",
};

/* ---- findings ---- */

void doctor_found(struct doctor_finding *f, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(f->found, sizeof(f->found), fmt, ap);
	va_end(ap);
}

void doctor_remedy(struct doctor_finding *f, enum doctor_state state, const char *fmt, ...)
{
	va_list ap;

	if (state < f->state || (state == f->state && f->remedy[0]))
		return;
	f->state = state;
	va_start(ap, fmt);
	vsnprintf(f->remedy, sizeof(f->remedy), fmt, ap);
	va_end(ap);
}

bool doctor_line(const char *path, char *buf, size_t n)
{
	FILE *f = fopen(path, "re");
	bool ok;

	if (!f)
		return false;
	ok = fgets(buf, (int)n, f) != NULL;
	fclose(f);
	if (ok) {
		buf[strcspn(buf, "\n")] = '\0';
		plain_text(buf); /* a process has chosen the name */
	}
	return ok && *buf;
}

/*
 * Opens a NIC, which needs all conditions that the rows before check one by one. It may find a
 * cause that the other rows do not find.
 */
static void open_nic(const struct doctor *d, struct doctor_finding *f)
{
	struct drive *drive;
	struct drive_addr where;
	const struct port *port;
	char err[256], addr[64];

	if (drive_get(&verbs_host_ops, &drive, err, sizeof(err)) < 0) {
		doctor_found(f, "does not open");
		doctor_remedy(f, DOCTOR_FAIL, "%s", err);
		return;
	}
	port = nic_port(drive_nic(drive), 0, 0);
	pkt_addr_print(&port->addr, addr, sizeof(addr));
	if (!drive_find_addr(drive, &port->addr, &where))
		where.mtu = port->mtu;
	doctor_found(f, "opens at %s:%s, path MTU %u", port->ops->name, addr, where.mtu);
	if (strncmp(d->spec, "host", 4) == 0 && strcmp(port->ops->name, "host") != 0)
		doctor_remedy(
			f, DOCTOR_WARN,
			"programs of this machine reach each other over udp: a message says why "
			"shared memory does not work");
	drive_put(drive);
}

/* The order of the table: rows that others depend on come first. */
static const struct row {
	const char *name;
	doctor_row *look;
} rows[] = {
	{"kernel", doctor_kernel},
	{"clock", doctor_clock},
	{"cores", doctor_cores},
	{"seccomp", doctor_seccomp},
	{"locked memory", doctor_memlock},
	{"huge pages", doctor_huge_pages},
	{"/dev/shm", doctor_dev_shm},
	{"folder", doctor_folder},
	{"libibverbs", doctor_library},
	{"interfaces", doctor_interfaces},
	{"IPv6", doctor_ipv6},
	{"socket buffers", doctor_buffers},
	{"UDP offload", doctor_offload},
	{"port 4791", doctor_port},
	{"rdma_rxe", doctor_rxe},
	{"pool", doctor_pool},
	{"NIC", open_nic},
};

#define NUM_ROWS (sizeof(rows) / sizeof(rows[0]))

/* ---- printing ---- */

/*
 * All have the same length, so that the columns on a terminal have the same width: table_print()
 * counts the bytes of colours as well.
 */
static const char *state_cell(enum doctor_state state, bool colours)
{
	static const char *const plain[] = {"ok", "warning", "FAILS"};
	static const char *const coloured[] = {"\033[32mok\033[0m", "\033[33mwarning\033[0m",
					       "\033[31mFAILS\033[0m"};

	return colours ? coloured[state] : plain[state];
}

static void print_table(const struct doctor_finding *f, unsigned warnings, unsigned failed)
{
	bool colours = isatty(STDOUT_FILENO);
	const char *const head[] = {colours ? "\033[39mstate\033[0m" : "state", "condition",
				    "found", "remedy"};
	struct table t;

	table_init(&t, 4);
	t.colours = colours;
	table_row(&t, head);
	for (size_t i = 0; i < NUM_ROWS; i++) {
		const char *cells[] = {state_cell(f[i].state, colours), rows[i].name, f[i].found,
				       f[i].remedy[0] ? f[i].remedy : "-"};

		table_row(&t, cells);
	}
	table_print(&t, stdout, 1 << 0 | 1 << 1 | 1 << 2 | 1 << 3);
	table_free(&t);
	printf("\n%u of %zu %s, %u %s\n", failed, NUM_ROWS, failed == 1 ? "fails" : "fail",
	       warnings, warnings == 1 ? "warning" : "warnings");
}

static void print_json(const struct doctor_finding *f, unsigned warnings, unsigned failed)
{
	static const char *const state[] = {"ok", "warning", "fails"};
	json_t *list = json_array(), *top;

	for (size_t i = 0; i < NUM_ROWS; i++)
		json_array_append_new(list, json_pack("{s:s,s:s,s:s,s:s}", "condition",
						      rows[i].name, "state", state[f[i].state],
						      "found", f[i].found, "remedy", f[i].remedy));
	top = json_pack("{s:s,s:o,s:i,s:i,s:o}", "tool", "doctor", "rows", list, "warnings",
			(int)warnings, "failed", (int)failed, "machine", machine_describe());
	json_dumpf(top, stdout, JSON_COMPACT);
	putchar('\n');
	json_decref(top);
}

/* Finds the first port of a new program. */
static bool read_spec(struct doctor *d, char *buf, size_t n)
{
	const char *specs = sys_env("ROOST_PORT");

	if (!specs || !*specs)
		specs = PORT_DEFAULT_SPEC;
	specs += strspn(specs, ";");
	if (snprintf(buf, n, "%.*s", (int)strcspn(specs, ";"), specs) >= (int)n)
		return false;
	d->spec = buf;
	d->udp = strncmp(buf, "shm", 3) != 0; /* udp, or host */
	d->chosen = buf[strcspn(buf, ":,")] == ':';
	return port_first_address(buf, &d->addr) == 0;
}

int cmd_doctor(int argc, char **argv)
{
	static struct doctor_finding f[NUM_ROWS];
	unsigned warnings = 0, failed = 0;
	struct doctor d = {0};
	char spec[512];
	int at = opt_parse_all(&cmd, argc, argv);

	if (at < 0)
		return at == OPT_HELP ? CLI_OK : CLI_USAGE;
	opt_environment(port_spec, 0);
	if (!read_spec(&d, spec, sizeof(spec)))
		return opt_usage(
			&cmd,
			"'%.64s' is no port: host, udp or shm, perhaps with an address, as udp:127.0.0.2",
			spec);
	for (size_t i = 0; i < NUM_ROWS; i++) {
		rows[i].look(&d, &f[i]);
		warnings += f[i].state == DOCTOR_WARN;
		failed += f[i].state == DOCTOR_FAIL;
	}
	(json ? print_json : print_table)(f, warnings, failed);
	return failed ? CLI_FAILED : CLI_OK;
}
