/* SPDX-License-Identifier: MIT */
/*
 * A web server that says hello: HTTP/1.1 with keep-alive and pipelining, a goroutine a connection. `./http_hello
 * 127.0.0.1:8080` serves until SIGINT or SIGTERM; a number behind it is the patience, in milliseconds. Without an address it
 * asks itself four things:
 *
 *   $ cc http_hello.c http_parse.c -lweft -o http_hello && ./http_hello
 *   HTTP/1.1 200 OK
 *   HTTP/1.1 200 OK
 *   HTTP/1.1 405 Method Not Allowed
 *   HTTP/1.1 400 Bad Request
 *
 * A connection goes in rounds: read until a request is complete, answer it and all that came with it, send the answers in one
 * piece. A round has a scope with a deadline, so that nobody keeps us for ever: neither who says nothing, nor who sends a byte
 * now and then, nor who does not read what we send.
 *
 * We hang up in three steps. A close while there is something left to read makes the kernel send a reset, and a reset makes
 * the client's kernel forget what the client has not read: our answer. So: no more from us, then wait until there is no more
 * from the client, then close.
 */
#include <time.h>
#include "http_parse.h"
#include "server.h"

/* For a request, from the end of the one before to its answer; for the client to hang up, when we have. */
static int64_t patience = 10 * WEFT_SEC;

enum { OUT_SIZE = 8192, ANSWER_MAX = 320 };

static const char hello[] = "Hello, World!";

struct connection {
    int fd;
    size_t begin, end; /* in[begin..end) has come and is not used yet */
    size_t filled;     /* out[0..filled) is to be sent */
    bool in_body;      /* the head of request is done with */
    bool over;         /* the last answer was given */
    int64_t answers;   /* so far */
    time_t second;     /* that date shows */
    char date[32];
    struct http_request request;
    char in[HTTP_HEAD_MAX], out[OUT_SIZE];
};

/* ---- answers ---------------------------------------------------------------------------------------------------- */

static const char *reason(int status)
{
    static const struct {
        int status;
        const char *reason;
    } reasons[] = {{200, "OK"},
                   {400, "Bad Request"},
                   {405, "Method Not Allowed\r\nAllow: GET, HEAD"},
                   {408, "Request Timeout"},
                   {413, "Content Too Large"},
                   {414, "URI Too Long"},
                   {431, "Request Header Fields Too Large"},
                   {501, "Not Implemented"},
                   {505, "HTTP Version Not Supported"}};
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++)
        if (reasons[i].status == status)
            return reasons[i].reason;
    return "Error";
}

static const char *date(struct connection *c)
{
    time_t now = time(NULL);
    struct tm tm;
    if (c->second != now) {
        c->second = now;
        strftime(c->date, sizeof c->date, "%a, %d %b %Y %H:%M:%S GMT", gmtime_r(&now, &tm));
    }
    return c->date;
}

/* In one piece with those before it, if there is room. */
static void flush(struct connection *c)
{
    if (c->filled > 0 && weft_write(c->fd, c->out, c->filled) != (ssize_t)c->filled)
        c->over = true;
    c->filled = 0;
}

/* HTTP/1.0 wants to be told that the connection stays, HTTP/1.1 that it does not. */
static const char *connection_field(const struct connection *c)
{
    if (c->over)
        return "Connection: close\r\n";
    return c->request.minor == 0 ? "Connection: keep-alive\r\n" : "";
}

static void answer(struct connection *c, int status)
{
    const char *text = status == 200 ? hello : "";
    if (OUT_SIZE - c->filled < ANSWER_MAX)
        flush(c);
    c->filled += (size_t)snprintf(c->out + c->filled, OUT_SIZE - c->filled,
                                  "HTTP/1.1 %d %s\r\nServer: weft\r\nDate: %s\r\nContent-Type: text/plain\r\n"
                                  "Content-Length: %zu\r\n%s\r\n%s",
                                  status, reason(status), date(c), strlen(text), connection_field(c),
                                  c->request.method == HTTP_HEAD ? "" : text);
    c->answers++;
}

/* ---- requests --------------------------------------------------------------------------------------------------- */

