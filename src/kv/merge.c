/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Merges free slabs. The slabs of a class are sorted by their place: first, their entries move from
 * the stack to a bitmap (marking); then the bitmap is read from the start, and two slabs that are
 * the halves of a larger one become a slab of the next class (sweeping). The others return to the
 * stack. Steps are short and allocate nothing. A slab in the bitmap can be allocated:
 * slab_merge_give() sweeps at once.
 */
#include "kv/slab.h"

/* Slabs that a step of a sweep moves. */
#define SWEPT 256u
#define WORDS (SLAB_BLOCK / 64)

void slab_merge_start(struct slab *s)
{
	if (s->merge.running)
		return;
	s->merge.running = true;
	s->merge.sweeping = false;
	s->merge.class = 0;
	s->merged_at = s->frees;
}

static void mark(struct slab *s, uint32_t place)
{
	struct slab_merge *m = &s->merge;
	uint32_t i = place >> m->class, block = i / SLAB_BLOCK;
	uint64_t addr = m->marks + i / 64 * 8, word;

	memcpy(&word, kv_read(s->mem, addr, sizeof(word)), sizeof(word));
	word |= 1ull << i % 64;
	memcpy(kv_change(s->mem, addr, sizeof(word)), &word, sizeof(word));
	s->accesses += 2;
	kv_save(s->mem, &m->blocks[block / 64], sizeof(m->blocks[0]));
	m->blocks[block / 64] |= 1ull << block % 64;
	m->marked++;
}

static void begin_sweep(struct slab_merge *m)
{
	m->sweeping = true;
	m->from = 0;
}

/* Takes entries from the stack. The entries of its near part are last. */
static void mark_some(struct slab *s)
{
	struct slab_class *k = &s->classes[s->merge.class];
	uint32_t n = k->far_count < SLAB_BATCH ? k->far_count : SLAB_BATCH;
	uint32_t entries[SLAB_BATCH];

	if (!n) {
		for (uint32_t i = 0; i < SLAB_BATCH && k->near_count; i++)
			mark(s, k->near[--k->near_count]);
		if (!k->near_count)
			begin_sweep(&s->merge);
		return;
	}
	k->far_count -= n;
	memcpy(entries,
	       kv_read(s->mem, k->far + (uint64_t)k->far_count * sizeof(uint32_t),
		       n * sizeof(uint32_t)),
	       n * sizeof(uint32_t));
	s->accesses++;
	for (uint32_t i = 0; i < n; i++)
		mark(s, entries[i]);
}

/* Returns the slabs of 64 places to the stacks. Returns their number. */
static unsigned sweep_word(struct slab *s, uint32_t first, uint64_t word)
{
	struct slab_merge *m = &s->merge;
	uint64_t pairs = word & word >> 1 & 0x5555555555555555ull;
	uint64_t single = word & ~(pairs | pairs << 1);
	unsigned merged = (unsigned)__builtin_popcountll(pairs);

	for (uint64_t left = pairs; left; left &= left - 1)
		slab_push(s, m->class + 1, (first + (uint32_t)__builtin_ctzll(left)) << m->class);
	for (uint64_t left = single; left; left &= left - 1)
		slab_push(s, m->class, (first + (uint32_t)__builtin_ctzll(left)) << m->class);
	s->merges += merged;
	return merged + (unsigned)__builtin_popcountll(word);
}

/* Sweeps a block up to the word after which SWEPT slabs were moved. Returns whether it is empty. */
static bool sweep_block(struct slab *s, uint32_t block)
{
	struct slab_merge *m = &s->merge;
	uint64_t addr = m->marks + (uint64_t)block * (SLAB_BLOCK / 8), words[WORDS];
	unsigned i, moved = 0;

	memcpy(words, kv_read(s->mem, addr, sizeof(words)), sizeof(words));
	for (i = 0; i < WORDS && moved < SWEPT; i++) {
		moved += sweep_word(s, block * SLAB_BLOCK + i * 64, words[i]);
		m->marked -= (uint64_t)__builtin_popcountll(words[i]);
	}
	while (i < WORDS && !words[i])
		i++;
	memset(kv_change(s->mem, addr, sizeof(words)), 0, i * sizeof(words[0]));
	s->accesses += 2;
	return i == WORDS;
}

static void sweep_some(struct slab *s)
{
	struct slab_merge *m = &s->merge;
	uint32_t bit;

	while (!m->blocks[m->from])
		m->from++;
	bit = (uint32_t)__builtin_ctzll(m->blocks[m->from]);
	kv_save(s->mem, &m->blocks[m->from], sizeof(m->blocks[0]));
	if (sweep_block(s, m->from * 64 + bit))
		m->blocks[m->from] &= ~(1ull << bit);
}

bool slab_merge_step(struct slab *s)
{
	struct slab_merge *m = &s->merge;

	if (likely(!m->running))
		return false;
	if (!m->sweeping) {
		mark_some(s);
	} else if (m->marked) {
		sweep_some(s);
	} else {
		m->sweeping = false;
		m->running = ++m->class < SLAB_CLASSES - 1;
	}
	return true;
}

void slab_merge_give(struct slab *s, unsigned class)
{
	struct slab_merge *m = &s->merge;

	if (!m->running || m->class != class || !m->marked)
		return;
	if (!m->sweeping)
		begin_sweep(m);
	sweep_some(s);
}
