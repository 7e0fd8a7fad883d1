/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A network of a test's own, if the Linux kernel allows one (root, or user namespaces). No other
 * process uses its ::1, and the rest of the machine need not have IPv6. Each call makes a new
 * network for this process only. Call it before the process has threads.
 */
#ifndef ROOST_TESTS_NETWORK_H
#define ROOST_TESTS_NETWORK_H

#include <stdbool.h>

/*
 * Makes a network with the loopback interface up: 127.0.0.0/8 and ::1. Returns false if there can
 * be none; so do the functions below. shm gets a folder of its own too, until the process exits.
 * With ROOST_TEST_NETWORK in the environment the process has such a network already.
 */
bool network_own(void);

/* The loopback interface also has 10.77.0.1, 10.77.0.2, fd77::1 and fd77::2. */
bool network_private(void);

/*
 * Makes a network with a tunnel device, tun0. The returned descriptor is its other end: a read
 * returns the IP packets sent over the device, a write delivers packets. The loopback interface is
 * up, without the addresses above. Returns -1 if there can be none.
 */
int network_tunnel(const char *addr4, const char *addr6, int mtu);

/*
 * Adds a tunnel device with an IPv6 address to the network of network_own(). Returns its other end
 * as network_tunnel() does.
 */
int network_link(const char *device, const char *addr6);

/* Adds an IPv6 address to a device. */
bool network_add6(const char *device, const char *addr);
/* Removes such an address. */
bool network_remove6(const char *device, const char *addr);

#endif
