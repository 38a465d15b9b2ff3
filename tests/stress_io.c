/* SPDX-License-Identifier: MIT */
/*
 * Input and output under load: streams of bytes that tell their place, written and read in random pieces by random calls that
 * are cut at random; connections that are reset; numbers that are given away and used again at once. What is read belongs to
 * the stream that it is read from, and stands where it should. A lost wake-up is a hang, which the harness ends.
 */
#include "stress.h" /* first */
#include "traffic.h"

static uint64_t seed;

static void on_some_procs(weft_fn *fn)
{
    seed = check_seed();
    EACH_PROCS(p) stress_run(p, seed, fn, NULL);
}

static bool was_cut(long r)
{
    return r == -ECANCELED || r == -ETIMEDOUT;
}

/* ---- streams ---------------------------------------------------------------------------------------------------- */

enum { PIECE = 12 << 10 };

struct flow {
    int fd[2];
    uint64_t stream;
    size_t size;
    bool socket, slow, cut;
    weft_wg *ended;
    _Atomic bool torn; /* an end was reset: what was on its way is lost */
};

static void dawdle(const struct flow *f, uint64_t *rng)
{
    uint32_t r = check_random(rng) % 64;
    if (f->slow && r < 4)
        weft_sleep(check_random(rng) % 2000 * WEFT_USEC);
    else if (r < 20)
        weft_yield();
}

static long write_somehow(const struct flow *f, uint64_t *rng, uint8_t *data, size_t n)
{
    size_t first = check_random(rng) % (n + 1);
    struct iovec iov[3] = {{data, first}, {NULL, 0}, {data + first, n - first}};
    switch (check_random(rng) % (f->socket ? 4 : 2)) {
    case 0:
        return weft_write(f->fd[1], data, n);
    case 1:
        return weft_writev(f->fd[1], iov, 3);
    case 2:
        return weft_send_to(f->fd[1], data, n, 0, NULL, 0);
    default:
        return weft_sendmsg(f->fd[1], &(struct msghdr){.msg_iov = iov, .msg_iovlen = 3}, 0);
    }
}

static long read_somehow(const struct flow *f, uint64_t *rng, uint8_t *data, size_t n)
{
    size_t first = check_random(rng) % (n + 1);
    struct iovec iov[3] = {{data, first}, {NULL, 0}, {data + first, n - first}};
    struct msghdr m = {.msg_iov = iov, .msg_iovlen = 3};
    switch (check_random(rng) % (f->socket ? 6 : 3)) {
    case 0:
        return weft_read(f->fd[0], data, n);
    case 1:
        return weft_readv(f->fd[0], iov, 3);
    case 2: {
        int r = weft_wait_fd(f->fd[0], POLLIN);
        return r < 0 ? r : weft_read(f->fd[0], data, n);
    }
    case 3:
        return weft_recv_from(f->fd[0], data, n, 0, NULL, NULL);
    case 4:
        return weft_recvmsg(f->fd[0], &m, check_random(rng) % 2 ? MSG_WAITALL : 0);
    default: {
        long r = weft_recv_from(f->fd[0], data, n, MSG_PEEK, NULL, NULL);
        return r <= 0 ? r : weft_recv_from(f->fd[0], data, (size_t)r, 0, NULL, NULL);
    }
    }
}

typedef long somehow(const struct flow *f, uint64_t *rng, uint8_t *data, size_t n);

/* In a scope that ends soon, now and then. */
static long do_somehow(const struct flow *f, uint64_t *rng, somehow *call, uint8_t *data, size_t n)
{
    weft_scope s;
    long r;
    if (!f->cut || check_random(rng) % 4)
        return call(f, rng, data, n);
    CHECK_EQ(weft_scope_open(&s, weft_now() + check_random(rng) % 200 * WEFT_USEC), 0);
    r = call(f, rng, data, n);
    weft_scope_close(&s);
    return r;
}

