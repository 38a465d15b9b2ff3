/* SPDX-License-Identifier: MIT */
/* What the workloads and the checks share. */
#ifndef LAB_WORKLOADS_H
#define LAB_WORKLOADS_H

#include "lab.h"
#include <stdlib.h>

/* Opens when it has been counted down. */
struct latch {
    _Atomic long left;
    lab_sem open;
};

static inline void latch_init(struct latch *l, long n)
{
    st_relaxed(&l->left, n); /* relaxed: starting whoever counts orders it */
    lab_sem_init(&l->open, n == 0);
}

/* Once more: it was waited for. */
static inline void latch_again(struct latch *l, long n)
{
    st_relaxed(&l->left, n); /* relaxed: as above */
}

static inline void latch_down(struct latch *l, long n)
{
    if (n > 0 && add_acq_rel(&l->left, -n) == n) /* what all others did before, for whoever waits */
        lab_release(&l->open);
}

static inline void latch_wait(struct latch *l)
{
    lab_acquire(&l->open);
}

/* Waits for a semaphore of the kernel. */
static inline void kernel_wait(void *sem)
{
    while (sem_wait(sem) != 0)
        ; /* a signal */
}

static inline void kernel_sleep(void *ns)
{
    w_nap(*(int64_t *)ns);
}

void lab_fail(const char *what, int err) __attribute__((noreturn)); /* main.c */

static inline void start(lab_fn *fn, void *arg)
{
    int r = lab_go(fn, arg);
    if (r != 0)
        lab_fail("a goroutine could not be started", r);
}

static inline void run(long threads, lab_fn *fn, void *arg)
{
    int r = lab_run((int)threads, fn, arg);
    if (r != 0)
        lab_fail("the run failed", r);
}

#endif
