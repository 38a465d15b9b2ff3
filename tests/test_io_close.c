/* SPDX-License-Identifier: MIT */
/* Descriptors that are closed while somebody waits for them, and numbers that mean something else afterwards. */
#include "io.h"
#include "fd.h"

/* ---- weft_close_fd ---------------------------------------------------------------------------------------------- */

static void close_under_writers(const struct stream_kind *kind, int fd[2])
{
    enum { EACH = 3 };
    struct one_call out[EACH], watch[EACH];
    if (!may_fill(kind)) {
        close_both(fd);
        return;
    }
    fill(fd[1]);
    for (int i = 0; i < EACH; i++) {
        out[i] = (struct one_call){.fn = call_write, .fd = fd[1]};
        watch[i] = (struct one_call){.fn = call_wait, .fd = fd[1], .flags = POLLOUT | (i % 2 ? POLLIN : 0)};
        call_begin(&out[i]);
        call_begin(&watch[i]);
    }
    CHECK_EQ(weft_close_fd(fd[1]), 0);
    for (int i = 0; i < EACH; i++) {
        CHECK_EQ(call_end(&out[i]), -EBADF);
        CHECK_EQ(call_end(&watch[i]), -EBADF);
    }
    CHECK_EQ(weft_close_fd(fd[0]), 0);
}

CASE(a_close_wakes_watchers_and_writers)
{
    on_each_pair_and_procs(close_under_writers);
}

static void close_under_readers(const struct stream_kind *kind, int fd[2])
{
    enum { EACH = 5 };
    struct one_call in[EACH], watch[EACH];
    (void)kind;
    for (int i = 0; i < EACH; i++) {
        in[i] = (struct one_call){.fn = call_read, .fd = fd[0]};
        watch[i] = (struct one_call){.fn = call_wait, .fd = fd[0], .flags = POLLIN};
        call_begin(&in[i]);
        call_begin(&watch[i]);
    }
    CHECK_EQ(weft_close_fd(fd[0]), 0);
    for (int i = 0; i < EACH; i++) {
        CHECK_EQ(call_end(&in[i]), -EBADF);
        CHECK_EQ(call_end(&watch[i]), -EBADF);
    }
    CHECK_EQ(weft_close_fd(fd[0]), -EBADF);
    CHECK_EQ(weft_close_fd(fd[1]), 0);
}

CASE(a_close_wakes_readers_and_watchers)
{
    on_each_pair_and_procs(close_under_readers);
}

static void close_accept_main(void *arg)
{
    struct sockaddr_in at;
    struct one_call c[4];
    int listener = listen_at(&at, 4);
    (void)arg;
    for (int i = 0; i < 4; i++) {
        c[i] = (struct one_call){.fn = call_accept, .fd = listener};
        call_begin(&c[i]);
    }
    CHECK_EQ(weft_close_fd(listener), 0);
    for (int i = 0; i < 4; i++)
        CHECK_EQ(call_end(&c[i]), -EBADF);
}

CASE(a_close_wakes_acceptors)
{
    run_each_procs(close_accept_main);
}

/* ---- calls that begin while it is closed ------------------------------------------------------------------------ */

struct race {
    int fd;
    _Atomic bool go;
    weft_wg ended;
};

static void read_till_closed(void *arg)
{
    struct race *r = arg;
    char c;
    long n;
    while (!r->go)
        weft_yield();
    while ((n = weft_recv_from(r->fd, &c, 1, MSG_DONTWAIT, NULL, NULL)) == -EAGAIN)
        weft_yield();
    CHECK_EQ(n, -EBADF);
    weft_wg_done(&r->ended);
}

static void wait_till_closed(void *arg)
{
    struct race *r = arg;
    char c;
    while (!r->go)
        weft_yield();
    CHECK_EQ(weft_read(r->fd, &c, 1), -EBADF);
    weft_wg_done(&r->ended);
}

