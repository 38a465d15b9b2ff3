/* SPDX-License-Identifier: MIT */
/*
 * accept, connect, close.
 *
 * weft_accept and weft_connect make descriptors non-blocking, which a library must not see. A listener that is blocking cannot be
 * asked for a connection without waiting. So goroutines take turns: one looks whether there is a connection, and if so accepts
 * it. Only somebody who is none of them, a plain thread or another process, can be faster; then the thread waits for the next
 * connection, in a region.
 *
 * Rejected: O_NONBLOCK for a moment. Whoever else calls accept in that moment gets an EAGAIN that he did not ask for.
 */
#include "shim.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- accept ----------------------------------------------------------------------------------------------------- */

/* The turn at one listener: it may be long, so each has its own. */
struct turn {
    struct turn *next; /* guard */
    int fd;            /* constant */
    int users;         /* goroutines that have it or want it; guard */
    weft_mutex taken;
};

static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER; /* held by goroutines, but never while one parks */
static struct turn *turns;                                /* those that have users; guard */

static struct turn *turn_of(int fd)
{
    struct turn *fresh = calloc(1, sizeof *fresh), *t;
    if (fresh == NULL)
        return NULL;
    fresh->fd = fd;
    pthread_mutex_lock(&guard);
    for (t = turns; t != NULL && t->fd != fd; t = t->next)
        ;
    if (t == NULL) {
        t = fresh;
        t->next = turns;
        turns = t;
    }
    t->users++;
    pthread_mutex_unlock(&guard);
    if (t != fresh)
        free(fresh);
    return t;
}

static void turn_end(struct turn *t)
{
    pthread_mutex_lock(&guard);
    bool last = --t->users == 0;
    struct turn **at = &turns;
    while (last && *at != t)
        at = &(*at)->next;
    if (last)
        *at = t->next;
    pthread_mutex_unlock(&guard);
    if (last)
        free(t);
}

/* -EAGAIN: another was faster, or took so long that the socket's limit is over. */
static int take(int fd, struct sockaddr *address, socklen_t *length, int flags)
{
    struct turn *t = turn_of(fd);
    int r = t != NULL ? weft_lock(&t->taken) : -ENOMEM;
    if (r == 0) {
        do
            r = W_RESULT(W_REAL(poll)(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, 0));
        while (r == -EINTR); /* by a signal that is to preempt us, for instance */
        r = r == 0 ? -EAGAIN : r < 0 ? r : W_RESULT(W_IN_REGION(W_REAL(accept4)(fd, address, length, flags)));
        weft_unlock(&t->taken);
    }
    if (t != NULL)
        turn_end(t);
    return r;
}

static int accept_waiting(int fd, struct sockaddr *address, socklen_t *length, int flags)
{
    int r;
    do {
        r = weft_wait_fd(fd, POLLIN);
        r = r < 0 ? r : take(fd, address, length, flags);
    } while (r == -EAGAIN);
    return r;
}

static bool listens(int fd)
{
    int yes = 0;
    socklen_t n = sizeof yes;
    return W_RESULT(getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &yes, &n)) == 0 && yes;
}

static ssize_t accept_one(int fd, struct sockaddr *address, socklen_t *length, int flags)
{
    if (!w_blocking(fd) || !listens(fd))
        return W_RESULT(W_REAL(accept4)(fd, address, length, flags));
    return W_WITHIN(w_socket_limit(fd, SO_RCVTIMEO), -EAGAIN, accept_waiting(fd, address, length, flags),
                    W_REAL(accept4)(fd, address, length, flags));
}

W_CALL(int, accept, (int fd, struct sockaddr *address, socklen_t *length), (fd, address, length),
       accept_one(fd, address, length, 0))
W_CALL(int, accept4, (int fd, struct sockaddr *address, socklen_t *length, int flags), (fd, address, length, flags),
       accept_one(fd, address, length, flags))

/* ---- connect ---------------------------------------------------------------------------------------------------- */

/* The mode is changed for as long as it takes. */
static int connect_parked(int fd, const struct sockaddr *address, socklen_t length)
{
    int mode = W_RESULT(fcntl(fd, F_GETFL));
    W_RESULT(fcntl(fd, F_SETFL, mode | O_NONBLOCK));
    int r = address->sa_family == AF_UNIX ? W_RESULT(W_REAL(connect)(fd, address, length))
                                          : weft_connect(fd, address, length);
    if (r != -EBADF) /* else it may be somebody else's by now */
        W_RESULT(fcntl(fd, F_SETFL, mode));
    return r;
}

/* -EAGAIN: the queue of a local listener is full, and there is no way to be told when it is not. */
static ssize_t connect_to(int fd, const struct sockaddr *address, socklen_t length)
{
    if (!w_blocking(fd) || address == NULL || length < sizeof address->sa_family)
        return W_RESULT(W_REAL(connect)(fd, address, length));
    ssize_t r = W_WITHIN(w_socket_limit(fd, SO_SNDTIMEO), -EINPROGRESS, connect_parked(fd, address, length),
                         W_REAL(connect)(fd, address, length));
    return r == -EAGAIN ? W_RESULT(W_IN_REGION(W_REAL(connect)(fd, address, length))) : r;
}

W_CALL(int, connect, (int fd, const struct sockaddr *address, socklen_t length), (fd, address, length),
       connect_to(fd, address, length))

/* ---- close ------------------------------------------------------------------------------------------------------ */

W_CALL(int, close, (int fd), (fd), weft_close_fd(fd))
