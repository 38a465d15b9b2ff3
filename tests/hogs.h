/* SPDX-License-Identifier: MIT */
/*
 * What the tests of priorities and of fairness share: goroutines that compute and call nothing until all is over, and a main
 * goroutine that watches them from a blocking region, where it needs no P.
 */
#ifndef HOGS_H
#define HOGS_H

#include "runs.h"
#include "waits.h"

static _Atomic bool over; /* hogs and all the others end */

/* Where no signal stops anybody (preempt.c), a hog calls the runtime now and then. */
static inline bool signals_stop(void)
{
#ifdef __clang__
    return !check_under_tsan() && !check_under_asan(); /* with clang's the program has a malloc of its own */
#else
    return !check_under_tsan();
#endif
}

static inline void compute_a_little(void)
{
    spin_for(200);
    if (!signals_stop())
        weft_cancelled();
}

enum { MAX_HOGS = 32 };

/* One hog: what it has done. */
struct hog {
    _Atomic uint64_t work;
    _Atomic int began;
};

static struct {
    struct hog hog[MAX_HOGS];
    _Atomic int began, ended;
    _Atomic(struct hog *) last;
    _Atomic int turns; /* how often another one went on than the one before; with one P */
} hogs;

static inline void be_a_hog(void *arg)
{
    struct hog *h = arg;
    h->began = 1;
    hogs.began++;
    while (!over) {
        compute_a_little();
        atomic_fetch_add_explicit(&h->work, 1, memory_order_relaxed);
        if (atomic_load_explicit(&hogs.last, memory_order_relaxed) != h) {
            atomic_store_explicit(&hogs.last, h, memory_order_relaxed);
            atomic_fetch_add_explicit(&hogs.turns, 1, memory_order_relaxed);
        }
    }
    hogs.ended++;
}

/* From the main goroutine, at the beginning of a run. It is urgent, so that it comes to the end of its preparations beside hogs. */
static inline void begin_scene(void)
{
    over = false;
    memset((void *)&hogs, 0, sizeof hogs);
    CHECK_EQ(weft_set_priority(WEFT_HIGH), 0);
}

static inline int go_as(int priority, weft_fn *fn, void *arg)
{
    return weft_go_with(&(weft_attr){.priority = priority}, fn, arg);
}

static inline void start_hogs(int n, int priority)
{
    for (int i = 0; i < n; i++)
        CHECK_EQ(go_as(priority, be_a_hog, &hogs.hog[i]), 0);
}

/* In a blocking region: until fn says so; false after half a minute. */
static inline bool comes_true(bool (*fn)(const void *), const void *arg)
{
    for (int i = 0; i < 60000; i++) {
        if (fn(arg))
            return true;
        usleep(500);
    }
    return false;
}

struct at_least {
    _Atomic int *at;
    int n;
};

static inline bool is_at_least(const void *arg)
{
    const struct at_least *a = arg;
    return *a->at >= a->n;
}

static inline bool comes_to(_Atomic int *at, int n)
{
    return comes_true(is_at_least, &(struct at_least){at, n});
}

static inline bool nobody_idles(const void *arg)
{
    (void)arg;
    return ld_relaxed(&w_sched.idle_p_count) == 0;
}

struct in_line {
    enum w_line line;
    uint32_t n;
};

static inline bool are_in_line(const void *arg)
{
    const struct in_line *l = arg;
    return ld_relaxed(&w_sched.globq.lens[l->line]) >= l->n;
}

/* In a blocking region: so many wait in that list of the global queue. */
static inline bool wait_in_line(enum w_line line, uint32_t n)
{
    return comes_true(are_in_line, &(struct in_line){line, n});
}

/* From the main goroutine, in its region: all is over, and the others end, low ones too. */
static inline void end_scene(void)
{
    over = true;
    weft_block_leave();
    CHECK_EQ(weft_set_priority(WEFT_NORMAL), 0);
    for (int64_t end = weft_now() + 60 * WEFT_SEC; weft_count() > 1 && weft_now() < end;)
        weft_sleep(WEFT_MSEC);
    CHECK_EQ(weft_count(), 1);
}

/* Into a region, with hogs on every P. */
static inline void into_region_beside_hogs(void)
{
    weft_block_enter();
    CHECK(comes_to(&hogs.began, 1));
    CHECK(comes_true(nobody_idles, NULL));
}

#endif
