/* SPDX-License-Identifier: MIT */
/*
 * Mutexes.
 *
 * A mutex is one word and a queue. The word's lowest byte is the lock: whoever swaps it from 0 to 1 has it, be it a newcomer
 * (weft_lock, inline) or a waiter that was woken. Above it stand
 *      WAITERS  somebody is in the queue
 *      WOKEN    a waiter was woken, and has neither got the lock nor gone back into the queue: nobody else need be woken; its
 *               level stands beside it
 * Waking one who must then compete lets the running goroutine take the lock many times before a thread or a turn is there for
 * the other. So that this ends, a waiter that is beaten after a millisecond goes back to the head of the queue as STARVED,
 * and the next unlock hands the lock to it: the byte stays 1.
 *
 * Unlocking without a locked instruction. An unlock may not touch the mutex once the byte is 0: the next owner may free it. So
 * it cannot store 0 and then look for waiters in the mutex; and if it looks first, one may come in between. It looks elsewhere:
 * the addresses of all mutexes fall into buckets, and weft_light_[bucket] is 0 while a mutex of that bucket has waiters.
 *
 *      unlock (light)                            first waiter of a mutex, under the bucket's guard
 *      stores 0 into the byte                    enters the mutex in the bucket's list, stores light = 0
 *      (compiler barrier only)                   membarrier
 *      loads light: 0 means that it comes        reads the byte: 0 means that the lock is free
 *      to the bucket (weft_unlocked_late_)
 *
 * Every running thread executes a fence during the membarrier. If the unlock's store comes before its thread's fence, the waiter
 * sees it. If it comes after, so does its load, which sees light = 0: it comes to the bucket, waits for the guard, that is, until the
 * waiter is in the queue, and wakes it. There it knows the mutex by its address alone, and touches it only if the bucket lists
 * it: then somebody waits for it, and it is alive (MX2). tests/model/mutex.pml checks this with store buffers.
 *
 * While light is 0, unlocks swap the whole word and so see WAITERS. The bucket becomes light again after so many unlocks without
 * a waiter, twice as many each time: one that stays heavy costs each unlock 7 ns, a membarrier costs 4 to 15 us.
 * At first, and for ever where there is no membarrier, no bucket is light.
 *
 * Invariants:
 *   MX1  WAITERS is set iff the queue is not empty iff the mutex is in its bucket's list; all three change under the guard
 *   MX2  a mutex in a list of this run is alive: its waiter does not return before it is out of the queue, nor then before
 *        the guard was open
 *   MX3  if the byte is 0 and WAITERS is set, then WOKEN is set, or an unlock is on its way to weft_unlocked_late_
 *   MX4  whoever was woken clears WOKEN: in one step with taking the lock, or under the guard, and then either goes back into
 *        the queue while the lock is held, or sees to MX3
 *   MX5  light is 0 while the list is not empty, and a membarrier lies between its becoming 0 and the guard's being opened
 * What a discarded run left in word and queue is cleared by the next one who waits.
 *
 * Owners. Once there are priorities in a run, every lock says who holds it, and every unlock takes the slow way; somebody more
 * urgent who is about to wait lends the owner its level (priority.c), and so on along the chain of owners that wait for mutexes
 * themselves. LENT in the word: the owner has to give it back.                                            [MX-2]
 *      owner, locking:    owner = me ; WAITERS set?               waiter:   sets WAITERS, or LENT ; owner?
 *      owner, unlocking:  owner = none ; LENT set?
 * each with a full fence between: one of the two sees the other. What follows is done under the guard. Along the chain: [MX-4]
 *      owner, about to wait:  state = WAITING ; level raised?     lender:   level raised ; WAITING, for which mutex?
 * Nobody can lend anything to a waiter that was woken and has not got the lock yet, be it that it takes its time because of its
 * priority. So if one that goes on waiting is more urgent than the one in turn, or than the one that was woken before, the lock is
 * handed to the one in turn: it is the owner from then on, with what it is lent.
 */
#include "waiter.h"

