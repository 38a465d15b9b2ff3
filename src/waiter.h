/* SPDX-License-Identifier: MIT */
/*
 * How anybody waits for anything.
 *
 * A wait (struct w_wait) lies on the waiter's stack, with a node (struct w_waiter) for each object that may end it: one for
 * a lock, several for a select. The nodes hang in the objects' queues, under the objects' guards. Whoever ends the wait
 * takes a node out of a queue, claims the wait, says what happened, and wakes the waiter, in this order, and touches
 * neither node nor wait afterwards.
 *
 * A wait that one object alone can end is claimed by taking its node. One that may also be ended by another object, by a
 * timer, or by the end of its scope (a cut) has a ticket: a word in the G, which is never unmapped, with the number of
 * the wait and one of
 *
 *      OPEN ───────> CLAIMED      by an object or a timer, which knows the number from the node
 *       └──────────> CUT          by the scope, which knows only the G
 *      SHIELDED ───> CLAIMED      open to objects, not to the scope
 *
 * One swap decides. The ticket is opened only when the waiter is off its stack (by the w_after of its park), so whoever
 * swaps it may wake the waiter at once. A waiter that was cut takes its nodes out of the queues itself.
 *
 * Invariants:
 *   WA1  a node is in a queue iff `linked`; both change under the guard of the queue
 *   WA2  a linked node's frame is alive: its owner takes it out under the guard before it returns
 *   WA3  a wait is ended once: by the one who swapped its ticket or, without a ticket, took its only node
 *   WA4  the ticket is opened under a lock that the waiter takes before it returns, if it was not the holder of that lock
 *        who ended the wait: so whoever opens it may read the frame until he lets go of the lock
 *   WA5  scope: `over` is set, then tickets are looked at; waiter: its ticket is opened, then `over` is looked at, each with a
 *        full fence between: one of the two sees the other                                            [SC-1]
 *
 * Queues outlive runs, their waiters do not: a queue remembers the run that filled it, and is empty in any other.
 * A foreign thread waits with a G of its own that stands for it (foreign.c), and always with a ticket: the end of the run
 * cuts it.
 */
#ifndef W_WAITER_H
#define W_WAITER_H

#include "park.h"
#include "scope.h"

enum { W_OPEN = 1, W_SHIELDED = 2, W_CLAIMED = 3, W_CUT = 4, W_TICKET_BITS = 3 };
#define W_TICKET_STATE(t) ((t) & (((uint64_t)1 << W_TICKET_BITS) - 1))

struct w_waiter;

struct w_wait {
    struct w_g *g;
    uint64_t ticket;      /* as it is opened; 0: the only node is the claim. Constant during the wait */
    struct w_waiter *won; /* the node that ended it; whoever claimed it */
    int result;           /* what the call returns; whoever claimed it */
};

struct w_waiter {
    struct w_waiter *next, *prev; /* guard of the queue */
    struct w_waitq *q;            /* that it is or was in; guard of the queue */
    struct w_waiter *twin;        /* ring of the nodes of this wait at the same channel, or NULL (select.c); constant */
    struct w_wait *wait;          /* constant */
    void *value;                  /* what is handed over, or where to; constant */
    int64_t n;                    /* what the object wants to know: a weight, a kind, an index; constant */
    bool linked;                  /* guard of the queue */
};

/* What struct weft_waiters_ is inside. */
struct w_waitq {
    _Atomic(struct w_waiter *) head; /* written under guard; a peek without it sees whether anybody waits */
    struct w_waiter *tail;           /* guard */
    uint32_t run;                    /* that filled it; guard */
    struct w_spin guard;             /* of the object that the queue is part of, if it has no other */
};
_Static_assert(sizeof(struct w_waitq) == sizeof(struct weft_waiters_), "the header knows its size");

static inline struct w_waitq *w_waitq_of(struct weft_waiters_ *w)
{
    return (struct w_waitq *)(void *)w;
}

/* ---- queues, under their guard ---------------------------------------------------------------------------------- */

/* Of another run, or of one that has ended: those who waited are gone, or about to be. */
static inline bool w_run_is_over(uint32_t run)
{
    uint32_t now = ld_relaxed(&w_sched.run); /* relaxed: it changes only when no goroutine is left to be woken */
    return run != now || now % 2 == 0;
}

static inline bool w_waitq_stale(const struct w_waitq *q)
{
    return w_run_is_over(q->run);
}

/* The first in turn, or NULL; not claimed yet. */
static inline struct w_waiter *w_waitq_first(struct w_waitq *q)
{
    struct w_waiter *w = ld_relaxed(&q->head);
    if (w != NULL && unlikely(w_waitq_stale(q))) {
        st_relaxed(&q->head, NULL); /* who peeks without the guard sees it too */
        w = NULL;
    }
    return w;
}

