/* SPDX-License-Identifier: MIT */
/* Tickers: what they send, what they drop, and when they may be freed. */
#include "runs.h"
#include <stdlib.h>

static void rest(int64_t ns)
{
    CHECK_EQ(weft_sleep(ns), 0);
}

/* Lengths from 1 to most, without a pattern. */
static int64_t spread(int i, int64_t most)
{
    return 1 + (int64_t)((uint64_t)i * 0x9E3779B97F4A7C15ull >> 20) % most;
}

/* ---- ticks ------------------------------------------------------------------------------------------------------ */

/* The k-th tick is not sent before k periods have passed, however many were dropped. */
static void check_ticks(weft_ticker *t, int64_t start, int64_t period, int n)
{
    int64_t last = 0;
    for (int k = 1; k <= n; k++) {
        int64_t at = -1;
        CHECK_EQ(weft_recv(weft_ticker_chan(t), &at), 0);
        CHECK(at >= start + k * period && at > last && at <= weft_now());
        last = at;
    }
}

static void ticks_main(void *arg)
{
    static const int64_t periods[] = {50 * WEFT_USEC, WEFT_MSEC, 7 * WEFT_MSEC};
    (void)arg;
    for (int i = 0; i < 3; i++) {
        int64_t start = weft_now();
        weft_ticker *t = weft_ticker_new(periods[i]);
        CHECK(t != NULL && weft_ticker_chan(t) != NULL);
        check_ticks(t, start, periods[i], 20);
        weft_ticker_free(t);
    }
}

CASE(a_ticker_ticks_once_a_period)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, ticks_main, NULL), 0);
}

static void drops_main(void *arg)
{
    (void)arg;
    int64_t period = 2 * WEFT_MSEC, start = weft_now();
    weft_ticker *t = weft_ticker_new(period);
    for (int i = 0; i < 10; i++) {
        rest(i * WEFT_MSEC);
        CHECK(weft_len(weft_ticker_chan(t)) <= 1);
    }
    check_ticks(t, start, period, 5);
    bool one_only = false;
    for (int i = 0; i < 200 && !one_only; i++) { /* the next may come at any time */
        rest(5 * period);
        CHECK_EQ(weft_recv(weft_ticker_chan(t), NULL), 0);
        one_only = weft_try_recv(weft_ticker_chan(t), NULL) == -EAGAIN;
    }
    CHECK(one_only);
    weft_ticker_free(t);
}

CASE(a_ticker_keeps_one_tick_and_drops_the_rest)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, drops_main, NULL), 0);
}

static void no_period_main(void *arg)
{
    (void)arg;
    CHECK(weft_ticker_new(0) == NULL);
    CHECK(weft_ticker_new(-1) == NULL);
    CHECK(weft_ticker_new(INT64_MIN) == NULL);
    weft_ticker *slow = weft_ticker_new(INT64_MAX);
    CHECK(slow != NULL);
    CHECK_EQ(weft_sleep(WEFT_MSEC), 0);
    CHECK_EQ(weft_try_recv(weft_ticker_chan(slow), NULL), -EAGAIN);
    weft_ticker_free(slow);
}

CASE(a_ticker_needs_a_period)
{
    CHECK(weft_ticker_new(0) == NULL);
    EACH_PROCS(p) CHECK_EQ(run_on(p, no_period_main, NULL), 0);
}

static void free_main(void *arg)
{
    (void)arg;
    for (int i = 0; i < scaled(3000); i++) {
        weft_ticker *t = weft_ticker_new(spread(i, 30 * WEFT_USEC));
        CHECK(t != NULL);
        if (i % 4 == 1)
            weft_yield();
        if (i % 4 == 2)
            CHECK_EQ(weft_recv(weft_ticker_chan(t), NULL), 0);
        if (i % 4 == 3)
            rest(spread(i, 60 * WEFT_USEC));
        weft_ticker_free(t);
    }
}

CASE(a_ticker_may_be_freed_while_it_ticks)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, free_main, NULL), 0);
}

static weft_ticker *left[2];

