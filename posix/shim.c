/* SPDX-License-Identifier: MIT */
/* What the interposed calls share; shim.h tells how it hangs together. */
#include "shim.h"
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/time.h>
#include <unistd.h>

#define OUT_OF_LINE __attribute__((noinline))

/* ---- libc's functions ------------------------------------------------------------------------------------------- */

/* In the place of a function that this libc does not have. */
static long missing(void)
{
    w_errno_swap(ENOSYS);
    return -1;
}

void *w_real(_Atomic(void *) *found, const char *name)
{
    /* relaxed: whoever looks at the same time finds the same */
    void *fn = atomic_load_explicit(found, memory_order_relaxed);
    if (fn == NULL) {
        fn = dlsym(RTLD_NEXT, name);
        fn = fn != NULL ? fn : (void *)missing;
        atomic_store_explicit(found, fn, memory_order_relaxed);
    }
    return fn;
}

void __chk_fail(void) __attribute__((noreturn)); /* libc's */

size_t w_fits(size_t size, size_t room)
{
    if (size > room)
        __chk_fail();
    return size;
}

/* ---- errno ------------------------------------------------------------------------------------------------------ */

OUT_OF_LINE int w_errno(void)
{
    return errno;
}

OUT_OF_LINE int w_errno_swap(int next)
{
    int former = errno;
    errno = next;
    return former;
}

OUT_OF_LINE ssize_t w_result(ssize_t r)
{
    if (r >= 0)
        return r;
    errno = (int)-r;
    return -1;
}

/* ---- regions ---------------------------------------------------------------------------------------------------- */

static __thread int passing; /* regions of ours that this thread is in */

OUT_OF_LINE static void passing_add(int n)
{
    passing += n;
}

OUT_OF_LINE static bool is_passing(void)
{
    return passing > 0;
}

static bool useless; /* there is no runtime for us here; constant once constructors have run, and in a child */

/* Is a handler with SA_ONSTACK running (PX3)? Asked in goroutines only: their threads have one such stack from their begin to
 * their end. */
OUT_OF_LINE static bool on_signal_stack(void)
{
    static __thread struct {
        bool known;
        uintptr_t low, size;
    } stack;
    if (!stack.known) {
        stack_t now = {0};
        sigaltstack(NULL, &now);
        stack.low = (uintptr_t)now.ss_sp;
        stack.size = now.ss_flags & SS_DISABLE ? 0 : now.ss_size;
        stack.known = true;
    }
    return (uintptr_t)__builtin_frame_address(0) - stack.low < stack.size;
}

bool w_parks(void)
{
    return !is_passing() && !useless && weft_id() != 0 && !on_signal_stack();
}

/* With 1 us for each of them that is soon; a quantum has 10 ms. */
OUT_OF_LINE bool w_is_due(void)
{
    enum { EVERY = 32 };
    static __thread unsigned calls;
    return ++calls % EVERY == 0;
}

/* A child has one thread and no runtime, though it believes to be in a goroutine until it calls exec. */
WEFT_API pid_t fork(void)
{
    bool goroutine = w_parks();
    pid_t pid = W_REAL(fork)();
    if (pid == 0 && goroutine)
        useless = true;
    return pid;
}

static void *object_of(void *fn)
{
    Dl_info info;
    return dladdr(fn, &info) != 0 ? info.dli_fbase : NULL;
}

/* A program with a part of libweft.a that it shows to others has that part of the runtime, and we the rest in libweft.so. */
static bool two_runtimes(void)
{
    bool two = false;
    void *const used[] = {weft_block_enter, weft_cancelled, weft_close_fd, weft_connect,   weft_lock_slow_,
                          weft_recvmsg,     weft_select,    weft_sleep,    weft_scope_open};
    for (size_t i = 0; i < sizeof used / sizeof *used; i++)
        two |= object_of(used[i]) != object_of(weft_id);
    return two;
}

__attribute__((constructor)) static void begin(void)
{
    useless = two_runtimes();
    if (useless)
        dprintf(STDERR_FILENO, "weft: libweft_posix does nothing: this program has a part of libweft.a\n");
}

void w_region_enter(void)
{
    weft_block_enter();
    passing_add(1);
}

void w_region_leave(void)
{
    int err = w_errno();
    passing_add(-1);
    weft_block_leave();
    w_errno_swap(err);
}

bool w_blocking(int fd)
{
    int flags = W_RESULT(fcntl(fd, F_GETFL));
    return flags >= 0 && !(flags & O_NONBLOCK);
}

/* ---- limits ----------------------------------------------------------------------------------------------------- */

int64_t w_nanoseconds(const struct timespec *ts)
{
    if (ts == NULL || ts->tv_sec >= WEFT_NEVER / WEFT_SEC - 1)
        return WEFT_NEVER;
    return ts->tv_sec * WEFT_SEC + ts->tv_nsec;
}

bool w_valid(const struct timespec *ts)
{
    return ts->tv_sec >= 0 && ts->tv_nsec >= 0 && ts->tv_nsec < WEFT_SEC;
}

int64_t w_deadline(int64_t ns)
{
    int64_t now = weft_now();
    return ns < WEFT_NEVER - now ? now + ns : WEFT_NEVER;
}

int64_t w_socket_limit(int fd, int option)
{
    struct timeval tv = {0};
    socklen_t n = sizeof tv;
    W_RESULT(getsockopt(fd, SOL_SOCKET, option, &tv, &n));
    int64_t ns = w_nanoseconds(&(struct timespec){.tv_sec = tv.tv_sec, .tv_nsec = tv.tv_usec * WEFT_USEC});
    return ns != 0 ? ns : WEFT_NEVER;
}

/* A shield holds off our own scopes as well; there is no other way to ask for one. */
static bool shielded(void)
{
    weft_scope over;
    if (weft_scope_open(&over, 0) != 0)
        return true;
    bool cut = weft_cancelled() != 0;
    weft_scope_close(&over);
    return !cut;
}

bool w_limit_begin(struct w_limit *limit, int64_t ns)
{
    limit->open = ns != WEFT_NEVER;
    return !limit->open || (!shielded() && weft_scope_open(&limit->scope, w_deadline(ns)) == 0);
}

ssize_t w_limit_end(struct w_limit *limit, ssize_t r, ssize_t late)
{
    if (!limit->open)
        return r;
    int err = weft_scope_close(&limit->scope);
    if (r >= 0 || r != err)
        return r;
    int around = weft_cancelled();
    return around != 0 ? around : late;
}
