/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The accesses of the DMA engine: every alignment and length with guard pages at both ends, the
 * order in which bytes become visible, faults in the middle, and atomics. Faults outside of the DMA
 * engine must go to other handlers.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "fault.h"
#include "packet/crc32.h"

#define SPACE 65536 /* the largest page size */
#define MAX   300

#if defined(__x86_64__) && !defined(DMA_PLAIN)
int dma_copy_sse2(void *dst, const void *src, size_t n);
int dma_copy_avx(void *dst, const void *src, size_t n);
int dma_copy_up_words(void *dst, const void *src, size_t n);
int dma_stream_sse2(void *dst, const void *src, size_t n);
int dma_stream_avx(void *dst, const void *src, size_t n);
#endif

#if defined(DMA_BASELINE)
/*
 * A CPU of ARMv8.0 without optional features: no atomics of FEAT_LSE, no PMULL. All
 * CPUs of qemu have PMULL.
 */
unsigned long __wrap_getauxval(unsigned long type);

unsigned long __wrap_getauxval(unsigned long type)
{
	return 0;
}
#endif

static size_t page; /* of this machine */

static int (*copies[8])(void *, const void *, size_t);
static unsigned num_copies;
static int (*streams[3])(void *, const void *, size_t);
static unsigned num_streams;

/* As a copy; the CRC must be right, or unchanged. */
static int load_crc(void *dst, const void *src, size_t n)
{
	uint32_t before = 0x12345678 + (uint32_t)n, crc = before;
	int rc = dma_load_crc(dst, src, n, &crc);

	assert_int_equal(crc, rc ? before : crc32_update(before, src, n));
	return rc;
}