enum {
    LOCKED = 1,
    LOCK_BYTE = 255,
    WAITERS = 1 << 8,
    WOKEN = 1 << 9,
    LENT = 1 << 10,
    WOKEN_LEVEL = 11, /* from this bit on, two: the level of who was woken, above the lowest */
    WOKEN_BITS = WOKEN | 3 << WOKEN_LEVEL
};
_Static_assert((WOKEN_BITS | WAITERS | LENT) >> 16 == 0, "weft_unlock looks at two bytes");
enum { AWAKE, OWNER }; /* what a waiter is told */
enum {
    BUCKETS = 256,       /* a bucket in which somebody waits costs the other mutexes in it 7 ns an unlock */
    CALM = 2048,         /* unlocks: times 7 ns is a membarrier */
    MOST_CALM = 1 << 16, /* a membarrier each so many costs them 0.2 ns */
    SPINS = 4,           /* Go's: 5 us in all, a quarter of what waking a thread costs */
    PAUSES = 30,
    CHAIN = 8,  /* owners who wait for mutexes themselves: so many are lent something */
    HEARD = 32, /* waiters whose level a new owner looks at */
};
static const int64_t STARVES = WEFT_MSEC; /* Go's */

unsigned char weft_light_[BUCKETS];
unsigned char weft_owners_;
_Static_assert(sizeof weft_light_ == 1 << 8, "weft_bucket_ has 8 bits");

struct bucket {
    _Alignas(W_CACHE_LINE) struct w_spin guard;
    uint32_t run;          /* that filled the list; guard */
    weft_mutex *contended; /* mutexes with waiters, linked by next_; guard */
    int32_t patience;      /* so many unlocks without a waiter make it light; guard */
    _Atomic int32_t left;  /* of them, about; atomic, some may be lost */
};

static struct bucket buckets[BUCKETS];

static _Atomic uint32_t *word(weft_mutex *mu)
{
    return (_Atomic uint32_t *)&mu->state_;
}

static _Atomic unsigned char *light(const weft_mutex *mu)
{
    return (_Atomic unsigned char *)&weft_light_[weft_bucket_(mu)];
}

static struct w_waitq *queue(weft_mutex *mu)
{
    return w_waitq_of(&mu->waiters_);
}

/* ---- buckets ---------------------------------------------------------------------------------------------------- */

static struct bucket *lock_bucket(const weft_mutex *mu)
{
    struct bucket *b = &buckets[weft_bucket_(mu)];
    w_spin_lock(&b->guard);
    uint32_t run = ld_relaxed(&w_sched.run); /* relaxed: as in w_waitq_stale */
    if (unlikely(b->run != run)) {
        b->run = run;
        b->contended = NULL;
    }
    return b;
}

static weft_mutex **find_locked(struct bucket *b, const weft_mutex *mu)
{
    weft_mutex **at = &b->contended;
    while (*at != NULL && *at != mu)
        at = &(*at)->next_;
    return at;
}

static void list_locked(struct bucket *b, weft_mutex *mu)
{
    mu->next_ = b->contended;
    b->contended = mu;
    if (ld_relaxed(light(mu)) != 0) {
        st_relaxed(light(mu), 0); /* relaxed: the membarrier orders it */
        if (w_membarrier() != 0)
            w_nap(WEFT_MSEC); /* somebody has forbidden it since: no store stays in a processor that long */
        b->patience = b->patience < CALM ? CALM : b->patience < MOST_CALM ? b->patience * 2 : MOST_CALM;
    }
    st_relaxed(&b->left, b->patience);
}

static void unlist_locked(struct bucket *b, weft_mutex *mu)
{
    weft_mutex **at = find_locked(b, mu);
    if (*at != NULL)
        *at = mu->next_;
}

/* The queue has lost a waiter (MX1). The caller holds the lock, or is a waiter itself: mu is alive. */
static void settle_locked(struct bucket *b, weft_mutex *mu)
{
    if (w_waitq_first(queue(mu)) != NULL)
        return;
    unlist_locked(b, mu);
    atomic_fetch_and_explicit(word(mu), ~(uint32_t)WAITERS, memory_order_relaxed); /* relaxed: under the guard */
}

