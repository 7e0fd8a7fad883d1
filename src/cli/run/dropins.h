/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef ROOST_CLI_DROPINS_H
#define ROOST_CLI_DROPINS_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Finds the folder of our libraries and copies its name into dir. Uses ROOST_LIBDIR if it is set;
 * otherwise lib beside the command (a build tree), or the folder of this installation. Returns
 * false on errors, with one line in err that names the remedy.
 */
bool dropins_find(char *dir, size_t n, char *err, size_t errlen);

#endif
