/* SPDX-License-Identifier: MIT */
/* read, write, recv, send and their relatives through libweft_posix. */
#include "pairs.h"
#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/uio.h>

/* ---- one byte --------------------------------------------------------------------------------------------------- */

static void wait_read(struct pair *p)
{
    CHECK_EQ(read(p->fds[0], p->data, sizeof p->data), 3);
    CHECK(memcmp(p->data, "one", 3) == 0);
}

static void feed_write(struct pair *p)
{
    CHECK_EQ(write(p->fds[1], "one", 3), 3);
}

CASE(read_of_a_socket_parks)
{
    each_way(&(struct kind){with_sockets, wait_read, feed_write});
}

CASE(read_of_a_pipe_parks)
{
    each_way(&(struct kind){with_pipe, wait_read, feed_write});
}

static void wait_readv(struct pair *p)
{
    struct iovec to[] = {{p->data, 1}, {p->data + 10, 5}};
    CHECK_EQ(readv(p->fds[0], to, 2), 3);
    CHECK(p->data[0] == 'o' && memcmp(p->data + 10, "ne", 2) == 0);
}

static void feed_writev(struct pair *p)
{
    struct iovec from[] = {{"on", 2}, {"e", 1}};
    CHECK_EQ(writev(p->fds[1], from, 2), 3);
}

CASE(readv_and_writev)
{
    each_way(&(struct kind){with_sockets, wait_readv, feed_writev});
    each_way(&(struct kind){with_pipe, wait_readv, feed_writev});
}

static void wait_recv(struct pair *p)
{
    CHECK_EQ(recv(p->fds[0], p->data, sizeof p->data, MSG_PEEK), 3);
    CHECK_EQ(recv(p->fds[0], p->data, sizeof p->data, 0), 3);
    CHECK(memcmp(p->data, "one", 3) == 0);
}

static void feed_send(struct pair *p)
{
    CHECK_EQ(send(p->fds[1], "one", 3, MSG_NOSIGNAL), 3);
}

CASE(recv_and_send)
{
    each_way(&(struct kind){with_sockets, wait_recv, feed_send});
    each_way(&(struct kind){with_datagrams, wait_recv, feed_send});
}

static void wait_for_all(struct pair *p)
{
    CHECK_EQ(recv(p->fds[0], p->data, 6, MSG_WAITALL), 6);
    CHECK(memcmp(p->data, "oneone", 6) == 0);
}

static void feed_in_parts(struct pair *p)
{
    feed_send(p);
    usleep(2000);
    feed_send(p);
}

CASE(recv_waits_for_all_if_told_so)
{
    each_way(&(struct kind){with_sockets, wait_for_all, feed_in_parts});
}

/* An end of input wakes as well. */
static void wait_end(struct pair *p)
{
    CHECK_EQ(read(p->fds[0], p->data, sizeof p->data), 0);
}

static void feed_end(struct pair *p)
{
    CHECK_EQ(shutdown(p->fds[1], SHUT_WR), 0);
}

CASE(read_sees_the_end)
{
    each_way(&(struct kind){with_sockets, wait_end, feed_end});
}

static void with_eventfd(struct pair *p)
{
    p->fds[0] = eventfd(0, 0);
    p->fds[1] = dup(p->fds[0]);
}

static void wait_event(struct pair *p)
{
    uint64_t n = 0;
    CHECK_EQ(read(p->fds[0], &n, sizeof n), sizeof n);
    CHECK_EQ(n, 7);
}

static void feed_event(struct pair *p)
{
    CHECK_EQ(write(p->fds[1], &(uint64_t){7}, sizeof(uint64_t)), sizeof(uint64_t));
}

CASE(read_of_an_eventfd_parks)
{
    each_way(&(struct kind){with_eventfd, wait_event, feed_event});
}

/* A terminal, which others share: its mode stays. */
static void with_terminal(struct pair *p)
{
    p->fds[1] = posix_openpt(O_RDWR | O_NOCTTY);
    CHECK(p->fds[1] >= 0);
    CHECK_EQ(grantpt(p->fds[1]), 0);
    CHECK_EQ(unlockpt(p->fds[1]), 0);
    p->fds[0] = open(ptsname(p->fds[1]), O_RDWR | O_NOCTTY);
    CHECK(p->fds[0] >= 0);
}

