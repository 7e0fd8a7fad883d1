/* SPDX-License-Identifier: BSD-2-Clause */
/* The table of messages. Only the codec and the printer use it. */
#ifndef ROOST_CM_LAYOUT_H
#define ROOST_CM_LAYOUT_H

#include "cm/mad.h"

#define CM_HDR_LEN 24

enum cm_form {
	FORM_DEC,
	FORM_HEX,
	FORM_GID,    /* printed as an address */
	FORM_MTU,    /* a code: 1 is 256 bytes */
	FORM_LID,    /* not printed when 0xffff, the value of RoCE */
	FORM_ABOUT,  /* name of a message */
	FORM_REASON, /* reason of a rejection */
	FORM_BYTES   /* not printed: another field has its length */
};

struct cm_field {
	const char *name;
	uint16_t bit, width; /* position in the body of the message */
	uint16_t offset;     /* offset in struct cm_msg */
	uint8_t size;	     /* bytes there; an array of bytes if the width is above 64 */
	uint8_t form;
};

struct cm_layout {
	const char *name;
	const struct cm_field *fields;
	uint8_t count;
	uint8_t data; /* offset of the private data in the body; they fill the rest */
};

extern const struct cm_layout cm_layouts[CM_ATTRS];

/* Returns NULL if there is no such message. */
const struct cm_layout *cm_layout(enum cm_attr a);

/* Returns the value of a field of up to 64 bits. */
uint64_t cm_field_get(const struct cm_msg *m, const struct cm_field *f);

#endif
