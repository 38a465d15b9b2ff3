/* SPDX-License-Identifier: MIT */
/* OS threads and their places: crew.h tells. */
#include "crew.h"
#include <stdlib.h>

struct lab_crew lab_crew;
static struct {
    lab_fn *fn;
    void *arg;
} start;

void lab_crew_lock(void)
{
    bool held = ld_relaxed(&lab_crew.lock.word) != 0; /* relaxed: only counted */
    w_lock(&lab_crew.lock, W_RANK_SCHED);
    lab_crew.locks++;
    lab_crew.waits += held;
}

void lab_crew_unlock(void)
{
    w_unlock(&lab_crew.lock, W_RANK_SCHED);
}

static void *loop(void *arg)
{
    struct lab_m *m = arg;
    lab_m_enter(m);
    for (;;) {
        struct w_g *g = m->out ? NULL : lab_crew_find(m);
        if (g != NULL)
            lab_resume(m, g);
        else if (!lab_crew_rest(m))
            return NULL;
    }
}

/* ---- places ----------------------------------------------------------------------------------------------------- */

bool lab_crew_place_locked(void)
{
    if (ld_relaxed(&lab_crew.running) >= lab_crew.limit || lab_crew.stopping)
        return false;
    add_relaxed(&lab_crew.running, 1);
    return true;
}

void lab_crew_leave(void)
{
    add_relaxed(&lab_crew.running, -1);
}

bool lab_crew_resign_locked(struct lab_m *m)
{
    if (lab_crew.stopping)
        return false;
    if (!m->out)
        add_relaxed(&lab_crew.running, -1);
    m->out = false;
    st_relaxed(&m->awake, 0); /* relaxed: the lock orders it before whoever finds m in the list */
    m->link = lab_crew.idle;
    lab_crew.idle = m;
    return true;
}

static struct lab_m *new_m(void)
{
    struct lab_m *m = lab_crew_new();
    if (m != NULL && lab_m_init(m) != 0) {
        free(m);
        m = NULL;
    }
    return m;
}

static bool add_locked(struct lab_m *m)
{
    uint32_t n = ld_relaxed(&lab_crew.threads); /* relaxed: under the lock */
    if (n == LAB_MAX_THREADS || lab_thread(&m->thread, loop, m) != 0)
        return false;
    lab_crew.all[n] = m;
    st_release(&lab_crew.threads, n + 1); /* publishes all[n], for those who search */
    return true;
}

/* A new thread, for which there is a place. Where none is to be had, those who run have to do it alone. */
static void start_thread(void)
{
    struct lab_m *m = new_m();
    lab_crew_lock();
    if (m == NULL || !add_locked(m)) {
        add_relaxed(&lab_crew.running, -1);
        if (m != NULL)
            lab_m_done(m);
        free(m);
    }
    lab_crew_unlock();
}

void lab_crew_unlock_and_start(bool place)
{
    struct lab_m *m = place ? lab_crew.idle : NULL;
    if (m != NULL)
        lab_crew.idle = m->link;
    lab_crew_unlock();
    if (m != NULL)
        lab_m_wake(m);
    else if (place)
        start_thread();
}

/* ---- a run ------------------------------------------------------------------------------------------------------ */

static void main_g(void *arg)
{
    (void)arg;
    start.fn(start.arg);
    lab_crew_lock();
    lab_crew.stopping = true;
    for (struct lab_m *m; (m = lab_crew.idle) != NULL; lab_m_wake(m))
        lab_crew.idle = m->link;
    lab_crew_unlock();
}

/* A thread may look at the others until it ends, and may have started one more just before. */
static void end(void)
{
    for (uint32_t i = 1; i < ld_relaxed(&lab_crew.threads);
         i++) /* relaxed: whoever adds one is joined before that one */
        pthread_join(lab_crew.all[i]->thread, NULL);
    for (uint32_t i = 0; i < ld_relaxed(&lab_crew.threads); i++) {
        lab_m_done(lab_crew.all[i]);
        free(lab_crew.all[i]);
    }
    lab_fibers_end();
}

int lab_crew_run(int limit, lab_fn *fn, void *arg)
{
    int r = lab_fibers_begin();
    struct lab_m *first = r == 0 ? new_m() : NULL;
    if (first == NULL)
        return r == 0 ? -ENOMEM : r;
    start.fn = fn;
    start.arg = arg;
    lab_crew.limit = limit > 0 ? limit : w_usable_cpus("");
    lab_crew.stopping = false;
    st_relaxed(&lab_crew.running, 1); /* relaxed, like the next: we are alone */
    lab_crew.all[0] = first;
    st_relaxed(&lab_crew.threads, 1);
    lab_m_enter(first);
    r = lab_go(main_g, NULL);
    if (r == 0)
        loop(first);
    end();
    return r;
}
