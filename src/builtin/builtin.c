/* SPDX-License-Identifier: BSD-2-Clause */
#include "builtin/builtin.h"

#include <string.h>

#include "base/mem.h"

static const struct roost_kernel *const all[] = {
	&kernel_get,	   &kernel_traversal, &kernel_consistency, &kernel_shuffle, &kernel_hll,
	&kernel_aggregate, &kernel_prism,     &kernel_shuffle_out, &kernel_kv};

const struct roost_kernel *kernels_builtin_at(unsigned i)
{
	return i < ARRAY_SIZE(all) ? all[i] : NULL;
}

const struct roost_kernel *kernels_builtin(const char *name)
{
	for (unsigned i = 0; i < ARRAY_SIZE(all); i++)
		if (!strcmp(all[i]->name, name))
			return all[i];
	return NULL;
}
