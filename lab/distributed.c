/* SPDX-License-Identifier: MIT */
/*
 * M:N with a queue for each OS thread. A thread puts what it makes ready into its own queue (src/runq.h, the library's) and takes
 * from it without asking anybody; one global queue is left for what does not fit, and for goroutines that come back from a
 * blocking call. A thread with nothing to do steals half of another's queue.
 *
 * At most `limit` threads run at once, as in shared.c. A thread that enters a blocking call leaves its queue as it is: that costs
 * nothing, and whoever runs dry finds it there. The price is in the search. Each thread has a queue, and any of them may hold
 * work, those of threads in the kernel too: so a search looks at as many queues as there are threads, not cores, and so does
 * the last look before a thread rests.
 *
 * Who may rest: whoever puts something into a queue looks afterwards whether a place is free and nobody searches, and then
 * wakes a thread; whoever is about to rest gives up its place and looks afterwards at all queues. One of the two sees the other.
 */
#include "crew.h"
#include <stdlib.h>

const char lab_name[] = "distributed";

enum { HALF = W_RUNQ_SIZE / 2, FAIR = 61 /* as Go */ };

struct thread {
    struct lab_m m;
    uint32_t turns;                   /* itself */
    uint64_t rng;                     /* itself */
    _Atomic uint64_t searches, looks; /* itself writes */
    struct w_runq queue;
};

static struct lab_queue global;     /* the crew's lock */
static _Atomic uint32_t global_len; /* the crew's lock; others guess */
static _Atomic int searching;       /* atomic */

struct lab_m *lab_crew_new(void)
{
    struct thread *t = aligned_alloc(_Alignof(struct thread), sizeof *t);
    if (t == NULL)
        return NULL;
    *t = (struct thread){.rng = (uintptr_t)t | 1};
    return &t->m;
}

/* The i-th of n, from start on, around. */
static struct thread *other(uint32_t start, uint32_t i, uint32_t n)
{
    return (struct thread *)lab_crew.all[(start + i) % n];
}

static uint32_t threads(void)
{
    return ld_acquire(&lab_crew.threads); /* pairs with crew.c: those below it are there */
}

/* ---- where goroutines are --------------------------------------------------------------------------------------- */

static void put_global(struct w_g **gs, uint32_t n)
{
    lab_crew_lock();
    for (uint32_t i = 0; i < n; i++)
        lab_put(&global, gs[i]);
    add_relaxed(&global_len, n);
    lab_crew_unlock();
}

/* A fair share of it, at most half a queue; the first is returned. t's own queue has room for that. */
static struct w_g *take_global(struct thread *t)
{
    if (ld_relaxed(&global_len) == 0)
        return NULL;
    lab_crew_lock();
    uint32_t len = ld_relaxed(&global_len), n = len / (uint32_t)lab_crew.limit + 1,
             room = W_RUNQ_SIZE - w_runq_len(&t->queue);
    n = n > len ? len : n;
    n = n > HALF ? HALF : n;
    n = n > room + 1 ? room + 1 : n;
    struct w_g *g = n > 0 ? lab_take(&global) : NULL;
    for (uint32_t i = 1; i < n; i++)
        w_runq_put(&t->queue, lab_take(&global));
    add_relaxed(&global_len, -n);
    lab_crew_unlock();
    return g;
}

/* From one other thread, half of what it has. The first is returned. */
static struct w_g *steal_from(struct thread *t, struct thread *victim)
{
    struct w_g *got[HALF];
    st_relaxed(&t->looks, ld_relaxed(&t->looks) + 1);
    if (victim == t || w_runq_len(&victim->queue) == 0)
        return NULL;
    uint32_t room = W_RUNQ_SIZE - w_runq_len(&t->queue);
    uint32_t n = w_runq_steal(&victim->queue, got, room < HALF ? room + 1 : HALF);
    for (uint32_t i = 1; i < n; i++)
        w_runq_put(&t->queue, got[i]);
    return n > 0 ? got[0] : NULL;
}

/* From any of them, beginning anywhere. */
static struct w_g *steal(struct thread *t)
{
    uint32_t n = threads(), start = w_random(&t->rng);
    struct w_g *g = NULL;
    st_relaxed(&t->searches, ld_relaxed(&t->searches) + 1);
    for (uint32_t i = 0; g == NULL && i < n; i++)
        g = steal_from(t, other(start, i, n));
    return g;
}

