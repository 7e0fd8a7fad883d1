/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The only device, roost0. It exists as long as the process. Listing it opens nothing and takes no
 * address.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/sys.h"
#include "port/port.h"
#include "verbs/objects.h"
#include "verbs/private.h"

/*
 * Programs ask the provider libraries of a distribution (libmlx5, libefa) whether a device is
 * theirs. These libraries compare the 8 bytes after struct ibv_device with the address of one of
 * their tables, so `ops` is a pointer of this library. `reserved` follows, because the struct that
 * they expect is larger.
 */
struct verbs_dev {
	struct ibv_device dev;
	const void *ops;
	char reserved[256];
};
_Static_assert(offsetof(struct verbs_dev, ops) == 664, "behind struct ibv_device");

/*
 * /dev/infiniband and /sys have no entries of this device. These names cannot be those of a real
 * device.
 */
static struct verbs_dev roost0 = {
	.dev =
		{
			.node_type = IBV_NODE_CA,
			.transport_type = IBV_TRANSPORT_IB,
			.name = "roost0",
			.dev_name = "uverbs_roost0",
			.dev_path = "/sys/class/infiniband_verbs/uverbs_roost0",
			.ibdev_path = "/sys/class/infiniband/roost0",
		},
	.ops = &roost0,
};

VERBS_EXPORT struct ibv_device **ibv_get_device_list(int *num_devices)
{
	struct ibv_device **list = calloc(2, sizeof(*list));

	if (num_devices)
		*num_devices = list ? 1 : 0;
	if (!list)
		return verbs_null(ENOMEM);
	list[0] = &roost0.dev;
	return list;
}

VERBS_EXPORT void ibv_free_device_list(struct ibv_device **list)
{
	free(list);
}

VERBS_EXPORT const char *ibv_get_device_name(struct ibv_device *device)
{
	return device->name;
}

VERBS_EXPORT int ibv_get_device_index(struct ibv_device *device)
{
	return -1; /* the Linux kernel does not know this device */
}

/*
 * Returns an EUI-64 with the local administration bit, "Ros", and the address folded to four bytes.
 */
static uint64_t guid_of(const struct pkt_addr *addr)
{
	uint8_t g[8] = {0x02, 0x52, 0x6f, 0x73};
	unsigned first = pkt_addr_is_v4(addr) ? 12 : 0, i;
	uint64_t guid;

	for (i = first; i < 16; i++)
		g[4 + i % 4] ^= addr->b[i];
	memcpy(&guid, g, sizeof(guid));
	return guid;
}

void verbs_first_address(struct pkt_addr *addr)
{
	const char *specs = sys_env("ROOST_PORT");
	char spec[512];

	memset(addr, 0, sizeof(*addr));
	if (!specs || !*specs)
		specs = PORT_DEFAULT_SPEC;
	specs += strspn(specs, ";");
	if (snprintf(spec, sizeof(spec), "%.*s", (int)strcspn(specs, ";"), specs) <
	    (int)sizeof(spec))
		port_first_address(spec, addr);
}

/*
 * Returns the GUID of the node, in network byte order. All programs of a machine show the same
 * GUID, as programs on one HCA do, although they get different addresses if one address is taken. A
 * program that only lists devices shows the same GUID as a program with an open device.
 */
uint64_t verbs_device_guid(void)
{
	struct pkt_addr addr;

	verbs_first_address(&addr);
	return guid_of(&addr);
}

uint64_t verbs_nic_guid(struct ibv_context *context)
{
	return guid_of(&nic_port(verbs_ctx(context)->nic, 0, 0)->addr);
}

unsigned verbs_nic_slot(struct ibv_context *context)
{
	return nic_slot(verbs_ctx(context)->nic, 0);
}

VERBS_EXPORT __be64 ibv_get_device_guid(struct ibv_device *device)
{
	return verbs_device_guid();
}

/* No public header declares these functions, but the library exports them. */
VERBS_EXPORT const char *ibv_get_sysfs_path(void);
VERBS_EXPORT int ibv_read_sysfs_file(const char *dir, const char *file, char *buf, size_t size);

static char sysfs_path[IBV_SYSFS_PATH_MAX];

static void find_sysfs(void)
{
	const char *env = sys_env("SYSFS_PATH");
	size_t n;

	if (!env || !*env || strlen(env) >= sizeof(sysfs_path))
		env = "/sys";
	n = strlen(env);
	while (n > 1 && env[n - 1] == '/')
		n--;
	memcpy(sysfs_path, env, n);
	sysfs_path[n] = '\0';
}

/*
 * Programs look here for the files of a kernel driver. The environment variable SYSFS_PATH
 * overrides the path.
 */
const char *ibv_get_sysfs_path(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, find_sysfs);
	return sysfs_path;
}

/* Reads dir/file into buf and removes a final line break. Returns the number of bytes, or -1. */
int ibv_read_sysfs_file(const char *dir, const char *file, char *buf, size_t size)
{
	char path[1024];
	ssize_t n;
	int fd;

	if (snprintf(path, sizeof(path), "%s/%s", dir, file) >= (int)sizeof(path) || !size)
		return -1;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	n = read(fd, buf, size);
	close(fd);
	if (n < 0)
		return -1;
	if (n > 0 && buf[n - 1] == '\n')
		buf[--n] = '\0';
	else if ((size_t)n < size)
		buf[n] = '\0';
	else
		return -1;
	return (int)n;
}
