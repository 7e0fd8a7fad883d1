/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * For each test, cmocka installs its handlers for SIGSEGV and similar signals. They replace the
 * handlers that Roost has installed for the process. A test that needs those saves them in its
 * group's setup, after they were installed, and restores them at its start.
 */
#ifndef ROOST_TESTS_HANDLERS_H
#define ROOST_TESTS_HANDLERS_H

#include <signal.h>

static const int handled[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
static struct sigaction handlers[sizeof(handled) / sizeof(handled[0])];

static inline void keep_handlers(void)
{
	for (unsigned i = 0; i < sizeof(handled) / sizeof(handled[0]); i++)
		sigaction(handled[i], NULL, &handlers[i]);
}

static inline void take_back_handlers(void)
{
	for (unsigned i = 0; i < sizeof(handled) / sizeof(handled[0]); i++)
		sigaction(handled[i], &handlers[i], NULL);
}

#endif
