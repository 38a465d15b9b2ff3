/* SPDX-License-Identifier: MIT */
/*
 * Where the next goroutine comes from; how one leaves its thread to another; who wakes a thread for new work.
 *
 * Each P has three places for goroutines that can run, and there is one for all:
 *   slot    the one that this P runs next; private to it, so that no atomic operation is spent on it
 *   runq    woken and yielding ones, in turn                                              (runq.h)
 *   fresh   started ones that never ran: the owner takes the newest, thieves the oldest    (fresh.h)
 *   globq   overflow, preempted ones, and what threads without a P make ready              (globq.c)
 * Order: every 61st pick timers that are due, descriptors and the global queue, every 16th a fresh one; one that was just woken
 * by the running one (a hand-off, always in the slot); runq; fresh; timers; global; descriptors (netpoll.c); other Ps (timers,
 * fresh, then runq). Whichever of the P's own is the next lies in the slot, if anything does:
 *   S1  a fresh one lies in the slot only if runq is empty, and it is newer than all in fresh
 *   S2  a woken or yielding one in the slot is older than all in runq
 *   S3  a hand-off that is replaced by another goes to the tail of runq
 *
 * Nobody starves. A slice is what a goroutine runs until it parks, yields or is preempted, with all that is handed to it
 * through the slot; after the quantum the monitor ends it. Once every quantum each P ages: a hand-off goes to the tail of
 * runq, and so do the oldest of fresh and the first of globq. So a goroutine in runq waits at most for the slices of those
 * before it, one in fresh for a quantum or 16 picks, whichever is shorter, for each older one, one in globq for a quantum or
 * 61 picks for each before it.
 *
 * Leaving. A goroutine that parks takes the next one itself and switches to it directly; only if there is none at hand
 * does it go to its M's own stack, which searches on and sleeps. What must happen to it once it is off its stack (into
 * a queue, unlock the channel, recycle) is left behind as m->after, and done by the context that comes after it, as
 * its first deed: w_landed. Before that no other thread can get hold of it.
 *
 * The wake rule, which tests/model/wake.pml checks:
 *   W1  Whoever makes work available either sees a spinning M or an empty list of idle Ps, or wakes an M (announce).
 *       Work is published first, then spinning and idle are looked at, with a full fence between.          [WK-1]
 *   W2  Whoever stops looking, by taking work or by going to sleep, looks at all queues again after it has said so,
 *       by lowering `spinning` or by putting its P on the idle list, with a full fence between.              [WK-1]
 *   W3  spinning and the list of idle Ps change together under the lock when an M is woken (w_wake_one).
 *   W4  A lone goroutine, in the slot of a busy P and nothing behind it, wakes nobody while the monitor is attentive:
 *       its P will most likely be free for it long before a thread could be awake (20 us). If it is not, the monitor
 *       takes it out within a millisecond (w_rescue), and from then on the P defers no more for a while. (No fence
 *       stands between filling the slot and looking at `attentive`: the monitor looks once more, a millisecond after it
 *       has withdrawn its attention, and by then the slot is visible.)
 */
#include "netpoll.h"
#include "park.h"
#include "timer.h"
#include "weft_internal.h"
#include <sched.h>

enum {
    FAIR_TURN = 61,  /* Go's: a prime, so that it does not fall in step with anything */
    FRESH_TURN = 16, /* every so many picks, if others are there all the time, one that never ran */
};

static const int64_t POLL_GAP = 100 * WEFT_USEC; /* descriptors wait that long for a P that has other things to run */

struct w_sched w_sched;
__thread struct w_m *w_tls_m __attribute__((used, tls_model("initial-exec"))); /* read by assembly alone */

/* ---- work that is there ----------------------------------------------------------------------------------------- */

/* What thieves can take. */
static uint32_t shared_work(struct w_p *p)
{
    return w_runq_len(&p->runq) + w_fresh_len(&p->fresh);
}

uint32_t w_p_work(struct w_p *p)
{
    return (ld_relaxed(&p->slot) != NULL) + shared_work(p);
}

/* The global queue first: what has left it when we look is in a ring that we look at afterwards. */
bool w_work_to_share(void)
{
    if (ld_acquire(&w_sched.globq.len) > 0) /* [GQ-1] */
        return true;
    uint32_t n = ld_acquire(&w_sched.p_count); /* [PC-1] */
    for (uint32_t i = 0; i < n; i++)
        if (shared_work(w_sched.ps[i]) > 0)
            return true;
    return false;
}

