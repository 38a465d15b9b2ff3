/* SPDX-License-Identifier: MIT */
/*
 * poll, select, epoll_wait.
 *
 * Each is a question that libc answers without waiting, asked again until something is ready or its time is over:
 *
 *      ask ── something, or no time ──> its answer
 *       ^ └─ nothing ─> wait for one descriptor, or for an epoll descriptor made of all of them
 *       └──────────────────┘
 *
 * So what comes out is libc's, and the wait in between may be wrong in one direction, waking too early. With a mask of signals
 * the thread itself has to wait in the kernel, in a region; so it does where our limits do not work or where there are too
 * few descriptors left for an epoll one.
 */
#include "shim.h"
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>

struct question {
    int (*ask)(struct question *q); /* without waiting: how many are ready, or a negative errno */
    struct pollfd *fds;             /* what to wait for until it is asked again; revents is anybody's */
    nfds_t count;
};

/* ---- waiting in between ----------------------------------------------------------------------------------------- */

enum { KNOWN_EVENTS = POLLIN | POLLPRI | POLLOUT }; /* to weft_wait_fd */

/* What a question waits for: one of its descriptors, or else an epoll descriptor of all; neither: nothing but time. */
struct watch {
    struct pollfd *only;
    int epfd;
};

static int asked_of(const struct question *q, int fd)
{
    int events = 0;
    for (nfds_t i = 0; i < q->count; i++)
        if (q->fds[i].fd == fd)
            events |= q->fds[i].events;
    return events;
}

/* 0 also for what epoll does not take: that is always ready, or never. */
static int watch_one(int epfd, const struct question *q, const struct pollfd *p)
{
    struct epoll_event e = {.events = (unsigned short)p->events};
    int r = W_RESULT(epoll_ctl(epfd, EPOLL_CTL_ADD, p->fd, &e));
    if (r == -EEXIST) {
        e.events = (uint32_t)asked_of(q, p->fd);
        r = W_RESULT(epoll_ctl(epfd, EPOLL_CTL_MOD, p->fd, &e));
    }
    return r == -EPERM ? 0 : r;
}

static int watch_all(struct watch *w, const struct question *q)
{
    int r = w->epfd = W_RESULT(epoll_create1(EPOLL_CLOEXEC));
    for (nfds_t i = 0; i < q->count && r >= 0; i++)
        if (q->fds[i].fd >= 0)
            r = watch_one(w->epfd, q, &q->fds[i]);
    return r < 0 ? r : 0;
}

static int watch_begin(struct watch *w, const struct question *q)
{
    int active = 0;
    *w = (struct watch){.epfd = -1};
    for (nfds_t i = 0; i < q->count; i++)
        if (q->fds[i].fd >= 0 && active++ == 0)
            w->only = &q->fds[i];
    if (active == 0 || (active == 1 && w->only->events & KNOWN_EVENTS && !(w->only->events & ~KNOWN_EVENTS)))
        return 0;
    w->only = NULL;
    return watch_all(w, q);
}

static int watch_wait(const struct watch *w)
{
    if (w->only != NULL)
        return weft_wait_fd(w->only->fd, w->only->events);
    return w->epfd >= 0 ? weft_wait_fd(w->epfd, POLLIN) : weft_select(NULL, 0);
}

static void watch_end(struct watch *w)
{
    if (w->epfd >= 0)
        weft_close_fd(w->epfd);
}

/* ---- asking ----------------------------------------------------------------------------------------------------- */

/* A question that does not wait: a signal, which may be one that is to preempt us, makes even that fail if nothing is ready. */
#define AT_ONCE(call)                       \
    ({                                      \
        int at_once_;                       \
        do                                  \
            at_once_ = (int)W_RESULT(call); \
        while (at_once_ == -EINTR);         \
        at_once_;                           \
    })

/* Something is there that the question is not about, and stays: select does not ask for a hang-up. */
static int rest(void)
{
    return weft_sleep(WEFT_MSEC);
}

/* The question's answer, or why no wait for one is possible. A descriptor that was closed is the answer's business. */
static ssize_t ask_parked(struct question *q)
{
    struct watch w;
    ssize_t r = watch_begin(&w, q);
    while (r == 0) {
        ssize_t told = watch_wait(&w);
        r = told >= 0 || told == -EBADF ? q->ask(q) : told;
        if (told > 0 && r == 0)
            r = rest();
    }
    watch_end(&w);
    return r;
}

static ssize_t ask_blocked(struct question *q, int64_t deadline)
{
    for (;;) {
        int64_t left = deadline != WEFT_NEVER ? deadline - weft_now() : WEFT_NEVER;
        struct timespec ts = {.tv_sec = left / WEFT_SEC, .tv_nsec = left % WEFT_SEC};
        if (left <= 0)
            return 0;
        int r = W_RESULT(W_IN_REGION(W_REAL(ppoll)(q->fds, q->count, left != WEFT_NEVER ? &ts : NULL, NULL)));
        bool told = r > 0;
        if (r < 0 || (r = q->ask(q)) != 0 || (told && (r = rest()) < 0))
            return r;
    }
}

