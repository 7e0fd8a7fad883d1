/* SPDX-License-Identifier: BSD-2-Clause */
#include "cli/local.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/sys.h"
#include "cli/options.h"
#include "drive/drive.h"
#include "port/port.h"
#include "verbs/host.h"

void local_kind(const char *spec, char *buf, size_t n)
{
	snprintf(buf, n, "%.*s", (int)strcspn(spec, ":,"), spec);
}

bool local_port_fits(const struct opt_command *cmd, const char *spec)
{
	const char *next = spec ? spec : sys_env("ROOST_PORT");
	struct pkt_addr addr;
	char one[512];

	while (next && *next) {
		size_t len = strcspn(next, ";");

		snprintf(one, sizeof(one), "%.*s", (int)len, next);
		if (len && (len >= sizeof(one) || port_first_address(one, &addr))) {
			opt_usage(
				cmd,
				"'%.64s' is no port: host, udp or shm, perhaps with an address and options, as udp:127.0.0.2,loss=0.01",
				one);
			return false;
		}
		next += len + (next[len] == ';');
	}
	return true;
}

int local_port_open(const struct opt_command *cmd, struct drive **out)
{
	const char *spec = sys_env("ROOST_PORT");
	char err[256] = "";

	*out = NULL;
	if (!spec || spec[strcspn(spec, ":,;")] != ':')
		return 0;
	return drive_get(&verbs_host_ops, out, err, sizeof(err)) ? opt_failed(cmd, "%s", err) : 0;
}

void local_port_close(struct drive *d)
{
	if (d)
		drive_put(d);
}

/*
 * Computes 127.x.y.z from the process id, which is below 2^22, and the side. No two processes get
 * the same address, and none gets 127.0.0.1.
 */
static void loopback_address(unsigned side, char *buf, size_t n)
{
	unsigned id = (unsigned)getpid() << 1 | side;

	snprintf(buf, n, "127.%u.%u.%u", id >> 16 & 0x7f, id >> 8 & 0xff, id & 0xff);
}

/* IPv6 has only one loopback address. */
static bool is_loopback(const uint8_t raw[16])
{
	return memcmp(raw, &in6addr_loopback, 16) == 0;
}

/*
 * Computes the address after `text`. Returns false when `text` is no address, or the last one of
 * its kind.
 */
static bool next_address(const char *text, char *buf, size_t n)
{
	uint8_t raw[16];
	int len, family = strchr(text, ':') ? AF_INET6 : AF_INET;

	if (inet_pton(family, text, raw) != 1 || (family == AF_INET6 && is_loopback(raw)))
		return false;
	len = family == AF_INET6 ? 16 : 4;
	if (++raw[len - 1] == 0)
		return false;
	return inet_ntop(family, raw, buf, (socklen_t)n) != NULL;
}

/* Splits KIND[:ADDRESS][,OPTIONS]. `options` keeps its comma. */
static bool split(const char *spec, char *kind, size_t kn, char *addr, size_t an,
		  const char **options)
{
	size_t n = strcspn(spec, ",");

	local_kind(spec, kind, kn);
	addr[0] = '\0';
	*options = spec + n;
	if (spec[strlen(kind)] == ':') {
		const char *from = spec + strlen(kind) + 1;
		size_t len = n - strlen(kind) - 1;

		if (len >= an || len == 0)
			return false;
		snprintf(addr, an, "%.*s", (int)len, from);
	}
	return port_is_kind(kind);
}

static void join_spec(char out[LOCAL_SPEC_LEN], const char *kind, const char *addr,
		      const char *options)
{
	snprintf(out, LOCAL_SPEC_LEN, "%.15s%s%.63s%s", kind, addr[0] ? ":" : "", addr, options);
}

/*
 * Copies the options, with FILE.target for pcap=FILE, since two processes cannot write one file. A
 * name with %p (process id) needs no change.
 */
static void target_options(const char *options, char *out, size_t n)
{
	const char *pcap = strstr(options, ",pcap="), *end;

	if (!pcap || strstr(pcap, "%p")) {
		snprintf(out, n, "%s", options);
		return;
	}
	end = strchrnul(pcap + 1, ',');
	snprintf(out, n, "%.*s.target%s", (int)(end - options), options, end);
}

