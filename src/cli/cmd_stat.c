/* SPDX-License-Identifier: BSD-2-Clause */
/* `roost stat`: counters of running NICs, asked at their stat sockets (src/drive/stat.c). */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <jansson.h>

#include "cli/commands.h"
#include "cli/options.h"
#include "cli/term.h"
#include "nic/counters.h"
#include "port/shm_dir.h"

#define ANSWER_MS  2000	      /* a process that does not answer in this time is stopped, or stuck */
#define ANSWER_MAX (1u << 20) /* bytes */

static bool all, json;

static const struct opt opts[] = {
	OPT_SWITCH("all", 'a', &all, "counters that are zero, too"),
	OPT_SWITCH("json", 'j', &json, "one JSON object on stdout, everything in it"), OPT_END};

static const struct opt_command cmd = {
	.name = "stat",
	.synopsis = "[--all] [--json] [PID | PROGRAM]...",
	.about =
		"Prints the counters of your running NICs: of all, or of those in the processes named. A NIC\n"
		"answers only the user that its process belongs to.",
	.opts = opts,
	.examples = "  roost run -- ib_write_bw & sleep 1; roost stat\n"
		    "  roost stat ib_write_bw --all\n"
		    "  roost stat --json | jq '.nics[].counters.retransmitted_pkts'\n",
};

static const struct {
	const char *name, *help;
} port_counters[] = {
	{"rx_packets", "packets received"},
	{"rx_bytes", "bytes received, BTH to ICRC"},
	{"rx_bursts", "system calls, or looks at a ring, that brought packets"},
	{"rx_bad", "refused by the port"},
	{"tx_packets", "packets sent"},
	{"tx_bytes", "bytes sent, BTH to ICRC"},
	{"tx_bursts", "system calls, or ring updates, that sent packets"},
	{"tx_dropped", "could not be sent"},
	{"tx_blocked", "times that the port had no room"},
};

/* ---- asking ---- */

/* Everything up to the end of the stream, the caller's to free; NULL when it does not come. */
static char *read_answer(int fd)
{
	char *buf = malloc(ANSWER_MAX);
	struct pollfd p = {.fd = fd, .events = POLLIN};
	size_t have = 0;

	while (buf && have < ANSWER_MAX) {
		ssize_t n;

		if (poll(&p, 1, ANSWER_MS) <= 0)
			break;
		n = recv(fd, buf + have, ANSWER_MAX - have, MSG_DONTWAIT);
		if (n == 0) {
			buf[have] = '\0';
			return buf;
		}
		if (n < 0)
			break;
		have += (size_t)n;
	}
	free(buf);
	return NULL;
}

/*
 * What the NIC of process `pid` says. NULL: there is none any more, or, with *mute, it says nothing sensible.
 */
static json_t *ask(int dirfd, const char *name, bool *mute)
{
	struct sockaddr_un sa;
	socklen_t len = shm_dir_sockaddr(dirfd, name, &sa);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	char *text = NULL;
	json_t *o = NULL;

	*mute = true;
	if (fd < 0)
		return NULL;
	if (connect(fd, (struct sockaddr *)&sa, len) == 0) {
		text = read_answer(fd);
	} else if (errno == ECONNREFUSED || errno == ENOENT) {
		/* Its process died without cleaning up. */
		unlinkat(dirfd, name, 0);
		*mute = false;
	}
	close(fd);
	if (text)
		o = json_loads(text, 0, NULL);
	free(text);
	if (!json_is_object(o)) {
		json_decref(o);
		return NULL;
	}
	return o;
}

/* The number behind "stat."; 0: another kind of file. */
static int pid_of(const char *name)
{
	char *end;
	long pid;

	if (strncmp(name, "stat.", 5) != 0 || !isdigit((unsigned char)name[5]))
		return 0;
	pid = strtol(name + 5, &end, 10);
	return *end == '\0' && pid > 0 && pid < INT32_MAX ? (int)pid : 0;
}

static int compare_pids(const void *a, const void *b)
{
	return (*(const int *)a > *(const int *)b) - (*(const int *)a < *(const int *)b);
}

/* The processes that have a stat socket, in order; *pids is the caller's to free. */
static unsigned list_pids(int dirfd, int **pids)
{
	int copy = openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = copy < 0 ? NULL : fdopendir(copy);
	unsigned n = 0, room = 0;
	struct dirent *e;

	*pids = NULL;
	while (dir && (e = readdir(dir)) != NULL) {
		int pid = pid_of(e->d_name);

		if (!pid)
			continue;
		if (n == room) {
			int *more = realloc(*pids, (room += 64) * sizeof(*more));

			if (!more)
				break;
			*pids = more;
		}
		(*pids)[n++] = pid;
	}
	if (dir)
		closedir(dir);
	if (n)
		qsort(*pids, n, sizeof(**pids), compare_pids);
	return n;
}

/* ---- printing ---- */

static const char *text_of(const json_t *o, const char *key)
{
	const char *s = json_string_value(json_object_get(o, key));

	return s ? s : "?";
}

static long long number_of(const json_t *o, const char *key)
{
	return json_integer_value(json_object_get(o, key));
}

