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
 * A waiter that its scope may cut opens its ticket before it enlists itself, so it can be resumed while it is being enlisted: it
 * waits until that is done. If it was cut it takes itself out of the list. If it was the last there it clears WAITERS, unless
 * the count is zero by then: whoever brought it there is about to come for the list (WG2), and is waited for.
 *
 * Invariants:
 *   WG1  WAITERS is set iff the list is not empty or its first member is just being stored, except under LOCKED, and
 *        except where the list ran empty at count zero
 *   WG2  WAITERS is set only while the count is not zero; if it is set and the count is zero, whoever brought the count to
 *        zero is about to wake all
 */
#include "waiter.h"

enum { LOCKED = 1, WAITERS = 2, SHIFT = 2 };
#define ONE ((uint64_t)1 << SHIFT)

/* The list when it ran empty at count zero: there is nobody, and nobody is coming. */
static struct w_waiter nobody;

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

static void lock(weft_wg *wg)
{
    for (uint32_t i = 0; or_acquire(word(wg), LOCKED) & LOCKED; i++) /* [WG-1] the list as the last holder left it */
        w_back_off(i);
}

static void unlock(weft_wg *wg, uint64_t also_clear)
{
    and_release(word(wg), ~(LOCKED | also_clear)); /* [WG-1] the list */
}

static _Atomic uint32_t *run_of(weft_wg *wg)
{
    return (_Atomic uint32_t *)&wg->run_;
}

static bool stale(weft_wg *wg)
{
    return w_run_is_over(ld_relaxed(run_of(wg))); /* relaxed: with the list, or of a run that is over anyway */
}

/* NULL: those in the list were discarded with their run, or cut. */
static struct w_waiter *first_locked(weft_wg *wg)
{
    struct w_waiter *w;
    for (uint32_t i = 0; (w = ld_acquire(list(wg))) == NULL; i++) /* [WG-3] the node */
        w_back_off(i);
    return w == &nobody || stale(wg) ? NULL : w;
}

static void store_first(weft_wg *wg, struct w_waiter *w)
{
    st_relaxed(run_of(wg), ld_relaxed(&w_sched.run));
    st_release(list(wg), w); /* [WG-3] the node, and run_ */
}

static void wake_all_locked(weft_wg *wg)
{
    struct w_claimed c = {0};
    for (struct w_waiter *w = first_locked(wg), *next; w != NULL; w = next) {
        next = w->next;
        w->linked = false;
        if (w_claim(w))
            w_claimed_add(&c, w, 0);
    }
    st_relaxed(list(wg), NULL); /* relaxed: under the lock */
    unlock(wg, WAITERS);
    w_wake_all(&c);
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

void weft_wg_add(weft_wg *wg, int n)
{
    struct w_g *g = w_call_begin();
    add(wg, n);
    w_call_end(g);
}

void weft_wg_done(weft_wg *wg)
{
    weft_wg_add(wg, -1);
}

enum { IN_LIST = 1, NOT_IN_LIST = 2 };

struct waiting {
    struct w_wait wait;
    struct w_waiter node;
    weft_wg *wg;
    _Atomic uint8_t enlisted; /* the one who enlists it is done with this frame: IN_LIST or NOT_IN_LIST */
};

/* Under the lock, so the list is there or about to be. */
static void enlist_behind(struct waiting *self)
{
    self->node.next = first_locked(self->wg);
    store_first(self->wg, &self->node);
    unlock(self->wg, 0);
}

/* false: the count is zero, there is nothing to wait for. */
static bool enlist(struct waiting *self)
{
    weft_wg *wg = self->wg;
    uint64_t s;
    self->node.linked = true;
    for (uint32_t i = 0; (s = ld_acquire(word(wg))) != 0; i++) { /* [WG-2] */
        if (s & LOCKED || count(s) == 0) { /* WG2: until the word is zero the object is not ours to free */
            w_back_off(i);
        } else if (!(s & WAITERS)) {
            if (cas_acq_rel(word(wg), &s, s | WAITERS)) { /* [WG-2] */
                store_first(wg, &self->node);
                return true;
            }
        } else if (cas_acq_rel(word(wg), &s, s | LOCKED)) { /* [WG-1] */
            enlist_behind(self);
            return true;
        }
    }
    self->node.linked = false;
    return false;
}

/* Runs when the waiter is off its stack. With a ticket, the frame is ours until we say `enlisted`. */
static void after_wait(struct w_m *m, struct w_g *prev, void *arg)
{
    struct waiting *self = arg;
    struct w_g *g = self->wait.g;
    bool ticket = self->wait.ticket != 0;
    (void)m, (void)prev;
    bool cut = w_wait_open(&self->wait), in_list = !cut && enlist(self);
    bool wake = cut || (!in_list && w_claim(&self->node));
    if (ticket)
        st_release(&self->enlisted, in_list ? IN_LIST : NOT_IN_LIST); /* [WG-4] the node */
    if (wake)
        w_wake_g(g);
}

/* The list is empty. At count zero WAITERS stays: somebody is on his way to it. */
static void unlock_empty(weft_wg *wg)
{
    uint64_t s = ld_relaxed(word(wg));
    st_relaxed(list(wg), NULL); /* relaxed: under the lock */
    while (count(s) != 0)
        if (cas_release(word(wg), &s, s & ~(uint64_t)(LOCKED | WAITERS))) /* [WG-1] */
            return;
    st_relaxed(list(wg), &nobody);
    unlock(wg, 0);
    for (uint32_t i = 0; ld_relaxed(word(wg)) & WAITERS && ld_relaxed(list(wg)) == &nobody; i++)
        w_back_off(i); /* until he has come: then it may be used anew */
}

/* Until the one who enlists it is done with the frame. */
static uint8_t await_enlisted(struct waiting *self)
{
    uint8_t where;
    for (uint32_t i = 0; (where = ld_acquire(&self->enlisted)) == 0; i++) /* [WG-4] */
        w_back_off(i);
    return where;
}

/* It was cut: out of the list, if it is still there. */
static void delist(struct waiting *self)
{
    weft_wg *wg = self->wg;
    lock(wg);
    if (!self->node.linked || stale(wg)) { /* taken out, or gone with its run */
        unlock(wg, 0);
        return;
    }
    struct w_waiter *first = first_locked(wg), **at = &first;
    while (*at != &self->node)
        at = &(*at)->next;
    *at = self->node.next;
    if (first == NULL) {
        unlock_empty(wg);
        return;
    }
    st_relaxed(list(wg), first); /* relaxed: under the lock */
    unlock(wg, 0);
}

static int wait_for(weft_wg *wg, struct w_g *g)
{
    int r = w_wait_refused(g);
    if (r != 0)
        return r;
    struct waiting self = {.wg = wg};
    w_wait_init(&self.wait, g, W_ONE);
    w_waiter_init(&self.node, &self.wait, NULL, 0);
    w_wait_sleep(&self.wait, after_wait, &self, W_REASON_WAIT_GROUP, wg, NULL); /* another waiter may free wg now */
    r = w_wait_cut(&self.wait);
    if (self.wait.ticket != 0 && await_enlisted(&self) == IN_LIST && r != 0)
        delist(&self);
    return r;
}

int weft_wg_wait(weft_wg *wg)
{
    struct w_g *g = w_call_begin();
    int r = ld_acquire(word(wg)) != 0 ? wait_for(wg, g) : 0; /* [WG-2] */
    w_call_end(g);
    return r;
}
