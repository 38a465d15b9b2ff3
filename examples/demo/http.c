/* SPDX-License-Identifier: MIT */
/*
 * A web server and those who load it, in one process over the loopback. The code of a connection is the same for goroutines and
 * for threads: only who reads and writes differs.
 */
#include <errno.h>
#include <netinet/tcp.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include "../http_parse.h"
#include "demo.h"
#include "http.h"

enum { PIECE = 2048 };

static atomic_llong answers;
static atomic_bool stop;
static double length; /* of the show, in s */

/* ---- both sides ---------------------------------------------------------------------------------------------------- */

void http_serve(const struct side *side, int fd)
{
    static const char hello[] = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhello\n";
    char in[PIECE];
    ssize_t n, size = 0;
    while (size < PIECE && (n = side->read(fd, in + size, (size_t)(PIECE - size))) > 0) {
        struct http_request request = {0};
        int verdict = http_head(&request, in, (size_t)(size += n));
        if (verdict != HTTP_MORE) {
            if (verdict != HTTP_DONE || side->write(fd, hello, sizeof hello - 1) != sizeof hello - 1)
                break;
            size = 0;
        }
    }
}

/* Reads until the whole answer is there, in however many pieces it comes. */
static bool is_answered(const struct side *side, int fd)
{
    static const char end[] = "hello\n";
    char in[PIECE];
    ssize_t n, size = 0, tail = sizeof end - 1;
    while (size < PIECE && (n = side->read(fd, in + size, (size_t)(PIECE - size))) > 0) {
        size += n;
        if (size >= tail && memcmp(in + size - tail, end, (size_t)tail) == 0)
            return true;
    }
    return false;
}

void http_ask(const struct side *side, int fd)
{
    static const char request[] = "GET / HTTP/1.1\r\nHost: here\r\n\r\n";
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    while (!atomic_load_explicit(&stop, memory_order_relaxed) && side->write(fd, request, sizeof request - 1) > 0) {
        if (!is_answered(side, fd))
            break;
        atomic_fetch_add_explicit(&answers, 1, memory_order_relaxed);
    }
}

/* Of this process, in s. */
static double processor_time(void)
{
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    return (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
           (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec) / 1e6;
}

static void report(const char *name, double took, double used)
{
    double n = (double)atomic_exchange(&answers, 0);
    show_row(name, "%d clients, %.0f requests in %.1f s: %.0f a second, %.1f us of processor each", CLIENTS, n, took,
             n / took, used * 1e6 / (n > 0 ? n : 1));
}

void http_watch(const struct side *side)
{
    double began = seconds_now(), now = began, before = began, used = processor_time();
    long long seen = 0;
    while (now - began < length) {
        side->rest(100);
        now = seconds_now();
        long long all = atomic_load(&answers);
        show_live(side->name, "%.0f requests/s", (double)(all - seen) / (now - before));
        before = now;
        seen = all;
    }
    atomic_store(&stop, true);
    report(side->name, now - began, processor_time() - used);
}

int http_address(int listener, struct sockaddr_in *in)
{
    return getsockname(listener, (struct sockaddr *)in, &(socklen_t){sizeof *in}) == 0 ? 0 : -errno;
}

/* ---- goroutines ---------------------------------------------------------------------------------------------------- */

static void rest_weft(int ms)
{
    weft_sleep(ms * WEFT_MSEC);
}

static const struct side goroutines = {"weft", weft_read, weft_write, rest_weft};

static void serve_one(void *fd)
{
    http_serve(&goroutines, (int)(intptr_t)fd);
    weft_close_fd((int)(intptr_t)fd);
}

static void accept_all(void *listener)
{
    int fd;
    while ((fd = weft_accept(*(int *)listener, NULL, NULL)) >= 0)
        must(weft_go(serve_one, (void *)(intptr_t)fd), "weft_go");
}

static void ask_one(void *address)
{
    int fd = must(weft_dial(address), "weft_dial");
    http_ask(&goroutines, fd);
    weft_close_fd(fd);
}

static void with_goroutines(void *arg)
{
    char address[32];
    struct sockaddr_in in = {0};
    weft_scope s;
    int listener = must(weft_listen("127.0.0.1:0"), "weft_listen");
    (void)arg;
    must(http_address(listener, &in), "getsockname");
    snprintf(address, sizeof address, "127.0.0.1:%d", ntohs(in.sin_port));
    must(weft_go(accept_all, &listener), "weft_go");
    must(weft_scope_open(&s, WEFT_NEVER), "weft_scope_open");
    for (int i = 0; i < CLIENTS; i++)
        must(weft_scope_go(&s, ask_one, address), "weft_scope_go");
    http_watch(&goroutines);
    weft_scope_close(&s);
    weft_close_fd(listener);
}

void step_http(void)
{
    length = quick ? 0.3 : 4;
    show_step(5, "A web server under load",
              "A goroutine a connection, written as if each call blocked; the netpoller does the rest.");
    run_weft(with_goroutines, NULL);
    atomic_store(&stop, false);
    http_with_threads();
}
