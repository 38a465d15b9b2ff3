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
#include <sys/types.h>

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
    int priority;      /* WEFT_LOW, WEFT_NORMAL, WEFT_HIGH; whoever gives an attribute says it */
} weft_attr;

/* Starts a goroutine that calls fn(arg), and returns at once. -ENOMEM. */
WEFT_API int weft_go(weft_fn *fn, void *arg);

/* fn gets its own copy of the size bytes at arg, aligned to 16. */
WEFT_API int weft_go_copy(weft_fn *fn, const void *arg, size_t size);

/* -EINVAL: no such priority. */
WEFT_API int weft_go_with(const weft_attr *attr, weft_fn *fn, void *arg);

/* Lets the others that are ready run first. */
WEFT_API void weft_yield(void);

/* Ends this goroutine. In the main goroutine: the others run on, and weft_run returns 0 after the last. */
WEFT_API void weft_exit(void) __attribute__((noreturn));

/* This goroutine's number, never used again in this run; 0 outside a goroutine. Unlike other calls it never lets others run. */
WEFT_API uint64_t weft_id(void);

/* Between the two, which nest, this goroutine stays on its OS thread, and that thread runs nothing else. */
WEFT_API void weft_pin(void);
WEFT_API void weft_unpin(void);

/* Between the two, which nest, the calling thread may block in the kernel: its processor goes on without it. */
WEFT_API void weft_block_enter(void);
WEFT_API void weft_block_leave(void);

/*
 * Priorities. A ready goroutine of a higher class runs before one of a lower, and one of WEFT_HIGH takes the processor away from a
 * lower one at once; a lower one is never starved for good. A child is of its parent's priority unless weft_go_with
 * says otherwise. Whoever holds a weft_mutex that somebody of a higher priority waits for has that priority meanwhile.
 */
WEFT_API int weft_set_priority(int priority); /* of the calling goroutine; -EINVAL: no such, -EPERM: no goroutine */
WEFT_API int weft_get_priority(void);         /* what it was given; WEFT_NORMAL outside a goroutine */

/*
 * Preemption. A goroutine that runs for longer than its quantum while others wait lets them run, at its next runtime call or, if
 * it makes none, where a signal (SIGURG) finds it in the main program's own code, called by nothing but that. Between the two, which
 * nest, it runs on.
 */
WEFT_API void weft_preempt_off(void);
WEFT_API void weft_preempt_on(void);

WEFT_API void weft_steady_(int change);

/* Code of the shared object that this address lies in may be stopped like the main program's. It must not rely on staying on its
 * thread, and is to stay loaded. -EINVAL: no object is there; -EPERM: that of libc, the dynamic linker, or Weft; -ENOSPC: that were
 * more than 64. */
WEFT_API int weft_preempt_allow(const void *address);

/* ---- channels --------------------------------------------------------------------------------------------------- */

/* A queue of values between goroutines; with capacity 0, a hand-over from a sender to a receiver who wait for each other.
 * A NULL channel is never ready. */
typedef struct weft_chan weft_chan;

/* elem_size may be 0. NULL: no memory. */
WEFT_API weft_chan *weft_chan_new(size_t elem_size, size_t capacity);

/* Nobody may be using it: with somebody waiting on it this aborts. Once a value was received its sender no longer touches the
 * channel, and once a close was observed its closer does not. */
WEFT_API void weft_chan_free(weft_chan *ch);

/* -EPIPE: closed. */
WEFT_API int weft_send(weft_chan *ch, const void *value);
WEFT_API int weft_try_send(weft_chan *ch, const void *value);

/* -EPIPE: closed and drained; value is zeroed. With value NULL, what was sent is dropped. */
WEFT_API int weft_recv(weft_chan *ch, void *value);
WEFT_API int weft_try_recv(weft_chan *ch, void *value);

/* Receivers get what was sent before, then -EPIPE; senders get it at once. -EPIPE: closed already. */
WEFT_API int weft_close(weft_chan *ch);

/* How many values are in it, and how many have room; 0 for a NULL channel. */
WEFT_API size_t weft_len(const weft_chan *ch);
WEFT_API size_t weft_cap(const weft_chan *ch);

/* ---- select ----------------------------------------------------------------------------------------------------- */

enum weft_case_op { WEFT_OP_SEND = 1, WEFT_OP_RECV = 2, WEFT_OP_AT = 3 };