static void leave_tickers(void *arg)
{
    (void)arg;
    left[0] = weft_ticker_new(100 * WEFT_USEC);
    left[1] = weft_ticker_new(3600 * WEFT_SEC);
    CHECK_EQ(weft_recv(weft_ticker_chan(left[0]), NULL), 0);
}

static void free_tickers(void *arg)
{
    (void)arg;
    rest(2 * WEFT_MSEC);
    weft_ticker_free(left[0]);
    weft_ticker_free(left[1]);
    rest(2 * WEFT_MSEC);
}

CASE(a_ticker_may_be_freed_after_its_run)
{
    EACH_PROCS(p) for (int again = 0; again < 2; again++)
    {
        CHECK_EQ(run_on(p, leave_tickers, NULL), 0);
        if (again)
            CHECK_EQ(run_on(p, free_tickers, NULL), 0);
        for (int i = 0; i < 2 && !again; i++)
            weft_ticker_free(left[i]);
    }
}

static void select_main(void *arg)
{
    (void)arg;
    weft_chan *data = weft_chan_new(sizeof(int64_t), 0), *quit = weft_chan_new(0, 0);
    int64_t start = weft_now(), at = 0;
    weft_ticker *t = weft_ticker_new(WEFT_MSEC);
    for (int ticks = 0; ticks < 10;) {
        weft_case cases[] = {WEFT_RECV(quit, NULL), WEFT_RECV(weft_ticker_chan(t), &at), WEFT_SEND(data, &at),
                             WEFT_AT(start + 3600 * WEFT_SEC)};
        CHECK_EQ(weft_select(cases, 4), 1);
        CHECK_EQ(cases[1].err, 0);
        CHECK(at >= start + ++ticks * WEFT_MSEC);
    }
    weft_ticker_free(t);
    weft_chan_free(data);
    weft_chan_free(quit);
}

CASE(a_tickers_channel_stands_in_a_select)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, select_main, NULL), 0);
}

/* ---- others than goroutines, and fewer processors --------------------------------------------------------------- */

static void *listen_in_thread(void *arg)
{
    int64_t start = weft_now();
    weft_ticker *t = weft_ticker_new(WEFT_MSEC);
    check_ticks(t, start, WEFT_MSEC, 10);
    weft_ticker_free(t);
    return arg;
}

static void threads_main(void *arg)
{
    pthread_t threads[4];
    (void)arg;
    for (int i = 0; i < 4; i++)
        CHECK_EQ(pthread_create(&threads[i], NULL, listen_in_thread, NULL), 0);
    join_in_region(threads, 4);
}

CASE(a_foreign_thread_has_a_ticker)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, threads_main, NULL), 0);
}

struct clock_of_many {
    weft_ticker *t;
    int64_t start;
    weft_wg wg;
};

static void listen(void *arg)
{
    struct clock_of_many *c = arg;
    check_ticks(c->t, c->start, WEFT_MSEC, 10);
    weft_wg_done(&c->wg);
}

static void shrink_main(void *arg)
{
    static const int steps[] = {1, 4, 2, 8, 3, 1, 8, 1};
    struct clock_of_many clocks[16];
    (void)arg;
    for (int i = 0; i < 16; i++) {
        clocks[i] = (struct clock_of_many){.start = weft_now()};
        clocks[i].t = weft_ticker_new(WEFT_MSEC);
        weft_wg_add(&clocks[i].wg, 1);
        CHECK_EQ(weft_go(listen, &clocks[i]), 0);
    }
    for (int i = 0; i < 8; i++) {
        rest(WEFT_MSEC);
        CHECK(weft_procs(steps[i]) > 0);
    }
    for (int i = 0; i < 16; i++) {
        CHECK_EQ(weft_wg_wait(&clocks[i].wg), 0);
        weft_ticker_free(clocks[i].t);
    }
}

CASE(a_ticker_goes_on_though_its_processor_goes_away)
{
    for (int i = 0; i < 5; i++)
        CHECK_EQ(run_on(8, shrink_main, NULL), 0);
}
