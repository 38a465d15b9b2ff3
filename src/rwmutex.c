/* SPDX-License-Identifier: MIT */
/*
 * Locks that many readers share, or one writer has.
 *
 * Two numbers and a queue, all under the queue's guard; a call that need not wait is the guard's one locked instruction. Nobody
 * overtakes: whoever comes while somebody waits goes to the end of the queue, and whoever opens the lock lets in the first
 * in turn, with all readers that stand directly behind it if that is a reader. So a writer waits for those before it, once
 * each, and so does a reader. The lock is handed over: who is let in is an owner before it is awake.
 *
 * Invariants, whenever the guard is open:
 *   RW1  not both a writer and readers
 *   RW2  the first in the queue, if its wait can be claimed, could not be let in
 * What a wait that was cut leaves behind (a writer at the head, with readers behind it) is seen to by the waiter itself.
 *
 * Rejected: a counter that readers change without the guard. It is a locked instruction as well, and saves none.
 */
#include "waiter.h"

enum { READER, WRITER };

static struct w_waitq *queue(weft_rwmutex *rw)
{
    return w_waitq_of(&rw->waiters_);
}

static bool open_to(const weft_rwmutex *rw, int64_t kind)
{
    return rw->writer_ == 0 && (kind == READER || rw->readers_ == 0);
}

/* at: on the stack of the new owner. */
static void own_locked(weft_rwmutex *rw, int64_t kind, const void *at)
{
    if (kind == READER) {
        rw->readers_++;
    } else {
        rw->writer_ = 1;
        rw->holder_ = at;
    }
}

static bool try_locked(weft_rwmutex *rw, int64_t kind)
{
    if (!open_to(rw, kind) || w_waitq_first(queue(rw)) != NULL)
        return false;
    own_locked(rw, kind, weft_here_());
    return true;
}

/* Makes those owners whose turn it is (RW2), opens the guard, wakes them. */
static void let_in_locked(weft_rwmutex *rw)
{
    struct w_waitq *q = queue(rw);
    struct w_claimed c = {0};
    struct w_waiter *w;
    while ((w = w_waitq_first(q)) != NULL && open_to(rw, w->n)) {
        w_waitq_remove(w);
        if (!w_claim(w))
            continue;
        own_locked(rw, w->n, w);
        w_claimed_add(&c, w, 0);
    }
    w_spin_unlock(&q->guard); /* the last touch: rw may be gone */
    w_wake_all(&c);
}

static int lock(weft_rwmutex *rw, int64_t kind, enum w_reason reason)
{
    struct w_waitq *q = queue(rw);
    struct w_g *g = w_call_begin();
    int r = 0;
    bool cut = false;
    w_spin_lock(&q->guard);
    if (likely(try_locked(rw, kind)))
        w_spin_unlock(&q->guard);
    else
        r = w_wait_in(q, g, kind, W_ONE, reason, rw, &cut);
    if (unlikely(cut))
        let_in_locked(rw);
    w_call_end(g);
    return r;
}

static int try_lock(weft_rwmutex *rw, int64_t kind)
{
    struct w_waitq *q = queue(rw);
    struct w_g *g = w_call_begin();
    w_spin_lock(&q->guard);
    bool got = try_locked(rw, kind);
    w_spin_unlock(&q->guard);
    w_call_end(g);
    return got ? 0 : -EAGAIN;
}

int weft_rdlock(weft_rwmutex *rw)
{
    return lock(rw, READER, W_REASON_READ_LOCK);
}

int weft_wrlock(weft_rwmutex *rw)
{
    return lock(rw, WRITER, W_REASON_WRITE_LOCK);
}

int weft_try_rdlock(weft_rwmutex *rw)
{
    return try_lock(rw, READER);
}

int weft_try_wrlock(weft_rwmutex *rw)
{
    return try_lock(rw, WRITER);
}

void weft_rdunlock(weft_rwmutex *rw)
{
    struct w_g *g = w_call_begin();
    w_spin_lock(&queue(rw)->guard);
    if (unlikely(rw->readers_ == 0))
        w_fatal("read unlock of an rwmutex that no reader holds");
    rw->readers_--;
    let_in_locked(rw);
    w_call_end(g);
}

void weft_wrunlock(weft_rwmutex *rw)
{
    struct w_g *g = w_call_begin();
    w_spin_lock(&queue(rw)->guard);
    if (unlikely(rw->writer_ == 0))
        w_fatal("write unlock of an rwmutex that no writer holds");
    rw->writer_ = 0;
    rw->holder_ = NULL;
    let_in_locked(rw);
    w_call_end(g);
}