typedef struct weft_case {
    weft_chan *chan;
    int op; /* enum weft_case_op; another one is a case that is never ready */
    void *value;
    int64_t at; /* WEFT_AT: when it fires */
    int err;    /* of the case that fired: 0, or -EPIPE where the channel was closed */
} weft_case;

/* Cases to build an array of. */
#ifdef __cplusplus
#define WEFT_CASE_(chan, op, value, at) (weft_case{(chan), (op), (void *)(value), (at), 0})
#else
#define WEFT_CASE_(chan, op, value, at) ((weft_case){(chan), (op), (void *)(value), (at), 0})
#endif
#define WEFT_SEND(chan, value) WEFT_CASE_(chan, WEFT_OP_SEND, value, 0)
#define WEFT_RECV(chan, value) WEFT_CASE_(chan, WEFT_OP_RECV, value, 0)
#define WEFT_AT(deadline)      WEFT_CASE_(NULL, WEFT_OP_AT, NULL, deadline)

/* Does one of the cases and returns its index; of several that are ready, one at random. try: -EAGAIN if none is.
 * With n == 0, or if no case can ever be ready, it waits for its scope or for ever. -EINVAL: n < 0 or above 65536. */
WEFT_API int weft_select(weft_case *cases, int n);
WEFT_API int weft_try_select(weft_case *cases, int n);

/* ---- time ------------------------------------------------------------------------------------------------------- */

/* The monotonic clock, in nanoseconds. */
WEFT_API int64_t weft_now(void);

/* Never wakes early. 0 or less: lets others run and returns. */
WEFT_API int weft_sleep(int64_t ns);

/* Sends the time, an int64_t, every period; while nobody receives, one tick is kept and the rest are dropped. */
typedef struct weft_ticker weft_ticker;

WEFT_API weft_ticker *weft_ticker_new(int64_t period); /* NULL: no memory, no runtime, or a period of 0 or less */
WEFT_API weft_chan *weft_ticker_chan(weft_ticker *t);
WEFT_API void weft_ticker_free(weft_ticker *t); /* with its channel */

/* ---- synchronisation -------------------------------------------------------------------------------------------- */

/* Who waits for an object, first come first served. */
struct weft_waiters_ {
    void *head_, *tail_;
    uint32_t run_, guard_;
};

/* Any goroutine may unlock. Whoever waited long gets the lock before newcomers. */
typedef struct weft_mutex {
    uint32_t state_;
    struct weft_waiters_ waiters_;
    struct weft_mutex *next_;
    void *owner_;
    uint64_t owner_stamp_;
    void *holder_; /* an address on the stack of whoever has it, for dumps */
} weft_mutex;

WEFT_API int weft_lock_slow_(weft_mutex *mu);
WEFT_API void weft_unlock_slow_(weft_mutex *mu);
WEFT_API void weft_unlocked_late_(weft_mutex *mu);
WEFT_API void weft_own_(weft_mutex *mu);

/* Not 0 once there are priorities: then mutexes know their owners, who may be lent one. */
WEFT_API extern unsigned char weft_owners_;

/* Where it is not 0, nobody waits for any mutex of that bucket, and an unlock is a plain store (mutex.c tells why). */
WEFT_API extern unsigned char weft_light_[256];

static inline unsigned weft_bucket_(const weft_mutex *mu)
{
    return (unsigned)((uint64_t)(uintptr_t)mu * UINT64_C(0x9E3779B97F4A7C15) >> 56);
}

/* The stack pointer tells a dump whose stack, and so which goroutine, it was: one instruction, where asking for the goroutine is many. */
static inline void *weft_here_(void)
{
    void *sp;
#if defined(__x86_64__)
    __asm__ volatile("movq %%rsp, %0" : "=r"(sp));
#else
    __asm__ volatile("mov %0, sp" : "=r"(sp));
#endif
    return sp;
}

/* -ECANCELED, -ETIMEDOUT: the scope is over, and the lock is not held. */
static inline int weft_lock(weft_mutex *mu)
{
    if (__atomic_load_n(&weft_owners_, __ATOMIC_RELAXED) != 0 ||
        __atomic_exchange_n((unsigned char *)&mu->state_, 1, __ATOMIC_ACQUIRE) != 0)
        return weft_lock_slow_(mu);
    __atomic_store_n(&mu->holder_, weft_here_(), __ATOMIC_RELAXED);
    return 0;
}

