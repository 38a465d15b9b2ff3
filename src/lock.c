/* SPDX-License-Identifier: MIT */
/* The slow half of lock.h, and its rank checker for debug builds. */
#include "lock.h"
#include "fatal.h"

/* 100 pauses are about 4 us here: longer than every critical section, shorter than a sleep and a wake-up (20 us). */
enum { SPIN = 100 };

void w_lock_slow(struct w_lock *l)
{
    for (int i = 0; i < SPIN; i++) {
        uint32_t free = 0;
        if (ld_relaxed(&l->word) == 0 && cas_acquire(&l->word, &free, 1)) /* [LK-1] */
            return;
        w_pause();
    }
    while (xchg_acquire(&l->word, 2) != 0) /* [LK-1] */
        w_futex_wait(&l->word, 2, -1);
}

/* 15 us of spinning cover every section of ours; a holder that is still inside by then has lost its core, and may get ours. */
void w_back_off(uint32_t i)
{
    enum { SPINS = 300 };
    if (i < SPINS)
        w_pause();
    else
        w_nap(50000);
}

void w_spin_slow(struct w_spin *l)
{
    uint32_t i = 0;
    do {
        while (ld_relaxed(&l->held) != 0)
            w_back_off(i++);
    } while (!w_spin_try(l));
}

#ifdef W_DEBUG
/* Bit r is set while this thread holds a lock of rank r. No goroutine switches while it holds one. */
static __thread uint32_t held;

void w_rank_push(enum w_rank rank)
{
    if (held >> rank)
        w_fatal("lock of rank %d taken while holding ranks %#x", (int)rank, held);
    held |= 1u << rank;
}

void w_rank_pop(enum w_rank rank)
{
    if (!(held & 1u << rank))
        w_fatal("lock of rank %d given back but not held", (int)rank);
    held &= ~(1u << rank);
}
#endif
