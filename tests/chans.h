/* SPDX-License-Identifier: MIT */
/*
 * What the tests of channels and selects share: channels of numbers, waiters that are given time to wait, waits that are cut,
 * and crews of goroutines or foreign threads.
 */
#ifndef CHANS_H
#define CHANS_H

#include "runs.h"
#include <stdlib.h>

/* ---- channels of numbers ---------------------------------------------------------------------------------------- */

static inline weft_chan *chan_of(size_t elem_size, size_t capacity)
{
    weft_chan *ch = weft_chan_new(elem_size, capacity);
    if (ch == NULL)
        check_fail(__FILE__, __LINE__, "no channel of %zu times %zu bytes", capacity, elem_size);
    return ch;
}

/* Of int. The numbers in it are not negative, so that what comes out is a number or an error. */
static inline weft_chan *ints(size_t capacity)
{
    return chan_of(sizeof(int), capacity);
}

static inline int put(weft_chan *ch, int value)
{
    return weft_send(ch, &value);
}

static inline int try_put(weft_chan *ch, int value)
{
    return weft_try_send(ch, &value);
}

static inline int taken(int result, int value)
{
    if (result == -EPIPE)
        CHECK_EQ(value, 0);
    return result < 0 ? result : value;
}

static inline int take(weft_chan *ch)
{
    int value = -1, r = weft_recv(ch, &value);
    return taken(r, value);
}

static inline int try_take(weft_chan *ch)
{
    int value = -1, r = weft_try_recv(ch, &value);
    return taken(r, value);
}

static inline void free_all(weft_chan **chs, int n)
{
    for (int i = 0; i < n; i++)
        weft_chan_free(chs[i]);
}

/* ---- who waits -------------------------------------------------------------------------------------------------- */

/* On one P and without preemption, so that a goroutine goes on until it waits. */
static inline int run_alone(weft_fn *fn, void *arg)
{
    return run_with_own_quantum(&(weft_config){.procs = 1, .quantum = WEFT_NEVER}, fn, arg);
}

/* So many have said that they are about to wait: gives them time to. */
static inline void let_wait(_Atomic int *about_to, int n)
{
    CHECK(reaches(about_to, n, 60));
    for (int i = 0; i < 10; i++)
        weft_yield();
    if (weft_procs(0) > 1)
        sleep_in_region(2);
}

/* Nobody can see whether another one waits already. What depends on it is shown if it comes true once: a machine may be
 * slow, but not each time. */
static inline bool comes_true(bool (*trial)(void *), void *arg)
{
    for (int i = 0; i < 50; i++)
        if (trial(arg))
            return true;
    return false;
}

/* ---- waits that are cut ----------------------------------------------------------------------------------------- */

static inline bool was_cut(int result)
{
    return result == -ECANCELED || result == -ETIMEDOUT;
}

static inline void cancel_after_a_while(void *scope)
{
    for (int i = 0; i < 5; i++)
        weft_yield();
    weft_scope_cancel(scope, -ECANCELED);
}

/* What a call that waits gives in a scope that is cancelled meanwhile. */
static inline int when_cancelled(int (*call)(void *), void *arg)
{
    weft_scope s;
    CHECK_EQ(weft_scope_open(&s, WEFT_NEVER), 0);
    CHECK_EQ(weft_scope_go(&s, cancel_after_a_while, &s), 0);
    int r = call(arg);
    CHECK_EQ(weft_scope_close(&s), -ECANCELED);
    return r;
}

/* What it gives in a scope with a deadline, ms from now; 0 is over at once. */
static inline int when_late(int ms, int (*call)(void *), void *arg)
{
    weft_scope s;
    CHECK_EQ(weft_scope_open(&s, weft_now() + ms * WEFT_MSEC), 0);
    int r = call(arg);
    CHECK_EQ(weft_scope_close(&s), -ETIMEDOUT);
    return r;
}

/* A call that waits for ever gets what its scope has to say, however it ends. */
static inline void is_cut(int (*call)(void *), void *arg)
{
    CHECK_EQ(when_cancelled(call, arg), -ECANCELED);
    CHECK_EQ(when_late(2, call, arg), -ETIMEDOUT);
    CHECK_EQ(when_late(0, call, arg), -ETIMEDOUT);
}

/* ---- crews ------------------------------------------------------------------------------------------------------ */

/* Several that do the same, each with its number, as goroutines or as foreign threads. As those do not keep a run alive,
 * a goroutine that sleeps does. */
typedef void member_fn(void *arg, int number);

struct crew {
    member_fn *fn;
    void *arg;
    int n, threads; /* the first so many of n are foreign threads */
    weft_wg ended;
    pthread_t thread[8];
    _Atomic int next;
    _Atomic bool joined;
};

static inline void crew_member(void *arg)
{
    struct crew *c = arg;
    c->fn(c->arg, c->next++);
    weft_wg_done(&c->ended);
}

static inline void *crew_thread(void *arg)
{
    crew_member(arg);
    return NULL;
}

static inline void keep_awake(void *arg)
{
    struct crew *c = arg;
    while (!c->joined)
        CHECK_EQ(weft_sleep(WEFT_MSEC), 0);
    weft_wg_done(&c->ended);
}

static inline void crew_start(struct crew *c)
{
    c->ended = (weft_wg){0};
    c->next = 0;
    c->joined = c->threads == 0;
    weft_wg_add(&c->ended, c->n + !c->joined);
    if (!c->joined)
        CHECK_EQ(weft_go(keep_awake, c), 0);
    for (int i = 0; i < c->n; i++)
        if (i < c->threads)
            CHECK_EQ(pthread_create(&c->thread[i], NULL, crew_thread, c), 0);
        else
            CHECK_EQ(weft_go(crew_member, c), 0);
}

static inline void crew_wait(struct crew *c)
{
    if (c->threads > 0)
        join_in_region(c->thread, c->threads);
    c->joined = true;
    CHECK_EQ(weft_wg_wait(&c->ended), 0);
}

/* ---- stress ----------------------------------------------------------------------------------------------------- */

#ifdef STRESS_H
static uint64_t seed;

static inline void on_each_procs(weft_fn *fn, void *arg)
{
    seed = check_seed();
    for (int i = 0; i < STRESS_PROCS_COUNT; i++)
        stress_run(STRESS_PROCS[i], seed, fn, arg);
}
#endif

#endif
