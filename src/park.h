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

/* The first deed of a context that was switched to: see to the one that was left. */
static inline void w_landed(struct w_m *m)
{
    w_after *after = m->after;
    struct w_g *g = m->g;
    if (g != NULL) {
        W_SAN_ARRIVE(g);
        *m->errno_at = g->err;
    } else {
        W_SAN_ARRIVE(m);
    }
    if (after != NULL) {
        m->after = NULL;
        after(m, m->prev, m->after_arg);
    }
}

static inline void w_enter_g(struct w_m *m, struct w_g *n)
{
    if (unlikely(n->stack_lo == NULL) && !w_g_bind(m->p, n))
        w_fatal("no memory for the stack of goroutine %lu", n->id);
    w_count(&m->p->count.switches);
    w_set_state(n, W_RUNNING);
    m->g = n;
}

/* Leaves the running goroutine for n (NULL: for the search on the M's own stack). `after` is done to it when it is off
 * its stack. Returns when it is resumed, perhaps on another M. */
static inline __attribute__((always_inline)) void w_switch_from(struct w_m *m, struct w_g *n, w_after *after, void *arg)
{
    struct w_g *g = m->g;
    g->err = *m->errno_at;
    if (unlikely(g->flags & W_G_CANARY))
        w_check_canary(g);
    m->prev = g;
    m->after = after;
    m->after_arg = arg;
    if (n != NULL && unlikely((g->flags | n->flags) & W_G_PINNED)) {
        m->picked = n; /* it or we need a certain thread: not decided here */
        n = NULL;
    }
    struct w_eh eh = {0};
    if (m->eh_at != NULL)
        eh = *m->eh_at;
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
    if (m->eh_at != NULL)
        *m->eh_at = eh;
    w_landed(m);
}

/* Puts the running goroutine to sleep. `after(arg)` lets go of what guards its waking, once it is off its stack. */
static inline __attribute__((always_inline)) void w_park(w_after *after, void *arg, enum w_reason reason,
                                                         const void *object)
{
    struct w_m *m = w_m();
    struct w_g *g = m->g;
    g->reason = (uint8_t)reason;
    g->waits_on = object;
    g->since = ld_relaxed(&w_sched.coarse_now);
    w_set_state(g, W_WAITING);
    w_count(&m->p->count.parks);
    w_switch_from(m, w_pick(m->p), after, arg);
}

#endif
