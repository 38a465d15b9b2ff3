/* SPDX-License-Identifier: MIT */
/*
 * Leaving a thread to another goroutine, as code to be inlined: every function that a goroutine returns from after a
 * switch is a return that the processor predicts wrongly (7 ns), because the calls were made by somebody else. The
 * public calls that wait contain the switch themselves.
 */
#ifndef W_PARK_H
#define W_PARK_H

#include "switch.h"
#include "weft_internal.h"

/* Whoever is stopped by a signal while a register holds an address in the thread's own storage is pinned (preempt.c, PR5), be it
 * one that nobody needs any more: so none is left behind in the register that had it. */
#if defined(__x86_64__)
#define W_FORGET(address) __asm__ volatile("xorl %k0, %k0" : "+r"(address) : : "cc")
#else
#define W_FORGET(address) __asm__ volatile("mov %0, xzr" : "+r"(address))
#endif

static inline int w_get_errno(const struct w_m *m)
{
    int *at = m->errno_at, err = *at;
    W_FORGET(at);
    return err;
}

static inline void w_set_errno(const struct w_m *m, int err)
{
    int *at = m->errno_at;
    *at = err;
    W_FORGET(at);
}

/* The C++ runtime keeps exceptions in flight for each thread; here they are a goroutine's. Whoever leaves with some takes them along,
 * and leaves none behind: so whoever comes finds none, and nobody else has anything to do. */
static inline bool w_carries_eh(const struct w_m *m)
{
    struct w_eh *at = m->eh_at;
    if (likely(at == NULL))
        return false;
    bool some = at->caught != NULL || at->uncaught != 0;
    W_FORGET(at);
    return some;
}

static inline struct w_eh w_swap_eh(const struct w_m *m, struct w_eh eh)
{
    struct w_eh *at = m->eh_at, before = *at;
    *at = eh;
    W_FORGET(at);
    return before;
}

/* The first deed of a context that was switched to: see to the one that was left. */
static inline void w_landed(struct w_m *m)
{
    w_after *after = m->after;
    struct w_g *g = m->g;
    if (g != NULL) {
        W_SAN_ARRIVE(g);
        w_set_errno(m, g->err);
    } else {
        W_SAN_ARRIVE(m);
    }
    if (after != NULL) {
        m->after = NULL;
        after(m, m->prev, m->after_arg);
    }
}

/* One of that level runs on p. */
static inline __attribute__((always_inline)) void w_p_runs(struct w_p *p, int8_t level)
{
    int8_t before = ld_relaxed(&p->level);
    if (likely(before == level)) /* a store each time costs a start 1.4 ns */
        return;
    p->lowered += before == W_HIGH;
    st_relaxed(&p->level, level); /* relaxed: who looks for a P to preempt may see it late */
}

/* From here on n runs on m. (Always inlined, and so the next: compilers take the note of a probe for much code.) */
static inline __attribute__((always_inline)) void w_begin_run(struct w_m *m, struct w_g *n)
{
    struct w_p *p = m->p;
    w_count(&p->count.switches);
    w_p_runs(p, ld_relaxed(&n->level));
    w_set_state(n, W_RUNNING);
    w_probe_switch(m, p, n);
    m->g = n;
}

static inline __attribute__((always_inline)) void w_enter_g(struct w_m *m, struct w_g *n)
{
    if (unlikely(n->stack_lo == NULL) && !w_g_bind(m->p, n))
        w_fatal("no memory for the stack of goroutine %lu", n->id);
    w_begin_run(m, n);
}

static inline __attribute__((always_inline)) struct w_m *w_switch_told(struct w_m *m, struct w_g *n, w_after *after,
                                                                       void *arg, bool traced)
{
    struct w_g *g = m->g;
    g->err = w_get_errno(m);
    m->prev = g;
    m->after = after;
    m->after_arg = arg;
    if (unlikely(n == NULL || (g->flags | n->flags) & (W_G_APART | W_G_CANARY)))
        n = w_switch_target(m, g, n);
    if (traced)
        w_trace_switch(m, g, n);
    if (n != NULL) {
        w_enter_g(m, n);
        W_SAN_LEAVE(g, n, n->stack_lo, w_stack_size(n->stack_class), ld_relaxed(&g->state) == W_DEAD);
        w_switch(&g->sp, n->sp);
    } else {
        m->g = NULL;
        W_SAN_LEAVE(g, m, m->own_lo, m->own_size, ld_relaxed(&g->state) == W_DEAD);
        w_switch(&g->sp, m->sp);
    }
    m = w_m();
    w_landed(m);
    return m;
}

/* Leaves the running goroutine for n (NULL: for the search on the M's own stack). `after` is done to it when it is off
 * its stack. Returns when it is resumed, with the M on which. Traced, or with exceptions in flight, it is a copy of its own: a call in
 * the midst of this one would cost registers all the time. */
static inline __attribute__((always_inline)) struct w_m *w_switch_from(struct w_m *m, struct w_g *n, w_after *after,
                                                                       void *arg)
{
    if (w_traced() || unlikely(w_carries_eh(m)))
        return w_switch_slow(m, n, after, arg);
    return w_switch_told(m, n, after, arg, false);
}

/* Puts the running goroutine to sleep. `after(arg)` lets go of what guards its waking, once it is off its stack. */
static inline __attribute__((always_inline)) void w_park(w_after *after, void *arg, enum w_reason reason,
                                                         const void *object)
{
    struct w_m *m = w_m();
    struct w_g *g = m->g;
    st_relaxed(&g->reason, (uint8_t)reason); /* relaxed: dumps and lenders only guess, and ask again under a lock */
    st_relaxed(&g->waits_on, object);
    g->since = ld_relaxed(&w_sched.coarse_now);
    w_set_state(g, W_WAITING);
    w_count(&m->p->count.parks);
    w_probe_park(g, reason, object);
    w_switch_from(m, w_pick(m->p), after, arg);
}

#endif
