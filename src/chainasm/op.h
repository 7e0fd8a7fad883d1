/* SPDX-License-Identifier: BSD-2-Clause */
/* The op-codes, fields and flags of WQEs by name. A new op-code is a row of chain_ops. */
#ifndef ROOST_CHAINASM_OP_H
#define ROOST_CHAINASM_OP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The operands of an instruction. Operands in [] are optional, those in {} may be repeated. */
enum chain_form {
	CHAIN_FORM_NONE,   /* nothing */
	CHAIN_FORM_WRITE,  /* TO {, FROM, LEN} */
	CHAIN_FORM_READ,   /* FROM {, TO, LEN} */
	CHAIN_FORM_SEND,   /* FROM, LEN {, FROM, LEN} */
	CHAIN_FORM_CAS,	   /* AT, COMPARE, SWAP [, OLD] */
	CHAIN_FORM_CALC,   /* AT, OPERAND [, OLD] */
	CHAIN_FORM_WAIT,   /* QUEUE.sends or QUEUE.receives [, COUNT] */
	CHAIN_FORM_ENABLE, /* QUEUE [, COUNT] */
	CHAIN_FORM_TIME,   /* NS */
};

struct chain_op {
	const char *name;
	uint16_t op;
	uint8_t form;  /* enum chain_form */
	bool absolute; /* absolute WAIT or ENABLE */
};

extern const struct chain_op chain_ops[]; /* ends with a row without a name */
const struct chain_op *chain_op_named(const char *name);
const struct chain_op *chain_op_of(uint16_t op, bool absolute);

struct chain_field {
	const char *name;
	uint16_t offset, size;
};
extern const struct chain_field chain_fields[];
const struct chain_field *chain_field_named(const char *name);
/* Returns the field at an offset of a WQE, or NULL if no field begins there. */
const struct chain_field *chain_field_at(uint32_t offset);

struct chain_flag {
	const char *name;
	uint16_t flag;
};
extern const struct chain_flag chain_flags[];

#endif
