/* SPDX-License-Identifier: MIT */
/* Streams of bytes: what is written comes out, short reads, ends, half-closes, resets. */
#include "io.h"

/* ---- reading and writing ---------------------------------------------------------------------------------------- */

static void there_first(const struct stream_kind *kind, int fd[2])
{
    char text[64] = "";
    (void)kind;
    CHECK_EQ(weft_write(fd[1], "abcdef", 6), 6);
    CHECK_EQ(weft_read(fd[0], text, 4), 4);
    CHECK(memcmp(text, "abcd", 4) == 0);
    CHECK_EQ(weft_read(fd[0], text, sizeof text), 2); /* short: what is there */
    CHECK(memcmp(text, "ef", 2) == 0);
    close_both(fd);
}

CASE(what_is_there_is_read_at_once)
{
    on_each_pair_and_procs(there_first);
}

static void reader_first(const struct stream_kind *kind, int fd[2])
{
    (void)kind;
    for (int i = 0; i < 5; i++) { /* the later ones know that there was nothing left */
        struct one_call c = {.fn = call_read, .fd = fd[0]};
        call_begin(&c);
        CHECK_EQ(weft_write(fd[1], "abc", 3), 3);
        CHECK_EQ(call_end(&c), 3);
        CHECK(memcmp(c.text, "abc", 3) == 0);
    }
    close_both(fd);
}

CASE(a_reader_that_waits_gets_what_comes)
{
    on_each_pair_and_procs(reader_first);
}

static void plain_writer(const struct stream_kind *kind, int fd[2])
{
    (void)kind;
    for (int i = 0; i < 3; i++) {
        struct one_call c = {.fn = call_read, .fd = fd[0]};
        call_begin(&c);
        CHECK_EQ(write(fd[1], "x", 1), 1);
        CHECK_EQ(call_end(&c), 1);
    }
    close_both(fd);
}

CASE(who_writes_need_not_be_a_goroutine)
{
    on_each_pair_and_procs(plain_writer);
}

static void full_writer(const struct stream_kind *kind, int fd[2])
{
    if (may_fill(kind)) {
        size_t n = fill(fd[1]);
        struct one_call c = {.fn = call_write, .fd = fd[1]};
        call_begin(&c);
        drain(fd[0], n);
        CHECK_EQ(call_end(&c), 1);
        char last = 0;
        CHECK_EQ(weft_read(fd[0], &last, 1), 1);
        CHECK_EQ(last, 'w');
    }
    close_both(fd);
}

CASE(a_writer_waits_until_there_is_room)
{
    on_each_pair_and_procs(full_writer);
}

static void modes_kept(const struct stream_kind *kind, int fd[2])
{
    int before[2] = {fcntl(fd[0], F_GETFL), fcntl(fd[1], F_GETFL)};
    struct one_call c = {.fn = call_read, .fd = fd[0]};
    call_begin(&c);
    CHECK_EQ(weft_write(fd[1], "x", 1), 1);
    CHECK_EQ(call_end(&c), 1);
    bool kept = kind->socket || (!kind->terminal && !check_under_emulator()); /* which cannot try a pipe */
    for (int i = 0; i < 2 && kept; i++)
        CHECK_EQ(fcntl(fd[i], F_GETFL), before[i]);
    close_both(fd);
}

CASE(the_mode_of_a_descriptor_is_left_as_it_is)
{
    on_each_pair_and_procs(modes_kept);
}

static long call_add_one(struct one_call *c)
{
    return weft_write(c->fd, &(uint64_t){1}, sizeof(uint64_t));
}

/* Whoever else uses it may rely on its mode. */
static void eventfd_main(void *arg)
{
    int fd = eventfd(0, EFD_CLOEXEC);
    uint64_t v = 7;
    (void)arg;
    CHECK_EQ(weft_write(fd, &v, sizeof v), sizeof v);
    CHECK_EQ(weft_read(fd, &v, sizeof v), sizeof v);
    CHECK_EQ(v, 7);
    CHECK(!(fcntl(fd, F_GETFL) & O_NONBLOCK));
    v = UINT64_MAX - 1;
    CHECK_EQ(weft_write(fd, &v, sizeof v), sizeof v);
    struct one_call full = {.fn = call_add_one, .fd = fd};
    call_begin(&full); /* it is full */
    CHECK_EQ(weft_read(fd, &v, sizeof v), sizeof v);
    CHECK_EQ(call_end(&full), sizeof v);
    CHECK_EQ(weft_close_fd(fd), 0);
}