/* ---- waking threads --------------------------------------------------------------------------------------------- */

/* Wakes an M that looks for work, unless one is looking already or no P is free. */
void w_wake_one(void)
{
    uint32_t none = 0;
    if (ld_relaxed(&w_sched.idle_p_count) == 0 || !cas_seq(&w_sched.spinning, &none, 1)) /* [WK-1] */
        return;
    w_lock(&w_sched.lock, W_RANK_SCHED);
    struct w_p *p = ld_relaxed(&w_sched.stopping) ? NULL : w_p_get_idle_locked();
    if (p == NULL)
        sub_seq(&w_sched.spinning, 1); /* [WK-1] inside the lock: a P that is made idle after this looks again (W3) */
    w_unlock(&w_sched.lock, W_RANK_SCHED);
    if (p != NULL)
        w_m_start(p, true);
}

/* W2, for whoever lowered `spinning` or made a P idle. */
void w_look_again(void)
{
    w_fence_seq(); /* [WK-1] */
    if (ld_relaxed(&w_sched.idle_p_count) > 0 && ld_relaxed(&w_sched.spinning) == 0 && w_work_to_share())
        w_wake_one();
}

/* A P that has lost its M: to another one if there is work, else to the idle list. */
void w_p_release(struct w_p *p)
{
    if (w_p_work(p) > 0 || ld_relaxed(&w_sched.globq.len) > 0) {
        w_m_start(p, false);
        return;
    }
    w_lock(&w_sched.lock, W_RANK_SCHED);
    w_p_idle_locked(p);
    w_unlock(&w_sched.lock, W_RANK_SCHED);
    w_look_again();
    if (w_next_event() < ld_relaxed(&w_sched.keeper_until) || w_poll_unattended())
        w_wake_one(); /* nobody wakes up for the first of the timers, or for a descriptor: the M that finds no work will */
}

/* ---- putting goroutines into queues ----------------------------------------------------------------------------- */

/* The ring is full: its older half and the new one go to the global queue. */
static __attribute__((noinline)) void overflow(struct w_p *p, struct w_g *g)
{
    struct w_g *batch[W_RUNQ_SIZE / 2 + 1];
    uint32_t n = w_runq_steal(&p->runq, batch, W_RUNQ_SIZE / 2);
    batch[n++] = g;
    w_count(&p->count.overflows);
    w_globq_put_many(batch, n, false);
}

static __attribute__((noinline)) void overflow_fresh(struct w_p *p, struct w_g *g)
{
    struct w_g *batch[W_FRESH_SIZE / 2];
    w_count(&p->count.overflows);
    w_globq_put_many(batch, w_fresh_shed(&p->fresh, batch, W_FRESH_SIZE / 2), true);
    w_fresh_push(&p->fresh, g);
}

static void put(struct w_p *p, struct w_g *g)
{
    if (unlikely(!w_runq_put(&p->runq, g)))
        overflow(p, g);
}

void w_share(struct w_p *p, struct w_g *g, enum w_kind kind)
{
    if (kind != W_FRESH)
        put(p, g);
    else if (unlikely(!w_fresh_push(&p->fresh, g)))
        overflow_fresh(p, g);
}

static inline void fill_slot(struct w_p *p, struct w_g *g, enum w_kind kind)
{
    st_relaxed(&p->slot, g); /* relaxed: the holder's own; the monitor takes it only while the holder is outside */
    p->slot_kind = kind;
}

static inline struct w_g *empty_slot(struct w_p *p)
{
    struct w_g *g = ld_relaxed(&p->slot);
    if (g != NULL)
        st_relaxed(&p->slot, NULL);
    return g;
}

/* What is in the slot becomes visible to thieves. */
void w_expose(struct w_p *p)
{
    struct w_g *g = empty_slot(p);
    if (g != NULL)
        w_share(p, g, p->slot_kind);
}

/* Is the new one to run before the one in the slot? S1 to S3. */
static inline bool goes_first(enum w_kind new, enum w_kind old)
{
    return new == W_HANDOFF || (old == W_FRESH && (new == W_FRESH || new == W_TURN));
}

