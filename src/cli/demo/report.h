/* SPDX-License-Identifier: BSD-2-Clause */
/* The output of `roost demo`. */
#ifndef ROOST_CLI_DEMO_REPORT_H
#define ROOST_CLI_DEMO_REPORT_H

#include <jansson.h>

#include "cli/demo/get.h"

#define DEMO_HASH_LEN 33 /* XXH3 of 128 bits, in hexadecimal digits, and a final 0 */

enum { DEMO_SENT, DEMO_RECEIVED, DEMO_RETURNED, DEMO_FILES };
extern const char *const demo_file_names[DEMO_FILES];

struct demo_step {
	const char *name, *what;
	double seconds;
	uint64_t packets, again; /* sent, and retransmitted, by both sides */
};

struct demo_report {
	const char *port; /* host, udp or shm */
	const char *address, *peer_address;
	const char *keep; /* the folder with the files, or NULL */
	uint64_t size;	  /* bytes of each file */
	struct demo_step step[2];
	struct demo_lookups lookups;
	char hash[DEMO_FILES][DEMO_HASH_LEN];
	bool equal;
	json_t *machine;
};

void demo_print_text(const struct demo_report *r);
/* Prints one line of JSON. Takes over the reference to r->machine. */
void demo_print_json(const struct demo_report *r);

#endif
