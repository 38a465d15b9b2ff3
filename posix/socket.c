/* SPDX-License-Identifier: MIT */
/*
 * accept, connect, close.
 *
 * weft_accept and weft_connect make descriptors non-blocking, which a library must not see. A listener that is blocking cannot be
 * asked for a connection without waiting; so its mode is changed for a moment, by one goroutine at a time.
 */
#include "shim.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { TAKERS = 64 };

static weft_mutex takers[TAKERS]; /* by descriptor number; two may share one, as it is held for a moment only */

/* -EAGAIN: another was faster. */
static int take(int fd, struct sockaddr *address, socklen_t *length, int flags)
{
    weft_mutex *taker = &takers[(unsigned)fd % TAKERS];
    int r = weft_lock(taker);
    if (r != 0)
        return r;
    int mode = W_RESULT(fcntl(fd, F_GETFL));
    W_RESULT(fcntl(fd, F_SETFL, mode | O_NONBLOCK));
    r = W_RESULT(W_REAL(accept4)(fd, address, length, flags));
    W_RESULT(fcntl(fd, F_SETFL, mode));
    weft_unlock(taker);
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
