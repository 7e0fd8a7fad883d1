/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef ROOST_BENCH_CORE_CHAIN_H
#define ROOST_BENCH_CORE_CHAIN_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Prints rows of chains; first: no row has been printed yet. only: the row to measure, or NULL for
 * all. most: rows of look-ups end after about so many; 0: after `seconds`.
 */
void chain_rows(double seconds, bool first, const char *only, uint64_t most);

#endif