/* Maps `pages` pages between two inaccessible ones. */
static uint8_t *guarded(unsigned pages)
{
	uint8_t *p = mmap(NULL, (pages + 2) * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_true(p != MAP_FAILED);
	assert_int_equal(mprotect(p + page, pages * page, PROT_READ | PROT_WRITE), 0);
	return p + page;
}

static void unguard(uint8_t *p, unsigned pages)
{
	munmap(p - page, (pages + 2) * page);
}

static int set_up(void **state)
{
	page = (size_t)sysconf(_SC_PAGESIZE);
	assert_true(page <= SPACE);
	assert_int_equal(dma_init(), 0); /* a second call changes nothing */
	copies[num_copies++] = dma_copy;
	copies[num_copies++] = dma_copy_up;
	copies[num_copies++] = dma_load;
	copies[num_copies++] = dma_load_up;
	copies[num_copies++] = load_crc;
	streams[num_streams++] = dma_stream;
#if defined(__x86_64__) && !defined(DMA_PLAIN)
	copies[num_copies++] = dma_copy_sse2;
	copies[num_copies++] = dma_copy_up_words;
	streams[num_streams++] = dma_stream_sse2;
	if (__builtin_cpu_supports("avx")) {
		copies[num_copies++] = dma_copy_avx;
		streams[num_streams++] = dma_stream_avx;
	}
#endif
	return 0;
}

static void one_copy(int (*copy)(void *, const void *, size_t), uint8_t *dst, const uint8_t *src,
		     size_t n, const uint8_t *dst_page)
{
	static uint8_t before[SPACE];

	memset((uint8_t *)(uintptr_t)dst_page, 0xcc, page);
	memset(before, 0xcc, page);
	memcpy(before + (dst - dst_page), src, n);
	assert_int_equal(copy(dst, src, n), 0);
	/* Only these bytes change. */
	assert_memory_equal(dst_page, before, page);
}

static void every_alignment_and_length(void **state)
{
	uint8_t *s = guarded(1), *d = guarded(1);

	for (unsigned i = 0; i < page; i++)
		s[i] = (uint8_t)(i * 7 + i / 256);
	for (unsigned c = 0; c < num_copies; c++)
		for (unsigned n = 0; n <= MAX; n++) {
			/* All bytes up to the last one: one more would fault. */
			one_copy(copies[c], d, s, n, d);
			one_copy(copies[c], d + page - n, s + page - n, n, d);
			one_copy(copies[c], d, s + page - n, n, d);
			one_copy(copies[c], d + page - n, s, n, d);
			for (unsigned a = 0; a < 16; a++)
				one_copy(copies[c], d + 64 + a, s + 128 + (n & 15), n, d);
		}
	for (unsigned a = 0; a < 64; a++) {
		one_copy(dma_copy, d + a, s + 63 - a, page - 64, d);
		one_copy(dma_copy, d + 64 - a, s + a, page - 64, d);
	}
	for (unsigned n = MAX; n <= page; n += n % 128 ? 1 : 61) {
		one_copy(load_crc, d, s + page - n, n, d);
		one_copy(load_crc, d + page - n, s, n, d);
	}
	unguard(s, 1);
	unguard(d, 1);
}

/* Copies of whole lines past the cache: from any address, and after a fault without other bytes. */
static void lines_past_the_cache(void **state)
{
	uint8_t *s = guarded(1), *d = guarded(1);

	faults_ours();
	for (unsigned i = 0; i < page; i++)
		s[i] = (uint8_t)(i * 7 + i / 256);
	for (unsigned c = 0; c < num_streams; c++)
		for (unsigned n = 0; n <= 512; n += 64) {
			for (unsigned a = 0; a < 16; a++) {
				one_copy(streams[c], d, s + page - n - a, n, d);
				one_copy(streams[c], d + 64, s + a, n, d);
				one_copy(streams[c], d + page - n, s + a, n, d);
				assert_int_equal(streams[c](d, s + page - n - a, n + 64), -EFAULT);
			}
			memset(d, 0, page);
			assert_int_equal(streams[c](d + page - n, s, n + 64), -EFAULT);
			for (unsigned i = 0; i < page - n; i++)
				assert_int_equal(d[i], 0);
		}
	/* Others are ordinary copies. */
	for (unsigned n = 0; n <= MAX; n++) {
		one_copy(dma_stream, d + 64, s, n, d);
		one_copy(dma_stream, d + 1, s, n, d);
	}
	dma_fence();
	unguard(s, 1);
	unguard(d, 1);
}

/*
 * The address faults after `good` bytes: some of these bytes are copied, no others change, and the
 * function reports the fault.
 */
static void faults(void **state)
{
	uint8_t *s = guarded(1), *d = guarded(1);

	faults_ours();
	memset(s, 0x11, page);
	for (unsigned c = 0; c < num_copies; c++)
		for (unsigned good = 0; good < MAX; good++)
			for (unsigned over = 1; over < 80; over += 13) {
				unsigned n = good + over;

				memset(d, 0, page);
				assert_int_equal(copies[c](d + page - good, s, n), -EFAULT);
				assert_int_equal(d[page - good - 1], 0);
				for (unsigned i = 0; i < good; i++)
					assert_true(d[page - good + i] == 0 ||
						    d[page - good + i] == 0x11);
				assert_int_equal(copies[c](d, s + page - good, n), -EFAULT);
				for (unsigned i = n; i < n + 64; i++)
					assert_int_equal(d[i], good + n + 64 > page ? d[i] : 0);
			}
	/* Addresses without a mapping. */
	assert_int_equal(dma_copy(NULL, s, 8), -EFAULT);
	assert_int_equal(dma_copy(d, NULL, 8), -EFAULT);
	assert_int_equal(dma_copy((void *)16, s, 4000), -EFAULT);
	/* Not canonical: a general protection fault, without an address. */
	assert_int_equal(dma_copy((void *)0x8000000000000000u, s, 64), -EFAULT);
	assert_int_equal(dma_copy(NULL, NULL, 0), 0);
	/* A read-only page. */
	assert_int_equal(mprotect(d, page, PROT_READ), 0);
	assert_int_equal(dma_copy(d, s, 100), -EFAULT);
	assert_int_equal(dma_copy(s, d, 100), 0);
	unguard(s, 1);
	unguard(d, 1);
}

static uint64_t words[16];
static atomic_bool enough;

static void *flip(void *arg)
{
	for (uint64_t i = 0; !atomic_load_explicit(&enough, memory_order_relaxed); i++)
		__atomic_store_n(&words[i % 16], words[i % 16] ? 0 : UINT64_MAX, __ATOMIC_RELAXED);
	return NULL;
}

/* A word that a program writes at once is read at once, by copies of any length. */
static void words_stay_whole(void **state)
{
	static const unsigned lengths[] = {24, 36, 40, 64, 68, 76, 100, 104, 128};
	uint64_t got[16];
	pthread_t t;

	assert_int_equal(pthread_create(&t, NULL, flip, NULL), 0);
	for (unsigned i = 0; i < 900000; i++) {
		unsigned n = lengths[i % (sizeof(lengths) / sizeof(lengths[0]))];

		assert_int_equal(dma_load(got, words, n), 0);
		for (unsigned k = 0; k < n / 8; k++)
			if (got[k] + 1 > 1) {
				atomic_store(&enough, true);
				pthread_join(t, NULL);
				fail_msg("word %u of %u bytes: 0x%016" PRIx64, k, n, got[k]);
			}
	}
	atomic_store(&enough, true);
	pthread_join(t, NULL);
}

/* A file that was cut short under its mapping: SIGBUS. */
static void bus_error(void **state)
{
	int fd = memfd_create("t", 0);
	uint8_t *m, local[64] = {1};
	uint64_t old;

	faults_ours();
	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, page), 0);
	m = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_true(m != MAP_FAILED);
	assert_int_equal(dma_copy(m, local, 64), 0);
	assert_int_equal(ftruncate(fd, 0), 0);
	assert_int_equal(dma_copy(m, local, 64), -EFAULT);
	assert_int_equal(dma_copy(local, m, 64), -EFAULT);
	assert_int_equal(dma_fetch_add(m, 1, &old), -EFAULT);
	munmap(m, page);
	close(fd);
}

