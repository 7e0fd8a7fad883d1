/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The ports of the engine: the ports that ROOST_PORT names, and addresses that are added while PUs
 * run.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sys.h"
#include "drive/engine.h"

#define SPEC_MAX sizeof(((struct drive *)0)->spec[0])

/* ---- specifications: KIND[:ADDRESS][,OPTIONS] ---- */

/* Splits at semicolons and skips empty parts. Returns the number of parts, or -EINVAL. */
static int split_specs(const char *text, char spec[][SPEC_MAX], char *err, size_t errlen)
{
	int n = 0;

	while (*text) {
		size_t len = strcspn(text, ";");

		if (len >= SPEC_MAX) {
			snprintf(err, errlen,
				 "ROOST_PORT: the specification '%.40s...' is too long", text);
			return -EINVAL;
		}
		if (len) {
			if (n == NIC_MAX_PORT_NUMS) {
				snprintf(err, errlen,
					 "ROOST_PORT: a NIC has at most %d ports; name fewer",
					 NIC_MAX_PORT_NUMS);
				return -EINVAL;
			}
			memcpy(spec[n], text, len);
			spec[n++][len] = '\0';
		}
		text += len + (text[len] == ';');
	}
	if (n == 0)
		strcpy(spec[n++], PORT_DEFAULT_SPEC);
	return n;
}

/* Writes the specification with another address. */
static int replace_address(char *buf, size_t n, const char *spec, const struct pkt_addr *addr)
{
	char text[46];
	int len = snprintf(buf, n, "%.*s:%s%s", (int)strcspn(spec, ":,"), spec,
			   pkt_addr_print(addr, text, sizeof(text)), spec + strcspn(spec, ","));

	return len < (int)n ? 0 : -EINVAL;
}

/*
 * Writes the specification of an additional address. Its capture goes to a file of its own,
 * FILE-ADDRESS, because opening FILE again would overwrite the capture of the first address.
 */
static int additional_spec(char *buf, size_t n, const char *spec, const struct pkt_addr *addr)
{
	char text[46], plain[SPEC_MAX + 48];
	char *pcap;
	size_t to;

	if (replace_address(plain, sizeof(plain), spec, addr))
		return -EINVAL;
	pcap = strstr(plain, ",pcap=");
	to = pcap ? (size_t)(pcap - plain) + 1 + strcspn(pcap + 1, ",") : strlen(plain);
	pkt_addr_print(addr, text, sizeof(text));
	return snprintf(buf, n, "%.*s%s%s%s", (int)to, plain, pcap ? "-" : "", pcap ? text : "",
			plain + to) < (int)n
		       ? 0
		       : -EINVAL;
}

int ports_configure(struct drive *d, const struct pkt_addr *addr, char *err, size_t errlen)
{
	const char *specs = sys_env("ROOST_PORT");
	char first[SPEC_MAX];
	int n = split_specs(specs ? specs : "", d->spec, err, errlen);

	if (n < 0)
		return n;
	strcpy(first, d->spec[0]);
	if (addr && first[strcspn(first, ":,")] != ':' &&
	    replace_address(d->spec[0], SPEC_MAX, first, addr)) {
		snprintf(err, errlen, "ROOST_PORT: the specification '%.40s...' is too long",
			 first);
		return -EINVAL;
	}
	atomic_store_explicit(&d->ports, (unsigned)n, memory_order_relaxed);
	return 0;
}

/* ---- opening ---- */

static void close_lanes(struct port *lane[NIC_MAX_PUS])
{
	/* Lane 0 is closed last, because it holds the address. */
	for (unsigned i = NIC_MAX_PUS; i-- > 0;) {
		port_close(lane[i]);
		lane[i] = NULL;
	}
}

static int open_lanes(struct drive *d, const char *spec, struct port *lane[NIC_MAX_PUS], char *err,
		      size_t errlen)
{
	char further[SPEC_MAX + 48];

	for (unsigned i = 0; i < d->pus; i++) {
		if (i == 1) { /* the other lanes use the address that lane 0 got */
			replace_address(further, sizeof(further), spec, &lane[0]->addr);
			spec = further;
		}
		errno = 0;
		lane[i] = port_open(spec, i, d->pus, err, errlen);
		if (!lane[i])
			return errno ? -errno : -EINVAL;
	}
	return 0;
}

