/* SPDX-License-Identifier: MIT */
/*
 * The global queue: two lists under the scheduler's lock, one of goroutines that never ran, one of the others. What comes
 * here: overflow of the local queues, goroutines that were preempted or whose P was taken, and what threads without a P
 * make ready. Each list is first in, first out. Those that ran before go first: they hold stacks, and somebody waits for
 * them; behind a burst of 100,000 starts a sleeper would come 30 ms late. Every fourth is a fresh one all the same.
 *
 * Those that ran before do not stay: a P whose ring is short takes its share of them into it at its next pick, and there they
 * wait in turn (w_globq_adopt). Who comes back from a blocking call beside others that compute would otherwise wait for 61 of
 * their slices: 64 goroutines in and out of calls of a millisecond took 600 ms where they take 250.
 *
 * A batch that moves to a P's ring is in the ring before it is no longer counted here: an M that is about to sleep looks at
 * both without the lock, here first, and must find it in one of the two.                                   [GQ-1]
 */
#include "weft_internal.h"

enum { FRESH_TURN = 4, ADOPT = 32 };

void w_globq_put_locked(struct w_g *first, struct w_g *last, uint32_t n, bool fresh)
{
    struct w_globq *q = &w_sched.globq;
    struct w_glist *l = &q->list[fresh];
    last->link = NULL;
    if (l->tail != NULL)
        l->tail->link = first;
    else
        l->head = first;
    l->tail = last;
    st_relaxed(&q->len, ld_relaxed(&q->len) + n); /* relaxed: a hint outside the lock */
    if (!fresh)
        st_relaxed(&w_sched.returned, ld_relaxed(&w_sched.returned) + n);
}

void w_globq_put(struct w_g *g, bool fresh)
{
    w_lock(&w_sched.lock, W_RANK_SCHED);
    w_globq_put_locked(g, g, 1, fresh);
    w_unlock(&w_sched.lock, W_RANK_SCHED);
}

void w_globq_put_many(struct w_g **gs, uint32_t n, bool fresh)
{
    if (n == 0)
        return;
    for (uint32_t i = 0; i + 1 < n; i++)
        gs[i]->link = gs[i + 1];
    w_lock(&w_sched.lock, W_RANK_SCHED);
    w_globq_put_locked(gs[0], gs[n - 1], n, fresh);
    w_unlock(&w_sched.lock, W_RANK_SCHED);
}

static struct w_g *pop_from_locked(struct w_globq *q, bool fresh)
{
    struct w_glist *l = &q->list[fresh];
    struct w_g *g = l->head;
    l->head = g->link;
    if (l->head == NULL)
        l->tail = NULL;
    if (!fresh)
        st_relaxed(&w_sched.returned, ld_relaxed(&w_sched.returned) - 1);
    return g;
}

static struct w_g *pop_locked(struct w_globq *q)
{
    return pop_from_locked(q,
                           q->list[false].head == NULL || (++q->turn % FRESH_TURN == 0 && q->list[true].head != NULL));
}

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* Its share of those that ran before, into its ring, if that is short. */
void w_globq_adopt(struct w_p *p)
{
    struct w_globq *q = &w_sched.globq;
    if (w_runq_len(&p->runq) >= ADOPT)
        return;
    w_lock(&w_sched.lock, W_RANK_SCHED);
    uint32_t ran = ld_relaxed(&w_sched.returned), n = least(least(ran, ran / ld_relaxed(&w_sched.procs) + 1), ADOPT);
    for (uint32_t i = 0; i < n; i++)
        w_runq_put(&p->runq, pop_from_locked(q, false));
    st_release(&q->len, ld_relaxed(&q->len) - n); /* [GQ-1] they are in the ring */
    w_unlock(&w_sched.lock, W_RANK_SCHED);
}

/* One to run now, and this P's share of the rest into its ring, at most max in all. */
struct w_g *w_globq_get_locked(struct w_p *p, uint32_t max)
{
    struct w_globq *q = &w_sched.globq;
    uint32_t len = ld_relaxed(&q->len), n = len / ld_relaxed(&w_sched.procs) + 1;
    if (len == 0)
        return NULL;
    n = least(least(n, len), max);
    struct w_g *g = pop_locked(q);
    uint32_t taken = 1;
    for (; taken < n && w_runq_len(&p->runq) < W_RUNQ_SIZE; taken++)
        w_runq_put(&p->runq, pop_locked(q));
    st_release(&q->len, len - taken); /* [GQ-1] they are in the ring */
    return g;
}

struct w_g *w_globq_get(struct w_p *p, uint32_t max)
{
    if (ld_relaxed(&w_sched.globq.len) == 0) /* relaxed: a hint; whoever goes to sleep looks again under the lock */
        return NULL;
    w_lock(&w_sched.lock, W_RANK_SCHED);
    struct w_g *g = w_globq_get_locked(p, max);
    w_unlock(&w_sched.lock, W_RANK_SCHED);
    return g;
}
