/* SPDX-License-Identifier: BSD-2-Clause */
/* The machine a figure was measured on, for the "machine" member of every --json. */
#ifndef ROOST_BASE_MACHINE_H
#define ROOST_BASE_MACHINE_H

#include <jansson.h>

/*
 * A new object, the caller's to json_decref: cpu (model name), cores (online), allowed_cores (this
 * process may use), arch, kernel, page_size, memory (bytes), rmem_max, wmem_max (bytes), hypervisor
 * (a virtual machine, as the CPU says). What can't be found out is null. NULL when memory is out.
 * Any thread; reads files.
 */
json_t *machine_describe(void);

#endif
