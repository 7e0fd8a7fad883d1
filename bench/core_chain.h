/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef ROOST_BENCH_CORE_CHAIN_H
#define ROOST_BENCH_CORE_CHAIN_H

#include <stdbool.h>

/* Prints rows of chains; first: no row has been printed yet. */
void chain_rows(double seconds, bool first);

#endif