/* Appends what has come; its size, 0 at the end, or an error. The parser leaves room: it never wants more of a full buffer. */
static ssize_t fill(struct connection *c)
{
    memmove(c->in, c->in + c->begin, c->end - c->begin);
    c->end -= c->begin;
    c->begin = 0;
    ssize_t n = weft_read(c->fd, c->in + c->end, sizeof c->in - c->end);
    if (n > 0)
        c->end += (size_t)n;
    return n;
}

/* Takes as much of a request as there is: HTTP_MORE, HTTP_DONE or the status of a refusal. */
static int take(struct connection *c)
{
    struct http_request *r = &c->request;
    size_t used;
    if (!c->in_body) {
        int result = http_head(r, c->in + c->begin, c->end - c->begin);
        if (result != HTTP_DONE)
            return result;
        c->begin += r->size;
        c->in_body = true;
    }
    int result = http_body(r, c->in + c->begin, c->end - c->begin, &used);
    c->begin += used;
    return result;
}

static void go_on(struct connection *c)
{
    static const char text[] = "HTTP/1.1 100 Continue\r\n\r\n";
    flush(c);
    memcpy(c->out, text, c->filled = sizeof text - 1);
    c->request.expects = false;
}

/* Answers what is complete. After a refusal nobody knows where the next request begins, so it is the last answer. */
static void answer_all(struct connection *c)
{
    int result;
    while (!c->over && (result = take(c)) != HTTP_MORE) {
        c->over = result != HTTP_DONE || c->request.close || weft_cancelled() != 0;
        answer(c, result != HTTP_DONE ? result : c->request.method == HTTP_OTHER ? 405 : 200);
        c->request = (struct http_request){0};
        c->in_body = false;
    }
    if (!c->over && c->in_body && c->request.expects)
        go_on(c);
    flush(c);
}

/* ---- connections ------------------------------------------------------------------------------------------------ */

static void play_round(void *arg)
{
    struct connection *c = arg;
    int64_t before = c->answers;
    ssize_t n = 0;
    while (!c->over && c->answers == before && (n = fill(c)) > 0)
        answer_all(c);
    if (n > 0)
        return;
    c->over = true;
    if (n == -ETIMEDOUT && (c->end > 0 || c->in_body))
        answer(c, 408);
}

static void say_farewell(void *arg)
{
    struct connection *c = arg;
    flush(c);
    shutdown(c->fd, SHUT_WR);
    do
        c->begin = c->end = 0;
    while (fill(c) > 0);
}

static void handle(void *fd)
{
    struct connection c;
    memset(&c, 0, offsetof(struct connection, in));
    c.fd = (int)(intptr_t)fd;
    while (!c.over && within(patience, play_round, &c) == 0)
        ;
    within(patience, say_farewell, &c);
    weft_close_fd(c.fd);
}

/* ---- by itself -------------------------------------------------------------------------------------------------- */

/* Four requests at once; the last ends the connection. */
static void ask(void *address)
{
    static const char requests[] = "GET / HTTP/1.1\r\nHost: here\r\n\r\n"
                                   "HEAD / HTTP/1.1\r\nHost: here\r\n\r\n"
                                   "POST / HTTP/1.1\r\nHost: here\r\nContent-Length: 4\r\n\r\nbody"
                                   "nonsense\r\n";
    char text[4096];
    size_t size = 0;
    int fd = must(weft_dial(address), address);
    weft_write(fd, requests, sizeof requests - 1);
    for (ssize_t n; (n = weft_read(fd, text + size, sizeof text - 1 - size)) > 0;)
        size += (size_t)n;
    text[size] = '\0';
    for (const char *at = text; (at = strstr(at, "HTTP/1.1 ")) != NULL; at++)
        printf("%.*s\n", (int)strcspn(at, "\r"), at);
    weft_close_fd(fd);
}

static void start(void *arg)
{
    char **words = arg;
    if (words[1] == NULL)
        server_try(handle, ask);
    else
        server_run(server_listen(words[1]), handle);
}

int main(int argc, char **argv)
{
    if (argc > 2)
        patience = atoi(argv[2]) * WEFT_MSEC;
    server_block_signals();
    return weft_run(start, argv) == 0 ? 0 : 1;
}
