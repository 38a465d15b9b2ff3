/* SPDX-License-Identifier: MIT */
/* The slow half of bias.h: withdrawing a bias, and counting towards one. */
#include "bias.h"

enum {
    MAX_PAUSES = 64
}; /* some 2 us: mpmc_2p 69 ns with 1, 22 with 32 and 64, 38 with 128; chan_prodcons.100 159, 70, 51 and 57 */

static bool is_inside(struct w_p *p, const struct w_bias *l)
{
    for (uint32_t i = 0; i < W_INSIDE; i++)
        if (ld_acquire(&p->inside[i]) == l) /* [BI-2] */
            return true;
    return false;
}

/* By the holder of spin. If no run is up, nobody can be inside. */
static void withdraw(struct w_bias *l, struct w_p *me)
{
    uint32_t owner = ld_relaxed(&l->owner);
    bool first = l->needed == W_BIAS_STREAK;
    st_relaxed(&l->owner, 0);
    st_relaxed(&l->streak, 0);
    l->needed = l->needed < W_BIAS_MAX_STREAK / 2 ? l->needed * 2 : W_BIAS_MAX_STREAK;
    if (me != NULL && owner == me->id + 1)
        return;
    w_membarrier();                                      /* [BI-1] */
    if (!w_up() || owner > ld_acquire(&w_sched.p_count)) /* [PC-1] */
        return;
    struct w_p *p = w_sched.ps[owner - 1];
    if (first)
        st_relaxed(&p->unbiased, W_BIAS_UNBIASED);
    for (uint32_t i = 0; is_inside(p, l); i++)
        w_back_off(i);
}

/* If another P takes it again and again, each of our looks costs that one the cache line, and each change of hands costs both much more
 * than what is done inside: we look less and less often, and then work as long undisturbed. If it is just held, we look at once. */
static void wait_for(struct w_bias *l)
{
    uint32_t steps = 0, pauses = 1;
    uint16_t first = ld_relaxed(&l->streak); /* relaxed: a hint, as below */
    do {
        for (uint32_t i = 0; i < pauses; i++)
            w_back_off(steps++);
        if (pauses < MAX_PAUSES && ld_relaxed(&l->streak) != first)
            pauses *= 2;
    } while (ld_relaxed(&l->spin.held) != 0 || !w_spin_try(&l->spin));
}

void w_bias_lock_slow(struct w_bias *l, struct w_p *p)
{
    if (!w_spin_try(&l->spin))
        wait_for(l);
    if (ld_relaxed(&l->owner) != 0)
        withdraw(l, p);
    uint16_t me = p != NULL && w_sched.hiding ? (uint16_t)(p->id + 1) : 0;
    uint16_t streak = me != 0 && l->last == me ? (uint16_t)(ld_relaxed(&l->streak) + 1) : 0;
    st_relaxed(&l->streak, streak);
    l->last = me;
}
