/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A capture file, or a stream of one, read piece by piece: memory does not grow with it, and
 * records are seen as they come. It is read, not mapped: a file that somebody shortens meanwhile
 * ends early.
 */
#ifndef ROOST_CLI_CAPTURE_FILE_H
#define ROOST_CLI_CAPTURE_FILE_H

#include "packet/pcap.h"

struct capture_file {
	int fd;
	bool ended;
	uint8_t *data; /* what was read and is not used up: CAPTURE_ROOM bytes of room */
	size_t size;
	struct pcap_reader reader;
};

/*
 * Opens by name; "-" is stdin. 0, or negative errno: that of open(2) and read(2), -ENOMEM, and
 * those of pcap_reader_init(). capture_close() in either case.
 */
int capture_open(struct capture_file *c, const char *name);
/*
 * As pcap_reader_next(), or the negative errno of read(2). What the record points to stays until
 * the next call.
 */
int capture_next(struct capture_file *c, struct pcap_record *rec);
void capture_close(struct capture_file *c);

#endif
