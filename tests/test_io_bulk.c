/* SPDX-License-Identifier: MIT */
/* Much at once: writes are complete however slow the reader is, vectors go on where they stopped. */
#include "io.h"

/* ---- a slow reader ---------------------------------------------------------------------------------------------- */

struct flow {
    int fd[2];
    size_t size;
    uint64_t stream;
    weft_wg ended;
    long written;
};

static size_t bulk(const struct stream_kind *kind)
{
    return (kind->terminal ? 64 << 10 : 8 << 20) / (size_t)check_scale();
}

static void read_slowly(void *arg)
{
    struct flow *f = arg;
    uint8_t *buffer = malloc(100000);
    uint64_t rng = f->stream * 77 + 1;
    size_t at = 0;
    ssize_t n = 1;
    while (at < f->size && (n = weft_read(f->fd[0], buffer, 1 + check_random(&rng) % 99999)) > 0) {
        if (!bytes_are_right(buffer, (size_t)n, f->stream, at))
            break;
        at += (size_t)n;
        for (uint32_t k = check_random(&rng) % 4; k > 0; k--)
            weft_yield();
        if (check_random(&rng) % 64 == 0)
            weft_sleep(WEFT_MSEC);
    }
    CHECK_EQ(at, f->size);
    free(buffer);
    weft_wg_done(&f->ended);
}

static void write_much(const struct stream_kind *kind, int fd[2])
{
    struct flow f = {.fd = {fd[0], fd[1]}, .size = bulk(kind), .stream = 5};
    uint8_t *data = malloc(f.size);
    write_bytes(data, f.size, f.stream, 0);
    weft_wg_add(&f.ended, 1);
    CHECK_EQ(weft_go(read_slowly, &f), 0);
    CHECK_EQ(weft_write(fd[1], data, f.size), f.size);
    CHECK_EQ(weft_wg_wait(&f.ended), 0);
    free(data);
    close_both(fd);
}

CASE(a_write_of_eight_megabytes_is_complete)
{
    on_each_pair_and_procs(write_much);
}

/* ---- vectors ---------------------------------------------------------------------------------------------------- */

enum { PARTS = 100 };

/* Parts of all sizes, empty ones at the ends and between, over what data has. */
static void cut_up(struct iovec *iov, uint8_t *data, size_t size)
{
    uint64_t rng = size * 3 + 1;
    size_t at = 0;
    for (int i = 0; i < PARTS; i++) {
        size_t most = 2 * size / PARTS, n = i % 7 == 0 || i >= PARTS - 3 ? 0 : 1 + check_random(&rng) % most;
        n = n < size - at ? n : size - at;
        n = i == PARTS - 4 ? size - at : n;
        iov[i] = (struct iovec){n > 0 ? data + at : NULL, n};
        at += n;
    }
}

typedef long send_vector(int fd, struct iovec *iov);

static long by_writev(int fd, struct iovec *iov)
{
    return weft_writev(fd, iov, PARTS);
}

static long by_sendmsg(int fd, struct iovec *iov)
{
    return weft_sendmsg(fd, &(struct msghdr){.msg_iov = iov, .msg_iovlen = PARTS}, 0);
}

static void write_vector(const struct stream_kind *kind, int fd[2], send_vector *send)
{
    struct flow f = {.fd = {fd[0], fd[1]}, .size = bulk(kind) / 4, .stream = 6};
    uint8_t *data = malloc(f.size);
    struct iovec iov[PARTS], before[PARTS];
    write_bytes(data, f.size, f.stream, 0);
    cut_up(iov, data, f.size);
    memcpy(before, iov, sizeof iov);
    weft_wg_add(&f.ended, 1);
    CHECK_EQ(weft_go(read_slowly, &f), 0);
    CHECK_EQ(send(fd[1], iov), f.size);
    CHECK(memcmp(before, iov, sizeof iov) == 0);
    CHECK_EQ(weft_wg_wait(&f.ended), 0);
    free(data);
    close_both(fd);
}

static void write_vector_plainly(const struct stream_kind *kind, int fd[2])
{
    write_vector(kind, fd, by_writev);
}

