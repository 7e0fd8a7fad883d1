/* SPDX-License-Identifier: BSD-2-Clause */
/* The name of a table in etcd: etcd:http://HOST:PORT[,http://HOST:PORT...]/KEY. */
#ifndef ROOST_ETCD_NAME_H
#define ROOST_ETCD_NAME_H

#include <stddef.h>

#define ETCD_ENDPOINTS	  8u
#define ETCD_ENDPOINT_MAX 128u
#define ETCD_KEY_MAX	  160u

struct etcd_name {
	unsigned endpoints;
	char endpoint[ETCD_ENDPOINTS][ETCD_ENDPOINT_MAX]; /* http://HOST:PORT */
	char key[ETCD_KEY_MAX];
};

/*
 * Reads a name. An endpoint without http:// or https:// gets http://, as with etcdctl. Returns 0,
 * or -EINVAL with a line in `why`.
 */
int etcd_name_parse(struct etcd_name *n, const char *text, char *why, size_t why_len);

#endif