static void counter_row(struct table *t, const char *name, const json_t *from, const char *key,
			const char *help)
{
	char value[40];
	uint64_t v = (uint64_t)number_of(from, key);
	const char *cells[3] = {name, fmt_count(value, sizeof(value), v), help};

	if (v || all)
		table_row(t, cells);
}

/* A program's name is its own choice: no control characters of it reach the terminal. */
static void print_head(const json_t *nic)
{
	const json_t *u = json_object_get(nic, "usage"), *port;
	const char *program = text_of(nic, "program");
	size_t i;

	for (const char *s = program; *s; s++)
		putchar(isprint((unsigned char)*s) ? *s : '?');
	printf(", process %lld, up %.0f s: %lld QPs, %lld CQs, %lld MRs", number_of(nic, "pid"),
	       json_real_value(json_object_get(nic, "uptime_s")), number_of(u, "qps"), number_of(u, "cqs"),
	       number_of(u, "mrs"));
	json_array_foreach(json_object_get(nic, "ports"), i, port) printf(
		"; %s %s, MTU %lld", text_of(port, "kind"), text_of(port, "address"), number_of(port, "mtu"));
	putchar('\n');
}

static void print_nic(const json_t *nic)
{
	static const char *const head[] = {"counter", "value", "what it counts"};
	const json_t *ports = json_object_get(nic, "ports"), *counters = json_object_get(nic, "counters"),
		     *port;
	struct table t;
	char name[64];
	size_t k;

	print_head(nic);
	table_init(&t, 3);
	table_row(&t, head);
	for (size_t i = 0; i < NIC_COUNTER_COUNT; i++)
		counter_row(&t, nic_counter_info[i].name, counters, nic_counter_info[i].name,
			    nic_counter_info[i].help);
	json_array_foreach(ports, k, port)
	{
		for (size_t i = 0; i < sizeof(port_counters) / sizeof(port_counters[0]); i++) {
			snprintf(name, sizeof(name), "port %zu %s", k + 1, port_counters[i].name);
			counter_row(&t, name, json_object_get(port, "stats"), port_counters[i].name,
				    port_counters[i].help);
		}
	}
	if (t.num_rows > 1)
		table_print(&t, stdout, 1 << 0 | 1 << 2);
	else
		printf("nothing counted yet\n");
	table_free(&t);
}

static void print_all(json_t *nics)
{
	json_t *nic;
	size_t i;

	if (json) {
		json_t *top = json_pack("{s:s,s:O}", "tool", "stat", "nics", nics);

		json_dumpf(top, stdout, JSON_COMPACT);
		putchar('\n');
		json_decref(top);
		return;
	}
	json_array_foreach(nics, i, nic)
	{
		if (i)
			putchar('\n');
		print_nic(nic);
	}
}

/* ---- choosing ---- */

/* Does an operand name it? Remembers which operands were of use. */
static bool wanted(char **names, bool *used, int n, int pid, const char *program)
{
	char number[16];
	bool hit = n == 0;

	snprintf(number, sizeof(number), "%d", pid);
	for (int i = 0; i < n; i++) {
		if (strcmp(names[i], number) == 0 || (program && strcmp(names[i], program) == 0))
			hit = used[i] = true;
	}
	return hit;
}

static json_t *collect(int dirfd, char **names, bool *used, int n, int *rc)
{
	json_t *nics = json_array();
	int *pids;
	unsigned count = list_pids(dirfd, &pids);

	for (unsigned i = 0; i < count; i++) {
		char name[SHM_NAME_MAX];
		json_t *nic;
		bool mute;

		snprintf(name, sizeof(name), "stat.%d", pids[i]);
		nic = ask(dirfd, name, &mute);
		if (nic && wanted(names, used, n, pids[i], text_of(nic, "program"))) {
			json_array_append(nics, nic);
		} else if (!nic && mute && wanted(names, used, n, pids[i], NULL)) {
			*rc = opt_failed(&cmd, "process %d does not answer; is it stopped? (kill -CONT %d)",
					 pids[i], pids[i]);
		}
		json_decref(nic);
	}
	free(pids);
	return nics;
}

int cmd_stat(int argc, char **argv)
{
	int at = opt_parse(&cmd, argc, argv, false), rc = CLI_OK, dirfd;
	char err[600];
	bool *used;
	json_t *nics;

	if (at < 0)
		return at == OPT_HELP ? CLI_OK : CLI_USAGE;
	dirfd = shm_dir_open(err, sizeof(err));
	if (dirfd < 0)
		return opt_failed(&cmd, "%s", err);
	used = calloc((size_t)(argc - at) + 1, sizeof(*used));
	if (!used)
		return opt_failed(&cmd, "out of memory");
	nics = collect(dirfd, argv + at, used, argc - at, &rc);
	for (int i = at; i < argc; i++) {
		if (!used[i - at])
			rc = opt_failed(&cmd,
					"no running NIC of yours is in a process '%s'; roost stat lists them",
					argv[i]);
	}
	if (json || json_array_size(nics))
		print_all(nics);
	else if (rc == CLI_OK)
		printf("no NIC of yours is running\n");
	json_decref(nics);
	free(used);
	close(dirfd);
	return rc;
}