static bool scope_is_over(ssize_t r)
{
    return r == -ECANCELED || r == -ETIMEDOUT;
}

/* 0: nothing was ready in that time. */
static ssize_t ask_within(struct question *q, int64_t ns)
{
    struct w_limit limit;
    ssize_t r = q->ask(q);
    if (r != 0) {
        if (w_is_due())
            weft_cancelled(); /* others may run */
        return r;
    }
    int64_t deadline = w_deadline(ns);
    if (!w_limit_begin(&limit, ns))
        return ask_blocked(q, deadline);
    r = w_limit_end(&limit, ask_parked(q), 0);
    if (r < 0 && !scope_is_over(r))
        return ask_blocked(q, deadline);
    return r != 0 ? r : q->ask(q);
}

/* ---- poll ------------------------------------------------------------------------------------------------------- */

static int ask_poll(struct question *q)
{
    return AT_ONCE(W_REAL(poll)(q->fds, q->count, 0));
}

static ssize_t poll_within(struct pollfd *fds, nfds_t count, int64_t ns)
{
    return ask_within(&(struct question){.ask = ask_poll, .fds = fds, .count = count}, ns);
}

static int64_t of_milliseconds(int ms)
{
    return ms < 0 ? WEFT_NEVER : ms * WEFT_MSEC;
}

/* No time at all: it cannot wait, and a handler may ask so. */
static bool none(const struct timespec *ts)
{
    return ts != NULL && ts->tv_sec == 0 && ts->tv_nsec == 0;
}

/* Can it be done without the thread's mask of signals, or should libc say what is wrong? */
static bool plain(const struct timespec *ts, const sigset_t *mask)
{
    return mask == NULL && (ts == NULL || w_valid(ts));
}

W_CALL_UNLESS(ms == 0, int, poll, (struct pollfd * fds, nfds_t count, int ms), (fds, count, ms),
              poll_within(fds, count, of_milliseconds(ms)))
W_CALL_UNLESS(none(ts), int, ppoll,
              (struct pollfd * fds, nfds_t count, const struct timespec *ts, const sigset_t *mask),
              (fds, count, ts, mask),
              plain(ts, mask) ? poll_within(fds, count, w_nanoseconds(ts))
                              : W_RESULT(W_IN_REGION(W_REAL(ppoll)(fds, count, ts, mask))))

WEFT_API int __poll_chk(struct pollfd *fds, nfds_t count, int ms, size_t room)
{
    return poll(fds, w_fits(count, room / sizeof *fds), ms);
}

WEFT_API int __ppoll_chk(struct pollfd *fds, nfds_t count, const struct timespec *ts, const sigset_t *mask, size_t room)
{
    return ppoll(fds, w_fits(count, room / sizeof *fds), ts, mask);
}

/* ---- select ----------------------------------------------------------------------------------------------------- */

enum { SETS = 3, WORD = 8 * sizeof(unsigned long) };
static const short events_of_set[SETS] = {POLLIN, POLLOUT, POLLPRI};

struct selection {
    struct question q;
    int n;                      /* descriptors below this */
    size_t size;                /* of each set, in bytes */
    unsigned long *sets[SETS];  /* the caller's, which answers overwrite; may be NULL */
    unsigned long *given[SETS]; /* what was in them */
};

static int ask_select(struct question *q)
{
    struct selection *s = (struct selection *)q;
    for (int i = 0; i < SETS; i++)
        if (s->sets[i] != NULL)
            memcpy(s->sets[i], s->given[i], s->size);
    return AT_ONCE(
        W_REAL(select)(s->n, (fd_set *)s->sets[0], (fd_set *)s->sets[1], (fd_set *)s->sets[2], &(struct timeval){0}));
}

static short events_of(const struct selection *s, int fd)
{
    short events = 0;
    for (int i = 0; i < SETS; i++)
        if (s->sets[i] != NULL && s->given[i][fd / WORD] >> fd % WORD & 1)
            events |= events_of_set[i];
    return events;
}

/* In one piece of memory, which begins at q.fds: what is waited for, then the sets as they were given. */
static bool selection_init(struct selection *s, int n, fd_set *sets[SETS])
{
    size_t words = ((size_t)n + WORD - 1) / WORD, count = (size_t)n;
    struct pollfd *fds = malloc(count * sizeof *fds + SETS * words * sizeof(unsigned long) + 1);
    if (fds == NULL)
        return false;
    *s = (struct selection){.q = {.ask = ask_select, .fds = fds}, .n = n, .size = words * sizeof(unsigned long)};
    for (int i = 0; i < SETS; i++) {
        s->sets[i] = (unsigned long *)sets[i];
        s->given[i] = (unsigned long *)(fds + count) + (size_t)i * words;
        if (sets[i] != NULL)
            memcpy(s->given[i], sets[i], s->size);
    }
    for (int fd = 0; fd < n; fd++)
        if (events_of(s, fd) != 0)
            fds[s->q.count++] = (struct pollfd){.fd = fd, .events = events_of(s, fd)};
    return true;
}

