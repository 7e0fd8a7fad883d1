/* SPDX-License-Identifier: BSD-2-Clause */
/* Types of the elements of vectors in the key-value store: for clients and for functions. */
#ifndef ROOST_KV_TYPES_H
#define ROOST_KV_TYPES_H

enum roost_kv_type {
	ROOST_KV_U8,
	ROOST_KV_U16,
	ROOST_KV_U32,
	ROOST_KV_U64,
	ROOST_KV_I8,
	ROOST_KV_I16,
	ROOST_KV_I32,
	ROOST_KV_I64,
	ROOST_KV_FLOAT,
	ROOST_KV_DOUBLE,
	ROOST_KV_TYPES,
};

#endif
