/* SPDX-License-Identifier: MIT */
/* Sleeps: never early, never lost, and in nobody's way. */
#include "runs.h"
#include <stdlib.h>

static char text[64 << 10]; /* what a child said */

static void sleep_and_check(int64_t ns)
{
    int64_t start = weft_now();
    CHECK_EQ(weft_sleep(ns), 0);
    int64_t slept = weft_now() - start;
    if (slept < ns)
        check_fail(__FILE__, __LINE__, "a sleep of %lld ns took %lld ns", (long long)ns, (long long)slept);
}

/* A length for whoever has a number, up to most. */
static int64_t some_length(uint64_t number, int64_t most)
{
    uint64_t state = number * 0x9E3779B97F4A7C15ull + 1;
    check_random(&state);
    return (int64_t)(check_random(&state) % (uint64_t)most);
}

/* ---- sleeps ----------------------------------------------------------------------------------------------------- */

static const int64_t LENGTHS[] = {1,          100,     1000,    10 * 1000,     50 * 1000,      300 * 1000,
                                  999 * 1000, 1000000, 1001000, 3 * WEFT_MSEC, 11 * WEFT_MSEC, 30 * WEFT_MSEC};
enum { LENGTH_COUNT = sizeof LENGTHS / sizeof LENGTHS[0] };

static weft_wg all;
static _Atomic int numbers;

static void sleep_all_lengths(void *arg)
{
    int at = numbers++;
    (void)arg;
    for (int i = 0; i < LENGTH_COUNT; i++)
        sleep_and_check(LENGTHS[(at + i) % LENGTH_COUNT]);
    weft_wg_done(&all);
}

static void start_and_wait(weft_fn *fn, int n)
{
    all = (weft_wg){0};
    numbers = 0;
    weft_wg_add(&all, n);
    for (int i = 0; i < n; i++)
        CHECK_EQ(weft_go(fn, NULL), 0);
    CHECK_EQ(weft_wg_wait(&all), 0);
}

static void lengths_main(void *arg)
{
    (void)arg;
    for (int i = 0; i < LENGTH_COUNT; i++)
        sleep_and_check(LENGTHS[i]); /* alone */
    start_and_wait(sleep_all_lengths, scaled(300));
}

CASE(a_sleep_never_ends_early)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, lengths_main, NULL), 0);
}

static void sleep_once(void *arg)
{
    (void)arg;
    sleep_and_check(some_length((uint64_t)numbers++, 100 * WEFT_MSEC));
    weft_wg_done(&all);
}

static void crowd_main(void *arg)
{
    (void)arg;
    start_and_wait(sleep_once, scaled(100000));
}

CASE(a_hundred_thousand_sleepers_all_wake)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, crowd_main, NULL), 0);
}

static void no_length_main(void *arg)
{
    (void)arg;
    for (int i = 0; i < 100; i++) {
        CHECK_EQ(weft_sleep(0), 0);
        CHECK_EQ(weft_sleep(-1), 0);
        CHECK_EQ(weft_sleep(-WEFT_SEC), 0);
        CHECK_EQ(weft_sleep(INT64_MIN), 0);
    }
}

CASE(a_sleep_of_nothing_or_less_returns)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, no_length_main, NULL), 0);
}

static _Atomic int first_awake;

static void sleep_long(void *arg)
{
    CHECK_EQ(weft_sleep(300 * WEFT_MSEC), 0);
    atomic_compare_exchange_strong(&first_awake, &(int){0}, 2);
    weft_wg_done(arg);
}

static void sleep_short(void *arg)
{
    CHECK_EQ(weft_sleep(WEFT_MSEC), 0);
    atomic_compare_exchange_strong(&first_awake, &(int){0}, 1);
    weft_wg_done(arg);
}

static void order_main(void *arg)
{
    weft_wg wg = {0};
    (void)arg;
    first_awake = 0;
    weft_wg_add(&wg, 2);
    CHECK_EQ(weft_go(sleep_long, &wg), 0);
    weft_yield();
    CHECK_EQ(weft_go(sleep_short, &wg), 0);
    CHECK_EQ(weft_wg_wait(&wg), 0);
}

/* This machine may stop a thread for long: one of a few tries has to show it. */
CASE(who_sleeps_much_shorter_wakes_first)
{
    EACH_PROCS(p)
    {
        first_awake = 0;
        for (int i = 0; i < 20 && first_awake != 1; i++)
            CHECK_EQ(run_on(p, order_main, NULL), 0);
        CHECK_EQ(first_awake, 1);
    }
}

