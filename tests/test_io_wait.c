/* SPDX-License-Identifier: MIT */
/* Readiness that is waited for, and many who wait for one descriptor: whatever comes is taken by exactly one. */
#include "traffic.h"
#include <sys/resource.h>

/* ---- weft_wait_fd ----------------------------------------------------------------------------------------------- */

static void ready_in(const struct stream_kind *kind, int fd[2])
{
    char text[8];
    (void)kind;
    for (int i = 0; i < 3; i++) {
        struct one_call c = {.fn = call_wait, .fd = fd[0], .flags = POLLIN};
        call_begin(&c);
        CHECK_EQ(weft_write(fd[1], "ab", 2), 2);
        CHECK_EQ(call_end(&c), POLLIN);
        CHECK_EQ(weft_wait_fd(fd[0], POLLIN), POLLIN); /* it stays so */
        CHECK_EQ(weft_read(fd[0], text, 8), 2);
    }
    close_both(fd);
}

CASE(readiness_for_reading_is_told)
{
    on_each_pair_and_procs(ready_in);
}

static void ready_out(const struct stream_kind *kind, int fd[2])
{
    CHECK_EQ(weft_wait_fd(fd[1], POLLOUT), POLLOUT);
    if (!kind->steady) {
        close_both(fd);
        return;
    }
    size_t n = fill(fd[1]);
    struct one_call c = {.fn = call_wait, .fd = fd[1], .flags = POLLOUT};
    call_begin(&c);
    drain(fd[0], n);
    CHECK_EQ(call_end(&c), POLLOUT);
    if (kind->socket) {
        CHECK_EQ(weft_wait_fd(fd[1], POLLIN | POLLOUT), POLLOUT);
        n = fill(fd[1]);
        struct one_call both = {.fn = call_wait, .fd = fd[1], .flags = POLLIN | POLLOUT};
        call_begin(&both);
        CHECK_EQ(weft_write(fd[0], "x", 1), 1);
        CHECK(call_end(&both) & POLLIN);
        drain(fd[1], 1);
        call_begin(&both);
        drain(fd[0], n);
        CHECK_EQ(call_end(&both), POLLOUT);
    }
    close_both(fd);
}

CASE(readiness_for_writing_or_either_is_told)
{
    on_each_pair_and_procs(ready_out);
}

static void hang_up(const struct stream_kind *kind, int fd[2])
{
    struct one_call c = {.fn = call_wait, .fd = fd[0], .flags = POLLIN};
    (void)kind;
    call_begin(&c);
    CHECK_EQ(weft_close_fd(fd[1]), 0);
    fd[1] = -1;
    CHECK(call_end(&c) & (POLLIN | POLLHUP));
    CHECK(weft_wait_fd(fd[0], POLLIN) & (POLLIN | POLLHUP));
    close_both(fd);
}

CASE(a_hang_up_is_told)
{
    on_each_pair_and_procs(hang_up);
}

static void error_main(void *arg)
{
    int fd[2];
    (void)arg;
    pipe_pair(fd);
    fill(fd[1]);
    struct one_call c = {.fn = call_wait, .fd = fd[1], .flags = POLLOUT};
    call_begin(&c);
    CHECK_EQ(weft_close_fd(fd[0]), 0);
    CHECK(call_end(&c) & POLLERR); /* nobody reads any more */
    CHECK_EQ(weft_close_fd(fd[1]), 0);
}

CASE(an_error_is_told)
{
    run_each_procs(error_main);
}

/* ---- watchers beside readers ------------------------------------------------------------------------------------ */

static void watched(const struct stream_kind *kind, int fd[2])
{
    enum { WATCHERS = 5 };
    struct one_call watch[WATCHERS], read = {.fn = call_read, .fd = fd[0]}, more = read;
    if (!kind->socket || !kind->steady) {
        close_both(fd);
        return;
    }
    size_t n = fill(fd[0]);
    for (int i = 0; i < WATCHERS; i++) {
        if (i == 1)
            call_begin(&read);
        watch[i] = (struct one_call){.fn = call_wait, .fd = fd[0], .flags = i % 2 ? POLLOUT : POLLIN | POLLOUT};
        call_begin(&watch[i]);
    }
    call_begin(&more);
    drain(fd[1], n); /* tells of room: all who watch hear of it, the readers go on waiting */
    for (int i = 0; i < WATCHERS; i++)
        CHECK_EQ(call_end(&watch[i]), POLLOUT);
    CHECK(is_asleep(&read.who) && is_asleep(&more.who));
    CHECK_EQ(weft_write(fd[1], "x", 1), 1);
    CHECK_EQ(weft_close_fd(fd[1]), 0);
    fd[1] = -1;
    CHECK_EQ(call_end(&read) + call_end(&more), 1); /* one the byte, one the end */
    close_both(fd);
}