static inline void place(struct w_p *p, struct w_g *g, enum w_kind kind)
{
    struct w_g *old = ld_relaxed(&p->slot);
    if (likely(old == NULL)) {
        if (likely(w_sched.hiding) && (kind == W_HANDOFF || w_runq_len(&p->runq) == 0))
            fill_slot(p, g, kind);
        else
            w_share(p, g, kind);
    } else if (goes_first(kind, p->slot_kind)) {
        enum w_kind old_kind = p->slot_kind;
        fill_slot(p, g, kind);
        w_share(p, old, old_kind);
    } else {
        w_share(p, g, kind);
    }
}

/* To run before all others of p, which is about to be taken over by another M. */
void w_place_first(struct w_p *p, struct w_g *g)
{
    w_expose(p);
    fill_slot(p, g, W_HANDOFF);
}

/* W4: may the one in the slot wait for its P? */
static bool defer(struct w_p *p)
{
    if (shared_work(p) > 0 || !ld_relaxed(&w_sched.attentive))
        return false;
    uint32_t n = ld_relaxed(&p->no_defer);
    if (likely(n == 0))
        return true;
    st_relaxed(&p->no_defer, n - 1); /* relaxed: a hint; the monitor's store may be lost to this one */
    return false;
}

static __attribute__((noinline)) void announce_slow(struct w_p *p)
{
    if (defer(p))
        return;
    if (ld_relaxed(&w_sched.idle_p_count) > 0 && shared_work(p) == 0)
        w_expose(p);
    w_fence_seq(); /* [WK-1] the work is visible before we look who could take it */
    if (ld_relaxed(&w_sched.idle_p_count) > 0 && ld_relaxed(&w_sched.spinning) == 0)
        w_wake_one();
}

/* W1, after p got work. */
static inline void announce(struct w_p *p)
{
    if (ld_relaxed(&w_sched.procs) > 1) /* relaxed: whoever adds a P looks for work itself */
        announce_slow(p);
}

void w_enqueue(struct w_p *p, struct w_g *g, enum w_kind kind)
{
    place(p, g, kind);
    announce(p);
}

/* Makes those runnable that waited, linked by `link`; they take their turn. p NULL: on a thread that has none. */
void w_enqueue_all(struct w_p *p, struct w_g *first)
{
    struct w_g *next;
    for (struct w_g *g = first; g != NULL; g = next) {
        next = g->link;
        w_set_state(g, W_RUNNABLE);
        if (p != NULL)
            place(p, g, W_TURN);
        else
            w_enqueue_global(g, false);
    }
    if (p != NULL && first != NULL)
        announce(p);
}

/* Makes a goroutine runnable that waits, from wherever we are. */
void w_ready(struct w_g *g)
{
    struct w_m *m = w_m();
    w_set_state(g, W_RUNNABLE);
    if (m != NULL && m->p != NULL) {
        w_enqueue(m->p, g, W_HANDOFF);
        return;
    }
    w_enqueue_global(g, false);
}

/* On a thread that has no P. */
void w_enqueue_global(struct w_g *g, bool fresh)
{
    w_globq_put(g, fresh);
    w_fence_seq(); /* [WK-1] [MN-1] */
    w_wake_one();
    if (unlikely(ld_relaxed(&w_sched.drowsy)) && ld_relaxed(&w_sched.idle_p_count) == 0)
        w_monitor_wake(); /* every thread with a P may be asleep in a call */
}

/*
 * Monitor, under w_sched.lock: is the holder of p outside the runtime, and will stay so? The holder says in_runtime,
 * then looks at its gate; we close the gate, then look at in_runtime; membarrier puts a fence between the holder's two
 * steps, where it has none of its own. If it is outside, its way in leads through w_enter_slow, which waits for the lock
 * that we hold. A holder that was in a blocking region or in w_enter_slow when we came has opened its gate again before it
 * is seen outside, and one that has gone into a region since has marked it: hence the order of the looks.
 */
bool w_m_outside(struct w_p *p, struct w_m *m)
{
    st_relaxed(&m->gate, NULL);
    if (w_membarrier() != 0 || ld_acquire(&p->blocked_by) != NULL) /* [BL-1] */
        return false;
    return !ld_acquire(&m->in_runtime) && ld_acquire(&m->gate) == NULL && ld_relaxed(&p->m) == m; /* [GT-1] [GT-2] */
}

