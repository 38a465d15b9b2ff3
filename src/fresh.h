/* SPDX-License-Identifier: MIT */
/*
 * The queue of fresh goroutines: those that were started and have not run yet.
 *
 *        top (thieves, and ageing)      bottom (the owner)
 *          |                              |
 *   .......[ oldest  ...          newest ]......   indices as in runq.h
 *
 * The owner pushes and pops at the bottom, so that a tree of spawns is walked depth-first: a million leaves need a few
 * dozen stacks, and the one that is taken next is the one whose memory is still in the cache. Thieves take at the top,
 * where the largest piece of the tree hangs. (The work-stealing deque of Chase and Lev, bounded.)
 *
 * The race that it is about: owner and thief want the last one. The owner announces by moving `bottom`, then looks at
 * `top`; the thief looks at `top`, then at `bottom`, and swaps `top`. Both announcements and both looks are
 * sequentially consistent: one of the two sees the other, and the swap on `top` decides.
 *
 * Invariants:
 *   FR1  bottom - top <= W_FRESH_SIZE as signed numbers, >= -1 (and -1 only inside w_fresh_pop)
 *   FR2  a goroutine is taken exactly once for each time it was pushed
 */
#ifndef W_FRESH_H
#define W_FRESH_H

#include "atomic.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifndef W_FRESH_SIZE
#define W_FRESH_SIZE 1024u /* a burst of spawns that large does not touch the global lock: 49 ns each, with 256: 55 */
#endif

struct w_g;

struct w_fresh {
    _Alignas(64) _Atomic uint32_t top;    /* atomic: thieves and owner, by compare-and-swap */
    _Alignas(64) _Atomic uint32_t bottom; /* atomic: owner writes */
    _Atomic(struct w_g *) slot[W_FRESH_SIZE];
};

/* For the owner exact, for others a guess that may be old. */
static inline uint32_t w_fresh_len(struct w_fresh *q)
{
    uint32_t top = ld_relaxed(&q->top); /* relaxed: nothing is read through it */
    int32_t len = (int32_t)(ld_relaxed(&q->bottom) - top);
    return len < 0 ? 0 : (uint32_t)len;
}

/* Owner: false if it is full. */
static inline bool w_fresh_push(struct w_fresh *q, struct w_g *g)
{
    uint32_t bottom = ld_relaxed(&q->bottom); /* relaxed: our own */
    uint32_t top = ld_acquire(&q->top);       /* [FR-1] the taker has read the slot that we may now overwrite */
    if (bottom - top >= W_FRESH_SIZE)
        return false;
    st_relaxed(&q->slot[bottom % W_FRESH_SIZE], g);
    st_release(&q->bottom, bottom + 1); /* [FR-2] publishes the slot, and the goroutine behind it */
    return true;
}

/* Anybody: the oldest, or NULL if it is empty or another taker was faster. */
static inline struct w_g *w_fresh_steal(struct w_fresh *q)
{
    uint32_t top = ld_seq(&q->top);       /* [FR-3] */
    uint32_t bottom = ld_seq(&q->bottom); /* [FR-3] the owner's claim; [FR-2] the slots below it are filled */
    if ((int32_t)(bottom - top) <= 0)
        return NULL;
    struct w_g *g = ld_relaxed(&q->slot[top % W_FRESH_SIZE]);
    return cas_seq(&q->top, &top, top + 1) ? g : NULL; /* [FR-3] [FR-1] the slot was read */
}

/* Owner: the newest, or NULL. */
static inline struct w_g *w_fresh_pop(struct w_fresh *q)
{
    uint32_t bottom = ld_relaxed(&q->bottom);
    uint32_t top = ld_relaxed(&q->top); /* relaxed: it only grows, so empty now is empty */
    if (bottom == top)
        return NULL;
    if (bottom - top == 1) /* the last one: as a thief would, without the claim */
        return w_fresh_steal(q);
    bottom--;
    xchg_seq(&q->bottom, bottom); /* [FR-3] our claim, before we look at top */
    top = ld_seq(&q->top);        /* [FR-3] */
    struct w_g *g = NULL;
    if ((int32_t)(bottom - top) >= 0)
        g = ld_relaxed(&q->slot[bottom % W_FRESH_SIZE]);
    if ((int32_t)(bottom - top) > 0)
        return g;
    if (bottom == top && !cas_seq(&q->top, &top, top + 1)) /* [FR-3] the last one: whoever swaps has it */
        g = NULL;
    st_relaxed(&q->bottom, bottom + 1); /* relaxed: it takes back a claim and publishes nothing */
    return g;
}

/* Owner: the older half (rounded up), at most max, into out; how many. One swap for all: the owner itself does not pop
 * meanwhile, so only thieves compete, and they swap too. */
static inline uint32_t w_fresh_shed(struct w_fresh *q, struct w_g **out, uint32_t max)
{
    uint32_t bottom = ld_relaxed(&q->bottom);
    uint32_t top = ld_relaxed(&q->top);
    for (;;) {
        uint32_t n = bottom - top;
        n -= n / 2;
        if (n > max)
            n = max;
        if (n == 0)
            return 0;
        for (uint32_t i = 0; i < n; i++)
            out[i] = ld_relaxed(&q->slot[(top + i) % W_FRESH_SIZE]);
        if (cas_release(&q->top, &top,
                        top + n)) /* [FR-1] the slots were read, and bottom is as low as our pops made it */
            return n;
    }
}

#endif
