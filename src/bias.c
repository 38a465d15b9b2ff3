/* SPDX-License-Identifier: MIT */
/* The slow half of bias.h: withdrawing a bias, and counting towards one. */
#include "bias.h"

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
    l->streak = 0;
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

void w_bias_lock_slow(struct w_bias *l, struct w_p *p)
{
    w_spin_lock(&l->spin);
    if (ld_relaxed(&l->owner) != 0)
        withdraw(l, p);
    uint16_t me = p != NULL && w_sched.hiding ? (uint16_t)(p->id + 1) : 0;
    l->streak = me != 0 && l->last == me ? l->streak + 1 : 0;
    l->last = me;
}
