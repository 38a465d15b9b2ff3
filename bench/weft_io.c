/* SPDX-License-Identifier: MIT */
/* What waits for the kernel: blocking regions, sockets, files. */
#include "burn.h"
#include "files.h"
#include "net.h"
#include "weft_bench.h"

static void sleep_ns(int64_t ns)
{
    must("weft_sleep", weft_sleep(ns));
}

/* Set when those who go on until they are stopped should end. */
static atomic_bool stop;

static bool goes_on(void)
{
    return !atomic_load_explicit(&stop, memory_order_relaxed);
}

/* ---- blocking: goroutines sleep in the kernel while others count ------------------------------------------------ */

enum { BLOCKERS = 64, COUNTERS = 2, BLOCKS = 200, COUNT_AT_ONCE = 100000 /* some 30 us */ };

static struct {
    weft_wg counters, blockers;
    _Atomic int64_t most_threads, counted;
} blocks;

static void look_at_threads(void)
{
    int64_t now = status_field("Threads"), most = atomic_load(&blocks.most_threads);
    while (now > most && !atomic_compare_exchange_weak(&blocks.most_threads, &most, now))
        ;
}

static void block_often(void *arg)
{
    (void)arg;
    const struct timespec millisecond = {.tv_nsec = 1000000};
    for (int i = 0; i < BLOCKS; i++) {
        weft_block_enter();
        nanosleep(&millisecond, NULL);
        if (i == BLOCKS / 2)
            look_at_threads();
        weft_block_leave();
    }
    weft_wg_done(&blocks.blockers);
}

static void count(void *arg)
{
    (void)arg;
    int64_t n = 0;
    for (; goes_on(); weft_yield())
        for (int i = 0; i < COUNT_AT_ONCE; i++)
            __asm__ volatile("" : "=r"(n) : "0"(n + 1));
    blocks.counted += n;
    weft_wg_done(&blocks.counters);
}

void blocking(const struct workload *w)
{
    weft_wg_add(&blocks.counters, COUNTERS);
    for (int i = 0; i < COUNTERS; i++)
        go(count, NULL);
    weft_wg_add(&blocks.blockers, BLOCKERS);
    int64_t start = now_ns();
    for (int i = 0; i < BLOCKERS; i++)
        go(block_often, NULL);
    wait_for(&blocks.blockers);
    double total = ms_since(start);
    atomic_store(&stop, true);
    wait_for(&blocks.counters);
    report_part(w, "total", total, "ms");
    report_part(w, "counted", (double)blocks.counted / 1e3 / total, "M/s");
    report_part(w, "threads", (double)atomic_load(&blocks.most_threads), "threads");
}

/* ---- sockets ---------------------------------------------------------------------------------------------------- */

static int accept_one(int listener)
{
    int fd = weft_accept(listener, NULL, NULL);
    must("weft_accept", fd);
    send_at_once(fd);
    return fd;
}

static int connect_to(const struct sockaddr_in *address)
{
    int fd = tcp_socket();
    must("weft_connect", weft_connect(fd, (const struct sockaddr *)address, sizeof *address));
    send_at_once(fd);
    return fd;
}

static void close_socket(int fd)
{
    must("weft_close_fd", weft_close_fd(fd));
}

/* ---- echo: 64 connections, each with a client and a server in this process -------------------------------------- */

static struct {
    weft_wg done;
    struct tally tallies[CONNECTIONS];
} echoes;

struct end {
    int fd;
    struct tally *tally; /* the client's */
};

static void echo_server(void *arg)
{
    int fd = ((struct end *)arg)->fd;
    char buffer[BUFFER_SIZE];
    ssize_t n;
    while ((n = weft_read(fd, buffer, sizeof buffer)) > 0)
        expect("what was written", weft_write(fd, buffer, (size_t)n), n);
    must("weft_read", (int)n);
    close_socket(fd);
    weft_wg_done(&echoes.done);
}

static void read_whole(int fd, char *buffer, size_t size)
{
    for (size_t have = 0; have < size;) {
        ssize_t n = weft_read(fd, buffer + have, size - have);
        if (n <= 0)
            die("weft_read", n == 0 ? EPIPE : (int)-n);
        have += (size_t)n;
    }
}