static void wait_line(struct pair *p)
{
    CHECK_EQ(read(p->fds[0], p->data, sizeof p->data), 4);
    CHECK(is_blocking(p->fds[0]));
    CHECK(memcmp(p->data, "one\n", 4) == 0);
}

static void feed_line(struct pair *p)
{
    CHECK_EQ(write(p->fds[1], "one\n", 4), 4);
    CHECK(is_blocking(p->fds[1]));
}

CASE(a_terminal_keeps_its_mode)
{
    int fd = posix_openpt(O_RDWR | O_NOCTTY);
    if (fd < 0) {
        skipped("there are no terminals on this machine");
        return;
    }
    close(fd);
    each_way(&(struct kind){with_terminal, wait_line, feed_line});
}

/* ---- messages --------------------------------------------------------------------------------------------------- */

static void with_names(struct pair *p)
{
    for (int i = 0; i < 2; i++) {
        struct sockaddr_storage any = {.ss_family = AF_UNIX}; /* an autobound name */
        p->fds[i] = socket(AF_UNIX, SOCK_DGRAM, 0);
        CHECK_EQ(bind(p->fds[i], (struct sockaddr *)&any, sizeof any.ss_family), 0);
    }
}

static void wait_recvfrom(struct pair *p)
{
    struct sockaddr_storage from, sender;
    socklen_t n = sizeof from, sender_n = sizeof sender;
    CHECK_EQ(recvfrom(p->fds[0], p->data, sizeof p->data, 0, (struct sockaddr *)&from, &n), 3);
    CHECK(memcmp(p->data, "one", 3) == 0);
    CHECK_EQ(getsockname(p->fds[1], (struct sockaddr *)&sender, &sender_n), 0);
    CHECK(n == sender_n && memcmp(&from, &sender, n) == 0);
}

static void feed_sendto(struct pair *p)
{
    struct sockaddr_storage to;
    socklen_t n = sizeof to;
    CHECK_EQ(getsockname(p->fds[0], (struct sockaddr *)&to, &n), 0);
    CHECK_EQ(sendto(p->fds[1], "one", 3, 0, (struct sockaddr *)&to, n), 3);
}

CASE(recvfrom_and_sendto_carry_addresses)
{
    each_way(&(struct kind){with_names, wait_recvfrom, feed_sendto});
}

union control {
    struct cmsghdr header;
    char room[CMSG_SPACE(sizeof(int))];
};

static void wait_recvmsg(struct pair *p)
{
    union control control;
    struct iovec to = {p->data, sizeof p->data};
    struct msghdr m = {.msg_iov = &to, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    int fd = -1;
    CHECK_EQ(recvmsg(p->fds[0], &m, 0), 3);
    if (CMSG_FIRSTHDR(&m) != NULL)
        memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof fd);
    CHECK(fd >= 0 && is_blocking(fd));
    CHECK_EQ(close(fd), 0);
}