CASE(an_eventfd_keeps_its_mode)
{
    run_each_procs(eventfd_main);
}

/* ---- ends ------------------------------------------------------------------------------------------------------- */

static void end_before_read(const struct stream_kind *kind, int fd[2])
{
    char text[64];
    if (!kind->terminal) {
        CHECK_EQ(weft_write(fd[1], "abc", 3), 3);
        CHECK_EQ(close(fd[1]), 0);
        fd[1] = -1;
        CHECK_EQ(weft_read(fd[0], text, sizeof text), 3);
        for (int i = 0; i < 3; i++)
            CHECK_EQ(weft_read(fd[0], text, sizeof text), 0);
    }
    close_both(fd);
}

CASE(the_end_comes_after_the_data)
{
    on_each_pair_and_procs(end_before_read);
}

/* A short read leaves the belief that nothing is there, and the end comes before the next. */
static void end_after_short_read(const struct stream_kind *kind, int fd[2])
{
    char text[64];
    if (!kind->terminal) {
        CHECK_EQ(weft_write(fd[1], "abc", 3), 3);
        CHECK_EQ(weft_read(fd[0], text, sizeof text), 3);
        CHECK_EQ(weft_write(fd[1], "de", 2), 2);
        CHECK_EQ(weft_close_fd(fd[1]), 0);
        fd[1] = -1;
        CHECK_EQ(weft_read(fd[0], text, sizeof text), 2);
        CHECK_EQ(weft_read(fd[0], text, sizeof text), 0);
    }
    close_both(fd);
}

CASE(the_end_is_seen_after_a_short_read)
{
    on_each_pair_and_procs(end_after_short_read);
}

static void end_while_waiting(const struct stream_kind *kind, int fd[2])
{
    struct one_call c = {.fn = call_read, .fd = fd[0]};
    call_begin(&c);
    CHECK_EQ(weft_close_fd(fd[1]), 0);
    fd[1] = -1;
    long r = call_end(&c);
    CHECK(r == 0 || (kind->terminal && r == -EIO));
    close_both(fd);
}

CASE(the_end_wakes_a_reader)
{
    on_each_pair_and_procs(end_while_waiting);
}

static void half_close(const struct stream_kind *kind, int fd[2])
{
    char text[64];
    if (kind->socket) {
        struct one_call c = {.fn = call_read, .fd = fd[0]};
        call_begin(&c);
        CHECK_EQ(shutdown(fd[1], SHUT_WR), 0);
        CHECK_EQ(call_end(&c), 0);
        CHECK_EQ(weft_write(fd[1], "x", 1), -EPIPE);
        CHECK_EQ(weft_write(fd[0], "back", 4), 4); /* the other way is still there */
        CHECK_EQ(weft_read(fd[1], text, sizeof text), 4);
        CHECK_EQ(weft_read(fd[0], text, sizeof text), 0);
    }
    close_both(fd);
}

CASE(one_direction_may_end_alone)
{
    on_each_pair_and_procs(half_close);
}

/* ---- resets ----------------------------------------------------------------------------------------------------- */

static void reset(int fd)
{
    struct linger l = {.l_onoff = 1, .l_linger = 0};
    CHECK_EQ(setsockopt(fd, SOL_SOCKET, SO_LINGER, &l, sizeof l), 0);
    CHECK_EQ(weft_close_fd(fd), 0);
}

static void reset_main(void *arg)
{
    int fd[2];
    char c;
    (void)arg;
    tcp_pair(fd);
    struct one_call read = {.fn = call_read, .fd = fd[0]};
    call_begin(&read);
    reset(fd[1]);
    CHECK_EQ(call_end(&read), -ECONNRESET);
    CHECK_EQ(weft_read(fd[0], &c, 1), 0); /* as the kernel has it: an error is told once */
    CHECK_EQ(weft_write(fd[0], &c, 1), -EPIPE);
    CHECK_EQ(weft_close_fd(fd[0]), 0);

    tcp_pair(fd);
    struct one_call write = {.fn = call_write_much, .fd = fd[0]};
    call_begin(&write);
    reset(fd[1]);
    CHECK(call_end(&write) > 0 && write.result < MUCH); /* what was written before, */
    long next = weft_write(fd[0], &c, 1);               /* then what happened */
    CHECK(next == -ECONNRESET || next == -EPIPE);
    CHECK_EQ(weft_close_fd(fd[0]), 0);
}

