/* SPDX-License-Identifier: MIT */
/* The lock of a channel, biased to a P: who gets the bias, who loses it, and that nobody is inside beside another meanwhile. */
#include "runs.h"
#include "whitebox.h"
#include "bias.h"

static struct w_bias lock;

/* Takes it n times on the P of this goroutine, which stays inside the runtime meanwhile. */
static void take_often(int n, long *count)
{
    struct w_m *m = w_enter();
    for (int i = 0; i < n; i++) {
        w_bias_lock(&lock, m->p);
        ++*count;
        w_bias_unlock(&lock, m->p);
    }
    w_leave();
}

static void streak_main(void *arg)
{
    long count = 0;
    uint16_t me = (uint16_t)(w_m()->p->id + 1);
    (void)arg;
    if (!w_sched.hiding) {
        skipped("nothing is biased without membarrier");
        return;
    }
    w_bias_init(&lock, NULL);
    take_often(W_BIAS_STREAK, &count);
    CHECK_EQ(ld_relaxed(&lock.owner), 0);
    take_often(1, &count);
    CHECK_EQ(ld_relaxed(&lock.owner), me);
    w_bias_lock(&lock, NULL); /* as another thread would */
    CHECK_EQ(ld_relaxed(&lock.owner), 0);
    w_bias_unlock(&lock, NULL);
    take_often(2 * W_BIAS_STREAK, &count);
    CHECK_EQ(ld_relaxed(&lock.owner), 0); /* it costs the double now */
    take_often(1, &count);
    CHECK_EQ(ld_relaxed(&lock.owner), me);
}

static void new_ones_main(void *arg)
{
    uint16_t me = (uint16_t)(w_m()->p->id + 1);
    (void)arg;
    if (!w_sched.hiding)
        return;
    w_bias_init(&lock, w_m()->p);
    CHECK_EQ(ld_relaxed(&lock.owner), me);
    w_bias_lock(&lock, NULL);
    w_bias_unlock(&lock, NULL);
    for (int i = 0; i < W_BIAS_UNBIASED; i++) {
        w_bias_init(&lock, w_m()->p);
        CHECK_EQ(ld_relaxed(&lock.owner), 0);
    }
    w_bias_init(&lock, w_m()->p);
    CHECK_EQ(ld_relaxed(&lock.owner), me);
}

CASE(a_new_one_is_its_makers_unless_others_wanted_the_last)
{
    CHECK_EQ(run_on(1, new_ones_main, NULL), 0);
}

CASE(a_p_has_the_bias_after_a_streak_and_the_next_costs_more)
{
    CHECK_EQ(run_on(1, streak_main, NULL), 0);
}

/* ---- one at a time ---------------------------------------------------------------------------------------------- */

static long counted;
static _Atomic bool over;

/* With a hold long enough that others come meanwhile. */
static void *stranger(void *arg)
{
    _Atomic long *mine = arg;
    for (; !over; (*mine)++) {
        w_bias_lock(&lock, NULL);
        long before = counted;
        for (volatile int i = 0; i < 100; i++)
            ;
        counted = before + 1;
        w_bias_unlock(&lock, NULL);
        usleep(*mine % 3 * 100);
    }
    return arg;
}

static void company_main(void *arg)
{
    pthread_t threads[2];
    _Atomic long theirs[2] = {0};
    long ours = 0, biased = 0;
    (void)arg;
    counted = 0;
    over = false;
    w_bias_init(&lock, w_m()->p);
    for (int i = 0; i < 2; i++)
        CHECK_EQ(pthread_create(&threads[i], NULL, stranger, &theirs[i]), 0);
    for (int64_t end = weft_now() + 20 * WEFT_SEC; theirs[0] + theirs[1] < scaled(4000) && weft_now() < end;
         ours += 100) {
        take_often(100, &counted);
        biased += ld_relaxed(&lock.owner) != 0;
        lock.needed = 10; /* so that it goes to and fro; nobody minds what others make of it */
    }
    over = true;
    join_in_region(threads, 2);
    CHECK_EQ(counted, ours + theirs[0] + theirs[1]);
    CHECK(biased > 0 || !w_sched.hiding);
}

CASE(nobody_is_inside_beside_another_while_the_bias_goes_to_and_fro)
{
    if (!check_under_tsan()) /* which turns it off */
        CHECK_EQ(run_on(1, company_main, NULL), 0);
}
