/* SPDX-License-Identifier: MIT */
/*
 * Blocking regions: between weft_block_enter and weft_block_leave a goroutine's thread may sleep in the kernel.
 *
 * The P stays with the M at first, but marked: p->blocked_by = m. Whoever swaps that to NULL has the P: the M itself
 * when it comes back (a short call then costs two atomic operations), or the monitor if somebody waits for a P.
 *
 *      M:        blocked_by = m (release) .... call .... swap m -> NULL ?  yes: goes on with its P
 *                                                                          no: an idle P, else into the global queue
 *      monitor:              swap m -> NULL ?  yes: the P goes to another M
 *
 * A goroutine whose P had to be taken once will probably block as long the next time: it then gives its P away at once
 * if others wait for it, so many times, twice as many after each time that it was right. Unless so many are in such calls that
 * one of them comes back before a thread could be woken: that one takes the P, and no thread is woken at all.
 *
 * Regions that nobody announced. A goroutine that calls plain read(), usleep() or flock() stops its thread and its P. The
 * monitor notices: others wait, the P has not switched since the last look, and its thread uses no processor time and is
 * asleep, as the kernel tells (sysmon.c). It takes the P as w_rescue takes a goroutine out of a slot: the gate closed, a
 * membarrier, and the M outside the runtime (sched.c). The thread, when it comes back, runs on without a P until its next
 * runtime call, which finds the gate closed and waits for one. A thread that woke up at any point of this is either seen inside
 * the runtime, and keeps its P, or comes to the gate after it was closed.
 *
 * A runtime call inside the region ends it silently (w_enter finds the gate closed); the leave then has nothing to do.
 */
#include "netpoll.h"
#include "park.h"

enum { FIRST_HANDOFFS = 8, MAX_HANDOFFS = 1024 };
static const int64_t SOON = 30 * WEFT_USEC; /* it takes that long to wake a thread */

static void after_unblock(struct w_m *m, struct w_g *prev, void *arg)
{
    bool urgent = ld_relaxed(&prev->level) == W_HIGH;
    (void)m, (void)arg;
    w_lock(&w_sched.lock, W_RANK_SCHED);
    w_sched.retaken--; /* in one step with the queue: else a moment in which nothing seems to be left */
    w_globq_put_one_locked(prev, false);
    w_unlock(&w_sched.lock, W_RANK_SCHED);
    w_look_again();
    if (unlikely(urgent))
        w_urgent_ready();
}

/* How long it takes until one comes back without a P: a moving mean. */
static void note_return(void)
{
    int64_t now = w_now(), gap = now - ld_relaxed(&w_sched.last_return);
    int64_t mean = ld_relaxed(&w_sched.return_gap);
    st_relaxed(&w_sched.last_return, now); /* relaxed: a guess, whoever else writes it */
    st_relaxed(&w_sched.return_gap, mean + ((gap < WEFT_MSEC ? gap : WEFT_MSEC) - mean) / 8);
}

/* A P whose M is in a blocking region and has not given it away. Its goroutine is where ours was: nobody is counted. Under the
 * lock, and with p->m gone before it is open: the monitor could take the same P (sched.c, w_m_outside). */
static struct w_p *take_blocked_locked(void)
{
    uint32_t n = ld_acquire(&w_sched.p_count); /* [PC-1] */
    for (uint32_t i = 0; i < n; i++) {
        struct w_p *p = w_sched.ps[i];
        struct w_m *holder = ld_relaxed(&p->blocked_by);
        if (holder == NULL || !cas_acq_rel(&p->blocked_by, &holder, NULL)) /* [BL-1] */
            continue;
        st_relaxed(&p->m, NULL);
        w_count(&p->count.retaken);
        return p;
    }
    return NULL;
}

/* Goes on with the P, after those that wait for it already. */
static struct w_m *go_on_with(struct w_m *m, struct w_p *p)
{
    w_m_acquire(m, p);
    if (w_p_work(p) == 0) {
        if (w_traced())
            w_trace_run(m, m->g);
        return m;
    }
    w_set_state(m->g, W_RUNNABLE);
    w_switch_from(m, w_pick(p), w_after_yield, NULL);
    return w_m();
}

/* The P is gone: to an idle one, to that of somebody else who blocks, or to the end of the global queue. */
static struct w_m *wait_for_p(struct w_m *m)
{
    struct w_g *g = m->g;
    note_return();
    w_lock(&w_sched.lock, W_RANK_SCHED);
    bool stopping = ld_relaxed(&w_sched.stopping);
    struct w_p *p = stopping ? NULL : w_p_get_idle_locked(m->last_p);
    if (p != NULL)
        w_sched.retaken--;
    else if (!stopping)
        p = take_blocked_locked();
    w_unlock(&w_sched.lock, W_RANK_SCHED);
    if (p != NULL)
        return go_on_with(m, p);
    w_set_state(g, W_RUNNABLE);
    w_switch_from(m, NULL, after_unblock, NULL);
    return w_m();
}

static bool take_back(struct w_m *m, struct w_p *p)
{
    struct w_m *me = m;
    if (!cas_acq_rel(&p->blocked_by, &me, NULL)) /* [BL-1] the P's queues as we left them */
        return false;
    m->p = p;
    return true;
}

/* Its P had to be taken: others waited for it in vain. */
static void expect_long(struct w_g *g)
{
    uint32_t n = g->next_handoffs;
    n = n < FIRST_HANDOFFS ? FIRST_HANDOFFS : n * 2 < MAX_HANDOFFS ? n * 2 : MAX_HANDOFFS;
    g->handoffs = g->next_handoffs = (uint16_t)n;
}