WEFT_API int weft_try_lock(weft_mutex *mu);

static inline void weft_unlock(weft_mutex *mu)
{
    /* Byte by byte: what was stored as one is had at once only if it is read as one, and a wider load costs 6 ns more. */
    unsigned char *state_ = (unsigned char *)&mu->state_;
    const unsigned char *light_ = &weft_light_[weft_bucket_(mu)];
    if (__atomic_load_n(&state_[0], __ATOMIC_RELAXED) != 1 || __atomic_load_n(&state_[1], __ATOMIC_RELAXED) != 0 ||
        __atomic_load_n(light_, __ATOMIC_RELAXED) == 0 || __atomic_load_n(&weft_owners_, __ATOMIC_RELAXED) != 0) {
        weft_unlock_slow_(mu);
        return;
    }
    __atomic_store_n(&mu->holder_, (void *)0, __ATOMIC_RELAXED);
    __atomic_store_n(&state_[0], 0, __ATOMIC_RELEASE); /* from here on mu may be gone */
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    if (__atomic_load_n(light_, __ATOMIC_RELAXED) == 0)
        weft_unlocked_late_(mu);
}

/* Many readers or one writer. A reader that comes while a writer waits waits behind it. */
typedef struct weft_rwmutex {
    uint32_t readers_, writer_;
    struct weft_waiters_ waiters_;
    const void *holder_; /* an address on the stack of the writer, for dumps */
} weft_rwmutex;

WEFT_API int weft_rdlock(weft_rwmutex *rw);
WEFT_API int weft_try_rdlock(weft_rwmutex *rw);
WEFT_API void weft_rdunlock(weft_rwmutex *rw);
WEFT_API int weft_wrlock(weft_rwmutex *rw);
WEFT_API int weft_try_wrlock(weft_rwmutex *rw);
WEFT_API void weft_wrunlock(weft_rwmutex *rw);

/* No spurious wake-ups. The mutex is held again whatever weft_cond_wait returns. */
typedef struct weft_cond {
    struct weft_waiters_ waiters_;
} weft_cond;

WEFT_API int weft_cond_wait(weft_cond *cond, weft_mutex *mu);
WEFT_API void weft_cond_signal(weft_cond *cond);
WEFT_API void weft_cond_broadcast(weft_cond *cond);

/* Counts what is still to be done; whoever waits is let go when the count is zero. A negative count aborts. */
typedef struct weft_wg {
    uint64_t state_;
    void *waiters_;
    uint32_t run_;
} weft_wg;

WEFT_API void weft_wg_add(weft_wg *wg, int n);
WEFT_API void weft_wg_done(weft_wg *wg);

/* Whoever it lets go may free the wait group, unless another wait for it was cut and has not returned yet. */
WEFT_API int weft_wg_wait(weft_wg *wg);

/* fn(arg) is called by the first; nobody returns before it has. If it never returns (weft_exit), the others wait for ever. */
typedef struct weft_once {
    uint32_t state_, run_;
    const void *by_;
    uint64_t id_;
    struct weft_waiters_ waiters_;
} weft_once;

WEFT_API void weft_once_slow_(weft_once *once, weft_fn *fn, void *arg);

static inline void weft_once_do(weft_once *once, weft_fn *fn, void *arg)
{
    if (__atomic_load_n(&once->state_, __ATOMIC_ACQUIRE) != 2 ||
        __atomic_load_n(&once->waiters_.guard_, __ATOMIC_ACQUIRE) != 0)
        weft_once_slow_(once, fn, arg);
}

/* Permits, none at first. Waiters are served in turn, a small one behind a large one too. -EINVAL: a negative n. */
typedef struct weft_sem {
    int64_t permits_;
    struct weft_waiters_ waiters_;
} weft_sem;

WEFT_API int weft_sem_acquire(weft_sem *sem, int64_t n);
WEFT_API int weft_sem_try_acquire(weft_sem *sem, int64_t n);
WEFT_API void weft_sem_release(weft_sem *sem, int64_t n);

/* ---- scopes ----------------------------------------------------------------------------------------------------- */

/*
 * A scope is a part of the program that goroutines live in: whoever opened it waits at its end until the last has ended.
 * When it is cancelled or its deadline passes, every call that would wait in it, or in a scope opened inside it, returns
 * -ECANCELED or -ETIMEDOUT and has had no effect.
 */
typedef struct weft_scope {
    uint64_t private_[24];
} weft_scope;

