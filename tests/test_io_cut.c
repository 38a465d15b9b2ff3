/* SPDX-License-Identifier: MIT */
/* Waits for descriptors that are cut, by a deadline or a cancel: they had no effect. */
#include "scopes.h"
#include "io.h"
#include "chans.h"

/* ---- every call that waits -------------------------------------------------------------------------------------- */

/* A place that nothing comes from and nothing fits into. */
struct place {
    int fd[2], full[2]; /* empty; full[1] takes nothing */
    int dgram[2];
    int listener;
    size_t filled;
};

static int cut_read(void *arg)
{
    char c = 0;
    return (int)weft_read(((struct place *)arg)->fd[0], &c, 1);
}

static int cut_readv(void *arg)
{
    char a, b;
    struct iovec iov[2] = {{&a, 1}, {&b, 1}};
    return (int)weft_readv(((struct place *)arg)->fd[0], iov, 2);
}

static int cut_write(void *arg)
{
    return (int)weft_write(((struct place *)arg)->full[1], "x", 1);
}

static int cut_writev(void *arg)
{
    struct iovec iov[2] = {{(void *)"x", 1}, {(void *)"y", 1}};
    return (int)weft_writev(((struct place *)arg)->full[1], iov, 2);
}

static int cut_wait_in(void *arg)
{
    return weft_wait_fd(((struct place *)arg)->fd[0], POLLIN);
}

static int cut_wait_out(void *arg)
{
    return weft_wait_fd(((struct place *)arg)->full[1], POLLOUT);
}

static int cut_recv(void *arg)
{
    char c;
    return (int)weft_recv_from(((struct place *)arg)->fd[0], &c, 1, 0, NULL, NULL);
}

static int cut_peek(void *arg)
{
    char c;
    return (int)weft_recv_from(((struct place *)arg)->fd[0], &c, 1, MSG_PEEK, NULL, NULL);
}

static int cut_recvmsg(void *arg)
{
    char c;
    struct iovec iov = {&c, 1};
    return (int)weft_recvmsg(((struct place *)arg)->fd[0], &(struct msghdr){.msg_iov = &iov, .msg_iovlen = 1}, 0);
}

static int cut_recv_all(void *arg)
{
    char c[3];
    return (int)weft_recv_from(((struct place *)arg)->fd[0], c, 3, MSG_WAITALL, NULL, NULL);
}

static int cut_send(void *arg)
{
    return (int)weft_send_to(((struct place *)arg)->full[1], "x", 1, 0, NULL, 0);
}

static int cut_sendmsg(void *arg)
{
    struct iovec iov = {(void *)"x", 1};
    return (int)weft_sendmsg(((struct place *)arg)->full[1], &(struct msghdr){.msg_iov = &iov, .msg_iovlen = 1}, 0);
}

static int cut_dgram(void *arg)
{
    char c;
    return (int)weft_read(((struct place *)arg)->dgram[0], &c, 1);
}

static int cut_accept(void *arg)
{
    return weft_accept(((struct place *)arg)->listener, NULL, NULL);
}

typedef int cut_fn(void *arg);
static cut_fn *const ANY[] = {cut_read, cut_readv, cut_wait_in},
                     *const ANY_FULL[] = {cut_write, cut_writev, cut_wait_out},
                     *const SOCKET[] = {cut_recv, cut_peek, cut_recvmsg, cut_recv_all, cut_dgram, cut_accept},
                     *const SOCKET_FULL[] = {cut_send, cut_sendmsg};
enum { ANY_N = 3, ANY_FULL_N = 3, SOCKET_N = 6, SOCKET_FULL_N = 2 };

static void open_place(struct place *p, const struct stream_kind *kind, int fd[2])
{
    struct sockaddr_in at;
    p->fd[0] = fd[0];
    p->fd[1] = fd[1];
    kind->make(p->full);
    p->filled = kind->steady ? fill(p->full[1]) : 0;
    CHECK_EQ(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, p->dgram), 0);
    p->listener = listen_at(&at, 4);
}

static void close_place(struct place *p)
{
    close_both(p->fd);
    close_both(p->full);
    close_both(p->dgram);
    CHECK_EQ(weft_close_fd(p->listener), 0);
}

