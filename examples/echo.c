/* SPDX-License-Identifier: MIT */
/*
 * A server that sends back what it gets, and 64 clients that measure it.
 *
 *   $ cc echo.c -lweft -o echo && ./echo
 *   64 clients: ... round trips/s, 0 wrong answers
 *
 * `./echo 127.0.0.1:7000` serves until SIGINT or SIGTERM; `./echo --load 127.0.0.1:7000 [CLIENTS [SECONDS]]` only measures.
 * Without arguments it does both, for a second.
 */
#include <stdatomic.h>
#include "server.h"

enum { MESSAGE = 64, BUFFER = 16384 };

static int clients = 64, seconds = 1;
static atomic_llong trips, wrong;

/* ---- the server ------------------------------------------------------------------------------------------------- */

static void handle(void *arg)
{
    int fd = (int)(intptr_t)arg;
    char buffer[BUFFER];
    ssize_t n;
    while ((n = weft_read(fd, buffer, sizeof buffer)) > 0 && weft_write(fd, buffer, (size_t)n) == n)
        ;
    weft_close_fd(fd);
}

/* ---- the clients ------------------------------------------------------------------------------------------------ */

static ssize_t read_all(int fd, char *buffer, size_t size)
{
    size_t done = 0;
    while (done < size) {
        ssize_t n = weft_read(fd, buffer + done, size - done);
        if (n <= 0)
            return n == 0 ? -EPIPE : n;
        done += (size_t)n;
    }
    return (ssize_t)done;
}

/* 0, or the error that it ended with: -ETIMEDOUT when the scope's time is up. */
static int make_trip(int fd, long trip)
{
    char there[MESSAGE], back[MESSAGE];
    memset(there, 'x', sizeof there);
    snprintf(there, sizeof there, "client %llu, trip %ld", (unsigned long long)weft_id(), trip);
    ssize_t n = weft_write(fd, there, sizeof there);
    if (n == MESSAGE)
        n = read_all(fd, back, sizeof back);
    if (n != MESSAGE)
        return n < 0 ? (int)n : -ETIMEDOUT;
    atomic_fetch_add(&wrong, memcmp(there, back, sizeof there) != 0);
    return 0;
}

static void be_a_client(void *address)
{
    int fd = weft_dial(address), err = fd;
    long n = 0;
    no_delay(fd);
    while (err >= 0 && (err = make_trip(fd, n)) == 0)
        n++;
    if (err != -ETIMEDOUT)
        must(err, "client");
    atomic_fetch_add(&trips, n);
    if (fd >= 0)
        weft_close_fd(fd);
}

static void load(void *address)
{
    weft_scope s;
    must(weft_scope_open(&s, weft_now() + seconds * WEFT_SEC), "weft_scope_open");
    for (int i = 0; i < clients; i++)
        must(weft_scope_go(&s, be_a_client, address), "weft_scope_go");
    weft_scope_close(&s);
    printf("%d clients: %lld round trips/s, %lld wrong answers\n", clients, atomic_load(&trips) / seconds,
           atomic_load(&wrong));
}

/* ---- both ------------------------------------------------------------------------------------------------------- */

static void start(void *arg)
{
    char **words = arg;
    if (words[1] == NULL)
        server_try(handle, load);
    else if (strcmp(words[1], "--load") == 0)
        load(words[2]);
    else
        server_run(server_listen(words[1]), handle);
}

int main(int argc, char **argv)
{
    if (argc > 3)
        clients = atoi(argv[3]);
    if (argc > 4)
        seconds = atoi(argv[4]);
    if (clients < 1 || seconds < 1 || (argc == 2 && strcmp(argv[1], "--load") == 0)) {
        fprintf(stderr, "usage: echo [ADDRESS | --load ADDRESS [CLIENTS [SECONDS]]]\n");
        return 2;
    }
    server_block_signals();
    return weft_run(start, argv) == 0 ? 0 : 1;
}
