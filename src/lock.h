/* SPDX-License-Identifier: MIT */
/*
 * The lock that guards the runtime's own cold data: it spins a little, then sleeps in the kernel.
 *
 * A holder is never descheduled by the runtime (locks are taken and given back inside one runtime call), but the
 * kernel may take its core away; hence the futex. States: 0 free, 1 held, 2 held and somebody may be asleep.
 *
 * Lock order is the order of the ranks; debug builds (W_DEBUG) check it: a thread takes a lock only if its rank is
 * above that of every lock that it holds.
 */
#ifndef W_LOCK_H
#define W_LOCK_H

#include "atomic.h"
#include "sys.h"
#include <stdbool.h>

enum w_rank {
    W_RANK_SYMBOLS = 1, /* names of addresses: symbol.c */
    W_RANK_PROCS,       /* w_sched.procs_lock: one change of the number of Ps at a time */
    W_RANK_RING,        /* the making of the ring for files */
    W_RANK_POLLER,      /* the making of the poller */
    W_RANK_SCHED,       /* w_sched.lock: global queue, idle Ps, idle Ms, all Ms */
    W_RANK_GPOOL,       /* free goroutines */
    W_RANK_STACKS,      /* one stack class */
};

struct w_lock {
    _Atomic uint32_t word;
};

/*
 * The lock of an object that users make by the thousand: one word, a few instructions long, no call to the kernel when it
 * is given back, which is one plain store and the last touch of the object. Whoever finds it held spins, then naps: its
 * holder is in the middle of some nanoseconds, unless the kernel has taken its core away.
 */
struct w_spin {
    _Atomic uint32_t held;
};

void w_spin_slow(struct w_spin *l);

/* One step of waiting, the i-th from 0 on, for something that is a few instructions away. */
void w_back_off(uint32_t i);

static inline bool w_spin_try(struct w_spin *l)
{
    return xchg_acquire(&l->held, 1) == 0; /* [SP-1] what the former holder wrote */
}

static inline void w_spin_lock(struct w_spin *l)
{
    if (__builtin_expect(!w_spin_try(l), 0))
        w_spin_slow(l);
}

static inline void w_spin_unlock(struct w_spin *l)
{
    st_release(&l->held, 0); /* [SP-1] */
}

void w_lock_slow(struct w_lock *l);

#ifdef W_DEBUG
void w_rank_push(enum w_rank rank);
void w_rank_pop(enum w_rank rank);
#else
static inline void w_rank_push(enum w_rank rank)
{
    (void)rank;
}
static inline void w_rank_pop(enum w_rank rank)
{
    (void)rank;
}
#endif

static inline void w_lock(struct w_lock *l, enum w_rank rank)
{
    uint32_t free = 0;
    w_rank_push(rank);
    if (!cas_acquire(&l->word, &free, 1)) /* [LK-1] what the former holder wrote */
        w_lock_slow(l);
}

/* After the exchange the lock's memory is not touched again: its owner may free it. A wake-up that meets another
 * futex at that address is spurious, and every waiter of ours expects those. */
static inline void w_unlock(struct w_lock *l, enum w_rank rank)
{
    w_rank_pop(rank);
    if (xchg_release(&l->word, 0) == 2) /* [LK-1] */
        w_futex_wake(&l->word, 1);
}

#endif