/* From here to weft_scope_close the caller runs in this scope, which lies in the one that it was in. */
WEFT_API int weft_scope_open(weft_scope *s, int64_t deadline);

/* On a scope that is over: starts nothing and returns its error. */
WEFT_API int weft_scope_go(weft_scope *s, weft_fn *fn, void *arg);

/* err < 0. The first one counts, be it this, the deadline, or the end of the scope around it. */
WEFT_API void weft_scope_cancel(weft_scope *s, int err);

/* Waits for all goroutines of the scope, always; 0 or the first err. By the opener, innermost first, else abort. */
WEFT_API int weft_scope_close(weft_scope *s);

/* 0, -ECANCELED or -ETIMEDOUT: for long computations. */
WEFT_API int weft_cancelled(void);

/* Between the two, which nest, this goroutine's waits are not cut: for cleaning up in a scope that is over. */
WEFT_API void weft_shield(void);
WEFT_API void weft_unshield(void);

/* A value that everybody who runs in the scope, or in one inside it, finds by its key, an address of yours. NULL takes it
 * away again. -ENOMEM; -EINVAL: a NULL key. */
WEFT_API int weft_scope_set(weft_scope *s, const void *key, void *value);

/* The value of the innermost scope that has one, or NULL. */
WEFT_API void *weft_local_get(const void *key);

/* ---- input and output ------------------------------------------------------------------------------------------- */

/*
 * They take any descriptor: sockets, pipes, ttys, files, and do what their POSIX twins do on a blocking one; while they wait,
 * others run. A peer that has gone away gives -EPIPE or -ECONNRESET, never SIGPIPE. Descriptors are left in the mode that they
 * are in, but weft_accept and weft_connect set O_NONBLOCK, and so does every call on a tty. A descriptor that is closed while somebody may be using it must be closed
 * with weft_close_fd.
 */
struct iovec;  /* <sys/uio.h> */
struct msghdr; /* <sys/socket.h>, as the next; its socklen_t is an unsigned int */
struct sockaddr;

WEFT_API ssize_t weft_read(int fd, void *buffer, size_t size);

/* All of it, unless an error or the end of the scope comes in between: then how much was written, if anything was. */
WEFT_API ssize_t weft_write(int fd, const void *buffer, size_t size);
WEFT_API ssize_t weft_readv(int fd, const struct iovec *iov, int count);
WEFT_API ssize_t weft_writev(int fd, const struct iovec *iov, int count);
WEFT_API ssize_t weft_recv_from(int fd, void *buffer, size_t size, int flags, struct sockaddr *address,
                                unsigned int *length);
WEFT_API ssize_t weft_send_to(int fd, const void *buffer, size_t size, int flags, const struct sockaddr *address,
                              unsigned int length);
WEFT_API ssize_t weft_recvmsg(int fd, struct msghdr *message, int flags);
WEFT_API ssize_t weft_sendmsg(int fd, const struct msghdr *message, int flags);

WEFT_API ssize_t weft_pread(int fd, void *buffer, size_t size, off_t offset);
WEFT_API ssize_t weft_pwrite(int fd, const void *buffer, size_t size, off_t offset);
WEFT_API int weft_open(const char *path, int flags, mode_t mode); /* close-on-exec */
WEFT_API int weft_fsync(int fd);

/* The new descriptor is non-blocking and close-on-exec. */
WEFT_API int weft_accept(int fd, struct sockaddr *address, unsigned int *length);
WEFT_API int weft_connect(int fd, const struct sockaddr *address, unsigned int length);

/* Waits for any of POLLIN, POLLPRI, POLLOUT; returns what is ready of these, with POLLERR and POLLHUP as poll() does. */
WEFT_API int weft_wait_fd(int fd, int events);

/* Whoever waits on it gets -EBADF; who is just inside a call on it is waited for. */
WEFT_API int weft_close_fd(int fd);

/*
 * An address is "127.0.0.1:8080", "[::1]:8080", "name:8080", ":8080" (listen: all of this machine; dial: this machine),
 * "unix:/path", or "unix:@name" in the abstract space. Port 0 listens on a free one; a service, as in "name:http", stands for its
 * number. Both return a descriptor, non-blocking and close-on-exec. weft_listen takes over a path on which nobody listens
 * any more. weft_dial tries the addresses of a name in turn, and sets TCP_NODELAY. -EINVAL: no such address; -ENAMETOOLONG: a path
 * above 107 bytes; -EHOSTUNREACH: no such name; -EAGAIN: the name cannot be looked up now.
 */