static void atomics(void **state)
{
	uint8_t *d = guarded(1);
	uint64_t *w = (uint64_t *)(d + page - 8), old = 7;

	faults_ours();
	*w = UINT64_MAX;
	assert_int_equal(dma_fetch_add(w, 2, &old), 0);
	assert_true(old == UINT64_MAX);
	assert_int_equal(*w, 1);
	assert_int_equal(dma_cmp_swap(w, 2, 9, &old), 0);
	assert_int_equal(old, 1);
	assert_int_equal(*w, 1);
	assert_int_equal(dma_cmp_swap(w, 1, 9, &old), 0);
	assert_int_equal(old, 1);
	assert_int_equal(*w, 9);
	old = 55;
	assert_int_equal(dma_fetch_add(d + page, 1, &old), -EFAULT);
	assert_int_equal(dma_cmp_swap(d - 8, 1, 1, &old), -EFAULT);
	assert_int_equal(mprotect(d, page, PROT_READ), 0);
	assert_int_equal(dma_fetch_add(w, 1, &old), -EFAULT);
	assert_int_equal(dma_cmp_swap(w, 9, 1, &old), -EFAULT);
	assert_int_equal(*w, 9);
	assert_int_equal(old, 55);
	unguard(d, 1);
}

/* Atomics are the CPU's own: threads of the program and the NIC may add to the same word. */
#define ADDS 20000
static uint64_t word;

static void *add(void *arg)
{
	uint64_t old;

	for (int i = 0; i < ADDS; i++) {
		if (i & 1)
			__atomic_fetch_add(&word, 1, __ATOMIC_RELAXED);
		else
			dma_fetch_add(&word, 1, &old);
	}
	return NULL;
}

static void atomics_with_threads(void **state)
{
	pthread_t t[3];

	for (int i = 0; i < 3; i++)
		assert_int_equal(pthread_create(&t[i], NULL, add, NULL), 0);
	for (int i = 0; i < 3; i++)
		pthread_join(t[i], NULL);
	assert_int_equal(word, 3 * ADDS);
}

