/* SPDX-License-Identifier: MIT */
/* poll, select and epoll_wait through libweft_posix. */
#include "pairs.h"
#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/select.h>

static void feed_byte(struct pair *p)
{
    CHECK_EQ(write(p->fds[1], "x", 1), 1);
}

/* ---- poll ------------------------------------------------------------------------------------------------------- */

static void wait_poll_one(struct pair *p)
{
    struct pollfd one = {.fd = p->fds[0], .events = POLLIN};
    CHECK_EQ(poll(&one, 1, -1), 1);
    CHECK_EQ(one.revents, POLLIN);
}

CASE(poll_of_one_parks)
{
    each_way(&(struct kind){with_sockets, wait_poll_one, feed_byte});
    each_way(&(struct kind){with_pipe, wait_poll_one, feed_byte});
}

/* Negative ones are passed over; the last two ask for the same descriptor. */
static void wait_poll_many(struct pair *p)
{
    struct pollfd many[] = {{.fd = -1, .events = POLLIN},
                            {.fd = p->fds[1], .events = POLLIN, .revents = POLLOUT},
                            {.fd = p->fds[0], .events = POLLPRI},
                            {.fd = p->fds[0], .events = POLLIN}};
    CHECK_EQ(poll(many, 4, 100000), 1);
    CHECK_EQ(many[0].revents, 0);
    CHECK_EQ(many[1].revents, 0);
    CHECK_EQ(many[2].revents, 0);
    CHECK_EQ(many[3].revents, POLLIN);
}

CASE(poll_of_many_parks)
{
    each_way(&(struct kind){with_sockets, wait_poll_many, feed_byte});
}

static void wait_poll_hangup(struct pair *p)
{
    struct pollfd one = {.fd = p->fds[0], .events = POLLRDHUP};
    CHECK_EQ(poll(&one, 1, -1), 1);
    CHECK_EQ(one.revents, POLLRDHUP);
}

static void feed_hangup(struct pair *p)
{
    CHECK_EQ(shutdown(p->fds[1], SHUT_WR), 0);
}

CASE(poll_knows_the_other_events)
{
    each_way(&(struct kind){with_sockets, wait_poll_hangup, feed_hangup});
}

int __poll_chk(struct pollfd *fds, nfds_t count, int ms, size_t room);
int __ppoll_chk(struct pollfd *fds, nfds_t count, const struct timespec *ts, const sigset_t *mask, size_t room);

static void wait_ppoll(struct pair *p)
{
    struct pollfd one = {.fd = p->fds[0], .events = POLLIN};
    CHECK_EQ(ppoll(&one, 1, &(struct timespec){.tv_sec = 1000}, NULL), 1);
    CHECK_EQ(ppoll(&one, 1, NULL, NULL), 1);
    CHECK_EQ(__poll_chk(&one, 1, -1, sizeof one), 1);
    CHECK_EQ(__ppoll_chk(&one, 1, NULL, NULL, sizeof one), 1);
}

CASE(ppoll_parks)
{
    each_way(&(struct kind){with_sockets, wait_ppoll, feed_byte});
}

static void fill(int fd)
{
    static const char text[4096];
    while (send(fd, text, sizeof text, MSG_DONTWAIT) > 0)
        ;
}

static void with_full_sockets(struct pair *p)
{
    with_sockets(p);
    fill(p->fds[0]);
}

static void wait_poll_writable(struct pair *p)
{
    struct pollfd one = {.fd = p->fds[0], .events = POLLOUT};
    CHECK_EQ(poll(&one, 1, -1), 1);
    CHECK_EQ(one.revents, POLLOUT);
}

static void feed_drain(struct pair *p)
{
    char text[4096];
    while (recv(p->fds[1], text, sizeof text, MSG_DONTWAIT) > 0)
        ;
}

CASE(poll_waits_for_room)
{
    each_way(&(struct kind){with_full_sockets, wait_poll_writable, feed_drain});
}

/* ---- select ----------------------------------------------------------------------------------------------------- */

static void wait_select(struct pair *p)
{
    fd_set readable, urgent;
    FD_ZERO(&readable);
    FD_SET(p->fds[0], &readable);
    FD_SET(p->fds[1], &readable);
    urgent = readable;
    CHECK_EQ(select(FD_SETSIZE, &readable, NULL, &urgent, NULL), 1);
    CHECK(FD_ISSET(p->fds[0], &readable) && !FD_ISSET(p->fds[1], &readable) && !FD_ISSET(p->fds[0], &urgent));
}

