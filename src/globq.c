/* SPDX-License-Identifier: MIT */
/*
 * The global queue: lists under the scheduler's lock, served in this order:
 *   HIGH   whoever is of high priority and ready: no P keeps it to itself, and whichever has a turn first takes it
 *   RAN    goroutines that ran before: overflow of the rings, what threads without a P make ready
 *   FRESH  those that never ran: overflow, starts by foreign threads
 *   HEAVY  those that were preempted after they had run for long while others waited
 *   LOW    whoever is of low priority and ready
 * Each list is first in, first out. RAN before FRESH: they hold stacks, and somebody waits for them; behind a burst of 100,000
 * starts a sleeper would come 30 ms late. Every fourth is a fresh one all the same. HEAVY and LOW wait until a P has nothing
 * else, or until it ages (sched.c).
 *
 * HIGH and RAN do not stay: at its next pick a P takes one of the former, and its share of the latter into its ring if
 * that is short, where they wait in turn (w_globq_adopt). Who comes back from a blocking call beside others that compute would
 * otherwise wait for 61 of their slices: 64 goroutines in and out of calls of a millisecond took 600 ms where they take 250.
 *
 * A batch that moves to a P's ring is in the ring before it is no longer counted here: an M that is about to sleep looks at
 * both without the lock, here first, and must find it in one of the two.                                   [GQ-1]
 */
#include "weft_internal.h"

enum { FRESH_TURN = 4, ADOPT = 32 };

static uint32_t waiting(enum w_line line)
{
    return ld_relaxed(
        &w_sched.globq.lens[line]); /* relaxed: outside the lock a hint; whoever goes to sleep looks again */
}

static bool does_not_stay(enum w_line line)
{
    return line == W_LINE_HIGH || line == W_LINE_RAN;
}

static void add(_Atomic uint32_t *n, uint32_t change)
{
    st_relaxed(n, ld_relaxed(n) + change); /* relaxed: under the lock; a hint outside */
}

/* ---- putting ---------------------------------------------------------------------------------------------------- */

static void count_locked(enum w_line line, uint32_t change)
{
    add(&w_sched.globq.lens[line], change);
    if (does_not_stay(line))
        add(&w_sched.soon, change);
}

static void append_locked(struct w_g *first, struct w_g *last, enum w_line line)
{
    struct w_glist *l = &w_sched.globq.list[line];
    last->link = NULL;
    if (l->tail != NULL)
        l->tail->link = first;
    else
        l->head = first;
    l->tail = last;
}

void w_globq_put_locked(struct w_g *first, struct w_g *last, uint32_t n, enum w_line line)
{
    append_locked(first, last, line);
    count_locked(line, n);
    add(&w_sched.globq.len, n);
}

static enum w_line line_of(const struct w_g *g, bool fresh)
{
    switch (ld_relaxed(&g->level)) {
    case W_HIGH:
        return W_LINE_HIGH;
    case W_HEAVY:
        return W_LINE_HEAVY;
    case W_LOW:
        return W_LINE_LOW;
    default:
        return fresh ? W_LINE_FRESH : W_LINE_RAN;
    }
}

/* Where its level says; who lends it a priority holds the lock too (priority.c). */
void w_globq_put_one_locked(struct w_g *g, bool fresh)
{
    w_globq_put_locked(g, g, 1, line_of(g, fresh));
}

void w_globq_put(struct w_g *g, bool fresh)
{
    w_lock(&w_sched.lock, W_RANK_SCHED);
    w_globq_put_one_locked(g, fresh);
    w_unlock(&w_sched.lock, W_RANK_SCHED);
}

void w_globq_put_many(struct w_g **gs, uint32_t n, bool fresh)
{
    if (n == 0)
        return;
    for (uint32_t i = 0; i + 1 < n; i++)
        gs[i]->link = gs[i + 1];
    w_lock(&w_sched.lock, W_RANK_SCHED);
    w_globq_put_locked(gs[0], gs[n - 1], n, fresh ? W_LINE_FRESH : W_LINE_RAN);
    w_unlock(&w_sched.lock, W_RANK_SCHED);
}

/* ---- taking ----------------------------------------------------------------------------------------------------- */

