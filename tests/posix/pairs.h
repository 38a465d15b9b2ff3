/* SPDX-License-Identifier: MIT */
/*
 * Tests of calls that wait: one party waits in a call, another ends the wait.
 *
 *      static void wait_read(struct pair *p)  { CHECK_EQ(read(p->fds[0], ...), 1); }
 *      static void feed_write(struct pair *p) { CHECK_EQ(write(p->fds[1], ...), 1); }
 *      CASE(read_parks) { each_way(&(struct kind){with_sockets, wait_read, feed_write}); }
 *
 * each_way runs it between goroutines, where all the waiting together must not take threads, and outside of them, where it
 * must be what libc does.
 */
#ifndef PAIRS_H
#define PAIRS_H

#include "../runs.h"
#include <fcntl.h>
#include <sys/socket.h>

struct pair;
typedef void pair_fn(struct pair *p);

struct kind {
    pair_fn *open, *wait, *feed;
};

struct pair {
    const struct kind *kind;
    int fds[2];
    _Atomic int *waiting;
    weft_wg *all;
    char data[64]; /* for the kind */
};

enum { PAIRS = 40, SPARE_THREADS = 20 };

/* ---- opening ---------------------------------------------------------------------------------------------------- */

static inline void with_sockets(struct pair *p)
{
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, p->fds), 0);
}

static inline void with_datagrams(struct pair *p)
{
    CHECK_EQ(socketpair(AF_UNIX, SOCK_DGRAM, 0, p->fds), 0);
}

static inline void with_pipe(struct pair *p)
{
    CHECK_EQ(pipe(p->fds), 0);
}

static inline bool is_blocking(int fd)
{
    return (fcntl(fd, F_GETFL) & O_NONBLOCK) == 0;
}

static inline void pair_init(struct pair *p, const struct kind *kind)
{
    *p = (struct pair){.kind = kind};
    kind->open(p);
}

/* What was opened is as it was. */
static inline void pair_close(struct pair *p)
{
    for (int i = 0; i < 2; i++) {
        CHECK(is_blocking(p->fds[i]));
        CHECK_EQ(close(p->fds[i]), 0);
    }
}

/* ---- between goroutines ----------------------------------------------------------------------------------------- */

static inline void pair_waits(void *arg)
{
    struct pair *p = arg;
    ++*p->waiting;
    p->kind->wait(p);
    weft_wg_done(p->all);
}

static inline void pair_feeds(void *arg)
{
    struct pair *p = arg;
    p->kind->feed(p);
    weft_wg_done(p->all);
}

static inline void start_all(struct pair *pairs, weft_fn *fn)
{
    for (int i = 0; i < PAIRS; i++)
        CHECK_EQ(weft_go(fn, &pairs[i]), 0);
}

static inline void pairs_main(void *arg)
{
    static struct pair pairs[PAIRS];
    _Atomic int waiting = 0;
    weft_wg all = {0};
    for (int i = 0; i < PAIRS; i++) {
        pair_init(&pairs[i], arg);
        pairs[i].waiting = &waiting;
        pairs[i].all = &all;
    }
    weft_wg_add(&all, 2 * PAIRS);
    start_all(pairs, pair_waits);
    CHECK(reaches(&waiting, PAIRS, 20));
    CHECK_EQ(weft_sleep(5 * WEFT_MSEC), 0);
    CHECK(check_threads() <= weft_procs(0) + SPARE_THREADS); /* main, and some that blocked for a moment */
    start_all(pairs, pair_feeds);
    CHECK_EQ(weft_wg_wait(&all), 0);
    for (int i = 0; i < PAIRS; i++)
        pair_close(&pairs[i]);
}

static inline void between_goroutines(const struct kind *kind)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, pairs_main, (void *)kind), 0);
}

/* ---- outside ---------------------------------------------------------------------------------------------------- */

static inline void *pair_waits_outside(void *arg)
{
    struct pair *p = arg;
    p->kind->wait(p);
    return NULL;
}

static inline void outside_goroutines(const struct kind *kind)
{
    struct pair p;
    pthread_t thread;
    pair_init(&p, kind);
    CHECK_EQ(pthread_create(&thread, NULL, pair_waits_outside, &p), 0);
    p.kind->feed(&p);
    pthread_join(thread, NULL);
    pair_close(&p);
}

static inline void *outside_beside_a_run(void *kind)
{
    outside_goroutines(kind);
    return NULL;
}

static inline void beside_main(void *kind)
{
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, outside_beside_a_run, kind), 0);
    join_in_region(&thread, 1);
}

static inline void each_way(const struct kind *kind)
{
    between_goroutines(kind);
    outside_goroutines(kind);
    CHECK_EQ(run_on(2, beside_main, (void *)kind), 0);
}

/* ---- one goroutine ---------------------------------------------------------------------------------------------- */

static inline void call_it(void *fn)
{
    ((check_fn *)fn)();
}

/* The same in a goroutine and outside. */
static inline void inside_and_outside(check_fn *fn)
{
    fn();
    EACH_PROCS(p) CHECK_EQ(run_on(p, call_it, (void *)fn), 0);
}

/* Fails with that errno. */
#define CHECK_ERRNO(call, err)           \
    do {                                 \
        CHECK_EQ(call, -1);              \
        CHECK_EQ(errno_of_now(), (err)); \
    } while (0)

/* Out of line: the address of errno is another one after a call that parks. */
__attribute__((noinline)) static int errno_of_now(void)
{
    return errno;
}

#endif