/* The number is not given away meanwhile: it is far above those that others get. */
static void closing_race_main(void *arg)
{
    uint64_t rng = 99;
    (void)arg;
    for (int i = 0; i < scaled(3000); i++) {
        int fd[2];
        struct race r = {0};
        unix_pair(fd);
        r.fd = fcntl(fd[0], F_DUPFD_CLOEXEC, 500);
        CHECK_EQ(close(fd[0]), 0);
        weft_wg_add(&r.ended, 4);
        for (int k = 0; k < 4; k++)
            CHECK_EQ(weft_go(k % 2 ? read_till_closed : wait_till_closed, &r), 0);
        for (uint32_t k = check_random(&rng) % 4; k > 0; k--)
            weft_yield();
        r.go = true;
        spin_for((int)(check_random(&rng) % 3000));
        CHECK_EQ(weft_close_fd(r.fd), 0);
        CHECK_EQ(weft_wg_wait(&r.ended), 0);
        CHECK_EQ(close(fd[1]), 0);
    }
}

CASE(a_call_that_begins_while_it_is_closed_ends)
{
    run_each_procs(closing_race_main);
}

static void close_it(void *arg)
{
    struct race *r = arg;
    long n;
    while (!r->go)
        weft_yield();
    n = weft_close_fd(r->fd);
    CHECK(n == 0 || n == -EBADF);
    weft_wg_done(&r->ended);
}

static void many_close_main(void *arg)
{
    (void)arg;
    for (int i = 0; i < scaled(1000); i++) {
        int fd[2];
        struct race r = {0};
        unix_pair(fd);
        r.fd = fcntl(fd[0], F_DUPFD_CLOEXEC, 500);
        struct one_call c = {.fn = call_read, .fd = r.fd};
        CHECK_EQ(close(fd[0]), 0);
        call_begin(&c);
        weft_wg_add(&r.ended, 3);
        for (int k = 0; k < 3; k++)
            CHECK_EQ(weft_go(close_it, &r), 0);
        r.go = true;
        CHECK_EQ(weft_wg_wait(&r.ended), 0);
        CHECK_EQ(call_end(&c), -EBADF);
        CHECK_EQ(close(fd[1]), 0);
    }
}

CASE(of_several_who_close_one_does)
{
    run_each_procs(many_close_main);
}

/* ---- numbers that are used again -------------------------------------------------------------------------------- */

/* After a close that everybody was told of. */
static void reuse_main(void *arg)
{
    (void)arg;
    for (int i = 0; i < scaled(500); i++) {
        int fd[2], next[2];
        unix_pair(fd);
        struct one_call old = {.fn = call_read, .fd = fd[0]}, fresh = {.fn = call_read};
        call_begin(&old);
        CHECK_EQ(weft_close_fd(fd[0]), 0);
        STREAM_KINDS[i % 3].make(next); /* most likely the same number */
        CHECK_EQ(weft_write(next[1], "new", 3), 3);
        CHECK_EQ(call_end(&old), -EBADF); /* and has none of it */
        fresh.fd = next[0];
        CHECK_EQ(call_read(&fresh), 3);
        call_begin(&fresh);
        CHECK_EQ(weft_write(fd[1], "old", 3), -EPIPE);
        CHECK_EQ(weft_write(next[1], "more", 4), 4);
        CHECK_EQ(call_end(&fresh), 4);
        CHECK_EQ(weft_close_fd(fd[1]), 0);
        close_both(next);
    }
}

CASE(who_waited_for_the_old_one_has_nothing_of_the_new)
{
    run_each_procs(reuse_main);
}

/* ---- plain close() ---------------------------------------------------------------------------------------------- */

/* What a number may stand for; each has text in it. */
static void with_file(int fd[2])
{
    char name[] = "/tmp/weft-io-XXXXXX";
    fd[1] = mkostemp(name, O_CLOEXEC);
    fd[0] = open(name, O_RDONLY | O_CLOEXEC);
    CHECK(fd[0] >= 0 && fd[1] >= 0);
    unlink(name);
}

static void with_dgram(int fd[2])
{
    CHECK_EQ(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, fd), 0);
}

static void with_counter(int fd[2])
{
    fd[0] = eventfd(0, EFD_CLOEXEC);
    fd[1] = fcntl(fd[0], F_DUPFD_CLOEXEC, 0);
}

typedef void make_fn(int fd[2]);
static make_fn *const MEANINGS[] = {unix_pair, tcp_pair, pipe_pair, with_file, with_dgram, with_counter, pty_pair};
enum { MEANINGS_N = 7, COUNTER = 5, FILE_ = 3 };

