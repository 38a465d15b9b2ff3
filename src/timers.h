/* SPDX-License-Identifier: MIT */
/* What a P keeps of its timers; timer.h is for those who start them. */
#ifndef W_TIMERS_H
#define W_TIMERS_H

#include "lock.h"
#include <stdint.h>

struct w_timer;

/* A timer's place in the heap: what sifting compares and moves, without touching the timer itself, which lies on a stack
 * that has long left the cache. */
struct w_timer_at {
    int64_t when;
    uint32_t slot;
};

struct w_timer_slot {
    struct w_timer *timer; /* NULL: free */
    uint32_t at;           /* its index in the heap; of a free slot: the next free one */
};

struct w_timers {
    struct w_spin lock;
    _Atomic int64_t next;       /* when the first one is due, WEFT_NEVER: there is none; written under lock */
    struct w_timer_at *heap;    /* lock */
    struct w_timer_slot *slots; /* lock */
    uint32_t len, room;         /* entries in use, and room for them in both arrays; lock */
    uint32_t promised;          /* entries for starts that must not fail; lock */
    uint32_t free_slot;         /* lock */
};

#endif
