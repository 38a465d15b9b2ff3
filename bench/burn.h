/* SPDX-License-Identifier: MIT */
/*
 * Arithmetic that calls nobody and can be interrupted from outside only: a fixed amount of it, or hogs that go on until they
 * are stopped, by a flag at which they look. Where nothing takes the processors from the hogs, whoever measures beside them
 * does not run; a thread of their own stops them after a while, and how long that was is what is measured.
 */
#ifndef BENCH_BURN_H
#define BENCH_BURN_H

#include "harness.h"

#include <pthread.h>

enum { HOGS = 4, BURN_AT_ONCE = 1000 /* some 2 us between two looks at the flag */ };
enum { BURN_BETWEEN_LOOKS = 100 /* at the clock */ };
enum {
    SAMPLES = 500,
    QUICK_SAMPLES = 100,
    TINY_SAMPLES = 10,
    PERIOD_NS = 1000000
}; /* of what is measured beside them, one a period */
enum { HOGS_AT_MOST_S = 10, QUICK_HOGS_AT_MOST_S = 3 };

/* n steps, each of which needs the one before. */
static inline void burn(int64_t n)
{
    uint64_t x = 1;
    for (int64_t i = 0; i < n; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
    }
    __asm__ volatile("" : : "r"(x));
}

/* How many steps take that long when nothing disturbs them. */
static inline int64_t burns_in(int64_t ns)
{
    enum { TRIALS = 20, STEPS = 1000000 };
    int64_t best = INT64_MAX;
    for (int i = 0; i < TRIALS; i++) {
        int64_t start = now_ns();
        burn(STEPS);
        int64_t took = now_ns() - start;
        best = took < best ? took : best;
    }
    return ns * STEPS / best;
}

static inline size_t wanted_samples(void)
{
    return tiny() ? TINY_SAMPLES : quick() ? QUICK_SAMPLES : SAMPLES;
}

static atomic_bool hogs_stopped;

static inline void stop_hogs(void)
{
    atomic_store_explicit(&hogs_stopped, true, memory_order_relaxed);
}

static inline bool hogs_go_on(void)
{
    return !atomic_load_explicit(&hogs_stopped, memory_order_relaxed);
}

static inline void be_a_hog(void)
{
    while (hogs_go_on())
        burn(BURN_AT_ONCE);
}

static inline void *stop_hogs_late(void *arg)
{
    nanosleep(&(struct timespec){.tv_sec = quick() ? QUICK_HOGS_AT_MOST_S : HOGS_AT_MOST_S}, NULL);
    stop_hogs();
    return arg;
}

static inline void limit_hogs(void)
{
    pthread_t t;
    must("pthread_create", -pthread_create(&t, NULL, stop_hogs_late, NULL));
    must("pthread_detach", -pthread_detach(t));
}

#endif
