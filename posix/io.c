/* SPDX-License-Identifier: MIT */
/*
 * read, write, recv, send and their relatives.
 *
 * A socket is tried first, without waiting, by libc's recvmsg or sendmsg: that is one system call, as many as libc's own way
 * would take, and most calls are done then. Only one that has to wait is asked whether it may (O_NONBLOCK) and for how long
 * (SO_RCVTIMEO, SO_SNDTIMEO). Files and pipes go to Weft at once unless they are non-blocking.
 */
#include "shim.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define VECTOR(buffer, size) (&(struct iovec){(void *)(buffer), (size)})

enum { NEVER_WAIT = MSG_DONTWAIT | MSG_ERRQUEUE | MSG_OOB }; /* when receiving */

static size_t bytes(const struct iovec *iov, size_t count)
{
    size_t sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += iov[i].iov_len;
    return sum;
}

/* Nothing to transfer, or vectors that are refused: libc knows what to say, and does not wait. */
static bool trivial(const struct iovec *iov, int count)
{
    return count <= 0 || count > IOV_MAX || bytes(iov, (size_t)count) == 0;
}

/* One that goes on without waiting lets others run, but not in a handler, which uses non-blocking ones (PX3). */
static ssize_t done_at_once(int fd, ssize_t r)
{
    if (r >= 0 && w_is_due() && w_blocking(fd))
        weft_cancelled();
    return r;
}

/* As the kernel does for whoever writes where nobody reads. */
static ssize_t signalled(ssize_t r, int flags)
{
    if (r == -EPIPE && !(flags & MSG_NOSIGNAL))
        raise(SIGPIPE);
    return r;
}

/* ---- what is no socket ------------------------------------------------------------------------------------------ */

/* Only if it was opened for it: nobody tells of what can never be ready. */
static bool waits(int fd, int wrong_access)
{
    int flags = W_RESULT(fcntl(fd, F_GETFL));
    return flags >= 0 && !(flags & O_NONBLOCK) && (flags & O_ACCMODE) != wrong_access;
}

/* Since Linux 6.4 a pipe may be read without waiting whatever its mode. */
static bool pipes_are_tried(void)
{
    static _Atomic int answer; /* 0: nobody has asked so far; relaxed: all get the same */
    int r = atomic_load_explicit(&answer, memory_order_relaxed), fds[2];
    char c;
    if (r != 0 || W_RESULT(pipe2(fds, O_CLOEXEC)) < 0)
        return r > 0;
    r = W_RESULT(W_REAL(preadv2)(fds[0], VECTOR(&c, 1), 1, -1, RWF_NOWAIT)) == -EAGAIN ? 1 : -1;
    atomic_store_explicit(&answer, r, memory_order_relaxed);
    weft_close_fd(fds[0]);
    weft_close_fd(fds[1]);
    return r > 0;
}

/* Others, a terminal for instance, weft_read and weft_write make non-blocking, and so for all processes that have it. We wait
 * until it is ready; if somebody else is faster then, the thread waits in a region. */
static bool keeps_its_mode(int fd)
{
    struct stat st;
    if (W_RESULT(fstat(fd, &st)) < 0)
        return false;
    return S_ISREG(st.st_mode) || S_ISBLK(st.st_mode) || (S_ISFIFO(st.st_mode) && pipes_are_tried());
}

/* ---- receiving -------------------------------------------------------------------------------------------------- */

static ssize_t receive(int fd, struct msghdr *m, int flags)
{
    if (!(flags & MSG_WAITALL)) { /* which a try would cut short */
        ssize_t r = W_RESULT(W_REAL(recvmsg)(fd, m, flags | MSG_DONTWAIT));
        if (r != -EAGAIN)
            return done_at_once(fd, r);
    }
    if (!w_blocking(fd))
        return W_RESULT(W_REAL(recvmsg)(fd, m, flags));
    return W_WITHIN(w_socket_limit(fd, SO_RCVTIMEO), -EAGAIN, weft_recvmsg(fd, m, flags),
                    W_REAL(recvmsg)(fd, m, flags));
}