/* The first of that list, which is still counted in len. */
static struct w_g *pop_locked(enum w_line line)
{
    struct w_glist *l = &w_sched.globq.list[line];
    struct w_g *g = l->head;
    l->head = g->link;
    if (l->head == NULL)
        l->tail = NULL;
    count_locked(line, -1u);
    return g;
}

/* n were taken. */
static void taken_locked(uint32_t n)
{
    st_release(&w_sched.globq.len, ld_relaxed(&w_sched.globq.len) - n); /* [GQ-1] they are in the ring */
}

static struct w_g *take_locked(enum w_line line)
{
    if (waiting(line) == 0)
        return NULL;
    struct w_g *g = pop_locked(line);
    taken_locked(1);
    return g;
}

struct w_g *w_globq_take(enum w_line line)
{
    if (waiting(line) == 0)
        return NULL;
    w_lock(&w_sched.lock, W_RANK_SCHED);
    struct w_g *g = take_locked(line);
    w_unlock(&w_sched.lock, W_RANK_SCHED);
    return g;
}

/* Of those of normal priority. */
static struct w_g *pop_in_turn_locked(struct w_globq *q)
{
    bool fresh = waiting(W_LINE_RAN) == 0 || (++q->turn % FRESH_TURN == 0 && waiting(W_LINE_FRESH) > 0);
    return pop_locked(fresh ? W_LINE_FRESH : W_LINE_RAN);
}

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* Its share of those that ran before, into its ring, if that is short. */
void w_globq_adopt(struct w_p *p)
{
    if (w_runq_len(&p->runq) >= ADOPT)
        return;
    w_lock(&w_sched.lock, W_RANK_SCHED);
    uint32_t ran = waiting(W_LINE_RAN), n = least(least(ran, ran / ld_relaxed(&w_sched.procs) + 1), ADOPT);
    for (uint32_t i = 0; i < n; i++)
        w_runq_put(&p->runq, pop_locked(W_LINE_RAN));
    taken_locked(n);
    w_unlock(&w_sched.lock, W_RANK_SCHED);
}

/* One to run now, and of those of normal priority this P's share into its ring, at most max in all. */
static struct w_g *get_locked(struct w_p *p, uint32_t max)
{
    struct w_g *g = take_locked(W_LINE_HIGH);
    uint32_t len = waiting(W_LINE_RAN) + waiting(W_LINE_FRESH), taken = 1;
    if (g != NULL || len == 0)
        return g;
    uint32_t n = least(least(len / ld_relaxed(&w_sched.procs) + 1, len), max);
    g = pop_in_turn_locked(&w_sched.globq);
    for (; taken < n && w_runq_len(&p->runq) < W_RUNQ_SIZE; taken++)
        w_runq_put(&p->runq, pop_in_turn_locked(&w_sched.globq));
    taken_locked(taken);
    return g;
}

struct w_g *w_globq_get(struct w_p *p, uint32_t max)
{
    if (waiting(W_LINE_HIGH) + waiting(W_LINE_RAN) + waiting(W_LINE_FRESH) == 0)
        return NULL;
    w_lock(&w_sched.lock, W_RANK_SCHED);
    struct w_g *g = get_locked(p, max);
    w_unlock(&w_sched.lock, W_RANK_SCHED);
    return g;
}

/* Whatever there is. */
struct w_g *w_globq_get_any_locked(struct w_p *p)
{
    struct w_g *g = get_locked(p, W_GLOBQ_SHARE);
    if (g == NULL)
        g = take_locked(W_LINE_HEAVY);
    return g != NULL ? g : take_locked(W_LINE_LOW);
}

/* Out of its turn in one list, to the end of another; if it is in the former: searched, for this is rare. All the time it is
 * counted in len. */
void w_globq_move_locked(struct w_g *g, enum w_line from, enum w_line to)
{
    struct w_glist *l = &w_sched.globq.list[from];
    struct w_g *before = NULL, *at = l->head;
    for (; at != NULL && at != g; at = at->link)
        before = at;
    if (at == NULL)
        return;
    if (before != NULL)
        before->link = g->link;
    else
        l->head = g->link;
    if (l->tail == g)
        l->tail = before;
    count_locked(from, -1u);
    append_locked(g, g, to);
    count_locked(to, 1);
}
