/* SPDX-License-Identifier: MIT */
/*
 * The client of the workload `mixed`, a process of its own and the same for all servers:
 *
 *     mixed_client NAME PORT      asks the server on that port of this machine and prints its report under that name
 *
 * Each of 16 connections sends a request, waits for the answer and pauses for a random time, PAUSE_NS on the average. What
 * it asks for and how long it pauses comes from a seed of its own and is the same for every server.
 *
 * One request in ten is heavy and costs the server 30 ms of computation. An answer takes some 5 ms on the average, heavy ones
 * included, so that 16 / (35 + 5 ms) = 400 requests come a second, with 40 * 30 ms = 1.2 s of computation: 60 % of two
 * processors. The light ones and this client take another 3 %. So the server has time to spare, and a light request that
 * is late has waited for heavy ones. The unloaded figures are those of the same client without heavy requests.
 *
 * Rejected: requests that come whether or not the earlier ones are answered. Whatever else runs on the machine then makes
 * the server fall behind for good, and the figures show how far.
 */
#include "net.h"

#include <math.h>
#include <poll.h>
#include <sys/prctl.h>

enum { CLIENTS = 16, PAUSE_NS = 35000000, HEAVY_PERCENT = 10, MAX_REQUESTS = 1 << 16 };
enum { WARM_UP_S = 1, UNLOADED_S = 3, LOADED_S = 6, QUICK_S = 3, TINY_S = 1 };
#define GIVE_UP_NS 20000000000 /* without any answer */

#define LIGHT_REQUEST "GET /light HTTP/1.1\r\nHost: localhost\r\n\r\n"
#define HEAVY_REQUEST HEAVY "HTTP/1.1\r\nHost: localhost\r\n\r\n"

struct times {
    size_t n;
    int64_t ns[MAX_REQUESTS];
};

struct client {
    uint64_t seed;
    bool waits, heavy;
    size_t have;  /* bytes of the answer */
    int64_t when; /* it was sent; else: to send the next */
};

static struct client clients[CLIENTS];
static struct pollfd polls[CLIENTS];
static struct times light, heavy;

/* In (0, 1). */
static double uniform(struct client *c)
{
    c->seed ^= c->seed << 13;
    c->seed ^= c->seed >> 7;
    c->seed ^= c->seed << 17;
    return ((double)(c->seed >> 12) + 0.5) / (double)(UINT64_C(1) << 52);
}

static void pause_from(struct client *c, int64_t now)
{
    c->waits = false;
    c->when = now + (int64_t)(-log(uniform(c)) * PAUSE_NS);
}

static void connect_all(int port)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    for (int i = 0; i < CLIENTS; i++) {
        polls[i] = (struct pollfd){.fd = tcp_socket(), .events = POLLIN};
        if (connect(polls[i].fd, (struct sockaddr *)&address, sizeof address) != 0)
            die("connect", errno);
        send_at_once(polls[i].fd);
    }
}

static void ask(int i, int heavy_percent)
{
    struct client *c = &clients[i];
    c->waits = true;
    c->heavy = uniform(c) * 100 < heavy_percent;
    c->have = 0;
    c->when = now_ns();
    const char *request = c->heavy ? HEAVY_REQUEST : LIGHT_REQUEST;
    expect("what was written", write(polls[i].fd, request, strlen(request)), (int64_t)strlen(request));
}

static void hear(int i)
{
    struct client *c = &clients[i];
    char buffer[sizeof ANSWER];
    ssize_t n = read(polls[i].fd, buffer, sizeof buffer);
    if (n <= 0)
        die("read", n == 0 ? EPIPE : errno);
    c->have += (size_t)n;
    if (c->have < sizeof ANSWER - 1)
        return;
    expect("the size of an answer", (int64_t)c->have, sizeof ANSWER - 1);
    int64_t now = now_ns();
    struct times *times = c->heavy ? &heavy : &light;
    if (times->n < MAX_REQUESTS)
        times->ns[times->n++] = now - c->when;
    pause_from(c, now);
}

/* Waits for answers, at most until that time. */
static void hear_until(int64_t time)
{
    int64_t left = time - now_ns();
    left = left < 0 ? 0 : left;
    struct timespec t = {.tv_sec = left / 1000000000, .tv_nsec = left % 1000000000};
    if (ppoll(polls, CLIENTS, &t, NULL) < 0)
        die("ppoll", errno);
    for (int i = 0; i < CLIENTS; i++)
        if (polls[i].revents != 0)
            hear(i);
}

/* Asks where a pause is over and it is not yet the end. Returns when the next one is, or an answer has failed to come;
 * INT64_MAX: all have heard theirs, and it is the end. */
static int64_t ask_all(int64_t end, int heavy_percent)
{
    int64_t next = INT64_MAX;
    for (int i = 0; i < CLIENTS; i++) {
        struct client *c = &clients[i];
        if (!c->waits && c->when <= now_ns() && c->when < end)
            ask(i, heavy_percent);
        int64_t limit = c->when + (c->waits ? GIVE_UP_NS : 0);
        if (c->waits && now_ns() > limit)
            die("an answer", ETIMEDOUT);
        if ((c->waits || c->when < end) && limit < next)
            next = limit;
    }
    return next;
}

/* So many seconds, and until the last request is answered; returns the seconds that it took. */
static double load(int seconds, int heavy_percent)
{
    light.n = heavy.n = 0;
    int64_t begin = now_ns(), end = begin + seconds * INT64_C(1000000000), next;
    for (int i = 0; i < CLIENTS; i++) {
        clients[i].seed = (uint64_t)(i + 1) * UINT64_C(0x9E3779B97F4A7C15);
        pause_from(&clients[i], begin);
    }
    while ((next = ask_all(end, heavy_percent)) != INT64_MAX)
        hear_until(next);
    return (double)(now_ns() - begin) / 1e9;
}

static double percentile(struct times *times, size_t percent)
{
    qsort(times->ns, times->n, sizeof *times->ns, compare_int64);
    return (double)times->ns[times->n * percent / 100];
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: %s NAME PORT\n", argv[0]);
        return 2;
    }
    const struct workload w = {.name = argv[1]};
    prctl(PR_SET_TIMERSLACK, 1); /* requests leave on time */
    connect_all(atoi(argv[2]));
    load(tiny() ? 0 : WARM_UP_S, 0);
    load(quick() ? TINY_S : UNLOADED_S, 0);
    double unloaded = percentile(&light, 99);
    double seconds = load(tiny() ? TINY_S : quick() ? QUICK_S : LOADED_S, HEAVY_PERCENT);
    report(&w, (double)(light.n + heavy.n) / seconds, "req/s");
    report_part(&w, "light_p50", percentile(&light, 50) / 1e3, "us");
    report_part(&w, "light_p99", percentile(&light, 99) / 1e3, "us");
    report_part(&w, "unloaded_p99", unloaded / 1e3, "us");
    report_part(&w, "extra_p99", (percentile(&light, 99) - unloaded) / 1e3, "us");
    report_part(&w, "heavy_p50", percentile(&heavy, 50) / 1e6, "ms");
    return 0;
}