static void write_flow(void *arg)
{
    struct flow *f = arg;
    uint64_t rng = stress_stream(seed, f->stream * 2);
    uint8_t *data = malloc(PIECE);
    for (size_t at = 0; at < f->size;) {
        size_t n = 1 + check_random(&rng) % (check_random(&rng) % 8 ? 500 : PIECE - 1);
        n = n < f->size - at ? n : f->size - at;
        write_bytes(data, n, f->stream, at);
        long r = do_somehow(f, &rng, write_somehow, data, n);
        if (r < 0 && !was_cut(r)) {
            CHECK(f->torn && (r == -EPIPE || r == -ECONNRESET || r == -EBADF));
            break;
        }
        CHECK(r < 0 || ((size_t)r <= n && (f->cut || f->torn || (size_t)r == n)));
        at += r > 0 ? (size_t)r : 0;
        dawdle(f, &rng);
    }
    free(data);
    CHECK_EQ(weft_close_fd(f->fd[1]), 0);
    weft_wg_done(f->ended);
}

static void read_flow(void *arg)
{
    struct flow *f = arg;
    uint64_t rng = stress_stream(seed, f->stream * 2 + 1);
    uint8_t *data = malloc(PIECE);
    size_t at = 0;
    for (long r = 1; r != 0;) {
        r = do_somehow(f, &rng, read_somehow, data, 1 + check_random(&rng) % (PIECE - 1));
        if (r < 0 && !was_cut(r)) {
            CHECK(f->torn && (r == -ECONNRESET || r == -EBADF));
            break;
        }
        if (r > 0 && !bytes_are_right(data, (size_t)r, f->stream, at))
            break;
        at += r > 0 ? (size_t)r : 0;
        dawdle(f, &rng);
    }
    CHECK(at == f->size || (f->torn && at < f->size));
    free(data);
    CHECK_EQ(weft_close_fd(f->fd[0]), 0);
    weft_wg_done(f->ended);
}

static void start_flow(struct flow *f, uint32_t kind)
{
    STREAM_KINDS[kind % 3].make(f->fd);
    f->socket = STREAM_KINDS[kind % 3].socket;
    for (int i = 0; i < 2; i++)
        if (kind / 3 >> i & 1)
            set_nonblocking(f->fd[i], true);
    weft_wg_add(f->ended, 2);
    CHECK_EQ(weft_go(write_flow, f), 0);
    CHECK_EQ(weft_go(read_flow, f), 0);
}

static void flows_main(void *arg)
{
    int n = stress_scaled(300);
    struct flow *flows = calloc((size_t)n, sizeof *flows);
    weft_wg ended = {0};
    uint64_t rng = stress_stream(seed, 7);
    (void)arg;
    for (int i = 0; i < n; i++) {
        flows[i] = (struct flow){.stream = (uint64_t)i, .ended = &ended, .slow = i % 3 != 0, .cut = i % 2};
        flows[i].size = check_random(&rng) % (flows[i].slow ? 100000 : 500000);
        start_flow(&flows[i], check_random(&rng));
    }
    CHECK_EQ(weft_wg_wait(&ended), 0);
    free(flows);
}

CASE(hundreds_of_streams_keep_their_bytes)
{
    on_some_procs(flows_main);
}

/* ---- resets and half-closes ------------------------------------------------------------------------------------- */

/* Whatever end it is, it goes away at some moment: the call that is under way there, or that comes, is told. */
static void tear(void *arg)
{
    struct flow *f = arg;
    uint64_t rng = stress_stream(seed, f->stream + 1000000);
    int end = (int)(check_random(&rng) % 2);
    struct linger none = {.l_onoff = 1, .l_linger = 0};
    weft_sleep(check_random(&rng) % 3000 * WEFT_USEC);
    f->torn = true;
    if (check_random(&rng) % 2)
        setsockopt(f->fd[end], SOL_SOCKET, SO_LINGER, &none, sizeof none);
    shutdown(f->fd[end], check_random(&rng) % 3 ? SHUT_RDWR : end ? SHUT_WR : SHUT_RD);
    weft_wg_done(f->ended);
}

static void write_till_torn(void *arg)
{
    struct flow *f = arg;
    uint64_t rng = stress_stream(seed, f->stream * 2);
    uint8_t *data = malloc(PIECE);
    long r = 1;
    for (size_t at = 0; r > 0; at += (size_t)r) {
        size_t n = 1 + check_random(&rng) % (PIECE - 1);
        write_bytes(data, n, f->stream, at);
        r = write_somehow(f, &rng, data, n);
        dawdle(f, &rng);
        if (r <= 0)
            break;
    }
    CHECK(r == -EPIPE || r == -ECONNRESET);
    free(data);
    weft_wg_done(f->ended);
}