int ports_open(struct drive *d, char *err, size_t errlen)
{
	int rc = 0;

	for (unsigned k = 0; k < drive_ports(d) && rc == 0; k++)
		rc = open_lanes(d, d->spec[k], d->port[k], err, errlen);
	return rc;
}

void ports_close(struct drive *d)
{
	for (unsigned k = 0; k < NIC_MAX_PORTS; k++)
		close_lanes(d->port[k]);
}

/* ---- addresses ---- */

bool drive_find_addr(struct drive *d, const struct pkt_addr *addr, struct drive_addr *where)
{
	struct nic_gid gid;

	if (!nic_gid_of(d->nic, addr, &gid))
		return false;
	*where = (struct drive_addr){
		.port = gid.port,
		.port_num = (uint8_t)gid.port_num,
		.gid_index = (uint8_t)gid.index,
		.mtu = nic_port(d->nic, gid.port, 0)->mtu,
	};
	return true;
}

/*
 * Adds a port to all PUs. All PUs are owned meanwhile, so no PU is in a turn, and all see the port
 * at the same time. The caller then wakes the threads that sleep on the ports, so that they sleep
 * on the new port, too. Until then the new port is armed like the others.
 */
static int add_port(struct drive *d, unsigned k)
{
	int rc;

	for (unsigned i = 0; i < d->pus; i++)
		drive_own(d, i);
	rc = service_watch_port(d, k);
	if (rc == 0)
		rc = nic_port_add(d->nic, 1, d->port[k]);
	if (rc == 0) {
		atomic_store_explicit(&d->ports, k + 1, memory_order_release);
		for (unsigned i = 0; i < d->pus; i++) {
			if (atomic_load_explicit(&d->pu[i].sleepers, memory_order_relaxed))
				d->port[k][i]->ops->arm(d->port[k][i]);
		}
	}
	for (unsigned i = 0; i < d->pus; i++)
		drive_disown(d, i);
	return rc;
}

static int add(struct drive *d, const struct pkt_addr *addr, char *err, size_t errlen)
{
	unsigned k = drive_ports(d);
	int rc;

	if (k == NIC_MAX_PORTS) {
		snprintf(err, errlen, "a NIC has at most %d addresses", NIC_MAX_PORTS);
		return -ENOSPC;
	}
	if (additional_spec(d->spec[k], SPEC_MAX, d->spec[0], addr)) {
		snprintf(err, errlen,
			 "ROOST_PORT: the specification '%.40s...' is too long to add an address",
			 d->spec[0]);
		return -EINVAL;
	}
	/*
	 * The control lock is not held yet: to open an address may take a second, if other programs
	 * of the pool are stopped. Control calls, and the service thread, would wait meanwhile.
	 */
	rc = open_lanes(d, d->spec[k], d->port[k], err, errlen);
	if (rc == 0) {
		drive_control_lock(d);
		rc = add_port(d, k);
		drive_control_unlock(d);
		if (rc)
			snprintf(err, errlen, "the NIC can't add the address: %s", strerror(-rc));
	}
	if (rc)
		close_lanes(d->port[k]);
	return rc;
}

int ports_add(struct drive *d, const struct pkt_addr *addr, struct drive_addr *where, char *err,
	      size_t errlen)
{
	int rc = 0;

	if (drive_dead(d)) {
		snprintf(err, errlen,
			 "this NIC belongs to the parent process: open the device again");
		return -ENODEV;
	}
	if (!drive_find_addr(d, addr, where)) {
		rc = add(d, addr, err, errlen);
		if (rc == 0)
			drive_find_addr(d, addr, where);
	}
	if (rc == 0) {
		gsi_begin_wills(d); /* the address may have some, or be the first one in a pool */
		service_poller_kick(&d->service);
		if (atomic_load_explicit(&d->waiting, memory_order_seq_cst))
			service_poller_kick(&d->waiter);
	}
	return rc;
}
