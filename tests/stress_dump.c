/* SPDX-License-Identifier: MIT */
/*
 * A storm of dumps: goroutines start, wait, compute, block and end in waves, up to 100,000 at a time, while others, and a thread that is no
 * M, dump again and again. Nothing may crash, hang or be said of nobody.
 */
#include "runs.h"
#include "stress.h"
#include <fcntl.h>

enum { DUMPS = 1000, MOST = 100000, USUAL = 400, DUMPERS = 3 };

static struct {
    _Atomic int left, failed, stop;
    weft_chan *ch;
    weft_mutex mu;
    int null, highest;
    uint64_t seed;
    uint64_t streams[3];
} storm;

static __attribute__((noinline)) int deep(int n)
{
    volatile int here = n;
    if (n == 0)
        weft_yield();
    else
        here += deep(n - 1);
    return here;
}

static void compute(uint32_t n)
{
    for (volatile uint32_t i = 0; i < n; i++)
        ;
}

static void in_a_scope(void)
{
    weft_scope s;
    weft_scope_open(&s, weft_now() + WEFT_MSEC);
    weft_sleep(WEFT_SEC);
    weft_scope_close(&s);
}

static void one_of_many(void *arg)
{
    uintptr_t n = (uintptr_t)arg;
    int value = 0;
    switch (n % 8) {
    case 0:
        deep((int)(n / 8 % 30));
        break;
    case 1:
        weft_sleep((int64_t)(n / 8 % 2000) * WEFT_USEC);
        break;
    case 2:
        weft_try_send(storm.ch, &value);
        break;
    case 3:
        weft_try_recv(storm.ch, &value);
        break;
    case 4:
        compute((uint32_t)(n / 8 % 50000));
        break;
    case 5:
        in_a_scope();
        break;
    case 6:
        n % 64 == 6 ? sleep_in_region(1) : weft_yield();
        break;
    default:
        weft_lock(&storm.mu);
        deep((int)(n / 8 % 5));
        weft_unlock(&storm.mu);
    }
}

static void wave(int size, uint64_t *random)
{
    for (int i = 0; i < size; i++) {
        uint32_t n = check_random(random);
        weft_attr attr = {.name = n % 32 == 0 ? "one of many" : NULL, .priority = (int)(n % 3) - 1};
        if (n % 4 == 0)
            weft_go_with(&attr, one_of_many, (void *)(uintptr_t)n);
        else
            weft_go(one_of_many, (void *)(uintptr_t)n);
    }
    while (weft_count() > size / 4 + 8 && !storm.stop)
        weft_sleep(WEFT_MSEC);
}

/* One wave is as high as it gets. */
static void make_waves(void *arg)
{
    uint64_t *random = arg;
    if (random == &storm.streams[0])
        wave(storm.highest, random);
    while (!storm.stop)
        wave(1 + (int)(check_random(random) % USUAL), random);
}

static void dump_on(void)
{
    for (int i; (i = storm.left--) > 0;)
        storm.failed += (i % 2 == 0 ? weft_dump : weft_dump_json)(storm.null) != 0;
}

static void dump_in_goroutine(void *arg)
{
    dump_on();
    weft_wg_done(arg);
}

static void *dump_in_thread(void *arg)
{
    (void)arg;
    dump_on();
    return NULL;
}

/* Asleep: whoever yields again and again leaves little to those of low priority. */
static bool calm_comes(void)
{
    for (int64_t end = weft_now() + 20 * WEFT_SEC; weft_count() > 1 && weft_now() < end;)
        weft_sleep(WEFT_MSEC);
    return weft_count() == 1;
}

static void storm_on(void *arg)
{
    static weft_wg wg;
    pthread_t thread;
    (void)arg;
    wg = (weft_wg){0};
    storm.ch = weft_chan_new(sizeof(int), 16);
    for (int i = 0; i < 3; i++) {
        storm.streams[i] = stress_stream(storm.seed, (uint64_t)i);
        CHECK_EQ(weft_go(make_waves, &storm.streams[i]), 0);
    }
    for (int i = 0; i < DUMPERS; i++) {
        weft_wg_add(&wg, 1);
        CHECK_EQ(weft_go(dump_in_goroutine, &wg), 0);
    }
    CHECK_EQ(pthread_create(&thread, NULL, dump_in_thread, NULL), 0);
    weft_wg_wait(&wg);
    join_in_region(&thread, 1);
    storm.stop = 1;
    bool ended = calm_comes();
    if (!ended)
        weft_dump(STDERR_FILENO);
    CHECK(ended);
    weft_chan_free(storm.ch);
}

static void storm_with(int procs, int dumps)
{
    storm.left = stress_scaled(dumps);
    storm.highest = stress_scaled(dumps == DUMPS ? MOST : MOST / 20);
    storm.failed = storm.stop = 0;
    stress_run(procs, storm.seed, storm_on, NULL);
    CHECK_EQ(storm.failed, 0);
}

CASE(a_storm_of_dumps_crashes_nothing)
{
    storm.seed = check_seed();
    storm.null = open("/dev/null", O_WRONLY);
    storm_with(1, DUMPS / 20);
    storm_with(2, DUMPS);
    storm_with(8, DUMPS / 20);
    close(storm.null);
}