static void feed_sendmsg(struct pair *p)
{
    union control control = {.header = {.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET}};
    struct iovec from = {"one", 3};
    struct msghdr m = {.msg_iov = &from, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    control.header.cmsg_type = SCM_RIGHTS;
    memcpy(CMSG_DATA(&control.header), &p->fds[1], sizeof(int));
    CHECK_EQ(sendmsg(p->fds[1], &m, 0), 3);
}

CASE(recvmsg_and_sendmsg_carry_descriptors)
{
    each_way(&(struct kind){with_sockets, wait_recvmsg, feed_sendmsg});
}

/* ---- more than fits --------------------------------------------------------------------------------------------- */

enum { LARGE = 1 << 20, PIECES = 64 };

static char *large_text(void)
{
    char *text = malloc(LARGE);
    for (int i = 0; i < LARGE; i++)
        text[i] = (char)(i * 7 + i / 251);
    return text;
}

static void feed_reader(struct pair *p)
{
    char *expected = large_text(), *text = malloc(LARGE);
    int at = 0;
    for (ssize_t n = 1; at < LARGE && n > 0; at += (int)n)
        n = read(p->fds[0], text + at, (size_t)(LARGE - at));
    CHECK_EQ(at, LARGE);
    CHECK(memcmp(text, expected, LARGE) == 0);
    free(expected);
    free(text);
}

static void wait_write_large(struct pair *p)
{
    char *text = large_text();
    CHECK_EQ(write(p->fds[1], text, LARGE), LARGE);
    free(text);
}

static void wait_sendmsg_large(struct pair *p)
{
    char *text = large_text();
    struct iovec from[PIECES];
    for (int i = 0; i < PIECES; i++)
        from[i] = (struct iovec){text + i * (LARGE / PIECES), LARGE / PIECES};
    CHECK_EQ(sendmsg(p->fds[1], &(struct msghdr){.msg_iov = from, .msg_iovlen = PIECES}, 0), LARGE);
    free(text);
}

CASE(write_waits_until_all_is_written)
{
    each_way(&(struct kind){with_sockets, wait_write_large, feed_reader});
    each_way(&(struct kind){with_pipe, wait_write_large, feed_reader});
}

CASE(sendmsg_waits_until_all_is_sent)
{
    each_way(&(struct kind){with_sockets, wait_sendmsg_large, feed_reader});
}

/* ---- programs compiled with _FORTIFY_SOURCE ---------------------------------------------------------------------- */

ssize_t __read_chk(int fd, void *buffer, size_t size, size_t room);
ssize_t __recv_chk(int fd, void *buffer, size_t size, size_t room, int flags);
ssize_t __recvfrom_chk(int fd, void *buffer, size_t size, size_t room, int flags, struct sockaddr *from, socklen_t *n);

static void wait_checked(struct pair *p)
{
    CHECK_EQ(__read_chk(p->fds[0], p->data, 1, sizeof p->data), 1);
    CHECK_EQ(__recv_chk(p->fds[0], p->data + 1, 1, sizeof p->data, 0), 1);
    CHECK_EQ(__recvfrom_chk(p->fds[0], p->data + 2, 9, sizeof p->data, 0, NULL, NULL), 1);
    CHECK(memcmp(p->data, "one", 3) == 0);
}

CASE(fortified_calls_park)
{
    each_way(&(struct kind){with_sockets, wait_checked, feed_send});
}

static void overflow(void)
{
    char room[4];
    __read_chk(STDIN_FILENO, room, 5, sizeof room);
}

CASE(fortified_calls_still_end_the_process)
{
    char text[1000];
    int status = check_child(overflow, text, sizeof text);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

/* ---- what does not wait ----------------------------------------------------------------------------------------- */

static void non_blocking(void)
{
    int fds[2];
    char c;
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    CHECK_ERRNO(read(fds[0], &c, 1), EAGAIN);
    CHECK_ERRNO(recv(fds[0], &c, 1, 0), EAGAIN);
    CHECK_ERRNO(recv(fds[0], &c, 1, MSG_WAITALL), EAGAIN);
    ssize_t n = 0;
    for (int i = 0; i < 10000 && (n = write(fds[0], large_text, 4000)) > 0; i++)
        ;
    CHECK_EQ(n, -1);
    CHECK_EQ(errno_of_now(), EAGAIN);
    CHECK(!is_blocking(fds[0]) && !is_blocking(fds[1]));
    close(fds[0]);
    close(fds[1]);
}

CASE(non_blocking_descriptors_do_not_wait)
{
    inside_and_outside(non_blocking);
}

static void told_not_to_wait(void)
{
    int fds[2];
    char c;
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    CHECK_ERRNO(recv(fds[0], &c, 1, MSG_DONTWAIT), EAGAIN);
    CHECK_ERRNO(recv(fds[0], &c, 1, MSG_DONTWAIT | MSG_WAITALL), EAGAIN);
    CHECK_EQ(send(fds[0], "x", 1, MSG_DONTWAIT), 1);
    CHECK_EQ(read(fds[0], &c, 0), 0);
    CHECK_EQ(write(fds[0], &c, 0), 0);
    close(fds[0]);
    close(fds[1]);
}

CASE(calls_that_are_told_so_do_not_wait)
{
    inside_and_outside(told_not_to_wait);
}

static void wrong(void)
{
    volatile int too_many = 100000;
    int fds[2];
    char c;
    CHECK_EQ(pipe(fds), 0);
    CHECK_ERRNO(read(-1, &c, 1), EBADF);
    CHECK_ERRNO(write(fds[0], "x", 1), EBADF);
    CHECK_ERRNO(readv(fds[0], NULL, too_many), EINVAL);
    CHECK_ERRNO(recv(fds[0], &c, 1, 0), ENOTSOCK);
    CHECK_ERRNO(recv(fds[0], &c, 1, MSG_WAITALL), ENOTSOCK);
    CHECK_ERRNO(send(fds[1], &c, 1, 0), ENOTSOCK);
    CHECK_ERRNO(pread(fds[0], &c, 1, 0), ESPIPE);
    CHECK_EQ(close(fds[0]), 0);
    CHECK_ERRNO(close(fds[0]), EBADF);
    close(fds[1]);
}

CASE(errors_are_those_of_libc)
{
    inside_and_outside(wrong);
}

static void success(void)
{
    int fds[2];
    char c;
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    CHECK_EQ(write(fds[1], "x", 1), 1);
    errno = EXDEV;
    CHECK_EQ(read(fds[0], &c, 1), 1);
    CHECK_EQ(errno_of_now(), EXDEV);
    close(fds[0]);
    close(fds[1]);
}

CASE(errno_stays_when_nothing_fails)
{
    inside_and_outside(success);
}

/* ---- nobody reads ----------------------------------------------------------------------------------------------- */

static _Atomic int signals;

static void count_signal(int sig)
{
    (void)sig;
    signals++;
}

static void write_in_vain(void)
{
    int fds[2], sockets[2], before = signals;
    CHECK_EQ(pipe(fds), 0);
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
    close(fds[0]);
    close(sockets[0]);
    CHECK_ERRNO(write(fds[1], "x", 1), EPIPE);
    CHECK_EQ(signals, before + 1);
    CHECK_ERRNO(send(sockets[1], "x", 1, 0), EPIPE);
    CHECK_EQ(signals, before + 2);
    CHECK_ERRNO(send(sockets[1], "x", 1, MSG_NOSIGNAL), EPIPE);
    CHECK_EQ(signals, before + 2);
    close(fds[1]);
    close(sockets[1]);
}

CASE(whoever_writes_in_vain_gets_a_signal)
{
    void (*former)(int) = signal(SIGPIPE, count_signal);
    inside_and_outside(write_in_vain);
    signal(SIGPIPE, former);
}

/* ---- times and scopes ------------------------------------------------------------------------------------------- */

enum { MS = 1000000 };

static void limit(int fd, int option, int ms)
{
    struct timeval tv = {.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000};
    CHECK_EQ(setsockopt(fd, SOL_SOCKET, option, &tv, sizeof tv), 0);
}

static void limited(void)
{
    int fds[2];
    char c;
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    limit(fds[0], SO_RCVTIMEO, 30);
    limit(fds[0], SO_SNDTIMEO, 30);
    int64_t began = weft_now();
    CHECK_ERRNO(recv(fds[0], &c, 1, 0), EAGAIN);
    CHECK_ERRNO(read(fds[0], &c, 1), EAGAIN);
    CHECK(weft_now() - began >= 55 * MS); /* the kernel counts in jiffies */
    char *text = calloc(1, LARGE);
    ssize_t n = send(fds[0], text, LARGE, 0);
    CHECK(n > 0 && n < LARGE);
    CHECK_ERRNO(send(fds[0], text, LARGE, 0), EAGAIN);
    CHECK(is_blocking(fds[0]));
    free(text);
    close(fds[0]);
    close(fds[1]);
}

CASE(limits_of_sockets_hold)
{
    inside_and_outside(limited);
}

static void shielded(void *arg)
{
    (void)arg;
    weft_shield();
    limited();
    weft_unshield();
}

CASE(limits_of_sockets_hold_in_a_shield)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, shielded, NULL), 0);
}