static bool can_be_light(void)
{
#ifdef W_TSAN
    return false; /* it knows nothing of membarrier */
#else
    return w_membarrier_register() == 0;
#endif
}

static __attribute__((noinline)) void become_light(const weft_mutex *mu)
{
    struct w_g *g = w_call_begin();
    struct bucket *b = lock_bucket(mu);
    if (b->contended == NULL && can_be_light())
        st_relaxed(light(mu), 1); /* relaxed: who unlocks may see it late */
    else
        st_relaxed(&b->left, CALM); /* not yet, or never: then this is 0.1 ns an unlock */
    w_spin_unlock(&b->guard);
    w_call_end(g);
}

/* An unlock found nobody waiting. mu may be gone: only its address is used. Counted in strides, of the thread, so that
 * threads do not fight for the counter. */
static void calm_down(const weft_mutex *mu)
{
    enum { STRIDE = 64 };
    static __thread uint32_t unlocks __attribute__((tls_model("initial-exec")));
    if (likely(++unlocks % STRIDE != 0))
        return;
    _Atomic int32_t *left = &buckets[weft_bucket_(mu)].left;
    int32_t n = ld_relaxed(left) - STRIDE;
    st_relaxed(left, n);
    if (n <= 0 && ld_relaxed(light(mu)) == 0)
        become_light(mu);
}

/* ---- owners and what they are lent ------------------------------------------------------------------------------ */

static _Atomic(struct w_g *) *owner_of(weft_mutex *mu)
{
    return (_Atomic(struct w_g *) *)(void *)&mu->owner_;
}

/* A goroutine of a run, by a number that no other has. */
static uint64_t stamp_of(const struct w_g *g)
{
    return (uint64_t)ld_relaxed(&w_sched.run) << 40 ^ g->id;
}

static bool is_of_this_run(uint64_t stamp)
{
    return stamp >> 40 == ld_relaxed(&w_sched.run);
}

/* The owner, if it is known and has not ended. */
static struct w_g *living_owner(weft_mutex *mu, struct w_g *g)
{
    uint64_t stamp = __atomic_load_n(&mu->owner_stamp_, __ATOMIC_RELAXED); /* relaxed: written before owner */
    return g != NULL && is_of_this_run(stamp) && stamp == stamp_of(g) ? g : NULL;
}

static int8_t highest_locked(weft_mutex *mu)
{
    int8_t level = W_LOW;
    struct w_waiter *w = w_waitq_first(queue(mu));
    for (int i = 0; w != NULL && i < HEARD; w = w->next, i++)
        if (ld_relaxed(&w->wait->g->level) > level)
            level = ld_relaxed(&w->wait->g->level);
    return level;
}

static void name_owner(weft_mutex *mu, struct w_g *g)
{
    __atomic_store_n(&mu->owner_stamp_, stamp_of(g), __ATOMIC_RELAXED); /* relaxed: read after owner */
    st_release(owner_of(mu), g);                                        /* [MX-3] */
}

/* What those in the queue have, who did not know it. */
static void lend_to_owner_locked(weft_mutex *mu, struct w_g *g)
{
    if (w_lend(g, highest_locked(mu), !(ld_relaxed(word(mu)) & LENT)))
        atomic_fetch_or_explicit(word(mu), LENT, memory_order_relaxed); /* relaxed: under the guard */
}

/* The caller has the lock, and is inside a call. */
static __attribute__((noinline)) void own(weft_mutex *mu, struct w_g *g)
{
    if (g->flags & W_G_FOREIGN)
        return;
    name_owner(mu, g);
    w_fence_seq(); /* [MX-2] */
    if (!(ld_relaxed(word(mu)) & WAITERS))
        return;
    struct bucket *b = lock_bucket(mu);
    lend_to_owner_locked(mu, g);
    w_spin_unlock(&b->guard);
}