CASE(select_parks)
{
    each_way(&(struct kind){with_sockets, wait_select, feed_byte});
}

static void wait_select_writable(struct pair *p)
{
    fd_set writable;
    struct timeval tv = {.tv_sec = 1000};
    FD_ZERO(&writable);
    FD_SET(p->fds[0], &writable);
    CHECK_EQ(select(p->fds[0] + 1, NULL, &writable, NULL, &tv), 1);
    CHECK(FD_ISSET(p->fds[0], &writable));
    CHECK(tv.tv_sec > 500 && tv.tv_sec <= 1000); /* what is left */
}

CASE(select_waits_for_room)
{
    each_way(&(struct kind){with_full_sockets, wait_select_writable, feed_drain});
}

static void wait_pselect(struct pair *p)
{
    fd_set readable;
    FD_ZERO(&readable);
    FD_SET(p->fds[0], &readable);
    CHECK_EQ(pselect(p->fds[0] + 1, &readable, NULL, NULL, &(struct timespec){.tv_sec = 1000}, NULL), 1);
    CHECK(FD_ISSET(p->fds[0], &readable));
}

CASE(pselect_parks)
{
    each_way(&(struct kind){with_sockets, wait_pselect, feed_byte});
}

/* Sets that are larger than libc's own. */
static void beyond(void)
{
    enum { HIGH = 1500, WORDS = HIGH / 64 + 1 };
    int fds[2];
    unsigned long set[WORDS] = {0};
    CHECK_EQ(pipe(fds), 0);
    int high = fcntl(fds[0], F_DUPFD, HIGH);
    if (high == HIGH) { /* as many as this process may have */
        set[HIGH / 64] = 1ul << HIGH % 64;
        CHECK_EQ(write(fds[1], "x", 1), 1);
        CHECK_EQ(select(HIGH + 1, (fd_set *)set, NULL, NULL, NULL), 1);
        CHECK_EQ(set[HIGH / 64], 1ul << HIGH % 64);
        close(high);
    }
    close(fds[0]);
    close(fds[1]);
}

CASE(select_takes_large_sets)
{
    inside_and_outside(beyond);
}

/* ---- epoll ------------------------------------------------------------------------------------------------------ */

static int epoll_of(int fd)
{
    struct epoll_event e = {.events = EPOLLIN, .data.fd = fd};
    int epfd = epoll_create1(EPOLL_CLOEXEC);
    CHECK(epfd >= 0);
    CHECK_EQ(epoll_ctl(epfd, EPOLL_CTL_ADD, fd, &e), 0);
    return epfd;
}

static void wait_epoll(struct pair *p)
{
    struct epoll_event e[4];
    int epfd = epoll_of(p->fds[0]);
    CHECK_EQ(epoll_wait(epfd, e, 4, -1), 1);
    CHECK(e[0].events == EPOLLIN && e[0].data.fd == p->fds[0]);
    CHECK_EQ(epoll_wait(epfd, e, 4, 1000), 1);
    CHECK_EQ(epoll_pwait(epfd, e, 4, 1000, NULL), 1);
    close(epfd);
}

CASE(epoll_wait_parks)
{
    each_way(&(struct kind){with_sockets, wait_epoll, feed_byte});
}

static void wait_epoll_pwait(struct pair *p)
{
    struct epoll_event e[4];
    int epfd = epoll_of(p->fds[0]);
    CHECK_EQ(epoll_pwait(epfd, e, 4, 100000, NULL), 1);
    int r = epoll_pwait2(epfd, e, 4, &(struct timespec){.tv_sec = 100}, NULL);
    CHECK(r == 1 || errno_of_now() == ENOSYS); /* an older kernel */
    close(epfd);
}

CASE(epoll_pwait_parks)
{
    each_way(&(struct kind){with_sockets, wait_epoll_pwait, feed_byte});
}

/* ---- times ------------------------------------------------------------------------------------------------------ */

static int64_t began;

static void starts_now(void)
{
    began = weft_now();
}

static void has_taken_ms(int ms)
{
    CHECK(weft_now() - began >= ms * WEFT_MSEC);
}

