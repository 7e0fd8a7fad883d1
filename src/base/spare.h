/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A descriptor in reserve for a listening socket. A process without a free descriptor cannot accept
 * a connection, so the socket stays readable, and a thread that waits for it would be busy until
 * another thread closes something.
 */
#ifndef ROOST_BASE_SPARE_H
#define ROOST_BASE_SPARE_H

#include <stdbool.h>

/* Returns a descriptor that only takes a number, or -errno. */
int spare_open(void);
/* True if this error of accept means that there is no free descriptor. */
bool spare_needed(int rc);
/*
 * Accepts the oldest connection with the number of the spare descriptor, hangs up, and opens the
 * spare descriptor again. *spare may be negative: then this call opens it if it can.
 */
void spare_refuse(int listener, int *spare);

#endif
