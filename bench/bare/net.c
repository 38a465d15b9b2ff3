/* SPDX-License-Identifier: MIT */
/*
 * Two threads with an epoll each, level-triggered, and half of the connections each, which never move. An event is one
 * read and one write; no read finds nothing.
 */
#include "../net.h"
#include "bare.h"

#include <pthread.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { LOOPS = 2, EVENTS = 64 };

struct conn {
    int fd;
    bool (*ready)(struct conn *); /* false: it is over */
    struct tally *tally;          /* an echo's client's */
    struct http_input in;
};

static struct {
    pthread_t threads[LOOPS];
    int epolls[LOOPS];
} loops;

static void *loop(void *arg)
{
    int epoll = *(int *)arg;
    struct epoll_event events[EVENTS];
    for (;;) {
        int n = epoll_wait(epoll, events, EVENTS, -1);
        for (int i = 0; i < n; i++) {
            struct conn *c = events[i].data.ptr;
            if (c->ready(c))
                continue;
            epoll_ctl(epoll, EPOLL_CTL_DEL, c->fd, NULL); /* a child that is being started may have it open as well */
            close(c->fd);
            free(c);
        }
    }
    return NULL;
}

static void start_loops(void)
{
    for (int i = 0; i < LOOPS; i++) {
        loops.epolls[i] = epoll_create1(EPOLL_CLOEXEC);
        must("pthread_create", -pthread_create(&loops.threads[i], NULL, loop, &loops.epolls[i]));
    }
}

static struct conn *new_conn(int fd, bool (*ready)(struct conn *), struct tally *tally)
{
    struct conn *c = calloc(1, sizeof *c);
    if (fd < 0 || c == NULL)
        die("a connection", errno);
    *c = (struct conn){.fd = fd, .ready = ready, .tally = tally};
    send_at_once(fd);
    return c;
}

static void give_to_loop(struct conn *c, int index)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
    if (epoll_ctl(loops.epolls[index % LOOPS], EPOLL_CTL_ADD, c->fd, &event) != 0)
        die("epoll_ctl", errno);
}

/* ---- echo ------------------------------------------------------------------------------------------------------- */

static bool pass_on(struct conn *c)
{
    char buffer[BUFFER_SIZE];
    expect("the size of a message", read(c->fd, buffer, sizeof buffer), MESSAGE_SIZE);
    if (c->tally != NULL)
        count_one(c->tally);
    expect("what was written", write(c->fd, buffer, MESSAGE_SIZE), MESSAGE_SIZE);
    return true;
}

static void sleep_ns(int64_t ns)
{
    struct timespec t = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
    nanosleep(&t, NULL);
}

void echo(const struct workload *w)
{
    static struct tally tallies[CONNECTIONS];
    struct sockaddr_in address;
    int listener = listen_here(&address);
    start_loops();
    for (int i = 0; i < CONNECTIONS; i++) {
        int fd = tcp_socket();
        if (connect(fd, (struct sockaddr *)&address, sizeof address) != 0)
            die("connect", errno);
        struct conn *client = new_conn(fd, pass_on, &tallies[i]);
        give_to_loop(new_conn(accept(listener, NULL, NULL), pass_on, NULL), i);
        give_to_loop(client, i);
        expect("what was written", write(fd, (char[MESSAGE_SIZE]){0}, MESSAGE_SIZE), MESSAGE_SIZE);
    }
    report_echoes(w, measure_rates(tallies, CONNECTIONS, sleep_ns)); /* the end of the process stops them */
}

/* ---- http ------------------------------------------------------------------------------------------------------- */

static bool answer(struct conn *c)
{
    struct iovec answers[MAX_ANSWERS];
    ssize_t n = read(c->fd, c->in.bytes + c->in.have, sizeof c->in.bytes - c->in.have);
    if (n <= 0)
        return false;
    c->in.have += (size_t)n;
    int count = take_requests(&c->in, answers);
    if (count == 0)
        return true;
    /* The kernel's buffer has room: no client asks before it has read. */
    return (count == 1 ? send(c->fd, ANSWER, sizeof ANSWER - 1, MSG_NOSIGNAL) : writev(c->fd, answers, count)) > 0;
}

static void *accept_all(void *arg)
{
    for (int i = 0;; i++)
        give_to_loop(new_conn(accept4(*(int *)arg, NULL, NULL, SOCK_CLOEXEC), answer, NULL), i);
    return NULL;
}

void http_raw(const struct workload *w)
{
    struct sockaddr_in address;
    int listener = listen_here(&address);
    start_loops();
    pthread_t acceptor;
    must("pthread_create", -pthread_create(&acceptor, NULL, accept_all, &listener));
    measure_http(w, &address);
}
