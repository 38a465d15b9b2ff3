/* SPDX-License-Identifier: MIT */
/*
 * The local run queue: a bounded ring in which one owner puts, and the owner and any number of thieves take.
 *
 *        head (taken up to here)        tail (filled up to here)
 *          |                              |
 *   .......[ oldest  ...          newest ]......   indices grow for ever, modulo 2^32; slot = index % W_RUNQ_SIZE
 *
 * Who touches what: `tail` is written by the owner alone; `head` is moved by compare-and-swap by whoever takes. A slot
 * is written by the owner only while it lies outside [head, tail), so a taker that wins the swap has read it unspoiled;
 * a taker that loses throws away what it read.
 *
 * Invariants (tests/model_queues.c):
 *   RQ1  tail - head <= W_RUNQ_SIZE, as unsigned numbers
 *   RQ2  a goroutine is taken exactly once for each time it was put
 *
 * Rejected: a lock (35 ns contended, and a thief that is descheduled holds up the owner); a Chase-Lev deque for
 * everything (the owner then takes the newest: two goroutines that yield to each other would starve the rest).
 */
#ifndef W_RUNQ_H
#define W_RUNQ_H

#include "atomic.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Go's size: large enough that overflow is rare, small enough that a thief's half is copied in 100 ns. */
#ifndef W_RUNQ_SIZE
#define W_RUNQ_SIZE 256u
#endif

struct w_g;

struct w_runq {
    _Alignas(64) _Atomic uint32_t head; /* atomic: owner and thieves, by compare-and-swap */
    _Alignas(64) _Atomic uint32_t tail; /* atomic: owner writes */
    _Atomic(struct w_g *) slot[W_RUNQ_SIZE];
};

/* For the owner exact, for others a guess that may be old. */
static inline uint32_t w_runq_len(struct w_runq *q)
{
    uint32_t head = ld_relaxed(&q->head); /* relaxed: nothing is read through it */
    uint32_t tail = ld_relaxed(&q->tail);
    int32_t len = (int32_t)(tail - head); /* the two were not read at one moment */
    return len < 0 ? 0 : (uint32_t)len;
}

/* Owner: false if it is full. */
static inline bool w_runq_put(struct w_runq *q, struct w_g *g)
{
    uint32_t head = ld_acquire(&q->head); /* [RQ-1] the taker has read the slot that we may now overwrite */
    uint32_t tail = ld_relaxed(&q->tail); /* relaxed: our own */
    if (tail - head >= W_RUNQ_SIZE)
        return false;
    st_relaxed(&q->slot[tail % W_RUNQ_SIZE], g);
    st_release(&q->tail, tail + 1); /* [RQ-2] publishes the slot, and the goroutine behind it */
    return true;
}

/* Owner: the oldest, or NULL. */
static inline struct w_g *w_runq_get(struct w_runq *q)
{
    uint32_t head = ld_relaxed(&q->head);
    uint32_t tail = ld_relaxed(&q->tail); /* relaxed: our own */
    while (head != tail) {
        struct w_g *g = ld_relaxed(&q->slot[head % W_RUNQ_SIZE]);
        if (cas_release(&q->head, &head, head + 1)) /* [RQ-1] we have read the slot */
            return g;
    }
    return NULL;
}

/* Anybody: the older half (rounded up), at most max, into out; how many. */
static inline uint32_t w_runq_steal(struct w_runq *q, struct w_g **out, uint32_t max)
{
    for (;;) {
        uint32_t head =
            ld_acquire(&q->head); /* [RQ-3] a tail read after it is at least as new: RQ1 fails only if old */
        uint32_t tail = ld_acquire(&q->tail); /* [RQ-2] the slots below it are filled */
        uint32_t n = tail - head;
        n -= n / 2;
        if (n == 0)
            return 0;
        if (n > W_RUNQ_SIZE / 2) /* head is older than tail: they do not belong together */
            continue;
        if (n > max)
            n = max;
        for (uint32_t i = 0; i < n; i++)
            out[i] = ld_relaxed(&q->slot[(head + i) % W_RUNQ_SIZE]);
        if (cas_acq_rel(&q->head, &head, head + n)) /* [RQ-1] the slots were read; [RQ-3] pairs among the takers */
            return n;
    }
}

#endif
