/* SPDX-License-Identifier: MIT */
/*
 * Many goroutines, each a client of a library that nobody here wrote, and a look at how many threads that takes.
 *
 * tests/posix/run.py starts the server and says in the environment where it is.
 */
#ifndef CLIENTS_H
#define CLIENTS_H

#include "../runs.h"
#include <stdlib.h>

enum {
    PROCS = 2,
    SPARE_THREADS = 20,      /* the monitor, and those that blocked for a moment */
    CLIENT_STACK = 256 << 10 /* libraries keep buffers on it */
};

typedef void client_fn(int id);

struct clients {
    client_fn *client;
    weft_fn *server; /* started first, if there is one; it is discarded at the end */
    int count;
    _Atomic long requests; /* by the clients */
    weft_wg all;
    int most_threads; /* sampler */
};

static struct clients clients; /* of the case that runs */

static void one_client(void *arg)
{
    clients.client(*(int *)arg);
    weft_wg_done(&clients.all);
}

static void sample_threads(void *arg)
{
    (void)arg;
    for (;; weft_sleep(2 * WEFT_MSEC)) {
        int n = check_threads();
        if (n > clients.most_threads)
            clients.most_threads = n;
    }
}

static void clients_main(void *arg)
{
    (void)arg;
    weft_wg_add(&clients.all, clients.count);
    CHECK_EQ(weft_go(sample_threads, NULL), 0);
    if (clients.server != NULL)
        CHECK_EQ(weft_go(clients.server, NULL), 0);
    for (int i = 0; i < clients.count; i++)
        CHECK_EQ(weft_go_copy(one_client, &i, sizeof i), 0);
    CHECK_EQ(weft_wg_wait(&clients.all), 0);
}

/* All of them share a few threads. Without libweft_posix there would be one for each that waits. */
static inline void run_clients(int count, client_fn *client, weft_fn *server)
{
    clients = (struct clients){.client = client, .server = server, .count = count};
    int64_t began = weft_now();
    CHECK_EQ(weft_run_with(&(weft_config){.procs = PROCS, .stack_size = CLIENT_STACK}, clients_main, NULL), 0);
    printf("# %d goroutines, %ld requests, %lld ms, at most %d threads for %d processors\n", count, clients.requests,
           (long long)((weft_now() - began) / WEFT_MSEC), clients.most_threads, PROCS);
    CHECK(clients.most_threads <= PROCS + SPARE_THREADS);
}

/* Where the server is. */
static inline const char *server_at(const char *variable)
{
    const char *at = getenv(variable);
    if (at != NULL)
        return at;
    fprintf(stderr, "%s is not set: tests/posix/run.py does that\n", variable);
    exit(2);
}

#endif
