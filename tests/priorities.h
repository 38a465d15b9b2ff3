/* SPDX-License-Identifier: MIT */
/* What the tests of priorities share. */
#ifndef PRIORITIES_H
#define PRIORITIES_H

#include "hogs.h"

/* So long that nobody's turn ends by itself: who has to make way does it for somebody urgent. */
static const int64_t LONG = 1000 * WEFT_SEC;

static inline int run_long(int procs, weft_fn *fn, void *arg)
{
    return run_with_own_quantum(&(weft_config){.procs = procs, .quantum = LONG}, fn, arg);
}

/* On one P, where a goroutine goes on until it waits. */
static inline int run_alone(weft_fn *fn, void *arg)
{
    return run_with_own_quantum(&(weft_config){.procs = 1, .quantum = WEFT_NEVER}, fn, arg);
}

static inline void count(void *arg)
{
    ++*(_Atomic int *)arg;
}

static const int CLASSES[] = {WEFT_LOW, WEFT_NORMAL, WEFT_HIGH};

#endif