/* How large a set is that is not of libc's size only the kernel knows: it looks no further than there are descriptors. */
static ssize_t select_large(int n, fd_set *readable, fd_set *writable, fd_set *urgent, int64_t ns)
{
    struct timespec ts = {.tv_sec = ns / WEFT_SEC, .tv_nsec = ns % WEFT_SEC}, *limit = ns != WEFT_NEVER ? &ts : NULL;
    return W_RESULT(W_IN_REGION(W_REAL(pselect)(n, readable, writable, urgent, limit, NULL)));
}

static ssize_t select_within(int n, fd_set *readable, fd_set *writable, fd_set *urgent, int64_t ns)
{
    struct selection s;
    if (n < 0 || n > FD_SETSIZE)
        return select_large(n, readable, writable, urgent, ns);
    if (!selection_init(&s, n, (fd_set *[]){readable, writable, urgent}))
        return -ENOMEM;
    ssize_t r = ask_within(&s.q, ns);
    free(s.q.fds);
    return r;
}

/* Linux tells how much of the time was left. */
static ssize_t select_timed(int n, fd_set *readable, fd_set *writable, fd_set *urgent, struct timeval *tv)
{
    if (tv == NULL)
        return select_within(n, readable, writable, urgent, WEFT_NEVER);
    if (tv->tv_sec < 0 || tv->tv_usec < 0)
        return -EINVAL;
    struct timespec ts = {.tv_sec = tv->tv_sec + tv->tv_usec / 1000000, .tv_nsec = tv->tv_usec % 1000000 * WEFT_USEC};
    int64_t deadline = w_deadline(w_nanoseconds(&ts));
    ssize_t r = select_within(n, readable, writable, urgent, w_nanoseconds(&ts));
    int64_t left = deadline - weft_now();
    left = left > 0 ? left : 0;
    *tv = (struct timeval){.tv_sec = left / WEFT_SEC, .tv_usec = left % WEFT_SEC / WEFT_USEC};
    return r;
}

W_CALL_UNLESS(tv != NULL && tv->tv_sec == 0 && tv->tv_usec == 0, int, select,
              (int n, fd_set *readable, fd_set *writable, fd_set *urgent, struct timeval *tv),
              (n, readable, writable, urgent, tv), select_timed(n, readable, writable, urgent, tv))
W_CALL_UNLESS(none(ts), int, pselect,
              (int n, fd_set *readable, fd_set *writable, fd_set *urgent, const struct timespec *ts,
               const sigset_t *mask),
              (n, readable, writable, urgent, ts, mask),
              plain(ts, mask) ? select_within(n, readable, writable, urgent, w_nanoseconds(ts))
                              : W_RESULT(W_IN_REGION(W_REAL(pselect)(n, readable, writable, urgent, ts, mask))))

/* ---- epoll_wait ------------------------------------------------------------------------------------------------- */

struct collection {
    struct question q;
    struct pollfd epoll;
    struct epoll_event *events;
    int max;
};

static int ask_epoll(struct question *q)
{
    struct collection *c = (struct collection *)q;
    return AT_ONCE(W_REAL(epoll_wait)(c->epoll.fd, c->events, c->max, 0));
}

static ssize_t epoll_within(int epfd, struct epoll_event *events, int max, int64_t ns)
{
    struct collection c = {.epoll = {.fd = epfd, .events = POLLIN}, .events = events, .max = max};
    c.q = (struct question){.ask = ask_epoll, .fds = &c.epoll, .count = 1};
    return ask_within(&c.q, ns);
}

W_CALL_UNLESS(ms == 0, int, epoll_wait, (int epfd, struct epoll_event *events, int max, int ms),
              (epfd, events, max, ms), epoll_within(epfd, events, max, of_milliseconds(ms)))
W_CALL_UNLESS(ms == 0, int, epoll_pwait, (int epfd, struct epoll_event *events, int max, int ms, const sigset_t *mask),
              (epfd, events, max, ms, mask),
              plain(NULL, mask) ? epoll_within(epfd, events, max, of_milliseconds(ms))
                                : W_RESULT(W_IN_REGION(W_REAL(epoll_pwait)(epfd, events, max, ms, mask))))
W_CALL_UNLESS(none(ts), int, epoll_pwait2,
              (int epfd, struct epoll_event *events, int max, const struct timespec *ts, const sigset_t *mask),
              (epfd, events, max, ts, mask),
              plain(ts, mask) ? epoll_within(epfd, events, max, w_nanoseconds(ts))
                              : W_RESULT(W_IN_REGION(W_REAL(epoll_pwait2)(epfd, events, max, ts, mask))))
