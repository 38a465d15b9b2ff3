/* SPDX-License-Identifier: MIT */
/*
 * Condition variables: a queue under its guard. Who waits is in the queue before it lets the mutex go, so a signal by whoever gets
 * the mutex next finds it there; and takes the mutex again, whatever ended the wait.
 */
#include "waiter.h"

/* The end of a run cuts a foreign thread's wait whatever we say; the lock it gets nevertheless. */
static void relock(weft_mutex *mu, struct w_g *g)
{
    while (unlikely(w_mutex_lock(mu, g, W_NO_CUT) != 0)) {
        w_call_end(g);
        w_nap(WEFT_MSEC);
        w_call_begin();
    }
}

/* The signal of whoever gets the mutex after us finds us in the queue, and waits for its guard until we are off our stack. */
static int wait_for_signal(weft_cond *cond, weft_mutex *mu, struct w_g *g)
{
    struct w_waitq *q = w_waitq_of(&cond->waiters_);
    struct w_queued self = {.q = q};
    w_wait_init(&self.wait, g, W_ONE);
    w_waiter_init(&self.node, &self.wait, NULL, 0);
    w_spin_lock(&q->guard);
    w_waitq_put(q, &self.node);
    w_mutex_unlock(mu);
    w_wait_sleep(&self.wait, w_after_queued, &self, W_REASON_COND, cond, NULL);
    int r = w_wait_cut(&self.wait);
    if (unlikely(r != 0)) {
        w_spin_lock(&q->guard);
        w_waitq_remove(&self.node);
        w_spin_unlock(&q->guard);
    }
    return r;
}

int weft_cond_wait(weft_cond *cond, weft_mutex *mu)
{
    struct w_g *g = w_call_begin();
    int r = w_wait_refused(g);
    if (likely(r == 0)) {
        r = wait_for_signal(cond, mu, g);
        relock(mu, g);
    }
    w_call_end(g);
    return r;
}

/* Whoever waits has been seen waiting by somebody who then got the mutex; without a mutex there is no telling anyway. */
static bool nobody_waits(weft_cond *cond)
{
    return ld_relaxed(&w_waitq_of(&cond->waiters_)->head) == NULL;
}

void weft_cond_signal(weft_cond *cond)
{
    if (nobody_waits(cond))
        return;
    struct w_waitq *q = w_waitq_of(&cond->waiters_);
    struct w_g *g = w_call_begin();
    w_spin_lock(&q->guard);
    struct w_waiter *w = w_waitq_take(q);
    w_spin_unlock(&q->guard);
    if (w != NULL)
        w_wake(w);
    w_call_end(g);
}

void weft_cond_broadcast(weft_cond *cond)
{
    if (nobody_waits(cond))
        return;
    struct w_waitq *q = w_waitq_of(&cond->waiters_);
    struct w_claimed c = {0};
    struct w_g *g = w_call_begin();
    w_spin_lock(&q->guard);
    w_waitq_take_all(q, 0, &c);
    w_spin_unlock(&q->guard);
    w_wake_all(&c);
    w_call_end(g);
}