static void times_of_poll(int fd)
{
    struct pollfd two[] = {{.fd = fd, .events = POLLIN}, {.fd = fd, .events = POLLPRI}};
    CHECK_EQ(poll(two, 2, 0), 0);
    starts_now();
    CHECK_EQ(poll(two, 1, 20), 0);
    has_taken_ms(20);
    starts_now();
    CHECK_EQ(poll(two, 2, 20), 0);
    has_taken_ms(20);
    starts_now();
    CHECK_EQ(poll(NULL, 0, 20), 0);
    has_taken_ms(20);
    starts_now();
    CHECK_EQ(poll(&(struct pollfd){.fd = -1, .events = POLLIN}, 1, 20), 0);
    has_taken_ms(20);
    starts_now();
    CHECK_EQ(ppoll(two, 2, &(struct timespec){.tv_nsec = 20 * WEFT_MSEC}, NULL), 0);
    has_taken_ms(20);
}

static void times_of_select(int fd)
{
    fd_set set;
    struct timeval tv = {.tv_usec = 20000};
    FD_ZERO(&set);
    FD_SET(fd, &set);
    starts_now();
    CHECK_EQ(select(fd + 1, &set, NULL, NULL, &tv), 0);
    has_taken_ms(20);
    CHECK(!FD_ISSET(fd, &set) && tv.tv_sec == 0 && tv.tv_usec == 0);
    starts_now();
    CHECK_EQ(select(0, NULL, NULL, NULL, &(struct timeval){.tv_usec = 20000}), 0);
    has_taken_ms(20);
    CHECK_EQ(select(0, NULL, NULL, NULL, &(struct timeval){0}), 0);
}

static void times_of_epoll(int fd)
{
    struct epoll_event e;
    int epfd = epoll_of(fd);
    CHECK_EQ(epoll_wait(epfd, &e, 1, 0), 0);
    starts_now();
    CHECK_EQ(epoll_wait(epfd, &e, 1, 20), 0);
    has_taken_ms(20);
    close(epfd);
}

static void times(void)
{
    int fds[2];
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    times_of_poll(fds[0]);
    times_of_select(fds[0]);
    times_of_epoll(fds[0]);
    close(fds[0]);
    close(fds[1]);
}

CASE(they_wait_as_long_as_they_are_told)
{
    inside_and_outside(times);
}

static void shielded(void *arg)
{
    (void)arg;
    weft_shield();
    times();
    weft_unshield();
}

CASE(they_do_in_a_shield)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, shielded, NULL), 0);
}

static rlim_t limit_descriptors(rlim_t n)
{
    struct rlimit limit;
    CHECK_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
    rlim_t former = limit.rlim_cur;
    limit.rlim_cur = n;
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
    return former;
}

/* Nobody asks for the hang-up that is there, and the kernel tells of it whenever it is asked. */
static void select_beside_a_hangup(rlim_t descriptors)
{
    enum { LONG = 400 };
    int fds[2];
    fd_set urgent;
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    CHECK_EQ(shutdown(fds[0], SHUT_RDWR), 0);
    FD_ZERO(&urgent);
    FD_SET(fds[0], &urgent);
    FD_SET(fds[1], &urgent);
    rlim_t former = limit_descriptors(descriptors);
    int64_t cpu = check_cpu_ns();
    starts_now();
    CHECK_EQ(select(fds[1] + 1, NULL, NULL, &urgent, &(struct timeval){.tv_usec = LONG * 1000}), 0);
    has_taken_ms(LONG);
    CHECK(check_cpu_ns() - cpu < LONG / 4 * WEFT_MSEC);
    limit_descriptors(former);
    close(fds[0]);
    close(fds[1]);
}

static void hangup_main(void *arg)
{
    enum { MANY = 1000, NO_MORE = 3 };
    (void)arg;
    select_beside_a_hangup(MANY);
    select_beside_a_hangup(NO_MORE);
    weft_shield();
    select_beside_a_hangup(MANY);
    weft_unshield();
}

CASE(a_hangup_that_select_does_not_ask_for_costs_little)
{
    CHECK_EQ(run_on(1, hangup_main, NULL), 0);
}

/* ---- scopes ----------------------------------------------------------------------------------------------------- */

