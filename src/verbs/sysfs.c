/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The attributes of /sys/class/infiniband/roost0 that differ between processes, in the Linux
 * kernel's formats (drivers/infiniband/core/sysfs.c, device.c). The others are files of the view's
 * folder (src/cli/run/preload/make_view.sh).
 */
#include "verbs/sysfs.h"

#include <fcntl.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/sys.h"
#include "port/shm_dir.h"
#include "verbs/objects.h"

#define DEVICE "/sys/class/infiniband/roost0/"

struct gids {
	struct pkt_addr addr[NIC_MAX_PORTS];
	unsigned n;
};

static void *gids_of(struct verbs_ctx *ctx, void *arg)
{
	struct gids *g = arg;
	struct nic_gid gid;

	for (g->n = 0; g->n < NIC_MAX_PORTS && nic_gid(ctx->nic, 1, g->n, &gid); g->n++)
		g->addr[g->n] = nic_port(ctx->nic, gid.port, 0)->addr;
	return ctx;
}

static void find_gids(struct gids *g)
{
	memset(g, 0, sizeof(*g));
	if (verbs_each_context(gids_of, g))
		return;
	verbs_first_address(&g->addr[0]);
	g->n = 1;
}

static int guid_text(char *out, size_t n)
{
	uint8_t b[8];
	uint64_t guid = verbs_device_guid();

	memcpy(b, &guid, sizeof(b));
	snprintf(out, n, "%02x%02x:%02x%02x:%02x%02x:%02x%02x\n", b[0], b[1], b[2], b[3], b[4],
		 b[5], b[6], b[7]);
	return ROOST_SYSFS_TEXT;
}

/*
 * Writes an entry of the GID table. Entries beyond the table are zeros, like empty entries of the
 * Linux kernel.
 */
static int gid_text(const struct gids *g, unsigned index, char *out, size_t n)
{
	static const struct pkt_addr none;
	const uint8_t *b = index < g->n ? g->addr[index].b : none.b;

	snprintf(out, n,
		 "%02x%02x:%02x%02x:%02x%02x:%02x%02x:%02x%02x:%02x%02x:%02x%02x:%02x%02x\n", b[0],
		 b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13],
		 b[14], b[15]);
	return ROOST_SYSFS_TEXT;
}

static bool interface_name(const struct gids *g, unsigned index, char name[IF_NAMESIZE])
{
	uint32_t i = index < g->n ? verbs_interface_of(&g->addr[index]) : 0;

	return i && if_indextoname(i, name);
}

static int ndev_text(const struct gids *g, unsigned index, char *out, size_t n)
{
	char name[IF_NAMESIZE];

	if (!interface_name(g, index, name))
		return -EINVAL;
	snprintf(out, n, "%s\n", name);
	return ROOST_SYSFS_TEXT;
}

static int type_text(const struct gids *g, unsigned index, char *out, size_t n)
{
	if (index >= g->n)
		return -EINVAL;
	snprintf(out, n, "RoCE v2\n");
	return ROOST_SYSFS_TEXT;
}

/*
 * Answers for device/net, which has one entry, named after the interface of GID 0. It is a folder
 * in the private folder, with a link to the Linux kernel's folder of that interface. It depends
 * only on the interface's name, so it can stay for the next program.
 */
static int net_folder(const struct gids *g, const char *below, char *out, size_t n)
{
	char name[IF_NAMESIZE], folder[IF_NAMESIZE + 8], target[IF_NAMESIZE + 32],
		entry[IF_NAMESIZE * 2 + 16], err[256];
	int dir, len;

	if (!interface_name(g, 0, name))
		return ROOST_SYSFS_OTHER; /* the view's own folder is empty */
	dir = shm_dir_open(err, sizeof(err));
	if (dir < 0)
		return ROOST_SYSFS_OTHER;
	snprintf(folder, sizeof(folder), "net.%s", name);
	snprintf(entry, sizeof(entry), "%s/%s", folder, name);
	snprintf(target, sizeof(target), "/sys/class/net/%s", name);
	if ((mkdirat(dir, folder, 0700) && errno != EEXIST) ||
	    (symlinkat(target, dir, entry) && errno != EEXIST)) {
		sys_close(dir);
		return ROOST_SYSFS_OTHER;
	}
	snprintf(target, sizeof(target), "/proc/self/fd/%d", dir);
	len = (int)readlink(target, out, n);
	sys_close(dir);
	if (len < 0 || len >= (int)n ||
	    snprintf(out + len, n - (size_t)len, "/%s%s", folder, below) >= (int)n - len)
		return ROOST_SYSFS_OTHER;
	return ROOST_SYSFS_PATH;
}

/* Returns whether `path` is `word` followed by a number. */
static bool numbered(const char *path, const char *word, unsigned *index)
{
	size_t n = strlen(word);
	int end = 0;

	return strncmp(path, word, n) == 0 && sscanf(path + n, "%3u%n", index, &end) == 1 &&
	       !path[n + (size_t)end];
}

int roost_sysfs(const char *path, char *out, size_t n)
{
	static const char net[] = "device/net";
	struct gids gids;
	unsigned index;

	if (strncmp(path, DEVICE, sizeof(DEVICE) - 1) != 0)
		return ROOST_SYSFS_OTHER;
	path += sizeof(DEVICE) - 1;
	if (!strcmp(path, "node_guid") || !strcmp(path, "sys_image_guid"))
		return guid_text(out, n);
	if (!strcmp(path, "fw_ver")) {
		snprintf(out, n, "%s\n", ROOST_VERSION);
		return ROOST_SYSFS_TEXT;
	}
	find_gids(&gids);
	if (numbered(path, "ports/1/gids/", &index))
		return gid_text(&gids, index, out, n);
	if (numbered(path, "ports/1/gid_attrs/types/", &index))
		return type_text(&gids, index, out, n);
	if (numbered(path, "ports/1/gid_attrs/ndevs/", &index))
		return ndev_text(&gids, index, out, n);
	if (strncmp(path, net, sizeof(net) - 1) == 0 &&
	    (path[sizeof(net) - 1] == '\0' || path[sizeof(net) - 1] == '/'))
		return net_folder(&gids, path + sizeof(net) - 1, out, n);
	return ROOST_SYSFS_OTHER;
}
