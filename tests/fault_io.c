/* SPDX-License-Identifier: MIT */
/*
 * System calls for input and output that go wrong at random: interrupted, nothing there though there is, only a part done, no
 * memory. Streams stay whole, nobody hangs, and what is an error comes out as one.
 */
#include "fault_shim_io.h"
#include "stress.h" /* before io.h */
#include "traffic.h"

static uint64_t seed;

/* ---- streams ---------------------------------------------------------------------------------------------------- */

struct flow {
    int fd[2];
    uint64_t stream;
    size_t size;
    weft_wg *ended;
    bool errors; /* ENOBUFS, ENOMEM may come */
    _Atomic long *seen;
};

static bool is_made(const struct flow *f, long r)
{
    bool made = f->errors && (r == -ENOBUFS || r == -ENOMEM);
    if (made)
        ++*f->seen;
    return made;
}

static void write_flow(void *arg)
{
    struct flow *f = arg;
    uint64_t rng = stress_stream(seed, f->stream * 2);
    uint8_t *data = malloc(20000);
    for (size_t at = 0; at < f->size;) {
        size_t n = 1 + check_random(&rng) % 19999, first;
        n = n < f->size - at ? n : f->size - at;
        first = check_random(&rng) % (n + 1);
        struct iovec iov[3] = {{data, first}, {NULL, 0}, {data + first, n - first}};
        write_bytes(data, n, f->stream, at);
        long r = check_random(&rng) % 2 ? weft_write(f->fd[1], data, n) : weft_writev(f->fd[1], iov, 3);
        CHECK(r == (long)n || (f->errors && r > 0) || is_made(f, r));
        at += r > 0 ? (size_t)r : 0;
        if (r < 0 && !f->errors)
            break;
    }
    free(data);
    CHECK_EQ(weft_close_fd(f->fd[1]), 0);
    weft_wg_done(f->ended);
}

static void read_flow(void *arg)
{
    struct flow *f = arg;
    uint64_t rng = stress_stream(seed, f->stream * 2 + 1);
    uint8_t *data = malloc(20000);
    size_t at = 0;
    for (long r = 1; r != 0;) {
        r = weft_read(f->fd[0], data, 1 + check_random(&rng) % 19999);
        if (r < 0 && !is_made(f, r)) {
            check_fail(__FILE__, __LINE__, "a read gave %ld", r);
            break;
        }
        if (r > 0 && !bytes_are_right(data, (size_t)r, f->stream, at))
            break;
        at += r > 0 ? (size_t)r : 0;
    }
    CHECK_EQ(at, f->size);
    free(data);
    CHECK_EQ(weft_close_fd(f->fd[0]), 0);
    weft_wg_done(f->ended);
}

static void flows_main(void *arg)
{
    enum { FLOWS = 12 };
    struct flow flows[FLOWS];
    weft_wg ended = {0};
    _Atomic long seen = 0;
    bool errors = *(bool *)arg;
    weft_wg_add(&ended, 2 * FLOWS);
    for (int i = 0; i < FLOWS; i++) {
        flows[i] = (struct flow){.stream = (uint64_t)i, .ended = &ended, .errors = errors, .seen = &seen};
        flows[i].size = 300000 / (size_t)check_scale();
        STREAM_KINDS[i % 3].make(flows[i].fd);
        CHECK_EQ(weft_go(read_flow, &flows[i]), 0);
        CHECK_EQ(weft_go(write_flow, &flows[i]), 0);
    }
    CHECK_EQ(weft_wg_wait(&ended), 0);
}

/* A run that is scaled down may meet no fault by chance: then another, with another seed. */
static void with_faults(int kinds, uint32_t one_in, weft_fn *fn, void *arg)
{
    seed = check_seed();
    EACH_PROCS(p)
    {
        long made = 0;
        for (int i = 0; i < 20 && made == 0; i++, seed += 2) {
            io_faults_arm(kinds, one_in, seed);
            stress_run(p, seed, fn, arg);
            io_faults_disarm();
            made = io_faults_made();
        }
        CHECK(made > 0);
    }
}

static bool without_errors = false, with_errors = true;

CASE(interrupted_calls_are_made_again)
{
    with_faults(IO_EINTR, 3, flows_main, &without_errors);
}

CASE(parts_are_put_together)
{
    with_faults(IO_SHORT, 2, flows_main, &without_errors);
}

