/* SPDX-License-Identifier: BSD-2-Clause */
/* Conversion of addresses to and from text. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>

#include "packet/icrc.h"

int pkt_addr_parse(const char *text, struct pkt_addr *a)
{
	struct in6_addr six;
	struct in_addr four;

	if (inet_pton(AF_INET, text, &four) == 1) {
		memset(a->b, 0, 10);
		memset(a->b + 10, 0xff, 2);
		memcpy(a->b + 12, &four, 4);
		return 0;
	}
	if (inet_pton(AF_INET6, text, &six) == 1) {
		memcpy(a->b, &six, 16);
		return 0;
	}
	return -EINVAL;
}

const char *pkt_addr_print(const struct pkt_addr *a, char *buf, size_t n)
{
	const char *s = pkt_addr_is_v4(a) ? inet_ntop(AF_INET, a->b + 12, buf, (socklen_t)n)
					  : inet_ntop(AF_INET6, a->b, buf, (socklen_t)n);

	/* The buffer is too short; it gets an empty string. */
	if (!s && n)
		buf[0] = '\0';
	return buf;
}
