/* SPDX-License-Identifier: MIT */
/*
 * Where the next goroutine comes from; how one leaves its thread to another; who wakes a thread for new work.
 *
 * Each P has three places for goroutines that can run, and there is one for all:
 *   slot    the one that this P runs next; private to it, so that no atomic operation is spent on it
 *   runq    woken and yielding ones, in turn                                              (runq.h)
 *   fresh   started ones that never ran: the owner takes the newest, thieves the oldest    (fresh.h)
 *   globq   those of high and of low priority, those that have run for long, overflow, and what threads without a P make
 *           ready; each kind in a list of its own                                         (globq.c)
 * Order: those of high priority; every 61st pick timers that are due, descriptors and the global queue, every 16th a fresh one;
 * one that was just woken by the running one (a hand-off, always in the slot); runq; fresh; timers; global; descriptors
 * (netpoll.c); other Ps (timers, fresh, then runq); heavy ones; those of low priority. Whichever of the P's own is the next
 * lies in the slot, if anything does:
 *   S1  a fresh one lies in the slot only if runq is empty, and it is newer than all in fresh
 *   S2  a woken or yielding one in the slot is older than all in runq
 *   S3  a hand-off that is replaced by another goes to the tail of runq
 *
 * Nobody starves. A slice is what a goroutine runs until it parks, yields or is preempted, with all that is handed to it
 * through the slot; after the quantum the monitor ends it, or after a millisecond if one goroutine has used it alone while
 * others wait: that one is heavy until it next waits. Once every quantum each P ages: a hand-off goes to the tail of runq, and so
 * do the oldest of fresh and the first of globq, heavy ones too; those of low priority every eighth time, and then those of high
 * priority give way once. docs/design.md has the bounds that follow.
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

static const int64_t OWED = WEFT_MSEC; /* who gets a turn though somebody urgent is there may use it for that long */
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
    struct w_m *m = w_m();
    struct w_p *p = ld_relaxed(&w_sched.stopping) ? NULL : w_p_get_idle_locked(m != NULL ? m->last_p : NULL);
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
    if (kind != W_FRESH || unlikely(w_sched.debug.fifo))
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

/* In one step: somebody may be lending it a priority. */
static void change_level(struct w_g *g, int8_t from, int8_t to)
{
    atomic_compare_exchange_strong_explicit(&g->level, &from, to, memory_order_relaxed, memory_order_relaxed);
}

/* Who has waited is not heavy any more. */
static void forget_use(struct w_g *g)
{
    change_level(g, W_HEAVY, W_NORMAL);
}

static inline __attribute__((always_inline)) void place_here(struct w_p *p, struct w_g *g, enum w_kind kind)
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

static __attribute__((noinline)) void place_special(struct w_p *p, struct w_g *g, enum w_kind kind, bool waited)
{
    if (waited)
        forget_use(g);
    if (ld_relaxed(&g->level) == W_NORMAL)
        place_here(p, g, kind);
    else
        w_enqueue_global(g, kind == W_FRESH);
}

static inline __attribute__((always_inline)) void place(struct w_p *p, struct w_g *g, enum w_kind kind, bool waited)
{
    if (likely(ld_relaxed(&g->level) == W_NORMAL)) /* relaxed: who lends it a priority now comes too late for it */
        place_here(p, g, kind);
    else
        place_special(p, g, kind, waited);
}

/* To run before all others of p, which is about to be taken over by another M: before urgent ones too, if it is one itself or if
 * they were to give way to it, for the one that it follows may be urgent and in the queue again. */
