/* SPDX-License-Identifier: MIT */
/*
 * A TCP proxy: whoever connects to the first address talks to the second. `./proxy 127.0.0.1:8080 example.org:80` serves
 * until SIGINT or SIGTERM. Without addresses it tries itself:
 *
 *   $ cc proxy.c -lweft -o proxy && ./proxy
 *   1048576 bytes there and back: the same
 *
 * A connection is two goroutines in a scope of their own:
 *
 *      client ──> pump ──> target      Each reads only after it has written: a slow reader slows the writer down, and no more
 *             <── pump <──             than a buffer is under way here.
 *
 * When one side has said all it wants to say, the other is told so, and the other direction goes on. When one breaks off,
 * both are reset: a connection that was cut must not look like one that has come to its end.
 */
#include "server.h"

enum { BUFFER = 16384, TRIAL = 1 << 20 };

static const char *target;

/* ---- the proxy -------------------------------------------------------------------------------------------------- */

struct pump {
    weft_scope *scope;
    int from, to;
};

static void pump(void *arg)
{
    struct pump *p = arg;
    char buffer[BUFFER];
    ssize_t n, written = 0;
    while ((n = weft_read(p->from, buffer, sizeof buffer)) > 0 && (written = weft_write(p->to, buffer, (size_t)n)) == n)
        ;
    if (n == 0)
        shutdown(p->to, SHUT_WR);
    else
        weft_scope_cancel(p->scope, n < 0 ? (int)n : written < 0 ? (int)written : -EPIPE);
}

/* 0: both directions have come to their end. */
static int connect_both(int client, int server)
{
    weft_scope s;
    struct pump there = {&s, client, server}, back = {&s, server, client};
    int err = weft_scope_open(&s, WEFT_NEVER);
    if (err != 0)
        return err;
    no_delay(server);
    err = weft_scope_go(&s, pump, &there);
    if (err != 0)
        weft_scope_cancel(&s, err);
    pump(&back);
    return weft_scope_close(&s);
}

static void close_one(int fd, bool reset)
{
    if (fd < 0)
        return;
    if (reset)
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &(struct linger){.l_onoff = 1}, sizeof(struct linger));
    weft_close_fd(fd);
}

static void handle(void *arg)
{
    int client = (int)(intptr_t)arg, server = weft_dial(target);
    int err = server < 0 ? server : connect_both(client, server);
    close_one(client, err != 0);
    close_one(server, err != 0);
}

/* ---- by itself -------------------------------------------------------------------------------------------------- */

static size_t read_to_end(int fd, char *bytes)
{
    size_t size = 0;
    for (ssize_t n; size < TRIAL && (n = weft_read(fd, bytes + size, TRIAL - size)) > 0;)
        size += (size_t)n;
    return size;
}

/* The target: it answers when the question has ended. */
static void answer_late(void *arg)
{
    static char bytes[TRIAL];
    int fd = (int)(intptr_t)arg;
    size_t size = read_to_end(fd, bytes);
    if (weft_read(fd, &(char){0}, 1) == 0)
        weft_write(fd, bytes, size);
    weft_close_fd(fd);
}

static void send_and_compare(void *address)
{
    static char there[TRIAL], back[TRIAL];
    int fd = must(weft_dial(address), address);
    for (size_t i = 0; i < TRIAL; i++)
        there[i] = (char)(i * 2654435761u >> 24);
    weft_write(fd, there, TRIAL);
    shutdown(fd, SHUT_WR);
    size_t size = read_to_end(fd, back);
    printf("%zu bytes there and back: %s\n", size, memcmp(there, back, TRIAL) == 0 ? "the same" : "not the same");
    weft_close_fd(fd);
}

static void try_with(void *address)
{
    target = address;
    server_try(handle, send_and_compare);
}

static void start(void *arg)
{
    char **words = arg;
    if (words[1] == NULL)
        server_try(answer_late, try_with);
    else
        server_run(server_listen(words[1]), handle);
}

int main(int argc, char **argv)
{
    if (argc == 2) {
        fprintf(stderr, "usage: proxy [LISTEN TARGET]\n");
        return 2;
    }
    target = argc > 2 ? argv[2] : NULL;
    server_block_signals();
    return weft_run(start, argv) == 0 ? 0 : 1;
}