static void all_fail(int fd, int err)
{
    struct pollfd two[] = {{.fd = fd, .events = POLLIN}, {.fd = fd, .events = POLLPRI}};
    struct epoll_event e;
    fd_set set;
    int epfd = epoll_of(fd);
    FD_ZERO(&set);
    FD_SET(fd, &set);
    CHECK_ERRNO(poll(two, 1, -1), err);
    CHECK_ERRNO(poll(two, 2, 100000), err);
    CHECK_ERRNO(poll(NULL, 0, -1), err);
    CHECK_ERRNO(select(fd + 1, &set, NULL, NULL, NULL), err);
    CHECK_ERRNO(epoll_wait(epfd, &e, 1, 100000), err);
    CHECK_EQ(poll(two, 2, 0), 0); /* this does not wait */
    close(epfd);
}

static void scopes_main(void *arg)
{
    weft_scope s;
    int fds[2];
    (void)arg;
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    CHECK_EQ(weft_scope_open(&s, weft_now() + 20 * WEFT_MSEC), 0);
    all_fail(fds[0], ETIMEDOUT);
    CHECK_EQ(weft_scope_close(&s), -ETIMEDOUT);
    CHECK_EQ(weft_scope_open(&s, WEFT_NEVER), 0);
    weft_scope_cancel(&s, -ECANCELED);
    all_fail(fds[0], ECANCELED);
    CHECK_EQ(weft_scope_close(&s), -ECANCELED);
    close(fds[0]);
    close(fds[1]);
}

CASE(the_end_of_a_scope_ends_them)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, scopes_main, NULL), 0);
}

/* ---- signals ---------------------------------------------------------------------------------------------------- */

static _Atomic int signals;

static void count_signal(int sig)
{
    (void)sig;
    signals++;
}

/* A signal that only the mask lets through interrupts the call; it is this thread's, so the goroutine has to stay. */
static void masked(void)
{
    sigset_t none, usr1, former;
    sigemptyset(&none);
    sigemptyset(&usr1);
    sigaddset(&usr1, SIGUSR1);
    weft_pin();
    int before = signals;
    pthread_sigmask(SIG_BLOCK, &usr1, &former);
    pthread_kill(pthread_self(), SIGUSR1);
    CHECK_ERRNO(ppoll(NULL, 0, NULL, &none), EINTR);
    pthread_kill(pthread_self(), SIGUSR1);
    CHECK_ERRNO(pselect(0, NULL, NULL, NULL, NULL, &none), EINTR);
    CHECK_EQ(signals, before + 2);
    pthread_sigmask(SIG_SETMASK, &former, NULL);
    weft_unpin();
}

static void masked_main(void *arg)
{
    (void)arg;
    masked();
}

CASE(masks_of_signals_are_the_threads)
{
    void (*former)(int) = signal(SIGUSR1, count_signal);
    EACH_PROCS(p) CHECK_EQ(run_on(p, masked_main, NULL), 0);
    signal(SIGUSR1, former);
}

/* ---- errors ----------------------------------------------------------------------------------------------------- */

static void wrong(void)
{
    int fds[2];
    struct epoll_event e;
    struct timeval backwards = {.tv_sec = -1};
    fd_set set;
    CHECK_EQ(pipe(fds), 0);
    close(fds[0]);
    struct pollfd gone = {.fd = fds[0], .events = POLLIN};
    CHECK_EQ(poll(&gone, 1, -1), 1);
    CHECK_EQ(gone.revents, POLLNVAL);
    FD_ZERO(&set);
    FD_SET(fds[0], &set);
    CHECK_ERRNO(select(fds[0] + 1, &set, NULL, NULL, NULL), EBADF);
    CHECK(FD_ISSET(fds[0], &set));
    CHECK_ERRNO(select(-1, NULL, NULL, NULL, NULL), EINVAL);
    CHECK_ERRNO(select(0, NULL, NULL, NULL, &backwards), EINVAL);
    CHECK_ERRNO(ppoll(NULL, 0, &(struct timespec){.tv_nsec = -1}, NULL), EINVAL);
    CHECK_ERRNO(epoll_wait(fds[1], &e, 1, -1), EINVAL);
    CHECK_ERRNO(epoll_wait(fds[0], &e, 1, -1), EBADF);
    close(fds[1]);
}

CASE(errors_are_those_of_libc)
{
    inside_and_outside(wrong);
}
