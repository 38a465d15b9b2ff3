/* SPDX-License-Identifier: MIT */
/*
 * What the tests of input and output share: pairs of descriptors of every kind, bytes that tell where in which stream they
 * stand, and calls that are known to wait.
 */
#ifndef IO_H
#define IO_H

#include "waits.h"
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <termios.h>

/* ---- descriptors ------------------------------------------------------------------------------------------------ */

static inline struct sockaddr_in loopback(void)
{
    return (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static inline int socket_of(int family, int type)
{
    int fd = socket(family, type | SOCK_CLOEXEC, 0);
    CHECK(fd >= 0);
    return fd;
}

/* On one of 200 addresses of the loopback in turn: connections that were closed keep their ports for a minute, and a test that
 * is run again and again would run out of them. */
static inline int listen_at(struct sockaddr_in *at, int backlog)
{
    static _Atomic uint32_t turn;
    int fd = socket_of(AF_INET, SOCK_STREAM);
    socklen_t n = sizeof *at;
    *at = loopback();
    at->sin_addr.s_addr = htonl(INADDR_LOOPBACK + ((uint32_t)getpid() + turn++) % 200);
    CHECK_EQ(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int)), 0);
    CHECK_EQ(bind(fd, (struct sockaddr *)at, n), 0);
    CHECK_EQ(listen(fd, backlog), 0);
    CHECK_EQ(getsockname(fd, (struct sockaddr *)at, &n), 0);
    return fd;
}

static inline void tcp_pair(int fd[2])
{
    struct sockaddr_in at;
    int listener = listen_at(&at, 1);
    fd[1] = socket_of(AF_INET, SOCK_STREAM);
    CHECK_EQ(connect(fd[1], (struct sockaddr *)&at, sizeof at), 0);
    fd[0] = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    CHECK(fd[0] >= 0);
    close(listener);
}

static inline void unix_pair(int fd[2])
{
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd), 0);
}

static inline void pipe_pair(int fd[2])
{
    CHECK_EQ(pipe2(fd, O_CLOEXEC), 0);
}

/* fd[0] the terminal, which takes and gives bytes as they are, fd[1] its master. */
static inline void pty_pair(int fd[2])
{
    char name[64];
    struct termios t;
    fd[1] = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    CHECK(fd[1] >= 0 && grantpt(fd[1]) == 0 && unlockpt(fd[1]) == 0);
    CHECK_EQ(ptsname_r(fd[1], name, sizeof name), 0);
    fd[0] = open(name, O_RDWR | O_NOCTTY | O_CLOEXEC);
    CHECK(fd[0] >= 0 && tcgetattr(fd[0], &t) == 0);
    cfmakeraw(&t);
    CHECK_EQ(tcsetattr(fd[0], TCSANOW, &t), 0);
}

/* What is written to fd[1] is read from fd[0]. */
struct stream_kind {
    const char *name;
    void (*make)(int fd[2]);
    bool socket;   /* both ways, and understands the calls for sockets */
    bool terminal; /* no end of file that POSIX would promise */
    bool
        steady; /* what is full stays full until somebody reads: TCP collapses its queues and takes more after a while */
};

static const struct stream_kind STREAM_KINDS[] = {
    {"tcp", tcp_pair, true, false, false},
    {"unix", unix_pair, true, false, true},
    {"pipe", pipe_pair, false, false, true},
    {"pty", pty_pair, false, true, false},
};
enum { STREAM_KIND_COUNT = sizeof STREAM_KINDS / sizeof STREAM_KINDS[0] };

static inline void set_nonblocking(int fd, bool on)
{
    int flags = fcntl(fd, F_GETFL);
    CHECK_EQ(fcntl(fd, F_SETFL, on ? flags | O_NONBLOCK : flags & ~O_NONBLOCK), 0);
}

static inline void close_both(int fd[2])
{
    for (int i = 0; i < 2; i++)
        if (fd[i] >= 0)
            CHECK_EQ(weft_close_fd(fd[i]), 0);
}

/* fn gets a pair of each kind, blocking and non-blocking, and must close both ends. */
typedef void pair_fn(const struct stream_kind *kind, int fd[2]);