WEFT_API int weft_listen(const char *address);
WEFT_API int weft_dial(const char *address);

/* ---- looking inside --------------------------------------------------------------------------------------------- */

/*
 * Writes to fd what every goroutine does: number, name, state, why and for how long it waits, priority, thread, where it was started, and a
 * backtrace, with file and line where there is debug information and libdw.so.1. Those that do the same are one entry. From a goroutine
 * or any thread, at any time of a run; nobody is stopped but who runs, for as long as a look at its stack takes. -EPERM: no
 * runtime is up; -ENOMEM; or what writing to fd said.
 * SIGQUIT does it on stderr and ends the process with status 2, unless the program has a handler of its own.
 */
WEFT_API int weft_dump(int fd);
WEFT_API int weft_dump_json(int fd); /* likewise, as an array of objects (docs/inside.md) */

/*
 * What a run has done, and how things stand now. A counter begins at 0 with the run, never falls, and survives a change of the
 * number of processors. Figures are gathered while everything runs on: each is true of some moment during the call, and two
 * of them need not be of the same one. But spawned == ended + alive, threads is the sum of the five kinds, and no more wakes than
 * sleeps are seen, always.
 *
 * New fields will take the place of reserved ones, so that a program goes on with a newer library.
 */
typedef struct weft_stats_t {
    int64_t time_ns;   /* when it was taken: weft_now() */
    int64_t uptime_ns; /* since the run began */

    uint64_t spawned, ended, alive; /* goroutines; of those that were started, how many have ended, and have not */
    uint64_t switches;              /* how often one began or went on */
    uint64_t parks;                 /* how often one waited */
    uint64_t overflows;             /* how often a processor's queue was full, and half of it went to the global one */

    uint64_t steals_tried; /* looks of a processor at another's queues */
    uint64_t steals_done;  /* that were not in vain */
    uint64_t stolen;       /* goroutines that they brought */

    uint64_t preempts_asked;     /* goroutines that were asked to let others run */
    uint64_t preempts_signalled; /* signals sent, because they might make no call for long */
    uint64_t preempts_at_call;   /* how often one then did so, at a call */
    uint64_t preempts_by_signal; /* where the signal found it */

    uint64_t regions;          /* how often a goroutine went into a blocking region */
    uint64_t handoffs_given;   /* processors that went to another thread: at once, as the region began; */
    uint64_t handoffs_retaken; /* later, as it lasted; */
    uint64_t handoffs_found;   /* because a thread was found to block without a word; */
    uint64_t handoffs_pinned;  /* because of a pinned goroutine */

    uint64_t polls;  /* how often the kernel was asked about descriptors */
    uint64_t events; /* what it told */

    uint64_t thread_spins;  /* searches of a thread for something to steal */
    uint64_t thread_sleeps; /* how often one went to sleep for lack of work */
    uint64_t thread_wakes;  /* how often one was woken from that, or woke up for a timer or a descriptor */
    uint64_t threads_made;

    /* From here on: now. */
    uint64_t threads;          /* that run goroutines; the one that called weft_run does not */
    uint64_t threads_idle;     /* asleep for lack of work */
    uint64_t threads_spinning; /* look for work */
    uint64_t threads_running;  /* run a goroutine */
    uint64_t threads_blocked;  /* are in a blocking call */
    uint64_t threads_pinned;   /* asleep, for the goroutine that is pinned there waits */

    uint64_t procs;      /* weft_procs() */
    uint64_t procs_idle; /* nobody runs goroutines on them */

    uint64_t queue_local; /* ready goroutines that wait in the queues of processors */
    uint64_t queue_high;  /* in the global one: of high priority; */
    uint64_t queue_ran;   /* that have run before; */
    uint64_t queue_fresh; /* that have not; */
    uint64_t queue_heavy; /* that have used more than their share; */
    uint64_t queue_low;   /* of low priority */

    uint64_t timers;   /* sleeps, deadlines and tickers that are to come */
    uint64_t io_waits; /* goroutines that wait for descriptors or files */

    uint64_t records;      /* goroutines that there is memory for, stacks apart */
    uint64_t stacks;       /* that goroutines have */
    uint64_t stack_used;   /* bytes that these may grow to */
    uint64_t stack_cached; /* bytes that those may which are kept for the next ones with their memory */
    uint64_t stack_mapped; /* bytes of address space, guards too */

    uint64_t reserved_[16];
} weft_stats_t;