/* ---- lateness: the best of many tries --------------------------------------------------------------------------- */

static int64_t best_of_many(int64_t ns, int64_t enough)
{
    int64_t best = INT64_MAX;
    for (int64_t end = weft_now() + 20 * WEFT_SEC; best > enough && weft_now() < end;) {
        int64_t start = weft_now();
        CHECK_EQ(weft_sleep(ns), 0);
        int64_t took = weft_now() - start;
        best = took < best ? took : best;
    }
    return best;
}

static void short_main(void *arg)
{
    (void)arg;
    CHECK(best_of_many(50 * WEFT_USEC, 900 * WEFT_USEC) <= 900 * WEFT_USEC);
}

CASE(a_sleep_of_less_than_a_millisecond_is_honoured)
{
    if (check_under_emulator()) {
        skipped("an emulator is too slow for it");
        return;
    }
    EACH_PROCS(p) CHECK_EQ(run_on(p, short_main, NULL), 0);
}

static void sleeps_on_idle_machine(void *arg)
{
    int64_t least = INT64_MAX;
    (void)arg;
    for (int i = 0; i < 20 && least > 30 * WEFT_MSEC; i++) {
        int64_t before = check_cpu_ns();
        sleep_and_check(100 * WEFT_MSEC);
        int64_t used = check_cpu_ns() - before;
        least = used < least ? used : least;
    }
    CHECK(least <= 30 * WEFT_MSEC);
}

CASE(who_sleeps_uses_no_processor)
{
    if (check_under_emulator()) {
        skipped("an emulator's own work counts");
        return;
    }
    EACH_PROCS(p) CHECK_EQ(run_on(p, sleeps_on_idle_machine, NULL), 0);
}

/* ---- beside others that never wait for time --------------------------------------------------------------------- */

static _Atomic bool storm_over;

static void yield_storm(void *arg)
{
    (void)arg;
    while (!storm_over)
        weft_yield();
}

static void hog(void *arg)
{
    (void)arg;
    while (!storm_over) {
        for (int64_t end = weft_now() + 2 * WEFT_MSEC; weft_now() < end;)
            ;
        weft_yield();
    }
}

struct table {
    weft_chan *ping, *pong;
};

static struct table table;

static void play_back(void *arg)
{
    int ball;
    (void)arg;
    while (weft_recv(table.ping, &ball) == 0)
        CHECK_EQ(weft_send(table.pong, &ball), 0);
}

static void ping_pong(void *arg)
{
    int ball = 1;
    (void)arg;
    CHECK_EQ(weft_go(play_back, NULL), 0);
    while (!storm_over) {
        CHECK_EQ(weft_send(table.ping, &ball), 0);
        CHECK_EQ(weft_recv(table.pong, &ball), 0);
    }
    CHECK_EQ(weft_close(table.ping), 0);
}

struct beside {
    weft_fn *storm;
    int storms;
};

static void beside_main(void *arg)
{
    struct beside *b = arg;
    storm_over = false;
    table = (struct table){weft_chan_new(sizeof(int), 0), weft_chan_new(sizeof(int), 0)};
    for (int i = 0; i < b->storms; i++)
        CHECK_EQ(weft_go(b->storm, NULL), 0);
    for (int i = 0; i < 20; i++)
        sleep_and_check(i % 2 == 0 ? WEFT_MSEC : 20 * WEFT_USEC);
    storm_over = true;
    CHECK(others_have_ended());
    weft_chan_free(table.ping);
    weft_chan_free(table.pong);
}

/* A sleeper that starves never ends the storm, and the case takes too long. */
static void sleep_beside(weft_fn *storm, int storms)
{
    static const int64_t quanta[] = {0, WEFT_NEVER};
    EACH_PROCS(p) for (int q = 0; q < 2; q++)
    {
        weft_config c = {.procs = p, .quantum = quanta[q]};
        CHECK_EQ(weft_run_with(&c, beside_main, &(struct beside){storm, storms}), 0);
    }
}

CASE(a_sleeper_wakes_beside_a_ping_pong)
{
    sleep_beside(ping_pong, 1);
}

CASE(a_sleeper_wakes_beside_loops_that_yield)
{
    sleep_beside(yield_storm, 1);
    sleep_beside(yield_storm, 50);
}

