/* SPDX-License-Identifier: MIT */
/*
 * Weighted semaphores; and once, which is a semaphore that opens for good.
 *
 * A semaphore is a number of permits and a queue under the queue's guard. Nobody overtakes: a light waiter behind a heavy one
 * waits, so the heavy one is served when enough permits have come together. Permits are handed over: they are taken in the
 * name of the waiter before it is awake.
 *
 * Invariants, whenever the guard is open:
 *   SE1  permits >= 0
 *   SE2  the first in the queue, if its wait can be claimed, asks for more than there is
 * A waiter that was cut sees to those behind it.
 *
 * A once goes NEW -> RUNNING -> DONE under the guard. DONE is stored before the guard is opened, and the fast way (weft_once_do,
 * inline) wants both, DONE and then an open guard: whoever returns has seen the last touch of the one that called fn, and may
 * free the object. If fn never returns, because it ends its goroutine or the run ends under it, it stays RUNNING.
 */
#include "waiter.h"

/* ---- semaphores ------------------------------------------------------------------------------------------------- */

static struct w_waitq *queue(weft_sem *sem)
{
    return w_waitq_of(&sem->waiters_);
}

static bool try_locked(weft_sem *sem, int64_t n)
{
    if (sem->permits_ < n || w_waitq_first(queue(sem)) != NULL)
        return false;
    sem->permits_ -= n;
    return true;
}

/* Serves those whose turn it is (SE2), opens the guard, wakes them. */
static void serve_locked(weft_sem *sem)
{
    struct w_waitq *q = queue(sem);
    struct w_claimed c = {0};
    struct w_waiter *w;
    while ((w = w_waitq_first(q)) != NULL && w->n <= sem->permits_) {
        w_waitq_remove(w);
        if (!w_claim(w))
            continue;
        sem->permits_ -= w->n;
        w_claimed_add(&c, w, 0);
    }
    w_spin_unlock(&q->guard); /* the last touch: sem may be gone */
    w_wake_all(&c);
}

int weft_sem_acquire(weft_sem *sem, int64_t n)
{
    if (n <= 0)
        return n == 0 ? 0 : -EINVAL;
    struct w_waitq *q = queue(sem);
    struct w_g *g = w_call_begin();
    int r = 0;
    bool cut = false;
    w_spin_lock(&q->guard);
    if (likely(try_locked(sem, n)))
        w_spin_unlock(&q->guard);
    else
        r = w_wait_in(q, g, n, W_ONE, W_REASON_SEMAPHORE, sem, &cut);
    if (unlikely(cut))
        serve_locked(sem);
    w_call_end(g);
    return r;
}

int weft_sem_try_acquire(weft_sem *sem, int64_t n)
{
    if (n <= 0)
        return n == 0 ? 0 : -EINVAL;
    struct w_waitq *q = queue(sem);
    struct w_g *g = w_call_begin();
    w_spin_lock(&q->guard);
    bool got = try_locked(sem, n);
    w_spin_unlock(&q->guard);
    w_call_end(g);
    return got ? 0 : -EAGAIN;
}

void weft_sem_release(weft_sem *sem, int64_t n)
{
    if (unlikely(n < 0))
        w_fatal("release of a negative number of permits");
    struct w_g *g = w_call_begin();
    w_spin_lock(&queue(sem)->guard);
    if (unlikely(__builtin_add_overflow(sem->permits_, n, &sem->permits_)))
        w_fatal("a semaphore has more permits than it can count");
    serve_locked(sem);
    w_call_end(g);
}

/* ---- once ------------------------------------------------------------------------------------------------------- */

enum { NEW, RUNNING, DONE };

static _Atomic uint32_t *state(weft_once *once)
{
    return (_Atomic uint32_t *)&once->state_;
}

/* Calls fn. The caller has seen NEW, and holds the guard. */
static void run_locked(weft_once *once, struct w_g *g, weft_fn *fn, void *arg)
{
    struct w_waitq *q = w_waitq_of(&once->waiters_);
    st_relaxed(state(once), RUNNING); /* relaxed: under the guard, as the next */
    once->by_ = g;
    once->id_ = g->id;
    once->run_ = ld_relaxed(&w_sched.run);
    w_spin_unlock(&q->guard);
    w_call_end(g);
    fn(arg);
    g = w_call_begin();
    w_spin_lock(&q->guard);
    struct w_claimed c = {0};
    w_waitq_take_all(q, 0, &c);
    st_release(state(once), DONE); /* [ON-1] what fn did */
    w_spin_unlock(&q->guard);      /* the last touch: once may be gone */
    w_wake_all(&c);
}

/* A foreign thread's G has no number of its own, but is its own; a goroutine's may have been somebody else's before. */
static bool is_running(const weft_once *once, const struct w_g *g)
{
    return once->by_ == g && once->id_ == g->id && (g->flags & W_G_FOREIGN || once->run_ == ld_relaxed(&w_sched.run));
}

/* Waits until fn has returned; the caller holds the guard. false: it may not wait (a foreign thread, and no runtime is up). */
static bool wait_locked(weft_once *once, struct w_g *g)
{
    struct w_waitq *q = w_waitq_of(&once->waiters_);
    bool cut;
    g->shields++;
    w_wait_in(q, g, 0, W_NO_CUT, W_REASON_ONCE, once, &cut);
    g->shields--;
    if (unlikely(cut))
        w_spin_unlock(&q->guard);
    return !cut;
}

void weft_once_slow_(weft_once *once, weft_fn *fn, void *arg)
{
    struct w_waitq *q = w_waitq_of(&once->waiters_);
    for (;;) {
        struct w_g *g = w_call_begin();
        bool done = true;
        w_spin_lock(&q->guard);
        uint32_t s = ld_acquire(state(once)); /* [ON-1] */
        if (s == NEW)
            run_locked(once, g, fn, arg);
        else if (s == DONE)
            w_spin_unlock(&q->guard);
        else if (is_running(once, g))
            w_fatal("weft_once_do from inside the function that it calls");
        else
            done = wait_locked(once, g);
        w_call_end(g);
        if (likely(done))
            return;
        w_nap(WEFT_MSEC);
    }
}
