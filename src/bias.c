/* SPDX-License-Identifier: MIT */
/* The slow half of bias.h: withdrawing a bias, and counting towards one. */
#include "bias.h"

/* mpmc_2p and chan_prodcons.100 without turns: 65 and 183 ns; with 64 takings and 8 pauses 72 and 108, 256 and 32: 40 and 68, 256 and 64: 39
 * and 57, 900 and 64: 34 and 58. */
enum {
    TURN = 256, /* takings: 4 to 10 us */
    APART = 64, /* pauses: 3 us */
    POLITE = 5, /* looks that far apart, in one wait */
};

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

/* When a lock changes hands, cache lines do, and that takes longer than many a time inside. So a P that takes it again and again has a turn
 * of so many takings, during which we do not try, and look rarely: each look takes the line away from it. If it does not take it again, or
 * its turn is over, or we have looked in vain for a while (others take it as well, or it stays inside for long), we look all the time; if
 * nothing happens then, the holder has lost its core, and w_back_off naps. */
static void wait_for(struct w_bias *l)
{
    uint32_t quiet = 0, pauses = 1, looks = 0;
    uint16_t streak = ld_relaxed(&l->streak); /* relaxed: a hint, as below */
    bool turn;
    do {
        uint16_t before = streak;
        for (uint32_t i = 1; i < pauses; i++)
            w_pause();
        w_back_off(quiet);
        streak = ld_relaxed(&l->streak);
        quiet = streak == before ? quiet + 1 : 0;
        turn = quiet == 0 && streak < TURN && looks++ < POLITE;
        pauses = turn ? APART : 1;
    } while (turn || ld_relaxed(&l->spin.held) != 0 || !w_spin_try(&l->spin));
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
