/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/machine.h"

#include <ctype.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/mem.h"

/* Returns the integer that a file begins with, or null. */
static json_t *number_in(const char *path)
{
	FILE *f = fopen(path, "re");
	long long v;
	bool ok;

	if (!f)
		return json_null();
	ok = fscanf(f, "%lld", &v) == 1;
	fclose(f);
	return ok ? json_integer(v) : json_null();
}

static char *trim(char *s)
{
	size_t len;

	while (isspace((unsigned char)*s))
		s++;
	len = strlen(s);
	while (len && isspace((unsigned char)s[len - 1]))
		s[--len] = '\0';
	return s;
}

struct cpu_facts {
	char model[128];
	bool flags_seen, hypervisor;
};

/* Reads the entry of the first processor; the others are taken to be the same. */
static void read_cpuinfo(struct cpu_facts *facts)
{
	FILE *f = fopen("/proc/cpuinfo", "re");
	char *line = NULL;
	size_t space = 0;

	if (!f)
		return;
	while (getline(&line, &space, f) > 0 && *trim(line)) {
		char *colon = strchr(line, ':');

		if (!colon)
			continue;
		*colon = '\0';

		const char *key = trim(line), *value = trim(colon + 1);

		if (!strcmp(key, "model name")) {
			snprintf(facts->model, sizeof(facts->model), "%s", value);
		} else if (!strcmp(key, "flags")) {
			facts->flags_seen = true;
			facts->hypervisor = strstr(value, "hypervisor") != NULL;
		}
	}
	free(line);
	fclose(f);
}

static json_t *allowed_cores(void)
{
	cpu_set_t set;

	if (sched_getaffinity(0, sizeof(set), &set))
		return json_null();
	return json_integer(CPU_COUNT(&set));
}

static json_t *sysconf_number(int name)
{
	long v = sysconf(name);

	return v < 0 ? json_null() : json_integer(v);
}

json_t *machine_describe(void)
{
	struct cpu_facts facts = {0};
	struct utsname u = {0};
	json_t *o = json_object();
	long pages = sysconf(_SC_PHYS_PAGES);
	int bad = 0;

	if (!o)
		return NULL;
	read_cpuinfo(&facts);
	uname(&u);
	bad |= json_object_set_new(o, "cpu",
				   facts.model[0] ? json_string(facts.model) : json_null());
	bad |= json_object_set_new(o, "cores", sysconf_number(_SC_NPROCESSORS_ONLN));
	bad |= json_object_set_new(o, "allowed_cores", allowed_cores());
	bad |= json_object_set_new(o, "arch", json_string(u.machine));
	bad |= json_object_set_new(o, "kernel", json_string(u.release));
	bad |= json_object_set_new(o, "page_size", json_integer((json_int_t)mem_page_size()));
	bad |= json_object_set_new(
		o, "memory",
		pages > 0 ? json_integer((json_int_t)pages * (json_int_t)mem_page_size())
			  : json_null());
	bad |= json_object_set_new(o, "rmem_max", number_in("/proc/sys/net/core/rmem_max"));
	bad |= json_object_set_new(o, "wmem_max", number_in("/proc/sys/net/core/wmem_max"));
	bad |= json_object_set_new(o, "hypervisor",
				   facts.flags_seen ? json_boolean(facts.hypervisor) : json_null());
	if (bad) {
		json_decref(o);
		return NULL;
	}
	return o;
}
