/* SPDX-License-Identifier: MIT */
/*
 * The lock of a channel: a spin lock that one P may pass without a locked instruction, which costs 3 to 6 ns here.
 *
 * While a channel is used by the goroutines of one P only, the lock is biased to that P: `owner` names it. The owner says
 * where it goes in (p->inside), then looks whether it still is the owner; nothing else is needed, because whoever wants the
 * lock besides it withdraws the bias first:
 *
 *      owner:   inside = l ; owner == me?            other:   [spin lock] owner = none ; membarrier ; owner's inside != l?
 *
 * membarrier puts a full fence between the owner's two steps, where it has none: one of the two sees the other. [BI-1]
 * A withdrawal costs a membarrier, 4 to 20 us. The spin lock serves everybody from then on, until one P has taken it many times
 * running; so many times more after each withdrawal that a lock which moves to and fro stays what it is.
 *
 * Invariants:
 *   BI1  the lock is held by the one P that is inside as the owner, or by the holder of `spin` while `owner` is none and
 *        nobody is inside
 *   BI2  owner is changed by the holder of `spin` alone; from none to somebody only as he lets go of it
 *   BI3  giving it back touches nothing of the lock but `spin`: who held it as the owner does not touch it at all
 */
#ifndef W_BIAS_H
#define W_BIAS_H

#include "weft_internal.h"

enum {
    W_BIAS_STREAK = 1024, /* as many takings by one P nearly pay for a withdrawal: 3 to 6 ns each */
    W_BIAS_MAX_STREAK = 16384,
    W_BIAS_UNBIASED = 64, /* so many new locks are nobody's after another P wanted one that was its maker's */
};

struct w_bias {
    struct w_spin spin;
    _Atomic uint16_t owner;  /* number of the P + 1; 0: none */
    uint16_t last;           /* who took it last by `spin`, likewise; spin */
    _Atomic uint16_t streak; /* how many times running; spin. atomic: whoever waits looks whether it is taken again */
    uint16_t needed;         /* for the bias to be given; spin */
};

/* For an object that p, if there is one, has just made: its own, unless others lately wanted one that was. */
static inline void w_bias_init(struct w_bias *l, struct w_p *p)
{
    *l = (struct w_bias){.needed = W_BIAS_STREAK};
    if (p == NULL || !w_sched.hiding)
        return;
    uint32_t unbiased = ld_relaxed(&p->unbiased); /* relaxed: a guess, and so below */
    if (likely(unbiased == 0))
        st_relaxed(&l->owner, (uint16_t)(p->id + 1));
    else
        st_relaxed(&p->unbiased, unbiased - 1);
}

void w_bias_lock_slow(struct w_bias *l, struct w_p *p);

/* p: the P that this thread holds, or NULL. */
static inline void w_bias_lock(struct w_bias *l, struct w_p *p)
{
    if (likely(p != NULL && ld_relaxed(&l->owner) == p->id + 1 && p->inside_count < W_INSIDE)) {
        uint32_t i = p->inside_count;
        st_relaxed(&p->inside[i], l); /* relaxed: [BI-1] the membarrier of the other side orders the two */
        w_compiler_barrier();
        if (likely(ld_relaxed(&l->owner) == p->id + 1)) {
            p->inside_count = i + 1;
            return;
        }
        st_relaxed(&p->inside[i], NULL);
    }
    w_bias_lock_slow(l, p);
}

/* false: it is not inside as the owner. Others stay in their places: whoever looks for them goes through all once. */
static inline bool w_bias_leave(struct w_bias *l, struct w_p *p)
{
    uint32_t i = p->inside_count;
    while (i > 0 && ld_relaxed(&p->inside[i - 1]) != l)
        i--;
    if (unlikely(i == 0))
        return false;
    st_release(&p->inside[i - 1], NULL); /* [BI-2] what was done inside */
    while (p->inside_count > 0 && ld_relaxed(&p->inside[p->inside_count - 1]) == NULL)
        p->inside_count--;
    return true;
}

static inline void w_bias_unlock(struct w_bias *l, struct w_p *p)
{
    if (likely(p != NULL) && w_bias_leave(l, p))
        return;
    if (ld_relaxed(&l->streak) >= l->needed && p != NULL)
        st_relaxed(&l->owner, (uint16_t)(p->id + 1)); /* BI2 */
    w_spin_unlock(&l->spin);
}

#endif
