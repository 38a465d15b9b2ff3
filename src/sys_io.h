/* SPDX-License-Identifier: MIT */
/*
 * The system calls that touch descriptors, under the same rule as sys.h: zero or more, or a negative errno.
 *
 * They go past libc's functions of the same names, for which libweft_posix.so puts its own: those would come back here. None
 * of them waits in the kernel, except where its comment says that it may.
 */
#ifndef W_SYS_IO_H
#define W_SYS_IO_H

#include "sanitize.h"
#include "sys.h"
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <termios.h>

#ifndef RWF_NOSIGNAL
#define RWF_NOSIGNAL 0x100 /* Linux 6.18: no SIGPIPE */
#endif

static inline long w_sys_recv(int fd, void *buffer, size_t n, int flags)
{
    return W_RESULT(syscall(SYS_recvfrom, fd, buffer, n, flags | MSG_DONTWAIT, NULL, NULL));
}

static inline long w_sys_recvmsg(int fd, struct msghdr *message, int flags)
{
    return W_RESULT(syscall(SYS_recvmsg, fd, message, flags | MSG_DONTWAIT));
}

static inline long w_sys_send(int fd, const void *buffer, size_t n, int flags)
{
    return W_RESULT(syscall(SYS_sendto, fd, buffer, n, flags | MSG_DONTWAIT | MSG_NOSIGNAL, NULL, 0));
}

static inline long w_sys_sendmsg(int fd, const struct msghdr *message, int flags)
{
    return W_RESULT(syscall(SYS_sendmsg, fd, message, flags | MSG_DONTWAIT | MSG_NOSIGNAL));
}

/* Of any descriptor, whatever its mode; -EOPNOTSUPP or -ENOSYS: not of this one, or not by this kernel. Offset -1: where it
 * stands. */
static inline long w_sys_read_now(int fd, const struct iovec *iov, int n, off_t offset)
{
    return W_RESULT(syscall(SYS_preadv2, fd, iov, (long)n, offset, 0, RWF_NOWAIT));
}

/* May wait. */
static inline long w_sys_read(int fd, const struct iovec *iov, int n, off_t offset)
{
    if (offset == -1)
        return W_RESULT(syscall(SYS_readv, fd, iov, (long)n));
    return W_RESULT(syscall(SYS_preadv, fd, iov, (long)n, offset, 0));
}

/* May wait. */
static inline long w_sys_write(int fd, const struct iovec *iov, int n, off_t offset)
{
    if (offset == -1)
        return W_RESULT(syscall(SYS_writev, fd, iov, (long)n));
    return W_RESULT(syscall(SYS_pwritev, fd, iov, (long)n, offset, 0));
}

/* Waits until it takes something, or says what is wrong with it; false: not within so much time. */
static inline bool w_sys_takes(int fd, int64_t ns)
{
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    struct timespec time = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
    return W_RESULT(syscall(SYS_ppoll, &p, 1, &time, NULL, 0)) != 0;
}

typedef long w_sys_write_fn(int fd, const struct iovec *iov, int n, off_t offset);

/* Without SIGPIPE, where the kernel has no flag for that: it is blocked meanwhile, and taken if it came; a write that was
 * partly done raises it too. */
static inline long w_sys_write_quietly(int fd, const struct iovec *iov, int n, w_sys_write_fn *write)
{
    sigset_t pipe, former, before, after;
    struct timespec none = {0};
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe, &former);
    sigpending(&before);
    long r = write(fd, iov, n, -1);
    sigpending(&after);
    if (sigismember(&after, SIGPIPE) && !sigismember(&before, SIGPIPE))
        W_RESULT(sigtimedwait(&pipe, NULL, &none));
    pthread_sigmask(SIG_SETMASK, &former, NULL);
    return r;
}

static inline long w_sys_write_nowait(int fd, const struct iovec *iov, int n, off_t offset)
{
    return W_RESULT(syscall(SYS_pwritev2, fd, iov, (long)n, offset, 0, RWF_NOWAIT));
}

/* As w_sys_read_now, and without SIGPIPE. */
static inline long w_sys_write_now(int fd, const struct iovec *iov, int n)
{
    long r = W_RESULT(syscall(SYS_pwritev2, fd, iov, (long)n, (off_t)-1, 0, RWF_NOWAIT | RWF_NOSIGNAL));
    return r == -EOPNOTSUPP ? w_sys_write_quietly(fd, iov, n, w_sys_write_nowait) : r;
}

static inline long w_sys_fsync(int fd) /* waits */
{
    return W_RESULT(syscall(SYS_fsync, fd));
}

static inline long w_sys_open(const char *path, int flags, mode_t mode) /* may wait */
{
    return W_RESULT(syscall(SYS_openat, AT_FDCWD, path, flags, mode));
}

static inline long w_sys_accept(int fd, struct sockaddr *address, socklen_t *length)
{
    return W_RESULT(syscall(SYS_accept4, fd, address, length, SOCK_NONBLOCK | SOCK_CLOEXEC));
}