CASE(watchers_hear_of_it_though_readers_wait_before_them)
{
    on_each_pair_and_procs(watched);
}

/* ---- many readers ----------------------------------------------------------------------------------------------- */

enum { READERS = 20 };

struct crowd {
    int fd;
    weft_wg ended;
    _Atomic int taken, *times;
    int n;
};

static void take_numbers(void *arg)
{
    struct crowd *c = arg;
    int v;
    while (weft_read(c->fd, &v, sizeof v) == sizeof v && v >= 0) {
        if (v < c->n)
            c->times[v]++;
        else
            check_fail(__FILE__, __LINE__, "a number that nobody sent: %d", v);
    }
    weft_wg_done(&c->ended);
}

/* Numbers are written whole, and read whole: four divides what fits. */
static void share(int fd[2])
{
    struct crowd c = {.fd = fd[0], .n = scaled(20000)};
    c.times = calloc((size_t)c.n, sizeof *c.times);
    weft_wg_add(&c.ended, READERS);
    for (int i = 0; i < READERS; i++)
        CHECK_EQ(weft_go(take_numbers, &c), 0);
    for (int i = 0; i < c.n; i++)
        CHECK_EQ(weft_write(fd[1], &i, sizeof i), sizeof i);
    for (int i = 0, none = -1; i < READERS; i++)
        CHECK_EQ(weft_write(fd[1], &none, sizeof none), sizeof none);
    CHECK_EQ(weft_wg_wait(&c.ended), 0);
    for (int i = 0; i < c.n; i++)
        if (c.times[i] != 1)
            check_fail(__FILE__, __LINE__, "%d was taken %d times", i, c.times[i]);
    free((void *)c.times);
    close_both(fd);
}

static void share_main(void *arg)
{
    int fd[2];
    (void)arg;
    pipe_pair(fd);
    share(fd);
    CHECK_EQ(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, fd), 0);
    share(fd);
}

CASE(each_datum_is_taken_by_exactly_one)
{
    run_each_procs(share_main);
}

static void crowd_at_end(const struct stream_kind *kind, int fd[2])
{
    struct one_call calls[READERS];
    int ends = 0;
    if (kind->terminal) {
        close_both(fd);
        return;
    }
    for (int i = 0; i < READERS; i++) {
        calls[i] = (struct one_call){.fn = call_read, .fd = fd[0]};
        call_begin(&calls[i]);
    }
    CHECK_EQ(weft_write(fd[1], "x", 1), 1);
    CHECK_EQ(weft_close_fd(fd[1]), 0);
    fd[1] = -1;
    for (int i = 0; i < READERS; i++)
        ends += call_end(&calls[i]) == 0;
    CHECK_EQ(ends, READERS - 1);
    close_both(fd);
}

CASE(all_who_read_see_the_end)
{
    on_each_pair_and_procs(crowd_at_end);
}

/* One event, much data: who is woken takes a part and must wake the next. */
static void parts_for_all(const struct stream_kind *kind, int fd[2])
{
    struct one_call calls[READERS];
    static char much[READERS * sizeof calls[0].text];
    for (int i = 0; i < READERS; i++) {
        calls[i] = (struct one_call){.fn = call_read, .fd = fd[0]};
        call_begin(&calls[i]);
    }
    if (kind->terminal) /* which may give it in other pieces */
        for (int i = 0; i < READERS; i++)
            CHECK_EQ(weft_write(fd[1], much, sizeof calls[0].text), sizeof calls[0].text);
    else
        CHECK_EQ(weft_write(fd[1], much, sizeof much), sizeof much);
    for (int i = 0; i < READERS && !kind->terminal; i++)
        CHECK_EQ(call_end(&calls[i]), sizeof calls[0].text);
    if (kind->terminal) {
        CHECK_EQ(weft_close_fd(fd[1]), 0);
        fd[1] = -1;
        for (int i = 0; i < READERS; i++)
            call_end(&calls[i]);
    }
    close_both(fd);
}

CASE(who_is_served_wakes_the_next)
{
    on_each_pair_and_procs(parts_for_all);
}

/* ---- listeners -------------------------------------------------------------------------------------------------- */

enum { ACCEPTORS = 8, CALLERS = 40 };

static void desk_main(void *arg)
{
    int visits = scaled(10);
    (void)arg;
    CHECK_EQ(open_desk(serve_bytes, ACCEPTORS, visit_with_bytes, CALLERS, visits), CALLERS * visits);
}

CASE(many_accept_on_one_listener)
{
    run_each_procs(desk_main);
}