/* Monitor: takes the goroutine out of p's slot if its holder is busy outside the runtime. */
bool w_rescue(struct w_p *p, struct w_m *m)
{
    struct w_g *g = NULL;
    w_lock(&w_sched.lock, W_RANK_SCHED);
    if (w_m_outside(p, m) && (g = empty_slot(p)) != NULL)
        w_globq_put_locked(g, g, 1, false);
    w_unlock(&w_sched.lock, W_RANK_SCHED);
    if (g == NULL)
        return false;
    w_look_again();
    return true;
}

/* ---- picking one on this P -------------------------------------------------------------------------------------- */

/* A quantum has passed: a hand-off has had its turn; the oldest of the fresh ones and the first in the global queue wait
 * in line here from now on. (One of 64: of half of them each would need a stack before those that it starts have ended.) */
static __attribute__((noinline)) void age(struct w_p *p)
{
    struct w_g *batch[1 + W_FRESH_SIZE / 64 + 1], *g;
    uint32_t n = 0, most = 1 + w_fresh_len(&p->fresh) / 64;
    atomic_fetch_and_explicit(&p->attn, ~(uint32_t)W_ATTN_AGE, memory_order_relaxed); /* relaxed: it carries nothing */
    if (p->slot_kind == W_HANDOFF)
        w_expose(p);
    while (n < most && (g = w_fresh_steal(&p->fresh)) != NULL)
        batch[n++] = g;
    if ((g = w_globq_get(p, 1)) != NULL)
        batch[n++] = g;
    if (n > 0 && p->slot_kind == W_FRESH)
        w_expose(p); /* S1: runq is about to fill */
    for (uint32_t i = 0; i < n; i++)
        put(p, batch[i]);
    w_look_again(); /* nobody could see them in between */
}

/* Those that came back from blocking calls, or were preempted, wait in line here from now on. */
static __attribute__((noinline)) void adopt(struct w_p *p)
{
    if (p->slot_kind == W_FRESH)
        w_expose(p); /* S1: runq is about to fill */
    w_globq_adopt(p);
}

/* Timers, or descriptors that nobody has looked at for a while. */
static bool events_due(struct w_p *p)
{
    int64_t next = ld_relaxed(&p->timers.next);
    return (next != WEFT_NEVER && next <= w_now()) || w_poll_due(POLL_GAP);
}

static void take_events(struct w_p *p)
{
    w_timers_run(p, p, w_now());
    if (w_poll_due(POLL_GAP))
        w_poll();
}

/* One from the global queue, or from the ring where a hand-off would go first; each of the two has every second turn. */
static struct w_g *fair_turn(struct w_p *p)
{
    bool ring_first = p->picks / FAIR_TURN % 2 == 0 && ld_relaxed(&p->slot) != NULL && p->slot_kind == W_HANDOFF;
    struct w_g *g = ring_first ? w_runq_get(&p->runq) : w_globq_get(p, 1);
    return g != NULL || !ring_first ? g : w_globq_get(p, 1);
}

/* Every so many picks, hand-offs too: who is not on this P's queues, or not in turn. *due: events are, and the caller holds
 * something that they could need. */
static __attribute__((noinline)) struct w_g *pick_fair(struct w_p *p, bool holding, bool *due)
{
    if (p->picks % FRESH_TURN == 0 && p->slot_kind != W_FRESH)
        return w_fresh_pop(&p->fresh);
    if (p->picks % FAIR_TURN != 0)
        return NULL;
    if (events_due(p)) {
        *due = holding;
        if (holding)
            return NULL;
        take_events(p);
    }
    return fair_turn(p);
}

/* The next one from this P's own queues, or NULL: there is none, or *due. */
static inline __attribute__((always_inline)) struct w_g *pick(struct w_p *p, bool holding)
{
    struct w_g *g;
    bool due = false;
    uint32_t tick = ld_relaxed(&p->tick);
    p->picks++;
    if (unlikely(ld_relaxed(&p->attn) & W_ATTN_AGE))
        age(p);
    if (unlikely(ld_relaxed(&w_sched.returned) > 0)) /* relaxed: a hint; whoever goes to sleep looks again */
        adopt(p);
    if (unlikely(p->picks % FRESH_TURN == 0 || p->picks % FAIR_TURN == 0) && (g = pick_fair(p, holding, &due)) != NULL)
        goto slice;
    if (unlikely(due))
        return NULL;
    if (likely((g = empty_slot(p)) != NULL)) {
        if (p->slot_kind == W_HANDOFF)
            return g; /* on its waker's slice */
    } else if ((g = w_runq_get(&p->runq)) == NULL && (g = w_fresh_pop(&p->fresh)) == NULL) {
        return NULL;
    }
slice:
    st_relaxed(&p->tick, tick + 1); /* relaxed: the monitor only compares it with what it saw before */
    return g;
}

