/* SPDX-License-Identifier: BSD-2-Clause */
/* Reads a whole capture file. Fails the test if it cannot be read. */
#ifndef ROOST_TESTS_CAPTURE_H
#define ROOST_TESTS_CAPTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "packet/headers.h"
#include "packet/pcap.h"

/*
 * Records and the payloads parsed out of them point into the returned memory, which the caller
 * frees with free(). If `folder` is NULL, `name` is the path.
 */
static inline uint8_t *capture_load(const char *folder, const char *name,
				    struct pcap_reader *reader)
{
	char path[1024];
	uint8_t *data;
	FILE *f;
	long n;

	snprintf(path, sizeof(path), "%s%s%s", folder ? folder : "", folder ? "/" : "", name);
	f = fopen(path, "rb");
	if (!f)
		fail_msg("can't open %s", path);
	assert_int_equal(fseek(f, 0, SEEK_END), 0);
	n = ftell(f);
	assert_true(n > 0);
	rewind(f);
	data = malloc((size_t)n);
	assert_non_null(data);
	assert_int_equal(fread(data, 1, (size_t)n, f), (size_t)n);
	fclose(f);
	assert_int_equal(pcap_reader_init(reader, data, (size_t)n), 0);
	return data;
}

/* Parses the next well-formed RoCE packet. Returns false at the end. */
static inline bool capture_next(struct pcap_reader *reader, struct pcap_record *rec,
				struct pkt_view *v)
{
	while (pcap_reader_next(reader, rec) == 1) {
		if (rec->kind == PCAP_ROCE && pkt_parse(rec->bth, (uint32_t)rec->len, v) == PKT_OK)
			return true;
	}
	return false;
}

#endif