static inline void on_each_pair(pair_fn *fn)
{
    for (int i = 0; i < STREAM_KIND_COUNT * 2; i++) {
        const struct stream_kind *kind = &STREAM_KINDS[i / 2];
        int fd[2];
        kind->make(fd);
        set_nonblocking(fd[0], i % 2);
        set_nonblocking(fd[1], i % 2);
        fn(kind, fd);
    }
}

static inline void pairs_main(void *arg)
{
    on_each_pair(*(pair_fn **)arg);
}

static inline void on_each_pair_and_procs(pair_fn *fn)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, pairs_main, &fn), 0);
}

static inline void run_each_procs(weft_fn *fn)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, fn, NULL), 0);
}

/* Until the kernel takes no more; how much it took. Steady kinds only. */
static inline size_t fill(int fd)
{
    static const char junk[4096];
    int flags = fcntl(fd, F_GETFL);
    size_t sum = 0;
    set_nonblocking(fd, true);
    for (size_t piece = sizeof junk; piece > 0; piece /= 4)
        for (ssize_t n; (n = write(fd, junk, piece)) > 0;)
            sum += (size_t)n;
    fcntl(fd, F_SETFL, flags);
    return sum;
}

static inline void drain(int fd, size_t n)
{
    char sink[4096];
    while (n > 0) {
        ssize_t r = weft_read(fd, sink, n < sizeof sink ? n : sizeof sink);
        CHECK(r > 0);
        if (r <= 0)
            return;
        n -= (size_t)r;
    }
}

/* ---- bytes that tell their place -------------------------------------------------------------------------------- */

static inline uint8_t byte_at(uint64_t stream, uint64_t at)
{
    return (uint8_t)(((at >> 3) * 0x9E3779B97F4A7C15ull + stream * 0xBF58476D1CE4E5B9ull) >> (24 + (at & 7)));
}

static inline void write_bytes(uint8_t *p, size_t n, uint64_t stream, uint64_t at)
{
    for (size_t i = 0; i < n; i++)
        p[i] = byte_at(stream, at + i);
}

static inline bool bytes_are_right(const uint8_t *p, size_t n, uint64_t stream, uint64_t at)
{
    for (size_t i = 0; i < n; i++)
        if (p[i] != byte_at(stream, at + i)) {
            check_fail(__FILE__, __LINE__, "stream %llu: a wrong byte at %llu", (unsigned long long)stream,
                       (unsigned long long)(at + i));
            return false;
        }
    return true;
}

/* ---- calls that wait -------------------------------------------------------------------------------------------- */

/* A goroutine that makes one call. */
struct one_call {
    long (*fn)(struct one_call *);
    int fd, flags;
    char text[64];
    long result;
    weft_wg ended;
    _Atomic(struct w_g *) who;
};

static inline void one_call_main(void *arg)
{
    struct one_call *c = arg;
    says_who(&c->who);
    c->result = c->fn(c);
    weft_wg_done(&c->ended);
}

/* Returns when it waits. */
static inline void call_begin(struct one_call *c)
{
    c->ended = (weft_wg){0};
    c->who = NULL;
    c->result = -1000;
    weft_wg_add(&c->ended, 1);
    CHECK_EQ(weft_go(one_call_main, c), 0);
    CHECK(is_asleep(&c->who));
}

static inline long call_end(struct one_call *c)
{
    CHECK_EQ(weft_wg_wait(&c->ended), 0);
    return c->result;
}

static inline long call_read(struct one_call *c)
{
    return weft_read(c->fd, c->text, sizeof c->text);
}

static inline long call_write(struct one_call *c)
{
    return weft_write(c->fd, "w", 1);
}

enum { MUCH = 64 << 20 }; /* more than any socket takes before somebody reads */

static inline long call_write_much(struct one_call *c)
{
    char *data = calloc(1, MUCH);
    long r = weft_write(c->fd, data, MUCH);
    free(data);
    return r;
}

static inline bool may_fill(const struct stream_kind *kind)
{
    return kind->steady &&
           !(check_under_emulator() && !kind->socket); /* there pipes are written in the kernel's time */
}

static inline long call_recv(struct one_call *c)
{
    return weft_recv_from(c->fd, c->text, sizeof c->text, c->flags, NULL, NULL);
}

static inline long call_wait(struct one_call *c)
{
    return weft_wait_fd(c->fd, c->flags);
}

static inline long call_accept(struct one_call *c)
{
    return weft_accept(c->fd, NULL, NULL);
}

#endif
