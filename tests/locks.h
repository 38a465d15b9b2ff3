/* SPDX-License-Identifier: MIT */
/* What the tests of locks share: lines of waiters, waits that are cut, storms of both, and unlocks that are light. */
#ifndef LOCKS_H
#define LOCKS_H

#include "waits.h"

/* ---- turns ------------------------------------------------------------------------------------------------------ */

enum { WAITERS = 6 };

/* Goroutines that come one after the other, each asleep before the next comes. */
struct line {
    weft_mutex mu;
    weft_cond cond;
    weft_rwmutex rw;
    weft_sem sem;
    weft_scope *scope;
    _Atomic(struct w_g *) who[WAITERS];
    _Atomic int served, inside, cut;
};

struct place {
    struct line *line;
    int number;
    int64_t weight;
};

static inline void comes(struct line *l, int number, weft_fn *fn, int64_t weight)
{
    CHECK_EQ(weft_go_copy(fn, &(struct place){l, number, weight}, sizeof(struct place)), 0);
    CHECK(is_asleep(&l->who[number]));
}

static inline void line_up(struct line *l, weft_fn *fn)
{
    for (int i = 0; i < WAITERS; i++)
        comes(l, i, fn, 0);
}

/* ---- waits that are cut ----------------------------------------------------------------------------------------- */

/* One whose wait is cut, and another one behind it. */
struct cut {
    weft_mutex mu;
    weft_cond cond;
    weft_scope *scope;
    _Atomic(struct w_g *) who, other;
    _Atomic int cut, passed, cancelled;
    int64_t deadline;
    int expected;
};

static inline void lock_and_pass(void *arg)
{
    struct cut *c = arg;
    says_who(&c->other);
    CHECK_EQ(weft_lock(&c->mu), 0);
    weft_unlock(&c->mu);
    c->passed++;
}

static inline void cancel_it(void *arg)
{
    struct cut *c = arg;
    weft_scope_cancel(c->scope, -ECANCELED);
    c->cancelled++;
}

/* Many goroutines whose waits are cut at random; it is the first member of what they share. */
enum { STORM_GOROUTINES = 20 };

struct storm {
    weft_wg all;
    uint64_t seed;
    _Atomic int number;
    int rounds;
};

static inline uint64_t storm_rng(struct storm *st)
{
    return st->seed + (uint64_t)++st->number * 7919;
}

static inline void storm_of(weft_fn *fn, struct storm *st)
{
    weft_wg_add(&st->all, STORM_GOROUTINES);
    for (int i = 0; i < STORM_GOROUTINES; i++)
        CHECK_EQ(weft_go(fn, st), 0);
    CHECK_EQ(weft_wg_wait(&st->all), 0);
}

/* ---- light and heavy unlocks ------------------------------------------------------------------------------------ */

static inline bool light(const weft_mutex *mu)
{
    return __atomic_load_n(&weft_light_[weft_bucket_(mu)], __ATOMIC_RELAXED) != 0;
}

static inline bool can_be_light(void)
{
    return !check_under_tsan() && w_membarrier_register() == 0;
}

/* After so many without a waiter an unlock is a plain store, where there is a membarrier. */
static inline void calm_down(weft_mutex *mu)
{
    for (int i = 0; i < 200000 && !light(mu) && can_be_light(); i += 1000)
        for (int j = 0; j < 1000; j++) {
            CHECK_EQ(weft_lock(mu), 0);
            weft_unlock(mu);
        }
}

/* ---- what is done once ------------------------------------------------------------------------------------------ */

struct counted {
    weft_once once;
    _Atomic int ran;
};

static inline void note_run(void *arg)
{
    ((struct counted *)arg)->ran++;
}

static inline void do_once(struct counted *c)
{
    weft_once_do(&c->once, note_run, c);
}

#endif
