/* SPDX-License-Identifier: MIT */
/* Planted bugs: a sanitizer sees into goroutines, and cries only where there is something. */
#include "runs.h"
#include <stdlib.h>

static char text[256 << 10];

/* ---- races ------------------------------------------------------------------------------------------------------ */

static int plain;
static _Atomic int shared_atomic, met;
static weft_wg *racers;

/* Both run at the same time. */
static void meet(void)
{
    met++;
    for (int64_t end = weft_now() + 10 * WEFT_SEC; met < 2 && weft_now() < end;)
        ;
}

static void race(void *arg)
{
    (void)arg;
    meet();
    for (int i = 0; i < 100; i++)
        plain++;
    weft_wg_done(racers);
}

static void do_not_race(void *arg)
{
    (void)arg;
    meet();
    for (int i = 0; i < 100; i++)
        shared_atomic++;
    weft_wg_done(racers);
}

static void two_of(void *arg)
{
    weft_wg wg = {0};
    racers = &wg;
    met = 0;
    weft_wg_add(&wg, 2);
    weft_fn *fn = *(weft_fn **)arg;
    CHECK_EQ(weft_go(fn, NULL), 0);
    CHECK_EQ(weft_go(fn, NULL), 0);
    CHECK_EQ(weft_wg_wait(&wg), 0);
    plain++; /* after the wait it is ours */
}

static void run_race(void)
{
    weft_fn *fn = race;
    CHECK_EQ(run_on(2, two_of, &fn), 0);
}

static void run_no_race(void)
{
    weft_fn *fn = do_not_race;
    CHECK_EQ(run_on(2, two_of, &fn), 0);
}

CASE(tsan_sees_a_race_between_goroutines)
{
    if (!check_under_tsan()) {
        skipped("not built with TSan");
        return;
    }
    int status = check_child(run_race, text, sizeof text);
    CHECK(status != 0);
    CHECK(strstr(text, "ThreadSanitizer: data race") != NULL);
    CHECK(child_is_well(run_no_race, text, sizeof text));
    CHECK(strstr(text, "ThreadSanitizer") == NULL);
}

/* One after the other is no race, on whatever threads they run: hand-overs through the runtime are seen. */
static void increment(void *arg)
{
    plain++;
    weft_yield();
    weft_wg_done(arg);
}

static void one_after_the_other(void *arg)
{
    weft_wg wg = {0};
    (void)arg;
    for (int i = 0; i < 200; i++) {
        plain++;
        weft_wg_add(&wg, 1);
        CHECK_EQ(weft_go(increment, &wg), 0);
        CHECK_EQ(weft_wg_wait(&wg), 0);
        if (i % 10 == 0)
            sleep_in_region(1);
    }
}

static void run_one_after_the_other(void)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, one_after_the_other, NULL), 0);
}

CASE(hand_overs_are_no_races)
{
    CHECK(child_is_well(run_one_after_the_other, text, sizeof text));
    CHECK(strstr(text, "Sanitizer") == NULL);
}

/* ---- memory ----------------------------------------------------------------------------------------------------- */

static volatile int beyond = 20;

static __attribute__((noinline)) void write_past(volatile char *p, int at)
{
    p[at] = 1;
}

static void overflow_stack(void *arg)
{
    volatile char buffer[20] = {0};
    (void)arg;
    weft_yield();
    write_past(buffer, beyond);
}

static void overflow_heap(void *arg)
{
    char *buffer = malloc(20);
    (void)arg;
    weft_yield();
    write_past(buffer, beyond);
    free(buffer);
}

static char *volatile stale;

static void use_after_free(void *arg)
{
    (void)arg;
    stale = malloc(20);
    free(stale);
    weft_yield();
    write_past(stale, 3);
}

static void behave(void *arg)
{
    volatile char buffer[20] = {0};
    (void)arg;
    for (int i = 0; i < 20; i++) {
        write_past(buffer, i);
        weft_yield();
    }
    char *heap = malloc(20);
    write_past(heap, 19);
    free(heap);
}

static int leave_early(volatile char *above, int depth)
{
    volatile char buffer[100];
    if (depth < 0)
        return 0;
    buffer[depth] = above[0];
    if (depth == 0)
        weft_exit(); /* frames whose red zones nobody clears */
    return leave_early(buffer, depth - 1) + buffer[depth];
}

static void exit_deep(void *arg)
{
    volatile char c = 0;
    (void)arg;
    leave_early(&c, 20);
}

static weft_fn *planted;

static void planted_main(void *arg)
{
    (void)arg;
    for (int i = 0; i < 20; i++) {
        CHECK_EQ(weft_go(behave, NULL), 0);
        CHECK_EQ(weft_go(exit_deep, NULL), 0);
    }
    CHECK_EQ(weft_go(planted, NULL), 0);
    CHECK(others_have_ended());
}

static void run_planted(void)
{
    CHECK_EQ(run_on(2, planted_main, NULL), 0);
}

CASE(asan_sees_bugs_inside_goroutines)
{
    if (!check_under_asan()) {
        skipped("not built with ASan");
        return;
    }
    static const struct {
        weft_fn *fn;
        const char *report;
    } bugs[] = {{overflow_stack, "AddressSanitizer: stack-buffer-overflow"},
                {overflow_heap, "AddressSanitizer: heap-buffer-overflow"},
                {use_after_free, "AddressSanitizer: heap-use-after-free"}};
    for (int i = 0; i < 3; i++) {
        planted = bugs[i].fn;
        int status = check_child(run_planted, text, sizeof text);
        CHECK(status != 0);
        if (strstr(text, bugs[i].report) == NULL)
            check_fail(__FILE__, __LINE__, "no %s in: %.300s", bugs[i].report, text);
    }
    planted = behave;
    CHECK(child_is_well(run_planted, text, sizeof text));
    CHECK(strstr(text, "AddressSanitizer") == NULL);
}
