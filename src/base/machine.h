/* SPDX-License-Identifier: BSD-2-Clause */
/* Describes the machine of a measurement, for the "machine" member of every --json. */
#ifndef ROOST_BASE_MACHINE_H
#define ROOST_BASE_MACHINE_H

#include <jansson.h>

/*
 * Returns a new object, which the caller releases with json_decref(): cpu (model name), cores
 * (online), allowed_cores (this process may use), arch, kernel, page_size, memory (bytes),
 * rmem_max, wmem_max (bytes), hypervisor (a virtual machine, as the CPU says). An unknown value is
 * null. Returns NULL if there is no memory. Any thread; reads files.
 */
json_t *machine_describe(void);

#endif