/* Lets the writer know. What came before the shutdown and is not read would keep the window shut, and the writer waiting for ever:
 * to a probe of the window the kernel answers, and to data that comes now it says that nobody is here. */
static void turn_away(int fd)
{
    uint8_t data[4096];
    CHECK_EQ(shutdown(fd, SHUT_RDWR) == 0 || errno == ENOTCONN, 1);
    while (recv(fd, data, sizeof data, MSG_DONTWAIT) > 0)
        ;
}

static void read_till_torn(void *arg)
{
    struct flow *f = arg;
    uint64_t rng = stress_stream(seed, f->stream * 2 + 1);
    uint8_t *data = malloc(PIECE);
    long r = 1;
    for (size_t at = 0; r > 0;) {
        r = read_somehow(f, &rng, data, 1 + check_random(&rng) % (PIECE - 1));
        if (r <= 0 || !bytes_are_right(data, (size_t)r, f->stream, at))
            break;
        at += (size_t)r;
    }
    CHECK(r >= 0 || r == -ECONNRESET);
    turn_away(f->fd[0]);
    free(data);
    weft_wg_done(f->ended);
}

static void torn_main(void *arg)
{
    int n = stress_scaled(100);
    struct flow *flows = calloc((size_t)n, sizeof *flows);
    (void)arg;
    for (int round = 0; round < 3; round++) {
        weft_wg ended = {0};
        weft_wg_add(&ended, 3 * n);
        for (int i = 0; i < n; i++) {
            flows[i] =
                (struct flow){.stream = (uint64_t)(round * n + i), .socket = true, .slow = i % 2, .ended = &ended};
            STREAM_KINDS[i % 2].make(flows[i].fd);
            CHECK_EQ(weft_go(write_till_torn, &flows[i]), 0);
            CHECK_EQ(weft_go(read_till_torn, &flows[i]), 0);
            CHECK_EQ(weft_go(tear, &flows[i]), 0);
        }
        CHECK_EQ(weft_wg_wait(&ended), 0);
        for (int i = 0; i < n; i++)
            close_both(flows[i].fd);
    }
    free(flows);
}

CASE(connections_are_torn_at_any_moment)
{
    on_some_procs(torn_main);
}

/* ---- numbers that are used again -------------------------------------------------------------------------------- */

struct guest {
    int fd[2];
    uint64_t stream;
    weft_wg ended;
};

/* Reads to the end; what it gets is its own. */
static void stay(void *arg)
{
    struct guest *g = arg;
    uint8_t data[256];
    long r;
    for (size_t at = 0; (r = weft_read(g->fd[0], data, sizeof data)) > 0; at += (size_t)r)
        bytes_are_right(data, (size_t)r, g->stream, at);
    CHECK_EQ(r, 0);
    weft_wg_done(&g->ended);
}

static weft_wg owners;
static _Atomic uint64_t streams;

/* Each round another pair, most likely with numbers that another owner has just left. */
static void come_and_go(void *arg)
{
    int number = *(int *)arg;
    uint64_t rng = stress_stream(seed, (uint64_t)number + 5000);
    for (int i = 0; i < stress_scaled(150); i++) {
        struct guest g = {.stream = streams++};
        uint8_t data[256];
        size_t at = 0;
        STREAM_KINDS[check_random(&rng) % 3].make(g.fd);
        weft_wg_add(&g.ended, 1);
        CHECK_EQ(weft_go(stay, &g), 0);
        for (uint32_t k = check_random(&rng) % 6; k > 0; k--) {
            size_t n = 1 + check_random(&rng) % sizeof data;
            write_bytes(data, n, g.stream, at);
            CHECK_EQ(weft_write(g.fd[1], data, n), n);
            at += n;
            if (check_random(&rng) % 2)
                weft_yield();
            if (check_random(&rng) % 8 == 0)
                weft_sleep(check_random(&rng) % 300 * WEFT_USEC);
        }
        if (check_random(&rng) % 2)
            CHECK_EQ(shutdown(g.fd[1], SHUT_RDWR) == 0 || errno == ENOTSOCK, 1);
        CHECK_EQ(weft_close_fd(g.fd[1]), 0);
        CHECK_EQ(weft_wg_wait(&g.ended), 0);
        CHECK_EQ(check_random(&rng) % 2 ? close(g.fd[0]) : weft_close_fd(g.fd[0]), 0);
    }
    weft_wg_done(&owners);
}

