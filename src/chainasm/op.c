/* SPDX-License-Identifier: BSD-2-Clause */
#include "chainasm/op.h"

#include <string.h>

#include "roost/wqe.h"

const struct chain_op chain_ops[] = {
	{"nop", ROOST_OP_NOP, CHAIN_FORM_NONE, false},
	{"write", ROOST_OP_WRITE, CHAIN_FORM_WRITE, false},
	{"write_imm", ROOST_OP_WRITE_IMM, CHAIN_FORM_WRITE, false},
	{"send", ROOST_OP_SEND, CHAIN_FORM_SEND, false},
	{"send_imm", ROOST_OP_SEND_IMM, CHAIN_FORM_SEND, false},
	{"read", ROOST_OP_READ, CHAIN_FORM_READ, false},
	{"cas", ROOST_OP_CMP_SWAP, CHAIN_FORM_CAS, false},
	{"add", ROOST_OP_FETCH_ADD, CHAIN_FORM_CALC, false},
	{"max", ROOST_OP_MAX, CHAIN_FORM_CALC, false},
	{"min", ROOST_OP_MIN, CHAIN_FORM_CALC, false},
	{"max_signed", ROOST_OP_MAX_SIGNED, CHAIN_FORM_CALC, false},
	{"min_signed", ROOST_OP_MIN_SIGNED, CHAIN_FORM_CALC, false},
	{"and", ROOST_OP_AND, CHAIN_FORM_CALC, false},
	{"or", ROOST_OP_OR, CHAIN_FORM_CALC, false},
	{"xor", ROOST_OP_XOR, CHAIN_FORM_CALC, false},
	{"wait", ROOST_OP_WAIT, CHAIN_FORM_WAIT, false},
	{"wait_abs", ROOST_OP_WAIT, CHAIN_FORM_WAIT, true},
	{"wait_time", ROOST_OP_WAIT, CHAIN_FORM_TIME, false},
	{"wait_until", ROOST_OP_WAIT, CHAIN_FORM_TIME, true},
	{"enable", ROOST_OP_ENABLE, CHAIN_FORM_ENABLE, false},
	{"enable_abs", ROOST_OP_ENABLE, CHAIN_FORM_ENABLE, true},
	{"recv_enable", ROOST_OP_RECV_ENABLE, CHAIN_FORM_ENABLE, false},
	{"recv_enable_abs", ROOST_OP_RECV_ENABLE, CHAIN_FORM_ENABLE, true},
	{NULL, 0, 0, false},
};

const struct chain_op *chain_op_named(const char *name)
{
	for (const struct chain_op *o = chain_ops; o->name; o++)
		if (strcmp(o->name, name) == 0)
			return o;
	return NULL;
}

const struct chain_op *chain_op_of(uint16_t op, bool absolute)
{
	for (const struct chain_op *o = chain_ops; o->name; o++)
		if (o->op == op && o->absolute == absolute)
			return o;
	return NULL;
}

#define FIELD(name, member)                                                                        \
	{                                                                                          \
		name, offsetof(struct roost_wqe, member), sizeof(((struct roost_wqe *)0)->member)  \
	}
const struct chain_field chain_fields[] = {
	FIELD("ctrl", ctrl),
	{"id", 2, 6},
	FIELD("flags", flags),
	FIELD("num_sge", num_sge),
	FIELD("inline_len", inline_len),
	FIELD("raddr", raddr),
	FIELD("rkey", rkey),
	FIELD("imm", imm),
	FIELD("swap_add", swap_add),
	FIELD("compare", compare),
	FIELD("addr", sge[0].addr),
	FIELD("len", sge[0].len),
	FIELD("lkey", sge[0].lkey),
	/* other names of the same fields */
	{"op", 0, 2},
	FIELD("operand", swap_add),
	FIELD("count", swap_add),
	{"addr1", 64, 8},
	{"len1", 72, 4},
	{"lkey1", 76, 4},
	{NULL, 0, 0},
};

const struct chain_field *chain_field_named(const char *name)
{
	for (const struct chain_field *f = chain_fields; f->name; f++)
		if (strcmp(f->name, name) == 0)
			return f;
	return NULL;
}

const struct chain_field *chain_field_at(uint32_t offset)
{
	for (const struct chain_field *f = chain_fields; f->name; f++)
		if (f->offset == offset)
			return f;
	return NULL;
}

const struct chain_flag chain_flags[] = {
	{"signaled", ROOST_WQE_SIGNALED},
	{"solicited", ROOST_WQE_SOLICITED},
	{"fence", ROOST_WQE_FENCE},
	{NULL, 0},
};
