/* SPDX-License-Identifier: BSD-2-Clause */
/* The head of a record. record.c describes the rest. */
#ifndef ROOST_KV_RECORD_H
#define ROOST_KV_RECORD_H

#define RECORD_HEAD	   4u	 /* bytes of the head */
#define RECORD_KEY	   0xffu /* length of the key */
#define RECORD_VALUE	   0x1fffffu
#define RECORD_VALUE_SHIFT 8u
#define RECORD_EXPIRES	   (1u << 29)
#define RECORD_EXTENTS	   (1u << 30)

#endif