/* Nothing was taken and nothing was put. */
static void had_no_effect(struct place *p, const struct stream_kind *kind)
{
    char text[8];
    CHECK_EQ(weft_write(p->fd[1], "abc", 3), 3);
    CHECK_EQ(weft_read(p->fd[0], text, 8), 3);
    CHECK(memcmp(text, "abc", 3) == 0);
    if (!kind->steady)
        return;
    drain(p->full[0], p->filled);
    CHECK_EQ(weft_write(p->full[1], "z", 1), 1);
    CHECK_EQ(weft_read(p->full[0], text, 8), 1);
    CHECK_EQ(text[0], 'z');
}

static void cut_each(const struct stream_kind *kind, int fd[2])
{
    struct place p;
    open_place(&p, kind, fd);
    for (int i = 0; i < ANY_N; i++)
        is_cut(ANY[i], &p);
    for (int i = 0; i < ANY_FULL_N && may_fill(kind); i++)
        is_cut(ANY_FULL[i], &p);
    for (int i = 0; i < SOCKET_N && kind->socket; i++)
        is_cut(SOCKET[i], &p);
    for (int i = 0; i < SOCKET_FULL_N && kind->socket && kind->steady; i++)
        is_cut(SOCKET_FULL[i], &p);
    had_no_effect(&p, kind);
    close_place(&p);
}

CASE(every_call_that_waits_is_cut)
{
    on_each_pair_and_procs(cut_each);
}

/* In a scope that is over what need not wait works all the same. */
static void over_but_ready(const struct stream_kind *kind, int fd[2])
{
    weft_scope s;
    char text[8];
    (void)kind;
    CHECK_EQ(weft_write(fd[1], "abc", 3), 3);
    CHECK_EQ(weft_wait_fd(fd[0], POLLIN), POLLIN);
    CHECK_EQ(weft_scope_open(&s, weft_now() - 1), 0);
    CHECK_EQ(weft_cancelled(), -ETIMEDOUT);
    CHECK_EQ(weft_wait_fd(fd[0], POLLIN), POLLIN);
    CHECK_EQ(weft_read(fd[0], text, 8), 3);
    CHECK_EQ(weft_read(fd[0], text, 8), -ETIMEDOUT);
    CHECK_EQ(weft_write(fd[1], "d", 1), 1);
    CHECK_EQ(weft_scope_close(&s), -ETIMEDOUT);
    CHECK_EQ(weft_read(fd[0], text, 8), 1);
    close_both(fd);
}

CASE(what_need_not_wait_works_in_a_scope_that_is_over)
{
    on_each_pair_and_procs(over_but_ready);
}

/* A short read, data that comes, and a scope that is over: what is there must be read. */
static void ready_after_short(const struct stream_kind *kind, int fd[2])
{
    weft_scope s;
    char text[8];
    (void)kind;
    CHECK_EQ(weft_write(fd[1], "ab", 2), 2);
    CHECK_EQ(weft_read(fd[0], text, 8), 2);
    CHECK_EQ(weft_write(fd[1], "c", 1), 1);
    CHECK_EQ(weft_wait_fd(fd[0], POLLIN), POLLIN);
    CHECK_EQ(weft_scope_open(&s, weft_now() - 1), 0);
    CHECK_EQ(weft_read(fd[0], text, 8), 1);
    CHECK_EQ(weft_scope_close(&s), -ETIMEDOUT);
    close_both(fd);
}

CASE(a_short_read_does_not_hide_what_came_since)
{
    on_each_pair_and_procs(ready_after_short);
}

/* ---- connecting ------------------------------------------------------------------------------------------------- */

static int cut_connect(void *arg)
{
    int fd = socket_of(AF_INET, SOCK_STREAM);
    int r = weft_connect(fd, arg, sizeof(struct sockaddr_in));
    CHECK_EQ(weft_close_fd(fd), 0);
    return r;
}

/* A listener whose queue is full answers nobody. */
static void connect_main(void *arg)
{
    struct sockaddr_in at;
    int listener = listen_at(&at, 0), fill[8];
    (void)arg;
    for (int i = 0; i < 8; i++) {
        fill[i] = socket_of(AF_INET, SOCK_STREAM);
        set_nonblocking(fill[i], true);
        connect(fill[i], (struct sockaddr *)&at, sizeof at);
    }
    CHECK_EQ(when_late(5, cut_connect, &at), -ETIMEDOUT);
    CHECK_EQ(when_cancelled(cut_connect, &at), -ECANCELED);
    for (int i = 0; i < 8; i++)
        close(fill[i]);
    CHECK_EQ(weft_close_fd(listener), 0);
}

