/* SPDX-License-Identifier: MIT */
/*
 * The test harness. A file of tests is one process:
 *
 *      CASE(close_wakes_every_receiver) { ...; CHECK(n == 3); }
 *
 * Cases run one after the other. One fails if a CHECK does, if it takes too long, or if it leaves a thread, a
 * descriptor or a mapping behind. `test_x NAME...` runs only the named ones; -l lists. The last line is
 * "N passed, M failed".
 */
#ifndef CHECK_H
#define CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef void check_fn(void);

void check_register(const char *name, check_fn *fn);
void check_fail(const char *file, int line, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

#define CASE(name)                                                 \
    static void name(void);                                        \
    __attribute__((constructor)) static void register_##name(void) \
    {                                                              \
        check_register(#name, name);                               \
    }                                                              \
    static void name(void)

/* May be used in goroutines too: it records the failure and goes on. */
#define CHECK(cond) ((cond) ? (void)0 : check_fail(__FILE__, __LINE__, "%s", #cond))
#define CHECK_EQ(a, b)                                                                       \
    do {                                                                                     \
        long long a_ = (long long)(a), b_ = (long long)(b);                                  \
        if (a_ != b_)                                                                        \
            check_fail(__FILE__, __LINE__, "%s == %s: %lld, expected %lld", #a, #b, a_, b_); \
    } while (0)

/* The rest of the case may leave this behind: a thread that a run left behind on purpose, for instance. */
void check_leaks_allowed(void);

/* Runs fn in a child process; what it printed on stderr goes to text, its wait status is returned. */
int check_child(check_fn *fn, char *text, size_t size);

/* Seed for stress tests: WEFT_TEST_SEED or a fresh one, printed. */
uint64_t check_seed(void);
uint32_t check_random(uint64_t *state);

/* 1 in ordinary builds; the factor by which sanitizers and emulators want a test smaller. */
int check_scale(void);
bool check_under_tsan(void);
bool check_under_asan(void);
bool check_under_emulator(void);

int64_t check_rss(void);    /* bytes */
int64_t check_cpu_ns(void); /* of the process */
int check_threads(void);
int check_threads_in_the_end(void); /* waits for those that end: 1 when only the test itself is left */

#endif
