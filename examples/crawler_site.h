/* SPDX-License-Identifier: MIT */
/* The site that the crawler crawls when it is by itself: 63 pages, and a link that leads nowhere. */
#ifndef CRAWLER_SITE_H
#define CRAWLER_SITE_H

#include "http_parse.h"
#include "server.h"

enum { SITE = 63 };

/* A tree: page n leads to 2n + 1, 2n + 2 and back to the first; the last one also to a page that is not there. */
static inline int write_page(char *text, size_t size, int n)
{
    char links[256] = "<a href=\"/0\">";
    if (2 * n + 2 < SITE)
        sprintf(links + strlen(links), "<a href=\"/%d\"><a href=\"/%d\">", 2 * n + 1, 2 * n + 2);
    if (n == SITE - 1)
        strcat(links, "<a href=\"/nowhere\">");
    return n < 0 || n >= SITE ? snprintf(text, size, "HTTP/1.1 404 Not Found\r\nConnection: close\r\n\r\n")
                              : snprintf(text, size, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n%s\r\n", links);
}

static inline void serve_page(void *arg)
{
    int fd = (int)(intptr_t)arg, number = -1, result;
    char in[HTTP_HEAD_MAX + 1], out[512];
    struct http_request r = {0};
    ssize_t n = 0;
    size_t size = 0;
    while ((result = http_head(&r, in, size)) == HTTP_MORE && (n = weft_read(fd, in + size, HTTP_HEAD_MAX - size)) > 0)
        size += (size_t)n;
    if (result == HTTP_DONE) {
        in[r.target_offset + r.target_size] = '\0';
        sscanf(in + r.target_offset, "/%d", &number);
        weft_write(fd, out, (size_t)write_page(out, sizeof out, number));
    }
    weft_close_fd(fd);
}

#endif
