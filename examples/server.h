/* SPDX-License-Identifier: MIT */
/*
 * What the servers among the examples have in common: a listener, a goroutine a connection, and an end at SIGINT or SIGTERM.
 *
 *      int main(int argc, char **argv)
 *      {
 *          server_block_signals();
 *          return weft_run(start, argv) == 0 ? 0 : 1;      start: server_run(server_listen(argv[1]), handle);
 *      }
 */
#ifndef SERVER_H
#define SERVER_H

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <weft.h>

static inline int must(int result, const char *what)
{
    if (result >= 0)
        return result;
    fprintf(stderr, "%s: %s\n", what, strerror(-result));
    exit(1);
}

/* Calls fn(arg) in a scope with so much time; 0, or why it did not get to its end. */
static inline int within(int64_t time, weft_fn *fn, void *arg)
{
    weft_scope s;
    int err = weft_scope_open(&s, weft_now() + time);
    if (err != 0)
        return err;
    fn(arg);
    return weft_scope_close(&s);
}

/* ---- addresses -------------------------------------------------------------------------------------------------- */

struct server_address {
    char text[80];
};

/* Where a TCP listener on IPv4 or IPv6 listens, in the form that weft_dial takes. */
static inline struct server_address server_address(int listener)
{
    struct server_address address;
    struct sockaddr_in6 six = {0};
    struct sockaddr_in four;
    char host[INET6_ADDRSTRLEN];
    getsockname(listener, (struct sockaddr *)&six, &(socklen_t){sizeof six});
    memcpy(&four, &six, sizeof four);
    bool is_six = six.sin6_family == AF_INET6;
    inet_ntop(six.sin6_family, is_six ? (void *)&six.sin6_addr : (void *)&four.sin_addr, host, sizeof host);
    snprintf(address.text, sizeof address.text, is_six ? "[%s]:%d" : "%s:%d", host, ntohs(four.sin_port));
    return address;
}

/* Says where, since port 0 is any that is free. */
static inline int server_listen(const char *address)
{
    int listener = must(weft_listen(address), address);
    bool local = strncmp(address, "unix:", 5) == 0;
    printf("listening on %s\n", local ? address : server_address(listener).text);
    fflush(stdout);
    return listener;
}

/* For TCP: small pieces go out at once. */
static inline void no_delay(int fd)
{
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
}

/* ---- connections ------------------------------------------------------------------------------------------------ */

/* Out of descriptors or memory, a client that has gone before we came: such errors pass. These do not. */
static inline bool server_is_over(int err)
{
    return err == -ECANCELED || err == -ETIMEDOUT || err == -EBADF || err == -EINVAL || err == -ENOTSOCK;
}

static inline int server_start(weft_scope *s, weft_fn *handle, int fd)
{
    no_delay(fd);
    int err = weft_scope_go(s, handle, (void *)(intptr_t)fd);
    if (err < 0)
        weft_close_fd(fd);
    return err;
}

/* A goroutine for each connection: handle((void *)fd), which closes it. Until the scope around is over; when it returns they
 * have all ended. An error that passes costs a short sleep: accept would fail again at once. */
static inline int server_accept(int listener, weft_fn *handle)
{
    weft_scope s;
    int err = weft_scope_open(&s, WEFT_NEVER);
    while (!server_is_over(err) && (err = weft_cancelled()) == 0) {
        err = weft_accept(listener, NULL, NULL);
        if (err >= 0)
            err = server_start(&s, handle, err);
        if (err < 0 && !server_is_over(err))
            err = weft_sleep(10 * WEFT_MSEC);
    }
    weft_scope_cancel(&s, err);
    weft_scope_close(&s);
    return err;
}

/* ---- the end ---------------------------------------------------------------------------------------------------- */

static inline sigset_t server_signals(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    return set;
}

/* Before weft_run, so that no thread of it is interrupted: the signals are read from a descriptor. */
static inline void server_block_signals(void)
{
    sigset_t set = server_signals();
    pthread_sigmask(SIG_BLOCK, &set, NULL);
}

struct server_end {
    weft_scope scope;
    int signals; /* a descriptor */
};

static inline void server_await_signal(void *arg)
{
    struct server_end *end = arg;
    struct signalfd_siginfo info;
    if (weft_read(end->signals, &info, sizeof info) > 0)
        weft_scope_cancel(&end->scope, -ECANCELED);
}

/* Serves until a signal comes: no more connections then, and a wait in those that there are is cut. */
static inline void server_run(int listener, weft_fn *handle)
{
    sigset_t set = server_signals();
    struct server_end end = {.signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK)};
    must(end.signals < 0 ? -errno : 0, "signalfd");
    must(weft_scope_open(&end.scope, WEFT_NEVER), "weft_scope_open");
    must(weft_scope_go(&end.scope, server_await_signal, &end), "weft_scope_go");
    server_accept(listener, handle);
    weft_scope_cancel(&end.scope, -ECANCELED);
    weft_scope_close(&end.scope);
    weft_close_fd(end.signals);
    weft_close_fd(listener);
    printf("stopped\n");
}

/* ---- by itself -------------------------------------------------------------------------------------------------- */

/* An example that tries itself: client(address) runs while handle serves there, on a free port of this machine. */
struct server_trial {
    weft_fn *handle;
    int listener;
};

static inline void server_try_serve(void *trial)
{
    struct server_trial *t = trial;
    server_accept(t->listener, t->handle);
}

static inline void server_try(weft_fn *handle, weft_fn *client)
{
    weft_scope s;
    struct server_trial trial = {handle, must(weft_listen("127.0.0.1:0"), "weft_listen")};
    struct server_address address = server_address(trial.listener);
    must(weft_scope_open(&s, WEFT_NEVER), "weft_scope_open");
    must(weft_scope_go(&s, server_try_serve, &trial), "weft_scope_go");
    client(address.text);
    weft_scope_cancel(&s, -ECANCELED);
    weft_scope_close(&s);
    weft_close_fd(trial.listener);
}

#endif
