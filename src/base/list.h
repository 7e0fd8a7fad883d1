/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Intrusive doubly linked list. An empty head is a ring of one. Every operation is O(1); none
 * allocates memory or is thread-safe. Both pointers of an unlinked entry are NULL: in zeroed memory
 * and after list_del(). list_linked() tests this. list_del_init() leaves a ring of one instead, for
 * entries that are heads too.
 */
#ifndef ROOST_BASE_LIST_H
#define ROOST_BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct list_head {
	struct list_head *next, *prev;
};

#ifndef container_of
#define container_of(ptr, type, member)                                                            \
	(__extension__({                                                                           \
		const __typeof__(((type *)0)->member) *container_of_p = (ptr);                     \
		(type *)((char *)(uintptr_t)container_of_p - offsetof(type, member));              \
	}))
#endif

#define LIST_HEAD_INIT(name)                                                                       \
	{                                                                                          \
		&(name), &(name)                                                                   \
	}

static inline void list_init(struct list_head *head)
{
	head->next = head->prev = head;
}

static inline bool list_empty(const struct list_head *head)
{
	return head->next == head;
}

/*
 * Returns true if this entry (not a head) is on a list. Valid for entries that started as zeros and
 * leave lists by list_del().
 */
static inline bool list_linked(const struct list_head *entry)
{
	return entry->next != NULL;
}

static inline void list_insert(struct list_head *entry, struct list_head *prev,
			       struct list_head *next)
{
	entry->prev = prev;
	entry->next = next;
	prev->next = entry;
	next->prev = entry;
}

static inline void list_add(struct list_head *entry, struct list_head *head)
{
	list_insert(entry, head, head->next);
}

static inline void list_add_tail(struct list_head *entry, struct list_head *head)
{
	list_insert(entry, head->prev, head);
}

static inline void list_unlink(struct list_head *entry)
{
	entry->prev->next = entry->next;
	entry->next->prev = entry->prev;
}

static inline void list_del(struct list_head *entry)
{
	list_unlink(entry);
	entry->next = entry->prev = NULL;
}

static inline void list_del_init(struct list_head *entry)
{
	list_unlink(entry);
	list_init(entry);
}

static inline void list_move_tail(struct list_head *entry, struct list_head *head)
{
	list_unlink(entry);
	list_add_tail(entry, head);
}

/* Moves all of `from` behind the last entry of `to`; `from` is empty afterwards. */
static inline void list_splice_tail_init(struct list_head *from, struct list_head *to)
{
	if (list_empty(from))
		return;
	from->next->prev = to->prev;
	to->prev->next = from->next;
	from->prev->next = to;
	to->prev = from->prev;
	list_init(from);
}

#define list_entry(ptr, type, member)	     container_of(ptr, type, member)
#define list_first_entry(head, type, member) list_entry((head)->next, type, member)
#define list_last_entry(head, type, member)  list_entry((head)->prev, type, member)

#define list_for_each(pos, head) for ((pos) = (head)->next; (pos) != (head); (pos) = (pos)->next)

/* The body may unlink `pos`, but not `tmp`. */
#define list_for_each_safe(pos, tmp, head)                                                         \
	for ((pos) = (head)->next, (tmp) = (pos)->next; (pos) != (head);                           \
	     (pos) = (tmp), (tmp) = (pos)->next)

#define list_for_each_entry(pos, head, member)                                                     \
	for ((pos) = list_entry((head)->next, __typeof__(*(pos)), member);                         \
	     &(pos)->member != (head);                                                             \
	     (pos) = list_entry((pos)->member.next, __typeof__(*(pos)), member))

#define list_for_each_entry_safe(pos, tmp, head, member)                                           \
	for ((pos) = list_entry((head)->next, __typeof__(*(pos)), member),                         \
	    (tmp) = list_entry((pos)->member.next, __typeof__(*(pos)), member);                    \
	     &(pos)->member != (head);                                                             \
	     (pos) = (tmp), (tmp) = list_entry((tmp)->member.next, __typeof__(*(tmp)), member))

#endif
