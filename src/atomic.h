/* SPDX-License-Identifier: MIT */
/*
 * The atomic operations of the runtime under short names that carry their order.
 *
 * Every operation that is not relaxed is followed by a tag such as [RQ-1] that stands at each end of its pairing;
 * tools/check-orders.py rejects an untagged one and a tag that stands alone. docs/memory-order.md tells the story of
 * every sequentially consistent one.
 */
#ifndef W_ATOMIC_H
#define W_ATOMIC_H

#include <stdatomic.h>

#define ld_relaxed(p) atomic_load_explicit(p, memory_order_relaxed)
#define ld_acquire(p) atomic_load_explicit(p, memory_order_acquire)
#define ld_seq(p)     atomic_load_explicit(p, memory_order_seq_cst)

#define st_relaxed(p, v) atomic_store_explicit(p, v, memory_order_relaxed)
#define st_release(p, v) atomic_store_explicit(p, v, memory_order_release)

#define xchg_acquire(p, v) atomic_exchange_explicit(p, v, memory_order_acquire)
#define xchg_release(p, v) atomic_exchange_explicit(p, v, memory_order_release)
#define xchg_seq(p, v)     atomic_exchange_explicit(p, v, memory_order_seq_cst)

#define add_relaxed(p, v) atomic_fetch_add_explicit(p, v, memory_order_relaxed)
#define add_acq_rel(p, v) atomic_fetch_add_explicit(p, v, memory_order_acq_rel)
#define add_seq(p, v)     atomic_fetch_add_explicit(p, v, memory_order_seq_cst)
#define sub_seq(p, v)     atomic_fetch_sub_explicit(p, v, memory_order_seq_cst)
#define or_acquire(p, v)  atomic_fetch_or_explicit(p, v, memory_order_acquire)
#define and_release(p, v) atomic_fetch_and_explicit(p, v, memory_order_release)

#define cas_acquire(p, old, new) \
    atomic_compare_exchange_strong_explicit(p, old, new, memory_order_acquire, memory_order_relaxed)
#define cas_release(p, old, new) \
    atomic_compare_exchange_strong_explicit(p, old, new, memory_order_release, memory_order_relaxed)
#define cas_acq_rel(p, old, new) \
    atomic_compare_exchange_strong_explicit(p, old, new, memory_order_acq_rel, memory_order_relaxed)
#define cas_seq(p, old, new) \
    atomic_compare_exchange_strong_explicit(p, old, new, memory_order_seq_cst, memory_order_relaxed)

/* Keeps the compiler, not the processor, from moving accesses across. */
#define w_compiler_barrier() __asm__ volatile("" ::: "memory")

/* A full fence. On x86-64 a locked no-op on our own stack costs 2.5 ns where mfence costs 20. */
static inline void w_fence_seq(void)
{
#if defined(__x86_64__)
    __asm__ volatile("lock orl $0, -64(%%rsp)" ::: "memory", "cc");
#else
    __asm__ volatile("dmb ish" ::: "memory");
#endif
}

/* Loads before it are not moved after it, nor are later accesses moved before those loads. */
static inline void w_fence_acquire(void)
{
#if defined(__x86_64__)
    w_compiler_barrier();
#else
    __asm__ volatile("dmb ishld" ::: "memory");
#endif
}

/* Later stores are not moved before those that come before it. */
static inline void w_fence_release(void)
{
#if defined(__x86_64__)
    w_compiler_barrier();
#else
    __asm__ volatile("dmb ish" ::: "memory");
#endif
}

/* Tells the processor that we spin. */
static inline void w_pause(void)
{
#if defined(__x86_64__)
    __asm__ volatile("pause");
#else
    __asm__ volatile("yield");
#endif
}

#endif