/* The caller, who need not be the owner, is about to open the lock. */
static __attribute__((noinline)) void disown(weft_mutex *mu)
{
    struct w_g *g = living_owner(mu, ld_relaxed(owner_of(mu))); /* relaxed: whoever unlocks knows that it is locked */
    st_relaxed(owner_of(mu), NULL);
    w_fence_seq(); /* [MX-2] */
    if (!(ld_relaxed(word(mu)) & LENT))
        return;
    struct bucket *b = lock_bucket(mu);
    uint32_t s = atomic_fetch_and_explicit(word(mu), ~(uint32_t)LENT, memory_order_relaxed); /* relaxed: the guard's */
    if (s & LENT && g != NULL)
        w_repay(g);
    w_spin_unlock(&b->guard);
}

/* Lends level to whoever has the lock; the mutex that this one waits for, or NULL. */
static weft_mutex *lend_locked(weft_mutex *mu, int8_t level)
{
    bool first = !(atomic_fetch_or_explicit(word(mu), LENT, memory_order_relaxed) & LENT); /* relaxed: the fence's */
    w_fence_seq();                                                                         /* [MX-2] */
    struct w_g *g = living_owner(mu, ld_acquire(owner_of(mu)));                            /* [MX-3] */
    if (g == NULL || !w_lend(g, level, first)) {
        if (first)
            atomic_fetch_and_explicit(word(mu), ~(uint32_t)LENT, memory_order_relaxed); /* relaxed: the guard's */
        return NULL;
    }
    w_fence_seq(); /* [MX-4] */
    bool waits = ld_relaxed(&g->state) == W_WAITING && ld_relaxed(&g->reason) == W_REASON_MUTEX;
    return waits ? (weft_mutex *)ld_relaxed(&g->waits_on) : NULL;
}

/* Along the chain of owners, from a mutex that an owner waits for: alive if somebody does (MX2). */
static void lend_on(weft_mutex *mu, int8_t level)
{
    for (int i = 0; mu != NULL && i < CHAIN; i++) {
        struct bucket *b = lock_bucket(mu);
        mu = *find_locked(b, mu) != NULL ? lend_locked(mu, level) : NULL;
        w_spin_unlock(&b->guard);
    }
}

/* That mu is alive is the caller's business. */
static __attribute__((noinline)) void lend(weft_mutex *mu, int8_t level)
{
    struct bucket *b = lock_bucket(mu);
    mu = lend_locked(mu, level);
    w_spin_unlock(&b->guard);
    lend_on(mu, level);
}

/* Before anything that is wanted of us: the owner is known once others may run. */
void weft_own_(weft_mutex *mu)
{
    struct w_g *g = w_call_begin_quietly();
    if (g == NULL)
        return;
    own(mu, g);
    w_call_end(g);
}

/* For dumps: at is on the stack of whoever has the lock now, NULL: it is about to be opened. */
static void hold(weft_mutex *mu, void *at)
{
    __atomic_store_n(&mu->holder_, at, __ATOMIC_RELAXED); /* relaxed: a dump looks twice */
}

/* ---- unlocking -------------------------------------------------------------------------------------------------- */

/* Takes the lock if it is free, and clears such bits. */
static bool take(weft_mutex *mu, uint32_t clear)
{
    uint32_t s = ld_relaxed(word(mu));
    while (!(s & LOCK_BYTE))
        if (cas_acquire(word(mu), &s, (s | LOCKED) & ~clear)) /* [MX-1] what the last owner wrote */
            return true;
    return false;
}

/* The word, as whoever has the lock sees it. Byte by byte, as in weft_unlock. */
static uint32_t word_of_owner(const weft_mutex *mu)
{
    const unsigned char *at = (const unsigned char *)&mu->state_;
    uint32_t low = __atomic_load_n(&at[0], __ATOMIC_RELAXED), high = __atomic_load_n(&at[1], __ATOMIC_RELAXED);
    return low | high << 8; /* relaxed: what is done with it fails if it has changed, or looks again */
}

static bool must_look(uint32_t s, bool owners)
{
    return s & WAITERS && (owners || !(s & WOKEN));
}

/* Opens the lock unless the queue has to be looked at for it: somebody has to be woken, or may be more urgent than who was. true: it is
 * still locked. *was: what the word was. */
