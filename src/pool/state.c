/* SPDX-License-Identifier: BSD-2-Clause */
#include "pool/state.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/sys.h"
#include "pool/core.h"

/*
 * Without seals a member could shrink the memory, and each access of the others would raise SIGBUS.
 */
#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

int state_create(void)
{
	struct pool_state *s;
	int fd;

	if (!mem_file_fits(sizeof(*s)))
		return -EFBIG;
	fd = memfd_create("roost-pool", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return -errno;
	if (ftruncate(fd, sizeof(struct pool_state)) || fcntl(fd, F_ADD_SEALS, SEALS))
		goto fail;
	s = mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (s == MAP_FAILED)
		goto fail;
	errno = -secret_entropy(s->seed);
	/* not from the seed: members tell each other the numbers of owners */
	atomic_store_explicit(&s->owners, (uint32_t)pool_clock_ms(), memory_order_relaxed);
	s->magic = STATE_MAGIC;
	state_unmap(s);
	if (errno)
		goto fail;
	return fd;
fail : {
	int rc = -errno;

	sys_close(fd);
	return rc;
}
}

struct pool_state *state_map(int fd)
{
	struct pool_state *s;
	struct stat st;

	if (fstat(fd, &st) || st.st_size != (off_t)sizeof(*s) ||
	    (fcntl(fd, F_GET_SEALS) & SEALS) != SEALS)
		return NULL;
	s = mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (s == MAP_FAILED)
		return NULL;
	if (s->magic == STATE_MAGIC)
		return s;
	state_unmap(s);
	return NULL;
}

void state_unmap(struct pool_state *s)
{
	munmap(s, sizeof(*s));
}

void state_keys(struct pool_state *s, struct key_sequence *out)
{
	*out = (struct key_sequence){
		.seed = {s->seed[0], s->seed[1]}, .bits = KEY_UPPER_BITS, .drawn = &s->keys};
}

void state_ids(struct pool_state *s, unsigned slot, struct sequence *out)
{
	*out = (struct sequence){.seed = {s->seed[2], s->seed[3] + slot},
				 .bits = POOL_ID_BITS,
				 .next = &s->used[slot].ids,
				 .entered = &s->used[slot].ids_entered};
}

uint32_t state_owner(struct pool_state *s)
{
	uint32_t number;

	do
		number = atomic_fetch_add_explicit(&s->owners, 1, memory_order_relaxed) + 1;
	while (!number);
	return number;
}

void slot_clear(struct pool_state *s, unsigned slot, uint32_t owned)
{
	struct slot_record *record = &s->record[slot];

	for (unsigned i = 0; i < SLOT_SOCKETS; i++) {
		atomic_store_explicit(&record->socket[i].used, 0, memory_order_release);
		if (owned) /* a new one does not send from there: pool_sent_lately() */
			atomic_store_explicit(&record->socket[i].sport, 0, memory_order_relaxed);
	}
	for (unsigned i = 0; i < SLOT_SERVICES; i++)
		atomic_store_explicit(&record->service[i].used, 0, memory_order_release);
	for (unsigned i = 0; i < POOL_WILLS; i++) {
		if (i < atomic_load_explicit(&record->wills, memory_order_relaxed))
			atomic_store_explicit(&record->will[i].used, 0, memory_order_release);
	}
	atomic_store_explicit(&record->wills, 0, memory_order_relaxed);
	atomic_store_explicit(&record->services, 0, memory_order_relaxed);
	atomic_store_explicit(&record->manages, 0, memory_order_relaxed);
	atomic_store_explicit(&record->owned, owned, memory_order_seq_cst);
	atomic_thread_fence(memory_order_release); /* before the new owner's entries */
	state_changed(s);
}