static bool any_work(struct thread *t)
{
    uint32_t n = threads(), i = 0;
    if (ld_relaxed(&global_len) > 0)
        return true;
    while (i < n && w_runq_len(&other(0, i, n)->queue) == 0)
        i++;
    st_relaxed(&t->looks, ld_relaxed(&t->looks) + i);
    return i < n;
}

/* Half of the queue makes room for the rest. */
static void overflow(struct thread *t, struct w_g *g)
{
    struct w_g *gs[HALF + 1];
    uint32_t n = w_runq_steal(&t->queue, gs, HALF);
    gs[n] = g;
    put_global(gs, n + 1);
}

/* One more thread, if there is a place. */
static void wake_one(void)
{
    lab_crew_lock();
    lab_crew_unlock_and_start(lab_crew_place_locked());
}

static void share(void)
{
    w_fence_seq(); /* what was put is there before we look who could take it; pairs with lab_crew_rest and lab_block */
    if (ld_relaxed(&lab_crew.running) < lab_crew.limit && ld_relaxed(&searching) == 0)
        wake_one();
}

void lab_ready(struct w_g *g)
{
    struct thread *t = (struct thread *)lab_m();
    if (!w_runq_put(&t->queue, g))
        overflow(t, g);
    share();
}

/* Now and then the others come first, so that nobody is forgotten while our own queue is never empty. */
static struct w_g *fair_turn(struct thread *t)
{
    struct w_g *g = take_global(t);
    uint32_t n = threads();
    return g != NULL ? g : steal_from(t, other(w_random(&t->rng), 0, n));
}

struct w_g *lab_next(struct lab_m *m)
{
    struct thread *t = (struct thread *)m;
    struct w_g *g = ++t->turns % FAIR == 0 ? fair_turn(t) : NULL;
    if (g == NULL)
        g = w_runq_get(&t->queue);
    return g != NULL ? g : take_global(t);
}

struct w_g *lab_crew_find(struct lab_m *m)
{
    struct w_g *g = lab_next(m);
    if (g != NULL)
        return g;
    add_seq(&searching, 1);
    g = steal((struct thread *)m);
    if (sub_seq(&searching, 1) == 1 && g != NULL)
        share(); /* whoever relied on us while we searched has to be seen to by another now */
    return g;
}

bool lab_crew_rest(struct lab_m *m)
{
    lab_crew_lock();
    bool rests = lab_crew_resign_locked(m);
    lab_crew_unlock();
    if (!rests)
        return false;
    w_fence_seq(); /* our place is free before we look; pairs with share() */
    if (any_work((struct thread *)m))
        wake_one();
    lab_m_rest(m);
    return true;
}

/* ---- goroutines ------------------------------------------------------------------------------------------------- */

void lab_yield(void)
{
    lab_take_turns();
}

/* Back from a blocking call, and no place is free: a thread that rests has an empty queue. */
static void after_block(struct lab_m *m, struct w_g *left, void *arg)
{
    struct thread *t = (struct thread *)m;
    struct w_g *gs[HALF];
    (void)arg;
    m->out = true;
    put_global(&left, 1);
    for (uint32_t n; (n = w_runq_steal(&t->queue, gs, HALF)) > 0;)
        put_global(gs, n);
    share();
}

void lab_block(lab_fn *call, void *arg)
{
    struct lab_m *m = lab_m();
    lab_crew_leave();
    w_fence_seq(); /* as in lab_crew_rest */
    if (any_work((struct thread *)m))
        wake_one();
    call(arg);
    lab_crew_lock();
    bool place = lab_crew_place_locked();
    lab_crew_unlock();
    if (!place)
        lab_leave(m, NULL, after_block, NULL);
}

int lab_run(int limit, lab_fn *fn, void *arg)
{
    return lab_crew_run(limit, fn, arg);
}

void lab_search(void)
{
    struct w_g *g = steal((struct thread *)lab_m());
    if (g != NULL)
        lab_ready(g);
}

struct lab_counts lab_counts(void)
{
    struct lab_counts c = {0};
    for (uint32_t i = 0, n = threads(); i < n; i++) {
        c.searches += ld_relaxed(&other(0, i, n)->searches);
        c.looks += ld_relaxed(&other(0, i, n)->looks);
    }
    return c;
}