static bool release(weft_mutex *mu, bool owners, uint32_t *was)
{
    uint32_t s = word_of_owner(mu);
    if (s & LOCK_BYTE)
        hold(mu, NULL);
    do {
        if (unlikely(!(s & LOCK_BYTE)))
            w_fatal("unlock of an unlocked mutex");
    } while (!must_look(s, owners) &&
             !cas_release(word(mu), &s, s & ~(uint32_t)LOCK_BYTE)); /* [MX-1]; mu may be gone now */
    *was = s;
    return must_look(s, owners);
}

/* That it has when it runs: who has waited is not heavy any more. */
static int8_t level_when_woken(const struct w_g *g)
{
    int8_t level =
        ld_relaxed(&((struct w_g *)g)->level); /* relaxed: a hint; who lends it something later sees the owner */
    return level == W_HEAVY ? W_NORMAL : level;
}

/* Is somebody in the queue more urgent than the one that was woken, and that we would wait for? */
static bool outranks_woken_locked(weft_mutex *mu, uint32_t s)
{
    return w_uses_priorities() && highest_locked(mu) > (int8_t)(s >> WOKEN_LEVEL & 3) + W_LOW;
}

/* The byte stays 1. What the new owner is lent by those behind it is noted as if they had come now. */
static void hand_over_locked(weft_mutex *mu, struct w_waiter *w)
{
    struct w_g *g = w->wait->g;
    hold(mu, w);
    w->wait->result = OWNER;
    if (!w_uses_priorities() || g->flags & W_G_FOREIGN)
        return;
    name_owner(mu, g);
    lend_to_owner_locked(mu, g);
}

static void open_locked(weft_mutex *mu, uint32_t set)
{
    uint32_t s = ld_relaxed(word(mu));
    while (!cas_release(word(mu), &s, (s & ~(uint32_t)LOCK_BYTE) | set)) /* [MX-1] */
        ;
}

/* The caller has the lock and the guard, and gives both away. true: the lock went to a waiter. */
static bool pass_on_locked(struct bucket *b, weft_mutex *mu)
{
    uint32_t s = ld_relaxed(word(mu));
    bool outranks = s & WOKEN && outranks_woken_locked(mu, s), hand_over = false;
    struct w_waiter *w = s & WOKEN && !outranks ? NULL : w_waitq_take(queue(mu));
    if (w != NULL) {
        int8_t level = level_when_woken(w->wait->g);
        settle_locked(b, mu);
        hand_over = outranks || w->n >= STARVES || (w_uses_priorities() && highest_locked(mu) > level);
        w->wait->result = AWAKE;
        if (hand_over)
            hand_over_locked(mu, w);
        else
            open_locked(mu, WOKEN | (uint32_t)(level - W_LOW) << WOKEN_LEVEL);
    } else {
        open_locked(mu, 0);
    }
    w_spin_unlock(&b->guard); /* mu may be gone already */
    if (w != NULL)
        w_wake(w);
    return hand_over;
}

/* The new owner runs now: many may be waiting for what it waits for. */
static void end_unlock(struct w_g *g, bool handed_over)
{
    w_call_end(g);
    if (unlikely(handed_over) && !(g->flags & W_G_FOREIGN))
        weft_yield();
}

bool w_mutex_unlock(weft_mutex *mu)
{
    bool owners = w_uses_priorities();
    if (owners)
        disown(mu);
    uint32_t was;
    return release(mu, owners, &was) && pass_on_locked(lock_bucket(mu), mu);
}

/* Others run only when the lock is open: what the owner was lent is given back by then. false: its run has left it behind. */
static __attribute__((noinline)) bool unlock_owned(weft_mutex *mu)
{
    struct w_g *g = w_call_begin_quietly();
    if (g == NULL)
        return false;
    end_unlock(g, w_mutex_unlock(mu));
    return true;
}

void weft_unlock_slow_(weft_mutex *mu)
{
    if (w_uses_priorities() && unlock_owned(mu))
        return;
    uint32_t s;
    if (release(mu, false, &s)) {
        struct w_g *g = w_call_begin();
        end_unlock(g, pass_on_locked(lock_bucket(mu), mu));
    } else if (!(s & WAITERS)) {
        calm_down(mu);
    } else if (w_enter() != NULL) { /* one that takes the lock again and again lets others run when its time is up */
        w_leave();
    }
}

