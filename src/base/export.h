/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a library of ours shows to others, if its table of symbols (symbols.txt) names it too: all
 * else is hidden.
 */
#ifndef ROOST_BASE_EXPORT_H
#define ROOST_BASE_EXPORT_H

#define ROOST_EXPORT __attribute__((visibility("default")))

#endif