static ssize_t receive_from(int fd, const struct iovec *to, int flags, struct sockaddr *address, socklen_t *length)
{
    struct msghdr m = {.msg_iov = (struct iovec *)to, .msg_iovlen = 1, .msg_name = address};
    m.msg_namelen = address != NULL ? *length : 0;
    ssize_t r = receive(fd, &m, flags);
    if (r >= 0 && address != NULL)
        *length = m.msg_namelen;
    return r;
}

static ssize_t get(int fd, const struct iovec *iov, int count)
{
    if (trivial(iov, count))
        return W_RESULT(W_REAL(readv)(fd, iov, count));
    ssize_t r = receive(fd, &(struct msghdr){.msg_iov = (struct iovec *)iov, .msg_iovlen = (size_t)count}, 0);
    if (r != -ENOTSOCK)
        return r;
    if (!waits(fd, O_WRONLY))
        return W_RESULT(W_REAL(readv)(fd, iov, count));
    if (keeps_its_mode(fd))
        return weft_readv(fd, iov, count);
    r = weft_wait_fd(fd, POLLIN);
    return r < 0 ? r : W_RESULT(W_IN_REGION(W_REAL(readv)(fd, iov, count)));
}

/* ---- sending ---------------------------------------------------------------------------------------------------- */

/* What is left of m once `done` bytes are gone; the caller frees rest->msg_iov. */
static bool rest_of(struct msghdr *rest, const struct msghdr *m, size_t done)
{
    struct iovec *v = malloc(m->msg_iovlen * sizeof *v);
    if (v == NULL)
        return false;
    memcpy(v, m->msg_iov, m->msg_iovlen * sizeof *v);
    for (size_t i = 0; done > 0; i++) {
        size_t n = done < v[i].iov_len ? done : v[i].iov_len;
        v[i].iov_base = (char *)v[i].iov_base + n;
        v[i].iov_len -= n;
        done -= n;
    }
    *rest = (struct msghdr){.msg_iov = v, .msg_iovlen = m->msg_iovlen};
    return true;
}

/* A local socket whose addressee has no room says that it is writable: there is nothing to park for. */
static ssize_t send_waiting(int fd, const struct msghdr *m, int flags)
{
    if (m->msg_name != NULL)
        return W_RESULT(W_IN_REGION(W_REAL(sendmsg)(fd, m, flags | MSG_NOSIGNAL)));
    return W_WITHIN(w_socket_limit(fd, SO_SNDTIMEO), -EAGAIN, weft_sendmsg(fd, m, flags),
                    W_REAL(sendmsg)(fd, m, flags | MSG_NOSIGNAL));
}

/* Only a stream takes a part of a message. */
static ssize_t send_rest(int fd, const struct msghdr *m, int flags, size_t done)
{
    struct msghdr rest;
    if (!rest_of(&rest, m, done))
        return (ssize_t)done;
    ssize_t r = send_waiting(fd, &rest, flags);
    free(rest.msg_iov);
    return (ssize_t)done + (r > 0 ? r : 0);
}

static ssize_t transmit(int fd, const struct msghdr *m, int flags)
{
    ssize_t r = W_RESULT(W_REAL(sendmsg)(fd, m, flags | MSG_DONTWAIT));
    bool waits = r == -EAGAIN || (r >= 0 && (size_t)r < bytes(m->msg_iov, m->msg_iovlen));
    if (!waits)
        return done_at_once(fd, r);
    if (!w_blocking(fd))
        return r;
    return r > 0 ? send_rest(fd, m, flags, (size_t)r) : signalled(send_waiting(fd, m, flags), flags);
}

static ssize_t transmit_to(int fd, const struct iovec *from, int flags, const struct sockaddr *address,
                           socklen_t length)
{
    struct msghdr m = {.msg_iov = (struct iovec *)from, .msg_iovlen = 1, .msg_name = (void *)address};
    m.msg_namelen = address != NULL ? length : 0;
    return transmit(fd, &m, flags);
}

