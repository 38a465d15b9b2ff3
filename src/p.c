/* SPDX-License-Identifier: MIT */
/*
 * P: the logical processors, what runs goroutines in parallel; their idle list; changing their number.
 *
 * A P struct is made once and stays until the run ends, so thieves and the monitor may look at any of them at any time.
 * A P beyond the wanted number is dead. Growing revives or makes Ps and puts them on the idle list. Shrinking kills the
 * idle ones at once; a P that is in use is asked to retire, and its M empties it into the global queue at its next
 * runtime call. Nothing is stopped for either.
 */
#include "timer.h"
#include "weft_internal.h"
#include <stdlib.h>
#include <string.h>

static struct w_p *make_p(uint32_t id)
{
    struct w_p *p = aligned_alloc(W_CACHE_LINE, sizeof *p);
    if (p == NULL)
        return NULL;
    if (w_stacks_reserve(0, W_STACK_CACHE) != 0) {
        free(p);
        return NULL;
    }
    memset(p, 0, sizeof *p);
    p->id = id;
    p->status = W_P_DEAD;
    p->seen_at = p->aged_at = w_now(); /* its first quantum begins now, not at the beginning of time */
    w_timers_init(&p->timers);
    p->rng = (w_sched.seed + id + 1) * 0x9E3779B97F4A7C15ull | 1;
    return p;
}

/* ---- the idle list ---------------------------------------------------------------------------------------------- */

static void push_idle_locked(struct w_p *p)
{
    p->status = W_P_IDLE;
    p->link = w_sched.idle_ps;
    p->prev = NULL;
    if (p->link != NULL)
        p->link->prev = p;
    w_sched.idle_ps = p;
    st_relaxed(&w_sched.idle_p_count, ld_relaxed(&w_sched.idle_p_count) + 1);
    w_places_idle_locked(p, true);
}

static void remove_idle_locked(struct w_p *p, enum w_pstatus status)
{
    if (p->prev != NULL)
        p->prev->link = p->link;
    else
        w_sched.idle_ps = p->link;
    if (p->link != NULL)
        p->link->prev = p->prev;
    st_relaxed(&w_sched.idle_p_count, ld_relaxed(&w_sched.idle_p_count) - 1);
    w_places_idle_locked(p, false);
    p->status = status;
}

/* The M that held p has let go of it. */
void w_p_idle_locked(struct w_p *p)
{
    st_relaxed(&p->m, NULL);
    p->placed_first = false;
    p->lowered++; /* nobody waits here */
    w_sched.busy_ps--;
    if (ld_relaxed(&p->attn) & W_ATTN_RETIRE) {
        atomic_fetch_and_explicit(&p->attn, ~(uint32_t)W_ATTN_RETIRE, memory_order_relaxed);
        p->status = W_P_DEAD;
    } else {
        push_idle_locked(p);
    }
    w_check_dead_locked();
}

/* The nearest to where the work is; the one that idled last, if they are all as near. */
struct w_p *w_p_get_idle_locked(const struct w_p *near)
{
    const struct w_places *places = ld_relaxed(&w_sched.places); /* relaxed: written under the lock that we hold */
    struct w_p *p = w_sched.idle_ps;
    if (p == NULL)
        return NULL;
    if (unlikely(places != NULL))
        p = w_nearest_idle_locked(places, near);
    remove_idle_locked(p, W_P_RUNNING);
    if (w_sched.busy_ps++ == 0 && ld_relaxed(&w_sched.monitor_asleep))
        w_monitor_wake();
    return p;
}

/* ---- their number ----------------------------------------------------------------------------------------------- */

/* Ps [0, n) exist afterwards. */
static int make_up_to(uint32_t n)
{
    for (uint32_t i = ld_relaxed(&w_sched.p_count); i < n; i++) {
        struct w_p *p = make_p(i);
        if (p == NULL)
            return -ENOMEM;
        w_sched.ps[i] = p;
        st_release(&w_sched.p_count, i + 1); /* [PC-1] publishes ps[i] */
    }
    return 0;
}