static void read_in_scope(int64_t deadline, bool cancelled, int err)
{
    weft_scope s;
    int fds[2];
    char c;
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    CHECK_EQ(weft_scope_open(&s, deadline), 0);
    if (cancelled)
        weft_scope_cancel(&s, -ECANCELED);
    CHECK_ERRNO(recv(fds[0], &c, 1, 0), err);
    CHECK_ERRNO(read(fds[0], &c, 1), err);
    limit(fds[0], SO_RCVTIMEO, 20000);
    CHECK_ERRNO(recv(fds[0], &c, 1, 0), err);
    CHECK_EQ(weft_scope_close(&s), -err);
    close(fds[0]);
    close(fds[1]);
}

static void scopes_main(void *arg)
{
    (void)arg;
    read_in_scope(WEFT_NEVER, true, ECANCELED);
    read_in_scope(weft_now() + 20 * MS, false, ETIMEDOUT);
}

CASE(the_end_of_a_scope_ends_a_call)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, scopes_main, NULL), 0);
}

/* A limit of the socket's that passes inside a scope that is not over is the socket's. */
static void inner_limit(void *arg)
{
    weft_scope s;
    (void)arg;
    CHECK_EQ(weft_scope_open(&s, weft_now() + 600 * WEFT_SEC), 0);
    limited();
    CHECK_EQ(weft_cancelled(), 0);
    CHECK_EQ(weft_scope_close(&s), 0);
}