/* Reads and writes both ends of whatever it is. */
static void use(int meaning, const int fd[2], bool may_wait)
{
    for (int i = 0; i < 3; i++) {
        char text[32] = "";
        struct one_call c = {.fn = call_read, .fd = fd[0]};
        bool wait = may_wait && i == 1 && meaning != FILE_;
        if (wait)
            call_begin(&c);
        CHECK_EQ(weft_write(fd[1], "\1\2\3\4\5\6\7\x8", 8), 8);
        if (wait) {
            CHECK_EQ(call_end(&c), 8);
            memcpy(text, c.text, 8);
        } else {
            CHECK_EQ(weft_read(fd[0], text, sizeof text), 8);
        }
        CHECK(memcmp(text, "\1\2\3\4\5\6\7\x8", 8) == 0);
    }
}

/* The numbers of one get the meaning of another, without a word to us: dup2 closes and gives in one step. */
static void replace(int number[2], int meaning)
{
    int fd[2];
    MEANINGS[meaning](fd);
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(dup3(fd[i], number[i], O_CLOEXEC), number[i]);
        CHECK_EQ(close(fd[i]), 0);
    }
}

static void meanings_main(void *arg)
{
    for (int from = 0; from < MEANINGS_N; from++)
        for (int to = 0; to < MEANINGS_N; to++)
            for (int twice = 0; twice < 2; twice++) {
                int fd[2];
                MEANINGS[from](fd);
                use(from, fd, true);
                replace(fd, to);
                use(to, fd, twice);
                replace(fd, from);
                use(from, fd, !twice);
                close(fd[0]);
                close(fd[1]);
            }
    (void)arg;
}

CASE(a_number_may_mean_something_else_after_a_plain_close)
{
    run_each_procs(meanings_main);
}

/* With a cut in between, and as one goroutine leaves the number to another. */
struct heir {
    int fd[2], meaning;
    weft_wg ended;
};

static void inherit(void *arg)
{
    struct heir *h = arg;
    use(h->meaning, h->fd, true);
    weft_wg_done(&h->ended);
}

static void heirs_main(void *arg)
{
    (void)arg;
    for (int from = 0; from < MEANINGS_N; from++)
        for (int to = 0; to < MEANINGS_N; to++) {
            struct heir h = {.meaning = to};
            weft_scope s;
            char c[8];
            MEANINGS[from](h.fd);
            if (from != FILE_) {
                CHECK_EQ(weft_scope_open(&s, weft_now() + WEFT_MSEC), 0);
                CHECK_EQ(weft_read(h.fd[0], c, 8), -ETIMEDOUT);
                CHECK_EQ(weft_scope_close(&s), -ETIMEDOUT);
            }
            replace(h.fd, to);
            weft_wg_add(&h.ended, 1);
            CHECK_EQ(weft_go(inherit, &h), 0);
            CHECK_EQ(weft_wg_wait(&h.ended), 0);
            close(h.fd[0]);
            close(h.fd[1]);
        }
}

CASE(another_goroutine_may_get_the_number)
{
    run_each_procs(heirs_main);
}

/* The old one lives on under another number, and what happens to it still has the old number's mark. */
static void outlived_main(void *arg)
{
    for (int i = 0; i < 3; i++) {
        int fd[2], next[2];
        STREAM_KINDS[i].make(fd);
        struct one_call c = {.fn = call_read, .fd = fd[0]};
        call_begin(&c);
        CHECK_EQ(weft_write(fd[1], "a", 1), 1);
        CHECK_EQ(call_end(&c), 1);
        int old = fcntl(fd[0], F_DUPFD_CLOEXEC, 0);
        unix_pair(next);
        CHECK_EQ(dup3(next[0], fd[0], O_CLOEXEC), fd[0]);
        call_begin(&c);
        CHECK_EQ(weft_write(fd[1], "old", 3), 3); /* an event for the number, but not for what it means now */
        let_others_run();
        CHECK_EQ(c.result, -1000);
        CHECK_EQ(weft_write(next[1], "new", 3), 3);
        CHECK_EQ(call_end(&c), 3);
        CHECK(memcmp(c.text, "new", 3) == 0);
        CHECK_EQ(weft_read(old, c.text, 8), 3);
        CHECK(memcmp(c.text, "old", 3) == 0);
        CHECK_EQ(weft_close_fd(old), 0);
        close_both(fd);
        close_both(next);
    }
    (void)arg;
}