/* If the lock is free and nobody is on the way to it, it is taken and given to the first in turn (MX3). Opens the guard. */
static bool see_to_locked(struct bucket *b, weft_mutex *mu)
{
    if (!(ld_relaxed(word(mu)) & WOKEN) && take(mu, 0))
        return pass_on_locked(b, mu);
    w_spin_unlock(&b->guard);
    return false;
}

/* The lock was opened by a plain store, and the bucket is not light any more: somebody may wait for it (MX2). */
void weft_unlocked_late_(weft_mutex *mu)
{
    struct w_g *g = w_call_begin();
    struct bucket *b = lock_bucket(mu);
    bool handed_over = false;
    if (*find_locked(b, mu) != NULL)
        handed_over = see_to_locked(b, mu);
    else
        w_spin_unlock(&b->guard);
    end_unlock(g, handed_over);
}

/* ---- locking ---------------------------------------------------------------------------------------------------- */

struct waiting {
    struct w_wait wait;
    struct w_waiter node; /* n: for how long it has waited when it was last beaten */
    struct bucket *b;
    weft_mutex *mu;
    weft_mutex *next; /* that the owner waits for, when it was lent something */
    int64_t since;    /* when it began to wait; 0: it has not yet */
    int8_t lent;      /* the level that it has lent the owner */
    bool woken;       /* it owes MX4 */
};

/* It is known to wait now: what somebody has lent it who did not know that yet goes on to the owner. The level that it lends. */
static int8_t lend_late_locked(struct waiting *self)
{
    w_fence_seq(); /* [MX-4] */
    int8_t level = ld_relaxed(&self->wait.g->level);
    if (level > self->lent)
        self->next = lend_locked(self->mu, level);
    return level;
}

/* On along the chain, once the guard is open. Our P has chosen its next one already. */
static __attribute__((noinline)) void lend_further(weft_mutex *next, int8_t level)
{
    lend_on(next, level);
    if (ld_relaxed(&w_sched.globq.lens[W_LINE_HIGH]) > 0) /* relaxed: the monitor looks again */
        w_urgent_ready();
}

static void after_lock(struct w_m *m, struct w_g *prev, void *arg)
{
    struct waiting *self = arg;
    struct w_g *g = self->wait.g;
    struct bucket *b = self->b;
    (void)m, (void)prev;
    int8_t lent = self->lent, level = w_uses_priorities() ? lend_late_locked(self) : lent;
    weft_mutex *next = self->next;
    bool cut = w_wait_open(&self->wait);
    w_spin_unlock(&b->guard);
    if (unlikely(cut))
        w_wake_g(g);
    if (unlikely(next != NULL || level > lent))
        lend_further(next, level);
}

/* Can the owner be about to unlock while we look on? Not if it needs our processor, or others do. */
static bool may_spin(const struct w_g *g)
{
    uint32_t busy = ld_relaxed(&w_sched.procs) - ld_relaxed(&w_sched.idle_p_count);
    return g->flags & W_G_FOREIGN || (busy > 1 && w_p_work(w_m()->p) == 0);
}

static bool spin(weft_mutex *mu, const struct waiting *self)
{
    uint32_t clear = self->woken ? WOKEN_BITS : 0;
    for (int i = 0; i < SPINS && may_spin(self->wait.g); i++) {
        for (int j = 0; j < PAUSES; j++)
            w_pause();
        if (take(mu, clear))
            return true;
    }
    return take(mu, clear);
}

/* true: it has the lock after all. Else WAITERS is set, and the caller goes into the queue (MX1). */
static bool announce_locked(struct bucket *b, weft_mutex *mu, const struct waiting *self)
{
    uint32_t s = ld_relaxed(word(mu)), clear = self->woken ? WOKEN_BITS : 0;
    if (unlikely(queue(mu)->run != b->run) && s & (WAITERS | WOKEN))
        s = atomic_fetch_and_explicit(word(mu), LOCK_BYTE, memory_order_relaxed) & LOCK_BYTE; /* relaxed: the guard's */
    bool listed = s & WAITERS;
    if (!listed)
        list_locked(b, mu);
    do {
        if (take(mu, clear)) {
            if (!listed)
                unlist_locked(b, mu);
            return true;
        }
        s = ld_relaxed(word(mu)) | LOCKED;
    } while (!cas_acquire(word(mu), &s, (s | WAITERS) & ~clear)); /* [MX-1] */
    return false;
}