static void revive_locked(struct w_p *p)
{
    if (p->status == W_P_DEAD)
        push_idle_locked(p);
    else
        atomic_fetch_and_explicit(&p->attn, ~(uint32_t)W_ATTN_RETIRE, memory_order_relaxed);
}

static void retire_locked(struct w_p *p)
{
    if (p->status == W_P_IDLE) {
        remove_idle_locked(p, W_P_DEAD);
        return;
    }
    atomic_fetch_or_explicit(&p->attn, W_ATTN_RETIRE, memory_order_relaxed);
    for (struct w_m *m = w_sched.all_ms; m != NULL; m = m->all_next)
        if (ld_relaxed(&m->gate) == p)
            st_relaxed(&m->gate, NULL); /* relaxed: a request; the M that misses it meets it at its next search */
}

static void set_count(uint32_t n)
{
    w_lock(&w_sched.lock, W_RANK_SCHED);
    uint32_t former = ld_relaxed(&w_sched.procs);
    st_relaxed(&w_sched.procs, n);
    for (uint32_t i = former; i < n; i++)
        revive_locked(w_sched.ps[i]);
    for (uint32_t i = n; i < former; i++)
        retire_locked(w_sched.ps[i]);
    w_unlock(&w_sched.lock, W_RANK_SCHED);
}

/* Called on the M's own stack: empties the P that it holds and lets go of it. false: it may live after all. */
bool w_p_retire(struct w_m *m)
{
    struct w_p *p = m->p;
    struct w_g *batch[W_RUNQ_SIZE / 2];
    uint32_t n;
    w_expose(p);
    while ((n = w_runq_steal(&p->runq, batch, W_RUNQ_SIZE / 2)) > 0)
        w_globq_put_many(batch, n, false);
    while ((n = w_fresh_shed(&p->fresh, batch, W_RUNQ_SIZE / 2)) > 0)
        w_globq_put_many(batch, n, true);
    w_gs_flush(p);
    w_stack_cache_flush(p, 0);
    w_lock(&w_sched.lock, W_RANK_SCHED);
    bool retire = ld_relaxed(&p->attn) & W_ATTN_RETIRE;
    if (retire) {
        m->p = NULL;
        st_relaxed(&m->gate, NULL);
        if (m->spinning)
            sub_seq(&w_sched.spinning, 1); /* [WK-1] */
        m->spinning = false;
        w_p_idle_locked(p);
    }
    w_unlock(&w_sched.lock, W_RANK_SCHED);
    w_look_again();
    return retire;
}

static int change_procs(int n)
{
    if (n > W_MAX_PROCS)
        n = W_MAX_PROCS;
    w_lock(&w_sched.procs_lock, W_RANK_PROCS);
    int former = (int)ld_relaxed(&w_sched.procs);
    int r = 0;
    if (n > 0 && n != former && (r = make_up_to((uint32_t)n)) == 0 &&
        (r = w_places_update(ld_relaxed(&w_sched.p_count))) == 0) {
        set_count((uint32_t)n);
        w_look_again();
    }
    w_unlock(&w_sched.procs_lock, W_RANK_PROCS);
    return r == 0 ? former : r;
}

int weft_procs(int n)
{
    if (w_enter() != NULL) {
        int r = change_procs(n);
        w_leave();
        return r;
    }
    int r = w_foreign_enter();
    if (r != 0)
        return r;
    r = change_procs(n);
    w_foreign_leave();
    return r;
}

/* Exact while no P is held by an M: only a holder fills its queues. */
bool w_ps_have_work(void)
{
    uint32_t n = ld_acquire(&w_sched.p_count); /* [PC-1] */
    for (uint32_t i = 0; i < n; i++)
        if (w_p_work(w_sched.ps[i]) > 0)
            return true;
    return false;
}

/* ---- begin and end of a run ------------------------------------------------------------------------------------- */

int w_ps_init(uint32_t n)
{
    int r = make_up_to(n);
    if (r == 0)
        r = w_places_update(n);
    if (r == 0)
        set_count(n);
    return r;
}

void w_ps_free(void)
{
    for (uint32_t i = 0; i < ld_relaxed(&w_sched.p_count); i++) {
        w_timers_free(&w_sched.ps[i]->timers);
        free(w_sched.ps[i]);
    }
}