CASE(a_sleeper_wakes_beside_hogs)
{
    sleep_beside(hog, 1);
    sleep_beside(hog, 5);
}

/* ---- sleeps that are cut ---------------------------------------------------------------------------------------- */

static const int64_t ENDLESS[] = {INT64_MAX, INT64_MAX - 1, INT64_MAX / 2, 3600 * WEFT_SEC};
enum { ENDLESS_COUNT = sizeof ENDLESS / sizeof ENDLESS[0] };
static int cut_with;

static void sleep_endless(void *arg)
{
    CHECK_EQ(weft_sleep(*(const int64_t *)arg), cut_with);
}

static void endless_main(void *arg)
{
    (void)arg;
    for (int i = 0; i < 2 * ENDLESS_COUNT; i++) {
        weft_scope s;
        bool by_deadline = i % 2;
        cut_with = by_deadline ? -ETIMEDOUT : -ECANCELED;
        CHECK_EQ(weft_scope_open(&s, by_deadline ? weft_now() + 3 * WEFT_MSEC : WEFT_NEVER), 0);
        int r = weft_scope_go(&s, sleep_endless, (void *)&ENDLESS[i / 2]);
        CHECK(r == 0 || (by_deadline && r == -ETIMEDOUT));
        if (by_deadline) {
            CHECK_EQ(weft_sleep(ENDLESS[i / 2]), -ETIMEDOUT);
        } else {
            CHECK_EQ(weft_sleep(WEFT_MSEC), 0);
            weft_scope_cancel(&s, -ECANCELED);
        }
        CHECK_EQ(weft_scope_close(&s), cut_with);
    }
}

CASE(a_sleep_without_end_is_cut_by_its_scope)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, endless_main, NULL), 0);
}

static void sleep_an_hour(void *arg)
{
    int number = ++*(_Atomic int *)arg;
    CHECK_EQ(weft_sleep(3600 * WEFT_SEC + some_length((uint64_t)number, 3600 * WEFT_SEC)), -ECANCELED);
}

static void cut_many(int n)
{
    weft_scope s;
    _Atomic int begun = 0;
    CHECK_EQ(weft_scope_open(&s, WEFT_NEVER), 0);
    for (int i = 0; i < n; i++)
        CHECK_EQ(weft_scope_go(&s, sleep_an_hour, (void *)&begun), 0);
    CHECK(reaches(&begun, n, 60)); /* all of them at once, each time */
    weft_scope_cancel(&s, -ECANCELED);
    CHECK_EQ(weft_scope_close(&s), -ECANCELED);
}

static void cut_rounds_main(void *arg)
{
    (void)arg;
    for (int i = 0; i < 5; i++)
        cut_many(scaled(2000));
    int64_t before = check_rss();
    for (int i = 0; i < 150; i++)
        cut_many(scaled(2000));
    int64_t grown = check_rss() - before; /* 300,000 sleeps of 64 bytes would be 19 MB */
    if (check_scale() == 1 && grown > 12 << 20)
        check_fail(__FILE__, __LINE__, "sleeps that were cut have left %lld bytes behind", (long long)grown);
}

CASE(sleeps_that_were_cut_leave_no_memory_behind)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, cut_rounds_main, NULL), 0);
}

/* ---- deadlock --------------------------------------------------------------------------------------------------- */

static weft_wg never; /* nobody is done with it */

static void sleep_then_done(void *arg)
{
    sleep_and_check(20 * WEFT_MSEC);
    weft_wg_done(arg);
}

static void asleep_main(void *arg)
{
    weft_wg wg = {0};
    (void)arg;
    for (int i = 0; i < 3; i++) {
        weft_wg_add(&wg, 1);
        CHECK_EQ(weft_go(sleep_then_done, &wg), 0);
        CHECK_EQ(weft_wg_wait(&wg), 0);
        weft_case at = WEFT_AT(weft_now() + 5 * WEFT_MSEC);
        CHECK_EQ(weft_select(&at, 1), 0);
        CHECK(weft_now() >= at.at);
        weft_scope s;
        CHECK_EQ(weft_scope_open(&s, weft_now() + 5 * WEFT_MSEC), 0);
        CHECK_EQ(weft_recv(NULL, NULL), -ETIMEDOUT);
        CHECK_EQ(weft_scope_close(&s), -ETIMEDOUT);
    }
}