/* Connections that came together are one event. */
static void acceptors_main(void *arg)
{
    struct one_call calls[ACCEPTORS];
    struct sockaddr_in at;
    int listener = listen_at(&at, 64), fd[ACCEPTORS];
    (void)arg;
    for (int i = 0; i < ACCEPTORS; i++) {
        calls[i] = (struct one_call){.fn = call_accept, .fd = listener};
        call_begin(&calls[i]);
        fd[i] = socket_of(AF_INET, SOCK_STREAM);
    }
    for (int i = 0; i < ACCEPTORS; i++)
        CHECK_EQ(connect(fd[i], (struct sockaddr *)&at, sizeof at), 0);
    for (int i = 0; i < ACCEPTORS; i++) {
        CHECK(call_end(&calls[i]) >= 0);
        CHECK_EQ(weft_close_fd((int)calls[i].result), 0);
        CHECK_EQ(weft_close_fd(fd[i]), 0);
    }
    CHECK_EQ(weft_close_fd(listener), 0);
}

CASE(all_acceptors_are_served)
{
    run_each_procs(acceptors_main);
}

static void peer_main(void *arg)
{
    struct sockaddr_in at, from = {0}, mine;
    socklen_t n = sizeof from, k = sizeof mine;
    int listener = listen_at(&at, 1), fd = socket_of(AF_INET, SOCK_STREAM);
    (void)arg;
    CHECK_EQ(weft_connect(fd, (struct sockaddr *)&at, sizeof at), 0);
    int accepted = weft_accept(listener, (struct sockaddr *)&from, &n);
    CHECK_EQ(getsockname(fd, (struct sockaddr *)&mine, &k), 0);
    CHECK_EQ(n, sizeof from);
    CHECK_EQ(from.sin_port, mine.sin_port);
    CHECK(fcntl(fd, F_GETFL) & O_NONBLOCK); /* as weft.h says */
    CHECK_EQ(weft_close_fd(fd) | weft_close_fd(accepted) | weft_close_fd(listener), 0);
    fd = socket_of(AF_INET, SOCK_STREAM);
    CHECK_EQ(weft_connect(fd, (struct sockaddr *)&at, sizeof at), -ECONNREFUSED);
    CHECK_EQ(weft_close_fd(fd), 0);
}

CASE(a_connection_has_two_addresses)
{
    run_each_procs(peer_main);
}

/* A listener on a local name, whose queue of one is full: who connects waits for its turn. */
static long call_connect(struct one_call *c)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    snprintf(at.sun_path + 1, sizeof at.sun_path - 1, "weft-test-%d", (int)getpid());
    return weft_connect(c->fd, (struct sockaddr *)&at, sizeof at);
}

static void queue_main(void *arg)
{
    enum { CALLS = 6 };
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    struct one_call calls[CALLS];
    int listener = socket_of(AF_UNIX, SOCK_STREAM), fd[CALLS];
    (void)arg;
    snprintf(at.sun_path + 1, sizeof at.sun_path - 1, "weft-test-%d", (int)getpid());
    CHECK_EQ(bind(listener, (struct sockaddr *)&at, sizeof at), 0);
    CHECK_EQ(listen(listener, 0), 0);
    for (int i = 0; i < CALLS; i++) {
        calls[i] = (struct one_call){.fn = call_connect, .fd = socket_of(AF_UNIX, SOCK_STREAM)};
        weft_wg_add(&calls[i].ended, 1);
        CHECK_EQ(weft_go(one_call_main, &calls[i]), 0);
    }
    for (int i = 0; i < CALLS; i++)
        CHECK((fd[i] = weft_accept(listener, NULL, NULL)) >= 0);
    for (int i = 0; i < CALLS; i++) {
        CHECK_EQ(call_end(&calls[i]), 0);
        CHECK_EQ(weft_close_fd(fd[i]) | weft_close_fd(calls[i].fd), 0);
    }
    CHECK_EQ(weft_close_fd(listener), 0);
}

CASE(who_connects_waits_for_a_full_queue)
{
    run_each_procs(queue_main);
}

/* ---- no descriptors left ---------------------------------------------------------------------------------------- */

static void limit_descriptors(struct rlimit *former, int more)
{
    struct rlimit low;
    int lowest = dup(0);
    CHECK(lowest >= 0);
    close(lowest);
    getrlimit(RLIMIT_NOFILE, former);
    low = *former;
    low.rlim_cur = (rlim_t)(lowest + more);
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
}

static _Atomic int refusals;

static long call_accept_again(struct one_call *c)
{
    int r;
    while ((r = weft_accept(c->fd, NULL, NULL)) == -EMFILE) {
        refusals++;
        weft_sleep(WEFT_MSEC);
    }
    refusals = 1000;
    return r;
}

