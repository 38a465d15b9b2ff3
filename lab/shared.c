/* SPDX-License-Identifier: MIT */
/*
 * M:N with one shared queue. Goroutines are cheap and move between OS threads; those that are ready wait in one queue, first come
 * first served, under one lock.
 *
 * At most `limit` threads run goroutines at once (crew.h). One that enters a blocking call does not count: if goroutines wait,
 * another thread, an idle one or a new one, runs them meanwhile.
 *
 * So there is parallelism, and a call that blocks stops nobody. But every step of every thread goes through the one lock, and the
 * more threads there are the more they wait for each other. A yield takes it once: it holds it across the switch.
 */
#include "crew.h"
#include <stdlib.h>

const char lab_name[] = "shared";

static struct lab_queue ready; /* the crew's lock */

struct lab_m *lab_crew_new(void)
{
    return calloc(1, sizeof(struct lab_m));
}

/* One more thread, if there is a goroutine for it. */
static void unlock_and_share(void)
{
    lab_crew_unlock_and_start(ready.head != NULL && lab_crew_place_locked());
}

void lab_ready(struct w_g *g)
{
    lab_crew_lock();
    lab_put(&ready, g);
    unlock_and_share();
}

struct w_g *lab_next(struct lab_m *m)
{
    (void)m;
    lab_crew_lock();
    struct w_g *g = lab_take(&ready);
    lab_crew_unlock();
    return g;
}

struct w_g *lab_crew_find(struct lab_m *m)
{
    return lab_next(m);
}

/* Something may have come since the last look; with the lock, nothing comes between this one and the rest. */
bool lab_crew_rest(struct lab_m *m)
{
    lab_crew_lock();
    bool work = ready.head != NULL && !m->out;
    bool rests = !work && lab_crew_resign_locked(m);
    lab_crew_unlock();
    if (rests)
        lab_m_rest(m);
    return work || rests;
}

static void after_yield(struct lab_m *m, struct w_g *left, void *arg)
{
    (void)m, (void)arg;
    lab_put(&ready, left);
    lab_crew_unlock();
}

void lab_yield(void)
{
    lab_crew_lock();
    struct w_g *next = lab_take(&ready);
    if (next == NULL)
        lab_crew_unlock();
    else
        lab_leave(lab_m(), next, after_yield, NULL);
}

/* Back from a blocking call, and no place is free. */
static void after_block(struct lab_m *m, struct w_g *left, void *arg)
{
    (void)arg;
    m->out = true;
    lab_ready(left);
}

void lab_block(lab_fn *call, void *arg)
{
    lab_crew_lock();
    lab_crew_leave();
    unlock_and_share();
    call(arg);
    lab_crew_lock();
    bool place = lab_crew_place_locked();
    lab_crew_unlock();
    if (!place)
        lab_leave(lab_m(), NULL, after_block, NULL);
}

int lab_run(int threads, lab_fn *fn, void *arg)
{
    return lab_crew_run(threads, fn, arg);
}

void lab_search(void)
{
    struct w_g *g = lab_next(lab_m());
    if (g != NULL)
        lab_ready(g);
}

struct lab_counts lab_counts(void)
{
    lab_crew_lock();
    struct lab_counts c = {.locks = lab_crew.locks, .lock_waits = lab_crew.waits};
    lab_crew_unlock();
    return c;
}
