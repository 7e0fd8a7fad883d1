/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cmocka installs its own handlers for SIGSEGV and SIGBUS around every test. Tests in which the DMA
 * engine handles a fault call faults_save() in main(), before cmocka, and faults_ours() at their
 * start.
 */
#ifndef ROOST_TESTS_FAULT_H
#define ROOST_TESTS_FAULT_H

#include <signal.h>
#include <stdlib.h>

#include "nic/dma.h"

static struct sigaction faults_segv, faults_bus;

static inline void faults_save(void)
{
	if (dma_init() || sigaction(SIGSEGV, NULL, &faults_segv) ||
	    sigaction(SIGBUS, NULL, &faults_bus))
		abort();
}

static inline void faults_ours(void)
{
	if (sigaction(SIGSEGV, &faults_segv, NULL) || sigaction(SIGBUS, &faults_bus, NULL))
		abort();
}

#endif