static void no_descriptors_main(void *arg)
{
    struct rlimit former;
    struct sockaddr_in at;
    int listener = listen_at(&at, 8), fd = socket_of(AF_INET, SOCK_STREAM), hold[64], n = 0;
    (void)arg;
    struct one_call c = {.fn = call_accept_again, .fd = listener};
    refusals = 0;
    call_begin(&c); /* the runtime has what it needs from here on */
    limit_descriptors(&former, 0);
    while (n < 64 && (hold[n] = dup(0)) >= 0)
        n++;
    CHECK(n < 64);
    CHECK_EQ(connect(fd, (struct sockaddr *)&at, sizeof at), 0);
    while (refusals < 3) /* or it got one that the monitor had for a moment */
        CHECK_EQ(weft_sleep(WEFT_MSEC), 0);
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &former), 0);
    CHECK(call_end(&c) >= 0);
    while (n > 0)
        close(hold[--n]);
    CHECK_EQ(weft_close_fd((int)c.result) | weft_close_fd(fd) | weft_close_fd(listener), 0);
}

CASE(accept_recovers_when_there_are_descriptors_again)
{
    if (check_under_emulator()) {
        skipped("the emulator has descriptors of its own");
        return;
    }
    run_each_procs(no_descriptors_main);
}

/* One of two gets the error: the connection must not be left to nobody. */
static void no_descriptors_for_two_main(void *arg)
{
    struct rlimit former;
    struct sockaddr_in at;
    int listener = listen_at(&at, 8), fd = socket_of(AF_INET, SOCK_STREAM), hold[64], n = 0;
    struct one_call c[2];
    (void)arg;
    for (int i = 0; i < 2; i++) {
        c[i] = (struct one_call){.fn = call_accept, .fd = listener};
        call_begin(&c[i]);
    }
    limit_descriptors(&former, 0);
    while (n < 64 && (hold[n] = dup(0)) >= 0)
        n++;
    CHECK_EQ(connect(fd, (struct sockaddr *)&at, sizeof at), 0);
    long first = call_end(&c[0]); /* who came first */
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &former), 0);
    if (first >= 0) {
        CHECK_EQ(weft_close_fd(listener), 0);
        CHECK(call_end(&c[1]) == -EBADF || c[1].result == -EMFILE);
        CHECK_EQ(weft_close_fd((int)first), 0);
    } else {
        CHECK_EQ(first, -EMFILE);
        CHECK(call_end(&c[1]) >= 0 || c[1].result == -EMFILE); /* the second was told as well */
        if (c[1].result >= 0)
            CHECK_EQ(weft_close_fd((int)c[1].result), 0);
        CHECK_EQ(weft_close_fd(listener), 0);
    }
    while (n > 0)
        close(hold[--n]);
    CHECK_EQ(weft_close_fd(fd), 0);
}

CASE(an_acceptor_that_fails_leaves_the_connection_to_the_next)
{
    if (check_under_emulator()) {
        skipped("the emulator has descriptors of its own");
        return;
    }
    run_each_procs(no_descriptors_for_two_main);
}

struct connecting {
    int fd;
    struct sockaddr_in at;
    long connected, read;
    weft_wg ended;
};

static void connect_late(void *arg)
{
    struct connecting *c = arg;
    c->connected = weft_connect(c->fd, (struct sockaddr *)&c->at, sizeof c->at);
    weft_wg_done(&c->ended);
}

static void read_meanwhile(void *arg)
{
    struct connecting *c = arg;
    char byte;
    c->read = weft_read(c->fd, &byte, 1);
    weft_wg_done(&c->ended);
}

/* The kernel tells the error once: to whoever asks first. The queue of the listener is full, and then it is gone. */
static void refused_main(void *arg)
{
    struct connecting c = {.fd = socket_of(AF_INET, SOCK_STREAM)};
    int listener = listen_at(&c.at, 0), fill[3];
    (void)arg;
    for (int i = 0; i < 3; i++) {
        fill[i] = socket_of(AF_INET, SOCK_STREAM | SOCK_NONBLOCK);
        connect(fill[i], (struct sockaddr *)&c.at, sizeof c.at);
    }
    weft_wg_add(&c.ended, 2);
    CHECK_EQ(weft_go(connect_late, &c), 0);
    CHECK_EQ(weft_sleep(20 * WEFT_MSEC), 0);
    CHECK_EQ(weft_go(read_meanwhile, &c), 0);
    CHECK_EQ(weft_sleep(20 * WEFT_MSEC), 0);
    CHECK_EQ(weft_close_fd(listener), 0);
    CHECK_EQ(weft_wg_wait(&c.ended), 0);
    CHECK(c.connected == -ECONNREFUSED || c.connected == -ECONNABORTED);
    for (int i = 0; i < 3; i++)
        close(fill[i]);
    CHECK_EQ(weft_close_fd(c.fd), 0);
}

CASE(a_connection_that_is_refused_is_never_called_made)
{
    run_each_procs(refused_main);
}