/*
 * Programs poll the last byte of a message and then read the rest. The writer overwrites a buffer
 * with round after round; whenever the reader sees a round in the last byte, all bytes before it
 * must be of that round or a later one, in the order of a circle of 256.
 */
static struct {
	uint8_t buf[MAX + 64];
	_Atomic unsigned len, off;
	_Atomic uint32_t seen;
	_Atomic bool rests; /* the reader knows that there is no message now */
	_Atomic bool stop;
	unsigned torn;
} order;

/*
 * Waits for the other thread: in a busy loop at first, which sees a change at once, then asleep.
 * A yield instead of the sleep lets other programs run for a whole time slice each time.
 */
static void wait_a_little(unsigned *waits)
{
	if (++*waits > 10000)
		usleep(1);
}

static void *poll_last_byte(void *arg)
{
	uint8_t round = 0;
	unsigned waits = 0;

	while (!atomic_load(&order.stop)) {
		unsigned n = atomic_load(&order.len), off = atomic_load(&order.off);
		uint8_t *m = order.buf + off, last;

		if (!n) {
			atomic_store(&order.rests, true);
			wait_a_little(&waits);
			continue;
		}
		last = __atomic_load_n(&m[n - 1], __ATOMIC_ACQUIRE);
		if (last == round) {
			wait_a_little(&waits);
			continue;
		}
		waits = 0;
		for (unsigned i = 0; i < n; i++)
			order.torn += __atomic_load_n(&m[i], __ATOMIC_RELAXED) != last;
		round = last;
		atomic_fetch_add(&order.seen, 1);
	}
	return NULL;
}

static void last_byte_comes_last(void **state)
{
	uint8_t src[MAX + 64];
	uint32_t done = 0;
	unsigned waits = 0;
	pthread_t t;

	assert_int_equal(pthread_create(&t, NULL, poll_last_byte, NULL), 0);
	for (unsigned n = 1; n <= MAX; n += n < 80 ? 1 : 7)
		for (unsigned off = 0; off < 16; off += 3) {
			atomic_store(&order.len, 0);
			atomic_store(&order.rests, false);
			while (!atomic_load(&order.rests))
				wait_a_little(&waits);
			waits = 0;
			memset(order.buf, (int)(done & 0xff), sizeof(order.buf));
			atomic_store(&order.off, off);
			atomic_store(&order.len, n);
			for (int r = 0; r < 8; r++) {
				uint8_t round = (uint8_t)(done + 1);

				memset(src, round, sizeof(src));
				assert_int_equal(copies[(unsigned)r % num_copies](order.buf + off,
										  src + (r & 7), n),
						 0);
				/*
				 * The next round begins when the reader has checked this round,
				 * which must be complete.
				 */
				while (atomic_load(&order.seen) == done)
					wait_a_little(&waits);
				waits = 0;
				done++;
			}
		}
	atomic_store(&order.stop, true);
	pthread_join(t, NULL);
	assert_int_equal(order.torn, 0);
}

/*
 * Another fault goes to the previous handler of the signal: here the default, which ends the
 * process.
 */
static void foreign_faults(void **state)
{
	pid_t child = fork();
	volatile int *volatile nowhere = (int *)16;
	int status;

	faults_ours();
	if (child == 0) {
		/* the report of a sanitizer would disturb the output */
		int null = memfd_create("quiet", 0);

		dup2(null, 2);
		*nowhere = 1;
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFSIGNALED(status) || WEXITSTATUS(status) != 0);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
	assert_true(WIFSIGNALED(status));
	assert_int_equal(WTERMSIG(status), SIGSEGV);
#endif
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_alignment_and_length),
		cmocka_unit_test(lines_past_the_cache),
		cmocka_unit_test(faults),
		cmocka_unit_test(bus_error),
		cmocka_unit_test(atomics),
		cmocka_unit_test(atomics_with_threads),
		cmocka_unit_test(words_stay_whole),
		cmocka_unit_test(last_byte_comes_last),
		cmocka_unit_test(foreign_faults),
	};

	faults_save();
	return cmocka_run_group_tests(tests, set_up, NULL);
}