CASE(the_old_one_may_live_on_under_another_number)
{
    run_each_procs(outlived_main);
}

/* One datagram is one datagram, though the number was a stream's. */
static void bounds_main(void *arg)
{
    int fd[2];
    char text[8];
    (void)arg;
    unix_pair(fd);
    use(0, fd, true);
    replace(fd, 4);
    CHECK_EQ(weft_write(fd[1], "ab", 2), 2);
    CHECK_EQ(weft_write(fd[1], "cd", 2), 2);
    CHECK_EQ(weft_recv_from(fd[0], text, 8, MSG_WAITALL, NULL, NULL), 2);
    CHECK_EQ(weft_read(fd[0], text, 8), 2);
    CHECK(memcmp(text, "cd", 2) == 0);
    close(fd[0]);
    close(fd[1]);
}

CASE(a_datagram_keeps_its_bounds_where_a_stream_was)
{
    run_each_procs(bounds_main);
}

/* What was known of a number as a TCP socket's is forgotten once it is another's. */
static void forgotten_main(void *arg)
{
    int fd[2], sender;
    char text[64];
    (void)arg;
    tcp_pair(fd);
    struct one_call read = {.fn = call_read, .fd = fd[0]};
    call_begin(&read);
    CHECK_EQ(weft_write(fd[1], "x", 1), 1);
    CHECK_EQ(call_end(&read), 1); /* registered, and believed to be empty now */
    struct sockaddr_in at = loopback();
    socklen_t n = sizeof at;
    int other = socket_of(AF_INET, SOCK_DGRAM);
    CHECK_EQ(bind(other, (struct sockaddr *)&at, n), 0);
    CHECK_EQ(getsockname(other, (struct sockaddr *)&at, &n), 0);
    CHECK_EQ(dup3(other, fd[0], O_CLOEXEC), fd[0]);
    close(other);
    sender = socket_of(AF_INET, SOCK_DGRAM);
    for (int i = 0; i < 3; i++)
        CHECK_EQ(sendto(sender, "abc", 3, 0, (struct sockaddr *)&at, n), 3);
    for (int i = 0; i < 3; i++)
        CHECK_EQ(weft_read(fd[0], text, sizeof text), 3);
    CHECK_EQ(ld_relaxed(&w_fd_find(fd[0])->hint), W_HINT_SOCKET);
    close(sender);
    close_both(fd);
}

CASE(what_was_known_of_a_stream_is_forgotten_with_it)
{
    run_each_procs(forgotten_main);
}

/* ---- closes that wait ------------------------------------------------------------------------------------------- */

enum { LINGER_SECONDS = 2 };

static void close_lingering(void *arg)
{
    CHECK_EQ(weft_close_fd(*(int *)arg), 0);
}

/* The peer does not read: the kernel waits, but has the number free at once. Whoever gets it uses it. */
static void linger_main(void *arg)
{
    static char much[1 << 20];
    int fd[2];
    char c;
    (void)arg;
    tcp_pair(fd);
    CHECK_EQ(setsockopt(fd[1], SOL_SOCKET, SO_LINGER, &(struct linger){1, LINGER_SECONDS}, sizeof(struct linger)), 0);
    for (set_nonblocking(fd[1], true); write(fd[1], much, sizeof much) > 0;)
        ;
    int number = fd[1], pair[2];
    unix_pair(pair);
    int64_t began = weft_now();
    CHECK_EQ(weft_go(close_lingering, &number), 0);
    while (fcntl(number, F_GETFD) >= 0)
        CHECK_EQ(weft_sleep(WEFT_MSEC), 0);
    CHECK_EQ(dup3(pair[1], number, O_CLOEXEC), number);
    CHECK_EQ(weft_write(pair[0], "x", 1), 1);
    CHECK_EQ(weft_read(number, &c, 1), 1);
    CHECK(weft_now() - began < LINGER_SECONDS * WEFT_SEC);
    CHECK_EQ(weft_close_fd(number), 0);
    close_both(pair);
    CHECK_EQ(weft_close_fd(fd[0]), 0);
    CHECK(others_have_ended());
}

CASE(a_close_that_lingers_gives_the_number_away_at_once)
{
    if (check_under_emulator())
        skipped("the emulator waits before it closes");
    else
        run_each_procs(linger_main);
}
