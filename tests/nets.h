/* SPDX-License-Identifier: MIT */
/* What the tests of listening and dialing share. Nothing leaves this machine. */
#ifndef NETS_H
#define NETS_H

#include "scopes.h"
#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <sys/un.h>

/* A text for one call: the same memory serves the next but seven. */
static inline const char *text_of(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static inline const char *text_of(const char *fmt, ...)
{
    static char texts[8][300];
    static _Atomic unsigned next;
    char *text = texts[next++ % 8];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof texts[0], fmt, ap);
    va_end(ap);
    return text;
}

static inline int port_of(int fd)
{
    union {
        struct sockaddr any;
        struct sockaddr_in in;
        struct sockaddr_in6 in6;
    } sa = {0};
    socklen_t n = sizeof sa;
    CHECK_EQ(getsockname(fd, &sa.any, &n), 0);
    return ntohs(sa.in.sin_port); /* of either: they lie in the same place */
}

static inline int option_of(int fd, int level, int option)
{
    int value = -1;
    socklen_t n = sizeof value;
    CHECK_EQ(getsockopt(fd, level, option, &value, &n), 0);
    return value;
}

/* A descriptor as both calls promise it. */
static inline int good(int fd, const char *address)
{
    if (fd < 0)
        check_fail(__FILE__, __LINE__, "\"%s\" gives %d", address, fd);
    else if (!(fcntl(fd, F_GETFL) & O_NONBLOCK) || fcntl(fd, F_GETFD) != FD_CLOEXEC)
        check_fail(__FILE__, __LINE__, "\"%s\" blocks, or lives on after exec", address);
    return fd;
}

static inline int listens(const char *address)
{
    return good(weft_listen(address), address);
}

static inline int dials(const char *address)
{
    return good(weft_dial(address), address);
}

/* One byte goes from one to the other. */
static inline void talk(int from, int to)
{
    char sent = 'w', got = 0;
    CHECK_EQ(weft_write(from, &sent, 1), 1);
    CHECK_EQ(weft_read(to, &got, 1), 1);
    CHECK_EQ(got, sent);
}

/* Whoever dials the address is connected with the listener. */
static inline void leads_to(const char *address, int listener)
{
    int ours = dials(address);
    if (ours < 0)
        return;
    int theirs = weft_accept(listener, NULL, NULL);
    CHECK(theirs >= 0);
    talk(ours, theirs);
    talk(theirs, ours);
    if (option_of(ours, SOL_SOCKET, SO_DOMAIN) != AF_UNIX)
        CHECK(option_of(ours, IPPROTO_TCP, TCP_NODELAY) != 0);
    CHECK_EQ(weft_close_fd(theirs), 0);
    CHECK_EQ(weft_close_fd(ours), 0);
}

/* ---- sockets of the tests' own ----------------------------------------------------------------------------------- */

/* Bound to port, or to a free one, without listening: whoever dials it is refused. Negative: the port is taken. */
static inline int bound_ipv4(uint32_t host, int port)
{
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(host)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && bind(fd, (struct sockaddr *)&in, sizeof in) == 0)
        return fd;
    close(fd);
    return -1;
}

static inline int bound_ipv6(int port)
{
    struct sockaddr_in6 in6 = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
    in6.sin6_addr = in6addr_loopback;
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && bind(fd, (struct sockaddr *)&in6, sizeof in6) == 0)
        return fd;
    close(fd);
    return -1;
}

static inline bool has_ipv6(void)
{
    int fd = bound_ipv6(0);
    if (fd >= 0)
        close(fd);
    else
        skipped("there is no IPv6 here");
    return fd >= 0;
}

/* Listens on 127.0.0.1, on a port that `hold` could take at another address, where nobody listens. */
static inline int listens_beside(int (*hold)(int port), int *held)
{
    for (int i = 0;; i++) {
        int fd = listens("127.0.0.1:0");
        *held = hold(port_of(fd));
        if (*held >= 0 || i == 100)
            return fd;
        CHECK_EQ(weft_close_fd(fd), 0);
    }
}

#endif
