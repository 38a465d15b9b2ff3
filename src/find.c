/* SPDX-License-Identifier: MIT */
/*
 * The search of an M that has nothing to run, on its own stack: its P's queues, the global one, descriptors, other Ps; a
 * moment of patience; then sleep. sched.c says where goroutines wait and when a thread is woken (W1 to W4); this is the side
 * of the one that looks, which owes the others W2: whoever stops looking says so, and looks once more.
 */
#include "netpoll.h"
#include "timer.h"
#include "topology.h"
#include <sched.h>

enum {
    LINGER_HOPE = 8,
    LINGER_RETRY = 16, /* while there is no hope, every so many times all the same */
    FAR_TURN = 8,      /* every so many passes, those over the others do not begin with the nearest */
};

static const int64_t LINGER = 30 * WEFT_USEC;

/* ---- patience --------------------------------------------------------------------------------------------------- */

static struct w_g *poll_here(struct w_p *p)
{
    return w_poll() ? w_pick_own(p) : NULL;
}

/* Others have work to share, or this P is to be given up. */
static bool wanted_elsewhere(struct w_p *p)
{
    return w_work_to_share() || ld_relaxed(&w_sched.stopping) || ld_relaxed(&p->attn) & W_ATTN_RETIRE;
}

/* An M that polls waits a little before it goes to sleep, if that was worth it lately: the next message is often nearer than the
 * 15 to 40 us that it takes to wake a thread. Whoever else wants the core gets it. */
static struct w_g *linger(struct w_p *p)
{
    struct w_g *g = NULL;
    if (!w_poll_used() || (p->linger_hope <= 0 && ++p->linger_skips % LINGER_RETRY != 0))
        return NULL;
    int64_t end = w_now() + LINGER;
    do {
        sched_yield();
        if ((g = poll_here(p)) == NULL)
            g = w_pick_here(p);
    } while (g == NULL && w_now() < end && !wanted_elsewhere(p));
    p->linger_hope += g == NULL ? -2 : p->linger_hope < LINGER_HOPE;
    if (p->linger_hope < 0)
        p->linger_hope = 0;
    return g;
}

/* ---- stealing --------------------------------------------------------------------------------------------------- */

/* The older half of the victim's fresh ones: the first to run, the rest into our own, order kept. */
static struct w_g *steal_fresh(struct w_p *p, struct w_p *victim)
{
    uint32_t n = w_fresh_len(&victim->fresh);
    n -= n / 2;
    uint32_t most = n;
    struct w_g *first = NULL, *g;
    for (; n > 0 && (g = w_fresh_steal(&victim->fresh)) != NULL; n--) {
        if (first == NULL)
            first = g;
        else
            w_share(p, g, W_FRESH);
    }
    w_count_many(&p->count.taken, most - n);
    return first;
}

static struct w_g *steal_runq(struct w_p *p, struct w_p *victim)
{
    struct w_g *batch[W_RUNQ_SIZE / 2];
    uint32_t n = w_runq_steal(&victim->runq, batch, W_RUNQ_SIZE / 2);
    for (uint32_t i = 1; i < n; i++)
        w_share(p, batch[i], W_TURN);
    w_count_many(&p->count.taken, n);
    return n > 0 ? batch[0] : NULL;
}

/* Its timers first: who waits for them has waited longest. */
static struct w_g *steal_from(struct w_p *p, struct w_p *victim, int64_t now)
{
    struct w_g *g = w_timers_run(victim, p, now) > 0 ? w_pick_own(p) : NULL;
    w_count_many(&p->count.taken, g != NULL);
    if (g == NULL)
        g = steal_fresh(p, victim);
    if (g == NULL)
        g = steal_runq(p, victim);
    w_count(&p->count.steals);
    if (g != NULL) {
        const struct w_places *places = ld_acquire(&w_sched.places); /* [TP-1] */
        w_count(&p->count.stolen);
        w_probe_steal(p, victim, g);
        if (w_traced())
            w_trace_steal(victim, g);
        if (unlikely(places != NULL))
            w_count(&p->stolen_at[w_distance(places, p, victim)]);
    }
    return g;
}

static uint32_t gcd(uint32_t a, uint32_t b)
{
    return b == 0 ? a : gcd(b, a % b);
}

/* One pass over n of the others: from a random one, in a random stride that meets each once. Those of a ring, or all. */
static struct w_g *steal_among(struct w_p *p, uint32_t n, const struct w_places *places, const struct w_ring *ring)
{
    uint32_t at = w_random(&p->rng) % n, stride = w_random(&p->rng) % n + 1;
    int64_t now = w_now();
    while (gcd(stride, n) != 1)
        stride = stride % n + 1;
    for (uint32_t i = 0; i < n; i++, at = (at + stride) % n) {
        struct w_p *victim = w_sched.ps[places == NULL ? at : w_ring_at(places, ring, at)];
        struct w_g *g = victim != p ? steal_from(p, victim, now) : NULL;
        if (g != NULL)
            return g;
    }
    return NULL;
}

/* Ring by ring, the nearest first. */
static __attribute__((noinline)) struct w_g *steal_near(struct w_p *p, const struct w_places *places)
{
    struct w_ring ring;
    for (uint32_t i = 0; w_ring(places, p, i, &ring); i++) {
        uint32_t n = w_ring_size(&ring);
        struct w_g *g = n > 0 ? steal_among(p, n, places, &ring) : NULL;
        if (g != NULL)
            return g;
    }
    return NULL;
}

