/* SPDX-License-Identifier: MIT */
/* Traffic that several tests send: datagrams that come in order, and a desk where some serve and others come to be served. */
#ifndef TRAFFIC_H
#define TRAFFIC_H

#include "io.h"

/* ---- datagrams -------------------------------------------------------------------------------------------------- */

typedef ssize_t post_fn(int fd, const void *data, size_t size);

struct posts {
    int fd[2];
    int n;
    post_fn *send;
    weft_wg ended;
};

static inline void post(void *arg)
{
    struct posts *p = arg;
    for (int i = 0; i < p->n; i++)
        CHECK_EQ(p->send(p->fd[1], &i, sizeof i), sizeof i);
    weft_wg_done(&p->ended);
}

/* n of them: each comes once, and in its turn. */
static inline void posts_come_in_order(int n, post_fn *send)
{
    struct posts p = {.n = n, .send = send};
    CHECK_EQ(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, p.fd), 0);
    weft_wg_add(&p.ended, 1);
    CHECK_EQ(weft_go(post, &p), 0);
    for (int i = 0; i < n; i++) {
        int v = -1;
        CHECK_EQ(weft_read(p.fd[0], &v, sizeof v), sizeof v);
        CHECK_EQ(v, i);
    }
    CHECK_EQ(weft_wg_wait(&p.ended), 0);
    close_both(p.fd);
}

/* ---- a desk ----------------------------------------------------------------------------------------------------- */

/* What those who serve and those who come get as their argument. */
struct desk {
    int listener;
    struct sockaddr_in at;
    int visits; /* that each of them makes */
    _Atomic int served;
    weft_wg ended;
};

/* Until all have been served; then it is closed, which those notice who still wait to serve. How many were accepted. */
static inline int open_desk(weft_fn *serve, int servers, weft_fn *visit, int visitors, int visits)
{
    struct desk d = {.visits = visits};
    d.listener = listen_at(&d.at, 128);
    weft_wg_add(&d.ended, visitors);
    for (int i = 0; i < servers; i++)
        CHECK_EQ(weft_go(serve, &d), 0);
    for (int i = 0; i < visitors; i++)
        CHECK_EQ(weft_go(visit, &d), 0);
    CHECK_EQ(weft_wg_wait(&d.ended), 0);
    weft_wg_add(&d.ended, servers);
    CHECK_EQ(weft_close_fd(d.listener), 0);
    CHECK_EQ(weft_wg_wait(&d.ended), 0);
    return d.served;
}

/* Each sends a byte, gets it back, and sees the end. */
static inline void serve_bytes(void *arg)
{
    struct desk *d = arg;
    for (int fd; (fd = weft_accept(d->listener, NULL, NULL)) >= 0; d->served++) {
        char c = 0;
        CHECK(fcntl(fd, F_GETFL) & O_NONBLOCK);
        CHECK_EQ(fcntl(fd, F_GETFD), FD_CLOEXEC);
        CHECK_EQ(weft_read(fd, &c, 1), 1);
        CHECK_EQ(weft_write(fd, &c, 1), 1);
        CHECK_EQ(weft_close_fd(fd), 0);
    }
    weft_wg_done(&d->ended);
}

static inline void visit_with_bytes(void *arg)
{
    struct desk *d = arg;
    for (int i = 0; i < d->visits; i++) {
        int fd = socket_of(AF_INET, SOCK_STREAM);
        char c = (char)i;
        CHECK_EQ(weft_connect(fd, (struct sockaddr *)&d->at, sizeof d->at), 0);
        CHECK_EQ(weft_write(fd, &c, 1), 1);
        CHECK_EQ(weft_read(fd, &c, 1), 1);
        CHECK_EQ(c, (char)i);
        CHECK_EQ(weft_read(fd, &c, 1), 0);
        CHECK_EQ(weft_close_fd(fd), 0);
    }
    weft_wg_done(&d->ended);
}

#endif
