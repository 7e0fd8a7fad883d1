/* SPDX-License-Identifier: BSD-2-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/list.h"

struct item {
	int value;
	struct list_head link;
};

/* Returns the values on a list as decimal digits, from the front. Checks the backward links. */
static int digits(struct list_head *head)
{
	struct item *it;
	int n = 0;

	list_for_each_entry (it, head, link) {
		assert_ptr_equal(it->link.prev->next, &it->link);
		assert_ptr_equal(it->link.next->prev, &it->link);
		n = n * 10 + it->value;
	}
	return n;
}

static void fill(struct list_head *head, struct item *items, int n, int from)
{
	list_init(head);
	for (int i = 0; i < n; i++) {
		items[i].value = from + i;
		list_add_tail(&items[i].link, head);
	}
}

static void order_and_removal(void **state)
{
	struct list_head head = LIST_HEAD_INIT(head);
	struct item it[5] = {0};

	assert_true(list_empty(&head));
	assert_false(list_linked(&it[0].link));
	fill(&head, it, 4, 1);
	assert_int_equal(digits(&head), 1234);
	it[4].value = 9;
	list_add(&it[4].link, &head);
	assert_int_equal(digits(&head), 91234);
	assert_int_equal(list_first_entry(&head, struct item, link)->value, 9);
	assert_int_equal(list_last_entry(&head, struct item, link)->value, 4);
	list_del(&it[1].link);
	assert_false(list_linked(&it[1].link));
	assert_true(list_linked(&it[2].link));
	assert_int_equal(digits(&head), 9134);
	list_move_tail(&it[4].link, &head);
	assert_int_equal(digits(&head), 1349);
	list_del_init(&it[4].link);
	assert_true(list_empty(&it[4].link));
	list_del_init(&it[4].link); /* twice is harmless */
	assert_int_equal(digits(&head), 134);
}

static void removal_while_walking(void **state)
{
	struct list_head head, *pos, *tmp;
	struct item it[6] = {0}, *p, *q;

	fill(&head, it, 6, 1);
	list_for_each_safe (pos, tmp, &head)
		if (container_of(pos, struct item, link)->value % 2)
			list_del(pos);
	assert_int_equal(digits(&head), 246);
	list_for_each_entry_safe (p, q, &head, link)
		list_del(&p->link);
	assert_true(list_empty(&head));
}

static void splice(void **state)
{
	struct list_head a, b;
	struct item it[3] = {0}, jt[3] = {0};

	fill(&a, it, 3, 1);
	fill(&b, jt, 3, 4);
	list_splice_tail_init(&b, &a);
	assert_int_equal(digits(&a), 123456);
	assert_true(list_empty(&b));
	list_splice_tail_init(&b, &a);
	assert_int_equal(digits(&a), 123456);
	list_splice_tail_init(&a, &b);
	assert_int_equal(digits(&b), 123456);
	assert_true(list_empty(&a));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(order_and_removal),
		cmocka_unit_test(removal_while_walking),
		cmocka_unit_test(splice),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
