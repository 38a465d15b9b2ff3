/* SPDX-License-Identifier: MIT */
/* Sockets for echo and http, what an HTTP server of the simplest kind needs, and those who ask it: wrk and mixed_client. */
#ifndef BENCH_NET_H
#define BENCH_NET_H

#include "harness.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

enum { CONNECTIONS = 64, MESSAGE_SIZE = 64 };
enum { BUFFER_SIZE = 4096 }; /* of a server, which does not know how long a message is */

static inline int tcp_socket(void)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        die("socket", errno);
    return fd;
}

/* On a free port of this machine, which address gets. */
static inline int listen_here(struct sockaddr_in *address)
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
static inline void send_at_once(int fd)
{
    if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int)) != 0)
        die("TCP_NODELAY", errno);
}

static inline void report_echoes(const struct workload *w, struct rates r)
{
    report(w, r.done / r.ns * 1e9, "rt/s");
    report_part(w, "cpu_per_rt", r.cpu_ns / 1e3 / r.done, "us");
}

/* ---- the server's side of HTTP ---------------------------------------------------------------------------------- */

#define ANSWER "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 13\r\n\r\nHello, World!"
#define HEAVY  "GET /heavy "
enum { SHORTEST_REQUEST = 16, MAX_ANSWERS = BUFFER_SIZE / SHORTEST_REQUEST };

struct http_input {
    size_t have;
    int heavy; /* of the requests that were taken out, those that want HEAVY_NS of computation */
    char bytes[BUFFER_SIZE];
};

static inline bool is_heavy(const char *request, size_t size)
{
    return size >= sizeof HEAVY - 1 && memcmp(request, HEAVY, sizeof HEAVY - 1) == 0;
}

/* Takes the whole requests out of it; returns how many answers are to be sent, together. */
static inline int take_requests(struct http_input *in, struct iovec answers[MAX_ANSWERS])
{
    static const char END_OF_HEAD[4] = "\r\n\r\n";
    int n = 0;
    char *rest = in->bytes, *limit = in->bytes + in->have, *end;
    while (n < MAX_ANSWERS && (end = memmem(rest, (size_t)(limit - rest), END_OF_HEAD, sizeof END_OF_HEAD)) != NULL) {
        in->heavy += is_heavy(rest, (size_t)(end - rest));
        answers[n++] = (struct iovec){.iov_base = (void *)ANSWER, .iov_len = sizeof ANSWER - 1};
        rest = end + sizeof END_OF_HEAD;
    }
    in->have = (size_t)(limit - rest);
    memmove(in->bytes, rest, in->have);
    return n;
}

/* ---- wrk -------------------------------------------------------------------------------------------------------- */

struct wrk {
    double rate, requests, p50, p99; /* the latter in microseconds */
};

/* A time as wrk prints it, such as 1.90ms, in microseconds. */
static inline double wrk_time(double value, const char *unit)
{
    return value * (strcmp(unit, "us") == 0 ? 1 : strcmp(unit, "ms") == 0 ? 1e3 : 1e6);
}

static inline void read_wrk_line(struct wrk *wrk, const char *line)
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

static inline struct wrk run_wrk(const struct sockaddr_in *address, int seconds)
{
    struct wrk wrk = {0};
    char command[128], line[256];
    snprintf(command, sizeof command, "exec wrk -t1 -c64 -d%ds --latency http://127.0.0.1:%d/", seconds,
             ntohs(address->sin_port));
    FILE *output = popen(command, "re");
    if (output == NULL)
        die("wrk", errno);
    while (fgets(line, sizeof line, output) != NULL)
        read_wrk_line(&wrk, line);
    expect("the status of wrk", pclose(output), 0);
    if (wrk.rate <= 0 || wrk.requests <= 0 || wrk.p50 <= 0 || wrk.p99 <= 0)
        die("what wrk printed", EPROTO);
    return wrk;
}

/* Blocks until wrk has had its time with the server at that address. */
static inline void measure_http(const struct workload *w, const struct sockaddr_in *address)
{
    if (!tiny())
        run_wrk(address, 1); /* warm-up */
    double cpu = cpu_ms();
    struct wrk wrk = run_wrk(address, quick() ? 1 : 5);
    cpu = cpu_ms() - cpu;
    report(w, wrk.rate, "req/s");
    report_part(w, "p50", wrk.p50, "us");
    report_part(w, "p99", wrk.p99, "us");
    report_part(w, "cpu_per_req", cpu * 1e3 / wrk.requests, "us");
}

/* ---- mixed_client ----------------------------------------------------------------------------------------------- */

#define HEAVY_NS 30000000 /* of computation for a heavy request; mixed_client.c tells how many there are */

/* Blocks until the client, which lies beside this program, has asked the server at that address and reported. */
static inline void measure_mixed(const struct workload *w, const struct sockaddr_in *address)
{
    char client[4096], command[sizeof client + 64];
    ssize_t length = readlink("/proc/self/exe", client, sizeof client - 1);
    if (length < 0)
        die("/proc/self/exe", errno);
    client[length] = '\0';
    *strrchr(client, '/') = '\0';
    snprintf(command, sizeof command, "exec '%s/mixed_client' %s %d", client, w->name, ntohs(address->sin_port));
    expect("the status of mixed_client", system(command), 0);
}

#endif
