/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The column S_QUANTITY of the table STOCK of TPC-C. A value is the vector of the quantities of 100
 * items of a warehouse. New-Order subtracts the ordered quantity of an item, and adds 91 if less
 * than 10 would be left (TPC-C 2.4.2.2): the update returns the quantities before it. Stock-Level
 * counts the items below a threshold (2.8): a filter returns only these.
 * usage: stock ADDRESS [ORDERS]
 */
#include "client.h"

#define TERMINALS 2u
#define ITEMS	  1000u /* items of a warehouse; 100,000 in TPC-C */
#define BLOCK	  100u	/* items of a vector */
#define BLOCKS	  (ITEMS / BLOCK)
#define LINES	  10u /* lines of an order */
#define LEAST	  10
#define RESTOCK	  91
#define THRESHOLD 15

static unsigned long orders;		/* orders of each terminal */
static int32_t plain[TERMINALS][ITEMS]; /* the changes of each terminal */

/* An order line: an update of the vector that has the item. */
struct line {
	uint32_t item, block;
	int32_t operand[BLOCK], before[BLOCK];
};

static struct roost_kv_op update(struct line *l, unsigned function)
{
	return (struct roost_kv_op){.code = ROOST_KV_UPDATE_VECTOR,
				    .type = ROOST_KV_I32,
				    .function = (uint16_t)function,
				    .fetch = true,
				    .key = &l->block,
				    .key_len = sizeof(l->block),
				    .value = l->operand,
				    .value_len = sizeof(l->operand),
				    .out = l->before,
				    .out_cap = sizeof(l->before)};
}

static void new_order(struct roost_kv *kv, uint64_t *rng, int32_t *changed, struct line *lines)
{
	struct roost_kv_op ops[LINES];
	unsigned n = 0;

	for (unsigned i = 0; i < LINES; i++) {
		struct line *l = &lines[i];
		int32_t quantity = 1 + (int32_t)(draw(rng) % 10);

		l->item = (uint32_t)(draw(rng) % ITEMS);
		l->block = l->item / BLOCK;
		memset(l->operand, 0, sizeof(l->operand));
		l->operand[l->item % BLOCK] = quantity;
		changed[l->item] -= quantity;
		ops[i] = update(l, ROOST_KV_SUB);
	}
	run_all(kv, ops, LINES, "New-Order");
	for (unsigned i = 0; i < LINES; i++) {
		struct line *l = &lines[i];
		int32_t *operand = &l->operand[l->item % BLOCK];

		if (l->before[l->item % BLOCK] - *operand >= LEAST)
			continue;
		*operand = RESTOCK;
		changed[l->item] += RESTOCK;
		ops[n++] = update(l, ROOST_KV_ADD);
	}
	run_all(kv, ops, n, "New-Order");
}

static void *work(void *number)
{
	struct roost_kv *kv = connect_to_store();
	struct line *lines = memory(LINES, sizeof(*lines));
	uint64_t rng = 100 + (uintptr_t)number;

	for (unsigned long i = 0; i < orders; i++)
		new_order(kv, &rng, plain[(uintptr_t)number], lines);
	free(lines);
	roost_kv_close(kv);
	return NULL;
}

/* Performs Stock-Level for all items. Returns the number of items below the threshold. */
static unsigned stock_level(struct roost_kv *kv)
{
	static const int32_t threshold = THRESHOLD;
	int32_t low[BLOCKS][BLOCK];
	struct roost_kv_op ops[BLOCKS];
	uint32_t keys[BLOCKS];
	unsigned n = 0;

	for (uint32_t b = 0; b < BLOCKS; b++) {
		keys[b] = b;
		ops[b] = (struct roost_kv_op){.code = ROOST_KV_FILTER,
					      .type = ROOST_KV_I32,
					      .function = ROOST_KV_LT,
					      .key = &keys[b],
					      .key_len = sizeof(keys[b]),
					      .value = &threshold,
					      .value_len = sizeof(threshold),
					      .out = low[b],
					      .out_cap = sizeof(low[b])};
	}
	run_all(kv, ops, BLOCKS, "Stock-Level");
	for (uint32_t b = 0; b < BLOCKS; b++)
		n += ops[b].out_len / (unsigned)sizeof(int32_t);
	return n;
}

int main(int argc, char **argv)
{
	static int32_t stock[BLOCKS][BLOCK];
	uint64_t rng = 3;
	unsigned right = 0, low = 0, found;
	struct roost_kv *kv;
	double start;

	orders = arguments(argc, argv, 20000) / TERMINALS;
	kv = connect_to_store();
	for (uint32_t b = 0; b < BLOCKS; b++) {
		for (unsigned i = 0; i < BLOCK; i++)
			stock[b][i] = 10 + (int32_t)(draw(&rng) % 91);
		must(roost_kv_put(kv, &b, sizeof(b), stock[b], sizeof(stock[b]), 0), "a PUT");
	}
	start = seconds();
	run_workers(TERMINALS, work);
	printf("%.0f order lines a second\n",
	       (double)(TERMINALS * orders * LINES) / (seconds() - start));

	for (uint32_t b = 0; b < BLOCKS; b++) {
		int32_t now[BLOCK];
		size_t len;

		must(roost_kv_get(kv, &b, sizeof(b), now, sizeof(now), &len), "a GET");
		for (unsigned i = 0; i < BLOCK; i++) {
			for (unsigned t = 0; t < TERMINALS; t++)
				stock[b][i] += plain[t][b * BLOCK + i];
			right += stock[b][i] == now[i];
			low += stock[b][i] < THRESHOLD;
		}
	}
	found = stock_level(kv);
	roost_kv_close(kv);
	printf("%u of %u quantities are right, %s\n", right, ITEMS,
	       found == low ? "the stock level is right" : "the stock level is wrong");
	return right != ITEMS || found != low;
}