static inline void w_waitq_put(struct w_waitq *q, struct w_waiter *w)
{
    struct w_waiter *first = w_waitq_first(q);
    w->next = NULL;
    w->prev = first != NULL ? q->tail : NULL;
    w->q = q;
    w->linked = true;
    if (first != NULL)
        q->tail->next = w;
    else
        st_relaxed(&q->head, w);
    q->tail = w;
    q->run = ld_relaxed(&w_sched.run);
}

/* Out of turn. Nothing is done if somebody has taken it, or the run has ended under it. */
static inline void w_waitq_remove(struct w_waiter *w)
{
    struct w_waitq *q = w->q;
    if (!w->linked || w_waitq_stale(q))
        return;
    w->linked = false;
    if (w->prev != NULL)
        w->prev->next = w->next;
    else
        st_relaxed(&q->head, w->next);
    if (w->next != NULL)
        w->next->prev = w->prev;
    else
        q->tail = w->prev;
}

/* The first, which is known to be there. */
static inline void w_waitq_drop_first(struct w_waitq *q, struct w_waiter *first)
{
    struct w_waiter *next = first->next;
    first->linked = false;
    st_relaxed(&q->head, next);
    if (next != NULL)
        next->prev = NULL;
}

/* Ends the wait in favour of w. false: somebody else has ended it. */
static inline bool w_claim(struct w_waiter *w)
{
    struct w_wait *wait = w->wait;
    uint64_t open = wait->ticket;
    if (open != 0 &&
        !cas_acq_rel(&wait->g->ticket, &open, open - W_TICKET_STATE(open) + W_CLAIMED)) /* [TK-1] one winner */
        return false;
    wait->won = w;
    return true;
}

/* The first whose wait could be claimed, or NULL. Whoever takes it says the result, opens the guard, and wakes it. */
static inline struct w_waiter *w_waitq_take(struct w_waitq *q)
{
    struct w_waiter *w;
    while ((w = w_waitq_first(q)) != NULL) {
        w_waitq_drop_first(q, w);
        if (likely(w_claim(w)))
            return w;
    }
    return NULL;
}

/* Those whose waits were claimed, in turn. They are woken when the guard is open: then neither nodes nor waits are touched
 * again, of a million of which none is in a cache any more. */
struct w_claimed {
    struct w_g *first, *last; /* linked by `link` */
};

static inline void w_claimed_add(struct w_claimed *c, struct w_waiter *w, int result)
{
    struct w_g *g = w->wait->g;
    w->wait->result = result;
    g->link = NULL;
    if (c->last != NULL)
        c->last->link = g;
    else
        c->first = g;
    c->last = g;
}

static inline void w_waitq_take_all(struct w_waitq *q, int result, struct w_claimed *c)
{
    struct w_waiter *w;
    while ((w = w_waitq_take(q)) != NULL)
        w_claimed_add(c, w, result);
}

/* ---- waking ----------------------------------------------------------------------------------------------------- */

static inline void w_wake_g(struct w_g *g)
{
    if (unlikely(g->flags & W_G_FOREIGN))
        w_foreign_wake(g);
    else
        w_ready(g);
}

/* Of a claimed wait. Its frame may be gone from here on. */
static inline void w_wake(struct w_waiter *w)
{
    w_wake_g(w->wait->g);
}

/* One runs next, as a hand-off; several take their turns. */
static inline void w_wake_all(const struct w_claimed *c)
{
    struct w_g *g = c->first;
    if (g != NULL && g == c->last)
        w_wake_g(g);
    else if (g != NULL)
        w_wake_several(g);
}

/* ---- waiting ---------------------------------------------------------------------------------------------------- */

/* Why a wait may not begin: -ECANCELED, -ETIMEDOUT: its scope is over; -EPERM: a foreign thread, and no runtime is up. */
static inline int w_wait_refused(struct w_g *g)
{
    if (likely(g->scope == NULL && !(g->flags & W_G_FOREIGN)))
        return 0;
    return w_wait_refused_slow(g);
}

/* Can its scope cut its waits? */
static inline bool w_cuttable(const struct w_g *g)
{
    return g->scope != NULL && g->shields == 0;
}

/* How many may end it. */
enum w_enders {
    W_ONE,     /* one object, or the scope */
    W_SEVERAL, /* several objects, or an object and a timer, or the scope */
    W_NO_CUT,  /* one object alone, whatever the scope says */
};

static inline void w_wait_init(struct w_wait *wait, struct w_g *g, enum w_enders enders)
{
    bool cuttable = w_cuttable(g) && enders != W_NO_CUT;
    wait->g = g;
    wait->ticket = 0;
    wait->won = NULL;
    wait->result = 0;
    if (unlikely(cuttable || enders == W_SEVERAL || g->flags & W_G_FOREIGN)) {
        uint64_t number = (ld_relaxed(&g->ticket) >> W_TICKET_BITS) + 1; /* relaxed: between waits it is ours */
        wait->ticket = number << W_TICKET_BITS | (cuttable ? W_OPEN : W_SHIELDED);
    }
}