enum { WEFT_PROC_IDLE, WEFT_PROC_RUNNING, WEFT_PROC_BLOCKED, WEFT_PROC_RETIRED };

/* A logical processor. The counters are what weft_stats_t has the sums of; goroutines that other threads started are in no one's
 * `spawned`, and polls of threads that have no processor are in no one's `polls`. */
typedef struct weft_proc_stats {
    int64_t id;
    int64_t state;      /* IDLE, RUNNING, BLOCKED: its thread is in a blocking region, RETIRED: beyond weft_procs() */
    int64_t thread;     /* the thread that has it, or -1 */
    int64_t goroutine;  /* the one that runs there, or 0 */
    int64_t running_ns; /* for how long, as far as the monitor has noticed, which looks every 10 ms at least */
    uint64_t spawned, ended, switches, parks, overflows;
    uint64_t steals_tried, steals_done, stolen;
    uint64_t preempts_at_call, preempts_by_signal;
    uint64_t regions, handoffs_given, handoffs_retaken, handoffs_found, handoffs_pinned;
    uint64_t polls, events;
    uint64_t queue_slot, queue_ring, queue_fresh; /* ready: the one that runs next; in turn; never ran */
    uint64_t timers;
    uint64_t stacks_cached; /* free stacks that it keeps */
    uint64_t reserved_[8];
} weft_proc_stats;

enum { WEFT_THREAD_IDLE, WEFT_THREAD_SPINNING, WEFT_THREAD_RUNNING, WEFT_THREAD_BLOCKED, WEFT_THREAD_PINNED };

/* A thread that runs goroutines. Those that have ended are in the sums only. */
typedef struct weft_thread_stats {
    int64_t id;
    int64_t tid;       /* the kernel's number; 0: it is about to begin */
    int64_t state;     /* as the threads_ of weft_stats_t */
    int64_t proc;      /* the processor that it has, or -1 */
    int64_t goroutine; /* the one that runs there, be it in a blocking call, or 0 */
    int64_t cpu_ns;    /* processor time used */
    uint64_t spins, sleeps, wakes;
    uint64_t preempts_asked;
    uint64_t reserved_[4];
} weft_thread_stats;

/* -EPERM: no runtime is up. -EINVAL: NULL. */
WEFT_API int weft_stats(weft_stats_t *stats);

/* Fills in the first n of all processors or threads, and returns how many there are, which may be more. -EINVAL: n < 0. */
WEFT_API int weft_stats_procs(weft_proc_stats *procs, int n);
WEFT_API int weft_stats_threads(weft_thread_stats *threads, int n);

/* All of it as one JSON object, {"time_ns":N,"totals":{},"procs":[{}],"threads":[{}]}, whose keys are the fields' names, and a
 * newline. A state is a word: "idle", "running" and so on. -ENOMEM, or what weft_write returns. */
WEFT_API int weft_stats_json(int fd);

/*
 * An execution trace: who ran where, from when to when, and who woke whom, until weft_trace_stop or the end of the run. The file is
 * for ui.perfetto.dev or chrome://tracing (docs/inside.md). WEFT_TRACE=FILE in the environment traces a whole run.
 * -EBUSY: a trace is being made; -EPERM: no runtime is up; what opening the file returns. weft_trace_stop returns when the
 * file is complete: -ESRCH: there is no trace; else the first error of writing it, -ETIMEDOUT if it is a pipe of which nothing was read
 * for three seconds.
 */
WEFT_API int weft_trace_start(const char *path);
WEFT_API int weft_trace_stop(void);

/*
 * The flight recorder keeps the last events in so many bytes of memory, shared by the Ps, until the run ends. They are
 * written, as a trace, by weft_flight_dump; and to WEFT_FLIGHT_FILE, or weft-flight-PID.json, when the program crashes or all its
 * goroutines are asleep for good. WEFT_FLIGHT=N in the environment records a whole run in N MB. -EBUSY: it is on already, or another
 * dump is being written; -ESRCH: it is not on; -EPERM: no runtime is up; -ETIMEDOUT: as weft_trace_stop.
 */
WEFT_API int weft_flight_start(size_t bytes);
WEFT_API int weft_flight_dump(const char *path);

