/* SPDX-License-Identifier: MIT */
/* The one way for tests to look inside the library. */
#ifndef WHITEBOX_H
#define WHITEBOX_H

#include "weft_internal.h"

/* How often a P was taken from a thread that seemed to be asleep, as an emulator's may, or one that waits for a page. */
static inline long losses(void)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < ld_acquire(&w_sched.p_count); i++)
        n += ld_relaxed(&w_sched.ps[i]->count.found);
    return (long)n;
}

#endif
