/* SPDX-License-Identifier: MIT */
/* What waits for the kernel: blocking regions, sockets, files. */
#include "files.h"
#include "weft_bench.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

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
    _Atomic int64_t most_threads;
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
    for (int64_t n = 0; goes_on(); weft_yield())
        for (int i = 0; i < COUNT_AT_ONCE; i++)
            __asm__ volatile("" : "+r"(n) : "0"(n + 1));
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
    report_part(w, "threads", (double)atomic_load(&blocks.most_threads), "threads");
}

/* ---- sockets ---------------------------------------------------------------------------------------------------- */

static int tcp_socket(void)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        die("socket", errno);
    return fd;
}

/* On a free port of this machine, which address gets. */
static int listen_here(struct sockaddr_in *address)
{
    *address = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof *address;
    int fd = tcp_socket();
    if (bind(fd, (struct sockaddr *)address, length) != 0 || listen(fd, 1024) != 0 ||
        getsockname(fd, (struct sockaddr *)address, &length) != 0)
        die("a listening socket", errno);
    return fd;
}

/* As Go's connections are from the start. */
static void send_at_once(int fd)
{
    if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int)) != 0)
        die("TCP_NODELAY", errno);
}

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

enum { CONNECTIONS = 64, MESSAGE_SIZE = 64 };

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
    char buffer[MESSAGE_SIZE];
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
    report(w, r.done / r.ns * 1e9, "rt/s");
    report_part(w, "cpu_per_rt", r.cpu_ns / 1e3 / r.done, "us");
}

/* ---- http: wrk asks, a hand-written loop answers ---------------------------------------------------------------- */

#define ANSWER "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 13\r\n\r\nHello, World!"
enum { HTTP_BUFFER = 4096, SHORTEST_REQUEST = 16, MAX_ANSWERS = HTTP_BUFFER / SHORTEST_REQUEST };

/* Answers the whole requests among the *have bytes, together, and keeps the rest. False: the connection is gone. */
static bool answer_all(int fd, char *buffer, size_t *have)
{
    static const char END_OF_HEAD[4] = "\r\n\r\n";
    struct iovec answers[MAX_ANSWERS];
    int n = 0;
    char *rest = buffer, *limit = buffer + *have, *end;
    while (n < MAX_ANSWERS && (end = memmem(rest, (size_t)(limit - rest), END_OF_HEAD, sizeof END_OF_HEAD)) != NULL) {
        answers[n++] = (struct iovec){.iov_base = (void *)ANSWER, .iov_len = sizeof ANSWER - 1};
        rest = end + sizeof END_OF_HEAD;
    }
    *have = (size_t)(limit - rest);
    memmove(buffer, rest, *have);
    if (n == 0)
        return true;
    ssize_t sent = n == 1 ? weft_write(fd, ANSWER, sizeof ANSWER - 1) : weft_writev(fd, answers, n);
    if (sent != -EPIPE && sent != -ECONNRESET)
        must("weft_write", (int)sent);
    return sent >= 0;
}

static void serve_http(void *arg)
{
    int fd = *(int *)arg;
    char buffer[HTTP_BUFFER];
    size_t have = 0;
    ssize_t n;
    while ((n = weft_read(fd, buffer + have, sizeof buffer - have)) > 0) {
        have += (size_t)n;
        if (!answer_all(fd, buffer, &have))
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

struct wrk {
    double rate, requests, p50, p99; /* the latter in microseconds */
};

/* A time as wrk prints it, such as 1.90ms, in microseconds. */
static double wrk_time(double value, const char *unit)
{
    return value * (strcmp(unit, "us") == 0 ? 1 : strcmp(unit, "ms") == 0 ? 1e3 : 1e6);
}

static void read_wrk_line(struct wrk *wrk, const char *line)
{
    double value;
    char unit[8];
    if (strstr(line, "Socket errors") != NULL || strstr(line, "Non-2xx") != NULL) {
        fprintf(stderr, "bench: wrk met errors: %s", line);
        exit(1);
    }
    sscanf(line, "Requests/sec: %lf", &wrk->rate);
    if (strstr(line, " requests in ") != NULL)
        sscanf(line, "%lf", &wrk->requests);
    if (sscanf(line, " 50%% %lf%7s", &value, unit) == 2)
        wrk->p50 = wrk_time(value, unit);
    if (sscanf(line, " 99%% %lf%7s", &value, unit) == 2)
        wrk->p99 = wrk_time(value, unit);
}

static struct wrk run_wrk(const struct sockaddr_in *address, int seconds)
{
    struct wrk wrk = {0};
    char command[128], line[256];
    snprintf(command, sizeof command, "exec wrk -t1 -c64 -d%ds --latency http://127.0.0.1:%d/", seconds,
             ntohs(address->sin_port));
    weft_block_enter();
    FILE *output = popen(command, "re");
    if (output == NULL)
        die("wrk", errno);
    while (fgets(line, sizeof line, output) != NULL)
        read_wrk_line(&wrk, line);
    expect("the status of wrk", pclose(output), 0);
    weft_block_leave();
    if (wrk.rate <= 0 || wrk.requests <= 0 || wrk.p50 <= 0 || wrk.p99 <= 0)
        die("what wrk printed", EPROTO);
    return wrk;
}

void http_raw(const struct workload *w)
{
    struct sockaddr_in address;
    int listener = listen_here(&address);
    go_copy(accept_all, &listener, sizeof listener);
    run_wrk(&address, 1); /* warm-up */
    double cpu = cpu_ms();
    struct wrk wrk = run_wrk(&address, quick() ? 2 : 5);
    cpu = cpu_ms() - cpu;
    report(w, wrk.rate, "req/s");
    report_part(w, "p50", wrk.p50, "us");
    report_part(w, "p99", wrk.p99, "us");
    report_part(w, "cpu_per_req", cpu * 1e3 / wrk.requests, "us");
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
