/* SPDX-License-Identifier: MIT */
#include "fault_shim_io.h"
#include <errno.h>
#include <sched.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static _Atomic int armed;
static _Atomic uint32_t rate;
static _Atomic uint64_t state;
static _Atomic long made;

long __real_syscall(long number, ...);

void io_faults_arm(int kinds, uint32_t one_in, uint64_t seed)
{
    atomic_store(&rate, one_in);
    atomic_store(&state, seed);
    atomic_store(&made, 0);
    atomic_store(&armed, kinds);
}

void io_faults_disarm(void)
{
    atomic_store(&armed, 0);
}

long io_faults_made(void)
{
    return atomic_load(&made);
}

static uint32_t next_random(void)
{
    uint64_t x = atomic_fetch_add(&state, 0x9E3779B97F4A7C15ull);
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ x >> 27) * 0x94D049BB133111EBull;
    return (uint32_t)(x >> 32);
}

static bool chance(enum io_fault kind)
{
    if (!(atomic_load(&armed) & (int)kind) || next_random() % atomic_load(&rate) != 0)
        return false;
    atomic_fetch_add(&made, 1);
    return true;
}

static long refused(int e)
{
    errno = e;
    return -1;
}

/* A part of what was asked for. */
static size_t part(size_t n)
{
    return n > 1 ? 1 + next_random() % (n - 1) : n;
}

/* The first buffer that is not empty, and of that a part. */
static bool shorten(struct iovec *to, const struct iovec *iov, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (iov[i].iov_len > 1) {
            *to = (struct iovec){iov[i].iov_base, part(iov[i].iov_len)};
            return true;
        } else if (iov[i].iov_len == 1) {
            return false;
        }
    return false;
}

static bool is_stream(int fd)
{
    int type = 0;
    socklen_t n = sizeof type;
    return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &n) == 0 && type == SOCK_STREAM;
}

static long do_short(long number, const long a[6])
{
    struct iovec one;
    if (number == SYS_recvfrom || number == SYS_sendto)
        return __real_syscall(number, a[0], a[1], is_stream((int)a[0]) ? (long)part((size_t)a[2]) : a[2], a[3], a[4],
                              a[5]);
    if ((number == SYS_recvmsg || number == SYS_sendmsg) && is_stream((int)a[0])) {
        struct msghdr *m = (struct msghdr *)a[1], less = *m;
        if (!shorten(&one, m->msg_iov, m->msg_iovlen))
            return __real_syscall(number, a[0], a[1], a[2]);
        less.msg_iov = &one;
        less.msg_iovlen = 1;
        long r = __real_syscall(number, a[0], &less, a[2]);
        if (number == SYS_recvmsg) {
            less.msg_iov = m->msg_iov;
            less.msg_iovlen = m->msg_iovlen;
            *m = less;
        }
        return r;
    }
    bool vector = number == SYS_preadv2 || number == SYS_pwritev2 || number == SYS_readv || number == SYS_writev;
    if (vector && shorten(&one, (struct iovec *)a[1], (size_t)a[2]))
        return __real_syscall(number, a[0], &one, 1L, a[3], a[4], a[5]);
    return __real_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

static bool is_transfer(long number)
{
    return number == SYS_recvfrom || number == SYS_sendto || number == SYS_recvmsg || number == SYS_sendmsg ||
           number == SYS_preadv2 || number == SYS_pwritev2 || number == SYS_readv || number == SYS_writev;
}

/* Of a call that is asked not to wait, -EAGAIN is a possible answer. */
static bool may_say_again(long number)
{
    return (is_transfer(number) && number != SYS_readv && number != SYS_writev) || number == SYS_accept4;
}

static bool is_send(long number)
{
    return number == SYS_sendto || number == SYS_sendmsg;
}

static bool is_slow(long number)
{
    return is_transfer(number) || number == SYS_close || number == SYS_epoll_ctl || number == SYS_epoll_pwait ||
           number == SYS_accept4;
}

static void dawdle(void)
{
    if (next_random() % 4 == 0)
        usleep(next_random() % 200);
    else
        sched_yield();
}

static long disturbed(long number, const long a[6])
{
    if ((is_transfer(number) || number == SYS_accept4) && chance(IO_EINTR))
        return refused(EINTR);
    if (may_say_again(number) && chance(IO_EAGAIN))
        return refused(EAGAIN);
    if (is_send(number) && chance(IO_ENOBUFS))
        return refused(ENOBUFS);
    if (number == SYS_epoll_ctl && a[1] != EPOLL_CTL_DEL && chance(IO_NO_WATCH))
        return refused(ENOMEM);
    if (is_transfer(number) && chance(IO_SHORT))
        return do_short(number, a);
    return __real_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

long __wrap_syscall(long number, ...)
{
    long a[6];
    va_list ap;
    va_start(ap, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(ap, long);
    va_end(ap);
    if (atomic_load(&armed) == 0)
        return __real_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
    bool slow = is_slow(number);
    if (slow && chance(IO_SLOW))
        dawdle();
    long r = disturbed(number, a);
    int e = errno;
    if (slow && chance(IO_SLOW))
        dawdle();
    errno = e;
    return r;
}
