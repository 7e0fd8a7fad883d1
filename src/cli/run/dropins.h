/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef ROOST_CLI_DROPINS_H
#define ROOST_CLI_DROPINS_H

#include <stdbool.h>
#include <stddef.h>

/*
 * The folder of our libraries, into dir: ROOST_LIBDIR; lib beside the command (a build tree); as
 * this build installs them. False with one line in err that says what to do.
 */
bool dropins_find(char *dir, size_t n, char *err, size_t errlen);

#endif