CASE(who_waits_for_a_time_is_no_deadlock)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, asleep_main, NULL), 0);
}

static void wait_for_ever(void *arg)
{
    weft_scope s;
    (void)arg;
    never = (weft_wg){0};
    weft_wg_add(&never, 2);
    CHECK_EQ(weft_go(sleep_then_done, &never), 0);
    CHECK_EQ(weft_scope_open(&s, WEFT_NEVER), 0);
    weft_wg_wait(&never);
    CHECK(!"the wait has ended");
}

/* Nothing that was cut, freed or has fired may still be waited for. */
static void cut_then_wait_for_ever(void *arg)
{
    (void)arg;
    cut_many(scaled(100));
    weft_ticker *t = weft_ticker_new(WEFT_MSEC);
    CHECK_EQ(weft_recv(weft_ticker_chan(t), NULL), 0);
    weft_ticker_free(t);
    weft_chan *ch = weft_chan_new(0, 1);
    CHECK_EQ(weft_send(ch, NULL), 0);
    weft_case cases[] = {WEFT_RECV(ch, NULL), WEFT_AT(weft_now() + 3600 * WEFT_SEC)};
    CHECK_EQ(weft_select(cases, 2), 0);
    weft_scope s;
    CHECK_EQ(weft_scope_open(&s, weft_now() + 3600 * WEFT_SEC), 0);
    CHECK_EQ(weft_scope_close(&s), 0);
    weft_recv(ch, NULL);
    CHECK(!"the wait has ended");
}

static void deadlocks(void)
{
    EACH_PROCS(p)
    {
        CHECK_EQ(run_on(p, wait_for_ever, NULL), -EDEADLK);
        CHECK_EQ(run_on(p, cut_then_wait_for_ever, NULL), -EDEADLK);
    }
}

CASE(who_waits_for_no_time_is_a_deadlock)
{
    CHECK(child_is_well(deadlocks, text, sizeof text));
}

/* ---- the number of processors changes --------------------------------------------------------------------------- */

static void sleep_twice(void *arg)
{
    for (int i = 0; i < 2; i++)
        sleep_and_check(some_length((uint64_t)numbers++, 40 * WEFT_MSEC));
    (void)arg;
    weft_wg_done(&all);
}

static void shrink_main(void *arg)
{
    static const int steps[] = {1, 4, 2, 8, 3, 1, 8, 1};
    int n = scaled(2000);
    (void)arg;
    all = (weft_wg){0};
    weft_wg_add(&all, n);
    for (int i = 0; i < n; i++)
        CHECK_EQ(weft_go(sleep_twice, NULL), 0);
    for (int i = 0; i < 8; i++) {
        sleep_and_check(4 * WEFT_MSEC);
        CHECK(weft_procs(steps[i]) > 0);
    }
    CHECK_EQ(weft_wg_wait(&all), 0);
}

CASE(sleepers_wake_though_their_processor_goes_away)
{
    for (int i = 0; i < 3; i++)
        CHECK_EQ(run_on(8, shrink_main, NULL), 0);
}

/* ---- foreign threads -------------------------------------------------------------------------------------------- */

static void *sleep_in_thread(void *arg)
{
    for (int i = 0; i < LENGTH_COUNT; i++)
        sleep_and_check(LENGTHS[i]);
    CHECK_EQ(weft_sleep(-1), 0);
    weft_scope s;
    int64_t deadline = weft_now() + 5 * WEFT_MSEC;
    CHECK_EQ(weft_scope_open(&s, deadline), 0);
    CHECK_EQ(weft_recv(NULL, NULL), -ETIMEDOUT);
    CHECK(weft_now() >= deadline);
    CHECK_EQ(weft_cancelled(), -ETIMEDOUT);
    CHECK_EQ(weft_sleep(INT64_MAX), -ETIMEDOUT);
    CHECK_EQ(weft_scope_close(&s), -ETIMEDOUT);
    CHECK_EQ(weft_cancelled(), 0);
    return arg;
}

static void threads_main(void *arg)
{
    pthread_t threads[4];
    (void)arg;
    for (int i = 0; i < 4; i++)
        CHECK_EQ(pthread_create(&threads[i], NULL, sleep_in_thread, NULL), 0);
    join_in_region(threads, 4);
}

CASE(foreign_threads_sleep_and_have_deadlines)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, threads_main, NULL), 0);
}
