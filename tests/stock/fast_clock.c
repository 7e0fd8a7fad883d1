/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A time of day that passes 64 times as fast, and waits that take an eighth of their time. Stock
 * programs are preloaded with it; Roost and the C library do not call these functions.
 *
 * - For each size, both processes of perftest compare the CPU's cycle counter with gettimeofday()
 *   for a quarter of a second (get_clock.c), and use the result only to print speeds. The transfers
 *   themselves take milliseconds. The 200 intervals that perftest compares are 1.6 to 33 us long
 *   here; reading the time takes less than a tenth of a microsecond.
 * - ib_write_bw sleeps for a second in each process, and the sender of mckey for three after it has
 *   joined the group.
 * - Each test of qperf runs until a timer of the given number of seconds, of which the least is 1.
 *   Longer timers, its time-outs, keep their time.
 */
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define CLOCK_TIMES 64ull
#define WAIT_TIMES  8ull

__attribute__((visibility("default"))) int gettimeofday(struct timeval *restrict tv,
							void *restrict zone)
{
	struct timespec t;
	unsigned long long ns;

	(void)zone;
	clock_gettime(CLOCK_MONOTONIC, &t);
	ns = ((unsigned long long)t.tv_sec * 1000000000 + (unsigned long long)t.tv_nsec) *
	     CLOCK_TIMES;
	tv->tv_sec = (time_t)(ns / 1000000000);
	tv->tv_usec = (suseconds_t)(ns % 1000000000 / 1000);
	return 0;
}

__attribute__((visibility("default"))) unsigned sleep(unsigned seconds)
{
	unsigned long long ns = seconds * 1000000000ull / WAIT_TIMES;
	struct timespec left = {(time_t)(ns / 1000000000), (long)(ns % 1000000000)};

	return nanosleep(&left, &left) ? (unsigned)left.tv_sec + 1 : 0;
}

__attribute__((visibility("default"))) int setitimer(__itimer_which_t which,
						     const struct itimerval *restrict value,
						     struct itimerval *restrict old)
{
	struct itimerval new = *value;

	if (new.it_value.tv_sec == 1) {
		new.it_value.tv_sec = 0;
		new.it_value.tv_usec = (suseconds_t)(1000000 / WAIT_TIMES);
	}
	return (int)syscall(SYS_setitimer, which, &new, old);
}