/*
 * The live picture: a page for a browser that shows what the processors, threads and goroutines of this program are doing, and
 * records traces and profiles of it (docs/inside.md). WEFT_HTTP=ADDRESS in the environment serves it during every run. It is served by
 * goroutines of high priority that weft_count does not count and that keep no run from ending. NULL stands for "127.0.0.1:0".
 * An address that is not the loopback's needs a token: WEFT_HTTP_TOKEN, or one that is made and printed on stderr. Returns the port, 0
 * for a unix socket. -EBUSY: it is served already; -ENOSYS: the library was built without it; else as weft_listen.
 */
WEFT_API int weft_http_start(const char *address);
WEFT_API int weft_http_stop(void); /* -ESRCH: it is not served */

/*
 * A profile of the processor time: hz times a second of it, on each thread, what runs there is counted (0: 100 times; the kernel
 * may know no more than 250). The file, which is written when it stops or the run ends, has collapsed stacks for flame graphs if its name
 * ends in .folded or .txt or it is /proc/self/fd/N, is one for pprof if it ends in .pb or .pb.gz. WEFT_PROFILE=FILE in the environment
 * profiles a whole run.
 * Uses SIGPROF. -EINVAL: another name, or no such hz; -EBUSY: a profile is being made; -EPERM: no runtime is up; what opening the file
 * returns. weft_profile_stop: -ESRCH: there is no profile; else the first error of writing it, as weft_trace_stop.
 */
WEFT_API int weft_profile_start(const char *path, int hz);
WEFT_API int weft_profile_stop(void);

/* ---- typed channels --------------------------------------------------------------------------------------------- */

/*
 * A weft_chan_of(T) is a channel that knows what it carries: a value or a variable of another type does not compile.
 *
 *     weft_chan_of(int) ch = weft_make(int, 16);
 *     weft_put(ch, 3);
 *     weft_take(ch, &n);
 *
 *     weft_chan_of(T) weft_make(T, size_t capacity)       NULL: no memory
 *     int weft_put(ch, T value)                           int weft_try_put(ch, T value)
 *     int weft_take(ch, T *value)                         int weft_try_take(ch, T *value)
 *     WEFT_PUT(ch, const T *value)                        WEFT_TAKE(ch, T *value): cases for weft_select
 *     int weft_close_of(ch)                               void weft_free_of(ch)
 *     size_t weft_len_of(ch)                              size_t weft_cap_of(ch)
 *     weft_chan *weft_untyped(ch)                         weft_chan_of(T) weft_typed(T, weft_chan *chan)
 *
 * They do what the calls without a type do. weft_chan_of(T) may be written wherever a type may, means the same type each
 * time, and is a pointer: it goes through a void * and may be NULL. T is anything that `T x = y;` copies, in C++ anything
 * trivially copyable. A value fits as in an assignment, except that C's looser conversions of pointers are errors: from
 * void *, from an integer (0 too: write NULL), away from const, between unrelated types.
 *
 * A channel that is assigned to a variable for another type is an error in C++; in C, before gcc 14 and clang 16, it is a
 * warning.
 */
#ifdef __cplusplus
extern "C++" {
template <class T> struct weft_typed_; /* never defined: there are only pointers to it */
template <class T> using weft_chan_of_ = weft_typed_<T> *;
template <class T> struct weft_elem_ {
    typedef T type; /* as a parameter's type it is not deduced: the channel alone says what T is */
};

template <class T> inline weft_chan *weft_untyped(weft_typed_<T> *ch)
{
    return reinterpret_cast<weft_chan *>(ch);
}
template <class T> inline weft_typed_<T> *weft_typed_as_(weft_chan *chan)
{
    static_assert(__is_trivially_copyable(T),
                  "weft_chan_of: a channel copies bytes, which is not enough for this type");
    return reinterpret_cast<weft_typed_<T> *>(chan);
}
template <class T> inline int weft_put(weft_typed_<T> *ch, const typename weft_elem_<T>::type &value)
{
    return weft_send(weft_untyped(ch), &value);
}
template <class T> inline int weft_try_put(weft_typed_<T> *ch, const typename weft_elem_<T>::type &value)
{
    return weft_try_send(weft_untyped(ch), &value);
}
template <class T> inline int weft_take(weft_typed_<T> *ch, typename weft_elem_<T>::type *value)
{
    return weft_recv(weft_untyped(ch), value);
}
template <class T> inline int weft_try_take(weft_typed_<T> *ch, typename weft_elem_<T>::type *value)
{
    return weft_try_recv(weft_untyped(ch), value);
}
template <class T> inline weft_case weft_put_case_(weft_typed_<T> *ch, const typename weft_elem_<T>::type *value)
{
    return WEFT_SEND(weft_untyped(ch), value);
}
template <class T> inline weft_case weft_take_case_(weft_typed_<T> *ch, typename weft_elem_<T>::type *value)
{
    return WEFT_RECV(weft_untyped(ch), value);
}
}
#define weft_chan_of(T)      weft_chan_of_<T>
#define weft_typed(T, chan)  weft_typed_as_<T>(chan)
#define WEFT_PUT(ch, value)  weft_put_case_(ch, value)
#define WEFT_TAKE(ch, value) weft_take_case_(ch, value)

