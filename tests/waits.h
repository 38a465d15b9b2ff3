/* SPDX-License-Identifier: MIT */
/* For tests of what waits: who is asleep, in which order they came, and the end of all. */
#ifndef WAITS_H
#define WAITS_H

#include "runs.h"
#include "whitebox.h"
#include "waiter.h"

/* A goroutine of a test that sleeps in one place only says who it is, */
static inline void says_who(_Atomic(struct w_g *) *who)
{
    struct w_g *g = w_call_begin();
    w_call_end(g);
    *who = g;
}

/* and the others wait until it is in the queue of what it waits for; false after some time. */
static inline bool is_asleep(_Atomic(struct w_g *) *who)
{
    for (int64_t end = weft_now() + 20 * WEFT_SEC; weft_now() < end; weft_yield())
        if (*who != NULL && ld_relaxed(&(*who)->state) == W_WAITING)
            return true;
    return false;
}

/* Lets the others run for a while: what must not happen would have happened by then, most likely. */
static inline void let_others_run(void)
{
    for (int i = 0; i < 50; i++)
        weft_yield();
}

static inline void spin_for(int n)
{
    for (volatile int i = 0; i < n; i++)
        ;
}

#endif