CASE(connecting_is_cut)
{
    run_each_procs(connect_main);
}

/* ---- shields ---------------------------------------------------------------------------------------------------- */

static void shielded_read(void *arg)
{
    struct one_call *c = arg;
    weft_shield();
    one_call_main(c);
    weft_unshield();
    CHECK_EQ(weft_read(c->fd, c->text, 1), -ECANCELED);
}

static void shielded(const struct stream_kind *kind, int fd[2])
{
    struct one_call c = {.fn = call_read, .fd = fd[0]};
    weft_scope s;
    (void)kind;
    weft_wg_add(&c.ended, 1);
    CHECK_EQ(weft_scope_open(&s, WEFT_NEVER), 0);
    CHECK_EQ(weft_scope_go(&s, shielded_read, &c), 0);
    CHECK(is_asleep(&c.who));
    weft_scope_cancel(&s, -ECANCELED);
    let_others_run();
    CHECK_EQ(c.result, 0); /* it has not returned */
    CHECK_EQ(weft_write(fd[1], "abc", 3), 3);
    CHECK_EQ(weft_scope_close(&s), -ECANCELED);
    CHECK_EQ(c.result, 3);
    close_both(fd);
}

CASE(a_shielded_read_is_not_cut)
{
    on_each_pair_and_procs(shielded);
}

/* ---- one of several --------------------------------------------------------------------------------------------- */

static void read_or_be_cut(void *arg)
{
    struct one_call *c = arg;
    one_call_main(c);
}

/* Who is cut leaves the queue, and what comes goes to those who are left. */
static void one_is_cut(const struct stream_kind *kind, int fd[2])
{
    struct one_call a = {.fn = call_read, .fd = fd[0]}, b = a, c = a;
    weft_scope s;
    call_begin(&a);
    weft_wg_add(&b.ended, 1);
    CHECK_EQ(weft_scope_open(&s, WEFT_NEVER), 0);
    CHECK_EQ(weft_scope_go(&s, read_or_be_cut, &b), 0);
    CHECK(is_asleep(&b.who));
    weft_scope_cancel(&s, -ECANCELED);
    CHECK_EQ(weft_scope_close(&s), -ECANCELED);
    CHECK_EQ(b.result, -ECANCELED);
    call_begin(&c);
    CHECK_EQ(weft_write(fd[1], "x", 1), 1);
    CHECK_EQ(weft_close_fd(fd[1]), 0);
    fd[1] = -1;
    long first = call_end(&a), second = call_end(&c); /* one the byte, one the end; nobody promises which */
    CHECK(kind->terminal || (first >= 0 && second >= 0 && first + second == 1)); /* a terminal drops what it has */
    close_both(fd);
}

CASE(who_is_cut_is_not_served)
{
    on_each_pair_and_procs(one_is_cut);
}

/* The deadline meets the data: either it was read, or it is still there. */
static void race_main(void *arg)
{
    uint64_t rng = 12345;
    int fd[2], cut = 0, got = 0;
    (void)arg;
    unix_pair(fd);
    for (int i = 0; i < scaled(2000); i++) {
        struct one_call c = {.fn = call_read, .fd = fd[0]};
        weft_scope s;
        weft_wg_add(&c.ended, 1);
        CHECK_EQ(weft_scope_open(&s, weft_now() + check_random(&rng) % 60 * WEFT_USEC), 0);
        bool started = weft_scope_go(&s, read_or_be_cut, &c) == 0;
        for (uint32_t k = check_random(&rng) % 8; k > 0; k--)
            weft_yield();
        CHECK_EQ(weft_write(fd[1], "x", 1), 1);
        weft_scope_close(&s);
        CHECK(!started || c.result == 1 || c.result == -ETIMEDOUT);
        if (!started || c.result != 1) {
            CHECK_EQ(weft_read(fd[0], c.text, 8), 1);
            cut++;
        } else {
            got++;
        }
    }
    CHECK_EQ(weft_recv_from(fd[0], &(char){0}, 1, MSG_DONTWAIT, NULL, NULL), -EAGAIN);
    printf("# %d cut, %d read\n", cut, got);
    close_both(fd);
}

CASE(a_deadline_and_data_that_meet_lose_nothing)
{
    run_each_procs(race_main);
}
