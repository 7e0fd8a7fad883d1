/* SPDX-License-Identifier: BSD-2-Clause */
#include "cli/pcap/capture_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CAPTURE_SPACE (1u << 20) /* must exceed the longest record that the reader takes */

/* Appends bytes to the buffer. Returns 0 or a negative errno. */
static int read_more(struct capture_file *c)
{
	ssize_t n;

	do
		n = read(c->fd, c->data + c->size, CAPTURE_SPACE - c->size);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	c->size += (size_t)n;
	c->ended = n == 0;
	return 0;
}

int capture_open(struct capture_file *c, const char *name)
{
	int rc = 0;

	*c = (struct capture_file){.fd = strcmp(name, "-") == 0 ? STDIN_FILENO
								: open(name, O_RDONLY | O_CLOEXEC)};
	if (c->fd < 0)
		return -errno;
	c->data = malloc(CAPTURE_SPACE);
	if (!c->data)
		return -ENOMEM;
	while (!rc && !c->ended && c->size < PCAP_FILE_HDR_LEN)
		rc = read_more(c);
	return rc ? rc : pcap_reader_init(&c->reader, c->data, c->size);
}

int capture_next(struct capture_file *c, struct pcap_record *rec)
{
	for (;;) {
		size_t used = c->reader.off;
		int rc = pcap_reader_next(&c->reader, rec);

		if (c->ended || (rc != 0 && rc != -ENODATA))
			return rc;
		c->size -= used;
		memmove(c->data, c->data + used, c->size);
		rc = read_more(c);
		if (rc)
			return rc;
		pcap_reader_more(&c->reader, c->data, c->size);
	}
}

void capture_close(struct capture_file *c)
{
	if (c->fd >= 0 && c->fd != STDIN_FILENO)
		close(c->fd);
	free(c->data);
}
