/* SPDX-License-Identifier: BSD-2-Clause */
#include "etcd/name.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kvwire/remote.h"

static int bad(char *why, size_t why_len, const char *text, const char *line)
{
	snprintf(why, why_len, "%.150s: %s", text, line);
	for (char *c = why; *c; c++)
		*c = iscntrl((unsigned char)*c) ? '?' : *c;
	return -EINVAL;
}

/* Returns whether text[0..len) is HOST, HOST:PORT, [HOST] or [HOST]:PORT. */
static bool is_address(const char *text, size_t len)
{
	const char *end = text + len, *colon;
	bool bracket = *text == '[';
	unsigned long port = 0;

	for (const char *c = text; c < end; c++) {
		if (!isalnum((unsigned char)*c) && !strchr(".-_:[]%", *c))
			return false;
	}
	colon = memchr(text, bracket ? ']' : ':', len);
	if (bracket) {
		if (!colon || colon == text + 1)
			return false;
		colon++;
	}
	if (!colon || colon == end)
		return len > 0;
	if (colon == text || *colon != ':')
		return false;
	for (colon++, len = 0; colon < end && isdigit((unsigned char)*colon) && len < 5; len++)
		port = port * 10 + (unsigned long)(*colon++ - '0');
	return len && colon == end && port && port <= 65535;
}

/* Takes the endpoint at `text`. Returns the text behind it, or NULL. */
static const char *take_endpoint(struct etcd_name *n, const char *text)
{
	static const char *const schemes[] = {"http://", "https://"};
	const char *scheme = schemes[0];
	size_t len;

	for (unsigned i = 0; i < 2; i++) {
		len = strlen(schemes[i]);
		if (strncmp(text, schemes[i], len))
			continue;
		scheme = schemes[i];
		text += len;
		break;
	}
	len = strcspn(text, ",/");
	if (n->endpoints == ETCD_ENDPOINTS || !is_address(text, len) ||
	    strlen(scheme) + len >= ETCD_ENDPOINT_MAX)
		return NULL;
	snprintf(n->endpoint[n->endpoints++], ETCD_ENDPOINT_MAX, "%s%.*s", scheme, (int)len, text);
	return text + len;
}

int etcd_name_parse(struct etcd_name *n, const char *text, char *why, size_t why_len)
{
	const char *at = text + strlen(KV_TABLE_REMOTE);

	n->endpoints = 0;
	for (;; at++) {
		at = take_endpoint(n, at);
		if (!at || *at != ',')
			break;
	}
	if (!at && n->endpoints == ETCD_ENDPOINTS)
		return bad(why, why_len, text, "more than 8 endpoints");
	if (!at || *at != '/' || !at[1])
		return bad(why, why_len, text,
			   "not etcd:http://HOST:PORT[,http://HOST:PORT...]/KEY");
	if (strlen(at + 1) >= ETCD_KEY_MAX)
		return bad(why, why_len, text, "the key is longer than 159 characters");
	strcpy(n->key, at + 1);
	return 0;
}
