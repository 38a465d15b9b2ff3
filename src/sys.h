/* SPDX-License-Identifier: MIT */
/*
 * The system calls of the runtime, as functions that return zero or more, or a negative errno. Those that libweft_posix.so
 * stands before go past libc's functions, which would come back here.
 *
 * Errno is read through w_errno_location alone, beside the call that set it: glibc declares its locator
 * `const`, so a compiler keeps its address across a switch after which the goroutine may be on another thread.
 */
#ifndef W_SYS_H
#define W_SYS_H

#include "watch.h"
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>
#if __has_include(<sys/rseq.h>)
#include <sys/rseq.h>
#endif

/* The address of this thread's errno; an M remembers its own for the switches. Through a pointer that the compiler knows nothing
 * of, for it would call the locator itself once in a function, before a park as well as after it. */
static inline int *w_errno_location(void)
{
    int *(*locator)(void) = __errno_location;
    __asm__ volatile("" : "+r"(locator));
    return locator();
}

/* Of a call that sets errno. The goroutine's own errno is left as it was. */
#define W_RESULT(call)                       \
    ({                                       \
        int *errno_ = w_errno_location();    \
        int saved_ = *errno_;                \
        long r_ = (call);                    \
        if (__builtin_expect(r_ == -1, 0)) { \
            r_ = -(long)*errno_;             \
            *errno_ = saved_;                \
        }                                    \
        r_;                                  \
    })

static inline int64_t w_now(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

/* Waits while *word == expected, at most ns nanoseconds (negative: without limit). */
static inline long w_futex_wait(_Atomic uint32_t *word, uint32_t expected, int64_t ns)
{
    struct timespec ts = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
    return W_RESULT(syscall(SYS_futex, word, FUTEX_WAIT | FUTEX_PRIVATE_FLAG, expected, ns < 0 ? NULL : &ts, NULL, 0));
}

static inline long w_futex_wake(_Atomic uint32_t *word, int n)
{
    return W_RESULT(syscall(SYS_futex, word, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, n, NULL, NULL, 0));
}

/* How the kernel schedules this thread; of fair ones `runtime` is the slice that they want, 0: as usual. */
struct w_sched_attr {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period;
};

/* Valgrind's own threads take turns, and it misreads the call that changes it. */
static inline long w_sched_getattr(struct w_sched_attr *attr)
{
    if (w_on_valgrind())
        return -ENOSYS;
    return W_RESULT(syscall(SYS_sched_getattr, 0, attr, sizeof *attr, 0));
}

static inline long w_sched_setattr(struct w_sched_attr *attr)
{
    attr->size = sizeof *attr;
    return W_RESULT(syscall(SYS_sched_setattr, 0, attr, 0));
}

static inline uintptr_t w_thread_pointer(void)
{
    uintptr_t at;
#if defined(__x86_64__)
    __asm__("movq %%fs:0, %0" : "=r"(at));
#else
    __asm__("mrs %0, tpidr_el0" : "=r"(at));
#endif
    return at;
}

/* Where the kernel notes the CPU that this thread is on, each time that it lets it go on outside the kernel; NULL: libc has not asked
 * it to. Others may read it as long as the thread lives. */
static inline const _Atomic uint32_t *w_cpu_note(void)
{
#ifdef RSEQ_SIG
    if (__rseq_size > 0)
        return (const _Atomic uint32_t *)(w_thread_pointer() + (uintptr_t)__rseq_offset +
                                          offsetof(struct rseq, cpu_id));
#endif
    return NULL;
}

/* Gives the core away for at least ns. */
static inline void w_nap(int64_t ns)
{
    struct timespec ts = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
    W_RESULT(syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &ts, NULL));
}

/* Fresh zeroed pages, or NULL. Address space only: memory is charged when it is touched. */
static inline void *w_map(size_t size)
{
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

/* Likewise, at a multiple of align, which size is a multiple of, or less. */
static inline void *w_map_aligned(size_t size, size_t align)
{
    char *p = w_map(size + align);
    if (p == NULL)
        return NULL;
    size_t before = -(uintptr_t)p & (align - 1);
    if (before > 0)
        munmap(p, before);
    munmap(p + before + size, align - before);
    return p + before;
}

static inline long w_madvise(void *addr, size_t size, int advice)
{
    return W_RESULT(madvise(addr, size, advice));
}

/* One advice for many ranges of this process in one call; the number of bytes advised. */
static inline long w_madvise_vec(const struct iovec *iov, size_t n, int advice)
{
    enum { PIDFD_SELF_PROCESS = -10001 };
#ifdef SYS_process_madvise
    if (w_on_valgrind()) /* which does not know the call, and says so each time */
        return -ENOSYS;
    return W_RESULT(syscall(SYS_process_madvise, PIDFD_SELF_PROCESS, iov, n, advice, 0));
#else
    (void)iov, (void)n, (void)advice;
    return -ENOSYS;
#endif
}

/* Every running thread of the process executes a full fence. The first call registers; -ENOSYS: not here. */
static inline long w_membarrier_register(void)
{
    return W_RESULT(syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0));
}

static inline long w_membarrier(void)
{
    return W_RESULT(syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0));
}

#endif
