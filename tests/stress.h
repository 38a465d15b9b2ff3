/* SPDX-License-Identifier: MIT */
/*
 * What the stress tests share: the numbers of Ps that each of them runs with, a random stream per goroutine, and a look
 * inside the scheduler when a case aborts, be it by the harness's time limit (a lost wake-up is a hang) or by a broken
 * invariant.
 */
#ifndef STRESS_H
#define STRESS_H

#include "check.h"
#include "whitebox.h"
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

static const int STRESS_PROCS[] = {1, 2, 3, 8, 64};
enum { STRESS_PROCS_COUNT = sizeof STRESS_PROCS / sizeof STRESS_PROCS[0], STRESS_SHOWN = 20 };

static inline int stress_scaled(int n)
{
    return n / check_scale() > 0 ? n / check_scale() : 1;
}

/* A stream of its own for whatever has a number. */
static inline uint64_t stress_stream(uint64_t seed, uint64_t number)
{
    uint64_t x = (seed ^ number * 0x9E3779B97F4A7C15ull) * 0xBF58476D1CE4E5B9ull;
    return (x ^ x >> 29) | 1;
}

/* Runs fn with so many Ps and expects the run to end well. */
static inline void stress_run(int procs, uint64_t seed, weft_fn *fn, void *arg)
{
    weft_config c = {.procs = procs, .seed = seed};
    CHECK_EQ(weft_run_with(&c, fn, arg), 0);
}

/* ---- when it hangs ---------------------------------------------------------------------------------------------- */

static void stress_show_p(const struct w_p *p)
{
    struct w_p *q = (struct w_p *)p;
    w_say("P%u status %d attn %u m %p blocked_by %p slot %p runq %u fresh %u", p->id, (int)p->status,
          ld_relaxed(&q->attn), (void *)ld_relaxed(&q->m), (void *)ld_relaxed(&q->blocked_by),
          (void *)ld_relaxed(&q->slot), w_runq_len(&q->runq), w_fresh_len(&q->fresh));
}

static void stress_show_m(const struct w_m *m)
{
    struct w_m *q = (struct w_m *)m;
    w_say("M%u %p p %p g %p in_runtime %u spinning %d idle %d wake %u next_p %p pinned_g %p", m->id, (void *)m,
          (void *)m->p, (void *)m->g, ld_relaxed(&q->in_runtime), m->spinning, m->idle, ld_relaxed(&q->wake),
          (void *)m->next_p, (void *)m->pinned_g);
}

static void stress_show_g(struct w_g *g, void *arg)
{
    int *counts = arg;
    enum w_state state = ld_relaxed(&g->state);
    if (state == W_IDLE || state == W_DEAD || counts[state]++ >= STRESS_SHOWN)
        return;
    w_say("G%lu %p %s flags %u waits on %p pinned to %p", g->id, (void *)g, w_state_name(state), g->flags, g->waits_on,
          (void *)g->pinned);
}

static void stress_show(int sig)
{
    static _Atomic bool shown;
    (void)sig;
    if (atomic_exchange(&shown, true))
        return;
    signal(SIGALRM, SIG_DFL); /* the look itself may hang */
    alarm(5);
    struct w_sched *s = &w_sched;
    w_say(
        "stopping %d procs %u busy %u idle Ps %u spinning %u globq %u retaken %d Ms %u idle %u foreign %u attentive %d",
        ld_relaxed(&s->stopping), ld_relaxed(&s->procs), s->busy_ps, ld_relaxed(&s->idle_p_count),
        ld_relaxed(&s->spinning), ld_relaxed(&s->globq.len), s->retaken, s->m_count, s->idle_m_count,
        ld_relaxed(&s->foreign), ld_relaxed(&s->attentive));
    for (uint32_t i = 0; i < ld_relaxed(&s->p_count); i++)
        stress_show_p(s->ps[i]);
    for (struct w_m *m = s->all_ms; m != NULL; m = m->all_next)
        stress_show_m(m);
    int counts[W_DEAD + 1] = {0};
    w_gs_each(stress_show_g, counts);
    for (int i = 0; i <= W_DEAD; i++)
        if (counts[i] > 0)
            w_say("%d goroutines are %s", counts[i], w_state_name((enum w_state)i));
}

__attribute__((constructor)) static void stress_show_on_abort(void)
{
    signal(SIGABRT, stress_show);
}

#endif
