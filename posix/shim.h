/* SPDX-License-Identifier: MIT */
/*
 * libweft_posix: blocking calls of libraries that know nothing of Weft, made to park.
 *
 *      library ── read(fd) ──> ours ── not in a goroutine ───────────────> libc's read
 *                                  ├── would not wait, or must not ──────> libc's read
 *                                  ├── Weft has a form of it ────────────> weft_read: the goroutine parks
 *                                  └── Weft has none (getaddrinfo) ──────> libc's, in a blocking region
 *
 *      shim.c    libc's functions, errno, regions, limits     io.c        read, write, recv, send
 *      ready.c   poll, select, epoll_wait                     socket.c    accept, connect, close
 *      sleep.c   sleep, nanosleep                             region.c    files, names, processes
 *      lock.c    pthread_mutex_lock, which does not park, but keeps its holder from being preempted
 *
 * Only weft.h is used. Inside, functions return zero or more, or a negative errno; w_result turns that into what POSIX wants.
 *
 *   PX1  errno is touched out of line only: a goroutine may come back on another thread, and compilers keep its address
 *   PX2  the calls that libc or its plug-ins make inside a region of ours are passed on: they are on that thread, and may hold
 *        its locks
 *   PX3  a signal handler may be in the middle of libc: what it calls must not park, take locks or begin a region. On the
 *        stack for signals it is known for what it is. Elsewhere calls that cannot wait are passed on, and those on
 *        descriptors that are non-blocking go no further than asking for that
 *
 * Rejected: O_NONBLOCK on all descriptors behind the library's back. It is a property of the open file, which others share,
 * and the library may ask for it.
 */
#ifndef W_SHIM_H
#define W_SHIM_H

#include <stdbool.h>
#include <sys/socket.h>
#include <time.h>
#include <weft.h>

/* Libc's function, or that of whoever stands between it and us. It is looked for when it is first needed, which may be before
 * any constructor has run. */
#define W_REAL(name)                                 \
    ({                                               \
        static _Atomic(void *) found_;               \
        (__typeof__(&(name)))w_real(&found_, #name); \
    })

void *w_real(_Atomic(void *) *found, const char *name);

/* Is this a goroutine, and neither inside a region of ours (PX2) nor on the stack for signals (PX3)? Never switches. */
bool w_parks(void);

/* Calls that are done at once let nobody else run. Every so often one says so here: true, then it should call Weft. */
bool w_is_due(void);

/* Does the library expect calls on it to wait? Not of a bad descriptor. */
bool w_blocking(int fd);

/* size, unless the buffer has not the room for it: then the process ends as it does in libc. */
size_t w_fits(size_t size, size_t room);

/* ---- errno (PX1) ------------------------------------------------------------------------------------------------ */

int w_errno(void);
int w_errno_swap(int next); /* returns the former */

/* Of a call that sets errno: what it returned, or a negative errno. Errno itself stays as it was. */
#define W_RESULT(call)                         \
    ({                                         \
        int saved_ = w_errno();                \
        __auto_type r_ = (call);               \
        r_ == -1 ? -w_errno_swap(saved_) : r_; \
    })

/* The way back: r, or -1 and errno. */
ssize_t w_result(ssize_t r);

/* A call of libc's name: in a goroutine `parked` gives its result, else libc does, as it does where the call cannot wait. */
#define W_CALL_UNLESS(at_once, type, name, params, args, parked)                     \
    WEFT_API type name params                                                        \
    {                                                                                \
        return !(at_once) && w_parks() ? (type)w_result(parked) : W_REAL(name) args; \
    }
#define W_CALL(type, name, params, args, parked) W_CALL_UNLESS(false, type, name, params, args, parked)

/* Another name of it. */
#define W_ALIAS(name, other) WEFT_API extern __typeof__(other) name __attribute__((alias(#other)));

/* ---- regions ---------------------------------------------------------------------------------------------------- */

void w_region_enter(void);
void w_region_leave(void);

#define W_IN_REGION(call)         \
    ({                            \
        w_region_enter();         \
        __auto_type in_ = (call); \
        w_region_leave();         \
        in_;                      \
    })

/* ---- limits ----------------------------------------------------------------------------------------------------- */

/* The time that a wait may take. */
struct w_limit {
    weft_scope scope;
    bool open;
};

/* From here to w_limit_end waits are cut after ns; WEFT_NEVER: not by us. false: it cannot be done here, which is so between
 * weft_shield and weft_unshield; there is nothing to end then. */
bool w_limit_begin(struct w_limit *limit, int64_t ns);

/* r, but `late` if it was our limit that cut the wait, and not a scope of the program. */
ssize_t w_limit_end(struct w_limit *limit, ssize_t r, ssize_t late);

/* A call of Weft's that may take ns; the thread waits in libc's where that is not possible. */
#define W_WITHIN(ns, late, call, real_call)                                                                   \
    ({                                                                                                        \
        struct w_limit limit_;                                                                                \
        ssize_t within_ =                                                                                     \
            w_limit_begin(&limit_, ns) ? w_limit_end(&limit_, call, late) : W_RESULT(W_IN_REGION(real_call)); \
        within_;                                                                                              \
    })

/* Of a timespec that may be NULL: WEFT_NEVER. */
int64_t w_nanoseconds(const struct timespec *ts);

/* Is it a time span that libc takes? */
bool w_valid(const struct timespec *ts);

/* SO_RCVTIMEO or SO_SNDTIMEO of a socket in nanoseconds; WEFT_NEVER: none. */
int64_t w_socket_limit(int fd, int option);

/* Now and so much, or WEFT_NEVER. */
int64_t w_deadline(int64_t ns);

#endif