static ssize_t put(int fd, const struct iovec *iov, int count)
{
    if (trivial(iov, count))
        return W_RESULT(W_REAL(writev)(fd, iov, count));
    ssize_t r = transmit(fd, &(struct msghdr){.msg_iov = (struct iovec *)iov, .msg_iovlen = (size_t)count}, 0);
    if (r != -ENOTSOCK)
        return r;
    if (!waits(fd, O_RDONLY))
        return W_RESULT(W_REAL(writev)(fd, iov, count));
    if (keeps_its_mode(fd))
        return signalled(weft_writev(fd, iov, count), 0);
    r = weft_wait_fd(fd, POLLOUT);
    return r < 0 ? r : W_RESULT(W_IN_REGION(W_REAL(writev)(fd, iov, count)));
}

/* ---- the calls -------------------------------------------------------------------------------------------------- */

W_CALL(ssize_t, read, (int fd, void *buffer, size_t size), (fd, buffer, size), get(fd, VECTOR(buffer, size), 1))
W_CALL(ssize_t, write, (int fd, const void *buffer, size_t size), (fd, buffer, size), put(fd, VECTOR(buffer, size), 1))
W_CALL(ssize_t, readv, (int fd, const struct iovec *iov, int n), (fd, iov, n), get(fd, iov, n))
W_CALL(ssize_t, writev, (int fd, const struct iovec *iov, int n), (fd, iov, n), put(fd, iov, n))

W_CALL_UNLESS((flags & NEVER_WAIT) != 0, ssize_t, recv, (int fd, void *buffer, size_t size, int flags),
              (fd, buffer, size, flags), receive_from(fd, VECTOR(buffer, size), flags, NULL, NULL))
W_CALL_UNLESS((flags & NEVER_WAIT) != 0, ssize_t, recvfrom,
              (int fd, void *buffer, size_t size, int flags, struct sockaddr *address, socklen_t *length),
              (fd, buffer, size, flags, address, length),
              receive_from(fd, VECTOR(buffer, size), flags, address, length))
W_CALL_UNLESS((flags & NEVER_WAIT) != 0, ssize_t, recvmsg, (int fd, struct msghdr *message, int flags),
              (fd, message, flags), receive(fd, message, flags))

W_CALL_UNLESS((flags & MSG_DONTWAIT) != 0, ssize_t, send, (int fd, const void *buffer, size_t size, int flags),
              (fd, buffer, size, flags), transmit_to(fd, VECTOR(buffer, size), flags, NULL, 0))
W_CALL_UNLESS((flags & MSG_DONTWAIT) != 0, ssize_t, sendto,
              (int fd, const void *buffer, size_t size, int flags, const struct sockaddr *address, socklen_t length),
              (fd, buffer, size, flags, address, length), transmit_to(fd, VECTOR(buffer, size), flags, address, length))
W_CALL_UNLESS((flags & MSG_DONTWAIT) != 0, ssize_t, sendmsg, (int fd, const struct msghdr *message, int flags),
              (fd, message, flags), transmit(fd, message, flags))

W_CALL(ssize_t, pread, (int fd, void *buffer, size_t size, off_t offset), (fd, buffer, size, offset),
       weft_pread(fd, buffer, size, offset))
W_CALL(ssize_t, pwrite, (int fd, const void *buffer, size_t size, off_t offset), (fd, buffer, size, offset),
       weft_pwrite(fd, buffer, size, offset))
W_ALIAS(pread64, pread)
W_ALIAS(pwrite64, pwrite)

/* ---- what programs call that were compiled with _FORTIFY_SOURCE ------------------------------------------------- */

WEFT_API ssize_t __read_chk(int fd, void *buffer, size_t size, size_t room)
{
    return read(fd, buffer, w_fits(size, room));
}

WEFT_API ssize_t __pread_chk(int fd, void *buffer, size_t size, off_t offset, size_t room)
{
    return pread(fd, buffer, w_fits(size, room), offset);
}
W_ALIAS(__pread64_chk, __pread_chk)

WEFT_API ssize_t __recv_chk(int fd, void *buffer, size_t size, size_t room, int flags)
{
    return recv(fd, buffer, w_fits(size, room), flags);
}

WEFT_API ssize_t __recvfrom_chk(int fd, void *buffer, size_t size, size_t room, int flags, struct sockaddr *address,
                                socklen_t *length)
{
    return recvfrom(fd, buffer, w_fits(size, room), flags, address, length);
}
