/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Marks a symbol that a library exports, if its symbol table (symbols.txt) names it too. All other
 * symbols are hidden.
 */
#ifndef ROOST_BASE_EXPORT_H
#define ROOST_BASE_EXPORT_H

#define ROOST_EXPORT __attribute__((visibility("default")))

#endif
