/* SPDX-License-Identifier: MIT */
/*
 * A program that is worth looking at, for the tests of the live picture and of weft top.
 *
 *      lively [HOGS] [SECONDS]
 *
 * Goroutines that are always there, by their names: 40 "sleeper" (asleep for an hour), 3 "sorter" (in a ring of channels that
 * never stands still), 8 "worker" with a "feeder" in front, 1 "blocker" in a blocking region, and HOGS "hog" that compute and call
 * nothing; beside them jobs that come in bursts and end. It serves its picture on LIVELY_ADDRESS, prints the port, and ends after SECONDS.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <weft.h>

enum { SLEEPERS = 40, RING = 3, WORKERS = 8 };

static weft_chan *ring[RING], *jobs;

static void must(int r, const char *what)
{
    if (r >= 0)
        return;
    fprintf(stderr, "lively: %s: error %d\n", what, -r);
    exit(1);
}

static void start(const char *name, weft_fn *fn, void *arg)
{
    must(weft_go_with(&(weft_attr){.name = name}, fn, arg), name);
}

static void sleep_long(void *arg)
{
    (void)arg;
    weft_sleep(3600 * WEFT_SEC);
}

static void pass_on(void *arg)
{
    size_t i = (size_t)(intptr_t)arg;
    int value;
    while (weft_recv(ring[i], &value) == 0) {
        weft_sleep(200 * WEFT_USEC);
        weft_send(ring[(i + 1) % RING], &value);
    }
}

static void compute(int64_t ns)
{
    static volatile double sink;
    for (int64_t end = weft_now() + ns; weft_now() < end;)
        for (int i = 0; i < 1000; i++)
            sink = sink * 0.5 + i;
}

static void do_job(void *arg)
{
    (void)arg;
    compute(40 * WEFT_USEC);
    weft_yield();
    compute(40 * WEFT_USEC);
}

static void work(void *arg)
{
    (void)arg;
    int job;
    while (weft_recv(jobs, &job) == 0)
        compute(job * WEFT_USEC);
}

static void feed(void *arg)
{
    (void)arg;
    unsigned int seed = 1;
    for (;;) {
        for (int i = rand_r(&seed) % 64; i > 0; i--)
            weft_go(do_job, NULL);
        for (int i = 0; i < 32; i++)
            weft_send(jobs, &(int){rand_r(&seed) % 60});
        weft_sleep(10 * WEFT_MSEC);
    }
}

static void block(void *arg)
{
    (void)arg;
    for (;;) {
        weft_block_enter();
        sleep(1);
        weft_block_leave();
    }
}

static void hog(void *arg)
{
    static volatile uint64_t sink;
    (void)arg;
    for (;;)
        sink++;
}

static void lively(void *arg)
{
    char **words = arg;
    int hogs = words[1] != NULL ? atoi(words[1]) : 0;
    int seconds = words[1] != NULL && words[2] != NULL ? atoi(words[2]) : 30;
    jobs = weft_chan_new(sizeof(int), 16);
    for (int i = 0; i < SLEEPERS; i++)
        start("sleeper", sleep_long, NULL);
    for (int i = 0; i < RING; i++)
        ring[i] = weft_chan_new(sizeof(int), 1);
    for (int i = 0; i < RING; i++)
        start("sorter", pass_on, (void *)(intptr_t)i);
    weft_send(ring[0], &(int){0});
    for (int i = 0; i < WORKERS; i++)
        start("worker", work, NULL);
    start("feeder", feed, NULL);
    start("blocker", block, NULL);
    for (int i = 0; i < hogs; i++)
        start("hog", hog, NULL);
    int port = weft_http_start(getenv("LIVELY_ADDRESS"));
    must(port, "weft_http_start");
    printf("%d\n", port);
    fflush(stdout);
    weft_sleep(seconds * WEFT_SEC);
}

int main(int argc, char **argv)
{
    (void)argc;
    return weft_run(lively, argv) == 0 ? 0 : 1;
}
