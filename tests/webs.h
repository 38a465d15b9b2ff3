/* SPDX-License-Identifier: MIT */
/* A client of the live picture's server, in the program that it runs in. */
#ifndef WEBS_H
#define WEBS_H

#include "check.h"
#include "whitebox.h"
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <weft.h>

enum { ROOM = 256 << 10 };

static int port;
static char answer[ROOM];

static inline void run(weft_fn *fn)
{
    CHECK_EQ(weft_run_with(&(weft_config){.procs = 2}, fn, NULL), 0);
}

static inline void start_server(void)
{
    port = weft_http_start(NULL);
    CHECK(port > 0);
}

static inline int dial(void)
{
    char address[64];
    snprintf(address, sizeof address, "127.0.0.1:%d", port);
    int fd = weft_dial(address);
    CHECK(fd >= 0);
    return fd;
}

/* All that comes until the other side closes, or, with a Content-Length, until that is there. */
static inline size_t receive(int fd)
{
    size_t n = 0;
    for (ssize_t k; n < ROOM - 1 && (k = weft_read(fd, answer + n, ROOM - 1 - n)) > 0;) {
        n += (size_t)k;
        answer[n] = '\0';
        const char *end = strstr(answer, "\r\n\r\n"), *length = strstr(answer, "Content-Length: ");
        if (end != NULL && length != NULL && (size_t)(end + 4 - answer) + strtoul(length + 16, NULL, 10) <= n)
            break;
    }
    answer[n] = '\0';
    return n;
}

static inline int status(void)
{
    return strncmp(answer, "HTTP/1.1 ", 9) == 0 ? atoi(answer + 9) : -1;
}

static inline int ask_on(int fd, const char *request)
{
    weft_write(fd, request, strlen(request));
    receive(fd);
    return status();
}

static inline int ask(const char *request)
{
    int fd = dial();
    int s = ask_on(fd, request);
    weft_close_fd(fd);
    return s;
}

static inline int get(const char *target, const char *fields)
{
    char request[1024];
    snprintf(request, sizeof request, "GET %s HTTP/1.1\r\n%s\r\n", target, fields);
    return ask(request);
}

#define HERE "Host: 127.0.0.1:80\r\n"

#endif
