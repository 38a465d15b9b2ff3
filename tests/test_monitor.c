/* SPDX-License-Identifier: MIT */
/*
 * How often the monitor looks while all threads compute: seldom, for each look takes a core away from one of them; also where there are
 * fewer cores than threads, so that some seem to stand still. And it finds one that blocks all the same.
 */
#include "hogs.h"
#include "whitebox.h"
#include <poll.h>
#include <sys/sysinfo.h>

enum { HOGS = 8, WINDOWS = 30, WINDOW_MS = 200, SETTLE_MS = 50 };

/* One look a millisecond, and some for good measure. */
enum { FEW = WINDOW_MS + WINDOW_MS / 2, NO_CORES = -1 };

struct watched {
    pid_t monitor; /* its thread: that of whoever calls weft_run */
    int cores;     /* a window counts if the hogs had so many, all the time; 0: any does */
    long naps;     /* in a window that counts, the fewest; or NO_CORES */
};

/* Something else may stir now and then, and have the cores: until there is a window with few. */
static void count_naps(struct watched *w)
{
    usleep(SETTLE_MS * 1000);
    for (int i = 0; i < WINDOWS && (w->naps == NO_CORES || w->naps > FEW); i++) {
        long before = w_thread_naps(w->monitor);
        int64_t began = weft_now(), cpu = check_cpu_ns();
        usleep(WINDOW_MS * 1000);
        int64_t took = weft_now() - began, used = check_cpu_ns() - cpu;
        long naps = (w_thread_naps(w->monitor) - before) * WINDOW_MS * WEFT_MSEC / took;
        if (used >= took * w->cores - took / 20 && (w->naps == NO_CORES || naps < w->naps))
            w->naps = naps;
    }
}

static void compute(void *arg)
{
    (void)arg;
    while (!over)
        spin_for(200);
}

static void watch_monitor(void *watched)
{
    over = false;
    for (int i = 0; i < HOGS; i++)
        CHECK_EQ(weft_go(compute, NULL), 0);
    weft_block_enter();
    count_naps(watched);
    over = true;
    weft_block_leave();
}

static void check_few_naps(int procs, int cores, int64_t quantum)
{
    if (get_nprocs() < cores || w_thread_naps(gettid()) < 0) {
        skipped("there are not so many cores, or nobody says how often a thread sleeps");
        return;
    }
    struct watched w = {.monitor = gettid(), .cores = cores, .naps = NO_CORES};
    CHECK_EQ(run_with_own_quantum(&(weft_config){.procs = procs, .quantum = quantum}, watch_monitor, &w), 0);
    if (w.naps == NO_CORES)
        skipped("others had the cores all the time");
    CHECK(w.naps <= FEW);
}

static bool threads_seem_asleep(void)
{
    if (check_under_emulator())
        skipped("under an emulator who computes may seem to sleep");
    return check_under_emulator();
}

CASE(beside_those_who_compute_the_monitor_looks_seldom)
{
    if (threads_seem_asleep())
        return;
    check_few_naps(2, 2, WEFT_NEVER);
    check_few_naps(2, 2, 10 * WEFT_MSEC);
}

CASE(nor_does_it_look_more_often_for_a_short_quantum)
{
    if (!threads_seem_asleep() && signals_stop())
        check_few_naps(2, 2, WEFT_MSEC);
}

CASE(who_has_no_core_is_not_watched)
{
    if (!threads_seem_asleep() && get_nprocs() <= HOGS / 4)
        check_few_naps(HOGS / 2, 0, WEFT_NEVER);
}

/* ---- one that blocks after it has computed for long --------------------------------------------------------------- */

static const int64_t SOON = 4 * WEFT_MSEC; /* who waits for a page, or cannot be asked, keeps its P for longer */

static struct {
    int pipe[2];
    _Atomic bool blocks; /* somebody waits for a byte */
    int64_t soonest;     /* that another one ran then */
} scene;

/* Runs whenever there is a P for it. */
static void relieve(void *arg)
{
    (void)arg;
    for (; !over; weft_yield())
        if (atomic_exchange(&scene.blocks, false))
            CHECK_EQ(write(scene.pipe[1], "", 1), 1);
}

static void block_until_relieved(void)
{
    struct pollfd fd = {.fd = scene.pipe[0], .events = POLLIN};
    char byte;
    int64_t began = weft_now();
    scene.blocks = true;
    CHECK_EQ(poll(&fd, 1, 20000), 1);
    int64_t took = weft_now() - began;
    CHECK_EQ(read(scene.pipe[0], &byte, 1), 1);
    scene.soonest = took < scene.soonest ? took : scene.soonest;
}

static void compute_then_block(void *arg)
{
    (void)arg;
    over = false;
    scene.soonest = INT64_MAX;
    CHECK_EQ(weft_go(relieve, NULL), 0);
    for (int i = 0; i < 100 && (i < 3 || scene.soonest > SOON); i++) {
        for (int64_t end = weft_now() + 10 * WEFT_MSEC; weft_now() < end;)
            spin_for(200);
        block_until_relieved();
        weft_yield();
        w_sched.found_at = 0; /* as if it had been long ago: else looks are frequent */
    }
    over = true;
}

/* The soonest counts: on a crowded machine somebody else may have the core. */
CASE(who_blocks_after_it_has_computed_for_long_is_found)
{
    if (check_under_tsan()) {
        skipped("under TSan nobody takes a P from a call that was not announced");
        return;
    }
    CHECK_EQ(pipe(scene.pipe), 0);
    CHECK_EQ(run_with_own_quantum(&(weft_config){.procs = 1, .quantum = WEFT_NEVER}, compute_then_block, NULL), 0);
    CHECK(scene.soonest <= SOON);
    close(scene.pipe[0]);
    close(scene.pipe[1]);
}