static int core_of(int cpu)
{
	char path[96];
	int core = -1;
	FILE *f;

	snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/topology/core_id", cpu);
	f = fopen(path, "re");
	if (f) {
		if (fscanf(f, "%d", &core) != 1)
			core = -1;
		fclose(f);
	}
	return core;
}

/*
 * Picks two allowed CPUs, on two cores if possible: siblings share the resources that are measured.
 */
static void choose_cpus(struct local *lo)
{
	cpu_set_t allowed;

	lo->cpu = lo->peer_cpu = -1;
	if (sched_getaffinity(0, sizeof(allowed), &allowed) < 0 || CPU_COUNT(&allowed) < 2)
		return;
	for (int c = 0; c < CPU_SETSIZE; c++) {
		if (!CPU_ISSET(c, &allowed))
			continue;
		if (lo->cpu < 0) {
			lo->cpu = c;
		} else if (lo->peer_cpu < 0) {
			lo->peer_cpu = c;
		} else if (core_of(lo->peer_cpu) == core_of(lo->cpu) &&
			   core_of(c) != core_of(lo->cpu)) {
			lo->peer_cpu = c;
			break;
		}
	}
}

static void pin_to(int cpu)
{
	cpu_set_t one;

	if (cpu < 0)
		return;
	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	sched_setaffinity(0, sizeof(one), &one);
}

bool local_plan(struct local *lo, const char *spec, const char *peer_spec, bool pin, char *err,
		size_t errlen)
{
	char addr[64], peer_addr[64] = "", peer_options[LOCAL_SPEC_LEN - 96];
	const char *options;

	memset(lo, 0, sizeof(*lo));
	lo->cpu = lo->peer_cpu = -1;
	lo->oob.fd = -1;
	if (!spec)
		spec = sys_env("ROOST_PORT");
	if (!spec || !*spec)
		spec = PORT_DEFAULT_SPEC;
	if (strchr(spec, ';')) {
		snprintf(err, errlen, "two processes take one port each: '%s' names several", spec);
		return false;
	}
	if (strlen(spec) > LOCAL_SPEC_LEN - 112 ||
	    !split(spec, lo->kind, sizeof(lo->kind), addr, sizeof(addr), &options)) {
		snprintf(
			err, errlen,
			"'%.64s' is no port: host, udp or shm, perhaps with an address, as udp:127.0.0.2",
			spec);
		return false;
	}
	if (addr[0] && !peer_spec && !next_address(addr, peer_addr, sizeof(peer_addr))) {
		snprintf(err, errlen,
			 "'%s' is no address with one after it; name the target's with --peer-port",
			 addr);
		return false;
	}
	if (!addr[0] && strcmp(lo->kind, "shm") != 0) {
		loopback_address(0, addr, sizeof(addr));
		loopback_address(1, peer_addr, sizeof(peer_addr));
	}
	join_spec(lo->port, lo->kind, addr, options);
	target_options(options, peer_options, sizeof(peer_options));
	if (peer_spec)
		snprintf(lo->peer_port, sizeof(lo->peer_port), "%s", peer_spec);
	else
		join_spec(lo->peer_port, lo->kind, peer_addr, peer_options);
	if (pin)
		choose_cpus(lo);
	return true;
}

int local_start(struct local *lo, int (*target)(struct local *lo, void *arg), void *arg)
{
	pid_t parent = getpid();
	int sv[2], rc;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv) < 0)
		return -errno;
	fflush(NULL);
	lo->pid = fork();
	if (lo->pid < 0) {
		rc = -errno;
		close(sv[0]);
		close(sv[1]);
		return rc;
	}
	if (lo->pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent) /* the parent ended before prctl() */
			_exit(1);
		close(sv[0]);
		oob_init(&lo->oob, sv[1]);
		pin_to(lo->peer_cpu);
		opt_environment(lo->peer_port, 0);
		rc = target(lo, arg);
		fflush(NULL);
		_exit(rc);
	}
	close(sv[1]);
	oob_init(&lo->oob, sv[0]);
	pin_to(lo->cpu);
	opt_environment(lo->port, 0);
	return 0;
}

int local_wait(struct local *lo)
{
	int status = 0;

	while (waitpid(lo->pid, &status, 0) < 0) {
		if (errno != EINTR)
			return 1;
	}
	return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}