/* For one that parks or ends, and may hold the lock of what it waits for. NULL also if events are due: w_find sees to them, on the
 * M's own stack. */
struct w_g *w_pick(struct w_p *p)
{
    return pick(p, true);
}

/* For one that holds nothing. NULL: this P has none. */
__attribute__((noinline)) struct w_g *w_pick_own(struct w_p *p)
{
    return pick(p, false);
}

/* The turn that w_pick left to w_find because events are due. */
struct w_g *w_events_turn(struct w_p *p)
{
    if (p->picks % FAIR_TURN != 0 || !events_due(p))
        return NULL;
    take_events(p);
    return fair_turn(p);
}

/* Whatever this P can get without looking at others; the caller holds nothing. */
struct w_g *w_pick_here(struct w_p *p)
{
    struct w_g *g = w_pick_own(p);
    if (g == NULL && ld_relaxed(&p->timers.next) != WEFT_NEVER && w_timers_run(p, p, w_now()) > 0)
        g = w_pick_own(p);
    return g != NULL ? g : w_globq_get(p, W_GLOBQ_SHARE);
}

/* ---- switching -------------------------------------------------------------------------------------------------- */

void w_check_canary(const struct w_g *g)
{
    if (likely(*(const uint64_t *)(const void *)g->stack_lo == 0))
        return;
    w_report_overflow(g, NULL);
    w_fatal("a stack without a guard page was overrun: what lies below it may be damaged");
}

/* Runs g from the M's own stack until something leaves to that again. */
void w_run(struct w_m *m, struct w_g *g)
{
    w_enter_g(m, g);
    W_SAN_LEAVE(m, g, g->stack_lo, w_stack_size(g->stack_class), false);
    w_switch(&m->sp, g->sp);
    w_landed(m);
}

/* Leaves the running goroutine for good: the run is over. It is neither saved nor recycled. */
void w_quit(struct w_m *m)
{
    void *nowhere;
    m->quit = true;
    m->after = NULL;
    m->g = NULL;
    W_SAN_LEAVE(m, m, m->own_lo, m->own_size, true);
    w_switch(&nowhere, m->sp);
    __builtin_unreachable();
}

void w_after_yield(struct w_m *m, struct w_g *prev, void *arg)
{
    (void)arg;
    w_enqueue(m->p, prev, W_TURN);
}

void w_after_global(struct w_m *m, struct w_g *prev, void *arg)
{
    (void)m, (void)arg;
    w_globq_put(prev, false);
    w_look_again();
}

void weft_yield(void)
{
    struct w_m *m = w_enter();
    if (unlikely(m == NULL)) {
        sched_yield();
        return;
    }
    struct w_g *n = w_pick_here(m->p);
    if (n != NULL) {
        w_set_state(m->g, W_RUNNABLE);
        w_switch_from(m, n, w_after_yield, NULL);
    }
    w_leave();
}

/* The gate is closed: somebody wants something of this M. Every runtime call of a goroutine passes here. */
struct w_m *w_enter_slow(struct w_m *m)
{
    w_lock(&w_sched.lock, W_RANK_SCHED);
    bool over = ld_relaxed(&w_sched.stopping) || m->abandoned, lost = m->lost;
    w_unlock(&w_sched.lock, W_RANK_SCHED);
    if (over)
        w_quit(m);
    if (ld_relaxed(&m->blocked_p) != NULL)
        m = w_block_end(m); /* a runtime call inside a blocking region ends it */
    else if (lost)
        m = w_block_found_end(m);
    st_relaxed(&m->gate, m->p);
    w_fence_seq(); /* [ST-1] the gate is open before we look whether the run ends */
    if (ld_relaxed(&w_sched.stopping))
        w_quit(m);
    bool retire = ld_relaxed(&m->p->attn) & W_ATTN_RETIRE;
    if (!retire && !ld_relaxed(&m->preempt))
        return m;
    st_relaxed(&m->preempt, false);
    struct w_g *n = NULL;
    if (!retire && (n = w_pick_here(m->p)) == NULL)
        return m; /* nobody else wants to run here */
    w_set_state(m->g, W_PREEMPTED);
    w_switch_from(m, n, w_after_global, NULL);
    return w_m();
}
