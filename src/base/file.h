/* SPDX-License-Identifier: BSD-2-Clause */
/* Writing whole files. Any thread. */
#ifndef ROOST_BASE_FILE_H
#define ROOST_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>

/* Writes all bytes. Returns 0 or a negative errno. */
int file_write(int fd, const void *bytes, size_t len);

/*
 * Gives a new file that is completely written the name `path`, durably: syncs it, renames it, and
 * syncs the folder. A reader of `path` sees the whole old file or the whole new one. `fd` is open
 * for writing, and stays the caller's; `temporary` is the file's name, in the same folder. A file
 * at `path` is replaced; with `replace` false it is an error, -EEXIST. This may take long. Returns
 *	0		the new file is in place, and `temporary` is gone
 *	an errno	positive: as 0, but the sync of the folder failed with this error, so a
 *			failure of the machine may undo this. FILE_NOT_SYNCED is the line for it
 *	other		negative: the error of a system call; `path` is as it was, and `temporary`
 *			is left to the caller
 */
int file_finish(int fd, const char *temporary, const char *path, bool replace);

/* The text for a positive result of file_finish(), a format for strerror() of it. */
#define FILE_NOT_SYNCED                                                                            \
	"the new file is in place, but its folder was not synced: %s; a failure of the machine may undo this"

#endif