CASE(a_reset_wakes_readers_and_writers)
{
    run_each_procs(reset_main);
}

static void all_wait_main(void *arg)
{
    int fd[2], resets = 0;
    struct one_call calls[5];
    (void)arg;
    tcp_pair(fd);
    for (int i = 0; i < 5; i++) {
        calls[i] =
            (struct one_call){.fn = i < 3 ? call_read : call_wait, .fd = fd[0], .flags = i == 3 ? POLLIN : POLLPRI};
        call_begin(&calls[i]);
    }
    reset(fd[1]);
    for (int i = 0; i < 5; i++) {
        long r = call_end(&calls[i]);
        resets += r == -ECONNRESET;
        CHECK(i < 3 ? r == -ECONNRESET || r == 0 : r > 0 && (r & (POLLHUP | POLLERR)));
    }
    CHECK_EQ(resets, 1); /* told once */
    CHECK_EQ(weft_close_fd(fd[0]), 0);
}

CASE(a_reset_wakes_everybody)
{
    run_each_procs(all_wait_main);
}

/* ---- SIGPIPE ---------------------------------------------------------------------------------------------------- */

static _Atomic int signals;

static void count_signal(int sig)
{
    (void)sig;
    signals++;
}

static void gone_peer(const struct stream_kind *kind, int fd[2])
{
    struct iovec iov[2] = {{(void *)"a", 1}, {(void *)"b", 1}};
    struct msghdr m = {.msg_iov = iov, .msg_iovlen = 2};
    if (kind->terminal) {
        close_both(fd);
        return;
    }
    CHECK_EQ(weft_close_fd(fd[0]), 0);
    fd[0] = -1;
    long r = weft_write(fd[1], "x", 1);
    CHECK(r == -EPIPE || r == 1); /* TCP: the first is answered with a reset */
    for (int i = 0; i < 1000 && r == 1; i++) {
        usleep(1000);
        r = weft_write(fd[1], "x", 1);
    }
    CHECK(r == -EPIPE || r == -ECONNRESET);
    CHECK_EQ(weft_write(fd[1], "x", 1), -EPIPE);
    CHECK_EQ(weft_writev(fd[1], iov, 2), -EPIPE);
    if (kind->socket) {
        CHECK_EQ(weft_send_to(fd[1], "x", 1, 0, NULL, 0), -EPIPE);
        CHECK_EQ(weft_sendmsg(fd[1], &m, 0), -EPIPE);
    }
    close_both(fd);
}

static void gone_while_waiting(const struct stream_kind *kind, int fd[2])
{
    if (may_fill(kind)) {
        fill(fd[1]);
        struct one_call c = {.fn = call_write, .fd = fd[1]};
        call_begin(&c);
        CHECK_EQ(weft_close_fd(fd[0]), 0);
        fd[0] = -1;
        long r = call_end(&c);
        CHECK(r == -EPIPE || r == -ECONNRESET);
    }
    close_both(fd);
}

static void *gone_for_a_thread(void *arg)
{
    on_each_pair(gone_peer);
    return arg;
}

static void gone_main(void *arg)
{
    pthread_t thread;
    (void)arg;
    on_each_pair(gone_peer);
    on_each_pair(gone_while_waiting);
    CHECK_EQ(pthread_create(&thread, NULL, gone_for_a_thread, NULL), 0);
    join_in_region(&thread, 1);
}

CASE(a_peer_that_has_gone_is_an_error_and_no_signal)
{
    struct sigaction count = {.sa_handler = count_signal}, former;
    signals = 0;
    sigaction(SIGPIPE, &count, &former);
    run_each_procs(gone_main);
    sigaction(SIGPIPE, &former, NULL);
    CHECK_EQ(signals, 0);
}
