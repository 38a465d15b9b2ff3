/* SPDX-License-Identifier: MIT */
/*
 * Wait groups.
 *
 * The whole state is one word: count << 2 | WAITERS | LOCKED. The count changes by one atomic addition. LOCKED guards
 * the list of waiters and is given back in the same step that clears WAITERS: whoever then sees the word at zero may
 * free the object, and nobody touches it any more.
 *
 * A waiter enlists itself when it is off its stack already. The first one sets WAITERS and then, without the lock, stores
 * itself as the list; whoever comes to the list meanwhile waits for that store. So one waiter costs one atomic
 * operation, and the one who wakes it two (8 to 12 ns each).
 *
 * Invariants:
 *   WG1  WAITERS is set iff the list is not empty or its first member is just being stored, except under LOCKED
 *   WG2  WAITERS is set only while the count is not zero; if it is set and the count is zero, whoever brought the count to
 *        zero is about to wake all
 */
#include "waiter.h"

enum { LOCKED = 1, WAITERS = 2, SHIFT = 2 };
#define ONE ((uint64_t)1 << SHIFT)

static _Atomic uint64_t *word(weft_wg *wg)
{
    return (_Atomic uint64_t *)&wg->state_;
}

static _Atomic(struct w_waiter *) *list(weft_wg *wg)
{
    return (_Atomic(struct w_waiter *) *)&wg->waiters_;
}

static int32_t count(uint64_t state)
{
    return (int32_t)(state >> SHIFT);
}

/* Everything that is waited for in this way takes a few instructions; only the kernel can make it longer, hence the yield. */
static void back_off(int i)
{
    w_pause();
    if (i % 100 == 0)
        sched_yield();
}

static void lock(weft_wg *wg)
{
    for (int i = 1; or_acquire(word(wg), LOCKED) & LOCKED; i++) /* [WG-1] the list as the last holder left it */
        back_off(i);
}

static void unlock(weft_wg *wg, uint64_t also_clear)
{
    and_release(word(wg), ~(LOCKED | also_clear)); /* [WG-1] the list */
}

static struct w_waiter *first_locked(weft_wg *wg)
{
    struct w_waiter *w;
    for (int i = 1; (w = ld_acquire(list(wg))) == NULL; i++) /* [WG-3] the node */
        back_off(i);
    return w;
}

static void wake_all_locked(weft_wg *wg)
{
    struct w_waiter *w = first_locked(wg), *next;
    st_relaxed(list(wg), NULL); /* relaxed: under the lock */
    unlock(wg, WAITERS);
    for (; w != NULL; w = next) {
        next = w->next;
        w_waiter_wake(w);
    }
}

/* The one that ends the wait takes the lock in the same step, if it sees in time that it is the one. */
static bool end_wait(weft_wg *wg, uint64_t s)
{
    return (s & (LOCKED | WAITERS)) == WAITERS && count(s) == 1 &&
           cas_acq_rel(word(wg), &s, (s - ONE) | LOCKED); /* [WG-1] [WG-2] */
}

static void add(weft_wg *wg, int64_t n)
{
    if (n == -1 && end_wait(wg, ld_relaxed(word(wg)))) {
        wake_all_locked(wg);
        return;
    }
    uint64_t s = add_acq_rel(word(wg), (uint64_t)n << SHIFT); /* [WG-2] what was done, for whoever waited for it */
    s += (uint64_t)n << SHIFT;
    if (unlikely(count(s) < 0))
        w_fatal("negative wait group counter");
    if (count(s) == 0 && s & WAITERS) {
        lock(wg);
        if (!(ld_relaxed(word(wg)) & WAITERS))
            w_fatal("wait group used again before a wait has returned");
        wake_all_locked(wg);
    }
}

/* No run is up: who waited was discarded with it, and is not looked at any more. */
static void add_outside(weft_wg *wg, int64_t n)
{
    lock(wg);
    uint64_t s = ld_relaxed(word(wg)) + ((uint64_t)n << SHIFT);
    if (count(s) < 0)
        w_fatal("negative wait group counter");
    add_acq_rel(word(wg), (uint64_t)n << SHIFT); /* [WG-2] */
    if (count(s) == 0)
        st_relaxed(list(wg), NULL);
    unlock(wg, count(s) == 0 ? WAITERS : 0);
}

/* From a goroutine or a foreign thread alike; only waking needs the runtime. */
void weft_wg_add(weft_wg *wg, int n)
{
    if (unlikely(w_enter() == NULL)) {
        if (w_foreign_enter() != 0) {
            add_outside(wg, n);
            return;
        }
        add(wg, n);
        w_foreign_leave();
        return;
    }
    add(wg, n);
    w_leave();
}

void weft_wg_done(weft_wg *wg)
{
    weft_wg_add(wg, -1);
}

struct wait {
    struct w_waiter node;
    weft_wg *wg;
};

/* Under the lock, so the list is there or about to be. */
static void enlist_behind(struct wait *self)
{
    self->node.next = first_locked(self->wg);
    st_release(list(self->wg), &self->node); /* [WG-3] */
    unlock(self->wg, 0);
}

/* Runs when the waiter is off its stack. */
static void enlist(struct w_m *m, struct w_g *prev, void *arg)
{
    struct wait *self = arg;
    weft_wg *wg = self->wg;
    (void)m, (void)prev;
    uint64_t s;
    for (int i = 1; (s = ld_acquire(word(wg))) != 0; i++) { /* [WG-2] */
        if (s & LOCKED || count(s) == 0) { /* WG2: until the word is zero the object is not ours to free */
            back_off(i);
        } else if (!(s & WAITERS)) {
            if (cas_acq_rel(word(wg), &s, s | WAITERS)) { /* [WG-2] */
                st_release(list(wg), &self->node);        /* [WG-3] the node */
                return;
            }
        } else if (cas_acq_rel(word(wg), &s, s | LOCKED)) { /* [WG-1] */
            enlist_behind(self);
            return;
        }
    }
    w_waiter_wake(&self->node);
}

int weft_wg_wait(weft_wg *wg)
{
    bool inside = w_enter() != NULL;
    if (ld_acquire(word(wg)) != 0) { /* [WG-2] */
        struct wait self = {.wg = wg};
        w_waiter_init(&self.node);
        w_waiter_sleep(&self.node, enlist, &self, W_REASON_WAIT_GROUP, wg); /* another waiter may free wg now */
    }
    if (inside)
        w_leave();
    return 0;
}
