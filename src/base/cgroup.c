/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/cgroup.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static double stricter(double a, double b)
{
	return a > 0 && (b <= 0 || a < b) ? a : b;
}

int cgroup_numbers(const char *dir, const char *name, long long *a, long long *b)
{
	char path[PATH_MAX];
	int n = 0;
	FILE *f;

	if (snprintf(path, sizeof(path), "%s/%s", dir, name) >= (int)sizeof(path))
		return 0;
	f = fopen(path, "re");
	if (f) {
		n = fscanf(f, "%lld %lld", a, b);
		fclose(f);
	}
	return n;
}

/* Returns true if `list`, whose words are separated by commas, contains `word`. */
static bool has_word(const char *list, const char *word)
{
	size_t n = strlen(word);

	while (*list) {
		size_t len = strcspn(list, ",\n");

		if (len == n && strncmp(list, word, n) == 0)
			return true;
		list += len + (list[len] != '\0');
	}
	return false;
}

/*
 * Finds the path of the process's own group. `v2` selects the hierarchy of version 2; otherwise the
 * function uses the hierarchy of version 1 that has this controller.
 */
static bool find_group(const char *file, bool v2, const char *controller, char path[PATH_MAX])
{
	FILE *f = fopen(file, "re");
	bool found = false;
	char *line = NULL;
	size_t space = 0;

	while (f && !found && getline(&line, &space, f) > 0) {
		char *list = strchr(line, ':'), *p = list ? strchr(list + 1, ':') : NULL;

		if (!p)
			continue;
		*p++ = '\0';
		p[strcspn(p, "\n")] = '\0';
		list++;
		found = (v2 ? *list == '\0' : has_word(list, controller)) && strlen(p) < PATH_MAX;
		if (found)
			strcpy(path, p);
	}
	free(line);
	if (f)
		fclose(f);
	return found;
}

/* Returns the smallest limit of the group at `mount` + `below` and of the groups above it. */
static double least_of_all(const char *mount, const char *below, bool v2, cgroup_limit *of)
{
	char dir[2 * PATH_MAX];
	size_t top = strlen(mount);
	double least = 0;
	char *slash;

	snprintf(dir, sizeof(dir), "%s%s", mount, strcmp(below, "/") ? below : "");
	for (;;) {
		least = stricter(least, of(dir, v2));
		slash = strrchr(dir, '/');
		if (!slash || (size_t)(slash - dir) < top)
			return least;
		*slash = '\0';
	}
}

/* Replaces the octal codes of blanks and backslashes in a field of proc_pid_mountinfo(5). */
static void unescape(char *s)
{
	char *to = s;

	for (; *s; s++) {
		if (s[0] == '\\' && s[1] && s[2] && s[3]) {
			*to++ = (char)((s[1] - '0') * 64 + (s[2] - '0') * 8 + (s[3] - '0'));
			s += 3;
		} else {
			*to++ = *s;
		}
	}
	*to = '\0';
}

/*
 * Reads one line: "ID PARENT MAJOR:MINOR ROOT MOUNT_POINT OPTIONS ... - TYPE SOURCE OPTIONS". If a
 * container sees only its own group, ROOT is the path of the group, or a prefix of the path. If the
 * path is not below ROOT, MOUNT_POINT is the group.
 */
static double least_of_mount(char *line, const char *cgroup, const char *controller,
			     cgroup_limit *of)
{
	char *dash = strstr(line, " - "), *root, *mount_point, *save, type[16], options[512] = "",
	     path[PATH_MAX];
	bool v2;
	size_t n;

	if (!dash || sscanf(dash, " - %15s %*s %511s", type, options) < 2)
		return 0;
	v2 = strcmp(type, "cgroup2") == 0;
	if (!v2 && (strcmp(type, "cgroup") != 0 || !has_word(options, controller)))
		return 0;
	*dash = '\0';
	strtok_r(line, " ", &save);
	strtok_r(NULL, " ", &save);
	strtok_r(NULL, " ", &save);
	root = strtok_r(NULL, " ", &save);
	mount_point = strtok_r(NULL, " ", &save);
	if (!root || !mount_point || strlen(mount_point) >= PATH_MAX ||
	    !find_group(cgroup, v2, controller, path))
		return 0;
	unescape(root);
	unescape(mount_point);
	n = strcmp(root, "/") ? strlen(root) : 0;
	if (strncmp(path, root, n) != 0 || (n && path[n] && path[n] != '/'))
		return least_of_all(mount_point, "", v2, of);
	return least_of_all(mount_point, path + n, v2, of);
}

double cgroup_least(const char *mountinfo, const char *cgroup, const char *controller,
		    cgroup_limit *of)
{
	FILE *f = fopen(mountinfo, "re");
	char *line = NULL;
	size_t space = 0;
	double least = 0;

	while (f && getline(&line, &space, f) > 0)
		least = stricter(least, least_of_mount(line, cgroup, controller, of));
	free(line);
	if (f)
		fclose(f);
	return least;
}