/* Who waits in vain for what is there already is woken all the same. */
CASE(a_call_that_finds_nothing_by_mistake_is_made_again)
{
    with_faults(IO_EAGAIN, 8, flows_main, &without_errors);
}

CASE(errors_come_out_and_nothing_is_lost)
{
    with_faults(IO_ENOBUFS | IO_NO_WATCH, 8, flows_main, &with_errors);
}

CASE(everything_goes_wrong)
{
    with_faults(IO_EINTR | IO_SHORT | IO_EAGAIN | IO_ENOBUFS | IO_NO_WATCH | IO_SLOW, 16, flows_main, &with_errors);
}

/* ---- datagrams and connections ---------------------------------------------------------------------------------- */

static void posts_main(void *arg)
{
    (void)arg;
    posts_come_in_order(scaled(3000), weft_write);
}

CASE(datagrams_come_once_each)
{
    with_faults(IO_EINTR | IO_EAGAIN | IO_SLOW, 8, posts_main, NULL);
}

static void desk_main(void *arg)
{
    enum { SERVERS = 4, VISITORS = 20 };
    int visits = scaled(20);
    (void)arg;
    CHECK_EQ(open_desk(serve_bytes, SERVERS, visit_with_bytes, VISITORS, visits), VISITORS * visits);
}

CASE(connections_are_made_though_calls_go_wrong)
{
    with_faults(IO_EINTR | IO_EAGAIN | IO_SLOW, 8, desk_main, NULL);
}

/* ---- slow closes ------------------------------------------------------------------------------------------------ */

struct race {
    int fd;
    _Atomic int ready;
    weft_wg ended;
};

/* Its calls begin at any moment of the close. */
static void read_till_closed(void *arg)
{
    struct race *r = arg;
    uint64_t rng = stress_stream(seed, (uint64_t)(uintptr_t)r + (uint64_t)r->ready);
    char c;
    r->ready++;
    for (uint32_t i = check_random(&rng) % 64; i > 0; i--)
        if (weft_recv_from(r->fd, &c, 1, MSG_DONTWAIT, NULL, NULL) != -EAGAIN)
            break;
    CHECK_EQ(weft_read(r->fd, &c, 1), -EBADF);
    weft_wg_done(&r->ended);
}

/* The number stays unused meanwhile. */
static void slow_close_main(void *arg)
{
    (void)arg;
    for (int i = 0; i < scaled(300); i++) {
        int fd[2];
        struct race r = {0};
        unix_pair(fd);
        r.fd = fcntl(fd[0], F_DUPFD_CLOEXEC, 500);
        CHECK_EQ(close(fd[0]), 0);
        weft_wg_add(&r.ended, 8);
        for (int k = 0; k < 8; k++)
            CHECK_EQ(weft_go(read_till_closed, &r), 0);
        CHECK(reaches(&r.ready, 1 + i % 8, 60));
        CHECK_EQ(weft_close_fd(r.fd), 0);
        CHECK_EQ(weft_wg_wait(&r.ended), 0);
        CHECK_EQ(close(fd[1]), 0);
    }
}

CASE(calls_that_begin_during_a_slow_close_end)
{
    with_faults(IO_SLOW, 2, slow_close_main, NULL);
}

/* ---- no poller -------------------------------------------------------------------------------------------------- */

static void no_watch_main(void *arg)
{
    int fd[2];
    char c;
    (void)arg;
    pipe_pair(fd);
    CHECK_EQ(weft_read(fd[0], &c, 1), -ENOMEM); /* nobody would tell */
    CHECK_EQ(weft_write(fd[1], "x", 1), 1);
    CHECK_EQ(weft_read(fd[0], &c, 1), 1); /* this needs nobody */
    io_faults_disarm();
    struct one_call read = {.fn = call_read, .fd = fd[0]};
    call_begin(&read);
    CHECK_EQ(weft_write(fd[1], "x", 1), 1);
    CHECK_EQ(call_end(&read), 1);
    close_both(fd);
}

CASE(without_a_poller_waiting_is_an_error)
{
    EACH_PROCS(p)
    {
        io_faults_arm(IO_NO_WATCH, 1, 1);
        CHECK_EQ(run_on(p, no_watch_main, NULL), 0);
        io_faults_disarm();
    }
}
