/* SPDX-License-Identifier: MIT */
/* The web server and its clients: what goroutines (http.c) and threads (http_threads.c) have in common. */
#ifndef HTTP_H
#define HTTP_H

#include <netinet/in.h>
#include <sys/types.h>

enum { CLIENTS = 64 };

struct side { /* how one of the two does it */
    const char *name;
    ssize_t (*read)(int, void *, size_t);
    ssize_t (*write)(int, const void *, size_t);
    void (*rest)(int ms); /* lets the others run */
};

void http_serve(const struct side *side, int fd); /* a connection */
void http_ask(const struct side *side, int fd);   /* again and again, until the show is over */
void http_watch(const struct side *side);         /* shows the rate, and ends the show */
int http_address(int listener, struct sockaddr_in *in);
void http_with_threads(void);

#endif