/* The nearest first. But neighbours that take crumbs from each other before they look any further spread work slowly, so every
 * eighth pass is over all: with 256 Ps, simulated, that makes a fifth of the steals and takes 8.5 ms where 9.1 were needed. */
struct w_g *w_steal(struct w_p *p)
{
    const struct w_places *places = ld_acquire(&w_sched.places); /* [TP-1] */
    if (unlikely(places != NULL) && ++p->passes % FAR_TURN != 0)
        return steal_near(p, places);
    return steal_among(p, ld_acquire(&w_sched.p_count), NULL, NULL); /* [PC-1] */
}

/* Spinning is bounded: at most half as many Ms as there are busy Ps. */
static bool may_spin(struct w_m *m)
{
    if (m->spinning)
        return true;
    uint32_t idle = ld_relaxed(&w_sched.idle_p_count), n = ld_relaxed(&w_sched.procs);
    if (2 * ld_relaxed(&w_sched.spinning) >= n - (idle < n ? idle : n))
        return false;
    m->spinning = true;
    add_seq(&w_sched.spinning, 1); /* [WK-1] */
    return true;
}

/* One pass, then to sleep. Passing again and again, 2 us apart, takes the cache lines of the busy Ps away from them: with five
 * passes spawn_2p took 130 ns where it takes 62 with one. */
static struct w_g *steal_work(struct w_m *m)
{
    if (ld_relaxed(&w_sched.p_count) == 1 || !may_spin(m))
        return NULL;
    w_count(&m->count.spins);
    struct w_g *g = w_steal(m->p);
    return g != NULL ? g : w_globq_get(m->p, W_GLOBQ_SHARE);
}

/* Those who run when nobody else wants to. */
static struct w_g *last_resort(void)
{
    struct w_g *g = w_globq_take(W_LINE_HEAVY);
    return g != NULL ? g : w_globq_take(W_LINE_LOW);
}

/* ---- the end of a search ---------------------------------------------------------------------------------------- */

/* It has work: it spins no more. If it was the last that did, others may have relied on it (W2). */
static struct w_g *found(struct w_m *m, struct w_g *g)
{
    w_begin_slice(m->p);
    if (m->spinning) {
        m->spinning = false;
        if (sub_seq(&w_sched.spinning, 1) == 1) /* [WK-1] */
            w_look_again();
    }
    return g;
}

static bool lone_work(void)
{
    uint32_t n = ld_acquire(&w_sched.p_count); /* [PC-1] */
    for (uint32_t i = 0; i < n; i++)
        if (ld_relaxed(&w_sched.ps[i]->slot) != NULL)
            return true;
    return false;
}

/* Gives the P up, says so, looks again (W2). Returns with a P if there was something after all. */
static struct w_g *go_idle(struct w_m *m)
{
    struct w_p *p = m->p;
    if (unlikely(w_p_work(p) > 0)) /* W1 and W2 rely on it: a P that idles has nothing to run */
        return NULL;
    w_lock(&w_sched.lock, W_RANK_SCHED);
    struct w_g *g = w_globq_get_any_locked(p);
    if (g == NULL) {
        m->p = NULL;
        st_relaxed(&m->gate, NULL);
        w_p_idle_locked(p);
    }
    w_unlock(&w_sched.lock, W_RANK_SCHED);
    if (g != NULL)
        return g;
    if (m->spinning) {
        m->spinning = false;
        sub_seq(&w_sched.spinning, 1); /* [WK-1] */
    }
    w_fence_seq(); /* [WK-1] */
    if (!w_work_to_share()) {
        if (!ld_relaxed(&w_sched.attentive) && lone_work())
            w_monitor_wake(); /* there is an idle P now: it becomes attentive (W4) */
        return NULL;
    }
    w_lock(&w_sched.lock, W_RANK_SCHED);
    p = ld_relaxed(&w_sched.stopping) ? NULL : w_p_get_idle_locked(p);
    if (p != NULL) {
        m->spinning = true;
        add_seq(&w_sched.spinning, 1); /* [WK-1] with the P, under the lock (W3) */
    }
    w_unlock(&w_sched.lock, W_RANK_SCHED);
    if (p != NULL)
        w_m_acquire(m, p);
    return NULL;
}

/* The next goroutine for this M; sleeps until there is one. NULL: the M must end. */
struct w_g *w_find(struct w_m *m)
{
    for (;;) {
        if (m->p == NULL && m->pinned_g == NULL)
            w_m_stop(m);
        else if (m->p == NULL)
            w_m_stop_pinned(m, NULL);
        if (m->p == NULL || ld_relaxed(&w_sched.stopping)) /* relaxed: [ST-1] who sets it closes our gate afterwards */
            return NULL;
        struct w_g *g = m->picked;
        m->picked = NULL;
        if (unlikely(ld_relaxed(&m->p->attn) & W_ATTN_RETIRE)) {
            if (g != NULL)
                w_globq_put(g, false);
            g = NULL;
            if (w_p_retire(m))
                continue;
        }
        if (unlikely(m->pinned_g != NULL) && g != m->pinned_g) {
            w_m_stop_pinned(m, g);
            continue;
        }
        if (g != NULL || (g = w_pick_first(m->p)) != NULL || (g = w_events_turn(m->p)) != NULL ||
            (g = w_pick_here(m->p)) != NULL || (g = poll_here(m->p)) != NULL || (g = steal_work(m)) != NULL ||
            (g = last_resort()) != NULL || (g = linger(m->p)) != NULL || (g = go_idle(m)) != NULL)
            return found(m, g);
    }
}