static void echo_client(void *arg)
{
    struct end *end = arg;
    char message[MESSAGE_SIZE], answer[MESSAGE_SIZE];
    memset(message, 'm', sizeof message);
    memset(answer, 0, sizeof answer);
    do {
        expect("what was written", weft_write(end->fd, message, sizeof message), sizeof message);
        read_whole(end->fd, answer, sizeof answer);
        count_one(end->tally);
    } while (goes_on());
    expect("the difference of the echo", memcmp(message, answer, sizeof message), 0);
    close_socket(end->fd);
    weft_wg_done(&echoes.done);
}

void echo(const struct workload *w)
{
    struct sockaddr_in address;
    int listener = listen_here(&address);
    weft_wg_add(&echoes.done, 2 * CONNECTIONS);
    for (int i = 0; i < CONNECTIONS; i++) {
        struct end client = {.fd = connect_to(&address), .tally = &echoes.tallies[i]};
        struct end server = {.fd = accept_one(listener)};
        go_copy(echo_server, &server, sizeof server);
        go_copy(echo_client, &client, sizeof client);
    }
    struct rates r = measure_rates(echoes.tallies, CONNECTIONS, sleep_ns);
    atomic_store(&stop, true);
    wait_for(&echoes.done);
    close_socket(listener);
    report_echoes(w, r);
}

/* ---- http, mixed: another process asks, a hand-written loop answers --------------------------------------------- */

static int64_t heavy_steps; /* of computation for a heavy request */

/* False: the connection is gone. */
static bool answer(int fd, struct http_input *in)
{
    struct iovec answers[MAX_ANSWERS];
    int n = take_requests(in, answers);
    for (; in->heavy > 0; in->heavy--)
        burn(heavy_steps);
    ssize_t sent = n == 0 ? 0 : n == 1 ? weft_write(fd, ANSWER, sizeof ANSWER - 1) : weft_writev(fd, answers, n);
    if (sent != -EPIPE && sent != -ECONNRESET)
        must("weft_write", (int)sent);
    return sent >= 0;
}

static void serve_http(void *arg)
{
    int fd = *(int *)arg;
    struct http_input in = {0};
    ssize_t n;
    while ((n = weft_read(fd, in.bytes + in.have, sizeof in.bytes - in.have)) > 0) {
        in.have += (size_t)n;
        if (!answer(fd, &in))
            break;
    }
    if (n != -ECONNRESET)
        must("weft_read", (int)n);
    close_socket(fd);
}

static void accept_all(void *arg)
{
    int listener = *(int *)arg;
    for (;;) {
        int fd = accept_one(listener);
        go_copy(serve_http, &fd, sizeof fd);
    }
}

static void serve(const struct workload *w, void (*measure)(const struct workload *, const struct sockaddr_in *))
{
    struct sockaddr_in address;
    int listener = listen_here(&address);
    go_copy(accept_all, &listener, sizeof listener);
    weft_block_enter();
    measure(w, &address);
    weft_block_leave();
}

void http_raw(const struct workload *w)
{
    serve(w, measure_http);
}

void mixed(const struct workload *w)
{
    heavy_steps = burns_in(HEAVY_NS);
    serve(w, measure_mixed);
}

/* ---- files: 32 goroutines read pages at random, from the page cache or (w->size == O_DIRECT) from the device ---- */

static struct {
    struct pages pages;
    weft_wg done;
    struct tally tallies[READERS];
} file;

static void read_pages(void *arg)
{
    struct tally *tally = arg;
    struct page *page = new_pages(1);
    uint64_t state = (uint64_t)(tally - file.tallies) + 1;
    while (goes_on()) {
        uint64_t number = next_page(&file.pages, &state);
        check_page(page, weft_pread(file.pages.fd, page, PAGE_SIZE, (off_t)(number * PAGE_SIZE)), number);
        count_one(tally);
    }
    free(page);
    weft_wg_done(&file.done);
}

void files(const struct workload *w)
{
    if (!make_pages(w, &file.pages, w->size))
        return;
    weft_wg_add(&file.done, READERS);
    for (int i = 0; i < READERS; i++)
        go(read_pages, &file.tallies[i]);
    struct rates r = measure_rates(file.tallies, READERS, sleep_ns);
    atomic_store(&stop, true);
    wait_for(&file.done);
    report_reads(w, r);
}
