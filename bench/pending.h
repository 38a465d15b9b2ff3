/* SPDX-License-Identifier: MIT */
/*
 * A signal that waits at the thread it was sent to until that lets it in: what is lost from then on is what the signal costs its
 * thread, and not how long it was on its way from another CPU.
 *
 * These are system calls of the program's own: in libc's code nobody is preempted.
 */
#ifndef BENCH_PENDING_H
#define BENCH_PENDING_H

#include "burn.h"

#include <signal.h>
#include <sys/syscall.h>

enum { TOLD = SIGURG, SET_SIZE = 8 /* of the kernel's sets of signals */ };
#define TOLD_SET ((uint64_t)1 << (TOLD - 1))

#if defined(__x86_64__)
static inline long plain_call(long number, long a, long b, long c, long d)
{
    long result;
    register long fourth __asm__("r10") = d;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "0"(number), "D"(a), "S"(b), "d"(c), "r"(fourth)
                     : "rcx", "r11", "memory");
    return result;
}
#else
static inline long plain_call(long number, long a, long b, long c, long d)
{
    register long first __asm__("x0") = a, second __asm__("x1") = b, third __asm__("x2") = c, fourth __asm__("x3") = d;
    register long which __asm__("x8") = number;
    __asm__ volatile("svc 0" : "+r"(first) : "r"(second), "r"(third), "r"(fourth), "r"(which) : "memory");
    return first;
}
#endif

static inline void let_in(bool now)
{
    uint64_t set = TOLD_SET;
    plain_call(SYS_rt_sigprocmask, now ? SIG_UNBLOCK : SIG_BLOCK, (long)&set, 0, SET_SIZE);
}

static inline bool is_pending(void)
{
    uint64_t set = 0;
    plain_call(SYS_rt_sigpending, (long)&set, SET_SIZE, 0, 0);
    return set & TOLD_SET;
}

/* Computes until one has come, or the hogs are to stop. */
static inline void keep_out_until_one_waits(void)
{
    let_in(false);
    while (!is_pending() && hogs_go_on())
        burn(BURN_AT_ONCE);
}

#endif