static inline long w_sys_connect(int fd, const struct sockaddr *address, socklen_t length)
{
    return W_RESULT(syscall(SYS_connect, fd, address, length));
}

static inline long w_sys_close(int fd)
{
#ifdef W_TSAN /* it follows libc's calls, and would see two lives of a number as one */
    return W_RESULT(close(fd));
#endif
    return W_RESULT(syscall(SYS_close, fd));
}

/* What is ready of `events`, 0: nothing. */
static inline long w_sys_ready(int fd, int events)
{
    struct pollfd p = {.fd = fd, .events = (short)events};
    struct timespec none = {0};
    long r = W_RESULT(syscall(SYS_ppoll, &p, 1, &none, NULL, 0));
    return r < 0 ? r : p.revents & POLLNVAL ? -EBADF : p.revents;
}

/* -errno; else whether it was non-blocking, which it is from here on. */
static inline long w_sys_set_nonblocking(int fd)
{
    long flags = W_RESULT(syscall(SYS_fcntl, fd, F_GETFL));
    if (flags < 0 || flags & O_NONBLOCK)
        return flags < 0 ? flags : 1;
    return W_RESULT(syscall(SYS_fcntl, fd, F_SETFL, flags | O_NONBLOCK));
}

static inline long w_sys_flags(int fd)
{
    return W_RESULT(syscall(SYS_fcntl, fd, F_GETFL));
}

static inline long w_sys_stat(int fd, struct stat *st)
{
    return W_RESULT(fstat(fd, st));
}

/* The pending error of a socket, as a negative errno; 0: there is none. */
static inline long w_sys_socket_error(int fd)
{
    int error = 0;
    socklen_t n = sizeof error;
    long r = W_RESULT(syscall(SYS_getsockopt, fd, SOL_SOCKET, SO_ERROR, &error, &n));
    return r < 0 ? r : -error;
}

static inline bool w_sys_option_is(int fd, int option, int wanted)
{
    int value = 0;
    socklen_t n = sizeof value;
    return W_RESULT(syscall(SYS_getsockopt, fd, SOL_SOCKET, option, &value, &n)) == 0 && value == wanted;
}

static inline bool w_sys_is_stream(int fd)
{
    return w_sys_option_is(fd, SO_TYPE, SOCK_STREAM);
}

static inline bool w_sys_is_tcp(int fd)
{
    enum { TCP = 6 };
    return w_sys_option_is(fd, SO_PROTOCOL, TCP) && w_sys_is_stream(fd);
}

/* Will its close wait for data that is under way? */
static inline bool w_sys_lingers(int fd)
{
    struct linger value = {0};
    socklen_t n = sizeof value;
    return W_RESULT(syscall(SYS_getsockopt, fd, SOL_SOCKET, SO_LINGER, &value, &n)) == 0 && value.l_onoff &&
           value.l_linger > 0;
}

static inline long w_sys_dup(int fd)
{
    return W_RESULT(syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, 0));
}

static inline bool w_sys_is_tty(int fd)
{
    struct termios t;
    return W_RESULT(tcgetattr(fd, &t)) == 0;
}

static inline long w_sys_eventfd(void)
{
    return W_RESULT(syscall(SYS_eventfd2, 0, EFD_NONBLOCK | EFD_CLOEXEC));
}

static inline void w_sys_eventfd_add(int fd)
{
    uint64_t one = 1;
    W_RESULT(syscall(SYS_write, fd, &one, sizeof one));
}

static inline void w_sys_eventfd_clear(int fd)
{
    uint64_t n;
    W_RESULT(syscall(SYS_read, fd, &n, sizeof n));
}

static inline long w_sys_epoll_create(void)
{
    return W_RESULT(syscall(SYS_epoll_create1, EPOLL_CLOEXEC));
}

static inline long w_sys_epoll_ctl(int epfd, int op, int fd, uint32_t events, uint64_t data)
{
    struct epoll_event e = {.events = events, .data.u64 = data};
    return W_RESULT(syscall(SYS_epoll_ctl, epfd, op, fd, &e));
}

/* Waits at most ns, without limit if negative. Where the kernel knows milliseconds only (before 5.11), the next one. */
static inline long w_sys_epoll_wait(int epfd, struct epoll_event *events, int n, int64_t ns)
{
    static const int64_t MS = 1000000, LONGEST = 1000000000;
    if (ns <= 0)
        return W_RESULT(syscall(SYS_epoll_pwait, epfd, events, n, ns < 0 ? -1 : 0, NULL, 0));
    struct timespec ts = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
#ifdef SYS_epoll_pwait2
    long r = W_RESULT(syscall(SYS_epoll_pwait2, epfd, events, n, &ts, NULL, 0));
    if (r != -ENOSYS && r != -EPERM) /* some sandboxes refuse what they do not know */
        return r;
#endif
    int64_t ms = ns / MS + 1;
    return W_RESULT(syscall(SYS_epoll_pwait, epfd, events, n, (int)(ms < LONGEST ? ms : LONGEST), NULL, 0));
}

#endif
