/* SPDX-License-Identifier: BSD-2-Clause */
#include "network.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <linux/ipv6.h>
#include <net/if.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

static bool write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	bool ok = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);

	if (fd >= 0)
		close(fd);
	return ok;
}

static bool enter_namespace(void)
{
	char map[64];
	uid_t uid = getuid();

	if (unshare(CLONE_NEWNET) == 0)
		return true;
	if (unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0)
		return false;
	snprintf(map, sizeof(map), "0 %u 1", (unsigned)uid);
	return write_file("/proc/self/uid_map", map);
}

static bool add4(int fd, const char *label, const char *text)
{
	struct ifreq req = {0};
	struct sockaddr_in *a = (struct sockaddr_in *)&req.ifr_addr;

	snprintf(req.ifr_name, sizeof(req.ifr_name), "%s", label);
	a->sin_family = AF_INET;
	inet_pton(AF_INET, text, &a->sin_addr);
	return ioctl(fd, SIOCSIFADDR, &req) == 0;
}

static bool change6(int fd, unsigned long request, const char *device, const char *text,
		    unsigned prefix)
{
	struct in6_ifreq req = {.ifr6_prefixlen = prefix,
				.ifr6_ifindex = (int)if_nametoindex(device)};

	inet_pton(AF_INET6, text, &req.ifr6_addr);
	return ioctl(fd, request, &req) == 0;
}

static bool add6(int fd, const char *device, const char *text, unsigned prefix)
{
	return change6(fd, SIOCSIFADDR, device, text, prefix);
}

/* Waits: the Linux kernel checks that an address is unique before a program can use it. */
static bool usable6(const char *device, const char *text)
{
	struct sockaddr_in6 a = {.sin6_family = AF_INET6, .sin6_scope_id = if_nametoindex(device)};
	bool ok = false;

	inet_pton(AF_INET6, text, &a.sin6_addr);
	for (int i = 0; i < 2000 && !ok; i++) {
		int fd = socket(AF_INET6, SOCK_DGRAM, 0);

		ok = bind(fd, (struct sockaddr *)&a, sizeof(a)) == 0;
		close(fd);
		if (!ok)
			usleep(1000);
	}
	return ok;
}

static bool set_up(int fd, const char *device)
{
	struct ifreq req = {0};

	snprintf(req.ifr_name, sizeof(req.ifr_name), "%s", device);
	if (ioctl(fd, SIOCGIFFLAGS, &req))
		return false;
	req.ifr_flags |= IFF_UP;
	return ioctl(fd, SIOCSIFFLAGS, &req) == 0;
}

static char shm_folder[] = P_tmpdir "/roost-test-XXXXXX";
static pid_t shm_owner;

static void remove_shm_folder(void)
{
	char path[sizeof(shm_folder) + 256];
	struct dirent *e;
	DIR *d = getpid() == shm_owner ? opendir(shm_folder) : NULL;

	if (!d)
		return;
	while ((e = readdir(d))) {
		snprintf(path, sizeof(path), "%s/%s", shm_folder, e->d_name);
		unlink(path); /* fails for . and .. */
	}
	closedir(d);
	rmdir(shm_folder);
}

static bool make_shm_folder(void)
{
	if (!mkdtemp(shm_folder))
		return false;
	shm_owner = getpid();
	setenv("ROOST_SHM_DIR", shm_folder, 1);
	return atexit(remove_shm_folder) == 0;
}

bool network_own(void)
{
	int fd;
	bool ok;

	if (!make_shm_folder())
		return false;
	if (getenv("ROOST_TEST_NETWORK"))
		return true;
	if (!enter_namespace())
		return false;
	fd = socket(AF_INET, SOCK_DGRAM, 0);
	ok = fd >= 0 && set_up(fd, "lo") && usable6("lo", "::1");
	if (fd >= 0)
		close(fd);
	return ok;
}

bool network_private(void)
{
	int fd4, fd6;
	bool ok;

	if (!enter_namespace())
		return false;
	fd4 = socket(AF_INET, SOCK_DGRAM, 0);
	fd6 = socket(AF_INET6, SOCK_DGRAM, 0);
	ok = set_up(fd4, "lo") && add4(fd4, "lo:1", "10.77.0.1") && add4(fd4, "lo:2", "10.77.0.2");
	ok = ok && add6(fd6, "lo", "fd77::1", 128) && add6(fd6, "lo", "fd77::2", 128);
	ok = ok && usable6("lo", "fd77::1") && usable6("lo", "fd77::2");
	close(fd4);
	close(fd6);
	return ok;
}

/* Opens the other end of a new tunnel device. Returns -1 if there can be none. */
static int open_tunnel(struct ifreq *req)
{
	int tun = open("/dev/net/tun", O_RDWR | O_CLOEXEC | O_NONBLOCK);

	req->ifr_flags = IFF_TUN | IFF_NO_PI;
	if (tun >= 0 && ioctl(tun, TUNSETIFF, req) == 0)
		return tun;
	if (tun >= 0)
		close(tun);
	return -1;
}

int network_link(const char *device, const char *addr6)
{
	struct ifreq req = {0};
	int tun, fd;
	bool ok;

	snprintf(req.ifr_name, sizeof(req.ifr_name), "%s", device);
	tun = open_tunnel(&req);
	if (tun < 0)
		return -1;
	fd = socket(AF_INET6, SOCK_DGRAM, 0);
	ok = set_up(fd, device) && add6(fd, device, addr6, 64) && usable6(device, addr6);
	close(fd);
	if (ok)
		return tun;
	close(tun);
	return -1;
}

int network_tunnel(const char *addr4, const char *addr6, int mtu)
{
	struct ifreq req = {.ifr_name = "tun0"};
	int tun, fd4, fd6;
	bool ok;

	if (!enter_namespace())
		return -1;
	fd4 = socket(AF_INET, SOCK_DGRAM, 0);
	set_up(fd4, "lo"); /* without a tunnel, the program continues in this namespace */
	tun = open_tunnel(&req);
	if (tun < 0) {
		close(fd4);
		return -1;
	}
	fd6 = socket(AF_INET6, SOCK_DGRAM, 0);
	req.ifr_mtu = mtu;
	ok = ioctl(fd4, SIOCSIFMTU, &req) == 0 && add4(fd4, "tun0", addr4);
	((struct sockaddr_in *)&req.ifr_netmask)->sin_family = AF_INET;
	inet_pton(AF_INET, "255.255.255.0", &((struct sockaddr_in *)&req.ifr_netmask)->sin_addr);
	ok = ok && ioctl(fd4, SIOCSIFNETMASK, &req) == 0;
	ok = ok && set_up(fd4, "tun0") && add6(fd6, "tun0", addr6, 64) && usable6("tun0", addr6);
	close(fd4);
	close(fd6);
	if (!ok) {
		close(tun);
		return -1;
	}
	return tun;
}

bool network_add6(const char *device, const char *addr)
{
	int fd = socket(AF_INET6, SOCK_DGRAM, 0);
	bool ok = add6(fd, device, addr, 64);

	close(fd);
	return ok && usable6(device, addr);
}

bool network_remove6(const char *device, const char *addr)
{
	int fd = socket(AF_INET6, SOCK_DGRAM, 0);
	bool ok = change6(fd, SIOCDIFADDR, device, addr, 64);

	close(fd);
	return ok;
}