void w_place_first(struct w_p *p, struct w_g *g)
{
    w_expose(p);
    fill_slot(p, g, W_HANDOFF);
    if (ld_relaxed(&g->level) == W_HIGH || ld_relaxed(&p->owed_until) > w_now())
        p->placed_first = true;
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

static inline __attribute__((always_inline)) void enqueue(struct w_p *p, struct w_g *g, enum w_kind kind)
{
    place(p, g, kind, false);
    announce(p);
}

void w_enqueue_fresh(struct w_p *p, struct w_g *g)
{
    enqueue(p, g, W_FRESH);
}

/* Who has waited, on a thread without a P. */
static __attribute__((noinline)) void enqueue_woken_global(struct w_g *g)
{
    forget_use(g);
    w_enqueue_global(g, false);
}

/* Makes those runnable that waited, linked by `link`; they take their turn. p NULL: on a thread that has none. */
void w_enqueue_all(struct w_p *p, struct w_g *first)
{
    struct w_g *next;
    for (struct w_g *g = first; g != NULL; g = next) {
        next = g->link;
        w_set_state(g, W_RUNNABLE);
        w_probe_ready(g);
        if (w_traced())
            w_trace_ready(g);
        if (p != NULL)
            place(p, g, W_TURN, true);
        else
            enqueue_woken_global(g);
    }
    if (p != NULL && first != NULL)
        announce(p);
}

static inline __attribute__((always_inline)) void ready(struct w_g *g)
{
    const struct w_m *m = w_m();
    struct w_p *p = likely(m != NULL) ? m->p : NULL;
    w_set_state(g, W_RUNNABLE);
    w_probe_ready(g);
    if (likely(p != NULL)) {
        place(p, g, W_HANDOFF, true);
        announce(p);
    } else {
        enqueue_woken_global(g);
    }
}

static __attribute__((noinline)) void ready_traced(struct w_g *g)
{
    w_trace_ready(g);
    ready(g);
}

/* Makes a goroutine runnable that waits, from wherever we are. */
void w_ready(struct w_g *g)
{
    if (w_traced())
        ready_traced(g);
    else
        ready(g);
}

/* On a thread that has no P, or because of its priority. From the moment that it is in the queue it may run, and end. */
void w_enqueue_global(struct w_g *g, bool fresh)
{
    bool urgent = ld_relaxed(&g->level) == W_HIGH;
    w_globq_put(g, fresh);
    w_fence_seq(); /* [WK-1] [MN-1] */
    w_wake_one();
    if (unlikely(urgent))
        w_urgent_ready();
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
        w_globq_put_locked(g, g, 1, W_LINE_RAN);
    w_unlock(&w_sched.lock, W_RANK_SCHED);
    if (g == NULL)
        return false;
    w_look_again();
    return true;
}

/* ---- picking one on this P -------------------------------------------------------------------------------------- */

/* Into the ring, so many at the most. */
struct batch {
    struct w_g *g[1 + W_FRESH_SIZE / 64 + 4];
    uint32_t n;
};

static void collect(struct batch *b, struct w_g *g)
{
    if (g != NULL)
        b->g[b->n++] = g;
}

/* If all that ran here since the last time was of high priority, the rest has a turn. */
static void owe(struct w_p *p)
{
    p->owes = p->lowered == p->lowered_seen && ld_relaxed(&p->level) == W_HIGH;
    p->lowered_seen = p->lowered;
}

/* A quantum has passed: a hand-off has had its turn; the oldest of the fresh ones and the first in each list of the global
 * queue wait in line here from now on; of low ones every so many quanta, and then urgent ones may have to give way. (One
 * of 64 of the fresh: of half of them each would need a stack before those that it starts have ended.) */
static __attribute__((noinline)) void age(struct w_p *p)
{
    struct batch b = {.n = 0};
    uint32_t most = 1 + w_fresh_len(&p->fresh) / 64;
    uint32_t attn = atomic_fetch_and_explicit(&p->attn, ~(uint32_t)(W_ATTN_AGE | W_ATTN_LOW),
                                              memory_order_relaxed); /* relaxed: it carries nothing */
    bool low = attn & W_ATTN_LOW;
    if (p->slot_kind == W_HANDOFF)
        w_expose(p);
    for (struct w_g *g; b.n < most && (g = w_fresh_steal(&p->fresh)) != NULL;)
        collect(&b, g);
    collect(&b, w_globq_take(W_LINE_RAN));
    collect(&b, w_globq_take(W_LINE_FRESH));
    collect(&b, w_globq_take(W_LINE_HEAVY));
    collect(&b, low ? w_globq_take(W_LINE_LOW) : NULL);
    if (b.n > 0 && p->slot_kind == W_FRESH)
        w_expose(p); /* S1: runq is about to fill */
    for (uint32_t i = 0; i < b.n; i++)
        put(p, b.g[i]);
    if (low)
        owe(p);
    w_look_again(); /* nobody could see them in between */
}

/* A turn for one of the others though somebody urgent is there; NULL: this P owes them none, or nobody waits here. */
static struct w_g *owed_turn(struct w_p *p)
{
    struct w_g *g;
    if (!p->owes)
        return NULL;
    p->owes = false;
    if ((g = empty_slot(p)) == NULL && (g = w_runq_get(&p->runq)) == NULL && (g = w_fresh_pop(&p->fresh)) == NULL)
        return NULL;
    p->lowered_seen = p->lowered + (ld_relaxed(&g->level) != W_HIGH); /* it is not one that they had anyway */
    st_relaxed(&p->owed_until, w_now() + OWED); /* relaxed: who would preempt it may see it late */
    return g;
}

/* Somebody of high priority; unless this P owes a turn to the others. */
static struct w_g *take_high(struct w_p *p)
{
    if (ld_relaxed(&w_sched.globq.lens[W_LINE_HIGH]) == 0)
        return NULL;
    struct w_g *g = owed_turn(p);
    return g != NULL ? g : w_globq_take(W_LINE_HIGH);
}

/* Those who do not stay in the global queue: one to run now, or into the ring. */
static __attribute__((noinline)) struct w_g *take_soon(struct w_p *p)
{
    struct w_g *g = take_high(p);
    if (g != NULL || ld_relaxed(&w_sched.globq.lens[W_LINE_RAN]) == 0)
        return g;
    if (p->slot_kind == W_FRESH)
        w_expose(p); /* S1: runq is about to fill */
    w_globq_adopt(p);
    return NULL;
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

/* Nobody before events have been seen to. */
#define EVENTS_FIRST ((struct w_g *)1)

/* Every so many picks, hand-offs too: who is not on this P's queues, or not in turn. For a caller that holds something EVENTS_FIRST, if
 * some are due: they could need it. */
static __attribute__((noinline)) struct w_g *pick_fair(struct w_p *p, bool holding)
{
    uint32_t past_fresh = p->picks % FRESH_TURN, past_fair = p->picks % FAIR_TURN;
    uint32_t to_fresh = FRESH_TURN - past_fresh, to_fair = FAIR_TURN - past_fair;
    p->fair_pick = p->picks + (to_fresh < to_fair ? to_fresh : to_fair);
    if (past_fresh == 0 && p->slot_kind != W_FRESH)
        return w_fresh_pop(&p->fresh);
    if (past_fair != 0)
        return NULL;
    if (events_due(p)) {
        if (holding)
            return EVENTS_FIRST;
        take_events(p);
    }
    return fair_turn(p);
}

/* The next one from this P's own queues, or NULL: there is none, or the caller is holding something and events are due. */
static inline __attribute__((always_inline)) struct w_g *pick(struct w_p *p, bool holding)
{
    struct w_g *g;
    uint32_t picks = ++p->picks;
    if (unlikely(ld_relaxed(&p->attn) & W_ATTN_AGE))
        age(p);
    if (unlikely(ld_relaxed(&w_sched.soon) > 0) && (g = take_soon(p)) != NULL) /* relaxed: a hint, looked at again */
        goto slice;
    if (unlikely((int32_t)(picks - p->fair_pick) >= 0) && (g = pick_fair(p, holding)) != NULL) {
        if (holding && g == EVENTS_FIRST)
            return NULL;
        goto slice;
    }
    if (likely((g = empty_slot(p)) != NULL)) {
        if (p->slot_kind == W_HANDOFF)
            return g; /* on its waker's slice */
    } else if ((g = w_runq_get(&p->runq)) == NULL && (g = w_fresh_pop(&p->fresh)) == NULL) {
        return NULL;
    }
slice:
    w_begin_slice(p);
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

/* The one that was placed first, for a P's new holder; whoever's turn it is else, or whatever is due. It has been picked, and counted, before. */
struct w_g *w_pick_first(struct w_p *p)
{
    if (likely(!p->placed_first))
        return NULL;
    p->placed_first = false;
    return empty_slot(p);
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

/* One that begins a slice. */
static struct w_g *take_from(struct w_p *p, enum w_line line)
{
    struct w_g *g = w_globq_take(line);
    if (g != NULL)
        w_begin_slice(p);
    return g;
}

/* Whatever the level of its goroutine leaves to others. */
static struct w_g *next_below(struct w_p *p, int level)
{
    struct w_g *n = w_pick_here(p);
    if (n == NULL)
        n = take_from(p, W_LINE_HEAVY);
    return n == NULL && level == W_LOW ? take_from(p, W_LINE_LOW) : n;
}

/* Of high priority: others of that, unless this P owes a turn to the rest. */
static __attribute__((noinline)) struct w_g *next_of_high(struct w_p *p)
{
    if (ld_relaxed(&p->attn) & W_ATTN_AGE)
        age(p);
    struct w_g *n = owed_turn(p);
    if (n == NULL)
        return take_from(p, W_LINE_HIGH);
    w_begin_slice(p);
    return n;
}

static inline bool heavy_turn(const struct w_p *p)
{
    return p->picks % FRESH_TURN == 0 && unlikely(ld_relaxed(&w_sched.globq.lens[W_LINE_HEAVY]) > 0);
}

/* Two who yield to each other all the time are always light: now and then a heavy one runs before them. */
static __attribute__((noinline)) struct w_g *next_slow(struct w_p *p, int level)
{
    struct w_g *n;
    if (level == W_HIGH)
        return next_of_high(p);
    if (heavy_turn(p) && ld_relaxed(&w_sched.globq.lens[W_LINE_HIGH]) == 0 &&
        (n = take_from(p, W_LINE_HEAVY)) != NULL) {
        p->picks++;
        return n;
    }
    return next_below(p, level);
}

/* Who runs instead of g, which is ready as well; NULL: nobody has a better right. */
static inline struct w_g *next(struct w_p *p, const struct w_g *g)
{
    int level = ld_relaxed(&g->level);
    struct w_g *n = NULL;
    if (likely(level == W_NORMAL && !heavy_turn(p)))
        n = w_pick_here(p);
    return likely(n != NULL) ? n : next_slow(p, level);
}

/* ---- switching -------------------------------------------------------------------------------------------------- */

static void check_canary(const struct w_g *g)
{
    if (likely(*(const uint64_t *)(const void *)g->stack_lo == 0))
        return;
    w_report_overflow(g, NULL);
    w_fatal("a stack without a guard page was overrun: what lies below it may be damaged");
}

/* Of two who are not to be switched between without a look at them, or of one who has found nobody: n, or NULL for the M's own stack. */
__attribute__((noinline)) struct w_g *w_switch_target(struct w_m *m, const struct w_g *g, struct w_g *n)
{
    if (g->flags & W_G_CANARY)
        check_canary(g);
    if (n != NULL && (g->flags | n->flags) & W_G_APART) {
        m->picked = n; /* one of them needs a certain thread, or its name: not decided here */
        return NULL;
    }
    return n;
}

__attribute__((noinline)) struct w_m *w_switch_slow(struct w_m *m, struct w_g *n, w_after *after, void *arg)
{
    bool carries = w_carries_eh(m);
    struct w_eh eh = carries ? w_swap_eh(m, (struct w_eh){0}) : (struct w_eh){0};
    m = w_switch_told(m, n, after, arg, w_traced());
    if (carries)
        w_swap_eh(m, eh);
    return m;
}

/* Runs g from the M's own stack until something leaves to that again. */
void w_run(struct w_m *m, struct w_g *g)
{
    bool shown = g->flags & W_G_SHOWN; /* it may have ended when we are back */
    if (unlikely(shown))
        w_comm_of_g(g);
    if (w_traced())
        w_trace_run(m, g);
    w_enter_g(m, g);
    W_SAN_LEAVE(m, g, g->stack_lo, w_stack_size(g->stack_class), false);
    w_switch(&m->sp, g->sp);
    w_landed(m);
    if (unlikely(shown))
        w_comm_of_m(m);
}

/* Leaves the running goroutine for good: the run is over. It is neither saved nor recycled. */
void w_quit(struct w_m *m)
{
    void *nowhere;
    w_let_signals_in(m);
    if (w_traced())
        w_trace_switch(m, m->g, NULL);
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
    enqueue(m->p, prev, W_TURN);
}

void w_after_global(struct w_m *m, struct w_g *prev, void *arg)
{
    bool urgent = ld_relaxed(&prev->level) == W_HIGH; /* from the moment that it is in the queue it may run, and end */
    (void)m, (void)arg;
    w_globq_put(prev, false);
    w_look_again();
    if (unlikely(urgent))
        w_urgent_ready();
}

void weft_yield(void)
{
    struct w_m *m = w_enter();
    if (unlikely(m == NULL)) {
        sched_yield();
        return;
    }
    struct w_g *n = next(m->p, m->g);
    if (n != NULL) {
        w_set_state(m->g, W_RUNNABLE);
        m = w_switch_from(m, n, w_after_yield, NULL);
    }
    w_leave_on(m);
}

/* It was asked to. Who must not be stopped now is asked again when it may (preempt.c). */
static struct w_m *let_others_run(struct w_m *m)
{
    struct w_g *g = m->g, *n = NULL;
    bool retire = ld_relaxed(&m->p->attn) & W_ATTN_RETIRE, by_signal = m->by_signal;
    uint8_t request = ld_relaxed(&m->preempt);
    m->by_signal = false;
    if ((!retire && request == W_GO_ON) || g->flags & W_G_STEADY)
        return m;
    st_relaxed(&m->preempt, W_GO_ON);
    w_p_runs(m->p, ld_relaxed(&g->level)); /* it may have been lent one from elsewhere, while it ran */
    if (!retire && (n = next(m->p, g)) == NULL)
        return m; /* nobody else wants to run here */
    if (request == W_HEAVY_NOW)
        change_level(g, W_NORMAL, W_HEAVY);
    w_count(by_signal ? &m->p->count.cut : &m->p->count.preempted);
    w_probe_preempt(m, g);
    if (n == NULL || !(n->flags & W_G_STOPPED) || (g->flags | n->flags) & W_G_APART)
        w_let_signals_in(m);
    w_set_state(g, W_PREEMPTED);
    return w_switch_from(m, n, w_after_global, NULL);
}

/* The gate is closed: somebody wants something of this M. Every runtime call of a goroutine passes here. */
struct w_m *w_enter_slow(struct w_m *m)
{
    w_lock(&w_sched.lock, W_RANK_SCHED);
    bool over = ld_relaxed(&w_sched.stopping) || m->abandoned, lost = m->lost;
    w_unlock(&w_sched.lock, W_RANK_SCHED);
    if (over)
        w_quit(m);
    if (ld_relaxed(&m->blocked_p) != NULL) {
        m = w_block_end(m); /* a runtime call inside a blocking region ends it */
    } else if (lost) {
        w_let_signals_in(m);
        m = w_block_found_end(m);
    }
    st_relaxed(&m->gate, m->p);
    w_fence_seq(); /* [ST-1] the gate is open before we look whether the run ends */
    if (ld_relaxed(&w_sched.stopping))
        w_quit(m);
    return let_others_run(m);
}