/* Ends the region that m's goroutine is in. Returns with a P, perhaps on another M. */
struct w_m *w_block_end(struct w_m *m)
{
    struct w_p *p = ld_relaxed(&m->blocked_p);
    st_relaxed(&m->blocked_p, NULL);
    bool kept = take_back(m, p);
    if (w_traced())
        w_trace_unblock(m);
    if (!kept) {
        if (!m->gave_away)
            expect_long(m->g);
        m = wait_for_p(m);
    }
    w_set_state(m->g, W_RUNNING);
    w_probe_block_leave(m, m->g);
    return m;
}

/* Its P was taken while it was in a call that nobody announced. */
struct w_m *w_block_found_end(struct w_m *m)
{
    m->lost = false;
    if (w_traced())
        w_trace_found(m);
    m = wait_for_p(m);
    w_set_state(m->g, W_RUNNING);
    w_probe_block_leave(m, m->g);
    return m;
}

/* The P goes to somebody else while we block. */
static void give_away(struct w_p *p)
{
    st_relaxed(&p->m, NULL);
    w_lock(&w_sched.lock, W_RANK_SCHED);
    w_sched.retaken++;
    w_unlock(&w_sched.lock, W_RANK_SCHED);
    w_p_release(p);
}

/* The gate is marked last: who closes it meanwhile, to take the P, sees blocked_by, or the mark (sched.c, w_m_outside). */
static void begin(struct w_m *m)
{
    struct w_g *g = m->g;
    struct w_p *p = m->p;
    bool others = w_p_work(p) > 0;
    w_count(&p->count.regions);
    g->since = ld_relaxed(&w_sched.coarse_now);
    w_set_state(g, W_BLOCKED);
    w_probe_block_enter(m, g);
    if (w_traced())
        w_trace_block(m);
    st_relaxed(&m->blocked_p, p);
    m->p = NULL;
    m->gave_away = others && g->handoffs > 0 && ld_relaxed(&w_sched.return_gap) > SOON;
    if (m->gave_away) {
        g->handoffs--;
        w_count(&p->count.given);
        give_away(p);
    } else {
        if (others)
            w_expose(p);               /* nobody may count on us any more (W4) */
        st_release(&p->blocked_by, m); /* [BL-1] the P's queues, for whoever takes it */
        if (others)
            w_look_again();
        if (!ld_relaxed(&w_sched.timely) && (ld_relaxed(&p->timers.next) != WEFT_NEVER || w_poll_wanted()))
            w_monitor_wake(); /* it did not know of the timers and descriptors that nobody else sees to now (T4) */
    }
    st_release(&m->gate, W_GATE_REGION); /* [GT-2] after blocked_by */
}

void weft_block_enter(void)
{
    struct w_m *m = w_enter();
    if (m == NULL)
        return;
    m->g->blocks++;
    m->g->flags |= W_G_BLOCKING;
    begin(m);
    w_step_out(m);
}

void weft_block_leave(void)
{
    struct w_m *m = w_m();
    if (m == NULL)
        return;
    st_relaxed(&m->in_runtime, 1);
    w_compiler_barrier();
    struct w_p *p = ld_relaxed(&m->blocked_p);
    if (likely(p != NULL && take_back(m, p))) {
        st_relaxed(&m->blocked_p, NULL);
        st_relaxed(&m->gate, p);
        w_set_state(m->g, W_RUNNING);
        w_probe_block_leave(m, m->g);
        if (w_traced())
            w_trace_unblock(m);
        w_fence_seq(); /* [ST-1] the gate is open before we look whether the run ends */
        if (unlikely(ld_relaxed(&w_sched.stopping)) || unlikely(ld_relaxed(&p->attn) & W_ATTN_RETIRE) ||
            unlikely(ld_relaxed(&m->preempt) != W_GO_ON))
            m = w_enter_slow(m);
    } else {
        m = w_enter();
    }
    struct w_g *g = m->g;
    if (g->blocks == 0)
        w_fatal("weft_block_leave without weft_block_enter in goroutine %lu", g->id);
    if (--g->blocks > 0) {
        begin(m);
        w_step_out(m);
        return;
    }
    g->flags &= (uint16_t)~W_G_BLOCKING;
    w_leave();
}

/* Monitor: m has been blocked long enough. */
void w_p_retake(struct w_p *p, struct w_m *m)
{
    struct w_m *holder = m;
    if (!cas_acq_rel(&p->blocked_by, &holder, NULL)) /* [BL-1] */
        return;
    w_count(&p->count.retaken);
    if (w_traced())
        w_trace_retaken(m, p);
    give_away(p);
}

bool w_p_take(struct w_p *p, struct w_m *m)
{
    w_lock(&w_sched.lock, W_RANK_SCHED);
    bool taken = w_m_outside(p, m);
    if (taken) {
        m->p = NULL;
        m->lost = true;
        m->g->since = ld_relaxed(&w_sched.coarse_now);
        w_set_state(m->g, W_BLOCKED);
        w_count(&p->count.found);
        w_probe_block_found(m, m->g);
        if (w_traced())
            w_trace_taken_locked(m, p);
        st_relaxed(&p->m, NULL);
        w_sched.retaken++;
    }
    w_unlock(&w_sched.lock, W_RANK_SCHED);
    if (taken)
        w_p_release(p);
    return taken;
}

/* ---- regions that are waited for --------------------------------------------------------------------------------- */

int w_stay_begin(void)
{
    if (w_m() == NULL)
        return w_foreign_enter();
    weft_block_enter();
    if (!w_enter_quietly(w_m())) /* as far as the end of the run can tell it is inside */
        weft_block_leave();      /* its run has left it behind: this does not return */
    return 0;
}

void w_stay_end(void)
{
    if (w_m() == NULL) {
        w_foreign_leave();
        return;
    }
    w_step_out(w_m());
    weft_block_leave();
}