static void write_vector_as_message(const struct stream_kind *kind, int fd[2])
{
    if (kind->socket)
        write_vector(kind, fd, by_sendmsg);
    else
        close_both(fd);
}

CASE(a_vector_is_written_to_its_end)
{
    on_each_pair_and_procs(write_vector_plainly);
}

CASE(a_message_on_a_stream_is_sent_to_its_end)
{
    on_each_pair_and_procs(write_vector_as_message);
}

static void read_vector(const struct stream_kind *kind, int fd[2])
{
    char a[3], b[5], c[50];
    struct iovec iov[] = {{NULL, 0}, {a, sizeof a}, {NULL, 0}, {b, sizeof b}, {c, sizeof c}, {NULL, 0}};
    (void)kind;
    CHECK_EQ(weft_write(fd[1], "abcdefghij", 10), 10);
    CHECK_EQ(weft_readv(fd[0], iov, 6), 10);
    CHECK(memcmp(a, "abc", 3) == 0 && memcmp(b, "defgh", 5) == 0 && memcmp(c, "ij", 2) == 0);
    CHECK_EQ(weft_write(fd[1], "klm", 3), 3);
    CHECK_EQ(weft_readv(fd[0], iov, 6), 3);
    CHECK(memcmp(a, "klm", 3) == 0);
    close_both(fd);
}

CASE(a_read_is_scattered_over_its_vector)
{
    on_each_pair_and_procs(read_vector);
}

/* ---- both directions at once ------------------------------------------------------------------------------------ */

static void echo(void *arg)
{
    struct flow *f = arg;
    char *buffer = malloc(50000);
    ssize_t n;
    while ((n = weft_read(f->fd[1], buffer, 50000)) > 0)
        CHECK_EQ(weft_write(f->fd[1], buffer, (size_t)n), n);
    CHECK_EQ(n, 0);
    free(buffer);
    weft_wg_done(&f->ended);
}

static void there_and_back(const struct stream_kind *kind, int fd[2])
{
    if (!kind->socket) {
        close_both(fd);
        return;
    }
    struct flow f = {.fd = {fd[0], fd[1]}, .size = bulk(kind) / 2, .stream = 7};
    uint8_t *data = malloc(f.size);
    write_bytes(data, f.size, f.stream, 0);
    weft_wg_add(&f.ended, 2);
    CHECK_EQ(weft_go(echo, &f), 0);
    CHECK_EQ(weft_go(read_slowly, &f), 0);
    CHECK_EQ(weft_write(fd[0], data, f.size), f.size);
    CHECK_EQ(shutdown(fd[0], SHUT_WR), 0);
    CHECK_EQ(weft_wg_wait(&f.ended), 0);
    free(data);
    close_both(fd);
}

CASE(one_may_read_while_another_writes)
{
    on_each_pair_and_procs(there_and_back);
}

/* ---- cut in the middle ------------------------------------------------------------------------------------------ */

static void cut_write(const struct stream_kind *kind, int fd[2])
{
    if (!kind->socket) { /* on kernels without RWF_NOSIGNAL a large write to a pipe waits in the kernel */
        close_both(fd);
        return;
    }
    size_t size = 32 << 20;
    uint8_t *data = malloc(size), *back = malloc(size);
    weft_scope s;
    write_bytes(data, size, 8, 0);
    CHECK_EQ(weft_scope_open(&s, weft_now() + 20 * WEFT_MSEC), 0);
    long n = weft_write(fd[1], data, size);
    CHECK_EQ(weft_scope_close(&s), -ETIMEDOUT);
    CHECK(n > 0 && (size_t)n < size);
    CHECK_EQ(shutdown(fd[1], SHUT_WR), 0);
    long got = 0, r;
    while ((r = weft_read(fd[0], back + got, size - (size_t)got)) > 0)
        got += r;
    CHECK_EQ(got, n); /* what it says is what was written */
    CHECK(memcmp(data, back, (size_t)n) == 0);
    free(data);
    free(back);
    close_both(fd);
}

CASE(a_write_that_is_cut_tells_how_much_was_written)
{
    on_each_pair_and_procs(cut_write);
}
