/* SPDX-License-Identifier: MIT */
/*
 * What is counted. The holder of a P counts in the P, a thread in its M, with plain loads and stores: no counter that a hot
 * path touches has two writers. A P struct stays until the run ends, whatever the number of Ps; what an M has counted is added
 * to w_sched.ended_count when it ends. stats.c adds it all up.
 */
#ifndef W_STATS_H
#define W_STATS_H

#include "atomic.h"
#include <stdint.h>
#include <weft.h>

/* Of a P: written by its holder, or by who has just taken it away; read by anybody. The first line is what a switch touches. */
struct w_counters {
    _Atomic uint64_t spawned, ended, switches, steals, stolen, parks, overflows;
    _Atomic uint64_t preempted;                     /* let others run at a runtime call because they were asked to */
    _Atomic uint64_t cut, stopped;                  /* likewise, at a signal; stopped by one, whatever came of it */
    _Atomic uint64_t taken;                         /* goroutines that the steals brought */
    _Atomic uint64_t polls, events;                 /* looks at the descriptors, and what they told */
    _Atomic uint64_t regions;                       /* blocking regions that began here */
    _Atomic uint64_t given, retaken, found, pinned; /* the P went to another M: block.c, m.c */
};

/* Of an M: written by its thread, but for `asked`. */
struct w_m_counters {
    _Atomic uint64_t sleeps, wakes, spins;
    _Atomic uint64_t asked; /* to let others run; atomic: whoever asks */
};

static inline void w_count_many(_Atomic uint64_t *c, uint64_t n)
{
    st_relaxed(c, ld_relaxed(c) + n); /* relaxed, no lock: a counter has one writer */
}

static inline void w_count(_Atomic uint64_t *c)
{
    w_count_many(c, 1);
}

/* Whoever sees this sees what was counted before it as well, perhaps by another thread: of an end, the start. */
static inline void w_count_after(_Atomic uint64_t *c)
{
    st_release(c, ld_relaxed(c) + 1); /* [CN-1] */
}

struct w_g_count {
    uint64_t spawned, ended;
};

struct w_g_count w_count_gs(void);

/* How many Gs there are, dead ones too (g.c). */
uint64_t w_gs_made(void);

/* Of stack.c. Bytes are those that stacks may grow to. */
struct w_stack_use {
    uint64_t mapped;           /* bytes of address space, guards too */
    uint64_t out, out_bytes;   /* handed out, to goroutines and to the caches of Ps */
    uint64_t free, free_bytes; /* given back, and still with their memory */
};

struct w_stack_use w_stacks_use(void);

/* By whoever is counted in, or by the monitor. */
void w_stats_gather(weft_stats_t *s);

/* WEFT_DEBUG=schedtrace=MS, by the monitor: prints a line if it is time. How long until the next, WEFT_NEVER: none is wanted. */
int64_t w_schedtrace(int64_t now);

#endif