static void put_first(struct w_waitq *q, struct w_waiter *w)
{
    struct w_waiter *first = w_waitq_first(q);
    if (first == NULL) {
        w_waitq_put(q, w);
        return;
    }
    w->prev = NULL;
    w->next = first;
    w->q = q;
    w->linked = true;
    first->prev = w;
    st_relaxed(&q->head, w);
}

/* One turn in the queue. 0: it was woken; OWNER: and has the lock; else why it was cut. */
static int queue_up(struct bucket *b, weft_mutex *mu, struct waiting *self)
{
    if (self->woken)
        put_first(queue(mu), &self->node);
    else
        w_waitq_put(queue(mu), &self->node);
    self->b = b;
    self->mu = mu;
    w_wait_sleep(&self->wait, after_lock, self, W_REASON_MUTEX, mu, NULL);
    int r = w_wait_cut(&self->wait);
    if (likely(r == 0))
        return self->wait.result;
    b = lock_bucket(mu);
    w_waitq_remove(&self->node);
    settle_locked(b, mu);
    w_spin_unlock(&b->guard);
    return r;
}

/* Whoever was woken and may not wait any more leaves its turn to the next. */
static void give_up(weft_mutex *mu, const struct waiting *self)
{
    if (!self->woken)
        return;
    struct bucket *b = lock_bucket(mu);
    atomic_fetch_and_explicit(word(mu), ~(uint32_t)WOKEN_BITS, memory_order_relaxed); /* relaxed: the guard's */
    if (ld_relaxed(word(mu)) & WAITERS)
        see_to_locked(b, mu);
    else
        w_spin_unlock(&b->guard);
}

static int refused(struct w_g *g, enum w_enders enders)
{
    if (enders != W_NO_CUT)
        return w_wait_refused(g);
    return g->flags & W_G_FOREIGN && !w_up() ? -EPERM : 0;
}

/* Inside a call. */
static int wait_for_lock(weft_mutex *mu, struct w_g *g, enum w_enders enders)
{
    struct waiting self = {.wait.g = g};
    for (;;) {
        if (spin(mu, &self))
            return 0;
        int r = refused(g, enders);
        if (unlikely(r != 0)) {
            give_up(mu, &self);
            return r;
        }
        int64_t now = w_now();
        if (self.since == 0)
            self.since = now;
        self.lent = ld_relaxed(&g->level);
        if (w_uses_priorities())
            lend(mu, self.lent);
        w_wait_init(&self.wait, g, enders);
        w_waiter_init(&self.node, &self.wait, NULL, now - self.since);
        struct bucket *b = lock_bucket(mu);
        if (announce_locked(b, mu, &self)) {
            w_spin_unlock(&b->guard);
            return 0;
        }
        /* Once more: an owner that did not see us wait is known now. */
        self.next = w_uses_priorities() ? lend_locked(mu, self.lent) : NULL;
        r = queue_up(b, mu, &self);
        if (r != AWAKE)
            return r == OWNER ? 0 : r;
        self.woken = true;
    }
}

int w_mutex_lock(weft_mutex *mu, struct w_g *g, enum w_enders enders)
{
    int r = take(mu, 0) ? 0 : wait_for_lock(mu, g, enders);
    if (r == 0)
        hold(mu, weft_here_());
    if (r == 0 && w_uses_priorities())
        own(mu, g);
    return r;
}

int weft_lock_slow_(weft_mutex *mu)
{
    struct w_g *g = w_call_begin();
    int r = w_mutex_lock(mu, g, W_ONE);
    w_call_end(g);
    return r;
}

int weft_try_lock(weft_mutex *mu)
{
    if (!take(mu, 0))
        return -EAGAIN;
    hold(mu, weft_here_());
    if (w_uses_priorities())
        weft_own_(mu);
    return 0;
}
