/* SPDX-License-Identifier: MIT */
/*
 * What the tests of asynchronous preemption share. The monitor stops a goroutine about once a millisecond, if somebody waits: who wants more
 * starts a pest, a thread that asks every M again and again and interrupts it, as the monitor and makers of urgent ones do.
 */
#ifndef PREEMPTS_H
#define PREEMPTS_H

#include "runs.h"
#include "whitebox.h"
#include <stdlib.h>

/* Where nobody is stopped by a signal, there is nothing to test. */
static inline bool never_stopped(void)
{
#if defined(__clang__)
    bool off = check_under_tsan() || check_under_asan(); /* clang links ASan's malloc into the program */
#else
    bool off = check_under_tsan();
#endif
    if (off)
        skipped("this sanitizer turns asynchronous preemption off");
    return off;
}

/* How often somebody was stopped by a signal in this run. */
static inline long stops(void)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < ld_acquire(&w_sched.p_count); i++)
        n += ld_relaxed(&w_sched.ps[i]->count.stopped);
    return (long)n;
}

/* ---- the pest ---------------------------------------------------------------------------------------------------- */

static struct {
    pthread_t thread;
    _Atomic bool over;
    _Atomic long rounds; /* all who ran were interrupted so often */
    _Atomic pid_t only;  /* or this thread only, and nobody is asked */
} pest;

static inline uint32_t ask_all(pid_t *tids, uint32_t room)
{
    uint32_t n = 0;
    w_lock(&w_sched.lock, W_RANK_SCHED); /* whoever has a P keeps it, or is at least still there */
    for (uint32_t i = 0; i < ld_acquire(&w_sched.p_count) && n < room; i++) {
        struct w_p *p = w_sched.ps[i];
        struct w_m *m = ld_acquire(&p->m);
        if (m == NULL || ld_relaxed(&p->blocked_by) != NULL)
            continue;
        w_ask(m, W_LET_RUN);
        tids[n++] = ld_relaxed(&m->tid);
    }
    w_unlock(&w_sched.lock, W_RANK_SCHED);
    return n;
}

static inline void *bother(void *arg)
{
    while (!pest.over) {
        pid_t tids[64] = {pest.only};
        uint32_t n = pest.only != 0 ? 1 : ask_all(tids, 64);
        for (uint32_t i = 0; i < n; i++)
            w_interrupt(tids[i], NULL, W_IF_AWAKE);
        pest.rounds++;
        usleep(50);
    }
    return arg;
}

/* From the main goroutine; before it returns the pest has to be stopped. */
static inline void pest_start(void)
{
    pest.over = false;
    CHECK_EQ(pthread_create(&pest.thread, NULL, bother, NULL), 0);
}

static inline void pest_stop(void)
{
    pest.over = true;
    join_in_region(&pest.thread, 1);
}

/* Computes until n rounds were seen to pass: each time it ran after it had been sent a signal, and so has got that. */
static inline __attribute__((always_inline)) void outlast(int n)
{
    for (long last = pest.rounds; n > 0;) {
        long now = pest.rounds;
        n -= now != last;
        last = now;
    }
}

/* ---- the others -------------------------------------------------------------------------------------------------- */

static _Atomic bool over;
static _Atomic long beats;

static inline void beat(void *arg)
{
    (void)arg;
    for (; !over; beats++)
        weft_yield();
}

static inline void beats_start(void)
{
    over = false;
    CHECK_EQ(weft_go(beat, NULL), 0);
    for (long before = beats; beats == before;)
        weft_yield();
}

/* On one P. Unless that was taken from a thread that seemed to be asleep, as an emulator's may: then it shows nothing. */
static inline bool nobody_ran_since(long before)
{
    return beats == before || w_m()->lost;
}

/* Lets others run until *at is at least n; false after some time. */
static inline bool comes_to(_Atomic long *at, long n)
{
    for (int64_t end = weft_now() + 60 * WEFT_SEC; *at < n && weft_now() < end;)
        weft_yield();
    return *at >= n;
}

static inline void end_all(void)
{
    over = true;
    CHECK(others_have_ended());
}

/* The thread that this runs on, in a form that is no address. */
static inline __attribute__((always_inline)) uintptr_t thread_mark(void)
{
    uintptr_t word;
#if defined(__x86_64__)
    __asm__ volatile("movq %%fs:0, %0\n\tnotq %0" : "=r"(word));
#else
    __asm__ volatile("mrs %0, tpidr_el0\n\tmvn %0, %0" : "=r"(word));
#endif
    return word;
}

/* What calls have left in registers that they need not keep. */
static inline __attribute__((always_inline)) void forget_registers(void)
{
#if defined(__x86_64__)
    __asm__ volatile("xorl %%eax, %%eax\n\txorl %%ecx, %%ecx\n\txorl %%edx, %%edx\n\txorl %%esi, %%esi\n\t"
                     "xorl %%edi, %%edi\n\txorl %%r8d, %%r8d\n\txorl %%r9d, %%r9d\n\txorl %%r10d, %%r10d\n\t"
                     "xorl %%r11d, %%r11d" ::
                         : "rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "cc", "memory");
#else
    __asm__ volatile(".irp i, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17\n\tmov x\\i, 0\n\t.endr" ::
                         : "x0", "x1", "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11", "x12", "x13",
                           "x14", "x15", "x16", "x17", "memory");
#endif
}

#endif