#else
/* A pointer to a pointer to a function that gives a T *: made of T alone, and nothing else has this type by chance.
 * Rejected: a struct for each T, which C11 takes for another type each time it is written. */
#define weft_chan_of(T)     __typeof__(__typeof__(T) *(**)(weft_chan *))
#define weft_typed(T, chan) ((weft_chan_of(T)) _Generic((chan), weft_chan * : (chan)))
#define weft_untyped(ch)    ((void)sizeof(WEFT_ELEM_(ch)), (weft_chan *)(ch))

/* The element as an expression, for sizeof and __typeof__: nothing is called. A class of types below 10 is one of numbers,
 * but for 5, the pointers. */
#define WEFT_ELEM_(ch)      (*(**(ch))((weft_chan *)0))
#define WEFT_SAME_(a, b)    __builtin_types_compatible_p(__typeof__(a), __typeof__(b))
#define WEFT_NUMBER_(value) (__builtin_classify_type(value) < 10 && __builtin_classify_type(value) != 5)

/* Incompatible pointers are mere warnings to many compilers, so this asks for the type of `1 ? value : element`: it is the
 * element's for the same type, for NULL, and for a pointer that is less const. */
#define WEFT_FITS_(value, element) \
    (WEFT_NUMBER_(value) ? WEFT_NUMBER_(element) : WEFT_SAME_(1 ? (value) : (element), element))

/* Of the two, only char has a size: the other's name is what a compiler then complains about. */
struct weft_this_is_not_what_the_channel_carries;
#define WEFT_MUST_(condition) \
    ((void)sizeof(*__builtin_choose_expr(condition, (char *)0, (struct weft_this_is_not_what_the_channel_carries *)0)))

/* The value is all that follows the channel: (struct point){1, 2} has a comma. An array, as its first element may be any T. */
#define WEFT_PUT_(send, ch, value) \
    (WEFT_MUST_(WEFT_FITS_(value, WEFT_ELEM_(ch))), send(weft_untyped(ch), (__typeof__(WEFT_ELEM_(ch))[1]){value}))
#define WEFT_TAKE_(recv, ch, pointer) \
    (WEFT_MUST_(WEFT_FITS_(pointer, &WEFT_ELEM_(ch))), recv(weft_untyped(ch), pointer))

#define weft_put(ch, ...)        WEFT_PUT_(weft_send, ch, (__VA_ARGS__))
#define weft_try_put(ch, ...)    WEFT_PUT_(weft_try_send, ch, (__VA_ARGS__))
#define weft_take(ch, value)     WEFT_TAKE_(weft_recv, ch, value)
#define weft_try_take(ch, value) WEFT_TAKE_(weft_try_recv, ch, value)
#define WEFT_PUT(ch, value)      WEFT_SEND((WEFT_MUST_(WEFT_SAME_(*(value), WEFT_ELEM_(ch))), weft_untyped(ch)), value)
#define WEFT_TAKE(ch, value)     WEFT_RECV((WEFT_MUST_(WEFT_FITS_(value, &WEFT_ELEM_(ch))), weft_untyped(ch)), value)
#endif

#define weft_make(T, capacity) weft_typed(T, weft_chan_new(sizeof(T), (capacity)))
#define weft_free_of(ch)       weft_chan_free(weft_untyped(ch))
#define weft_close_of(ch)      weft_close(weft_untyped(ch))
#define weft_len_of(ch)        weft_len(weft_untyped(ch))
#define weft_cap_of(ch)        weft_cap(weft_untyped(ch))

#ifdef __cplusplus
}
#endif

#endif
