/* SPDX-License-Identifier: MIT */
/*
 * The one node with which anybody waits for anything: it lies on the waiter's stack, in the list of the object that it
 * waits for, and is taken out of it by whoever wakes it.
 *
 * A goroutine parks; a foreign thread sleeps on the futex in the node. Invariant: once w_waiter_wake has been called the
 * node belongs to the waiter again and may be gone, so the waker reads what it needs (next) before.
 */
#ifndef W_WAITER_H
#define W_WAITER_H

#include "park.h"

struct w_waiter {
    struct w_waiter *next;
    struct w_g *g;          /* NULL: a foreign thread, which sleeps on `woken` */
    _Atomic uint32_t woken; /* futex */
};

static inline void w_waiter_init(struct w_waiter *w)
{
    struct w_m *m = w_m();
    w->next = NULL;
    w->g = m != NULL ? m->g : NULL;
    st_relaxed(&w->woken, 0);
}

/* Sleeps until woken. after(arg) lets the node be found: it enlists it, or opens the lock of the list that it is in. */
static inline __attribute__((always_inline)) void w_waiter_sleep(struct w_waiter *w, w_after *after, void *arg,
                                                                 enum w_reason reason, const void *object)
{
    if (w->g != NULL) {
        w_park(after, arg, reason, object);
        return;
    }
    after(NULL, NULL, arg);
    while (ld_acquire(&w->woken) == 0) /* [WT-1] what the waker did before */
        w_futex_wait(&w->woken, 0, -1);
}

static inline void w_waiter_wake(struct w_waiter *w)
{
    if (w->g != NULL) {
        w_ready(w->g);
        return;
    }
    st_release(&w->woken, 1); /* [WT-1]; the node may be gone from here on: the address alone is used */
    w_futex_wake(&w->woken, 1);
}

#endif
