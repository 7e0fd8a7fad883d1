/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A network of a test's own, where the kernel lets us have one (root, or user namespaces): its ::1
 * is nobody else's, and the rest of the machine may have no IPv6. Each makes another one, for this
 * process alone: before it has threads.
 */
#ifndef ROOST_TESTS_NETWORK_H
#define ROOST_TESTS_NETWORK_H

#include <stdbool.h>

/*
 * Loopback is up: 127.0.0.0/8 and ::1. False: none to be had, here and below. On shm, too: a folder
 * of our own, until exit.
 */
bool network_own(void);

/* 10.77.0.1, 10.77.0.2, fd77::1 and fd77::2 are on its loopback. */
bool network_private(void);

/*
 * With a tunnel device, tun0, whose other end is the returned descriptor: IP packets sent over it
 * can be read there as a wire would carry them, and written. Loopback is up, without the addresses
 * above. -1: none to be had.
 */
int network_tunnel(const char *addr4, const char *addr6, int mtu);

/* One more IPv6 address for a device of that namespace. */
bool network_add6(const char *device, const char *addr);

#endif