CASE(a_limit_inside_a_scope_is_the_sockets)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, inner_limit, NULL), 0);
}

/* ---- close ------------------------------------------------------------------------------------------------------ */

static void wait_closed(struct pair *p)
{
    CHECK_ERRNO(read(p->fds[0], p->data, 1), EBADF);
}

static void feed_close(struct pair *p)
{
    CHECK_EQ(close(p->fds[0]), 0);
    p->fds[0] = dup(p->fds[1]); /* for the end of the test */
}

CASE(close_ends_the_calls_of_other_goroutines)
{
    between_goroutines(&(struct kind){with_sockets, wait_closed, feed_close});
    between_goroutines(&(struct kind){with_pipe, wait_closed, feed_close});
}

/* Numbers that are used again, closed and opened by a library. */
static void reuse(void)
{
    for (int i = 0; i < 200; i++) {
        int fds[2];
        char c = 0;
        CHECK_EQ(i % 2 != 0 ? pipe(fds) : socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
        CHECK_EQ(write(fds[1], "x", 1), 1);
        CHECK_EQ(read(fds[0], &c, 1), 1);
        CHECK_EQ(c, 'x');
        close(fds[0]);
        close(fds[1]);
    }
}

CASE(numbers_may_be_used_again)
{
    inside_and_outside(reuse);
}

/* ---- an addressee without room ---------------------------------------------------------------------------------- */

enum { MESSAGES = 2000 }; /* more than the queue of a datagram socket takes */

static void wait_send_many(struct pair *p)
{
    struct sockaddr_storage to;
    socklen_t n = sizeof to;
    CHECK_EQ(getsockname(p->fds[0], (struct sockaddr *)&to, &n), 0);
    for (int i = 0; i < MESSAGES; i++)
        CHECK_EQ(sendto(p->fds[1], &i, sizeof i, 0, (struct sockaddr *)&to, n), sizeof i);
}

static void feed_receive_many(struct pair *p)
{
    for (int i = 0; i < MESSAGES; i++) {
        int got = -1;
        CHECK_EQ(recv(p->fds[0], &got, sizeof got, 0), sizeof got);
        CHECK_EQ(got, i);
    }
}

static void many_messages(void *arg)
{
    struct pair p;
    weft_wg all = {0};
    _Atomic int waiting = 0;
    pair_init(&p, arg);
    p.all = &all;
    p.waiting = &waiting;
    weft_wg_add(&all, 2);
    CHECK_EQ(weft_go(pair_waits, &p), 0);
    CHECK_EQ(weft_go(pair_feeds, &p), 0);
    CHECK_EQ(weft_wg_wait(&all), 0);
    pair_close(&p);
}

CASE(sendto_waits_for_room)
{
    EACH_PROCS(procs)
    CHECK_EQ(run_on(procs, many_messages, &(struct kind){with_names, wait_send_many, feed_receive_many}), 0);
}

/* ---- taking turns ----------------------------------------------------------------------------------------------- */

static _Atomic bool other_has_run;

static void other(void *arg)
{
    (void)arg;
    other_has_run = true;
}

static void round_trip(const int *fds)
{
    char c;
    CHECK_EQ(write(fds[1], "x", 1), 1);
    CHECK_EQ(read(fds[0], &c, 1), 1);
}

static void poll_ready(const int *fds)
{
    CHECK_EQ(poll(&(struct pollfd){.fd = fds[1], .events = POLLOUT}, 1, -1), 1);
}

/* Neither has to wait, and there is one processor. */
static void busy_main(void *arg)
{
    void (*const calls[])(const int *) = {round_trip, poll_ready};
    int fds[2];
    (void)arg;
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    for (int i = 0; i < 2; i++) {
        other_has_run = false;
        CHECK_EQ(weft_go(other, NULL), 0);
        while (!other_has_run)
            calls[i](fds);
    }
    close(fds[0]);
    close(fds[1]);
}

CASE(calls_that_need_not_wait_let_others_run)
{
    CHECK_EQ(run_on(1, busy_main, NULL), 0);
}