/* The closer sees the guest asleep in its read, closes under it, and the number goes on. */
static void close_under_guest(void *arg)
{
    uint64_t rng = stress_stream(seed, (uint64_t) * (int *)arg + 9000);
    for (int i = 0; i < stress_scaled(150); i++) {
        struct one_call c = {.fn = call_read};
        int fd[2];
        STREAM_KINDS[check_random(&rng) % 3].make(fd);
        c.fd = fd[0];
        call_begin(&c);
        if (check_random(&rng) % 4 == 0)
            CHECK_EQ(weft_write(fd[1], "mine", 4), 4);
        CHECK_EQ(weft_close_fd(fd[0]), 0);
        long r = call_end(&c);
        if (r != -EBADF && (r != 4 || memcmp(c.text, "mine", 4) != 0))
            check_fail(__FILE__, __LINE__, "a read that was closed gave %ld: %.4s", r, c.text);
        CHECK_EQ(weft_close_fd(fd[1]), 0);
    }
    weft_wg_done(&owners);
}

static void reuse_main(void *arg)
{
    enum { OWNERS = 24 };
    int numbers[OWNERS];
    (void)arg;
    owners = (weft_wg){0};
    weft_wg_add(&owners, OWNERS);
    for (int i = 0; i < OWNERS; i++) {
        numbers[i] = i;
        CHECK_EQ(weft_go(i % 3 ? come_and_go : close_under_guest, &numbers[i]), 0);
    }
    CHECK_EQ(weft_wg_wait(&owners), 0);
}

CASE(numbers_that_are_used_again_at_once)
{
    on_some_procs(reuse_main);
}

/* ---- servers ---------------------------------------------------------------------------------------------------- */

static void answer(void *arg)
{
    int fd = *(int *)arg;
    uint8_t data[2048];
    long n;
    while ((n = weft_read(fd, data, sizeof data)) > 0)
        if (weft_write(fd, data, (size_t)n) != n)
            break;
    CHECK_EQ(weft_close_fd(fd), 0);
}

static void accept_all(void *arg)
{
    struct desk *s = arg;
    for (int fd; (fd = weft_accept(s->listener, NULL, NULL)) >= 0; s->served++)
        CHECK_EQ(weft_go_copy(answer, &fd, sizeof fd), 0);
    weft_wg_done(&s->ended);
}

/* A client asks, gives up at random, comes back. */
static void ask(void *arg)
{
    struct desk *s = arg;
    uint64_t rng = stress_stream(seed, streams++ + 77777);
    for (int i = 0; i < s->visits; i++) {
        int fd = socket_of(AF_INET, SOCK_STREAM);
        uint8_t out[1024], in[1024];
        struct linger none = {.l_onoff = 1, .l_linger = 0}; /* no port stays behind */
        weft_scope scope;
        CHECK_EQ(weft_connect(fd, (struct sockaddr *)&s->at, sizeof s->at), 0);
        CHECK_EQ(setsockopt(fd, SOL_SOCKET, SO_LINGER, &none, sizeof none), 0);
        bool hasty = check_random(&rng) % 4 == 0;
        CHECK_EQ(weft_scope_open(&scope, hasty ? weft_now() + check_random(&rng) % 500 * WEFT_USEC : WEFT_NEVER), 0);
        for (int k = 0; k < 5; k++) {
            size_t n = 1 + check_random(&rng) % sizeof out;
            write_bytes(out, n, (uint64_t)i, 0);
            if (weft_write(fd, out, n) != (long)n)
                break;
            long r = weft_recv_from(fd, in, n, MSG_WAITALL, NULL, NULL);
            CHECK(r == (long)n || (hasty && (was_cut(r) || r > 0)));
            if (r != (long)n)
                break;
            CHECK(memcmp(in, out, n) == 0);
        }
        weft_scope_close(&scope);
        CHECK_EQ(weft_close_fd(fd), 0);
    }
    weft_wg_done(&s->ended);
}

static void server_main(void *arg)
{
    enum { ACCEPTORS = 3, CLIENTS = 60 };
    (void)arg;
    CHECK(open_desk(accept_all, ACCEPTORS, ask, CLIENTS, stress_scaled(20)) > 0); /* some give up before */
    CHECK(others_have_ended());                                                   /* those who answer */
}

CASE(clients_come_and_give_up)
{
    on_some_procs(server_main);
}
