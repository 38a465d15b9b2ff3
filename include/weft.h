/* SPDX-License-Identifier: MIT */
/*
 * Weft: goroutines for C.
 *
 * A goroutine is a function with a stack of its own that costs a few dozen nanoseconds to start and 4 KiB to keep.
 * A million of them run on a few OS threads: whoever waits gives its thread to somebody who can run.
 *
 * What holds everywhere:
 *   - A call that can fail returns zero or more on success, a negative errno on failure. `errno` itself is no part
 *     of the contract: a goroutine may come back from a call on another OS thread.
 *   - Times are int64_t nanoseconds on the monotonic clock.
 *   - An object that is all zero bytes is ready to use and needs no destroy call.
 *   - Everything but weft_run may be called from a goroutine or, while a runtime is up, from any other OS thread of
 *     the process; there a call that must wait blocks that OS thread alone.
 *   - Misuse that no return value can carry prints one line on stderr and aborts.
 */
#ifndef WEFT_H
#define WEFT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define WEFT_API __attribute__((visibility("default")))

#define WEFT_NSEC  ((int64_t)1)
#define WEFT_USEC  ((int64_t)1000)
#define WEFT_MSEC  ((int64_t)1000000)
#define WEFT_SEC   ((int64_t)1000000000)
#define WEFT_NEVER INT64_MAX /* the deadline that never comes */

/* ---- the runtime ------------------------------------------------------------------------------------------------ */

typedef void weft_fn(void *arg);

/* Zero-initialise it and set what matters. The environment variable beside a field wins over it. */
typedef struct weft_config {
    int procs;         /* WEFT_PROCS: logical processors; 0 = as many as the process may use */
    size_t stack_size; /* WEFT_STACK (K, M and G understood): the most a stack may grow to; 0 = 64 KiB */
    int64_t quantum;   /* WEFT_QUANTUM (ns; us, ms, s and "never" understood): 0 = 10 ms, WEFT_NEVER = never */
    uint64_t seed;     /* WEFT_SEED: fixes every random choice of the scheduler; 0 = a different one each run */
} weft_config;

/*
 * Runs fn as the main goroutine and returns 0 once it has returned; the goroutines that are left are discarded then.
 * -EDEADLK: every goroutine is asleep and nothing can ever wake one (a dump goes to stderr first).
 * -EBUSY: a runtime is already up. -EINVAL: the configuration or a WEFT_ variable makes no sense.
 */
WEFT_API int weft_run(weft_fn *fn, void *arg);
WEFT_API int weft_run_with(const weft_config *config, weft_fn *fn, void *arg);

/* n > 0 sets the number of logical processors, at most 1024; returns the former number. */
WEFT_API int weft_procs(int n);

/* The number of goroutines alive. */
WEFT_API int weft_count(void);

/* ---- goroutines ------------------------------------------------------------------------------------------------- */

enum { WEFT_LOW = -1, WEFT_NORMAL = 0, WEFT_HIGH = 1 };

typedef struct weft_attr {
    const char *name;  /* copied; shown in dumps */
    size_t stack_size; /* the most this goroutine's stack may grow to; 0 = the configuration's */
    int priority;      /* WEFT_LOW, WEFT_NORMAL, WEFT_HIGH */
} weft_attr;

WEFT_API int weft_go(weft_fn *fn, void *arg);

/* fn gets its own copy of the size bytes at arg, aligned to 16. */
WEFT_API int weft_go_copy(weft_fn *fn, const void *arg, size_t size);
WEFT_API int weft_go_with(const weft_attr *attr, weft_fn *fn, void *arg);

/* Lets the others that are ready run first. */
WEFT_API void weft_yield(void);

/* Ends this goroutine. In the main goroutine: the others run on, and weft_run returns 0 after the last. */
WEFT_API void weft_exit(void) __attribute__((noreturn));

/* This goroutine's number, never used again in this run; 0 outside a goroutine. */
WEFT_API uint64_t weft_id(void);

/* Between the two, which nest, this goroutine stays on its OS thread, and that thread runs nothing else. */
WEFT_API void weft_pin(void);
WEFT_API void weft_unpin(void);

/* Between the two, which nest, the calling thread may block in the kernel: its processor goes on without it. */
WEFT_API void weft_block_enter(void);
WEFT_API void weft_block_leave(void);

/* ---- time ------------------------------------------------------------------------------------------------------- */

WEFT_API int64_t weft_now(void);

/* ---- synchronisation -------------------------------------------------------------------------------------------- */

/* Counts what is still to be done; whoever waits is let go when the count is zero. A negative count aborts. */
typedef struct weft_wg {
    uint64_t state_;
    void *waiters_;
} weft_wg;

WEFT_API void weft_wg_add(weft_wg *wg, int n);
WEFT_API void weft_wg_done(weft_wg *wg);
WEFT_API int weft_wg_wait(weft_wg *wg);

#ifdef __cplusplus
}
#endif

#endif
