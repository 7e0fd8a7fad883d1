/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Reads a capture file, or a stream of one, piece by piece. Memory does not grow with the size of
 * the file, and records are available as they arrive. The file is read instead of mapped: a file
 * that is truncated in the meantime then ends early.
 */
#ifndef ROOST_CLI_CAPTURE_FILE_H
#define ROOST_CLI_CAPTURE_FILE_H

#include "packet/pcap.h"

struct capture_file {
	int fd;
	bool ended;
	uint8_t *data; /* bytes read and not consumed yet; the buffer has CAPTURE_SPACE bytes */
	size_t size;
	struct pcap_reader reader;
};

/*
 * Opens a file by name; "-" is stdin. Returns 0, or the negative errno of open(2), read(2) or
 * pcap_reader_init(), or -ENOMEM. The caller calls capture_close() in either case.
 */
int capture_open(struct capture_file *c, const char *name);
/*
 * Returns the next record as pcap_reader_next() does, or the negative errno of read(2). The data
 * that the record points to is valid until the next call.
 */
int capture_next(struct capture_file *c, struct pcap_record *rec);
void capture_close(struct capture_file *c);

#endif