static inline void w_waiter_init(struct w_waiter *w, struct w_wait *wait, void *value, int64_t n)
{
    w->twin = NULL;
    w->wait = wait;
    w->value = value;
    w->n = n;
    w->linked = false;
}

/* The waiter is off its stack, and the guards of its queues are still held: from here on it can be cut. true: its scope is
 * over already, and the caller has cut it: he opens the guards, then wakes the G. */
static inline bool w_wait_open(struct w_wait *wait)
{
    struct w_g *g = wait->g;
    uint64_t open = wait->ticket;
    if (likely(open == 0))
        return false;
    st_release(&g->ticket, open); /* [TK-1] the wait, for whoever claims it */
    if (W_TICKET_STATE(open) != W_OPEN)
        return false;
    w_fence_seq(); /* [SC-1] */
    return w_scope_over(g->scope) != 0 && w_cut(g);
}

/* Sleeps until somebody has ended the wait. after(arg) opens the wait, then the guards. Of a goroutine it also starts the
 * timer, if there is one; a foreign thread ends its wait itself when that is due. */
static inline __attribute__((always_inline)) void w_wait_sleep(struct w_wait *wait, w_after *after, void *arg,
                                                               enum w_reason reason, const void *object,
                                                               const struct w_timer *timer)
{
    if (likely(!(wait->g->flags & W_G_FOREIGN)))
        w_park(after, arg, reason, object);
    else
        w_foreign_sleep(wait, after, arg, timer);
}

/* 0: it was claimed. Else why it was cut. */
static inline int w_wait_cut(const struct w_wait *wait)
{
    return likely(wait->won != NULL) ? 0 : w_cut_error(wait->g);
}

/* For objects whose guard is that of their one queue. */
struct w_queued {
    struct w_wait wait;
    struct w_waiter node;
    struct w_waitq *q;
};

static inline void w_after_queued(struct w_m *m, struct w_g *prev, void *arg)
{
    struct w_queued *self = arg;
    struct w_g *g = self->wait.g;
    struct w_waitq *q = self->q;
    (void)m, (void)prev;
    bool cut = w_wait_open(&self->wait);
    w_spin_unlock(&q->guard);
    if (unlikely(cut))
        w_wake_g(g);
}

/*
 * Waits at the end of q, whose guard the caller holds, for whoever takes the node; n is for that one. Returns what he said,
 * with the guard open and q perhaps gone. If the wait is cut (not with W_NO_CUT) or refused it returns why, with the guard held and the node out of
 * the queue: the caller sees to those behind it, and opens the guard.
 */
static inline __attribute__((always_inline)) int w_wait_in(struct w_waitq *q, struct w_g *g, int64_t n,
                                                           enum w_enders enders, enum w_reason reason,
                                                           const void *object, bool *cut)
{
    struct w_queued self = {.q = q};
    *cut = true;
    int r = enders != W_NO_CUT ? w_wait_refused(g) : g->flags & W_G_FOREIGN && !w_up() ? -EPERM : 0;
    if (unlikely(r != 0))
        return r;
    w_wait_init(&self.wait, g, enders);
    w_waiter_init(&self.node, &self.wait, NULL, n);
    w_waitq_put(q, &self.node);
    w_wait_sleep(&self.wait, w_after_queued, &self, reason, object, NULL);
    r = w_wait_cut(&self.wait);
    *cut = r != 0;
    if (likely(r == 0))
        return self.wait.result;
    w_spin_lock(&q->guard);
    w_waitq_remove(&self.node);
    return r;
}

/* ---- the way in and out of a call ------------------------------------------------------------------------------- */

/* Who calls: the running goroutine, or the G that stands for this foreign thread. */
static inline struct w_g *w_call_begin(void)
{
    struct w_m *m = w_enter();
    return likely(m != NULL) ? m->g : w_foreign_begin();
}

/* Likewise, but whatever is wanted of us is seen to only when we leave. NULL: its run has left it behind. */
static inline struct w_g *w_call_begin_quietly(void)
{
    struct w_m *m = w_m();
    if (unlikely(m == NULL))
        return w_foreign_begin();
    return w_enter_quietly(m) ? m->g : NULL;
}

static inline void w_call_end(const struct w_g *g)
{
    if (likely(!(g->flags & W_G_FOREIGN)))
        w_leave();
    else
        w_foreign_leave();
}

/* ---- mutexes, for who is inside a call ---------------------------------------------------------------------------- */

int w_mutex_lock(weft_mutex *mu, struct w_g *g, enum w_enders enders);
bool w_mutex_unlock(weft_mutex *mu); /* true: it was handed over, and the new owner is to run soon */

#endif
