/* SPDX-License-Identifier: MIT */
/* Hogs compute and call nothing, more of them than there are processors; somebody else has to be on time in between. */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "demo.h"

enum { TICK_MS = 10, BAR = 30 };

static atomic_bool stop;
static atomic_llong work;
static int ticks, hogs;
static double worst, total; /* lateness, in ms */

static void compute(void)
{
    unsigned long long x = 1;
    while (!atomic_load_explicit(&stop, memory_order_relaxed))
        for (int i = 0; i < 1000; i++)
            x = x * 6364136223846793005u + 1;
    atomic_fetch_add(&work, (long long)(x & 1));
}

static void note(const char *who, int tick, double late_ms)
{
    static const char bar[] = "##############################";
    total += late_ms;
    worst = late_ms > worst ? late_ms : worst;
    if (tick % 5 == 0)
        show_live(who, "[%-*.*s] tick %d, %.1f ms late", BAR, tick * BAR / ticks, bar, tick, late_ms);
}

static void report(const char *who)
{
    show_row(who, "%d ticks beside %d hogs: late by %.1f ms on average, %.1f ms at worst", ticks, hogs, total / ticks,
             worst);
    total = worst = 0;
    atomic_store(&stop, false);
}

static void hog(void *arg)
{
    (void)arg;
    compute();
}

static void tick_among_goroutines(void *arg)
{
    weft_scope s;
    int64_t now;
    (void)arg;
    hogs = 4 * weft_procs(0);
    must(weft_scope_open(&s, WEFT_NEVER), "weft_scope_open");
    for (int i = 0; i < hogs; i++)
        must(weft_scope_go(&s, hog, NULL), "weft_scope_go");
    weft_ticker *ticker = weft_ticker_new(TICK_MS * WEFT_MSEC);
    for (int i = 1; ticker != NULL && i <= ticks && weft_recv(weft_ticker_chan(ticker), &now) == 0; i++)
        note("weft", i, (double)(weft_now() - now) / WEFT_MSEC);
    atomic_store(&stop, true);
    weft_scope_close(&s);
    weft_ticker_free(ticker);
}

/* The first of them ticks, the others are hogs. */
static void *be_a_thread(void *arg)
{
    if (atomic_fetch_add((atomic_int *)arg, 1) > 0) {
        compute();
        return NULL;
    }
    double next = seconds_now();
    for (int i = 1; i <= ticks; i++) {
        next += TICK_MS / 1e3;
        double wait = next - seconds_now();
        if (wait > 0)
            usleep((useconds_t)(wait * 1e6));
        note("pthreads", i, (seconds_now() - next) * 1e3);
        next = seconds_now();
    }
    atomic_store(&stop, true);
    return NULL;
}

void step_hogs(void)
{
    atomic_int first = 0;
    ticks = quick ? 20 : 250;
    show_step(3, "Hogs cannot stop a ticker",
              "Goroutines that compute and never call Weft are stopped by a signal, as the kernel stops threads.");
    run_weft(tick_among_goroutines, NULL);
    report("weft");
    run_threads(hogs + 1, be_a_thread, &first);
    report("pthreads");
}
